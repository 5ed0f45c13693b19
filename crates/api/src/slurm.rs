//! How the server gets on with Slurm. Served at `/api/v1` only.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Whether the server asks Slurm for allocations, and how that goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlurmStatus {
    /// Nothing if it does not: it was started without `--slurm`.
    pub steward: Option<ReconcilerStatusResponse>,
}

/// Who looks after allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReconcilerStatusResponse {
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

/// What Slurm's accounting measured of allocations of a workflow, and of their steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlurmAccountingList {
    pub items: Vec<SlurmAccountingEntry>,
}

/// One row: an allocation as a whole, or a step of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlurmAccountingEntry {
    /// Ours.
    pub allocation_id: Option<i64>,
    pub slurm_job_id: u64,
    /// `batch`, `extern`, or a number; nothing for the allocation as a whole.
    pub step: Option<String>,
    /// The job that the step was an attempt of.
    pub job_id: Option<i64>,
    pub job_name: Option<String>,
    /// As Slurm writes it, with who canceled it.
    pub state: String,
    pub exit_code: Option<String>,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    pub elapsed_seconds: Option<f64>,
    pub cpus: Option<u32>,
    pub total_cpu_seconds: Option<f64>,
    pub ave_cpu_seconds: Option<f64>,
    /// Sizes are of steps only, and only of those that lasted long enough to be measured.
    pub max_rss_bytes: Option<u64>,
    pub ave_rss_bytes: Option<u64>,
    pub max_vm_size_bytes: Option<u64>,
    pub max_disk_read_bytes: Option<u64>,
    pub max_disk_write_bytes: Option<u64>,
    pub node_list: Option<String>,
    /// What Slurm calls it.
    pub name: String,
}
