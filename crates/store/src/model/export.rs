//! The file format of exported workflows: everything that another database needs to import them. Field names
//! are those of Torc's export files; additional fields are Windlass only, and absent values are omitted.

use super::{EventSeverity, JobOrigin, JobParameters};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_types::settings::{FailureRule, SlurmScheduler, WorkflowAction, WorkflowSettings};
use windlass_types::worker_messages::{AttemptFiles, StdioSettings};
use windlass_types::{JobOptions, JobStatus, Timestamp};

/// Optional contents of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportOptions {
    /// Includes the history: states of jobs, runs, results, workers.
    pub results: bool,
    pub events: bool,
}

/// Overrides for an import. A workflow without results in the file starts from the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOptions {
    pub name: Option<String>,
    pub user: Option<String>,
    /// Absolute. Jobs run here.
    pub submission_dir: Option<String>,
    /// Absolute. Logs are written here.
    pub output_dir: Option<String>,
    /// Starts from the beginning, even if the file has results.
    pub without_results: bool,
}

/// An exported workflow. Ids are those of the original database and only serve as references within the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowExport {
    pub export_version: String,
    pub exported_at: Timestamp,
    pub workflow: ExportedWorkflow,
    #[serde(default)]
    pub files: Vec<ExportedFile>,
    #[serde(default)]
    pub user_data: Vec<ExportedUserData>,
    #[serde(default)]
    pub resource_requirements: Vec<ExportedRequirements>,
    #[serde(default)]
    pub slurm_schedulers: Vec<ExportedScheduler>,
    /// Torc only.
    #[serde(default)]
    pub local_schedulers: Vec<Value>,
    #[serde(default)]
    pub failure_handlers: Vec<ExportedHandler>,
    #[serde(default, rename = "job_kinds")]
    pub job_groups: Vec<ExportedJobGroup>,
    /// Dependency groups: lists of jobs that several jobs wait for, stored once.
    #[serde(default, rename = "gates")]
    pub dependency_groups: Vec<Vec<i64>>,
    #[serde(default)]
    pub jobs: Vec<ExportedJob>,
    /// Which job added which jobs, in the order of the jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spawns: Vec<ExportedSpawn>,
    #[serde(default)]
    pub workflow_actions: Vec<ExportedAction>,
    /// Torc only.
    #[serde(default)]
    pub ro_crate_entities: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_nodes: Option<Vec<ExportedWorker>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<ExportedRun>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<ExportedResult>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<ExportedEvent>>,
}

