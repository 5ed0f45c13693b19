//! What the contract asks of the books beyond running jobs.

use crate::StoreError;
use crate::model::{
    ActionRunRow, AddFile, AddUserData, ClientResult, CountQuery, DependencyRow, EventRow, JobDetails,
    JobFilter, JobRelations, NewAllocationAction, NewEvent, ReadyJobsRow, RecordRow, ResultRow,
    SettingsUpdate, UserDataUpdate, WorkSummary, WorkflowFilter, WorkflowPartId, WorkflowRow,
};
use serde_json::Value;
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::{EventId, FileId, JobId, ResultId, Timestamp, UserDataId, WorkflowId};

/// Lists with counts, and the parts of workflows one by one.
///
/// Sorting by a field that a list does not have is [`Error::OutOfRange`]. Changes to the jobs of a workflow, or to what
/// they refer to, are refused while somebody else runs it.
pub trait WorkflowPartStore: Send + Sync {
    /// How many lines a list has without offset and limit. Cheap for jobs where only states are asked for.
    fn count_rows(&self, what: &CountQuery) -> Result<u64, StoreError>;
    /// The workflow that something belongs to; `None` if it is not there or belongs to none.
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
    /// What hangs on each of them, in the order asked for.
    fn list_job_relations(&self, jobs: &[JobId]) -> Result<Vec<JobRelations>, StoreError>;
    /// Who waits for whom, gates written out; ascending by job, then by what it waits for.
    fn dependencies(
        &self,
        workflow: WorkflowId,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Vec<DependencyRow>, StoreError>;
    /// What the ready jobs ask for, each set of values once; with a scheduler, of the jobs that name it or none.
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
    /// Files that must be there: read by some job and written by none, or written by a completed job.
    fn required_files(&self, workflow: WorkflowId) -> Result<Vec<FileId>, StoreError>;
    /// All or none. Who reads waits for who writes, as with files.
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
    /// Pieces without data that some job reads and none writes, or that a completed job writes.
    fn missing_user_data(&self, workflow: WorkflowId) -> Result<Vec<UserDataId>, StoreError>;
    /// Forgets the data of ephemeral pieces. How many there were.
    fn clear_ephemeral_data(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError>;

    fn add_handler(
        &self,
        workflow: WorkflowId,
        handler: &FailureHandler,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    fn update_handler(&self, id: i64, handler: &FailureHandler, now: Timestamp) -> Result<(), StoreError>;
    /// Refused while a job names it.
    fn delete_handler(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
    fn add_scheduler(
        &self,
        workflow: WorkflowId,
        scheduler: &SlurmScheduler,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    fn update_scheduler(&self, id: i64, scheduler: &SlurmScheduler, now: Timestamp)
    -> Result<(), StoreError>;
    /// Refused while a job names it.
    fn delete_scheduler(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;

    fn add_action(
        &self,
        workflow: WorkflowId,
        action: &NewAllocationAction,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    fn update_action(&self, id: i64, action: &NewAllocationAction, now: Timestamp) -> Result<(), StoreError>;
    /// With the notes of its executions.
    fn delete_action(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
    /// Actions begin anew, as for a new run: all of them, or those whose jobs do. Those of a recovery are deleted.
    fn rearm_actions(&self, workflow: WorkflowId, everything: bool, now: Timestamp)
    -> Result<(), StoreError>;
    /// Every execution of the actions of a workflow, by action, oldest first.
    fn action_runs(&self, workflow: WorkflowId) -> Result<Vec<ActionRunRow>, StoreError>;

    fn result(&self, id: ResultId) -> Result<Option<ResultRow>, StoreError>;
    /// A result that a client states. The job stays as it is.
    fn add_result(&self, result: &ClientResult, now: Timestamp) -> Result<ResultId, StoreError>;
    fn update_result(&self, id: ResultId, result: &ClientResult, now: Timestamp) -> Result<(), StoreError>;
    /// How many there were. One event says so.
    fn delete_results(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError>;

    /// Several at once, in one transaction.
    fn add_events(&self, events: &[NewEvent], now: Timestamp) -> Result<Vec<EventId>, StoreError>;
    fn event(&self, id: EventId) -> Result<Option<EventRow>, StoreError>;
    /// Replaces its data; another event says so.
    fn update_event(&self, id: EventId, data: &Value, now: Timestamp) -> Result<(), StoreError>;
    /// Those of one workflow. How many there were; another event says so.
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
    fn records(&self, workflow: Option<WorkflowId>, kind: &str) -> Result<Vec<RecordRow>, StoreError>;
    fn record(&self, id: i64) -> Result<Option<RecordRow>, StoreError>;
    fn update_record(&self, id: i64, data: &Value, now: Timestamp) -> Result<(), StoreError>;
    fn delete_record(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
    /// How many there were.
    fn delete_records(&self, workflow: WorkflowId, kind: &str, now: Timestamp) -> Result<u64, StoreError>;
}
