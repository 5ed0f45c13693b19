//! The one thread that keeps limits, takes samples and tells of jobs that have run for a while.
//!
//! It sleeps until something is due and is woken only if something falls due earlier. In a flood of short jobs that is a
//! few times a second, however many there are.

use crate::ending::{Strays, processes_in};
use crate::lock;
use crate::outbox::Urgency;
use crate::service::Worker;
use crate::slot::{Act, Slot, State, StopCause, TENDING};
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_proc::sample::{Sample, proportional_memory};
use windlass_proc::{Pid, cgroup, identity, wait};
use windlass_types::Bytes;
use windlass_types::work::{AttemptKey, Report};

/// What is not urgent is done together with what is due a little earlier.
const SLACK: Duration = Duration::from_millis(20);

/// When the supervisor has to be awake.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    next: Mutex<Next>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Next {
    at: Option<Instant>,
    closed: bool,
}

impl Alarm {
    /// Wakes the supervisor then, if it would not be awake by then anyway.
    pub(crate) fn set(&self, at: Instant) {
        let mut next = lock(&self.next);
        if next.at.is_none_or(|set| at < set) {
            next.at = Some(at);
            self.moved.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        lock(&self.next).closed = true;
        self.moved.notify_one();
    }

    /// Returns when it is time, with the alarm off; false if it was closed.
    fn wait(&self) -> bool {
        let mut next = lock(&self.next);
        loop {
            let now = Instant::now();
            next = match next.at {
                _ if next.closed => return false,
                Some(at) if at <= now => {
                    next.at = None;
                    return true;
                }
                Some(at) => self.moved.wait_timeout(next, at - now).unwrap_or_else(PoisonError::into_inner).0,
                None => self.moved.wait(next).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Worker {
    pub(crate) fn supervise(&self) {
        let mut strays = Strays::new();
        // Some workflows want to know of the machine before they have a job.
        self.alarm.set(Instant::now());
        while self.alarm.wait() {
            // First of all: whoever was stopped for a while may have lost its lease meanwhile.
            let lease = self.keep_lease();
            let slots = lock(&self.yard).slots.clone();
            let due = slots.iter().filter_map(|slot| self.attend(slot)).min();
            self.tend_adopted(&mut strays);
            let recording = lock(&self.sites).attend(Instant::now());
            let held = self.deliver_certain_ends(Urgency::Now);
            if let Some(at) = due.into_iter().chain(recording).chain(lease).chain(held).min() {
                self.alarm.set(at);
            }
        }
    }

    /// Does what is due for the job in a slot; returns when to look again.
    fn attend(&self, slot: &Arc<Slot>) -> Option<Instant> {
        loop {
            let mut state = lock(&slot.state);
            let State::Running(running) = &mut *state else { return None };
            let now = Instant::now();
            let look_again = now + TENDING;
            let Some((at, act)) = running.next_act() else { return Some(look_again) };
            let slack = if matches!(act, Act::Sample) { SLACK } else { Duration::ZERO };
            if at > now + slack {
                return Some(at.min(look_again));
            }
            match act {
                Act::Tell => {
                    running.told = true;
                    let (key, at) = (running.key, running.started_at);
                    let pid = identity::from_pid(running.pid);
                    // With the slot still locked, or its end could overtake this.
                    self.outbox.push([Report::Started { key, at, pid }], Urgency::CanWait);
                }
                Act::Sample => {
                    running.next_sample = Some(now + running.sample_every);
                    let (key, pid, in_cgroup) = (running.key, running.pid, running.in_cgroup);
                    drop(state);
                    self.sample(slot, &key, pid, in_cgroup);
                }
                // It ended by itself, and its slot has only not taken note yet.
                Act::Warn if wait::is_over(running.pid) => return None,
                Act::Warn => {
                    running.was_warned = true;
                    self.ask_to_end(slot, running);
                }
                Act::TimeOut => {
                    let grace = running.grace_after_timeout(self.options.timeout_grace);
                    self.stop_running(slot, running, StopCause::Timeout, grace);
                }
                Act::Kill => self.kill_running(slot, running, now),
            }
        }
    }

    /// Looks at a job without its lock: this takes a while, and its slot must be able to see its end.
    fn sample(&self, slot: &Slot, key: &AttemptKey, leader: Pid, in_cgroup: bool) {
        let members = self.family(slot, key, leader);
        lock(&slot.orphans).see(&members);
        let group = slot.cgroup.as_ref().filter(|_| in_cgroup);
        let in_group: HashSet<Pid> = group.map(|_| processes_in(slot)).into_iter().flatten().collect();
        // Some may have left their group, or never got in: the kernel holds these to no limit.
        let (inside, outside): (Vec<Pid>, Vec<Pid>) = members.iter().partition(|pid| in_group.contains(pid));
        let (inside, at_large) = (Sample::take(&inside), Sample::take(&outside));
        let in_group_memory = group.and_then(cgroup::Slot::anonymous_memory).unwrap_or(inside.rss);
        let memory = Bytes(in_group_memory.0 + at_large.rss.0);

        let site = lock(&self.sites).find(key.workflow);
        let mut state = lock(&slot.state);
        let State::Running(running) = &mut *state else { return };
        if running.key != *key {
            return;
        }
        let now = Instant::now();
        let cpu_percent = running.series.add(now, inside.cpu + at_large.cpu, memory);
        if let (Some(site), Some(cpu_percent)) = (&site, cpu_percent) {
            site.record(key, cpu_percent, memory);
        }
        if running.limits.memory.is_some() && !outside.is_empty() {
            running.watch_closely(now);
        }
        // The kernel ends the largest process of a group that is over its limit; the job is over as a whole.
        let lost_some = group.is_some_and(|group| group.oom_kills() > running.oom_kills);
        if running.limits.memory.is_some_and(|limit| lost_some || is_over(limit, memory, &members)) {
            self.stop_running(slot, running, StopCause::OutOfMemory, Duration::ZERO);
        }
    }
}

/// Before a job is ended for its memory, pages that its processes share are counted once.
fn is_over(limit: Bytes, memory: Bytes, members: &[Pid]) -> bool {
    memory > limit && proportional_memory(members).is_none_or(|fair| fair > limit)
}
