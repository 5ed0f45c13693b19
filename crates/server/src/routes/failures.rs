//! Failure groups, decisions about failures, and revisions of jobs.

mod convert;

use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use crate::slurm_allocations;
use crate::state::{AppState, call_service, run_blocking};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::failures::{
    DecisionList, FailureCommandResponses, FailureCommandsBody, FailureGroupList, FailureList,
    ProposalReview, RevisionList,
};
use windlass_auth::AuthOperation;
use windlass_core::job_explanation::WorkerAvailability;
use windlass_insight::allocation_planning;
use windlass_insight::failure_commands::{CapacityCheckedCommands, changes_resources};
use windlass_insight::recovery::EligibleWorkers;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::Store;
use windlass_store::model::{
    DecisionFilter, DecisionState, FailureFilter, RevisionFilter, WorkerFilter, WorkerKind, WorkerRow,
};
use windlass_types::failure_commands::{FailureCommandOutcome, PendingCommand};
use windlass_types::{JobId, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_failure_groups))
        .routes(routes!(list_group_failures))
        .routes(routes!(submit_failure_command_batch))
        .routes(routes!(list_decisions))
        .routes(routes!(settle_decision))
        .routes(routes!(list_revisions))
        .routes(routes!(undo_revision))
}

/// Maximum page length.
const MAX_LISTED: u64 = 100_000;

/// List failure groups
///
/// Failures of the current run grouped by signature; groups with the most permanently failed jobs first.
#[utoipa::path(get, path = "/workflows/{id}/failures", tag = "failures", operation_id = "list_failure_groups",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "Groups", body = FailureGroupList),
    (status = 404, description = "Workflow not found")))]
async fn list_failure_groups(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<FailureGroupList>> {
    let id = caller.authorize_workflow(&state, AuthOperation::ReadWorkflow, WorkflowId(id)).await?.id;
    let rows = state.with_store(move |store| store.failure_groups(id)).await?;
    Ok(Json(FailureGroupList { items: rows.into_iter().map(convert::api_failure_group).collect() }))
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FailureListQuery {
    /// Only failures without a later attempt: their jobs have failed or wait for a decision.
    open_only: Option<bool>,
    /// Number of failures to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of failures.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u64>,
}

/// List the failures of a group
#[utoipa::path(get, path = "/workflows/{id}/failures/{signature}", tag = "failures", operation_id = "list_failures",
    params(("id" = i64, Path,), ("signature" = String, Path,), FailureListQuery), responses(
    (status = 200, description = "By job and attempt", body = FailureList),
    (status = 404, description = "Workflow not found, or no such failure in its current run")))]
async fn list_group_failures(
    State(state): State<AppState>,
    caller: Caller,
    Path((id, signature)): Path<(i64, String)>,
    Query(which): Query<FailureListQuery>,
) -> ApiResult<Json<FailureList>> {
    let id = caller.authorize_workflow(&state, AuthOperation::ReadWorkflow, WorkflowId(id)).await?.id;
    let missing = ApiError::not_found(format_args!("failure `{signature}`"));
    let filter = FailureFilter {
        signature: Some(signature),
        open_only: which.open_only.unwrap_or(false),
        offset: which.offset.unwrap_or(0),
        limit: Some(which.limit.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED)),
        ..FailureFilter::default()
    };
    let any = FailureFilter { open_only: false, offset: 0, limit: Some(1), ..filter.clone() };
    let (rows, is_known) = state
        .with_store(move |store| {
            let rows = store.failures(id, &filter)?;
            let is_known = !rows.is_empty() || !store.failures(id, &any)?.is_empty();
            Ok::<_, windlass_store::StoreError>((rows, is_known))
        })
        .await?;
    if !is_known {
        return Err(missing);
    }
    Ok(Json(FailureList { items: rows.into_iter().map(convert::api_failure).collect() }))
}

/// Decide about failed jobs
///
/// Retry, fail, ignore or change one or many failed or waiting jobs, optionally with other memory, time, CPUs,
/// command or priority. Each command is applied or refused on its own; applied commands are one commit. The
/// audit trail records the user, the reason and the previous values.
#[utoipa::path(post, path = "/workflows/{id}/orders", tag = "failures", operation_id = "order",
    params(("id" = i64, Path,)), request_body = FailureCommandsBody, responses(
    (status = 200, description = "The result of each command", body = FailureCommandResponses),
    (status = 404, description = "Workflow not found"),
    (status = 422, description = "Invalid commands")))]
