//! An attempt of a node that is over, as far as scripts can know it.

use super::report::{Cmssw, PostReport};
use crate::read::events::Hold;
use windlass_types::Timestamp;
use windlass_types::work::Exit;

/// All that is known of one attempt when its POST script is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub node: String,
    /// From 0, as DAGMan counts: it starts again with each submission of the DAG.
    pub retry: u32,
    pub max_retries: u32,
    pub returned: Returned,
    /// `32.0`
    pub job_id: String,
    pub ad: Ad,
    /// What the payload or its program reports.
    pub report: Option<Report>,
    /// A report that should be there and is not.
    pub missing: Option<String>,
    /// The end of its stderr.
    pub tail: String,
    /// What was written after the attempt before it.
    pub earlier: Option<PostReport>,
    /// When the script was asked.
    pub now: Timestamp,
    /// A number by chance, out of all that there are.
    pub dice: u64,
}

/// What DAGMan passes on as `$RETURN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    Exit(Exit),
    /// The schedd did not take the job.
    NotSubmitted,
    /// The job left the queue before it ended.
    Removed,
    /// DAGMan itself lost sight of it.
    Lost(i32),
}

impl Returned {
    pub(super) const NOT_SUBMITTED: i32 = -1001;
    pub(super) const REMOVED: i32 = -1002;
    /// The largest number of a signal.
    const LAST_SIGNAL: i32 = 64;

    pub const fn of(number: i32) -> Self {
        match number {
            Self::NOT_SUBMITTED => Self::NotSubmitted,
            Self::REMOVED => Self::Removed,
            0.. => Self::Exit(Exit::Code(number)),
            _ if number >= -Self::LAST_SIGNAL => Self::Exit(Exit::Signal(-number)),
            _ => Self::Lost(number),
        }
    }

    /// The exit code, if there was one, or what DAGMan says instead.
    pub const fn code(self) -> Option<i32> {
        match self {
            Self::Exit(Exit::Code(code)) | Self::Lost(code) => Some(code),
            Self::Exit(Exit::Signal(_)) => None,
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

/// What the event log tells of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ad {
    pub hold: Option<Hold>,
    /// Why it was removed.
    pub removal: Option<String>,
    pub wall_sec: Option<u64>,
    pub cpu_sec: Option<u64>,
    pub memory_mb: Option<u64>,
    pub site: Option<String>,
    pub schedd: Option<String>,
}

/// A report and the inputs that it blames.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub cmssw: Cmssw,
    pub bad_inputs: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dagman_returns() {
        for (number, returned) in [
            (0, Returned::Exit(Exit::Code(0))),
            (137, Returned::Exit(Exit::Code(137))),
            (-9, Returned::Exit(Exit::Signal(9))),
            (-64, Returned::Exit(Exit::Signal(64))),
            (-65, Returned::Lost(-65)),
            (-1001, Returned::NotSubmitted),
            (-1002, Returned::Removed),
            (-1003, Returned::Lost(-1003)),
            (i32::MIN, Returned::Lost(i32::MIN)),
        ] {
            assert_eq!(Returned::of(number), returned);
            assert_eq!(returned.code().is_some(), returned.signal().is_none());
        }
    }
}
