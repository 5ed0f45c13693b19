//! What nobody asks for over a wire: workers, who may do what, parts one by one. Where the books are in this process they
//! are asked themselves; else a server offers these things in other ways.

use super::remote::{Remote, Transport, given_type, kept, methods};
use super::table::table;
use super::{Request, read_answer};
use crate::model::{
    ActionRunRow, AddAction, AddFile, AddUserData, AllocationFilter, Counted, DependencyRow, EventRow,
    GroupRow, HeldJob, JobDetails, JobFilter, JobRelations, MemberRow, NewEvent, NewToken, NewWorker,
    NodeAside, Part, ReadyRow, RecordRow, ResultRow, SettingsUpdate, StatedResult, TokenRow, UserDataUpdate,
    WorkDone, WorkerFilter, WorkerRow, WorkerUpdate, WorkflowFilter, WorkflowGroupRow, WorkflowRow,
};
use crate::{Access, Allocations, Error, Fleet, Parts};
use serde_json::Value;
use windlass_core::slurm::book::{
    AllocationChange, CallCount, NewAllocation, Schedule, Scheduled, StatedAllocation,
};
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::slurm::Allocation;
use windlass_types::{
    AllocationId, EventId, FileId, JobId, ResultId, Timestamp, UserDataId, WorkerId, WorkflowId,
};

macro_rules! methods_of_parts {
    (Store { $($_store:tt)* } Parts { $($lines:tt)* } $($others:tt)*) => { methods! { $($lines)* } };
}

macro_rules! methods_of_allocations {
    (Store { $($_store:tt)* } Parts { $($_parts:tt)* } Allocations { $($lines:tt)* }) => { methods! { $($lines)* } };
}

const FLEET: &str = "the books of workers";

impl<T: Transport + 'static> Fleet for Remote<T> {
    fn add_worker(&self, worker: &NewWorker, now: Timestamp) -> Result<WorkerId, Error> {
        self.direct(FLEET)?.add_worker(worker, now)
    }

    fn retire_worker(&self, worker: WorkerId, now: Timestamp) -> Result<(), Error> {
        self.direct(FLEET)?.retire_worker(worker, now)
    }

    fn update_worker(&self, worker: WorkerId, update: &WorkerUpdate, now: Timestamp) -> Result<(), Error> {
        self.direct(FLEET)?.update_worker(worker, update, now)
    }

    fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, Error> {
        self.direct(FLEET)?.workers(filter)
    }

    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, Error> {
        self.direct(FLEET)?.worker(id)
    }

    fn held_job(&self, workflow: WorkflowId, job: JobId) -> Result<Option<HeldJob>, Error> {
        self.direct(FLEET)?.held_job(workflow, job)
    }

    fn delete_workers(&self, workers: &[WorkerId], now: Timestamp) -> Result<(), Error> {
        self.direct(FLEET)?.delete_workers(workers, now)
    }

    fn active_workflows(&self) -> Result<Vec<WorkflowId>, Error> {
        self.direct(FLEET)?.active_workflows()
    }

    fn nodes_aside(&self) -> Result<Vec<NodeAside>, Error> {
        self.direct(FLEET)?.nodes_aside()
    }

    fn set_node_aside(&self, node: &NodeAside, now: Timestamp) -> Result<(), Error> {
        self.direct(FLEET)?.set_node_aside(node, now)
    }

    fn release_node(&self, host: &str, user: Option<&str>, why: &str, now: Timestamp) -> Result<bool, Error> {
        self.direct(FLEET)?.release_node(host, user, why, now)
    }
}

const ACCESS: &str = "the books of who may do what";

