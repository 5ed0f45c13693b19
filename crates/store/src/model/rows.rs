//! What comes out of the store, and the filters that say which of it.

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
    Attempt, Bytes, EventId, FailureClass, FileId, JobGroupId, JobId, JobStatus, RequirementsId, Resources,
    ResultId, RunId, StatusCounts, Timestamp, UserDataId, WorkUnitStatus, WorkerId, WorkflowId,
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkflowRow {
    pub id: WorkflowId,
    pub uuid: String,
    pub name: String,
    pub user: String,
    pub description: Option<String>,
    pub created_at: Timestamp,
    /// The current run, from 1.
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
    /// How many files it names.
    pub file_count: u64,
    pub settings: WorkflowSettings,
    /// When the current run was first started and when it ended, if it did.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// All that the dispatcher needs to know of a workflow; commands stay in the database until claimed.
pub use windlass_core::workflow_state::JobTable as LoadedJobs;

/// What is read when a job is claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCommand {
    pub id: JobId,
    pub name: String,
    pub command: String,
    /// What the command is handed to: the job's own, else the kind's.
    pub invocation_script: Option<String>,
    /// The kind's, and the job's own, which win.
    pub env: Vec<(String, String)>,
    /// What it was made with, in order.
    pub params: JobParameters,
    /// Instead of the workflow's.
    pub stdio: Option<StdioSettings>,
    /// Ascending by id; what is seen of them is kept in this order.
    pub input_files: Vec<JobFile>,
    pub output_files: Vec<JobFile>,
    /// Its files are told apart by what is in them.
    pub hash_files: bool,
}

/// A file of a job, as it has to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    pub id: FileId,
    pub path: String,
}

/// Parameters of a job by name, in the order they were given.
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
    /// The entry of the spec that made it, where that is more than the job itself.
    pub kind: Option<String>,
    pub params: JobParameters,
    /// `retry` or `spawn`; nothing for jobs that were there from the start.
    pub origin: Option<JobOrigin>,
    /// The job of an earlier workflow whose work counts as this one's.
    pub reused_from: Option<JobId>,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    /// Of the newest attempt that ended in the current run.
    pub return_code: Option<i32>,
    pub reason: Option<String>,
}

/// How a job came into a workflow that was there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOrigin {
    Retry,
    Spawn,
}

/// Which jobs to list. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    pub status: Vec<JobStatus>,
    /// Exact name.
    pub name: Option<String>,
    /// Names that begin with this.
    pub name_prefix: Option<String>,
    pub ids: Vec<JobId>,
    /// Only what comes after this job: the next page of a long list, found without counting through the earlier ones.
    pub after: Option<JobId>,
    pub kind: Option<JobGroupId>,
    /// Names and commands that contain this, whatever the case of its letters.
    pub name_contains: Option<String>,
    pub command_contains: Option<String>,
    /// Held by this worker.
    pub worker: Option<WorkerId>,
    /// Reads this file.
    pub needs_file: Option<FileId>,
    /// Waits for this job, and not only because another one does.
    pub upstream: Option<JobId>,
    /// Came into a workflow that was there before it, or did not.
    pub has_origin: Option<bool>,
    /// What a worker with these labels would take.
    pub for_labels: Option<Vec<String>>,
    /// Without it, in the order of creation.
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
    /// Its files as it found and left them.
    pub files: Option<AttemptFiles>,
    /// How the recovery script ended that was owed before it.
    #[serde(default)]
    pub recovered: Option<RecoveryScriptResult>,
    /// Of a failure: what sort it was, and what those have in common that failed alike.
    #[serde(default)]
    pub class: Option<FailureClass>,
    #[serde(default)]
    pub signature: Option<String>,
}

