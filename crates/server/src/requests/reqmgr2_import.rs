//! Imports requests from ReqMgr2: only a name is given, and the document is fetched before it is submitted like
//! any other. Nothing is stored until it has been fetched and parsed.

use super::submit::invalid_document_error;
use crate::error::{ApiError, ApiResult, FieldError};
use axum::http::StatusCode;
use serde_json::{Map, Value};
use std::time::Duration;
use windlass_core::requests::reqmgr2::ReqmgrRefusal;
use windlass_requests::{Reqmgr2Client, Reqmgr2Error};

/// `{"request_name": …, "source": "reqmgr2", "production_steps": […]}`
#[derive(Clone, Debug, PartialEq)]
pub struct Reqmgr2Import {
    pub name: String,
    production_steps: Option<Value>,
}

impl Reqmgr2Import {
    /// `None`: the body is the document itself.
    pub fn from_body(body: &Value) -> ApiResult<Option<Self>> {
        let Some((source, map)) = body.get("source").zip(body.as_object()) else { return Ok(None) };
        let faults = check_import(source, map);
        if !faults.is_empty() {
            return Err(invalid_document_error(faults));
        }
        let name = map.get("request_name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let production_steps = map.get("production_steps").filter(|steps| !steps.is_null()).cloned();
        Ok(Some(Self { name, production_steps }))
    }

    /// Fetches the document and adds the given production steps. Blocks until ReqMgr2 answers.
    pub fn fetch_document(&self, reqmgr2: Option<&Reqmgr2Client>) -> ApiResult<Value> {
        let Some(reqmgr2) = reqmgr2 else { return Err(reqmgr2_not_configured_error()) };
        let mut document = reqmgr2.fetch_request(&self.name)?;
        if let (Some(steps), Some(map)) = (&self.production_steps, document.as_object_mut()) {
            map.insert("production_steps".to_owned(), steps.clone());
        }
        Ok(document)
    }
}

const IMPORT_FIELDS: [&str; 3] = ["request_name", "source", "production_steps"];

fn check_import(source: &Value, map: &Map<String, Value>) -> Vec<FieldError> {
    let mut faults = Vec::new();
    if source.as_str() != Some("reqmgr2") {
        faults.push(FieldError::new("source", format!("is {source}; the only source is `reqmgr2`")));
    }
    match map.get("request_name").and_then(Value::as_str) {
        None => faults.push(FieldError::new("request_name", "is missing: the name of the request to fetch")),
        Some(name) => {
            let wrong = windlass_core::requests::document::check_request_name("request_name", name);
            faults.extend(wrong.map(super::submit::field_error));
        }
    }
    // Reject fields that would be ignored.
    let others = map.keys().filter(|key| !IMPORT_FIELDS.contains(&key.as_str()));
    faults.extend(others.map(|key| {
        FieldError::new(key, "cannot be combined with `source`: the rest of the document is fetched")
    }));
    faults
}

fn reqmgr2_not_configured_error() -> ApiError {
    let detail = "no ReqMgr2 is configured on this server";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "no_reqmgr2", detail)
        .with_hint("start the server with `windlass serve --reqmgr2 URL`, or send the whole document")
}

impl From<Reqmgr2Error> for ApiError {
    fn from(error: Reqmgr2Error) -> Self {
        use Reqmgr2Error as E;
        let hint = error.hint();
        let detail = error.to_string();
        let answer = match error {
            E::Name(fault) => invalid_document_error(vec![super::submit::field_error(fault)]),
            E::Unreachable { .. } | E::Refusal { refusal: ReqmgrRefusal::Busy(_), .. } => Self {
                code: "reqmgr2_unavailable".into(),
                ..Self::unavailable(detail, Duration::from_mins(1))
            },
            E::Refusal { refusal: ReqmgrRefusal::Unknown, .. } => {
                Self::new(StatusCode::NOT_FOUND, "not_in_reqmgr2", detail)
            }
            // An error between the two services, which the caller cannot fix.
            E::UntrustedServer { .. } | E::Refusal { refusal: ReqmgrRefusal::Denied(_), .. } => {
                Self::new(StatusCode::BAD_GATEWAY, "reqmgr2_denied", detail)
            }
            _ => Self::new(StatusCode::BAD_GATEWAY, "reqmgr2_trouble", detail),
        };
        match hint {
            Some(hint) => answer.with_hint(hint),
            None => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn request_document_is_not_an_import() {
        for body in [json!({"request_name": "x"}), json!({"RequestName": "x"}), json!([]), json!("source")] {
            assert_eq!(Reqmgr2Import::from_body(&body).unwrap(), None, "{body}");
        }
    }

    #[test]
    fn invalid_import_is_rejected_field_by_field() {
        for (body, fields) in [
            (json!({"request_name": "x", "source": "mail"}), vec!["source"]),
            (json!({"source": "reqmgr2"}), vec!["request_name"]),
            (json!({"source": "reqmgr2", "request_name": 7}), vec!["request_name"]),
            (json!({"source": "reqmgr2", "request_name": "a&b=c"}), vec!["request_name"]),
            (json!({"source": "reqmgr2", "request_name": "x", "memory_mb": 1}), vec!["memory_mb"]),
            (json!({"source": 1, "request_name": "../x"}), vec!["source", "request_name"]),
        ] {
            let error = Reqmgr2Import::from_body(&body).unwrap_err();
            assert_eq!(error.status.as_u16(), 422, "{body}");
            assert_eq!(
                error.errors.iter().map(|one| one.field.as_str()).collect::<Vec<_>>(),
                fields,
                "{body}"
            );
        }
    }

    #[test]
    fn import_without_reqmgr2_is_rejected() {
        let body = json!({"request_name": "x", "source": "reqmgr2", "production_steps": []});
        let error = Reqmgr2Import::from_body(&body).unwrap().unwrap().fetch_document(None).unwrap_err();
        assert_eq!((error.status.as_u16(), error.code.as_ref()), (501, "no_reqmgr2"));
    }

    #[test]
    fn reqmgr2_errors_map_to_http_status() {
        let refusal = |refusal| Reqmgr2Error::Refusal { url: "http://h".into(), name: "x".into(), refusal };
        let (url, why) = (String::new(), String::new());
        for (error, status, code) in [
            (refusal(ReqmgrRefusal::Unknown), 404, "not_in_reqmgr2"),
            (refusal(ReqmgrRefusal::Busy("503".into())), 503, "reqmgr2_unavailable"),
            (refusal(ReqmgrRefusal::Denied("403".into())), 502, "reqmgr2_denied"),
            (refusal(ReqmgrRefusal::WrongAddress), 502, "reqmgr2_trouble"),
            (Reqmgr2Error::Unreachable { url: url.clone(), why: why.clone() }, 503, "reqmgr2_unavailable"),
            (Reqmgr2Error::UntrustedServer { url, why }, 502, "reqmgr2_denied"),
        ] {
            let shown = ApiError::from(error);
            assert_eq!((shown.status.as_u16(), shown.code.as_ref()), (status, code));
        }
    }
}
