//! The store in a SQLite file: one thread writes ([`writer`]), any number of connections read ([`pool`]), and a large
//! workflow is created on a connection of its own ([`create`]).
//!
//! Other processes may read the file and create workflows in it at the same time.

mod apply;
mod column;
mod command;
mod create;
mod edit;
mod events;
mod export;
mod filesystem;
mod header;
mod import;
mod load;
mod manage;
mod migrate;
mod open;
mod parts;
#[cfg(test)]
mod plan_tests;
mod pool;
mod query;
mod read;
mod records;
mod runs;
mod spawn;
mod writer;

pub use open::{OpenMode, Warning};

use crate::error::Fault;
use crate::lock::WorkflowLock;
use crate::model::{
    ActionRow, AddJob, DataFilter, EventFilter, EventRow, Export, ExportOptions, FieldChange, FileRow,
    FileUpdate, HandlerRow, HeldJob, ImportOptions, JobCommand, JobFileRow, JobFilter, JobRelations, JobRow,
    JobSource, JobUpdate, JobUserDataRow, KindRow, LastRecord, LoadedJobs, NewEvent, NewUserData, NewWorker,
    NewWorkflow, RequirementsChange, RequirementsRow, RequirementsUpdate, ResultFilter, ResultRow,
    SchedulerRow, SpawnRequest, Spawned, UserDataRow, WorkerRow, WorkflowRow, WorkflowUpdate,
};
use crate::sql::sqlite::FOREIGN_COMMITS;
use crate::{Batch, Done, Error, Store};
use manage::By;
use pool::ReadPool;
use rusqlite::Connection;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use windlass_types::work::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, Resources, ResultId, RunId, Timestamp, UserDataId, WorkerId,
    WorkflowId,
};
use writer::Writer;

/// An open database. Dropping it waits until everything that was submitted is on disk.
#[derive(Debug)]
pub struct SqliteStore {
    path: Arc<Path>,
    readers: ReadPool,
    /// `None` when opened for reading only.
    writer: Option<Writer>,
    /// Who is noted as the one who did it.
    actor: Arc<str>,
}

/// For whom nobody was named.
const NOBODY: &str = "windlass";

/// A store, and what its user should know about it.
#[derive(Debug)]
pub struct Opened {
    pub store: SqliteStore,
    pub warnings: Vec<Warning>,
}

impl SqliteStore {
    /// Opens a database that is there.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Opened, Error> {
        let checked = open::check(path.as_ref())?;
        let path = checked.path;
        let writer = match mode {
            OpenMode::ReadWrite => Some(Writer::start(open::writer(&path)?, Arc::clone(&path))?),
            OpenMode::ReadOnly => {
                open::require_current(&checked.reader, &path)?;
                None
            }
        };
        let readers = ReadPool::new(Arc::clone(&path), checked.access, checked.reader);
        let store = Self { path, readers, writer, actor: NOBODY.into() };
        Ok(Opened { store, warnings: checked.warnings })
    }

    /// Makes an empty database and opens it. Its directory must be there, and nothing of that name in it.
    pub fn create(path: impl AsRef<Path>) -> Result<Opened, Error> {
        open::create(path.as_ref())?;
        Self::open(path, OpenMode::ReadWrite)
    }

    /// Opens the database for writing, and makes it first if there is none.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Opened, Error> {
        let path = path.as_ref();
        match Self::open(path, OpenMode::ReadWrite) {
            Err(Error::Missing { .. }) => match open::create(path) {
                // Somebody else was quicker.
                Ok(()) | Err(Error::AlreadyExists { .. }) => Self::open(path, OpenMode::ReadWrite),
                Err(error) => Err(error),
            },
            other => other,
        }
    }

    /// Everything that is done from now on is noted as done by `actor`.
    #[must_use]
    pub fn acting_as(mut self, actor: &str) -> Self {
        self.actor = actor.into();
        self
    }

    /// The real and absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A connection of its own for something that takes long; dropping it undoes what was not committed.
    fn large_transaction(&self) -> Result<Connection, Error> {
        self.writer()?;
        let conn = open::writer(&self.path)?;
        create::prepare(&conn).map_err(|fault| fault.explain(&self.path))?;
        Ok(conn)
    }

    /// As [`Self::act`], while nobody runs the workflow.
    fn edit<T: Send + 'static>(
        &self,
        workflow: WorkflowId,
        now: Timestamp,
        work: impl FnOnce(&Connection, By<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer()?;
        let _lock = WorkflowLock::acquire(&self.path, workflow, now)?;
        self.act(now, work)
    }

    /// The workflow of something that a user named by its id.
    fn owner<T>(
        &self,
        find: impl Fn(&Connection) -> Result<Option<T>, Fault>,
        missing: Error,
    ) -> Result<T, Error> {
        self.readers.read(find)?.ok_or(missing)
    }

    fn writer(&self) -> Result<&Writer, Error> {
        self.writer.as_ref().ok_or_else(|| Error::ReadOnly { path: self.path.to_path_buf() })
    }

    /// Writes something that is noted as done by our actor.
    fn act<T: Send + 'static>(
        &self,
        now: Timestamp,
        work: impl FnOnce(&Connection, By<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let actor = Arc::clone(&self.actor);
        self.write(move |conn| work(conn, By { actor: &actor, now }))
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer()?.call(work)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // Readers first: the writer is then the last one out and tidies up.
        self.readers.clear();
    }
}

