//! A JSON document → a [`Request`], or everything that is wrong with it at once.
//!
//! Two forms are read: our own (the fields of [`Request`]; unknown ones are refused) and ReqMgr2's, as its documents really
//! are (unknown ones are kept for the payload). Both fill a [`Draft`](draft::Draft), which is checked in one place; a fault
//! names the field as the document has it.

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

/// What is wrong with a field, and what to do about it.
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

/// What is known beside the document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentContext<'a> {
    /// Who submits it, where the document does not say.
    pub requestor: &'a str,
    /// Makes the name of a request unique whose document has no name yet, as ReqMgr2 does: a date, a time, a number.
    pub name_suffix: &'a str,
    /// More than this for each core is refused.
    pub max_memory_per_core_mb: u64,
}

/// Reads a document of either form.
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

/// What is wrong with this as the name of a request. Whatever it is asked for with goes into paths and addresses.
pub fn check_request_name(field: &str, name: &str) -> Option<DocumentProblem> {
    let mut faults = DocumentProblems::default();
    name_rules::REQUEST_NAME.check_text(field, name, &mut faults);
    faults.0.pop()
}

/// ReqMgr2 begins its keys with capitals; we never do.
fn is_reqmgr(map: &Map<String, Value>) -> bool {
    let wrapper = |key: &str| matches!(key, "createRequest" | "assignRequest" | "result");
    map.keys().any(|key| wrapper(key))
        || (!map.contains_key("request_name")
            && map.keys().any(|key| key.starts_with(|first: char| first.is_ascii_uppercase())))
}

#[derive(Debug, Default)]
struct DocumentProblems(Vec<DocumentProblem>);

impl DocumentProblems {
    /// The first fault of a field is the one that counts.
    fn push(&mut self, field: impl Into<String>, reason: impl Into<String>, remedy: Option<String>) {
        let field = field.into();
        if field.is_empty() || !self.0.iter().any(|known| known.field == field) {
            self.0.push(DocumentProblem { field, reason: reason.into(), remedy });
        }
    }
}
