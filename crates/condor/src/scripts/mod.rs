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
mod decide;
mod elect;
mod files;
mod gather;
mod judge;
mod post;
mod pre;
mod recover;
mod report;
#[cfg(test)]
mod tests;
mod unit;

pub use attempt::{Ad, Attempt, Report, Returned};
pub use decide::{Decision, Rules, Verdict, decide};
pub use elect::elect;
pub use post::post;
pub use pre::{Ready, pre};
pub use report::{Action, Classification, Cmssw, Earlier, Job, Performance, PostReport, StepEnd};
pub use unit::unit;

use crate::terms::{NodeKind, Terms, TermsError};
use std::io;
use std::path::PathBuf;
use windlass_core::handlers::BadRule;

/// What DAGMan tells the script of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
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
    Terms(#[from] TermsError),
    #[error("condor.json knows no kind `{0}`; it is not of this DAG, or from before a change of it")]
    UnknownKind(String),
    #[error(transparent)]
    BadRule(#[from] BadRule),
    #[error("cannot {doing} {path}: {source}")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the event log does not say where job {job} ran; its submit file needs `ulog_execute_attrs = GLIDEIN_CMSSite`"
    )]
    NoSite { job: String },
    #[error("job {job} ran at a site that cannot be: {source}")]
    BadSite { job: String, source: crate::render::quote::Unfit },
    #[error(
        "there is no elected.inc in {directory}: its landing has to run again, so remove the unit's rescue files too"
    )]
    NotElected { directory: PathBuf },
}

impl Terms {
    fn kind(&self, name: &str) -> Result<&NodeKind, ScriptError> {
        self.kinds.get(name).ok_or_else(|| ScriptError::UnknownKind(name.to_owned()))
    }
}
