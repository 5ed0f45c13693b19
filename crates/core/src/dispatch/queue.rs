//! The ready jobs, by class and priority.

use super::demand::{Demand, Taste};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use windlass_types::Resources;

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
    demand: Demand,
    rank: u32,
    heap: BinaryHeap<(i32, Reverse<u32>)>,
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

    /// What the ready jobs ask for, and how many ask for it.
    pub fn by_demand(&self) -> impl Iterator<Item = (&Demand, usize)> {
        let classes = self.classes.iter().map(|class| (&class.demand, class.heap.len()));
        classes.filter(|(_, jobs)| *jobs > 0)
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
