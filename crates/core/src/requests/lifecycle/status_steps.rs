//! What each status waits for, and what follows. What follows failures is in `run_recovery.rs`.

use super::decision_builder::DecisionBuilder;
use super::{AlertKind, LifecycleEffect, LifecycleEvent};
use crate::requests::change::RequestChange;
use crate::requests::outputs;
use crate::requests::rounds::{self, RoundDecision, RoundEnd};
use crate::requests::rows::{BackendRunRef, NodeCounts, OutputStepKind, RequestRunCause, RunRow};
use std::time::Duration;
use windlass_types::requests::{CleanupPolicy, ProcessingBlockStatus, RequestRunStatus, RequestStatus};

impl DecisionBuilder<'_> {
    /// Advances through statuses until one has to wait.
    pub(super) fn advance(&mut self) {
        while !self.is_ending {
            let status = self.view.row.status;
            match status {
                RequestStatus::Submitted => self.push_effect_unless_backing_off(LifecycleEffect::Import),
                RequestStatus::Queued if self.admitted => {
                    self.admitted = false;
                    self.set_status(RequestStatus::Planning, None);
                }
                RequestStatus::Planning => self.advance_planning(),
                RequestStatus::Active => self.advance_active(),
                RequestStatus::Stopping => self.advance_stopping(),
                RequestStatus::Resubmitting => self.advance_resubmitting(),
                RequestStatus::Partial => self.on_partial(),
                RequestStatus::Held => self.advance_held(),
                _ => {}
            }
            if self.view.row.status == status {
                return;
            }
        }
    }

    /// A rescue waits, longer each time: an immediate retry would often fail again. It never counts as stuck.
    fn advance_resubmitting(&mut self) {
        let rescue = self.view.run.as_ref().filter(|run| run.cause == RequestRunCause::Failure);
        let pause = rescue.map_or(Duration::ZERO, |run| self.settings.recovery.rescue_delay(run.rescues));
        let longest = self.settings.timeouts.get(&RequestStatus::Resubmitting).map(|timeout| *timeout / 2);
        let (since, delay) = (self.view.row.since, longest.map_or(pause, |longest| pause.min(longest)));
        if !self.now.is_delay_over(since, delay) {
            return self.check_again_at(since.plus(delay));
        }
        self.set_status(RequestStatus::Queued, None);
        self.check_again_at(self.now);
    }

    /// The jobs of an active run have the priority of their request.
    pub(super) fn update_priority(&mut self) {
        let priority = self.view.row.request.priority;
        let is_active = self.view.row.status == RequestStatus::Active;
        let run = self.view.run.as_ref().filter(|run| is_active && run.status.is_active());
        if let Some(run) = run.filter(|run| run.priority != Some(priority)) {
            let run = run.uuid.clone();
            self.push_effect(LifecycleEffect::Prioritize { run, priority });
        }
    }

    pub(super) fn push_effect_unless_backing_off(&mut self, effect: LifecycleEffect) {
        if !self.is_backing_off {
            self.push_effect(effect);
        }
    }

    fn advance_planning(&mut self) {
        let Some(round) = self.view.process.as_ref().map(|process| process.round) else {
            return self.hold_with_reason("there is nothing to plan from: the import was lost".to_owned());
        };
        let Some(run) = self.view.run_of_round() else {
            return self.push_effect_unless_backing_off(LifecycleEffect::Plan { round });
        };
        match run.status {
            RequestRunStatus::Ready => {
                let effect = submit_effect(run);
                self.push_effect_unless_backing_off(effect);
            }
            _ => self.set_status(RequestStatus::Active, None),
        }
    }

    fn advance_active(&mut self) {
        match self.view.run_of_round().map(|run| run.status) {
            Some(status) if status.is_active() => self.reach_production_step(),
            None => self.finish_round(RoundEnd::Empty),
            Some(RequestRunStatus::Completed) => self.finish_round(RoundEnd::Complete),
            Some(_) if self.is_settled() => self.finish_round(RoundEnd::Partial),
            Some(_) => self.set_status(RequestStatus::Partial, None),
        }
    }

    /// a production step is reached, so the priority is lowered.
    fn reach_production_step(&mut self) {
        let (Some(process), Some(run)) = (&self.view.process, &self.view.run) else { return };
        let steps = &self.view.row.request.production_steps;
        let reached = rounds::count_steps_reached(steps, process, run);
        // With nothing left to run there is nothing to lower; the next round gets the priority when it is
        // queued.
        if reached == 0 || run.units_completed + run.units_failed >= run.totals.units {
            return;
        }
        let reason = format!(
            "{} of {} work units of round {} are completed, {:.1} % of the request, past the production step at {} %: the \
             rest continues with priority {}",
            run.units_completed,
            run.totals.units,
            run.round,
            rounds::share_done(process, run) * 100.0,
            steps[reached - 1].fraction * 100.0,
            steps[reached - 1].priority.min(self.view.row.request.priority),
        );
        self.start_stop(reason);
    }

    /// No more work units of the round will complete. Events count when they are registered; archiving to tape
    /// is awaited only at the very end.
    fn finish_round(&mut self, ended: RoundEnd) {
        if self.has_output_failed() || self.is_registering() || !self.settle_round(ended) {
            return;
        }
        match self.decide_next(ended) {
            Some(RoundDecision::NextRound) => self.start_next_round(),
            Some(RoundDecision::Hold(reason)) => self.hold_with_reason(reason),
            Some(RoundDecision::Finished) => self.finish_request(),
            None => {}
        }
    }

    /// Whether outputs of completed work units are being registered.
    pub(super) fn is_registering(&self) -> bool {
        let registering =
            |kind| matches!(kind, OutputStepKind::Open | OutputStepKind::Register | OutputStepKind::Protect);
        self.view.steps.iter().any(|step| registering(step.kind))
    }

    pub(super) fn decide_next(&self, ended: RoundEnd) -> Option<RoundDecision> {
        let process = self.view.process.as_ref()?;
        Some(rounds::decide_after_round(&self.view.row.request, process, ended, self.settings.mc_completion))
    }

    /// If the catalog failed for days, an operator has to decide.
    fn has_output_failed(&mut self) -> bool {
        let Some(block) = self.view.blocks.iter().find(|block| block.status == ProcessingBlockStatus::Failed)
        else {
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
            "the outputs of block {} of {} could not be registered: {error}",
            block.index, block.dataset
        );
        self.hold_with_reason(reason);
        true
    }

    /// Planned with new measurements, and with the priority of the production step reached.
    pub(super) fn start_next_round(&mut self) {
        self.drop_reached_steps();
        if let Some(mut process) = self.view.process.clone() {
            let is_whole =
                self.view.run_of_round().is_some_and(|run| run.status == RequestRunStatus::Completed);
            let is_empty = is_whole && process.events_of_round == 0;
            process.empty_rounds = if is_empty { process.empty_rounds + 1 } else { 0 };
            process.round += 1;
            process.events_of_round = 0;
            process.updated_at = self.now;
            let reason = format!("round {} follows", process.round);
            self.push_change(RequestChange::Process(Box::new(process)));
            self.set_status(RequestStatus::Queued, Some(reason));
            self.check_again_at(self.now);
        }
    }

    /// completed once every block is archived.
    fn finish_request(&mut self) {
        let settled =
            |status| matches!(status, ProcessingBlockStatus::Archived | ProcessingBlockStatus::Invalidated);
        if !self.view.steps.is_empty() || !self.view.blocks.iter().all(|block| settled(block.status)) {
            return;
        }
        if self.view.row.request.cleanup_policy == CleanupPolicy::ImmediateCleanup {
            // Steps of other requests: performed when those requests are processed.
            self.decision.changes.extend(outputs::plan_invalidation(self.inputs.previous, self.now));
        }
        let excluded = self.view.process.as_ref().map_or(0, |process| process.files.excluded);
        let reason = (excluded > 0).then(|| format!("without {excluded} input files that were excluded"));
        self.set_status(RequestStatus::Completed, reason);
    }

    /// A run ended, and all events of its units are recorded.
    pub(super) fn on_run_over(&mut self) {
        let Some(run) = &self.view.run else { return };
        let stopped = run.stop_requested_at.is_some()
            || matches!(self.view.row.status, RequestStatus::Stopping | RequestStatus::Held);
        let status = match run.units_completed {
            done if done >= run.totals.units => RequestRunStatus::Completed,
            _ if stopped => RequestRunStatus::Stopped,
            0 => RequestRunStatus::Failed,
            _ => RequestRunStatus::Partial,
        };
        self.set_run_status(status);
    }

    /// The backend has lost it.
    pub(super) fn on_run_gone(&mut self) {
        self.set_run_status(RequestRunStatus::Removed);
        let ending = self.view.row.wanted.is_some();
        match self.view.row.status {
            RequestStatus::Planning | RequestStatus::Active => {
                self.hold_with_reason("the backend no longer knows its run".to_owned());
            }
            RequestStatus::Stopping if !ending => {
                self.hold_with_reason("the backend lost its run while it was being stopped".to_owned());
            }
            _ => {}
        }
    }

    fn advance_stopping(&mut self) {
        if self.may_run() {
            return self.push_stop_effect();
        }
        match self.view.run_of_round().map(|run| run.status) {
            Some(RequestRunStatus::Stopped) if self.is_outdated() || self.is_settled() => {
                if self.settle_round(RoundEnd::Partial) {
                    self.set_status(RequestStatus::Active, Some("stopped, progress recorded".to_owned()));
                }
            }
            Some(RequestRunStatus::Stopped) => {
                self.prepare_next_run(RequestRunCause::Stop, Some("stopped".to_owned()));
            }
            Some(RequestRunStatus::Completed) => self.set_status(RequestStatus::Active, None),
            _ => self.hold_with_reason("it was to be stopped, but has no run that could continue".to_owned()),
        }
    }

    /// another run for the remaining units, started after admission; reached production steps are used
    /// up. Only runs after failures are counted (E 7.2).
    pub(super) fn prepare_next_run(&mut self, cause: RequestRunCause, reason: Option<String>) {
        let Some(old) = self.view.run.clone() else { return };
        self.drop_reached_steps();
        let tally = self.view.failures.for_continuation();
        self.push_change(RequestChange::AddRun(Box::new(RunRow {
            uuid: self.inputs.new_run_uuid.to_owned(),
            parent: Some(old.uuid.clone()),
            cause,
            rescues: old.rescues + u32::from(cause == RequestRunCause::Failure),
            paused: None,
            silent: None,
            priority: None,
            backend: old.backend.for_continuation(),
            status: RequestRunStatus::Ready,
            stop_requested_at: None,
            stop_reason: None,
            counts: NodeCounts { done: old.counts.done, ..NodeCounts::default() },
            units_failed: 0,
            created_at: self.now,
            submitted_at: None,
            completed_at: None,
            ..old
        })));
        self.store_tally(tally);
        self.set_status(RequestStatus::Resubmitting, reason);
    }

    /// Drops the production steps reached before a run or round is queued.
    fn drop_reached_steps(&mut self) {
        let (Some(process), Some(run)) = (&self.view.process, &self.view.run) else { return };
        let mut steps = self.view.row.request.production_steps.clone();
        let reached = rounds::count_steps_reached(&steps, process, run);
        if reached > 0 {
            let priority = steps[reached - 1].priority.min(self.view.row.request.priority);
            steps.drain(..reached);
            self.push_change(RequestChange::Priority(priority));
            self.push_change(RequestChange::ProductionSteps(steps));
        }
    }

    /// Nothing runs for a held request.
    fn advance_held(&mut self) {
        if self.view.run.as_ref().is_some_and(|run| run.status.is_active()) {
            self.push_stop_effect();
        }
    }

    /// Sends an alert once per timeout (N-2: processing continues). Returns the status that must not last
    /// longer.
    pub(super) fn alert_if_stuck(&mut self) -> Option<RequestStatus> {
        let status = self.view.row.status;
        let timeout = *self.settings.timeouts.get(&status)?;
        let since =
            self.view.row.alerted_at.map_or(self.view.row.since, |told| told.max(self.view.row.since));
        let due = since.plus(timeout);
        if self.now < due {
            self.check_again_at(due);
            return None;
        }
        let kind = match status {
            RequestStatus::Queued => AlertKind::StuckInQueue,
            RequestStatus::Active if self.is_unreachable => AlertKind::ScheddUnreachable,
            RequestStatus::Active => AlertKind::SlowDag,
            _ => AlertKind::Stuck(status),
        };
        let text = format!("has been {status} since {}", self.view.row.since);
        self.push_alert(kind, text);
        self.push_change(RequestChange::SetAlertedAt(Some(self.now)));
        self.check_again_at(self.now.plus(timeout));
        let ours = matches!(
            status,
            RequestStatus::Submitted
                | RequestStatus::Planning
                | RequestStatus::Resubmitting
                | RequestStatus::Partial
        );
        ours.then_some(status)
    }

    /// Reports a backend that does not answer once, long before the run counts as stuck: it may be lost for
    /// good, which only an operator can know.
    pub(super) fn alert_if_unresponsive(&mut self) {
        let Some(run) = self.view.run.as_ref().filter(|run| run.status.is_active()) else { return };
        let Some(since) = run.silent else { return };
        let due = since.plus(self.settings.unresponsive_after);
        if self.now < due {
            return self.check_again_at(due);
        }
        if self.view.row.alerted_at.is_none_or(|told| told < since) {
            let why = self.inputs.events.iter().find_map(|news| match news {
                LifecycleEvent::RunReported(told) if told.run == run.uuid => told.reason.clone(),
                _ => None,
            });
            let backend = run.backend.name();
            let silence = match why {
                Some(why) => format!("its run cannot be monitored since {since}: {why}"),
                None => format!("the {backend} of its run has not answered since {since}"),
            };
            let text = format!(
                "{silence}; if it is lost for good, the request can be failed or restarted without it"
            );
            self.push_alert(AlertKind::ScheddUnreachable, text);
            self.push_change(RequestChange::SetAlertedAt(Some(self.now)));
        }
    }

    /// DESIGN 6.2: a request that is stuck in a status of this system alone is held.
    pub(super) fn hold_if_stuck(&mut self, status: RequestStatus) {
        if self.view.row.status == status {
            let since = self.view.row.since;
            self.decision.effects.retain(|effect| matches!(effect, LifecycleEffect::Step(_)));
            let still = format!("was still {status} after {} s", self.now.since(since).as_secs());
            self.hold_with_reason(match &self.view.row.reason {
                Some(hindered) => format!("{still}: {hindered}"),
                None => still,
            });
        }
    }
}

fn submit_effect(run: &RunRow) -> LifecycleEffect {
    let goes_on = match &run.backend {
        BackendRunRef::Engine { workflow, .. } => workflow.is_some(),
        BackendRunRef::Htcondor { .. } => run.parent.is_some(),
    };
    let run = run.uuid.clone();
    if goes_on { LifecycleEffect::Resume { run } } else { LifecycleEffect::Submit { run } }
}
