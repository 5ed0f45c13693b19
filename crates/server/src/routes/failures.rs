//! Failures, in groups of those that are alike; decisions about them; and what was changed about jobs.

mod convert;

use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use crate::slurm;
use crate::state::{AppState, ask, blocking};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::failures::{Decisions, FailureGroups, Failures, Orders, Outcomes, Revisions, Settle};
use windlass_auth::Operation;
use windlass_core::why::Offer;
use windlass_engine::service::Quiet;
use windlass_insight::allocating;
use windlass_insight::orders::{Limited, change_resources};
use windlass_insight::recovery::Room;
use windlass_store::Store;
use windlass_store::model::{
    DecisionFilter, DecisionState, FailureFilter, RevisionFilter, WorkerFilter, WorkerKind, WorkerRow,
};
use windlass_types::orders::{Outcome, Wanted};
use windlass_types::{JobId, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(groups))
        .routes(routes!(group))
        .routes(routes!(order))
        .routes(routes!(decisions))
        .routes(routes!(settle))
        .routes(routes!(revisions))
        .routes(routes!(undo))
}

/// More are not listed at once.
const MOST: u64 = 100_000;

/// Failures in groups
///
/// Of the current run, by what they have in common; those with most that have failed for good come first.
#[utoipa::path(get, path = "/workflows/{id}/failures", tag = "failures", operation_id = "list_failure_groups",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "Groups", body = FailureGroups),
    (status = 404, description = "There is no such workflow")))]
async fn groups(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Json<FailureGroups>> {
    let id = caller.workflow(&state, Operation::ReadWorkflow, WorkflowId(id)).await?.id;
    let rows = state.books(move |store| store.failure_groups(id)).await?;
    Ok(Json(FailureGroups { items: rows.into_iter().map(convert::group).collect() }))
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those that nothing came after: their jobs have failed, or wait for a decision.
    open_only: Option<bool>,
    /// Skip so many.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u64>,
}

/// The failures of a group
#[utoipa::path(get, path = "/workflows/{id}/failures/{signature}", tag = "failures", operation_id = "list_failures",
    params(("id" = i64, Path,), ("signature" = String, Path,), Which), responses(
    (status = 200, description = "By job and attempt", body = Failures),
    (status = 404, description = "There is no such workflow, or nothing in its current run failed so")))]
async fn group(
    State(state): State<AppState>,
    caller: Caller,
    Path((id, signature)): Path<(i64, String)>,
    Query(which): Query<Which>,
) -> Answer<Json<Failures>> {
    let id = caller.workflow(&state, Operation::ReadWorkflow, WorkflowId(id)).await?.id;
    let missing = ApiError::not_found(format_args!("failure `{signature}`"));
    let filter = FailureFilter {
        signature: Some(signature),
        open_only: which.open_only.unwrap_or(false),
        offset: which.offset.unwrap_or(0),
        limit: Some(which.limit.unwrap_or(MOST).clamp(1, MOST)),
        ..FailureFilter::default()
    };
    let any = FailureFilter { open_only: false, offset: 0, limit: Some(1), ..filter.clone() };
    let (rows, is_known) = state
        .books(move |store| {
            let rows = store.failures(id, &filter)?;
            let is_known = !rows.is_empty() || !store.failures(id, &any)?.is_empty();
            Ok::<_, windlass_store::Error>((rows, is_known))
        })
        .await?;
    if !is_known {
        return Err(missing);
    }
    Ok(Json(Failures { items: rows.into_iter().map(convert::failure).collect() }))
}

/// Decide about failed and waiting jobs
///
/// Retry, fail, ignore or change jobs, one or many, perhaps with other memory, time, CPUs, command or priority. Each order is
/// carried out or refused by itself, and what is carried out is one commit. Everything is noted: who, why, what was before.
#[utoipa::path(post, path = "/workflows/{id}/orders", tag = "failures", operation_id = "order",
    params(("id" = i64, Path,)), request_body = Orders, responses(
    (status = 200, description = "What came of each", body = Outcomes),
    (status = 404, description = "There is no such workflow"),
    (status = 422, description = "The orders make no sense")))]
