//! PRE script of a node: decides whether its next attempt may start.

use super::recovery_script::{self, RecoveryTarget};
use super::{ScriptError, attempt_facts, files, node_post};
use crate::file_layout;
use crate::pause;
use crate::script_settings::{self, ScriptSettings};
use std::path::Path;
use windlass_types::requests::NodeRole;
use windlass_types::{SystemClock, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreScriptResult {
    Ready,
    /// Its cool-off is not over: DAGMan asks again later, and no slot is blocked meanwhile.
    TooEarly,
    /// Its run is paused: DAGMan asks again until it is resumed.
    Paused,
}

/// Prepares an attempt of a node.
pub fn run_pre(directory: &Path, node: &str) -> Result<PreScriptResult, ScriptError> {
    let is_unit = is_unit_directory(directory);
    if pause::is_paused(&if is_unit { directory.join("..") } else { directory.to_owned() }) {
        return Ok(PreScriptResult::Paused);
    }
    if is_unit
        && node != file_layout::LANDING_NODE
        && !directory.join(file_layout::ELECTED_SITE_FILE).is_file()
    {
        return Err(ScriptError::NotElected { directory: directory.to_owned() });
    }
    if let Some(mut last) = attempt_facts::read_previous_report(directory, node) {
        if last.not_before.is_some_and(|due| is_too_early(last.timestamp, due, SystemClock.now())) {
            return Ok(PreScriptResult::TooEarly);
        }
        if let Some(recovery) = last.recovery.take() {
            let (settings, run) = ScriptSettings::find_for_directory(directory)?;
            let names = script_settings::read_names(&run)?;
            let job = names.get(node).map_or(node, String::as_str);
            let home = settings.submission_dir.as_deref().unwrap_or(directory);
            let how = recovery_script::run_recovery(
                RecoveryTarget { directory, node, job, submission_dir: home },
                &recovery,
            );
            last.classification.why = format!("{}; recovery script: {how}", last.classification.why);
            // So that a repeated PRE script does not run it again.
            node_post::write_report(directory, &last)?;
        }
    }
    if is_unit {
        remove_report(directory, node)?;
    }
    Ok(PreScriptResult::Ready)
}

/// In a run with units, the settings are one directory above.
fn is_unit_directory(directory: &Path) -> bool {
    !directory.join(file_layout::SCRIPT_SETTINGS_FILE).is_file()
}

/// Do not wait if the clock was set back.
fn is_too_early(failed: Timestamp, due: Timestamp, now: Timestamp) -> bool {
    failed <= now && now < due
}

/// The report of an attempt must not be taken for that of the next one, which may be killed before it writes
/// any.
fn remove_report(directory: &Path, node: &str) -> Result<(), ScriptError> {
    let path = match node {
        file_layout::LANDING_NODE => Some(directory.join(file_layout::LANDING_REPORT)),
        _ => attempt_facts::report_path(directory, node, Some(NodeRole::Processing)),
    };
    let Some(path) = path else { return Ok(()) };
    match files::remove_if_exists(&path) {
        Ok(_) => Ok(()),
        Err(source) => Err(ScriptError::File { doing: "remove the old report", path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_waits_until_its_cool_off_ends() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        let too_early = |now| is_too_early(at(100), at(160), at(now));
        assert!(too_early(100) && too_early(159));
        assert!(!too_early(160) && !too_early(1000));
        assert!(!too_early(99), "the clock was set back");
    }
}
