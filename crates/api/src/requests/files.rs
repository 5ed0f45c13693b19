//! What became of the input files of a request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_types::requests::{RequestFileCounts, RequestFileRow};

/// A page of the files that rounds have touched, and how all of them stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestFiles {
    /// By name: `lfn`, `state` (`attempted`, `processed`, `excluded`), the `round` in which it came to that, what is `left`
    /// of it (events by position, or lumis; absent: all, or nothing of one that is processed), and the `reason`.
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<RequestFileRow>,
    /// In the states that were asked for.
    pub total: u64,
    pub offset: u64,
    #[schema(value_type = Object)]
    pub counts: RequestFileCounts,
    /// Files of the input dataset that no round has settled yet. Absent where the catalog is elsewhere, and of a request
    /// that is completed: there all others are processed, and listed only if there was more than one round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<u64>,
    pub exclusions: FileExclusions,
}

/// What of the input is not in the outputs, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileExclusions {
    pub files: u64,
    /// Those of them of which some was processed before; that is in the outputs.
    pub partly_processed: u64,
    /// The most frequent ones.
    pub reasons: Vec<ExclusionReason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExclusionReason {
    pub reason: String,
    pub files: u64,
}
