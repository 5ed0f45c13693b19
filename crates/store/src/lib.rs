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
mod books;
mod datasets;
mod db;
mod error;
#[doc(hidden)]
pub mod faults;
mod fleet;
mod location;
pub mod lock;
mod migration;
pub mod model;
mod parts;
pub mod postgres;
mod pulse;
mod requests;
mod space;
mod sql;
pub mod sqlite;
pub mod upkeep;
pub mod wire;
mod writer;

pub use access::Access;
pub use allocations::Allocations;
pub use datasets::{DatasetWriter, Datasets};
pub use error::{Error, JobState, Locked};
pub use fleet::Fleet;
pub use location::{Location, open};
pub use parts::Parts;
pub use pulse::Pulse;
pub use requests::Requests;
pub use space::{DiskFault, Space};

use lock::{Holder, Lock, LockGuard};
use model::{
    ActionRow, AddJob, DataFilter, DecisionFilter, DecisionRow, EventFilter, EventRow, Export, ExportOptions,
    FailureFilter, FailureGroup, FailureRow, FieldChange, FileRow, FileUpdate, HandlerRow, HeldJob,
    ImportOptions, JobCommand, JobFileRow, JobFilter, JobRelations, JobRow, JobSource, JobUpdate,
    JobUserDataRow, KindRow, LastRecord, LoadedJobs, NewEvent, NewUserData, NewWorkflow, RequirementsChange,
    RequirementsRow, RequirementsUpdate, ResultFilter, ResultRow, RevisionFilter, RevisionRow, SchedulerRow,
    SpawnRequest, Spawned, UnitRow, UserDataRow, WishAnswer, WorkerRow, WorkflowRow, WorkflowUpdate,
};
use serde_json::Value;
use windlass_core::change::Change;
use windlass_types::orders::{Outcome, Wanted};
use windlass_types::work::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, Resources, ResultId, RunId, Timestamp, UnitCounts, UserDataId,
    WorkflowId,
};

/// Called once the batch is on disk, or could not be put there, on whichever thread committed it (perhaps the caller's):
/// hand the news on, do no work.
pub type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Changes that belong together: all of them are committed, or none.
#[derive(Debug)]
pub struct Batch {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub changes: std::sync::Arc<[Change]>,
}

/// All that a database keeps: the books of workflows, which can also be had over a wire ([`Store`]), and those of requests
/// and datasets, which cannot.
pub trait Database: Store + Requests + Datasets {}

impl<T: Store + Requests + Datasets> Database for T {}

/// The use cases; those about workers are in [`Fleet`], about who may do what in [`Access`], about the parts of workflows
/// one by one in [`Parts`], about allocations in [`Allocations`]. Reads may be called from any thread and never wait for the writer.
pub trait Store: Fleet + Access + Parts + Allocations {
    /// Creates a workflow and all its jobs in one transaction.
    fn create_workflow(
        &self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        now: Timestamp,
    ) -> Result<WorkflowId, Error>;

    /// Commits changes, alone or together with those of others; may return before or after that is done.
    fn submit(&self, batch: Batch, done: Done);

