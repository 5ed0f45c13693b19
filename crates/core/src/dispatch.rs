//! Which ready job starts next, and on what: priorities, packing, backfill.
//!
//! The order is that of the Torc contract: priority first, then the hardest to place (GPUs, runtime, memory, CPUs), then
//! age. A job that does not fit now is passed over by those that do (backfill), but not for ever: after
//! [`BYPASS_LIMIT`] starts in front of it nothing is started until it fits.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::hash::Hash;
use std::time::Duration;
use windlass_types::{Bytes, Capacity, JobId, Resources};

use rustc_hash::FxHashMap;

/// How many jobs may start in front of one that would be next but does not fit yet.
pub const BYPASS_LIMIT: u32 = 64;

/// The ready jobs, by what they ask for.
#[derive(Clone, Debug)]
pub struct ReadyQueue {
    classes: Vec<Class>,
    /// Classes with ready jobs, the best first.
    order: BTreeSet<(Reverse<i32>, u32)>,
    /// Class of each rank in `order`.
    by_rank: Vec<u32>,
    len: usize,
    /// The job at the front that did not fit, and how often others went first.
    bypassed: Option<(u32, u32)>,
}

/// What the jobs of a class have in common, as far as it matters where they may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub resources: Resources,
    /// Somebody asked for them: they are no default.
    pub is_named: bool,
    pub place: Place,
}

/// Where the jobs of a class belong, apart from what they ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Sorted, each once.
    pub labels: Vec<String>,
    /// The scheduler whose nodes they are meant for.
    pub scheduler: Option<i64>,
}

/// Which jobs somebody takes, apart from whether they fit. The default takes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taste {
    /// Sorted. With `None` labels do not matter.
    labels: Option<Vec<String>>,
    schedulers: Schedulers,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Schedulers {
    #[default]
    Any,
    /// Jobs that are meant for no scheduler, or for this one.
    Mine(Option<i64>),
}

impl Schedulers {
    fn take(self, meant_for: Option<i64>) -> bool {
        match self {
            Self::Any => true,
            Self::Mine(mine) => meant_for.is_none() || meant_for == mine,
        }
    }
}

impl Taste {
    /// Jobs with labels only if it has all of them, jobs without labels only if it has none.
    #[must_use]
    pub fn with_labels(mut self, mut labels: Vec<String>) -> Self {
        labels.sort_unstable();
        labels.dedup();
        self.labels = Some(labels);
        self
    }

    /// No jobs that are meant for another scheduler.
    #[must_use]
    pub fn of_scheduler(mut self, scheduler: Option<i64>) -> Self {
        self.schedulers = Schedulers::Mine(scheduler);
        self
    }

    pub fn suits(&self, place: &Place) -> bool {
        let labels = self.labels.as_ref().is_none_or(|mine| {
            place.labels.is_empty() == mine.is_empty()
                && place.labels.iter().all(|label| mine.binary_search(label).is_ok())
        });
        labels && self.schedulers.take(place.scheduler)
    }
}

/// Whether a job fits on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Now,
    /// When something else has ended.
    Later,
    /// Not on this worker: others may pass it without owing it anything.
    Never,
}

#[derive(Clone, Debug)]
struct Class {
    demand: Demand,
    rank: u32,
    heap: BinaryHeap<(i32, Reverse<u32>)>,
}

impl From<Resources> for Demand {
    /// Asked for, and at home anywhere.
    fn from(resources: Resources) -> Self {
        Self { resources, is_named: true, place: Place::default() }
    }
}

impl From<Demand> for Class {
    fn from(demand: Demand) -> Self {
        Self { demand, rank: 0, heap: BinaryHeap::new() }
    }
}

impl ReadyQueue {
    /// `classes`: what each class of jobs asks for.
    pub fn new<D: Clone + Into<Demand>>(classes: &[D]) -> Self {
        let classes = classes.iter().map(|class| Class::from(class.clone().into())).collect();
        let mut queue = Self { classes, order: BTreeSet::new(), by_rank: Vec::new(), len: 0, bypassed: None };
        queue.rank_classes();
        queue
    }

