//! Job limits: maximum numbers of claimed jobs by label, and of active work units.

use super::WorkflowState;
use super::work_units::ActiveUnitsChange;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use windlass_types::JobStatus;

/// The limits of the ready queue.
#[derive(Clone, Debug, Default)]
pub(super) struct JobLimits {
    limits: FxHashMap<String, u32>,
    /// Counts electing jobs; their units count until they end.
    unit_limit: Option<u32>,
}

impl JobLimits {
    fn is_none(&self) -> bool {
        self.unit_limit.is_none() && self.limits.is_empty()
    }
}

impl WorkflowState {
    /// Sets the limits of claimed jobs by name, and of active units.
    pub fn set_limits(&mut self, limits: &BTreeMap<String, u32>, max_units: Option<u32>) {
        let add_limit = |(name, most): (&String, &u32)| (name.clone(), self.ready.add_limit(*most));
        self.job_limits.limits = limits.iter().map(add_limit).collect();
        self.job_limits.unit_limit =
            max_units.filter(|_| self.has_units()).map(|most| self.ready.add_limit(most));
        if self.job_limits.is_none() {
            return;
        }
        for demand in 0..self.ready.demand_count() {
            self.apply_limits(demand);
        }
        for job in self.held_jobs().collect::<Vec<_>>() {
            let limit =
                self.demand(job).location.limit.as_ref().and_then(|limit| self.job_limits.limits.get(limit));
            if let Some(&limit) = limit {
                self.ready.enter_limit(limit);
            }
        }
        if let Some(limit) = self.job_limits.unit_limit {
            (0..self.units.active_count()).for_each(|_| self.ready.enter_limit(limit));
        }
    }

    /// Applies the limits of its location to a new class.
    pub(super) fn apply_limits(&mut self, demand: u32) {
        if self.job_limits.is_none() {
            return;
        }
        let place = &self.ready.demand(demand).location;
        let limit = place.limit.as_ref().and_then(|limit| self.job_limits.limits.get(limit)).copied();
        let units = self.job_limits.unit_limit.filter(|_| place.elects);
        for limit in limit.into_iter().chain(units) {
            self.ready.apply_limit(demand, limit);
        }
    }

    /// Updates the counts after a transition. Claims were counted before.
    pub(super) fn update_limits(&mut self, job: u32, from: JobStatus, to: JobStatus) {
        let change = if self.units.is_empty() {
            ActiveUnitsChange::Unchanged
        } else {
            self.units.on_job_moved(job, from, to)
        };
        if self.job_limits.is_none() {
            return;
        }
        if from.is_active() && !to.is_active() {
            // A unit counts for longer than its electing job.
            let stays = self.job_limits.unit_limit.filter(|_| self.units.has_job(job));
            self.ready.leave_limits_except(self.demand_of_job[job as usize], stays);
        }
        if let (Some(limit), ActiveUnitsChange::Decreased) = (self.job_limits.unit_limit, change) {
            self.ready.leave_limit(limit);
        }
    }

    /// Whether it is ready, and only a limit prevents the claim.
    pub fn is_held_by_limit(&self, job: u32) -> bool {
        self.status(job) == JobStatus::Ready && !self.ready.is_open(self.demand_of_job[job as usize])
    }
}
