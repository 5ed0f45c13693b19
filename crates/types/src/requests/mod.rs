//! Requests to produce data, and the states of everything recorded about them.
//!
//! Plain data. Validation and state transitions are in `windlass-core` (`requests`), as is the split of a
//! request into work units (`round_plan`).

mod recovery;
mod request;
mod status;

pub use recovery::{FileRemainder, RequestFileCounts, RequestFileRow, RequestOverrides};
pub use request::{DEFAULT_PRIORITY, GenerationParams, PriorityStep, Request, SplittingParams};
pub use status::{
    CleanupPolicy, NodeRole, ParseEnumNameError, ProcessingBlockStatus, RequestFileState, RequestRunCause,
    RequestRunStatus, RequestStatus, RequestUnitStatus, SiteStatus, SplittingAlgo,
};

use std::fmt;

/// The name of the n-th work unit of a run, from 0: `mg_000000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkUnitName(pub u32);

impl fmt::Display for WorkUnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mg_{:06}", self.0)
    }
}
