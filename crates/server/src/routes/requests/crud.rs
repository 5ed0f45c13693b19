//! Routes of requests.

use super::parse_list;
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, OptionalJson, Path, Query};
use crate::requests::{reqmgr2_import, request_queries, request_update, submit, workflows};
use crate::state::{AppState, run_blocking};
use axum::extract::State;
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{
    AbortResponse, FullRequest, PatchRequest, RequestList, RequestMetrics, RequestVersionList,
    RequestWorkflowStatus, StopRequest, StopResponse, SubmitResponse,
};
use windlass_auth::{AuthOperation, ObjectRelation};
use windlass_store::model::{RequestFilter, SortBy};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_requests, create_request))
        .routes(routes!(get_request, update_request, abort_request))
        .routes(routes!(get_request_status))
        .routes(routes!(get_request_metrics))
        .routes(routes!(stop_request))
        .routes(routes!(list_request_versions))
}

/// Submit a request
///
/// The document of a request in Windlass' or ReqMgr2's form; `production_steps` may be added to either. With
/// `{"request_name": …, "source": "reqmgr2"}` the document is fetched from ReqMgr2, if configured. Resubmitting
/// the same document returns the existing request.
#[utoipa::path(post, path = "/requests", tag = "requests", operation_id = "create_request", request_body = Value,
    responses((status = 201, description = "It is submitted", body = SubmitResponse),
    (status = 200, description = "The request was already submitted", body = SubmitResponse),
    (status = 404, description = "ReqMgr2 has no request with this name"),
    (status = 409, description = "Another request with this name exists"),
    (status = 422, description = "Invalid document: all errors are in `errors`"),
    (status = 501, description = "No ReqMgr2 is configured"),
    (status = 502, description = "ReqMgr2 denied access, or its response is invalid"),
    (status = 503, description = "ReqMgr2 does not answer, or failed")))]
async fn create_request(
    State(state): State<AppState>,
    caller: Caller,
    Json(body): Json<Value>,
) -> ApiResult<Response> {
    let body = match reqmgr2_import::Reqmgr2Import::from_body(&body)? {
        Some(wanted) => {
            // Check the permission before fetching anything.
            caller.authorize(AuthOperation::CreateRequest, ObjectRelation::Own, "such thing")?;
            let options = Arc::clone(&state.options);
            run_blocking(move || wanted.fetch_document(options.requests.reqmgr2.as_ref())).await??
        }
        None => body,
    };
    let memory = state.options.requests.memory_window;
    let work = move |db: &dyn windlass_store::StoreDatabase,
                     actor: crate::requests::RequestActor<'_>,
                     now| { submit::submit(db, &body, memory, actor, now) };
    let (submitted, is_new) = caller.perform_as_caller(&state, AuthOperation::CreateRequest, work).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    if is_new {
        state.lifecycle.wake_request(&submitted.request_name);
    }
    Ok((status, Json(submitted)).into_response())
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RequestListQuery {
    /// Only requests in these statuses, comma-separated.
    status: Option<String>,
    campaign: Option<String>,
    requestor: Option<String>,
    /// Name pattern; `*` matches any text.
    name: Option<String>,
    priority_min: Option<i64>,
    priority_max: Option<i64>,
    /// `request_name`, `status`, `priority`, `campaign`, `created_at` or `updated_at`. Default: `request_name`.
    sort_by: Option<String>,
    reverse_sort: Option<bool>,
    /// Number of requests to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of requests. Default: 1000.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

const SORT_FIELDS: [&str; 6] = ["request_name", "status", "priority", "campaign", "created_at", "updated_at"];

impl RequestListQuery {
    fn into_filter(self) -> ApiResult<RequestFilter> {
        let field = self.sort_by.as_deref().unwrap_or("request_name");
        if !SORT_FIELDS.contains(&field) {
            return Err(ApiError::invalid(format!(
                "`sort_by` is `{field}`; expected one of {}",
                SORT_FIELDS.join(", ")
            )));
        }
        let descending = self.reverse_sort.unwrap_or(false);
        let sort =
            (self.sort_by.is_some() || descending).then(|| SortBy { field: field.to_owned(), descending });
        Ok(RequestFilter {
            status: parse_list("status", self.status.as_deref())?,
            campaign: self.campaign,
            requestor: self.requestor,
            priority_min: self.priority_min,
            priority_max: self.priority_max,
            name: self.name,
            sort,
            offset: self.offset.unwrap_or(0),
            limit: self.limit,
            ..RequestFilter::default()
        })
    }
}

/// List requests
#[utoipa::path(get, path = "/requests", tag = "requests", operation_id = "list_requests", params(RequestListQuery),
    responses((status = 200, description = "A page of requests", body = RequestList)))]
async fn list_requests(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<RequestListQuery>,
) -> ApiResult<Json<RequestList>> {
    let filter = which.into_filter()?;
    caller.read_as_caller(&state, move |db| request_queries::list_requests(db, filter)).await.map(Json)
}

/// Get a request with its history
#[utoipa::path(get, path = "/requests/{name}", tag = "requests", operation_id = "get_request",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "The request; its version is in `ETag`", body = FullRequest),
    (status = 404, description = "Request not found")))]
async fn get_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    caller.read_request(&state, name).await.map(response_with_etag)
}

