//! Sends failure commands to the process that may apply them: a server, the process that runs the workflow,
//! or, if there is none, this one.

use crate::recovery::EligibleWorkers;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use windlass_core::failure_commands::{agent_rerun_refusal, exceeds_workers_reason};
use windlass_store::lock::LockHolder;
use windlass_store::model::{DecisionFilter, DecisionState, JobFilter, JobRow, WorkflowRow};
use windlass_store::{LockedObject, Store};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandOutcome, FailureCommandStatus,
    PendingCommand,
};
use windlass_types::{JobId, JobStatus, Resources, SystemClock, WorkflowId};

/// The process that runs a workflow checks for pending commands once a second, or when it is signaled; a disk
/// may be slow.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum FailureCommandError {
    #[error(transparent)]
    Store(#[from] windlass_store::StoreError),
    /// The process that runs the workflow did not apply them.
    #[error("{0}")]
    Rejected(String),
    #[error(
        "workflow {workflow} is run by {who}, which did not answer within {} s; nothing was changed",
        WAIT_TIMEOUT.as_secs()
    )]
    Unanswered { workflow: WorkflowId, who: String },
}

impl FailureCommandError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Rejected(_) => None,
            Self::Unanswered { .. } => {
                Some("check whether it is stopped or its disk is full, and try again".to_owned())
            }
        }
    }
}

/// Applies the commands through the process that may, and returns the result of each. `wake_holder` wakes the
/// process that runs the workflow, if it can be signaled; otherwise it polls.
pub fn submit_failure_commands(
    store: &dyn Store,
    workflow: WorkflowId,
    wanted: &PendingCommand,
    wake_holder: &dyn Fn(&LockHolder),
) -> Result<Vec<FailureCommandOutcome>, FailureCommandError> {
    loop {
        match store.apply_triage_command(workflow, wanted, SystemClock.now()) {
            Err(windlass_store::StoreError::Busy { what: LockedObject::Workflow(_), holder }) => {
                if let Some(outcomes) =
                    submit_pending_command(store, workflow, wanted, holder.as_ref(), wake_holder)?
                {
                    return Ok(outcomes);
                }
                // The process that ran the workflow has ended, so the lock is free.
            }
            other => return Ok(other?),
        }
    }
}

/// Like [`submit_failure_commands`], but commands that would leave a job that no worker can run are refused
/// before anything is written.
pub fn submit_within_limits(
    store: &dyn Store,
    workflow: WorkflowId,
    orders: FailureCommandBatch,
    eligible: &EligibleWorkers,
    wake_holder: &dyn Fn(&LockHolder),
) -> Result<Vec<FailureCommandOutcome>, FailureCommandError> {
    let limited = CapacityCheckedCommands::new(store, workflow, orders, eligible)?;
    limited.perform(|orders| {
        submit_failure_commands(store, workflow, &PendingCommand::Orders(orders), wake_holder)
    })
}

/// Whether commands change requirements: only those are checked against the workers' capacity.
pub fn changes_resources(orders: &FailureCommandBatch) -> bool {
    orders.orders.iter().any(|order| order.changes.changes_resources())
}

/// Commands, some of them refused because no worker could run the job afterwards.
#[derive(Clone, Debug)]
pub struct CapacityCheckedCommands {
    accepted: FailureCommandBatch,
    /// In the order of the commands: the refusal, or `None` for a command that is applied.
    rejected: Vec<Option<FailureCommandOutcome>>,
}

impl CapacityCheckedCommands {
    pub fn new(
        store: &dyn Store,
        workflow: WorkflowId,
        orders: FailureCommandBatch,
        eligible: &EligibleWorkers,
    ) -> Result<Self, windlass_store::StoreError> {
        if !changes_resources(&orders) {
            let refused = vec![None; orders.orders.len()];
            return Ok(Self { accepted: orders, rejected: refused });
        }
        let ids = orders.orders.iter().map(|order| order.job).collect();
        let filter = JobFilter { ids, ..JobFilter::default() };
        let jobs: BTreeMap<JobId, JobRow> =
            store.jobs(workflow, &filter)?.into_iter().map(|job| (job.id, job)).collect();
        let sets: BTreeMap<String, Resources> =
            store.requirements(workflow)?.into_iter().map(|set| (set.name, set.resources)).collect();
        let refusal = |order: &FailureCommand| {
            let job = jobs.get(&order.job)?;
            let named = job.resource_requirements.as_ref().and_then(|name| sets.get(name));
            let asked = named.copied().unwrap_or(Resources::DEFAULT);
            let words = exceeds_workers_reason(&order.changes, &asked, &eligible.workers)?;
            let (status, attempt) = (Some(job.status), Some(job.attempt_id));
            let answer = FailureCommandStatus::Refused;
            Some(FailureCommandOutcome { job: order.job, kind: order.kind, answer, words, status, attempt })
        };
        let refused: Vec<Option<FailureCommandOutcome>> = orders.orders.iter().map(refusal).collect();
        let kept = std::iter::zip(orders.orders, &refused).filter(|(_, refused)| refused.is_none());
        let kept = FailureCommandBatch { orders: kept.map(|(order, _)| order).collect(), ..orders };
        Ok(Self { accepted: kept, rejected: refused })
    }

