//! One call of an operation: who asks, whether he may, and how the books and the service are asked for him.

use crate::error::{Answer, ApiError};
use crate::state::AppState;
use axum::http::StatusCode;
use std::sync::mpsc;
use std::time::Duration;
use windlass_api::torc::query::View;
use windlass_auth::{Operation, Principal, Relation, Verdict, judge, remedy};
use windlass_engine::service::{Quiet, Reply, Service};
use windlass_store::Store;
use windlass_store::model::{Part, SortBy, WorkflowRow};
use windlass_types::{Timestamp, WorkflowId};

pub(super) struct Call {
    pub(super) state: AppState,
    pub(super) who: Principal,
}

impl Call {
    pub(super) fn new(state: AppState, who: Principal) -> Self {
        Self { state, who }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.state.store
    }

    pub(super) fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// Who asks, for the books.
    pub(super) fn by(&self) -> &str {
        &self.who.user
    }

    /// Asks the service and waits for its answer.
    pub(super) fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Service, Reply<T>)) -> Answer<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Nobody listens any more only if this thread is gone.
        question(&self.state.service, Box::new(move |answer| drop(sender.try_send(answer))));
        match receiver.recv() {
            Ok(answer) => answer.map_err(ApiError::from),
            Err(_) => Err(ApiError::unavailable("the server is about to stop", Duration::from_secs(5))),
        }
    }

    /// Changes a workflow in the books while the service keeps away from it, so that its memory and the books agree.
    pub(super) fn change<T: Send + 'static>(
        &self,
        workflow: WorkflowId,
        quiet: Quiet,
        work: impl FnOnce(&dyn Store, Timestamp) -> Result<T, windlass_store::Error> + Send + 'static,
    ) -> Answer<T> {
        let now = self.now();
        let by = self.by().to_owned();
        let work = move |store: &dyn Store| work(&*store.acting_as(&by), now);
        self.ask(|service, reply| service.exclusive(workflow, quiet, Box::new(work), reply))
    }

    /// Changes something that the service does not keep in memory: it need not keep away meanwhile, nor read anything anew.
    pub(super) fn write<T>(
        &self,
        work: impl FnOnce(&dyn Store, Timestamp) -> Result<T, windlass_store::Error>,
    ) -> Answer<T> {
        let done = work(&*self.store().acting_as(self.by()), self.now())?;
        self.state.events.nudge();
        Ok(done)
    }

    /// Whether he may do this, where no object is concerned.
    pub(super) fn may(&self, operation: Operation) -> Answer<()> {
        self.judge(operation, Relation::Own, || ApiError::not_found("such thing"))
    }

    /// The workflow, if he may do this to it.
    pub(super) fn workflow(&self, operation: Operation, id: i64) -> Answer<WorkflowRow> {
        let missing = || ApiError::not_found(format_args!("workflow {id}"));
        // Want of a role is told before anything is looked at.
        self.judge(operation, Relation::Own, missing)?;
        let row = self.store().workflow(WorkflowId(id))?.ok_or_else(missing)?;
        self.judge(operation, self.relation(&row)?, missing)?;
        Ok(row)
    }

    /// The same for something that belongs to a workflow. What is nobody's business of his is not there.
    pub(super) fn part(&self, operation: Operation, part: Part) -> Answer<WorkflowRow> {
        let missing = || ApiError::not_found(name(part));
        self.judge(operation, Relation::Own, missing)?;
        let id = self.store().workflow_of(part)?.ok_or_else(missing)?;
        let row = self.store().workflow(id)?.ok_or_else(missing)?;
        self.judge(operation, self.relation(&row)?, missing)?;
        Ok(row)
    }

    /// That something he names in a request belongs to this workflow.
    pub(super) fn is_of(&self, workflow: WorkflowId, part: Part) -> Answer<()> {
        if self.store().workflow_of(part)? == Some(workflow) {
            return Ok(());
        }
        Err(ApiError::invalid(format!("workflow {workflow} has no {}", name(part))))
    }

    /// The same for many, each of which is looked up once.
    pub(super) fn are_of(&self, workflow: WorkflowId, parts: impl IntoIterator<Item = Part>) -> Answer<()> {
        parts.into_iter().try_for_each(|part| self.is_of(workflow, part))
    }

    /// Whether he is to see values that are secret.
    pub(super) fn sees_secrets(&self, workflow: &WorkflowRow) -> Answer<bool> {
        let relation = self.relation(workflow)?;
        Ok(judge(Operation::ReadSecrets, self.who.role, self.who.scopes, relation) == Verdict::Allow)
    }

    fn relation(&self, workflow: &WorkflowRow) -> Answer<Relation> {
        if !self.who.reaches(workflow.id) {
            return Ok(Relation::Other);
        }
        if workflow.user == *self.who.user {
            return Ok(Relation::Own);
        }
        let shared = self.store().is_shared_with(workflow.id, &self.who.user)?;
        Ok(if shared { Relation::Shared } else { Relation::Other })
    }

    pub(super) fn judge(
        &self,
        operation: Operation,
        relation: Relation,
        missing: impl FnOnce() -> ApiError,
    ) -> Answer<()> {
        let verdict = judge(operation, self.who.role, self.who.scopes, relation);
        let refused = match verdict {
            Verdict::Allow => return Ok(()),
            Verdict::Hide => return Err(missing()),
            Verdict::ForbidScope => ApiError::new(
                StatusCode::FORBIDDEN,
                "scope",
                "what you showed is not good for this: it lacks the scope",
            ),
            Verdict::ForbidRole => ApiError::forbidden(format!("a {} may not do this here", self.who.role)),
        };
        Err(match remedy(operation, verdict, relation) {
            Some(remedy) => refused.with_hint(remedy),
            None => refused,
        })
    }
}

fn name(part: Part) -> String {
    match part {
        Part::Job(id) => format!("job {id}"),
        Part::File(id) => format!("file {id}"),
        Part::UserData(id) => format!("user data {id}"),
        Part::Result(id) => format!("result {id}"),
        Part::Requirements(id) => format!("resource requirements {id}"),
        Part::Handler(id) => format!("failure handler {id}"),
        Part::Scheduler(id) => format!("scheduler {id}"),
        Part::Action(id) => format!("action {id}"),
        Part::Event(id) => format!("event {id}"),
        Part::Worker(id) => format!("compute node {id}"),
        Part::Record(id) => format!("entry {id}"),
        Part::Allocation(id) => format!("scheduled compute node {id}"),
    }
}

/// The order of a list, as the books have it.
pub(super) fn sorting(view: View<'_>) -> Option<SortBy> {
    match (view.sort_by, view.reverse) {
        (None, false) => None,
        (field, descending) => Some(SortBy { field: field.unwrap_or("id").to_owned(), descending }),
    }
}

pub(super) fn offset(view: View<'_>) -> u64 {
    u64::try_from(view.offset).unwrap_or(0)
}

pub(super) fn limit(view: View<'_>) -> Option<u64> {
    u64::try_from(view.limit).ok()
}
