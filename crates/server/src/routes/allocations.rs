//! Slurm allocations: list, request and cancel. These routes only write the database; the allocation reconciler
//! acts on it.

use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use crate::state::{AppState, run_blocking};
use axum::extract::State;
use serde::Deserialize;
use std::time::Duration;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::allocations::{
    AllocationList, AllocationRefreshResult, AllocationResponse, CreateAllocations,
};
use windlass_auth::AuthOperation;
use windlass_core::slurm::allocation_request::{AllocationWorkerOptions, build_request};
use windlass_core::slurm::allocation_rows::NewAllocation;
use windlass_slurm::allocation_reconciler::PollOutcome;
use windlass_store::model::{AllocationFilter, SlurmSchedulerRow, WorkflowPartId};
use windlass_types::slurm::{AllocationState, SlurmJobState};
use windlass_types::{AllocationId, Timestamp, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_allocations, create_allocations))
        .routes(routes!(get_allocation, cancel_allocation))
        .routes(routes!(refresh_allocations))
}

/// Maximum page length.
const MAX_LISTED: u64 = 100_000;
/// Maximum number of allocations per request.
const MAX_CREATED_AT_ONCE: u32 = 1000;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AllocationListQuery {
    /// Only allocations in this state.
    state: Option<String>,
    /// true: only open allocations. false: only ended ones.
    is_open: Option<bool>,
    /// Only allocations of the scheduler with this name.
    scheduler: Option<String>,
    /// Number of allocations to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of allocations.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u64>,
}

/// List the allocations of a workflow
#[utoipa::path(get, path = "/workflows/{id}/allocations", tag = "allocations", operation_id = "list_allocations",
    params(("id" = i64, Path,), AllocationListQuery), responses(
    (status = 200, description = "By number", body = AllocationList),
    (status = 404, description = "Workflow not found"),
    (status = 422, description = "Unknown state")))]
async fn list_allocations(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(which): Query<AllocationListQuery>,
) -> ApiResult<Json<AllocationList>> {
    let id = caller.authorize_workflow(&state, AuthOperation::ReadWorkflow, WorkflowId(id)).await?.id;
    let states = which.state.as_deref().map(parse_state).transpose()?;
    let filter = AllocationFilter {
        workflow: Some(id),
        states: states.into_iter().collect(),
        is_open: which.is_open,
        scheduler_name: which.scheduler,
        offset: which.offset.unwrap_or(0),
        limit: Some(which.limit.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED)),
        ..AllocationFilter::default()
    };
    let rows = state.with_store(move |store| store.allocations(&filter)).await?;
    Ok(Json(AllocationList { items: rows.into_iter().map(api_allocation).collect::<ApiResult<_>>()? }))
}

fn parse_state(name: &str) -> ApiResult<AllocationState> {
    AllocationState::from_name(name).ok_or_else(|| {
        ApiError::invalid(format!("state: `{}` is not a state", name.escape_debug()))
            .with_hint(AllocationState::ALL.map(AllocationState::name).join(", "))
    })
}

/// Request allocations
///
/// The server submits them to Slurm as soon as it can; their workers run jobs of the workflow.
#[utoipa::path(post, path = "/workflows/{id}/allocations", tag = "allocations", operation_id = "ask_for_allocations",
    params(("id" = i64, Path,)), request_body = CreateAllocations, responses(
    (status = 200, description = "Accepted and stored", body = AllocationList),
    (status = 404, description = "Workflow not found"),
    (status = 422, description = "Unknown scheduler, or invalid request")))]
async fn create_allocations(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Json(wanted): Json<CreateAllocations>,
) -> ApiResult<Json<AllocationList>> {
    let workflow = caller.authorize_workflow(&state, AuthOperation::ChangeWorkflow, WorkflowId(id)).await?;
    if !(1..=MAX_CREATED_AT_ONCE).contains(&wanted.count) || wanted.max_parallel_jobs == Some(0) {
        return Err(ApiError::invalid(format!(
            "count must be between 1 and {MAX_CREATED_AT_ONCE}, and max_parallel_jobs at least 1"
        )));
    }
    let (by, now) = (caller.user().to_owned(), state.now());
    let rows = state
        .with_store(move |store| {
            let schedulers = store.schedulers(workflow.id)?;
            let found = schedulers.iter().find(|row| row.scheduler.name == wanted.scheduler);
            let found = found.ok_or_else(|| unknown_scheduler_error(&wanted.scheduler, &schedulers))?;
            let group = AllocationWorkerOptions {
                one_worker_per_node: wanted.start_one_worker_per_node,
                max_parallel_jobs: wanted.max_parallel_jobs,
            };
            let request = build_request(&found.scheduler, &workflow.settings.slurm_defaults, group)
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
    state.events.wake();
    Ok(Json(AllocationList { items: rows.into_iter().map(api_allocation).collect::<ApiResult<_>>()? }))
}

fn unknown_scheduler_error(name: &str, known: &[SlurmSchedulerRow]) -> ApiError {
    let refused = ApiError::invalid(format!("the workflow has no scheduler `{}`", name.escape_debug()));
    let names: Vec<&str> = known.iter().map(|row| row.scheduler.name.as_str()).collect();
    if names.is_empty() { refused } else { refused.with_hint(format!("it has {}", names.join(", "))) }
}

/// Get an allocation
#[utoipa::path(get, path = "/allocations/{id}", tag = "allocations", operation_id = "get_allocation",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "The allocation and its state", body = AllocationResponse),
    (status = 404, description = "Allocation not found")))]
