//! The [`Store`] over any [`Backend`]: which use case reads, which writes, which needs the workflow for itself.

use super::manage::By;
use super::{
    action_changes, command, create, edit, events, export, failures, fleet, import, lists, load, manage,
    orders, parts, read, records, runs, spawn, units, wishes,
};
use crate::db::Db;
use crate::error::Fault;
use crate::lock::{Holder, Lock, LockGuard};
use crate::model::{
    ActionRow, AddJob, DataFilter, DecisionFilter, DecisionRow, EventFilter, EventRow, Export, ExportOptions,
    FailureFilter, FailureGroup, FailureRow, FieldChange, FileRow, FileUpdate, HandlerRow, HeldJob,
    ImportOptions, JobCommand, JobFileRow, JobFilter, JobRelations, JobRow, JobSource, JobUpdate,
    JobUserDataRow, KindRow, LastRecord, LoadedJobs, NewEvent, NewUserData, NewWorkflow, Part,
    RequirementsChange, RequirementsRow, RequirementsUpdate, ResultFilter, ResultRow, RevisionFilter,
    RevisionRow, SchedulerRow, SpawnRequest, Spawned, UnitRow, UserDataRow, WishAnswer, WorkerRow,
    WorkflowRow, WorkflowUpdate,
};
use crate::{Batch, Done, Error, Location, Store};
use serde_json::Value;
use std::sync::Arc;
use windlass_types::orders::{Outcome, Wanted};
use windlass_types::work::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, Resources, ResultId, RunId, Timestamp, UnitCounts, UserDataId,
    WorkflowId,
};

/// Where transactions come from.
pub(crate) trait Backend: Send + Sync + 'static {
    type Db: Db;

    /// Runs `query` in one read transaction, so that all of it sees the same state.
    fn read<T>(&self, query: impl FnOnce(&Self::Db) -> Result<T, Fault>) -> Result<T, Error>;

    /// Refuses if it was opened for reading only.
    fn may_write(&self) -> Result<(), Error>;

    /// Runs `work` in the next group commit and waits for it.
    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self::Db) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error>;

    /// The same for several: each is done or not by itself, as far as possible in one commit.
    fn write_all<T: Send + 'static>(
        &self,
        works: impl ExactSizeIterator<Item = impl FnOnce(&Self::Db) -> Result<T, Fault> + Send + 'static>,
    ) -> Vec<Result<T, Error>>;

    /// Commits changes, perhaps together with those of others, as done by `actor`.
    fn submit(&self, batch: Batch, actor: Arc<str>, done: Done);

    /// Something that takes long, in a transaction of its own.
    fn large<T>(&self, work: impl FnOnce(&Self::Db) -> Result<T, Fault>) -> Result<T, Error>;

    fn foreign_commits(&self, wait: bool) -> Result<Option<i64>, Error>;

    fn lock(&self, what: Lock, now: Timestamp) -> Result<LockGuard, Error>;
    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<Holder>, Error>;
    /// Nobody will ask for the lock of this workflow again.
    fn forget_lock(&self, lock: LockGuard, workflow: WorkflowId);
    fn location(&self) -> Location;
    /// Why it takes no changes, if the last ones failed because of that.
    fn trouble(&self) -> Option<Error>;
}

/// An open database. When the last one of it is dropped, everything that was submitted is on disk.
#[derive(Debug)]
pub struct Books<B> {
    pub(crate) backend: Arc<B>,
    /// Who is noted as the one who did it.
    actor: Arc<str>,
}

/// For whom nobody was named.
const NOBODY: &str = "windlass";

impl<B> Books<B> {
    pub(crate) fn new(backend: B) -> Self {
        Self { backend: Arc::new(backend), actor: NOBODY.into() }
    }

    /// Everything that is done from now on is noted as done by `actor`.
    #[must_use]
    pub fn acting_as(mut self, actor: &str) -> Self {
        self.actor = actor.into();
        self
    }
}

