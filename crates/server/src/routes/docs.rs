//! The interface as a document: for programs, and as a page for people.

use crate::page;
use crate::router::openapi;
use crate::state::AppState;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::IntoResponse;
use std::sync::LazyLock;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(document)).routes(routes!(docs))
}

/// It does not change while the server runs.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi().to_json().unwrap_or_default());
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::from_str(&DOCUMENT).unwrap_or_default();
    page::render(&document)
});

const AN_HOUR: &str = "max-age=3600";

/// This interface, as OpenAPI 3.1
#[utoipa::path(get, path = "/openapi.json", tag = "operations", security(()),
    responses((status = 200, description = "The document", body = serde_json::Value)))]
async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, AN_HOUR)], DOCUMENT.as_str())
}

/// This interface, as a page for people
#[utoipa::path(get, path = "/docs", tag = "operations", security(()),
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
async fn docs() -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, AN_HOUR),
        (CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, PAGE.as_str())
}