    /// One more class, for jobs that come later. Returns its number.
    pub fn add_class(&mut self, demand: impl Into<Demand>) -> u32 {
        self.classes.push(demand.into().into());
        self.rank_classes();
        self.classes.len() as u32 - 1
    }

    pub fn demand(&self, class: u32) -> &Demand {
        &self.classes[class as usize].demand
    }

    /// Of the job that is next for somebody with this taste.
    pub fn top_priority(&self, taste: &Taste) -> Option<i32> {
        let suits = |rank: u32| taste.suits(&self.demand(self.by_rank[rank as usize]).place);
        self.order.iter().find(|(_, rank)| suits(*rank)).map(|(Reverse(priority), _)| *priority)
    }

    /// The hardest to place first.
    fn rank_classes(&mut self) {
        self.by_rank = (0..self.classes.len() as u32).collect();
        self.by_rank.sort_by_key(|&class| {
            let asked = self.classes[class as usize].demand.resources;
            (
                Reverse(asked.gpus),
                Reverse(asked.runtime.unwrap_or(Resources::UNSAID_RUNTIME)),
                Reverse(asked.memory),
                Reverse(asked.cpus),
                class,
            )
        });
        self.order.clear();
        for (rank, &class) in (0..).zip(&self.by_rank) {
            let class = &mut self.classes[class as usize];
            class.rank = rank;
            self.order.extend(class.heap.peek().map(|(priority, _)| (Reverse(*priority), rank)));
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, job: u32, class: u32, priority: i32) {
        let class = &mut self.classes[class as usize];
        let top_before = class.heap.peek().map(|(p, _)| *p);
        class.heap.push((priority, Reverse(job)));
        self.len += 1;
        if top_before.is_none_or(|top| priority > top) {
            if let Some(top) = top_before {
                self.order.remove(&(Reverse(top), class.rank));
            }
            self.order.insert((Reverse(priority), class.rank));
        }
    }

    /// Takes a job out, if it is there. Looks at all of its class: for what happens rarely.
    pub fn remove(&mut self, job: u32, class: u32) {
        let heap = &mut self.classes[class as usize].heap;
        let before = heap.len();
        heap.retain(|(_, Reverse(queued))| *queued != job);
        self.len -= before - heap.len();
        self.rank_classes();
    }

    /// Takes the next job that `place` accepts, in order. The one at the front is not bypassed for ever.
    pub fn pop_fitting(&mut self, mut place: impl FnMut(&Demand) -> Fit) -> Option<u32> {
        let mut front = None;
        let mut chosen = None;
        for &(Reverse(_), rank) in &self.order {
            let class = self.by_rank[rank as usize];
            match place(&self.classes[class as usize].demand) {
                Fit::Now => {
                    chosen = Some(class);
                    break;
                }
                Fit::Later if front.is_none() => {
                    let job = self.top(class);
                    if self.bypassed.is_some_and(|(j, n)| j == job && n >= BYPASS_LIMIT) {
                        return None;
                    }
                    front = Some(job);
                }
                Fit::Later | Fit::Never => {}
            }
        }
        let chosen = chosen?;
        self.bypassed = front.map(|job| match self.bypassed {
            Some((j, n)) if j == job => (job, n + 1),
            _ => (job, 1),
        });
        Some(self.pop(chosen))
    }

    /// Takes the oldest of the highest priority among those that suit, whatever it asks for.
    pub fn pop_oldest(&mut self, taste: &Taste) -> Option<u32> {
        let suiting =
            self.order.iter().map(|(Reverse(priority), rank)| (*priority, self.by_rank[*rank as usize]));
        let mut suiting = suiting.filter(|(_, class)| taste.suits(&self.demand(*class).place));
        let (highest, first) = suiting.next()?;
        let rivals = suiting.take_while(|(priority, _)| *priority == highest).map(|(_, class)| class);
        let oldest = rivals.chain([first]).min_by_key(|class| self.top(*class))?;
        Some(self.pop(oldest))
    }

    fn top(&self, class: u32) -> u32 {
        self.classes[class as usize].heap.peek().map_or(u32::MAX, |(_, Reverse(job))| *job)
    }

    fn pop(&mut self, class: u32) -> u32 {
        let class = &mut self.classes[class as usize];
        let Some((priority, Reverse(job))) = class.heap.pop() else { return u32::MAX };
        self.len -= 1;
        let top_after = class.heap.peek().map(|(p, _)| *p);
        if top_after != Some(priority) {
            self.order.remove(&(Reverse(priority), class.rank));
            if let Some(top) = top_after {
                self.order.insert((Reverse(top), class.rank));
            }
        }
        job
    }
}

/// What is free on the nodes of one worker.
///
/// A job of one node shares a node with others; a job of several nodes has them to itself.
#[derive(Clone, Debug)]
pub struct Pool {
    capacity: Capacity,
    nodes: Vec<Free>,
    jobs: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Free {
    cpus: u32,
    memory: Bytes,
    gpus: u32,
}

/// Where a job was put; given back when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement(Vec<u32>);

impl Pool {
    pub fn new(capacity: Capacity) -> Self {
        let nodes = vec![Self::empty_node(&capacity); capacity.nodes.max(1) as usize];
        Self { capacity, nodes, jobs: 0 }
    }

