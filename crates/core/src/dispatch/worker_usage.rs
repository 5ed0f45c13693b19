//! Jobs of one worker: running and queued.

use super::demand::{JobDemand, LocationConstraint, WorkerSelector};
use super::ready_queue::{JobFit, ReadyQueue};
use super::resource_pool::{NodePlacement, NodeResourcePool};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;
use windlass_types::{Capacity, JobId, Resources};

/// Identifies a job in [`WorkerUsage`]: its number in one workflow state, or its id across several.
pub trait UsageJobKey: Copy + Eq + Hash {
    fn from_job(job: u32, id: JobId) -> Self;
}

impl UsageJobKey for u32 {
    fn from_job(job: u32, _: JobId) -> Self {
        job
    }
}

impl UsageJobKey for JobId {
    fn from_job(_: u32, id: JobId) -> Self {
        id
    }
}

/// How many jobs to take at once.
#[derive(Clone, Copy, Debug)]
pub struct ClaimLimits {
    /// At most this many, so that other workers get a share.
    pub max_jobs: usize,
    /// Jobs to keep in the worker's queue so that it need not wait for the scheduler.
    pub queue_ahead: usize,
}

/// The jobs of one worker as the scheduler sees them: running, and waiting in the worker's own queue.
///
/// The worker starts its queue strictly in order, each job as soon as it fits; this model applies the same rule
/// to the same sequence of reports.
#[derive(Clone, Debug)]
pub struct WorkerUsage<K = u32> {
    pool: NodeResourcePool,
    placements: FxHashMap<K, (NodePlacement, Resources)>,
    queue: VecDeque<(K, Resources)>,
    /// `None`: unlimited.
    time_left: Option<Duration>,
    selector: WorkerSelector,
}

impl WorkerUsage {
    pub fn new(capacity: Capacity) -> Self {
        Self::with_selector(capacity, WorkerSelector::default())
    }

    /// Takes jobs for this worker: all that fit now, and `ahead` more for its queue.
    pub fn take_jobs(&mut self, ready: &mut ReadyQueue, ahead: usize) -> Vec<u32> {
        self.take_jobs_within(ready, ClaimLimits { max_jobs: usize::MAX, queue_ahead: ahead }, |job| job)
    }
}

impl<K: UsageJobKey> WorkerUsage<K> {
    pub fn with_selector(capacity: Capacity, selector: WorkerSelector) -> Self {
        let pool = NodeResourcePool::new(capacity);
        Self { pool, placements: FxHashMap::default(), queue: VecDeque::new(), time_left: None, selector }
    }

    /// Accepts only jobs with at most this runtime from now on.
    pub fn limit_time(&mut self, left: impl Into<Option<Duration>>) {
        self.time_left = left.into();
    }

    /// Whether jobs with a long runtime are rejected.
    pub fn has_limited_time(&self) -> bool {
        self.time_left.is_some()
    }

    /// `None`: unlimited.
    pub const fn time_left(&self) -> Option<Duration> {
        self.time_left
    }

    pub fn pool(&self) -> &NodeResourcePool {
        &self.pool
    }

