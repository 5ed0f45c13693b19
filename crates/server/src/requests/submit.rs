//! Submission of requests: a document becomes a request, or all its errors are reported and nothing is stored.

use super::{RequestActor, production_steps, request_queries};
use crate::error::{ApiError, ApiResult, FieldError};
use serde_json::Value;
use windlass_api::requests::SubmitResponse;
use windlass_core::adaptive::MemoryWindow;
use windlass_core::requests::document::{self, DocumentContext, DocumentProblem};
use windlass_core::requests::rows::RequestRow;
use windlass_store::{StoreDatabase, StoreError};
use windlass_types::Timestamp;
use windlass_types::requests::{PriorityStep, Request, RequestStatus};

/// A request, and whether it was created by this call.
pub fn submit(
    db: &dyn StoreDatabase,
    body: &Value,
    memory: MemoryWindow,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<(SubmitResponse, bool)> {
    let request = parse_request(body, actor.name, memory, now)?;
    (actor.authorize)(&request.requestor)?;
    let name = request.request_name.clone();
    if let Some(there) = db.request(&name)? {
        return match_existing_request(db, &request, there);
    }
    let foreign = document::check_ownership(&request);
    if !foreign.is_empty() {
        return Err(invalid_document_error(foreign.into_iter().map(field_error).collect()));
    }
    if let Some(previous) = &request.previous_version_request
        && db.request(previous)?.is_none()
    {
        let reason = format!("there is no request `{previous}`");
        return Err(invalid_document_error(vec![FieldError::new("previous_version_request", reason)]));
    }
    match db.add_request(&request, RequestStatus::Submitted, actor.name, now) {
        Ok(_) => {}
        // A concurrent submission was faster.
        Err(StoreError::NameTaken { .. }) => {
            let there = super::load_request(db, &name)?;
            return match_existing_request(db, &request, there);
        }
        Err(error) => return Err(error.into()),
    }
    let submitted = load_submit_response(db, super::load_request(db, &name)?)?;
    let submitted = SubmitResponse { status: RequestStatus::Submitted, ..submitted };
    Ok((submitted, true))
}

/// Parses a document into a request, or returns all its errors.
pub fn parse_request(
    body: &Value,
    requestor: &str,
    memory: MemoryWindow,
    now: Timestamp,
) -> ApiResult<Request> {
    let (document, beside) = split_production_steps(body)?;
    let suffix = name_suffix(now);
    let context = DocumentContext {
        requestor,
        name_suffix: &suffix,
        max_memory_per_core_mb: memory.max_per_core.max(memory.default_per_core),
    };
    let fault_texts =
        |faults: Vec<DocumentProblem>| invalid_document_error(faults.into_iter().map(field_error).collect());
    let mut request = document::parse_request(&document, &context).map_err(fault_texts)?;
    let faults = windlass_requests::payload_faults(&request);
    if !faults.is_empty() {
        return Err(fault_texts(faults));
    }
    if let Some(beside) = beside {
        let faults = production_steps::check_production_steps(&beside, request.urgent);
        if !faults.is_empty() {
            return Err(invalid_document_error(faults));
        }
        request.production_steps = beside;
    }
    Ok(request)
}

/// Combines a ReqMgr2 document, which has no production steps, with the given ones.
fn split_production_steps(body: &Value) -> ApiResult<(Value, Option<Vec<PriorityStep>>)> {
    let is_own = body.get("request_name").is_some();
    let Some(beside) = body.get("production_steps").filter(|_| !is_own) else {
        return Ok((body.clone(), None));
    };
    let steps = serde_json::from_value(beside.clone()).map_err(|error| {
        invalid_document_error(vec![FieldError::new(
            "production_steps",
            format!("must be a list of {{fraction, priority}}: {error}"),
        )])
    })?;
    let mut document = body.clone();
    if let Some(map) = document.as_object_mut() {
        map.remove("production_steps");
    }
    Ok((document, Some(steps)))
}

pub(super) fn field_error(fault: DocumentProblem) -> FieldError {
    FieldError { field: fault.field, reason: fault.reason, remedy: fault.remedy }
}

/// Reports all errors, as one message and by field.
pub(super) fn invalid_document_error(faults: Vec<FieldError>) -> ApiError {
    let fault_texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    ApiError::invalid(fault_texts.join("; ")).with_errors(faults)
}

/// Name suffix as ReqMgr2 generates it: `261116_010203_4567`.
fn name_suffix(now: Timestamp) -> String {
    let digits: String = now.to_string().chars().filter(char::is_ascii_digit).collect();
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or("0").to_owned();
    format!("{}_{}_{:04}", part(2, 8), part(8, 14), (now.0 / 100).rem_euclid(10_000))
}

/// Resubmitting the same document returns the existing request; a different one is rejected.
fn match_existing_request(
    db: &dyn StoreDatabase,
    request: &Request,
    there: RequestRow,
) -> ApiResult<(SubmitResponse, bool)> {
    let differs = find_different_fields(request, &there.request);
    if !differs.is_empty() {
        let detail = format!(
            "request `{}` already exists and differs in {}",
            request.request_name,
            differs.join(", ")
        );
        return Err(ApiError::conflict("name_taken", detail).with_hint(
            "use another name; priority and production steps of an existing request can be changed",
        ));
    }
    let submitted = load_submit_response(db, there)?;
    Ok((submitted, false))
}

fn load_submit_response(db: &dyn StoreDatabase, row: RequestRow) -> ApiResult<SubmitResponse> {
    let process = db.process(&row.request.request_name)?;
    Ok(SubmitResponse {
        workflow: request_queries::workflow_ref(&row, process.as_ref()),
        request_name: row.request.request_name,
        status: row.status,
        production_steps: row.request.production_steps,
    })
}

/// Returns the fields in which a document differs from the one that created the request. Later progress does not
/// count: production steps that were reached are removed, and the last of them has set the priority.
fn find_different_fields(new: &Request, there: &Request) -> Vec<String> {
    let reached = new.production_steps.len().checked_sub(there.production_steps.len());
    let reached = reached.filter(|reached| new.production_steps[*reached..] == there.production_steps[..]);
    let demoted = reached.and_then(|reached| new.production_steps.get(reached.checked_sub(1)?));
    let mut expected = there.clone();
    // The status in ReqMgr2 is not part of the request.
    for key in ["RequestStatus", "RequestTransition", "PriorityTransition"] {
        match new.payload_config.get(key) {
            Some(value) => expected.payload_config.insert(key.to_owned(), value.clone()),
            None => expected.payload_config.remove(key),
        };
    }
    expected.superseded_by_request.clone_from(&new.superseded_by_request);
    if reached.is_some() {
        expected.production_steps.clone_from(&new.production_steps);
    }
    if demoted.is_some_and(|step| step.priority == there.priority) {
        expected.priority = new.priority;
    }
    let fields = |request: &Request| serde_json::to_value(request).unwrap_or_default();
    let (new, expected) = (fields(new), fields(&expected));
    let names: std::collections::BTreeSet<&String> =
        [&new, &expected].into_iter().filter_map(Value::as_object).flat_map(serde_json::Map::keys).collect();
    names.into_iter().filter(|name| new.get(*name) != expected.get(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(priority: i64, steps: &[(f64, i64)]) -> Request {
        let steps: Vec<Value> = steps
            .iter()
            .map(|(fraction, priority)| json!({"fraction": fraction, "priority": priority}))
            .collect();
        let document = json!({
            "request_name": "r", "input_dataset": "/A/B-v1/RAW", "output_datasets": ["/A/C-v1/RECO"],
            "splitting_algo": "FileBased", "priority": priority, "production_steps": steps,
            "acquisition_era": "E", "processing_string": "S",
            "payload_config": {"simulation": {}},
        });
        parse_request(&document, "me", MemoryWindow::default(), Timestamp(0)).unwrap()
    }

    #[test]
    fn reached_steps_are_no_difference() {
        let new = request(100, &[(0.1, 80), (0.5, 50)]);
        let is_same = |there: &Request| find_different_fields(&new, there);
        assert_eq!(is_same(&new), [""; 0]);
        assert_eq!(is_same(&request(80, &[(0.5, 50)])), [""; 0], "one step was reached");
        assert_eq!(is_same(&request(50, &[])), [""; 0], "both steps were reached");
        assert_eq!(is_same(&request(70, &[(0.5, 50)])), ["priority"]);
        assert_eq!(is_same(&request(100, &[(0.2, 80)])), ["production_steps"]);
        let other = Request { memory_mb: 4000, input_dataset: None, ..new.clone() };
        assert_eq!(is_same(&other), ["input_dataset", "memory_mb"]);
    }

    #[test]
    fn request_name_suffix_is_the_time() {
        let at: Timestamp = "2026-11-16T01:02:03.456789Z".parse().unwrap();
        assert_eq!(name_suffix(at), "261116_010203_4567");
    }
}
