//! What one worker holds: what runs there, and what waits in its queue.

use super::demand::{Demand, Place, Taste};
use super::pool::{Placement, Pool};
use super::queue::{Fit, ReadyQueue};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;
use windlass_types::{Capacity, JobId, Resources};

/// How a [`Mirror`] names jobs: by their number on one board, or by their id where there are several boards.
pub trait Handle: Copy + Eq + Hash {
    fn of(job: u32, id: JobId) -> Self;
}

impl Handle for u32 {
    fn of(job: u32, _: JobId) -> Self {
        job
    }
}

impl Handle for JobId {
    fn of(_: u32, id: JobId) -> Self {
        id
    }
}

/// How many jobs to take at once.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// No more than this, so that others get a share.
    pub most: usize,
    /// So many are to wait in the worker's queue so that it need not wait for us.
    pub ahead: usize,
}

/// What one worker holds, as the engine sees it: what runs, and what waits in the worker's own queue.
///
/// The worker starts its queue strictly in order, each as soon as it fits; this mirror applies the same rule to the same
/// sequence of reports.
#[derive(Clone, Debug)]
pub struct Mirror<K = u32> {
    pool: Pool,
    placed: FxHashMap<K, (Placement, Resources)>,
    queue: VecDeque<(K, Resources)>,
    /// `None`: as long as it takes.
    time_left: Option<Duration>,
    taste: Taste,
}

impl Mirror {
    pub fn new(capacity: Capacity) -> Self {
        Self::with_taste(capacity, Taste::default())
    }

    /// Takes jobs for this worker: all that fit now, and `ahead` more to wait in its queue.
    pub fn fill(&mut self, ready: &mut ReadyQueue, ahead: usize) -> Vec<u32> {
        self.fill_some(ready, Want { most: usize::MAX, ahead }, |job| job)
    }
}

impl<K: Handle> Mirror<K> {
    pub fn with_taste(capacity: Capacity, taste: Taste) -> Self {
        let pool = Pool::new(capacity);
        Self { pool, placed: FxHashMap::default(), queue: VecDeque::new(), time_left: None, taste }
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
        self.placed.len()
    }

    pub fn is_idle(&self) -> bool {
        self.placed.is_empty() && self.queue.is_empty()
    }

    /// Nothing more can start now, so nobody need look through what is ready.
    pub fn is_full(&self) -> bool {
        self.pool.is_exhausted() || !self.queue.is_empty()
    }

    pub fn held(&self) -> impl Iterator<Item = K> + '_ {
        self.placed.keys().copied().chain(self.queue.iter().map(|(job, _)| *job))
    }

    /// Whether the job has got what it asked for, as far as can be told from here, and does not wait for it.
    pub fn is_running(&self, job: K) -> bool {
        self.placed.contains_key(&job)
    }

    /// What a job counts as here: where a number of jobs at once was given, one that asked for nothing takes only its
    /// place.
    fn counts_as(&self, demand: &Demand) -> Resources {
        let uncounted = !demand.is_named && self.pool.counts_jobs();
        if uncounted { Resources::UNCOUNTED } else { demand.resources }
    }

    /// Where the worker is, if it is at a site.
    pub fn site(&self) -> Option<&str> {
        self.taste.site()
    }

    /// Whether the worker takes jobs that elect its site.
    pub const fn take_elections(&mut self, may: bool) {
        self.taste.take_elections(may);
    }

    /// From now on nothing is taken that is meant for another scheduler than this; `None`: whatever it is meant for.
    pub const fn prefer_scheduler(&mut self, scheduler: Option<Option<i64>>) {
        self.taste.prefer_scheduler(scheduler);
    }

    /// Jobs that belong there are for it.
    pub fn suits(&self, place: &Place) -> bool {
        self.taste.suits(place)
    }

    /// It may start here at some time, when there is room.
    pub fn could_take(&self, demand: &Demand) -> bool {
        self.taste.suits(&demand.place) && self.has_room_for(demand)
    }

    /// The same, if it is taken for granted that elections are taken here one day.
    pub fn could_ever_take(&self, demand: &Demand) -> bool {
        self.taste.belongs_to(&demand.place) && self.has_room_for(demand)
    }

    /// If nothing else were there.
    fn has_room_for(&self, demand: &Demand) -> bool {
        ends_in_time(&demand.resources, self.time_left) && self.pool.could_hold(&self.counts_as(demand))
    }

    /// Takes one job that is to run with nothing beside it.
    pub fn take_alone(&mut self, job: K, demand: &Demand) -> bool {
        let asked = self.counts_as(demand);
        let may_start = self.is_idle() && self.could_take(demand);
        let placement = if may_start { self.pool.place(&asked) } else { None };
        let Some(placement) = placement else { return false };
        self.placed.insert(job, (placement, asked));
        true
    }

    /// A job that is known to be there, whether there is room for it or not.
    pub fn take_anyway(&mut self, job: K, demand: &Demand) {
        let asked = self.counts_as(demand);
        match self.pool.place(&asked) {
            Some(placement) => _ = self.placed.insert(job, (placement, asked)),
            None => self.queue.push_back((job, asked)),
        }
    }

    /// The same as [`Mirror::fill`], within limits; `name` says what a job is called here.
    pub fn fill_some(&mut self, ready: &mut ReadyQueue, want: Want, name: impl Fn(u32) -> K) -> Vec<u32> {
        let mut taken = Vec::new();
        while taken.len() < want.most && !self.is_full() {
            let mut placed = None;
            let job = ready.pop_fitting(|demand| {
                if !self.could_take(demand) {
                    return Fit::Never;
                }
                let asked = self.counts_as(demand);
                match self.pool.place(&asked) {
                    Some(placement) => {
                        placed = Some((placement, asked));
                        Fit::Now
                    }
                    None => Fit::Later,
                }
            });
            let (Some(job), Some(placed)) = (job, placed) else { break };
            self.placed.insert(name(job), placed);
            taken.push(job);
        }
        while taken.len() < want.most && self.queue.len() < want.ahead {
            let mut asked = None;
            let job = ready.pop_fitting(|demand| {
                let resources = self.counts_as(demand);
                asked = Some(resources);
                match () {
                    () if !self.could_take(demand) => Fit::Never,
                    // What waits in the queue must not wait for more than the next end: it would hold up all behind it.
                    () if self.placed.values().any(|(_, held)| covers(held, &resources)) => Fit::Now,
                    () => Fit::Later,
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
        match self.placed.remove(&job) {
            Some((placement, asked)) => self.pool.release(&placement, &asked),
            None => self.queue.retain(|(queued, _)| *queued != job),
        }
        while let Some((head, asked)) = self.queue.front().copied() {
            let Some(placement) = self.pool.place(&asked) else { break };
            self.placed.insert(head, (placement, asked));
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
