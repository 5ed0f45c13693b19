//! The context of an operation: the caller, permission checks, and access to the store and the scheduler on the
//! caller's behalf.

use crate::error::{ApiError, ApiResult};
use crate::state::AppState;
use axum::http::StatusCode;
use std::sync::mpsc;
use std::time::Duration;
use windlass_api::torc::query::ListPageQuery;
use windlass_auth::{
    AccessDecision, AuthOperation, ObjectRelation, Principal, decide_access, suggest_remedy,
};
use windlass_scheduler::service::{CallReply, ExclusiveRequirement, SchedulerHandle};
use windlass_store::Store;
use windlass_store::model::{SortBy, WorkflowPartId, WorkflowRow};
use windlass_types::{Timestamp, WorkflowId};

pub(super) struct TorcCallContext {
    pub(super) state: AppState,
    pub(super) principal: Principal,
}

impl TorcCallContext {
    pub(super) fn new(state: AppState, principal: Principal) -> Self {
        Self { state, principal }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.state.store
    }

    pub(super) fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// The caller, for the store.
    pub(super) fn caller_name(&self) -> &str {
        &self.principal.user
    }

    /// Calls the scheduler and waits for the answer.
    pub(super) fn call_service<T: Send + 'static>(
        &self,
        question: impl FnOnce(&SchedulerHandle, CallReply<T>),
    ) -> ApiResult<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Sending fails only if this thread is gone.
        question(&self.state.service, Box::new(move |answer| drop(sender.try_send(answer))));
        match receiver.recv() {
            Ok(answer) => answer.map_err(ApiError::from),
            Err(_) => Err(ApiError::unavailable("the server is shutting down", Duration::from_secs(5))),
        }
    }

    /// Changes a workflow in the database while the scheduler has suspended it, so that memory and database
    /// agree.
    pub(super) fn change_workflow<T: Send + 'static>(
        &self,
        workflow: WorkflowId,
        quiet: ExclusiveRequirement,
        work: impl FnOnce(&dyn Store, Timestamp) -> Result<T, windlass_store::StoreError> + Send + 'static,
    ) -> ApiResult<T> {
        let now = self.now();
        let by = self.caller_name().to_owned();
        let work = move |store: &dyn Store| work(&*store.acting_as(&by), now);
        self.call_service(|service, reply| service.run_exclusive(workflow, quiet, Box::new(work), reply))
    }

    /// Changes data that the scheduler does not keep in memory; the workflow need not be suspended or reloaded.
    pub(super) fn write_store<T>(
        &self,
        work: impl FnOnce(&dyn Store, Timestamp) -> Result<T, windlass_store::StoreError>,
    ) -> ApiResult<T> {
        let done = work(&*self.store().acting_as(self.caller_name()), self.now())?;
        self.state.events.wake();
        Ok(done)
    }

    /// Checks a permission that concerns no object.
    pub(super) fn authorize(&self, operation: AuthOperation) -> ApiResult<()> {
        self.check_access(operation, ObjectRelation::Own, || ApiError::not_found("such thing"))
    }

    /// Returns the workflow if the caller may perform the operation on it.
    pub(super) fn authorize_workflow(&self, operation: AuthOperation, id: i64) -> ApiResult<WorkflowRow> {
        let missing = || ApiError::not_found(format_args!("workflow {id}"));
        // Report a missing role before reading the database.
        self.check_access(operation, ObjectRelation::Own, missing)?;
        let row = self.store().workflow(WorkflowId(id))?.ok_or_else(missing)?;
        self.check_access(operation, self.workflow_relation(&row)?, missing)?;
        Ok(row)
    }

    /// Returns an object of a workflow if the caller may perform the operation; objects that the caller may not
    /// see return 404.
    pub(super) fn authorize_part(
        &self,
        operation: AuthOperation,
        part: WorkflowPartId,
    ) -> ApiResult<WorkflowRow> {
        let missing = || ApiError::not_found(part_name(part));
        self.check_access(operation, ObjectRelation::Own, missing)?;
        let id = self.store().workflow_of(part)?.ok_or_else(missing)?;
        let row = self.store().workflow(id)?.ok_or_else(missing)?;
        self.check_access(operation, self.workflow_relation(&row)?, missing)?;
        Ok(row)
    }

    /// Checks that an object named in a request belongs to this workflow.
    pub(super) fn check_part_of(&self, workflow: WorkflowId, part: WorkflowPartId) -> ApiResult<()> {
        if self.store().workflow_of(part)? == Some(workflow) {
            return Ok(());
        }
        Err(ApiError::invalid(format!("workflow {workflow} has no {}", part_name(part))))
    }

    /// The same for many objects; each is looked up once.
    pub(super) fn check_parts_of(
        &self,
        workflow: WorkflowId,
        parts: impl IntoIterator<Item = WorkflowPartId>,
    ) -> ApiResult<()> {
        parts.into_iter().try_for_each(|part| self.check_part_of(workflow, part))
    }

    /// Whether the caller may see secret values.
    pub(super) fn can_read_secrets(&self, workflow: &WorkflowRow) -> ApiResult<bool> {
        let relation = self.workflow_relation(workflow)?;
        Ok(decide_access(AuthOperation::ReadSecrets, self.principal.role, self.principal.scopes, relation)
            == AccessDecision::Allow)
    }

    fn workflow_relation(&self, workflow: &WorkflowRow) -> ApiResult<ObjectRelation> {
        if !self.principal.covers_workflow(workflow.id) {
            return Ok(ObjectRelation::Other);
        }
        if workflow.user == *self.principal.user {
            return Ok(ObjectRelation::Own);
        }
        let shared = self.store().is_shared_with(workflow.id, &self.principal.user)?;
        Ok(if shared { ObjectRelation::Shared } else { ObjectRelation::Other })
    }

    pub(super) fn check_access(
        &self,
        operation: AuthOperation,
        relation: ObjectRelation,
        missing: impl FnOnce() -> ApiError,
    ) -> ApiResult<()> {
        let access_decision = decide_access(operation, self.principal.role, self.principal.scopes, relation);
        let refused = match access_decision {
            AccessDecision::Allow => return Ok(()),
            AccessDecision::Hide => return Err(missing()),
            AccessDecision::ForbidScope => ApiError::new(
                StatusCode::FORBIDDEN,
                "scope",
                "the credential lacks the scope for this operation",
            ),
            AccessDecision::ForbidRole => {
                ApiError::forbidden(format!("role {} does not permit this operation", self.principal.role))
            }
        };
        Err(match suggest_remedy(operation, access_decision, relation) {
            Some(remedy) => refused.with_hint(remedy),
            None => refused,
        })
    }
}

