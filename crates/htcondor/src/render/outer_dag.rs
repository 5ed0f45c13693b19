//! The outer DAG, with a node for each work unit, and the DAGMan configuration of both levels.

use super::{QuotedFragments, RequestDagRun};
use crate::file_layout;
use std::fmt::Write as _;
use windlass_types::requests::WorkUnitName;

/// The default number of units that start at once, so that the load of some is visible before others land.
const MAX_CONCURRENT_UNITS: u64 = 10;

/// Units inherit it.
pub(super) const DAGMAN_CONFIG: &str = "\
# A held node would wait forever: it fails instead, and its POST script reads why it was held.
DAGMAN_MAX_JOB_HOLDS = 1
# Notice the end of a job within a second or two.
DAGMAN_USER_LOG_SCAN_INTERVAL = 1
DAGMAN_MAX_SUBMITS_PER_INTERVAL = 100
# DAGMan itself reads include files, when a node is submitted.
DAGMAN_USE_DIRECT_SUBMIT = True
DAGMAN_SUPPRESS_NOTIFICATION = True
";

/// Seconds between updates of the status files. The job state logs are more recent.
pub(super) const STATUS_INTERVAL: u32 = 5;

/// The exit code of POST scripts that ends the whole run.
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
        "\n# DAGMan of a unit always ends with 1; the exit code used here is that of the unit's POST script.\n\
         ABORT-DAG-ON ALL_NODES {ABORT_EXIT_CODE} RETURN 1\n\
         CATEGORY ALL_NODES MergeGroup\n\
         MAXJOBS MergeGroup {at_once}\n"
    )
    .ok();
    text
}

/// Renders text for people in one line of a comment, without characters that could end it.
pub(super) fn sanitize_comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '\\' { '?' } else { c }).collect()
}
