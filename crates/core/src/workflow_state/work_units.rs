//! Units on the board: which jobs belong together, where each unit is, and how it stands.
//!
//! A unit's *elector* is the job whose kind elects. Where it completes is where the unit's other jobs run. A unit is
//! under way from the claim of its elector until all its jobs are over; how many are so at once may have a limit.

use super::{JobTable, WorkflowState};
use crate::change::{WorkUnitChange, WorkflowChange};
use serde::{Deserialize, Serialize};
use windlass_types::{JobStatus, WorkUnitStatus};

/// A unit as the books have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkUnitRow {
    pub number: u32,
    pub status: WorkUnitStatus,
    pub site: Option<String>,
    /// Its jobs by their numbers: where a row of them begins, and how many they are. Ascending.
    pub jobs: Vec<(u32, u32)>,
}

/// All units of a workflow; most have none, and then nothing here costs anything.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkUnits {
    list: Vec<WorkUnitState>,
    /// For each job the place of its unit in `list`, plus one; empty where there are none.
    unit_of_job: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct WorkUnitState {
    number: u32,
    jobs: Vec<(u32, u32)>,
    elector: Option<u32>,
    /// The elector was claimed, and did not go back.
    has_begun: bool,
    tally: WorkUnitCounts,
    site: Option<String>,
    /// Where its elector is.
    elector_site: Option<String>,
    /// What the books have, once all is written that was decided.
    written_state: (WorkUnitStatus, Option<String>),
}

/// How many jobs of a unit stand how, and so how the unit stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkUnitCounts {
    open: u32,
    begun: u32,
    failed: u32,
    canceled: u32,
}

impl WorkUnitCounts {
    /// One more job stands so, or one less.
    pub fn count_job(&mut self, status: JobStatus, add: bool) {
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

    pub const fn status(self) -> WorkUnitStatus {
        match self {
            Self { open: 1.., begun: 0, .. } => WorkUnitStatus::Waiting,
            Self { open: 1.., .. } => WorkUnitStatus::Active,
            Self { failed: 1.., .. } => WorkUnitStatus::Failed,
            Self { canceled: 1.., .. } => WorkUnitStatus::Canceled,
            _ => WorkUnitStatus::Completed,
        }
    }
}

/// Somebody has, or had, an attempt of it that was not taken back.
const fn is_begun(status: JobStatus) -> bool {
    use JobStatus::{Completed, Failed, Pending, PendingFailed, Running, Terminated};
    matches!(status, Pending | Running | Completed | Failed | Terminated | PendingFailed)
}

impl WorkUnitState {
    const fn is_under_way(&self) -> bool {
        self.has_begun && self.tally.open > 0
    }

    fn on_job_moved(&mut self, job: u32, from: JobStatus, to: JobStatus) {
        self.tally.count_job(from, false);
        self.tally.count_job(to, true);
        if self.elector == Some(job) {
            self.has_begun = is_begun(to);
            if to == JobStatus::Uninitialized {
                self.site = None;
            }
        }
    }

    fn jobs(&self) -> impl Iterator<Item = u32> + use<> {
        self.jobs.clone().into_iter().flat_map(|(first, count)| first..first + count)
    }

    /// What the books do not know yet.
    fn pending_change(&mut self) -> Option<WorkflowChange> {
        let now = (self.tally.status(), self.site.clone());
        if now == self.written_state {
            return None;
        }
        let (from, _) = std::mem::replace(&mut self.written_state, now);
        let (to, site) = self.written_state.clone();
        Some(WorkflowChange::Unit(WorkUnitChange { number: self.number, from, to, site }))
    }
}

/// What a change of a job means for how many units are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActiveUnitsChange {
    Unchanged,
    Increased,
    Decreased,
}

impl WorkUnits {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn has_job(&self, job: u32) -> bool {
        self.unit_of_job.get(job as usize).is_some_and(|unit| *unit != 0)
    }

