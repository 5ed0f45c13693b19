//! Runs of requests, the queue they wait in, and how the reconciler is. Workflows of requests are found by their UUIDs
//! where those of the engine are found by their numbers.

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
    params(RequestWorkflowQuery),
    responses((status = 200, description = "By the name of their request", body = RequestWorkflowList)))]
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

/// The workflow of a request
///
/// `GET /workflows/{uuid}` answers the same.
#[utoipa::path(get, path = "/request-workflows/{id}", tag = "requests", operation_id = "get_request_workflow",
    params(("id" = String, Path, description = "UUID of the workflow"),), responses(
    (status = 200, description = "The workflow, its runs, its blocks", body = RequestWorkflowDetails),
    (status = 404, description = "No request has this workflow")))]
async fn get_request_workflow(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<RequestWorkflowDetails>> {
    caller.read_as_caller(&state, move |db| workflows::get_request_workflow(db, &id)).await.map(Json)
}

/// Progress of the workflow of a request
///
/// `GET /workflows/{uuid}/status` answers the same.
#[utoipa::path(get, path = "/request-workflows/{id}/status", tag = "requests",
    operation_id = "get_request_workflow_status",
    params(("id" = String, Path, description = "UUID of the workflow"),), responses(
    (status = 200, description = "Its latest run, its blocks, its progress", body = RequestWorkflowStatus),
    (status = 404, description = "No request has this workflow")))]
async fn get_request_workflow_status(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<RequestWorkflowStatus>> {
    let now = state.now();
    caller.read_as_caller(&state, move |db| workflows::get_workflow_status(db, &id, now)).await.map(Json)
}

/// What `GET /workflows/{id}` answers where the id is a UUID.
pub(crate) fn get_workflow_by_uuid(db: &dyn StoreDatabase, uuid: &str) -> ApiResult<RequestWorkflowDetails> {
    workflows::get_request_workflow(db, uuid)
}

/// What `GET /workflows/{id}/status` answers where the id is a UUID.
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
#[utoipa::path(get, path = "/dags", tag = "requests", operation_id = "list_dags", params(DagListQuery),
    responses((status = 200, description = "By workflow, in the order in which they were made", body = RequestDagList)))]
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

/// A run of a request, with its history
#[utoipa::path(get, path = "/dags/{id}", tag = "requests", operation_id = "get_dag", params(("id" = String, Path,)),
    responses((status = 200, description = "The run, its counts, its history", body = RequestDag),
    (status = 404, description = "There is no such run")))]
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
    params(("id" = String, Path,), DagNodeListQuery), responses(
    (status = 200, description = "Jobs of the engine or nodes of DAGMan, at this moment", body = RequestDagNodeList),
    (status = 404, description = "There is no such run")))]
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

/// Where the logs of a run are
#[utoipa::path(get, path = "/dags/{id}/logs", tag = "requests", operation_id = "get_dag_logs",
    params(("id" = String, Path,), DagLogQuery), responses(
    (status = 200, description = "Directories and files, and how to read them", body = DagLogs),
    (status = 403, description = "The request is another user's"),
    (status = 404, description = "There is no such run"),
    (status = 422, description = "No node can be called so")))]
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
async fn get_dag_history(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<DagHistory>> {
    caller.read_as_caller(&state, move |db| dags::get_dag_history(db, &id)).await.map(Json)
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
async fn hold_dag(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(said): OptionalJson<DagReason>,
) -> ApiResult<Json<DagAction>> {
    perform_dag_action(&state, &caller, move |db, actor, _| dags::hold_dag(db, &id, &said.reason, actor))
        .await
}

/// Let a run go on that is held on HTCondor
#[utoipa::path(post, path = "/dags/{id}/release", tag = "requests", operation_id = "release_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "It goes on", body = DagAction),
    (status = 404, description = "There is no such run"),
    (status = 409, description = "It is not in the queue of HTCondor"),
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

/// End a run; its request is held
#[utoipa::path(post, path = "/dags/{id}/remove", tag = "requests", operation_id = "remove_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "It is being ended", body = DagAction),
    (status = 404, description = "There is no such run"),
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

/// Go on with what a run has left
///
/// It must be over, and its request held: another run is made whose parent it is.
#[utoipa::path(post, path = "/dags/{id}/rescue", tag = "requests", operation_id = "rescue_dag",
    params(("id" = String, Path,)), request_body = Option<DagReason>, responses(
    (status = 200, description = "Another run is prepared", body = DagAction),
    (status = 404, description = "There is no such run"),
    (status = 409, description = "It is not over, or nothing is left of it")))]
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

/// Does it, and has the reconciler look at the request.
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
    /// At most so many of the queue; 100 without it.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// Who waits for a place, and who is next
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

/// Change how many runs may be under way at once
#[utoipa::path(patch, path = "/admission/config", tag = "requests", operation_id = "update_admission_config",
    request_body = AdmissionConfig, responses(
    (status = 200, description = "As it is now", body = AdmissionConfig),
    (status = 403, description = "This is for operators"),
    (status = 422, description = "The number makes no sense")))]
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

/// How the reconciler is, which owns the states of all requests
#[utoipa::path(get, path = "/lifecycle/status", tag = "requests", operation_id = "get_lifecycle_status",
    responses((status = 200, description = "Its last pass and its next one", body = Value)))]
async fn get_lifecycle_status(State(state): State<AppState>, caller: Caller) -> ApiResult<Json<Value>> {
    caller.authorize(AuthOperation::ListVisible, ObjectRelation::Own, "such thing")?;
    let status = serde_json::to_value(state.lifecycle.status());
    status.map(Json).map_err(crate::error::ApiError::internal)
}
