//! Units on the board: which jobs belong together, where each unit is, and how it stands.
//!
//! A unit's *elector* is the job whose kind elects. Where it completes is where the unit's other jobs run. A unit is
//! under way from the claim of its elector until all its jobs are over; how many are so at once may have a limit.

use super::{Board, JobTable};
use crate::change::{Change, UnitChange};
use serde::{Deserialize, Serialize};
use windlass_types::{JobStatus, UnitStatus};

/// A unit as the books have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableUnit {
    pub number: u32,
    pub status: UnitStatus,
    pub site: Option<String>,
    /// Its jobs by their numbers: where a row of them begins, and how many they are. Ascending.
    pub jobs: Vec<(u32, u32)>,
}

/// All units of a workflow; most have none, and then nothing here costs anything.
#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    list: Vec<Unit>,
    /// For each job the place of its unit in `list`, plus one; empty where there are none.
    of: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Unit {
    number: u32,
    jobs: Vec<(u32, u32)>,
    elector: Option<u32>,
    /// The elector was claimed, and did not go back.
    is_begun: bool,
    tally: UnitTally,
    site: Option<String>,
    /// Where its elector is.
    elector_at: Option<String>,
    /// What the books have, once all is written that was decided.
    told: (UnitStatus, Option<String>),
}

/// How many jobs of a unit stand how, and so how the unit stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitTally {
    open: u32,
    begun: u32,
    failed: u32,
    canceled: u32,
}

impl UnitTally {
    /// One more job stands so, or one less.
    pub fn count(&mut self, status: JobStatus, add: bool) {
        let note = |counter: &mut u32, is_so: bool| {
            if is_so {
                *counter = if add { *counter + 1 } else { counter.saturating_sub(1) };
            }
        };
        note(&mut self.open, !status.is_settled());
        note(&mut self.begun, is_begun(status));
        note(&mut self.failed, matches!(status, JobStatus::Failed | JobStatus::Terminated));
        note(&mut self.canceled, status == JobStatus::Canceled);
    }

    pub const fn status(self) -> UnitStatus {
        match self {
            Self { open: 1.., begun: 0, .. } => UnitStatus::Waiting,
            Self { open: 1.., .. } => UnitStatus::Active,
            Self { failed: 1.., .. } => UnitStatus::Failed,
            Self { canceled: 1.., .. } => UnitStatus::Canceled,
            _ => UnitStatus::Completed,
        }
    }
}

/// Somebody has, or had, an attempt of it that was not taken back.
const fn is_begun(status: JobStatus) -> bool {
    use JobStatus::{Completed, Failed, Pending, PendingFailed, Running, Terminated};
    matches!(status, Pending | Running | Completed | Failed | Terminated | PendingFailed)
}

impl Unit {
    const fn is_under_way(&self) -> bool {
        self.is_begun && self.tally.open > 0
    }

    fn moved(&mut self, job: u32, from: JobStatus, to: JobStatus) {
        self.tally.count(from, false);
        self.tally.count(to, true);
        if self.elector == Some(job) {
            self.is_begun = is_begun(to);
            if to == JobStatus::Uninitialized {
                self.site = None;
            }
        }
    }

    fn jobs(&self) -> impl Iterator<Item = u32> + use<> {
        self.jobs.clone().into_iter().flat_map(|(first, count)| first..first + count)
    }

    /// What the books do not know yet.
    fn news(&mut self) -> Option<Change> {
        let now = (self.tally.status(), self.site.clone());
        if now == self.told {
            return None;
        }
        let (from, _) = std::mem::replace(&mut self.told, now);
        let (to, site) = self.told.clone();
        Some(Change::Unit(UnitChange { number: self.number, from, to, site }))
    }
}

/// What a change of a job means for how many units are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnderWay {
    AsBefore,
    OneMore,
    OneLess,
}

impl Units {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn has(&self, job: u32) -> bool {
        self.of.get(job as usize).is_some_and(|unit| *unit != 0)
    }

    fn of(&mut self, job: u32) -> Option<&mut Unit> {
        let place = self.of.get(job as usize)?.checked_sub(1)?;
        self.list.get_mut(place as usize)
    }

    pub(super) fn moved(&mut self, job: u32, from: JobStatus, to: JobStatus) -> UnderWay {
        let Some(unit) = self.of(job) else { return UnderWay::AsBefore };
        let before = unit.is_under_way();
        unit.moved(job, from, to);
        match (before, unit.is_under_way()) {
            (false, true) => UnderWay::OneMore,
            (true, false) => UnderWay::OneLess,
            _ => UnderWay::AsBefore,
        }
    }

    /// The jobs of units that are at one of these sites and not complete.
    pub(super) fn unfinished_at<'a>(&'a self, sites: &'a [String]) -> impl Iterator<Item = u32> + 'a {
        let is_there = |unit: &&Unit| unit.site.as_ref().is_some_and(|site| sites.contains(site));
        let is_unfinished = |unit: &&Unit| unit.tally.status() != UnitStatus::Completed;
        self.list.iter().filter(move |unit| is_there(unit) && is_unfinished(unit)).flat_map(Unit::jobs)
    }

    pub(super) fn under_way(&self) -> usize {
        self.list.iter().filter(|unit| unit.is_under_way()).count()
    }
}

