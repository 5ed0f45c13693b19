//! What an agent sits at.

use crate::output_redaction;
use crate::requests::RequestToolCall;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::failure_commands::exceeds_workers_reason;
use windlass_core::job_explanation::WorkerAvailability;
use windlass_core::redact::{SecretNames, SecretRedactor};
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_insight::failure_commands;
use windlass_insight::recovery::EligibleCapacity;
use windlass_store::lock::LockHolder;
use windlass_store::model::{
    JobFilter, JobRow, NewWorker, RequirementsChange, RequirementsUsers, WorkflowRow,
};
use windlass_store::rpc::rpc_error::ErrorCategory;
use windlass_store::{Store, StoreLocation};
use windlass_types::failure_commands::{
    FailureCommandBatch, FailureCommandOutcome, RequestedJobChanges, TriageCommand,
};
use windlass_types::slurm::AllocationRequest;
use windlass_types::{Attempt, JobId, Resources, RunId, SystemClock, Timestamp, WorkerId, WorkflowId};

/// The books that are read in, who does what changes something, and what may be done at all. Cheap to clone.
#[derive(Clone)]
pub struct AgentSession {
    pub store: Arc<dyn Store>,
    pub actions: Arc<dyn AgentActions>,
    /// Which names of variables mean secrets.
    pub masking: SecretNames,
    /// What the agent calls itself: its decisions are kept under this name.
    pub agent: String,
    /// What it is called by whoever started it, whatever it calls itself.
    pub known_as: Option<String>,
    /// Without it, tools that change something are not even listed.
    pub allow_write: bool,
}

impl std::fmt::Debug for AgentSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("allow_write", &self.allow_write).finish_non_exhaustive()
    }
}

/// What not all hands can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentCapability {
    MakeWorkflows,
    /// Workers that cannot reach their server write results down where they are.
    ReadJournals,
    /// Ask the cluster what it has.
    PlanAllocations,
}

/// Those who act for an agent. What they do is what its person may do, and nothing more.
pub trait AgentActions: Send + Sync {
    fn supports(&self, _skill: AgentCapability) -> bool {
        false
    }

    /// Makes a workflow and says what there is now. `working_dir`: where its jobs are to run.
    fn create_workflow(&self, _spec: &SpecText, _working_dir: Option<&str>) -> Result<Value, ToolError> {
        Err(ToolError::new("workflows cannot be made here"))
    }

    /// Results of a workflow that workers on this machine have and their server does not.
    fn undelivered_results(&self, _workflow: WorkflowId) -> Result<Vec<WorkerJournal>, ToolError> {
        Err(ToolError::new("journals lie on the machines of the workers"))
    }

    /// What the cluster has: as it says itself, or as a profile of this name does.
    fn load_cluster_profile(&self, _profile: Option<&str>) -> Result<ClusterProfile, ToolError> {
        Err(no_cluster())
    }

    /// When such an allocation would start, in Slurm's words.
    fn estimate_start(&self, _request: &AllocationRequest) -> Result<String, ToolError> {
        Err(no_cluster())
    }

    /// What Slurm's accounting has of the allocations of a workflow and of their steps: a list.
    fn slurm_accounting(&self, _workflow: WorkflowId) -> Result<Vec<Value>, ToolError> {
        Err(no_cluster())
    }

    /// Writes a spec to a new file and says where it is.
    fn save_spec(&self, _spec: &SpecText, _path: &str) -> Result<Value, ToolError> {
        Err(ToolError::new("files cannot be written here"))
    }

    /// Answers a question about requests, or does something to one.
    fn perform_request_call(&self, _asked: &RequestToolCall) -> Result<Value, ToolError> {
        Err(ToolError::new("requests are not kept here"))
    }

    /// Has the workflow run, and comes back while it does.
    fn start_workflow(&self, workflow: WorkflowId) -> Result<Value, ToolError>;
    fn cancel_workflow(&self, workflow: WorkflowId) -> Result<Value, ToolError>;
    /// Sends jobs back to run again: those that did not end well, or all that ran.
    fn reset_workflow(&self, workflow: WorkflowId, failed_only: bool) -> Result<Value, ToolError>;
    /// Those who may work on the workflow now.
    fn available_workers(
        &self,
        books: &dyn Store,
        workflow: WorkflowId,
    ) -> Result<Vec<WorkerAvailability>, ToolError> {
        let rows = books.active_workers(Some(workflow))?;
        let offer = |worker: NewWorker| WorkerAvailability {
            labels: worker.labels,
            site: worker.site,
            ..WorkerAvailability::from_capacity(worker.capacity)
        };
        Ok(rows.into_iter().map(|row| offer(row.worker)).collect())
    }

