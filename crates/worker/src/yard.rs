//! The queue of assignments, the free resources, and the slots that serve it: who takes the next job, and when.
//!
//! Strictly in order: the head of the queue starts when its resources are free, and nothing starts before it. Whoever
//! takes a job looks whether the next one fits too and wakes, or makes, a slot for it.

use crate::lock;
use crate::outbox::Urgency;
use crate::pool::{Grant, Pool};
use crate::run;
use crate::service::Worker;
use crate::site::Site;
use crate::slot::{Slot, State};
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{io, mem};
use windlass_proc::signals;
use windlass_types::Capacity;
use windlass_types::work::{Assignment, AttemptKey, Report, ReturnReason};

/// Slots only call the system and format a few lines.
const STACK: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Yard {
    queue: VecDeque<Order>,
    pool: Pool,
    pub(crate) slots: Vec<Arc<Slot>>,
    threads: Vec<JoinHandle<()>>,
    /// Slots that wait for something to do.
    idle: usize,
    /// Jobs that hold resources.
    pub(crate) busy: usize,
    closing: bool,
}

/// A job that waits for its resources.
#[derive(Debug)]
struct Order {
    assignment: Assignment,
    site: Arc<Site>,
}

/// A job and what it was given.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) assignment: Assignment,
    pub(crate) site: Arc<Site>,
    pub(crate) grant: Grant,
}

impl Yard {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self {
            queue: VecDeque::new(),
            pool: Pool::new(capacity),
            slots: Vec::new(),
            threads: Vec::new(),
            idle: 0,
            busy: 0,
            closing: false,
        }
    }

    fn head_fits(&mut self) -> bool {
        self.queue.front().is_some_and(|head| self.pool.has_room_for(&head.assignment.resources))
    }

    /// The head of the queue, if it fits.
    fn take(&mut self) -> Option<Work> {
        let grant = self.pool.take(&self.queue.front()?.assignment.resources)?;
        let Order { assignment, site } = self.queue.pop_front()?;
        self.busy += 1;
        Some(Work { assignment, site, grant })
    }
}

impl Worker {
    pub(crate) fn assign(self: &Arc<Self>, assignments: Vec<Assignment>) {
        let mut orders = Vec::with_capacity(assignments.len());
        let mut sites = lock(&self.sites);
        for assignment in assignments {
            match sites.open(assignment.key.workflow, &self.options) {
                Ok(site) => orders.push(Order { assignment, site }),
                Err(trouble) => self.hand_back([assignment.key], &ReturnReason::WorkerTrouble(trouble)),
            }
        }
        drop(sites);
        let mut yard = lock(&self.yard);
        yard.queue.extend(orders);
        self.rouse(yard);
    }

    /// Hands back those of them that have not started.
    pub(crate) fn recall(self: &Arc<Self>, meant: impl Fn(&AttemptKey) -> bool) {
        let mut yard = lock(&self.yard);
        let waiting = mem::take(&mut yard.queue).into_iter();
        let (recalled, kept): (VecDeque<_>, _) = waiting.partition(|order| meant(&order.assignment.key));
        yard.queue = kept;
        // Somebody else may be the first now, and fit.
        self.rouse(yard);
        self.hand_back(recalled.iter().map(|order| order.assignment.key), &ReturnReason::Recalled);
    }

    /// No more jobs start; slots end when they are through with theirs.
    pub(crate) fn close_yard(&self) {
        let mut yard = lock(&self.yard);
        yard.closing = true;
        yard.queue.clear();
        self.work.notify_all();
    }

    pub(crate) fn join_slots(&self) {
        loop {
            let Some(thread) = lock(&self.yard).threads.pop() else { return };
            // One that panicked has nothing more to say; the panic itself went to standard error.
            thread.join().ok();
        }
    }

    /// Sees to it that somebody takes the head of the queue if it fits.
    pub(crate) fn rouse(self: &Arc<Self>, mut yard: MutexGuard<'_, Yard>) {
        if yard.closing || self.may_start_nothing() || !yard.head_fits() {
            return;
        }
        if yard.idle > 0 {
            // Unlocked first: whoever wakes up would otherwise run into the lock at once.
            drop(yard);
            self.work.notify_one();
        } else if let Err(error) = self.add_slot(&mut yard)
            && yard.busy == 0
        {
            // Nobody is there who could take it later.
            let trouble = ReturnReason::WorkerTrouble(format!("cannot start a thread: {error}"));
            let waiting = mem::take(&mut yard.queue);
            self.hand_back(waiting.iter().map(|order| order.assignment.key), &trouble);
        }
    }

    /// The head of the queue, if it fits and may start now.
    fn next(&self, yard: &mut Yard) -> Option<Work> {
        if self.may_start_nothing() { None } else { yard.take() }
    }

    fn may_start_nothing(&self) -> bool {
        self.lease.is_over() || signals::was_terminated()
    }

    fn add_slot(self: &Arc<Self>, yard: &mut Yard) -> io::Result<()> {
        let number = yard.slots.len();
        // A slot without a cgroup is a slot all the same.
        let cgroup = self.cgroups.as_ref().and_then(|groups| groups.slot(&format!("slot-{number}")).ok());
        let slot = Arc::new(Slot::new(State::Idle, cgroup));
        let (worker, own) = (Arc::clone(self), Arc::clone(&slot));
        let thread = thread::Builder::new()
            .name(format!("slot-{number}"))
            .stack_size(STACK)
            .spawn(move || worker.serve_slot(&own))?;
        yard.slots.push(slot);
        yard.threads.push(thread);
        Ok(())
    }

