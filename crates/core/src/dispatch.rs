//! Which ready job starts next, and on what: priorities, packing, backfill.
//!
//! The order is that of the Torc contract: priority first, then the hardest to place (GPUs, runtime, memory, CPUs), then
//! age. A job that does not fit now is passed over by those that do (backfill), but not for ever: after
//! [`BYPASS_LIMIT`] starts in front of it nothing is started until it fits.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;
use windlass_types::{Bytes, Capacity, Resources};

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
    resources: Resources,
    rank: u32,
    heap: BinaryHeap<(i32, Reverse<u32>)>,
}

impl ReadyQueue {
    /// `classes`: what each class of jobs asks for.
    pub fn new(classes: &[Resources]) -> Self {
        let classes =
            classes.iter().map(|&resources| Class { resources, rank: 0, heap: BinaryHeap::new() }).collect();
        let mut queue = Self { classes, order: BTreeSet::new(), by_rank: Vec::new(), len: 0, bypassed: None };
        queue.rank_classes();
        queue
    }

    /// One more class, for jobs that come later. Returns its number.
    pub fn add_class(&mut self, resources: Resources) -> u32 {
        self.classes.push(Class { resources, rank: 0, heap: BinaryHeap::new() });
        self.rank_classes();
        self.classes.len() as u32 - 1
    }

    /// The hardest to place first.
    fn rank_classes(&mut self) {
        self.by_rank = (0..self.classes.len() as u32).collect();
        self.by_rank.sort_by_key(|&class| {
            let asked = self.classes[class as usize].resources;
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
    pub fn pop_fitting(&mut self, mut place: impl FnMut(&Resources) -> Fit) -> Option<u32> {
        let mut front = None;
        let mut chosen = None;
        for &(Reverse(_), rank) in &self.order {
            let class = self.by_rank[rank as usize];
            match place(&self.classes[class as usize].resources) {
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

/// What one worker holds, as the engine sees it: what runs, and what waits in the worker's own queue.
///
/// The worker starts its queue strictly in order, each as soon as it fits; this mirror applies the same rule to the same
/// sequence of reports.
#[derive(Clone, Debug)]
pub struct Mirror {
    pool: Pool,
    placed: FxHashMap<u32, (Placement, Resources)>,
    queue: VecDeque<(u32, Resources)>,
    /// `None`: as long as it takes.
    time_left: Option<Duration>,
}

impl Mirror {
    pub fn new(capacity: Capacity) -> Self {
        let pool = Pool::new(capacity);
        Self { pool, placed: FxHashMap::default(), queue: VecDeque::new(), time_left: None }
    }

    /// From now on only jobs are taken that do not ask for more time than this.
    pub fn limit_time(&mut self, left: Duration) {
        self.time_left = Some(left);
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

    pub fn held(&self) -> impl Iterator<Item = u32> + '_ {
        self.placed.keys().copied().chain(self.queue.iter().map(|(job, _)| *job))
    }

    /// Takes one job that is to run with nothing beside it.
    pub fn take_alone(&mut self, job: u32, asked: &Resources) -> bool {
        let may_start = self.is_idle() && ends_in_time(asked, self.time_left);
        let placement = if may_start { self.pool.place(asked) } else { None };
        let Some(placement) = placement else { return false };
        self.placed.insert(job, (placement, *asked));
        true
    }

    /// Takes jobs for this worker: all that fit now, and `ahead` more to wait in its queue so that it need not wait for us.
    pub fn fill(&mut self, ready: &mut ReadyQueue, ahead: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        let time_left = self.time_left;
        while self.queue.is_empty() && !self.pool.is_exhausted() {
            let mut placed = None;
            let job = ready.pop_fitting(|asked| {
                if !ends_in_time(asked, time_left) {
                    return Fit::Never;
                }
                match self.pool.place(asked) {
                    Some(placement) => {
                        placed = Some((placement, *asked));
                        Fit::Now
                    }
                    None if self.pool.could_hold(asked) => Fit::Later,
                    None => Fit::Never,
                }
            });
            let (Some(job), Some(placed)) = (job, placed) else { break };
            self.placed.insert(job, placed);
            taken.push(job);
        }
        while self.queue.len() < ahead {
            let mut asked = None;
            let job = ready.pop_fitting(|resources| {
                asked = Some(*resources);
                match () {
                    // What waits in the queue must not wait for more than the next end: it would hold up all behind it.
                    () if self.placed.values().any(|(_, held)| covers(held, resources)) => Fit::Now,
                    () if self.pool.could_hold(resources) => Fit::Later,
                    () => Fit::Never,
                }
            });
            let (Some(job), Some(asked)) = (job, asked) else { break };
            self.queue.push_back((job, asked));
            taken.push(job);
        }
        taken
    }

    /// The worker is done with `job`, or handed it back.
    pub fn remove(&mut self, job: u32) {
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
        assert!(!mirror.take_alone(0, &classes[2]) && mirror.take_alone(1, &classes[1]));
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
        assert!(!mirror.take_alone(7, &classes[0]));
        mirror.remove(0);
        assert!(mirror.take_alone(7, &classes[0]));
        mirror.remove(7);
        assert!(mirror.is_idle());
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
