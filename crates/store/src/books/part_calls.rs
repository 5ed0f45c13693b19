//! [`Parts`] on a database: which connection does what.

use super::{Backend, Books, action_changes, events, lists, one_by_one, read};
use crate::model::{
    ActionRunRow, AddAction, AddFile, AddUserData, Counted, DependencyRow, EventRow, JobDetails, JobFilter,
    JobRelations, NewEvent, Part, ReadyRow, RecordRow, ResultRow, SettingsUpdate, StatedResult,
    UserDataUpdate, WorkDone, WorkflowFilter, WorkflowRow,
};
use crate::{Error, Parts};
use serde_json::Value;
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::{EventId, FileId, JobId, ResultId, Timestamp, UserDataId, WorkflowId};

impl<B: Backend> Parts for Books<B> {
    fn count(&self, what: &Counted) -> Result<u64, Error> {
        self.read(|db| lists::count(db, what))
    }

    fn workflow_of(&self, part: Part) -> Result<Option<WorkflowId>, Error> {
        self.read(|db| lists::workflow_of(db, part))
    }

    fn list_workflows(&self, filter: &WorkflowFilter) -> Result<Vec<WorkflowRow>, Error> {
        self.read(|db| lists::workflows(db, filter))
    }

    fn update_settings(&self, id: WorkflowId, update: &SettingsUpdate, now: Timestamp) -> Result<(), Error> {
        let update = update.clone();
        self.edit(id, now, move |db, by| one_by_one::update_settings(db, id, &update, by))
    }

    fn work_done(&self, workflow: WorkflowId) -> Result<WorkDone, Error> {
        self.read(|db| lists::work_done(db, workflow))
    }

    fn job(&self, id: JobId) -> Result<Option<JobDetails>, Error> {
        self.read(|db| lists::job(db, id))
    }

    fn job_details(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobDetails>, Error> {
        self.read(|db| lists::job_details(db, workflow, filter))
    }

    fn job_ids(&self, workflow: WorkflowId) -> Result<Vec<JobId>, Error> {
        self.read(|db| lists::job_ids(db, workflow))
    }

    fn relations(&self, jobs: &[JobId]) -> Result<Vec<JobRelations>, Error> {
        self.read(|db| lists::relations(db, jobs))
    }

    fn dependencies(
        &self,
        workflow: WorkflowId,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Vec<DependencyRow>, Error> {
        self.read(|db| lists::dependencies(db, workflow, offset, limit))
    }

    fn ready_requirements(
        &self,
        workflow: WorkflowId,
        scheduler: Option<i64>,
    ) -> Result<Vec<ReadyRow>, Error> {
        self.read(|db| lists::ready_requirements(db, workflow, scheduler))
    }

    fn add_files(
        &self,
        workflow: WorkflowId,
        files: &[AddFile],
        now: Timestamp,
    ) -> Result<Vec<FileId>, Error> {
        let files = files.to_vec();
        self.edit(workflow, now, move |db, by| one_by_one::add_files(db, workflow, &files, by))
    }

    fn required_files(&self, workflow: WorkflowId) -> Result<Vec<FileId>, Error> {
        self.read(|db| lists::required_files(db, workflow))
    }

    fn add_user_data_list(
        &self,
        workflow: WorkflowId,
        list: &[AddUserData],
        now: Timestamp,
    ) -> Result<Vec<UserDataId>, Error> {
        let list = list.to_vec();
        self.edit(workflow, now, move |db, by| one_by_one::add_user_data(db, workflow, &list, by))
    }

    fn update_user_data(&self, id: UserDataId, update: &UserDataUpdate, now: Timestamp) -> Result<(), Error> {
        let update = update.clone();
        self.act(now, move |db, by| one_by_one::update_user_data(db, id, &update, by))
    }

    fn missing_user_data(&self, workflow: WorkflowId) -> Result<Vec<UserDataId>, Error> {
        self.read(|db| lists::missing_user_data(db, workflow))
    }

    fn clear_ephemeral(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error> {
        self.act(now, move |db, by| one_by_one::clear_ephemeral(db, workflow, by))
    }

    fn add_handler(
        &self,
        workflow: WorkflowId,
        handler: &FailureHandler,
        now: Timestamp,
    ) -> Result<i64, Error> {
        let handler = handler.clone();
        self.act(now, move |db, by| one_by_one::add_handler(db, workflow, &handler, by))
    }

    fn update_handler(&self, id: i64, handler: &FailureHandler, now: Timestamp) -> Result<(), Error> {
        let handler = handler.clone();
        self.act(now, move |db, by| one_by_one::update_handler(db, id, &handler, by))
    }

    fn delete_handler(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| one_by_one::delete_handler(db, id, by))
    }

    fn add_scheduler(
        &self,
        workflow: WorkflowId,
        scheduler: &SlurmScheduler,
        now: Timestamp,
    ) -> Result<i64, Error> {
        let scheduler = scheduler.clone();
        self.act(now, move |db, by| one_by_one::add_scheduler(db, workflow, &scheduler, by))
    }

    fn update_scheduler(&self, id: i64, scheduler: &SlurmScheduler, now: Timestamp) -> Result<(), Error> {
        let scheduler = scheduler.clone();
        self.act(now, move |db, by| one_by_one::update_scheduler(db, id, &scheduler, by))
    }

    fn delete_scheduler(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| one_by_one::delete_scheduler(db, id, by))
    }

    fn add_action(&self, workflow: WorkflowId, action: &AddAction, now: Timestamp) -> Result<i64, Error> {
        let action = action.clone();
        self.act(now, move |db, by| one_by_one::add_action(db, workflow, &action, by))
    }

    fn update_action(&self, id: i64, action: &AddAction, now: Timestamp) -> Result<(), Error> {
        let action = action.clone();
        self.act(now, move |db, by| one_by_one::update_action(db, id, &action, by))
    }

    fn delete_action(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| one_by_one::delete_action(db, id, by))
    }

