//! Recovery at start: prepares a workflow that another process ran before, which ended normally, was
//! interrupted, or died.

use crate::crash_suspects;
use crate::execution_settings::return_codes;
use crate::retry_policy::{RetryInputs, WorkerCapacities, WorkflowRetryPolicy};
use crate::run_observer::RunObserver;
use crate::worker_host::{DeadWorkerReport, WorkerHost};
use crate::{SchedulerError, added_jobs};
use std::sync::{Arc, mpsc};
use windlass_core::change::WorkflowChange;
use windlass_core::classify::FailureClassifier;
use windlass_core::crash_suspects::{CrashEvidence, JobPhaseAtCrash};
use windlass_core::dispatch::LocationConstraint;
use windlass_core::workflow_state::{FailedAttemptContext, OrphanDecision, OrphanedAttempt, WorkflowState};
use windlass_store::model::{HeldJob, WorkerKind, WorkerRow, WorkflowRow};
use windlass_store::{ChangeBatch, Store};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{RunId, Timestamp, WorkflowId};

/// Ensures that workers that did not sign off are dead with all they started. Jobs that they
/// held become ready again, as a new attempt if they may have run; ends that they recorded are applied.
pub fn recover_workflow(
    store: &dyn Store,
    host: &mut dyn WorkerHost,
    observer: &mut dyn RunObserver,
    workflow: &WorkflowRow,
    classifier: Option<Arc<FailureClassifier>>,
    now: Timestamp,
) -> Result<(), SchedulerError> {
    let dead = ensure_workers_dead(store, host, workflow.id)?;
    let held = store.held_jobs(workflow.id)?;
    recover_jobs(store, host, observer, RecoveredJobs { workflow, dead: &dead, held }, classifier, now)
}

/// The same at the start of a server, only for workers of earlier local runs: workers with a lease may return.
/// Those that may be alive keep their jobs.
pub(crate) fn recover_jobs_of_local_runs(
    store: &dyn Store,
    host: &mut dyn WorkerHost,
    observer: &mut dyn RunObserver,
    workflow: &WorkflowRow,
    classifier: Option<Arc<FailureClassifier>>,
    now: Timestamp,
) -> Result<(), SchedulerError> {
    let mut dead = Vec::new();
    for row in store.active_workers(Some(workflow.id))? {
        if row.worker.kind != WorkerKind::Local {
            continue;
        }
        match host.ensure_dead(&row.worker) {
            Ok(dead_worker) => dead.push((row, dead_worker)),
            Err(error) => {
                let (host, pid) = (&row.worker.host, row.worker.pid);
                tracing::warn!(%host, pid, %error, "a worker of an earlier run may be alive: its jobs stay assigned until it is retired");
            }
        }
    }
    let mut held = store.held_jobs(workflow.id)?;
    held.retain(|job| dead.iter().any(|(row, _)| row.id == job.worker));
    recover_jobs(store, host, observer, RecoveredJobs { workflow, dead: &dead, held }, classifier, now)
}

/// Jobs that were held when the process that ran their workflow ended.
struct RecoveredJobs<'a> {
    workflow: &'a WorkflowRow,
    dead: &'a [(WorkerRow, DeadWorkerReport)],
    held: Vec<HeldJob>,
}

fn recover_jobs(
    store: &dyn Store,
    host: &mut dyn WorkerHost,
    observer: &mut dyn RunObserver,
    RecoveredJobs { workflow, dead, held }: RecoveredJobs<'_>,
    classifier: Option<Arc<FailureClassifier>>,
    now: Timestamp,
) -> Result<(), SchedulerError> {
    if dead.is_empty() && held.is_empty() {
        return Ok(());
    }
    let recorded = commit_recorded_ends(store, host, workflow, dead, classifier, now)?;
    let mut state = load_workflow_state(store, workflow)?;
    if store.cancel_requested(workflow.id)? {
        state.on_cancel();
    }
    let mut changes = Vec::new();
    state.on_resume(&mut changes);
    let (orphans, given_up) = requeue_orphans(store, workflow, dead, held, &mut state, now, &mut changes)?;
    state.reconcile_units(&mut changes);
    commit_and_wait(store, workflow.id, workflow.run_id, changes)?;
    for (row, dead_worker) in dead {
        store.retire_worker(row.id, now)?;
        host.forget_worker(&row.worker);
        if dead_worker.killed_processes > 0 {
            let left = dead_worker.killed_processes;
            observer.on_notice(&format!("ended {left} processes that an earlier worker had left running"));
        }
    }
    if given_up > 0 {
        observer.on_notice(&format!("{given_up} jobs failed: their worker died each time one of them ran"));
    }
    if recorded > 0 {
        observer.on_notice(&format!(
            "recovered the results of {recorded} jobs that had ended when an earlier process died"
        ));
    }
    if orphans > 0 {
        observer.on_notice(&format!(
            "jobs that may have been running when the previous process died: {orphans}; they run again"
        ));
    }
    Ok(())
}

