//! Starts, replaces and stops the worker process, and runs actions beside it.

use super::{LocalRun, RunDeadline};
use crate::SchedulerError;
use crate::service::active_workflow::ActiveWorkflow;
use crate::service::scheduler_call::{LocalRunEvent, SchedulerEvent};
use crate::worker_host::{ActionDone, WorkerSender};
use std::time::{Duration, Instant};
use windlass_store::model::WorkerRow;
use windlass_types::WorkerId;
use windlass_types::worker_messages::StopReason;
use windlass_types::worker_protocol::{ActionCommand, ActionReport};

/// How long a worker may take to end on request.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of deaths of workers in a row, without a completed job, after which no new one is started.
const MAX_WORKER_DEATHS: u32 = 5;

impl LocalRun<'_> {
    /// Starts a worker if there are jobs or actions for it.
    pub(super) fn start_worker_if_needed(&mut self) -> Result<(), SchedulerError> {
        if self.worker.is_some() || self.stop_reason.is_some() {
            return Ok(());
        }
        let has_work = |active: &ActiveWorkflow| {
            active.state.has_ready()
                || (active.may_run_actions() && active.actions.states.has_unexecuted_action())
        };
        if self.active().is_some_and(has_work) { self.start_worker() } else { Ok(()) }
    }

    fn start_worker(&mut self) -> Result<(), SchedulerError> {
        let started = self.host.start_worker(&self.workflow).map_err(SchedulerError::StartWorker)?;
        let now = self.clock.now();
        let id = self.retry_until_done(|store| store.add_worker(&started.worker, now))?;
        let reader = started.stream.try_clone().map_err(|e| SchedulerError::StartWorker(e.into()))?;
        let sender = WorkerSender::new(started.stream).map_err(|e| SchedulerError::StartWorker(e.into()))?;
        let row =
            WorkerRow { id, worker: started.worker, started_at: now, ended_at: None, is_draining: false };
        self.events.attach_worker(id, reader);
        self.scheduler.attach_worker(&row, self.workflow.id, self.host.labels(), sender);
        self.worker = Some(row);
        if let Some(why) = self.stop_reason {
            // It was asked to stop while it was started.
            self.stop_worker(why, self.options.grace);
        }
        Ok(())
    }

    pub(super) fn stop_worker(&mut self, why: StopReason, grace: Duration) {
        if let Some(row) = &self.worker {
            self.scheduler.stop_attached_worker(row.id, why, grace);
        }
    }

    /// Within the time limit of the run the worker gets only jobs that end in time.
    pub(super) fn limit_worker_time(&mut self) {
        let session = self.worker.as_ref().and_then(|row| self.scheduler.sessions.get_mut(&row.id));
        if let (Some(session), Some(deadline)) = (session, self.options.deadline) {
            session.set_time_limit(Some(RunDeadline::time_left(deadline)));
        }
    }

    /// Handles the loss of the worker: its jobs are orphans, and a new worker is started if there is work.
    pub(super) fn on_worker_gone(&mut self) -> Result<(), SchedulerError> {
        let Some(gone) = self.worker.take() else { return Ok(()) };
        let dead_worker = self.host.ensure_dead(&gone.worker).map_err(SchedulerError::EnsureWorkerDead)?;
        let (lost, given_up) = self.scheduler.on_attached_worker_dead(gone.id, &dead_worker);
        let has_ended_jobs = !dead_worker.recorded_ends.is_empty();
        self.dead_workers.push(gone);
        if self.stop_reason.is_some() {
            return Ok(());
        }
        self.deaths_in_a_row = if given_up || has_ended_jobs { 0 } else { self.deaths_in_a_row + 1 };
        if self.deaths_in_a_row >= MAX_WORKER_DEATHS {
            return Err(SchedulerError::WorkerKeepsDying(MAX_WORKER_DEATHS));
        }
        self.observer
            .on_notice(&format!("the worker died ({lost} of its jobs had started); starting a new one"));
        Ok(())
    }

    /// Deletes the files of dead workers that are retired in the database.
    pub(super) fn forget_retired_workers(&mut self) {
        let Self { dead_workers, scheduler, host, .. } = self;
        dead_workers.retain(|row| {
            let is_retired = !scheduler.pending_retirements.contains_key(&row.id);
            if is_retired {
                host.forget_worker(&row.worker);
            }
            !is_retired
        });
    }

    /// Shuts the worker down, and ensures that it is dead.
    pub(super) fn dismiss_worker(&mut self) -> Result<(), SchedulerError> {
        if let Some(row) = self.worker.take() {
            self.scheduler.dismiss_attached_worker(row.id);
            let is_gone = |event: &SchedulerEvent| matches!(event, SchedulerEvent::Local(LocalRunEvent::WorkerGone { worker, .. }) if *worker == row.id);
            let until = Some(Instant::now() + QUIT_TIMEOUT);
            while self.events.next_event(until).is_some_and(|event| !is_gone(&event)) {}
            self.host.ensure_dead(&row.worker).map_err(SchedulerError::EnsureWorkerDead)?;
            self.scheduler.detach_worker(row.id);
            self.scheduler.pending_retirements.insert(row.id, 0);
            self.dead_workers.push(row);
        }
        Ok(())
    }

    /// Retires all dead workers, at the end of a run whose changes are committed.
    pub(super) fn retire_dead_workers(&mut self) -> Result<(), SchedulerError> {
        let now = self.clock.now();
        for row in std::mem::take(&mut self.dead_workers) {
            if self.scheduler.pending_retirements.contains_key(&row.id) {
                self.retry_until_done(|store| store.retire_worker(row.id, now))?;
            }
            self.host.forget_worker(&row.worker);
        }
        Ok(())
    }

    /// Runs an action whose start is committed. Its result is reported also if the run is stopped meanwhile.
    pub(super) fn perform_action(&mut self, worker: WorkerId, order: ActionCommand) {
        let Some(row) = self.worker.as_ref().filter(|row| row.id == worker) else { return };
        let sender = self.events.sender();
        let done: ActionDone =
            Box::new(move |report| drop(sender.send(LocalRunEvent::ActionEnded { worker, report }.into())));
        self.host.perform_action(order, &row.worker, &self.workflow.output_dir, done);
    }

    pub(super) fn on_action_ended(&mut self, worker: WorkerId, report: ActionReport) {
        if report.return_code != 0 {
            let why = report.message.as_deref().unwrap_or("no reason was given");
            let id = report.action;
            self.observer
                .on_notice(&format!("action {id} failed: {why} (`windlass workflows actions retry {id}`)"));
        }
        self.scheduler.apply_action_report(worker, report);
    }
}
