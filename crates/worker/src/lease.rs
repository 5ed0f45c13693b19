//! How long jobs may run without contact to the engine, and what happens when that time is over.
//!
//! A worker that is cut off cannot tell whether its jobs have been reassigned. When its lease expires it
//! freezes them: they do no harm then, and nothing is lost if they turn out to be still its own. The expiry is
//! a time on the machine's boot clock, which also runs while the machine sleeps and while this process is
//! stopped: a worker that wakes up late knows that it is late, and messages that were not read for an hour
//! renew nothing.

use crate::job_slot::{JobSlot, RunningAttempt, SlotState, StopCause};
use crate::lock_ignoring_poison;
use crate::report_outbox::ReportUrgency;
use crate::worker_process::WorkerState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windlass_process::{process_identity, process_tree};
use windlass_types::log_attempt;
use windlass_types::worker_messages::{FromWorker, StopReason};

#[derive(Debug, Default)]
pub(crate) struct ExecutionLease {
    /// In nanoseconds since boot; 0: no lease is required.
    expires_at: AtomicU64,
    /// Some jobs are or may be frozen.
    is_any_frozen: AtomicBool,
    /// The expiry was handled: all running jobs were frozen, and the engine was informed. A job that starts too
    /// late freezes only itself.
    is_expiry_handled: AtomicBool,
    /// Held while jobs are frozen or thawed, so that the two do not overtake each other.
    freeze_lock: Mutex<()>,
}

impl ExecutionLease {
    fn expires_at(&self) -> Option<Duration> {
        Some(self.expires_at.load(Ordering::SeqCst)).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    /// Whether nothing may start or run now.
    pub(crate) fn is_over(&self) -> bool {
        self.expires_at().is_some_and(|until| process_identity::boot_time() >= until)
    }

    fn time_left(&self) -> Option<Duration> {
        self.expires_at().map(|until| until.saturating_sub(process_identity::boot_time()))
    }
}

impl WorkerState {
    /// Called on the thread that reads the link.
    pub(crate) fn renew_lease(self: &Arc<Self>, until: Duration) {
        {
            let _one_at_a_time = lock_ignoring_poison(&self.lease.freeze_lock);
            let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX).max(1);
            self.lease.expires_at.store(nanos, Ordering::SeqCst);
            if !self.lease.is_over() {
                self.lease.is_expiry_handled.store(false, Ordering::SeqCst);
                if self.lease.is_any_frozen.swap(false, Ordering::SeqCst) {
                    self.thaw_all();
                }
            }
        }
        self.report_lease(ReportUrgency::CanWait);
        self.alarm.wake_at(Instant::now() + self.lease.time_left().unwrap_or_default());
        // Jobs that waited for the lease can start.
        self.wake_slot_if_head_fits(lock_ignoring_poison(&self.job_queue));
    }

    /// Called by the supervisor; returns when to check again.
    pub(crate) fn enforce_lease(&self) -> Option<Instant> {
        let left = self.lease.time_left()?;
        if !left.is_zero() {
            return Some(Instant::now() + left);
        }
        let turning = lock_ignoring_poison(&self.lease.freeze_lock);
        if self.lease.is_over() && !self.lease.is_expiry_handled.swap(true, Ordering::SeqCst) {
            self.lease.is_any_frozen.store(true, Ordering::SeqCst);
            let slots = lock_ignoring_poison(&self.job_queue).slots.clone();
            for slot in slots {
                self.freeze_slot(&slot);
            }
            drop(turning);
            self.report_lease(ReportUrgency::Now);
        }
        // The next lease sets the alarm.
        None
    }

    fn report_lease(&self, urgency: ReportUrgency) {
        let Some(lease) = self.lease.expires_at() else { return };
        let frozen = self.lease.is_any_frozen.load(Ordering::SeqCst);
        self.outbox.send_alive(FromWorker::Alive { lease, frozen }, urgency);
    }

    fn freeze_slot(&self, slot: &JobSlot) {
        match &mut *lock_ignoring_poison(&slot.state) {
            // A starting job checks for itself when it has a process.
            SlotState::Idle | SlotState::Starting { .. } => {}
            SlotState::Running(running) => self.freeze_running(slot, running),
            SlotState::Ending { kill_at, .. } => *kill_at = Instant::now(),
        }
    }

    /// Freezes a running job; one that was asked to end is killed instead.
    pub(crate) fn freeze_running(&self, slot: &JobSlot, running: &mut RunningAttempt) {
        let now = Instant::now();
        self.lease.is_any_frozen.store(true, Ordering::SeqCst);
        if running.remote_launch.is_some() {
            // Freezing the launcher would not freeze the job, which may be reassigned from now on.
            let interrupted = StopCause::Engine(StopReason::Interrupted);
            self.stop_running(slot, running, interrupted, Duration::ZERO);
        } else if running.stop.is_some() {
            self.kill_running(slot, running, now);
        } else if running.frozen_since.is_none() {
            log_attempt!(debug, running.key, "job is frozen: the lease has expired");
            running.frozen_since = Some(now);
            let inside = slot.cgroup.as_ref().filter(|group| running.in_cgroup && group.set_frozen(true));
            process_tree::freeze_processes(|| {
                let stopped = inside.map(windlass_process::cgroup::SlotCgroup::processes).unwrap_or_default();
                let mut members = self.job_processes(slot, &running.key, running.pid);
                members.retain(|pid| !stopped.contains(pid));
                members
            });
        }
    }

    fn thaw_all(&self) {
        let slots = lock_ignoring_poison(&self.job_queue).slots.clone();
        for slot in slots {
            let mut state = lock_ignoring_poison(&slot.state);
            if let SlotState::Running(running) = &mut *state
                && running.thaw(Instant::now())
            {
                log_attempt!(debug, running.key, "job continues: the lease is renewed");
                unfreeze_group(&slot);
                process_tree::thaw_processes(&self.job_processes(&slot, &running.key, running.pid));
            }
        }
        self.alarm.wake_at(Instant::now());
    }
}

/// A frozen cgroup would block the next job of its slot.
pub(crate) fn unfreeze_group(slot: &JobSlot) {
    if let Some(group) = &slot.cgroup {
        group.set_frozen(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_slot::tests::{running, spawn, worker};
    use windlass_process::{child_wait, procfs};

    #[test]
    fn a_job_that_starts_after_expiry_freezes_only_itself() {
        let directory = tempfile::tempdir().unwrap();
        let worker = worker(directory.path());
        let pid = spawn(&worker, "exec sleep 1000");
        let job = RunningAttempt { pid, ..running(Instant::now(), None) };
        let slot = Arc::new(JobSlot::new(SlotState::Running(Box::new(job)), None));
        lock_ignoring_poison(&worker.job_queue).slots.push(slot);
        worker.lease.expires_at.store(1, Ordering::SeqCst);
        // As for another job that starts after the expiry and before the supervisor checks.
        worker.lease.is_any_frozen.store(true, Ordering::SeqCst);
        assert_eq!(worker.enforce_lease(), None);
        assert!(procfs::read_stat(pid).unwrap().is_stopped());
        process_tree::kill_process(pid);
        child_wait::reap_child(pid).unwrap();
    }
}
