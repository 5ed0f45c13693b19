//! The ready jobs, by class and priority; and the gates that let only so many of some classes through.

use super::demand::{JobDemand, WorkerSelector};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use windlass_types::Resources;

/// How many jobs may start in front of one that would be next but does not fit yet.
pub const BYPASS_LIMIT: u32 = 64;

/// The ready jobs, by what they ask for.
#[derive(Clone, Debug)]
pub struct ReadyQueue {
    demands: Vec<DemandQueue>,
    limits: Vec<JobLimit>,
    /// Classes with ready jobs and no closed gate, the best first.
    order: BTreeSet<ReadyQueueEntry>,
    len: usize,
    /// The job at the front that did not fit, and how often others went first.
    bypassed: Option<(u32, u32)>,
}

/// A class by its highest priority, whether it elects, its rank, and its number. Where it elects, its first job stands for
/// its rank: units are begun in their order, whatever the sites are that they may be at.
type ReadyQueueEntry = (Reverse<i32>, bool, u32, u32);

/// Whether a job fits on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFit {
    Now,
    /// When something else has ended.
    Later,
    /// Not on this worker: others may pass it without owing it anything.
    Never,
}

#[derive(Clone, Debug)]
struct DemandQueue {
    demand: JobDemand,
    rank: u32,
    heap: BinaryHeap<(i32, Reverse<u32>)>,
    /// Its jobs pass all of these. Few classes have any, and none has more than two.
    limits: Vec<u32>,
    /// How many of its gates are closed.
    closed_limits: u8,
}

/// Lets so many jobs of its classes be claimed at once, and no more.
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
    /// Its place in the order, if anything of it may be taken.
    fn entry(&self, number: u32) -> Option<ReadyQueueEntry> {
        let (priority, Reverse(job)) = self.heap.peek().filter(|_| self.closed_limits == 0)?;
        let elects = self.demand.location.elects;
        Some((Reverse(*priority), elects, if elects { *job } else { self.rank }, number))
    }
}

impl ReadyQueue {
    /// `classes`: what each class of jobs asks for.
    pub fn new<D: Clone + Into<JobDemand>>(classes: &[D]) -> Self {
        let classes = classes.iter().map(|class| DemandQueue::from(class.clone().into())).collect();
        let (order, gates) = (BTreeSet::new(), Vec::new());
        let mut queue = Self { demands: classes, limits: gates, order, len: 0, bypassed: None };
        queue.rank_demands();
        queue
    }

    /// One more class, for jobs that come later. Returns its number.
    pub fn add_demand(&mut self, demand: impl Into<JobDemand>) -> u32 {
        self.demands.push(demand.into().into());
        self.rank_demands();
        self.demands.len() as u32 - 1
    }

    pub fn demand(&self, class: u32) -> &JobDemand {
        &self.demands[class as usize].demand
    }

    /// Of the job that is next for somebody with this taste.
    pub fn top_priority(&self, taste: &WorkerSelector) -> Option<i32> {
        let first =
            self.order.iter().find(|(.., class)| taste.accepts_location(&self.demand(*class).location));
        first.map(|(Reverse(priority), ..)| *priority)
    }

    /// A gate that lets `most` through. Returns its number.
    pub fn add_limit(&mut self, most: u32) -> u32 {
        self.limits.push(JobLimit { max_active: most, active_count: 0, demands: Vec::new() });
        self.limits.len() as u32 - 1
    }

    /// From now on whatever is taken of the class goes through the gate.
    pub fn apply_limit(&mut self, class: u32, gate: u32) {
        self.limits[gate as usize].demands.push(class);
        self.demands[class as usize].limits.push(gate);
        if self.limits[gate as usize].is_closed() {
            self.close_demand(class);
        }
    }

    /// One more is inside, also where that is more than there should be.
    pub fn enter_limit(&mut self, gate: u32) {
        let gate = &mut self.limits[gate as usize];
        let was_closed = gate.is_closed();
        gate.active_count += 1;
        if gate.is_closed() && !was_closed {
            for class in gate.demands.clone() {
                self.close_demand(class);
            }
        }
    }

    /// One less is inside.
    pub fn leave_limit(&mut self, gate: u32) {
        let gate = &mut self.limits[gate as usize];
        let was_closed = gate.is_closed();
        gate.active_count = gate.active_count.saturating_sub(1);
        if was_closed && !gate.is_closed() {
            for class in gate.demands.clone() {
                self.open_demand(class);
            }
        }
    }

    /// Something of the class was claimed in another way than by taking it from here.
    pub fn enter_limits(&mut self, class: u32) {
        for index in 0..self.demands[class as usize].limits.len() {
            self.enter_limit(self.demands[class as usize].limits[index]);
        }
    }

    /// What was claimed of the class is over.
    pub fn leave_limits_except(&mut self, class: u32, stays: Option<u32>) {
        for index in 0..self.demands[class as usize].limits.len() {
            let gate = self.demands[class as usize].limits[index];
            if Some(gate) != stays {
                self.leave_limit(gate);
            }
        }
    }

    /// How many classes there are.
    pub fn demand_count(&self) -> u32 {
        self.demands.len() as u32
    }

    /// The gates of the class are open.
    pub fn is_open(&self, class: u32) -> bool {
        self.demands[class as usize].closed_limits == 0
    }

    fn close_demand(&mut self, class: u32) {
        self.update_demand(class, |class| class.closed_limits += 1);
    }

    fn open_demand(&mut self, class: u32) {
        self.update_demand(class, |class| class.closed_limits -= 1);
    }

    /// Does something to a class that may change its place in the order.
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

    /// Nothing may be taken by anybody.
    pub fn is_all_blocked(&self) -> bool {
        self.order.is_empty()
    }

    /// The hardest to place first.
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

    /// What the ready jobs ask for, and how many ask for it.
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

    /// Takes a job out, if it is there. Looks at all of its class: for what happens rarely.
    pub fn remove(&mut self, job: u32, class: u32) -> bool {
        let heap = &mut self.demands[class as usize].heap;
        let before = heap.len();
        heap.retain(|(_, Reverse(queued))| *queued != job);
        let removed = before - heap.len();
        self.len -= removed;
        self.rank_demands();
        removed > 0
    }

    /// Takes the next job that `place` accepts, in order. The one at the front is not bypassed for ever.
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

    /// Takes the oldest of the highest priority among those that suit, whatever it asks for.
    pub fn pop_oldest(&mut self, taste: &WorkerSelector) -> Option<u32> {
        let suiting = self.order.iter().map(|(Reverse(priority), .., class)| (*priority, *class));
        let mut suiting = suiting.filter(|(_, class)| taste.accepts_location(&self.demand(*class).location));
        let (highest, first) = suiting.next()?;
        let rivals = suiting.take_while(|(priority, _)| *priority == highest).map(|(_, class)| class);
        let oldest = rivals.chain([first]).min_by_key(|class| self.top_job(*class))?;
        Some(self.pop_job(oldest))
    }

    fn top_job(&self, class: u32) -> u32 {
        self.demands[class as usize].heap.peek().map_or(u32::MAX, |(_, Reverse(job))| *job)
    }

    /// Of a class whose gates are open.
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
