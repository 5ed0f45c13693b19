//! Runs the actions of the workflow on this machine beside the jobs: one at a time, in the order of the
//! workflow's life cycle. Actions due before the first job block the jobs; remaining actions at the end delay
//! the end. Stopping the run stops them.

use super::Dispatcher;
use crate::SchedulerError;
use crate::event_queue::DispatcherEvent;
use crate::worker_host::ActionDone;
use std::time::Instant;
use windlass_core::actions::WorkerStage;
use windlass_types::WorkerId;
use windlass_types::settings::ActionTrigger;
use windlass_types::worker_protocol::{ActionCommand, ActionReport};

impl Dispatcher<'_> {
    /// Triggers the actions at the start of the run.
    pub(super) fn start_actions(&mut self) -> Result<(), SchedulerError> {
        if self.actions.states.is_empty() || self.stop_reason.is_some() {
            return Ok(());
        }
        self.actions.states.on_trigger(ActionTrigger::OnWorkflowStart, &mut self.open_batch.changes);
        if self.state.is_finished() {
            self.actions.states.on_trigger(ActionTrigger::OnWorkflowComplete, &mut self.open_batch.changes);
        }
        if self.state.is_finished() && !self.actions.states.has_unexecuted_action() {
            return Ok(());
        }
        if self.worker.is_none() {
            // The processes of actions are marked as a worker's, so that they are found if this process and
            // the worker die.
            self.start_worker()?;
        }
        self.actions.states.on_trigger(ActionTrigger::OnWorkerStart, &mut self.open_batch.changes);
        self.start_next_action();
        Ok(())
    }

    fn worker_id(&self) -> Option<WorkerId> {
        self.worker.as_ref().map(|worker| worker.id)
    }

    /// Whether jobs wait for actions.
    pub(super) fn actions_hold_jobs(&self) -> bool {
        self.actions.states.blocks_jobs(self.worker_id())
    }

    /// Starts the next action, if none is running.
    pub(super) fn start_next_action(&mut self) {
        let actions = &mut self.actions.states;
        if actions.is_empty() {
            return;
        }
        actions.count_changes(&mut self.open_batch.changes);
        if self.stop_reason.is_some() || self.worker.is_none() || actions.is_running() {
            return;
        }
        let is_quiet = self.held_jobs.is_empty() && (self.state.is_finished() || self.state.is_stuck());
        if is_quiet && self.state.is_finished() {
            actions.on_trigger(ActionTrigger::OnWorkflowComplete, &mut self.open_batch.changes);
        }
        let worker = self.worker.as_ref().map(|worker| worker.id);
        let is_leaving = is_quiet && actions.next_due(worker, WorkerStage::Working).is_none();
        if is_leaving {
            actions.on_trigger(ActionTrigger::OnWorkerComplete, &mut self.open_batch.changes);
        }
        let stage = if is_leaving { WorkerStage::Leaving } else { WorkerStage::Working };
        let (now, changes) = (self.clock.now(), &mut self.open_batch.changes);
        self.open_batch.action_commands.extend(self.actions.start_next(
            &self.workflow,
            worker,
            stage,
            now,
            changes,
        ));
    }

    /// Whether no action is running or due.
    pub(super) fn actions_are_done(&self) -> bool {
        let actions = &self.actions.states;
        let is_done =
            || self.worker.is_none() || actions.next_due(self.worker_id(), WorkerStage::Leaving).is_none();
        !actions.is_running() && (self.stop_reason.is_some() || is_done())
    }

    /// Runs an action whose start is committed, unless the run was stopped since.
    pub(super) fn dispatch_action(&mut self, order: ActionCommand) {
        let worker = self.worker.as_ref().map(super::workers::ActiveWorker::row);
        let Some(worker) = worker.filter(|_| self.stop_reason.is_none()) else {
            return self
                .actions
                .states
                .withdraw_run((order.action, order.attempt), &mut self.open_batch.changes);
        };
        let sender = self.events.sender();
        let done: ActionDone = Box::new(move |report| sender.send(DispatcherEvent::ActionEnded(report)));
        self.host.perform_action(order, &worker.worker, &self.workflow.output_dir, done);
    }

    pub(super) fn on_action_ended(&mut self, report: ActionReport) {
        if report.return_code != 0 {
            let why = report.message.as_deref().unwrap_or("no reason was given");
            let id = report.action;
            self.observer
                .on_notice(&format!("action {id} failed: {why} (`windlass workflows actions retry {id}`)"));
        }
        let key = (report.action, report.attempt);
        let code = Some(report.return_code);
        self.actions.states.end_run(key, report.ended_at, code, report.message, &mut self.open_batch.changes);
        self.batch_open_since.get_or_insert_with(Instant::now);
    }
}
