//! Who is to blame for what fails: the tally of a run is kept up to date; sites at which too much fails are banned, early
//! where that is plain; and a run whose attempts fail alike wherever they are is paused before all its retries are used up.
//!
//! | found | when | what follows |
//! |---|---|---|
//! | too much fails at a site for reasons of its own | the run is over | a ban for this request |
//! | most fails at a site for such reasons, and elsewhere less | while it is active | an alert and a ban; if there is no other site, or nobody wants bans, as below |
//! | most fails alike, wherever it is | while it is active | an alert; then a pause, or the request is held, as it is set |
//!
//! A paused run begins nothing new. Somebody lets it go on, or it is given up after a while: the request is held then, with
//! all that is done kept.

use super::desk::Desk;
use super::{AlertKind, Effect, RunNews, RunState};
use crate::requests::bans::{self, Accused, Judged};
use crate::requests::book::RunRow;
use crate::requests::change::{RequestChange, RunChange};
use crate::requests::correlated::{self, Common, Finding, OnAlike};
use crate::requests::failures::Tally;
use std::sync::Arc;
use windlass_types::requests::{RequestStatus, RunStatus};

/// All that is set about blame (E 8.1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blame {
    pub bans: bans::Policy,
    pub alike: correlated::Policy,
}

/// Whether a look at a run may lead to bans, so that it has to be known where its units may go.
pub fn may_ban(known: &Tally, news: &RunNews, blame: &Blame, now: windlass_types::Timestamp) -> bool {
    let is_nothing_new = news.attempts.is_empty() && (known.failed == 0 || news.state != RunState::Over);
    if !blame.bans.enabled || is_nothing_new {
        return false;
    }
    let mut tally = known.clone();
    tally.take(&news.attempts, &news.site_totals);
    let is_site = |finding: &Finding| matches!(finding.what, Common::Site(_));
    match news.state {
        RunState::Over => !bans::detect(&tally, &blame.bans).is_empty(),
        _ => correlated::findings(&tally, &blame.alike, now).iter().any(is_site),
    }
}

