//! The ready jobs, by class and priority; and the gates that let only so many of some classes through.

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
    gates: Vec<Gate>,
    /// Classes with ready jobs and no closed gate, the best first.
    order: BTreeSet<Entry>,
    len: usize,
    /// The job at the front that did not fit, and how often others went first.
    bypassed: Option<(u32, u32)>,
}

/// A class by its highest priority, whether it elects, its rank, and its number. Where it elects, its first job stands for
/// its rank: units are begun in their order, whatever the sites are that they may be at.
type Entry = (Reverse<i32>, bool, u32, u32);

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
    /// Its jobs pass all of these. Few classes have any, and none has more than two.
    gates: Vec<u32>,
    /// How many of its gates are closed.
    closed: u8,
}

/// Lets so many jobs of its classes be claimed at once, and no more.
#[derive(Clone, Debug)]
struct Gate {
    most: u32,
    inside: u32,
    classes: Vec<u32>,
}

impl Gate {
    const fn is_closed(&self) -> bool {
        self.inside >= self.most
    }
}

impl From<Demand> for Class {
    fn from(demand: Demand) -> Self {
        Self { demand, rank: 0, heap: BinaryHeap::new(), gates: Vec::new(), closed: 0 }
    }
}

impl Class {
    /// Its place in the order, if anything of it may be taken.
    fn entry(&self, number: u32) -> Option<Entry> {
        let (priority, Reverse(job)) = self.heap.peek().filter(|_| self.closed == 0)?;
        let elects = self.demand.place.elects;
        Some((Reverse(*priority), elects, if elects { *job } else { self.rank }, number))
    }
}

impl ReadyQueue {
    /// `classes`: what each class of jobs asks for.
    pub fn new<D: Clone + Into<Demand>>(classes: &[D]) -> Self {
        let classes = classes.iter().map(|class| Class::from(class.clone().into())).collect();
        let (order, gates) = (BTreeSet::new(), Vec::new());
        let mut queue = Self { classes, gates, order, len: 0, bypassed: None };
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
        let first = self.order.iter().find(|(.., class)| taste.suits(&self.demand(*class).place));
        first.map(|(Reverse(priority), ..)| *priority)
    }

    /// A gate that lets `most` through. Returns its number.
    pub fn add_gate(&mut self, most: u32) -> u32 {
        self.gates.push(Gate { most, inside: 0, classes: Vec::new() });
        self.gates.len() as u32 - 1
    }

    /// From now on whatever is taken of the class goes through the gate.
    pub fn put_behind(&mut self, class: u32, gate: u32) {
        self.gates[gate as usize].classes.push(class);
        self.classes[class as usize].gates.push(gate);
        if self.gates[gate as usize].is_closed() {
            self.close(class);
        }
    }

    /// One more is inside, also where that is more than there should be.
    pub fn enter(&mut self, gate: u32) {
        let gate = &mut self.gates[gate as usize];
        let was_closed = gate.is_closed();
        gate.inside += 1;
        if gate.is_closed() && !was_closed {
            for class in gate.classes.clone() {
                self.close(class);
            }
        }
    }

    /// One less is inside.
    pub fn leave(&mut self, gate: u32) {
        let gate = &mut self.gates[gate as usize];
        let was_closed = gate.is_closed();
        gate.inside = gate.inside.saturating_sub(1);
        if was_closed && !gate.is_closed() {
            for class in gate.classes.clone() {
                self.open(class);
            }
        }
    }

    /// Something of the class was claimed in another way than by taking it from here.
    pub fn enter_all(&mut self, class: u32) {
        for index in 0..self.classes[class as usize].gates.len() {
            self.enter(self.classes[class as usize].gates[index]);
        }
    }

    /// What was claimed of the class is over.
    pub fn leave_all_but(&mut self, class: u32, stays: Option<u32>) {
        for index in 0..self.classes[class as usize].gates.len() {
            let gate = self.classes[class as usize].gates[index];
            if Some(gate) != stays {
                self.leave(gate);
            }
        }
    }

    /// How many classes there are.
    pub fn classes(&self) -> u32 {
        self.classes.len() as u32
    }

    /// The gates of the class are open.
    pub fn is_open(&self, class: u32) -> bool {
        self.classes[class as usize].closed == 0
    }

    fn close(&mut self, class: u32) {
        self.change(class, |class| class.closed += 1);
    }

    fn open(&mut self, class: u32) {
        self.change(class, |class| class.closed -= 1);
    }

    /// Does something to a class that may change its place in the order.
    fn change<T>(&mut self, number: u32, change: impl FnOnce(&mut Class) -> T) -> T {
        let class = &mut self.classes[number as usize];
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
    pub fn is_shut(&self) -> bool {
        self.order.is_empty()
    }

    /// The hardest to place first.
    fn rank_classes(&mut self) {
        let mut ranked: Vec<u32> = (0..self.classes.len() as u32).collect();
        ranked.sort_by_key(|&class| {
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
        for (rank, number) in (0..).zip(ranked) {
            let class = &mut self.classes[number as usize];
            class.rank = rank;
            self.order.extend(class.entry(number));
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
        self.change(class, |class| class.heap.push((priority, Reverse(job))));
        self.len += 1;
    }

    /// Takes a job out, if it is there. Looks at all of its class: for what happens rarely.
    pub fn remove(&mut self, job: u32, class: u32) -> bool {
        let heap = &mut self.classes[class as usize].heap;
        let before = heap.len();
        heap.retain(|(_, Reverse(queued))| *queued != job);
        let removed = before - heap.len();
        self.len -= removed;
        self.rank_classes();
        removed > 0
    }

    /// Takes the next job that `place` accepts, in order. The one at the front is not bypassed for ever.
    pub fn pop_fitting(&mut self, mut place: impl FnMut(&Demand) -> Fit) -> Option<u32> {
        let mut front = None;
        let mut chosen = None;
        for &(.., class) in &self.order {
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
        let suiting = self.order.iter().map(|(Reverse(priority), .., class)| (*priority, *class));
        let mut suiting = suiting.filter(|(_, class)| taste.suits(&self.demand(*class).place));
        let (highest, first) = suiting.next()?;
        let rivals = suiting.take_while(|(priority, _)| *priority == highest).map(|(_, class)| class);
        let oldest = rivals.chain([first]).min_by_key(|class| self.top(*class))?;
        Some(self.pop(oldest))
    }

    fn top(&self, class: u32) -> u32 {
        self.classes[class as usize].heap.peek().map_or(u32::MAX, |(_, Reverse(job))| *job)
    }

    /// Of a class whose gates are open.
    fn pop(&mut self, number: u32) -> u32 {
        let Some((_, Reverse(job))) = self.change(number, |class| class.heap.pop()) else { return u32::MAX };
        self.len -= 1;
        if !self.classes[number as usize].gates.is_empty() {
            self.enter_all(number);
        }
        job
    }
}