    /// What they have, for jobs that need more of it.
    fn eligible_capacity(
        &self,
        books: &dyn Store,
        workflow: WorkflowId,
    ) -> Result<EligibleCapacity, ToolError> {
        Ok(EligibleCapacity::from_offers(&self.available_workers(books, workflow)?))
    }

    /// Has jobs go back whose workers are certainly gone, where nobody does that by himself.
    fn requeue_orphaned_jobs(&self, _workflow: WorkflowId) -> Result<(), ToolError> {
        Ok(())
    }

    /// Has whoever runs a workflow look into the books.
    fn wake_holder(&self, _holder: &LockHolder) {}

    /// The environments of jobs as they are, to find their secrets in what is told of them. Never shown.
    fn load_job_variables(
        &self,
        books: &dyn Store,
        workflow: WorkflowId,
        jobs: &[JobId],
    ) -> Result<Vec<JobVariables>, ToolError> {
        load_job_variables(books, workflow, jobs)
    }
}

/// Variables and their values.
pub type JobVariables = Vec<(String, String)>;

/// What is in the books for each of the jobs, in the order asked for.
pub fn load_job_variables(
    books: &dyn Store,
    workflow: WorkflowId,
    jobs: &[JobId],
) -> Result<Vec<JobVariables>, ToolError> {
    let shared = books.workflow(workflow)?.map(|row| row.env).unwrap_or_default();
    let all = |own: JobVariables| shared.iter().cloned().chain(own).collect();
    Ok(books.load_job_commands(jobs)?.into_iter().map(|command| all(command.env)).collect())
}

/// For those who only look.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnlyActions;

impl ReadOnlyActions {
    fn unsupported<T>() -> Result<T, ToolError> {
        Err(ToolError::new("nothing can be changed here"))
    }
}

impl AgentActions for ReadOnlyActions {
    fn start_workflow(&self, _: WorkflowId) -> Result<Value, ToolError> {
        Self::unsupported()
    }

    fn cancel_workflow(&self, _: WorkflowId) -> Result<Value, ToolError> {
        Self::unsupported()
    }

    fn reset_workflow(&self, _: WorkflowId, _: bool) -> Result<Value, ToolError> {
        Self::unsupported()
    }
}

/// What a worker could not deliver.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerJournal {
    pub worker_id: Option<WorkerId>,
    pub host: String,
    /// If not, the next worker on its machine delivers it.
    pub is_alive: bool,
    pub attempts: Vec<UndeliveredAttempt>,
}

#[derive(Clone, Debug, Serialize)]
pub struct UndeliveredAttempt {
    pub job_id: JobId,
    pub run_id: RunId,
    pub attempt_id: Attempt,
    /// `None`: it gave the job back.
    pub return_code: Option<i32>,
}

fn no_cluster() -> ToolError {
    ToolError::new("the cluster cannot be asked here")
        .with_hint("a server that was started with --slurm can, and `windlass mcp` on a login node")
}

/// A spec as an agent wrote it.
#[derive(Clone, Debug)]
pub struct SpecText(pub String);

/// What a job asks for.
pub(crate) fn load_requirements(books: &dyn Store, job: &JobRow) -> Result<Resources, ToolError> {
    let sets = books.requirements(job.workflow_id)?.into_iter();
    let mut own = sets.filter(|set| Some(&set.name) == job.resource_requirements.as_ref());
    Ok(own.next().map_or(Resources::DEFAULT, |set| set.resources))
}

/// A set of requirements for this job alone, from its next attempt on.
pub(crate) fn change_requirements(
    books: &dyn Store,
    job: &JobRow,
    resources: Resources,
) -> Result<(), ToolError> {
    let used_by = RequirementsUsers::Jobs(vec![job.id]);
    let change = RequirementsChange { name: format!("job {}", job.id), resources, used_by };
    books.change_requirements(job.workflow_id, &[change], AgentSession::now())?;
    Ok(())
}

/// Why something was not done, for an agent: what, and what may help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub message: String,
    pub hint: Option<String>,
}

impl ToolError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<windlass_store::StoreError> for ToolError {
    fn from(error: windlass_store::StoreError) -> Self {
        Self { hint: error.hint(), message: error.to_string() }
    }
}

impl From<windlass_insight::explain::ExplainError> for ToolError {
    fn from(error: windlass_insight::explain::ExplainError) -> Self {
        match error {
            windlass_insight::explain::ExplainError::Store(error) => error.into(),
            other => Self::new(other.to_string()),
        }
    }
}

impl From<failure_commands::FailureCommandError> for ToolError {
    fn from(error: failure_commands::FailureCommandError) -> Self {
        Self { hint: error.hint(), message: error.to_string() }
    }
}

