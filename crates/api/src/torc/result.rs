//! Results of job attempts.

use super::JobStatusName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_types::JobStatus;

/// The result of one attempt of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResultModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub job_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    pub run_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<i64>,
    /// RFC 3339.
    pub completion_time: String,
    pub compute_node_id: i64,
    pub exec_time_minutes: f64,
    pub return_code: i64,
    #[schema(value_type = JobStatusName)]
    pub status: JobStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg_cpu_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg_memory_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_cpu_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
}

/// Slurm accounting data of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlurmStatsModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub job_id: i64,
    pub run_id: i64,
    pub attempt_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ave_cpu_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_disk_read_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_disk_write_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rss_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vm_size_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_list: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
}
