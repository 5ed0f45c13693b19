//! Recovery of requests by operators, and alerts.

use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::{Json, OptionalJson, Path, Query};
use crate::requests::{RequestActor, alerts, errors, load_requestor, release, termination};
use crate::state::AppState;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{
    AbortResponse, AlertList, FailRequest, InvalidateRequest, InvalidateResponse, ReleaseRequest,
    ReleaseResponse, RequestErrors, RestartRequest, RestartResponse,
};
use windlass_auth::AuthOperation;
use windlass_store::StoreDatabase;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(get_request_errors))
        .routes(routes!(release_request))
        .routes(routes!(fail_request))
        .routes(routes!(restart_request))
        .routes(routes!(invalidate_request))
        .routes(routes!(list_alerts))
}

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RequestErrorsQuery {
    /// Count all rounds. Default: the current round and its rescues.
    all: Option<bool>,
}

/// Get the errors of a request
///
/// Failed attempts by category, site, exit code, bad input file and signature, with a log excerpt of one
/// failure of each type, and suggested actions as bodies of a release.
#[utoipa::path(get, path = "/requests/{name}/errors", tag = "requests", operation_id = "get_request_errors",
    params(("name" = String, Path,), RequestErrorsQuery), responses(
    (status = 200, description = "Most frequent first", body = RequestErrors),
    (status = 403, description = "The request belongs to another user"),
    (status = 404, description = "Request not found")))]
async fn get_request_errors(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(span): Query<RequestErrorsQuery>,
) -> ApiResult<Json<RequestErrors>> {
    let now = state.now();
    let all = span.all.unwrap_or(false);
    let memory = state.options.requests.memory_window;
    let (of, show) =
        (name.clone(), move |db: &dyn StoreDatabase| errors::get_request_errors(db, &name, all, memory, now));
    caller.read_request_details(&state, move |db| load_requestor(db, &of), show).await.map(Json)
}

/// Release a held request
///
/// After failures, finished work units are kept and the rest is queued as the next round; with `rescue` the
/// failed units run again within the same round. Further fields apply from now on: site bans, memory, retries,
/// the hold threshold, excluded input files. All changes are applied or none. Output steps that were given up
/// are retried, also for a request that has ended.
#[utoipa::path(post, path = "/requests/{name}/release", tag = "requests", operation_id = "release_request",
    params(("name" = String, Path,)), request_body = Option<ReleaseRequest>, responses(
    (status = 200, description = "The request continues", body = ReleaseResponse),
    (status = 404, description = "Request not found"),
    (status = 409, description = "The request is not held, and no output step was given up"),
    (status = 422, description = "Invalid changes: all errors are in `errors`")))]
async fn release_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(wanted): OptionalJson<ReleaseRequest>,
) -> ApiResult<Json<ReleaseResponse>> {
    release_as(&state, &caller, &name, wanted).await.map(Json)
}

/// Releases the request, if the caller may.
pub(crate) async fn release_as(
    state: &AppState,
    caller: &Caller,
    name: &str,
    wanted: ReleaseRequest,
) -> ApiResult<ReleaseResponse> {
    let held = name.to_owned();
    let (duration, memory) =
        (state.options.requests.failure_response.bans.duration, state.options.requests.memory_window);
    let work = move |db: &dyn StoreDatabase, actor: RequestActor<'_>, now| {
        release::release_request(db, &held, &wanted, duration, memory, actor, now)
    };
    let released = caller.perform_as_caller(state, AuthOperation::ChangeRequest, work).await?;
    state.lifecycle.wake_request(name);
    Ok(released)
}

/// Fail a request
///
/// Running jobs are stopped, the inventory of its outputs is written (`invalidation.json` in the directory of
/// the request), and the request fails permanently.
#[utoipa::path(post, path = "/requests/{name}/fail", tag = "requests", operation_id = "fail_request",
    params(("name" = String, Path,)), request_body = Option<FailRequest>, responses(
    (status = 200, description = "The request is being failed", body = AbortResponse),
    (status = 404, description = "Request not found"),
    (status = 409, description = "The request has ended or has not started")))]
