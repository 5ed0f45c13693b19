//! Storage of workflows, jobs and attempts. The only crate that contains SQL.
//!
//! [`Store`] methods are use cases, batch-first. The database is the source of truth: what a method
//! acknowledged survives `kill -9` and power loss. SQLite ([`sqlite::SqliteStore`]) and PostgreSQL
//! ([`postgres`]) implement the same trait and pass the same conformance suite (`tests/store/conformance`).
//!
//! Locks ([`lock`]) decide who may run a workflow before anything is written: the store does not stop two
//! engines from running the same workflow, but rejects a change that does not match the stored state
//! ([`StoreError::Conflict`]).

mod access;
mod allocations;
mod change_log;
mod datasets;
mod db;
mod disk_space;
mod error;
#[doc(hidden)]
pub mod fault_injection;
mod leader_lease;
mod location;
pub mod lock;
pub mod maintenance;
mod migration;
pub mod model;
pub mod postgres;
mod requests;
pub mod rpc;
mod sql;
mod sql_store;
pub mod sqlite;
mod workers;
mod workflow_parts;
mod writer;

pub use access::AccessStore;
pub use allocations::AllocationStore;
pub use datasets::{AddedFiles, DatasetEditor, DatasetStore};
pub use disk_space::{DiskErrorKind, DiskSpace};
pub use error::{JobAttemptState, LockedObject, StoreError};
pub use leader_lease::LeaderLease;
pub use location::{StoreLocation, open_store};
pub use requests::RequestStore;
pub use workers::WorkerStore;
pub use workflow_parts::WorkflowPartStore;

use lock::{LockGuard, LockHolder, LockScope};
use model::{
    ActionRow, AddJob, CompletionRecord, DataFilter, DecisionFilter, DecisionRow, EventFilter, EventRow,
    ExportOptions, FailureFilter, FailureGroup, FailureHandlerRow, FailureRow, FieldChange, FileUpdate,
    HeldJob, ImportOptions, JobCommand, JobFileRow, JobFilter, JobGroupRow, JobRelations, JobRevisionRow,
    JobRow, JobSource, JobUpdate, JobUserDataRow, LoadedJobs, NewEvent, NewUserData, NewWorkflow,
    PendingCommandResult, RequirementsChange, RequirementsRow, RequirementsUpdate, ResultFilter, ResultRow,
    RevisionFilter, SlurmSchedulerRow, SpawnRequest, SpawnResult, UserDataRow, WorkUnitStatusRow, WorkerRow,
    WorkflowExport, WorkflowFileRow, WorkflowRow, WorkflowUpdate,
};
use serde_json::Value;
use windlass_core::change::WorkflowChange;
use windlass_types::failure_commands::{FailureCommandOutcome, PendingCommand};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, Resources, ResultId, RunId, Timestamp, UserDataId,
    WorkUnitStatusCounts, WorkflowId,
};

/// Called after the commit of a batch or its failure, on the thread that committed it (possibly the caller's):
/// it should pass the result on and return quickly.
pub type BatchCallback = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Changes that are committed together or not at all.
#[derive(Debug)]
pub struct ChangeBatch {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub changes: std::sync::Arc<[WorkflowChange]>,
}

/// The complete database: workflows, which are also available over RPC ([`Store`]), and requests and datasets,
/// which are not.
pub trait StoreDatabase: Store + RequestStore + DatasetStore {}

impl<T: Store + RequestStore + DatasetStore> StoreDatabase for T {}

/// Storage of workflows; see [`WorkerStore`] for workers, [`AccessStore`] for permissions,
/// [`WorkflowPartStore`] for parts of workflows, [`AllocationStore`] for allocations. Reads may be called from
/// any thread and never wait for the writer.
pub trait Store: WorkerStore + AccessStore + WorkflowPartStore + AllocationStore {
    /// Creates a workflow and all its jobs in one transaction.
    fn create_workflow(
        &self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        now: Timestamp,
    ) -> Result<WorkflowId, StoreError>;

    /// Commits changes, alone or together with other batches; may return before or after the commit.
    fn submit(&self, batch: ChangeBatch, done: BatchCallback);

