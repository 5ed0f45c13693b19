//! Jobs that are ready, but not yet: those that wait before they are tried again.

use super::WorkflowState;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::{JobStatus, Timestamp};

/// Ready jobs in the order of the time from which they may be claimed.
#[derive(Clone, Debug, Default)]
pub(super) struct DelayQueue {
    /// Whether the job is to be tried alone, by time and job.
    due: BTreeMap<(Timestamp, u32), bool>,
    /// The time of each job that has one. One that stands here alone is not ready for another reason.
    due_at: FxHashMap<u32, Timestamp>,
    /// How long each job may wait at most. Only of those that were set since the time was last heard of.
    max_delays: Vec<(u32, Duration)>,
    /// The last time that was heard of.
    last_time: Option<Timestamp>,
}

impl DelayQueue {
    pub(super) fn set_delay(&mut self, job: u32, at: Timestamp, delay: Option<Duration>) {
        self.remove(job);
        self.due_at.insert(job, at);
        self.max_delays.extend(delay.map(|delay| (job, delay)));
    }

    /// Takes the job in, if it has to wait.
    pub(super) fn enqueue(&mut self, job: u32) -> bool {
        let Some(at) = self.due_at.get(&job) else { return false };
        self.due.insert((*at, job), false);
        true
    }

    /// The job waits no longer, for whatever reason. Whether it did.
    pub(super) fn remove(&mut self, job: u32) -> bool {
        self.due_at.remove(&job).is_some_and(|at| self.due.remove(&(at, job)).is_some())
    }

    /// How the job will be tried when its time has come. `false`: it is not waiting.
    pub(super) fn set_isolated(&mut self, job: u32, alone: bool) -> bool {
        let waiting = self.due_at.get(&job).and_then(|at| self.due.get_mut(&(*at, job)));
        waiting.map(|is_alone| *is_alone = alone).is_some()
    }

    fn on_time(&mut self, now: Timestamp) {
        if let Some(before) = self.last_time.filter(|before| now < *before) {
            self.shift_back(before.0.saturating_sub(now.0));
        }
        self.last_time = Some(now);
        for (job, delay) in std::mem::take(&mut self.max_delays) {
            self.cap_wait(job, now.after(delay));
        }
    }

    /// The clock was set back before it was asked again, for example across a crash: the job waits no longer for that.
    fn cap_wait(&mut self, job: u32, latest: Timestamp) {
        let Some(at) = self.due_at.get_mut(&job).filter(|at| latest < **at) else { return };
        let before = std::mem::replace(at, latest);
        if let Some(alone) = self.due.remove(&(before, job)) {
            self.due.insert((latest, job), alone);
        }
    }

    /// The clock was set back: whoever had to wait another minute still has.
    fn shift_back(&mut self, by: i64) {
        let earlier = |at: Timestamp| Timestamp(at.0.saturating_sub(by));
        self.due = std::mem::take(&mut self.due)
            .into_iter()
            .map(|((at, job), alone)| ((earlier(at), job), alone))
            .collect();
        self.due_at.values_mut().for_each(|at| *at = earlier(*at));
    }

    /// The next one whose time has come, and whether it is tried alone.
    fn pop_due(&mut self) -> Option<(u32, bool)> {
        let now = self.last_time?;
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, job), alone) = first.remove_entry();
        self.due_at.remove(&job);
        Some((job, alone))
    }
}

impl WorkflowState {
    /// When a job that waits may be claimed: call [`Board::on_time`] then, and whenever time may have passed.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.delayed.due.keys().next().map(|(at, _)| *at)
    }

    /// How many ready jobs wait for their time.
    pub fn delayed_count(&self) -> usize {
        self.delayed.due.len()
    }

    /// Lets go of those whose time has come. Says how many they are.
    pub fn release_due(&mut self, now: Timestamp) -> usize {
        self.delayed.on_time(now);
        let mut count = 0;
        while let Some((job, alone)) = self.delayed.pop_due() {
            count += 1;
            if alone { self.isolated_waiting.push_back(job) } else { self.enqueue(job) }
        }
        count
    }

    /// Takes a ready job out of wherever it waits to be claimed.
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
