//! Counters that anybody may read while the service works.

use super::talk::Figures;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use windlass_types::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Gauges {
    workers: AtomicU64,
    workflows: AtomicU64,
    ready: AtomicU64,
    held: AtomicU64,
    waits: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) refused_commits: AtomicU64,
    pub(super) assigned: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) orphaned: AtomicU64,
    pub(super) stale_reports: AtomicU64,
    pub(super) lost_workers: AtomicU64,
    last_loop: AtomicI64,
    /// Batches that the store has not answered for.
    unwritten: AtomicU64,
    writing_since: AtomicI64,
}

impl Gauges {
    pub(super) fn note_loop(&self, now: Timestamp) {
        self.last_loop.store(now.0, Relaxed);
    }

    /// The store is to write something.
    pub(super) fn note_submitted(&self, now: Timestamp) {
        self.unwritten.fetch_add(1, Relaxed);
        if self.writing_since.load(Relaxed) == 0 {
            self.writing_since.store(now.0, Relaxed);
        }
    }

    /// It has; or it will have to be asked again, and then it has not got on.
    pub(super) fn note_answered(&self, gets_on: bool, now: Timestamp) {
        let left = self.unwritten.fetch_sub(1, Relaxed).saturating_sub(1);
        if gets_on {
            self.writing_since.store(if left == 0 { 0 } else { now.0 }, Relaxed);
        }
    }

    /// Nobody waits for anything that was refused.
    pub(super) fn note_no_trouble(&self) {
        if self.unwritten.load(Relaxed) == 0 {
            self.writing_since.store(0, Relaxed);
        }
    }

    pub(super) fn note_state(&self, workflows: usize, workers: usize, waits: usize) {
        for (gauge, value) in [(&self.workers, workers), (&self.workflows, workflows), (&self.waits, waits)] {
            gauge.store(value as u64, Relaxed);
        }
    }

    /// What is ready and held at one desk has changed: nobody looks at the others.
    pub(super) fn note_desk(&self, before: (usize, usize), after: (usize, usize)) {
        for (gauge, before, after) in [(&self.ready, before.0, after.0), (&self.held, before.1, after.1)] {
            gauge.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
        }
    }

    pub(super) fn read(&self) -> Figures {
        let read = |gauge: &AtomicU64| gauge.load(Relaxed);
        Figures {
            workers: read(&self.workers),
            workflows: read(&self.workflows),
            ready: read(&self.ready),
            held: read(&self.held),
            waits: read(&self.waits),
            commits: read(&self.commits),
            refused_commits: read(&self.refused_commits),
            assigned: read(&self.assigned),
            ended: read(&self.ended),
            orphaned: read(&self.orphaned),
            stale_reports: read(&self.stale_reports),
            lost_workers: read(&self.lost_workers),
            last_loop: self.last_loop.load(Relaxed),
            writing_since: self.writing_since.load(Relaxed),
        }
    }
}

/// One more.
pub(super) fn count(gauge: &AtomicU64, by: usize) {
    gauge.fetch_add(by as u64, Relaxed);
}
