//! [`WorkflowPartStore`] on a database: selects the connection of each call.

use super::{SqlStore, StoreBackend, action_changes, crud, events, queries, torc_lists};
use crate::model::{
    ActionRunRow, AddFile, AddUserData, ClientRecordRow, ClientResult, CountQuery, DependencyRow, EventRow,
    JobDetails, JobFilter, JobRelations, NewAllocationAction, NewEvent, ReadyJobsRow, ResultRow,
    SettingsUpdate, UserDataUpdate, WorkSummary, WorkflowFilter, WorkflowPartId, WorkflowRow,
};
use crate::{StoreError, WorkflowPartStore};
use serde_json::Value;
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::{EventId, FileId, JobId, ResultId, Timestamp, UserDataId, WorkflowId};

impl<B: StoreBackend> WorkflowPartStore for SqlStore<B> {
    fn count_rows(&self, what: &CountQuery) -> Result<u64, StoreError> {
        self.read(|db| torc_lists::count_rows(db, what))
    }

    fn workflow_of(&self, part: WorkflowPartId) -> Result<Option<WorkflowId>, StoreError> {
        self.read(|db| torc_lists::workflow_of(db, part))
    }

    fn list_workflows(&self, filter: &WorkflowFilter) -> Result<Vec<WorkflowRow>, StoreError> {
        self.read(|db| torc_lists::list_workflows(db, filter))
    }

    fn update_settings(
        &self,
        id: WorkflowId,
        update: &SettingsUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let update = update.clone();
        self.edit_workflow(id, now, move |db, by| crud::update_settings(db, id, &update, by))
    }

    fn work_summary(&self, workflow: WorkflowId) -> Result<WorkSummary, StoreError> {
        self.read(|db| torc_lists::work_summary(db, workflow))
    }

    fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError> {
        self.read(|db| torc_lists::find_job_details(db, id))
    }

    fn job_details(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobDetails>, StoreError> {
        self.read(|db| torc_lists::list_job_details(db, workflow, filter))
    }

    fn job_ids(&self, workflow: WorkflowId) -> Result<Vec<JobId>, StoreError> {
        self.read(|db| torc_lists::list_job_ids(db, workflow))
    }

    fn list_job_relations(&self, jobs: &[JobId]) -> Result<Vec<JobRelations>, StoreError> {
        self.read(|db| torc_lists::list_job_relations(db, jobs))
    }

    fn dependencies(
        &self,
        workflow: WorkflowId,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Vec<DependencyRow>, StoreError> {
        self.read(|db| torc_lists::list_dependencies(db, workflow, offset, limit))
    }

    fn ready_requirements(
        &self,
        workflow: WorkflowId,
        scheduler: Option<i64>,
    ) -> Result<Vec<ReadyJobsRow>, StoreError> {
        self.read(|db| torc_lists::list_ready_requirements(db, workflow, scheduler))
    }

    fn add_files(
        &self,
        workflow: WorkflowId,
        files: &[AddFile],
        now: Timestamp,
    ) -> Result<Vec<FileId>, StoreError> {
        let files = files.to_vec();
        self.edit_workflow(workflow, now, move |db, by| crud::add_files(db, workflow, &files, by))
    }

    fn required_files(&self, workflow: WorkflowId) -> Result<Vec<FileId>, StoreError> {
        self.read(|db| torc_lists::list_required_files(db, workflow))
    }

    fn add_user_data_list(
        &self,
        workflow: WorkflowId,
        list: &[AddUserData],
        now: Timestamp,
    ) -> Result<Vec<UserDataId>, StoreError> {
        let list = list.to_vec();
        self.edit_workflow(workflow, now, move |db, by| crud::add_user_data(db, workflow, &list, by))
    }

    fn update_user_data(
        &self,
        id: UserDataId,
        update: &UserDataUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let update = update.clone();
        self.write_as_actor(now, move |db, by| crud::update_user_data(db, id, &update, by))
    }

    fn missing_user_data(&self, workflow: WorkflowId) -> Result<Vec<UserDataId>, StoreError> {
        self.read(|db| torc_lists::list_missing_user_data(db, workflow))
    }

    fn clear_ephemeral_data(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError> {
        self.write_as_actor(now, move |db, by| crud::clear_ephemeral_data(db, workflow, by))
    }

    fn add_handler(
        &self,
        workflow: WorkflowId,
        handler: &FailureHandler,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let handler = handler.clone();
        self.write_as_actor(now, move |db, by| crud::add_handler(db, workflow, &handler, by))
    }

    fn update_handler(&self, id: i64, handler: &FailureHandler, now: Timestamp) -> Result<(), StoreError> {
        let handler = handler.clone();
        self.write_as_actor(now, move |db, by| crud::update_handler(db, id, &handler, by))
    }

    fn delete_handler(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| crud::delete_handler(db, id, by))
    }

    fn add_scheduler(
        &self,
        workflow: WorkflowId,
        scheduler: &SlurmScheduler,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let scheduler = scheduler.clone();
        self.write_as_actor(now, move |db, by| crud::add_scheduler(db, workflow, &scheduler, by))
    }

    fn update_scheduler(
        &self,
        id: i64,
        scheduler: &SlurmScheduler,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let scheduler = scheduler.clone();
        self.write_as_actor(now, move |db, by| crud::update_scheduler(db, id, &scheduler, by))
    }

    fn delete_scheduler(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| crud::delete_scheduler(db, id, by))
    }

    fn add_action(
        &self,
        workflow: WorkflowId,
        action: &NewAllocationAction,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let action = action.clone();
        self.write_as_actor(now, move |db, by| crud::add_action(db, workflow, &action, by))
    }

    fn update_action(&self, id: i64, action: &NewAllocationAction, now: Timestamp) -> Result<(), StoreError> {
        let action = action.clone();
        self.write_as_actor(now, move |db, by| crud::update_action(db, id, &action, by))
    }

    fn delete_action(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| crud::delete_action(db, id, by))
    }

