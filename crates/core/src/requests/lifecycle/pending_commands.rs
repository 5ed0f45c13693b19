//! Commands of users: stop, release, remove the run, fail, abort.
//!
//! | status | stop | abort, fail |
//! |---|---|---|
//! | new, submitted, queued | held: it has not started and must not start (N-12) | immediately |
//! | planning, nothing planned | held | immediately |
//! | planning, run ready | stopping → resubmitting → queued: the run may be at the backend already | through stopping |
//! | active, run active | stopping → resubmitting → queued | through stopping |
//! | active, run over | nothing to stop (R-176) | immediately |
//! | resubmitting, before a rescue | held | immediately |
//! | stopping, resubmitting, partial, held | nothing to stop | as soon as nothing of it can run |
//!
//! A request with outputs fails only after their manifest is written. If the backend of its run is lost for
//! good, and an operator says so, its end does not wait for that run.

use super::decision_builder::DecisionBuilder;
use super::{AlertKind, LifecycleEffect};
use crate::requests::change::{RequestChange, RunChange};
use crate::requests::outputs;
use crate::requests::rounds::{RoundDecision, RoundEnd};
use crate::requests::rows::{BlockRow, OutputStepKind, RequestCommand, RequestCommandKind, RequestRunCause};
use windlass_types::requests::{ProcessingBlockStatus, RequestRunStatus, RequestStatus};

/// Why a run is stopped that could continue.
const EXCLUDED_FILES_REASON: &str = "input files that it was planned with were excluded";