    fn rearm_actions(&self, workflow: WorkflowId, everything: bool, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| action_changes::rearm(db, workflow, everything, by))
    }

    fn action_runs(&self, workflow: WorkflowId) -> Result<Vec<ActionRunRow>, Error> {
        self.read(|db| lists::action_runs(db, workflow))
    }

    fn result(&self, id: ResultId) -> Result<Option<ResultRow>, Error> {
        self.read(|db| read::result(db, id))
    }

    fn add_result(&self, result: &StatedResult, now: Timestamp) -> Result<ResultId, Error> {
        let result = result.clone();
        self.act(now, move |db, by| one_by_one::add_result(db, &result, by))
    }

    fn update_result(&self, id: ResultId, result: &StatedResult, now: Timestamp) -> Result<(), Error> {
        let result = result.clone();
        self.act(now, move |db, by| one_by_one::update_result(db, id, &result, by))
    }

    fn delete_results(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error> {
        self.edit(workflow, now, move |db, by| one_by_one::delete_results(db, workflow, by))
    }

    fn add_events(&self, events: &[NewEvent], now: Timestamp) -> Result<Vec<EventId>, Error> {
        let events = events.to_vec();
        self.act(now, move |db, by| one_by_one::add_events(db, &events, by))
    }

    fn event(&self, id: EventId) -> Result<Option<EventRow>, Error> {
        self.read(|db| events::event(db, id))
    }

    fn update_event(&self, id: EventId, data: &Value, now: Timestamp) -> Result<(), Error> {
        let data = data.clone();
        self.act(now, move |db, by| one_by_one::update_event(db, id, &data, by))
    }

    fn delete_events(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error> {
        self.act(now, move |db, by| one_by_one::delete_events(db, workflow, by))
    }

    fn add_record(
        &self,
        workflow: Option<WorkflowId>,
        kind: &str,
        name: Option<&str>,
        data: &Value,
        now: Timestamp,
    ) -> Result<i64, Error> {
        let (kind, name, data) = (kind.to_owned(), name.map(str::to_owned), data.clone());
        self.act(now, move |db, by| one_by_one::add_record(db, workflow, &kind, name.as_deref(), &data, by))
    }

    fn records(&self, workflow: Option<WorkflowId>, kind: &str) -> Result<Vec<RecordRow>, Error> {
        self.read(|db| one_by_one::records(db, workflow, kind))
    }

    fn record(&self, id: i64) -> Result<Option<RecordRow>, Error> {
        self.read(|db| one_by_one::record(db, id))
    }

    fn update_record(&self, id: i64, data: &Value, now: Timestamp) -> Result<(), Error> {
        let data = data.clone();
        self.act(now, move |db, by| one_by_one::update_record(db, id, &data, by))
    }

    fn delete_record(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| one_by_one::delete_record(db, id, by))
    }

    fn delete_records(&self, workflow: WorkflowId, kind: &str, now: Timestamp) -> Result<u64, Error> {
        let kind = kind.to_owned();
        self.act(now, move |db, by| one_by_one::delete_records(db, workflow, &kind, by))
    }
}
