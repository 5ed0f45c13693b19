//! The ready jobs, by class and priority, and the job limits of classes.

use super::demand::{JobDemand, WorkerSelector};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use windlass_types::Resources;

/// How many jobs may start ahead of the first job in the queue while it does not fit.
pub const BYPASS_LIMIT: u32 = 64;

/// The ready jobs, grouped by demand.
#[derive(Clone, Debug)]
pub struct ReadyQueue {
    demands: Vec<DemandQueue>,
    limits: Vec<JobLimit>,
    /// Classes with ready jobs and no exhausted limit, the best first.
    order: BTreeSet<ReadyQueueEntry>,
    len: usize,
    /// The job at the front that did not fit, and how often others passed it.
    bypassed: Option<(u32, u32)>,
}

/// A class by highest priority, election, rank, and number. A class that elects sites is ranked by its first
/// job: work units begin in their order, whichever sites they may use.
type ReadyQueueEntry = (Reverse<i32>, bool, u32, u32);

/// Whether a job fits on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFit {
    Now,
    /// Not until another job ends.
    Later,
    /// Not on this worker: passing the job does not count as a bypass.
    Never,
}

#[derive(Clone, Debug)]
struct DemandQueue {
    demand: JobDemand,
    rank: u32,
    heap: BinaryHeap<(i32, Reverse<u32>)>,
    /// Limits of its jobs. Few classes have any, none has more than two.
    limits: Vec<u32>,
    /// Number of exhausted limits.
    closed_limits: u8,
}

/// Maximum number of claimed jobs of its classes.
#[derive(Clone, Debug)]
struct JobLimit {
    max_active: u32,
    active_count: u32,
    demands: Vec<u32>,
}

impl JobLimit {
    const fn is_closed(&self) -> bool {
        self.active_count >= self.max_active
    }
}

impl From<JobDemand> for DemandQueue {
    fn from(demand: JobDemand) -> Self {
        Self { demand, rank: 0, heap: BinaryHeap::new(), limits: Vec::new(), closed_limits: 0 }
    }
}

impl DemandQueue {
    /// Returns its position in the order, if a job of it may be taken.
    fn entry(&self, number: u32) -> Option<ReadyQueueEntry> {
        let (priority, Reverse(job)) = self.heap.peek().filter(|_| self.closed_limits == 0)?;
        let elects = self.demand.location.elects;
        Some((Reverse(*priority), elects, if elects { *job } else { self.rank }, number))
    }
}

impl ReadyQueue {
    /// `classes`: the demand of each class of jobs.
    pub fn new<D: Clone + Into<JobDemand>>(classes: &[D]) -> Self {
        let classes = classes.iter().map(|class| DemandQueue::from(class.clone().into())).collect();
        let (order, limits) = (BTreeSet::new(), Vec::new());
        let mut queue = Self { demands: classes, limits, order, len: 0, bypassed: None };
        queue.rank_demands();
        queue
    }

    /// Adds a class for later jobs. Returns its number.
    pub fn add_demand(&mut self, demand: impl Into<JobDemand>) -> u32 {
        self.demands.push(demand.into().into());
        self.rank_demands();
        self.demands.len() as u32 - 1
    }

    pub fn demand(&self, class: u32) -> &JobDemand {
        &self.demands[class as usize].demand
    }

    /// Returns the priority of the next job for this worker selector.
    pub fn top_priority(&self, selector: &WorkerSelector) -> Option<i32> {
        let first =
            self.order.iter().find(|(.., class)| selector.accepts_location(&self.demand(*class).location));
        first.map(|(Reverse(priority), ..)| *priority)
    }

    /// Adds a limit of `most` jobs. Returns its number.
    pub fn add_limit(&mut self, most: u32) -> u32 {
        self.limits.push(JobLimit { max_active: most, active_count: 0, demands: Vec::new() });
        self.limits.len() as u32 - 1
    }

    /// Applies the limit to jobs taken from the class from now on.
    pub fn apply_limit(&mut self, class: u32, limit: u32) {
        self.limits[limit as usize].demands.push(class);
        self.demands[class as usize].limits.push(limit);
        if self.limits[limit as usize].is_closed() {
            self.close_demand(class);
        }
    }

    /// Counts one more job, even beyond the limit.
    pub fn enter_limit(&mut self, limit: u32) {
        let limit = &mut self.limits[limit as usize];
        let was_closed = limit.is_closed();
        limit.active_count += 1;
        if limit.is_closed() && !was_closed {
            for class in limit.demands.clone() {
                self.close_demand(class);
            }
        }
    }

    /// Counts one job less.
    pub fn leave_limit(&mut self, limit: u32) {
        let limit = &mut self.limits[limit as usize];
        let was_closed = limit.is_closed();
        limit.active_count = limit.active_count.saturating_sub(1);
        if was_closed && !limit.is_closed() {
            for class in limit.demands.clone() {
                self.open_demand(class);
            }
        }
    }

    /// Counts a job of the class that was claimed without being taken from this queue.
    pub fn enter_limits(&mut self, class: u32) {
        for index in 0..self.demands[class as usize].limits.len() {
            self.enter_limit(self.demands[class as usize].limits[index]);
        }
    }