#[expect(private_bounds, reason = "what a backend is, is our own affair")]
impl<B: Backend> Books<B> {
    /// As [`Self::act`], while nobody runs the workflow.
    pub(super) fn edit<T: Send + 'static>(
        &self,
        workflow: WorkflowId,
        now: Timestamp,
        work: impl FnOnce(&B::Db, By<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        self.backend.may_write()?;
        let _lock = self.backend.lock(Lock::Workflow(workflow), now)?;
        self.act(now, work)
    }

    /// The workflow of something that a user named by its id.
    fn owner<T>(
        &self,
        find: impl Fn(&B::Db) -> Result<Option<T>, Fault>,
        missing: Error,
    ) -> Result<T, Error> {
        self.read(find)?.ok_or(missing)
    }

    pub(super) fn read<T>(&self, query: impl FnOnce(&B::Db) -> Result<T, Fault>) -> Result<T, Error> {
        self.backend.read(query)
    }

    /// Writes something that is noted as done by our actor.
    pub(super) fn act<T: Send + 'static>(
        &self,
        now: Timestamp,
        work: impl FnOnce(&B::Db, By<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let actor = Arc::clone(&self.actor);
        self.backend.write(move |db| work(db, By { actor: &actor, now }))
    }
}

impl<B: Backend> Store for Books<B> {
    fn create_workflow(
        &self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        now: Timestamp,
    ) -> Result<WorkflowId, Error> {
        self.backend.large(|db| create::create(db, workflow, source, &self.actor, now))
    }

    fn submit(&self, batch: Batch, done: Done) {
        self.backend.submit(batch, Arc::clone(&self.actor), done);
    }

