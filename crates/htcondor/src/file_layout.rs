//! What the files of a run are called, and where they are.
//!
//! ```text
//! RUN/                      the directory of a run; DAGMan of the outer DAG works here
//!   run.json                the outline of the plan
//!   condor.json             what the scripts of its nodes have to know ("terms")
//!   names.json              jobs of a workflow spec whose nodes could not be called as they are
//!   workflow.dag            a SUBDAG for each work unit
//!   dagman.config
//!   workflow.status         node status file, for people and for the end
//!   workflow.jobstate       job state log: what is tailed
//!   landing.sub processing.sub merge.sub cleanup.sub
//!   bans.inc                sites that are not to be used now; written anew before each submission
//!   paused                  while it is here nothing more of the run begins
//!   attempts.jsonl          a line for each attempt of a node that is over; appended by their scripts
//!   mg_000012.json          manifest of a work unit
//!   mg_000012/              DAGMan of the unit works here
//!     group.dag
//!     group.status  group.jobstate  group.dag.nodes.log (event log)  …
//!     elected.inc           where the unit landed; read by the submit files of all that follows
//!     proc_000003.inc       what the next attempt of a node asks for, if it is not what was planned
//!     proc_000003.post.json what became of the last attempt of a node
//!     proc_000003.out .err  what it said
//!     proc_000003.xml       its FrameworkJobReport, where it is no payload of ours
//!     proc_3.json merge_output.json metrics.json    what the payload reports
//!     landing.json          inputs that a landing did not find
//! ```
//!
//! A run of a workflow spec has one DAG, `workflow.dag`, and no units: its nodes' files are in `RUN` itself, with one
//! submit file for all, `job.sub`, and what each runs in `jobs/NODE.sh`.

use std::path::{Path, PathBuf};
use windlass_types::requests::{NodeRole, WorkUnitName};

pub const OUTER_DAG: &str = "workflow.dag";
pub const OUTER_STATUS: &str = "workflow.status";
pub const OUTER_JOBSTATE: &str = "workflow.jobstate";
pub const DAGMAN_CONFIG_FILE: &str = "dagman.config";
pub const SCRIPT_SETTINGS_FILE: &str = "condor.json";
pub const NAMES_FILE: &str = "names.json";
pub const BANS_FILE: &str = "bans.inc";
/// Nothing more begins while it is there.
pub const PAUSED_FILE: &str = "paused";
/// What became of each attempt.
pub const ATTEMPTS_FILE: &str = "attempts.jsonl";

/// Of a workflow spec.
pub const JOB_SUBMIT: &str = "job.sub";
pub const SCRIPTS_DIRECTORY: &str = "jobs";
/// What a job of a workflow spec says on its standard error, before the path, when it did not write an output.
pub const MISSING_OUTPUT_PREFIX: &str = "windlass: ended with 0 but did not write ";

pub const GROUP_DAG: &str = "group.dag";
pub const GROUP_STATUS: &str = "group.status";
pub const GROUP_JOBSTATE: &str = "group.jobstate";
pub const ELECTED_SITE_FILE: &str = "elected.inc";

/// What DAGMan appends to the name of a DAG file for the event log of its nodes.
pub const NODES_LOG_SUFFIX: &str = ".nodes.log";
/// … and for what it says itself.
pub const DAGMAN_OUT_SUFFIX: &str = ".dagman.out";
pub const METRICS_SUFFIX: &str = ".metrics";
/// … and for the event log of its own life.
pub const DAGMAN_LOG_SUFFIX: &str = ".dagman.log";

pub const LANDING_NODE: &str = "landing";
/// What a landing leaves that found inputs missing.
pub const LANDING_REPORT: &str = "landing.json";
pub const MERGE_NODE: &str = "merge";
pub const CLEANUP_NODE: &str = "cleanup";

/// `proc_000003`
pub fn processing_node_name(index: u32) -> String {
    format!("proc_{index:06}")
}

/// The index of a processing node, by its name.
pub fn processing_index(node: &str) -> Option<u32> {
    parse_number_suffix(node, "proc_")
}

/// What a node of a work unit does, by its name.
pub fn node_role(node: &str) -> NodeRole {
    match node {
        LANDING_NODE => NodeRole::Landing,
        MERGE_NODE => NodeRole::Merge,
        CLEANUP_NODE => NodeRole::Cleanup,
        _ => NodeRole::Processing,
    }
}

/// Whether a node can be called so: nothing that leads out of a directory, or would have to be quoted.
pub fn is_node_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && text.chars().all(is_plain)
}

fn parse_number_suffix(node: &str, prefix: &str) -> Option<u32> {
    let digits = node.strip_prefix(prefix)?;
    (digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// The number of a unit, by the name of its node in the outer DAG.
pub fn unit_number(node: &str) -> Option<u32> {
    parse_number_suffix(node, "mg_")
}

/// `RUN/mg_000012`
pub fn unit_directory(run: &Path, unit: u32) -> PathBuf {
    run.join(WorkUnitName(unit).to_string())
}

/// Where `NODE.post.json` is, in the directory of its unit.
pub fn post_report_path(unit: &Path, node: &str) -> PathBuf {
    unit.join(format!("{node}.post.json"))
}

/// Where the job report of a node is whose program leaves one (`FrameworkJobReport.xml`).
pub fn job_report_path(unit: &Path, node: &str) -> PathBuf {
    unit.join(format!("{node}.xml"))
}

/// What the next attempt of a node asks for.
pub fn next_attempt_path(unit: &Path, node: &str) -> PathBuf {
    unit.join(format!("{node}.inc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_node_leads_nowhere_else() {
        for name in ["landing", "proc_000003", "mg_000012", "fit-2_x"] {
            assert!(is_node_name(name), "{name}");
        }
        for other in ["", ".", "..", "../x", "/x", "a/b", "a b", "a.out", "ü", "a\0", "a\n"] {
            assert!(!is_node_name(other), "{other:?}");
        }
    }

    #[test]
    fn names_of_processing_nodes_lead_back() {
        for index in [0, 3, 999_999, 1_000_000, u32::MAX] {
            assert_eq!(processing_index(&processing_node_name(index)), Some(index));
            assert_eq!(unit_number(&WorkUnitName(index).to_string()), Some(index));
        }
        for other in ["proc_3", "proc_", "merge", "proc_+00003", "proc_99999999999"] {
            assert_eq!(processing_index(other), None, "{other}");
        }
    }
}