    fn rearm_actions(
        &self,
        workflow: WorkflowId,
        everything: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| action_changes::rearm_actions(db, workflow, everything, by))
    }

    fn rearm_unstarted(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| action_changes::rearm_unstarted(db, workflow, by))
    }

    fn action_runs(&self, workflow: WorkflowId) -> Result<Vec<ActionRunRow>, StoreError> {
        self.read(|db| torc_lists::list_action_runs(db, workflow))
    }

    fn result(&self, id: ResultId) -> Result<Option<ResultRow>, StoreError> {
        self.read(|db| queries::find_result(db, id))
    }

    fn add_result(&self, result: &ClientResult, now: Timestamp) -> Result<ResultId, StoreError> {
        let result = result.clone();
        self.write_as_actor(now, move |db, by| crud::add_result(db, &result, by))
    }

    fn update_result(&self, id: ResultId, result: &ClientResult, now: Timestamp) -> Result<(), StoreError> {
        let result = result.clone();
        self.write_as_actor(now, move |db, by| crud::update_result(db, id, &result, by))
    }

    fn delete_results(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError> {
        self.edit_workflow(workflow, now, move |db, by| crud::delete_results(db, workflow, by))
    }

    fn add_events(&self, events: &[NewEvent], now: Timestamp) -> Result<Vec<EventId>, StoreError> {
        let events = events.to_vec();
        self.write_as_actor(now, move |db, by| crud::add_events(db, &events, by))
    }

    fn event(&self, id: EventId) -> Result<Option<EventRow>, StoreError> {
        self.read(|db| events::find_event(db, id))
    }

    fn update_event(&self, id: EventId, data: &Value, now: Timestamp) -> Result<(), StoreError> {
        let data = data.clone();
        self.write_as_actor(now, move |db, by| crud::update_event(db, id, &data, by))
    }

    fn delete_events(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError> {
        self.write_as_actor(now, move |db, by| crud::delete_events(db, workflow, by))
    }

    fn add_record(
        &self,
        workflow: Option<WorkflowId>,
        kind: &str,
        name: Option<&str>,
        data: &Value,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let (kind, name, data) = (kind.to_owned(), name.map(str::to_owned), data.clone());
        self.write_as_actor(now, move |db, by| {
            crud::add_record(db, workflow, &kind, name.as_deref(), &data, by)
        })
    }

    fn records(&self, workflow: Option<WorkflowId>, kind: &str) -> Result<Vec<ClientRecordRow>, StoreError> {
        self.read(|db| crud::list_records(db, workflow, kind))
    }

    fn record(&self, id: i64) -> Result<Option<ClientRecordRow>, StoreError> {
        self.read(|db| crud::find_record(db, id))
    }

    fn update_record(&self, id: i64, data: &Value, now: Timestamp) -> Result<(), StoreError> {
        let data = data.clone();
        self.write_as_actor(now, move |db, by| crud::update_record(db, id, &data, by))
    }

    fn delete_record(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| crud::delete_record(db, id, by))
    }

    fn delete_records(&self, workflow: WorkflowId, kind: &str, now: Timestamp) -> Result<u64, StoreError> {
        let kind = kind.to_owned();
        self.write_as_actor(now, move |db, by| crud::delete_records(db, workflow, &kind, by))
    }
}
