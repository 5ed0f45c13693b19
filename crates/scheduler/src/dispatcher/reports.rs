//! Interprets messages of the worker.

use super::{Dispatcher, HeldAttempt, local_worker_selector};
use crate::retry_policy::{RetryInputs, WorkerCapacities};
use std::time::Instant;
use windlass_core::change::WorkflowChange;
use windlass_core::dispatch::{LocationConstraint, WorkerUsage};
use windlass_core::workflow_state::{FailedAttemptContext, StaleAttemptReport};
use windlass_types::WorkerId;
use windlass_types::worker_messages::{
    AttemptEndReport, AttemptKey, AttemptReport, FromWorker, ReturnReason,
};

impl Dispatcher<'_> {
    pub(super) fn on_message(&mut self, message: FromWorker) {
        match message {
            FromWorker::Hello { capacity } => {
                let selector = local_worker_selector(self.host.labels());
                if let Some(worker) = &mut self.worker {
                    worker.usage = Some(WorkerUsage::with_selector(capacity, selector));
                }
            }
            FromWorker::Reports(reports) => {
                for report in reports {
                    self.on_report(report);
                }
                if self.batch_open_since.is_none() && !self.open_batch.changes.is_empty() {
                    self.batch_open_since = Some(Instant::now());
                }
            }
            // Sent only by workers with a lease, which local workers do not have.
            FromWorker::Alive { .. } => {}
            FromWorker::Terminated => self.on_worker_terminated(),
        }
    }

    /// The worker was signaled and starts nothing more. Usually this process was signaled too and stops the
    /// jobs; otherwise the worker soon ends.
    fn on_worker_terminated(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.usage = None;
        }
    }

    fn on_report(&mut self, report: AttemptReport) {
        let worker = self.worker.as_ref().map_or(WorkerId(0), |w| w.id);
        let outcome = match report {
            AttemptReport::Started { key, at, pid } => {
                if let Some(held) = self.held_mut(&key) {
                    held.started = Some((Instant::now(), at));
                }
                self.state.on_started(worker, &key, at, pid, &mut self.open_batch.changes)
            }
            AttemptReport::Ended(ended) => self.on_ended(worker, &ended),
            // Sent only by remote workers.
            AttemptReport::LeftBehind { .. } => Ok(()),
            AttemptReport::Returned { key, why } => {
                let outcome = self.return_claim(worker, &key);
                if let ReturnReason::WorkerTrouble(text) = why {
                    self.record_store_problem(text);
                }
                outcome
            }
        };
        if let Err(stale) = outcome {
            self.observer.on_notice(&stale.to_string());
        }
    }

    pub(super) fn on_ended(
        &mut self,
        worker: WorkerId,
        ended: &AttemptEndReport,
    ) -> Result<(), StaleAttemptReport> {
        let Self { state, retry_policy, host, clock, open_batch: open, options, started, .. } = self;
        let room = |_: &LocationConstraint| WorkerCapacities {
            workers: vec![host.capacity()],
            longest_stay: options.deadline.map(|until| until.end.saturating_duration_since(*started)),
        };
        let follow = |failed: FailedAttemptContext<'_>| {
            let inputs = RetryInputs { worker_capacities: &room, node_record: None, now: clock.now() };
            retry_policy.decide_retry(failed, &inputs)
        };
        let attempt_outcome = state.on_attempt_ended_with(worker, ended, follow, &mut open.changes)?;
        self.stop_if_retry_budget_spent();
        self.deaths_in_a_row = 0;
        self.crash_suspects.on_attempt_ended(ended.key.job);
        self.has_attempt_ended = true;
        if attempt_outcome.job_status.is_settled() {
            self.ended_attempts.push(ended.key);
        }
        self.claim_ahead.on_ended(ended.wall);
        let name = self.release_held_job(&ended.key);
        self.open_batch.attempt_ends.push((ended.key, name, attempt_outcome, ended.wall));
        Ok(())
    }

    /// Too much has failed: running jobs may complete, and no more are started.
    fn stop_if_retry_budget_spent(&mut self) {
        if self.retry_policy.is_budget_spent() && !self.state.is_halted() {
            self.state.on_halt();
            let alarm = self.retry_policy.budget_alarm(&self.workflow);
            self.observer.on_notice(&alarm.message);
            self.open_batch.changes.push(WorkflowChange::RaiseAlarm(Box::new(alarm)));
        }
    }

    /// Returns a claim that never started.
    pub(super) fn return_claim(
        &mut self,
        worker: WorkerId,
        key: &AttemptKey,
    ) -> Result<(), StaleAttemptReport> {
        self.state.on_claim_returned(worker, key, &mut self.open_batch.changes)?;
        self.release_held_job(key);
        Ok(())
    }

    /// Removes a job that the worker does not hold any more. Returns the job's name.
    fn release_held_job(&mut self, key: &AttemptKey) -> String {
        let Some(job) = self.state.job_index(key.job) else { return String::new() };
        if let Some(usage) = self.worker_usage() {
            usage.remove(job);
        }
        self.held_jobs.remove(&job).map(|held| held.name).unwrap_or_default()
    }

    fn held_mut(&mut self, key: &AttemptKey) -> Option<&mut HeldAttempt> {
        self.held_jobs.get_mut(&self.state.job_index(key.job)?)
    }
}