    /// Records that the run is active (again) and clears an earlier end.
    fn begin_run(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError>;
    /// Records that the current run has ended or was canceled. Either way a cancellation request is answered.
    fn end_run(&self, workflow: WorkflowId, canceled: bool, now: Timestamp) -> Result<(), StoreError>;
    /// Starts run + 1: the jobs in `again` (in any state, not held by workers) become `uninitialized`, all jobs
    /// that still have to run restart at attempt 1, and `is_canceled` is cleared. The caller then decides which
    /// are ready or blocked and submits that. Rejected while a worker holds a job.
    fn begin_next_run(
        &self,
        workflow: WorkflowId,
        again: &[JobId],
        now: Timestamp,
    ) -> Result<RunId, StoreError>;

    /// Requests cancellation by the process that runs the workflow. The request persists until it is answered.
    fn request_cancel(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError>;
    fn cancel_requested(&self, workflow: WorkflowId) -> Result<bool, StoreError>;

    /// Returns workers whose end is not recorded, of one workflow or of all.
    fn active_workers(&self, workflow: Option<WorkflowId>) -> Result<Vec<WorkerRow>, StoreError>;

    fn workflows(&self) -> Result<Vec<WorkflowRow>, StoreError>;
    fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError>;
    /// Returns the newest workflow made from this spec text in this directory.
    fn find_by_digest(&self, digest: &str, submission_dir: &str) -> Result<Option<WorkflowRow>, StoreError>;
    fn load_jobs(&self, workflow: WorkflowId) -> Result<LoadedJobs, StoreError>;
    /// In the order of the ids given.
    fn load_job_commands(&self, jobs: &[JobId]) -> Result<Vec<JobCommand>, StoreError>;
    fn held_jobs(&self, workflow: WorkflowId) -> Result<Vec<HeldJob>, StoreError>;
    fn jobs(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobRow>, StoreError>;
    /// Returns a job by its id alone.
    fn find_job(&self, id: JobId) -> Result<Option<JobRow>, StoreError>;
    fn results(&self, workflow: WorkflowId, filter: &ResultFilter) -> Result<Vec<ResultRow>, StoreError>;
    /// Returns failures in the order of the jobs.
    fn failures(&self, workflow: WorkflowId, filter: &FailureFilter) -> Result<Vec<FailureRow>, StoreError>;
    /// Returns failure groups of the current run; those with the most open failures first.
    fn failure_groups(&self, workflow: WorkflowId) -> Result<Vec<FailureGroup>, StoreError>;
    fn decisions(
        &self,
        workflow: WorkflowId,
        filter: &DecisionFilter,
    ) -> Result<Vec<DecisionRow>, StoreError>;
    /// Returns revisions of jobs: all, or one.
    fn revisions(
        &self,
        workflow: WorkflowId,
        filter: RevisionFilter,
    ) -> Result<Vec<JobRevisionRow>, StoreError>;
    /// Returns the work units that changed after `after_seq`, in the order of the changes; after 0: all of
    /// them.
    fn work_units(&self, workflow: WorkflowId, after_seq: u64) -> Result<Vec<WorkUnitStatusRow>, StoreError>;
    /// Counts work units by status.
    fn work_unit_counts(&self, workflow: WorkflowId) -> Result<WorkUnitStatusCounts, StoreError>;
    /// Applies failure commands while no process runs the workflow.
    fn apply_triage_command(
        &self,
        workflow: WorkflowId,
        wanted: &PendingCommand,
        now: Timestamp,
    ) -> Result<Vec<FailureCommandOutcome>, StoreError>;
    /// Adds a pending command for the process that runs the workflow.
    fn add_pending_command(
        &self,
        workflow: WorkflowId,
        wanted: &PendingCommand,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    /// Returns pending commands without a result.
    fn open_pending_commands(&self, workflow: WorkflowId) -> Result<Vec<i64>, StoreError>;
    /// As [`Store::apply_triage_command`], by the process that runs the workflow.
    fn apply_pending_command(
        &self,
        workflow: WorkflowId,
        command: i64,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    /// Returns the result of a pending command, once there is one.
    fn pending_command_result(&self, command: i64) -> Result<Option<PendingCommandResult>, StoreError>;
    /// Withdraws a pending command; `false`: it already has a result.
    fn withdraw_pending_command(&self, command: i64, now: Timestamp) -> Result<bool, StoreError>;
    /// Returns names by id, for display, in the order of the ids; an unknown id gives an empty name.
    fn job_names(&self, jobs: &[JobId]) -> Result<Vec<String>, StoreError>;

    fn requirements(&self, workflow: WorkflowId) -> Result<Vec<RequirementsRow>, StoreError>;
    fn job_groups(&self, workflow: WorkflowId) -> Result<Vec<JobGroupRow>, StoreError>;
    fn handlers(&self, workflow: WorkflowId) -> Result<Vec<FailureHandlerRow>, StoreError>;
    fn schedulers(&self, workflow: WorkflowId) -> Result<Vec<SlurmSchedulerRow>, StoreError>;
    fn actions(&self, workflow: WorkflowId) -> Result<Vec<ActionRow>, StoreError>;

    fn files(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<WorkflowFileRow>, StoreError>;
    fn file(&self, id: FileId) -> Result<Option<WorkflowFileRow>, StoreError>;
    /// Returns which job reads and writes which file, ascending by job, inputs first.
    fn job_files(&self, workflow: WorkflowId) -> Result<Vec<JobFileRow>, StoreError>;
    fn user_data(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<UserDataRow>, StoreError>;
    fn find_user_data(&self, id: UserDataId) -> Result<Option<UserDataRow>, StoreError>;
    /// Returns which job reads and writes which user data, ascending by job, inputs first.
    fn job_user_data(&self, workflow: WorkflowId) -> Result<Vec<JobUserDataRow>, StoreError>;

    /// Adds an event. Changes made by the store are recorded by itself, in the same transaction.
    fn add_event(&self, event: &NewEvent, now: Timestamp) -> Result<EventId, StoreError>;
    /// Oldest first. `None`: of all workflows, including events of deleted workflows.
    fn events(&self, workflow: Option<WorkflowId>, filter: &EventFilter)
    -> Result<Vec<EventRow>, StoreError>;

    /// Adds jobs to the workflow of a running job. A repeated call with the same jobs by the same job adds
    /// nothing and returns the existing ones; a call by a later attempt with other jobs of the same names
    /// replaces the earlier ones. Works while another process runs the workflow.
    fn spawn_jobs(&self, request: &SpawnRequest, now: Timestamp) -> Result<SpawnResult, StoreError>;
    /// Returns jobs that earlier attempts of these jobs added and these attempts did not, and the jobs that
    /// those added in turn. They must not run.
    fn jobs_not_respawned(&self, callers: &[AttemptKey]) -> Result<Vec<JobId>, StoreError>;
    /// Returns the jobs of a workflow that have added jobs, ascending.
    fn spawning_jobs(&self, workflow: WorkflowId) -> Result<Vec<JobId>, StoreError>;
    /// Returns the jobs added after `after`; cheap if there are none. Their job groups are numbered as in
    /// [`Store::load_jobs`], and so are the jobs in their edges: earlier jobs come first.
    fn jobs_after(&self, workflow: WorkflowId, after: JobId) -> Result<LoadedJobs, StoreError>;
    /// Returns a number that changes when another store has committed something, but not by commits of this
    /// one. Cheaper than reading any table. `None`: a commit is in progress and `wait` is not set.
    fn foreign_commit_count(&self, wait: bool) -> Result<Option<i64>, StoreError>;

    /// Returns for each completed job the attempt that completed it, with the state of its files; ascending by
    /// job. A reused job has the record of the original job, and none if that was deleted.
    fn completion_records(&self, workflow: WorkflowId) -> Result<Vec<CompletionRecord>, StoreError>;

    fn update_workflow(
        &self,
        id: WorkflowId,
        update: &WorkflowUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    fn set_archived(&self, ids: &[WorkflowId], is_archived: bool, now: Timestamp) -> Result<(), StoreError>;
    /// Deletes a workflow with all its records. Takes the lock of the workflow; rejected while another process
    /// holds it, or while the end of one of its workers is not confirmed.
    fn delete_workflow(&self, id: WorkflowId, now: Timestamp) -> Result<(), StoreError>;
    /// Changes the resource requests of jobs from their next attempt on. Rejected while a worker holds a job.
    fn change_requirements(
        &self,
        workflow: WorkflowId,
        changes: &[RequirementsChange],
        now: Timestamp,
    ) -> Result<Vec<RequirementsId>, StoreError>;

    /// Replaces priorities by pairs of old and new value, all or none. Jobs that workers hold are not
    /// restarted. Returns the number of changed jobs.
    fn change_priorities(
        &self,
        workflow: WorkflowId,
        changes: &[(i32, i32)],
        now: Timestamp,
    ) -> Result<usize, StoreError>;

    fn add_user_data(
        &self,
        workflow: WorkflowId,
        new: &NewUserData<'_>,
        now: Timestamp,
    ) -> Result<UserDataId, StoreError>;
    /// The event records the old value.
    fn set_user_data(&self, id: UserDataId, data: Option<&Value>, now: Timestamp) -> Result<(), StoreError>;
    fn delete_user_data(&self, id: UserDataId, now: Timestamp) -> Result<(), StoreError>;

    // ---- manual edits; rejected while a process runs the workflow ----

    /// Adds jobs to an existing workflow. They depend on the jobs they name and on the producers of their
    /// inputs; consumers of their outputs depend on them.
    fn add_jobs(
        &self,
        workflow: WorkflowId,
        jobs: &[AddJob],
        now: Timestamp,
    ) -> Result<Vec<JobId>, StoreError>;
    /// Rejected for a job that a worker holds. Returns what changed.
    fn update_job(
        &self,
        workflow: WorkflowId,
        job: JobId,
        update: &JobUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, StoreError>;
    /// Deletes jobs with their results, all or none; rejected if a remaining job or an action waits for one of
    /// them.
    fn delete_jobs(&self, workflow: WorkflowId, jobs: &[JobId], now: Timestamp) -> Result<(), StoreError>;
    /// Returns the relations of one job without reading other jobs.
    fn job_relations(&self, job: JobId) -> Result<JobRelations, StoreError>;

    fn add_file(
        &self,
        workflow: WorkflowId,
        name: &str,
        path: &str,
        now: Timestamp,
    ) -> Result<FileId, StoreError>;
    fn update_file(
        &self,
        id: FileId,
        update: &FileUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, StoreError>;
    /// Rejected while a job reads or writes it. The file on disk stays.
    fn delete_file(&self, id: FileId, now: Timestamp) -> Result<(), StoreError>;

    fn add_requirements(
        &self,
        workflow: WorkflowId,
        name: &str,
        resources: &Resources,
        now: Timestamp,
    ) -> Result<RequirementsId, StoreError>;
    fn update_requirements(
        &self,
        id: RequirementsId,
        update: &RequirementsUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, StoreError>;
    /// Rejected while a job uses them.
    fn delete_requirements(&self, id: RequirementsId, now: Timestamp) -> Result<(), StoreError>;

    /// Makes an executed action run once more, as soon as a process runs the workflow.
    fn retry_action(&self, workflow: WorkflowId, id: i64, now: Timestamp) -> Result<(), StoreError>;

    /// Deletes the record of an attempt; the job stays as it is.
    fn delete_result(&self, id: ResultId, now: Timestamp) -> Result<(), StoreError>;
    /// The deletion is recorded as another event.
    fn delete_event(&self, id: EventId, now: Timestamp) -> Result<(), StoreError>;

    /// Exports a whole workflow for a file.
    fn export_workflow(
        &self,
        id: WorkflowId,
        options: ExportOptions,
        now: Timestamp,
    ) -> Result<WorkflowExport, StoreError>;
    /// Creates a workflow from an exported file, with new ids. Without results in the file, or if they are not
    /// wanted, the workflow starts from the beginning.
    fn import_workflow(
        &self,
        export: &WorkflowExport,
        options: &ImportOptions,
        now: Timestamp,
    ) -> Result<WorkflowId, StoreError>;

    // ---- locks ----

    /// Acquires a lock. Rejected while another process holds it ([`StoreError::Busy`]); [`lock::wait_for_lock`]
    /// waits. The holder of [`LockScope::Server`] owns every workflow and gets their locks without any check.
    fn lock(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError>;
    /// Returns the process that runs the workflow, if any: a `windlass run` or the server.
    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError>;
    fn location(&self) -> StoreLocation;
    /// Returns why the database accepts no changes, if the last ones failed because of it: a full disk, for
    /// example.
    fn write_failure(&self) -> Option<StoreError> {
        None
    }
    /// Returns the same store with all changes recorded as made by `actor`.
    fn acting_as(&self, actor: &str) -> std::sync::Arc<dyn Store>;
}
