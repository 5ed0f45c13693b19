//! The session of an agent.

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
use windlass_insight::recovery::EligibleWorkers;
use windlass_store::lock::LockHolder;
use windlass_store::model::{
    JobFilter, JobRow, NewWorker, RequirementsChange, RequirementsUsers, WorkflowRow,
};
use windlass_store::rpc::rpc_error::ErrorCategory;
use windlass_store::{Store, StoreLocation};
use windlass_types::failure_commands::{
    FailureCommandBatch, FailureCommandOutcome, PendingCommand, RequestedJobChanges,
};
use windlass_types::slurm::AllocationRequest;
use windlass_types::{Attempt, JobId, Resources, RunId, SystemClock, Timestamp, WorkerId, WorkflowId};

/// The store that an agent reads from, the actions it may take, and its permissions. Cheap to clone.
#[derive(Clone)]
pub struct AgentSession {
    pub store: Arc<dyn Store>,
    pub actions: Arc<dyn AgentActions>,
    /// Which environment variables hold secrets, by name.
    pub masking: SecretNames,
    /// Name that the agent gives itself: its decisions are recorded under it.
    pub agent: String,
    /// Name set by the process that started the session; it takes precedence over the agent's own.
    pub known_as: Option<String>,
    /// Without it, tools that change something are not listed.
    pub allow_write: bool,
}

impl std::fmt::Debug for AgentSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentSession").field("allow_write", &self.allow_write).finish_non_exhaustive()
    }
}

/// Capabilities that not all implementations of [`AgentActions`] have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentCapability {
    CreateWorkflows,
    /// Read undelivered results that workers keep on this machine.
    ReadJournals,
    /// Ask the cluster for its resources and plan allocations.
    PlanAllocations,
}

/// Actions on behalf of an agent, with the permissions of its user and nothing more.
pub trait AgentActions: Send + Sync {
    fn supports(&self, _skill: AgentCapability) -> bool {
        false
    }

    /// Creates a workflow and returns its summary. `working_dir`: the directory in which its jobs run.
    fn create_workflow(&self, _spec: &SpecText, _working_dir: Option<&str>) -> Result<Value, ToolError> {
        Err(ToolError::new("workflows cannot be created here"))
    }

    /// Returns results of a workflow that workers on this machine could not deliver to their server.
    fn undelivered_results(&self, _workflow: WorkflowId) -> Result<Vec<WorkerJournal>, ToolError> {
        Err(ToolError::new("journals are on the machines of the workers"))
    }

    /// Returns the resources of the cluster, from the cluster itself or from the profile with this name.
    fn load_cluster_profile(&self, _profile: Option<&str>) -> Result<ClusterProfile, ToolError> {
        Err(no_cluster())
    }

    /// Returns when such an allocation would start, as Slurm reports it.
    fn estimate_start(&self, _request: &AllocationRequest) -> Result<String, ToolError> {
        Err(no_cluster())
    }

    /// Returns Slurm accounting data of a workflow's allocations and their steps, as a list.
    fn slurm_accounting(&self, _workflow: WorkflowId) -> Result<Vec<Value>, ToolError> {
        Err(no_cluster())
    }

    /// Writes a spec to a new file and returns its path.
    fn save_spec(&self, _spec: &SpecText, _path: &str) -> Result<Value, ToolError> {
        Err(ToolError::new("files cannot be written here"))
    }

    /// Performs a query or a command on requests.
    fn perform_request_call(&self, _asked: &RequestToolCall) -> Result<Value, ToolError> {
        Err(ToolError::new("this database has no requests"))
    }

    /// Starts the workflow; returns while it runs.
    fn start_workflow(&self, workflow: WorkflowId) -> Result<Value, ToolError>;
    fn cancel_workflow(&self, workflow: WorkflowId) -> Result<Value, ToolError>;
    /// Resets jobs to run again: those that did not complete, or all that ran.
    fn reset_workflow(&self, workflow: WorkflowId, failed_only: bool) -> Result<Value, ToolError>;
    /// Returns the workers that may run jobs of the workflow.
    fn available_workers(
        &self,
        jobs_store: &dyn Store,
        workflow: WorkflowId,
    ) -> Result<Vec<WorkerAvailability>, ToolError> {
        let rows = jobs_store.active_workers(Some(workflow))?;
        let offer = |worker: NewWorker| WorkerAvailability {
            labels: worker.labels,
            site: worker.site,
            ..WorkerAvailability::from_capacity(worker.capacity)
        };
        Ok(rows.into_iter().map(|row| offer(row.worker)).collect())
    }

    /// Returns their capacities, for checking larger requirements.
    fn eligible_capacity(
        &self,
        jobs_store: &dyn Store,
        workflow: WorkflowId,
    ) -> Result<EligibleWorkers, ToolError> {
        Ok(EligibleWorkers::from_offers(&self.available_workers(jobs_store, workflow)?))
    }

    /// Returns jobs of certainly dead workers to the queue, where no server does that.
    fn requeue_orphaned_jobs(&self, _workflow: WorkflowId) -> Result<(), ToolError> {
        Ok(())
    }

    /// Wakes the process that runs the workflow to read pending commands.
    fn wake_holder(&self, _holder: &LockHolder) {}

    /// Returns the unmasked environments of jobs, to redact their secrets in texts. Never shown.
    fn load_job_variables(
        &self,
        jobs_store: &dyn Store,
        workflow: WorkflowId,
        jobs: &[JobId],
    ) -> Result<Vec<JobVariables>, ToolError> {
        load_job_variables(jobs_store, workflow, jobs)
    }
}

/// Environment variables and their values.
pub type JobVariables = Vec<(String, String)>;