    /// Nothing more fits, so nobody need look through what is ready. Without a number of jobs at once, all count CPUs.
    fn is_exhausted(&self) -> bool {
        match self.capacity.max_jobs {
            Some(max) => self.jobs >= max,
            None => self.nodes.iter().all(|node| node.cpus == 0),
        }
    }

    /// Could ever run here, with nothing else running.
    pub fn could_hold(&self, asked: &Resources) -> bool {
        let node = Self::empty_node(&self.capacity);
        asked.nodes <= self.capacity.nodes.max(1)
            && asked.cpus <= node.cpus
            && asked.memory <= node.memory
            && asked.gpus <= node.gpus
    }

    /// Puts a job of these needs somewhere, if it fits now.
    pub fn place(&mut self, asked: &Resources) -> Option<Placement> {
        if self.capacity.max_jobs.is_some_and(|max| self.jobs >= max) {
            return None;
        }
        let chosen = match asked.nodes {
            0 | 1 => vec![self.tightest_node(asked)?],
            several => self.whole_nodes(asked, several)?,
        };
        let shared = chosen.len() == 1;
        for &node in &chosen {
            let free = &mut self.nodes[node as usize];
            if shared {
                free.cpus -= asked.cpus;
                free.memory.0 -= asked.memory.0;
                free.gpus -= asked.gpus;
            } else {
                *free = Free { cpus: 0, memory: Bytes(0), gpus: 0 };
            }
        }
        self.jobs += 1;
        Some(Placement(chosen))
    }

    /// Gives back what [`Pool::place`] took for the same needs.
    pub fn release(&mut self, placement: &Placement, asked: &Resources) {
        self.jobs -= 1;
        match placement.0.as_slice() {
            &[node] => {
                let free = &mut self.nodes[node as usize];
                free.cpus += asked.cpus;
                free.memory.0 += asked.memory.0;
                free.gpus += asked.gpus;
            }
            whole => {
                for &node in whole {
                    self.nodes[node as usize] = Self::empty_node(&self.capacity);
                }
            }
        }
    }

    /// The node where least is left afterwards, so that large holes stay for large jobs.
    fn tightest_node(&self, asked: &Resources) -> Option<u32> {
        let fits = |f: &Free| f.cpus >= asked.cpus && f.memory >= asked.memory && f.gpus >= asked.gpus;
        let candidates = self.nodes.iter().enumerate().filter(|(_, free)| fits(free));
        candidates.min_by_key(|(i, free)| (free.gpus, free.cpus, free.memory, *i)).map(|(i, _)| i as u32)
    }

    fn whole_nodes(&self, asked: &Resources, several: u32) -> Option<Vec<u32>> {
        let empty = Self::empty_node(&self.capacity);
        if empty.cpus < asked.cpus || empty.memory < asked.memory || empty.gpus < asked.gpus {
            return None;
        }
        let free = self.nodes.iter().enumerate().filter(|(_, node)| **node == empty);
        let chosen: Vec<u32> = free.map(|(i, _)| i as u32).take(several as usize).collect();
        (chosen.len() == several as usize).then_some(chosen)
    }