impl AgentSession {
    pub(crate) fn now() -> Timestamp {
        SystemClock.now()
    }

    pub(crate) fn load_workflow(&self, id: i64) -> Result<WorkflowRow, ToolError> {
        let found = self.store.workflow(WorkflowId(id))?;
        found.ok_or_else(|| {
            ToolError::new(format!("there is no workflow {id}"))
                .with_hint("list_workflows says which there are")
        })
    }

    pub(crate) fn load_workflow_job(&self, workflow: &WorkflowRow, id: i64) -> Result<JobRow, ToolError> {
        let filter = JobFilter { ids: vec![JobId(id)], ..JobFilter::default() };
        let found = self.store.jobs(workflow.id, &filter)?.pop();
        found.ok_or_else(|| ToolError::new(format!("workflow {} has no job {id}", workflow.id)))
    }

    /// A job by its number alone.
    pub(crate) fn load_job(&self, id: i64) -> Result<(WorkflowRow, JobRow), ToolError> {
        let none = || {
            ToolError::new(format!("there is no job {id}")).with_hint("jobs go by their ids, not their names")
        };
        let job = match self.store.find_job(JobId(id)) {
            // One of somebody else's workflows is none.
            Err(error) if error.category() == ErrorCategory::Missing => None,
            found => found?,
        };
        let job = job.ok_or_else(none)?;
        Ok((self.load_workflow(job.workflow_id.0)?, job))
    }

    /// Has it done by whoever may do it, also while somebody runs the workflow.
    pub(crate) fn submit_failure_commands(
        &self,
        workflow: WorkflowId,
        orders: FailureCommandBatch,
    ) -> Result<Vec<FailureCommandOutcome>, ToolError> {
        let nudge = |holder: &LockHolder| self.actions.wake_holder(holder);
        // A server sees to its limits itself.
        if self.is_on_server() || !failure_commands::changes_resources(&orders) {
            return Ok(failure_commands::submit_failure_commands(
                &*self.store,
                workflow,
                &TriageCommand::Orders(orders),
                &nudge,
            )?);
        }
        let room = self.actions.eligible_capacity(&*self.store, workflow)?;
        Ok(failure_commands::submit_within_limits(&*self.store, workflow, orders, &room, &nudge)?)
    }

    /// Refuses what no worker could ever give to a job.
    pub(crate) fn check_capacity(
        &self,
        workflow: WorkflowId,
        changes: &RequestedJobChanges,
        asked: &Resources,
    ) -> Result<(), ToolError> {
        let room = self.actions.eligible_capacity(&*self.store, workflow)?;
        exceeds_workers_reason(changes, asked, &room.takers).map_or(Ok(()), |why| Err(ToolError::new(why)))
    }

    /// The workflow is at a server.
    pub(crate) fn is_on_server(&self) -> bool {
        matches!(self.store.location(), StoreLocation::Server(_))
    }

    /// Takes the secrets of a job out of what it wrote.
    pub(crate) fn load_redactor(&self, job: &JobRow) -> Result<SecretRedactor, ToolError> {
        Ok(self.load_redactors(job.workflow_id, &[job.id])?.pop().unwrap_or_default())
    }

    /// The same for several, in the order of the jobs.
    pub(crate) fn load_redactors(
        &self,
        workflow: WorkflowId,
        jobs: &[JobId],
    ) -> Result<Vec<SecretRedactor>, ToolError> {
        let of = |environment: JobVariables| {
            let pairs = environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            SecretRedactor::new(&self.masking, pairs)
        };
        Ok(self.actions.load_job_variables(&*self.store, workflow, jobs)?.into_iter().map(of).collect())
    }

    /// What is told of jobs, one after the other, each without its secrets.
    pub(crate) fn redact_values(
        &self,
        workflow: WorkflowId,
        told: Vec<(JobId, Value)>,
    ) -> Result<Vec<Value>, ToolError> {
        let mut jobs: Vec<JobId> = told.iter().map(|(job, _)| *job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let redactors: BTreeMap<JobId, SecretRedactor> =
            std::iter::zip(jobs.iter().copied(), self.load_redactors(workflow, &jobs)?).collect();
        let all = SecretRedactor::default();
        let own = |job: &JobId| redactors.get(job).unwrap_or(&all);
        Ok(told.into_iter().map(|(job, view)| output_redaction::redact_strings(view, own(&job))).collect())
    }

    /// An answer as it may be shown, whatever it is about.
    pub(crate) fn redact_output(answer: Value) -> Value {
        output_redaction::redact_strings(answer, &SecretRedactor::default())
    }
}
