//! Invariants of every commit: status transitions, one run at a time, and requests are only failed or aborted
//! by a person.

use crate::simulation::RequestSimulation;
use std::time::Duration;
use windlass_core::requests::change::{RequestChange, RequestCommit};
use windlass_core::requests::lifecycle::takes_slot;
use windlass_core::requests::rounds::RecoveryPolicy;
use windlass_core::requests::rows::{NewBan, OutputStepState, RequestRunCause};
use windlass_core::requests::{RequestView, bans, transitions};
use windlass_types::requests::{ProcessingBlockStatus, RequestStatus};

impl RequestSimulation {
    /// Checks a commit after it was applied.
    pub(crate) fn check_commit(&mut self, before: &RequestView, commit: &RequestCommit) {
        let name = commit.request.clone();
        let mut found = Vec::new();
        let mut at = before.clone();
        for change in &commit.changes {
            found.extend(self.check_change(&at, change, commit).err());
            at.apply_change(change, commit.at);
        }
        let after = &self.store.views[&name];
        found.extend(check_alerts(commit).err());
        found.extend(check_monotonic(before, after).err());
        if after.row.status == RequestStatus::Held && takes_slot(after) {
            found.push("it is held, but takes a slot of the active requests".to_owned());
        }
        for what in found {
            self.record_violation(&name, what);
        }
    }

    fn check_change(
        &self,
        at: &RequestView,
        change: &RequestChange,
        commit: &RequestCommit,
    ) -> Result<(), String> {
        match change {
            RequestChange::Status { from, to, .. } => self.check_transition(at, *from, *to),
            RequestChange::AddRun(run) => check_run(at, run),
            RequestChange::Ban(ban) => self.check_ban(ban, commit),
            _ => Ok(()),
        }
    }

    fn check_transition(
        &self,
        at: &RequestView,
        from: RequestStatus,
        to: RequestStatus,
    ) -> Result<(), String> {
        transitions::check_transition(from, to).map_err(|error| error.to_string())?;
        let name = &at.row.request.request_name;
        match to {
            RequestStatus::Failed | RequestStatus::Aborted if !self.invariants.unwanted.contains(name) => {
                Err(format!("it is {to}, but no person requested that"))
            }
            RequestStatus::Completed => check_complete(at),
            _ => Ok(()),
        }
    }

    /// Checks bans that were decided automatically.
    fn check_ban(&self, ban: &NewBan, commit: &RequestCommit) -> Result<(), String> {
        if self.grid.find_number(&ban.site).is_none() {
            return Err(format!("{} is banned, but is not a site", ban.site));
        }
        let longest = commit.at.plus(Duration::from_hours(24 * 7));
        if ban.by == bans::LIFECYCLE_ACTOR && !(commit.at < ban.expires_at && ban.expires_at <= longest) {
            return Err(format!("the ban of {} lasts until {}", ban.site, ban.expires_at));
        }
        let Some(request) = ban.request.as_ref().filter(|_| ban.by == bans::LIFECYCLE_ACTOR) else {
            return Ok(());
        };
        let definition = &self.store.views[request].row.request;
        let banned = self.store.banned_sites(request, commit.at);
        let usable = |site: &&String| {
            !banned.contains(*site)
                && !definition.site_blacklist.contains(site)
                && (definition.site_whitelist.is_empty() || definition.site_whitelist.contains(site))
        };
        let names = self.grid.names();
        let left = names.iter().filter(usable).count();
        if left == 0 { Err(format!("the ban of {} leaves it no site", ban.site)) } else { Ok(()) }
    }
}

/// Checks that runs and rounds do not overlap, and that rescues do not exceed their limit.
fn check_run(at: &RequestView, run: &windlass_core::requests::rows::RunRow) -> Result<(), String> {
    let limit = RecoveryPolicy::default().with_overrides(&at.row.overrides).max_rescues;
    if run.cause == RequestRunCause::Failure && run.rescues > limit {
        return Err(format!("{} is rescue {} of {limit}", run.uuid, run.rescues));
    }
    let Some(last) = &at.run else { return Ok(()) };
    if !last.status.is_over() {
        return Err(format!("{} follows {}, which is {}", run.uuid, last.uuid, last.status));
    }
    match run.round {
        round if round == last.round && run.parent.as_ref() == Some(&last.uuid) => Ok(()),
        round if round == last.round + 1 && run.parent.is_none() => Ok(()),
        round => Err(format!("{} of round {round} follows {} of round {}", run.uuid, last.uuid, last.round)),
    }
}

/// Checks R-048.
fn check_complete(at: &RequestView) -> Result<(), String> {
    let is_over =
        |status| matches!(status, ProcessingBlockStatus::Archived | ProcessingBlockStatus::Invalidated);
    match at.blocks.iter().find(|block| !is_over(block.status)) {
        Some(block) => Err(format!("it is completed, but block {} is {}", block.uuid, block.status)),
        None => match at.steps.iter().find(|step| at.find_block(&step.block).is_some()) {
            Some(step) => {
                Err(format!("it is completed, but {} of {} is not done", step.kind.name(), step.block))
            }
            None => Ok(()),
        },
    }
}

/// Returns the alert that a change requires.
fn required_alert(change: &RequestChange) -> Option<&'static str> {
    match change {
        RequestChange::Status { to: RequestStatus::Held, .. } => Some("held"),
        RequestChange::Step { state: OutputStepState::Failed, .. } => Some("output_failed"),
        RequestChange::Ban(_) => Some("site_banned"),
        _ => None,
    }
}

/// Checks that each required alert is in the same commit, once. Changes by persons need none.
fn check_alerts(commit: &RequestCommit) -> Result<(), String> {
    if commit.by != bans::LIFECYCLE_ACTOR {
        return Ok(());
    }
    let count =
        |is_it: &dyn Fn(&RequestChange) -> bool| commit.changes.iter().filter(|one| is_it(one)).count();
    for kind in ["held", "output_failed", "site_banned"] {
        let happened = count(&|change| required_alert(change) == Some(kind));
        let told = count(&|change| matches!(change, RequestChange::Alert(alert) if alert.kind == kind));
        if happened != told {
            return Err(format!("{told} alerts `{kind}` for {happened} changes"));
        }
    }
    Ok(())
}

/// Checks numbers that must not decrease.
fn check_monotonic(before: &RequestView, after: &RequestView) -> Result<(), String> {
    let (Some(before), Some(after)) = (&before.process, &after.process) else { return Ok(()) };
    let numbers = [
        ("round", u64::from(before.round), u64::from(after.round)),
        ("settled", u64::from(before.settled), u64::from(after.settled)),
        ("next_first_event", before.next_first_event, after.next_first_event),
        ("next_block", u64::from(before.next_block), u64::from(after.next_block)),
        ("events_produced", before.events_produced, after.events_produced),
    ];
    match numbers.iter().find(|(_, before, after)| before > after) {
        Some((what, before, after)) => Err(format!("{what} decreases from {before} to {after}")),
        None => Ok(()),
    }
}
