//! The books over HTTP, for our own command line: what `windlass_store::wire` lists may be asked for here.
//!
//! Reads go to the store. Changes of a workflow go through the service, which keeps its hands off the workflow meanwhile
//! and reads it anew afterwards, so that memory and books agree.

use super::failures;
use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::extract::Json;
use crate::state::{AppState, ask, blocking};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek as _, Write as _};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::{Operation, Relation};
use windlass_engine::service::Quiet;
use windlass_store::Store;
use windlass_store::model::Part;
use windlass_store::wire::{self, Eyes, Level, Request, Subject};
use windlass_types::WorkflowId;
use windlass_types::orders::Wanted;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(books))
}

pub(crate) fn uploads() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(create))
}

/// So much of an upload is gathered before it is written down.
const CHUNK: usize = 1 << 20;

/// One use case of the books
///
/// For the command line of Windlass; programs should use the other calls. The body names a method and its arguments, the
/// answer is `{"ok": …}` or `{"error": …}`.
#[utoipa::path(post, path = "/books", tag = "books", request_body = serde_json::Value, responses(
    (status = 200, description = "What was asked for", body = serde_json::Value),
    (status = 404, description = "There is no such thing, or it is not for you"),
    (status = 409, description = "It cannot be done as things stand", body = serde_json::Value),
    (status = 422, description = "The request makes no sense")))]
async fn books(
    State(state): State<AppState>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Answer<Response> {
    Ok(respond(perform(&state, &caller, request).await?))
}

/// Does what the request asks for, in the caller's name, if he may.
pub(super) async fn perform(state: &AppState, caller: &Caller, request: Request) -> Answer<wire::Answer> {
    match (authorize(state, caller, &request).await?, request.access().level) {
        (Err(hidden), _) => Ok(wire::Answer::new::<()>(Err(hidden))),
        (Ok(workflows), Level::Read) => read(state, caller, request, workflows).await,
        (Ok(workflows), Level::Change) => change(state, caller, request, &workflows).await,
    }
}

/// Make a workflow from its lines
///
/// For the command line of Windlass: one JSON object per line, the workflow first, then files, user data, jobs, and a last
/// line with their numbers. All of it is made, or nothing. It belongs to whoever sends it.
#[utoipa::path(post, path = "/books/create", tag = "books",
    request_body(content = String, content_type = "application/x-ndjson"), responses(
    (status = 200, description = "The id of the workflow", body = serde_json::Value),
    (status = 422, description = "The lines make no sense", body = serde_json::Value)))]
async fn create(State(state): State<AppState>, caller: Caller, body: Body) -> Answer<Response> {
    caller.may(Operation::CreateWorkflow, Relation::Own, "workflow")?;
    let lines = arrive(body, state.options.limits.max_upload).await?;
    let (store, user, now) = (state.store.acting_as(caller.user()), Arc::clone(&caller.0.user), state.now());
    let made = blocking(move || wire::create::create(&*store, lines, Some(&user), now)).await?;
    Ok(respond(wire::Answer::new(made)))
}

fn respond(answer: wire::Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(CONTENT_TYPE, "application/json")], answer.body).into_response()
}

/// The workflows that a request is about, or what the books say of one that is not there.
type Concerned = Result<BTreeSet<WorkflowId>, windlass_store::Error>;

/// The workflows that the request is about, if he may do this to all of them.
async fn authorize(state: &AppState, caller: &Caller, request: &Request) -> Answer<Concerned> {
    let access = request.access();
    let count = access.subject.count();
    if count > wire::MOST_IDS {
        let most = wire::MOST_IDS;
        return Err(ApiError::invalid(format!("the request names {count} objects; the most is {most}"))
            .with_hint("send them in several requests"));
    }
    let operation = operation(request, access.level);
    caller.may(operation, Relation::Own, "such thing")?;
    if let Request::UpdateWorkflow { update, .. } = request
        && update.user.is_some()
    {
        // Whose a workflow is decides who may do what. Not even to take one: it may only be shared with him.
        caller.may(Operation::Administer, Relation::Own, "such thing")?;
    }
    let parts: Vec<Part> = match access.subject {
        Subject::All => {
            // What he may not see is left out.
            caller.may(Operation::Identify, Relation::Own, "such thing")?;
            return Ok(Ok(BTreeSet::new()));
        }
        Subject::Database => {
            caller.may(Operation::Administer, Relation::Own, "such thing")?;
            return Ok(Ok(BTreeSet::new()));
        }
        Subject::New => {
            caller.may(Operation::CreateWorkflow, Relation::Own, "workflow")?;
            return Ok(Ok(BTreeSet::new()));
        }
        Subject::Workflows(ids) => return allowed(state, caller, operation, ids.into_iter().collect()).await,
        Subject::Attempts(keys) => keys.into_iter().map(|key| Part::Job(key.job)).collect(),
        Subject::Jobs(ids) => ids.into_iter().map(Part::Job).collect(),
        Subject::File(id) => vec![Part::File(id)],
        Subject::UserData(id) => vec![Part::UserData(id)],
        Subject::Requirements(id) => vec![Part::Requirements(id)],
        Subject::Result(id) => vec![Part::Result(id)],
        Subject::Event(id) => vec![Part::Event(id)],
        Subject::Scheduler(id) => vec![Part::Scheduler(id)],
        Subject::Allocations(ids) => ids.into_iter().map(Part::Allocation).collect(),
    };
    let ids = state
        .books(move |store| {
            parts.into_iter().map(|part| store.workflow_of(part)).collect::<Result<Vec<_>, _>>()
        })
        .await?;
    // What is not there is told by the store, in its own words.
    allowed(state, caller, operation, ids.into_iter().flatten().collect()).await
}