async fn get_allocation(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<AllocationResponse>> {
    let id = authorize_allocation(&state, &caller, AuthOperation::ReadWorkflow, id).await?;
    let row =
        state.with_store(move |store| store.allocation(id)).await?.ok_or_else(|| allocation_not_found(id))?;
    api_allocation(row).map(Json)
}

/// Cancel an allocation
///
/// An allocation that was not submitted yet never will be; otherwise the server cancels it in Slurm. An ended
/// allocation does not change.
#[utoipa::path(delete, path = "/allocations/{id}", tag = "allocations", operation_id = "cancel_allocation",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "As it is now", body = AllocationResponse),
    (status = 404, description = "Allocation not found"),
    (status = 409, description = "The allocation is managed by a client")))]
async fn cancel_allocation(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<AllocationResponse>> {
    let id = authorize_allocation(&state, &caller, AuthOperation::ChangeWorkflow, id).await?;
    let (by, now) = (caller.user().to_owned(), state.now());
    let why = format!("canceled by {by}");
    let mut rows =
        state.with_store(move |store| store.acting_as(&by).discard_allocations(&[id], &why, now)).await?;
    state.events.wake();
    api_allocation(rows.pop().ok_or_else(|| allocation_not_found(id))?).map(Json)
}

/// Maximum time to wait for the Slurm controller.
const MAX_REFRESH_TIME: Duration = Duration::from_secs(20);

/// Refresh the state of allocations from Slurm
///
/// Asks Slurm now instead of at the next poll, within the limit on calls, and stores the answer. If Slurm does
/// not answer, nothing is changed.
#[utoipa::path(post, path = "/workflows/{id}/allocations/look", tag = "allocations", operation_id = "look_at_allocations",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "Whether Slurm answered", body = AllocationRefreshResult),
    (status = 404, description = "Workflow not found")))]
async fn refresh_allocations(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<AllocationRefreshResult>> {
    caller.authorize_workflow(&state, AuthOperation::ReadWorkflow, WorkflowId(id)).await?;
    let Some(reconciler) = state.allocation_reconciler.clone() else {
        let trouble = Some("this server does not manage allocations: it runs without --slurm".to_owned());
        return Ok(Json(AllocationRefreshResult { is_looked_after: false, answered: false, trouble }));
    };
    let trouble = match run_blocking(move || reconciler.poll_now(MAX_REFRESH_TIME)).await? {
        PollOutcome::Answered => None,
        PollOutcome::NoAnswer(why) => Some(why),
    };
    state.events.wake();
    Ok(Json(AllocationRefreshResult { is_looked_after: true, answered: trouble.is_none(), trouble }))
}

fn allocation_not_found(id: AllocationId) -> ApiError {
    ApiError::not_found(format_args!("allocation {id}"))
}

/// Allocations of workflows that the caller may not see return 404.
async fn authorize_allocation(
    state: &AppState,
    caller: &Caller,
    operation: AuthOperation,
    id: i64,
) -> ApiResult<AllocationId> {
    let id = AllocationId(id);
    let workflow = state.with_store(move |store| store.workflow_of(WorkflowPartId::Allocation(id))).await?;
    let workflow = workflow.ok_or_else(|| allocation_not_found(id))?;
    caller.authorize_workflow(state, operation, workflow).await.map_err(|error| {
        match error.status.as_u16() {
            404 => allocation_not_found(id),
            _ => error,
        }
    })?;
    Ok(id)
}

fn api_allocation(row: windlass_types::slurm::Allocation) -> ApiResult<AllocationResponse> {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    Ok(AllocationResponse {
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
        end: row.end.map(SlurmJobState::name).map(str::to_owned),
        exit_code: row.exit_code,
        seen_at: time(row.seen_at),
    })
}
