//! Routes of the runs of requests, admission, and the reconciler. Workflows of requests are addressed by UUID,
//! workflows of the engine by number.

use super::parse_list;
use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::{Json, OptionalJson, Path, Query};
use crate::requests::{RequestActor, admission, dags, workflows};
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{
    AdmissionConfig, AdmissionQueue, DagAction, DagHistory, DagLogs, DagReason, RequestDag, RequestDagList,
    RequestDagNodeList, RequestWorkflowDetails, RequestWorkflowList, RequestWorkflowStatus,
};
use windlass_auth::{AuthOperation, ObjectRelation};
use windlass_store::StoreDatabase;
use windlass_store::model::{RequestFilter, RequestRunFilter};
use windlass_types::Timestamp;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_request_workflows))
        .routes(routes!(get_request_workflow))
        .routes(routes!(get_request_workflow_status))
        .routes(routes!(list_dags))
        .routes(routes!(get_dag))
        .routes(routes!(list_dag_nodes))
        .routes(routes!(get_dag_logs))
        .routes(routes!(get_dag_history))
        .routes(routes!(hold_dag))
        .routes(routes!(release_dag))
        .routes(routes!(remove_dag))
        .routes(routes!(rescue_dag))
        .routes(routes!(get_admission_queue))
        .routes(routes!(update_admission_config))
        .routes(routes!(get_lifecycle_status))
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RequestWorkflowQuery {
    /// Only workflows of this request; `*` matches any text.
    request_name: Option<String>,
    /// Only workflows whose request is in one of these statuses, comma-separated.
    status: Option<String>,
    /// Number of requests to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of requests. Default: 1000.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// List workflows of requests
///
/// The workflow of a request spans all its rounds and has a UUID. Workflows of the engine, which have numbers,
/// are another type of object, listed by `GET /workflows`.
#[utoipa::path(get, path = "/request-workflows", tag = "requests", operation_id = "list_request_workflows",
    params(RequestWorkflowQuery),
    responses((status = 200, description = "By request name", body = RequestWorkflowList)))]
async fn list_request_workflows(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<RequestWorkflowQuery>,
) -> ApiResult<Json<RequestWorkflowList>> {
    let filter = RequestFilter {
        name: which.request_name,
        status: parse_list("status", which.status.as_deref())?,
        offset: which.offset.unwrap_or(0),
        limit: which.limit,
        ..RequestFilter::default()
    };
    caller.read_as_caller(&state, move |db| workflows::list_request_workflows(db, filter)).await.map(Json)
}

/// Get the workflow of a request
///
/// `GET /workflows/{uuid}` returns the same.
#[utoipa::path(get, path = "/request-workflows/{id}", tag = "requests", operation_id = "get_request_workflow",
    params(("id" = String, Path, description = "UUID of the workflow"),), responses(
    (status = 200, description = "The workflow, its runs and blocks", body = RequestWorkflowDetails),
    (status = 404, description = "Workflow not found")))]
async fn get_request_workflow(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<RequestWorkflowDetails>> {
    caller.read_as_caller(&state, move |db| workflows::get_request_workflow(db, &id)).await.map(Json)
}

/// Get the progress of the workflow of a request
///
/// `GET /workflows/{uuid}/status` returns the same.
#[utoipa::path(get, path = "/request-workflows/{id}/status", tag = "requests",
    operation_id = "get_request_workflow_status",
    params(("id" = String, Path, description = "UUID of the workflow"),), responses(
    (status = 200, description = "Its latest run, blocks and progress", body = RequestWorkflowStatus),
    (status = 404, description = "Workflow not found")))]
