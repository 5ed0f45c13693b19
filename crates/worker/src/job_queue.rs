//! The queue of assignments, the free resources, and the slots that serve the queue.
//!
//! Strictly in order: the head of the queue starts when its resources are free, and nothing starts before it. A
//! slot that takes a job checks whether the next one fits too, and wakes or creates a slot for it.

use crate::job_run;
use crate::job_slot::{JobSlot, SlotState};
use crate::lock_ignoring_poison;
use crate::report_outbox::ReportUrgency;
use crate::resource_pool::{ResourceGrant, WorkerResourcePool};
use crate::worker_process::WorkerState;
use crate::workflow_context::WorkflowContext;
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{io, mem};
use windlass_process::signals;
use windlass_types::Capacity;
use windlass_types::worker_messages::{Assignment, AttemptKey, AttemptReport, ReturnReason};

/// Slots only make system calls and format a few lines, so a small stack suffices.
const SLOT_STACK_SIZE: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct JobQueue {
    queue: VecDeque<QueuedJob>,
    resources: WorkerResourcePool,
    pub(crate) slots: Vec<Arc<JobSlot>>,
    threads: Vec<JoinHandle<()>>,
    /// Idle slots.
    idle_slots: usize,
    /// Jobs that hold resources.
    pub(crate) busy_jobs: usize,
    is_closing: bool,
}

/// A job that waits for its resources.
#[derive(Debug)]
struct QueuedJob {
    assignment: Assignment,
    context: Arc<WorkflowContext>,
}

/// A job and the resources granted to it.
#[derive(Debug)]
pub(crate) struct GrantedJob {
    pub(crate) assignment: Assignment,
    pub(crate) context: Arc<WorkflowContext>,
    pub(crate) grant: ResourceGrant,
}

impl JobQueue {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self {
            queue: VecDeque::new(),
            resources: WorkerResourcePool::new(capacity),
            slots: Vec::new(),
            threads: Vec::new(),
            idle_slots: 0,
            busy_jobs: 0,
            is_closing: false,
        }
    }

    fn head_fits(&mut self) -> bool {
        self.queue.front().is_some_and(|head| self.resources.has_room_for(&head.assignment.resources))
    }

    /// Takes the head of the queue, if it fits.
    fn take_next(&mut self) -> Option<GrantedJob> {
        let grant = self.resources.take_resources(&self.queue.front()?.assignment.resources)?;
        let QueuedJob { assignment, context } = self.queue.pop_front()?;
        self.busy_jobs += 1;
        Some(GrantedJob { assignment, context, grant })
    }
}

impl WorkerState {
    pub(crate) fn enqueue_assignments(self: &Arc<Self>, assignments: Vec<Assignment>) {
        let mut orders = Vec::with_capacity(assignments.len());
        let mut contexts = lock_ignoring_poison(&self.contexts);
        for assignment in assignments {
            match contexts.open_context(assignment.key.workflow, &self.options) {
                Ok(context) => orders.push(QueuedJob { assignment, context }),
                Err(trouble) => self.report_returned([assignment.key], &ReturnReason::WorkerTrouble(trouble)),
            }
        }
        drop(contexts);
        let mut job_queue = lock_ignoring_poison(&self.job_queue);
        job_queue.queue.extend(orders);
        self.wake_slot_if_head_fits(job_queue);
    }

    /// Returns assignments that have not started to the engine.
    pub(crate) fn return_unstarted(self: &Arc<Self>, meant: impl Fn(&AttemptKey) -> bool) {
        let mut job_queue = lock_ignoring_poison(&self.job_queue);
        let waiting = mem::take(&mut job_queue.queue).into_iter();
        let (recalled, kept): (VecDeque<_>, _) = waiting.partition(|order| meant(&order.assignment.key));
        job_queue.queue = kept;
        // The new head of the queue may fit.
        self.wake_slot_if_head_fits(job_queue);
        self.report_returned(recalled.iter().map(|order| order.assignment.key), &ReturnReason::Recalled);
    }

