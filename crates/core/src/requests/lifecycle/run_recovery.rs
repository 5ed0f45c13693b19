//! Recovery of runs with failures: a rescue, the end of the round, or a hold; and settling of rounds.
//!
//! To *settle* a round is to record its progress over all of its runs. After that no more of its work units
//! complete: its blocks keep their content, and the remaining input is left to later rounds.

use super::decision_builder::DecisionBuilder;
use super::{AlertKind, EffectFailure, LifecycleEffect};
use crate::requests::bans;
use crate::requests::change::{BlockChange, RequestChange};
use crate::requests::outputs;
use crate::requests::rounds::{self, RoundEnd, RunRecovery};
use crate::requests::rows::{
    BlockRow, OutputStepKind, RequestCommandKind, RequestFileCounts, RequestRunCause,
};
use std::collections::BTreeSet;
use windlass_types::requests::{ProcessingBlockStatus, RequestStatus};

/// Maximum number of files named in an alert.
const MAX_NAMED_FILES: usize = 10;

impl DecisionBuilder<'_> {
    /// E 3.2, 3.4: the run of the round is over, and not all of its work units are completed.
    pub(super) fn on_partial(&mut self) {
        let Some(run) = &self.view.run else { return self.hold_with_reason("its run is lost".to_owned()) };
        let policy = self.settings.recovery.with_overrides(&self.view.row.overrides);
        match rounds::decide_recovery(run, &self.view.failures, policy) {
            // It was settled before the threshold was changed.
            RunRecovery::Rescue { reason } | RunRecovery::Hold { reason } if self.is_settled() => {
                self.set_status(RequestStatus::Active, Some(reason));
            }
            RunRecovery::Rescue { reason } if self.is_outdated() => {
                if self.settle_round(RoundEnd::Partial) {
                    self.set_status(RequestStatus::Active, Some(reason));
                }
            }
            RunRecovery::Rescue { reason } => self.prepare_next_run(RequestRunCause::Failure, Some(reason)),
            RunRecovery::Settle { reason, files } => {
                if self.settle_round(RoundEnd::Partial) {
                    self.push_alert(AlertKind::FilesExcluded, list_files(&files));
                    self.set_status(RequestStatus::Active, Some(reason));
                }
            }
            RunRecovery::Hold { reason } => {
                let why = self.end_reason.take().into_iter().chain(self.describe_banned_sites());
                self.hold_with_reason(why.fold(reason, |reason, why| format!("{reason}; {why}")));
            }
        }
    }

    /// If all finally failed units failed at sites that are banned by now, suggests what to do.
    fn describe_banned_sites(&self) -> Option<String> {
        if !self.settings.failure_response.bans.enabled {
            return None;
        }
        let ban_candidates =
            bans::find_failing_sites(&self.view.failures, &self.settings.failure_response.bans);
        let refused = self.decide_bans(ban_candidates.clone()).refused;
        let is_closed = |site: &String| {
            ban_candidates.iter().any(|one| one.site == *site)
                && !refused.iter().any(|(kept, _)| kept == site)
        };
        let lasting = || self.view.failures.kinds.iter().filter(|kind| kind.for_good > 0);
        let sites: BTreeSet<&String> = lasting().flat_map(|kind| kind.sites.keys()).collect();
        if sites.is_empty()
            || self.view.failures.of_other_kinds > 0
            || !sites.iter().all(|site| is_closed(site))
        {
            return None;
        }
        let sites = sites.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let name = &self.view.row.request.request_name;
        Some(format!(
            "all failures were at {sites}, now banned for this request: `windlass request release {name} --rescue` retries \
             elsewhere"
        ))
    }

    /// Whether the progress of the current round is recorded.
    pub(super) fn is_settled(&self) -> bool {
        self.view.process.as_ref().is_some_and(|process| process.settled > process.round)
    }

    /// Has the progress of the round recorded. Returns whether it is.
    pub(super) fn settle_round(&mut self, ended: RoundEnd) -> bool {
        let Some(process) = &self.view.process else { return false };
        let (round, files) = (process.round, process.files);
        let request = &self.view.row.request;
        if self.is_settled() {
            true
        } else if request.generation.is_some() {
            // Event numbers are assigned at planning, and gaps are not filled (E 5.1).
            self.record_settled(round, files);
            true
        } else if ended == RoundEnd::Empty || (ended == RoundEnd::Complete && self.is_only_round()) {
            true
        } else {
            if let Some(run) = self.view.run_of_round().map(|run| run.uuid.clone()) {
                self.push_effect_unless_backing_off(LifecycleEffect::Settle { round, run });
            }
            false
        }
    }

    /// Whether the files that it has read need not be recorded.
    fn is_only_round(&self) -> bool {
        let process = self.view.process.as_ref();
        process.is_some_and(|process| process.round == 0 && !process.more_input)
            && self.view.row.overrides.excluded_files.is_empty()
    }

    /// If the round was continued meanwhile, this is not its final progress.
    pub(super) fn on_settled(&mut self, round: u32, run: &str, files: RequestFileCounts) {
        if !self.awaits_settling(round) || self.view.run.as_ref().is_none_or(|row| row.uuid != run) {
            return;
        }
        let excluded_before = self.view.process.as_ref().map_or(0, |process| process.files.excluded);
        let is_outdated = self.is_outdated();
        self.record_settled(round, files);
        // It is settled automatically to exclude bad files. If none is excluded, the next round would fail as
        // this one did, and so would all after it.
        if self.view.row.status == RequestStatus::Partial && !is_outdated && files.excluded <= excluded_before
        {
            let named: Vec<String> = self.view.failures.files.keys().cloned().collect();
            self.hold_with_reason(format!(
                "work units of round {round} failed because of unreadable files, but none of these is in the input of the units, so \
                 excluding them changes nothing: {}",
                list_first(&named)
            ));
        }
    }

    fn awaits_settling(&self, round: u32) -> bool {
        !self.is_settled() && self.view.process.as_ref().is_some_and(|process| process.round == round)
    }

    fn record_settled(&mut self, round: u32, files: RequestFileCounts) {
        let Some(mut process) = self.view.process.clone() else { return };
        (process.settled, process.files, process.updated_at) = (round + 1, files, self.now);
        self.push_change(RequestChange::Process(Box::new(process)));
        let blocks = self.view.blocks.iter().filter(|block| block.round == round);
        for block in blocks.cloned().collect::<Vec<_>>() {
            self.expect_no_more_units(&block);
        }
    }

    /// A block is full with the units that are registered or in progress; an empty one is never created.
    fn expect_no_more_units(&mut self, block: &BlockRow) {
        if block.is_closed
            || !matches!(block.status, ProcessingBlockStatus::Open | ProcessingBlockStatus::Failed)
        {
            return;
        }
        let coming =
            |kind| self.view.steps.iter().filter(move |step| step.block == block.uuid && step.kind == kind);
        let expected = block.units_completed + coming(OutputStepKind::Protect).count() as u32;
        if expected == block.units_expected {
            return;
        }
        self.change_block(&block.uuid, BlockChange::UnitsExpected(expected));
        if expected == 0 && block.name.is_none() {
            self.set_block_status(block, ProcessingBlockStatus::Invalidated);
        } else if expected == 0 {
            let detail = outputs::undo_detail(block);
            self.push_change(outputs::add_step(
                &block.uuid,
                None,
                OutputStepKind::Invalidate,
                detail,
                self.now,
            ));
        }
    }

    /// A transient failure is retried while settling is due; otherwise the request is held for an operator.
    pub(super) fn on_settle_failed(&mut self, round: u32, trouble: &EffectFailure) {
        if !self.awaits_settling(round) {
            return;
        }
        if trouble.is_retryable {
            self.is_backing_off = true;
            return self.check_again_at(self.now.plus(self.settings.retry_after));
        }
        let reason = format!("the progress of round {round} could not be recorded: {}", trouble.reason);
        match self.view.row.status {
            RequestStatus::Active | RequestStatus::Stopping | RequestStatus::Partial => {
                self.hold_with_reason(reason);
            }
            RequestStatus::Held if self.is_release_wanted() => {
                self.push_change(RequestChange::SetCommand(None));
                self.push_alert(AlertKind::Held, format!("it was released, but is still held: {reason}"));
            }
            _ => {}
        }
    }

    fn is_release_wanted(&self) -> bool {
        self.view.row.wanted.as_ref().is_some_and(|wanted| wanted.what == RequestCommandKind::Release)
    }
}

fn list_files(files: &[String]) -> String {
    format!("unreadable input files are excluded from now on: {}", list_first(files))
}

fn list_first(files: &[String]) -> String {
    let named = files[..files.len().min(MAX_NAMED_FILES)].join(", ");
    let more = files.len().saturating_sub(MAX_NAMED_FILES);
    if more > 0 { format!("{named} and {more} more") } else { named }
}
