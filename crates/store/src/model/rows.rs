//! Rows of the store, and filters to select them.

use super::{ActionRunRow, SortBy};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::time::Duration;
use windlass_core::actions::required_triggers;
use windlass_core::sizing::AttemptObservation;
use windlass_types::settings::{FailureHandler, SlurmScheduler, WorkflowAction, WorkflowSettings};
use windlass_types::worker_messages::{AttemptFiles, AttemptKey, RecoveryScriptResult, StdioSettings};
use windlass_types::{
    Attempt, Bytes, EventId, FailureClass, FileId, JobGroup, JobGroupId, JobId, JobOptions, JobStatus,
    RequirementsId, Resources, ResultId, RunId, StatusCounts, Timestamp, UserDataId, WorkUnitStatus,
    WorkerId, WorkflowId,
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkflowRow {
    pub id: WorkflowId,
    pub uuid: String,
    pub name: String,
    pub user: String,
    pub description: Option<String>,
    pub created_at: Timestamp,
    /// Number of the current run, from 1.
    pub run_id: RunId,
    pub is_canceled: bool,
    pub is_archived: bool,
    pub submission_dir: String,
    pub output_dir: String,
    pub spec_path: Option<String>,
    pub spec_digest: Option<String>,
    pub env: Vec<(String, String)>,
    pub stdio: StdioSettings,
    pub counts: StatusCounts,
    /// Number of files.
    pub file_count: u64,
    pub settings: WorkflowSettings,
    /// When the current run was first started, and when it ended, if it did.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// Everything that the scheduler needs of a workflow; commands stay in the database until they are claimed.
pub use windlass_core::workflow_state::JobTable as LoadedJobs;

/// The columns of a job that are read when it is claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCommand {
    pub id: JobId,
    pub name: String,
    pub command: String,
    /// Invocation script: of the job, else of the job group.
    pub invocation_script: Option<String>,
    /// Environment: of the job group, overridden by the job's own.
    pub env: Vec<(String, String)>,
    /// Its parameters, in order.
    pub params: JobParameters,
    /// Overrides the one of the workflow.
    pub stdio: Option<StdioSettings>,
    /// Ascending by id; their recorded states are in the same order.
    pub input_files: Vec<JobFile>,
    pub output_files: Vec<JobFile>,
    /// Whether its files are compared by content.
    pub hash_files: bool,
}

/// A file of a job, with the columns that executing the job requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    pub id: FileId,
    pub path: String,
}

/// Parameters of a job by name, in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobParameters(pub Vec<(String, Value)>);

impl JobParameters {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for JobParameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for JobParameters {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> serde::de::Visitor<'de> for InOrder {
            type Value = JobParameters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }

            fn visit_map<M: serde::de::MapAccess<'de>>(self, mut map: M) -> Result<JobParameters, M::Error> {
                let mut params = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    params.push(pair);
                }
                Ok(JobParameters(params))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// A job that a worker holds according to the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    pub id: JobId,
    pub status: JobStatus,
    pub attempt: Attempt,
    pub worker: WorkerId,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobRow {
    pub id: JobId,
    pub workflow_id: WorkflowId,
    pub name: String,
    pub command: String,
    pub status: JobStatus,
    pub attempt_id: Attempt,
    pub priority: i32,
    pub cancel_on_blocking_job_failure: bool,
    pub resource_requirements: Option<String>,
    /// Its job group, if it has one with more than this job.
    pub kind: Option<String>,
    pub params: JobParameters,
    /// `retry` or `spawn`; `None` for jobs of the original workflow.
    pub origin: Option<JobOrigin>,
    /// The job of an earlier workflow whose work is reused.
    pub reused_from: Option<JobId>,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    /// From the last ended attempt in the current run.
    pub return_code: Option<i32>,
    pub reason: Option<String>,
    #[serde(flatten)]
    pub options: JobOptions,
}

/// How a job was added to an existing workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOrigin {
    Retry,
    Spawn,
}

