//! The outer DAG: a node for each work unit, and what both levels are told about DAGMan itself.

use super::{QuotedFragments, RequestDagRun};
use crate::file_layout;
use std::fmt::Write as _;
use windlass_types::requests::WorkUnitName;

/// How many units begin at once where nothing is said, so that the load of some is seen before others land.
const MAX_CONCURRENT_UNITS: u64 = 10;

/// Units inherit it.
pub(super) const DAGMAN_CONFIG: &str = "\
# A node that is held would wait for ever: it fails instead, and its POST script sees why it was held.
DAGMAN_MAX_JOB_HOLDS = 1
# What ended is noticed within a second or two.
DAGMAN_USER_LOG_SCAN_INTERVAL = 1
DAGMAN_MAX_SUBMITS_PER_INTERVAL = 100
# Include files are read by DAGMan itself, when a node is submitted.
DAGMAN_USE_DIRECT_SUBMIT = True
DAGMAN_SUPPRESS_NOTIFICATION = True
";

/// Seconds between two states of the status files. Who wants to know sooner reads the job state logs.
pub(super) const STATUS_INTERVAL: u32 = 5;

/// What POST scripts exit with to end the whole run.
pub(super) const ABORT_EXIT_CODE: u8 = 43;

pub(super) fn render_outer_dag(run: &RequestDagRun<'_>, words: &QuotedFragments<'_>) -> String {
    let mut text = format!(
        "# {} work units of request {}, run {}.\n\
         CONFIG {}\n\
         NODE_STATUS_FILE {} {STATUS_INTERVAL}\n\
         JOBSTATE_LOG {}\n\n",
        run.units.len(),
        sanitize_comment(run.request),
        sanitize_comment(run.run),
        file_layout::DAGMAN_CONFIG_FILE,
        file_layout::OUTER_STATUS,
        file_layout::OUTER_JOBSTATE,
    );
    for (number, _) in (0..).zip(run.units) {
        let (unit, dag, program) = (WorkUnitName(number), file_layout::GROUP_DAG, words.program);
        writeln!(text, "SUBDAG EXTERNAL {unit} {dag} DIR {unit}").ok();
        writeln!(text, "SCRIPT POST {unit} {program} condor unit $JOB $RETURN").ok();
    }
    let at_once = run.throttles.get("MergeGroup").copied().unwrap_or(MAX_CONCURRENT_UNITS).max(1);
    write!(
        text,
        "\n# DAGMan of a unit ends with 1 whatever happened; what is told here is what its POST script found out.\n\
         ABORT-DAG-ON ALL_NODES {ABORT_EXIT_CODE} RETURN 1\n\
         CATEGORY ALL_NODES MergeGroup\n\
         MAXJOBS MergeGroup {at_once}\n"
    )
    .ok();
    text
}

/// Text for people, in one line, from which nothing leads out.
pub(super) fn sanitize_comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '\\' { '?' } else { c }).collect()
}
