//! Ready jobs with a delay before their next attempt.

use super::WorkflowState;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::{JobStatus, Timestamp};

/// Ready jobs in the order of the time from which they may be claimed.
#[derive(Clone, Debug, Default)]
pub(super) struct DelayQueue {
    /// By time and job: whether the job is to run alone.
    due: BTreeMap<(Timestamp, u32), bool>,
    /// The time of each delayed job.
    due_at: FxHashMap<u32, Timestamp>,
    /// Maximum delay of each job. Only for those added since the last known time.
    max_delays: Vec<(u32, Duration)>,
    /// The last known time.
    last_time: Option<Timestamp>,
}

impl DelayQueue {
    pub(super) fn set_delay(&mut self, job: u32, at: Timestamp, delay: Option<Duration>) {
        self.remove(job);
        self.due_at.insert(job, at);
        self.max_delays.extend(delay.map(|delay| (job, delay)));
    }

    /// Adds the job if it has a delay.
    pub(super) fn enqueue(&mut self, job: u32) -> bool {
        let Some(at) = self.due_at.get(&job) else { return false };
        self.due.insert((*at, job), false);
        true
    }

    /// Removes the job for any reason. Returns whether it was delayed.
    pub(super) fn remove(&mut self, job: u32) -> bool {
        self.due_at.remove(&job).is_some_and(|at| self.due.remove(&(at, job)).is_some())
    }

    /// Sets whether the job will run alone. `false`: it is not delayed.
    pub(super) fn set_isolated(&mut self, job: u32, alone: bool) -> bool {
        let waiting = self.due_at.get(&job).and_then(|at| self.due.get_mut(&(*at, job)));
        waiting.map(|is_alone| *is_alone = alone).is_some()
    }

    fn on_time(&mut self, now: Timestamp) {
        if let Some(before) = self.last_time.filter(|before| now < *before) {
            self.keep_remaining_delays(before.0.saturating_sub(now.0));
        }
        self.last_time = Some(now);
        for (job, delay) in std::mem::take(&mut self.max_delays) {
            self.cap_wait(job, now.plus(delay));
        }
    }

    /// Limits the delay if the clock was set back, for example across a crash.
    fn cap_wait(&mut self, job: u32, latest: Timestamp) {
        let Some(at) = self.due_at.get_mut(&job).filter(|at| latest < **at) else { return };
        let before = std::mem::replace(at, latest);
        if let Some(alone) = self.due.remove(&(before, job)) {
            self.due.insert((latest, job), alone);
        }
    }

    /// The clock was set back: keeps the remaining delays.
    fn keep_remaining_delays(&mut self, by: i64) {
        let earlier = |at: Timestamp| Timestamp(at.0.saturating_sub(by));
        self.due = std::mem::take(&mut self.due)
            .into_iter()
            .map(|((at, job), alone)| ((earlier(at), job), alone))
            .collect();
        self.due_at.values_mut().for_each(|at| *at = earlier(*at));
    }

    /// Returns the next due job, and whether it runs alone.
    fn pop_due(&mut self) -> Option<(u32, bool)> {
        let now = self.last_time?;
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, job), alone) = first.remove_entry();
        self.due_at.remove(&job);
        Some((job, alone))
    }
}

impl WorkflowState {
    /// When a delayed job may be claimed: call [`Self::release_due`] then, and whenever time may have passed.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.delayed.due.keys().next().map(|(at, _)| *at)
    }

    /// Number of delayed jobs.
    pub fn delayed_count(&self) -> usize {
        self.delayed.due.len()
    }

    /// Releases due jobs. Returns their number.
    pub fn release_due(&mut self, now: Timestamp) -> usize {
        self.delayed.on_time(now);
        let mut count = 0;
        while let Some((job, alone)) = self.delayed.pop_due() {
            count += 1;
            if alone { self.isolated_waiting.push_back(job) } else { self.enqueue(job) }
        }
        count
    }

    /// Removes a ready job from the queue in which it waits.
    pub(super) fn remove_from_queues(&mut self, job: u32) {
        if self.status(job) != JobStatus::Ready || self.delayed.remove(job) {
            return;
        }
        match self.isolated_waiting.iter().position(|waiting| *waiting == job) {
            Some(place) => drop(self.isolated_waiting.remove(place)),
            None => _ = self.ready.remove(job, self.demand_of_job[job as usize]),
        }
    }
}