/// Returns the claims of dead workers. The result: how many of those jobs may have been running, and how many
/// were failed.
///
/// Worker and scheduler died together, or the scheduler would have recorded the evidence itself. A reboot
/// explains that; otherwise one of the jobs may be the cause, so each job that ran becomes a suspect, as when a
/// server loses a worker.
fn requeue_orphans(
    store: &dyn Store,
    workflow: &WorkflowRow,
    dead: &[(WorkerRow, DeadWorkerReport)],
    mut held: Vec<HeldJob>,
    state: &mut WorkflowState,
    now: Timestamp,
    changes: &mut Vec<WorkflowChange>,
) -> Result<(usize, usize), SchedulerError> {
    // Not those whose recorded ends were committed.
    held.retain(|held| state.job_index(held.id).is_some_and(|job| state.status(job).is_active()));
    if held.is_empty() {
        return Ok((0, 0));
    }
    let mut suspects = crash_suspects::load_crash_suspects(store, workflow, state)?;
    let is_alone = held.len() == 1 && state.has_isolated_running();
    let (mut orphans, mut given_up) = (0, 0);
    for held in held {
        let Some(job) = state.job_index(held.id) else { continue };
        let key = state.attempt_key(job);
        let dead_worker =
            dead.iter().find(|(row, _)| row.id == held.worker).map(|(_, dead_worker)| dead_worker);
        let may_have_started =
            dead_worker.is_none_or(|dead_worker| may_have_started(dead_worker, &key, held.pid));
        let is_evidence = dead_worker
            .is_some_and(|dead_worker| dead_worker.is_same_boot && has_started(dead_worker, &key, held.pid));
        let decision = match (may_have_started, is_evidence) {
            (false, _) => OrphanDecision::NeverStarted,
            (true, false) => OrphanDecision::RunAgain(None),
            (true, true) => {
                let at = if is_alone { JobPhaseAtCrash::Isolated } else { JobPhaseAtCrash::Running };
                suspects.on_worker_death(key.job, held.worker, at, CrashEvidence::LostContact)
            }
        };
        let usage = dead_worker.and_then(|dead_worker| dead_worker.leftover_usage.get(&key).copied());
        let lost = OrphanedAttempt { started_at: held.started_at, usage: usage.unwrap_or_default() };
        orphans += usize::from(may_have_started);
        given_up += usize::from(decision == OrphanDecision::GiveUp);
        state.on_orphaned(job, held.worker, decision, lost, now, changes);
    }
    Ok((orphans, given_up))
}

/// Commits the ends that dead workers recorded and that were not committed. Returns their number.
fn commit_recorded_ends(
    store: &dyn Store,
    host: &dyn WorkerHost,
    workflow: &WorkflowRow,
    dead: &[(WorkerRow, DeadWorkerReport)],
    classifier: Option<Arc<FailureClassifier>>,
    now: Timestamp,
) -> Result<usize, SchedulerError> {
    if dead.iter().all(|(_, dead_worker)| dead_worker.recorded_ends.is_empty()) {
        return Ok(0);
    }
    let mut state = load_workflow_state(store, workflow)?;
    if store.cancel_requested(workflow.id)? {
        state.on_cancel();
    }
    let mut retries = WorkflowRetryPolicy::load(store, workflow, &state, classifier)?;
    let room =
        |_: &LocationConstraint| WorkerCapacities { workers: vec![host.capacity()], longest_stay: None };
    let (mut changes, mut count, mut over) = (Vec::new(), 0, Vec::new());
    for held in store.held_jobs(workflow.id)? {
        let Some(key) = state.job_index(held.id).map(|job| state.attempt_key(job)) else { continue };
        let of_worker = dead.iter().find(|(row, _)| row.id == held.worker);
        let Some(ended) = of_worker.and_then(|(_, dead_worker)| dead_worker.recorded_ends.get(&key)) else {
            continue;
        };
        let follow = |failed: FailedAttemptContext<'_>| {
            retries.decide_retry(failed, &RetryInputs { worker_capacities: &room, node_record: None, now })
        };
        // It cannot be stale: the key is that of the attempt that the worker holds.
        if let Ok(outcome) = state.on_attempt_ended_with(held.worker, ended, follow, &mut changes) {
            count += 1;
            over.extend(outcome.job_status.is_settled().then_some(key));
        }
    }
    added_jobs::drop_stale_added_jobs(store, &over, &mut state, &mut changes)?;
    commit_and_wait(store, workflow.id, workflow.run_id, changes)?;
    Ok(count)
}

