//! A finished attempt of a node, as far as scripts can know it.

use super::post_report::{CmsswReport, PostReport};
use crate::parsers::events::JobHold;
use windlass_types::Timestamp;
use windlass_types::worker_messages::ProcessExit;

/// The facts about an attempt that its POST script decides from.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAttempt {
    pub node: String,
    /// From 0, as DAGMan counts: it starts again with each submission of the DAG.
    pub retry: u32,
    pub max_retries: u32,
    pub returned: DagmanReturn,
    /// `32.0`
    pub job_id: String,
    pub job_log: JobLogSummary,
    /// The report of the payload or its program.
    pub report: Option<JobReportSummary>,
    /// A required report that is missing.
    pub missing_report: Option<String>,
    /// The end of its stderr.
    pub stderr_tail: String,
    /// The report about the attempt before it.
    pub previous_report: Option<PostReport>,
    /// When the script was called.
    pub now: Timestamp,
    /// A random number, uniformly distributed.
    pub random: u64,
}

/// The value that DAGMan passes as `$RETURN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DagmanReturn {
    Exit(ProcessExit),
    /// The schedd did not accept the job.
    NotSubmitted,
    /// The job left the queue before it ended.
    Removed,
    /// DAGMan itself lost track of the job.
    Lost(i32),
}

impl DagmanReturn {
    pub(super) const NOT_SUBMITTED: i32 = -1001;
    pub(super) const REMOVED: i32 = -1002;
    /// The largest signal number.
    const LAST_SIGNAL: i32 = 64;

    pub const fn from_number(number: i32) -> Self {
        match number {
            Self::NOT_SUBMITTED => Self::NotSubmitted,
            Self::REMOVED => Self::Removed,
            0.. => Self::Exit(ProcessExit::Code(number)),
            _ if number >= -Self::LAST_SIGNAL => Self::Exit(ProcessExit::Signal(-number)),
            _ => Self::Lost(number),
        }
    }

    /// The exit code, if there was one, or DAGMan's number instead.
    pub const fn code(self) -> Option<i32> {
        match self {
            Self::Exit(ProcessExit::Code(code)) | Self::Lost(code) => Some(code),
            Self::Exit(ProcessExit::Signal(_)) => None,
            Self::NotSubmitted => Some(Self::NOT_SUBMITTED),
            Self::Removed => Some(Self::REMOVED),
        }
    }

    pub const fn signal(self) -> Option<i32> {
        match self {
            Self::Exit(exit) => exit.signal(),
            _ => None,
        }
    }
}

/// The facts about the job in the event log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLogSummary {
    pub hold: Option<JobHold>,
    /// Why it was removed.
    pub removal: Option<String>,
    pub wall_sec: Option<u64>,
    pub cpu_sec: Option<u64>,
    pub memory_mb: Option<u64>,
    pub site: Option<String>,
    pub schedd: Option<String>,
}

/// A report and the inputs that it names as the cause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobReportSummary {
    pub cmssw: CmsswReport,
    pub bad_inputs: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dagman_return_values_are_parsed() {
        for (number, returned) in [
            (0, DagmanReturn::Exit(ProcessExit::Code(0))),
            (137, DagmanReturn::Exit(ProcessExit::Code(137))),
            (-9, DagmanReturn::Exit(ProcessExit::Signal(9))),
            (-64, DagmanReturn::Exit(ProcessExit::Signal(64))),
            (-65, DagmanReturn::Lost(-65)),
            (-1001, DagmanReturn::NotSubmitted),
            (-1002, DagmanReturn::Removed),
            (-1003, DagmanReturn::Lost(-1003)),
            (i32::MIN, DagmanReturn::Lost(i32::MIN)),
        ] {
            assert_eq!(DagmanReturn::from_number(number), returned);
            assert_eq!(returned.code().is_some(), returned.signal().is_none());
        }
    }
}
