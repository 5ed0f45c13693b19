//! The thread that enforces limits, takes samples and reports the start of longer jobs.
//!
//! It sleeps until something is due and is woken only if something falls due earlier. In a flood of short jobs
//! that is a few times a second, regardless of their number.

use crate::job_slot::{JobSlot, MAX_CHECK_INTERVAL, SlotState, StopCause, SupervisorAction, next_sample};
use crate::job_termination::{StrayProcessRecords, cgroup_processes};
use crate::lock_ignoring_poison;
use crate::report_outbox::ReportUrgency;
use crate::worker_process::WorkerState;
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_process::usage_sample::{UsageSample, measure_proportional_memory};
use windlass_process::{Pid, cgroup, child_wait, process_identity};
use windlass_types::Bytes;
use windlass_types::worker_messages::{AttemptKey, AttemptReport};

/// Work that is not urgent is done together with work due a little earlier.
const WAKEUP_SLACK: Duration = Duration::from_millis(20);

/// When the supervisor has to wake up.
#[derive(Debug, Default)]
pub(crate) struct SupervisorAlarm {
    next: Mutex<NextWakeup>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct NextWakeup {
    at: Option<Instant>,
    is_closed: bool,
}

impl SupervisorAlarm {
    /// Wakes the supervisor at that time, unless it wakes up earlier anyway.
    pub(crate) fn wake_at(&self, at: Instant) {
        let mut next = lock_ignoring_poison(&self.next);
        if next.at.is_none_or(|set| at < set) {
            next.at = Some(at);
            self.changed.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        lock_ignoring_poison(&self.next).is_closed = true;
        self.changed.notify_one();
    }

    /// Waits until the alarm is due and clears it; returns false if it was closed.
    fn wait_until_due(&self) -> bool {
        let mut next = lock_ignoring_poison(&self.next);
        loop {
            let now = Instant::now();
            next = match next.at {
                _ if next.is_closed => return false,
                Some(at) if at <= now => {
                    next.at = None;
                    return true;
                }
                Some(at) => {
                    self.changed.wait_timeout(next, at - now).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(next).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl WorkerState {
    pub(crate) fn run_supervisor(&self) {
        let mut strays = StrayProcessRecords::new();
        // Some workflows record the machine's usage before they have a job.
        self.alarm.wake_at(Instant::now());
        while self.alarm.wait_until_due() {
            // Check the lease first: it may have expired while the process was stopped.
            let lease = self.enforce_lease();
            let slots = lock_ignoring_poison(&self.job_queue).slots.clone();
            let due = slots.iter().filter_map(|slot| self.supervise_slot(slot)).min();
            self.reap_and_record_adopted(&mut strays);
            let recording = lock_ignoring_poison(&self.contexts).flush_all_if_due(Instant::now());
            let held = self.deliver_certain_ends(ReportUrgency::Now);
            if let Some(at) = due.into_iter().chain(recording).chain(lease).chain(held).min() {
                self.alarm.wake_at(at);
            }
        }
    }

    /// Performs what is due for the job in a slot; returns when to check again.
    fn supervise_slot(&self, slot: &Arc<JobSlot>) -> Option<Instant> {
        loop {
            let mut state = lock_ignoring_poison(&slot.state);
            let SlotState::Running(running) = &mut *state else { return None };
            let now = Instant::now();
            let look_again = now + MAX_CHECK_INTERVAL;
            let Some((at, act)) = running.next_action() else { return Some(look_again) };
            let slack = if matches!(act, SupervisorAction::Sample) { WAKEUP_SLACK } else { Duration::ZERO };
            if at > now + slack {
                return Some(at.min(look_again));
            }
            match act {
                SupervisorAction::ReportStart => {
                    running.is_start_reported = true;
                    let (key, at) = (running.key, running.started_at);
                    let pid = process_identity::from_pid(running.pid);
                    // With the slot still locked, or its end could overtake this report.
                    self.outbox.push([AttemptReport::Started { key, at, pid }], ReportUrgency::CanWait);
                }
                SupervisorAction::Sample => {
                    running.next_sample = Some(next_sample(running.started, now, running.sample_interval));
                    let (key, pid, in_cgroup) = (running.key, running.pid, running.in_cgroup);
                    drop(state);
                    self.sample_job(slot, &key, pid, in_cgroup);
                }
                // It ended by itself; its slot has not handled that yet.
                SupervisorAction::Warn if child_wait::is_over(running.pid) => return None,
                SupervisorAction::Warn => {
                    running.was_warned = true;
                    self.send_stop_signal(slot, running);
                }
                SupervisorAction::TimeOut => {
                    let grace = running.grace_after_timeout(self.options.timeout_grace);
                    self.stop_running(slot, running, StopCause::Timeout, grace);
                }
                SupervisorAction::Kill => self.kill_running(slot, running, now),
            }
        }
    }

    /// Samples a job without its lock: this takes a while, and its slot must be able to handle its end.
    fn sample_job(&self, slot: &JobSlot, key: &AttemptKey, leader: Pid, in_cgroup: bool) {
        let members = self.job_processes(slot, key, leader);
        lock_ignoring_poison(&slot.orphan_usage).record_processes(&members);
        let group = slot.cgroup.as_ref().filter(|_| in_cgroup);
        let in_group: HashSet<Pid> = group.map(|_| cgroup_processes(slot)).into_iter().flatten().collect();
        // Some processes may be outside the cgroup, where the kernel enforces no limit.
        let (inside, outside): (Vec<Pid>, Vec<Pid>) = members.iter().partition(|pid| in_group.contains(pid));
        let (inside, at_large) = (UsageSample::measure(&inside), UsageSample::measure(&outside));
        let group_memory = group.and_then(cgroup::SlotCgroup::memory);
        let in_group_memory = group_memory.map_or(inside.rss, |memory| memory.anonymous);
        let memory = Bytes(in_group_memory.0 + at_large.rss.0);

        let context = lock_ignoring_poison(&self.contexts).find_context(key.workflow);
        let mut state = lock_ignoring_poison(&slot.state);
        let SlotState::Running(running) = &mut *state else { return };
        if running.key != *key {
            return;
        }
        let now = Instant::now();
        let page_cache = group_memory.map_or(Bytes(0), |memory| memory.page_cache);
        running.page_cache = running.page_cache.max(page_cache);
        let cpu_percent = running.series.add_sample(now, inside.cpu + at_large.cpu, memory);
        if let (Some(context), Some(cpu_percent)) = (&context, cpu_percent) {
            context.record_job_sample(key, cpu_percent, memory);
        }
        if running.limits.memory.is_some() && !outside.is_empty() {
            running.sample_for_memory_limit(now);
        }
        // The kernel kills the largest process of a cgroup that is over its limit; the worker ends the whole
        // job.
        let lost_some = group.is_some_and(|group| group.oom_kills() > running.oom_kills);
        if running.limits.memory.is_some_and(|limit| lost_some || exceeds_limit(limit, memory, &members)) {
            self.stop_running(slot, running, StopCause::OutOfMemory, Duration::ZERO);
        }
    }
}

/// Before a job is ended for its memory, pages that its processes share are counted once.
fn exceeds_limit(limit: Bytes, memory: Bytes, members: &[Pid]) -> bool {
    memory > limit && measure_proportional_memory(members).is_none_or(|fair| fair > limit)
}
