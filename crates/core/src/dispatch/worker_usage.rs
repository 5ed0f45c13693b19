//! What one worker holds: what runs there, and what waits in its queue.

use super::demand::{JobDemand, LocationConstraint, WorkerSelector};
use super::ready_queue::{JobFit, ReadyQueue};
use super::resource_pool::{NodePlacement, Pool};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;
use windlass_types::{Capacity, JobId, Resources};

/// How a [`Mirror`] names jobs: by their number on one board, or by their id where there are several boards.
pub trait JobHandle: Copy + Eq + Hash {
    fn from_job(job: u32, id: JobId) -> Self;
}

impl JobHandle for u32 {
    fn from_job(job: u32, _: JobId) -> Self {
        job
    }
}

impl JobHandle for JobId {
    fn from_job(_: u32, id: JobId) -> Self {
        id
    }
}

/// How many jobs to take at once.
#[derive(Clone, Copy, Debug)]
pub struct ClaimLimits {
    /// No more than this, so that others get a share.
    pub max_jobs: usize,
    /// So many are to wait in the worker's queue so that it need not wait for us.
    pub queue_ahead: usize,
}

/// What one worker holds, as the engine sees it: what runs, and what waits in the worker's own queue.
///
/// The worker starts its queue strictly in order, each as soon as it fits; this mirror applies the same rule to the same
/// sequence of reports.
#[derive(Clone, Debug)]
pub struct WorkerUsage<K = u32> {
    pool: Pool,
    placements: FxHashMap<K, (NodePlacement, Resources)>,
    queue: VecDeque<(K, Resources)>,
    /// `None`: as long as it takes.
    time_left: Option<Duration>,
    selector: WorkerSelector,
}

impl WorkerUsage {
    pub fn new(capacity: Capacity) -> Self {
        Self::with_selector(capacity, WorkerSelector::default())
    }

    /// Takes jobs for this worker: all that fit now, and `ahead` more to wait in its queue.
    pub fn take_jobs(&mut self, ready: &mut ReadyQueue, ahead: usize) -> Vec<u32> {
        self.take_jobs_within(ready, ClaimLimits { max_jobs: usize::MAX, queue_ahead: ahead }, |job| job)
    }
}

impl<K: JobHandle> WorkerUsage<K> {
    pub fn with_selector(capacity: Capacity, selector: WorkerSelector) -> Self {
        let pool = Pool::new(capacity);
        Self { pool, placements: FxHashMap::default(), queue: VecDeque::new(), time_left: None, selector }
    }

    /// From now on only jobs are taken that do not ask for more time than this.
    pub fn limit_time(&mut self, left: impl Into<Option<Duration>>) {
        self.time_left = left.into();
    }

    /// Jobs that take too long are not for it.
    pub fn has_limited_time(&self) -> bool {
        self.time_left.is_some()
    }

    /// `None`: for good.
    pub const fn time_left(&self) -> Option<Duration> {
        self.time_left
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Jobs that wait in the worker's queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub fn running(&self) -> usize {
        self.placements.len()
    }

    pub fn is_idle(&self) -> bool {
        self.placements.is_empty() && self.queue.is_empty()
    }

    /// Nothing more can start now, so nobody need look through what is ready.
    pub fn is_full(&self) -> bool {
        self.pool.is_exhausted() || !self.queue.is_empty()
    }

    pub fn held_jobs(&self) -> impl Iterator<Item = K> + '_ {
        self.placements.keys().copied().chain(self.queue.iter().map(|(job, _)| *job))
    }

    /// Whether the job has got what it asked for, as far as can be told from here, and does not wait for it.
    pub fn is_running(&self, job: K) -> bool {
        self.placements.contains_key(&job)
    }

    /// What a job counts as here: where a number of jobs at once was given, one that asked for nothing takes only its
    /// place.
    fn effective_resources(&self, demand: &JobDemand) -> Resources {
        let uncounted = !demand.is_explicit && self.pool.limits_job_count();
        if uncounted { Resources::DEFAULT_WITHOUT_CPUS } else { demand.resources }
    }

    /// Where the worker is, if it is at a site.
    pub fn site(&self) -> Option<&str> {
        self.selector.site()
    }

    /// Whether the worker takes jobs that elect its site.
    pub const fn set_accepts_elections(&mut self, may: bool) {
        self.selector.set_accepts_elections(may);
    }

    /// From now on nothing is taken that is meant for another scheduler than this; `None`: whatever it is meant for.
    pub const fn prefer_scheduler(&mut self, scheduler: Option<Option<i64>>) {
        self.selector.prefer_scheduler(scheduler);
    }

    /// Jobs that belong there are for it.
    pub fn accepts_location(&self, place: &LocationConstraint) -> bool {
        self.selector.accepts_location(place)
    }

    /// It may start here at some time, when there is room.
    pub fn can_take(&self, demand: &JobDemand) -> bool {
        self.selector.accepts_location(&demand.location) && self.has_room_for(demand)
    }

    /// The same, if it is taken for granted that elections are taken here one day.
    pub fn could_ever_take(&self, demand: &JobDemand) -> bool {
        self.selector.could_accept_location(&demand.location) && self.has_room_for(demand)
    }

    /// If nothing else were there.
    fn has_room_for(&self, demand: &JobDemand) -> bool {
        ends_in_time(&demand.resources, self.time_left)
            && self.pool.could_hold(&self.effective_resources(demand))
    }

    /// Takes one job that is to run with nothing beside it.
    pub fn take_alone(&mut self, job: K, demand: &JobDemand) -> bool {
        let asked = self.effective_resources(demand);
        let may_start = self.is_idle() && self.can_take(demand);
        let placement = if may_start { self.pool.place(&asked) } else { None };
        let Some(placement) = placement else { return false };
        self.placements.insert(job, (placement, asked));
        true
    }

    /// A job that is known to be there, whether there is room for it or not.
    pub fn take_unchecked(&mut self, job: K, demand: &JobDemand) {
        let asked = self.effective_resources(demand);
        match self.pool.place(&asked) {
            Some(placement) => _ = self.placements.insert(job, (placement, asked)),
            None => self.queue.push_back((job, asked)),
        }
    }

    /// The same as [`Mirror::fill`], within limits; `name` says what a job is called here.
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
                    // What waits in the queue must not wait for more than the next end: it would hold up all behind it.
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

    /// The worker is done with `job`, or handed it back.
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

/// `asked` fits into what `held` will free.
fn covers(held: &Resources, asked: &Resources) -> bool {
    held.nodes == asked.nodes
        && held.cpus >= asked.cpus
        && held.memory >= asked.memory
        && held.gpus >= asked.gpus
}

fn ends_in_time(asked: &Resources, left: Option<Duration>) -> bool {
    left.is_none_or(|left| asked.runtime.is_none_or(|runtime| runtime <= left))
}
