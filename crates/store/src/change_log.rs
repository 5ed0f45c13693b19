//! Logs the decisions of the scheduler: every change of a workflow passes here on its way to the database.

use crate::ChangeBatch;
use tracing::{Level, debug, enabled, warn};
use windlass_core::change::{ActionChange, WorkflowChange};
use windlass_types::log_attempt;
use windlass_types::worker_messages::AttemptKey;

/// The target of these events, for filters: `windlass_scheduler=debug`.
const TARGET: &str = "windlass_scheduler";

pub(crate) fn log_changes(batch: &ChangeBatch) {
    if enabled!(target: TARGET, Level::DEBUG) {
        for change in &*batch.changes {
            log_change(batch, change);
        }
    }
}

fn log_change(batch: &ChangeBatch, change: &WorkflowChange) {
    let (workflow, run) = (batch.workflow.0, batch.run.0);
    let key = |job, attempt| AttemptKey { workflow: batch.workflow, job, run: batch.run, attempt };
    match change {
        WorkflowChange::Status { job, from, to } => {
            let (from, to) = (from.name(), to.name());
            debug!(target: TARGET, workflow, run, job = job.0, from, to, "job changes its status");
        }
        WorkflowChange::Claim { job, attempt, worker } => {
            let key = key(*job, *attempt);
            log_attempt!(debug, target: TARGET, key, worker = worker.0, "job assigned to worker");
        }
        WorkflowChange::Start { job, attempt, worker, pid, .. } => {
            let key = key(*job, *attempt);
            log_attempt!(debug, target: TARGET, key, worker = worker.0, pid, "job is running");
        }
        WorkflowChange::End { to, result, failure, orphaned, .. } => {
            let class = failure.as_ref().map(|failure| failure.diagnosis.class.as_str());
            let rule = failure.as_ref().and_then(|failure| failure.diagnosis.rule.as_deref());
            log_attempt!(
                debug,
                target: TARGET,
                result.key,
                worker = result.worker.0,
                status = result.status.name(),
                return_code = result.return_code,
                job_status = to.name(),
                class,
                rule,
                is_orphan = orphaned,
                reason = result.reason.as_deref(),
                "attempt ended"
            );
        }
        WorkflowChange::ReturnClaim { job, worker } => {
            debug!(target: TARGET, workflow, run, job = job.0, worker = worker.0, "job returned before it started");
        }
        WorkflowChange::ReassignClaim { job, from, to } => {
            let (from, to) = (from.0, to.0);
            debug!(target: TARGET, workflow, run, job = job.0, from, to, "job moved to another worker");
        }
        WorkflowChange::Retry { job, attempt, .. } => {
            log_attempt!(debug, target: TARGET, key(*job, *attempt), "attempt is retried");
        }
        WorkflowChange::Reset { job, from, .. } => {
            debug!(target: TARGET, workflow, run, job = job.0, from = from.name(), "job is reset");
        }
        WorkflowChange::Ignore { job, attempt } => {
            log_attempt!(debug, target: TARGET, key(*job, *attempt), "failure is ignored");
        }
        WorkflowChange::Action(action) => log_action(workflow, run, action),
        WorkflowChange::Unit(unit) => {
            let (from, to, site) = (unit.from.name(), unit.to.name(), unit.site.as_deref());
            debug!(target: TARGET, workflow, run, unit = unit.number, from, to, site, "work unit changes its status");
        }
        WorkflowChange::CountSiteAttempts { .. } => {}
        WorkflowChange::RaiseAlarm(alert) => {
            warn!(target: TARGET, workflow, run, category = %alert.category, "{}", alert.message);
        }
    }
}

fn log_action(workflow: i64, run: i64, change: &ActionChange) {
    match change {
        ActionChange::Triggered { action, to, is_due, .. } => {
            debug!(target: TARGET, workflow, run, action, times = to, is_due, "action is triggered");
        }
        ActionChange::Started { action, attempt, worker, .. }
        | ActionChange::Claimed { action, attempt, worker, .. } => {
            let worker = worker.map(|worker| worker.0);
            debug!(target: TARGET, workflow, run, action, attempt = attempt.0, worker, "action started");
        }
        ActionChange::Ended { action, attempt, return_code, message, .. } => {
            let (attempt, message) = (attempt.0, message.as_deref());
            debug!(target: TARGET, workflow, run, action, attempt, return_code, message, "action ended");
        }
        ActionChange::Withdrawn { action, attempt } => {
            debug!(target: TARGET, workflow, run, action, attempt = attempt.0, "action withdrawn");
        }
    }
}