/// Selects jobs. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    pub status: Vec<JobStatus>,
    /// Exact name.
    pub name: Option<String>,
    /// Name prefix.
    pub name_prefix: Option<String>,
    pub ids: Vec<JobId>,
    /// Only jobs after this one: the next page of a long list, without the cost of an offset.
    pub after: Option<JobId>,
    pub kind: Option<JobGroupId>,
    /// Names and commands that contain this text, ignoring case.
    pub name_contains: Option<String>,
    pub command_contains: Option<String>,
    /// Held by this worker.
    pub worker: Option<WorkerId>,
    /// Reads this file.
    pub needs_file: Option<FileId>,
    /// Depends directly on this job.
    pub upstream: Option<JobId>,
    /// Whether it was added to an existing workflow.
    pub has_origin: Option<bool>,
    /// Jobs that a worker with these labels would accept.
    pub for_labels: Option<Vec<String>>,
    /// Default: order of creation.
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultRow {
    pub id: ResultId,
    pub key: AttemptKeyRow,
    pub job_name: String,
    pub status: JobStatus,
    pub return_code: i32,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    pub reason: Option<String>,
    pub worker_id: WorkerId,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub wall: Duration,
    pub cpu_time: Duration,
    pub peak_memory_bytes: Option<Bytes>,
    pub avg_memory_bytes: Option<Bytes>,
    pub peak_cpu_percent: Option<f64>,
    pub avg_cpu_percent: Option<f64>,
    /// Recorded states of its files at start and end.
    pub files: Option<AttemptFiles>,
    /// Result of the recovery script that ran before it.
    #[serde(default)]
    pub recovered: Option<RecoveryScriptResult>,
    /// For a failed attempt: its class and its failure group.
    #[serde(default)]
    pub class: Option<FailureClass>,
    #[serde(default)]
    pub signature: Option<String>,
}

impl ResultRow {
    /// Its measured resource usage.
    pub fn to_observation(&self) -> AttemptObservation {
        AttemptObservation {
            status: self.status,
            return_code: self.return_code,
            wall: self.wall,
            peak_memory: self.peak_memory_bytes,
            peak_cpu_percent: self.peak_cpu_percent,
            avg_cpu_percent: self.avg_cpu_percent,
        }
    }
}

/// [`AttemptKey`] with the field names of the contract.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AttemptKeyRow {
    pub workflow_id: WorkflowId,
    pub job_id: JobId,
    pub run_id: RunId,
    pub attempt_id: Attempt,
}

impl From<AttemptKeyRow> for AttemptKey {
    fn from(row: AttemptKeyRow) -> Self {
        Self { workflow: row.workflow_id, job: row.job_id, run: row.run_id, attempt: row.attempt_id }
    }
}

