//! Runs of requests, the queue they wait in, and how the reconciler is. Workflows of requests are found by their UUIDs
//! where those of the engine are found by their numbers.

use super::words;
use crate::caller::Caller;
use crate::error::Answer;
use crate::extract::{Json, Path, Query};
use crate::requests::{Actor, admission, dags, workflows};
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{
    AdmissionConfig, AdmissionQueue, Dag, DagLogs, DagNodes, Dags, Workflow, WorkflowStatus,
};
use windlass_auth::{Operation, Relation};
use windlass_store::Database;
use windlass_store::model::RunFilter;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(nodes))
        .routes(routes!(logs))
        .routes(routes!(queue))
        .routes(routes!(configure))
        .routes(routes!(lifecycle))
}

/// What `GET /workflows/{id}` answers where the id is a UUID.
pub(crate) fn by_uuid(db: &dyn Database, uuid: &str) -> Answer<Workflow> {
    workflows::show(db, uuid)
}

/// What `GET /workflows/{id}/status` answers where the id is a UUID.
pub(crate) fn status_by_uuid(
    db: &dyn Database,
    uuid: &str,
    now: windlass_types::Timestamp,
) -> Answer<WorkflowStatus> {
    workflows::status(db, uuid, now)
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichDags {
    /// Only those in one of these, with commas between them.
    status: Option<String>,
    /// Only those of this workflow, by its UUID.
    workflow_id: Option<String>,
    /// Skip so many.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most so many; 1000 without it.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// Runs of requests
#[utoipa::path(get, path = "/dags", tag = "requests", operation_id = "list_dags", params(WhichDags),
    responses((status = 200, description = "By workflow, in the order in which they were made", body = Dags)))]
async fn list(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<WhichDags>,
) -> Answer<Json<Dags>> {
    let filter = RunFilter {
        process: which.workflow_id,
        status: words("status", which.status.as_deref())?,
        offset: which.offset.unwrap_or(0),
        limit: which.limit,
        ..RunFilter::default()
    };
    caller.look(&state, move |db| dags::list(db, filter)).await.map(Json)
}

/// A run of a request, with its history
#[utoipa::path(get, path = "/dags/{id}", tag = "requests", operation_id = "get_dag", params(("id" = String, Path,)),
    responses((status = 200, description = "The run, its counts, its history", body = Dag),
    (status = 404, description = "There is no such run")))]
async fn show(State(state): State<AppState>, caller: Caller, Path(id): Path<String>) -> Answer<Json<Dag>> {
    caller.look(&state, move |db| dags::show(db, &id)).await.map(Json)
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichNodes {
    /// Only those in one of these states of jobs, with commas between them.
    status: Option<String>,
    /// Only those of this work unit, by its number.
    work_unit: Option<u32>,
    /// Skip so many.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most so many; 1000 without it.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// The nodes of a run as they are now
#[utoipa::path(get, path = "/dags/{id}/nodes", tag = "requests", operation_id = "list_dag_nodes",
    params(("id" = String, Path,), WhichNodes), responses(
    (status = 200, description = "Jobs of the engine, at this moment", body = DagNodes),
    (status = 404, description = "There is no such run")))]
async fn nodes(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    Query(which): Query<WhichNodes>,
) -> Answer<Json<DagNodes>> {
    let wanted = dags::Nodes {
        status: words("status", which.status.as_deref())?,
        unit: which.work_unit,
        offset: which.offset.unwrap_or(0),
        limit: which.limit,
    };
    caller.look(&state, move |db| dags::nodes(db, &id, &wanted)).await.map(Json)
}

/// Where the logs of a run are
#[utoipa::path(get, path = "/dags/{id}/logs", tag = "requests", operation_id = "get_dag_logs",
    params(("id" = String, Path,)), responses(
    (status = 200, description = "Directories, and how to read them", body = DagLogs),
    (status = 404, description = "There is no such run")))]
async fn logs(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<DagLogs>> {
    caller.look(&state, move |db| dags::logs(db, &id)).await.map(Json)
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct HowMany {
    /// At most so many of the queue; 100 without it.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// Who waits for a place, and who is next
#[utoipa::path(get, path = "/admission/queue", tag = "requests", operation_id = "get_admission_queue",
    params(HowMany), responses((status = 200, description = "The queue, in order", body = AdmissionQueue)))]
async fn queue(
    State(state): State<AppState>,
    caller: Caller,
    Query(how): Query<HowMany>,
) -> Answer<Json<AdmissionQueue>> {
    let (now, usual) = (state.now(), admission::Settings::default());
    caller.look(&state, move |db| admission::show(db, how.limit, &usual, now)).await.map(Json)
}

/// Change how many runs may be under way at once
#[utoipa::path(patch, path = "/admission/config", tag = "requests", operation_id = "update_admission_config",
    request_body = AdmissionConfig, responses(
    (status = 200, description = "As it is now", body = AdmissionConfig),
    (status = 403, description = "This is for operators"),
    (status = 422, description = "The number makes no sense")))]
async fn configure(
    State(state): State<AppState>,
    caller: Caller,
    Json(wanted): Json<AdmissionConfig>,
) -> Answer<Json<AdmissionConfig>> {
    let work = move |db: &dyn Database, actor: Actor<'_>, now| admission::set(db, &wanted, actor, now);
    let config = caller.act(&state, Operation::ManageSites, work).await?;
    state.lifecycle.nudge_all();
    Ok(Json(config))
}

/// How the reconciler is, which owns the states of all requests
#[utoipa::path(get, path = "/lifecycle/status", tag = "requests", operation_id = "get_lifecycle_status",
    responses((status = 200, description = "Its last pass and its next one", body = Value)))]
async fn lifecycle(State(state): State<AppState>, caller: Caller) -> Answer<Json<Value>> {
    caller.may(Operation::Look, Relation::Own, "such thing")?;
    let status = serde_json::to_value(state.lifecycle.status());
    status.map(Json).map_err(crate::error::ApiError::internal)
}
