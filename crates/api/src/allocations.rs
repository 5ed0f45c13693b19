//! Allocations of Slurm that host workers. Served at `/api/v1` only.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An allocation, and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationResponse {
    pub id: i64,
    pub workflow_id: i64,
    /// Windlass looks after it. Otherwise a client of Torc's interface does, and says how it stands.
    pub is_ours: bool,
    /// The name of the scheduler that it was made from.
    pub scheduler: String,
    /// The row of that scheduler, if it is still there.
    pub scheduler_id: Option<i64>,
    /// `intended`, `submitting`, `pending`, `running`, `completing`, `ended`, `refused` or `withdrawn`.
    pub state: String,
    /// Why it waits, was refused or withdrawn, or what was odd about its end.
    pub reason: Option<String>,
    /// The number of Slurm's job.
    pub slurm_job_id: Option<u64>,
    /// What it is found by in Slurm.
    pub tag: String,
    /// What Slurm is asked for.
    pub request: Value,
    /// Its nodes, as Slurm writes them.
    pub nodes: Option<String>,
    /// Who asked for it.
    pub asked_by: String,
    /// The action that asked for it.
    pub action_id: Option<i64>,
    /// Why nobody wants it any more.
    pub unwanted: Option<String>,
    pub created_at: String,
    pub submitted_at: Option<String>,
    pub started_at: Option<String>,
    /// When Slurm will end it.
    pub ends_at: Option<String>,
    pub ended_at: Option<String>,
    /// How Slurm says it ended: `COMPLETED`, `TIMEOUT`, `NODE_FAIL` …
    pub end: Option<String>,
    /// `code:signal`, as Slurm writes it.
    pub exit_code: Option<String>,
    /// When Slurm last spoke of it.
    pub seen_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationList {
    pub items: Vec<AllocationResponse>,
}

/// Allocations to be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAllocations {
    /// The name of a scheduler of the workflow.
    #[schema(min_length = 1, max_length = 1000)]
    pub scheduler: String,
    /// So many.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    pub count: u32,
    /// A worker on each node, instead of one for all of them.
    #[serde(default)]
    pub start_one_worker_per_node: bool,
    /// A worker has no more jobs at once than this.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_parallel_jobs: Option<u32>,
}

const fn one() -> u32 {
    1
}

/// What came of asking Slurm how allocations stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationRefreshResult {
    /// This server looks after allocations.
    pub is_looked_after: bool,
    /// Slurm answered, or there was nothing to ask. What it said is noted.
    pub answered: bool,
    /// Why it did not. Then nothing is known, and nothing was changed.
    pub trouble: Option<String>,
}