    /// Starts no more jobs; slots end after their current job.
    pub(crate) fn close_queue(&self) {
        let mut job_queue = lock_ignoring_poison(&self.job_queue);
        job_queue.is_closing = true;
        job_queue.queue.clear();
        self.work_available.notify_all();
    }

    pub(crate) fn join_slots(&self) {
        loop {
            let Some(thread) = lock_ignoring_poison(&self.job_queue).threads.pop() else { return };
            // A slot that panicked has written the panic to standard error.
            thread.join().ok();
        }
    }

    /// Ensures that a slot takes the head of the queue if it fits.
    pub(crate) fn wake_slot_if_head_fits(self: &Arc<Self>, mut job_queue: MutexGuard<'_, JobQueue>) {
        if job_queue.is_closing || self.may_start_nothing() || !job_queue.head_fits() {
            return;
        }
        if job_queue.idle_slots > 0 {
            // Unlock first, or the woken thread would block on the lock at once.
            drop(job_queue);
            self.work_available.notify_one();
        } else if let Err(error) = self.add_slot(&mut job_queue)
            && job_queue.busy_jobs == 0
        {
            // No slot exists that could take it later.
            let trouble = ReturnReason::WorkerTrouble(format!("cannot start a thread: {error}"));
            let waiting = mem::take(&mut job_queue.queue);
            self.report_returned(waiting.iter().map(|order| order.assignment.key), &trouble);
        }
    }

    /// Takes the head of the queue, if it fits and may start now.
    fn next_job(&self, job_queue: &mut JobQueue) -> Option<GrantedJob> {
        if self.may_start_nothing() { None } else { job_queue.take_next() }
    }

    fn may_start_nothing(&self) -> bool {
        self.lease.is_over() || signals::was_terminated()
    }

    fn add_slot(self: &Arc<Self>, job_queue: &mut JobQueue) -> io::Result<()> {
        let number = job_queue.slots.len();
        // A slot works also without a cgroup.
        let cgroup =
            self.cgroups.as_ref().and_then(|groups| groups.create_slot(&format!("slot-{number}")).ok());
        let slot = Arc::new(JobSlot::new(SlotState::Idle, cgroup));
        let (worker, own) = (Arc::clone(self), Arc::clone(&slot));
        let thread = thread::Builder::new()
            .name(format!("slot-{number}"))
            .stack_size(SLOT_STACK_SIZE)
            .spawn(move || worker.run_slot(&own))?;
        job_queue.slots.push(slot);
        job_queue.threads.push(thread);
        Ok(())
    }

    /// The main loop of a slot.
    fn run_slot(self: &Arc<Self>, slot: &JobSlot) {
        let mut slot_context = job_run::SlotContext::new(slot);
        let mut next = self.wait_for_work(slot);
        while let Some(work) = next {
            let report = self.run_job(slot, &mut slot_context, &work);
            next = self.finish_and_take_next(slot, work.grant);
            let urgency = if next.is_some() { ReportUrgency::CanWait } else { ReportUrgency::Now };
            self.deliver_report(report, urgency);
            if next.is_none() {
                next = self.wait_for_work(slot);
            }
        }
        slot_context.close();
        if let Some(group) = &slot.cgroup {
            group.leave_thread();
        }
    }

    /// Releases the resources of the last job and takes the next one, if it fits.
    fn finish_and_take_next(self: &Arc<Self>, slot: &JobSlot, held: ResourceGrant) -> Option<GrantedJob> {
        let mut job_queue = lock_ignoring_poison(&self.job_queue);
        job_queue.resources.return_resources(held);
        job_queue.busy_jobs -= 1;
        let work = self.next_job(&mut job_queue);
        set_slot_starting(slot, work.as_ref());
        self.wake_slot_if_head_fits(job_queue);
        work
    }

    /// Returns `None` when the worker closes.
    fn wait_for_work(self: &Arc<Self>, slot: &JobSlot) -> Option<GrantedJob> {
        let mut job_queue = lock_ignoring_poison(&self.job_queue);
        loop {
            if let Some(work) = self.next_job(&mut job_queue) {
                set_slot_starting(slot, Some(&work));
                self.wake_slot_if_head_fits(job_queue);
                return Some(work);
            }
            if job_queue.is_closing {
                return None;
            }
            job_queue.idle_slots += 1;
            job_queue = self.work_available.wait(job_queue).unwrap_or_else(PoisonError::into_inner);
            job_queue.idle_slots -= 1;
        }
    }