    /// Notes that the run is (again) under way and ends the note of an earlier end.
    fn begin_run(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error>;
    /// Notes that nothing more will happen by itself in the current run, because it is over or because it was canceled.
    /// Answers a request to cancel either way.
    fn end_run(&self, workflow: WorkflowId, canceled: bool, now: Timestamp) -> Result<(), Error>;
    /// Starts run + 1: `again` (jobs that no worker holds, in any other state) go to `uninitialized`, all that has still
    /// to run starts anew at attempt 1, and `is_canceled` is cleared. The caller decides on ready and blocked and submits
    /// that. Refused while a worker holds a job.
    fn begin_next_run(&self, workflow: WorkflowId, again: &[JobId], now: Timestamp) -> Result<RunId, Error>;

    /// Asks whoever runs the workflow to cancel it. The request survives until it is answered.
    fn request_cancel(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error>;
    fn cancel_requested(&self, workflow: WorkflowId) -> Result<bool, Error>;

    /// Workers that never said goodbye: of one workflow, or all there are.
    fn active_workers(&self, workflow: Option<WorkflowId>) -> Result<Vec<WorkerRow>, Error>;

    fn workflows(&self) -> Result<Vec<WorkflowRow>, Error>;
    fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, Error>;
    /// The newest workflow made from this spec text in this directory.
    fn find_by_digest(&self, digest: &str, submission_dir: &str) -> Result<Option<WorkflowRow>, Error>;
    fn load_jobs(&self, workflow: WorkflowId) -> Result<LoadedJobs, Error>;
    /// In the order asked for.
    fn commands(&self, jobs: &[JobId]) -> Result<Vec<JobCommand>, Error>;
    fn held_jobs(&self, workflow: WorkflowId) -> Result<Vec<HeldJob>, Error>;
    fn jobs(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobRow>, Error>;
    /// A job by its number alone.
    fn find_job(&self, id: JobId) -> Result<Option<JobRow>, Error>;
    fn results(&self, workflow: WorkflowId, filter: &ResultFilter) -> Result<Vec<ResultRow>, Error>;
    /// Attempts that ended badly, and what was made of them, in the order of the jobs.
    fn failures(&self, workflow: WorkflowId, filter: &FailureFilter) -> Result<Vec<FailureRow>, Error>;
    /// Failures of the current run by what they have in common; those with most open ones first.
    fn failure_groups(&self, workflow: WorkflowId) -> Result<Vec<FailureGroup>, Error>;
    fn decisions(&self, workflow: WorkflowId, filter: &DecisionFilter) -> Result<Vec<DecisionRow>, Error>;
    /// What was changed about jobs; of all times or of one.
    fn revisions(&self, workflow: WorkflowId, filter: RevisionFilter) -> Result<Vec<RevisionRow>, Error>;
    /// The units of a workflow that changed after `after_seq`, in the order in which they did; after 0: all of them.
    fn units(&self, workflow: WorkflowId, after_seq: u64) -> Result<Vec<UnitRow>, Error>;
    /// How many units stand how.
    fn unit_counts(&self, workflow: WorkflowId) -> Result<UnitCounts, Error>;
    /// Carries out what somebody wants done about jobs that failed or wait, while nobody runs the workflow.
    fn carry_out(&self, workflow: WorkflowId, wanted: &Wanted, now: Timestamp)
    -> Result<Vec<Outcome>, Error>;
    /// Leaves a wish for whoever runs the workflow.
    fn add_wish(&self, workflow: WorkflowId, wanted: &Wanted, now: Timestamp) -> Result<i64, Error>;
    /// Wishes that nobody has answered.
    fn open_wishes(&self, workflow: WorkflowId) -> Result<Vec<i64>, Error>;
    /// As [`Store::carry_out`], by whoever runs the workflow.
    fn grant_wish(&self, workflow: WorkflowId, wish: i64, now: Timestamp) -> Result<(), Error>;
    /// What came of it, once somebody has answered.
    fn wish_answer(&self, wish: i64) -> Result<Option<WishAnswer>, Error>;
    /// Nobody is to answer it any more; `false`: somebody has.
    fn withdraw_wish(&self, wish: i64, now: Timestamp) -> Result<bool, Error>;
    /// Names by id, for showing what runs. In the order asked for; an unknown id gives an empty name.
    fn job_names(&self, jobs: &[JobId]) -> Result<Vec<String>, Error>;

    fn requirements(&self, workflow: WorkflowId) -> Result<Vec<RequirementsRow>, Error>;
    fn kinds(&self, workflow: WorkflowId) -> Result<Vec<KindRow>, Error>;
    fn handlers(&self, workflow: WorkflowId) -> Result<Vec<HandlerRow>, Error>;
    fn schedulers(&self, workflow: WorkflowId) -> Result<Vec<SchedulerRow>, Error>;
    fn actions(&self, workflow: WorkflowId) -> Result<Vec<ActionRow>, Error>;

    fn files(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<FileRow>, Error>;
    fn file(&self, id: FileId) -> Result<Option<FileRow>, Error>;
    /// Who reads and writes which file, ascending by job, inputs first.
    fn job_files(&self, workflow: WorkflowId) -> Result<Vec<JobFileRow>, Error>;
    fn user_data(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<UserDataRow>, Error>;
    fn user_data_piece(&self, id: UserDataId) -> Result<Option<UserDataRow>, Error>;
    /// Who reads and writes which user data, ascending by job, inputs first.
    fn job_user_data(&self, workflow: WorkflowId) -> Result<Vec<JobUserDataRow>, Error>;

    /// Notes something. What the store does itself it notes itself, in the same transaction.
    fn add_event(&self, event: &NewEvent, now: Timestamp) -> Result<EventId, Error>;
    /// Oldest first. `None`: of all workflows, and what outlived its workflow.
    fn events(&self, workflow: Option<WorkflowId>, filter: &EventFilter) -> Result<Vec<EventRow>, Error>;

    /// Adds jobs to the workflow of a job that runs. Asked again for the same by the same job, it adds nothing and says
    /// what there is; asked by a later attempt for others of the same names, it puts them in place of the earlier ones.
    /// Works while another process runs the workflow.
    fn spawn(&self, request: &SpawnRequest, now: Timestamp) -> Result<Spawned, Error>;
    /// Jobs that the jobs of these attempts had added in earlier ones and did not ask for this time, and what those had
    /// added in turn. They are not to run.
    fn left_behind(&self, callers: &[AttemptKey]) -> Result<Vec<JobId>, Error>;
    /// The jobs of a workflow that have added others, ascending.
    fn spawners(&self, workflow: WorkflowId) -> Result<Vec<JobId>, Error>;
    /// The jobs that were added after `after`, usually none: then this is cheap. Their classes are numbered as
    /// [`Store::load_jobs`] numbers them, and so are the jobs in their edges: those before come first.
    fn jobs_after(&self, workflow: WorkflowId, after: JobId) -> Result<LoadedJobs, Error>;
    /// A number that changes when somebody else has committed something, and not by what this store commits. Cheaper
    /// than any look at the tables. `None`: a commit is under way and `wait` is not wanted.
    fn foreign_commits(&self, wait: bool) -> Result<Option<i64>, Error>;

    /// Of each completed job the attempt that completed it, with the files as it saw them; ascending by job. A reused job
    /// has the record of the one it was reused from, and none when that was deleted.
    fn last_records(&self, workflow: WorkflowId) -> Result<Vec<LastRecord>, Error>;

    fn update_workflow(&self, id: WorkflowId, update: &WorkflowUpdate, now: Timestamp) -> Result<(), Error>;
    fn archive(&self, ids: &[WorkflowId], is_archived: bool, now: Timestamp) -> Result<(), Error>;
    /// Deletes all that is known of it. Takes the workflow's lock, so that nobody runs it meanwhile; refused while
    /// somebody does, or while a worker of it was not seen to end.
    fn delete_workflow(&self, id: WorkflowId, now: Timestamp) -> Result<(), Error>;
    /// Changes what jobs ask for from their next attempt on. Refused while a worker holds a job.
    fn change_requirements(
        &self,
        workflow: WorkflowId,
        changes: &[RequirementsChange],
        now: Timestamp,
    ) -> Result<Vec<RequirementsId>, Error>;

    /// Gives jobs of one priority another one, pair after pair, all or none. Refused while a worker holds a job. How many jobs that
    /// were.
    fn change_priorities(
        &self,
        workflow: WorkflowId,
        changes: &[(i32, i32)],
        now: Timestamp,
    ) -> Result<usize, Error>;

    fn add_user_data(
        &self,
        workflow: WorkflowId,
        new: &NewUserData<'_>,
        now: Timestamp,
    ) -> Result<UserDataId, Error>;
    /// The event of it keeps the old value.
    fn set_user_data(&self, id: UserDataId, data: Option<&Value>, now: Timestamp) -> Result<(), Error>;
    fn delete_user_data(&self, id: UserDataId, now: Timestamp) -> Result<(), Error>;

    // ---- by hand; refused while somebody runs the workflow ----

    /// Adds jobs from outside. What they wait for is what they name and whoever writes what they read; whoever reads what
    /// they write waits for them.
    fn add_jobs(&self, workflow: WorkflowId, jobs: &[AddJob], now: Timestamp) -> Result<Vec<JobId>, Error>;
    /// Refused for a job that a worker holds. Says what changed.
    fn update_job(
        &self,
        workflow: WorkflowId,
        job: JobId,
        update: &JobUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, Error>;
    /// With their results. All or none; refused where a job that stays, or an action, waits for one of them.
    fn delete_jobs(&self, workflow: WorkflowId, jobs: &[JobId], now: Timestamp) -> Result<(), Error>;
    /// What hangs on one job, without looking at any other.
    fn job_relations(&self, job: JobId) -> Result<JobRelations, Error>;

    fn add_file(&self, workflow: WorkflowId, name: &str, path: &str, now: Timestamp)
    -> Result<FileId, Error>;
    fn update_file(&self, id: FileId, update: &FileUpdate, now: Timestamp)
    -> Result<Vec<FieldChange>, Error>;
    /// Refused while a job reads or writes it. The file itself stays.
    fn delete_file(&self, id: FileId, now: Timestamp) -> Result<(), Error>;

    fn add_requirements(
        &self,
        workflow: WorkflowId,
        name: &str,
        resources: &Resources,
        now: Timestamp,
    ) -> Result<RequirementsId, Error>;
    fn update_requirements(
        &self,
        id: RequirementsId,
        update: &RequirementsUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, Error>;
    /// Refused while a job has them.
    fn delete_requirements(&self, id: RequirementsId, now: Timestamp) -> Result<(), Error>;

    /// An action that was carried out is to be so once more, as soon as somebody runs the workflow.
    fn retry_action(&self, workflow: WorkflowId, id: i64, now: Timestamp) -> Result<(), Error>;

    /// The job stays as it is; only what is known of the attempt goes.
    fn delete_result(&self, id: ResultId, now: Timestamp) -> Result<(), Error>;
    /// Another event says so.
    fn delete_event(&self, id: EventId, now: Timestamp) -> Result<(), Error>;

    /// All of a workflow in the shape of a file.
    fn export(&self, id: WorkflowId, options: ExportOptions, now: Timestamp) -> Result<Export, Error>;
    /// Makes a workflow from a file, with ids of its own. Where the file holds no results, or they are not wanted, nothing
    /// of it has run yet.
    fn import(&self, export: &Export, options: &ImportOptions, now: Timestamp) -> Result<WorkflowId, Error>;

    // ---- who may do what ----

    /// Refused while somebody else has it ([`Error::Busy`]); [`lock::wait`] waits. Whoever has [`Lock::Server`] has every
    /// workflow: single ones are then given without asking anybody.
    fn lock(&self, what: Lock, now: Timestamp) -> Result<LockGuard, Error>;
    /// Who runs the workflow now, if anybody does: a `run` of it, or the server.
    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<Holder>, Error>;
    fn location(&self) -> Location;
    /// Why the database takes no changes, if the last ones failed because of that: a full disk, for example.
    fn trouble(&self) -> Option<Error> {
        None
    }
    /// The same store, where everything is noted as done by `actor`.
    fn acting_as(&self, actor: &str) -> std::sync::Arc<dyn Store>;
}