impl DecisionBuilder<'_> {
    pub(super) fn apply_pending_command(&mut self) {
        let Some(wanted) = self.view.row.wanted.clone() else { return };
        if self.view.row.status.is_terminal() {
            return self.push_change(RequestChange::SetCommand(None));
        }
        match wanted.what {
            RequestCommandKind::Stop => self.apply_stop(&wanted),
            RequestCommandKind::Release => self.apply_release(&wanted),
            RequestCommandKind::Remove => self.apply_remove(&wanted),
            RequestCommandKind::Abort => self.apply_end(RequestStatus::Aborted, &wanted),
            RequestCommandKind::Fail => self.apply_end(RequestStatus::Failed, &wanted),
        }
    }

    fn apply_stop(&mut self, wanted: &RequestCommand) {
        self.push_change(RequestChange::SetCommand(None));
        let reason = format!("stopped by {}: {}", wanted.by, wanted.reason);
        match self.view.row.status {
            RequestStatus::Submitted | RequestStatus::Queued => self.hold_with_reason(reason),
            RequestStatus::Planning if self.view.run_of_round().is_none() => self.hold_with_reason(reason),
            RequestStatus::Planning => self.start_stop(reason),
            RequestStatus::Active if self.may_run() => self.start_stop(reason),
            RequestStatus::Resubmitting if self.awaits_rescue() => self.hold_with_reason(reason),
            _ => {}
        }
    }

    /// Whether a rescue is due that has not begun.
    fn awaits_rescue(&self) -> bool {
        self.view.run.as_ref().is_some_and(|run| run.cause == RequestRunCause::Failure)
    }

    /// The run ends as with a stop, but the request does not continue automatically.
    fn apply_remove(&mut self, wanted: &RequestCommand) {
        self.push_change(RequestChange::SetCommand(None));
        let under_way = self.view.run.as_ref().is_some_and(|run| run.status.is_active());
        if under_way && self.view.row.status == RequestStatus::Active {
            let reason = format!("its run was removed by {}: {}", wanted.by, wanted.reason);
            self.change_run(RunChange::Stop { at: self.now, reason: reason.clone() });
            self.hold_with_reason(reason);
        }
    }

    /// ACTIVE → STOPPING. The stop effect is due until the run is over.
    pub(super) fn start_stop(&mut self, reason: String) {
        self.change_run(RunChange::Stop { at: self.now, reason: reason.clone() });
        self.set_status(RequestStatus::Stopping, Some(reason));
    }

    /// Whether some of it runs or may run: a ready run may have been submitted without confirmation, except in
    /// the queue.
    pub(super) fn may_run(&self) -> bool {
        self.view.run.as_ref().is_some_and(|run| match run.status {
            RequestRunStatus::Ready => {
                !matches!(self.view.row.status, RequestStatus::Queued | RequestStatus::Resubmitting)
            }
            status => status.is_active(),
        })
    }

    /// Whether a command asks for its end.
    pub(super) fn is_end_wanted(&self) -> bool {
        let wanted = self.view.row.wanted.as_ref();
        wanted
            .is_some_and(|wanted| matches!(wanted.what, RequestCommandKind::Abort | RequestCommandKind::Fail))
    }

    fn apply_end(&mut self, to: RequestStatus, wanted: &RequestCommand) {
        let mut reason = format!("{to} by {}: {}", wanted.by, wanted.reason);
        if self.may_run() {
            if !wanted.lost || !self.is_unreachable {
                return self.stop_run_before_end(reason, wanted.lost);
            }
            reason += "; its run was not waited for, as its backend is lost";
            self.set_run_status(RequestRunStatus::Removed);
        }
        if to == RequestStatus::Failed && self.needs_manifest() {
            let Some(path) = self.manifest.take() else {
                // Nothing changes until then: the user may still withdraw the command.
                self.is_ending = true;
                return self.push_effect_unless_backing_off(LifecycleEffect::WriteManifest);
            };
            reason = format!("{reason}; its outputs are listed in {path}");
        }
        self.settle_blocks(to);
        self.end_run(to);
        self.push_change(RequestChange::SetCommand(None));
        self.set_status(to, Some(reason));
    }

    /// The run of a finished request does not continue.
    fn end_run(&mut self, to: RequestStatus) {
        match (self.view.run.as_ref().map(|run| run.status), to) {
            (
                Some(RequestRunStatus::Ready | RequestRunStatus::Stopped | RequestRunStatus::Partial),
                RequestStatus::Failed,
            ) => {
                self.set_run_status(RequestRunStatus::Failed);
            }
            (Some(RequestRunStatus::Ready | RequestRunStatus::Stopped), _) => {
                self.set_run_status(RequestRunStatus::Removed);
            }
            _ => {}
        }
    }

    /// Nothing of it may run when the request ends.
    fn stop_run_before_end(&mut self, reason: String, lost: bool) {
        if lost {
            // Polling shows whether the backend answers.
            self.check_again_at(self.now.plus(self.settings.retry_after));
        }
        if self.view.row.status != RequestStatus::Stopping {
            self.start_stop(reason);
        }
    }

    /// Cleanup needs the list of outputs; if another version supersedes this one, everything stays (E 4.3).
    fn needs_manifest(&self) -> bool {
        self.view.row.request.superseded_by_request.is_none() && !self.view.blocks.is_empty()
    }

    pub(super) fn on_manifest_failed(&mut self, reason: &str) {
        self.is_backing_off = true;
        self.check_again_at(self.now.plus(self.settings.retry_after));
        if self.view.row.alerted_at.is_none() {
            let text = format!("the list of its outputs could not be written: {reason}");
            self.push_alert(AlertKind::ManifestFailed, text);
            self.push_change(RequestChange::SetAlertedAt(Some(self.now)));
        }
    }

    /// The rollback table of S 6.3. Complete blocks stay, and are archived; those of a failed request are not
    /// archived, as all of it is to be cleaned up.
    fn settle_blocks(&mut self, to: RequestStatus) {
        let for_good = to == RequestStatus::Failed && self.needs_manifest();
        let is_over = |block: &BlockRow| {
            matches!(block.status, ProcessingBlockStatus::Archived | ProcessingBlockStatus::Invalidated)
        };
        let is_whole = |block: &BlockRow| {
            block.is_closed || block.status == ProcessingBlockStatus::Complete || outputs::is_full(block)
        };
        let open = self.view.blocks.iter().filter(|block| !is_over(block) && (for_good || !is_whole(block)));
        for block in open.cloned().collect::<Vec<_>>() {
            let touched = block.name.is_some() || self.view.steps.iter().any(|step| step.block == block.uuid);
            self.drop_steps(&block.uuid);
            match (to, touched) {
                (RequestStatus::Aborted, true) => {
                    let detail = outputs::undo_detail(&block);
                    self.push_change(outputs::add_step(
                        &block.uuid,
                        None,
                        OutputStepKind::Invalidate,
                        detail,
                        self.now,
                    ));
                }
                (RequestStatus::Aborted, false) => {
                    self.set_block_status(&block, ProcessingBlockStatus::Invalidated);
                }
                _ if block.status != ProcessingBlockStatus::Failed => {
                    self.set_block_status(&block, ProcessingBlockStatus::Failed);
                }
                _ => {}
            }
        }
    }

    /// Leaves `held`: returns to the earlier status; after failures, or without excluded files that its round
    /// was planned with, continues with the next round, or with a rescue of this one.
    fn apply_release(&mut self, wanted: &RequestCommand) {
        let status = self.view.run_of_round().map(|run| run.status);
        let has_failed = matches!(status, Some(RequestRunStatus::Partial | RequestRunStatus::Failed));
        let is_held = self.view.row.status == RequestStatus::Held;
        let is_outdated = self.is_outdated();
        let rescue = has_failed && wanted.rescue && !self.is_settled() && !is_outdated;
        let is_stopped = matches!(status, Some(RequestRunStatus::Stopped | RequestRunStatus::Removed));
        let ends_round = (has_failed && !rescue) || (is_stopped && (is_outdated || self.is_settled()));
        if is_held && ends_round && !self.settle_round(RoundEnd::Partial) {
            // The command stays until all progress is recorded.
            return;
        }
        self.push_change(RequestChange::SetCommand(None));
        if !is_held {
            self.release_paused_run(is_outdated);
            return;
        }
        self.retry_outputs();
        let reason = Some(format!("released by {}: {}", wanted.by, wanted.reason));
        if self.view.process.is_none() {
            return self.set_status(RequestStatus::Submitted, reason);
        }
        match status {
            // The confirmation of its submission may have been lost.
            Some(RequestRunStatus::Ready) if is_outdated => self.start_stop(EXCLUDED_FILES_REASON.to_owned()),
            None | Some(RequestRunStatus::Ready) => self.set_status(RequestStatus::Queued, reason),
            Some(RequestRunStatus::Completed) if self.allow_empty_round() => self.start_next_round(),
            Some(RequestRunStatus::Completed) => self.set_status(RequestStatus::Active, reason),
            // It is being stopped because the request was held; then it continues.
            Some(status) if status.is_active() => {
                self.start_stop("released while its run was being stopped".to_owned());
            }
            Some(_) if rescue => self.prepare_next_run(RequestRunCause::Person, reason),
            Some(_) if ends_round => self.set_status(RequestStatus::Active, reason),
            Some(_) => self.prepare_next_run(RequestRunCause::Stop, reason),
        }
    }

    /// Resumes a paused run, unless its round was planned with files excluded since.
    fn release_paused_run(&mut self, is_outdated: bool) {
        if is_outdated && self.is_paused() {
            self.start_stop(EXCLUDED_FILES_REASON.to_owned());
        } else {
            self.lift_pause();
        }
    }

    /// Whether files were excluded since its round was planned: the round then starts nothing new, and the next
    /// one leaves them out.
    pub(super) fn is_outdated(&self) -> bool {
        self.view.is_outdated_by(&self.view.row.overrides)
    }

    /// The request is held because its round completed without progress: a release asks for another one.
    fn allow_empty_round(&mut self) -> bool {
        !self.is_registering()
            && self.settle_round(RoundEnd::Complete)
            && matches!(self.decide_next(RoundEnd::Complete), Some(RoundDecision::Hold(_)))
    }

    /// Failed output steps get three more days.
    fn retry_outputs(&mut self) {
        for change in outputs::retry_failed_steps(&self.view.blocks, &self.view.steps, self.now) {
            self.push_change(change);
        }
    }

    /// Stops the run while a command waits for its end.
    pub(super) fn push_stop_effect(&mut self) {
        if let Some(run) = &self.view.run {
            let reason = run.stop_reason.clone().unwrap_or_else(|| "the request is held".to_owned());
            let run = run.uuid.clone();
            self.push_effect(LifecycleEffect::Stop { run, reason });
        }
    }
}
