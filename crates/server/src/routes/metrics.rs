//! Metrics for Prometheus.

use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::state::AppState;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::{AuthOperation, ObjectRelation};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_metrics))
}

/// The same below the API prefix.
pub(crate) fn prefixed_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_prefixed_metrics))
}

/// Get metrics for Prometheus
///
/// In the OpenMetrics text format. The metrics reference documents all names.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "All metrics", body = String, content_type = "application/openmetrics-text")))]
async fn get_metrics(State(state): State<AppState>, caller: Caller) -> ApiResult<Response> {
    caller.authorize(AuthOperation::Metrics, ObjectRelation::Own, "figures")?;
    let text = state.metrics.render().map_err(ApiError::internal)?;
    Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}

/// Get metrics for Prometheus
///
/// The same as `/metrics` without the prefix.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "All metrics", body = String, content_type = "application/openmetrics-text")))]
async fn get_prefixed_metrics(state: State<AppState>, caller: Caller) -> ApiResult<Response> {
    get_metrics(state, caller).await
}
