//! The API description: as an OpenAPI document and as an HTML page.

use crate::openapi_page;
use crate::router::build_openapi;
use crate::state::AppState;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::IntoResponse;
use std::sync::LazyLock;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_openapi_document)).routes(routes!(get_openapi_page))
}

/// The document does not change while the server runs.
static OPENAPI_JSON: LazyLock<String> = LazyLock::new(|| build_openapi().to_json().unwrap_or_default());
static OPENAPI_PAGE: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::from_str(&OPENAPI_JSON).unwrap_or_default();
    openapi_page::render_page(&document)
});

const CACHE_ONE_HOUR: &str = "max-age=3600";

/// Get the OpenAPI 3.1 document
#[utoipa::path(get, path = "/openapi.json", tag = "operations", security(()),
    responses((status = 200, description = "The document", body = serde_json::Value)))]
async fn get_openapi_document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, CACHE_ONE_HOUR)], OPENAPI_JSON.as_str())
}

/// Get the API description as an HTML page
#[utoipa::path(get, path = "/docs", tag = "operations", security(()),
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
async fn get_openapi_page() -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, CACHE_ONE_HOUR),
        (CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, OPENAPI_PAGE.as_str())
}
