//! What operators do about requests that failed or are to end, and what people were told.

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
    /// Over all rounds; otherwise over the present one and its rescues.
    all: Option<bool>,
}

/// What went wrong in a request
///
/// Failed attempts by category, site, exit code, bad input file, and by what they have in common, with what one of each kind
/// said last; and what might be done about them, as bodies of a release.
#[utoipa::path(get, path = "/requests/{name}/errors", tag = "requests", operation_id = "get_request_errors",
    params(("name" = String, Path,), RequestErrorsQuery), responses(
    (status = 200, description = "The most frequent first", body = RequestErrors),
    (status = 403, description = "The request is another user's"),
    (status = 404, description = "There is no such request")))]
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

/// Let a request go on that is held
///
/// After failures what is done is credited and the next round does what is left; with `rescue` the same round is tried once
/// more. What is said beside that holds from now on: sites that get nothing more of it, memory, retries, when it is held
/// again, input files to be left out. All of it holds, or none. Recording outputs that was given up is tried again, also of
/// a request that is over.
#[utoipa::path(post, path = "/requests/{name}/release", tag = "requests", operation_id = "release_request",
    params(("name" = String, Path,)), request_body = Option<ReleaseRequest>, responses(
    (status = 200, description = "It goes on", body = ReleaseResponse),
    (status = 404, description = "There is no such request"),
    (status = 409, description = "It is not held, and nothing about its outputs was given up"),
    (status = 422, description = "What is to change makes no sense: all faults are in `errors`")))]
async fn release_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(wanted): OptionalJson<ReleaseRequest>,
) -> ApiResult<Json<ReleaseResponse>> {
    release_as(&state, &caller, &name, wanted).await.map(Json)
}

/// Lets it go on, if this caller may.
pub(crate) async fn release_as(
    state: &AppState,
    caller: &Caller,
    name: &str,
    wanted: ReleaseRequest,
) -> ApiResult<ReleaseResponse> {
    let held = name.to_owned();
    let (spell, memory) = (state.options.requests.blame.bans.duration, state.options.requests.memory_window);
    let work = move |db: &dyn StoreDatabase, actor: RequestActor<'_>, now| {
        release::release_request(db, &held, &wanted, spell, memory, actor, now)
    };
    let released = caller.perform_as_caller(state, AuthOperation::ChangeRequest, work).await?;
    state.lifecycle.wake_request(name);
    Ok(released)
}

/// Give a request up
///
/// What runs is stopped; then it is written down what there is of its outputs (`invalidation.json` in the directory of the
/// request), and it is failed for good.
#[utoipa::path(post, path = "/requests/{name}/fail", tag = "requests", operation_id = "fail_request",
    params(("name" = String, Path,)), request_body = Option<FailRequest>, responses(
    (status = 200, description = "It is being given up", body = AbortResponse),
    (status = 404, description = "There is no such request"),
    (status = 409, description = "It is over, or has not begun")))]
async fn fail_request(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(wanted): OptionalJson<FailRequest>,
) -> ApiResult<Json<AbortResponse>> {
    fail_as(&state, &caller, &name, wanted).await.map(Json)
}

/// Gives it up, if this caller may.
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

/// Begin a request anew
///
/// The old one is given up, and a new one with the next processing version takes its place. Its outputs stay until the new
/// one is completed; then they are superseded, and taken back at once or by hand, as `cleanup_policy` says. Called twice it
/// is answered with the request that there is.
#[utoipa::path(post, path = "/requests/{name}/restart", tag = "requests", operation_id = "restart_request",
    params(("name" = String, Path,)), request_body = Option<RestartRequest>, responses(
    (status = 201, description = "The new request is submitted", body = RestartResponse),
    (status = 200, description = "It was restarted before", body = RestartResponse),
    (status = 404, description = "There is no such request"),
    (status = 409, description = "It has not begun")))]
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

/// Take back the outputs of a request that is over
///
/// Rules are removed, and files made invalid.
#[utoipa::path(post, path = "/requests/{name}/invalidate", tag = "requests", operation_id = "invalidate_request",
    params(("name" = String, Path,)), request_body = Option<InvalidateRequest>, responses(
    (status = 200, description = "Its blocks are being taken back", body = InvalidateResponse),
    (status = 404, description = "There is no such request"),
    (status = 409, description = "It is not over")))]
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
    /// Only those about this request.
    request_name: Option<String>,
    /// Only those of this kind: `held`, `site_banned`, …
    kind: Option<String>,
    /// The newest so many; 1000 without it.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// What people were told
#[utoipa::path(get, path = "/alerts", tag = "requests", operation_id = "list_alerts", params(AlertListQuery),
    responses((status = 200, description = "The newest that fit, the oldest of them first", body = AlertList)))]
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
