//! What the contract asks of the books beyond running jobs.

use crate::Error;
use crate::model::{
    ActionRunRow, AddAction, AddFile, AddUserData, Counted, DependencyRow, EventRow, JobDetails, JobFilter,
    JobRelations, NewEvent, Part, ReadyRow, RecordRow, ResultRow, SettingsUpdate, StatedResult,
    UserDataUpdate, WorkDone, WorkflowFilter, WorkflowRow,
};
use serde_json::Value;
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::{EventId, FileId, JobId, ResultId, Timestamp, UserDataId, WorkflowId};

/// Lists with counts, and the parts of workflows one by one.
///
/// Sorting by a field that a list does not have is [`Error::OutOfRange`]. Changes to the jobs of a workflow, or to what
/// they refer to, are refused while somebody else runs it.
pub trait Parts: Send + Sync {
    /// How many lines a list has without offset and limit. Cheap for jobs where only states are asked for.
    fn count(&self, what: &Counted) -> Result<u64, Error>;
    /// The workflow that something belongs to; `None` if it is not there or belongs to none.
    fn workflow_of(&self, part: Part) -> Result<Option<WorkflowId>, Error>;

    fn list_workflows(&self, filter: &WorkflowFilter) -> Result<Vec<WorkflowRow>, Error>;
    fn update_settings(&self, id: WorkflowId, update: &SettingsUpdate, now: Timestamp) -> Result<(), Error>;
    fn work_done(&self, workflow: WorkflowId) -> Result<WorkDone, Error>;

    fn job(&self, id: JobId) -> Result<Option<JobDetails>, Error>;
    fn job_details(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobDetails>, Error>;
    fn job_ids(&self, workflow: WorkflowId) -> Result<Vec<JobId>, Error>;
    /// What hangs on each of them, in the order asked for.
    fn relations(&self, jobs: &[JobId]) -> Result<Vec<JobRelations>, Error>;
    /// Who waits for whom, gates written out; ascending by job, then by what it waits for.
    fn dependencies(
        &self,
        workflow: WorkflowId,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Vec<DependencyRow>, Error>;
    /// What the ready jobs ask for, each set of values once; with a scheduler, of the jobs that name it or none.
    fn ready_requirements(
        &self,
        workflow: WorkflowId,
        scheduler: Option<i64>,
    ) -> Result<Vec<ReadyRow>, Error>;

    fn add_files(
        &self,
        workflow: WorkflowId,
        files: &[AddFile],
        now: Timestamp,
    ) -> Result<Vec<FileId>, Error>;
    /// Files that must be there: read by some job and written by none, or written by a completed job.
    fn required_files(&self, workflow: WorkflowId) -> Result<Vec<FileId>, Error>;
    /// All or none. Who reads waits for who writes, as with files.
    fn add_user_data_list(
        &self,
        workflow: WorkflowId,
        list: &[AddUserData],
        now: Timestamp,
    ) -> Result<Vec<UserDataId>, Error>;
    fn update_user_data(&self, id: UserDataId, update: &UserDataUpdate, now: Timestamp) -> Result<(), Error>;
    /// Pieces without data that some job reads and none writes, or that a completed job writes.
    fn missing_user_data(&self, workflow: WorkflowId) -> Result<Vec<UserDataId>, Error>;
    /// Forgets the data of ephemeral pieces. How many there were.
    fn clear_ephemeral(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error>;

    fn add_handler(
        &self,
        workflow: WorkflowId,
        handler: &FailureHandler,
        now: Timestamp,
    ) -> Result<i64, Error>;
    fn update_handler(&self, id: i64, handler: &FailureHandler, now: Timestamp) -> Result<(), Error>;
    /// Refused while a job names it.
    fn delete_handler(&self, id: i64, now: Timestamp) -> Result<(), Error>;
    fn add_scheduler(
        &self,
        workflow: WorkflowId,
        scheduler: &SlurmScheduler,
        now: Timestamp,
    ) -> Result<i64, Error>;
    fn update_scheduler(&self, id: i64, scheduler: &SlurmScheduler, now: Timestamp) -> Result<(), Error>;
    /// Refused while a job names it.
    fn delete_scheduler(&self, id: i64, now: Timestamp) -> Result<(), Error>;

    fn add_action(&self, workflow: WorkflowId, action: &AddAction, now: Timestamp) -> Result<i64, Error>;
    fn update_action(&self, id: i64, action: &AddAction, now: Timestamp) -> Result<(), Error>;
    /// With the notes of its executions.
    fn delete_action(&self, id: i64, now: Timestamp) -> Result<(), Error>;
    /// Actions begin anew, as for a new run: all of them, or those whose jobs do. Those of a recovery are deleted.
    fn rearm_actions(&self, workflow: WorkflowId, everything: bool, now: Timestamp) -> Result<(), Error>;
    /// Every execution of the actions of a workflow, by action, oldest first.
    fn action_runs(&self, workflow: WorkflowId) -> Result<Vec<ActionRunRow>, Error>;

    fn result(&self, id: ResultId) -> Result<Option<ResultRow>, Error>;
    /// A result that a client states. The job stays as it is.
    fn add_result(&self, result: &StatedResult, now: Timestamp) -> Result<ResultId, Error>;
    fn update_result(&self, id: ResultId, result: &StatedResult, now: Timestamp) -> Result<(), Error>;
    /// How many there were. One event says so.
    fn delete_results(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error>;

    /// Several at once, in one transaction.
    fn add_events(&self, events: &[NewEvent], now: Timestamp) -> Result<Vec<EventId>, Error>;
    fn event(&self, id: EventId) -> Result<Option<EventRow>, Error>;
    /// Replaces its data; another event says so.
    fn update_event(&self, id: EventId, data: &Value, now: Timestamp) -> Result<(), Error>;
    /// Those of one workflow. How many there were; another event says so.
    fn delete_events(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error>;

    fn add_record(
        &self,
        workflow: Option<WorkflowId>,
        kind: &str,
        name: Option<&str>,
        data: &Value,
        now: Timestamp,
    ) -> Result<i64, Error>;
    /// Of one workflow, or (`None`) of all; oldest first.
    fn records(&self, workflow: Option<WorkflowId>, kind: &str) -> Result<Vec<RecordRow>, Error>;
    fn record(&self, id: i64) -> Result<Option<RecordRow>, Error>;
    fn update_record(&self, id: i64, data: &Value, now: Timestamp) -> Result<(), Error>;
    fn delete_record(&self, id: i64, now: Timestamp) -> Result<(), Error>;
    /// How many there were.
    fn delete_records(&self, workflow: WorkflowId, kind: &str, now: Timestamp) -> Result<u64, Error>;
}
