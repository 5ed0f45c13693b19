//! Conversion of a JSON document into a [`Request`], or into a list of all its problems.
//!
//! Two formats are supported: the native format (the fields of [`Request`]; unknown ones are rejected) and
//! ReqMgr2's actual documents (unknown fields are kept for the payload). Both fill a
//! [`RequestDraft`](draft::RequestDraft), which is checked in one place; problems use the field names of the
//! document.

mod draft;
pub(crate) mod field_reader;
mod name_rules;
mod native_format;
mod ownership;
mod reqmgr_format;

pub use ownership::check_ownership;

use serde_json::{Map, Value};
use std::fmt;
use windlass_types::requests::Request;

/// A problem with a field, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DocumentProblem {
    /// Its path in the document, `.` between the parts; empty for the document as a whole.
    pub field: String,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl fmt::Display for DocumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.reason)?,
            field => write!(f, "`{field}` {}", self.reason)?,
        }
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
    }
}

/// Input besides the document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentContext<'a> {
    /// The submitting user, for documents without a requestor.
    pub requestor: &'a str,
    /// Suffix for the name of a request without one, as in ReqMgr2: a date, a time, a number.
    pub name_suffix: &'a str,
    /// Maximum memory per core.
    pub max_memory_per_core_mb: u64,
}

/// Reads a document of either format.
pub fn parse_request(
    document: &Value,
    context: &DocumentContext<'_>,
) -> Result<Request, Vec<DocumentProblem>> {
    let mut faults = DocumentProblems::default();
    let (draft, envelopes) = match document {
        Value::Object(map) if is_reqmgr(map) => {
            reqmgr_format::parse_reqmgr(map, context, &mut faults).unzip()
        }
        Value::Object(map) => (Some(native_format::parse_native(map, &mut faults)), None),
        other => {
            let reason =
                format!("a request is a JSON object, this is {}", field_reader::describe_value(other));
            faults.push("", reason, None);
            (None, None)
        }
    };
    let request = draft.and_then(|draft| draft.build_request(context, &mut faults));
    for fault in faults.0.iter_mut().filter(|fault| !fault.field.is_empty()) {
        fault.field =
            envelopes.as_ref().map_or_else(|| fault.field.clone(), |known| known.real_path(&fault.field));
    }
    match request {
        Some(request) if faults.0.is_empty() => Ok(request),
        _ => Err(faults.0),
    }
}

/// Checks the name of a request. The name is used in paths and URLs.
pub fn check_request_name(field: &str, name: &str) -> Option<DocumentProblem> {
    let mut faults = DocumentProblems::default();
    name_rules::REQUEST_NAME.check_text(field, name, &mut faults);
    faults.0.pop()
}

/// ReqMgr2's keys begin with capitals; native ones do not.
fn is_reqmgr(map: &Map<String, Value>) -> bool {
    let wrapper = |key: &str| matches!(key, "createRequest" | "assignRequest" | "result");
    map.keys().any(|key| wrapper(key))
        || (!map.contains_key("request_name")
            && map.keys().any(|key| key.starts_with(|first: char| first.is_ascii_uppercase())))
}

#[derive(Debug, Default)]
struct DocumentProblems(Vec<DocumentProblem>);

impl DocumentProblems {
    /// Adds a problem; only the first one of a field counts.
    fn push(&mut self, field: impl Into<String>, reason: impl Into<String>, remedy: Option<String>) {
        let field = field.into();
        if field.is_empty() || !self.0.iter().any(|known| known.field == field) {
            self.0.push(DocumentProblem { field, reason: reason.into(), remedy });
        }
    }
}
