//! State of the input files of a request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_types::requests::{RequestFileCounts, RequestFileRow};

/// A page of the files that rounds have used, with counts over all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestFiles {
    /// By name: `lfn`, `state` (`attempted`, `processed`, `excluded`), the `round` in which it entered the
    /// state, what is `left` of it (events by position, or lumis; absent: the whole file, or nothing of a
    /// processed one), and the `reason`.
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<RequestFileRow>,
    /// Number of files in the requested states.
    pub total: u64,
    /// Number of entries before the first one of this page.
    pub offset: u64,
    /// Number of input files by state.
    #[schema(value_type = Object)]
    pub counts: RequestFileCounts,
    /// Number of input files that no round has settled yet. Absent with an external catalog, and for a
    /// completed request: all its other files are processed, and they are listed only if there was more than
    /// one round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<u64>,
    /// Summary of the excluded files.
    pub exclusions: FileExclusions,
}

/// Input that is missing from the outputs, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileExclusions {
    /// Number of excluded files.
    pub files: u64,
    /// Excluded files that were partly processed; the processed part is in the outputs.
    pub partly_processed: u64,
    /// The most frequent reasons.
    pub reasons: Vec<ExclusionReason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExclusionReason {
    /// Why the files are excluded.
    pub reason: String,
    /// Number of files with this reason.
    pub files: u64,
}