impl<T: Transport + 'static> Access for Remote<T> {
    fn add_group(&self, name: &str, description: Option<&str>, now: Timestamp) -> Result<i64, Error> {
        self.direct(ACCESS)?.add_group(name, description, now)
    }

    fn groups(&self) -> Result<Vec<GroupRow>, Error> {
        self.direct(ACCESS)?.groups()
    }

    fn group(&self, id: i64) -> Result<Option<GroupRow>, Error> {
        self.direct(ACCESS)?.group(id)
    }

    fn delete_group(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.direct(ACCESS)?.delete_group(id, now)
    }

    fn add_member(&self, group: i64, user: &str, role: &str, now: Timestamp) -> Result<MemberRow, Error> {
        self.direct(ACCESS)?.add_member(group, user, role, now)
    }

    fn remove_member(&self, group: i64, user: &str, now: Timestamp) -> Result<(), Error> {
        self.direct(ACCESS)?.remove_member(group, user, now)
    }

    fn members(&self, group: i64) -> Result<Vec<MemberRow>, Error> {
        self.direct(ACCESS)?.members(group)
    }

    fn groups_of(&self, user: &str) -> Result<Vec<(GroupRow, MemberRow)>, Error> {
        self.direct(ACCESS)?.groups_of(user)
    }

    fn share(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<WorkflowGroupRow, Error> {
        self.direct(ACCESS)?.share(workflow, group, now)
    }

    fn unshare(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<(), Error> {
        self.direct(ACCESS)?.unshare(workflow, group, now)
    }

    fn groups_sharing(&self, workflow: WorkflowId) -> Result<Vec<GroupRow>, Error> {
        self.direct(ACCESS)?.groups_sharing(workflow)
    }

    fn is_shared_with(&self, workflow: WorkflowId, user: &str) -> Result<bool, Error> {
        self.direct(ACCESS)?.is_shared_with(workflow, user)
    }

    fn add_token(&self, token: &NewToken, now: Timestamp) -> Result<i64, Error> {
        self.direct(ACCESS)?.add_token(token, now)
    }

    fn tokens(&self, user: Option<&str>) -> Result<Vec<TokenRow>, Error> {
        self.direct(ACCESS)?.tokens(user)
    }

    fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRow>, Error> {
        self.direct(ACCESS)?.token_by_hash(hash)
    }

    fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.direct(ACCESS)?.revoke_token(id, now)
    }

    fn note_token_use(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.direct(ACCESS)?.note_token_use(id, now)
    }
}

const PARTS: &str = "parts of workflows in this way";

