//! Failures that have something in common, found while a run is active: many attempts that fail alike, or many at one site.
//! One by one each would be tried until all its attempts are used up; together they say that this is in vain.

use super::failures::{FailureTally, RecentFailures, RoleCounts, is_known_site};
use std::time::Duration;
use windlass_types::{FailureClass, Timestamp};

/// What is thought to be too much, and what follows.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrelationPolicy {
    /// `false`: nobody looks.
    pub enabled: bool,
    /// So many failures with something in common, at least …
    pub min_attempts: u64,
    /// … and more than this part of what ended meanwhile …
    pub share: f64,
    /// … within so long.
    pub window: Duration,
    /// What is done where attempts fail alike wherever they are.
    pub action: CorrelatedAction,
    /// A paused run is given up after so long, unless somebody lets it go on.
    pub hold_after: Duration,
}

/// What is done about a run whose attempts fail alike everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CorrelatedAction {
    /// People are told, and that is all.
    Alert,
    /// Nothing new of it begins until somebody has looked.
    #[default]
    Pause,
    /// It is ended, and its request is held.
    Hold,
}

impl Default for CorrelationPolicy {
    fn default() -> Self {
        let hour = Duration::from_hours(1);
        Self {
            enabled: true,
            min_attempts: 10,
            share: 0.5,
            window: hour,
            action: CorrelatedAction::default(),
            hold_after: hour,
        }
    }
}

/// What failures have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrelatedFinding {
    pub shared_cause: SharedCause,
    /// Failures that have it in common …
    pub failed: u64,
    /// … out of so many attempts that ended.
    pub ended: u64,
    /// For people.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedCause {
    /// The site where they were, and that may be the cause; elsewhere it goes better.
    Site(String),
    /// The kind of failure, by its key.
    Kind(String),
}

impl CorrelatedFinding {
    /// What tells it from all others of a run.
    pub fn key(&self) -> String {
        match &self.shared_cause {
            SharedCause::Site(site) => format!("site:{site}"),
            SharedCause::Kind(kind) => format!("kind:{kind}"),
        }
    }
}

/// What is to be found now. Sites first: what happens at one site is no matter of the run.
pub fn find_correlations(
    tally: &FailureTally,
    policy: &CorrelationPolicy,
    now: Timestamp,
) -> Vec<CorrelatedFinding> {
    if !policy.enabled {
        return Vec::new();
    }
    let recent = tally.recent_failures(policy.window, now);
    let mut found: Vec<CorrelatedFinding> = site_findings(&recent, policy).collect();
    let guilty: Vec<&str> = recent
        .sites
        .keys()
        .copied()
        .filter(|name| found.iter().any(|one| one.shared_cause == SharedCause::Site((*name).to_owned())))
        .collect();
    found.extend(kind_findings(&recent, &guilty, policy));
    found
}

fn exceeds_share(failed: u64, ended: u64, policy: &CorrelationPolicy) -> bool {
    failed >= policy.min_attempts && failed as f64 > policy.share * ended as f64
}

/// Sites where too much fails for reasons of their own, or of their data, while elsewhere it goes at least twice as well, as
/// far as anybody knows. What fails for another reason says nothing about a site, wherever it happens.
fn site_findings<'t>(
    recent: &'t RecentFailures<'_>,
    policy: &'t CorrelationPolicy,
) -> impl Iterator<Item = CorrelatedFinding> + 't {
    let all_blamed: RoleCounts = recent.sites.values().map(|site| site.blamed).sum();
    recent.sites.iter().filter(|(name, _)| is_known_site(name)).filter_map(move |(name, site)| {
        let (blamed, ended) = site.blamed_and_ended();
        let rate = |blamed: u64, ended: u64| blamed as f64 / ended.max(1) as f64;
        let elsewhere = |all: RoleCounts, here: RoleCounts| all.minus(here).comparable_with(site.blamed);
        let rate_elsewhere = rate(elsewhere(all_blamed, site.blamed), elsewhere(recent.ended, site.ended));
        let is_apart = 2.0 * rate_elsewhere <= rate(blamed, ended);
        (exceeds_share(blamed, ended, policy) && is_apart).then(|| CorrelatedFinding {
            shared_cause: SharedCause::Site((*name).to_owned()),
            failed: blamed,
            ended,
            text: format!(
                "{blamed} of {ended} attempts at {name} failed for reasons of the site or its data"
            ),
        })
    })
}

/// Kinds that make up too much of all that ended, at sites that are not known to be the cause.
fn kind_findings<'t>(
    recent: &'t RecentFailures<'_>,
    guilty: &'t [&str],
    policy: &'t CorrelationPolicy,
) -> impl Iterator<Item = CorrelatedFinding> + 't {
    let of_guilty: RoleCounts =
        guilty.iter().filter_map(|site| recent.sites.get(site)).map(|site| site.ended).sum();
    let all_ended = recent.ended.minus(of_guilty);
    recent.kinds.iter().filter_map(move |(kind, attempts)| {
        // Where each of them was is only known for the whole run.
        let elsewhere: u64 =
            kind.sites.iter().filter(|(site, _)| !guilty.contains(&site.as_str())).map(|(_, n)| n).sum();
        let mut failed = elsewhere.min(*attempts);
        if is_helped_by_retry(kind.class) {
            failed = failed.min(kind.for_good);
        }
        let ended = all_ended.comparable_with(kind.roles);
        exceeds_share(failed, ended, policy).then(|| CorrelatedFinding {
            shared_cause: SharedCause::Kind(kind.key()),
            failed,
            ended,
            text: format!(
                "{failed} of {ended} attempts failed alike ({}, code {}): {}",
                kind.class, kind.code, kind.message
            ),
        })
    })
}

/// Whoever ran out of something gets more of it with the next attempt: only what fails for good all the same is in vain.
const fn is_helped_by_retry(class: FailureClass) -> bool {
    matches!(class, FailureClass::Memory | FailureClass::Timeout)
}

#[cfg(test)]
mod tests;
