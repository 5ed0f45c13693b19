//! Allocations of Slurm: which there are, asking for more, and that one is not wanted any more. Whoever looks after them reads
//! the books; here they are only written.

use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use crate::state::{AppState, blocking};
use axum::extract::State;
use serde::Deserialize;
use std::time::Duration;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::allocations::{Allocation, Allocations, AskForAllocations, LookedAtAllocations};
use windlass_auth::Operation;
use windlass_core::slurm::book::NewAllocation;
use windlass_core::slurm::request::{Crew, request};
use windlass_slurm::steward::Looked;
use windlass_store::model::{AllocationFilter, Part, SchedulerRow};
use windlass_types::slurm::{AllocationState, SlurmState};
use windlass_types::{AllocationId, Timestamp, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list, ask_for)).routes(routes!(show, discard)).routes(routes!(look))
}

/// More are not listed at once.
const MOST: u64 = 100_000;
/// More are not asked for at once.
const MOST_AT_ONCE: u32 = 1000;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those in this state.
    state: Option<String>,
    /// Only those that are not over, or only those that are.
    is_open: Option<bool>,
    /// Only those of the scheduler of this name.
    scheduler: Option<String>,
    /// Skip so many.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u64>,
}

/// Allocations of a workflow
#[utoipa::path(get, path = "/workflows/{id}/allocations", tag = "allocations", operation_id = "list_allocations",
    params(("id" = i64, Path,), Which), responses(
    (status = 200, description = "By number", body = Allocations),
    (status = 404, description = "There is no such workflow"),
    (status = 422, description = "There is no such state")))]
async fn list(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(which): Query<Which>,
) -> Answer<Json<Allocations>> {
    let id = caller.workflow(&state, Operation::ReadWorkflow, WorkflowId(id)).await?.id;
    let states = which.state.as_deref().map(named).transpose()?;
    let filter = AllocationFilter {
        workflow: Some(id),
        states: states.into_iter().collect(),
        is_open: which.is_open,
        scheduler_name: which.scheduler,
        offset: which.offset.unwrap_or(0),
        limit: Some(which.limit.unwrap_or(MOST).clamp(1, MOST)),
        ..AllocationFilter::default()
    };
    let rows = state.books(move |store| store.allocations(&filter)).await?;
    Ok(Json(Allocations { items: rows.into_iter().map(shown).collect::<Answer<_>>()? }))
}

fn named(name: &str) -> Answer<AllocationState> {
    AllocationState::from_name(name).ok_or_else(|| {
        ApiError::invalid(format!("state: `{}` is none", name.escape_debug()))
            .with_hint(AllocationState::ALL.map(AllocationState::name).join(", "))
    })
}

/// Ask for allocations
///
/// They are submitted to Slurm by the server as soon as it can, and workers in them take jobs of the workflow.
#[utoipa::path(post, path = "/workflows/{id}/allocations", tag = "allocations", operation_id = "ask_for_allocations",
    params(("id" = i64, Path,)), request_body = AskForAllocations, responses(
    (status = 200, description = "They are in the books", body = Allocations),
    (status = 404, description = "There is no such workflow"),
    (status = 422, description = "It has no such scheduler, or the request makes no sense")))]
async fn ask_for(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Json(wanted): Json<AskForAllocations>,
) -> Answer<Json<Allocations>> {
    let workflow = caller.workflow(&state, Operation::ChangeWorkflow, WorkflowId(id)).await?;
    if !(1..=MOST_AT_ONCE).contains(&wanted.count) || wanted.max_parallel_jobs == Some(0) {
        return Err(ApiError::invalid(format!(
            "count is from 1 to {MOST_AT_ONCE}, and max_parallel_jobs at least 1"
        )));
    }
    let (by, now) = (caller.user().to_owned(), state.now());
    let rows = state
        .books(move |store| {
            let schedulers = store.schedulers(workflow.id)?;
            let found = schedulers.iter().find(|row| row.scheduler.name == wanted.scheduler);
            let found = found.ok_or_else(|| unknown(&wanted.scheduler, &schedulers))?;
            let crew = Crew {
                one_worker_per_node: wanted.start_one_worker_per_node,
                max_parallel_jobs: wanted.max_parallel_jobs,
            };
            let request = request(&found.scheduler, &workflow.settings.slurm_defaults, crew)
                .map_err(ApiError::invalid)?;
            let new = NewAllocation {
                workflow: workflow.id,
                scheduler: Some(found.id),
                tag: String::new(),
                request,
                action: None,
                by: by.clone(),
            };
            let store = store.acting_as(&by);
            let ids = store.add_allocations(&vec![new; wanted.count as usize], now)?;
            let filter = AllocationFilter { ids, ..AllocationFilter::default() };
            Ok::<_, ApiError>(store.allocations(&filter)?)
        })
        .await?;
    state.events.nudge();
    Ok(Json(Allocations { items: rows.into_iter().map(shown).collect::<Answer<_>>()? }))
}