impl Store for SqliteStore {
    fn create_workflow(
        &self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        now: Timestamp,
    ) -> Result<WorkflowId, Error> {
        let conn = self.large_transaction()?;
        create::create(&conn, workflow, source, &self.actor, now).map_err(|fault| fault.explain(&self.path))
    }

    fn submit(&self, batch: Batch, done: Done) {
        match self.writer() {
            Ok(writer) => writer.submit(Box::new(apply::Submission { batch, done })),
            Err(error) => done(Err(error)),
        }
    }

    fn begin_run(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |conn, by| runs::begin_run(conn, workflow, by))
    }

    fn end_run(&self, workflow: WorkflowId, canceled: bool, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |conn, by| runs::end_run(conn, workflow, canceled, by))
    }

    fn begin_next_run(&self, workflow: WorkflowId, again: &[JobId], now: Timestamp) -> Result<RunId, Error> {
        let again = again.to_vec();
        self.act(now, move |conn, by| runs::begin_next_run(conn, workflow, &again, by))
    }

    fn request_cancel(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |conn, by| runs::request_cancel(conn, workflow, by))
    }

    fn cancel_requested(&self, workflow: WorkflowId) -> Result<bool, Error> {
        self.readers.read(|conn| runs::cancel_requested(conn, workflow))
    }

    fn add_worker(&self, worker: &NewWorker, now: Timestamp) -> Result<WorkerId, Error> {
        let worker = worker.clone();
        self.write(move |conn| runs::add_worker(conn, &worker, now))
    }

    fn active_workers(&self, workflow: WorkflowId) -> Result<Vec<WorkerRow>, Error> {
        self.readers.read(|conn| runs::active_workers(conn, workflow))
    }

    fn retire_worker(&self, worker: WorkerId, now: Timestamp) -> Result<(), Error> {
        self.write(move |conn| runs::retire_worker(conn, worker, now))
    }

    fn workflows(&self) -> Result<Vec<WorkflowRow>, Error> {
        self.readers.read(read::workflows)
    }

    fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, Error> {
        self.readers.read(|conn| read::workflow(conn, id))
    }

    fn find_by_digest(&self, digest: &str, submission_dir: &str) -> Result<Option<WorkflowRow>, Error> {
        self.readers.read(|conn| read::find_by_digest(conn, digest, submission_dir))
    }

    fn load_jobs(&self, workflow: WorkflowId) -> Result<LoadedJobs, Error> {
        self.readers.read(|conn| load::load_jobs(conn, workflow))
    }

    fn commands(&self, jobs: &[JobId]) -> Result<Vec<JobCommand>, Error> {
        self.readers.read(|conn| command::commands(conn, jobs))
    }

    fn held_jobs(&self, workflow: WorkflowId) -> Result<Vec<HeldJob>, Error> {
        self.readers.read(|conn| read::held_jobs(conn, workflow))
    }

    fn jobs(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobRow>, Error> {
        self.readers.read(|conn| read::jobs(conn, workflow, filter))
    }

    fn results(&self, workflow: WorkflowId, filter: &ResultFilter) -> Result<Vec<ResultRow>, Error> {
        self.readers.read(|conn| read::results(conn, workflow, filter))
    }

    fn job_names(&self, jobs: &[JobId]) -> Result<Vec<String>, Error> {
        self.readers.read(|conn| read::job_names(conn, jobs))
    }

    fn requirements(&self, workflow: WorkflowId) -> Result<Vec<RequirementsRow>, Error> {
        self.readers.read(|conn| parts::requirements(conn, workflow))
    }

    fn kinds(&self, workflow: WorkflowId) -> Result<Vec<KindRow>, Error> {
        self.readers.read(|conn| parts::kinds(conn, workflow))
    }

    fn handlers(&self, workflow: WorkflowId) -> Result<Vec<HandlerRow>, Error> {
        self.readers.read(|conn| parts::handlers(conn, workflow))
    }

    fn schedulers(&self, workflow: WorkflowId) -> Result<Vec<SchedulerRow>, Error> {
        self.readers.read(|conn| parts::schedulers(conn, workflow))
    }

    fn actions(&self, workflow: WorkflowId) -> Result<Vec<ActionRow>, Error> {
        self.readers.read(|conn| parts::actions(conn, workflow))
    }

    fn files(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<FileRow>, Error> {
        self.readers.read(|conn| parts::files(conn, workflow, filter))
    }

    fn file(&self, id: FileId) -> Result<Option<FileRow>, Error> {
        self.readers.read(|conn| parts::file(conn, id))
    }

    fn job_files(&self, workflow: WorkflowId) -> Result<Vec<JobFileRow>, Error> {
        self.readers.read(|conn| parts::job_files(conn, workflow))
    }

    fn user_data(&self, workflow: WorkflowId, filter: &DataFilter) -> Result<Vec<UserDataRow>, Error> {
        self.readers.read(|conn| parts::user_data(conn, workflow, filter))
    }

    fn user_data_piece(&self, id: UserDataId) -> Result<Option<UserDataRow>, Error> {
        self.readers.read(|conn| parts::user_data_piece(conn, id))
    }

    fn job_user_data(&self, workflow: WorkflowId) -> Result<Vec<JobUserDataRow>, Error> {
        self.readers.read(|conn| parts::job_user_data(conn, workflow))
    }

    fn add_event(&self, event: &NewEvent, now: Timestamp) -> Result<EventId, Error> {
        let event = event.clone();
        self.act(now, move |conn, by| events::note(conn, by.actor, &event, by.now))
    }

    fn events(&self, workflow: Option<WorkflowId>, filter: &EventFilter) -> Result<Vec<EventRow>, Error> {
        self.readers.read(|conn| events::events(conn, workflow, filter))
    }

    fn spawn(&self, request: &SpawnRequest, now: Timestamp) -> Result<Spawned, Error> {
        let request = request.clone();
        self.act(now, move |conn, by| spawn::spawn(conn, &request, by))
    }

    fn left_behind(&self, callers: &[AttemptKey]) -> Result<Vec<JobId>, Error> {
        self.readers.read(|conn| spawn::left_behind(conn, callers))
    }

    fn spawners(&self, workflow: WorkflowId) -> Result<Vec<JobId>, Error> {
        self.readers.read(|conn| spawn::spawners(conn, workflow))
    }

    fn jobs_after(&self, workflow: WorkflowId, after: JobId) -> Result<LoadedJobs, Error> {
        self.readers.read(|conn| load::jobs_after(conn, workflow, after))
    }

    fn foreign_commits(&self, wait: bool) -> Result<Option<i64>, Error> {
        self.writer()?
            .peek(wait, |conn| Ok(conn.prepare_cached(FOREIGN_COMMITS)?.query_row([], |row| row.get(0))?))
    }

    fn last_records(&self, workflow: WorkflowId) -> Result<Vec<LastRecord>, Error> {
        self.readers.read(|conn| records::last_records(conn, workflow))
    }

    fn update_workflow(&self, id: WorkflowId, update: &WorkflowUpdate, now: Timestamp) -> Result<(), Error> {
        let update = update.clone();
        self.act(now, move |conn, by| manage::update_workflow(conn, id, &update, by))
    }

    fn archive(&self, ids: &[WorkflowId], is_archived: bool, now: Timestamp) -> Result<(), Error> {
        let ids = ids.to_vec();
        self.act(now, move |conn, by| manage::archive(conn, &ids, is_archived, by))
    }

    fn delete_workflow(&self, id: WorkflowId, now: Timestamp) -> Result<(), Error> {
        self.writer()?;
        let lock = WorkflowLock::acquire(&self.path, id, now)?;
        let conn = self.large_transaction()?;
        manage::delete_workflow(&conn, id, By { actor: &self.actor, now })
            .map_err(|fault| fault.explain(&self.path))?;
        WorkflowLock::end_for_good(lock, &self.path, id);
        Ok(())
    }

    fn change_requirements(
        &self,
        workflow: WorkflowId,
        changes: &[RequirementsChange],
        now: Timestamp,
    ) -> Result<Vec<RequirementsId>, Error> {
        let changes = changes.to_vec();
        self.act(now, move |conn, by| manage::change_requirements(conn, workflow, &changes, by))
    }

    fn add_user_data(
        &self,
        workflow: WorkflowId,
        new: &NewUserData<'_>,
        now: Timestamp,
    ) -> Result<UserDataId, Error> {
        let (name, data, is_ephemeral) = (new.name.to_owned(), new.data.cloned(), new.is_ephemeral);
        self.act(now, move |conn, by| {
            manage::add_user_data(conn, workflow, &name, data.as_ref(), is_ephemeral, by)
        })
    }

    fn set_user_data(&self, id: UserDataId, data: Option<&Value>, now: Timestamp) -> Result<(), Error> {
        let data = data.cloned();
        self.act(now, move |conn, by| manage::set_user_data(conn, id, data.as_ref(), by))
    }

    fn delete_user_data(&self, id: UserDataId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |conn, by| manage::delete_user_data(conn, id, by))
    }

    fn add_jobs(&self, workflow: WorkflowId, jobs: &[AddJob], now: Timestamp) -> Result<Vec<JobId>, Error> {
        let jobs = jobs.to_vec();
        self.edit(workflow, now, move |conn, by| edit::jobs::add_jobs(conn, workflow, &jobs, by))
    }

    fn update_job(
        &self,
        workflow: WorkflowId,
        job: JobId,
        update: &JobUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, Error> {
        let update = update.clone();
        self.edit(workflow, now, move |conn, by| edit::jobs::update_job(conn, workflow, job, &update, by))
    }

    fn delete_jobs(&self, workflow: WorkflowId, jobs: &[JobId], now: Timestamp) -> Result<(), Error> {
        self.writer()?;
        let _lock = WorkflowLock::acquire(&self.path, workflow, now)?;
        let conn = self.large_transaction()?;
        edit::delete::delete_jobs(&conn, workflow, jobs, By { actor: &self.actor, now })
            .map_err(|fault| fault.explain(&self.path))
    }

    fn job_relations(&self, job: JobId) -> Result<JobRelations, Error> {
        self.readers.read(|conn| parts::job_relations(conn, job))
    }

    fn add_file(
        &self,
        workflow: WorkflowId,
        name: &str,
        path: &str,
        now: Timestamp,
    ) -> Result<FileId, Error> {
        let (name, path) = (name.to_owned(), path.to_owned());
        self.edit(workflow, now, move |conn, by| edit::data::add_file(conn, workflow, &name, &path, by))
    }

    fn update_file(
        &self,
        id: FileId,
        update: &FileUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, Error> {
        let file = self.owner(|conn| parts::file(conn, id), Error::NoSuchFile(id))?;
        let update = update.clone();
        self.edit(file.workflow_id, now, move |conn, by| edit::data::update_file(conn, id, &update, by))
    }

    fn delete_file(&self, id: FileId, now: Timestamp) -> Result<(), Error> {
        let file = self.owner(|conn| parts::file(conn, id), Error::NoSuchFile(id))?;
        self.edit(file.workflow_id, now, move |conn, by| edit::data::delete_file(conn, id, by))
    }

    fn add_requirements(
        &self,
        workflow: WorkflowId,
        name: &str,
        resources: &Resources,
        now: Timestamp,
    ) -> Result<RequirementsId, Error> {
        let (name, resources) = (name.to_owned(), *resources);
        self.edit(workflow, now, move |conn, by| {
            edit::data::add_requirements(conn, workflow, &name, &resources, by)
        })
    }

    fn update_requirements(
        &self,
        id: RequirementsId,
        update: &RequirementsUpdate,
        now: Timestamp,
    ) -> Result<Vec<FieldChange>, Error> {
        let find = |conn: &Connection| parts::requirements_row(conn, id);
        let (workflow, _) = self.owner(find, Error::NoSuchRequirementsId(id))?;
        let update = update.clone();
        self.edit(workflow, now, move |conn, by| edit::data::update_requirements(conn, id, &update, by))
    }

    fn delete_requirements(&self, id: RequirementsId, now: Timestamp) -> Result<(), Error> {
        let find = |conn: &Connection| parts::requirements_row(conn, id);
        let (workflow, _) = self.owner(find, Error::NoSuchRequirementsId(id))?;
        self.edit(workflow, now, move |conn, by| edit::data::delete_requirements(conn, id, by))
    }

    fn delete_result(&self, id: ResultId, now: Timestamp) -> Result<(), Error> {
        let find = |conn: &Connection| edit::data::workflow_of_result(conn, id);
        let workflow = self.owner(find, Error::NoSuchResult(id))?;
        self.edit(workflow, now, move |conn, by| edit::data::delete_result(conn, id, by))
    }

    fn delete_event(&self, id: EventId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |conn, by| edit::data::delete_event(conn, id, by))
    }

    fn export(&self, id: WorkflowId, options: ExportOptions, now: Timestamp) -> Result<Export, Error> {
        self.readers.read(|conn| export::export(conn, id, options, now))
    }

    fn import(&self, export: &Export, options: &ImportOptions, now: Timestamp) -> Result<WorkflowId, Error> {
        let conn = self.large_transaction()?;
        import::import(&conn, export, options, By { actor: &self.actor, now })
            .map_err(|fault| fault.explain(&self.path))
    }
}