async fn submit_failure_command_batch(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Json(body): Json<FailureCommandsBody>,
) -> ApiResult<Json<FailureCommandResponses>> {
    // Decisions of a person require a higher permission.
    let is_agent = body.agent.is_some();
    let operation = if is_agent { AuthOperation::DecideAsAgent } else { AuthOperation::ChangeWorkflow };
    let id = caller.authorize_workflow(&state, operation, WorkflowId(id)).await?.id;
    perform_commands(&state, &caller, id, PendingCommand::Orders(convert::parse_commands(body)?)).await
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DecisionListQuery {
    /// Only decisions about this job.
    job_id: Option<i64>,
    /// Only proposals of agents that wait for approval.
    proposed_only: Option<bool>,
    /// Number of decisions to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of decisions.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u64>,
}

/// List decisions about failures
///
/// Includes the result: how the following attempt ended.
#[utoipa::path(get, path = "/workflows/{id}/decisions", tag = "failures", operation_id = "list_decisions",
    params(("id" = i64, Path,), DecisionListQuery), responses(
    (status = 200, description = "Oldest first", body = DecisionList),
    (status = 404, description = "Workflow not found")))]
async fn list_decisions(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(which): Query<DecisionListQuery>,
) -> ApiResult<Json<DecisionList>> {
    let id = caller.authorize_workflow(&state, AuthOperation::ReadWorkflow, WorkflowId(id)).await?.id;
    let filter = DecisionFilter {
        jobs: which.job_id.map(JobId).into_iter().collect(),
        state: which.proposed_only.unwrap_or(false).then_some(DecisionState::Proposed),
        offset: which.offset.unwrap_or(0),
        limit: Some(which.limit.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED)),
        ..DecisionFilter::default()
    };
    let rows = state.with_store(move |store| store.decisions(id, &filter)).await?;
    Ok(Json(DecisionList { items: rows.into_iter().map(convert::api_decision).collect() }))
}

/// Approve or decline an agent's proposal
#[utoipa::path(post, path = "/workflows/{id}/decisions/{decision_id}", tag = "failures",
    operation_id = "settle_decision", params(("id" = i64, Path,), ("decision_id" = i64, Path,)), request_body = ProposalReview,
    responses((status = 200, description = "The result", body = FailureCommandResponses),
    (status = 404, description = "Workflow not found, or the decision does not wait for approval")))]
async fn settle_decision(
    State(state): State<AppState>,
    caller: Caller,
    Path((id, decision)): Path<(i64, i64)>,
    Json(ProposalReview { approved }): Json<ProposalReview>,
) -> ApiResult<Json<FailureCommandResponses>> {
    let id = caller.authorize_workflow(&state, AuthOperation::ChangeWorkflow, WorkflowId(id)).await?.id;
    let proposed = Some(DecisionState::Proposed);
    let filter = DecisionFilter { id: Some(decision), state: proposed, ..DecisionFilter::default() };
    if state.with_store(move |store| store.decisions(id, &filter)).await?.is_empty() {
        return Err(ApiError::not_found(format_args!("decision {decision} that waits for approval")));
    }
    perform_commands(&state, &caller, id, PendingCommand::Settle { decision, agreed: approved }).await
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RevisionListQuery {
    /// Only changes of this revision.
    revision: Option<i64>,
    /// Only changes of this job.
    job_id: Option<i64>,
}

/// List changes to failed and waiting jobs
#[utoipa::path(get, path = "/workflows/{id}/revisions", tag = "failures", operation_id = "list_revisions",
    params(("id" = i64, Path,), RevisionListQuery), responses(
    (status = 200, description = "One entry per changed job, oldest first", body = RevisionList),
    (status = 404, description = "Workflow not found")))]
async fn list_revisions(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(which): Query<RevisionListQuery>,
) -> ApiResult<Json<RevisionList>> {
    let id = caller.authorize_workflow(&state, AuthOperation::ReadWorkflow, WorkflowId(id)).await?.id;
    let filter = RevisionFilter { batch: which.revision, job: which.job_id.map(JobId) };
    let rows = state.with_store(move |store| store.revisions(id, filter)).await?;
    Ok(Json(RevisionList { items: rows.into_iter().map(convert::api_revision).collect() }))
}

