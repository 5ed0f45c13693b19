//! Requests: what somebody wants produced, and the states of everything that is kept about producing it.
//!
//! Plain data. What is a valid request, and what follows which state, is decided in `windlass-core` (`requests`); how a
//! request becomes work units, there too (`plan`).

mod recovery;
mod request;
mod status;

pub use recovery::{FileRemainder, RequestFileCounts, RequestFileRow, RequestOverrides};
pub use request::{DEFAULT_PRIORITY, GenerationParams, ProductionStep, Request, SplittingParams};
pub use status::{
    CleanupPolicy, NodeRole, ParseNameError, ProcessingBlockStatus, RequestFileState, RequestRunCause,
    RequestRunStatus, RequestStatus, RequestUnitStatus, SiteStatus, SplittingAlgo,
};

use std::fmt;

/// How the first, second, … work unit of a run is called: `mg_000000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkUnitName(pub u32);

impl fmt::Display for WorkUnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mg_{:06}", self.0)
    }
}
