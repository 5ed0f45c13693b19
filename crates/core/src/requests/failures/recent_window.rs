//! Recent failures: the difference between the current tally and an earlier snapshot.

use super::{FailureTally, RoleCounts, SimilarFailures, SiteAttemptCounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::Timestamp;

/// Number of snapshots per window.
const WINDOW_STEPS: u32 = 6;

/// A tally at some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TallySnapshot {
    pub at: Timestamp,
    /// Attempts of each kind, in the order of the kinds.
    pub kinds: Vec<u64>,
    /// Sites with all attributable failures, including files that were unreadable everywhere.
    pub sites: BTreeMap<String, SiteAttemptCounts>,
}

/// Failures within a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentFailures<'t> {
    pub ended: RoleCounts,
    /// Failed attempts of each kind with at least one.
    pub kinds: Vec<(&'t SimilarFailures, u64)>,
    pub sites: BTreeMap<&'t str, SiteAttemptCounts>,
}

impl FailureTally {
    /// Whether a snapshot is due: the last one is old enough, and attempts have ended since.
    pub fn is_snapshot_due(&self, window: Duration, begun: Timestamp, now: Timestamp) -> bool {
        let marked: u64 =
            self.marks.last().map_or(0, |last| last.sites.values().map(|site| site.ended.total()).sum());
        self.may_take_snapshot(window, begun, now) && self.ended_attempts() > marked
    }

    /// Whether enough time has passed for a snapshot. `begun`: when the run began.
    pub fn may_take_snapshot(&self, window: Duration, begun: Timestamp, now: Timestamp) -> bool {
        now.since(self.marks.last().map_or(begun, |last| last.at)) >= window / WINDOW_STEPS
    }

    /// Takes a snapshot. Of those older than the window only the last is kept.
    pub fn take_snapshot(&mut self, window: Duration, now: Timestamp) {
        let kinds = self.kinds.iter().map(|kind| kind.attempts).collect();
        self.marks.push(TallySnapshot { at: now, kinds, sites: self.blamed_by_site() });
        let old = self.marks.iter().filter(|mark| now.since(mark.at) >= window).count();
        self.marks.drain(..old.saturating_sub(1));
    }

    /// Returns failures within the window, or slightly longer; all while the run is younger.
    pub fn recent_failures(&self, window: Duration, now: Timestamp) -> RecentFailures<'_> {
        let before = self.marks.iter().rfind(|mark| now.since(mark.at) >= window);
        let of_kind =
            |number: usize| before.and_then(|mark| mark.kinds.get(number)).copied().unwrap_or_default();
        let of_site = |name: &str| before.and_then(|mark| mark.sites.get(name)).copied().unwrap_or_default();
        let kinds = self.kinds.iter().enumerate();
        let kinds = kinds.map(|(number, kind)| (kind, kind.attempts.saturating_sub(of_kind(number))));
        let blamed = self.blamed_by_site();
        let sites = self.sites.keys().zip(blamed.values());
        let sites = sites.map(|(name, site)| (name.as_str(), site.counts_since(of_site(name))));
        let sites: BTreeMap<&str, SiteAttemptCounts> = sites.collect();
        RecentFailures {
            ended: sites.values().map(|site| site.ended).sum(),
            kinds: kinds.filter(|(_, attempts)| *attempts > 0).collect(),
            sites,
        }
    }
}

impl SiteAttemptCounts {
    fn counts_since(self, before: Self) -> Self {
        Self {
            ended: self.ended.minus(before.ended),
            failed: self.failed.minus(before.failed),
            blamed: self.blamed.minus(before.blamed),
        }
    }
}
