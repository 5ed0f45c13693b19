//! What can be asked of the books of allocations.

use serde::{Deserialize, Serialize};
use windlass_types::slurm::AllocationState;
use windlass_types::{AllocationId, WorkflowId};

/// Which allocations. What is not said does not matter. They come by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationFilter {
    pub workflow: Option<WorkflowId>,
    /// One of these; empty: any.
    pub ids: Vec<AllocationId>,
    /// In one of these; empty: in any.
    pub states: Vec<AllocationState>,
    /// Something may still happen to it, or not.
    pub is_open: Option<bool>,
    /// We look after it, or a client does.
    pub is_ours: Option<bool>,
    /// The row of its scheduler.
    pub scheduler: Option<i64>,
    /// Its scheduler by the name that it had.
    pub scheduler_name: Option<String>,
    pub job_id: Option<u64>,
    pub tag: Option<String>,
    /// One that an execution of this action asked for.
    pub action: Option<i64>,
    pub offset: u64,
    pub limit: Option<u64>,
}
