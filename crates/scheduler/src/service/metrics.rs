//! Gauges and counters that other threads read while the service works.

use super::call_types::SchedulerMetrics;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use windlass_types::{JobStatus, StatusCounts, Timestamp};

#[derive(Debug, Default)]
pub(super) struct SchedulerGauges {
    workers: AtomicU64,
    workflows: AtomicU64,
    ready_jobs: AtomicU64,
    held_jobs: AtomicU64,
    waiting_exchanges: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) refused_commits: AtomicU64,
    pub(super) assigned_jobs: AtomicU64,
    /// By status, in the order of [`JobStatus::ALL`].
    ended_attempts: [AtomicU64; JobStatus::ALL.len()],
    pub(super) orphaned_attempts: AtomicU64,
    pub(super) stale_reports: AtomicU64,
    pub(super) lost_workers: AtomicU64,
    last_loop_at: AtomicI64,
    /// Batches without a result from the store.
    unwritten_batches: AtomicU64,
    writing_since: AtomicI64,
}

impl SchedulerGauges {
    pub(super) fn record_loop(&self, now: Timestamp) {
        self.last_loop_at.store(now.0, Relaxed);
    }

    /// An attempt ended with this status.
    pub(super) fn record_ended_attempt(&self, status: JobStatus) {
        let of_status = |(known, _): &(JobStatus, &AtomicU64)| *known == status;
        if let Some((_, counter)) = JobStatus::ALL.into_iter().zip(&self.ended_attempts).find(of_status) {
            counter.fetch_add(1, Relaxed);
        }
    }

    fn ended_attempts(&self) -> StatusCounts {
        let mut counts = StatusCounts::default();
        for (status, counter) in JobStatus::ALL.into_iter().zip(&self.ended_attempts) {
            counts.add(status, counter.load(Relaxed));
        }
        counts
    }

    /// A batch was submitted to the store.
    pub(super) fn record_batch_submitted(&self, now: Timestamp) {
        self.unwritten_batches.fetch_add(1, Relaxed);
        if self.writing_since.load(Relaxed) == 0 {
            self.writing_since.store(now.0, Relaxed);
        }
    }

    /// The store has a result; a transient failure is no progress.
    pub(super) fn record_batch_answered(&self, gets_on: bool, now: Timestamp) {
        let left = self.unwritten_batches.fetch_sub(1, Relaxed).saturating_sub(1);
        if gets_on {
            self.writing_since.store(if left == 0 { 0 } else { now.0 }, Relaxed);
        }
    }

    /// The store has nothing to do.
    pub(super) fn record_store_idle(&self) {
        if self.unwritten_batches.load(Relaxed) == 0 {
            self.writing_since.store(0, Relaxed);
        }
    }

    pub(super) fn record_totals(&self, workflows: usize, workers: usize, waits: usize) {
        for (gauge, value) in
            [(&self.workers, workers), (&self.workflows, workflows), (&self.waiting_exchanges, waits)]
        {
            gauge.store(value as u64, Relaxed);
        }
    }

    /// Updates the totals of ready and held jobs by the change of one workflow, without a scan of the others.
    pub(super) fn record_workflow_jobs(&self, before: (usize, usize), after: (usize, usize)) {
        for (gauge, before, after) in
            [(&self.ready_jobs, before.0, after.0), (&self.held_jobs, before.1, after.1)]
        {
            gauge.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
        }
    }

    pub(super) fn to_metrics(&self) -> SchedulerMetrics {
        let read = |gauge: &AtomicU64| gauge.load(Relaxed);
        SchedulerMetrics {
            workers: read(&self.workers),
            workflows: read(&self.workflows),
            ready_jobs: read(&self.ready_jobs),
            held_jobs: read(&self.held_jobs),
            waiting_exchanges: read(&self.waiting_exchanges),
            commits: read(&self.commits),
            refused_commits: read(&self.refused_commits),
            assigned_jobs: read(&self.assigned_jobs),
            ended_attempts: self.ended_attempts(),
            orphaned_attempts: read(&self.orphaned_attempts),
            stale_reports: read(&self.stale_reports),
            lost_workers: read(&self.lost_workers),
            last_loop_at: self.last_loop_at.load(Relaxed),
            writing_since: self.writing_since.load(Relaxed),
        }
    }
}

/// Adds to a gauge.
pub(super) fn add_to_gauge(gauge: &AtomicU64, by: usize) {
    gauge.fetch_add(by as u64, Relaxed);
}
