//! Correlated failures in an active run: many attempts that fail alike, or many at one site. Retried one by
//! one, all would use up their attempts in vain.

use super::failures::{FailureTally, RecentFailures, RoleCounts, is_known_site};
use std::time::Duration;
use windlass_types::{FailureClass, Timestamp};

/// Thresholds of correlated failures, and the action.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrelationPolicy {
    /// `false`: no detection.
    pub enabled: bool,
    /// Minimum number of correlated failures …
    pub min_attempts: u64,
    /// … and their minimum share of the attempts that ended …
    pub share: f64,
    /// … within this time.
    pub window: Duration,
    /// Action for attempts that fail alike at any site.
    pub action: CorrelatedAction,
    /// Time after which a paused run is ended, unless an operator resumes it.
    pub hold_after: Duration,
}

/// What is done about a run whose attempts fail alike at all sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CorrelatedAction {
    /// Alerts the operators only.
    Alert,
    /// Starts nothing new until an operator decides.
    #[default]
    Pause,
    /// Ends the run and holds its request.
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

/// A group of correlated failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrelatedFinding {
    pub shared_cause: SharedCause,
    /// Correlated failures …
    pub failed: u64,
    /// … out of this number of ended attempts.
    pub ended: u64,
    /// For people.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedCause {
    /// The site where they occurred and that may be the cause; other sites do better.
    Site(String),
    /// The kind of failure, by its key.
    Kind(String),
}

impl CorrelatedFinding {
    /// Returns a key that is unique within the run.
    pub fn key(&self) -> String {
        match &self.shared_cause {
            SharedCause::Site(site) => format!("site:{site}"),
            SharedCause::Kind(kind) => format!("kind:{kind}"),
        }
    }
}

/// Returns the current findings. Sites come first: failures at one site are no problem of the run.
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
    let blamed_sites: Vec<&str> = recent
        .sites
        .keys()
        .copied()
        .filter(|name| found.iter().any(|one| one.shared_cause == SharedCause::Site((*name).to_owned())))
        .collect();
    found.extend(kind_findings(&recent, &blamed_sites, policy));
    found
}

fn exceeds_share(failed: u64, ended: u64, policy: &CorrelationPolicy) -> bool {
    failed >= policy.min_attempts && failed as f64 > policy.share * ended as f64
}

/// Returns sites where too much fails because of the site or its data, while other sites, as far as known, do
/// at least twice as well. Failures with other causes do not count.
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
            text: format!("{blamed} of {ended} attempts at {name} failed because of the site or its data"),
        })
    })
}

/// Returns kinds that are too large a share of all ended attempts, at sites that are not known to be the cause.
fn kind_findings<'t>(
    recent: &'t RecentFailures<'_>,
    blamed_sites: &'t [&str],
    policy: &'t CorrelationPolicy,
) -> impl Iterator<Item = CorrelatedFinding> + 't {
    let at_failing_sites: RoleCounts =
        blamed_sites.iter().filter_map(|site| recent.sites.get(site)).map(|site| site.ended).sum();
    let all_ended = recent.ended.minus(at_failing_sites);
    recent.kinds.iter().filter_map(move |(kind, attempts)| {
        // The site of each failure is known only for the whole run.
        let elsewhere: u64 = kind
            .sites
            .iter()
            .filter(|(site, _)| !blamed_sites.contains(&site.as_str()))
            .map(|(_, n)| n)
            .sum();
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

/// Whether the next attempt gets more resources, so that it may complete: then only final failures count.
const fn is_helped_by_retry(class: FailureClass) -> bool {
    matches!(class, FailureClass::Memory | FailureClass::Timeout)
}

#[cfg(test)]
mod tests;
