//! The [`Store`] over any [`StoreBackend`]: decides which call reads, which writes, and which needs the lock of
//! the workflow.

use super::workflow_updates::AuditContext;
use super::{
    action_changes, claimed_commands, completion_records, create, edit, events, export, failure_commands,
    failures, import, job_loading, pending_commands, queries, runs, spawn, torc_lists, work_units, workers,
    workflow_parts, workflow_updates,
};
use crate::change_log;
use crate::db::SqlConnection;
use crate::error::SqlError;
use crate::lock::{LockGuard, LockHolder, LockScope};
use crate::model::{
    ActionRow, AddJob, CompletionRecord, DataFilter, DecisionFilter, DecisionRow, EventFilter, EventRow,
    ExportOptions, FailureFilter, FailureGroup, FailureHandlerRow, FailureRow, FieldChange, FileUpdate,
    HeldJob, ImportOptions, JobCommand, JobFileRow, JobFilter, JobGroupRow, JobRelations, JobRevisionRow,
    JobRow, JobSource, JobUpdate, JobUserDataRow, LoadedJobs, NewEvent, NewUserData, NewWorkflow,
    PendingCommandResult, RequirementsChange, RequirementsRow, RequirementsUpdate, ResultFilter, ResultRow,
    RevisionFilter, SlurmSchedulerRow, SpawnRequest, SpawnResult, UserDataRow, WorkUnitStatusRow, WorkerRow,
    WorkflowExport, WorkflowFileRow, WorkflowPartId, WorkflowRow, WorkflowUpdate,
};
use crate::{BatchCallback, ChangeBatch, Store, StoreError, StoreLocation};
use serde_json::Value;
use std::sync::Arc;
use windlass_types::failure_commands::{FailureCommandOutcome, PendingCommand};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, Resources, ResultId, RunId, Timestamp, UserDataId,
    WorkUnitStatusCounts, WorkflowId,
};

/// The source of transactions.
pub(crate) trait StoreBackend: Send + Sync + 'static {
    type Db: SqlConnection;

    /// Runs `query` in one read transaction, so that all of it sees the same snapshot.
    fn run_read<T>(&self, query: impl FnOnce(&Self::Db) -> Result<T, SqlError>) -> Result<T, StoreError>;

    /// Fails if the store was opened read-only.
    fn require_writable(&self) -> Result<(), StoreError>;

    /// Runs `work` in the next group commit and waits for it.
    fn run_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self::Db) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError>;

    /// The same for several: each succeeds or fails separately, if possible in one commit.
    fn run_each_write<T: Send + 'static>(
        &self,
        works: impl ExactSizeIterator<Item = impl FnOnce(&Self::Db) -> Result<T, SqlError> + Send + 'static>,
    ) -> Vec<Result<T, StoreError>>;

    /// Commits changes by `actor`, possibly together with other batches.
    fn submit(&self, batch: ChangeBatch, actor: Arc<str>, done: BatchCallback);

    /// Runs a long operation in a transaction of its own.
    fn run_large_transaction<T>(
        &self,
        work: impl FnOnce(&Self::Db) -> Result<T, SqlError>,
    ) -> Result<T, StoreError>;

    fn foreign_commit_count(&self, wait: bool) -> Result<Option<i64>, StoreError>;

    fn lock(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError>;
    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError>;
    /// Removes the lock of a deleted workflow.
    fn forget_lock(&self, lock: LockGuard, workflow: WorkflowId);
    fn location(&self) -> StoreLocation;
    /// Why it accepts no changes, if the last ones failed because of it.
    fn write_failure(&self) -> Option<StoreError>;
}

/// An open database. When its last reference is dropped, everything submitted is on disk.
#[derive(Debug)]
pub struct SqlStore<B> {
    pub(crate) backend: Arc<B>,
    /// Recorded as the author of changes.
    actor: Arc<str>,
}

/// The actor if none is given.
const DEFAULT_ACTOR: &str = "windlass";

impl<B> SqlStore<B> {
    pub(crate) fn new(backend: B) -> Self {
        Self { backend: Arc::new(backend), actor: DEFAULT_ACTOR.into() }
    }

    /// Returns a store that records all changes as made by `actor`.
    #[must_use]
    pub fn acting_as(mut self, actor: &str) -> Self {
        self.actor = actor.into();
        self
    }
}

#[expect(private_bounds, reason = "backends are private")]
impl<B: StoreBackend> SqlStore<B> {
    /// As [`Self::write_as_actor`], while no process runs the workflow.
    pub(super) fn edit_workflow<T: Send + 'static>(
        &self,
        workflow: WorkflowId,
        now: Timestamp,
        work: impl FnOnce(&B::Db, AuditContext<'_>) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.backend.require_writable()?;
        let _lock = self.backend.lock(LockScope::Workflow(workflow), now)?;
        self.write_as_actor(now, work)
    }