/// Adds the version as `ETag`, for later changes.
fn response_with_etag(shown: FullRequest) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{}\"", shown.version));
    let mut response = Json(shown).into_response();
    if let Ok(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Get the progress of a request
///
/// The same as the status of its workflow, by the name of the request.
#[utoipa::path(get, path = "/requests/{name}/status", tag = "requests", operation_id = "get_request_status",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "Its latest run, blocks and progress", body = RequestWorkflowStatus),
    (status = 404, description = "Request not found")))]
async fn get_request_status(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Json<RequestWorkflowStatus>> {
    let now = state.now();
    caller.read_as_caller(&state, move |db| workflows::get_request_status(db, &name, now)).await.map(Json)
}

/// Get expected and measured resource usage of a request
///
/// For each round: the expected usage of its jobs, from hints or measurements of earlier rounds, and the
/// measured usage.
#[utoipa::path(get, path = "/requests/{name}/metrics", tag = "requests", operation_id = "get_request_metrics",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "By round and step", body = RequestMetrics),
    (status = 404, description = "Request not found")))]
async fn get_request_metrics(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Json<RequestMetrics>> {
    caller.read_as_caller(&state, move |db| workflows::get_request_metrics(db, &name)).await.map(Json)
}

/// Change a request
///
/// Changes priority, urgency, production steps, or the status where users may set it. With
/// `version` or `If-Match`, only if the request has not changed since.
#[utoipa::path(patch, path = "/requests/{name}", tag = "requests", operation_id = "update_request",
    params(("name" = String, Path,)), request_body = PatchRequest, responses(
    (status = 200, description = "As it is now", body = FullRequest),
    (status = 404, description = "Request not found"),
    (status = 409, description = "The request has ended, or the status cannot be set"),
    (status = 412, description = "The request has another version"),
    (status = 422, description = "Invalid change")))]
async fn update_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(mut wanted): Json<PatchRequest>,
) -> ApiResult<Response> {
    if let Some(version) = parse_if_match(&headers)? {
        wanted.version = Some(version);
    }
    let changed = name.clone();
    let work =
        move |db: &dyn windlass_store::StoreDatabase, actor: crate::requests::RequestActor<'_>, now| {
            request_update::patch_request(db, &changed, &wanted, actor, now)?;
            request_queries::get_request(db, &changed, now)
        };
    let shown = caller.perform_as_caller(&state, AuthOperation::ChangeRequest, work).await?;
    // The change may affect later requests in the queue.
    state.lifecycle.wake_all();
    Ok(response_with_etag(shown))
}

fn parse_if_match(headers: &HeaderMap) -> ApiResult<Option<i64>> {
    let Some(header) = headers.get(IF_MATCH) else { return Ok(None) };
    let text = header.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let version = text.trim_matches('"').parse().ok();
    version.map(Some).ok_or_else(|| ApiError::invalid("If-Match is not a version of a request"))
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AbortRequestQuery {
    /// Reason, stored in the audit trail.
    #[param(max_length = 1000)]
    reason: Option<String>,
}

/// Abort a request
///
/// Running jobs are stopped first; incomplete outputs are invalidated.
#[utoipa::path(delete, path = "/requests/{name}", tag = "requests", operation_id = "abort_request",
    params(("name" = String, Path,), AbortRequestQuery), responses(
    (status = 200, description = "The request is aborted or being aborted", body = AbortResponse),
    (status = 404, description = "Request not found"),
    (status = 409, description = "It is over")))]
async fn abort_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(why): Query<AbortRequestQuery>,
) -> ApiResult<Json<AbortResponse>> {
    let (ended, reason) = (name.clone(), why.reason.unwrap_or_default());
    let work = move |db: &dyn windlass_store::StoreDatabase,
                     actor: crate::requests::RequestActor<'_>,
                     now| { request_update::abort_request(db, &ended, &reason, actor, now) };
    let aborted = caller.perform_as_caller(&state, AuthOperation::CancelRequest, work).await?;
    state.lifecycle.wake_request(&name);
    Ok(Json(aborted))
}

/// Stop a request cleanly
///
/// Its run is stopped, completed work units are kept, and a run for the rest is queued for admission.
#[utoipa::path(post, path = "/requests/{name}/stop", tag = "requests", operation_id = "stop_request",
    params(("name" = String, Path,)), request_body = Option<StopRequest>, responses(
    (status = 200, description = "The stop was started", body = StopResponse),
    (status = 404, description = "Request not found"),
    (status = 409, description = "It is over")))]
async fn stop_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(wanted): OptionalJson<StopRequest>,
) -> ApiResult<Json<StopResponse>> {
    stop_as(&state, &caller, &name, wanted.reason).await.map(Json)
}

/// Stops the request cleanly, if the caller may.
pub(crate) async fn stop_as(
    state: &AppState,
    caller: &Caller,
    name: &str,
    reason: String,
) -> ApiResult<StopResponse> {
    let stopped = name.to_owned();
    let work = move |db: &dyn windlass_store::StoreDatabase,
                     actor: crate::requests::RequestActor<'_>,
                     now| { request_update::stop_request(db, &stopped, &reason, actor, now) };
    let stopped = caller.perform_as_caller(state, AuthOperation::ChangeRequest, work).await?;
    state.lifecycle.wake_request(name);
    Ok(stopped)
}

/// List the versions of a request
#[utoipa::path(get, path = "/requests/{name}/versions", tag = "requests", operation_id = "list_request_versions",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "The newest version and all earlier ones", body = RequestVersionList),
    (status = 404, description = "Request not found")))]
async fn list_request_versions(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Json<RequestVersionList>> {
    caller.read_as_caller(&state, move |db| request_queries::list_versions(db, &name)).await.map(Json)
}