/// Reads the environments of the jobs from the store, in the order of the ids.
pub fn load_job_variables(
    jobs_store: &dyn Store,
    workflow: WorkflowId,
    jobs: &[JobId],
) -> Result<Vec<JobVariables>, ToolError> {
    let shared = jobs_store.workflow(workflow)?.map(|row| row.env).unwrap_or_default();
    let all = |own: JobVariables| shared.iter().cloned().chain(own).collect();
    Ok(jobs_store.load_job_commands(jobs)?.into_iter().map(|command| all(command.env)).collect())
}

/// Actions of a read-only session.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnlyActions;

impl ReadOnlyActions {
    fn unsupported<T>() -> Result<T, ToolError> {
        Err(ToolError::new("this session is read-only"))
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

/// Results that a worker could not deliver.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerJournal {
    pub worker_id: Option<WorkerId>,
    pub host: String,
    /// Whether the worker is alive; otherwise the next worker on its machine delivers them.
    pub is_alive: bool,
    pub attempts: Vec<UndeliveredAttempt>,
}

#[derive(Clone, Debug, Serialize)]
pub struct UndeliveredAttempt {
    pub job_id: JobId,
    pub run_id: RunId,
    pub attempt_id: Attempt,
    /// `None`: the worker returned the job.
    pub return_code: Option<i32>,
}

fn no_cluster() -> ToolError {
    ToolError::new("the cluster cannot be queried here")
        .with_hint("use a server that was started with --slurm, or `windlass mcp` on a login node")
}

/// A spec as text.
#[derive(Clone, Debug)]
pub struct SpecText(pub String);

/// Resource requirements of a job.
pub(crate) fn load_requirements(jobs_store: &dyn Store, job: &JobRow) -> Result<Resources, ToolError> {
    let sets = jobs_store.requirements(job.workflow_id)?.into_iter();
    let mut own = sets.filter(|set| Some(&set.name) == job.resource_requirements.as_ref());
    Ok(own.next().map_or(Resources::DEFAULT, |set| set.resources))
}

/// Requirements for this job only, from its next attempt on.
pub(crate) fn change_requirements(
    jobs_store: &dyn Store,
    job: &JobRow,
    resources: Resources,
) -> Result<(), ToolError> {
    let used_by = RequirementsUsers::Jobs(vec![job.id]);
    let change = RequirementsChange { name: format!("job {}", job.id), resources, used_by };
    jobs_store.change_requirements(job.workflow_id, &[change], AgentSession::now())?;
    Ok(())
}

/// An error of a tool, with a hint for the agent.
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
            ToolError::new(format!("there is no workflow {id}")).with_hint("use list_workflows to list them")
        })
    }

    pub(crate) fn load_workflow_job(&self, workflow: &WorkflowRow, id: i64) -> Result<JobRow, ToolError> {
        let filter = JobFilter { ids: vec![JobId(id)], ..JobFilter::default() };
        let found = self.store.jobs(workflow.id, &filter)?.pop();
        found.ok_or_else(|| ToolError::new(format!("workflow {} has no job {id}", workflow.id)))
    }

    /// Loads a job by its id.
    pub(crate) fn load_job(&self, id: i64) -> Result<(WorkflowRow, JobRow), ToolError> {
        let none = || ToolError::new(format!("there is no job {id}")).with_hint("use job ids, not job names");
        let job = match self.store.find_job(JobId(id)) {
            // Jobs of workflows that the caller may not see are reported as missing.
            Err(error) if error.category() == ErrorCategory::Missing => None,
            found => found?,
        };
        let job = job.ok_or_else(none)?;
        Ok((self.load_workflow(job.workflow_id.0)?, job))
    }

    /// Applies failure commands through the process that owns the workflow, also while it runs.
    pub(crate) fn submit_failure_commands(
        &self,
        workflow: WorkflowId,
        orders: FailureCommandBatch,
    ) -> Result<Vec<FailureCommandOutcome>, ToolError> {
        let wake_holder = |holder: &LockHolder| self.actions.wake_holder(holder);
        // A server checks its limits itself.
        if self.is_on_server() || !failure_commands::changes_resources(&orders) {
            return Ok(failure_commands::submit_failure_commands(
                &*self.store,
                workflow,
                &PendingCommand::Orders(orders),
                &wake_holder,
            )?);
        }
        let eligible = self.actions.eligible_capacity(&*self.store, workflow)?;
        Ok(failure_commands::submit_within_limits(&*self.store, workflow, orders, &eligible, &wake_holder)?)
    }

    /// Refuses requirements that exceed the capacity of every worker.
    pub(crate) fn check_capacity(
        &self,
        workflow: WorkflowId,
        changes: &RequestedJobChanges,
        asked: &Resources,
    ) -> Result<(), ToolError> {
        let eligible = self.actions.eligible_capacity(&*self.store, workflow)?;
        exceeds_workers_reason(changes, asked, &eligible.workers)
            .map_or(Ok(()), |why| Err(ToolError::new(why)))
    }

    /// Whether the workflow is managed by a server.
    pub(crate) fn is_on_server(&self) -> bool {
        matches!(self.store.location(), StoreLocation::Server(_))
    }

    /// Redacts the secrets of a job in its output.
    pub(crate) fn load_redactor(&self, job: &JobRow) -> Result<SecretRedactor, ToolError> {
        Ok(self.load_redactors(job.workflow_id, &[job.id])?.pop().unwrap_or_default())
    }

    /// The same for several jobs, in their order.
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

    /// Redacts texts of several jobs, each with the secrets of its job.
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

    /// Redacts and finishes an answer.
    pub(crate) fn redact_output(answer: Value) -> Value {
        output_redaction::redact_strings(answer, &SecretRedactor::default())
    }
}