async fn order(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Json(orders): Json<Orders>,
) -> Answer<Json<Outcomes>> {
    // Whatever a person decides takes more.
    let is_agent = orders.agent.is_some();
    let operation = if is_agent { Operation::DecideAsAgent } else { Operation::ChangeWorkflow };
    let id = caller.workflow(&state, operation, WorkflowId(id)).await?.id;
    carry_out(&state, &caller, id, Wanted::Orders(convert::orders(orders)?)).await
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichDecisions {
    /// Only those about this job.
    job_id: Option<i64>,
    /// Only proposals of agents that wait for a person.
    proposed_only: Option<bool>,
    /// Skip so many.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u64>,
}

/// What was decided about failures
///
/// And what became of it: how the attempt ended that followed.
#[utoipa::path(get, path = "/workflows/{id}/decisions", tag = "failures", operation_id = "list_decisions",
    params(("id" = i64, Path,), WhichDecisions), responses(
    (status = 200, description = "The oldest first", body = Decisions),
    (status = 404, description = "There is no such workflow")))]
async fn decisions(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(which): Query<WhichDecisions>,
) -> Answer<Json<Decisions>> {
    let id = caller.workflow(&state, Operation::ReadWorkflow, WorkflowId(id)).await?.id;
    let filter = DecisionFilter {
        jobs: which.job_id.map(JobId).into_iter().collect(),
        state: which.proposed_only.unwrap_or(false).then_some(DecisionState::Proposed),
        offset: which.offset.unwrap_or(0),
        limit: Some(which.limit.unwrap_or(MOST).clamp(1, MOST)),
        ..DecisionFilter::default()
    };
    let rows = state.books(move |store| store.decisions(id, &filter)).await?;
    Ok(Json(Decisions { items: rows.into_iter().map(convert::decision).collect() }))
}

/// Say yes or no to what an agent proposed
#[utoipa::path(post, path = "/workflows/{id}/decisions/{decision_id}", tag = "failures",
    operation_id = "settle_decision", params(("id" = i64, Path,), ("decision_id" = i64, Path,)), request_body = Settle,
    responses((status = 200, description = "What came of it", body = Outcomes),
    (status = 404, description = "There is no such workflow, or no such decision of it waits for a person")))]
async fn settle(
    State(state): State<AppState>,
    caller: Caller,
    Path((id, decision)): Path<(i64, i64)>,
    Json(Settle { agreed }): Json<Settle>,
) -> Answer<Json<Outcomes>> {
    let id = caller.workflow(&state, Operation::ChangeWorkflow, WorkflowId(id)).await?.id;
    let proposed = Some(DecisionState::Proposed);
    let filter = DecisionFilter { id: Some(decision), state: proposed, ..DecisionFilter::default() };
    if state.books(move |store| store.decisions(id, &filter)).await?.is_empty() {
        return Err(ApiError::not_found(format_args!("decision {decision} that waits for a person")));
    }
    carry_out(&state, &caller, id, Wanted::Settle { decision, agreed }).await
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichRevisions {
    /// Only what was changed together in this one.
    revision: Option<i64>,
    /// Only those of this job.
    job_id: Option<i64>,
}

/// What was changed about failed and waiting jobs
#[utoipa::path(get, path = "/workflows/{id}/revisions", tag = "failures", operation_id = "list_revisions",
    params(("id" = i64, Path,), WhichRevisions), responses(
    (status = 200, description = "One for each job that was changed, the oldest first", body = Revisions),
    (status = 404, description = "There is no such workflow")))]
async fn revisions(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(which): Query<WhichRevisions>,
) -> Answer<Json<Revisions>> {
    let id = caller.workflow(&state, Operation::ReadWorkflow, WorkflowId(id)).await?.id;
    let filter = RevisionFilter { batch: which.revision, job: which.job_id.map(JobId) };
    let rows = state.books(move |store| store.revisions(id, filter)).await?;
    Ok(Json(Revisions { items: rows.into_iter().map(convert::revision).collect() }))
}