impl Desk<'_> {
    /// What failed is summed up; and, while the run goes on, looked through for what failures have in common.
    pub(super) fn take_attempts(&mut self, news: &RunNews) {
        let known = Arc::clone(&self.view.failures);
        let Some(begun) = self.view.run.as_ref().map(|run| run.submitted_at.unwrap_or(run.created_at)) else {
            return;
        };
        let alike = &self.settings.blame.alike;
        let is_over = news.state == RunState::Over;
        let may_mark = alike.enabled && !is_over && known.may_mark(alike.window, begun, self.now);
        if news.attempts.is_empty() && !is_over && !may_mark {
            return;
        }
        let mut tally = Tally::clone(&known);
        let is_new = tally.take(&news.attempts, &news.site_totals);
        let found = if is_new && !is_over { self.found(&tally) } else { Vec::new() };
        tally.told.extend(found.iter().map(Finding::key));
        let is_mark_due = may_mark && tally.is_mark_due(alike.window, begun, self.now);
        if is_mark_due {
            tally.mark(alike.window, self.now);
        }
        // How much went well matters where something failed, and is told again with the next failure.
        if is_new || is_mark_due || (is_over && tally.failed > 0 && tally != *known) {
            self.keep_tally(tally);
        }
        for finding in &found {
            self.act_on(finding);
        }
    }

    pub(super) fn keep_tally(&mut self, tally: Tally) {
        if let Some(run) = self.view.run.as_ref().map(|run| run.uuid.clone()) {
            self.change(RequestChange::Tally { run, tally: Arc::new(tally) });
        }
    }

    /// What people were not told of yet.
    fn found(&self, tally: &Tally) -> Vec<Finding> {
        let is_wanted = self.view.row.status == RequestStatus::Active && self.view.row.wanted.is_none();
        if !is_wanted {
            return Vec::new();
        }
        let mut found = correlated::findings(tally, &self.settings.blame.alike, self.now);
        found.retain(|finding| !tally.told.contains(&finding.key()));
        found
    }

    fn act_on(&mut self, finding: &Finding) {
        let Finding { what, failed, ended, text } = finding;
        self.alert(AlertKind::FailingAlike, text.clone());
        match what {
            Common::Site(site) => {
                let accused = Accused { site: site.clone(), blamed: *failed, ended: *ended };
                let judged = self.judge(vec![accused]);
                let stays_open = !judged.refused.is_empty() || !self.settings.blame.bans.enabled;
                self.carry_out(judged);
                if stays_open {
                    self.stop_burning(text);
                }
            }
            Common::Kind(_) => self.stop_burning(text),
        }
    }

    pub(super) fn judge(&self, accused: Vec<Accused>) -> Judged {
        let policy = &self.settings.blame.bans;
        if !policy.enabled {
            return Judged::default();
        }
        let request = &self.view.row.request.request_name;
        bans::judge(accused, request, self.situation.places, policy, self.now)
    }

    fn carry_out(&mut self, judged: Judged) {
        let is_any = !judged.bans.is_empty();
        for ban in judged.bans {
            let until = ban.expires_at;
            self.alert(
                AlertKind::SiteBanned,
                format!("{} is banned for it until {until}: {}", ban.site, ban.reason),
            );
            self.change(RequestChange::Ban(Box::new(ban)));
        }
        for (_, why) in judged.refused {
            self.alert(AlertKind::BanRefused, why);
        }
        // What of the run has not landed yet lands elsewhere.
        if let Some(run) = self.active_run().filter(|_| is_any).map(|run| run.uuid.clone()) {
            self.effect(Effect::Avoid { run });
        }
    }

    fn active_run(&self) -> Option<&RunRow> {
        self.view.run.as_ref().filter(|run| run.status.is_active())
    }

    /// The run is over: sites at which too much of it failed get nothing of the next one.
    pub(super) fn ban_sites(&mut self) {
        let accused = bans::detect(&self.view.failures, &self.settings.blame.bans);
        let judged = self.judge(accused);
        self.carry_out(judged);
    }

    /// It would go on like this until all attempts of all nodes are used up.
    fn stop_burning(&mut self, text: &str) {
        match self.settings.blame.alike.on_alike {
            OnAlike::Alert => {}
            OnAlike::Pause => {
                if self.active_run().is_some_and(|run| run.paused.is_none()) {
                    self.change_run(RunChange::Pause(Some(self.now)));
                }
            }
            OnAlike::Hold => self.give_up(format!("its run was ended, because {text}")),
        }
    }

    /// What is done is kept; a person says what follows.
    fn give_up(&mut self, reason: String) {
        if self.view.row.status == RequestStatus::Active && self.active_run().is_some() {
            self.change_run(RunChange::Stop { at: self.now, reason: reason.clone() });
            self.hold(reason);
        }
    }

    /// A run that is paused is to know it, as is one whose pause is over; and none is paused for ever.
    pub(super) fn see_to_pause(&mut self) {
        if self.view.row.status != RequestStatus::Active {
            return;
        }
        let Some(run) = self.active_run() else { return };
        let (uuid, status) = (run.uuid.clone(), run.status);
        let Some(since) = run.paused else {
            if self.view.failures.is_lifting {
                self.effect(Effect::Unpause { run: uuid });
            }
            return;
        };
        let until = since.after(self.settings.blame.alike.hold_after);
        if self.now >= until {
            let kinds = self.view.failures.kinds.iter().max_by_key(|kind| kind.attempts);
            let worst = kinds.map_or_else(String::new, |kind| format!(": {}", kind.message));
            return self.give_up(format!(
                "its run was paused because attempts fail alike{worst}; nobody let it go on"
            ));
        }
        self.look_again(until);
        if status != RunStatus::Halted {
            self.effect(Effect::Pause { run: uuid });
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.view.row.status == RequestStatus::Active
            && self.active_run().is_some_and(|run| run.paused.is_some())
    }

    /// Somebody lets a paused run go on, if there is one.
    pub(super) fn lift_pause(&mut self) {
        if self.is_paused() {
            self.change_run(RunChange::Pause(None));
            self.keep_tally(Tally { is_lifting: true, ..Tally::clone(&self.view.failures) });
        }
    }

    /// The backend knows that the pause is over.
    pub(super) fn unpaused(&mut self, run: &str) {
        if self.view.failures.is_lifting && self.view.run.as_ref().is_some_and(|row| row.uuid == run) {
            self.keep_tally(Tally { is_lifting: false, ..Tally::clone(&self.view.failures) });
        }
    }
}

#[cfg(test)]
mod tests;
