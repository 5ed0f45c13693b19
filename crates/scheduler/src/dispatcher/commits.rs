//! Decides when changes are committed, and performs their effects after the commit.

use super::{Dispatcher, HeldAttempt, STORE_RETRY_DELAY};
use crate::event_queue::DispatcherEvent;
use crate::execution_settings::load_assignments;
use crate::run_observer::AttemptEndNotice;
use crate::{SchedulerError, recovery_at_start};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::change::WorkflowChange;
use windlass_core::dispatch::WorkerUsage;
use windlass_core::workflow_state::AttemptOutcome;
use windlass_store::ChangeBatch;
use windlass_store::model::WorkerRow;
use windlass_types::WorkerId;
use windlass_types::worker_messages::{Assignment, AttemptKey, ToWorker};
use windlass_types::worker_protocol::ActionCommand;

/// How long completions without ready dependents are collected before they are committed.
const COMMIT_DELAY: Duration = Duration::from_millis(10);
/// … or until this many have been collected.
const MAX_DELAYED_BATCH: usize = 256;
/// The timeout of the last commit of a failed run.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Changes, and their effects after the commit.
#[derive(Default)]
pub(super) struct DispatcherBatch {
    pub(super) changes: Vec<WorkflowChange>,
    pub(super) assignments: Vec<Assignment>,
    /// Actions to start.
    pub(super) action_commands: Vec<ActionCommand>,
    pub(super) attempt_ends: Vec<(AttemptKey, String, AttemptOutcome, Duration)>,
    /// Dead workers whose jobs are among the changes; they are retired after the commit.
    pub(super) dead_workers: Vec<WorkerRow>,
}

/// A batch that was submitted to the store.
pub(super) struct DispatcherCommit {
    changes: Arc<[WorkflowChange]>,
    pub(super) batch: DispatcherBatch,
    /// The commit failed because the disk is full or the database is unreachable…
    pub(super) was_refused: bool,
    /// … and is repeated at this time.
    pub(super) retry_at: Option<Instant>,
}

