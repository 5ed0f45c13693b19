//! Methods that are not callable remotely: workers, permissions, parts of workflows. Available if the store is
//! in this process; servers offer them in other ways.

use super::call_table::table;
use super::rpc_store::{RpcStore, RpcTransport, borrowed_type, methods, stored_argument};
use super::{StoreCall, parse_reply};
use crate::model::{
    AccessGroupRow, ActionRunRow, AddFile, AddUserData, AllocationFilter, ClientRecordRow, ClientResult,
    CountQuery, DependencyRow, EventRow, GroupMemberRow, HeldJob, JobDetails, JobFilter, JobRelations,
    NewAllocationAction, NewEvent, NewTokenRow, NewWorker, NodeQuarantineRow, ReadyJobsRow, ResultRow,
    SettingsUpdate, TokenRow, UserDataUpdate, WorkSummary, WorkerFilter, WorkerRow, WorkerUpdate,
    WorkflowFilter, WorkflowGroupRow, WorkflowPartId, WorkflowRow,
};
use crate::{AccessStore, AllocationStore, StoreError, WorkerStore, WorkflowPartStore};
use serde_json::Value;
use windlass_core::slurm::allocation_rows::{
    AllocationChange, AllocationSchedule, AppliedSchedule, ExternalAllocation, NewAllocation, SlurmCallCount,
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

const WORKERS_LABEL: &str = "records of workers";

impl<T: RpcTransport + 'static> WorkerStore for RpcStore<T> {
    fn add_worker(&self, worker: &NewWorker, now: Timestamp) -> Result<WorkerId, StoreError> {
        self.require_direct(WORKERS_LABEL)?.add_worker(worker, now)
    }

    fn retire_worker(&self, worker: WorkerId, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKERS_LABEL)?.retire_worker(worker, now)
    }

    fn update_worker(
        &self,
        worker: WorkerId,
        update: &WorkerUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.require_direct(WORKERS_LABEL)?.update_worker(worker, update, now)
    }

    fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, StoreError> {
        self.require_direct(WORKERS_LABEL)?.workers(filter)
    }

    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, StoreError> {
        self.require_direct(WORKERS_LABEL)?.worker(id)
    }

    fn held_job(&self, workflow: WorkflowId, job: JobId) -> Result<Option<HeldJob>, StoreError> {
        self.require_direct(WORKERS_LABEL)?.held_job(workflow, job)
    }

    fn delete_workers(&self, workers: &[WorkerId], now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKERS_LABEL)?.delete_workers(workers, now)
    }

    fn active_workflows(&self) -> Result<Vec<WorkflowId>, StoreError> {
        self.require_direct(WORKERS_LABEL)?.active_workflows()
    }

    fn quarantined_nodes(&self) -> Result<Vec<NodeQuarantineRow>, StoreError> {
        self.require_direct(WORKERS_LABEL)?.quarantined_nodes()
    }

    fn quarantine_node(&self, node: &NodeQuarantineRow, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKERS_LABEL)?.quarantine_node(node, now)
    }

    fn release_quarantined_node(
        &self,
        host: &str,
        user: Option<&str>,
        why: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.require_direct(WORKERS_LABEL)?.release_quarantined_node(host, user, why, now)
    }
}

const ACCESS_LABEL: &str = "access groups and tokens";