fn unknown(name: &str, known: &[SchedulerRow]) -> ApiError {
    let refused = ApiError::invalid(format!("the workflow has no scheduler `{}`", name.escape_debug()));
    let names: Vec<&str> = known.iter().map(|row| row.scheduler.name.as_str()).collect();
    if names.is_empty() { refused } else { refused.with_hint(format!("it has {}", names.join(", "))) }
}

/// One allocation
#[utoipa::path(get, path = "/allocations/{id}", tag = "allocations", operation_id = "get_allocation",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "How far it is", body = Allocation),
    (status = 404, description = "There is no such allocation")))]
async fn show(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Json<Allocation>> {
    let id = allowed(&state, &caller, Operation::ReadWorkflow, id).await?;
    let row = state.books(move |store| store.allocation(id)).await?.ok_or_else(|| missing(id))?;
    shown(row).map(Json)
}

/// An allocation is not wanted any more
///
/// If it was not submitted yet it never will be. Otherwise the server has Slurm cancel it. One that is over stays as it is.
#[utoipa::path(delete, path = "/allocations/{id}", tag = "allocations", operation_id = "cancel_allocation",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "As it is now", body = Allocation),
    (status = 404, description = "There is no such allocation"),
    (status = 409, description = "A client looks after it")))]
async fn discard(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Json<Allocation>> {
    let id = allowed(&state, &caller, Operation::ChangeWorkflow, id).await?;
    let (by, now) = (caller.user().to_owned(), state.now());
    let why = format!("canceled by {by}");
    let mut rows =
        state.books(move |store| store.acting_as(&by).discard_allocations(&[id], &why, now)).await?;
    state.events.nudge();
    shown(rows.pop().ok_or_else(|| missing(id))?).map(Json)
}

/// No controller may keep anybody waiting for longer.
const LONGEST_LOOK: Duration = Duration::from_secs(20);

/// Have Slurm asked how allocations stand
///
/// Slurm is asked now instead of when it is due, as far as it may be asked at all, and what it says is noted. If it does not answer
/// then nothing is known, and nothing is changed.
#[utoipa::path(post, path = "/workflows/{id}/allocations/look", tag = "allocations", operation_id = "look_at_allocations",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "Whether it answered", body = LookedAtAllocations),
    (status = 404, description = "There is no such workflow")))]
async fn look(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Json<LookedAtAllocations>> {
    caller.workflow(&state, Operation::ReadWorkflow, WorkflowId(id)).await?;
    let Some(steward) = state.steward.clone() else {
        let trouble = Some("this server does not look after allocations: it runs without --slurm".to_owned());
        return Ok(Json(LookedAtAllocations { is_looked_after: false, answered: false, trouble }));
    };
    let trouble = match blocking(move || steward.look(LONGEST_LOOK)).await? {
        Looked::Answered => None,
        Looked::Silent(why) => Some(why),
    };
    state.events.nudge();
    Ok(Json(LookedAtAllocations { is_looked_after: true, answered: trouble.is_none(), trouble }))
}

fn missing(id: AllocationId) -> ApiError {
    ApiError::not_found(format_args!("allocation {id}"))
}

/// What is of a workflow that is not his is not there.
async fn allowed(state: &AppState, caller: &Caller, operation: Operation, id: i64) -> Answer<AllocationId> {
    let id = AllocationId(id);
    let workflow = state.books(move |store| store.workflow_of(Part::Allocation(id))).await?;
    let workflow = workflow.ok_or_else(|| missing(id))?;
    caller.workflow(state, operation, workflow).await.map_err(|error| match error.status.as_u16() {
        404 => missing(id),
        _ => error,
    })?;
    Ok(id)
}

fn shown(row: windlass_types::slurm::Allocation) -> Answer<Allocation> {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    Ok(Allocation {
        id: row.id.0,
        workflow_id: row.workflow.0,
        is_ours: row.is_ours,
        scheduler: row.request.scheduler.clone(),
        scheduler_id: row.scheduler,
        state: row.state.name().to_owned(),
        reason: row.reason,
        slurm_job_id: row.job_id,
        tag: row.tag,
        request: serde_json::to_value(&row.request).map_err(ApiError::internal)?,
        nodes: row.nodes,
        asked_by: row.by,
        action_id: row.action.map(|(action, ..)| action),
        unwanted: row.unwanted,
        created_at: row.created_at.to_string(),
        submitted_at: time(row.submitted_at),
        started_at: time(row.started_at),
        ends_at: time(row.ends_at),
        ended_at: time(row.ended_at),
        end: row.end.map(SlurmState::name).map(str::to_owned),
        exit_code: row.exit_code,
        seen_at: time(row.seen_at),
    })
}
