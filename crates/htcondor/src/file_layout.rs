//! The names and locations of the files of a run.
//!
//! ```text
//! RUN/                      the directory of a run; DAGMan of the outer DAG works here
//!   run.json                the outline of the plan
//!   condor.json             settings for the scripts of its nodes
//!   names.json              jobs of a workflow spec whose nodes have other names than the jobs
//!   workflow.dag            a SUBDAG for each work unit
//!   dagman.config
//!   workflow.status         node status file: for people, and for the final state
//!   workflow.jobstate       job state log: read as it grows
//!   landing.sub processing.sub merge.sub cleanup.sub
//!   bans.inc                sites that must not be used now; rewritten before each submission
//!   paused                  while it exists, no more nodes of the run start
//!   attempts.jsonl          a line for each finished attempt of a node; appended by the scripts
//!   mg_000012.json          manifest of a work unit
//!   mg_000012/              DAGMan of the unit works here
//!     group.dag
//!     group.status  group.jobstate  group.dag.nodes.log (event log)  …
//!     elected.inc           where the unit landed; read by the submit files of its other nodes
//!     proc_000003.inc       what the next attempt of a node requests, if it differs from the plan
//!     proc_000003.post.json report of the POST script about the last attempt of a node
//!     proc_000003.out .err  output of the node
//!     proc_000003.xml       its FrameworkJobReport, if it does not run a payload of Windlass
//!     proc_3.json merge_output.json metrics.json    reports of the payload
//!     landing.json          inputs that a landing did not find
//! ```
//!
//! A run of a workflow spec has one DAG, `workflow.dag`, and no units: its nodes' files are in `RUN` itself, with
//! one submit file for all, `job.sub`, and a script for each in `jobs/NODE.sh`.

use std::path::{Path, PathBuf};
use windlass_types::requests::{NodeRole, WorkUnitName};

pub const OUTER_DAG: &str = "workflow.dag";
pub const OUTER_STATUS: &str = "workflow.status";
pub const OUTER_JOBSTATE: &str = "workflow.jobstate";
pub const DAGMAN_CONFIG_FILE: &str = "dagman.config";
pub const SCRIPT_SETTINGS_FILE: &str = "condor.json";
pub const NAMES_FILE: &str = "names.json";
pub const BANS_FILE: &str = "bans.inc";
/// No more nodes start while this file exists.
pub const PAUSED_FILE: &str = "paused";
/// The outcome of each attempt.
pub const ATTEMPTS_FILE: &str = "attempts.jsonl";

/// Only for workflow specs.
pub const JOB_SUBMIT: &str = "job.sub";
pub const SCRIPTS_DIRECTORY: &str = "jobs";
/// The line that a job of a workflow spec prints on its stderr, before the path, if it did not write an output.
pub const MISSING_OUTPUT_PREFIX: &str = "windlass: ended with 0 but did not write ";

pub const GROUP_DAG: &str = "group.dag";
pub const GROUP_STATUS: &str = "group.status";
pub const GROUP_JOBSTATE: &str = "group.jobstate";
pub const ELECTED_SITE_FILE: &str = "elected.inc";

/// The suffix that DAGMan appends to the name of a DAG file for the event log of its nodes.
pub const NODES_LOG_SUFFIX: &str = ".nodes.log";
/// … for its own log.
pub const DAGMAN_OUT_SUFFIX: &str = ".dagman.out";
pub const METRICS_SUFFIX: &str = ".metrics";
/// … and for the event log of the DAGMan job.
pub const DAGMAN_LOG_SUFFIX: &str = ".dagman.log";

pub const LANDING_NODE: &str = "landing";
/// The file that a landing writes if inputs are missing.
pub const LANDING_REPORT: &str = "landing.json";
pub const MERGE_NODE: &str = "merge";
pub const CLEANUP_NODE: &str = "cleanup";

/// Returns a name such as `proc_000003`.
pub fn processing_node_name(index: u32) -> String {
    format!("proc_{index:06}")
}

/// Parses the index of a processing node from its name.
pub fn processing_index(node: &str) -> Option<u32> {
    parse_number_suffix(node, "proc_")
}

/// The role of a node of a work unit, by its name.
pub fn node_role(node: &str) -> NodeRole {
    match node {
        LANDING_NODE => NodeRole::Landing,
        MERGE_NODE => NodeRole::Merge,
        CLEANUP_NODE => NodeRole::Cleanup,
        _ => NodeRole::Processing,
    }
}

/// Whether this is a valid node name: it stays inside its directory and needs no quoting.
pub fn is_node_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && text.chars().all(is_plain)
}

fn parse_number_suffix(node: &str, prefix: &str) -> Option<u32> {
    let digits = node.strip_prefix(prefix)?;
    (digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Parses the number of a unit from the name of its node in the outer DAG.
pub fn unit_number(node: &str) -> Option<u32> {
    parse_number_suffix(node, "mg_")
}

/// Returns a path such as `RUN/mg_000012`.
pub fn unit_directory(run: &Path, unit: u32) -> PathBuf {
    run.join(WorkUnitName(unit).to_string())
}

/// The site where a unit landed, if it has.
pub(crate) fn read_elected_site(unit: &Path) -> Option<String> {
    let text = std::fs::read_to_string(unit.join(ELECTED_SITE_FILE)).ok()?;
    let (_, site) = text.split_once('"')?;
    site.split_once('"').map(|(site, _)| site.to_owned()).filter(|site| !site.is_empty())
}

/// The path of `NODE.post.json` in the directory of its unit.
pub fn post_report_path(unit: &Path, node: &str) -> PathBuf {
    unit.join(format!("{node}.post.json"))
}

/// The path of the job report of a node whose program writes one (`FrameworkJobReport.xml`).
pub fn job_report_path(unit: &Path, node: &str) -> PathBuf {
    unit.join(format!("{node}.xml"))
}

/// The path of the file with the resources of the next attempt.
pub fn next_attempt_path(unit: &Path, node: &str) -> PathBuf {
    unit.join(format!("{node}.inc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_cannot_escape_their_directory() {
        for name in ["landing", "proc_000003", "mg_000012", "fit-2_x"] {
            assert!(is_node_name(name), "{name}");
        }
        for other in ["", ".", "..", "../x", "/x", "a/b", "a b", "a.out", "ü", "a\0", "a\n"] {
            assert!(!is_node_name(other), "{other:?}");
        }
    }

    #[test]
    fn processing_node_names_are_parsed_back_to_indexes() {
        for index in [0, 3, 999_999, 1_000_000, u32::MAX] {
            assert_eq!(processing_index(&processing_node_name(index)), Some(index));
            assert_eq!(unit_number(&WorkUnitName(index).to_string()), Some(index));
        }
        for other in ["proc_3", "proc_", "merge", "proc_+00003", "proc_99999999999"] {
            assert_eq!(processing_index(other), None, "{other}");
        }
    }
}
