//! Storage of the contract's data besides running jobs.

use crate::StoreError;
use crate::model::{
    ActionRunRow, AddFile, AddUserData, ClientRecordRow, ClientResult, CountQuery, DependencyRow, EventRow,
    JobDetails, JobFilter, JobRelations, NewAllocationAction, NewEvent, ReadyJobsRow, ResultRow,
    SettingsUpdate, UserDataUpdate, WorkSummary, WorkflowFilter, WorkflowPartId, WorkflowRow,
};
use serde_json::Value;
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::{EventId, FileId, JobId, ResultId, Timestamp, UserDataId, WorkflowId};

/// Lists with counts, and single parts of workflows.
///
/// Sorting by an unknown field is [`StoreError::OutOfRange`]. Changes of the jobs of a workflow, or of objects
/// that they refer to, are rejected while another process runs it.
pub trait WorkflowPartStore: Send + Sync {
    /// Counts the rows of a list without offset and limit. Cheap for jobs if only states are selected.
    fn count_rows(&self, what: &CountQuery) -> Result<u64, StoreError>;
    /// Returns the workflow of a part; `None` if it does not exist or has none.
    fn workflow_of(&self, part: WorkflowPartId) -> Result<Option<WorkflowId>, StoreError>;

    fn list_workflows(&self, filter: &WorkflowFilter) -> Result<Vec<WorkflowRow>, StoreError>;
    fn update_settings(
        &self,
        id: WorkflowId,
        update: &SettingsUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    fn work_summary(&self, workflow: WorkflowId) -> Result<WorkSummary, StoreError>;

    fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError>;
    fn job_details(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobDetails>, StoreError>;
    fn job_ids(&self, workflow: WorkflowId) -> Result<Vec<JobId>, StoreError>;
    /// Returns the relations of each job, in the order given.
    fn list_job_relations(&self, jobs: &[JobId]) -> Result<Vec<JobRelations>, StoreError>;
    /// Returns dependencies, with dependency groups expanded; ascending by job, then by dependency.
    fn dependencies(
        &self,
        workflow: WorkflowId,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Vec<DependencyRow>, StoreError>;
    /// Returns the distinct resource requests of ready jobs; with a scheduler, of the jobs that name it or
    /// none.
    fn ready_requirements(
        &self,
        workflow: WorkflowId,
        scheduler: Option<i64>,
    ) -> Result<Vec<ReadyJobsRow>, StoreError>;

    fn add_files(
        &self,
        workflow: WorkflowId,
        files: &[AddFile],
        now: Timestamp,
    ) -> Result<Vec<FileId>, StoreError>;
    /// Returns required files: read by a job and written by none, or written by a completed job.
    fn required_files(&self, workflow: WorkflowId) -> Result<Vec<FileId>, StoreError>;
    /// Adds user data, all or none. Consumers depend on producers, as with files.
    fn add_user_data_list(
        &self,
        workflow: WorkflowId,
        list: &[AddUserData],
        now: Timestamp,
    ) -> Result<Vec<UserDataId>, StoreError>;
    fn update_user_data(
        &self,
        id: UserDataId,
        update: &UserDataUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    /// Returns user data without a value that a job reads and none writes, or that a completed job writes.
    fn missing_user_data(&self, workflow: WorkflowId) -> Result<Vec<UserDataId>, StoreError>;
    /// Clears the values of ephemeral user data. Returns their number.
    fn clear_ephemeral_data(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError>;

    fn add_handler(
        &self,
        workflow: WorkflowId,
        handler: &FailureHandler,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    fn update_handler(&self, id: i64, handler: &FailureHandler, now: Timestamp) -> Result<(), StoreError>;
    /// Rejected while a job refers to it.
    fn delete_handler(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
    fn add_scheduler(
        &self,
        workflow: WorkflowId,
        scheduler: &SlurmScheduler,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    fn update_scheduler(&self, id: i64, scheduler: &SlurmScheduler, now: Timestamp)
    -> Result<(), StoreError>;
    /// Rejected while a job refers to it.
    fn delete_scheduler(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;

    fn add_action(
        &self,
        workflow: WorkflowId,
        action: &NewAllocationAction,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    fn update_action(&self, id: i64, action: &NewAllocationAction, now: Timestamp) -> Result<(), StoreError>;
    /// Also deletes the records of its executions.
    fn delete_action(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
    /// Rearms actions, as for a new run: all of them, or those whose jobs run again. Recovery actions are
    /// deleted.
    fn rearm_actions(&self, workflow: WorkflowId, everything: bool, now: Timestamp)
    -> Result<(), StoreError>;
    /// Rearms all actions of a workflow that never ran, and deletes its recovery actions. Rejected if it has
    /// started.
    fn rearm_unstarted(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError>;
    /// Returns every execution of the actions of a workflow, by action, oldest first.
    fn action_runs(&self, workflow: WorkflowId) -> Result<Vec<ActionRunRow>, StoreError>;

    fn result(&self, id: ResultId) -> Result<Option<ResultRow>, StoreError>;
    /// Adds a result reported by a client. The job stays as it is.
    fn add_result(&self, result: &ClientResult, now: Timestamp) -> Result<ResultId, StoreError>;
    fn update_result(&self, id: ResultId, result: &ClientResult, now: Timestamp) -> Result<(), StoreError>;
    /// Returns their number. Recorded as one event.
    fn delete_results(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError>;

    /// Adds several in one transaction.
    fn add_events(&self, events: &[NewEvent], now: Timestamp) -> Result<Vec<EventId>, StoreError>;
    fn event(&self, id: EventId) -> Result<Option<EventRow>, StoreError>;
    /// Replaces its data; recorded as another event.
    fn update_event(&self, id: EventId, data: &Value, now: Timestamp) -> Result<(), StoreError>;
    /// Deletes those of one workflow and returns their number; recorded as another event.
    fn delete_events(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError>;

    fn add_record(
        &self,
        workflow: Option<WorkflowId>,
        kind: &str,
        name: Option<&str>,
        data: &Value,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    /// Of one workflow, or (`None`) of all; oldest first.
    fn records(&self, workflow: Option<WorkflowId>, kind: &str) -> Result<Vec<ClientRecordRow>, StoreError>;
    fn record(&self, id: i64) -> Result<Option<ClientRecordRow>, StoreError>;
    fn update_record(&self, id: i64, data: &Value, now: Timestamp) -> Result<(), StoreError>;
    fn delete_record(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
    /// Returns their number.
    fn delete_records(&self, workflow: WorkflowId, kind: &str, now: Timestamp) -> Result<u64, StoreError>;
}
