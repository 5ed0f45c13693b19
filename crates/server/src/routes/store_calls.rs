//! The store over HTTP for Windlass' own command line: the calls listed in `windlass_store::rpc`.
//!
//! Reads go to the store. Changes of a workflow go through the scheduler, which suspends the workflow meanwhile
//! and reloads it afterwards, so that memory and database agree.

use super::failures;
use super::torc::check_event_category;
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::Json;
use crate::state::{AppState, call_service, run_blocking};
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
use windlass_auth::{AuthOperation, ObjectRelation};
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::Store;
use windlass_store::model::WorkflowPartId;
use windlass_store::rpc::{self, AccessLevel, CallSubject, StoreCall, Viewer};
use windlass_types::WorkflowId;
use windlass_types::failure_commands::PendingCommand;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(call_store))
}

pub(crate) fn uploads() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(create_workflow))
}

/// Bytes of an upload that are buffered before they are written to disk.
const UPLOAD_CHUNK: usize = 1 << 20;

/// Call the store
///
/// For the command line of Windlass; programs should use the other routes. The body names a method and its
/// arguments; the response is `{"ok": …}` or `{"error": …}`.
#[utoipa::path(post, path = "/store", tag = "store", request_body = serde_json::Value, responses(
    (status = 200, description = "The result", body = serde_json::Value),
    (status = 404, description = "Not found, or not visible to the caller"),
    (status = 409, description = "Conflict with the current state", body = serde_json::Value),
    (status = 422, description = "Invalid request")))]
async fn call_store(
    State(state): State<AppState>,
    caller: Caller,
    Json(request): Json<StoreCall>,
) -> ApiResult<Response> {
    Ok(render_reply(perform_call(&state, &caller, request).await?))
}

/// Performs the call with the caller's permissions.
pub(super) async fn perform_call(
    state: &AppState,
    caller: &Caller,
    request: StoreCall,
) -> ApiResult<rpc::StoreReply> {
    match (authorize_call(state, caller, &request).await?, request.access().level) {
        (Err(hidden), _) => Ok(rpc::StoreReply::new::<()>(Err(hidden))),
        (Ok(workflows), AccessLevel::Read) => perform_read(state, caller, request, workflows).await,
        (Ok(workflows), AccessLevel::Change) => perform_change(state, caller, request, &workflows).await,
    }
}

/// Create a workflow from lines
///
/// For the command line of Windlass: one JSON object per line, the workflow first, then files, user data, jobs,
/// and a last line with their numbers. Everything is created or nothing. The caller becomes the owner.
#[utoipa::path(post, path = "/store/create", tag = "store",
    request_body(content = String, content_type = "application/x-ndjson"), responses(
    (status = 200, description = "The id of the workflow", body = serde_json::Value),
    (status = 422, description = "Invalid lines", body = serde_json::Value)))]
async fn create_workflow(State(state): State<AppState>, caller: Caller, body: Body) -> ApiResult<Response> {
    caller.authorize(AuthOperation::CreateWorkflow, ObjectRelation::Own, "workflow")?;
    let lines = spool_body(body, state.options.limits.max_upload).await?;
    let (store, user, now) = (state.store.acting_as(caller.user()), Arc::clone(&caller.0.user), state.now());
    let made =
        run_blocking(move || rpc::workflow_upload::create_from_lines(&*store, lines, Some(&user), now))
            .await?;
    Ok(render_reply(rpc::StoreReply::new(made)))
}

fn render_reply(answer: rpc::StoreReply) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(CONTENT_TYPE, "application/json")], answer.body).into_response()
}

/// The workflows that a call concerns, or the store's error for a missing object.
type ConcernedWorkflows = Result<BTreeSet<WorkflowId>, windlass_store::StoreError>;