fn part_name(part: WorkflowPartId) -> String {
    match part {
        WorkflowPartId::Job(id) => format!("job {id}"),
        WorkflowPartId::File(id) => format!("file {id}"),
        WorkflowPartId::UserData(id) => format!("user data {id}"),
        WorkflowPartId::Result(id) => format!("result {id}"),
        WorkflowPartId::Requirements(id) => format!("resource requirements {id}"),
        WorkflowPartId::Handler(id) => format!("failure handler {id}"),
        WorkflowPartId::Scheduler(id) => format!("scheduler {id}"),
        WorkflowPartId::Action(id) => format!("action {id}"),
        WorkflowPartId::Event(id) => format!("event {id}"),
        WorkflowPartId::Worker(id) => format!("compute node {id}"),
        WorkflowPartId::Record(id) => format!("entry {id}"),
        WorkflowPartId::Allocation(id) => format!("scheduled compute node {id}"),
    }
}

/// Converts the order of a list.
pub(super) fn sort_order(view: ListPageQuery<'_>) -> Option<SortBy> {
    match (view.sort_by, view.reverse) {
        (None, false) => None,
        (field, descending) => Some(SortBy { field: field.unwrap_or("id").to_owned(), descending }),
    }
}

pub(super) fn offset(view: ListPageQuery<'_>) -> u64 {
    u64::try_from(view.offset).unwrap_or(0)
}

pub(super) fn limit(view: ListPageQuery<'_>) -> Option<u64> {
    u64::try_from(view.limit).ok()
}
