//! Filters for allocations.

use serde::{Deserialize, Serialize};
use windlass_types::slurm::AllocationState;
use windlass_types::{AllocationId, WorkflowId};

/// Selects allocations, sorted by id. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationFilter {
    pub workflow: Option<WorkflowId>,
    /// One of these ids; empty: any.
    pub ids: Vec<AllocationId>,
    /// In one of these states; empty: any.
    pub states: Vec<AllocationState>,
    /// Whether its state is not final.
    pub is_open: Option<bool>,
    /// Whether Windlass manages it, not a client.
    pub is_ours: Option<bool>,
    /// Row id of its scheduler.
    pub scheduler: Option<i64>,
    /// Name of its scheduler at the time of the request.
    pub scheduler_name: Option<String>,
    pub job_id: Option<u64>,
    pub tag: Option<String>,
    /// Requested by an execution of this action.
    pub action: Option<i64>,
    pub offset: u64,
    pub limit: Option<u64>,
}
