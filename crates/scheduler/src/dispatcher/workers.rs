//! Starts, replaces and stops workers.

use super::Dispatcher;
use crate::SchedulerError;
use crate::event_queue::DispatcherEvent;
use crate::worker_host::{DeadWorkerReport, WorkerSender};
use std::mem;
use std::time::{Duration, Instant};
use windlass_core::crash_suspects::{CrashEvidence, JobPhaseAtCrash};
use windlass_core::dispatch::WorkerUsage;
use windlass_core::workflow_state::{OrphanDecision, OrphanedAttempt};
use windlass_store::model::WorkerRow;
use windlass_types::WorkerId;
use windlass_types::worker_messages::{AttemptKey, StopReason, ToWorker};

/// How long a worker may take to end on request.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of deaths of workers in a row, without a completed job, after which no new one is started.
const MAX_WORKER_DEATHS: u32 = 5;

pub(super) struct ActiveWorker {
    pub(super) id: WorkerId,
    row: WorkerRow,
    sender: WorkerSender,
    /// Known after its first message.
    pub(super) usage: Option<WorkerUsage>,
}

impl ActiveWorker {
    pub(super) const fn row(&self) -> &WorkerRow {
        &self.row
    }
}

impl Dispatcher<'_> {
    pub(super) fn start_worker(&mut self) -> Result<(), SchedulerError> {
        let started = self.host.start_worker(&self.workflow).map_err(SchedulerError::StartWorker)?;
        let now = self.clock.now();
        let id = self.retry_until_done(|store| store.add_worker(&started.worker, now))?;
        let reader = started.stream.try_clone().map_err(|e| SchedulerError::StartWorker(e.into()))?;
        self.events.attach_worker(id, reader);
        let sender = WorkerSender::new(started.stream).map_err(|e| SchedulerError::StartWorker(e.into()))?;
        let row =
            WorkerRow { id, worker: started.worker, started_at: now, ended_at: None, is_draining: false };
        self.worker = Some(ActiveWorker { id, row, sender, usage: None });
        Ok(())
    }

    pub(super) fn stop_worker(&mut self, why: StopReason, grace: Duration) {
        self.send_to_worker(&ToWorker::Stop { why, grace });
    }

    pub(super) fn send_to_worker(&mut self, message: &ToWorker) {
        if let Some(worker) = &mut self.worker
            && worker.sender.send(message).is_err()
        {
            // It is gone or does not read: in both cases it has to be replaced.
            let gone = DispatcherEvent::WorkerGone { worker: worker.id, protocol_error: None };
            self.events.sender().send(gone);
        }
    }

    /// Handles the loss of the worker: its jobs are orphans, and a new worker is started.
    pub(super) fn on_worker_gone(&mut self) -> Result<(), SchedulerError> {
        let Some(gone) = self.worker.take() else { return Ok(()) };
        let dead_worker =
            self.host.ensure_dead(&gone.row.worker).map_err(SchedulerError::EnsureWorkerDead)?;
        self.apply_recorded_ends(gone.id, &dead_worker);
        let (lost, given_up) = self.orphan_held_jobs(gone.id, &dead_worker);
        self.open_batch.dead_workers.push(gone.row);
        // Assignments that were never sent are among the orphans; they must not go to the next worker.
        self.open_batch.assignments.clear();
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.batch.assignments.clear();
        }
        if self.stop_reason.is_some() {
            return Ok(());
        }
        self.deaths_in_a_row = if given_up { 0 } else { self.deaths_in_a_row + 1 };
        if self.deaths_in_a_row >= MAX_WORKER_DEATHS {
            return Err(SchedulerError::WorkerKeepsDying(MAX_WORKER_DEATHS));
        }
        self.observer
            .on_notice(&format!("the worker died ({lost} of its jobs had started); starting a new one"));
        self.start_worker()
    }

    /// Jobs that ended before the worker died, but whose reports did not arrive.
    fn apply_recorded_ends(&mut self, worker: WorkerId, dead_worker: &DeadWorkerReport) {
        let mut keys: Vec<AttemptKey> =
            self.held_jobs.keys().map(|job| self.state.attempt_key(*job)).collect();
        keys.sort_unstable();
        for ended in keys.iter().filter_map(|key| dead_worker.recorded_ends.get(key)) {
            if let Err(stale) = self.on_ended(worker, ended) {
                self.observer.on_notice(&stale.to_string());
            }
        }
    }

    /// Returns how many jobs had started, and whether one was failed as the cause.
    fn orphan_held_jobs(&mut self, worker: WorkerId, dead_worker: &DeadWorkerReport) -> (usize, bool) {
        let now = self.clock.now();
        let held = mem::take(&mut self.held_jobs);
        let alone = held.len() == 1 && self.state.has_isolated_running();
        let (mut lost, mut given_up) = (0, false);
        let mut jobs: Vec<u32> = held.keys().copied().collect();
        jobs.sort_unstable();
        for job in jobs {
            let key = self.state.attempt_key(job);
            let at = match dead_worker.may_have_started(&key) {
                false => JobPhaseAtCrash::NotStarted,
                true if alone => JobPhaseAtCrash::Isolated,
                true => JobPhaseAtCrash::Running,
            };
            lost += usize::from(at != JobPhaseAtCrash::NotStarted);
            let decision = self.crash_suspects.on_worker_death(key.job, worker, at, CrashEvidence::Observed);
            given_up |= decision == OrphanDecision::GiveUp;
            let started_at = held.get(&job).and_then(|h| h.started).map(|(_, at)| at);
            let usage = dead_worker.leftover_usage.get(&key).copied().unwrap_or_default();
            let attempt = OrphanedAttempt { started_at, usage };
            self.state.on_orphaned(job, worker, decision, attempt, now, &mut self.open_batch.changes);
            if decision == OrphanDecision::GiveUp {
                self.has_attempt_ended = true;
                self.ended_attempts.push(key);
            }
        }
        (lost, given_up)
    }

    /// Shuts the worker down, and ensures that it is dead.
    pub(super) fn dismiss_worker(&mut self) -> Result<(), SchedulerError> {
        let Some(mut worker) = self.worker.take() else { return Ok(()) };
        worker.sender.send(&ToWorker::Quit).unwrap_or_default();
        let gone = |event: &DispatcherEvent| matches!(event, DispatcherEvent::WorkerGone { worker: id, .. } if *id == worker.id);
        let until = Instant::now() + QUIT_TIMEOUT;
        while self.events.next_event(until).is_some_and(|event| !gone(&event)) {}
        self.host.ensure_dead(&worker.row.worker).map_err(SchedulerError::EnsureWorkerDead)?;
        self.retire_worker(&worker.row)
    }

    /// Retires a worker after the changes of its jobs are committed.
    pub(super) fn retire_worker(&mut self, row: &WorkerRow) -> Result<(), SchedulerError> {
        let now = self.clock.now();
        self.retry_until_done(|store| store.retire_worker(row.id, now))?;
        self.host.forget_worker(&row.worker);
        Ok(())
    }

    pub(super) fn worker_usage(&mut self) -> Option<&mut WorkerUsage> {
        self.worker.as_mut()?.usage.as_mut()
    }
}