impl ResultRow {
    /// What was measured of it.
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

/// Which results to list. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultFilter {
    pub job: Option<JobId>,
    /// `None`: of each job, the newest run in which it ran.
    pub run: Option<RunId>,
    /// Every run, unless one is named.
    pub all_runs: bool,
    /// Of the attempts of a job in one run only the last.
    pub last_only: bool,
    /// Only attempts that did not complete.
    pub failed_only: bool,
    /// Only attempts that ended like this.
    pub status: Vec<JobStatus>,
    pub return_code: Option<i32>,
    /// Of attempts that this worker had.
    pub worker: Option<WorkerId>,
    /// Only what comes after this attempt: the next page of a long list.
    pub after: Option<(JobId, RunId, Attempt)>,
    /// Without it, in the order of the jobs.
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

/// What the jobs of one entry of a spec share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobGroupRow {
    pub id: JobGroupId,
    pub name: String,
    pub env: Vec<(String, String)>,
    pub invocation_script: Option<String>,
    pub stdio: Option<StdioSettings>,
    pub supports_termination: Option<bool>,
    pub failure_handler: Option<String>,
    pub scheduler: Option<String>,
    pub labels: Vec<String>,
    pub parameters: Vec<String>,
    /// Where its jobs may run; empty: anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elects: bool,
}

/// A group of jobs that elects a site once and is over as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkUnitStatusRow {
    pub number: u32,
    pub site: Option<String>,
    pub status: WorkUnitStatus,
    /// Since when it is over.
    pub ended_at: Option<Timestamp>,
    /// In which it last changed.
    pub run_id: RunId,
    /// Higher than that of whatever changed before it in the workflow.
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
    /// How often what it waits for has happened since it was armed.
    #[serde(default)]
    pub trigger_count: u32,
    /// Executions up to this one do not count any more.
    #[serde(default)]
    pub armed_after: u32,
    #[serde(default)]
    pub is_recovery: bool,
    /// Its executions, oldest first.
    #[serde(default)]
    pub runs: Vec<ActionRunRow>,
}

impl ActionRow {
    /// How often what it waits for must happen.
    pub fn required_triggers(&self) -> u32 {
        required_triggers(self.action.trigger_type, self.jobs.len())
    }

    /// The last execution that counts: none if it has not been carried out since it was armed.
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
    /// As last seen: nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
    pub size: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserDataRow {
    pub id: UserDataId,
    pub workflow_id: WorkflowId,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::given")]
    pub data: Option<Value>,
    pub is_ephemeral: bool,
    /// When its data were last set.
    pub changed_at: Timestamp,
}

/// Which files or user data to list. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataFilter {
    /// Exact name.
    pub name: Option<String>,
    /// Only those that this job reads or writes.
    pub job: Option<JobId>,
    /// Names and paths that contain this, whatever the case of its letters.
    pub name_contains: Option<String>,
    pub path_contains: Option<String>,
    /// Only those that this job writes, or reads.
    pub producer: Option<JobId>,
    pub consumer: Option<JobId>,
    /// Only those that some job writes, or no job does.
    pub is_output: Option<bool>,
    /// Of user data only.
    pub is_ephemeral: Option<bool>,
    /// Without it, in the order of creation.
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// A job reads or writes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobFileRow {
    pub job_id: JobId,
    pub is_output: bool,
    pub file_id: FileId,
}

/// A job reads or writes a piece of user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobUserDataRow {
    pub job_id: JobId,
    pub is_output: bool,
    pub user_data_id: UserDataId,
}

/// A completed job and what is known of the work behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionRecord {
    pub job: JobId,
    pub work: CompletedWork,
    /// The command that it did, where the job's was changed since.
    pub command: Option<String>,
}

/// The attempt that did the work of a completed job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedWork {
    /// Of the same job, or of the one of an earlier workflow that it was reused from.
    pub done_by: AttemptKey,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    /// Of the files of the job, in their order; `None` where it has none. For reused work, as they were when it was taken
    /// over.
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
    /// Who did it.
    pub actor: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::given")]
    pub data: Option<Value>,
}

/// Which events to list, oldest first. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventFilter {
    /// Only what came after this one.
    pub after: Option<EventId>,
    /// This severe or more.
    pub severity: Option<EventSeverity>,
    pub category: Option<String>,
    /// About this job.
    pub job: Option<JobId>,
    /// Noted later than this.
    pub since: Option<Timestamp>,
    /// Only so many of the newest that match.
    pub newest: Option<u64>,
    /// The newest first; of those, offset and limit.
    pub descending: bool,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// What a spawn did, now or when the same was asked before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnResult {
    pub lineage: String,
    /// How often the lineage has added jobs, this time included.
    pub iteration: u32,
    /// In the order of the request.
    pub spawned_job_ids: Vec<JobId>,
    /// The same jobs were there already.
    pub is_replay: bool,
}