    /// The life of a slot.
    fn serve_slot(self: &Arc<Self>, slot: &Slot) {
        let mut hand = run::Hand::new(slot);
        let mut next = self.wait_for_work(slot);
        while let Some(work) = next {
            let report = self.run(slot, &mut hand, &work);
            next = self.exchange(slot, work.grant);
            let urgency = if next.is_some() { Urgency::CanWait } else { Urgency::Now };
            self.deliver(report, urgency);
            if next.is_none() {
                next = self.wait_for_work(slot);
            }
        }
        hand.put_away();
        if let Some(group) = &slot.cgroup {
            group.leave_thread();
        }
    }

    /// Gives back what the last job held and takes the next one, if it fits.
    fn exchange(self: &Arc<Self>, slot: &Slot, held: Grant) -> Option<Work> {
        let mut yard = lock(&self.yard);
        yard.pool.give_back(held);
        yard.busy -= 1;
        let work = self.next(&mut yard);
        occupy(slot, work.as_ref());
        self.rouse(yard);
        work
    }

    /// `None` when the worker closes.
    fn wait_for_work(self: &Arc<Self>, slot: &Slot) -> Option<Work> {
        let mut yard = lock(&self.yard);
        loop {
            if let Some(work) = self.next(&mut yard) {
                occupy(slot, Some(&work));
                self.rouse(yard);
                return Some(work);
            }
            if yard.closing {
                return None;
            }
            yard.idle += 1;
            yard = self.work.wait(yard).unwrap_or_else(PoisonError::into_inner);
            yard.idle -= 1;
        }
    }

    fn hand_back(&self, keys: impl IntoIterator<Item = AttemptKey>, why: &ReturnReason) {
        let returned = keys.into_iter().map(|key| Report::Returned { key, why: why.clone() });
        // The thread that reads the link must never wait for it to be writable: the engine may be writing itself.
        self.outbox.push(returned, Urgency::CanWait);
    }
}

/// Done while the yard is locked, so that a stop finds every job either in the queue or in a slot.
fn occupy(slot: &Slot, work: Option<&Work>) {
    *lock(&slot.state) = match work {
        Some(work) => State::Starting { key: work.assignment.key, stop: None },
        None => State::Idle,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerOptions;
    use std::collections::BTreeMap;
    use windlass_core::dispatch::{Mirror, ReadyQueue};
    use windlass_types::{Attempt, Bytes, JobId, Resources, RunId, WorkflowId};

    fn assignment(job: u32, resources: Resources) -> Assignment {
        let key = AttemptKey {
            workflow: WorkflowId(1),
            job: JobId(job.into()),
            run: RunId(1),
            attempt: Attempt::FIRST,
        };
        Assignment::plain(key, String::new(), String::new(), resources)
    }

    /// The engine hands out by its mirror of the worker and learns of ends only: what it takes to run must run here.
    fn the_engine_sees_what_runs(capacity: Capacity, classes: &[Resources], mut dice: u64) {
        const JOBS: u32 = 500;
        let mut roll = |sides: usize| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) as usize % sides
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let options = WorkerOptions::new(capacity, path.into(), path.into(), path.join("l"), "t".into());
        let site = Arc::new(Site::open(&options).unwrap());
        let (mut mirror, mut yard) = (Mirror::new(capacity), Yard::new(capacity));
        let mut ready = ReadyQueue::new(classes);
        let class_of: Vec<u32> = (0..JOBS).map(|_| roll(classes.len()) as u32).collect();
        for (job, class) in class_of.iter().enumerate() {
            ready.push(job as u32, *class, roll(3) as i32);
        }
        let mut running: BTreeMap<i64, Work> = BTreeMap::new();
        let mut ended = 0;
        while ended < JOBS {
            for job in mirror.fill(&mut ready, 3) {
                let resources = classes[class_of[job as usize] as usize];
                let assignment = assignment(job, resources);
                yard.queue.push_back(Order { assignment, site: Arc::clone(&site) });
            }
            while let Some(work) = yard.take() {
                running.insert(work.assignment.key.job.0, work);
            }
            assert_eq!((running.len(), yard.queue.len()), (mirror.running(), mirror.queued()));
            let one = *running.keys().nth(roll(running.len())).unwrap();
            yard.pool.give_back(running.remove(&one).unwrap().grant);
            mirror.remove(one as u32);
            ended += 1;
        }
        assert!(mirror.is_idle() && ready.is_empty());
    }

    #[test]
    fn the_engines_mirror_of_a_worker_and_the_worker_agree() {
        let asks = |cpus, memory, gpus| Resources { cpus, memory: Bytes(memory), gpus, ..Resources::DEFAULT };
        let counted = [asks(1, 10, 0), asks(4, 10, 0), asks(1, 90, 0), asks(2, 30, 1), asks(3, 100, 2)];
        let machine = Capacity { cpus: 4, memory: Bytes(100), gpus: 2, nodes: 1, max_jobs: None };
        for dice in 0..20 {
            the_engine_sees_what_runs(machine, &counted, dice);
            the_engine_sees_what_runs(Capacity { max_jobs: Some(2), ..machine }, &counted, dice);
            let by_number = Capacity { max_jobs: Some(7), ..machine };
            the_engine_sees_what_runs(by_number, &[Resources::UNCOUNTED, asks(1, 10, 1)], dice);
        }
    }
}
