//! Failure handling at a server: retries and their delays, workflows halted by a spent retry budget, and those
//! that wait for a decision.

use super::active_workflow::ActiveWorkflow;
use super::call_types::CallError;
use super::scheduler::{Scheduler, WorkflowSlot, store_call_error, unavailable_error};
use super::worker_session::WorkerSession;
use crate::retry_policy::{RetryInputs, WorkerCapacities};
use std::time::{Duration, Instant};
use windlass_core::change::WorkflowChange;
use windlass_core::dispatch::LocationConstraint;
use windlass_core::workflow_state::{AttemptOutcome, FailedAttemptContext, StaleAttemptReport};
use windlass_types::worker_messages::AttemptEndReport;
use windlass_types::{JobStatus, WorkerId, WorkflowId};

impl Scheduler {
    /// Applies the end of an attempt, with the retry decision if it failed.
    pub(super) fn apply_attempt_end(
        &mut self,
        worker: WorkerId,
        ended: &AttemptEndReport,
    ) -> Result<AttemptOutcome, StaleAttemptReport> {
        let key = ended.key;
        let Self {
            workflows: slots,
            sessions: worker_sessions,
            groups: worker_groups,
            nodes,
            now,
            local_run,
            ..
        } = self;
        let Some(WorkflowSlot::Active(active)) = slots.get_mut(&key.workflow) else {
            return Err(StaleAttemptReport { key, found: format!("workflow {} has ended", key.workflow) });
        };
        let ActiveWorkflow { state, retry_policy: policy, open_batch: open, row, .. } = &mut **active;
        let room = |place: &LocationConstraint| {
            let members =
                worker_groups.workers_for(key.workflow).into_iter().filter_map(|id| worker_sessions.get(&id));
            worker_capacities(members.filter(|session| session.usage.accepts_location(place)))
        };
        let mut class = None;
        let follow = |failed: FailedAttemptContext<'_>| {
            let session = worker_sessions.get(&worker).filter(|session| session.attached.is_none());
            let node = session.map(|session| nodes.failure_record(&session.node));
            let inputs = RetryInputs { worker_capacities: &room, node_record: node, now: now.timestamp };
            let followed = policy.decide_retry(failed, &inputs);
            class = followed.diagnosis.as_ref().map(|diagnosis| diagnosis.class);
            followed
        };
        let outcome = state.on_attempt_ended_with(worker, ended, follow, &mut open.changes)?;
        if policy.is_budget_spent() && !state.is_halted() {
            state.on_halt();
            let alarm = policy.budget_alarm(row);
            if let Some(local_run) = local_run {
                local_run.notices.push(alarm.message.clone());
            }
            open.changes.push(WorkflowChange::RaiseAlarm(Box::new(alarm)));
        }
        self.record_node_attempt(worker, &key, (outcome.attempt_status, &ended.cause), class);
        Ok(outcome)
    }

    /// Makes delayed retries claimable when they are due.
    pub(super) fn release_delayed_jobs(&mut self) {
        let now = self.now.timestamp;
        for workflow in self.workflows_with_delayed_jobs.iter().copied().collect::<Vec<_>>() {
            let Some(active) =
                self.find_workflow(workflow).filter(|active| active.state.next_due().is_some())
            else {
                self.workflows_with_delayed_jobs.remove(&workflow);
                continue;
            };
            if active.state.release_due(now) > 0 {
                self.dirty_workflows.insert(workflow);
            }
        }
    }

    /// The time at which the next one is due.
    pub(super) fn next_delayed_job(&self) -> Option<Instant> {
        let due = self.workflows_with_delayed_jobs.iter().filter_map(|workflow| {
            match self.workflows.get(workflow)? {
                WorkflowSlot::Active(active) => active.state.next_due(),
                WorkflowSlot::Suspended(_) => None,
            }
        });
        due.min().and_then(|due| self.now.instant.checked_add(due.since(self.now.timestamp)))
    }

    /// Updates after a change of the workflow whether it has delayed jobs, and whether it waits for a decision.
    pub(super) fn update_failure_state(&mut self, workflow: WorkflowId) {
        let Some(WorkflowSlot::Active(active)) = self.workflows.get_mut(&workflow) else { return };
        if active.state.next_due().is_some() {
            self.workflows_with_delayed_jobs.insert(workflow);
        }
        let needs_decision = active.needs_decision();
        if std::mem::replace(&mut active.waits_for_decision, needs_decision) != needs_decision {
            self.notify_bound_workers(workflow);
            self.notify_commit();
        }
    }

    /// Lets a halted workflow continue, with a renewed retry budget.
    pub(super) fn continue_workflow(&mut self, workflow: WorkflowId, by: &str) -> Result<(), CallError> {
        let (store, now) = (self.store.acting_as(by), self.now.timestamp);
        let active = self.open_workflow(workflow)?;
        if active.state.is_halted() {
            // Otherwise this event might precede the alarm that it answers.
            if !active.is_quiet() {
                return Err(unavailable_error("a commit of this workflow is under way"));
            }
            store
                .add_event(&active.retry_policy.renew_budget(&active.row), now)
                .map_err(|error| store_call_error(&error))?;
            active.state.on_continue();
        }
        Ok(())
    }
}

impl ActiveWorkflow {
    /// Whether nothing more happens without a decision about a failure, or a command to continue.
    pub(super) fn needs_decision(&self) -> bool {
        let is_open = self.state.is_halted() || self.state.counts().get(JobStatus::PendingFailed) > 0;
        self.is_active && is_open && self.held_jobs.is_empty() && self.is_quiet() && self.state.is_stuck()
    }
}

/// The capacities of workers that accept jobs; a worker without a stated time limit stays for ever.
fn worker_capacities<'a>(members: impl Iterator<Item = &'a WorkerSession>) -> WorkerCapacities {
    let eligible_workers: Vec<&WorkerSession> =
        members.filter(|session| !session.is_draining && !session.is_to_drain).collect();
    let stays: Option<Vec<Duration>> = eligible_workers.iter().map(|session| session.time_limit).collect();
    WorkerCapacities {
        workers: eligible_workers.iter().map(|session| session.capacity).collect(),
        longest_stay: stays.and_then(|stays| stays.into_iter().max()),
    }
}