    fn report_returned(&self, keys: impl IntoIterator<Item = AttemptKey>, why: &ReturnReason) {
        let returned = keys.into_iter().map(|key| AttemptReport::Returned { key, why: why.clone() });
        // The thread that reads the link must never block on writing to it: the engine may be writing itself.
        self.outbox.push(returned, ReportUrgency::CanWait);
    }
}

/// Runs while the queue is locked, so that a stop finds every job either in the queue or in a slot.
fn set_slot_starting(slot: &JobSlot, work: Option<&GrantedJob>) {
    *lock_ignoring_poison(&slot.state) = match work {
        Some(work) => SlotState::Starting { key: work.assignment.key, stop: None },
        None => SlotState::Idle,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerOptions;
    use std::collections::BTreeMap;
    use windlass_core::dispatch::{ReadyQueue, WorkerUsage};
    use windlass_types::{Attempt, Bytes, JobId, Resources, RunId, WorkflowId};

    fn assignment(job: u32, resources: Resources) -> Assignment {
        let key = AttemptKey {
            workflow: WorkflowId(1),
            job: JobId(job.into()),
            run: RunId(1),
            attempt: Attempt::FIRST,
        };
        Assignment::from_command(key, String::new(), String::new(), resources)
    }

    /// The engine assigns by its own accounting of the worker and learns only of ends: all that it considers
    /// running must fit here.
    fn engine_and_worker_agree(capacity: Capacity, classes: &[Resources], mut random: u64) {
        const JOBS: u32 = 500;
        let mut roll = |sides: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % sides
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let options = WorkerOptions::new(capacity, path.into(), path.into(), path.join("l"), "t".into());
        let context = Arc::new(WorkflowContext::open(&options).unwrap());
        let (mut usage, mut job_queue) = (WorkerUsage::new(capacity), JobQueue::new(capacity));
        let mut ready = ReadyQueue::new(classes);
        let class_of: Vec<u32> = (0..JOBS).map(|_| roll(classes.len()) as u32).collect();
        for (job, class) in class_of.iter().enumerate() {
            ready.push(job as u32, *class, roll(3) as i32);
        }
        let mut running: BTreeMap<i64, GrantedJob> = BTreeMap::new();
        let mut ended = 0;
        while ended < JOBS {
            for job in usage.take_jobs(&mut ready, 3) {
                let resources = classes[class_of[job as usize] as usize];
                let assignment = assignment(job, resources);
                job_queue.queue.push_back(QueuedJob { assignment, context: Arc::clone(&context) });
            }
            while let Some(work) = job_queue.take_next() {
                running.insert(work.assignment.key.job.0, work);
            }
            assert_eq!((running.len(), job_queue.queue.len()), (usage.running(), usage.queued()));
            let one = *running.keys().nth(roll(running.len())).unwrap();
            job_queue.resources.return_resources(running.remove(&one).unwrap().grant);
            usage.remove(one as u32);
            ended += 1;
        }
        assert!(usage.is_idle() && ready.is_empty());
    }

    #[test]
    fn scheduler_and_worker_agree_on_fitting_jobs() {
        let asks = |cpus, memory, gpus| Resources { cpus, memory: Bytes(memory), gpus, ..Resources::DEFAULT };
        let counted = [asks(1, 10, 0), asks(4, 10, 0), asks(1, 90, 0), asks(2, 30, 1), asks(3, 100, 2)];
        let machine = Capacity { cpus: 4, memory: Bytes(100), gpus: 2, nodes: 1, max_jobs: None };
        for random in 0..20 {
            engine_and_worker_agree(machine, &counted, random);
            engine_and_worker_agree(Capacity { max_jobs: Some(2), ..machine }, &counted, random);
            let by_number = Capacity { max_jobs: Some(7), ..machine };
            engine_and_worker_agree(by_number, &[Resources::DEFAULT_WITHOUT_CPUS, asks(1, 10, 1)], random);
        }
    }
}
