//! Claims of ready jobs: in order, or alone.

use super::{JobTable, WorkflowState};
use crate::change::WorkflowChange;
use crate::dispatch::{
    ClaimLimits, JobDemand, LocationConstraint, ReadyQueue, UsageJobKey, WorkerSelector, WorkerUsage,
};
use crate::job_state::JobStateEvent;
use rustc_hash::FxHashMap;
use windlass_types::{JobStatus, Resources, WorkerId};

/// The demands of the ready queue by class of the request and location.
type DemandIndex = FxHashMap<(u32, LocationConstraint), u32>;

/// Builds the ready queue of a table, and the demand of each job.
pub(super) fn build_ready_queue(table: &JobTable) -> (ReadyQueue, DemandIndex, Vec<u32>) {
    let nowhere = LocationConstraint::default();
    let demand = |(class, resources): (u32, &Resources)| make_demand(class, *resources, nowhere.clone());
    let demands: Vec<JobDemand> = (0..).zip(&table.requirements).map(demand).collect();
    let mut ready = ReadyQueue::new(&demands);
    let mut demand_index: DemandIndex =
        (0..demands.len() as u32).map(|class| ((class, LocationConstraint::default()), class)).collect();
    if table.place.is_empty() {
        return (ready, demand_index, table.class.clone());
    }
    // By numbers first: a million jobs need not compare their labels.
    let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let demand_of_job = table.class.iter().zip(&table.place).enumerate().map(|(index, (&class, &place))| {
        *known.entry((class, place)).or_insert_with(|| {
            let resources = table.requirements[class as usize];
            find_or_add_demand(&mut ready, &mut demand_index, class, resources, table.location_of(index))
        })
    });
    let demand_of_job = demand_of_job.collect();
    (ready, demand_index, demand_of_job)
}

fn find_or_add_demand(
    ready: &mut ReadyQueue,
    demand_index: &mut DemandIndex,
    class: u32,
    resources: Resources,
    place: LocationConstraint,
) -> u32 {
    let new = |(class, place): &(u32, LocationConstraint)| {
        ready.add_demand(make_demand(*class, resources, place.clone()))
    };
    *demand_index.entry((class, place)).or_insert_with_key(new)
}

/// Class 0 is for jobs without a request.
fn make_demand(class: u32, resources: Resources, place: LocationConstraint) -> JobDemand {
    JobDemand { resources, is_explicit: class != 0, location: place }
}

impl WorkflowState {
    /// Withholds all jobs that the only worker can never run because of their request or location: they are not
    /// claimed and block no others. Returns them.
    pub fn withhold_unrunnable(&mut self, usage: &WorkerUsage) -> Vec<u32> {
        let never = |demand: &JobDemand| {
            !usage.pool().could_hold(&demand.resources) || !usage.accepts_location(&demand.location)
        };
        let is_unrunnable: Vec<bool> =
            (0..self.ready.demand_count()).map(|demand| never(self.ready.demand(demand))).collect();
        if !is_unrunnable.contains(&true) {
            return Vec::new();
        }
        let limit = self.ready.add_limit(0);
        for demand in (0u32..).zip(&is_unrunnable).filter_map(|(demand, kept)| kept.then_some(demand)) {
            self.ready.apply_limit(demand, limit);
        }
        let is_kept = |job: &u32| {
            !self.status(*job).is_settled() && is_unrunnable[self.demand_of_job[*job as usize] as usize]
        };
        (0..self.ids.len() as u32).filter(is_kept).collect()
    }

    pub(super) fn demand_number(&mut self, class: u32, place: LocationConstraint) -> u32 {
        let resources = self.requirements[class as usize];
        let before = self.ready.demand_count();
        let demand = find_or_add_demand(&mut self.ready, &mut self.demand_index, class, resources, place);
        if demand >= before {
            self.apply_limits(demand);
        }
        demand
    }

    /// Returns the request and location of a job.
    pub fn demand(&self, job: u32) -> &JobDemand {
        self.ready.demand(self.demand_of_job[job as usize])
    }

    /// Returns how many jobs may be claimed, including those that run alone.
    pub fn ready_count(&self) -> usize {
        self.ready.len() + self.isolated_waiting.len()
    }

    /// Returns the demands of ready jobs with the number of jobs; a demand may occur more than once.
    pub fn ready_by_demand(&self) -> impl Iterator<Item = (&JobDemand, usize)> {
        self.ready.by_demand().chain(self.isolated_waiting.iter().map(|&job| (self.demand(job), 1)))
    }

    /// Returns the priority of the next job for this worker selector; `None` if it may claim nothing.
    pub fn top_priority(&self, selector: &WorkerSelector) -> Option<i32> {
        if self.rejects_claims() { None } else { self.ready.top_priority(selector) }
    }