async fn get_request_workflow_status(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<RequestWorkflowStatus>> {
    let now = state.now();
    caller.read_as_caller(&state, move |db| workflows::get_workflow_status(db, &id, now)).await.map(Json)
}

/// The response of `GET /workflows/{id}` if the id is a UUID.
pub(crate) fn get_workflow_by_uuid(db: &dyn StoreDatabase, uuid: &str) -> ApiResult<RequestWorkflowDetails> {
    workflows::get_request_workflow(db, uuid)
}

/// The response of `GET /workflows/{id}/status` if the id is a UUID.
pub(crate) fn get_status_by_uuid(
    db: &dyn StoreDatabase,
    uuid: &str,
    now: windlass_types::Timestamp,
) -> ApiResult<RequestWorkflowStatus> {
    workflows::get_workflow_status(db, uuid, now)
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DagListQuery {
    /// Only runs in these statuses, comma-separated.
    status: Option<String>,
    /// Only runs of the workflow with this UUID.
    workflow_id: Option<String>,
    /// Number of runs to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of runs. Default: 1000.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// List runs of requests
#[utoipa::path(get, path = "/dags", tag = "requests", operation_id = "list_dags", params(DagListQuery),
    responses((status = 200, description = "By workflow, in the order of creation", body = RequestDagList)))]
async fn list_dags(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<DagListQuery>,
) -> ApiResult<Json<RequestDagList>> {
    let filter = RequestRunFilter {
        process: which.workflow_id,
        status: parse_list("status", which.status.as_deref())?,
        offset: which.offset.unwrap_or(0),
        limit: which.limit,
        ..RequestRunFilter::default()
    };
    caller.read_as_caller(&state, move |db| dags::list_dags(db, filter)).await.map(Json)
}

/// Get a run of a request, with its history
#[utoipa::path(get, path = "/dags/{id}", tag = "requests", operation_id = "get_dag", params(("id" = String, Path,)),
    responses((status = 200, description = "The run, its counts and history", body = RequestDag),
    (status = 404, description = "Run not found")))]
async fn get_dag(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<RequestDag>> {
    caller.read_as_caller(&state, move |db| dags::get_dag(db, &id)).await.map(Json)
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DagNodeListQuery {
    /// Only nodes in these statuses (of engine jobs or DAGMan nodes), comma-separated.
    status: Option<String>,
    /// Only nodes of the work unit with this number.
    work_unit: Option<u32>,
    /// Number of nodes to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of nodes. Default: 1000.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// List the nodes of a run in their current state
#[utoipa::path(get, path = "/dags/{id}/nodes", tag = "requests", operation_id = "list_dag_nodes",
    params(("id" = String, Path,), DagNodeListQuery), responses(
    (status = 200, description = "Jobs of the engine or nodes of DAGMan", body = RequestDagNodeList),
    (status = 404, description = "Run not found")))]
async fn list_dag_nodes(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    Query(which): Query<DagNodeListQuery>,
) -> ApiResult<Json<RequestDagNodeList>> {
    let wanted = dags::DagNodeFilter {
        status: parse_list("status", which.status.as_deref())?,
        unit: which.work_unit,
        offset: which.offset.unwrap_or(0),
        limit: which.limit,
    };
    caller.read_as_caller(&state, move |db| dags::list_dag_nodes(db, &id, &wanted)).await.map(Json)
}

/// Get the location of the logs of a run
#[utoipa::path(get, path = "/dags/{id}/logs", tag = "requests", operation_id = "get_dag_logs",
    params(("id" = String, Path,), DagLogQuery), responses(
    (status = 200, description = "Directories and files, and how to read them", body = DagLogs),
    (status = 403, description = "The request belongs to another user"),
    (status = 404, description = "Run not found"),
    (status = 422, description = "Invalid node name")))]
async fn get_dag_logs(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    Query(which): Query<DagLogQuery>,
) -> ApiResult<Json<DagLogs>> {
    let which = dags::DagLogSelector { unit: which.work_unit, node: which.node };
    let of = id.clone();
    caller
        .read_request_details(
            &state,
            move |db| dags::load_dag_requestor(db, &of),
            move |db| dags::get_dag_logs(db, &id, &which),
        )
        .await
        .map(Json)
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DagLogQuery {
    /// Only logs of the work unit with this number, for runs on HTCondor.
    work_unit: Option<u32>,
    /// Only logs of this node. Default: logs of DAGMan.
    node: Option<String>,
}

/// Get the history of a run
#[utoipa::path(get, path = "/dags/{id}/history", tag = "requests", operation_id = "get_dag_history",
    params(("id" = String, Path,)), responses(
    (status = 200, description = "Oldest first", body = DagHistory),
    (status = 404, description = "Run not found")))]
async fn get_dag_history(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<DagHistory>> {
    caller.read_as_caller(&state, move |db| dags::get_dag_history(db, &id)).await.map(Json)
}

/// Hold a run on HTCondor
///
/// DAGMan starts no new nodes; running nodes continue.
#[utoipa::path(post, path = "/dags/{id}/hold", tag = "requests", operation_id = "hold_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "It is held", body = DagAction),
    (status = 404, description = "Run not found"),
    (status = 409, description = "The run is not in the HTCondor queue"),
    (status = 503, description = "The schedd does not answer")))]
async fn hold_dag(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(said): OptionalJson<DagReason>,
) -> ApiResult<Json<DagAction>> {
    perform_dag_action(&state, &caller, move |db, actor, _| dags::hold_dag(db, &id, &said.reason, actor))
        .await
}

