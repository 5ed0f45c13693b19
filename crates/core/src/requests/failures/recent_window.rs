//! What happened of late: the tally of now, less how it stood a while ago.

use super::{FailureKind, FailureTally, RoleCounts, SiteAttemptCounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::Timestamp;

/// A window is looked at in so many steps.
const WINDOW_STEPS: u32 = 6;

/// How a tally stood at some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TallySnapshot {
    pub at: Timestamp,
    /// Attempts of each kind, in the order of the kinds.
    pub kinds: Vec<u64>,
    /// Blamed for all that they may be the cause of, files that could be read nowhere else included.
    pub sites: BTreeMap<String, SiteAttemptCounts>,
}

/// What happened within a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentFailures<'t> {
    pub ended: RoleCounts,
    /// Failed attempts of each kind that had some.
    pub kinds: Vec<(&'t FailureKind, u64)>,
    pub sites: BTreeMap<&'t str, SiteAttemptCounts>,
}

impl FailureTally {
    /// It is to be remembered how it stands now: the last time was a while ago, and something has ended since.
    pub fn is_snapshot_due(&self, window: Duration, begun: Timestamp, now: Timestamp) -> bool {
        let marked: u64 =
            self.marks.last().map_or(0, |last| last.sites.values().map(|site| site.ended.total()).sum());
        self.may_take_snapshot(window, begun, now) && self.ended_attempts() > marked
    }

    /// It may be time for that, whether or not something has ended. `begun`: when the run was.
    pub fn may_take_snapshot(&self, window: Duration, begun: Timestamp, now: Timestamp) -> bool {
        now.since(self.marks.last().map_or(begun, |last| last.at)) >= window / WINDOW_STEPS
    }

    /// Remembers how it stands. Of what is older than the window only the last is needed.
    pub fn take_snapshot(&mut self, window: Duration, now: Timestamp) {
        let kinds = self.kinds.iter().map(|kind| kind.attempts).collect();
        self.marks.push(TallySnapshot { at: now, kinds, sites: self.blamed_by_site() });
        let old = self.marks.iter().filter(|mark| now.since(mark.at) >= window).count();
        self.marks.drain(..old.saturating_sub(1));
    }

    /// What happened within the window, or a little longer; all there is while the run is younger.
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
