//! Reasons for programs: names instead of numbers, and every field there, known or not.

use serde::Serialize;
use windlass_core::reuse::{Field, Reason};
use windlass_types::work::FileState;

/// Why a job runs.
#[derive(Debug, Serialize)]
pub(crate) struct ReasonView {
    pub(crate) name: String,
    because: &'static str,
    field: Option<Field>,
    file: Option<String>,
    old: Option<serde_json::Value>,
    new: Option<serde_json::Value>,
    /// The nearest job that runs for a reason of its own.
    upstream: Option<String>,
    pub(crate) reason: String,
}

impl ReasonView {
    pub(crate) fn new(job: u32, reason: &Reason, name: impl Fn(u32) -> String) -> Self {
        let mut view = Self {
            name: name(job),
            because: "",
            field: None,
            file: None,
            old: None,
            new: None,
            upstream: None,
            reason: reason.describe(&name),
        };
        view.because = match reason {
            Reason::New => "new",
            Reason::NotCompleted { status } => {
                view.old = Some(status.name().into());
                "not_completed"
            }
            Reason::Changed { field, old, new } => {
                view.field = Some(*field);
                (view.old, view.new) = (Some(old.as_str().into()), Some(new.as_str().into()));
                "changed"
            }
            Reason::HasAdded => "has_added",
            Reason::NoRecord => "no_record",
            Reason::InputChanged { file, old, new } => {
                view.changed_file(file, old.as_ref(), new);
                "input_changed"
            }
            Reason::InputMissing { file } => {
                view.file = Some(file.clone());
                "input_missing"
            }
            Reason::OutputMissing { file } => {
                view.file = Some(file.clone());
                "output_missing"
            }
            Reason::OutputChanged { file, old, new } => {
                view.changed_file(file, old.as_ref(), new);
                "output_changed"
            }
            Reason::Upstream { job, .. } => {
                view.upstream = Some(name(*job));
                "upstream"
            }
        };
        view
    }

    fn changed_file(&mut self, file: &str, old: Option<&FileState>, new: &FileState) {
        self.file = Some(file.to_owned());
        self.old = old.and_then(|old| serde_json::to_value(old).ok());
        self.new = serde_json::to_value(new).ok();
    }
}
