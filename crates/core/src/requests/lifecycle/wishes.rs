//! What people asked for: stop, go on, end the run, give up, abort.
//!
//! | status | stop | abort, fail |
//! |---|---|---|
//! | new, submitted, queued | held: it was not under way, and is not to begin (N-12) | at once |
//! | planning, nothing planned | held | at once |
//! | planning, run at hand | stopping → resubmitting → queued: the run may be at the backend already | by way of stopping |
//! | active, run under way | stopping → resubmitting → queued | by way of stopping |
//! | active, run over | nothing to stop (R-176) | at once |
//! | stopping, resubmitting, partial, held | nothing to stop | as soon as nothing of it can run |

use super::Effect;
use super::desk::Desk;
use crate::requests::book::{StepKind, StepState, Want, Wanted};
use crate::requests::change::{RequestChange, RunChange};
use crate::requests::outputs;
use windlass_types::requests::{BlockStatus, RequestStatus, RunStatus};

impl Desk<'_> {
    pub(super) fn see_to_wishes(&mut self) {
        let Some(wanted) = self.view.row.wanted.clone() else { return };
        if self.view.row.status.is_terminal() {
            return self.change(RequestChange::Wanted(None));
        }
        match wanted.what {
            Want::Stop => self.stop(&wanted),
            Want::Release => self.release(),
            Want::Remove => self.remove(&wanted),
            Want::Abort => self.end(RequestStatus::Aborted, &wanted),
            Want::Fail => self.end(RequestStatus::Failed, &wanted),
        }
    }

    fn stop(&mut self, wanted: &Wanted) {
        self.change(RequestChange::Wanted(None));
        let reason = format!("stopped by {}: {}", wanted.by, wanted.reason);
        match self.view.row.status {
            RequestStatus::Submitted | RequestStatus::Queued => self.hold(reason),
            RequestStatus::Planning if self.view.run_of_round().is_none() => self.hold(reason),
            RequestStatus::Planning => self.begin_stop(reason),
            RequestStatus::Active if self.may_run() => self.begin_stop(reason),
            _ => {}
        }
    }

    /// The run ends as with a stop, but the request does not go on by itself.
    fn remove(&mut self, wanted: &Wanted) {
        self.change(RequestChange::Wanted(None));
        let under_way = self.view.run.as_ref().is_some_and(|run| run.status.is_active());
        if under_way && self.view.row.status == RequestStatus::Active {
            let reason = format!("its run was removed by {}: {}", wanted.by, wanted.reason);
            self.change_run(RunChange::Stop { at: self.now, reason: reason.clone() });
            self.hold(reason);
        }
    }

    /// ACTIVE → STOPPING. The stop itself is due as long as the run is not over.
    pub(super) fn begin_stop(&mut self, reason: String) {
        self.change_run(RunChange::Stop { at: self.now, reason: reason.clone() });
        self.become_status(RequestStatus::Stopping, Some(reason));
    }

    /// Something of it runs, or might: a run that is ready may have been handed over without our having heard of it. In
    /// the queue it was not.
    pub(super) fn may_run(&self) -> bool {
        self.view.run.as_ref().is_some_and(|run| match run.status {
            RunStatus::Ready => {
                !matches!(self.view.row.status, RequestStatus::Queued | RequestStatus::Resubmitting)
            }
            status => status.is_active(),
        })
    }

    fn end(&mut self, to: RequestStatus, wanted: &Wanted) {
        let reason = format!("{to} by {}: {}", wanted.by, wanted.reason);
        if self.may_run() {
            if self.view.row.status != RequestStatus::Stopping {
                self.begin_stop(reason);
            }
            return;
        }
        self.settle_blocks(to);
        if self.view.run.as_ref().is_some_and(|run| run.status == RunStatus::Ready) {
            self.become_run(RunStatus::Removed);
        }
        self.change(RequestChange::Wanted(None));
        self.become_status(to, Some(reason));
    }

    /// The rollback table of S 6.3, for blocks that will not become full. Whole ones stay, and go to tape.
    fn settle_blocks(&mut self, to: RequestStatus) {
        let open: Vec<_> = self
            .view
            .blocks
            .iter()
            .filter(|block| {
                !block.is_closed && matches!(block.status, BlockStatus::Open | BlockStatus::Failed)
            })
            .filter(|block| !outputs::is_full(block))
            .cloned()
            .collect();
        for block in open {
            let touched = block.name.is_some() || self.view.steps.iter().any(|step| step.block == block.uuid);
            self.drop_steps(&block.uuid);
            match (to, touched) {
                (RequestStatus::Aborted, true) => {
                    let detail = outputs::undoing(&block);
                    self.change(outputs::add(&block.uuid, None, StepKind::Invalidate, detail, self.now));
                }
                (RequestStatus::Aborted, false) => self.become_block(&block, BlockStatus::Invalidated),
                _ if block.status == BlockStatus::Open => self.become_block(&block, BlockStatus::Failed),
                _ => {}
            }
        }
    }

    /// Out of `held`, to where it was.
    fn release(&mut self) {
        self.change(RequestChange::Wanted(None));
        if self.lift_pause() || self.view.row.status != RequestStatus::Held {
            return;
        }
        self.try_outputs_again();
        if self.view.process.is_none() {
            return self.become_status(RequestStatus::Submitted, None);
        }
        match self.view.run_of_round().map(|run| run.status) {
            None | Some(RunStatus::Ready) => self.become_status(RequestStatus::Queued, None),
            Some(RunStatus::Completed) => self.become_status(RequestStatus::Active, None),
            // It is being stopped, because the request was held; when that is over it goes on.
            Some(status) if status.is_active() => {
                self.begin_stop("released while its run was being stopped".to_owned());
            }
            Some(_) => self.prepare_next_run(None),
        }
    }

    /// What was given up gets three more days.
    fn try_outputs_again(&mut self) {
        let failed: Vec<_> =
            self.view.steps.iter().filter(|step| step.state == StepState::Failed).cloned().collect();
        for step in failed {
            self.change(outputs::again(&step, self.now));
        }
        let blocks: Vec<_> =
            self.view.blocks.iter().filter(|block| block.status == BlockStatus::Failed).cloned().collect();
        for block in blocks {
            let to = if block.is_closed { BlockStatus::Complete } else { BlockStatus::Open };
            self.become_block(&block, to);
        }
    }

    /// While somebody waits for the end of the run.
    pub(super) fn stop_effect(&mut self) {
        if let Some(run) = &self.view.run {
            let reason = run.stop_reason.clone().unwrap_or_else(|| "the request is held".to_owned());
            let run = run.uuid.clone();
            self.effect(Effect::Stop { run, reason });
        }
    }
}
