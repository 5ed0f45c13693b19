//! How the server gets on with Slurm. Served at `/api/v1` only.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Whether the server asks Slurm for allocations, and how that goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlurmStatus {
    /// Nothing if it does not: it was started without `--slurm`.
    pub steward: Option<Steward>,
}

/// Who looks after allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Steward {
    /// Open allocations by state.
    pub open: BTreeMap<String, u64>,
    /// When the controller last said which jobs it has.
    pub last_answer_at: Option<String>,
    /// What went wrong last, until something goes well.
    pub trouble: Option<String>,
    /// So many of Slurm's commands may be called now.
    pub calls_left: u32,
    /// The controller does not answer, and is left alone until then.
    pub paused_until: Option<String>,
    /// So many questions in a row it has not answered.
    pub unanswered: u32,
}