    /// Whether a job is running alone.
    pub fn has_isolated_running(&self) -> bool {
        !self.isolated_running.is_empty()
    }

    /// Whether this job is running alone.
    pub fn is_running_isolated(&self, job: u32) -> bool {
        self.isolated_running.contains(&job)
    }

    /// Whether jobs wait to run alone.
    pub fn has_isolated_waiting(&self) -> bool {
        self.may_run_isolated() && !self.rejects_claims()
    }

    /// The same, considering what blocks all claims.
    pub(super) fn may_run_isolated(&self) -> bool {
        self.isolated_waiting.iter().any(|job| self.ready.is_open(self.demand_of_job[*job as usize]))
    }

    /// Whether a job that waits to run alone could use this worker.
    pub fn could_claim_isolated<K: UsageJobKey>(&self, usage: &WorkerUsage<K>) -> bool {
        let could = |job: &u32| {
            self.ready.is_open(self.demand_of_job[*job as usize]) && usage.can_take(self.demand(*job))
        };
        !self.rejects_claims() && self.isolated_waiting.iter().any(could)
    }

    /// Marks a ready or held job as a crash suspect: it runs alone.
    pub fn isolate_job(&mut self, job: u32) {
        if self.delayed.set_isolated(job, true) {
            return;
        }
        if self.status(job) == JobStatus::Ready {
            self.remove_from_queues(job);
            self.isolated_waiting.push_back(job);
        } else if self.status(job).is_active() && !self.is_running_isolated(job) {
            self.isolated_running.push(job);
        }
    }

    /// Clears the suspicion. A running attempt does not change.
    pub fn clear_isolation(&mut self, job: u32) {
        if self.delayed.set_isolated(job, false) {
            return;
        }
        if let Some(place) = self.isolated_waiting.iter().position(|waiting| *waiting == job) {
            self.isolated_waiting.remove(place);
            self.enqueue(job);
        }
    }

    /// Ends its run alone, if any.
    pub(super) fn finish_isolated_run(&mut self, job: u32) -> bool {
        let tried = self.isolated_running.iter().position(|tried| *tried == job);
        tried.map(|tried| self.isolated_running.swap_remove(tried)).is_some()
    }

    /// Claims jobs for a worker; excludes jobs that run alone.
    pub fn claim_ready<K: UsageJobKey>(
        &mut self,
        worker: WorkerId,
        usage: &mut WorkerUsage<K>,
        want: ClaimLimits,
        changes: &mut Vec<WorkflowChange>,
    ) -> Vec<u32> {
        if self.rejects_claims() {
            return Vec::new();
        }
        let ids = &self.ids;
        let taken = usage.take_jobs_within(&mut self.ready, want, |job| K::from_job(job, ids[job as usize]));
        self.record_claims(worker, &taken, usage.site(), changes);
        taken
    }

    /// Claims a job that is to run alone, if there is one and the worker is idle.
    pub fn claim_isolated<K: UsageJobKey>(
        &mut self,
        worker: WorkerId,
        usage: &mut WorkerUsage<K>,
        changes: &mut Vec<WorkflowChange>,
    ) -> Option<u32> {
        if self.rejects_claims() {
            return None;
        }
        let takes = |job: &u32| {
            self.ready.is_open(self.demand_of_job[*job as usize])
                && usage.take_alone(K::from_job(*job, self.ids[*job as usize]), self.demand(*job))
        };
        let position = self.isolated_waiting.iter().position(takes)?;
        let job = self.isolated_waiting.remove(position)?;
        self.isolated_running.push(job);
        self.ready.enter_limits(self.demand_of_job[job as usize]);
        self.record_claims(worker, &[job], usage.site(), changes);
        Some(job)
    }

    /// Claims the oldest jobs of the highest priority for a client that checks itself where they fit.
    pub fn claim_oldest(
        &mut self,
        worker: WorkerId,
        selector: &WorkerSelector,
        limit: usize,
        changes: &mut Vec<WorkflowChange>,
    ) -> Vec<u32> {
        if self.rejects_claims() {
            return Vec::new();
        }
        let oldest = std::iter::from_fn(|| self.ready.pop_oldest(selector));
        let taken: Vec<u32> = oldest.take(limit).collect();
        self.record_claims(worker, &taken, selector.site(), changes);
        taken
    }

    /// `site`: the site of the worker.
    fn record_claims(
        &mut self,
        worker: WorkerId,
        taken: &[u32],
        site: Option<&str>,
        changes: &mut Vec<WorkflowChange>,
    ) {
        for &job in taken {
            self.apply_transition(job, JobStateEvent::Claim);
            changes.push(WorkflowChange::Claim {
                job: self.ids[job as usize],
                attempt: self.attempt[job as usize],
                worker,
            });
            if self.has_units() {
                self.set_job_site(job, site);
                self.push_unit_changes(job, changes);
            }
        }
    }
}
