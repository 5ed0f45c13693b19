//! Reports the progress of the run to its observer.

use super::{Dispatcher, PROGRESS_INTERVAL};
use crate::run_observer::{RunProgress, RunningJob};
use std::time::Instant;
use windlass_types::JobStatus;

impl Dispatcher<'_> {
    pub(super) fn report_progress_if_due(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.last_progress_at) >= PROGRESS_INTERVAL {
            self.report_progress(now);
        }
    }

    pub(super) fn report_progress(&mut self, now: Instant) {
        self.last_progress_at = now;
        let mut counts = *self.state.counts();
        self.claim_ahead.record_settled(now, counts.settled());
        // Jobs queued at the worker are claimed, but are shown as ready, not as running.
        let queued = self.worker_usage().map_or(0, |usage| usage.queued() as u64);
        counts.move_many(JobStatus::Pending, JobStatus::Ready, queued);
        let running = self.running_jobs(now);
        self.observer.on_progress(&RunProgress {
            counts,
            running,
            elapsed: now.duration_since(self.started),
            jobs_per_second: self.claim_ahead.settled_per_second(),
            problem: self.store_problem.as_ref().map(|t| t.message.clone()),
            is_stopping: self.stop_reason.is_some(),
        });
    }

    /// The longest first. Short jobs are never reported as started.
    fn running_jobs(&self, now: Instant) -> Vec<RunningJob> {
        let running = self.held_jobs.iter().filter_map(|(&job, held)| {
            let (since, _) = held.started?;
            let elapsed = now.duration_since(since);
            Some(RunningJob { job: self.state.attempt_key(job).job, name: held.name.clone(), elapsed })
        });
        let mut running: Vec<RunningJob> = running.collect();
        running.sort_by(|a, b| b.elapsed.cmp(&a.elapsed).then(a.job.cmp(&b.job)));
        running
    }
}