async fn fail_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(wanted): OptionalJson<FailRequest>,
) -> ApiResult<Json<AbortResponse>> {
    fail_as(&state, &caller, &name, wanted).await.map(Json)
}

/// Fails the request, if the caller may.
pub(crate) async fn fail_as(
    state: &AppState,
    caller: &Caller,
    name: &str,
    wanted: FailRequest,
) -> ApiResult<AbortResponse> {
    let ended = name.to_owned();
    let work = move |db: &dyn StoreDatabase, actor: RequestActor<'_>, now| {
        termination::fail_request(db, &ended, &wanted, actor, now)
    };
    let failed = caller.perform_as_caller(state, AuthOperation::CancelRequest, work).await?;
    state.lifecycle.wake_request(name);
    Ok(failed)
}

/// Restart a request as its next version
///
/// Fails the request and submits it again with the next processing version. The old outputs stay until the new
/// request is completed; then they are superseded, and invalidated automatically or by hand according to
/// `cleanup_policy`. Repeating the call returns the existing new request.
#[utoipa::path(post, path = "/requests/{name}/restart", tag = "requests", operation_id = "restart_request",
    params(("name" = String, Path,)), request_body = Option<RestartRequest>, responses(
    (status = 201, description = "The new request was submitted", body = RestartResponse),
    (status = 200, description = "The request was already restarted", body = RestartResponse),
    (status = 404, description = "Request not found"),
    (status = 409, description = "The request has not started")))]
async fn restart_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(wanted): OptionalJson<RestartRequest>,
) -> ApiResult<Response> {
    let old = name.clone();
    let work = move |db: &dyn StoreDatabase, actor: RequestActor<'_>, now| {
        termination::restart_request(db, &old, &wanted, actor, now)
    };
    let restarted = caller.perform_as_caller(&state, AuthOperation::CancelRequest, work).await?;
    state.lifecycle.wake_request(&name);
    state.lifecycle.wake_request(&restarted.request_name);
    let status = if restarted.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(restarted)).into_response())
}

/// Invalidate the outputs of an ended request
///
/// Rules are removed and files invalidated.
#[utoipa::path(post, path = "/requests/{name}/invalidate", tag = "requests", operation_id = "invalidate_request",
    params(("name" = String, Path,)), request_body = Option<InvalidateRequest>, responses(
    (status = 200, description = "Its blocks are being invalidated", body = InvalidateResponse),
    (status = 404, description = "Request not found"),
    (status = 409, description = "The request has not ended")))]
async fn invalidate_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(wanted): OptionalJson<InvalidateRequest>,
) -> ApiResult<Json<InvalidateResponse>> {
    let over = name.clone();
    let work = move |db: &dyn StoreDatabase, actor: RequestActor<'_>, now| {
        termination::invalidate_request(db, &over, &wanted, actor, now)
    };
    let invalidated = caller.perform_as_caller(&state, AuthOperation::CancelRequest, work).await?;
    state.lifecycle.wake_request(&name);
    Ok(Json(invalidated))
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AlertListQuery {
    /// Only alerts about this request.
    request_name: Option<String>,
    /// Only alerts of this type: `held`, `site_banned`, …
    kind: Option<String>,
    /// Maximum number of alerts; the newest are selected. Default: 1000.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// List alerts
#[utoipa::path(get, path = "/alerts", tag = "requests", operation_id = "list_alerts", params(AlertListQuery),
    responses((status = 200, description = "The newest matching alerts, from old to new", body = AlertList)))]
async fn list_alerts(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<AlertListQuery>,
) -> ApiResult<Json<AlertList>> {
    let AlertListQuery { request_name, kind, limit } = which;
    caller
        .read_as_caller(&state, move |db| {
            alerts::list_alerts(db, request_name.as_deref(), kind.as_deref(), limit)
        })
        .await
        .map(Json)
}
