//! A summary of all requests.

use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::Json;
use crate::requests::admission;
use crate::state::AppState;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::SystemStatus;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_status))
}

/// Get counts of requests and sites
///
/// Requests, blocks and sites by status, and the admission queue. `/health` reports whether the server works.
#[utoipa::path(get, path = "/status", tag = "operations", operation_id = "get_system_status",
    responses((status = 200, description = "Counts by status", body = SystemStatus)))]
async fn get_status(State(state): State<AppState>, caller: Caller) -> ApiResult<Json<SystemStatus>> {
    let now = state.now();
    caller.read_as_caller(&state, move |db| admission::get_system_status(db, now)).await.map(Json)
}
