//! Requests, submitted: a document becomes a request, or all its faults are told and nothing is stored.

use super::{Actor, look, steps};
use crate::error::{Answer, ApiError, FieldFault};
use serde_json::Value;
use windlass_api::requests::Submitted;
use windlass_core::adaptive::Window;
use windlass_core::requests::book::RequestRow;
use windlass_core::requests::document::{self, Context, Fault};
use windlass_store::{Database, Error};
use windlass_types::Timestamp;
use windlass_types::requests::{ProductionStep, Request, RequestStatus};

/// A request, and whether it is new.
pub fn submit(
    db: &dyn Database,
    body: &Value,
    memory: Window,
    actor: Actor<'_>,
    now: Timestamp,
) -> Answer<(Submitted, bool)> {
    let request = read(body, actor.name, memory, now)?;
    (actor.may)(&request.requestor)?;
    let name = request.request_name.clone();
    if let Some(there) = db.request(&name)? {
        return again(db, &request, there);
    }
    let foreign = document::not_for_us(&request);
    if !foreign.is_empty() {
        return Err(refused(foreign.into_iter().map(field_fault).collect()));
    }
    if let Some(previous) = &request.previous_version_request
        && db.request(previous)?.is_none()
    {
        let reason = format!("there is no request `{previous}`");
        return Err(refused(vec![FieldFault::new("previous_version_request", reason)]));
    }
    match db.add_request(&request, RequestStatus::Submitted, actor.name, now) {
        Ok(_) => {}
        // Somebody else was quicker.
        Err(Error::NameTaken { .. }) => {
            let there = super::request(db, &name)?;
            return again(db, &request, there);
        }
        Err(error) => return Err(error.into()),
    }
    let submitted = told(db, super::request(db, &name)?)?;
    let submitted = Submitted { status: RequestStatus::Submitted, ..submitted };
    Ok((submitted, true))
}

/// The request that a document means, or everything that is wrong with it.
pub fn read(body: &Value, requestor: &str, memory: Window, now: Timestamp) -> Answer<Request> {
    let (document, beside) = apart(body)?;
    let suffix = suffix(now);
    let context = Context {
        requestor,
        name_suffix: &suffix,
        max_memory_per_core_mb: memory.max_per_core.max(memory.default_per_core),
    };
    let told = |faults: Vec<Fault>| refused(faults.into_iter().map(field_fault).collect());
    let mut request = document::read(&document, &context).map_err(told)?;
    let faults = windlass_requests::payload_faults(&request);
    if !faults.is_empty() {
        return Err(told(faults));
    }
    if let Some(beside) = beside {
        let faults = steps::faults(&beside, request.urgent);
        if !faults.is_empty() {
            return Err(refused(faults));
        }
        request.production_steps = beside;
    }
    Ok(request)
}

/// A document of ReqMgr2, which knows no production steps, and those that came with it.
fn apart(body: &Value) -> Answer<(Value, Option<Vec<ProductionStep>>)> {
    let is_own = body.get("request_name").is_some();
    let Some(beside) = body.get("production_steps").filter(|_| !is_own) else {
        return Ok((body.clone(), None));
    };
    let steps = serde_json::from_value(beside.clone()).map_err(|error| {
        refused(vec![FieldFault::new(
            "production_steps",
            format!("is a list of {{fraction, priority}}: {error}"),
        )])
    })?;
    let mut document = body.clone();
    if let Some(map) = document.as_object_mut() {
        map.remove("production_steps");
    }
    Ok((document, Some(steps)))
}

pub(super) fn field_fault(fault: Fault) -> FieldFault {
    FieldFault { field: fault.field, reason: fault.reason, remedy: fault.remedy }
}

/// All of them, in words and one by one.
pub(super) fn refused(faults: Vec<FieldFault>) -> ApiError {
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    ApiError::invalid(told.join("; ")).with_errors(faults)
}

/// As ReqMgr2 ends its names: `261116_010203_4567`.
fn suffix(now: Timestamp) -> String {
    let digits: String = now.to_string().chars().filter(char::is_ascii_digit).collect();
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or("0").to_owned();
    format!("{}_{}_{:04}", part(2, 8), part(8, 14), (now.0 / 100).rem_euclid(10_000))
}

/// The same document once more is answered with what is there; another one is refused.
fn again(db: &dyn Database, request: &Request, there: RequestRow) -> Answer<(Submitted, bool)> {
    let differs = differences(request, &there.request);
    if !differs.is_empty() {
        let detail = format!(
            "there is already a request `{}`, and it differs in {}",
            request.request_name,
            differs.join(", ")
        );
        return Err(ApiError::conflict("name_taken", detail).with_hint(
            "give the new one another name; priority and production steps of the other can be changed",
        ));
    }
    let submitted = told(db, there)?;
    Ok((submitted, false))
}

fn told(db: &dyn Database, row: RequestRow) -> Answer<Submitted> {
    let process = db.process(&row.request.request_name)?;
    Ok(Submitted {
        workflow: look::workflow_ref(&row, process.as_ref()),
        request_name: row.request.request_name,
        status: row.status,
        production_steps: row.request.production_steps,
    })
}

/// The fields in which a document is not the one that made the request. What became of it since does not count: steps that
/// were reached are gone, and the last of them has set the priority.
fn differences(new: &Request, there: &Request) -> Vec<String> {
    let reached = new.production_steps.len().checked_sub(there.production_steps.len());
    let reached = reached.filter(|reached| new.production_steps[*reached..] == there.production_steps[..]);
    let demoted = reached.and_then(|reached| new.production_steps.get(reached.checked_sub(1)?));
    let mut expected = there.clone();
    // How far ReqMgr2 is with it is no part of what is asked for.
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
        read(&document, "me", Window::default(), Timestamp(0)).unwrap()
    }

    #[test]
    fn what_became_of_a_request_is_no_difference() {
        let new = request(100, &[(0.1, 80), (0.5, 50)]);
        let is_same = |there: &Request| differences(&new, there);
        assert_eq!(is_same(&new), [""; 0]);
        assert_eq!(is_same(&request(80, &[(0.5, 50)])), [""; 0], "a step was reached");
        assert_eq!(is_same(&request(50, &[])), [""; 0], "both were");
        assert_eq!(is_same(&request(70, &[(0.5, 50)])), ["priority"]);
        assert_eq!(is_same(&request(100, &[(0.2, 80)])), ["production_steps"]);
        let other = Request { memory_mb: 4000, input_dataset: None, ..new.clone() };
        assert_eq!(is_same(&other), ["input_dataset", "memory_mb"]);
    }

    #[test]
    fn names_end_with_the_time() {
        let at: Timestamp = "2026-11-16T01:02:03.456789Z".parse().unwrap();
        assert_eq!(suffix(at), "261116_010203_4567");
    }
}