/// Returns the workflows that the call concerns, if the caller may perform the operation on all of them.
async fn authorize_call(
    state: &AppState,
    caller: &Caller,
    request: &StoreCall,
) -> ApiResult<ConcernedWorkflows> {
    let access = request.access();
    if let Some((count, most)) = request.find_oversized_list() {
        return Err(ApiError::invalid(format!("the request names {count} objects; the maximum is {most}"))
            .with_hint("split it into several requests"));
    }
    if let StoreCall::AddEvent { event } = request {
        check_event_category(&event.category)?;
    }
    let operation = call_operation(request, access.level);
    caller.authorize(operation, ObjectRelation::Own, "such thing")?;
    if let StoreCall::UpdateWorkflow { update, .. } = request
        && update.user.is_some()
    {
        // Ownership determines permissions, so only the owner may transfer a workflow; a group member may not
        // take it.
        caller.authorize(AuthOperation::Administer, ObjectRelation::Own, "such thing")?;
    }
    let parts: Vec<WorkflowPartId> = match access.subject {
        CallSubject::All => {
            // Objects that the caller may not see are omitted.
            caller.authorize(AuthOperation::Identify, ObjectRelation::Own, "such thing")?;
            return Ok(Ok(BTreeSet::new()));
        }
        CallSubject::Database => {
            caller.authorize(AuthOperation::Administer, ObjectRelation::Own, "such thing")?;
            return Ok(Ok(BTreeSet::new()));
        }
        CallSubject::New => {
            caller.authorize(AuthOperation::CreateWorkflow, ObjectRelation::Own, "workflow")?;
            return Ok(Ok(BTreeSet::new()));
        }
        CallSubject::Workflows(ids) => {
            return authorize_workflows(state, caller, operation, ids.into_iter().collect()).await;
        }
        CallSubject::Attempts(keys) => keys.into_iter().map(|key| WorkflowPartId::Job(key.job)).collect(),
        CallSubject::Jobs(ids) => ids.into_iter().map(WorkflowPartId::Job).collect(),
        CallSubject::File(id) => vec![WorkflowPartId::File(id)],
        CallSubject::UserData(id) => vec![WorkflowPartId::UserData(id)],
        CallSubject::Requirements(id) => vec![WorkflowPartId::Requirements(id)],
        CallSubject::Result(id) => vec![WorkflowPartId::Result(id)],
        CallSubject::Event(id) => vec![WorkflowPartId::Event(id)],
        CallSubject::Scheduler(id) => vec![WorkflowPartId::Scheduler(id)],
        CallSubject::Allocations(ids) => ids.into_iter().map(WorkflowPartId::Allocation).collect(),
    };
    let ids = state
        .with_store(move |store| {
            parts.into_iter().map(|part| store.workflow_of(part)).collect::<Result<Vec<_>, _>>()
        })
        .await?;
    // The store reports missing objects with its own message.
    authorize_workflows(state, caller, operation, ids.into_iter().flatten().collect()).await
}

