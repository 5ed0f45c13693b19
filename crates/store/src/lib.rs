//! The books of Windlass: workflows, jobs, attempts. The only crate that contains SQL.
//!
//! [`Store`] methods are use cases, batch-first. The database is the truth: what a method acknowledged survives
//! `kill -9` and power loss. SQLite today ([`sqlite::SqliteStore`]); PostgreSQL joins behind the same trait and the same
//! conformance suite (`tests/store/conformance`).
//!
//! Who may run what in a database is settled by [`lock`], before anything is written: nothing here stops two engines
//! from running the same workflow, but a change that does not fit what is on disk is refused ([`Error::Conflict`]).

mod access;
mod allocations;
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
pub use datasets::{DatasetStore, DatasetWriter};
pub use disk_space::{DiskErrorKind, DiskSpace};
pub use error::{JobState, LockedObject, StoreError};
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
use windlass_types::failure_commands::{FailureCommandOutcome, TriageCommand};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, Resources, ResultId, RunId, Timestamp, UserDataId,
    WorkUnitStatusCounts, WorkflowId,
};

/// Called once the batch is on disk, or could not be put there, on whichever thread committed it (perhaps the caller's):
/// hand the news on, do no work.
pub type BatchCallback = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Changes that belong together: all of them are committed, or none.
#[derive(Debug)]
pub struct ChangeBatch {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub changes: std::sync::Arc<[WorkflowChange]>,
}

/// All that a database keeps: the books of workflows, which can also be had over a wire ([`Store`]), and those of requests
/// and datasets, which cannot.
pub trait StoreDatabase: Store + RequestStore + DatasetStore {}

impl<T: Store + RequestStore + DatasetStore> StoreDatabase for T {}

/// The use cases; those about workers are in [`Fleet`], about who may do what in [`Access`], about the parts of workflows
/// one by one in [`Parts`], about allocations in [`Allocations`]. Reads may be called from any thread and never wait for the writer.
pub trait Store: WorkerStore + AccessStore + WorkflowPartStore + AllocationStore {
    /// Creates a workflow and all its jobs in one transaction.
    fn create_workflow(
        &self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        now: Timestamp,
    ) -> Result<WorkflowId, StoreError>;

    /// Commits changes, alone or together with those of others; may return before or after that is done.
    fn submit(&self, batch: ChangeBatch, done: BatchCallback);

