//! A decision under construction: the resulting rows, and the changes that lead there.

use super::{
    AlertKind, LifecycleAlert, LifecycleDecision, LifecycleEffect, LifecycleInputs, LifecycleSettings,
};
use crate::requests::change::{BlockChange, RequestChange, RunChange};
use crate::requests::rows::{BlockRow, NewAlert, OutputStepKind, OutputStepState};
use crate::requests::{RequestView, outputs, transitions};
use windlass_types::Timestamp;
use windlass_types::requests::{ProcessingBlockStatus, RequestRunStatus, RequestStatus};

pub(super) struct DecisionBuilder<'a> {
    /// The rows with all changes so far.
    pub(super) view: RequestView,
    pub(super) inputs: &'a LifecycleInputs<'a>,
    pub(super) settings: &'a LifecycleSettings,
    pub(super) now: Timestamp,
    pub(super) decision: LifecycleDecision,
    /// Whether it may start. Admission was decided before: a request that is queued by this decision waits for
    /// the next.
    pub(super) admitted: bool,
    /// A transient failure of an effect: it is not repeated immediately.
    pub(super) is_backing_off: bool,
    /// The backend did not answer.
    pub(super) is_unreachable: bool,
    /// The backend's reason for the end of the run.
    pub(super) end_reason: Option<String>,
    /// Path of the manifest of its outputs, if written.
    pub(super) manifest: Option<String>,
    /// It is to fail and waits only for its manifest: nothing else starts.
    pub(super) is_ending: bool,
}

impl<'a> DecisionBuilder<'a> {
    pub(super) fn new(
        view: &RequestView,
        inputs: &'a LifecycleInputs<'a>,
        settings: &'a LifecycleSettings,
        now: Timestamp,
    ) -> Self {
        Self {
            view: view.clone(),
            inputs,
            settings,
            now,
            decision: LifecycleDecision::default(),
            admitted: inputs.admitted && view.row.status == RequestStatus::Queued,
            is_backing_off: false,
            is_unreachable: false,
            end_reason: None,
            manifest: None,
            is_ending: false,
        }
    }

    pub(super) fn into_decision(self) -> LifecycleDecision {
        self.decision
    }

    pub(super) fn push_change(&mut self, change: RequestChange) {
        self.view.apply_change(&change, self.now);
        self.decision.changes.push(change);
    }

    pub(super) fn push_effect(&mut self, effect: LifecycleEffect) {
        if !self.decision.effects.contains(&effect) {
            self.decision.effects.push(effect);
        }
    }

    pub(super) fn push_alert(&mut self, kind: AlertKind, text: String) {
        let request = self.view.row.request.request_name.clone();
        self.push_change(RequestChange::Alert(Box::new(NewAlert {
            kind: kind.name().to_owned(),
            request: Some(request.clone()),
            message: text.clone(),
            detail: serde_json::Value::Null,
        })));
        self.decision.alerts.push(LifecycleAlert { kind, request, text });
    }

    pub(super) fn check_again_at(&mut self, at: Timestamp) {
        self.decision.next_check = Some(self.decision.next_check.map_or(at, |known| known.min(at)));
    }

    /// Changes the status; the only way to do so.
    pub(super) fn set_status(&mut self, to: RequestStatus, reason: Option<String>) {
        let from = self.view.row.status;
        debug_assert!(transitions::check_transition(from, to).is_ok(), "{from} → {to}");
        if transitions::check_transition(from, to).is_ok() {
            self.push_change(RequestChange::Status { from, to, reason });
        }
    }

    pub(super) fn hold_with_reason(&mut self, reason: String) {
        self.push_alert(AlertKind::Held, reason.clone());
        self.set_status(RequestStatus::Held, Some(reason));
    }

    pub(super) fn change_run(&mut self, change: RunChange) {
        if let Some(run) = self.view.run.as_ref().map(|run| run.uuid.clone()) {
            self.push_change(RequestChange::Run { run, change });
        }
    }

    pub(super) fn set_run_status(&mut self, to: RequestRunStatus) {
        let Some(run) = &self.view.run else { return };
        if run.status == to {
            return;
        }
        self.change_run(RunChange::Status { from: run.status, to });
    }

    pub(super) fn change_block(&mut self, block: &str, change: BlockChange) {
        self.push_change(RequestChange::Block { block: block.to_owned(), change });
    }

    pub(super) fn set_block_status(&mut self, block: &BlockRow, to: ProcessingBlockStatus) {
        self.change_block(&block.uuid, BlockChange::Status { from: block.status, to });
    }

    /// Closes and archives full blocks, and performs due output steps, in any status of the request.
    pub(super) fn update_outputs(&mut self) {
        let full: Vec<BlockRow> =
            self.view.blocks.iter().filter(|block| outputs::is_full(block)).cloned().collect();
        for block in full {
            let added = |kind| self.view.steps.iter().any(|step| step.is_step(&block.uuid, None, kind));
            if added(OutputStepKind::Invalidate) || added(OutputStepKind::Close) {
                continue;
            }
            for kind in [OutputStepKind::Close, OutputStepKind::Archive] {
                self.push_change(outputs::add_step(
                    &block.uuid,
                    None,
                    kind,
                    serde_json::Value::Null,
                    self.now,
                ));
            }
        }
        let (ready, next) = outputs::ready_steps(&self.view.steps, &self.settings.outputs, self.now);
        for step in ready {
            self.push_effect(LifecycleEffect::Step(Box::new(step)));
        }
        if let Some(next) = next {
            self.check_again_at(next);
        }
    }

    /// Drops all open steps of a block.
    pub(super) fn drop_steps(&mut self, block: &str) {
        let open: Vec<_> = self.view.steps.iter().filter(|step| step.block == block).cloned().collect();
        for step in open {
            self.push_change(step.change_state(OutputStepState::Dropped));
        }
    }
}
