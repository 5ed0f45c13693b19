//! Response to failures: updates the tally of a run, bans sites where too much fails, early if the evidence is
//! clear, and pauses runs whose attempts fail alike everywhere before all retries are used up.
//!
//! | finding | when | response |
//! |---|---|---|
//! | too many failures caused by a site | the run is over | a ban for this request |
//! | most attempts at a site fail for such reasons, fewer elsewhere | while it is active | an alert and a ban; without another site, or with bans disabled, as below |
//! | most attempts fail alike, at any site | while it is active | an alert; then a pause, or the request is held, as configured |
//!
//! A paused run starts nothing new. An operator resumes it, or the run ends after a while: then the request is
//! held, and completed work is kept.

use super::decision_builder::DecisionBuilder;
use super::{AlertKind, LifecycleEffect, RunReport, RunState};
use crate::requests::bans::{self, BanCandidate, BanDecision};
use crate::requests::change::{RequestChange, RunChange};
use crate::requests::correlated_failures::{self, CorrelatedAction, CorrelatedFinding, SharedCause};
use crate::requests::failures::FailureTally;
use crate::requests::rows::RunRow;
use std::sync::Arc;
use windlass_types::requests::{RequestRunStatus, RequestStatus};

/// Settings of the response to failures (E 8.1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailureResponseSettings {
    pub bans: bans::BanPolicy,
    pub correlated: correlated_failures::CorrelationPolicy,
}

/// Whether a report may lead to bans, so that the possible sites of its units must be known.
pub fn may_ban_sites(
    known: &FailureTally,
    news: &RunReport,
    blame: &FailureResponseSettings,
    now: windlass_types::Timestamp,
) -> bool {
    let is_nothing_new = news.attempts.is_empty() && (known.failed == 0 || news.state != RunState::Over);
    if !blame.bans.enabled || is_nothing_new {
        return false;
    }
    let mut tally = known.clone();
    tally.add_reports(&news.attempts, &news.site_totals);
    let is_site = |finding: &CorrelatedFinding| matches!(finding.shared_cause, SharedCause::Site(_));
    match news.state {
        RunState::Over => !bans::find_failing_sites(&tally, &blame.bans).is_empty(),
        _ => correlated_failures::find_correlations(&tally, &blame.correlated, now).iter().any(is_site),
    }
}

