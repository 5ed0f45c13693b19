//! Errors of requests, as the caller sees them.
//!
//! One type for all routes. It travels inside the response to the outermost layer and is rendered there
//! according to the path: `application/problem+json` at `/api/v1`, the shape that Torc's clients expect at
//! `/torc-service/v1`.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use windlass_scheduler::service::CallError;

/// The result of every handler.
pub type ApiResult<T> = Result<T, ApiError>;

/// Path prefix for Torc clients.
pub use windlass_types::worker_messages::TORC_PREFIX;
/// Path prefix of the Windlass API.
pub const API_PREFIX: &str = "/api/v1";

/// An error response: message, and a hint where one helps. `code` is stable, for programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct ApiError {
    pub status: StatusCode,
    pub code: Cow<'static, str>,
    pub detail: String,
    pub hint: Option<String>,
    /// When to retry.
    pub retry_after: Option<Duration>,
    /// Errors by field, if a document is rejected.
    pub errors: Vec<FieldError>,
}

/// An error in a field of a request body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Path of the field; empty for the whole document.
    pub field: String,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl FieldError {
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into(), remedy: None }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.reason)?,
            field => write!(f, "`{field}` {}", self.reason)?,
        }
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
    }
}

impl ApiError {
    pub fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            detail: detail.into(),
            hint: None,
            retry_after: None,
            errors: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_errors(mut self, errors: Vec<FieldError>) -> Self {
        self.errors = errors;
        self
    }

    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Also returned for objects that exist but that the caller may not see.
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("there is no {what}"))
    }

    /// The request is invalid.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub fn conflict(code: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    pub fn unavailable(detail: impl Into<String>, retry_after: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).with_retry_after(retry_after)
    }

    /// An internal error. Details are in the log; the caller gets the request id.
    pub fn internal(detail: impl std::fmt::Display) -> Self {
        tracing::error!(%detail, "internal error");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed to process the request")
            .with_hint("see the server's log; the request id is in the header x-request-id")
    }

    fn problem_json(&self, instance: &str) -> serde_json::Value {
        let mut problem = json!({
            "type": format!("urn:windlass:problem:{}", self.code),
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
            "instance": instance,
        });
        if let Some(hint) = &self.hint {
            problem["hint"] = json!(hint);
        }
        if !self.errors.is_empty() {
            problem["errors"] = json!(self.errors);
        }
        problem
    }

    /// Renders the error as Torc's clients read it: the kind in one word, and the message.
    fn torc_error_json(&self) -> serde_json::Value {
        let kind = self.status.canonical_reason().unwrap_or("Error").replace(' ', "");
        let message = match &self.hint {
            Some(hint) => format!("{}; {hint}", self.detail),
            None => self.detail.clone(),
        };
        json!({
            "error": {"error": kind, "message": message, "code": self.code},
            "errorMessage": message,
            "code": self.status.as_u16(),
        })
    }

    fn render_for_path(&self, path: &str) -> Response {
        let (kind, body) = if path.starts_with(TORC_PREFIX) {
            ("application/json", self.torc_error_json())
        } else {
            ("application/problem+json", self.problem_json(path))
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(wait) = self.retry_after {
            // Whole seconds, at least one.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"windlass\""));
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"windlass\""));
        }
        response
    }
}

/// Not rendered yet: [`render_errors`] does that, which knows the path.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Middleware that renders errors, including those that axum and its layers return.
pub async fn render_errors(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let status = response.status();
    if let Some(error) = response.extensions().get::<ApiError>() {
        let mut rendered = error.render_for_path(&path);
        rendered.extensions_mut().extend(response.extensions().clone());
        return rendered;
    }
    if !(status.is_client_error() || status.is_server_error()) || is_json(&response) {
        return response;
    }
    error_from_status(status).render_for_path(&path)
}

fn is_json(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with("application/json") || kind.starts_with("application/problem+json")
}

/// Converts an error of a library layer.
fn error_from_status(status: StatusCode) -> ApiError {
    let (code, detail) = match status {
        StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "the request is larger than the server's limit"),
        StatusCode::METHOD_NOT_ALLOWED => ("method_not_allowed", "this path does not support the method"),
        StatusCode::REQUEST_TIMEOUT => ("timeout", "the request was not received in time"),
        StatusCode::NOT_FOUND => ("not_found", "no route at this path"),
        _ if status.is_server_error() => ("internal", "the server failed to process the request"),
        _ => ("bad_request", "the request is malformed"),
    };
    ApiError::new(status, code, detail)
}

impl From<windlass_store::StoreError> for ApiError {
    fn from(error: windlass_store::StoreError) -> Self {
        use windlass_store::StoreError as E;
        let detail = error.to_string();
        let answer = match &error {
            error if error.is_missing() => Self::new(StatusCode::NOT_FOUND, "not_found", detail),
            error if error.is_invalid() => Self::invalid(detail),
            E::NameTaken { .. } => Self::conflict("name_taken", detail),
            E::OutputTaken { .. } => Self::conflict("output_taken", detail),
            E::EventIsRecord(_) | E::NotOwner { .. } => Self::forbidden(detail),
            E::Outdated { .. } | E::Unexpected { .. } => Self::conflict("outdated", detail),
            E::Busy { .. }
            | E::Conflict { .. }
            | E::Action { .. }
            | E::StaleRun { .. }
            | E::WorkersMayBeAlive { .. }
            | E::NotRunning { .. }
            | E::StillActive { .. }
            | E::JobIsHeld { .. }
            | E::InUse { .. }
            | E::RunNotBegun { .. } => Self::conflict("conflict", detail),
            _ if error.is_transient() => Self::unavailable(detail, Duration::from_secs(2)),
            _ => Self::internal(&error),
        };
        match error.hint() {
            Some(hint) if answer.hint.is_none() => answer.with_hint(hint),
            _ => answer,
        }
    }
}

impl From<CallError> for ApiError {
    fn from(refused: CallError) -> Self {
        match refused {
            CallError::NotFound(detail) => Self::new(StatusCode::NOT_FOUND, "not_found", detail),
            CallError::Conflict { code, detail } => Self::conflict(code, detail),
            CallError::Invalid { code, detail } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail),
            CallError::Unavailable { detail, retry_after } => Self::unavailable(detail, retry_after),
            CallError::Internal(detail) => Self::internal(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn body(response: Response) -> serde_json::Value {
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn each_path_has_its_manner() {
        let error = ApiError::not_found("workflow 7").with_hint("look again");
        let ours = error.render_for_path("/api/v1/workflows/7");
        assert_eq!(ours.headers()[CONTENT_TYPE], "application/problem+json");
        let ours = body(ours).await;
        assert_eq!(ours["code"], "not_found");
        assert_eq!(ours["status"], 404);
        assert_eq!(ours["instance"], "/api/v1/workflows/7");
        let torc = error.render_for_path("/torc-service/v1/workflows/7");
        assert_eq!(torc.headers()[CONTENT_TYPE], "application/json");
        let torc = body(torc).await;
        assert_eq!(torc["error"]["error"], "NotFound");
        assert_eq!(torc["error"]["message"], "there is no workflow 7; look again");
    }

    #[test]
    fn retry_after_is_rounded_up_to_seconds() {
        for (wait, told) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2")] {
            let error = ApiError::unavailable("busy", Duration::from_millis(wait));
            assert_eq!(error.render_for_path("/api/v1/x").headers()[RETRY_AFTER], told, "{wait} ms");
        }
    }
}