    /// Notes that the run is (again) under way and ends the note of an earlier end.
    fn begin_run(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError>;
    /// Notes that nothing more will happen by itself in the current run, because it is over or because it was canceled.
    /// Answers a request to cancel either way.
    fn end_run(&self, workflow: WorkflowId, canceled: bool, now: Timestamp) -> Result<(), StoreError>;
    /// Starts run + 1: `again` (jobs that no worker holds, in any other state) go to `uninitialized`, all that has still
    /// to run starts anew at attempt 1, and `is_canceled` is cleared. The caller decides on ready and blocked and submits
    /// that. Refused while a worker holds a job.
    fn begin_next_run(
        &self,
        workflow: WorkflowId,
        again: &[JobId],
        now: Timestamp,
    ) -> Result<RunId, StoreError>;

    /// Asks whoever runs the workflow to cancel it. The request survives until it is answered.
    fn request_cancel(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError>;
    fn cancel_requested(&self, workflow: WorkflowId) -> Result<bool, StoreError>;

    /// Workers that never said goodbye: of one workflow, or all there are.
    fn active_workers(&self, workflow: Option<WorkflowId>) -> Result<Vec<WorkerRow>, StoreError>;

    fn workflows(&self) -> Result<Vec<WorkflowRow>, StoreError>;
    fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError>;
    /// The newest workflow made from this spec text in this directory.
    fn find_by_digest(&self, digest: &str, submission_dir: &str) -> Result<Option<WorkflowRow>, StoreError>;
    fn load_jobs(&self, workflow: WorkflowId) -> Result<LoadedJobs, StoreError>;
    /// In the order asked for.
    fn load_job_commands(&self, jobs: &[JobId]) -> Result<Vec<JobCommand>, StoreError>;
    fn held_jobs(&self, workflow: WorkflowId) -> Result<Vec<HeldJob>, StoreError>;
    fn jobs(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobRow>, StoreError>;
    /// A job by its number alone.
    fn find_job(&self, id: JobId) -> Result<Option<JobRow>, StoreError>;
    fn results(&self, workflow: WorkflowId, filter: &ResultFilter) -> Result<Vec<ResultRow>, StoreError>;
    /// Attempts that ended badly, and what was made of them, in the order of the jobs.
    fn failures(&self, workflow: WorkflowId, filter: &FailureFilter) -> Result<Vec<FailureRow>, StoreError>;
    /// Failures of the current run by what they have in common; those with most open ones first.
    fn failure_groups(&self, workflow: WorkflowId) -> Result<Vec<FailureGroup>, StoreError>;
    fn decisions(
        &self,
        workflow: WorkflowId,
        filter: &DecisionFilter,
    ) -> Result<Vec<DecisionRow>, StoreError>;
    /// What was changed about jobs; of all times or of one.
    fn revisions(
        &self,
        workflow: WorkflowId,
        filter: RevisionFilter,
    ) -> Result<Vec<JobRevisionRow>, StoreError>;
    /// The units of a workflow that changed after `after_seq`, in the order in which they did; after 0: all of them.
    fn work_units(&self, workflow: WorkflowId, after_seq: u64) -> Result<Vec<WorkUnitStatusRow>, StoreError>;
    /// How many units stand how.
    fn work_unit_counts(&self, workflow: WorkflowId) -> Result<WorkUnitStatusCounts, StoreError>;
    /// Carries out what somebody wants done about jobs that failed or wait, while nobody runs the workflow.
    fn apply_triage_command(
        &self,
        workflow: WorkflowId,
        wanted: &TriageCommand,
        now: Timestamp,
    ) -> Result<Vec<FailureCommandOutcome>, StoreError>;
    /// Leaves a wish for whoever runs the workflow.
    fn add_pending_command(
        &self,
        workflow: WorkflowId,
        wanted: &TriageCommand,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    /// Wishes that nobody has answered.
    fn open_pending_commands(&self, workflow: WorkflowId) -> Result<Vec<i64>, StoreError>;
    /// As [`Store::carry_out`], by whoever runs the workflow.
    fn apply_pending_command(
        &self,
        workflow: WorkflowId,
        wish: i64,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    /// What came of it, once somebody has answered.
    fn pending_command_result(&self, wish: i64) -> Result<Option<PendingCommandResult>, StoreError>;
    /// Nobody is to answer it any more; `false`: somebody has.
    fn withdraw_pending_command(&self, wish: i64, now: Timestamp) -> Result<bool, StoreError>;
    /// Names by id, for showing what runs. In the order asked for; an unknown id gives an empty name.
    fn job_names(&self, jobs: &[JobId]) -> Result<Vec<String>, StoreError>;

    fn requirements(&self, workflow: WorkflowId) -> Result<Vec<RequirementsRow>, StoreError>;
    fn job_groups(&self, workflow: WorkflowId) -> Result<Vec<JobGroupRow>, StoreError>;
    fn handlers(&self, workflow: WorkflowId) -> Result<Vec<FailureHandlerRow>, StoreError>;
    fn schedulers(&self, workflow: WorkflowId) -> Result<Vec<SlurmSchedulerRow>, StoreError>;
    fn actions(&self, workflow: WorkflowId) -> Result<Vec<ActionRow>, StoreError>;

    fn files(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<WorkflowFileRow>, StoreError>;
    fn file(&self, id: FileId) -> Result<Option<WorkflowFileRow>, StoreError>;
    /// Who reads and writes which file, ascending by job, inputs first.
    fn job_files(&self, workflow: WorkflowId) -> Result<Vec<JobFileRow>, StoreError>;
    fn user_data(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<UserDataRow>, StoreError>;
    fn find_user_data(&self, id: UserDataId) -> Result<Option<UserDataRow>, StoreError>;
    /// Who reads and writes which user data, ascending by job, inputs first.
    fn job_user_data(&self, workflow: WorkflowId) -> Result<Vec<JobUserDataRow>, StoreError>;

    /// Notes something. What the store does itself it notes itself, in the same transaction.
    fn add_event(&self, event: &NewEvent, now: Timestamp) -> Result<EventId, StoreError>;
    /// Oldest first. `None`: of all workflows, and what outlived its workflow.
    fn events(&self, workflow: Option<WorkflowId>, filter: &EventFilter)
    -> Result<Vec<EventRow>, StoreError>;

    /// Adds jobs to the workflow of a job that runs. Asked again for the same by the same job, it adds nothing and says
    /// what there is; asked by a later attempt for others of the same names, it puts them in place of the earlier ones.
    /// Works while another process runs the workflow.
    fn spawn_jobs(&self, request: &SpawnRequest, now: Timestamp) -> Result<SpawnResult, StoreError>;
    /// Jobs that the jobs of these attempts had added in earlier ones and did not ask for this time, and what those had
    /// added in turn. They are not to run.
    fn jobs_not_respawned(&self, callers: &[AttemptKey]) -> Result<Vec<JobId>, StoreError>;
    /// The jobs of a workflow that have added others, ascending.
    fn spawning_jobs(&self, workflow: WorkflowId) -> Result<Vec<JobId>, StoreError>;
    /// The jobs that were added after `after`, usually none: then this is cheap. Their classes are numbered as
    /// [`Store::load_jobs`] numbers them, and so are the jobs in their edges: those before come first.
    fn jobs_after(&self, workflow: WorkflowId, after: JobId) -> Result<LoadedJobs, StoreError>;
    /// A number that changes when somebody else has committed something, and not by what this store commits. Cheaper
    /// than any look at the tables. `None`: a commit is under way and `wait` is not wanted.
    fn foreign_commit_count(&self, wait: bool) -> Result<Option<i64>, StoreError>;

    /// Of each completed job the attempt that completed it, with the files as it saw them; ascending by job. A reused job
    /// has the record of the one it was reused from, and none when that was deleted.
    fn completion_records(&self, workflow: WorkflowId) -> Result<Vec<CompletionRecord>, StoreError>;

    fn update_workflow(
        &self,
        id: WorkflowId,
        update: &WorkflowUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    fn set_archived(&self, ids: &[WorkflowId], is_archived: bool, now: Timestamp) -> Result<(), StoreError>;
    /// Deletes all that is known of it. Takes the workflow's lock, so that nobody runs it meanwhile; refused while
    /// somebody does, or while a worker of it was not seen to end.
    fn delete_workflow(&self, id: WorkflowId, now: Timestamp) -> Result<(), StoreError>;
    /// Changes what jobs ask for from their next attempt on. Refused while a worker holds a job.
    fn change_requirements(
        &self,
        workflow: WorkflowId,
        changes: &[RequirementsChange],
        now: Timestamp,
    ) -> Result<Vec<RequirementsId>, StoreError>;

    /// Gives jobs of one priority another one, pair after pair, all or none. Jobs that workers hold are not started again
    /// for it. How many jobs that were.
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
    /// The event of it keeps the old value.
    fn set_user_data(&self, id: UserDataId, data: Option<&Value>, now: Timestamp) -> Result<(), StoreError>;
    fn delete_user_data(&self, id: UserDataId, now: Timestamp) -> Result<(), StoreError>;

    // ---- by hand; refused while somebody runs the workflow ----

    /// Adds jobs from outside. What they wait for is what they name and whoever writes what they read; whoever reads what
    /// they write waits for them.
    fn add_jobs(
        &self,
        workflow: WorkflowId,
        jobs: &[AddJob],
        now: Timestamp,
    ) -> Result<Vec<JobId>, StoreError>;
    /// Refused for a job that a worker holds. Says what changed.
    fn update_job(
        &self,
        workflow: WorkflowId,
        job: JobId,
        update: &JobUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, StoreError>;
    /// With their results. All or none; refused where a job that stays, or an action, waits for one of them.
    fn delete_jobs(&self, workflow: WorkflowId, jobs: &[JobId], now: Timestamp) -> Result<(), StoreError>;
    /// What hangs on one job, without looking at any other.
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
    /// Refused while a job reads or writes it. The file itself stays.
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
    /// Refused while a job has them.
    fn delete_requirements(&self, id: RequirementsId, now: Timestamp) -> Result<(), StoreError>;

    /// An action that was carried out is to be so once more, as soon as somebody runs the workflow.
    fn retry_action(&self, workflow: WorkflowId, id: i64, now: Timestamp) -> Result<(), StoreError>;

    /// The job stays as it is; only what is known of the attempt goes.
    fn delete_result(&self, id: ResultId, now: Timestamp) -> Result<(), StoreError>;
    /// Another event says so.
    fn delete_event(&self, id: EventId, now: Timestamp) -> Result<(), StoreError>;

    /// All of a workflow in the shape of a file.
    fn export_workflow(
        &self,
        id: WorkflowId,
        options: ExportOptions,
        now: Timestamp,
    ) -> Result<WorkflowExport, StoreError>;
    /// Makes a workflow from a file, with ids of its own. Where the file holds no results, or they are not wanted, nothing
    /// of it has run yet.
    fn import_workflow(
        &self,
        export: &WorkflowExport,
        options: &ImportOptions,
        now: Timestamp,
    ) -> Result<WorkflowId, StoreError>;

    // ---- who may do what ----

    /// Refused while somebody else has it ([`Error::Busy`]); [`lock::wait`] waits. Whoever has [`Lock::Server`] has every
    /// workflow: single ones are then given without asking anybody.
    fn lock(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError>;
    /// Who runs the workflow now, if anybody does: a `run` of it, or the server.
    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError>;
    fn location(&self) -> StoreLocation;
    /// Why the database takes no changes, if the last ones failed because of that: a full disk, for example.
    fn write_failure(&self) -> Option<StoreError> {
        None
    }
    /// The same store, where everything is noted as done by `actor`.
    fn acting_as(&self, actor: &str) -> std::sync::Arc<dyn Store>;
}
