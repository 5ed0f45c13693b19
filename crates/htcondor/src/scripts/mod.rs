//! What the PRE and POST scripts of nodes decide: `windlass condor post|pre|elect|unit`, called by DAGMan.
//!
//! | script | when | what |
//! |---|---|---|
//! | [`post`] | an attempt of a node is over | classifies, writes `NODE.post.json` and `NODE.inc`, says whether it is tried again |
//! | [`elect`] | a landing is over | the same, and writes where the unit is to run: `elected.inc` |
//! | [`pre`] | before each attempt | whether the run is paused, cool-off, what puts a failure right, no report of an earlier attempt |
//! | [`unit`] | the DAG of a unit is over | passes an abort on to the outer DAG |
//!
//! They run once for every attempt, beside the schedd, and never ask a server. Each decides from a bounded number of
//! files, whatever the size of the DAG: [`gather`] reads, [`decide()`] is pure, then something is written.

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

use crate::script_settings::{NodeKind, ScriptSettings, ScriptSettingsError};
use std::io;
use std::path::PathBuf;
use windlass_core::failure_handlers::HandlerRuleError;

/// What DAGMan tells the script of a node.
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
    /// A key of [`Terms::kinds`].
    pub kind: String,
}

/// A script could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Terms(#[from] ScriptSettingsError),
    #[error("condor.json knows no kind `{0}`; it is not of this DAG, or from before a change of it")]
    UnknownKind(String),
    #[error(transparent)]
    BadRule(#[from] HandlerRuleError),
    #[error("cannot {doing} {path}: {source}")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the event log does not say where job {job} ran; its submit file needs `ulog_execute_attrs = GLIDEIN_CMSSite`"
    )]
    NoSite { job: String },
    #[error("job {job} ran at a site that cannot be: {source}")]
    BadSite { job: String, source: crate::render::quote::UnquotableText },
    #[error(
        "there is no elected.inc in {directory}: its landing has to run again, so remove the unit's rescue files too"
    )]
    NotElected { directory: PathBuf },
}

impl ScriptSettings {
    fn find_kind(&self, name: &str) -> Result<&NodeKind, ScriptError> {
        self.kinds.get(name).ok_or_else(|| ScriptError::UnknownKind(name.to_owned()))
    }
}