    fn unit_of(&mut self, job: u32) -> Option<&mut WorkUnitState> {
        let place = self.unit_of_job.get(job as usize)?.checked_sub(1)?;
        self.list.get_mut(place as usize)
    }

    pub(super) fn on_job_moved(&mut self, job: u32, from: JobStatus, to: JobStatus) -> ActiveUnitsChange {
        let Some(unit) = self.unit_of(job) else { return ActiveUnitsChange::Unchanged };
        let before = unit.is_under_way();
        unit.on_job_moved(job, from, to);
        match (before, unit.is_under_way()) {
            (false, true) => ActiveUnitsChange::Increased,
            (true, false) => ActiveUnitsChange::Decreased,
            _ => ActiveUnitsChange::Unchanged,
        }
    }

    /// The jobs of units that are at one of these sites and not complete.
    pub(super) fn unfinished_at<'a>(&'a self, sites: &'a [String]) -> impl Iterator<Item = u32> + 'a {
        let is_there = |unit: &&WorkUnitState| unit.site.as_ref().is_some_and(|site| sites.contains(site));
        let is_unfinished = |unit: &&WorkUnitState| unit.tally.status() != WorkUnitStatus::Completed;
        self.list
            .iter()
            .filter(move |unit| is_there(unit) && is_unfinished(unit))
            .flat_map(WorkUnitState::jobs)
    }

    pub(super) fn active_count(&self) -> usize {
        self.list.iter().filter(|unit| unit.is_under_way()).count()
    }
}

impl WorkflowState {
    /// Takes up the units of a table, and has their jobs run where they are.
    pub(super) fn load_units(&mut self, table: Vec<WorkUnitRow>) {
        if table.is_empty() {
            return;
        }
        let mut units =
            WorkUnits { list: Vec::with_capacity(table.len()), unit_of_job: vec![0; self.ids.len()] };
        for WorkUnitRow { number, status, site, jobs } in table {
            let mut unit = WorkUnitState {
                number,
                jobs,
                written_state: (status, site.clone()),
                ..WorkUnitState::default()
            };
            let place = units.list.len() as u32 + 1;
            for job in unit.jobs() {
                units.unit_of_job[job as usize] = place;
                // A failure that counts for nothing keeps nothing from being complete.
                let counts_for_nothing = self.status(job).is_unsuccessful() && self.ignored.contains(&job);
                let status = if counts_for_nothing { JobStatus::Completed } else { self.status(job) };
                unit.tally.count_job(status, true);
                if self.demand(job).location.elects {
                    unit.elector = Some(job);
                    unit.has_begun = is_begun(status);
                }
            }
            let elected = unit.elector.is_none_or(|job| self.status(job) == JobStatus::Completed);
            unit.site = site.filter(|_| elected);
            units.list.push(unit);
        }
        self.units = units;
        for place in 0..self.units.list.len() {
            self.move_jobs_to_site(place);
        }
    }

    /// The unit's jobs, but for its elector, run where the unit is.
    fn move_jobs_to_site(&mut self, place: usize) {
        let unit = &self.units.list[place];
        let (Some(site), elector, jobs) = (unit.site.clone(), unit.elector, unit.jobs()) else { return };
        // Many in a row are of one kind.
        let mut last = None;
        for job in jobs.filter(|job| Some(*job) != elector) {
            let from = self.demand_of_job[job as usize];
            let to = match last {
                Some((same, to)) if same == from => to,
                _ => self.demand_at_site(from, job, &site),
            };
            last = Some((from, to));
            self.change_demand(job, to);
        }
    }

    fn demand_at_site(&mut self, lane: u32, job: u32, site: &str) -> u32 {
        let mut place = self.ready.demand(lane).location.clone();
        place.sites = vec![site.to_owned()];
        self.demand_number(self.class[job as usize], place)
    }

