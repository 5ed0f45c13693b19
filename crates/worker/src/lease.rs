//! How long jobs may run without a word from whoever hired this worker, and what happens when that time is over.
//!
//! A worker that is cut off cannot tell whether its jobs have been given to somebody else. So when its lease is over it
//! freezes them: they do no harm then, and nothing is lost if it turns out that they are still its own. The lease is a
//! time on the machine's own clock, which goes on while the machine sleeps and while this process is stopped: whoever
//! wakes up late knows that it is late, and words that lay unread for an hour renew nothing.

use crate::lock;
use crate::outbox::Urgency;
use crate::service::Worker;
use crate::slot::{Running, Slot, State, StopCause};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windlass_proc::{identity, tree};
use windlass_types::work::{FromWorker, StopReason};

#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// In nanoseconds since boot; 0: nobody asks for one.
    until: AtomicU64,
    /// Some jobs are, or may be.
    frozen: AtomicBool,
    /// That it is over was seen to: all that ran was frozen, and it was told. One job that starts too late freezes itself, and
    /// speaks for no other.
    seen_to: AtomicBool,
    /// Held while jobs are frozen or thawed, so that the one does not overtake the other.
    turning: Mutex<()>,
}

impl Lease {
    fn until(&self) -> Option<Duration> {
        Some(self.until.load(Ordering::SeqCst)).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    /// Nothing may start or run now.
    pub(crate) fn is_over(&self) -> bool {
        self.until().is_some_and(|until| identity::boot_time() >= until)
    }

    fn left(&self) -> Option<Duration> {
        self.until().map(|until| until.saturating_sub(identity::boot_time()))
    }
}

impl Worker {
    /// Called on the thread that reads the link.
    pub(crate) fn renew_lease(self: &Arc<Self>, until: Duration) {
        {
            let _one_at_a_time = lock(&self.lease.turning);
            let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX).max(1);
            self.lease.until.store(nanos, Ordering::SeqCst);
            if !self.lease.is_over() {
                self.lease.seen_to.store(false, Ordering::SeqCst);
                if self.lease.frozen.swap(false, Ordering::SeqCst) {
                    self.thaw();
                }
            }
        }
        self.tell_lease(Urgency::CanWait);
        self.alarm.set(Instant::now() + self.lease.left().unwrap_or_default());
        // What waited for its lease can start.
        self.rouse(lock(&self.yard));
    }

    /// Called by the supervisor; returns when to look again.
    pub(crate) fn keep_lease(&self) -> Option<Instant> {
        let left = self.lease.left()?;
        if !left.is_zero() {
            return Some(Instant::now() + left);
        }
        let turning = lock(&self.lease.turning);
        if self.lease.is_over() && !self.lease.seen_to.swap(true, Ordering::SeqCst) {
            self.lease.frozen.store(true, Ordering::SeqCst);
            let slots = lock(&self.yard).slots.clone();
            for slot in slots {
                self.freeze_slot(&slot);
            }
            drop(turning);
            self.tell_lease(Urgency::Now);
        }
        // The next lease sets the alarm.
        None
    }

    fn tell_lease(&self, urgency: Urgency) {
        let Some(lease) = self.lease.until() else { return };
        let frozen = self.lease.frozen.load(Ordering::SeqCst);
        self.outbox.tell(FromWorker::Alive { lease, frozen }, urgency);
    }

    fn freeze_slot(&self, slot: &Slot) {
        match &mut *lock(&slot.state) {
            // One that starts looks for itself when it has a process.
            State::Idle | State::Starting { .. } => {}
            State::Running(running) => self.freeze_running(slot, running),
            State::Leaving { kill_at, .. } => *kill_at = Instant::now(),
        }
    }

    /// One that was told to end has no time left for it.
    pub(crate) fn freeze_running(&self, slot: &Slot, running: &mut Running) {
        let now = Instant::now();
        self.lease.frozen.store(true, Ordering::SeqCst);
        if running.elsewhere.is_some() {
            // It would not stand still if its launcher did, and others may be given it from now on.
            let interrupted = StopCause::Engine(StopReason::Interrupted);
            self.stop_running(slot, running, interrupted, Duration::ZERO);
        } else if running.stop.is_some() {
            self.kill_running(slot, running, now);
        } else if running.frozen_since.is_none() {
            running.frozen_since = Some(now);
            let inside = slot.cgroup.as_ref().filter(|group| running.in_cgroup && group.freeze(true));
            tree::freeze(|| {
                let stopped = inside.map(windlass_proc::cgroup::Slot::processes).unwrap_or_default();
                let mut members = self.family(slot, &running.key, running.pid);
                members.retain(|pid| !stopped.contains(pid));
                members
            });
        }
    }

    fn thaw(&self) {
        let slots = lock(&self.yard).slots.clone();
        for slot in slots {
            let mut state = lock(&slot.state);
            if let State::Running(running) = &mut *state
                && running.thaw(Instant::now())
            {
                unfreeze_group(&slot);
                tree::thaw(&self.family(&slot, &running.key, running.pid));
            }
        }
        self.alarm.set(Instant::now());
    }
}

/// A group that stayed frozen would hold the next job of its slot.
pub(crate) fn unfreeze_group(slot: &Slot) {
    if let Some(group) = &slot.cgroup {
        group.freeze(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::tests::{running, spawn, worker};
    use windlass_proc::{procfs, wait};

    #[test]
    fn one_that_starts_too_late_keeps_no_other_awake() {
        let directory = tempfile::tempdir().unwrap();
        let worker = worker(directory.path());
        let pid = spawn(&worker, "exec sleep 1000");
        let job = Running { pid, ..running(Instant::now(), None) };
        let slot = Arc::new(Slot::new(State::Running(Box::new(job)), None));
        lock(&worker.yard).slots.push(slot);
        worker.lease.until.store(1, Ordering::SeqCst);
        // As another one does that starts when the time is over, before the supervisor looks.
        worker.lease.frozen.store(true, Ordering::SeqCst);
        assert_eq!(worker.keep_lease(), None);
        assert!(procfs::stat(pid).unwrap().is_stopped());
        tree::kill(pid);
        wait::reap(pid).unwrap();
    }
}