/// Put back what was changed together
///
/// For jobs that are still as it made them and have not run since; that too is a revision.
#[utoipa::path(post, path = "/workflows/{id}/revisions/{revision}/undo", tag = "failures",
    operation_id = "undo_revision", params(("id" = i64, Path,), ("revision" = i64, Path,)), responses(
    (status = 200, description = "What came of it, job by job", body = Outcomes),
    (status = 404, description = "There is no such workflow or revision"),
    (status = 409, description = "It is undone already")))]
async fn undo(
    State(state): State<AppState>,
    caller: Caller,
    Path((id, batch)): Path<(i64, i64)>,
) -> Answer<Json<Outcomes>> {
    let id = caller.workflow(&state, Operation::ChangeWorkflow, WorkflowId(id)).await?.id;
    let filter = RevisionFilter { batch: Some(batch), job: None };
    let rows = state.books(move |store| store.revisions(id, filter)).await?;
    if rows.is_empty() {
        return Err(ApiError::not_found(format_args!("revision {batch}")));
    }
    if rows.iter().all(|row| row.undone_at.is_some()) {
        let by = rows.iter().find_map(|row| row.undone_by.as_deref()).unwrap_or("somebody");
        return Err(ApiError::conflict("undone", format!("revision {batch} was undone by {by}")));
    }
    carry_out(&state, &caller, id, Wanted::Undo { batch, agent: None }).await
}

/// While nobody else touches the workflow, so that memory and books agree.
async fn carry_out(
    state: &AppState,
    caller: &Caller,
    id: WorkflowId,
    wanted: Wanted,
) -> Answer<Json<Outcomes>> {
    let done = give(state, caller.user(), id, wanted).await?.map_err(ApiError::from)?;
    Ok(Json(Outcomes { items: done.into_iter().map(convert::outcome).collect() }))
}

/// What came of it; what no worker could run afterwards is refused.
pub(super) async fn give(
    state: &AppState,
    by: &str,
    id: WorkflowId,
    wanted: Wanted,
) -> Answer<Result<Vec<Outcome>, windlass_store::Error>> {
    let (by, now) = (by.to_owned(), state.now());
    let room = match &wanted {
        Wanted::Orders(orders) if change_resources(orders) => room(state, id).await?,
        _ => Room::default(),
    };
    let carry_out = move |store: &dyn Store| {
        let store = store.acting_as(&by);
        match wanted {
            Wanted::Orders(orders) => Limited::new(&*store, id, orders, &room)?
                .carry_out(|orders| store.carry_out(id, &Wanted::Orders(orders), now)),
            other => store.carry_out(id, &other, now),
        }
    };
    let work = move |store: &dyn Store| Ok(carry_out(store));
    ask(|reply| state.service.exclusive(id, Quiet::Any, Box::new(work), reply)).await
}

/// What the workers that may take jobs of the workflow have; on Slurm, what the cluster has. Empty where that is not known.
async fn room(state: &AppState, id: WorkflowId) -> Answer<Room> {
    let state = state.clone();
    blocking(move || {
        let store = &*state.store;
        if allocating::is_on_slurm(store, id)? {
            let settings = store.workflow(id)?.map(|row| row.settings).unwrap_or_default();
            let cluster = slurm::cluster(&state);
            return Ok(cluster.map(|it| allocating::room(&it, None, &settings)).unwrap_or_default());
        }
        let filter = WorkerFilter {
            workflow: Some(id),
            also_shared: true,
            is_active: Some(true),
            ..WorkerFilter::default()
        };
        let offer = |row: WorkerRow| Offer { is_draining: row.is_draining, ..Offer::of(row.worker.capacity) };
        // Clients that claim jobs without saying who they are do not say either what they have.
        let is_known = |row: &WorkerRow| row.worker.kind != WorkerKind::Claims;
        let workers = store.workers(&filter)?.into_iter().filter(is_known);
        Ok(Room::of(&workers.map(offer).collect::<Vec<_>>()))
    })
    .await?
}