    fn change_demand(&mut self, job: u32, to: u32) {
        let from = self.assign_demand(job, to);
        let may_be_queued = from != to && self.status(job) == JobStatus::Ready && !self.ready.is_empty();
        if may_be_queued && self.ready.remove(job, from) {
            self.ready.push(job, to, self.priority[job as usize]);
        }
    }

    /// Says where a job is that was claimed before this was made, in case it elects.
    pub fn set_job_site(&mut self, job: u32, site: Option<&str>) {
        if let Some(unit) = self.units.unit_of(job).filter(|unit| unit.elector == Some(job)) {
            unit.elector_site = site.map(str::to_owned);
        }
    }

    /// Jobs of units may be claimed that elect where their unit is.
    pub fn has_units(&self) -> bool {
        !self.units.is_empty()
    }

    /// A job has moved, and that stands in `changes`: what follows for its unit stands there next.
    pub(super) fn push_unit_changes(&mut self, job: u32, changes: &mut Vec<WorkflowChange>) {
        if self.units.is_empty() {
            return;
        }
        let is_complete = self.status(job) == JobStatus::Completed;
        let Some(unit) = self.units.unit_of(job) else { return };
        if unit.elector == Some(job) && is_complete && unit.site.is_none() {
            unit.site = unit.elector_site.take();
            let place = self.units.unit_of_job[job as usize] as usize - 1;
            self.move_jobs_to_site(place);
        }
        changes.extend(self.units.unit_of(job).and_then(WorkUnitState::pending_change));
    }

    /// The run goes on: whatever the books say of units is put right where it is not how their jobs stand.
    pub fn reconcile_units(&mut self, changes: &mut Vec<WorkflowChange>) {
        changes.extend(self.units.list.iter_mut().filter_map(WorkUnitState::pending_change));
    }

    /// What it means for units that these jobs go back ([`Board::plan_again`]).
    pub fn unit_changes_after(&self, changes: &[WorkflowChange]) -> Vec<WorkflowChange> {
        if self.units.is_empty() {
            return Vec::new();
        }
        let mut units = self.units.clone();
        let mut touched = Vec::new();
        for change in changes {
            let (id, from, to) = match *change {
                WorkflowChange::Retry { job, from, .. } => (job, from, JobStatus::Ready),
                WorkflowChange::Reset { job, from, .. } => (job, from, JobStatus::Uninitialized),
                _ => continue,
            };
            if let Some(job) = self.job_index(id).filter(|job| units.has_job(*job)) {
                units.on_job_moved(job, from, to);
                touched.push(units.unit_of_job[job as usize] as usize - 1);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        touched.into_iter().filter_map(|place| units.list[place].pending_change()).collect()
    }
}

impl JobTable {
    /// As it will be once this is written.
    pub(crate) fn apply_unit_change(&mut self, change: &WorkUnitChange) {
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
            (&[S::Ready, S::Blocked][..], WorkUnitStatus::Waiting),
            (&[S::Uninitialized, S::Disabled], WorkUnitStatus::Waiting),
            (&[S::Pending, S::Blocked], WorkUnitStatus::Active),
            (&[S::Completed, S::Ready], WorkUnitStatus::Active),
            (&[S::Completed, S::PendingFailed], WorkUnitStatus::Active),
            (&[S::Failed, S::Blocked], WorkUnitStatus::Active),
            (&[S::Completed, S::Completed], WorkUnitStatus::Completed),
            (&[S::Completed, S::Disabled], WorkUnitStatus::Completed),
            (&[S::Completed, S::Failed], WorkUnitStatus::Failed),
            (&[S::Terminated, S::Canceled], WorkUnitStatus::Failed),
            (&[S::Completed, S::Canceled], WorkUnitStatus::Canceled),
        ] {
            let mut tally = WorkUnitCounts::default();
            for status in jobs {
                tally.count_job(*status, true);
            }
            assert_eq!(tally.status(), expected, "{jobs:?}");
            for status in jobs {
                tally.count_job(*status, false);
            }
            assert_eq!(tally, WorkUnitCounts::default(), "{jobs:?}");
        }
    }
}
