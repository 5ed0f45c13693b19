//! What happened of late: the tally of now, less how it stood a while ago.

use super::{ByRole, Kind, SiteTally, Tally};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::Timestamp;

/// A window is looked at in so many steps.
const STEPS: u32 = 6;

/// How a tally stood at some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    pub at: Timestamp,
    /// Attempts of each kind, in the order of the kinds.
    pub kinds: Vec<u64>,
    /// Blamed for all that they may be the cause of, files that could be read nowhere else included.
    pub sites: BTreeMap<String, SiteTally>,
}

/// What happened within a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent<'t> {
    pub ended: ByRole,
    /// Failed attempts of each kind that had some.
    pub kinds: Vec<(&'t Kind, u64)>,
    pub sites: BTreeMap<&'t str, SiteTally>,
}

impl Tally {
    /// It is to be remembered how it stands now: the last time was a while ago, and something has ended since.
    pub fn is_mark_due(&self, window: Duration, begun: Timestamp, now: Timestamp) -> bool {
        let marked: u64 =
            self.marks.last().map_or(0, |last| last.sites.values().map(|site| site.ended.total()).sum());
        self.may_mark(window, begun, now) && self.ended() > marked
    }

    /// It may be time for that, whether or not something has ended. `begun`: when the run was.
    pub fn may_mark(&self, window: Duration, begun: Timestamp, now: Timestamp) -> bool {
        now.since(self.marks.last().map_or(begun, |last| last.at)) >= window / STEPS
    }

    /// Remembers how it stands. Of what is older than the window only the last is needed.
    pub fn mark(&mut self, window: Duration, now: Timestamp) {
        let kinds = self.kinds.iter().map(|kind| kind.attempts).collect();
        self.marks.push(Mark { at: now, kinds, sites: self.sites_blamed() });
        let old = self.marks.iter().filter(|mark| now.since(mark.at) >= window).count();
        self.marks.drain(..old.saturating_sub(1));
    }

    /// What happened within the window, or a little longer; all there is while the run is younger.
    pub fn recent(&self, window: Duration, now: Timestamp) -> Recent<'_> {
        let before = self.marks.iter().rfind(|mark| now.since(mark.at) >= window);
        let of_kind =
            |number: usize| before.and_then(|mark| mark.kinds.get(number)).copied().unwrap_or_default();
        let of_site = |name: &str| before.and_then(|mark| mark.sites.get(name)).copied().unwrap_or_default();
        let kinds = self.kinds.iter().enumerate();
        let kinds = kinds.map(|(number, kind)| (kind, kind.attempts.saturating_sub(of_kind(number))));
        let blamed = self.sites_blamed();
        let sites = self.sites.keys().zip(blamed.values());
        let sites = sites.map(|(name, site)| (name.as_str(), site.since(of_site(name))));
        let sites: BTreeMap<&str, SiteTally> = sites.collect();
        Recent {
            ended: sites.values().map(|site| site.ended).sum(),
            kinds: kinds.filter(|(_, attempts)| *attempts > 0).collect(),
            sites,
        }
    }
}

impl SiteTally {
    fn since(self, before: Self) -> Self {
        Self {
            ended: self.ended.less(before.ended),
            failed: self.failed.less(before.failed),
            blamed: self.blamed.less(before.blamed),
        }
    }
}
