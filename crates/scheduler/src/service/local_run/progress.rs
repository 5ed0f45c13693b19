//! Reports the progress of the run to its observer.

use super::{LocalRun, PROGRESS_INTERVAL, STORE_RETRY_DELAY};
use crate::run_observer::{RunProgress, RunningJob};
use crate::service::active_workflow::ActiveWorkflow;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use windlass_types::JobStatus;

const RATE_WINDOW: Duration = Duration::from_secs(5);

/// How fast jobs settle.
#[derive(Debug, Default)]
pub(super) struct SettledRate {
    /// (time, number of settled jobs at that time), over the last seconds.
    samples: VecDeque<(Instant, u64)>,
}

impl SettledRate {
    fn add_sample(&mut self, now: Instant, settled: u64) {
        self.samples.push_back((now, settled));
        while self.samples.len() > 2
            && self.samples.front().is_some_and(|(at, _)| now.duration_since(*at) > RATE_WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Over the last seconds.
    fn per_second(&self) -> f64 {
        let (Some((first, then)), Some((last, now))) = (self.samples.front(), self.samples.back()) else {
            return 0.0;
        };
        let seconds = last.duration_since(*first).as_secs_f64();
        if seconds > 0.0 { now.saturating_sub(*then) as f64 / seconds } else { 0.0 }
    }
}

impl LocalRun<'_> {
    pub(super) fn report_progress_if_due(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.last_progress_at) >= PROGRESS_INTERVAL {
            self.report_progress(now);
        }
    }

    pub(super) fn report_progress(&mut self, now: Instant) {
        self.last_progress_at = now;
        if let Some(counts) = self.active().map(|active| *active.state.counts()) {
            self.counts = counts;
        }
        let has_problem = self.active().is_none_or(ActiveWorkflow::has_store_problem);
        // A repeated operation fails shortly after its time.
        let is_over = |at: Instant| at + STORE_RETRY_DELAY / 2 < now;
        if !has_problem && self.problem.as_ref().is_some_and(|problem| is_over(problem.retry_at)) {
            self.problem = None;
        }
        let mut counts = self.counts;
        self.settled_rate.add_sample(now, counts.settled());
        let worker = self.worker.as_ref().map(|row| row.id);
        let session = worker.and_then(|worker| self.scheduler.sessions.get(&worker));
        // Jobs queued at the worker are claimed, but are shown as ready, not as running.
        let queued = session.map_or(0, |session| session.usage.queued() as u64);
        counts.move_many(JobStatus::Pending, JobStatus::Ready, queued);
        self.observer.on_progress(&RunProgress {
            counts,
            running: self.running_jobs(now),
            elapsed: now.duration_since(self.started),
            jobs_per_second: self.settled_rate.per_second(),
            problem: self.problem.as_ref().map(|problem| problem.message.clone()),
            is_stopping: self.stop_reason.is_some(),
        });
    }

    /// The longest first. Short jobs are never reported as started.
    fn running_jobs(&self, now: Instant) -> Vec<RunningJob> {
        let Some(worker) = &self.worker else { return Vec::new() };
        let running = self.scheduler.running_on_attached(worker.id).map(|(job, name, since)| RunningJob {
            job,
            name: name.to_owned(),
            elapsed: now.saturating_duration_since(since),
        });
        let mut running: Vec<RunningJob> = running.collect();
        running.sort_by(|a, b| b.elapsed.cmp(&a.elapsed).then(a.job.cmp(&b.job)));
        running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_covers_only_recent_seconds() {
        let start = Instant::now();
        let mut rate = SettledRate::default();
        for second in 0..20u64 {
            rate.add_sample(start + Duration::from_secs(second), second.saturating_sub(10) * 100);
        }
        assert!((rate.per_second() - 100.0).abs() < 1.0, "{}", rate.per_second());
    }
}