    /// Returns the workflow of an object by its id.
    fn find_owner<T>(
        &self,
        find: impl Fn(&B::Db) -> Result<Option<T>, SqlError>,
        missing: StoreError,
    ) -> Result<T, StoreError> {
        self.read(find)?.ok_or(missing)
    }

    pub(super) fn read<T>(&self, query: impl FnOnce(&B::Db) -> Result<T, SqlError>) -> Result<T, StoreError> {
        self.backend.run_read(query)
    }

    /// Writes a change recorded with the actor.
    pub(super) fn write_as_actor<T: Send + 'static>(
        &self,
        now: Timestamp,
        work: impl FnOnce(&B::Db, AuditContext<'_>) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let actor = Arc::clone(&self.actor);
        self.backend.run_write(move |db| work(db, AuditContext { actor: &actor, now }))
    }
}

impl<B: StoreBackend> Store for SqlStore<B> {
    fn create_workflow(
        &self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        now: Timestamp,
    ) -> Result<WorkflowId, StoreError> {
        self.backend
            .run_large_transaction(|db| create::create_workflow(db, workflow, source, &self.actor, now))
    }

    fn submit(&self, batch: ChangeBatch, done: BatchCallback) {
        change_log::log_changes(&batch);
        self.backend.submit(batch, Arc::clone(&self.actor), done);
    }