    /// Returns the number of jobs in the worker's queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub fn running(&self) -> usize {
        self.placements.len()
    }

    pub fn is_idle(&self) -> bool {
        self.placements.is_empty() && self.queue.is_empty()
    }

    /// Whether nothing more can start now, so that the ready queue need not be searched.
    pub fn is_full(&self) -> bool {
        self.pool.is_exhausted() || !self.queue.is_empty()
    }

    pub fn held_jobs(&self) -> impl Iterator<Item = K> + '_ {
        self.placements.keys().copied().chain(self.queue.iter().map(|(job, _)| *job))
    }

    /// Whether the job has its resources, according to this model, and is not queued.
    pub fn is_running(&self, job: K) -> bool {
        self.placements.contains_key(&job)
    }

    /// Returns the resources that a job counts with. Where the number of jobs is limited, a job without a
    /// request takes only one slot.
    fn effective_resources(&self, demand: &JobDemand) -> Resources {
        let uncounted = !demand.is_explicit && self.pool.limits_job_count();
        if uncounted { Resources::DEFAULT_WITHOUT_CPUS } else { demand.resources }
    }

    /// Returns the site of the worker, if any.
    pub fn site(&self) -> Option<&str> {
        self.selector.site()
    }

    /// Sets whether the worker accepts jobs that elect its site.
    pub const fn set_accepts_elections(&mut self, may: bool) {
        self.selector.set_accepts_elections(may);
    }

    /// Rejects jobs meant for another scheduler from now on; `None`: accepts all.
    pub const fn prefer_scheduler(&mut self, scheduler: Option<Option<i64>>) {
        self.selector.prefer_scheduler(scheduler);
    }

    /// Whether the worker accepts jobs of this location.
    pub fn accepts_location(&self, place: &LocationConstraint) -> bool {
        self.selector.accepts_location(place)
    }

    /// Whether the job may start here once there is room.
    pub fn can_take(&self, demand: &JobDemand) -> bool {
        self.selector.accepts_location(&demand.location) && self.has_room_for(demand)
    }

    /// Like [`Self::can_take`], assuming that elections are accepted at some time.
    pub fn could_ever_take(&self, demand: &JobDemand) -> bool {
        self.selector.could_accept_location(&demand.location) && self.has_room_for(demand)
    }

    /// Whether it would fit into the empty worker.
    fn has_room_for(&self, demand: &JobDemand) -> bool {
        ends_in_time(&demand.resources, self.time_left)
            && self.pool.could_hold(&self.effective_resources(demand))
    }

    /// Takes one job that is to run alone.
    pub fn take_alone(&mut self, job: K, demand: &JobDemand) -> bool {
        let asked = self.effective_resources(demand);
        let may_start = self.is_idle() && self.can_take(demand);
        let placement = if may_start { self.pool.place(&asked) } else { None };
        let Some(placement) = placement else { return false };
        self.placements.insert(job, (placement, asked));
        true
    }

    /// Adds a job that the worker already holds, whether it fits or not.
    pub fn take_unchecked(&mut self, job: K, demand: &JobDemand) {
        let asked = self.effective_resources(demand);
        match self.pool.place(&asked) {
            Some(placement) => _ = self.placements.insert(job, (placement, asked)),
            None => self.queue.push_back((job, asked)),
        }
    }

    /// Like [`Self::take_jobs`], within limits; `name` maps a job to its handle.
    pub fn take_jobs_within(
        &mut self,
        ready: &mut ReadyQueue,
        want: ClaimLimits,
        name: impl Fn(u32) -> K,
    ) -> Vec<u32> {
        let mut taken = Vec::new();
        while taken.len() < want.max_jobs && !self.is_full() {
            let mut placed = None;
            let job = ready.pop_fitting(|demand| {
                if !self.can_take(demand) {
                    return JobFit::Never;
                }
                let asked = self.effective_resources(demand);
                match self.pool.place(&asked) {
                    Some(placement) => {
                        placed = Some((placement, asked));
                        JobFit::Now
                    }
                    None => JobFit::Later,
                }
            });
            let (Some(job), Some(placed)) = (job, placed) else { break };
            self.placements.insert(name(job), placed);
            taken.push(job);
        }
        while taken.len() < want.max_jobs && self.queue.len() < want.queue_ahead {
            let mut asked = None;
            let job = ready.pop_fitting(|demand| {
                let resources = self.effective_resources(demand);
                asked = Some(resources);
                match () {
                    () if !self.can_take(demand) => JobFit::Never,
                    // A queued job must fit after the next end of a job: otherwise it blocks the whole queue.
                    () if self.placements.values().any(|(_, held)| covers(held, &resources)) => JobFit::Now,
                    () => JobFit::Later,
                }
            });
            let (Some(job), Some(asked)) = (job, asked) else { break };
            self.queue.push_back((name(job), asked));
            taken.push(job);
        }
        taken
    }

    /// The worker ended `job` or returned it.
    pub fn remove(&mut self, job: K) {
        match self.placements.remove(&job) {
            Some((placement, asked)) => self.pool.release(&placement, &asked),
            None => self.queue.retain(|(queued, _)| *queued != job),
        }
        while let Some((head, asked)) = self.queue.front().copied() {
            let Some(placement) = self.pool.place(&asked) else { break };
            self.placements.insert(head, (placement, asked));
            self.queue.pop_front();
        }
    }
}

/// Whether `asked` fits into what `held` will free.
fn covers(held: &Resources, asked: &Resources) -> bool {
    held.nodes == asked.nodes
        && held.cpus >= asked.cpus
        && held.memory >= asked.memory
        && held.gpus >= asked.gpus
}

fn ends_in_time(asked: &Resources, left: Option<Duration>) -> bool {
    left.is_none_or(|left| asked.runtime.is_none_or(|runtime| runtime <= left))
}