impl WorkflowExport {
    /// The version that is written, and the only one that can be read.
    pub const VERSION: &'static str = "1.0";
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedWorkflow {
    #[serde(default)]
    pub id: i64,
    pub name: String,
    pub user: String,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    #[serde(default)]
    pub is_archived: bool,
    #[serde(default)]
    pub is_canceled: bool,
    #[serde(default = "one")]
    pub run_id: i64,
    #[serde(default, with = "pairs")]
    pub env: Vec<(String, String)>,
    #[serde(default)]
    pub stdio: StdioSettings,
    #[serde(default)]
    pub submission_directory: Option<String>,
    #[serde(default)]
    pub output_directory: Option<String>,
    #[serde(default)]
    pub spec_path: Option<String>,
    #[serde(flatten)]
    pub settings: WorkflowSettings,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedFile {
    pub id: i64,
    pub name: String,
    pub path: String,
    #[serde(default)]
    pub identifier: Option<String>,
    /// Seconds since 1970, for Torc.
    #[serde(default)]
    pub st_mtime: Option<f64>,
    /// The same in full precision.
    #[serde(default)]
    pub mtime_ns: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedUserData {
    pub id: i64,
    pub name: String,
    #[serde(default)]
    pub data: Option<Value>,
    #[serde(default)]
    pub is_ephemeral: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedRequirements {
    pub id: i64,
    pub name: String,
    pub num_cpus: u32,
    #[serde(default)]
    pub num_gpus: u32,
    #[serde(default = "one_node")]
    pub num_nodes: u32,
    /// `4g`, `512`.
    pub memory: String,
    /// `PT90S`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedScheduler {
    pub id: i64,
    #[serde(flatten)]
    pub scheduler: SlurmScheduler,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedHandler {
    pub id: i64,
    pub name: String,
    pub rules: Vec<FailureRule>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedJobGroup {
    pub id: i64,
    pub name: String,
    #[serde(default, with = "pairs")]
    pub env: Vec<(String, String)>,
    #[serde(default)]
    pub invocation_script: Option<String>,
    #[serde(flatten)]
    pub shared: SharedByGroup,
    #[serde(default)]
    pub parameters: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elects: bool,
}

/// Values shared by the jobs of a job group. Repeated in each job, because Torc has no job groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedByGroup {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdio: Option<StdioSettings>,
    pub supports_termination: Option<bool>,
    pub failure_handler_id: Option<i64>,
    pub scheduler_id: Option<i64>,
    #[serde(deserialize_with = "or_none")]
    pub labels: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedJob {
    pub id: i64,
    pub name: String,
    pub command: String,
    /// The effective variables: those of the job group, overridden by those of the job.
    #[serde(default)]
    pub invocation_script: Option<String>,
    #[serde(default, with = "pairs")]
    pub env: Vec<(String, String)>,
    #[serde(default)]
    pub kind_id: Option<i64>,
    #[serde(flatten)]
    pub shared: SharedByGroup,
    #[serde(flatten)]
    pub options: JobOptions,
    #[serde(default, skip_serializing_if = "JobParameters::is_empty")]
    pub parameters: JobParameters,
    #[serde(default)]
    pub status: Option<JobStatus>,
    #[serde(default)]
    pub attempt_id: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<u32>,
    #[serde(default)]
    pub priority: i32,
    #[serde(default)]
    pub origin: Option<JobOrigin>,
    /// Absent: `true`.
    #[serde(default)]
    pub cancel_on_blocking_job_failure: Option<bool>,
    #[serde(default)]
    pub resource_requirements_id: Option<i64>,
    #[serde(default, deserialize_with = "or_none")]
    pub depends_on_job_ids: Vec<i64>,
    /// Indices into [`WorkflowExport::dependency_groups`], from 0.
    #[serde(default, rename = "depends_on_gates", skip_serializing_if = "Vec::is_empty")]
    pub depends_on_groups: Vec<u32>,
    #[serde(default, deserialize_with = "or_none")]
    pub input_file_ids: Vec<i64>,
    #[serde(default, deserialize_with = "or_none")]
    pub output_file_ids: Vec<i64>,
    #[serde(default, deserialize_with = "or_none")]
    pub input_user_data_ids: Vec<i64>,
    #[serde(default, deserialize_with = "or_none")]
    pub output_user_data_ids: Vec<i64>,
}

/// Jobs that were added together: `job_count` of them, starting at `first_job_id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedSpawn {
    pub first_job_id: i64,
    pub job_count: u32,
    pub spawned_by: i64,
    pub lineage: String,
    pub iteration: u32,
    /// Digest of the request; a repeated request gets these jobs.
    #[serde(default)]
    pub digest: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedAction {
    pub id: i64,
    #[serde(flatten)]
    pub action: WorkflowAction,
    #[serde(default, deserialize_with = "or_none")]
    pub job_ids: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedWorker {
    pub id: i64,
    #[serde(default = "one")]
    pub run_id: i64,
    pub hostname: String,
    #[serde(default)]
    pub pid: u32,
    pub start_time: Timestamp,
    #[serde(default)]
    pub end_time: Option<Timestamp>,
    #[serde(default)]
    pub num_cpus: u32,
    #[serde(default)]
    pub memory_gb: f64,
    #[serde(default)]
    pub num_gpus: u32,
    #[serde(default)]
    pub num_nodes: u32,
    #[serde(default)]
    pub compute_node_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedRun {
    pub run_id: i64,
    pub started_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedResult {
    pub job_id: i64,
    pub run_id: i64,
    #[serde(default = "first")]
    pub attempt_id: u32,
    #[serde(default)]
    pub compute_node_id: i64,
    pub status: JobStatus,
    pub return_code: i32,
    pub completion_time: Timestamp,
    #[serde(default)]
    pub exec_time_minutes: f64,
    #[serde(default)]
    pub start_time: Option<Timestamp>,
    /// Microseconds: `exec_time_minutes` in full precision.
    #[serde(default)]
    pub wall_us: Option<i64>,
    #[serde(default)]
    pub cpu_time_us: i64,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub out_of_memory: bool,
    #[serde(default)]
    pub peak_memory_bytes: Option<i64>,
    #[serde(default)]
    pub avg_memory_bytes: Option<i64>,
    #[serde(default)]
    pub peak_cpu_percent: Option<f64>,
    #[serde(default)]
    pub avg_cpu_percent: Option<f64>,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<AttemptFiles>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedEvent {
    pub at: Timestamp,
    pub severity: EventSeverity,
    pub category: String,
    pub actor: String,
    pub message: String,
    #[serde(default)]
    pub data: Option<Value>,
}

const fn one() -> i64 {
    1
}

const fn first() -> u32 {
    1
}

const fn one_node() -> u32 {
    1
}

/// Reads `null` like an absent value.
fn or_none<'de, T: Deserialize<'de> + Default, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads variables from an object, keeping their order.
mod pairs {
    use super::JobParameters;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(
        pairs: &[(String, String)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, String)>, D::Error> {
        let JobParameters(pairs) = Option::<JobParameters>::deserialize(deserializer)?.unwrap_or_default();
        let text = |(name, value)| match value {
            Value::String(text) => Ok((name, text)),
            other => {
                Err(D::Error::custom(format!("the value of variable `{name}` is `{other}`, not a text")))
            }
        };
        pairs.into_iter().map(text).collect()
    }
}
