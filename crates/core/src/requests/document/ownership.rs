//! ReqMgr2 documents that must not run here: requests that have ended, or that belong to another agent or
//! system.

use super::DocumentProblem;
use serde_json::Value;
use windlass_types::requests::Request;

/// Before an agent acquires a request, its work has not begun anywhere.
const STATUSES_BEFORE_START: [&str; 5] = ["new", "assignment-approved", "assigned", "staging", "staged"];
/// Values of `wms_backend` for this system.
const OUR_BACKEND_NAMES: [&str; 2] = ["windlass", "wms2"];

/// Returns why a document must not be submitted here, from its ReqMgr2 status. Does not apply to requests
/// submitted before, whose status in ReqMgr2 advances.
pub fn check_ownership(request: &Request) -> Vec<DocumentProblem> {
    let status = text_field(request, "RequestStatus")
        .filter(|status| !STATUSES_BEFORE_START.contains(&status.as_str()));
    let status = status.map(|status| DocumentProblem {
        field: "RequestStatus".to_owned(),
        reason: format!("is `{status}`: the request has ended, or another agent works on it"),
        remedy: Some(format!("only requests that are {} are accepted", STATUSES_BEFORE_START.join(", "))),
    });
    let backend =
        text_field(request, "wms_backend").filter(|backend| !OUR_BACKEND_NAMES.contains(&backend.as_str()));
    let backend = backend.map(|backend| DocumentProblem {
        field: "wms_backend".to_owned(),
        reason: format!("is `{backend}`: the request is assigned to another system"),
        remedy: Some(format!("assign it to {} in ReqMgr2", OUR_BACKEND_NAMES.join(" or "))),
    });
    [status, backend].into_iter().flatten().collect()
}

fn text_field(request: &Request, key: &str) -> Option<String> {
    match request.payload_config.get(key)? {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::lifecycle::samples;
    use serde_json::json;

    #[test]
    fn ended_and_foreign_requests_are_rejected_by_field() {
        // RequestStatus, wms_backend → fields that are refused
        let table: &[(Value, Value, &[&str])] = &[
            (json!(null), json!(null), &[]),
            (json!("assigned"), json!("wms2"), &[]),
            (json!(""), json!("windlass"), &[]),
            (json!("aborted"), json!("wmcore"), &["RequestStatus", "wms_backend"]),
            (json!("normal-archived"), json!(null), &["RequestStatus"]),
            (json!("acquired"), json!(null), &["RequestStatus"]),
            (json!(["assigned"]), json!(null), &["RequestStatus"]),
            (json!("assigned"), json!("WMCore"), &["wms_backend"]),
        ];
        for (status, backend, expected) in table {
            let mut request = samples::request();
            request.payload_config.insert("RequestStatus".to_owned(), status.clone());
            request.payload_config.insert("wms_backend".to_owned(), backend.clone());
            let fields: Vec<String> =
                check_ownership(&request).into_iter().map(|fault| fault.field).collect();
            assert_eq!(fields, *expected, "{status} {backend}");
        }
    }
}