    /// A claimed job of the class ended.
    pub fn leave_limits_except(&mut self, class: u32, stays: Option<u32>) {
        for index in 0..self.demands[class as usize].limits.len() {
            let limit = self.demands[class as usize].limits[index];
            if Some(limit) != stays {
                self.leave_limit(limit);
            }
        }
    }

    /// Returns the number of classes.
    pub fn demand_count(&self) -> u32 {
        self.demands.len() as u32
    }

    /// Whether no limit of the class is exhausted.
    pub fn is_open(&self, class: u32) -> bool {
        self.demands[class as usize].closed_limits == 0
    }

    fn close_demand(&mut self, class: u32) {
        self.update_demand(class, |class| class.closed_limits += 1);
    }

    fn open_demand(&mut self, class: u32) {
        self.update_demand(class, |class| class.closed_limits -= 1);
    }

    /// Updates a class and its position in the order.
    fn update_demand<T>(&mut self, number: u32, change: impl FnOnce(&mut DemandQueue) -> T) -> T {
        let class = &mut self.demands[number as usize];
        let before = class.entry(number);
        let outcome = change(class);
        let after = class.entry(number);
        if before != after {
            before.map(|before| self.order.remove(&before));
            self.order.extend(after);
        }
        outcome
    }

    /// Whether no job may be taken.
    pub fn is_all_blocked(&self) -> bool {
        self.order.is_empty()
    }

    /// Ranks the hardest to place first.
    fn rank_demands(&mut self) {
        let mut ranked: Vec<u32> = (0..self.demands.len() as u32).collect();
        ranked.sort_by_key(|&class| {
            let asked = self.demands[class as usize].demand.resources;
            (
                Reverse(asked.gpus),
                Reverse(asked.runtime.unwrap_or(Resources::ASSUMED_RUNTIME)),
                Reverse(asked.memory),
                Reverse(asked.cpus),
                class,
            )
        });
        self.order.clear();
        for (rank, number) in (0..).zip(ranked) {
            let class = &mut self.demands[number as usize];
            class.rank = rank;
            self.order.extend(class.entry(number));
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the demands of the ready jobs with the number of jobs.
    pub fn by_demand(&self) -> impl Iterator<Item = (&JobDemand, usize)> {
        let classes = self.demands.iter().map(|class| (&class.demand, class.heap.len()));
        classes.filter(|(_, jobs)| *jobs > 0)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, job: u32, class: u32, priority: i32) {
        self.update_demand(class, |class| class.heap.push((priority, Reverse(job))));
        self.len += 1;
    }

    /// Removes a job if it is queued. Scans all of its class: for rare cases.
    pub fn remove(&mut self, job: u32, class: u32) -> bool {
        let heap = &mut self.demands[class as usize].heap;
        let before = heap.len();
        heap.retain(|(_, Reverse(queued))| *queued != job);
        let removed = before - heap.len();
        self.len -= removed;
        self.rank_demands();
        removed > 0
    }

    /// Takes the next job that `place` accepts, in order. Limits how often the job at the front is bypassed.
    pub fn pop_fitting(&mut self, mut place: impl FnMut(&JobDemand) -> JobFit) -> Option<u32> {
        let mut front = None;
        let mut chosen = None;
        for &(.., class) in &self.order {
            match place(&self.demands[class as usize].demand) {
                JobFit::Now => {
                    chosen = Some(class);
                    break;
                }
                JobFit::Later if front.is_none() => {
                    let job = self.top_job(class);
                    if self.bypassed.is_some_and(|(j, n)| j == job && n >= BYPASS_LIMIT) {
                        return None;
                    }
                    front = Some(job);
                }
                JobFit::Later | JobFit::Never => {}
            }
        }
        let chosen = chosen?;
        self.bypassed = front.map(|job| match self.bypassed {
            Some((j, n)) if j == job => (job, n + 1),
            _ => (job, 1),
        });
        Some(self.pop_job(chosen))
    }

    /// Takes the oldest job of the highest priority that the selector accepts, regardless of resources.
    pub fn pop_oldest(&mut self, selector: &WorkerSelector) -> Option<u32> {
        let suiting = self.order.iter().map(|(Reverse(priority), .., class)| (*priority, *class));
        let mut suiting =
            suiting.filter(|(_, class)| selector.accepts_location(&self.demand(*class).location));
        let (highest, first) = suiting.next()?;
        let equal_classes = suiting.take_while(|(priority, _)| *priority == highest).map(|(_, class)| class);
        let oldest = equal_classes.chain([first]).min_by_key(|class| self.top_job(*class))?;
        Some(self.pop_job(oldest))
    }

    fn top_job(&self, class: u32) -> u32 {
        self.demands[class as usize].heap.peek().map_or(u32::MAX, |(_, Reverse(job))| *job)
    }

    /// Takes a job of a class without an exhausted limit.
    fn pop_job(&mut self, number: u32) -> u32 {
        let Some((_, Reverse(job))) = self.update_demand(number, |class| class.heap.pop()) else {
            return u32::MAX;
        };
        self.len -= 1;
        if !self.demands[number as usize].limits.is_empty() {
            self.enter_limits(number);
        }
        job
    }
}
