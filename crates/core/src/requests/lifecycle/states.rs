//! What each status waits for, and what follows once it is there. What follows failures is in `recovery.rs`.

use super::desk::Desk;
use super::{AlertKind, Effect, News};
use crate::requests::book::{Backend, NodeCounts, RunCause, RunRow, StepKind};
use crate::requests::change::RequestChange;
use crate::requests::outputs;
use crate::requests::rounds::{self, Ended, Next};
use std::time::Duration;
use windlass_types::requests::{BlockStatus, CleanupPolicy, RequestStatus, RunStatus};

impl Desk<'_> {
    /// Goes from status to status as long as nothing has to be waited for.
    pub(super) fn go_on(&mut self) {
        while !self.is_ending {
            let status = self.view.row.status;
            match status {
                RequestStatus::Submitted => self.effect_unless_pausing(Effect::Import),
                RequestStatus::Queued if self.admitted => {
                    self.admitted = false;
                    self.become_status(RequestStatus::Planning, None);
                }
                RequestStatus::Planning => self.planning(),
                RequestStatus::Active => self.active(),
                RequestStatus::Stopping => self.stopping(),
                RequestStatus::Resubmitting => self.resubmitting(),
                RequestStatus::Partial => self.partial(),
                RequestStatus::Held => self.held(),
                _ => {}
            }
            if self.view.row.status == status {
                return;
            }
        }
    }

    /// A rescue waits for a while, longer each time: what has just failed would fail again at once. It is never taken for
    /// one that is stuck.
    fn resubmitting(&mut self) {
        let rescue = self.view.run.as_ref().filter(|run| run.cause == RunCause::Failure);
        let pause = rescue.map_or(Duration::ZERO, |run| self.settings.recovery.pause_before(run.rescues));
        let longest = self.settings.timeouts.get(&RequestStatus::Resubmitting).map(|timeout| *timeout / 2);
        let due = self.view.row.since.after(longest.map_or(pause, |longest| pause.min(longest)));
        if self.now < due {
            return self.look_again(due);
        }
        self.become_status(RequestStatus::Queued, None);
        self.look_again(self.now);
    }

    /// The jobs of a run that is under way have the priority of their request.
    pub(super) fn see_to_priority(&mut self) {
        let priority = self.view.row.request.priority;
        let is_active = self.view.row.status == RequestStatus::Active;
        let run = self.view.run.as_ref().filter(|run| is_active && run.status.is_active());
        if let Some(run) = run.filter(|run| run.priority != Some(priority)) {
            let run = run.uuid.clone();
            self.effect(Effect::Prioritize { run, priority });
        }
    }

    pub(super) fn effect_unless_pausing(&mut self, effect: Effect) {
        if !self.pausing {
            self.effect(effect);
        }
    }

    fn planning(&mut self) {
        let Some(round) = self.view.process.as_ref().map(|process| process.round) else {
            return self.hold("there is nothing to plan from: its import was lost".to_owned());
        };
        let Some(run) = self.view.run_of_round() else {
            return self.effect_unless_pausing(Effect::Plan { round });
        };
        match run.status {
            RunStatus::Ready => {
                let effect = handing_over(run);
                self.effect_unless_pausing(effect);
            }
            _ => self.become_status(RequestStatus::Active, None),
        }
    }

    fn active(&mut self) {
        match self.view.run_of_round().map(|run| run.status) {
            Some(status) if status.is_active() => self.next_production_step(),
            None => self.after_round(Ended::Empty),
            Some(RunStatus::Completed) => self.after_round(Ended::Whole),
            Some(_) if self.is_settled() => self.after_round(Ended::InPart),
            Some(_) => self.become_status(RequestStatus::Partial, None),
        }
    }

    /// enough is done to let others go first.
    fn next_production_step(&mut self) {
        let (Some(process), Some(run)) = (&self.view.process, &self.view.run) else { return };
        let steps = &self.view.row.request.production_steps;
        let reached = rounds::steps_reached(steps, process, run);
        // With nothing left to run there is nothing to let wait; the next round is told when it is queued.
        if reached == 0 || run.units_completed + run.units_failed >= run.totals.units {
            return;
        }
        let reason = format!(
            "{} of {} work units of round {} are completed, {:.1} % of the request, past the production step at {} %: the \
             rest goes on with priority {}",
            run.units_completed,
            run.totals.units,
            run.round,
            rounds::share_done(process, run) * 100.0,
            steps[reached - 1].fraction * 100.0,
            steps[reached - 1].priority.min(self.view.row.request.priority),
        );
        self.begin_stop(reason);
    }

    /// No more work units of the round will be completed. What is produced counts when it is registered; that it is on its
    /// way to tape is waited for only at the very end.
    fn after_round(&mut self, ended: Ended) {
        if self.is_output_failed() || self.is_registering() || !self.settle(ended) {
            return;
        }
        match self.next(ended) {
            Some(Next::Round) => self.next_round(),
            Some(Next::Hold(reason)) => self.hold(reason),
            Some(Next::Finished) => self.finish(),
            None => {}
        }
    }

    /// Outputs of completed work units are on their way into the catalog.
    pub(super) fn is_registering(&self) -> bool {
        let registering = |kind| matches!(kind, StepKind::Open | StepKind::Register | StepKind::Protect);
        self.view.steps.iter().any(|step| registering(step.kind))
    }

    pub(super) fn next(&self, ended: Ended) -> Option<Next> {
        let process = self.view.process.as_ref()?;
        Some(rounds::after_round(&self.view.row.request, process, ended, self.settings.mc_completion))
    }

    /// Only a person can help where the catalog refused for days.
    fn is_output_failed(&mut self) -> bool {
        let Some(block) = self.view.blocks.iter().find(|block| block.status == BlockStatus::Failed) else {
            return false;
        };
        let error = self
            .view
            .steps
            .iter()
            .filter(|step| step.block == block.uuid)
            .find_map(|step| step.last_error.clone())
            .unwrap_or_else(|| "unknown".to_owned());
        let reason = format!(
            "the outputs of block {} of {} could not be recorded: {error}",
            block.index, block.dataset
        );
        self.hold(reason);
        true
    }

    /// Planned anew by what was measured; with the priority of the production step that was reached.
    pub(super) fn next_round(&mut self) {
        self.use_up_steps();
        if let Some(mut process) = self.view.process.clone() {
            let is_whole = self.view.run_of_round().is_some_and(|run| run.status == RunStatus::Completed);
            let is_empty = is_whole && process.events_of_round == 0;
            process.empty_rounds = if is_empty { process.empty_rounds + 1 } else { 0 };
            process.round += 1;
            process.events_of_round = 0;
            process.updated_at = self.now;
            let reason = format!("round {} follows", process.round);
            self.change(RequestChange::Process(Box::new(process)));
            self.become_status(RequestStatus::Queued, Some(reason));
            self.look_again(self.now);
        }
    }

    /// completed once every block is archived.
    fn finish(&mut self) {
        let settled = |status| matches!(status, BlockStatus::Archived | BlockStatus::Invalidated);
        if !self.view.steps.is_empty() || !self.view.blocks.iter().all(|block| settled(block.status)) {
            return;
        }
        if self.view.row.request.cleanup_policy == CleanupPolicy::ImmediateCleanup {
            // Not rows of this request: they are carried out where its own rows are looked at.
            self.decision.changes.extend(outputs::invalidation(self.situation.previous, self.now));
        }
        let excluded = self.view.process.as_ref().map_or(0, |process| process.files.excluded);
        let reason = (excluded > 0).then(|| format!("without {excluded} input files that were excluded"));
        self.become_status(RequestStatus::Completed, reason);
    }

    /// A run came to its end, and all that its units left is noted.
    pub(super) fn run_over(&mut self) {
        let Some(run) = &self.view.run else { return };
        let stopped = run.stop_requested_at.is_some()
            || matches!(self.view.row.status, RequestStatus::Stopping | RequestStatus::Held);
        let status = match run.units_completed {
            done if done >= run.totals.units => RunStatus::Completed,
            _ if stopped => RunStatus::Stopped,
            0 => RunStatus::Failed,
            _ => RunStatus::Partial,
        };
        self.become_run(status);
    }

    /// The backend has lost it.
    pub(super) fn gone(&mut self) {
        self.become_run(RunStatus::Removed);
        let ending = self.view.row.wanted.is_some();
        match self.view.row.status {
            RequestStatus::Planning | RequestStatus::Active => {
                self.hold("the backend does not know its run any more".to_owned());
            }
            RequestStatus::Stopping if !ending => {
                self.hold("the backend lost its run while it was being stopped".to_owned());
            }
            _ => {}
        }
    }

    fn stopping(&mut self) {
        if self.may_run() {
            return self.stop_effect();
        }
        match self.view.run_of_round().map(|run| run.status) {
            Some(RunStatus::Stopped) if self.is_outdated() || self.is_settled() => {
                if self.settle(Ended::InPart) {
                    self.become_status(RequestStatus::Active, Some("stopped, and credited".to_owned()));
                }
            }
            Some(RunStatus::Stopped) => self.prepare_next_run(RunCause::Stop, Some("stopped".to_owned())),
            Some(RunStatus::Completed) => self.become_status(RequestStatus::Active, None),
            _ => self.hold("it was to be stopped, and has no run that could go on".to_owned()),
        }
    }

    /// another run for what is left, to be started when its turn comes; production steps that were reached are
    /// used up. Only what follows failures by itself is counted (E 7.2).
    pub(super) fn prepare_next_run(&mut self, cause: RunCause, reason: Option<String>) {
        let Some(old) = self.view.run.clone() else { return };
        self.use_up_steps();
        let tally = self.view.failures.going_on();
        self.change(RequestChange::AddRun(Box::new(RunRow {
            uuid: self.situation.fresh_uuid.to_owned(),
            parent: Some(old.uuid.clone()),
            cause,
            rescues: old.rescues + u32::from(cause == RunCause::Failure),
            paused: None,
            silent: None,
            priority: None,
            backend: old.backend.going_on(),
            status: RunStatus::Ready,
            stop_requested_at: None,
            stop_reason: None,
            counts: NodeCounts { done: old.counts.done, ..NodeCounts::default() },
            units_failed: 0,
            created_at: self.now,
            submitted_at: None,
            completed_at: None,
            ..old
        })));
        self.keep_tally(tally);
        self.become_status(RequestStatus::Resubmitting, reason);
    }

    /// What is queued next, a run or a round, lets others go first as far as production steps say so.
    fn use_up_steps(&mut self) {
        let (Some(process), Some(run)) = (&self.view.process, &self.view.run) else { return };
        let mut steps = self.view.row.request.production_steps.clone();
        let reached = rounds::steps_reached(&steps, process, run);
        if reached > 0 {
            let priority = steps[reached - 1].priority.min(self.view.row.request.priority);
            steps.drain(..reached);
            self.change(RequestChange::Priority(priority));
            self.change(RequestChange::ProductionSteps(steps));
        }
    }

    /// Nothing runs for a request that is held.
    fn held(&mut self) {
        if self.view.run.as_ref().is_some_and(|run| run.status.is_active()) {
            self.stop_effect();
        }
    }

    /// Says that it takes too long, once per time-out (N-2: and goes on all the same). Returns the status that must not
    /// outlast this.
    pub(super) fn tell_if_stuck(&mut self) -> Option<RequestStatus> {
        let status = self.view.row.status;
        let timeout = *self.settings.timeouts.get(&status)?;
        let since =
            self.view.row.alerted_at.map_or(self.view.row.since, |told| told.max(self.view.row.since));
        let due = since.after(timeout);
        if self.now < due {
            self.look_again(due);
            return None;
        }
        let kind = match status {
            RequestStatus::Queued => AlertKind::StuckInQueue,
            RequestStatus::Active if self.unreachable => AlertKind::ScheddUnreachable,
            RequestStatus::Active => AlertKind::SlowDag,
            _ => AlertKind::Stuck(status),
        };
        let text = format!("has been {status} since {}", self.view.row.since);
        self.alert(kind, text);
        self.change(RequestChange::Alerted(Some(self.now)));
        self.look_again(self.now.after(timeout));
        let ours = matches!(
            status,
            RequestStatus::Submitted
                | RequestStatus::Planning
                | RequestStatus::Resubmitting
                | RequestStatus::Partial
        );
        ours.then_some(status)
    }

    /// A backend that does not answer is told of once, long before its run is slow: it may be lost for good, and only a
    /// person can know that.
    pub(super) fn tell_if_silent(&mut self) {
        let Some(run) = self.view.run.as_ref().filter(|run| run.status.is_active()) else { return };
        let Some(since) = run.silent else { return };
        let due = since.after(self.settings.silence);
        if self.now < due {
            return self.look_again(due);
        }
        if self.view.row.alerted_at.is_none_or(|told| told < since) {
            let why = self.situation.news.iter().find_map(|news| match news {
                News::Run(told) if told.run == run.uuid => told.reason.clone(),
                _ => None,
            });
            let backend = run.backend.name();
            let silence = match why {
                Some(why) => format!("its run cannot be followed since {since}: {why}"),
                None => format!("the {backend} that its run is at has not answered since {since}"),
            };
            let text = format!(
                "{silence}; if it is lost for good, the request can be failed or restarted without it"
            );
            self.alert(AlertKind::ScheddUnreachable, text);
            self.change(RequestChange::Alerted(Some(self.now)));
        }
    }

    /// DESIGN 6.2: what is stuck where nobody but we are waited for goes to a person.
    pub(super) fn hold_if_still(&mut self, status: RequestStatus) {
        if self.view.row.status == status {
            let since = self.view.row.since;
            self.decision.effects.retain(|effect| matches!(effect, Effect::Step(_)));
            let still = format!("was still {status} after {} s", self.now.since(since).as_secs());
            self.hold(match &self.view.row.reason {
                Some(hindered) => format!("{still}: {hindered}"),
                None => still,
            });
        }
    }
}

fn handing_over(run: &RunRow) -> Effect {
    let goes_on = match &run.backend {
        Backend::Engine { workflow, .. } => workflow.is_some(),
        Backend::Htcondor { .. } => run.parent.is_some(),
    };
    let run = run.uuid.clone();
    if goes_on { Effect::Resume { run } } else { Effect::Submit { run } }
}