impl<T: Transport + 'static> Parts for Remote<T> {
    fn count(&self, what: &Counted) -> Result<u64, Error> {
        self.direct(PARTS)?.count(what)
    }

    fn workflow_of(&self, part: Part) -> Result<Option<WorkflowId>, Error> {
        self.direct(PARTS)?.workflow_of(part)
    }

    fn list_workflows(&self, filter: &WorkflowFilter) -> Result<Vec<WorkflowRow>, Error> {
        self.direct(PARTS)?.list_workflows(filter)
    }

    fn update_settings(&self, id: WorkflowId, update: &SettingsUpdate, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.update_settings(id, update, now)
    }

    fn work_done(&self, workflow: WorkflowId) -> Result<WorkDone, Error> {
        self.direct(PARTS)?.work_done(workflow)
    }

    fn job(&self, id: JobId) -> Result<Option<JobDetails>, Error> {
        self.direct(PARTS)?.job(id)
    }

    fn job_details(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobDetails>, Error> {
        self.direct(PARTS)?.job_details(workflow, filter)
    }

    fn job_ids(&self, workflow: WorkflowId) -> Result<Vec<JobId>, Error> {
        self.direct(PARTS)?.job_ids(workflow)
    }

    fn relations(&self, jobs: &[JobId]) -> Result<Vec<JobRelations>, Error> {
        self.direct(PARTS)?.relations(jobs)
    }

    fn dependencies(
        &self,
        workflow: WorkflowId,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Vec<DependencyRow>, Error> {
        self.direct(PARTS)?.dependencies(workflow, offset, limit)
    }

    fn ready_requirements(
        &self,
        workflow: WorkflowId,
        scheduler: Option<i64>,
    ) -> Result<Vec<ReadyRow>, Error> {
        self.direct(PARTS)?.ready_requirements(workflow, scheduler)
    }

    fn add_files(
        &self,
        workflow: WorkflowId,
        files: &[AddFile],
        now: Timestamp,
    ) -> Result<Vec<FileId>, Error> {
        self.direct(PARTS)?.add_files(workflow, files, now)
    }

    fn required_files(&self, workflow: WorkflowId) -> Result<Vec<FileId>, Error> {
        self.direct(PARTS)?.required_files(workflow)
    }

    fn add_user_data_list(
        &self,
        workflow: WorkflowId,
        list: &[AddUserData],
        now: Timestamp,
    ) -> Result<Vec<UserDataId>, Error> {
        self.direct(PARTS)?.add_user_data_list(workflow, list, now)
    }

    fn update_user_data(&self, id: UserDataId, update: &UserDataUpdate, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.update_user_data(id, update, now)
    }

    fn missing_user_data(&self, workflow: WorkflowId) -> Result<Vec<UserDataId>, Error> {
        self.direct(PARTS)?.missing_user_data(workflow)
    }

    fn clear_ephemeral(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error> {
        self.direct(PARTS)?.clear_ephemeral(workflow, now)
    }

    fn add_handler(
        &self,
        workflow: WorkflowId,
        handler: &FailureHandler,
        now: Timestamp,
    ) -> Result<i64, Error> {
        self.direct(PARTS)?.add_handler(workflow, handler, now)
    }

    fn update_handler(&self, id: i64, handler: &FailureHandler, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.update_handler(id, handler, now)
    }

    fn delete_handler(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.delete_handler(id, now)
    }

    table!(methods_of_parts);

    fn add_action(&self, workflow: WorkflowId, action: &AddAction, now: Timestamp) -> Result<i64, Error> {
        self.direct(PARTS)?.add_action(workflow, action, now)
    }

    fn update_action(&self, id: i64, action: &AddAction, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.update_action(id, action, now)
    }

    fn delete_action(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.delete_action(id, now)
    }

    fn rearm_actions(&self, workflow: WorkflowId, everything: bool, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.rearm_actions(workflow, everything, now)
    }

    fn action_runs(&self, workflow: WorkflowId) -> Result<Vec<ActionRunRow>, Error> {
        self.direct(PARTS)?.action_runs(workflow)
    }

    fn result(&self, id: ResultId) -> Result<Option<ResultRow>, Error> {
        self.direct(PARTS)?.result(id)
    }

    fn add_result(&self, result: &StatedResult, now: Timestamp) -> Result<ResultId, Error> {
        self.direct(PARTS)?.add_result(result, now)
    }

    fn update_result(&self, id: ResultId, result: &StatedResult, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.update_result(id, result, now)
    }

    fn delete_results(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error> {
        self.direct(PARTS)?.delete_results(workflow, now)
    }

    fn add_events(&self, events: &[NewEvent], now: Timestamp) -> Result<Vec<EventId>, Error> {
        self.direct(PARTS)?.add_events(events, now)
    }

    fn event(&self, id: EventId) -> Result<Option<EventRow>, Error> {
        self.direct(PARTS)?.event(id)
    }

    fn update_event(&self, id: EventId, data: &Value, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.update_event(id, data, now)
    }

    fn delete_events(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error> {
        self.direct(PARTS)?.delete_events(workflow, now)
    }

    fn add_record(
        &self,
        workflow: Option<WorkflowId>,
        kind: &str,
        name: Option<&str>,
        data: &Value,
        now: Timestamp,
    ) -> Result<i64, Error> {
        self.direct(PARTS)?.add_record(workflow, kind, name, data, now)
    }

    fn records(&self, workflow: Option<WorkflowId>, kind: &str) -> Result<Vec<RecordRow>, Error> {
        self.direct(PARTS)?.records(workflow, kind)
    }

    fn record(&self, id: i64) -> Result<Option<RecordRow>, Error> {
        self.direct(PARTS)?.record(id)
    }

    fn update_record(&self, id: i64, data: &Value, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.update_record(id, data, now)
    }

    fn delete_record(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.direct(PARTS)?.delete_record(id, now)
    }

    fn delete_records(&self, workflow: WorkflowId, kind: &str, now: Timestamp) -> Result<u64, Error> {
        self.direct(PARTS)?.delete_records(workflow, kind, now)
    }
}

const ALLOCATIONS: &str = "what is said of allocations by whoever looks after them";

impl<T: Transport + 'static> Allocations for Remote<T> {
    table!(methods_of_allocations);

    fn change_allocations(&self, changes: &[AllocationChange], now: Timestamp) -> Result<(), Error> {
        self.direct(ALLOCATIONS)?.change_allocations(changes, now)
    }

    fn note_slurm_calls(&self, calls: &[CallCount], now: Timestamp) -> Result<(), Error> {
        self.direct(ALLOCATIONS)?.note_slurm_calls(calls, now)
    }

    fn state_allocation(
        &self,
        id: Option<AllocationId>,
        stated: &StatedAllocation,
        now: Timestamp,
    ) -> Result<AllocationId, Error> {
        self.direct(ALLOCATIONS)?.state_allocation(id, stated, now)
    }

    fn delete_allocation(&self, id: AllocationId, now: Timestamp) -> Result<(), Error> {
        self.direct(ALLOCATIONS)?.delete_allocation(id, now)
    }

    fn delete_allocations(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error> {
        self.direct(ALLOCATIONS)?.delete_allocations(workflow, now)
    }
}
