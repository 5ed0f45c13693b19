//! PRE of a node: whether its next attempt may begin.

use super::recover::{self, Patient};
use super::{ScriptError, files, gather, post};
use crate::layout;
use crate::pausing;
use crate::terms::{self, Terms};
use std::path::Path;
use windlass_types::requests::NodeRole;
use windlass_types::{Clock, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    Go,
    /// Its cool-off is not over: DAGMan asks again later, and meanwhile nothing waits in a slot.
    TooEarly,
    /// Nothing more of its run begins: the same, for as long as that is so.
    Paused,
}

/// Makes an attempt of a node ready to begin.
pub fn pre(directory: &Path, node: &str) -> Result<Ready, ScriptError> {
    let is_unit = is_unit(directory);
    if pausing::is_paused(&if is_unit { directory.join("..") } else { directory.to_owned() }) {
        return Ok(Ready::Paused);
    }
    if is_unit && node != layout::LANDING && !directory.join(layout::ELECTED).is_file() {
        return Err(ScriptError::NotElected { directory: directory.to_owned() });
    }
    if let Some(mut last) = gather::earlier(directory, node) {
        if last.not_before.is_some_and(|due| is_too_early(last.timestamp, due, Clock.now())) {
            return Ok(Ready::TooEarly);
        }
        if let Some(recovery) = last.recovery.take() {
            let (terms, run) = Terms::find(directory)?;
            let names = terms::names(&run)?;
            let job = names.get(node).map_or(node, String::as_str);
            let home = terms.submission_dir.as_deref().unwrap_or(directory);
            let how = recover::run(Patient { directory, node, job, home }, &recovery);
            last.classification.why = format!("{}; recovery script: {how}", last.classification.why);
            // Not again, should this script be.
            post::write_report(directory, &last)?;
        }
    }
    if is_unit {
        forget_report(directory, node)?;
    }
    Ok(Ready::Go)
}

/// The terms of a run with units are above them.
fn is_unit(directory: &Path) -> bool {
    !directory.join(layout::TERMS).is_file()
}

/// A clock that was set back does not make anybody wait.
fn is_too_early(failed: Timestamp, due: Timestamp, now: Timestamp) -> bool {
    failed <= now && now < due
}

/// What an attempt reported must not be taken for the report of the next one, which may be killed before it writes any.
fn forget_report(directory: &Path, node: &str) -> Result<(), ScriptError> {
    let path = match node {
        layout::LANDING => Some(directory.join(layout::LANDING_REPORT)),
        _ => gather::report_path(directory, node, Some(NodeRole::Processing)),
    };
    let Some(path) = path else { return Ok(()) };
    match files::remove_if_there(&path) {
        Ok(_) => Ok(()),
        Err(source) => Err(ScriptError::File { doing: "remove the old report", path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_while_the_cool_off_lasts() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        let too_early = |now| is_too_early(at(100), at(160), at(now));
        assert!(too_early(100) && too_early(159));
        assert!(!too_early(160) && !too_early(1000));
        assert!(!too_early(99), "the clock was set back");
    }
}
