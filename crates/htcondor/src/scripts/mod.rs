//! Decisions of the PRE and POST scripts of nodes: `windlass condor post|pre|elect|unit`, called by DAGMan.
//!
//! | script | when | what |
//! |---|---|---|
//! | [`run_post`] | after an attempt of a node | classifies it, writes `NODE.post.json` and `NODE.inc`, decides about a retry |
//! | [`run_landing_post`] | after a landing | the same, and writes the site of the unit: `elected.inc` |
//! | [`run_pre`] | before each attempt | checks pause and cool-off, runs the recovery script, removes old reports |
//! | [`unit`] | after the DAG of a unit | passes an abort on to the outer DAG |
//!
//! They run once for every attempt, on the machine of the schedd, and never contact a server. Each decides from a
//! bounded number of files, regardless of the size of the DAG: `attempt_facts` reads, [`decide_attempt`] is pure,
//! then files are written.

mod attempt;
mod attempt_facts;
mod classify;
mod decision;
mod files;
mod landing_post;
mod node_post;
mod node_pre;
mod post_report;
mod recovery_script;
#[cfg(test)]
mod tests;
mod unit_post;

pub use attempt::{DagmanReturn, JobLogSummary, JobReportSummary, NodeAttempt};
pub use decision::{NodeRules, ScriptDecision, ScriptExitCode, decide_attempt};
pub use landing_post::run_landing_post;
pub use node_post::run_post;
pub use node_pre::{PreScriptResult, run_pre};
pub use post_report::{
    AttemptClassification, CmsswPerformance, CmsswReport, EarlierAttempt, FollowUpAction, PostReport,
    ReportedJob, StepResult,
};
pub use unit_post::unit;

use crate::script_settings::{NodeGroupSettings, ScriptSettings, ScriptSettingsError};
use std::io;
use std::path::PathBuf;
use windlass_core::failure_handlers::HandlerRuleError;

/// The arguments that DAGMan passes to the script of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCall {
    /// Where DAGMan works: the directory of the unit, or that of the run.
    pub directory: PathBuf,
    /// `$JOB`
    pub node: String,
    /// `$RETURN`
    pub returned: i32,
    /// `$RETRY`
    pub retry: u32,
    /// `$MAX_RETRIES`
    pub max_retries: u32,
    /// `$JOBID`
    pub job_id: String,
    /// A key of [`ScriptSettings::node_groups`].
    pub node_group: String,
}

/// A script failed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Settings(#[from] ScriptSettingsError),
    #[error(
        "condor.json has no node group `{0}`; it belongs to another DAG, or was written before the DAG changed"
    )]
    UnknownNodeGroup(String),
    #[error(transparent)]
    BadRule(#[from] HandlerRuleError),
    #[error("cannot {doing} {path}: {source}")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the event log does not say where job {job} ran; its submit file needs `ulog_execute_attrs = GLIDEIN_CMSSite`"
    )]
    NoSite { job: String },
    #[error("job {job} ran at a site with an invalid name: {source}")]
    BadSite { job: String, source: crate::render::quote::UnquotableText },
    #[error(
        "there is no elected.inc in {directory}: the landing has to run again, so remove the unit's rescue files too"
    )]
    NotElected { directory: PathBuf },
}

impl ScriptSettings {
    fn find_node_group(&self, name: &str) -> Result<&NodeGroupSettings, ScriptError> {
        self.node_groups.get(name).ok_or_else(|| ScriptError::UnknownNodeGroup(name.to_owned()))
    }
}
