//! Requests themselves.

use super::words;
use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, JsonOr, Path, Query};
use crate::requests::{change, import, look, submit, workflows};
use crate::state::{AppState, blocking};
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
    Aborted, PatchRequest, RequestMetrics, RequestShown, Requests, StopRequest, Stopped, Submitted, Versions,
    WorkflowStatus,
};
use windlass_auth::{Operation, Relation};
use windlass_store::model::{RequestFilter, SortBy};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, patch, abort))
        .routes(routes!(status))
        .routes(routes!(metrics))
        .routes(routes!(stop))
        .routes(routes!(versions))
}

/// Submit a request
///
/// The document of a request, of our own form or ReqMgr2's; `production_steps` may stand beside either. With
/// `{"request_name": …, "source": "reqmgr2"}` it is fetched from there, where one is configured. The same document once
/// more is answered with the request that there is.
#[utoipa::path(post, path = "/requests", tag = "requests", operation_id = "create_request", request_body = Value,
    responses((status = 201, description = "It is submitted", body = Submitted),
    (status = 200, description = "It was submitted before", body = Submitted),
    (status = 404, description = "ReqMgr2 knows no request of that name"),
    (status = 409, description = "There is another one of that name"),
    (status = 422, description = "The document has faults: all of them are in `errors`"),
    (status = 501, description = "No ReqMgr2 is configured"),
    (status = 502, description = "ReqMgr2 does not let the server look, or is not understood"),
    (status = 503, description = "ReqMgr2 does not answer, or has trouble")))]
async fn create(State(state): State<AppState>, caller: Caller, Json(body): Json<Value>) -> Answer<Response> {
    let body = match import::Wanted::of(&body)? {
        Some(wanted) => {
            // Whoever may not submit it has nothing fetched.
            caller.may(Operation::CreateRequest, Relation::Own, "such thing")?;
            let options = Arc::clone(&state.options);
            blocking(move || wanted.fetch(options.requests.reqmgr2.as_ref())).await??
        }
        None => body,
    };
    let memory = state.options.requests.memory;
    let work = move |db: &dyn windlass_store::Database, actor: crate::requests::Actor<'_>, now| {
        submit::submit(db, &body, memory, actor, now)
    };
    let (submitted, is_new) = caller.act(&state, Operation::CreateRequest, work).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    if is_new {
        state.lifecycle.nudge(&submitted.request_name);
    }
    Ok((status, Json(submitted)).into_response())
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those in one of these, with commas between them.
    status: Option<String>,
    campaign: Option<String>,
    requestor: Option<String>,
    /// `*` stands for anything.
    name: Option<String>,
    priority_min: Option<i64>,
    priority_max: Option<i64>,
    /// `request_name`, `status`, `priority`, `campaign`, `created_at` or `updated_at`; by name without it.
    sort_by: Option<String>,
    reverse_sort: Option<bool>,
    /// Skip so many.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most so many; 1000 without it.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

const SORTABLE: [&str; 6] = ["request_name", "status", "priority", "campaign", "created_at", "updated_at"];

impl Which {
    fn filter(self) -> Answer<RequestFilter> {
        let field = self.sort_by.as_deref().unwrap_or("request_name");
        if !SORTABLE.contains(&field) {
            return Err(ApiError::invalid(format!(
                "`sort_by` is `{field}`; it is one of {}",
                SORTABLE.join(", ")
            )));
        }
        let descending = self.reverse_sort.unwrap_or(false);
        let sort =
            (self.sort_by.is_some() || descending).then(|| SortBy { field: field.to_owned(), descending });
        Ok(RequestFilter {
            status: words("status", self.status.as_deref())?,
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

/// Requests
#[utoipa::path(get, path = "/requests", tag = "requests", operation_id = "list_requests", params(Which),
    responses((status = 200, description = "A page of them", body = Requests)))]
async fn list(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<Which>,
) -> Answer<Json<Requests>> {
    let filter = which.filter()?;
    caller.look(&state, move |db| look::list(db, filter)).await.map(Json)
}

/// A request, with its history
#[utoipa::path(get, path = "/requests/{name}", tag = "requests", operation_id = "get_request",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "The request; its version is in `ETag`", body = RequestShown),
    (status = 404, description = "There is no such request")))]
async fn show(State(state): State<AppState>, caller: Caller, Path(name): Path<String>) -> Answer<Response> {
    caller.look_at_request(&state, name).await.map(tagged)
}

/// With its version, for whoever changes it next.
fn tagged(shown: RequestShown) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{}\"", shown.version));
    let mut response = Json(shown).into_response();
    if let Ok(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// How far a request is
///
/// The same as the status of its workflow, by the name of the request.
#[utoipa::path(get, path = "/requests/{name}/status", tag = "requests", operation_id = "get_request_status",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "Its latest run, its blocks, its progress", body = WorkflowStatus),
    (status = 404, description = "There is no such request")))]
