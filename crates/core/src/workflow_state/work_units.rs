//! Work units of a workflow: their jobs, sites, and states.
//!
//! A unit's *elector* is the job that elects its site: where it completes, the unit's other jobs run. A unit is
//! active from the claim of its elector until all its jobs have ended; the number of active units may be
//! limited.

use super::{JobTable, WorkflowState};
use crate::change::{WorkUnitChange, WorkflowChange};
use serde::{Deserialize, Serialize};
use windlass_types::{JobStatus, WorkUnitStatus};

/// A work unit as stored in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkUnitRow {
    pub number: u32,
    pub status: WorkUnitStatus,
    pub site: Option<String>,
    /// Its jobs by number: ranges as first and count, ascending.
    pub jobs: Vec<(u32, u32)>,
}

/// All units of a workflow; without units nothing here has a cost.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkUnits {
    list: Vec<WorkUnitState>,
    /// For each job the index of its unit in `list`, plus one; empty without units.
    unit_of_job: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct WorkUnitState {
    number: u32,
    jobs: Vec<(u32, u32)>,
    elector: Option<u32>,
    /// The elector was claimed, and not returned.
    has_begun: bool,
    tally: UnitJobCounts,
    site: Option<String>,
    /// The site of its elector.
    elector_site: Option<String>,
    /// What is stored once all decided changes are written.
    written_state: (WorkUnitStatus, Option<String>),
}

/// Numbers of jobs of a unit by state, from which its state follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitJobCounts {
    open: u32,
    begun: u32,
    failed: u32,
    canceled: u32,
}

impl UnitJobCounts {
    /// Counts one more or one less job in this state.
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

/// Whether an attempt of it was assigned and not returned.
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

    /// Returns the change that is not stored yet.
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

/// Effect of a job's transition on the number of active units.
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

    /// Returns the jobs of incomplete units at one of these sites.
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
    /// Loads the units of a table, and sets the sites of their jobs.
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
                // An ignored failure does not prevent completion.
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

    /// Sets the site of the unit's jobs, except for its elector.
    fn move_jobs_to_site(&mut self, place: usize) {
        let unit = &self.units.list[place];
        let (Some(site), elector, jobs) = (unit.site.clone(), unit.elector, unit.jobs()) else { return };
        // Consecutive jobs are often of one class.
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

    fn demand_at_site(&mut self, demand: u32, job: u32, site: &str) -> u32 {
        let mut place = self.ready.demand(demand).location.clone();
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

    /// Sets the site of a job that was claimed before the workflow was loaded, in case it elects.
    pub fn set_job_site(&mut self, job: u32, site: Option<&str>) {
        if let Some(unit) = self.units.unit_of(job).filter(|unit| unit.elector == Some(job)) {
            unit.elector_site = site.map(str::to_owned);
        }
    }

    /// Whether jobs that elect the site of their unit may be claimed.
    pub fn has_units(&self) -> bool {
        !self.units.is_empty()
    }

    /// After a transition of a job in `changes`: adds the resulting change of its unit.
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

    /// Corrects stored states of units that differ from those of their jobs, when the run resumes.
    pub fn reconcile_units(&mut self, changes: &mut Vec<WorkflowChange>) {
        changes.extend(self.units.list.iter_mut().filter_map(WorkUnitState::pending_change));
    }

    /// Returns the changes of units caused by resetting these jobs ([`Self::plan_rerun`]).
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
    /// The unit after this change is stored.
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
    fn work_unit_status_follows_from_its_jobs() {
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
            let mut tally = UnitJobCounts::default();
            for status in jobs {
                tally.count_job(*status, true);
            }
            assert_eq!(tally.status(), expected, "{jobs:?}");
            for status in jobs {
                tally.count_job(*status, false);
            }
            assert_eq!(tally, UnitJobCounts::default(), "{jobs:?}");
        }
    }
}
