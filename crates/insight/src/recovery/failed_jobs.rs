//! Collects data about the failed jobs of a workflow, for the diagnosis in `windlass_core::recovery`.

use std::collections::{HashMap, HashSet};
use windlass_core::recovery::{FailedJob, LastAttempt};
use windlass_store::model::{
    DecisionFilter, DecisionState, JobFilter, JobRow, ResultFilter, ResultRow, WorkflowRow,
};
use windlass_store::{Store, StoreError};
use windlass_types::failure_commands::FailureCommandKind;
use windlass_types::{JobId, JobStatus, Resources};

const JOB_PAGE: u64 = 2000;

/// A failed job with its name.
#[derive(Clone, Debug)]
pub struct ExaminedJob {
    pub failed_job: FailedJob,
    pub name: String,
    /// Entry of the spec that made it, if it made several jobs.
    pub job_group: Option<String>,
}

/// Returns jobs that failed, were terminated, or wait for a decision, in the order of their ids; of a canceled
/// workflow also the canceled jobs. Elsewhere canceled jobs are not included: they are reset with the jobs that
/// they depend on.
pub(super) fn load_failed_jobs(
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<Vec<ExaminedJob>, StoreError> {
    let mut status = vec![JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];
    if workflow.is_canceled {
        status.push(JobStatus::Canceled);
    }
    if status.iter().all(|status| workflow.counts.get(*status) == 0) {
        return Ok(Vec::new());
    }
    let ignored = load_ignored_jobs(store, workflow)?;
    let attempts = load_last_attempts(store, workflow)?;
    let sets: HashMap<String, Resources> =
        store.requirements(workflow.id)?.into_iter().map(|set| (set.name, set.resources)).collect();
    let mut found = Vec::new();
    let mut filter = JobFilter { status, limit: Some(JOB_PAGE), ..JobFilter::default() };
    loop {
        let page = store.jobs(workflow.id, &filter)?;
        let Some(last) = page.last() else { return Ok(found) };
        filter.after = Some(last.id);
        found.extend(page.into_iter().filter(|job| !ignored.contains(&job.id)).map(|job| {
            let asked = job.resource_requirements.as_ref().and_then(|name| sets.get(name)).copied();
            let JobRow { id, name, kind, status, .. } = job;
            let last = attempts.get(&id).copied();
            ExaminedJob { failed_job: FailedJob { job: id, status, asked, last }, name, job_group: kind }
        }));
    }
}

/// Failures accepted by a decision to ignore them.
fn load_ignored_jobs(store: &dyn Store, workflow: &WorkflowRow) -> Result<HashSet<JobId>, StoreError> {
    let (run, state) = (Some(workflow.run_id), Some(DecisionState::Done));
    let decisions =
        store.decisions(workflow.id, &DecisionFilter { run, state, ..DecisionFilter::default() })?;
    // The last decision on a job counts.
    let last: HashMap<JobId, FailureCommandKind> =
        decisions.into_iter().map(|made| (made.job_id, made.kind)).collect();
    Ok(last.into_iter().filter(|(_, kind)| *kind == FailureCommandKind::Ignore).map(|(job, _)| job).collect())
}

/// Returns the newest attempt of each job that did not complete.
fn load_last_attempts(
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<HashMap<JobId, LastAttempt>, StoreError> {
    let mut attempts = HashMap::new();
    let mut filter = ResultFilter { failed_only: true, limit: Some(JOB_PAGE), ..ResultFilter::default() };
    loop {
        let page = store.results(workflow.id, &filter)?;
        let Some(last) = page.last().map(|row| row.key) else { return Ok(attempts) };
        filter.after = Some((last.job_id, last.run_id, last.attempt_id));
        // Sorted by job, run and attempt: the last one wins.
        attempts.extend(page.iter().map(|row| (row.key.job_id, last_attempt(row))));
    }
}

fn last_attempt(row: &ResultRow) -> LastAttempt {
    LastAttempt {
        observation: row.to_observation(),
        signal: row.signal,
        out_of_memory: row.out_of_memory,
        class: row.class,
    }
}