    fn begin_run(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| runs::begin_run(db, workflow, by))
    }

    fn end_run(&self, workflow: WorkflowId, canceled: bool, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| runs::end_run(db, workflow, canceled, by))
    }

    fn begin_next_run(&self, workflow: WorkflowId, again: &[JobId], now: Timestamp) -> Result<RunId, Error> {
        let again = again.to_vec();
        self.act(now, move |db, by| runs::begin_next_run(db, workflow, &again, by))
    }

    fn request_cancel(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| runs::request_cancel(db, workflow, by))
    }

    fn cancel_requested(&self, workflow: WorkflowId) -> Result<bool, Error> {
        self.read(|db| runs::cancel_requested(db, workflow))
    }

    fn active_workers(&self, workflow: Option<WorkflowId>) -> Result<Vec<WorkerRow>, Error> {
        self.read(|db| fleet::active_workers(db, workflow))
    }

    fn workflows(&self) -> Result<Vec<WorkflowRow>, Error> {
        self.read(read::workflows)
    }

    fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, Error> {
        self.read(|db| read::workflow(db, id))
    }

    fn find_by_digest(&self, digest: &str, submission_dir: &str) -> Result<Option<WorkflowRow>, Error> {
        self.read(|db| read::find_by_digest(db, digest, submission_dir))
    }

    fn load_jobs(&self, workflow: WorkflowId) -> Result<LoadedJobs, Error> {
        self.read(|db| load::load_jobs(db, workflow))
    }

    fn commands(&self, jobs: &[JobId]) -> Result<Vec<JobCommand>, Error> {
        self.read(|db| command::commands(db, jobs))
    }

    fn held_jobs(&self, workflow: WorkflowId) -> Result<Vec<HeldJob>, Error> {
        self.read(|db| read::held_jobs(db, workflow))
    }

    fn jobs(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobRow>, Error> {
        self.read(|db| read::jobs(db, workflow, filter))
    }

    fn find_job(&self, id: JobId) -> Result<Option<JobRow>, Error> {
        self.read(|db| {
            let Some(workflow) = lists::workflow_of(db, Part::Job(id))? else { return Ok(None) };
            let filter = JobFilter { ids: vec![id], ..JobFilter::default() };
            Ok(read::jobs(db, workflow, &filter)?.pop())
        })
    }

    fn results(&self, workflow: WorkflowId, filter: &ResultFilter) -> Result<Vec<ResultRow>, Error> {
        self.read(|db| read::results(db, workflow, filter))
    }

    fn job_names(&self, jobs: &[JobId]) -> Result<Vec<String>, Error> {
        self.read(|db| read::job_names(db, jobs))
    }

    fn requirements(&self, workflow: WorkflowId) -> Result<Vec<RequirementsRow>, Error> {
        self.read(|db| parts::requirements(db, workflow))
    }

    fn kinds(&self, workflow: WorkflowId) -> Result<Vec<KindRow>, Error> {
        self.read(|db| parts::kinds(db, workflow))
    }

    fn failures(&self, workflow: WorkflowId, filter: &FailureFilter) -> Result<Vec<FailureRow>, Error> {
        self.read(|db| failures::list(db, workflow, filter))
    }

    fn failure_groups(&self, workflow: WorkflowId) -> Result<Vec<FailureGroup>, Error> {
        self.read(|db| failures::groups(db, workflow))
    }

    fn decisions(&self, workflow: WorkflowId, filter: &DecisionFilter) -> Result<Vec<DecisionRow>, Error> {
        self.read(|db| orders::decisions(db, workflow, filter))
    }

    fn revisions(&self, workflow: WorkflowId, filter: RevisionFilter) -> Result<Vec<RevisionRow>, Error> {
        self.read(|db| orders::revisions(db, workflow, filter))
    }

    fn units(&self, workflow: WorkflowId, after_seq: u64) -> Result<Vec<UnitRow>, Error> {
        self.read(|db| units::list(db, workflow, after_seq))
    }

    fn unit_counts(&self, workflow: WorkflowId) -> Result<UnitCounts, Error> {
        self.read(|db| units::counts(db, workflow))
    }

    fn carry_out(
        &self,
        workflow: WorkflowId,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, Error> {
        let wanted = wanted.clone();
        self.edit(workflow, now, move |db, by| orders::carry_out(db, workflow, &wanted, by))
    }

    fn add_wish(&self, workflow: WorkflowId, wanted: &Wanted, now: Timestamp) -> Result<i64, Error> {
        let wanted = wanted.clone();
        self.act(now, move |db, by| wishes::add(db, workflow, &wanted, by))
    }

    fn open_wishes(&self, workflow: WorkflowId) -> Result<Vec<i64>, Error> {
        self.read(|db| wishes::open(db, workflow))
    }

    fn grant_wish(&self, workflow: WorkflowId, wish: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| wishes::grant(db, workflow, wish, by))
    }

    fn wish_answer(&self, wish: i64) -> Result<Option<WishAnswer>, Error> {
        self.read(|db| wishes::answer(db, wish))
    }

    fn withdraw_wish(&self, wish: i64, now: Timestamp) -> Result<bool, Error> {
        self.act(now, move |db, _| wishes::withdraw(db, wish))
    }

    fn handlers(&self, workflow: WorkflowId) -> Result<Vec<HandlerRow>, Error> {
        self.read(|db| parts::handlers(db, workflow))
    }

    fn schedulers(&self, workflow: WorkflowId) -> Result<Vec<SchedulerRow>, Error> {
        self.read(|db| parts::schedulers(db, workflow))
    }

    fn actions(&self, workflow: WorkflowId) -> Result<Vec<ActionRow>, Error> {
        self.read(|db| parts::actions(db, workflow))
    }

    fn files(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<FileRow>, Error> {
        self.read(|db| parts::files(db, workflow, filter))
    }

    fn file(&self, id: FileId) -> Result<Option<FileRow>, Error> {
        self.read(|db| parts::file(db, id))
    }

    fn job_files(&self, workflow: WorkflowId) -> Result<Vec<JobFileRow>, Error> {
        self.read(|db| parts::job_files(db, workflow))
    }

    fn user_data(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<UserDataRow>, Error> {
        self.read(|db| parts::user_data(db, workflow, filter))
    }

    fn user_data_piece(&self, id: UserDataId) -> Result<Option<UserDataRow>, Error> {
        self.read(|db| parts::user_data_piece(db, id))
    }

    fn job_user_data(&self, workflow: WorkflowId) -> Result<Vec<JobUserDataRow>, Error> {
        self.read(|db| parts::job_user_data(db, workflow))
    }

    fn add_event(&self, event: &NewEvent, now: Timestamp) -> Result<EventId, Error> {
        let event = event.clone();
        self.act(now, move |db, by| events::note(db, by.actor, &event, by.now))
    }

    fn events(&self, workflow: Option<WorkflowId>, filter: &EventFilter) -> Result<Vec<EventRow>, Error> {
        self.read(|db| events::events(db, workflow, filter))
    }

    fn spawn(&self, request: &SpawnRequest, now: Timestamp) -> Result<Spawned, Error> {
        let request = request.clone();
        self.act(now, move |db, by| spawn::spawn(db, &request, by))
    }

    fn left_behind(&self, callers: &[AttemptKey]) -> Result<Vec<JobId>, Error> {
        self.read(|db| spawn::left_behind(db, callers))
    }

    fn spawners(&self, workflow: WorkflowId) -> Result<Vec<JobId>, Error> {
        self.read(|db| spawn::spawners(db, workflow))
    }

    fn jobs_after(&self, workflow: WorkflowId, after: JobId) -> Result<LoadedJobs, Error> {
        self.read(|db| load::jobs_after(db, workflow, after))
    }

    fn foreign_commits(&self, wait: bool) -> Result<Option<i64>, Error> {
        self.backend.foreign_commits(wait)
    }

    fn last_records(&self, workflow: WorkflowId) -> Result<Vec<LastRecord>, Error> {
        self.read(|db| records::last_records(db, workflow))
    }

    fn update_workflow(&self, id: WorkflowId, update: &WorkflowUpdate, now: Timestamp) -> Result<(), Error> {
        let update = update.clone();
        self.act(now, move |db, by| manage::update_workflow(db, id, &update, by))
    }

    fn archive(&self, ids: &[WorkflowId], is_archived: bool, now: Timestamp) -> Result<(), Error> {
        let ids = ids.to_vec();
        self.act(now, move |db, by| manage::archive(db, &ids, is_archived, by))
    }

    fn delete_workflow(&self, id: WorkflowId, now: Timestamp) -> Result<(), Error> {
        self.backend.may_write()?;
        let lock = self.backend.lock(Lock::Workflow(id), now)?;
        self.backend.large(|db| manage::delete_workflow(db, id, By { actor: &self.actor, now }))?;
        self.backend.forget_lock(lock, id);
        Ok(())
    }

    fn change_requirements(
        &self,
        workflow: WorkflowId,
        changes: &[RequirementsChange],
        now: Timestamp,
    ) -> Result<Vec<RequirementsId>, Error> {
        let changes = changes.to_vec();
        self.act(now, move |db, by| manage::change_requirements(db, workflow, &changes, by))
    }

    fn change_priorities(
        &self,
        workflow: WorkflowId,
        changes: &[(i32, i32)],
        now: Timestamp,
    ) -> Result<usize, Error> {
        let changes = changes.to_vec();
        self.act(now, move |db, by| manage::change_priorities(db, workflow, &changes, by))
    }

    fn add_user_data(
        &self,
        workflow: WorkflowId,
        new: &NewUserData<'_>,
        now: Timestamp,
    ) -> Result<UserDataId, Error> {
        let (name, data, is_ephemeral) = (new.name.to_owned(), new.data.cloned(), new.is_ephemeral);
        self.act(now, move |db, by| {
            manage::add_user_data(db, workflow, &name, data.as_ref(), is_ephemeral, by)
        })
    }

    fn set_user_data(&self, id: UserDataId, data: Option<&Value>, now: Timestamp) -> Result<(), Error> {
        let data = data.cloned();
        self.act(now, move |db, by| manage::set_user_data(db, id, data.as_ref(), by))
    }

    fn delete_user_data(&self, id: UserDataId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| manage::delete_user_data(db, id, by))
    }

    fn add_jobs(&self, workflow: WorkflowId, jobs: &[AddJob], now: Timestamp) -> Result<Vec<JobId>, Error> {
        let jobs = jobs.to_vec();
        self.edit(workflow, now, move |db, by| edit::jobs::add_jobs(db, workflow, &jobs, by))
    }

    fn update_job(
        &self,
        workflow: WorkflowId,
        job: JobId,
        update: &JobUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, Error> {
        let update = update.clone();
        self.edit(workflow, now, move |db, by| edit::jobs::update_job(db, workflow, job, &update, by))
    }

    fn delete_jobs(&self, workflow: WorkflowId, jobs: &[JobId], now: Timestamp) -> Result<(), Error> {
        self.backend.may_write()?;
        let _lock = self.backend.lock(Lock::Workflow(workflow), now)?;
        let by = By { actor: &self.actor, now };
        self.backend.large(|db| edit::delete::delete_jobs(db, workflow, jobs, by))
    }

    fn job_relations(&self, job: JobId) -> Result<JobRelations, Error> {
        self.read(|db| parts::job_relations(db, job))
    }

    fn add_file(
        &self,
        workflow: WorkflowId,
        name: &str,
        path: &str,
        now: Timestamp,
    ) -> Result<FileId, Error> {
        let (name, path) = (name.to_owned(), path.to_owned());
        self.edit(workflow, now, move |db, by| edit::data::add_file(db, workflow, &name, &path, by))
    }

    fn update_file(
        &self,
        id: FileId,
        update: &FileUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, Error> {
        let file = self.owner(|db| parts::file(db, id), Error::NoSuchFile(id))?;
        let update = update.clone();
        self.edit(file.workflow_id, now, move |db, by| edit::data::update_file(db, id, &update, by))
    }

    fn delete_file(&self, id: FileId, now: Timestamp) -> Result<(), Error> {
        let file = self.owner(|db| parts::file(db, id), Error::NoSuchFile(id))?;
        self.edit(file.workflow_id, now, move |db, by| edit::data::delete_file(db, id, by))
    }

    fn add_requirements(
        &self,
        workflow: WorkflowId,
        name: &str,
        resources: &Resources,
        now: Timestamp,
    ) -> Result<RequirementsId, Error> {
        let (name, resources) = (name.to_owned(), *resources);
        self.edit(workflow, now, move |db, by| {
            edit::data::add_requirements(db, workflow, &name, &resources, by)
        })
    }

    fn update_requirements(
        &self,
        id: RequirementsId,
        update: &RequirementsUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, Error> {
        let find = |db: &B::Db| parts::requirements_row(db, id);
        let (workflow, _) = self.owner(find, Error::NoSuchRequirementsId(id))?;
        let update = update.clone();
        self.edit(workflow, now, move |db, by| edit::data::update_requirements(db, id, &update, by))
    }

    fn delete_requirements(&self, id: RequirementsId, now: Timestamp) -> Result<(), Error> {
        let find = |db: &B::Db| parts::requirements_row(db, id);
        let (workflow, _) = self.owner(find, Error::NoSuchRequirementsId(id))?;
        self.edit(workflow, now, move |db, by| edit::data::delete_requirements(db, id, by))
    }

    fn retry_action(&self, workflow: WorkflowId, id: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| action_changes::retry(db, workflow, id, by))
    }

    fn delete_result(&self, id: ResultId, now: Timestamp) -> Result<(), Error> {
        let find = |db: &B::Db| edit::data::workflow_of_result(db, id);
        let workflow = self.owner(find, Error::NoSuchResult(id))?;
        self.edit(workflow, now, move |db, by| edit::data::delete_result(db, id, by))
    }

    fn delete_event(&self, id: EventId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| edit::data::delete_event(db, id, by))
    }

    fn export(&self, id: WorkflowId, options: ExportOptions, now: Timestamp) -> Result<Export, Error> {
        self.read(|db| export::export(db, id, options, now))
    }

    fn import(&self, export: &Export, options: &ImportOptions, now: Timestamp) -> Result<WorkflowId, Error> {
        let by = By { actor: &self.actor, now };
        self.backend.large(|db| import::import(db, export, options, by))
    }

    fn lock(&self, what: Lock, now: Timestamp) -> Result<LockGuard, Error> {
        self.backend.lock(what, now)
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<Holder>, Error> {
        self.backend.lock_holder(workflow)
    }

    fn trouble(&self) -> Option<Error> {
        self.backend.trouble()
    }

    fn location(&self) -> Location {
        self.backend.location()
    }

    fn acting_as(&self, actor: &str) -> Arc<dyn Store> {
        Arc::new(Self { backend: Arc::clone(&self.backend), actor: actor.into() })
    }
}
