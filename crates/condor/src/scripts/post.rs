//! POST of a node: what its attempt was, and what follows.

use super::decide::{Decision, Rules, Verdict, decide};
use super::report::PostReport;
use super::{Call, ScriptError, files, gather};
use crate::layout;
use crate::render;
use crate::terms::Terms;
use std::path::Path;

/// Decides about an attempt and leaves what the next one and others have to know.
pub fn post(call: &Call) -> Result<Decision, ScriptError> {
    let decision = decide_about(call)?;
    match leave(call, &decision) {
        // What succeeded stays so, though nobody can read about it.
        Err(_) if decision.verdict == Verdict::Success => Ok(decision),
        left => left.map(|()| decision),
    }
}

pub(super) fn decide_about(call: &Call) -> Result<Decision, ScriptError> {
    let (terms, _) = Terms::find(&call.directory)?;
    let kind = terms.kind(&call.kind)?;
    let rules = Rules::of(kind, &terms)?;
    Ok(decide(&gather::attempt(call, kind.role), &rules))
}

/// The report is last: it says that all is done.
pub(super) fn leave(call: &Call, decision: &Decision) -> Result<(), ScriptError> {
    let report = &decision.report;
    if let Some(next) = &report.next {
        let path = layout::next_attempt(&call.directory, &call.node);
        files::write_whole(&path, render::next_attempt(next).as_bytes())
            .map_err(|source| ScriptError::File { doing: "write", path, source })?;
    }
    note_attempt(call, report);
    write_report(&call.directory, report)
}

/// For whoever follows the run. If that cannot be written, less is known; nothing else changes.
fn note_attempt(call: &Call, report: &PostReport) {
    let Ok(directory) = call.directory.canonicalize() else { return };
    let unit = directory.file_name().and_then(|name| layout::unit_number(&name.to_string_lossy()));
    if let Some((unit, run)) = unit.zip(directory.parent()) {
        // Nobody who could be told listens.
        report.line(unit).append(run).unwrap_or_default();
    }
}

pub(super) fn write_report(directory: &Path, report: &PostReport) -> Result<(), ScriptError> {
    let path = layout::post_report(directory, &report.node_name);
    serde_json::to_vec_pretty(report)
        .map_err(Into::into)
        .and_then(|text| files::write_whole(&path, &text))
        .map_err(|source| ScriptError::File { doing: "write", path, source })
}