async fn status(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Answer<Json<WorkflowStatus>> {
    let now = state.now();
    caller.look(&state, move |db| workflows::request_status(db, &name, now)).await.map(Json)
}

/// How the rounds of a request learn
///
/// What each round thought its jobs would use, by the hints of the request or by what earlier rounds measured, and what
/// they used.
#[utoipa::path(get, path = "/requests/{name}/metrics", tag = "requests", operation_id = "get_request_metrics",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "By round and by step", body = RequestMetrics),
    (status = 404, description = "There is no such request")))]
async fn metrics(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Answer<Json<RequestMetrics>> {
    caller.look(&state, move |db| workflows::metrics(db, &name)).await.map(Json)
}

/// Change a request
///
/// Its priority, whether it is urgent, its production steps; or its status, as far as that is for people to decide. With
/// `version` or `If-Match` only if nobody changed it since.
#[utoipa::path(patch, path = "/requests/{name}", tag = "requests", operation_id = "update_request",
    params(("name" = String, Path,)), request_body = PatchRequest, responses(
    (status = 200, description = "As it is now", body = RequestShown),
    (status = 404, description = "There is no such request"),
    (status = 409, description = "It is over, or does not become that"),
    (status = 412, description = "It has another version"),
    (status = 422, description = "The change makes no sense")))]
async fn patch(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(mut wanted): Json<PatchRequest>,
) -> Answer<Response> {
    if let Some(version) = if_match(&headers)? {
        wanted.version = Some(version);
    }
    let changed = name.clone();
    let work = move |db: &dyn windlass_store::Database, actor: crate::requests::Actor<'_>, now| {
        change::patch(db, &changed, &wanted, actor, now)?;
        look::show(db, &changed, now)
    };
    let shown = caller.act(&state, Operation::ChangeRequest, work).await?;
    // Also those that come after it in the queue.
    state.lifecycle.nudge_all();
    Ok(tagged(shown))
}

fn if_match(headers: &HeaderMap) -> Answer<Option<i64>> {
    let Some(header) = headers.get(IF_MATCH) else { return Ok(None) };
    let text = header.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let version = text.trim_matches('"').parse().ok();
    version.map(Some).ok_or_else(|| ApiError::invalid("If-Match is not the version of a request"))
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Why {
    /// Why; goes into the audit trail.
    #[param(max_length = 1000)]
    reason: Option<String>,
}

/// Abort a request
///
/// What runs is stopped first; outputs that are not whole are taken back.
#[utoipa::path(delete, path = "/requests/{name}", tag = "requests", operation_id = "abort_request",
    params(("name" = String, Path,), Why), responses(
    (status = 200, description = "It is aborted, or about to be", body = Aborted),
    (status = 404, description = "There is no such request"),
    (status = 409, description = "It is over")))]
async fn abort(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(why): Query<Why>,
) -> Answer<Json<Aborted>> {
    let (ended, reason) = (name.clone(), why.reason.unwrap_or_default());
    let work = move |db: &dyn windlass_store::Database, actor: crate::requests::Actor<'_>, now| {
        change::abort(db, &ended, &reason, actor, now)
    };
    let aborted = caller.act(&state, Operation::CancelRequest, work).await?;
    state.lifecycle.nudge(&name);
    Ok(Json(aborted))
}

/// Stop a request cleanly
///
/// Its run is stopped, what is completed stays so, and a run that goes on with it waits for its turn.
#[utoipa::path(post, path = "/requests/{name}/stop", tag = "requests", operation_id = "stop_request",
    params(("name" = String, Path,)), request_body = Option<StopRequest>, responses(
    (status = 200, description = "The stop has begun", body = Stopped),
    (status = 404, description = "There is no such request"),
    (status = 409, description = "It is over")))]
async fn stop(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    JsonOr(wanted): JsonOr<StopRequest>,
) -> Answer<Json<Stopped>> {
    stop_as(&state, &caller, &name, wanted.reason).await.map(Json)
}

/// Stops it cleanly, if this caller may.
pub(crate) async fn stop_as(
    state: &AppState,
    caller: &Caller,
    name: &str,
    reason: String,
) -> Answer<Stopped> {
    let stopped = name.to_owned();
    let work = move |db: &dyn windlass_store::Database, actor: crate::requests::Actor<'_>, now| {
        change::stop(db, &stopped, &reason, actor, now)
    };
    let stopped = caller.act(state, Operation::ChangeRequest, work).await?;
    state.lifecycle.nudge(name);
    Ok(stopped)
}

/// The versions of a request
#[utoipa::path(get, path = "/requests/{name}/versions", tag = "requests", operation_id = "list_request_versions",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "The newest one and those before it", body = Versions),
    (status = 404, description = "There is no such request")))]
async fn versions(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Answer<Json<Versions>> {
    caller.look(&state, move |db| look::versions(db, &name)).await.map(Json)
}
