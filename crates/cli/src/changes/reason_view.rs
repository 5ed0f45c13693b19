//! Reasons in machine-readable form: names instead of numbers, and every field present even if unknown.

use serde::Serialize;
use windlass_core::reuse::{DefinitionField, RerunReason};
use windlass_types::worker_messages::FileSnapshot;

/// Why a job runs.
#[derive(Debug, Serialize)]
pub(crate) struct RerunReasonView {
    pub(crate) name: String,
    because: &'static str,
    field: Option<DefinitionField>,
    file: Option<String>,
    old: Option<serde_json::Value>,
    new: Option<serde_json::Value>,
    /// The nearest upstream job that runs for a reason of its own.
    upstream: Option<String>,
    pub(crate) reason: String,
}

impl RerunReasonView {
    pub(crate) fn new(job: u32, reason: &RerunReason, name: impl Fn(u32) -> String) -> Self {
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
            RerunReason::New => "new",
            RerunReason::NotCompleted { status } => {
                view.old = Some(status.name().into());
                "not_completed"
            }
            RerunReason::Changed { field, old, new } => {
                view.field = Some(*field);
                (view.old, view.new) = (Some(old.as_str().into()), Some(new.as_str().into()));
                "changed"
            }
            RerunReason::HasAdded => "has_added",
            RerunReason::NoRecord => "no_record",
            RerunReason::InputChanged { file, old, new } => {
                view.set_file_change(file, old.as_ref(), new);
                "input_changed"
            }
            RerunReason::InputMissing { file } => {
                view.file = Some(file.clone());
                "input_missing"
            }
            RerunReason::OutputMissing { file } => {
                view.file = Some(file.clone());
                "output_missing"
            }
            RerunReason::OutputChanged { file, old, new } => {
                view.set_file_change(file, old.as_ref(), new);
                "output_changed"
            }
            RerunReason::Upstream { job, .. } => {
                view.upstream = Some(name(*job));
                "upstream"
            }
        };
        view
    }

    fn set_file_change(&mut self, file: &str, old: Option<&FileSnapshot>, new: &FileSnapshot) {
        self.file = Some(file.to_owned());
        self.old = old.and_then(|old| serde_json::to_value(old).ok());
        self.new = serde_json::to_value(new).ok();
    }
}
