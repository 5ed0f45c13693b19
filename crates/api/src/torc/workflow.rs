//! Workflows: their settings, status, and operations on whole workflows.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A graph of jobs and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkflowModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub name: String,
    /// Owner of the workflow. Not needed in requests, where it is ignored: the owner is the authenticated caller.
    #[serde(default)]
    pub user: String,
    /// The current run, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Names of groups whose members may see and change the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_groups: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_expiration_buffer_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_ignore_workflow_completion: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_min_time_for_new_jobs_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_wait_for_healthy_database_minutes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_wait_for_new_jobs_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_jobs: Option<DynamicJobsConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_ro_crate: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_config: Option<ExecutionConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_archived: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_canceled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_monitor_config: Option<ResourceMonitorConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_defaults: Option<BTreeMap<String, Value>>,
    /// Directory in which the jobs run; file paths are relative to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_directory: Option<String>,
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_pending_failed: Option<bool>,
}

/// Maximum number of times that jobs may add jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DynamicJobsConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<i64>,
}

/// How jobs are executed and stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutionConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_cpu_bind: Option<bool>,
    /// Overrides by job name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_stdio_overrides: Option<BTreeMap<String, StdioConfig>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_resources: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ExecutionMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigkill_headroom_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigterm_lead_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srun_mpi: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srun_termination_signal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staggered_start: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<StdioConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_signal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_exit_code: Option<i32>,
}

/// Where the output of jobs goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StdioConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_success: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<StdioMode>,
}

/// Resource monitoring of jobs and machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ResourceMonitorConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_node: Option<ComputeNodeMonitorConfig>,
    pub enabled: bool,
    pub flush_interval_seconds: i32,
    pub generate_plots: bool,
    pub granularity: MonitorGranularity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobMonitorConfig>,
    pub sample_interval_seconds: i32,
}

impl Default for ResourceMonitorConfig {
    fn default() -> Self {
        Self {
            compute_node: None,
            enabled: false,
            flush_interval_seconds: 300,
            generate_plots: false,
            granularity: MonitorGranularity::default(),
            jobs: None,
            sample_interval_seconds: 10,
        }
    }
}

/// Resource monitoring of jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct JobMonitorConfig {
    pub enabled: bool,
    pub granularity: MonitorGranularity,
}

/// Resource monitoring of a worker's machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ComputeNodeMonitorConfig {
    pub cpu: bool,
    pub enabled: bool,
    pub granularity: MonitorGranularity,
    pub memory: bool,
}

impl Default for ComputeNodeMonitorConfig {
    fn default() -> Self {
        Self { cpu: true, enabled: false, granularity: MonitorGranularity::default(), memory: true }
    }
}

/// Which samples are kept: a summary or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MonitorGranularity {
    #[default]
    Summary,
    TimeSeries,
}

/// How job processes are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    #[default]
    Direct,
    Slurm,
    Auto,
}

/// Which output of jobs is kept, and in how many files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StdioMode {
    #[default]
    Separate,
    Combined,
    NoStdout,
    NoStderr,
    None,
}

/// Summary of a workflow's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkflowStatusResponse {
    pub workflow_id: i64,
    pub workflow_name: String,
    pub workflow_user: String,
    pub active_compute_nodes: i64,
    pub active_scheduled_nodes: i64,
    pub is_canceled: bool,
    pub is_complete: bool,
    pub jobs_by_status: JobStatusCounts,
    pub pending_scheduled_nodes: i64,
    /// Ready jobs that need more time than any active worker has left.
    pub runtime_blocked_ready_jobs: i64,
    pub total_exec_time_minutes: f64,
    pub total_jobs: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ready_runtime_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_allocation_remaining_seconds: Option<i64>,
    /// Number of ready jobs by a label that no active worker has.
    #[serde(default)]
    pub unserved_ready_labels: BTreeMap<String, i64>,
    /// Seconds from the first start of the current run to its end, or until now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walltime_seconds: Option<f64>,
}

/// Number of jobs in each status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobStatusCounts {
    pub blocked: i64,
    pub canceled: i64,
    pub completed: i64,
    pub disabled: i64,
    pub failed: i64,
    pub pending: i64,
    pub pending_failed: i64,
    pub ready: i64,
    pub running: i64,
    pub terminated: i64,
    pub uninitialized: i64,
}

/// Whether the workflow has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IsCompleteResponse {
    pub is_canceled: bool,
    pub is_complete: bool,
}

/// Whether all jobs are uninitialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IsUninitializedResponse {
    pub is_uninitialized: bool,
}

/// Archives or restores a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArchiveWorkflowRequest {
    pub is_archived: bool,
}

/// Result of resetting jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResetJobStatusResponse {
    pub workflow_id: i64,
    pub status: String,
    pub updated_count: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_type: Option<String>,
}

/// Names of jobs that will run again because their inputs changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessChangedJobInputsResponse {
    pub reinitialized_jobs: Vec<String>,
}

/// Total resource requirements of the ready jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GetReadyJobRequirementsResponse {
    pub max_num_nodes: i64,
    pub max_runtime: String,
    pub memory_gb: f64,
    pub num_cpus: i64,
    pub num_gpus: i64,
    pub num_jobs: i64,
}

/// A background task of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskModel {
    pub id: i64,
    pub workflow_id: i64,
    pub created_at_ms: i64,
    /// Operation of the task: `initialize_jobs`.
    pub operation: String,
    pub status: TaskStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<i64>,
}

/// The active task of a workflow, if any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ActiveTaskResponse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskModel>,
}

/// Status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    Queued,
    Running,
    Succeeded,
    Failed,
}