/// Selects results. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultFilter {
    pub job: Option<JobId>,
    /// `None`: for each job the newest run in which it ran.
    pub run: Option<RunId>,
    /// All runs, unless one is given.
    pub all_runs: bool,
    /// Only the last attempt of a job in a run.
    pub last_only: bool,
    /// Only attempts with an outcome other than completed.
    pub failed_only: bool,
    /// Only attempts with this outcome.
    pub status: Vec<JobStatus>,
    pub return_code: Option<i32>,
    /// Attempts on this worker.
    pub worker: Option<WorkerId>,
    /// Only results after this attempt: the next page of a long list.
    pub after: Option<(JobId, RunId, Attempt)>,
    /// Default: order of the jobs.
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementsRow {
    pub id: RequirementsId,
    pub name: String,
    #[serde(flatten)]
    pub resources: Resources,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobGroupRow {
    pub id: JobGroupId,
    #[serde(flatten)]
    pub group: JobGroup,
}

/// A work unit: jobs that choose a site once and end as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkUnitStatusRow {
    pub number: u32,
    pub site: Option<String>,
    pub status: WorkUnitStatus,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The run in which it last changed.
    pub run_id: RunId,
    /// Sequence number of its last change in the workflow, ascending.
    pub seq: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureHandlerRow {
    pub id: i64,
    #[serde(flatten)]
    pub handler: FailureHandler,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmSchedulerRow {
    pub id: i64,
    #[serde(flatten)]
    pub scheduler: SlurmScheduler,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRow {
    pub id: i64,
    #[serde(flatten)]
    pub action: WorkflowAction,
    pub jobs: Vec<JobId>,
    /// Number of trigger events since the action was armed.
    #[serde(default)]
    pub trigger_count: u32,
    /// Executions up to this number no longer count.
    #[serde(default)]
    pub armed_after: u32,
    #[serde(default)]
    pub is_recovery: bool,
    /// Its executions, oldest first.
    #[serde(default)]
    pub runs: Vec<ActionRunRow>,
}

impl ActionRow {
    /// Returns the number of trigger events required to execute the action.
    pub fn required_triggers(&self) -> u32 {
        required_triggers(self.action.trigger_type, self.jobs.len())
    }

    /// Returns the last execution that counts; `None` if there was none since the action was armed.
    pub fn last_run(&self) -> Option<&ActionRunRow> {
        self.runs.last().filter(|run| run.attempt.0 > self.armed_after)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowFileRow {
    pub id: FileId,
    pub workflow_id: WorkflowId,
    pub name: String,
    pub path: String,
    pub identifier: Option<String>,
    /// Last recorded modification time: nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
    pub size: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserDataRow {
    pub id: UserDataId,
    pub workflow_id: WorkflowId,
    pub name: String,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::deserialize_present"
    )]
    pub data: Option<Value>,
    pub is_ephemeral: bool,
    /// When its data was last set.
    pub changed_at: Timestamp,
}

/// Selects files or user data. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataFilter {
    /// Exact name.
    pub name: Option<String>,
    /// Read or written by this job.
    pub job: Option<JobId>,
    /// Names and paths that contain this text, ignoring case.
    pub name_contains: Option<String>,
    pub path_contains: Option<String>,
    /// Restricts `job`: only outputs, or only inputs.
    pub producer: Option<JobId>,
    pub consumer: Option<JobId>,
    /// Whether any job writes it.
    pub is_output: Option<bool>,
    /// User data only.
    pub is_ephemeral: Option<bool>,
    /// Default: order of creation.
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// A relation between a job and a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobFileRow {
    pub job_id: JobId,
    pub is_output: bool,
    pub file_id: FileId,
}

/// A relation between a job and user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobUserDataRow {
    pub job_id: JobId,
    pub is_output: bool,
    pub user_data_id: UserDataId,
}

/// A completed job and the record of the work behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionRecord {
    pub job: JobId,
    pub work: CompletedWork,
    /// The executed command, if the job's command was changed since.
    pub command: Option<String>,
}

/// The attempt that did the work of a completed job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedWork {
    /// An attempt of the same job, or of the original job if its work was reused.
    pub done_by: AttemptKey,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    /// States of the job's files, in their order; `None` if there are none. For reused work, as they were when
    /// it was reused.
    pub files: Option<AttemptFiles>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventSeverity {
    Debug,
    Info,
    Warning,
    Error,
}

impl fmt::Display for EventSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    pub id: EventId,
    pub workflow_id: Option<WorkflowId>,
    pub job_id: Option<JobId>,
    pub at: Timestamp,
    pub severity: EventSeverity,
    pub category: String,
    /// The user who caused it.
    pub actor: String,
    pub message: String,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::deserialize_present"
    )]
    pub data: Option<Value>,
}

/// Selects events, oldest first. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventFilter {
    /// Only events after this one.
    pub after: Option<EventId>,
    /// Minimum severity.
    pub severity: Option<EventSeverity>,
    pub category: Option<String>,
    /// About this job.
    pub job: Option<JobId>,
    /// Recorded after this time.
    pub since: Option<Timestamp>,
    /// Only the newest of this number.
    pub newest: Option<u64>,
    /// Newest first; offset and limit apply in this order.
    pub descending: bool,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// The result of a spawn, also when the same request is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnResult {
    pub lineage: String,
    /// Number of times the lineage has added jobs, including this one.
    pub iteration: u32,
    /// In the order of the request.
    pub spawned_job_ids: Vec<JobId>,
    /// The same jobs existed already.
    pub is_replay: bool,
}
