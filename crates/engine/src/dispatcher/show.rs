//! What somebody who watches the run is told.

use super::{Dispatcher, PROGRESS_INTERVAL};
use crate::observe::{Progress, RunningJob};
use std::time::Instant;
use windlass_types::JobStatus;

impl Dispatcher<'_> {
    pub(super) fn show_progress(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.shown) >= PROGRESS_INTERVAL {
            self.show(now);
        }
    }

    pub(super) fn show(&mut self, now: Instant) {
        self.shown = now;
        let mut counts = *self.board.counts();
        self.pace.mark(now, counts.settled());
        // What waits in the worker's queue is claimed, but to somebody who looks it is ready and not running.
        let queued = self.mirror().map_or(0, |mirror| mirror.queued() as u64);
        counts.shift(JobStatus::Pending, JobStatus::Ready, queued);
        let running = self.running(now);
        self.observer.progress(&Progress {
            counts,
            running,
            elapsed: now.duration_since(self.started),
            jobs_per_second: self.pace.rate(),
            trouble: self.trouble.as_ref().map(|t| t.text.clone()),
            stopping: self.stop.is_some(),
        });
    }

    /// The longest first. Short jobs never say that they started.
    fn running(&self, now: Instant) -> Vec<RunningJob> {
        let running = self.held.iter().filter_map(|(&job, held)| {
            let (since, _) = held.started?;
            let elapsed = now.duration_since(since);
            Some(RunningJob { job: self.board.key(job).job, name: held.name.clone(), elapsed })
        });
        let mut running: Vec<RunningJob> = running.collect();
        running.sort_by(|a, b| b.elapsed.cmp(&a.elapsed).then(a.job.cmp(&b.job)));
        running
    }
}
