//! Actions of the workflow, carried out on this machine beside the jobs: one at a time, those first that come earlier in
//! the life of a workflow. What is to be done before the first job holds the jobs back; what is left to do at the end
//! holds the end back. Whoever stops the run stops them too.

use super::Dispatcher;
use crate::Error;
use crate::host::ActionDone;
use crate::inbox::Event;
use std::time::Instant;
use windlass_core::actions::Stage;
use windlass_types::WorkerId;
use windlass_types::fleet::{ActionOrder, ActionReport};
use windlass_types::settings::Trigger;

impl Dispatcher<'_> {
    /// The run begins: what is to be done before the first job is due.
    pub(super) fn begin_actions(&mut self) -> Result<(), Error> {
        if self.agenda.actions.is_empty() || self.stop.is_some() {
            return Ok(());
        }
        self.agenda.actions.happened(Trigger::OnWorkflowStart, &mut self.open.changes);
        if self.board.is_finished() {
            self.agenda.actions.happened(Trigger::OnWorkflowComplete, &mut self.open.changes);
        }
        if self.board.is_finished() && !self.agenda.actions.is_owed() {
            return Ok(());
        }
        if self.worker.is_none() {
            // What actions start is found by the mark of a worker, should all of us die.
            self.start_worker()?;
        }
        self.agenda.actions.happened(Trigger::OnWorkerStart, &mut self.open.changes);
        self.carry_out_next();
        Ok(())
    }

    fn worker_id(&self) -> Option<WorkerId> {
        self.worker.as_ref().map(|worker| worker.id)
    }

    /// Jobs wait for what is to be done before them.
    pub(super) fn actions_hold_jobs(&self) -> bool {
        self.agenda.actions.hold_jobs(self.worker_id())
    }

    /// Decides on the next one, if none is under way.
    pub(super) fn carry_out_next(&mut self) {
        let actions = &mut self.agenda.actions;
        if actions.is_empty() {
            return;
        }
        actions.observe(&mut self.open.changes);
        if self.stop.is_some() || self.worker.is_none() || actions.is_running() {
            return;
        }
        let is_quiet = self.held.is_empty() && (self.board.is_finished() || self.board.is_stuck());
        if is_quiet && self.board.is_finished() {
            actions.happened(Trigger::OnWorkflowComplete, &mut self.open.changes);
        }
        let worker = self.worker.as_ref().map(|worker| worker.id);
        let is_leaving = is_quiet && actions.next_due(worker, Stage::Working).is_none();
        if is_leaving {
            actions.happened(Trigger::OnWorkerComplete, &mut self.open.changes);
        }
        let stage = if is_leaving { Stage::Leaving } else { Stage::Working };
        let (now, changes) = (self.clock.now(), &mut self.open.changes);
        self.open.orders.extend(self.agenda.begin_next(&self.workflow, worker, stage, now, changes));
    }

    /// Nothing is under way, and nothing is left that would begin.
    pub(super) fn actions_are_done(&self) -> bool {
        let actions = &self.agenda.actions;
        let is_done =
            || self.worker.is_none() || actions.next_due(self.worker_id(), Stage::Leaving).is_none();
        !actions.is_running() && (self.stop.is_some() || is_done())
    }

    /// That it begins is on disk: it does, unless somebody has stopped the run since.
    pub(super) fn hand_out_order(&mut self, order: ActionOrder) {
        let worker = self.worker.as_ref().map(super::workers::ActiveWorker::row);
        let Some(worker) = worker.filter(|_| self.stop.is_none()) else {
            return self.agenda.actions.withdraw((order.action, order.attempt), &mut self.open.changes);
        };
        let post = self.inbox.post();
        let done: ActionDone = Box::new(move |report| post.send(Event::ActionEnded(report)));
        self.host.carry_out(order, &worker.worker, &self.workflow.output_dir, done);
    }

    pub(super) fn on_action_ended(&mut self, report: ActionReport) {
        if report.return_code != 0 {
            let why = report.message.as_deref().unwrap_or("nobody said why");
            let id = report.action;
            self.observer.notice(&format!("action {id} failed: {why} (`windlass actions retry {id}`)"));
        }
        let key = (report.action, report.attempt);
        let code = Some(report.return_code);
        self.agenda.actions.end(key, report.ended_at, code, report.message, &mut self.open.changes);
        self.open_since.get_or_insert_with(Instant::now);
    }
}