impl Board {
    /// Takes up the units of a table, and has their jobs run where they are.
    pub(super) fn take_up_units(&mut self, table: Vec<TableUnit>) {
        if table.is_empty() {
            return;
        }
        let mut units = Units { list: Vec::with_capacity(table.len()), of: vec![0; self.ids.len()] };
        for TableUnit { number, status, site, jobs } in table {
            let mut unit = Unit { number, jobs, told: (status, site.clone()), ..Unit::default() };
            let place = units.list.len() as u32 + 1;
            for job in unit.jobs() {
                units.of[job as usize] = place;
                // A failure that counts for nothing keeps nothing from being complete.
                let counts_for_nothing = self.status(job).is_unsuccessful() && self.ignored.contains(&job);
                let status = if counts_for_nothing { JobStatus::Completed } else { self.status(job) };
                unit.tally.count(status, true);
                if self.demand(job).place.elects {
                    unit.elector = Some(job);
                    unit.is_begun = is_begun(status);
                }
            }
            let elected = unit.elector.is_none_or(|job| self.status(job) == JobStatus::Completed);
            unit.site = site.filter(|_| elected);
            units.list.push(unit);
        }
        self.units = units;
        for place in 0..self.units.list.len() {
            self.gather_at_site(place);
        }
    }

    /// The unit's jobs, but for its elector, run where the unit is.
    fn gather_at_site(&mut self, place: usize) {
        let unit = &self.units.list[place];
        let (Some(site), elector, jobs) = (unit.site.clone(), unit.elector, unit.jobs()) else { return };
        // Many in a row are of one kind.
        let mut last = None;
        for job in jobs.filter(|job| Some(*job) != elector) {
            let from = self.lane[job as usize];
            let to = match last {
                Some((same, to)) if same == from => to,
                _ => self.lane_at(from, job, &site),
            };
            last = Some((from, to));
            self.change_lane(job, to);
        }
    }

    fn lane_at(&mut self, lane: u32, job: u32, site: &str) -> u32 {
        let mut place = self.ready.demand(lane).place.clone();
        place.sites = vec![site.to_owned()];
        self.lane_of(self.class[job as usize], place)
    }

    fn change_lane(&mut self, job: u32, to: u32) {
        let from = self.put_in_lane(job, to);
        let may_be_queued = from != to && self.status(job) == JobStatus::Ready && !self.ready.is_empty();
        if may_be_queued && self.ready.remove(job, from) {
            self.ready.push(job, to, self.priority[job as usize]);
        }
    }

    /// Says where a job is that was claimed before this was made, in case it elects.
    pub fn note_site_of(&mut self, job: u32, site: Option<&str>) {
        if let Some(unit) = self.units.of(job).filter(|unit| unit.elector == Some(job)) {
            unit.elector_at = site.map(str::to_owned);
        }
    }

    /// Jobs of units may be claimed that elect where their unit is.
    pub fn has_units(&self) -> bool {
        !self.units.is_empty()
    }

    /// A job has moved, and that stands in `changes`: what follows for its unit stands there next.
    pub(super) fn tell_of_unit(&mut self, job: u32, changes: &mut Vec<Change>) {
        if self.units.is_empty() {
            return;
        }
        let is_complete = self.status(job) == JobStatus::Completed;
        let Some(unit) = self.units.of(job) else { return };
        if unit.elector == Some(job) && is_complete && unit.site.is_none() {
            unit.site = unit.elector_at.take();
            let place = self.units.of[job as usize] as usize - 1;
            self.gather_at_site(place);
        }
        changes.extend(self.units.of(job).and_then(Unit::news));
    }

    /// The run goes on: whatever the books say of units is put right where it is not how their jobs stand.
    pub fn on_going_on(&mut self, changes: &mut Vec<Change>) {
        changes.extend(self.units.list.iter_mut().filter_map(Unit::news));
    }

    /// What it means for units that these jobs go back ([`Board::plan_again`]).
    pub fn units_after(&self, changes: &[Change]) -> Vec<Change> {
        if self.units.is_empty() {
            return Vec::new();
        }
        let mut units = self.units.clone();
        let mut touched = Vec::new();
        for change in changes {
            let (id, from, to) = match *change {
                Change::Retry { job, from, .. } => (job, from, JobStatus::Ready),
                Change::Reset { job, from, .. } => (job, from, JobStatus::Uninitialized),
                _ => continue,
            };
            if let Some(job) = self.index(id).filter(|job| units.has(*job)) {
                units.moved(job, from, to);
                touched.push(units.of[job as usize] as usize - 1);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        touched.into_iter().filter_map(|place| units.list[place].news()).collect()
    }
}

impl JobTable {
    /// As it will be once this is written.
    pub(crate) fn take_in_unit(&mut self, change: &UnitChange) {
        if let Some(unit) = self.units.iter_mut().find(|unit| unit.number == change.number) {
            (unit.status, unit.site) = (change.to, change.site.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobStatus as S;

    #[test]
    fn how_a_unit_stands_follows_from_its_jobs() {
        for (jobs, expected) in [
            (&[S::Ready, S::Blocked][..], UnitStatus::Waiting),
            (&[S::Uninitialized, S::Disabled], UnitStatus::Waiting),
            (&[S::Pending, S::Blocked], UnitStatus::Active),
            (&[S::Completed, S::Ready], UnitStatus::Active),
            (&[S::Completed, S::PendingFailed], UnitStatus::Active),
            (&[S::Failed, S::Blocked], UnitStatus::Active),
            (&[S::Completed, S::Completed], UnitStatus::Completed),
            (&[S::Completed, S::Disabled], UnitStatus::Completed),
            (&[S::Completed, S::Failed], UnitStatus::Failed),
            (&[S::Terminated, S::Canceled], UnitStatus::Failed),
            (&[S::Completed, S::Canceled], UnitStatus::Canceled),
        ] {
            let mut tally = UnitTally::default();
            for status in jobs {
                tally.count(*status, true);
            }
            assert_eq!(tally.status(), expected, "{jobs:?}");
            for status in jobs {
                tally.count(*status, false);
            }
            assert_eq!(tally, UnitTally::default(), "{jobs:?}");
        }
    }
}
