//! State of the server's connection to Slurm. Served at `/api/v1` only.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Whether the server manages Slurm allocations, and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlurmStatus {
    /// Absent if the server was started without `--slurm`.
    #[serde(alias = "steward")]
    pub reconciler: Option<AllocationReconcilerStatusResponse>,
}

/// State of the allocation reconciler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationReconcilerStatusResponse {
    /// Number of open allocations by state.
    pub open: BTreeMap<String, u64>,
    /// When the controller last listed its jobs.
    pub last_answer_at: Option<String>,
    /// The latest error; cleared by the next success.
    pub trouble: Option<String>,
    /// Number of Slurm commands that may be called now.
    pub calls_left: u32,
    /// The controller does not answer; no calls are made until then.
    pub paused_until: Option<String>,
    /// Number of consecutive calls without an answer.
    pub unanswered: u32,
}

/// Slurm accounting data of the allocations of a workflow and their steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlurmAccountingList {
    /// The entries of this page or list.
    pub items: Vec<SlurmAccountingEntry>,
}

/// One row: a whole allocation or one of its steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlurmAccountingEntry {
    /// Allocation id in Windlass.
    pub allocation_id: Option<i64>,
    /// Job id in Slurm.
    pub slurm_job_id: u64,
    /// `batch`, `extern`, or a step number; absent for the whole allocation.
    pub step: Option<String>,
    /// The job that the step was an attempt of.
    pub job_id: Option<i64>,
    /// Name of the step or allocation in Slurm.
    pub job_name: Option<String>,
    /// State as Slurm writes it, with who canceled it.
    pub state: String,
    /// Exit code as Slurm reports it: `0:9` is signal 9.
    pub exit_code: Option<String>,
    /// When it started, in UTC.
    pub started_at: Option<String>,
    /// When it ended, in UTC.
    pub ended_at: Option<String>,
    /// Run time.
    pub elapsed_seconds: Option<f64>,
    /// Number of allocated CPUs.
    pub cpus: Option<u32>,
    /// CPU time of all processes.
    pub total_cpu_seconds: Option<f64>,
    /// Average CPU time of the tasks.
    pub ave_cpu_seconds: Option<f64>,
    /// Memory and disk sizes are reported only for steps that lasted long enough to be sampled.
    pub max_rss_bytes: Option<u64>,
    /// Average resident memory of the tasks.
    pub ave_rss_bytes: Option<u64>,
    /// Largest virtual memory of a task.
    pub max_vm_size_bytes: Option<u64>,
    /// Largest amount that a task read.
    pub max_disk_read_bytes: Option<u64>,
    /// Largest amount that a task wrote.
    pub max_disk_write_bytes: Option<u64>,
    /// Nodes, in the notation of Slurm: `n[1-3]`.
    pub node_list: Option<String>,
    /// Name in Slurm.
    pub name: String,
}
