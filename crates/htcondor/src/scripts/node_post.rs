//! POST script of a node: classifies its attempt and decides what follows.

use super::decision::{NodeRules, ScriptDecision, ScriptExitCode, decide_attempt};
use super::post_report::PostReport;
use super::{ScriptCall, ScriptError, attempt_facts, files};
use crate::file_layout;
use crate::render;
use crate::script_settings::ScriptSettings;
use std::path::Path;

/// Decides about an attempt and writes the files for the next attempt and for other readers.
pub fn run_post(call: &ScriptCall) -> Result<ScriptDecision, ScriptError> {
    let decision = decide_call(call)?;
    match save_decision(call, &decision) {
        // A successful attempt stays successful even if its report cannot be written.
        Err(_) if decision.exit_code == ScriptExitCode::Success => Ok(decision),
        left => left.map(|()| decision),
    }
}

pub(super) fn decide_call(call: &ScriptCall) -> Result<ScriptDecision, ScriptError> {
    let (settings, _) = ScriptSettings::find_for_directory(&call.directory)?;
    let group = settings.find_node_group(&call.node_group)?;
    let rules = NodeRules::from_group(group, &settings)?;
    Ok(decide_attempt(&attempt_facts::gather_attempt(call, group.role), &rules))
}

/// The report is written last: it marks the end of the script.
pub(super) fn save_decision(call: &ScriptCall, decision: &ScriptDecision) -> Result<(), ScriptError> {
    let report = &decision.report;
    if let Some(next) = &report.next {
        let path = file_layout::next_attempt_path(&call.directory, &call.node);
        files::write_atomically(&path, render::render_next_attempt(next).as_bytes())
            .map_err(|source| ScriptError::File { doing: "write", path, source })?;
    }
    append_attempt(call, report);
    write_report(&call.directory, report)
}

/// For programs that follow the run. If it cannot be written, they know less; nothing else changes.
fn append_attempt(call: &ScriptCall, report: &PostReport) {
    let Ok(directory) = call.directory.canonicalize() else { return };
    let unit = directory.file_name().and_then(|name| file_layout::unit_number(&name.to_string_lossy()));
    if let Some((unit, run)) = unit.zip(directory.parent()) {
        // The error cannot be reported anywhere.
        report.to_log_line(unit).append(run).unwrap_or_default();
    }
}

pub(super) fn write_report(directory: &Path, report: &PostReport) -> Result<(), ScriptError> {
    let path = file_layout::post_report_path(directory, &report.node_name);
    serde_json::to_vec_pretty(report)
        .map_err(Into::into)
        .and_then(|text| files::write_atomically(&path, &text))
        .map_err(|source| ScriptError::File { doing: "write", path, source })
}
