//! Axum extractors that return our errors, with 422 instead of 400 where the contract requires it.

use crate::error::ApiError;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A JSON body, in requests and responses.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// Query parameters.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// Path parameters.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body = axum::Json::<T>::from_request(request, state).await;
        body.map(|axum::Json(body)| Self(body)).map_err(|rejection| invalid_body_error(&rejection))
    }
}

/// An optional JSON body; an absent body is the default.
#[derive(Clone, Copy, Debug)]
pub struct OptionalJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = Bytes::from_request(Request::from_parts(parts.clone(), body), state).await;
        let bytes = bytes.map_err(|rejection| invalid_body_error(&rejection.into()))?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        let Json(body) = Json::from_request(Request::from_parts(parts, bytes.into()), state).await?;
        Ok(Self(body))
    }
}

fn invalid_body_error(rejection: &JsonRejection) -> ApiError {
    match rejection {
        JsonRejection::MissingJsonContentType(_) => ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            "the body must be JSON, with a matching content-type header",
        ),
        JsonRejection::BytesRejection(bytes) if bytes.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "the body is larger than the server's limit",
            )
        }
        JsonRejection::BytesRejection(_) => {
            ApiError::new(StatusCode::BAD_REQUEST, "bad_request", "the body was not received completely")
        }
        JsonRejection::JsonSyntaxError(_) => {
            ApiError::new(StatusCode::BAD_REQUEST, "not_json", rejection.body_text())
        }
        _ => ApiError::invalid(rejection.body_text()),
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        reject_negative(parts.uri.query().unwrap_or_default())?;
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|rejection| ApiError::invalid(rejection.body_text()))
    }
}

/// Negative values are rejected: a caller that pages with them would never reach the end.
fn reject_negative(query: &str) -> Result<(), ApiError> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let is_page = |name: &str| matches!(name, "limit" | "offset");
    let mut wrong = pairs.filter(|(name, value)| is_page(name) && value.starts_with('-'));
    match wrong.next() {
        Some((name, value)) => Err(ApiError::invalid(format!("`{name}` is {value}; it must be 0 or more"))),
        None => Ok(()),
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(path)| Self(path))
            .map_err(|rejection| ApiError::invalid(rejection.body_text()))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_limit_and_offset_are_rejected() {
        for wrong in ["limit=-1", "a=b&offset=-5"] {
            assert!(reject_negative(wrong).is_err(), "{wrong}");
        }
        for right in ["", "limit=0", "limit=5&offset=0", "name=-1"] {
            assert!(reject_negative(right).is_ok(), "{right}");
        }
    }
}
