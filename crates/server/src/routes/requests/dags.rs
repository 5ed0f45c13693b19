//! Runs of requests, the queue they wait in, and how the reconciler is. Workflows of requests are found by their UUIDs
//! where those of the engine are found by their numbers.

use super::words;
use crate::caller::Caller;
use crate::error::Answer;
use crate::extract::{Json, JsonOr, Path, Query};
use crate::requests::{Actor, admission, dags, workflows};
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{
    AdmissionConfig, AdmissionQueue, Dag, DagAction, DagHistory, DagLogs, DagNodes, DagReason, Dags,
    RequestWorkflows, Workflow, WorkflowStatus,
};
use windlass_auth::{Operation, Relation};
use windlass_store::Database;
use windlass_store::model::{RequestFilter, RunFilter};
use windlass_types::Timestamp;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_workflows))
        .routes(routes!(show_workflow))
        .routes(routes!(show_workflow_status))
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(nodes))
        .routes(routes!(logs))
        .routes(routes!(history))
        .routes(routes!(hold))
        .routes(routes!(release))
        .routes(routes!(remove))
        .routes(routes!(rescue))
        .routes(routes!(queue))
        .routes(routes!(configure))
        .routes(routes!(lifecycle))
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichWorkflows {
    /// Only those of this request; `*` stands for any text.
    request_name: Option<String>,
    /// Only those whose request is in one of these, with commas between them.
    status: Option<String>,
    /// Skip this number of requests.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most this number of requests; 1000 without it.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// Workflows of requests
///
/// The workflow of a request spans all its rounds and has a UUID. Workflows of the engine, which have numbers, are another
/// kind of object: `GET /workflows` lists those.
#[utoipa::path(get, path = "/request-workflows", tag = "requests", operation_id = "list_request_workflows",
    params(WhichWorkflows),
    responses((status = 200, description = "By the name of their request", body = RequestWorkflows)))]
async fn list_workflows(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<WhichWorkflows>,
) -> Answer<Json<RequestWorkflows>> {
    let filter = RequestFilter {
        name: which.request_name,
        status: words("status", which.status.as_deref())?,
        offset: which.offset.unwrap_or(0),
        limit: which.limit,
        ..RequestFilter::default()
    };
    caller.look(&state, move |db| workflows::list(db, filter)).await.map(Json)
}

/// The workflow of a request
///
/// `GET /workflows/{uuid}` answers the same.
#[utoipa::path(get, path = "/request-workflows/{id}", tag = "requests", operation_id = "get_request_workflow",
    params(("id" = String, Path, description = "UUID of the workflow"),), responses(
    (status = 200, description = "The workflow, its runs, its blocks", body = Workflow),
    (status = 404, description = "No request has this workflow")))]
async fn show_workflow(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<Workflow>> {
    caller.look(&state, move |db| workflows::show(db, &id)).await.map(Json)
}

/// Progress of the workflow of a request
///
/// `GET /workflows/{uuid}/status` answers the same.
#[utoipa::path(get, path = "/request-workflows/{id}/status", tag = "requests",
    operation_id = "get_request_workflow_status",
    params(("id" = String, Path, description = "UUID of the workflow"),), responses(
    (status = 200, description = "Its latest run, its blocks, its progress", body = WorkflowStatus),
    (status = 404, description = "No request has this workflow")))]
async fn show_workflow_status(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<WorkflowStatus>> {
    let now = state.now();
    caller.look(&state, move |db| workflows::status(db, &id, now)).await.map(Json)
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
    /// Only those in one of these states, of jobs of the engine or of nodes of DAGMan, with commas between them.
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
    (status = 200, description = "Jobs of the engine or nodes of DAGMan, at this moment", body = DagNodes),
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
    params(("id" = String, Path,), WhichLogs), responses(
    (status = 200, description = "Directories and files, and how to read them", body = DagLogs),
    (status = 403, description = "The request is another user's"),
    (status = 404, description = "There is no such run"),
    (status = 422, description = "No node can be called so")))]
async fn logs(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    Query(which): Query<WhichLogs>,
) -> Answer<Json<DagLogs>> {
    let which = dags::Which { unit: which.work_unit, node: which.node };
    let of = id.clone();
    caller
        .look_into(&state, move |db| dags::requestor(db, &of), move |db| dags::logs(db, &id, &which))
        .await
        .map(Json)
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichLogs {
    /// Of this work unit of an HTCondor DAG, by its number.
    work_unit: Option<u32>,
    /// Of this node; without it, of DAGMan.
    node: Option<String>,
}

/// What happened to a run
#[utoipa::path(get, path = "/dags/{id}/history", tag = "requests", operation_id = "get_dag_history",
    params(("id" = String, Path,)), responses(
    (status = 200, description = "The oldest first", body = DagHistory),
    (status = 404, description = "There is no such run")))]
async fn history(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<DagHistory>> {
    caller.look(&state, move |db| dags::history(db, &id)).await.map(Json)
}

/// Hold a run on HTCondor
///
/// DAGMan begins nothing more; what runs goes on.
#[utoipa::path(post, path = "/dags/{id}/hold", tag = "requests", operation_id = "hold_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "It is held", body = DagAction),
    (status = 404, description = "There is no such run"),
    (status = 409, description = "It is not in the queue of HTCondor"),
    (status = 503, description = "The schedd does not answer")))]
async fn hold(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    JsonOr(said): JsonOr<DagReason>,
) -> Answer<Json<DagAction>> {
    act(&state, &caller, move |db, actor, _| dags::hold(db, &id, &said.reason, actor)).await
}

/// Let a run go on that is held on HTCondor
#[utoipa::path(post, path = "/dags/{id}/release", tag = "requests", operation_id = "release_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "It goes on", body = DagAction),
    (status = 404, description = "There is no such run"),
    (status = 409, description = "It is not in the queue of HTCondor"),
    (status = 503, description = "The schedd does not answer")))]
async fn release(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    JsonOr(said): JsonOr<DagReason>,
) -> Answer<Json<DagAction>> {
    act(&state, &caller, move |db, actor, now| dags::release(db, &id, &said.reason, actor, now)).await
}

/// End a run; its request is held
#[utoipa::path(post, path = "/dags/{id}/remove", tag = "requests", operation_id = "remove_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "It is being ended", body = DagAction),
    (status = 404, description = "There is no such run"),
    (status = 409, description = "It is over")))]
async fn remove(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    JsonOr(said): JsonOr<DagReason>,
) -> Answer<Json<DagAction>> {
    act(&state, &caller, move |db, actor, now| dags::remove(db, &id, &said.reason, actor, now)).await
}

/// Go on with what a run has left
///
/// It must be over, and its request held: another run is made whose parent it is.
#[utoipa::path(post, path = "/dags/{id}/rescue", tag = "requests", operation_id = "rescue_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "Another run is prepared", body = DagAction),
    (status = 404, description = "There is no such run"),
    (status = 409, description = "It is not over, or nothing is left of it")))]
async fn rescue(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    JsonOr(said): JsonOr<DagReason>,
) -> Answer<Json<DagAction>> {
    act(&state, &caller, move |db, actor, now| dags::rescue(db, &id, &said.reason, actor, now)).await
}

/// Does it, and has the reconciler look at the request.
async fn act(
    state: &AppState,
    caller: &Caller,
    work: impl FnOnce(&dyn Database, Actor<'_>, Timestamp) -> Answer<DagAction> + Send + 'static,
) -> Answer<Json<DagAction>> {
    let done = caller.act(state, Operation::ChangeRequest, work).await?;
    state.lifecycle.nudge(&done.request_name);
    Ok(Json(done))
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