impl<T: RpcTransport + 'static> AccessStore for RpcStore<T> {
    fn add_group(&self, name: &str, description: Option<&str>, now: Timestamp) -> Result<i64, StoreError> {
        self.require_direct(ACCESS_LABEL)?.add_group(name, description, now)
    }

    fn groups(&self) -> Result<Vec<AccessGroupRow>, StoreError> {
        self.require_direct(ACCESS_LABEL)?.groups()
    }

    fn group(&self, id: i64) -> Result<Option<AccessGroupRow>, StoreError> {
        self.require_direct(ACCESS_LABEL)?.group(id)
    }

    fn delete_group(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(ACCESS_LABEL)?.delete_group(id, now)
    }

    fn add_member(
        &self,
        group: i64,
        user: &str,
        role: &str,
        now: Timestamp,
    ) -> Result<GroupMemberRow, StoreError> {
        self.require_direct(ACCESS_LABEL)?.add_member(group, user, role, now)
    }

    fn remove_member(&self, group: i64, user: &str, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(ACCESS_LABEL)?.remove_member(group, user, now)
    }

    fn members(&self, group: i64) -> Result<Vec<GroupMemberRow>, StoreError> {
        self.require_direct(ACCESS_LABEL)?.members(group)
    }

    fn groups_of_user(&self, user: &str) -> Result<Vec<(AccessGroupRow, GroupMemberRow)>, StoreError> {
        self.require_direct(ACCESS_LABEL)?.groups_of_user(user)
    }

    fn share_workflow(
        &self,
        workflow: WorkflowId,
        group: i64,
        now: Timestamp,
    ) -> Result<WorkflowGroupRow, StoreError> {
        self.require_direct(ACCESS_LABEL)?.share_workflow(workflow, group, now)
    }

    fn unshare_workflow(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(ACCESS_LABEL)?.unshare_workflow(workflow, group, now)
    }

    fn groups_sharing(&self, workflow: WorkflowId) -> Result<Vec<AccessGroupRow>, StoreError> {
        self.require_direct(ACCESS_LABEL)?.groups_sharing(workflow)
    }

    fn is_shared_with(&self, workflow: WorkflowId, user: &str) -> Result<bool, StoreError> {
        self.require_direct(ACCESS_LABEL)?.is_shared_with(workflow, user)
    }

    fn add_token(&self, token: &NewTokenRow, now: Timestamp) -> Result<i64, StoreError> {
        self.require_direct(ACCESS_LABEL)?.add_token(token, now)
    }

    fn tokens(&self, user: Option<&str>) -> Result<Vec<TokenRow>, StoreError> {
        self.require_direct(ACCESS_LABEL)?.tokens(user)
    }

    fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRow>, StoreError> {
        self.require_direct(ACCESS_LABEL)?.token_by_hash(hash)
    }

    fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(ACCESS_LABEL)?.revoke_token(id, now)
    }

    fn record_token_use(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(ACCESS_LABEL)?.record_token_use(id, now)
    }
}

const WORKFLOW_PARTS_LABEL: &str = "parts of workflows";