impl DecisionBuilder<'_> {
    /// Adds failures to the tally; while the run is active, also looks for correlated failures.
    pub(super) fn record_attempts(&mut self, news: &RunReport) {
        let known = Arc::clone(&self.view.failures);
        let Some(begun) = self.view.run.as_ref().map(|run| run.submitted_at.unwrap_or(run.created_at)) else {
            return;
        };
        let alike = &self.settings.failure_response.correlated;
        let is_over = news.state == RunState::Over;
        let may_mark = alike.enabled && !is_over && known.may_take_snapshot(alike.window, begun, self.now);
        if news.attempts.is_empty() && !is_over && !may_mark {
            return;
        }
        let mut tally = FailureTally::clone(&known);
        let is_new = tally.add_reports(&news.attempts, &news.site_totals);
        let found = if is_new && !is_over { self.new_findings(&tally) } else { Vec::new() };
        tally.told.extend(found.iter().map(CorrelatedFinding::key));
        let is_mark_due = may_mark && tally.is_snapshot_due(alike.window, begun, self.now);
        if is_mark_due {
            tally.take_snapshot(alike.window, self.now);
        }
        // Counts of completed attempts matter only with failures, and are reported again with the next one.
        if is_new || is_mark_due || (is_over && tally.failed > 0 && tally != *known) {
            self.store_tally(tally);
        }
        for finding in &found {
            self.respond_to_finding(finding);
        }
    }

    pub(super) fn store_tally(&mut self, tally: FailureTally) {
        if let Some(run) = self.view.run.as_ref().map(|run| run.uuid.clone()) {
            self.push_change(RequestChange::FailureTally { run, tally: Arc::new(tally) });
        }
    }

    /// Returns findings that were not reported yet.
    fn new_findings(&self, tally: &FailureTally) -> Vec<CorrelatedFinding> {
        let is_wanted = self.view.row.status == RequestStatus::Active && self.view.row.wanted.is_none();
        if !is_wanted {
            return Vec::new();
        }
        let mut found = correlated_failures::find_correlations(
            tally,
            &self.settings.failure_response.correlated,
            self.now,
        );
        found.retain(|finding| !tally.told.contains(&finding.key()));
        found
    }

    fn respond_to_finding(&mut self, finding: &CorrelatedFinding) {
        let CorrelatedFinding { shared_cause: what, failed, ended, text } = finding;
        self.push_alert(AlertKind::CorrelatedFailures, text.clone());
        match what {
            SharedCause::Site(site) => {
                let candidate_sites = BanCandidate { site: site.clone(), blamed: *failed, ended: *ended };
                let decision = self.decide_bans(vec![candidate_sites]);
                let stays_open = !decision.refused.is_empty() || !self.settings.failure_response.bans.enabled;
                self.apply_bans(decision);
                if stays_open {
                    self.pause_or_hold(text);
                }
            }
            SharedCause::Kind(_) => self.pause_or_hold(text),
        }
    }

    pub(super) fn decide_bans(&self, candidate_sites: Vec<BanCandidate>) -> BanDecision {
        let policy = &self.settings.failure_response.bans;
        if !policy.enabled {
            return BanDecision::default();
        }
        let request = &self.view.row.request.request_name;
        bans::decide_bans(candidate_sites, request, self.inputs.unit_sites, policy, self.now)
    }

    fn apply_bans(&mut self, decision: BanDecision) {
        let is_any = !decision.bans.is_empty();
        for ban in decision.bans {
            let until = ban.expires_at;
            self.push_alert(
                AlertKind::SiteBanned,
                format!("{} is banned for it until {until}: {}", ban.site, ban.reason),
            );
            self.push_change(RequestChange::Ban(Box::new(ban)));
        }
        for (_, why) in decision.refused {
            self.push_alert(AlertKind::BanRefused, why);
        }
        // Units that have not landed yet land elsewhere.
        if let Some(run) = self.active_run().filter(|_| is_any).map(|run| run.uuid.clone()) {
            self.push_effect(LifecycleEffect::AvoidSites { run });
        }
    }

    fn active_run(&self) -> Option<&RunRow> {
        self.view.run.as_ref().filter(|run| run.status.is_active())
    }

    /// The run is over: bans the sites where too much failed for the following runs.
    pub(super) fn ban_sites(&mut self) {
        let candidate_sites =
            bans::find_failing_sites(&self.view.failures, &self.settings.failure_response.bans);
        let decision = self.decide_bans(candidate_sites);
        self.apply_bans(decision);
    }

    /// Otherwise all attempts of all nodes would be used up.
    fn pause_or_hold(&mut self, text: &str) {
        match self.settings.failure_response.correlated.action {
            CorrelatedAction::Alert => {}
            CorrelatedAction::Pause => {
                if self.active_run().is_some_and(|run| run.paused.is_none()) {
                    self.change_run(RunChange::Pause(Some(self.now)));
                }
            }
            CorrelatedAction::Hold => self.hold_request(format!("its run was ended, because {text}")),
        }
    }

    /// Completed work is kept; an operator decides what follows.
    fn hold_request(&mut self, reason: String) {
        if self.view.row.status == RequestStatus::Active && self.active_run().is_some() {
            self.change_run(RunChange::Stop { at: self.now, reason: reason.clone() });
            self.hold_with_reason(reason);
        }
    }

    /// Sends pauses and their ends to the backend, and ends pauses that last too long.
    pub(super) fn update_pause(&mut self) {
        if self.view.row.status != RequestStatus::Active {
            return;
        }
        let Some(run) = self.active_run() else { return };
        let (uuid, status) = (run.uuid.clone(), run.status);
        let Some(since) = run.paused else {
            if self.view.failures.is_lifting {
                self.push_effect(LifecycleEffect::Unpause { run: uuid });
            }
            return;
        };
        let until = since.plus(self.settings.failure_response.correlated.hold_after);
        if self.now >= until {
            let kinds = self.view.failures.kinds.iter().max_by_key(|kind| kind.attempts);
            let worst = kinds.map_or_else(String::new, |kind| format!(": {}", kind.message));
            return self.hold_request(format!(
                "its run was paused because attempts fail alike{worst}; it was not released"
            ));
        }
        self.check_again_at(until);
        if status != RequestRunStatus::Halted {
            self.push_effect(LifecycleEffect::Pause { run: uuid });
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.view.row.status == RequestStatus::Active
            && self.active_run().is_some_and(|run| run.paused.is_some())
    }

    /// Resumes a paused run, if there is one.
    pub(super) fn lift_pause(&mut self) {
        if self.is_paused() {
            self.change_run(RunChange::Pause(None));
            self.store_tally(FailureTally { is_lifting: true, ..FailureTally::clone(&self.view.failures) });
        }
    }

    /// The backend has received the end of the pause.
    pub(super) fn on_unpaused(&mut self, run: &str) {
        if self.view.failures.is_lifting && self.view.run.as_ref().is_some_and(|row| row.uuid == run) {
            self.store_tally(FailureTally { is_lifting: false, ..FailureTally::clone(&self.view.failures) });
        }
    }
}

#[cfg(test)]
mod tests;