/// Starts the next run of a workflow: failed jobs and their dependents run again.
pub fn begin_next_run(
    store: &dyn Store,
    workflow: &WorkflowRow,
    now: Timestamp,
) -> Result<RunId, SchedulerError> {
    begin_next_run_at_other_sites(store, workflow, &[], now)
}

/// The same; in addition, incomplete units at one of these sites start over, to elect another site.
pub fn begin_next_run_at_other_sites(
    store: &dyn Store,
    workflow: &WorkflowRow,
    left: &[String],
    now: Timestamp,
) -> Result<RunId, SchedulerError> {
    let table = store.load_jobs(workflow.id)?;
    let state = WorkflowState::new(workflow.id, workflow.run_id, table)
        .map_err(|_| SchedulerError::Cycle(workflow.id))?;
    let again = state.jobs_to_rerun_at_other_sites(left);
    Ok(store.begin_next_run(workflow.id, &again, now)?)
}

fn ensure_workers_dead(
    store: &dyn Store,
    host: &mut dyn WorkerHost,
    workflow: WorkflowId,
) -> Result<Vec<(WorkerRow, DeadWorkerReport)>, SchedulerError> {
    let workers = load_job_holders(store, workflow)?;
    let mut end_worker = |row: WorkerRow| {
        let dead_worker = host.ensure_dead(&row.worker).map_err(SchedulerError::EnsureWorkerDead)?;
        Ok((row, dead_worker))
    };
    workers.into_iter().map(&mut end_worker).collect()
}

/// Workers of the workflow that did not sign off, and others that hold jobs of it. Without clients that claim
/// jobs anonymously, which have no known process.
pub fn load_job_holders(store: &dyn Store, workflow: WorkflowId) -> Result<Vec<WorkerRow>, SchedulerError> {
    let mut workers = store.active_workers(Some(workflow))?;
    for held in store.held_jobs(workflow)? {
        if workers.iter().all(|row| row.id != held.worker) {
            workers.extend(store.worker(held.worker)?.filter(WorkerRow::is_active));
        }
    }
    workers.retain(|row| row.worker.kind != WorkerKind::Claims);
    Ok(workers)
}

fn may_have_started(dead_worker: &DeadWorkerReport, key: &AttemptKey, pid: Option<u32>) -> bool {
    pid.is_some() || dead_worker.may_have_started(key)
}

/// Whether this attempt had certainly started.
fn has_started(dead_worker: &DeadWorkerReport, key: &AttemptKey, pid: Option<u32>) -> bool {
    pid.is_some() || dead_worker.started_attempts.as_ref().is_some_and(|started| started.contains(key))
}

fn load_workflow_state(store: &dyn Store, workflow: &WorkflowRow) -> Result<WorkflowState, SchedulerError> {
    let table = store.load_jobs(workflow.id)?;
    let mut state = WorkflowState::new(workflow.id, workflow.run_id, table)
        .map_err(|_| SchedulerError::Cycle(workflow.id))?;
    state.set_return_codes(return_codes(&workflow.settings));
    state.set_limits(&workflow.settings.limits, workflow.settings.max_units);
    Ok(state)
}

/// Commits and waits.
fn commit_and_wait(
    store: &dyn Store,
    workflow: WorkflowId,
    run: RunId,
    changes: Vec<WorkflowChange>,
) -> Result<(), SchedulerError> {
    if changes.is_empty() {
        return Ok(());
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let done = Box::new(move |result| sender.send(result).unwrap_or_default());
    store.submit(ChangeBatch { workflow, run, changes: changes.into() }, done);
    receiver.recv().unwrap_or(Err(windlass_store::StoreError::Closed))?;
    Ok(())
}