async fn authorize_workflows(
    state: &AppState,
    caller: &Caller,
    operation: AuthOperation,
    ids: BTreeSet<WorkflowId>,
) -> ApiResult<ConcernedWorkflows> {
    for id in &ids {
        match caller.authorize_workflow(state, operation, *id).await {
            Ok(_) => {}
            // The store's message, so that missing and hidden objects look the same.
            Err(error) if error.status == StatusCode::NOT_FOUND => {
                return Ok(Err(windlass_store::StoreError::NoSuchWorkflow(*id)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(ids))
}

fn call_operation(request: &StoreCall, level: AccessLevel) -> AuthOperation {
    match (request, level) {
        (StoreCall::RequestCancel { .. }, _) => AuthOperation::CancelWorkflow,
        (StoreCall::DeleteWorkflow { .. }, _) => AuthOperation::DeleteWorkflow,
        (StoreCall::Spawn { .. }, _) => AuthOperation::SpawnJobs,
        (StoreCall::AddUserData { .. } | StoreCall::SetUserData { .. }, _) => AuthOperation::ChangeUserData,
        // Decisions of a person, and proposals that wait for one, require a higher permission.
        (StoreCall::CarryOut { wanted: PendingCommand::Orders(orders), .. }, _) if orders.agent.is_some() => {
            AuthOperation::DecideAsAgent
        }
        (StoreCall::AddEvent { .. }, _) => AuthOperation::DecideAsAgent,
        (StoreCall::Import { .. }, _) => AuthOperation::CreateWorkflow,
        (_, AccessLevel::Read) => AuthOperation::ReadWorkflow,
        (_, AccessLevel::Change) => AuthOperation::ChangeWorkflow,
    }
}

/// `concerned`: the workflows of the call, which the caller may read.
async fn perform_read(
    state: &AppState,
    caller: &Caller,
    request: StoreCall,
    concerned: BTreeSet<WorkflowId>,
) -> ApiResult<rpc::StoreReply> {
    let (caller, now, masking) = (caller.clone(), state.now(), state.authenticator.masking());
    state
        .with_store(move |store| {
            // Lists that span workflows check the permission for each row.
            let known = RefCell::<HashMap<_, _>>::default();
            let may_see = |id: Option<WorkflowId>| match id {
                None => caller.0.sees_all(),
                Some(id) => {
                    *known.borrow_mut().entry(id).or_insert_with(|| caller.can_read_workflow(store, id))
                }
            };
            let open = RefCell::<HashMap<_, _>>::default();
            let is_open =
                |id| *open.borrow_mut().entry(id).or_insert_with(|| caller.can_read_secrets(store, id));
            let masked = |of: Option<WorkflowId>| {
                let open = of.map_or_else(|| concerned.iter().all(|id| is_open(*id)), is_open);
                (!open).then_some(&masking)
            };
            Ok::<_, ApiError>(request.execute(store, now, Viewer { is_visible: &may_see, masking: &masked }))
        })
        .await
}

async fn perform_change(
    state: &AppState,
    caller: &Caller,
    request: StoreCall,
    workflows: &BTreeSet<WorkflowId>,
) -> ApiResult<rpc::StoreReply> {
    let by = caller.user();
    let answer = match request {
        StoreCall::RequestCancel { workflow } => {
            call_service(|reply| state.service.cancel_workflow(workflow, by, reply)).await?;
            rpc::StoreReply::new(Ok(()))
        }
        StoreCall::RetryAction { workflow, id } => {
            call_service(|reply| state.service.retry_action(workflow, id, by, reply)).await?;
            rpc::StoreReply::new(Ok(()))
        }
        StoreCall::Spawn { request } => {
            rpc::StoreReply::new(Ok(call_service(|reply| state.service.spawn_jobs(request, reply)).await?))
        }
        StoreCall::Import { export, mut options } => {
            options.user = Some(by.to_owned());
            perform_unlocked(state, by, StoreCall::Import { export, options }).await?
        }
        StoreCall::Archive { ids, is_archived } => {
            let mut answer = rpc::StoreReply::new(Ok(()));
            for id in ids {
                answer = perform_exclusive(state, by, id, StoreCall::Archive { ids: vec![id], is_archived })
                    .await?;
                if answer.status != 200 {
                    break;
                }
            }
            answer
        }
        StoreCall::CarryOut { workflow, wanted } => {
            rpc::StoreReply::new(failures::perform_commands_within_limits(state, by, workflow, wanted).await?)
        }
        StoreCall::AddAllocations { mut new } => {
            // The caller's identity comes from authentication, not from the request.
            for new in &mut new {
                by.clone_into(&mut new.by);
            }
            perform_unlocked(state, by, StoreCall::AddAllocations { new }).await?
        }
        StoreCall::ApplySchedule { workflow, mut schedule } => {
            for new in &mut schedule.allocations {
                by.clone_into(&mut new.by);
            }
            perform_exclusive(state, by, workflow, StoreCall::ApplySchedule { workflow, schedule }).await?
        }
        // These are not kept in the scheduler's memory.
        request @ (StoreCall::AddEvent { .. }
        | StoreCall::DeleteEvent { .. }
        | StoreCall::AddUserData { .. }
        | StoreCall::SetUserData { .. }
        | StoreCall::DeleteUserData { .. }
        | StoreCall::AddFile { .. }
        | StoreCall::UpdateFile { .. }
        | StoreCall::DeleteFile { .. }
        | StoreCall::DiscardAllocations { .. }) => perform_unlocked(state, by, request).await?,
        request => match workflows.first() {
            Some(workflow) => perform_exclusive(state, by, *workflow, request).await?,
            None => perform_unlocked(state, by, request).await?,
        },
    };
    Ok(answer)
}

/// Performs a change while the workflow is suspended.
async fn perform_exclusive(
    state: &AppState,
    by: &str,
    id: WorkflowId,
    request: StoreCall,
) -> ApiResult<rpc::StoreReply> {
    let (by, now) = (by.to_owned(), state.now());
    let work = move |store: &dyn Store| Ok(request.execute(&*store.acting_as(&by), now, Viewer::ALL));
    call_service(|reply| {
        state.service.run_exclusive(id, ExclusiveRequirement::NoneRequired, Box::new(work), reply);
    })
    .await
}

/// Performs a change of a missing workflow, or of data that the scheduler does not keep in memory.
async fn perform_unlocked(state: &AppState, by: &str, request: StoreCall) -> ApiResult<rpc::StoreReply> {
    let (store, now) = (state.store.acting_as(by), state.now());
    let answer = run_blocking(move || request.execute(&*store, now, Viewer::ALL)).await;
    state.events.wake();
    answer
}

/// Like [`spool_body`], for lines from this process, on a blocking thread.
pub(super) fn spool_reader(lines: impl Read, limit: usize) -> ApiResult<File> {
    let kept = tempfile::tempfile().and_then(|mut file| {
        // Reading one byte more than the limit detects an oversized upload.
        let size = std::io::copy(&mut lines.take(limit as u64 + 1), &mut file)?;
        file.rewind()?;
        Ok((file, size))
    });
    match kept {
        Ok((file, size)) if size <= limit as u64 => Ok(file),
        Ok(_) => Err(too_large_error()),
        Err(error) => Err(spool_error(&error)),
    }
}

fn too_large_error() -> ApiError {
    let what = "the workflow is larger than the server's limit";
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what)
}

fn spool_error(error: &std::io::Error) -> ApiError {
    ApiError::internal(format_args!("cannot store an upload: {error}"))
}

/// Writes an upload to an unnamed file: it may exceed memory, and is deleted in any case.
async fn spool_body(body: Body, limit: usize) -> ApiResult<File> {
    let mut file = append_chunk(None, Vec::new()).await?;
    let (mut chunk, mut size) = (Vec::with_capacity(UPLOAD_CHUNK), 0);
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| {
            ApiError::new(StatusCode::BAD_REQUEST, "bad_request", "the workflow was not received completely")
        })?;
        size += piece.len();
        if size > limit {
            return Err(too_large_error());
        }
        chunk.extend_from_slice(&piece);
        if chunk.len() >= UPLOAD_CHUNK {
            file = append_chunk(Some(file), std::mem::take(&mut chunk)).await?;
        }
    }
    append_chunk(Some(file), chunk).await
}

/// Appends a chunk to the file, creating it if necessary, and rewinds it.
async fn append_chunk(file: Option<File>, chunk: Vec<u8>) -> ApiResult<File> {
    let done = run_blocking(move || {
        let mut file = file.map_or_else(tempfile::tempfile, Ok)?;
        file.seek(std::io::SeekFrom::End(0))?;
        file.write_all(&chunk)?;
        file.rewind()?;
        Ok::<_, std::io::Error>(file)
    });
    done.await?.map_err(|error| spool_error(&error))
}
