//! What follows a run with failures: a rescue, the end of its round, or a person; and how a round is settled.
//!
//! To *settle* a round is to credit what it has done, over its run and all that went on with it. Then nothing more of it
//! will be completed: its blocks are what is in them, and what is left of the input is a matter of later rounds.

use super::desk::Desk;
use super::{AlertKind, Effect, Trouble};
use crate::requests::bans;
use crate::requests::book::{BlockRow, FileCounts, RunCause, StepKind, Want};
use crate::requests::change::{BlockChange, RequestChange};
use crate::requests::outputs;
use crate::requests::rounds::{self, Ended, Recovery};
use std::collections::BTreeSet;
use windlass_types::requests::{BlockStatus, RequestStatus};

/// So many files are named in an alert.
const NAMED: usize = 10;

impl Desk<'_> {
    /// E 3.2, 3.4: the run of the round is over, and not all of its work units are completed.
    pub(super) fn partial(&mut self) {
        let Some(run) = &self.view.run else { return self.hold("its run is lost".to_owned()) };
        let policy = self.settings.recovery.with(&self.view.row.overrides);
        match rounds::after_failure(run, &self.view.failures, policy) {
            // It was credited before somebody changed his mind about what is too much.
            Recovery::Rescue { reason } | Recovery::Hold { reason } if self.is_settled() => {
                self.become_status(RequestStatus::Active, Some(reason));
            }
            Recovery::Rescue { reason } if self.is_outdated() => {
                if self.settle(Ended::InPart) {
                    self.become_status(RequestStatus::Active, Some(reason));
                }
            }
            Recovery::Rescue { reason } => self.prepare_next_run(RunCause::Failure, Some(reason)),
            Recovery::Settle { reason, files } => {
                if self.settle(Ended::InPart) {
                    self.alert(AlertKind::FilesExcluded, tell_files(&files));
                    self.become_status(RequestStatus::Active, Some(reason));
                }
            }
            Recovery::Hold { reason } => {
                let why = self.why_over.take().into_iter().chain(self.tell_banned());
                self.hold(why.fold(reason, |reason, why| format!("{reason}; {why}")));
            }
        }
    }

    /// Where all that failed for good failed at sites that are banned by now, what to do about it is known.
    fn tell_banned(&self) -> Option<String> {
        if !self.settings.blame.bans.enabled {
            return None;
        }
        let accused = bans::detect(&self.view.failures, &self.settings.blame.bans);
        let refused = self.judge(accused.clone()).refused;
        let is_closed = |site: &String| {
            accused.iter().any(|one| one.site == *site) && !refused.iter().any(|(kept, _)| kept == site)
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
            "all of it failed at {sites}, which gets nothing more of this request: `windlass request release {name} \
             --rescue` tries it elsewhere"
        ))
    }

    /// What the present round has done is credited.
    pub(super) fn is_settled(&self) -> bool {
        self.view.process.as_ref().is_some_and(|process| process.settled > process.round)
    }

    /// Sees to it that what the round has done is credited; whether it is.
    pub(super) fn settle(&mut self, ended: Ended) -> bool {
        let Some(process) = &self.view.process else { return false };
        let (round, files) = (process.round, process.files);
        let request = &self.view.row.request;
        if self.is_settled() {
            true
        } else if request.generation.is_some() {
            // Its numbers were given out when it was planned, and nobody fills gaps (E 5.1).
            self.note_settled(round, files);
            true
        } else if ended == Ended::Empty || (ended == Ended::Whole && self.is_the_only_round()) {
            true
        } else {
            if let Some(run) = self.view.run_of_round().map(|run| run.uuid.clone()) {
                self.effect_unless_pausing(Effect::Settle { round, run });
            }
            false
        }
    }

    /// Nobody will ever ask which files it has read.
    fn is_the_only_round(&self) -> bool {
        let process = self.view.process.as_ref();
        process.is_some_and(|process| process.round == 0 && !process.more_input)
            && self.view.row.overrides.excluded_files.is_empty()
    }

    /// If the round was gone on with meanwhile, this was not all of it.
    pub(super) fn settled(&mut self, round: u32, run: &str, files: FileCounts) {
        if !self.awaits_settling(round) || self.view.run.as_ref().is_none_or(|row| row.uuid != run) {
            return;
        }
        let excluded_before = self.view.process.as_ref().map_or(0, |process| process.files.excluded);
        let is_outdated = self.is_outdated();
        self.note_settled(round, files);
        // Nobody was asked, because files were to be left out. If none is, the next round would fail as this one did, and
        // so would all after it.
        if self.view.row.status == RequestStatus::Partial && !is_outdated && files.excluded <= excluded_before
        {
            let named: Vec<String> = self.view.failures.files.keys().cloned().collect();
            self.hold(format!(
                "work units of round {round} failed because of files that cannot be read, and none of these is among \
                 the input that the units read, so leaving them out changes nothing: {}",
                first_few(&named)
            ));
        }
    }

    fn awaits_settling(&self, round: u32) -> bool {
        !self.is_settled() && self.view.process.as_ref().is_some_and(|process| process.round == round)
    }

    fn note_settled(&mut self, round: u32, files: FileCounts) {
        let Some(mut process) = self.view.process.clone() else { return };
        (process.settled, process.files, process.updated_at) = (round + 1, files, self.now);
        self.change(RequestChange::Process(Box::new(process)));
        let blocks = self.view.blocks.iter().filter(|block| block.round == round);
        for block in blocks.cloned().collect::<Vec<_>>() {
            self.expect_no_more(&block);
        }
    }

    /// A block is full with what is in it, or on its way there; one that has nothing will never be there.
    fn expect_no_more(&mut self, block: &BlockRow) {
        if block.is_closed || !matches!(block.status, BlockStatus::Open | BlockStatus::Failed) {
            return;
        }
        let coming =
            |kind| self.view.steps.iter().filter(move |step| step.block == block.uuid && step.kind == kind);
        let expected = block.units_completed + coming(StepKind::Protect).count() as u32;
        if expected == block.units_expected {
            return;
        }
        self.change_block(&block.uuid, BlockChange::Expected(expected));
        if expected == 0 && block.name.is_none() {
            self.become_block(block, BlockStatus::Invalidated);
        } else if expected == 0 {
            let detail = outputs::undoing(block);
            self.change(outputs::add(&block.uuid, None, StepKind::Invalidate, detail, self.now));
        }
    }

    /// What may pass is tried again, as long as it is due; else a person has to look, and may want something else.
    pub(super) fn settle_failed(&mut self, round: u32, trouble: &Trouble) {
        if !self.awaits_settling(round) {
            return;
        }
        if trouble.again {
            self.pausing = true;
            return self.look_again(self.now.after(self.settings.retry_after));
        }
        let reason = format!("what round {round} has done could not be credited: {}", trouble.reason);
        match self.view.row.status {
            RequestStatus::Active | RequestStatus::Stopping | RequestStatus::Partial => self.hold(reason),
            RequestStatus::Held if self.is_release_wanted() => {
                self.change(RequestChange::Wanted(None));
                self.alert(AlertKind::Held, format!("it was released, and is still held: {reason}"));
            }
            _ => {}
        }
    }

    fn is_release_wanted(&self) -> bool {
        self.view.row.wanted.as_ref().is_some_and(|wanted| wanted.what == Want::Release)
    }
}

fn tell_files(files: &[String]) -> String {
    format!("input files that cannot be read are left out from now on: {}", first_few(files))
}

fn first_few(files: &[String]) -> String {
    let named = files[..files.len().min(NAMED)].join(", ");
    let more = files.len().saturating_sub(NAMED);
    if more > 0 { format!("{named} and {more} more") } else { named }
}