    fn begin_run(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| runs::begin_run(db, workflow, by))
    }

    fn end_run(&self, workflow: WorkflowId, canceled: bool, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| runs::end_run(db, workflow, canceled, by))
    }

    fn begin_next_run(
        &self,
        workflow: WorkflowId,
        again: &[JobId],
        now: Timestamp,
    ) -> Result<RunId, StoreError> {
        let again = again.to_vec();
        self.write_as_actor(now, move |db, by| runs::begin_next_run(db, workflow, &again, by))
    }

    fn request_cancel(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| runs::request_cancel(db, workflow, by))
    }

    fn cancel_requested(&self, workflow: WorkflowId) -> Result<bool, StoreError> {
        self.read(|db| runs::is_cancel_requested(db, workflow))
    }

    fn active_workers(&self, workflow: Option<WorkflowId>) -> Result<Vec<WorkerRow>, StoreError> {
        self.read(|db| workers::active_workers(db, workflow))
    }

    fn workflows(&self) -> Result<Vec<WorkflowRow>, StoreError> {
        self.read(queries::list_workflows)
    }

    fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError> {
        self.read(|db| queries::find_workflow(db, id))
    }

    fn find_by_digest(&self, digest: &str, submission_dir: &str) -> Result<Option<WorkflowRow>, StoreError> {
        self.read(|db| queries::find_workflow_by_digest(db, digest, submission_dir))
    }

    fn load_jobs(&self, workflow: WorkflowId) -> Result<LoadedJobs, StoreError> {
        self.read(|db| job_loading::load_jobs(db, workflow))
    }

    fn load_job_commands(&self, jobs: &[JobId]) -> Result<Vec<JobCommand>, StoreError> {
        self.read(|db| claimed_commands::load_commands(db, jobs))
    }

    fn held_jobs(&self, workflow: WorkflowId) -> Result<Vec<HeldJob>, StoreError> {
        self.read(|db| queries::list_held_jobs(db, workflow))
    }

    fn jobs(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobRow>, StoreError> {
        self.read(|db| queries::list_jobs(db, workflow, filter))
    }

    fn find_job(&self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        self.read(|db| {
            let Some(workflow) = torc_lists::workflow_of(db, WorkflowPartId::Job(id))? else {
                return Ok(None);
            };
            let filter = JobFilter { ids: vec![id], ..JobFilter::default() };
            Ok(queries::list_jobs(db, workflow, &filter)?.pop())
        })
    }

    fn results(&self, workflow: WorkflowId, filter: &ResultFilter) -> Result<Vec<ResultRow>, StoreError> {
        self.read(|db| queries::list_results(db, workflow, filter))
    }

    fn job_names(&self, jobs: &[JobId]) -> Result<Vec<String>, StoreError> {
        self.read(|db| queries::load_job_names(db, jobs))
    }

    fn requirements(&self, workflow: WorkflowId) -> Result<Vec<RequirementsRow>, StoreError> {
        self.read(|db| workflow_parts::list_requirements(db, workflow))
    }

    fn job_groups(&self, workflow: WorkflowId) -> Result<Vec<JobGroupRow>, StoreError> {
        self.read(|db| workflow_parts::list_job_groups(db, workflow))
    }

    fn failures(&self, workflow: WorkflowId, filter: &FailureFilter) -> Result<Vec<FailureRow>, StoreError> {
        self.read(|db| failures::list_failures(db, workflow, filter))
    }

    fn failure_groups(&self, workflow: WorkflowId) -> Result<Vec<FailureGroup>, StoreError> {
        self.read(|db| failures::list_failure_groups(db, workflow))
    }

    fn decisions(
        &self,
        workflow: WorkflowId,
        filter: &DecisionFilter,
    ) -> Result<Vec<DecisionRow>, StoreError> {
        self.read(|db| failure_commands::list_decisions(db, workflow, filter))
    }

    fn revisions(
        &self,
        workflow: WorkflowId,
        filter: RevisionFilter,
    ) -> Result<Vec<JobRevisionRow>, StoreError> {
        self.read(|db| failure_commands::list_revisions(db, workflow, filter))
    }

    fn work_units(&self, workflow: WorkflowId, after_seq: u64) -> Result<Vec<WorkUnitStatusRow>, StoreError> {
        self.read(|db| work_units::list_units(db, workflow, after_seq))
    }

    fn work_unit_counts(&self, workflow: WorkflowId) -> Result<WorkUnitStatusCounts, StoreError> {
        self.read(|db| work_units::load_unit_counts(db, workflow))
    }

    fn apply_triage_command(
        &self,
        workflow: WorkflowId,
        wanted: &PendingCommand,
        now: Timestamp,
    ) -> Result<Vec<FailureCommandOutcome>, StoreError> {
        let wanted = wanted.clone();
        self.edit_workflow(workflow, now, move |db, by| {
            failure_commands::apply_triage_command(db, workflow, &wanted, by)
        })
    }

    fn add_pending_command(
        &self,
        workflow: WorkflowId,
        wanted: &PendingCommand,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let wanted = wanted.clone();
        self.write_as_actor(now, move |db, by| {
            pending_commands::add_pending_command(db, workflow, &wanted, by)
        })
    }

    fn open_pending_commands(&self, workflow: WorkflowId) -> Result<Vec<i64>, StoreError> {
        self.read(|db| pending_commands::open_pending_commands(db, workflow))
    }

    fn apply_pending_command(
        &self,
        workflow: WorkflowId,
        command: i64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| {
            pending_commands::apply_pending_command(db, workflow, command, by)
        })
    }

    fn pending_command_result(&self, command: i64) -> Result<Option<PendingCommandResult>, StoreError> {
        self.read(|db| pending_commands::pending_command_result(db, command))
    }

    fn withdraw_pending_command(&self, command: i64, now: Timestamp) -> Result<bool, StoreError> {
        self.write_as_actor(now, move |db, _| pending_commands::withdraw_pending_command(db, command))
    }

    fn handlers(&self, workflow: WorkflowId) -> Result<Vec<FailureHandlerRow>, StoreError> {
        self.read(|db| workflow_parts::list_handlers(db, workflow))
    }

    fn schedulers(&self, workflow: WorkflowId) -> Result<Vec<SlurmSchedulerRow>, StoreError> {
        self.read(|db| workflow_parts::list_schedulers(db, workflow))
    }

    fn actions(&self, workflow: WorkflowId) -> Result<Vec<ActionRow>, StoreError> {
        self.read(|db| workflow_parts::list_actions(db, workflow))
    }

    fn files(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<WorkflowFileRow>, StoreError> {
        self.read(|db| workflow_parts::list_files(db, workflow, filter))
    }

    fn file(&self, id: FileId) -> Result<Option<WorkflowFileRow>, StoreError> {
        self.read(|db| workflow_parts::find_file(db, id))
    }

    fn job_files(&self, workflow: WorkflowId) -> Result<Vec<JobFileRow>, StoreError> {
        self.read(|db| workflow_parts::list_job_files(db, workflow))
    }

    fn user_data(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<UserDataRow>, StoreError> {
        self.read(|db| workflow_parts::list_user_data(db, workflow, filter))
    }

    fn find_user_data(&self, id: UserDataId) -> Result<Option<UserDataRow>, StoreError> {
        self.read(|db| workflow_parts::find_user_data(db, id))
    }

    fn job_user_data(&self, workflow: WorkflowId) -> Result<Vec<JobUserDataRow>, StoreError> {
        self.read(|db| workflow_parts::list_job_user_data(db, workflow))
    }

    fn add_event(&self, event: &NewEvent, now: Timestamp) -> Result<EventId, StoreError> {
        let event = event.clone();
        self.write_as_actor(now, move |db, by| events::insert_event(db, by.actor, &event, by.now))
    }

    fn events(
        &self,
        workflow: Option<WorkflowId>,
        filter: &EventFilter,
    ) -> Result<Vec<EventRow>, StoreError> {
        self.read(|db| events::list_events(db, workflow, filter))
    }

    fn spawn_jobs(&self, request: &SpawnRequest, now: Timestamp) -> Result<SpawnResult, StoreError> {
        let request = request.clone();
        self.write_as_actor(now, move |db, by| spawn::spawn_jobs(db, &request, by))
    }

    fn jobs_not_respawned(&self, callers: &[AttemptKey]) -> Result<Vec<JobId>, StoreError> {
        self.read(|db| spawn::list_not_respawned(db, callers))
    }

    fn spawning_jobs(&self, workflow: WorkflowId) -> Result<Vec<JobId>, StoreError> {
        self.read(|db| spawn::list_spawning_jobs(db, workflow))
    }

    fn jobs_after(&self, workflow: WorkflowId, after: JobId) -> Result<LoadedJobs, StoreError> {
        self.read(|db| job_loading::load_jobs_after(db, workflow, after))
    }

    fn foreign_commit_count(&self, wait: bool) -> Result<Option<i64>, StoreError> {
        self.backend.foreign_commit_count(wait)
    }

    fn completion_records(&self, workflow: WorkflowId) -> Result<Vec<CompletionRecord>, StoreError> {
        self.read(|db| completion_records::list_completion_records(db, workflow))
    }

    fn update_workflow(
        &self,
        id: WorkflowId,
        update: &WorkflowUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let update = update.clone();
        self.write_as_actor(now, move |db, by| workflow_updates::update_workflow(db, id, &update, by))
    }

    fn set_archived(&self, ids: &[WorkflowId], is_archived: bool, now: Timestamp) -> Result<(), StoreError> {
        let ids = ids.to_vec();
        self.write_as_actor(now, move |db, by| workflow_updates::set_archived(db, &ids, is_archived, by))
    }

    fn delete_workflow(&self, id: WorkflowId, now: Timestamp) -> Result<(), StoreError> {
        self.backend.require_writable()?;
        let lock = self.backend.lock(LockScope::Workflow(id), now)?;
        self.backend.run_large_transaction(|db| {
            workflow_updates::delete_workflow(db, id, AuditContext { actor: &self.actor, now })
        })?;
        self.backend.forget_lock(lock, id);
        Ok(())
    }

    fn change_requirements(
        &self,
        workflow: WorkflowId,
        changes: &[RequirementsChange],
        now: Timestamp,
    ) -> Result<Vec<RequirementsId>, StoreError> {
        let changes = changes.to_vec();
        self.write_as_actor(now, move |db, by| {
            workflow_updates::change_requirements(db, workflow, &changes, by)
        })
    }

    fn change_priorities(
        &self,
        workflow: WorkflowId,
        changes: &[(i32, i32)],
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let changes = changes.to_vec();
        self.write_as_actor(now, move |db, by| {
            workflow_updates::change_priorities(db, workflow, &changes, by)
        })
    }

    fn add_user_data(
        &self,
        workflow: WorkflowId,
        new: &NewUserData<'_>,
        now: Timestamp,
    ) -> Result<UserDataId, StoreError> {
        let (name, data, is_ephemeral) = (new.name.to_owned(), new.data.cloned(), new.is_ephemeral);
        self.write_as_actor(now, move |db, by| {
            workflow_updates::add_user_data(db, workflow, &name, data.as_ref(), is_ephemeral, by)
        })
    }

    fn set_user_data(&self, id: UserDataId, data: Option<&Value>, now: Timestamp) -> Result<(), StoreError> {
        let data = data.cloned();
        self.write_as_actor(now, move |db, by| workflow_updates::set_user_data(db, id, data.as_ref(), by))
    }

    fn delete_user_data(&self, id: UserDataId, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| workflow_updates::delete_user_data(db, id, by))
    }

    fn add_jobs(
        &self,
        workflow: WorkflowId,
        jobs: &[AddJob],
        now: Timestamp,
    ) -> Result<Vec<JobId>, StoreError> {
        let jobs = jobs.to_vec();
        self.edit_workflow(workflow, now, move |db, by| edit::jobs::add_jobs(db, workflow, &jobs, by))
    }

    fn update_job(
        &self,
        workflow: WorkflowId,
        job: JobId,
        update: &JobUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, StoreError> {
        let update = update.clone();
        self.edit_workflow(workflow, now, move |db, by| {
            edit::jobs::update_job(db, workflow, job, &update, by)
        })
    }

    fn delete_jobs(&self, workflow: WorkflowId, jobs: &[JobId], now: Timestamp) -> Result<(), StoreError> {
        self.backend.require_writable()?;
        let _lock = self.backend.lock(LockScope::Workflow(workflow), now)?;
        let by = AuditContext { actor: &self.actor, now };
        self.backend.run_large_transaction(|db| edit::delete::delete_jobs(db, workflow, jobs, by))
    }

    fn job_relations(&self, job: JobId) -> Result<JobRelations, StoreError> {
        self.read(|db| workflow_parts::load_job_relations(db, job))
    }

    fn add_file(
        &self,
        workflow: WorkflowId,
        name: &str,
        path: &str,
        now: Timestamp,
    ) -> Result<FileId, StoreError> {
        let (name, path) = (name.to_owned(), path.to_owned());
        self.edit_workflow(workflow, now, move |db, by| edit::data::add_file(db, workflow, &name, &path, by))
    }

    fn update_file(
        &self,
        id: FileId,
        update: &FileUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, StoreError> {
        let file = self.find_owner(|db| workflow_parts::find_file(db, id), StoreError::NoSuchFile(id))?;
        let update = update.clone();
        self.edit_workflow(file.workflow_id, now, move |db, by| edit::data::update_file(db, id, &update, by))
    }

    fn delete_file(&self, id: FileId, now: Timestamp) -> Result<(), StoreError> {
        let file = self.find_owner(|db| workflow_parts::find_file(db, id), StoreError::NoSuchFile(id))?;
        self.edit_workflow(file.workflow_id, now, move |db, by| edit::data::delete_file(db, id, by))
    }

    fn add_requirements(
        &self,
        workflow: WorkflowId,
        name: &str,
        resources: &Resources,
        now: Timestamp,
    ) -> Result<RequirementsId, StoreError> {
        let (name, resources) = (name.to_owned(), *resources);
        self.edit_workflow(workflow, now, move |db, by| {
            edit::data::add_requirements(db, workflow, &name, &resources, by)
        })
    }

    fn update_requirements(
        &self,
        id: RequirementsId,
        update: &RequirementsUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, StoreError> {
        let find = |db: &B::Db| workflow_parts::find_requirements(db, id);
        let (workflow, _) = self.find_owner(find, StoreError::NoSuchRequirementsId(id))?;
        let update = update.clone();
        self.edit_workflow(workflow, now, move |db, by| edit::data::update_requirements(db, id, &update, by))
    }

    fn delete_requirements(&self, id: RequirementsId, now: Timestamp) -> Result<(), StoreError> {
        let find = |db: &B::Db| workflow_parts::find_requirements(db, id);
        let (workflow, _) = self.find_owner(find, StoreError::NoSuchRequirementsId(id))?;
        self.edit_workflow(workflow, now, move |db, by| edit::data::delete_requirements(db, id, by))
    }

    fn retry_action(&self, workflow: WorkflowId, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| action_changes::retry_action(db, workflow, id, by))
    }

    fn delete_result(&self, id: ResultId, now: Timestamp) -> Result<(), StoreError> {
        let find = |db: &B::Db| edit::data::workflow_of_result(db, id);
        let workflow = self.find_owner(find, StoreError::NoSuchResult(id))?;
        self.edit_workflow(workflow, now, move |db, by| edit::data::delete_result(db, id, by))
    }

    fn delete_event(&self, id: EventId, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| edit::data::delete_event(db, id, by))
    }

    fn export_workflow(
        &self,
        id: WorkflowId,
        options: ExportOptions,
        now: Timestamp,
    ) -> Result<WorkflowExport, StoreError> {
        self.read(|db| export::export_workflow(db, id, options, now))
    }

    fn import_workflow(
        &self,
        export: &WorkflowExport,
        options: &ImportOptions,
        now: Timestamp,
    ) -> Result<WorkflowId, StoreError> {
        let by = AuditContext { actor: &self.actor, now };
        self.backend.run_large_transaction(|db| import::import_workflow(db, export, options, by))
    }

    fn lock(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError> {
        self.backend.lock(what, now)
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError> {
        self.backend.lock_holder(workflow)
    }

    fn write_failure(&self) -> Option<StoreError> {
        self.backend.write_failure()
    }

    fn location(&self) -> StoreLocation {
        self.backend.location()
    }

    fn acting_as(&self, actor: &str) -> Arc<dyn Store> {
        Arc::new(Self { backend: Arc::clone(&self.backend), actor: actor.into() })
    }
}