/// Undo a revision
///
/// Applies to jobs that were not changed again and have not run since. The undo is itself a revision.
#[utoipa::path(post, path = "/workflows/{id}/revisions/{revision}/undo", tag = "failures",
    operation_id = "undo_revision", params(("id" = i64, Path,), ("revision" = i64, Path,)), responses(
    (status = 200, description = "The result for each job", body = FailureCommandResponses),
    (status = 404, description = "Workflow or revision not found"),
    (status = 409, description = "The revision is already undone")))]
async fn undo_revision(
    State(state): State<AppState>,
    caller: Caller,
    Path((id, batch)): Path<(i64, i64)>,
) -> ApiResult<Json<FailureCommandResponses>> {
    let id = caller.authorize_workflow(&state, AuthOperation::ChangeWorkflow, WorkflowId(id)).await?.id;
    let filter = RevisionFilter { batch: Some(batch), job: None };
    let rows = state.with_store(move |store| store.revisions(id, filter)).await?;
    if rows.is_empty() {
        return Err(ApiError::not_found(format_args!("revision {batch}")));
    }
    if rows.iter().all(|row| row.undone_at.is_some()) {
        let by = rows.iter().find_map(|row| row.undone_by.as_deref()).unwrap_or("another user");
        return Err(ApiError::conflict("undone", format!("revision {batch} was undone by {by}")));
    }
    perform_commands(&state, &caller, id, PendingCommand::Undo { batch, agent: None }).await
}

/// Changes the workflow while the scheduler has suspended it, so that memory and database agree.
async fn perform_commands(
    state: &AppState,
    caller: &Caller,
    id: WorkflowId,
    wanted: PendingCommand,
) -> ApiResult<Json<FailureCommandResponses>> {
    let done =
        perform_commands_within_limits(state, caller.user(), id, wanted).await?.map_err(ApiError::from)?;
    Ok(Json(FailureCommandResponses { items: done.into_iter().map(convert::api_command_result).collect() }))
}

/// Plans the commands; commands that would leave a job that no worker can run are refused.
pub(super) async fn perform_commands_within_limits(
    state: &AppState,
    by: &str,
    id: WorkflowId,
    wanted: PendingCommand,
) -> ApiResult<Result<Vec<FailureCommandOutcome>, windlass_store::StoreError>> {
    let (by, now) = (by.to_owned(), state.now());
    let room = match &wanted {
        PendingCommand::Orders(orders) if changes_resources(orders) => {
            load_eligible_capacity(state, id).await?
        }
        _ => EligibleWorkers::default(),
    };
    let apply_batch = move |store: &dyn Store| {
        let store = store.acting_as(&by);
        match wanted {
            PendingCommand::Orders(orders) => CapacityCheckedCommands::new(&*store, id, orders, &room)?
                .perform(|orders| store.apply_triage_command(id, &PendingCommand::Orders(orders), now)),
            other => store.apply_triage_command(id, &other, now),
        }
    };
    let work = move |store: &dyn Store| Ok(apply_batch(store));
    call_service(|reply| {
        state.service.run_exclusive(id, ExclusiveRequirement::NoneRequired, Box::new(work), reply);
    })
    .await
}

/// Returns the capacities of workers that may run jobs of the workflow, or else of those that might have; on
/// Slurm, of the cluster's nodes. Empty if unknown.
async fn load_eligible_capacity(state: &AppState, id: WorkflowId) -> ApiResult<EligibleWorkers> {
    let state = state.clone();
    run_blocking(move || {
        let store = &*state.store;
        if allocation_planning::is_on_slurm(store, id)? {
            let settings = store.workflow(id)?.map(|row| row.settings).unwrap_or_default();
            let cluster = slurm_allocations::load_cluster_profile(&state);
            return Ok(cluster
                .map(|it| allocation_planning::cluster_capacity(&it, None, &settings))
                .unwrap_or_default());
        }
        let filter = WorkerFilter {
            workflow: Some(id),
            also_shared: true,
            is_active: Some(true),
            ..WorkerFilter::default()
        };
        let offer = |row: WorkerRow| WorkerAvailability {
            is_draining: row.is_draining,
            ..WorkerAvailability::from_capacity(row.worker.capacity)
        };
        // Clients that claim jobs anonymously do not state their capacity.
        let is_known = |row: &WorkerRow| row.worker.kind != WorkerKind::Claims;
        let workers = store.workers(&filter)?.into_iter().filter(is_known);
        let connected = EligibleWorkers::from_offers(&workers.map(offer).collect::<Vec<_>>());
        Ok(connected.or_last_connected(store, id)?)
    })
    .await?
}