impl Dispatcher<'_> {
    /// Claims jobs for the worker if it has free resources or will soon run out of jobs.
    pub(super) fn claim_jobs(&mut self) -> Result<(), SchedulerError> {
        if self.stop_reason.is_some()
            || self.pending_commands.is_any_pending
            || self.actions_hold_jobs()
            || self.in_flight.is_some()
            || self.store_problem.as_ref().is_some_and(super::StoreProblem::is_current)
        {
            return Ok(());
        }
        let Some(worker) = &mut self.worker else { return Ok(()) };
        let Some(usage) = &mut worker.usage else { return Ok(()) };
        let mut ahead = self.claim_ahead.claims_ahead(usage.running());
        if let Some(until) = self.options.deadline {
            usage.limit_time(until.end.saturating_duration_since(Instant::now()));
            // It is unknown when a job queued at the worker would start.
            ahead = if self.state.has_runtime_requests() { 0 } else { ahead };
        }
        ahead =
            ahead.min(self.retry_policy.max_claims_ahead(self.state.counts().total(), self.held_jobs.len()));
        if !self.state.has_ready() || usage.queued() > ahead / 4 {
            return Ok(());
        }
        let taken = self.state.claim_jobs(worker.id, usage, ahead, &mut self.open_batch.changes);
        if taken.is_empty() {
            let nothing_fits = usage.is_idle() && self.open_batch.changes.is_empty();
            if nothing_fits && self.options.deadline.is_some() {
                self.on_deadline("no remaining job would end within the time limit: starting no more jobs");
            }
            return Ok(());
        }
        self.claim_ahead.on_claimed(usage.running());
        self.store_problem = None;
        self.assign_jobs(&taken)
    }

    fn assign_jobs(&mut self, jobs: &[u32]) -> Result<(), SchedulerError> {
        let assigned = loop {
            match load_assignments(self.store, &self.state, &self.settings, jobs) {
                // They are claimed only in memory and assigned after they are read.
                Err(error) if error.is_transient() && self.interrupts < 2 => {
                    self.record_store_problem(error.to_string());
                    self.wait_out_problem();
                }
                read => break read?,
            }
        };
        for (&job, assignment) in jobs.iter().zip(assigned) {
            self.held_jobs.insert(job, HeldAttempt { name: assignment.name.clone(), started: None });
            self.open_batch.assignments.push(assignment);
        }
        Ok(())
    }

    /// Submits the open batch: at once if its commit is awaited, else after a short delay.
    pub(super) fn submit_batch_if_due(&mut self) {
        let now = Instant::now();
        if let Some(in_flight) = &mut self.in_flight {
            if in_flight.retry_at.is_some_and(|at| at <= now) {
                in_flight.retry_at = None;
                self.submit_commit();
            }
            return;
        }
        // Jobs added by jobs that have ended must be committed together with their ends.
        if self.open_batch.changes.is_empty() || self.has_attempt_ended {
            return;
        }
        let is_batch_full = self.open_batch.changes.len() >= MAX_DELAYED_BATCH;
        let waited = self.commit_deadline().is_none_or(|until| until <= now);
        if self.is_commit_awaited() || is_batch_full || waited {
            let mut then = mem::take(&mut self.open_batch);
            self.batch_open_since = None;
            let changes = mem::take(&mut then.changes).into();
            self.in_flight =
                Some(DispatcherCommit { changes, batch: then, was_refused: false, retry_at: None });
            self.submit_commit();
        }
    }

    pub(super) fn commit_deadline(&self) -> Option<Instant> {
        self.batch_open_since.map(|since| since + COMMIT_DELAY)
    }

    fn submit_commit(&self) {
        let Some(in_flight) = &self.in_flight else { return };
        let sender = self.events.sender();
        let changes = Arc::clone(&in_flight.changes);
        let batch = ChangeBatch { workflow: self.workflow.id, run: self.workflow.run_id, changes };
        let done = move |result| sender.send(DispatcherEvent::Committed(result));
        self.store.submit(batch, Box::new(done));
    }

    /// Whether the next commit is awaited: for assignments, for actions, or because nothing else is running.
    fn is_commit_awaited(&self) -> bool {
        let nothing_runs =
            self.worker.as_ref().and_then(|w| w.usage.as_ref()).is_none_or(WorkerUsage::is_idle);
        let has_orders =
            !self.open_batch.assignments.is_empty() || !self.open_batch.action_commands.is_empty();
        has_orders || nothing_runs || self.pending_commands.is_any_pending
    }

    pub(super) fn on_committed(
        &mut self,
        result: Result<(), windlass_store::StoreError>,
    ) -> Result<(), SchedulerError> {
        match result {
            Ok(()) => match self.in_flight.take() {
                Some(done) => {
                    if done.was_refused {
                        self.store_problem = None;
                    }
                    self.perform_batch(done.batch)
                }
                None => Ok(()),
            },
            Err(error) if error.is_transient() => {
                self.record_store_problem(error.to_string());
                if let Some(in_flight) = &mut self.in_flight {
                    in_flight.was_refused = true;
                    in_flight.retry_at = Some(Instant::now() + STORE_RETRY_DELAY);
                }
                Ok(())
            }
            Err(error) => Err(SchedulerError::Store(error)),
        }
    }

    /// Performs the effects of a committed batch.
    fn perform_batch(&mut self, done: DispatcherBatch) -> Result<(), SchedulerError> {
        if self.stop_reason.is_some() {
            // Claimed before the stop and never sent, so it has certainly not started.
            let worker = self.worker.as_ref().map_or(WorkerId(0), |w| w.id);
            for assignment in &done.assignments {
                // An error means that its worker is gone too, and the claim was returned with it.
                self.return_claim(worker, &assignment.key).unwrap_or_default();
            }
        } else if !done.assignments.is_empty() {
            self.send_to_worker(&ToWorker::Assign(done.assignments));
        }
        for order in done.action_commands {
            self.dispatch_action(order);
        }
        for (key, name, outcome, wall) in &done.attempt_ends {
            self.observer.on_attempt_ended(&AttemptEndNotice {
                key: *key,
                name,
                attempt_status: outcome.attempt_status,
                job_status: outcome.job_status,
                return_code: outcome.return_code,
                wall_time: *wall,
                reason: outcome.reason.as_deref(),
            });
        }
        for row in &done.dead_workers {
            self.retire_worker(row)?;
        }
        Ok(())
    }

    /// Commits the reports received so far, when the run fails.
    pub(super) fn commit_remaining_changes(&mut self) {
        let until = Instant::now() + LAST_COMMIT_TIMEOUT;
        while self.in_flight.as_ref().is_some_and(|f| f.retry_at.is_none()) {
            match self.events.next_event(until) {
                Some(DispatcherEvent::Committed(Ok(()))) => self.in_flight = None,
                Some(DispatcherEvent::Committed(Err(_))) | None => return,
                Some(_) => {}
            }
        }
        // Claims that were never sent stay in the database; the next recovery at start returns them.
        let changes = mem::take(&mut self.open_batch.changes);
        recovery_at_start::commit_and_wait(self.store, self.workflow.id, self.workflow.run_id, changes)
            .unwrap_or_default();
    }
}
