//! The one thread that keeps limits, takes samples and tells of jobs that have run for a while.
//!
//! It sleeps until something is due and is woken only if something falls due earlier. In a flood of short jobs that is a
//! few times a second, however many there are.

use crate::job_slot::{JobSlot, MAX_CHECK_INTERVAL, SlotState, StopCause, SupervisorAction};
use crate::job_termination::{StrayRecords, cgroup_processes};
use crate::lock_ignoring_poison;
use crate::report_outbox::ReportUrgency;
use crate::worker_process::Worker;
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_process::usage_sample::{UsageSample, measure_proportional_memory};
use windlass_process::{Pid, cgroup, child_wait, process_identity};
use windlass_types::Bytes;
use windlass_types::worker_messages::{AttemptKey, AttemptReport};

/// What is not urgent is done together with what is due a little earlier.
const WAKEUP_SLACK: Duration = Duration::from_millis(20);

/// When the supervisor has to be awake.
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
    /// Wakes the supervisor then, if it would not be awake by then anyway.
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

    /// Returns when it is time, with the alarm off; false if it was closed.
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

impl Worker {
    pub(crate) fn run_supervisor(&self) {
        let mut strays = StrayRecords::new();
        // Some workflows want to know of the machine before they have a job.
        self.alarm.wake_at(Instant::now());
        while self.alarm.wait_until_due() {
            // First of all: whoever was stopped for a while may have lost its lease meanwhile.
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

    /// Does what is due for the job in a slot; returns when to look again.
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
                    // With the slot still locked, or its end could overtake this.
                    self.outbox.push([AttemptReport::Started { key, at, pid }], ReportUrgency::CanWait);
                }
                SupervisorAction::Sample => {
                    running.next_sample = Some(now + running.sample_interval);
                    let (key, pid, in_cgroup) = (running.key, running.pid, running.in_cgroup);
                    drop(state);
                    self.sample_job(slot, &key, pid, in_cgroup);
                }
                // It ended by itself, and its slot has only not taken note yet.
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

    /// Looks at a job without its lock: this takes a while, and its slot must be able to see its end.
    fn sample_job(&self, slot: &JobSlot, key: &AttemptKey, leader: Pid, in_cgroup: bool) {
        let members = self.job_processes(slot, key, leader);
        lock_ignoring_poison(&slot.orphan_usage).record_processes(&members);
        let group = slot.cgroup.as_ref().filter(|_| in_cgroup);
        let in_group: HashSet<Pid> = group.map(|_| cgroup_processes(slot)).into_iter().flatten().collect();
        // Some may have left their group, or never got in: the kernel holds these to no limit.
        let (inside, outside): (Vec<Pid>, Vec<Pid>) = members.iter().partition(|pid| in_group.contains(pid));
        let (inside, at_large) = (UsageSample::measure(&inside), UsageSample::measure(&outside));
        let in_group_memory = group.and_then(cgroup::SlotCgroup::anonymous_memory).unwrap_or(inside.rss);
        let memory = Bytes(in_group_memory.0 + at_large.rss.0);

        let site = lock_ignoring_poison(&self.contexts).find_context(key.workflow);
        let mut state = lock_ignoring_poison(&slot.state);
        let SlotState::Running(running) = &mut *state else { return };
        if running.key != *key {
            return;
        }
        let now = Instant::now();
        let cpu_percent = running.series.add_sample(now, inside.cpu + at_large.cpu, memory);
        if let (Some(site), Some(cpu_percent)) = (&site, cpu_percent) {
            site.record_job_sample(key, cpu_percent, memory);
        }
        if running.limits.memory.is_some() && !outside.is_empty() {
            running.sample_for_memory_limit(now);
        }
        // The kernel ends the largest process of a group that is over its limit; the job is over as a whole.
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
