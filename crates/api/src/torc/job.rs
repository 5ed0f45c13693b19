//! Jobs: what they are, who claims them, how they end, and jobs that jobs add.

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
    /// Whether it is canceled when a job that it waits for fails; where nothing is said, it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_on_blocking_job_failure: Option<bool>,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on_job_ids: Option<Vec<i64>>,
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
    /// How it came into being after the others: `retry` or `spawn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file_ids: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_user_data_ids: Option<Vec<i64>>,
    /// Higher ones start first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_requirements_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_compute_nodes: Option<ComputeNodeSchedule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_id: Option<i64>,
    /// When the attempt that runs was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    #[schema(value_type = Option<JobStatusName>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_termination: Option<bool>,
}

/// Allocations to be made when the job starts. Kept, and not acted on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComputeNodeSchedule {
    pub num_jobs: i64,
    pub scheduler_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_one_worker_per_node: Option<bool>,
}

/// Jobs of one workflow, to be created together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobsModel {
    pub jobs: Vec<JobModel>,
}

/// The jobs that were created, in the order asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreateJobsResponse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobModel>>,
}

/// What a runner has to give to the jobs that it asks for.
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
    /// How much time it has left, as an ISO 8601 duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
}

/// The jobs that a runner may start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClaimJobsBasedOnResources {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobModel>>,
    /// Why there are none.
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

/// How one job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobCompletionEntry {
    pub job_id: i64,
    pub run_id: i64,
    pub result: ResultModel,
    #[schema(value_type = JobStatusName)]
    pub status: JobStatus,
}

/// Which completions were taken up, and which not.
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
    /// Who counts the iterations; where nothing is said, what the caller belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    /// Kept as user data, a piece for each iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
}

/// A job to be added. It waits for the job that adds it.
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
    /// Name of requirements of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_requirements: Option<String>,
}

/// What adding jobs did.
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

/// A job that runs, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningJobModel {
    pub job_id: i64,
    pub job_name: String,
    pub compute_node_name: String,
    /// What started the worker: `local`, `slurm` …
    pub scheduler_type: String,
    /// The allocation of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
}

/// One job waits for another.
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
