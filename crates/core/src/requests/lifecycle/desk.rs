//! A decision in the making: the rows as they will be, and what leads there.

use super::{Alert, AlertKind, Decision, Effect, Settings, Situation};
use crate::requests::book::{BlockRow, NewAlert, StepKind, StepState};
use crate::requests::change::{BlockChange, RequestChange, RunChange};
use crate::requests::{View, outputs, transitions};
use windlass_types::Timestamp;
use windlass_types::requests::{BlockStatus, RequestStatus, RunStatus};

pub(super) struct Desk<'a> {
    /// As the rows will be with all changes so far.
    pub(super) view: View,
    pub(super) situation: &'a Situation<'a>,
    pub(super) settings: &'a Settings,
    pub(super) now: Timestamp,
    pub(super) decision: Decision,
    /// It may begin. Admission was asked about the request as it was: who comes to the queue only now asks anew.
    pub(super) admitted: bool,
    /// An effect had trouble that may pass: it is not repeated at once.
    pub(super) pausing: bool,
    /// The backend did not answer.
    pub(super) unreachable: bool,
    /// What the backend said about the end of the run.
    pub(super) why_over: Option<String>,
    /// Where it is listed what there is of its outputs, if that was written.
    pub(super) manifest: Option<String>,
    /// It is given up, and only waits for that list: nothing else of it begins.
    pub(super) is_ending: bool,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        view: &View,
        situation: &'a Situation<'a>,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Self {
        Self {
            view: view.clone(),
            situation,
            settings,
            now,
            decision: Decision::default(),
            admitted: situation.admitted && view.row.status == RequestStatus::Queued,
            pausing: false,
            unreachable: false,
            why_over: None,
            manifest: None,
            is_ending: false,
        }
    }

    pub(super) fn into_decision(self) -> Decision {
        self.decision
    }

    pub(super) fn change(&mut self, change: RequestChange) {
        self.view.apply(&change, self.now);
        self.decision.changes.push(change);
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        if !self.decision.effects.contains(&effect) {
            self.decision.effects.push(effect);
        }
    }

    pub(super) fn alert(&mut self, kind: AlertKind, text: String) {
        let request = self.view.row.request.request_name.clone();
        self.change(RequestChange::Alert(Box::new(NewAlert {
            kind: kind.name().to_owned(),
            request: Some(request.clone()),
            message: text.clone(),
            detail: serde_json::Value::Null,
        })));
        self.decision.alerts.push(Alert { kind, request, text });
    }

    pub(super) fn look_again(&mut self, at: Timestamp) {
        self.decision.look_again = Some(self.decision.look_again.map_or(at, |known| known.min(at)));
    }

    /// The only way from one status to another.
    pub(super) fn become_status(&mut self, to: RequestStatus, reason: Option<String>) {
        let from = self.view.row.status;
        debug_assert!(transitions::check(from, to).is_ok(), "{from} → {to}");
        if transitions::check(from, to).is_ok() {
            self.change(RequestChange::Status { from, to, reason });
        }
    }

    pub(super) fn hold(&mut self, reason: String) {
        self.alert(AlertKind::Held, reason.clone());
        self.become_status(RequestStatus::Held, Some(reason));
    }

    pub(super) fn change_run(&mut self, change: RunChange) {
        if let Some(run) = self.view.run.as_ref().map(|run| run.uuid.clone()) {
            self.change(RequestChange::Run { run, change });
        }
    }

    pub(super) fn become_run(&mut self, to: RunStatus) {
        let Some(run) = &self.view.run else { return };
        if run.status == to {
            return;
        }
        self.change_run(RunChange::Status { from: run.status, to });
    }

    pub(super) fn change_block(&mut self, block: &str, change: BlockChange) {
        self.change(RequestChange::Block { block: block.to_owned(), change });
    }

    pub(super) fn become_block(&mut self, block: &BlockRow, to: BlockStatus) {
        self.change_block(&block.uuid, BlockChange::Status { from: block.status, to });
    }

    /// Full blocks are closed and archived; and what can be done about outputs, whatever the status of the request, is.
    pub(super) fn see_to_outputs(&mut self) {
        let full: Vec<BlockRow> =
            self.view.blocks.iter().filter(|block| outputs::is_full(block)).cloned().collect();
        for block in full {
            let added = |kind| self.view.steps.iter().any(|step| step.is(&block.uuid, None, kind));
            if added(StepKind::Invalidate) || added(StepKind::Close) {
                continue;
            }
            for kind in [StepKind::Close, StepKind::Archive] {
                self.change(outputs::add(&block.uuid, None, kind, serde_json::Value::Null, self.now));
            }
        }
        let (ready, next) = outputs::ready(&self.view.steps, self.now);
        for step in ready {
            self.effect(Effect::Step(Box::new(step)));
        }
        if let Some(next) = next {
            self.look_again(next);
        }
    }

    /// Everything that is open about a block is no longer wanted.
    pub(super) fn drop_steps(&mut self, block: &str) {
        let open: Vec<_> = self.view.steps.iter().filter(|step| step.block == block).cloned().collect();
        for step in open {
            self.change(step.becoming(StepState::Dropped));
        }
    }
}