async fn allowed(
    state: &AppState,
    caller: &Caller,
    operation: Operation,
    ids: BTreeSet<WorkflowId>,
) -> Answer<Concerned> {
    for id in &ids {
        match caller.workflow(state, operation, *id).await {
            Ok(_) => {}
            // In the words of the store, so that it looks the same whether there is none or it is not his.
            Err(error) if error.status == StatusCode::NOT_FOUND => {
                return Ok(Err(windlass_store::Error::NoSuchWorkflow(*id)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(ids))
}

fn operation(request: &Request, level: Level) -> Operation {
    match (request, level) {
        (Request::RequestCancel { .. }, _) => Operation::CancelWorkflow,
        (Request::DeleteWorkflow { .. }, _) => Operation::DeleteWorkflow,
        (Request::Spawn { .. }, _) => Operation::SpawnJobs,
        (Request::AddUserData { .. } | Request::SetUserData { .. }, _) => Operation::ChangeUserData,
        // Whatever a person decides, and what waits for a person, takes more.
        (Request::CarryOut { wanted: Wanted::Orders(orders), .. }, _) if orders.agent.is_some() => {
            Operation::DecideAsAgent
        }
        (Request::AddEvent { .. }, _) => Operation::DecideAsAgent,
        (Request::Import { .. }, _) => Operation::CreateWorkflow,
        (_, Level::Read) => Operation::ReadWorkflow,
        (_, Level::Change) => Operation::ChangeWorkflow,
    }
}

/// `concerned`: what it is about, which he may read.
async fn read(
    state: &AppState,
    caller: &Caller,
    request: Request,
    concerned: BTreeSet<WorkflowId>,
) -> Answer<wire::Answer> {
    let (caller, now, masking) = (caller.clone(), state.now(), state.auth.masking());
    state
        .books(move |store| {
            // Lists that span workflows ask about each row.
            let known = RefCell::<HashMap<_, _>>::default();
            let may_see = |id: Option<WorkflowId>| match id {
                None => caller.0.sees_all(),
                Some(id) => *known.borrow_mut().entry(id).or_insert_with(|| caller.reads(store, id)),
            };
            let open = RefCell::<HashMap<_, _>>::default();
            let is_open =
                |id| *open.borrow_mut().entry(id).or_insert_with(|| caller.reads_secrets(store, id));
            let masked = |of: Option<WorkflowId>| {
                let open = of.map_or_else(|| concerned.iter().all(|id| is_open(*id)), is_open);
                (!open).then_some(&masking)
            };
            Ok::<_, ApiError>(request.answer(store, now, Eyes { may_see: &may_see, masked: &masked }))
        })
        .await
}

async fn change(
    state: &AppState,
    caller: &Caller,
    request: Request,
    workflows: &BTreeSet<WorkflowId>,
) -> Answer<wire::Answer> {
    let by = caller.user();
    let answer = match request {
        Request::RequestCancel { workflow } => {
            ask(|reply| state.service.cancel(workflow, by, reply)).await?;
            wire::Answer::new(Ok(()))
        }
        Request::RetryAction { workflow, id } => {
            ask(|reply| state.service.retry_action(workflow, id, by, reply)).await?;
            wire::Answer::new(Ok(()))
        }
        Request::Spawn { request } => {
            wire::Answer::new(Ok(ask(|reply| state.service.spawn(request, reply)).await?))
        }
        Request::Import { export, mut options } => {
            options.user = Some(by.to_owned());
            alone(state, by, Request::Import { export, options }).await?
        }
        Request::Archive { ids, is_archived } => {
            let mut answer = wire::Answer::new(Ok(()));
            for id in ids {
                answer = exclusive(state, by, id, Request::Archive { ids: vec![id], is_archived }).await?;
                if answer.status != 200 {
                    break;
                }
            }
            answer
        }
        Request::CarryOut { workflow, wanted } => {
            wire::Answer::new(failures::give(state, by, workflow, wanted).await?)
        }
        Request::AddAllocations { mut new } => {
            // Who asks is not for the one who asks to say.
            for new in &mut new {
                by.clone_into(&mut new.by);
            }
            alone(state, by, Request::AddAllocations { new }).await?
        }
        Request::ApplySchedule { workflow, mut schedule } => {
            for new in &mut schedule.allocations {
                by.clone_into(&mut new.by);
            }
            exclusive(state, by, workflow, Request::ApplySchedule { workflow, schedule }).await?
        }
        // Nobody keeps these in memory.
        request @ (Request::AddEvent { .. }
        | Request::DeleteEvent { .. }
        | Request::AddUserData { .. }
        | Request::SetUserData { .. }
        | Request::DeleteUserData { .. }
        | Request::AddFile { .. }
        | Request::UpdateFile { .. }
        | Request::DeleteFile { .. }
        | Request::DiscardAllocations { .. }) => alone(state, by, request).await?,
        request => match workflows.first() {
            Some(workflow) => exclusive(state, by, *workflow, request).await?,
            None => alone(state, by, request).await?,
        },
    };
    Ok(answer)
}

/// While nobody else touches the workflow.
async fn exclusive(state: &AppState, by: &str, id: WorkflowId, request: Request) -> Answer<wire::Answer> {
    let (by, now) = (by.to_owned(), state.now());
    let work = move |store: &dyn Store| Ok(request.answer(&*store.acting_as(&by), now, Eyes::ALL));
    ask(|reply| state.service.exclusive(id, Quiet::Any, Box::new(work), reply)).await
}

/// What concerns no workflow that is there, or nothing of it that the service keeps in memory.
async fn alone(state: &AppState, by: &str, request: Request) -> Answer<wire::Answer> {
    let (store, now) = (state.store.acting_as(by), state.now());
    let answer = blocking(move || request.answer(&*store, now, Eyes::ALL)).await;
    state.events.nudge();
    answer
}

/// As [`arrive`], for lines that come from this process, on a thread that may block.
pub(super) fn keep(lines: impl Read, limit: usize) -> Answer<File> {
    let kept = tempfile::tempfile().and_then(|mut file| {
        // One more than fits says that it does not.
        let size = std::io::copy(&mut lines.take(limit as u64 + 1), &mut file)?;
        file.rewind()?;
        Ok((file, size))
    });
    match kept {
        Ok((file, size)) if size <= limit as u64 => Ok(file),
        Ok(_) => Err(too_large()),
        Err(error) => Err(unkept(&error)),
    }
}

fn too_large() -> ApiError {
    let what = "the workflow is larger than this server takes";
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what)
}

fn unkept(error: &std::io::Error) -> ApiError {
    ApiError::internal(format_args!("cannot keep an upload: {error}"))
}

/// All of an upload, in a file that has no name: it may be larger than memory, and is gone whatever happens.
async fn arrive(body: Body, limit: usize) -> Answer<File> {
    let mut file = written(None, Vec::new()).await?;
    let (mut chunk, mut size) = (Vec::with_capacity(CHUNK), 0);
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| {
            ApiError::new(StatusCode::BAD_REQUEST, "bad_request", "the workflow did not arrive whole")
        })?;
        size += piece.len();
        if size > limit {
            return Err(too_large());
        }
        chunk.extend_from_slice(&piece);
        if chunk.len() >= CHUNK {
            file = written(Some(file), std::mem::take(&mut chunk)).await?;
        }
    }
    written(Some(file), chunk).await
}

/// The file, a new one if there is none yet, with this at its end, ready to be read from the start.
async fn written(file: Option<File>, chunk: Vec<u8>) -> Answer<File> {
    let done = blocking(move || {
        let mut file = file.map_or_else(tempfile::tempfile, Ok)?;
        file.seek(std::io::SeekFrom::End(0))?;
        file.write_all(&chunk)?;
        file.rewind()?;
        Ok::<_, std::io::Error>(file)
    });
    done.await?.map_err(|error| unkept(&error))
}
