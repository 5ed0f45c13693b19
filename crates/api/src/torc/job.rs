//! Jobs: their properties, claims, completions, and jobs that running jobs add.

use super::{JobStatusName, ResultModel};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::JobStatus;

/// A command with resources and dependencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub name: String,
    /// The current attempt, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<i64>,
    pub command: String,
    /// Whether the job is canceled when a job that it depends on fails. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_on_blocking_job_failure: Option<bool>,
    /// Id of the worker that runs the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on_job_ids: Option<Vec<i64>>,
    /// What the job does, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_handler_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_file_ids: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_user_data_ids: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_script: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// How the job was created after the workflow started: `retry` or `spawn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file_ids: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_user_data_ids: Option<Vec<i64>>,
    /// Jobs with a higher priority start first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_requirements_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_compute_nodes: Option<ComputeNodeSchedule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_id: Option<i64>,
    /// When the current attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    #[schema(value_type = Option<JobStatusName>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_termination: Option<bool>,
}

/// Allocations to create when the job starts. Stored, not acted on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComputeNodeSchedule {
    pub num_jobs: i64,
    pub scheduler_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_one_worker_per_node: Option<bool>,
}

/// Jobs of one workflow to create together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobsModel {
    pub jobs: Vec<JobModel>,
}

/// The created jobs, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreateJobsResponse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobModel>>,
}

/// Free resources that a runner offers when it claims jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComputeNodesResources {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub memory_gb: f64,
    pub num_cpus: i64,
    pub num_gpus: i64,
    pub num_nodes: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_config_id: Option<i64>,
    /// Remaining time as an ISO 8601 duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
}

/// The jobs that a runner may start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClaimJobsBasedOnResources {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobModel>>,
    /// Why no jobs were returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The jobs that a runner may start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClaimNextJobsResponse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobModel>>,
}

/// Jobs that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchCompleteJobsRequest {
    pub completions: Vec<JobCompletionEntry>,
}

/// The result of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobCompletionEntry {
    pub job_id: i64,
    pub run_id: i64,
    pub result: ResultModel,
    #[schema(value_type = JobStatusName)]
    pub status: JobStatus,
}

/// Accepted and refused completions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchCompleteJobsResponse {
    pub completed: Vec<i64>,
    pub errors: Vec<JobCompletionError>,
}

/// A completion that was refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobCompletionError {
    pub job_id: i64,
    pub message: String,
}

/// Jobs that a running job adds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnJobsRequest {
    pub jobs: Vec<SpawnJobModel>,
    /// Lineage whose iterations are counted. Default: the lineage of the calling job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    /// Stored as user data, one entry per iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
}

/// A job to add. It depends on the job that adds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnJobModel {
    pub name: String,
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_on_blocking_job_failure: Option<bool>,
    /// Names of jobs in the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Name of resource requirements of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_requirements: Option<String>,
}

/// Result of adding jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpawnJobsResponse {
    pub iteration: i64,
    pub spawned_job_ids: Vec<i64>,
}

/// The ids of all jobs of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListJobIdsResponse {
    pub count: i64,
    pub job_ids: Vec<i64>,
}

/// A running job and its worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningJobModel {
    pub job_id: i64,
    pub job_name: String,
    pub compute_node_name: String,
    /// How the worker was started: `local`, `slurm` …
    pub scheduler_type: String,
    /// The Slurm allocation of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
}

/// A dependency: one job waits for another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobDependencyModel {
    pub workflow_id: i64,
    pub job_id: i64,
    pub job_name: String,
    pub depends_on_job_id: i64,
    pub depends_on_job_name: String,
}

/// A job reads or writes a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobFileRelationshipModel {
    pub workflow_id: i64,
    pub file_id: i64,
    pub file_name: String,
    pub file_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_job_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_job_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer_job_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer_job_name: Option<String>,
}

/// A job reads or writes a piece of user data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobUserDataRelationshipModel {
    pub workflow_id: i64,
    pub user_data_id: i64,
    pub user_data_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_job_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_job_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer_job_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer_job_name: Option<String>,
}

/// Which Slurm job hosted the worker of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlurmJobCorrelationModel {
    pub job_id: i64,
    pub job_name: String,
    pub slurm_job_id: String,
}
