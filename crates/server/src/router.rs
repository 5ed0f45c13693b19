//! All routes, and the layers that every request passes.

use crate::cross_site::{self, CrossSiteRules};
use crate::error::{self, API_PREFIX, ApiError, TORC_PREFIX};
use crate::http_request_guard::{self, HttpRequestGuard};
use crate::options::HttpRequestLimits;
use crate::parameter_docs::describe_parameter;
use crate::route_policy;
use crate::routes;
use crate::state::AppState;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use std::any::Any;
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::{
    ContentBuilder, Info, ObjectBuilder, OpenApi, OpenApiBuilder, RefOr, ResponseBuilder, Schema, Type,
};
use utoipa_axum::router::OpenApiRouter;

/// Read timeout within a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Builds the service for this port.
pub(crate) fn build_router(state: AppState, port: u16) -> Router {
    let options = state.options.clone();
    let cross_site = CrossSiteRules { loopback_port: options.no_auth.then_some(port) };
    let guard = HttpRequestGuard::new(state.metrics.clone(), options.limits.clone(), options.tls.is_some());
    let brief =
        add_documented_routes(routes::unprefixed_routes(), routes::brief_routes(), routes::torc_routes());
    let brief: Router<AppState> = brief.into();
    let lasting: Router<AppState> =
        nest_at_both_prefixes(routes::long_running_routes(), routes::torc_long_running_routes()).into();
    let uploads: Router<AppState> =
        nest_at_both_prefixes(routes::upload_routes(), OpenApiRouter::new()).into();
    let HttpRequestLimits { max_body, max_upload, .. } = options.limits;
    let enforce = from_fn_with_state(state.clone(), route_policy::enforce_access);
    brief
        .layer(from_fn_with_state(guard.clone(), http_request_guard::limit_body_memory))
        .layer(from_fn_with_state(guard.clone(), http_request_guard::limit_requests_of_user))
        .layer(enforce.clone())
        .layer(DefaultBodyLimit::max(max_body))
        .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
        .layer(from_fn_with_state(guard.clone(), http_request_guard::limit_brief_requests))
        .merge(
            lasting
                .layer(from_fn_with_state(guard.clone(), http_request_guard::limit_body_memory))
                .layer(enforce.clone())
                .layer(DefaultBodyLimit::max(max_body))
                .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
                .layer(from_fn(http_request_guard::mark_long_running)),
        )
        .merge(
            uploads
                .layer(from_fn_with_state(guard.clone(), http_request_guard::limit_uploads))
                .layer(enforce)
                .layer(DefaultBodyLimit::max(max_upload))
                .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
                .layer(from_fn(http_request_guard::mark_long_running)),
        )
        .fallback(|| async { StatusCode::NOT_FOUND })
        .method_not_allowed_fallback(|| async { StatusCode::METHOD_NOT_ALLOWED })
        .with_state(state)
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn_with_state(cross_site, cross_site::check_cross_site))
        .layer(from_fn(error::render_errors))
        .layer(from_fn_with_state(guard, http_request_guard::observe_request))
}

/// Builds the OpenAPI 3.1 document.
pub fn build_openapi() -> OpenApi {
    let brief =
        add_documented_routes(routes::unprefixed_routes(), routes::brief_routes(), routes::torc_routes());
    let mut document = brief
        .merge(nest_at_both_prefixes(
            routes::long_running_routes().merge(routes::upload_routes()),
            routes::torc_long_running_routes(),
        ))
        .into_openapi();
    for (path, item) in &mut document.paths.paths {
        let is_torc = path.starts_with(TORC_PREFIX);
        for operation in path_operations(item) {
            complete_operation(operation, is_torc);
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(Parameter { name, description, .. }) = parameter {
                    *description = description.take().or_else(|| describe_parameter(path, name));
                }
            }
        }
    }
    document
}

fn path_operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
    all.into_iter().filter_map(Option::as_mut)
}

/// Sets what all operations have in common: a unique id, although each may exist at two prefixes, and one shape
/// of errors.
fn complete_operation(operation: &mut Operation, is_torc: bool) {
    if is_torc && let Some(id) = &mut operation.operation_id {
        id.insert_str(0, "torc_");
    }
    let kind = if is_torc { "application/json" } else { "application/problem+json" };
    let content = ContentBuilder::new().schema(Some(error_schema(is_torc))).build();
    let response = ResponseBuilder::new().description("Error").content(kind, content);
    operation.responses.responses.entry("default".to_owned()).or_insert_with(|| response.build().into());
}

/// Schema of errors; see [`ApiError`].
fn error_schema(is_torc: bool) -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let number = || ObjectBuilder::new().schema_type(Type::Integer);
    if is_torc {
        let error = ObjectBuilder::new()
            .property("error", text())
            .required("error")
            .property("message", text())
            .required("message");
        return ObjectBuilder::new().property("error", error).required("error").into();
    }
    ["type", "title", "detail", "code", "instance"]
        .into_iter()
        .fold(ObjectBuilder::new(), |problem, field| problem.property(field, text()).required(field))
        .property("status", number())
        .required("status")
        .property("hint", text())
        .into()
}

fn add_documented_routes(
    plain: OpenApiRouter<AppState>,
    ours: OpenApiRouter<AppState>,
    torc: OpenApiRouter<AppState>,
) -> OpenApiRouter<AppState> {
    let info = Info::new("Windlass", env!("CARGO_PKG_VERSION"));
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info).build())
        .merge(plain)
        .merge(nest_at_both_prefixes(ours, torc))
}

/// Mounts our routes at our prefix, and the Torc contract at both.
fn nest_at_both_prefixes(
    ours: OpenApiRouter<AppState>,
    torc: OpenApiRouter<AppState>,
) -> OpenApiRouter<AppState> {
    OpenApiRouter::default().nest(API_PREFIX, ours.merge(torc.clone())).nest(TORC_PREFIX, torc)
}

/// A panic fails only its own request. The panic message was already written to standard error.
fn panic_response(_: Box<dyn Any + Send>) -> Response {
    ApiError::internal("a handler panicked").into_response()
}
