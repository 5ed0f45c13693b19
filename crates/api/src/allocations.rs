//! Slurm allocations that host workers. Served at `/api/v1` only.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A Slurm allocation and its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationResponse {
    /// Id of the allocation in windlass.
    pub id: i64,
    /// Id of the workflow.
    pub workflow_id: i64,
    /// Whether Windlass manages the allocation. Otherwise a client of the Torc interface manages it and reports
    /// its state.
    pub is_ours: bool,
    /// Name of the Slurm scheduler that the allocation was created from.
    pub scheduler: String,
    /// Id of that scheduler, if it still exists.
    pub scheduler_id: Option<i64>,
    /// `intended`, `submitting`, `pending`, `running`, `completing`, `ended`, `refused` or `withdrawn`.
    pub state: String,
    /// Why the allocation waits, was refused or withdrawn, or ended abnormally.
    pub reason: Option<String>,
    /// The Slurm job id.
    pub slurm_job_id: Option<u64>,
    /// Tag by which the allocation is found in Slurm.
    pub tag: String,
    /// The resources and options requested from Slurm.
    pub request: Value,
    /// Nodes of the allocation, as Slurm writes them.
    pub nodes: Option<String>,
    /// User or component that requested the allocation.
    pub asked_by: String,
    /// Id of the action that requested the allocation.
    pub action_id: Option<i64>,
    /// Why the allocation is no longer needed.
    pub unwanted: Option<String>,
    /// When the allocation was requested.
    pub created_at: String,
    /// When Slurm accepted the allocation; `null`: not yet.
    pub submitted_at: Option<String>,
    /// When the allocation started; `null`: not yet.
    pub started_at: Option<String>,
    /// When its time limit expires.
    pub ends_at: Option<String>,
    /// When the allocation ended; `null`: not yet.
    pub ended_at: Option<String>,
    /// Final state in Slurm: `COMPLETED`, `TIMEOUT`, `NODE_FAIL` …
    pub end: Option<String>,
    /// Exit code as `code:signal`, as Slurm writes it.
    pub exit_code: Option<String>,
    /// When Slurm last reported the allocation.
    pub seen_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationList {
    /// The entries of this page or list.
    pub items: Vec<AllocationResponse>,
}

/// Allocations to request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAllocations {
    /// Name of a Slurm scheduler of the workflow.
    #[schema(min_length = 1, max_length = 1000)]
    pub scheduler: String,
    /// Number of allocations.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    pub count: u32,
    /// Start one worker per node instead of one for all nodes.
    #[serde(default)]
    pub start_one_worker_per_node: bool,
    /// Maximum number of jobs that a worker runs at once.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_parallel_jobs: Option<u32>,
}

const fn one() -> u32 {
    1
}

/// Result of asking Slurm for the state of allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationRefreshResult {
    /// Whether this server manages allocations.
    pub is_looked_after: bool,
    /// Whether Slurm answered, or there was nothing to ask. The states it reported are stored.
    pub answered: bool,
    /// Why Slurm did not answer. In that case nothing was changed.
    pub trouble: Option<String>,
}
