//! What goes into the store and what comes out of it.

use serde::Serialize;
use std::time::Duration;
use windlass_core::edges::Edges;
use windlass_types::work::{AttemptKey, Stdio};
use windlass_types::{
    Attempt, Bytes, Capacity, JobId, JobStatus, Resources, ResultId, RunId, StatusCounts, Timestamp,
    WorkerId, WorkflowId,
};

/// A workflow to be created, all but its jobs.
#[derive(Clone, Debug)]
pub struct NewWorkflow<'a> {
    pub name: &'a str,
    pub user: &'a str,
    pub description: Option<&'a str>,
    /// Absolute. Jobs run here.
    pub submission_dir: &'a str,
    /// Absolute. Logs go here.
    pub output_dir: &'a str,
    /// Absolute path of the spec file, if it came from one.
    pub spec_path: Option<&'a str>,
    /// Digest of what was created; the same text again is the same workflow (`windlass run` then resumes it).
    pub spec_digest: Option<&'a str>,
    /// Given to every job.
    pub env: &'a [(String, String)],
    pub stdio: Stdio,
    pub requirements: &'a [NewRequirements<'a>],
    pub edges: &'a Edges,
}

#[derive(Clone, Copy, Debug)]
pub struct NewRequirements<'a> {
    pub name: &'a str,
    pub resources: Resources,
}

#[derive(Clone, Copy, Debug)]
pub struct NewJob<'a> {
    pub name: &'a str,
    pub command: &'a str,
    pub env: &'a [(String, String)],
    /// Index into [`NewWorkflow::requirements`]; `None` is [`Resources::DEFAULT`], which limits nothing.
    pub requirements: Option<u32>,
    pub priority: i32,
    pub cancel_on_blocking_job_failure: bool,
    pub status: JobStatus,
}

#[derive(Clone, Debug, Serialize)]
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
    pub submission_dir: String,
    pub output_dir: String,
    pub spec_path: Option<String>,
    #[serde(skip)]
    pub spec_digest: Option<String>,
    #[serde(skip)]
    pub env: Vec<(String, String)>,
    #[serde(skip)]
    pub stdio: Stdio,
    #[serde(skip)]
    pub counts: StatusCounts,
    /// When the current run was first started and when it ended, if it did.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// All that the dispatcher needs to know of a workflow; commands stay in the database until claimed.
pub use windlass_core::board::JobTable as LoadedJobs;

/// What is read when a job is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCommand {
    pub id: JobId,
    pub name: String,
    pub command: String,
    pub env: Vec<(String, String)>,
}

/// A job that a worker holds according to the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    pub id: JobId,
    pub status: JobStatus,
    pub attempt: Attempt,
    pub worker: WorkerId,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize)]
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
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    /// Of the newest attempt that ended in the current run.
    pub return_code: Option<i32>,
    pub reason: Option<String>,
}

/// Which jobs to list. Empty fields match everything.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub status: Vec<JobStatus>,
    /// Exact name.
    pub name: Option<String>,
    /// Names that begin with this.
    pub name_prefix: Option<String>,
    pub ids: Vec<JobId>,
    /// Only what comes after this job: the next page of a long list, found without counting through the earlier ones.
    pub after: Option<JobId>,
    pub offset: u64,
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ResultRow {
    pub id: ResultId,
    #[serde(flatten)]
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
    #[serde(rename = "wall_seconds", serialize_with = "seconds")]
    pub wall: Duration,
    #[serde(rename = "cpu_seconds", serialize_with = "seconds")]
    pub cpu_time: Duration,
    pub peak_memory_bytes: Option<Bytes>,
    pub avg_memory_bytes: Option<Bytes>,
    pub peak_cpu_percent: Option<f64>,
    pub avg_cpu_percent: Option<f64>,
}

/// [`AttemptKey`] with the field names of the contract.
#[derive(Clone, Copy, Debug, Serialize)]
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

#[derive(Clone, Debug, Default)]
pub struct ResultFilter {
    pub job: Option<JobId>,
    /// `None`: of each job, the newest run in which it ran.
    pub run: Option<RunId>,
    /// Every run, unless one is named.
    pub all_runs: bool,
    /// Only attempts that did not complete.
    pub failed_only: bool,
    /// Only attempts that ended like this.
    pub status: Vec<JobStatus>,
    pub return_code: Option<i32>,
    /// Only what comes after this attempt: the next page of a long list.
    pub after: Option<(JobId, RunId, Attempt)>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// A worker process as it is remembered, so that a later process can make sure that it and its jobs are dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWorker {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub host: String,
    pub boot_id: String,
    pub pid: u32,
    /// Start time of that pid in clock ticks since boot, so that a reused pid is not taken for it.
    pub pid_start_ticks: u64,
    /// Stands in the environment of every process it starts (`WINDLASS_WORKER=…`).
    pub token: String,
    /// Where it notes what it starts.
    pub ledger_path: String,
    pub capacity: Capacity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    pub id: WorkerId,
    pub worker: NewWorker,
    pub started_at: Timestamp,
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