    fn empty_node(capacity: &Capacity) -> Free {
        Free { cpus: capacity.cpus, memory: capacity.memory, gpus: capacity.gpus }
    }
}

fn ends_in_time(asked: &Resources, left: Option<Duration>) -> bool {
    left.is_none_or(|left| asked.runtime.is_none_or(|runtime| runtime <= left))
}

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
        let uncounted = !demand.is_named && self.pool.capacity.max_jobs.is_some();
        if uncounted { Resources::UNCOUNTED } else { demand.resources }
    }

    /// It may start here at some time, when there is room.
    pub fn could_take(&self, demand: &Demand) -> bool {
        self.taste.suits(&demand.place)
            && ends_in_time(&demand.resources, self.time_left)
            && self.pool.could_hold(&self.counts_as(demand))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_end_in_time_is_not_taken() {
        let classes = [Resources::DEFAULT, asks(1, 1, 0, 5), asks(1, 1, 0, 60)];
        let ready = queue(&[(0, 2, 9), (1, 1, 0), (2, 0, 0)], &classes);
        let mut mirror = Mirror::new(worker(8, 1 << 30, 0));
        mirror.limit_time(Duration::from_mins(10));
        let mut left = ready.clone();
        assert_eq!(mirror.fill(&mut left, 0), [2, 1], "what says nothing may take as long as it takes");
        assert_eq!(left.len(), 1);
        let mut mirror = Mirror::new(worker(8, 1 << 30, 0));
        mirror.limit_time(Duration::from_mins(10));
        assert!(!mirror.take_alone(0, &classes[2].into()) && mirror.take_alone(1, &classes[1].into()));
    }

    fn asks(cpus: u32, memory: u64, gpus: u32, minutes: u64) -> Resources {
        Resources {
            cpus,
            memory: Bytes(memory),
            gpus,
            nodes: 1,
            runtime: Some(Duration::from_secs(60 * minutes)),
        }
    }

    fn worker(cpus: u32, memory: u64, gpus: u32) -> Capacity {
        Capacity { cpus, memory: Bytes(memory), gpus, nodes: 1, max_jobs: None }
    }

    fn queue(jobs: &[(u32, u32, i32)], classes: &[Resources]) -> ReadyQueue {
        let mut ready = ReadyQueue::new(classes);
        for &(job, class, priority) in jobs {
            ready.push(job, class, priority);
        }
        ready
    }

    fn drain(mut ready: ReadyQueue) -> Vec<u32> {
        std::iter::from_fn(|| ready.pop_fitting(|_| Fit::Now)).collect()
    }

    #[test]
    fn priority_then_hardest_to_place_then_age() {
        let classes =
            [asks(1, 10, 0, 1), asks(1, 10, 1, 1), asks(1, 10, 0, 9), asks(1, 99, 0, 1), asks(8, 10, 0, 1)];
        let jobs = [
            (0, 0, 0),
            (1, 4, 0),
            (2, 3, 0),
            (3, 2, 0),
            (4, 1, 0),
            (5, 0, 7),
            (6, 1, 0),
            (7, 0, 0),
            (8, 0, 9),
        ];
        assert_eq!(drain(queue(&jobs, &classes)), [8, 5, 4, 6, 3, 2, 1, 0, 7]);
    }

    #[test]
    fn a_class_that_comes_later_takes_its_place_among_the_others() {
        let mut ready = queue(&[(0, 0, 0), (1, 1, 0)], &[asks(1, 10, 0, 1), asks(1, 10, 0, 9)]);
        let between = ready.add_class(asks(1, 10, 0, 5));
        ready.push(2, between, 0);
        let first = ready.add_class(asks(1, 10, 1, 1));
        ready.push(3, first, 0);
        ready.push(4, between, 7);
        assert_eq!(drain(ready), [4, 3, 1, 2, 0]);
    }

    #[test]
    fn what_fits_goes_in_and_smaller_ones_fill_the_gaps() {
        let classes = [asks(3, 10, 0, 9), asks(1, 10, 0, 1)];
        let mut ready = queue(&[(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 0)], &classes);
        let mut mirror = Mirror::new(worker(4, 100, 0));
        assert_eq!(mirror.fill(&mut ready, 0), [0, 2], "3 + 1 of 4 CPUs; the second large one waits");
        mirror.remove(0);
        assert_eq!(mirror.fill(&mut ready, 0), [1]);
        assert_eq!(ready.len(), 1);
    }

    #[test]
    fn memory_gpus_and_the_number_of_jobs_bind_too() {
        let classes = [asks(1, 60, 0, 1), asks(1, 1, 1, 1)];
        let ready = queue(&[(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 0)], &classes);
        assert_eq!(Mirror::new(worker(8, 100, 1)).fill(&mut ready.clone(), 0), [2, 0]);
        let one_at_a_time = Capacity { max_jobs: Some(1), ..worker(8, 100, 1) };
        assert_eq!(Mirror::new(one_at_a_time).fill(&mut ready.clone(), 0), [2]);
        let mut uncounted = queue(&[(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)], &[Resources::UNCOUNTED]);
        let many = Capacity { max_jobs: Some(3), ..worker(1, 1, 0) };
        assert_eq!(Mirror::new(many).fill(&mut uncounted, 0), [0, 1, 2]);
    }

    #[test]
    fn a_job_of_several_nodes_has_them_to_itself() {
        let two_nodes = Resources { nodes: 2, ..asks(1, 1, 0, 9) };
        let classes = [two_nodes, asks(1, 1, 0, 1)];
        let mut mirror = Mirror::new(Capacity { nodes: 3, ..worker(2, 10, 0) });
        let mut ready = queue(&[(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)], &classes);
        assert_eq!(mirror.fill(&mut ready, 0), [0, 1, 2], "two nodes whole, two small jobs on the third");
        mirror.remove(0);
        assert_eq!(mirror.fill(&mut ready, 0), [3]);
        assert!(!mirror.pool().could_hold(&Resources { nodes: 4, ..two_nodes }));
    }

    #[test]
    fn a_large_job_is_not_bypassed_for_ever() {
        let classes = [asks(2, 1, 0, 9), asks(1, 1, 0, 1)];
        let mut mirror = Mirror::new(worker(2, 1000, 0));
        let mut ready = queue(&[(9999, 1, 0)], &classes);
        assert_eq!(mirror.fill(&mut ready, 0), [9999]);
        ready.push(10_000, 0, 5);
        for small in 0..500 {
            ready.push(small, 1, 0);
        }
        let mut started_before = 0;
        loop {
            let started = mirror.fill(&mut ready, 0);
            if started.contains(&10_000) {
                break;
            }
            started_before += started.len();
            // One small job always overlaps the next, so that the two CPUs are never free together by themselves.
            let running: Vec<u32> = mirror.held().collect();
            mirror.remove(*running.iter().max().unwrap());
        }
        assert_eq!(started_before, BYPASS_LIMIT as usize);
    }

    #[test]
    fn jobs_taken_ahead_wait_in_order() {
        let classes = [asks(2, 1, 0, 9), asks(1, 1, 0, 1), asks(16, 1, 0, 1)];
        let mut mirror = Mirror::new(worker(2, 1000, 0));
        let mut ready = queue(&[(0, 1, 9), (1, 1, 8), (2, 1, 7), (3, 1, 6), (4, 2, 99)], &classes);
        assert_eq!(mirror.fill(&mut ready, 1), [0, 1, 2], "0 and 1 start, 2 waits; 4 can never run here");
        assert_eq!((mirror.running(), mirror.queued()), (2, 1));
        mirror.remove(0);
        assert_eq!((mirror.running(), mirror.queued()), (2, 0));
        mirror.remove(2);
        mirror.remove(1);
        assert!(mirror.is_idle());
    }

    #[test]
    fn a_large_job_is_not_taken_ahead_where_it_would_hold_up_the_small_ones() {
        let classes = [asks(2, 1, 0, 9), asks(1, 1, 0, 1)];
        let mut mirror = Mirror::new(worker(2, 1000, 0));
        let mut ready = queue(&[(0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)], &classes);
        assert_eq!(mirror.fill(&mut ready, 1), [0, 1, 2]);
        ready.push(9, 0, 99);
        mirror.remove(0);
        assert_eq!(mirror.fill(&mut ready, 1), [3], "9 waits until both CPUs are free, and in no queue");
        mirror.remove(1);
        mirror.remove(2);
        mirror.remove(3);
        assert_eq!(mirror.fill(&mut ready, 1), [9]);
    }

    #[test]
    fn a_job_that_is_tried_alone_has_the_worker_to_itself() {
        let classes = [asks(1, 1, 0, 1)];
        let mut mirror = Mirror::new(worker(4, 1000, 0));
        let mut ready = queue(&[(0, 0, 0)], &classes);
        mirror.fill(&mut ready, 0);
        assert!(!mirror.take_alone(7, &classes[0].into()));
        mirror.remove(0);
        assert!(mirror.take_alone(7, &classes[0].into()));
        mirror.remove(7);
        assert!(mirror.is_idle());
    }

    #[test]
    fn labels_must_match_and_schedulers_may() {
        let place = |labels: &[&str], scheduler| Place {
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            scheduler,
        };
        let labels = |labels: &[&str]| Taste::default().with_labels(place(labels, None).labels);
        for (taste, place, suits) in [
            (Taste::default(), place(&["gpu"], Some(1)), true),
            (labels(&[]), place(&[], None), true),
            (labels(&[]), place(&["gpu"], None), false),
            (labels(&["gpu"]), place(&[], None), false),
            (labels(&["gpu", "big"]), place(&["gpu"], None), true),
            (labels(&["gpu"]), place(&["big", "gpu"], None), false),
            (labels(&[]).of_scheduler(Some(1)), place(&[], None), true),
            (labels(&[]).of_scheduler(Some(1)), place(&[], Some(1)), true),
            (labels(&[]).of_scheduler(Some(1)), place(&[], Some(2)), false),
            (labels(&[]).of_scheduler(None), place(&[], Some(2)), false),
        ] {
            assert_eq!(taste.suits(&place), suits, "{taste:?} and {place:?}");
        }
    }

    #[test]
    fn a_worker_takes_what_suits_it_and_no_more_than_its_share() {
        let gpu = Place { labels: vec!["gpu".into()], scheduler: None };
        let demand = |place: &Place| Demand { place: place.clone(), ..asks(1, 1, 0, 1).into() };
        let mut ready = ReadyQueue::new(&[demand(&Place::default()), demand(&gpu)]);
        for job in 0..6 {
            ready.push(job, job % 2, 0);
        }
        let mut mirror: Mirror =
            Mirror::with_taste(worker(8, 10, 0), Taste::default().with_labels(gpu.labels));
        let share = Want { most: 2, ahead: 0 };
        assert_eq!(mirror.fill_some(&mut ready, share, |job| job), [1, 3]);
        assert_eq!(mirror.fill_some(&mut ready, share, |job| job), [5], "the others are not for it");
        assert_eq!(ready.pop_oldest(&Taste::default()), Some(0));
    }

    #[test]
    fn the_oldest_of_the_highest_priority_whatever_it_asks_for() {
        let mut ready =
            queue(&[(0, 0, 0), (1, 1, 5), (2, 0, 5), (3, 1, 0)], &[asks(1, 1, 0, 1), asks(9, 9, 9, 9)]);
        let order: Vec<u32> = std::iter::from_fn(|| ready.pop_oldest(&Taste::default())).collect();
        assert_eq!(order, [1, 2, 0, 3]);
    }

    #[test]
    fn what_is_there_anyway_counts_even_without_room() {
        let mut mirror = Mirror::new(worker(1, 10, 0));
        mirror.take_anyway(0, &asks(1, 1, 0, 1).into());
        mirror.take_anyway(1, &asks(1, 1, 0, 1).into());
        assert!(mirror.is_running(0) && !mirror.is_running(1));
        mirror.remove(0);
        assert!(mirror.is_running(1));
    }

    #[test]
    fn a_job_that_can_never_run_here_does_not_stop_the_others() {
        let classes = [asks(16, 1, 0, 9), asks(1, 1, 0, 1)];
        let mut mirror = Mirror::new(worker(1, 1000, 0));
        let mut ready = queue(&[(0, 0, 9)], &classes);
        for small in 1..300 {
            ready.push(small, 1, 0);
            assert_eq!(mirror.fill(&mut ready, 0), [small]);
            mirror.remove(small);
        }
        assert_eq!(ready.len(), 1);
    }
}
