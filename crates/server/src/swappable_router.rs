//! A router that is replaced at run time: at first a standby that rejects requests, then the service.

use crate::error::{API_PREFIX, ApiError};
use crate::http_request_guard::{self, HttpRequestGuard};
use crate::metrics::ServerMetrics;
use crate::options::ServeOptions;
use crate::routes::health::HealthResponse;
use crate::{error, extract::Json};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tower::ServiceExt as _;

/// Retry-After of a standby.
const STANDBY_RETRY_AFTER: Duration = Duration::from_secs(2);

/// Shared by all connections. A request completes in the router in which it started.
#[derive(Clone, Debug)]
pub(crate) struct SwappableRouter(Arc<RwLock<Router>>);

impl SwappableRouter {
    pub(crate) fn new(router: Router) -> Self {
        Self(Arc::new(RwLock::new(router)))
    }

    pub(crate) fn replace(&self, router: Router) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = router;
    }

    pub(crate) fn serve_request(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + use<> {
        let router = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        router.oneshot(request)
    }
}

/// Answers while another server holds the database.
pub(crate) fn standby_router(metrics: Arc<ServerMetrics>, options: &ServeOptions) -> Router {
    let guard = HttpRequestGuard::new(metrics, options.limits.clone(), options.tls.is_some());
    let health = || get(|| async { (StatusCode::SERVICE_UNAVAILABLE, Json(HealthResponse::standby())) });
    Router::new()
        .route("/health", health())
        .route(&format!("{API_PREFIX}/health"), health())
        .fallback(|| async { standby_error().into_response() })
        .layer(from_fn_with_state(guard.clone(), http_request_guard::limit_brief_requests))
        .layer(from_fn(error::render_errors))
        .layer(from_fn_with_state(guard, http_request_guard::observe_request))
}

fn standby_error() -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "standby",
        "this server is on standby: another server holds the database",
    )
    .with_hint("use the active server; this one takes over when the other stops")
    .with_retry_after(STANDBY_RETRY_AFTER)
}