/// Release a held run on HTCondor
#[utoipa::path(post, path = "/dags/{id}/release", tag = "requests", operation_id = "release_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "The run continues", body = DagAction),
    (status = 404, description = "Run not found"),
    (status = 409, description = "The run is not in the HTCondor queue"),
    (status = 503, description = "The schedd does not answer")))]
async fn release_dag(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(said): OptionalJson<DagReason>,
) -> ApiResult<Json<DagAction>> {
    perform_dag_action(&state, &caller, move |db, actor, now| {
        dags::release_dag(db, &id, &said.reason, actor, now)
    })
    .await
}

/// Remove a run; its request is held
#[utoipa::path(post, path = "/dags/{id}/remove", tag = "requests", operation_id = "remove_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "The run is being removed", body = DagAction),
    (status = 404, description = "Run not found"),
    (status = 409, description = "It is over")))]
async fn remove_dag(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(said): OptionalJson<DagReason>,
) -> ApiResult<Json<DagAction>> {
    perform_dag_action(&state, &caller, move |db, actor, now| {
        dags::remove_dag(db, &id, &said.reason, actor, now)
    })
    .await
}

/// Rescue a run
///
/// Creates a new run for the work units that are not completed. The run must have ended, and its request must
/// be held.
#[utoipa::path(post, path = "/dags/{id}/rescue", tag = "requests", operation_id = "rescue_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "A new run is prepared", body = DagAction),
    (status = 404, description = "Run not found"),
    (status = 409, description = "The run has not ended, or nothing is left to do")))]
async fn rescue_dag(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(said): OptionalJson<DagReason>,
) -> ApiResult<Json<DagAction>> {
    perform_dag_action(&state, &caller, move |db, actor, now| {
        dags::rescue_dag(db, &id, &said.reason, actor, now)
    })
    .await
}

/// Performs the action and wakes the reconciler for the request.
async fn perform_dag_action(
    state: &AppState,
    caller: &Caller,
    work: impl FnOnce(&dyn StoreDatabase, RequestActor<'_>, Timestamp) -> ApiResult<DagAction> + Send + 'static,
) -> ApiResult<Json<DagAction>> {
    let done = caller.perform_as_caller(state, AuthOperation::ChangeRequest, work).await?;
    state.lifecycle.wake_request(&done.request_name);
    Ok(Json(done))
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AdmissionQueueQuery {
    /// Maximum number of queue entries. Default: 100.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// Get the admission queue
#[utoipa::path(get, path = "/admission/queue", tag = "requests", operation_id = "get_admission_queue",
    params(AdmissionQueueQuery), responses((status = 200, description = "The queue, in order", body = AdmissionQueue)))]
async fn get_admission_queue(
    State(state): State<AppState>,
    caller: Caller,
    Query(how): Query<AdmissionQueueQuery>,
) -> ApiResult<Json<AdmissionQueue>> {
    let (now, usual) = (state.now(), admission::AdmissionSettings::default());
    caller
        .read_as_caller(&state, move |db| admission::get_admission_queue(db, how.limit, &usual, now))
        .await
        .map(Json)
}

/// Change the maximum number of active runs
#[utoipa::path(patch, path = "/admission/config", tag = "requests", operation_id = "update_admission_config",
    request_body = AdmissionConfig, responses(
    (status = 200, description = "As it is now", body = AdmissionConfig),
    (status = 403, description = "Requires the role operator"),
    (status = 422, description = "Invalid number")))]
async fn update_admission_config(
    State(state): State<AppState>,
    caller: Caller,
    Json(wanted): Json<AdmissionConfig>,
) -> ApiResult<Json<AdmissionConfig>> {
    let work = move |db: &dyn StoreDatabase, actor: RequestActor<'_>, now| {
        admission::set_admission_config(db, &wanted, actor, now)
    };
    let config = caller.perform_as_caller(&state, AuthOperation::ManageSites, work).await?;
    state.lifecycle.wake_all();
    Ok(Json(config))
}

/// Get the state of the reconciler, which owns the states of all requests
#[utoipa::path(get, path = "/lifecycle/status", tag = "requests", operation_id = "get_lifecycle_status",
    responses((status = 200, description = "Its last and next pass", body = Value)))]
async fn get_lifecycle_status(State(state): State<AppState>, caller: Caller) -> ApiResult<Json<Value>> {
    caller.authorize(AuthOperation::ListVisible, ObjectRelation::Own, "such thing")?;
    let status = serde_json::to_value(state.lifecycle.status());
    status.map(Json).map_err(crate::error::ApiError::internal)
}