    /// Applies the remaining commands and merges the results.
    pub fn perform<E>(
        self,
        apply_batch: impl FnOnce(FailureCommandBatch) -> Result<Vec<FailureCommandOutcome>, E>,
    ) -> Result<Vec<FailureCommandOutcome>, E> {
        let kept = if self.accepted.orders.is_empty() { Vec::new() } else { apply_batch(self.accepted)? };
        let mut kept = kept.into_iter();
        Ok(self.rejected.into_iter().filter_map(|refused| refused.or_else(|| kept.next())).collect())
    }
}

/// Stores a pending command for the process that runs the workflow, and waits for the answer. `None`: the
/// process ended before it read the command.
fn submit_pending_command(
    store: &dyn Store,
    workflow: WorkflowId,
    wanted: &PendingCommand,
    holder: Option<&LockHolder>,
    wake_holder: &dyn Fn(&LockHolder),
) -> Result<Option<Vec<FailureCommandOutcome>>, FailureCommandError> {
    let pending_command = store.add_pending_command(workflow, wanted, SystemClock.now())?;
    if let Some(holder) = holder {
        wake_holder(holder);
    }
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(answer) = store.pending_command_result(pending_command)? {
            return answer.map(Some).map_err(FailureCommandError::Rejected);
        }
        let is_gone = store.lock_holder(workflow)?.is_none();
        if (is_gone || Instant::now() > deadline)
            && store.withdraw_pending_command(pending_command, SystemClock.now())?
        {
            let who = holder.map_or_else(|| "another process".to_owned(), ToString::to_string);
            return if is_gone { Ok(None) } else { Err(FailureCommandError::Unanswered { workflow, who }) };
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns jobs that agents may not reset, and why: a reset or recovery on behalf of an agent skips them.
pub fn jobs_barred_to_agents(
    store: &dyn Store,
    row: &WorkflowRow,
) -> Result<BTreeMap<JobId, &'static str>, windlass_store::StoreError> {
    let asks = row.settings.use_pending_failed;
    let mut found = BTreeMap::new();
    let mut look = |filter: &JobFilter, last: &dyn Fn(&JobRow) -> Option<FailureCommandKind>| {
        let kept = |job: JobRow| Some((job.id, agent_rerun_refusal(asks, job.status, last(&job))?));
        store.jobs(row.id, filter).map(|jobs| found.extend(jobs.into_iter().filter_map(kept)))
    };
    if row.counts.get(JobStatus::PendingFailed) > 0 {
        look(&JobFilter { status: vec![JobStatus::PendingFailed], ..JobFilter::default() }, &|_| None)?;
    }
    if asks {
        let done = DecisionFilter { state: Some(DecisionState::Done), ..DecisionFilter::default() };
        let decided = store.decisions(row.id, &done)?.into_iter();
        // In the order of creation.
        let last: BTreeMap<JobId, FailureCommandKind> = decided.map(|row| (row.job_id, row.kind)).collect();
        if !last.is_empty() {
            let ids = last.keys().copied().collect();
            look(&JobFilter { ids, ..JobFilter::default() }, &|job| last.get(&job.id).copied())?;
        }
    }
    Ok(found)
}

/// Renders the first of them, `job 3 waits for a decision`, and the number of others.
pub fn describe_barred_jobs(kept: &BTreeMap<JobId, &'static str>) -> Option<String> {
    let (job, why) = kept.iter().next()?;
    let more = match kept.len() - 1 {
        0 => String::new(),
        1 => "; and 1 more job".to_owned(),
        more => format!("; and {more} more jobs"),
    };
    Some(format!("agents may not rerun job {job} this way: {why}{more}"))
}
