//! Data of the contract besides running jobs: lists with counts, and parts that are created and deleted one by
//! one.

use super::{DataFilter, EventFilter, JobFilter, JobRow, ResultFilter, WorkerFilter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
pub use windlass_core::slurm::allocation_rows::NewAllocationAction;
use windlass_types::settings::WorkflowSettings;
use windlass_types::worker_messages::StdioSettings;
use windlass_types::{
    AllocationId, Attempt, EventId, FileId, JobId, JobStatus, RequirementsId, Resources, ResultId, RunId,
    Timestamp, UserDataId, WorkerId, WorkflowId,
};

/// Sort order of a list: the name of a field of the contract. Ties are sorted by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortBy {
    pub field: String,
    pub descending: bool,
}

/// Selects workflows. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowFilter {
    pub name: Option<String>,
    pub user: Option<String>,
    /// Contains this text.
    pub description: Option<String>,
    pub is_archived: Option<bool>,
    /// Shared with this group.
    pub group: Option<i64>,
    /// Only workflows that this user owns or that are shared with a group of the user.
    pub visible_to: Option<String>,
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// What to count: the rows of the list of the same name without offset and limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CountQuery {
    Workflows(WorkflowFilter),
    Jobs(WorkflowId, JobFilter),
    Results(WorkflowId, ResultFilter),
    Files(WorkflowId, DataFilter),
    UserData(WorkflowId, DataFilter),
    Events(Option<WorkflowId>, EventFilter),
    Workers(WorkerFilter),
    Dependencies(WorkflowId),
}

/// A part of a workflow, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkflowPartId {
    Job(JobId),
    File(FileId),
    UserData(UserDataId),
    Result(ResultId),
    Requirements(RequirementsId),
    Handler(i64),
    Scheduler(i64),
    Action(i64),
    Event(EventId),
    Worker(WorkerId),
    Record(i64),
    Allocation(AllocationId),
}

/// A job with all fields of the contract except its relations ([`super::JobRelations`]).
#[derive(Clone, Debug, Serialize)]
pub struct JobDetails {
    #[serde(flatten)]
    pub row: JobRow,
    pub requirements_id: Option<RequirementsId>,
    pub worker_id: Option<WorkerId>,
    pub invocation_script: Option<String>,
    /// Environment: of the job group, overridden by the job's own.
    pub env: Vec<(String, String)>,
    pub stdio: Option<StdioSettings>,
    pub supports_termination: Option<bool>,
    pub failure_handler_id: Option<i64>,
    pub scheduler_id: Option<i64>,
    pub labels: Vec<String>,
}

/// A dependency between two jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyRow {
    pub job_id: JobId,
    pub job_name: String,
    pub depends_on_job_id: JobId,
    pub depends_on_job_name: String,
}

/// Ready jobs with the same resource requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyJobsRow {
    pub resources: Resources,
    pub jobs: u64,
}

/// Resource usage of a workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkSummary {
    /// Total over all attempts.
    pub wall: Duration,
    pub first_start: Option<Timestamp>,
    pub last_end: Option<Timestamp>,
}

/// A file to add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddFile {
    pub name: String,
    pub path: String,
    pub mtime_ns: Option<i64>,
}

/// User data to add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddUserData {
    pub name: String,
    pub data: Option<Value>,
    pub is_ephemeral: bool,
    /// Jobs that read it, and jobs that write it.
    pub consumers: Vec<JobId>,
    pub producers: Vec<JobId>,
}

/// Changes of user data; `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserDataUpdate {
    pub name: Option<String>,
    #[serde(
        default,
        deserialize_with = "super::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub data: Option<Option<Value>>,
    pub is_ephemeral: Option<bool>,
}

/// All settings of a workflow, for clients that replace them as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingsUpdate {
    pub settings: Option<WorkflowSettings>,
    pub env: Option<Vec<(String, String)>>,
    pub submission_dir: Option<String>,
}

/// The cause of executions that clients claimed.
pub const CLAIM_CAUSE: &str = "claim";

/// One execution of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRunRow {
    pub action_id: i64,
    /// Number of the execution, over all runs.
    pub attempt: Attempt,
    pub run_id: RunId,
    pub worker_id: Option<WorkerId>,
    /// Its cause.
    pub cause: String,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// `None` while it runs, and afterwards if it is unknown.
    pub return_code: Option<i32>,
    pub message: Option<String>,
}

/// A row that only clients use: the store does not interpret it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecordRow {
    pub id: i64,
    pub workflow_id: Option<WorkflowId>,
    /// `local_scheduler`, `ro_crate_entity`, `slurm_stats`, `remote_worker` …
    pub kind: String,
    /// A name that is unique for the type and workflow.
    pub name: Option<String>,
    pub data: Value,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
}

/// A result reported by a client for an attempt that Windlass did not observe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientResult {
    pub job: JobId,
    pub run: RunId,
    pub attempt: Attempt,
    pub worker: WorkerId,
    pub status: JobStatus,
    pub return_code: i32,
    pub ended_at: Timestamp,
    pub wall: Duration,
    pub peak_memory_bytes: Option<i64>,
    pub avg_memory_bytes: Option<i64>,
    pub peak_cpu_percent: Option<f64>,
    pub avg_cpu_percent: Option<f64>,
}