impl<T: RpcTransport + 'static> WorkflowPartStore for RpcStore<T> {
    fn count_rows(&self, what: &CountQuery) -> Result<u64, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.count_rows(what)
    }

    fn workflow_of(&self, part: WorkflowPartId) -> Result<Option<WorkflowId>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.workflow_of(part)
    }

    fn list_workflows(&self, filter: &WorkflowFilter) -> Result<Vec<WorkflowRow>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.list_workflows(filter)
    }

    fn update_settings(
        &self,
        id: WorkflowId,
        update: &SettingsUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.update_settings(id, update, now)
    }

    fn work_summary(&self, workflow: WorkflowId) -> Result<WorkSummary, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.work_summary(workflow)
    }

    fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.job(id)
    }

    fn job_details(&self, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobDetails>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.job_details(workflow, filter)
    }

    fn job_ids(&self, workflow: WorkflowId) -> Result<Vec<JobId>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.job_ids(workflow)
    }

    fn list_job_relations(&self, jobs: &[JobId]) -> Result<Vec<JobRelations>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.list_job_relations(jobs)
    }

    fn dependencies(
        &self,
        workflow: WorkflowId,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Vec<DependencyRow>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.dependencies(workflow, offset, limit)
    }

    fn ready_requirements(
        &self,
        workflow: WorkflowId,
        scheduler: Option<i64>,
    ) -> Result<Vec<ReadyJobsRow>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.ready_requirements(workflow, scheduler)
    }

    fn add_files(
        &self,
        workflow: WorkflowId,
        files: &[AddFile],
        now: Timestamp,
    ) -> Result<Vec<FileId>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.add_files(workflow, files, now)
    }

    fn required_files(&self, workflow: WorkflowId) -> Result<Vec<FileId>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.required_files(workflow)
    }

    fn add_user_data_list(
        &self,
        workflow: WorkflowId,
        list: &[AddUserData],
        now: Timestamp,
    ) -> Result<Vec<UserDataId>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.add_user_data_list(workflow, list, now)
    }

    fn update_user_data(
        &self,
        id: UserDataId,
        update: &UserDataUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.update_user_data(id, update, now)
    }

    fn missing_user_data(&self, workflow: WorkflowId) -> Result<Vec<UserDataId>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.missing_user_data(workflow)
    }

    fn clear_ephemeral_data(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.clear_ephemeral_data(workflow, now)
    }

    fn add_handler(
        &self,
        workflow: WorkflowId,
        handler: &FailureHandler,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.add_handler(workflow, handler, now)
    }

    fn update_handler(&self, id: i64, handler: &FailureHandler, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.update_handler(id, handler, now)
    }

    fn delete_handler(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.delete_handler(id, now)
    }

    table!(methods_of_parts);

    fn add_action(
        &self,
        workflow: WorkflowId,
        action: &NewAllocationAction,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.add_action(workflow, action, now)
    }

    fn update_action(&self, id: i64, action: &NewAllocationAction, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.update_action(id, action, now)
    }

    fn delete_action(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.delete_action(id, now)
    }

    fn rearm_actions(
        &self,
        workflow: WorkflowId,
        everything: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.rearm_actions(workflow, everything, now)
    }

    fn action_runs(&self, workflow: WorkflowId) -> Result<Vec<ActionRunRow>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.action_runs(workflow)
    }

    fn result(&self, id: ResultId) -> Result<Option<ResultRow>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.result(id)
    }

    fn add_result(&self, result: &ClientResult, now: Timestamp) -> Result<ResultId, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.add_result(result, now)
    }

    fn update_result(&self, id: ResultId, result: &ClientResult, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.update_result(id, result, now)
    }

    fn delete_results(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.delete_results(workflow, now)
    }

    fn add_events(&self, events: &[NewEvent], now: Timestamp) -> Result<Vec<EventId>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.add_events(events, now)
    }

    fn event(&self, id: EventId) -> Result<Option<EventRow>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.event(id)
    }

    fn update_event(&self, id: EventId, data: &Value, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.update_event(id, data, now)
    }

    fn delete_events(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.delete_events(workflow, now)
    }

    fn add_record(
        &self,
        workflow: Option<WorkflowId>,
        kind: &str,
        name: Option<&str>,
        data: &Value,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.add_record(workflow, kind, name, data, now)
    }

    fn records(&self, workflow: Option<WorkflowId>, kind: &str) -> Result<Vec<ClientRecordRow>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.records(workflow, kind)
    }

    fn record(&self, id: i64) -> Result<Option<ClientRecordRow>, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.record(id)
    }

    fn update_record(&self, id: i64, data: &Value, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.update_record(id, data, now)
    }

    fn delete_record(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.delete_record(id, now)
    }

    fn delete_records(&self, workflow: WorkflowId, kind: &str, now: Timestamp) -> Result<u64, StoreError> {
        self.require_direct(WORKFLOW_PARTS_LABEL)?.delete_records(workflow, kind, now)
    }
}

const ALLOCATIONS_LABEL: &str = "allocations managed by clients";

impl<T: RpcTransport + 'static> AllocationStore for RpcStore<T> {
    table!(methods_of_allocations);

    fn change_allocations(&self, changes: &[AllocationChange], now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(ALLOCATIONS_LABEL)?.change_allocations(changes, now)
    }

    fn record_slurm_calls(&self, calls: &[SlurmCallCount], now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(ALLOCATIONS_LABEL)?.record_slurm_calls(calls, now)
    }

    fn record_client_allocation(
        &self,
        id: Option<AllocationId>,
        stated: &ExternalAllocation,
        now: Timestamp,
    ) -> Result<AllocationId, StoreError> {
        self.require_direct(ALLOCATIONS_LABEL)?.record_client_allocation(id, stated, now)
    }

    fn delete_allocation(&self, id: AllocationId, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct(ALLOCATIONS_LABEL)?.delete_allocation(id, now)
    }

    fn delete_allocations(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError> {
        self.require_direct(ALLOCATIONS_LABEL)?.delete_allocations(workflow, now)
    }
}
