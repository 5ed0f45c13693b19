//! The lock of the workflow. In a PostgreSQL database it is lost with its connection, and then somebody else may have taken
//! it: whatever is decided after that is not ours to decide.

use super::Dispatcher;
use crate::SchedulerError;
use windlass_store::lock::LockGuard;

impl Dispatcher<'_> {
    /// Whether something may be decided now. One that was lost is taken again; an error says that somebody else has it.
    pub(super) fn has_lock(&mut self) -> Result<bool, SchedulerError> {
        if self.is_lock_uncertain && self.store_problem.as_ref().is_some_and(super::StoreProblem::is_current)
        {
            return Ok(false);
        }
        let checked = self.check_lock();
        self.is_lock_uncertain = checked.is_err();
        match checked {
            Err(SchedulerError::Store(error)) if error.is_transient() => {
                self.record_store_problem(error.to_string());
                Ok(false)
            }
            checked => checked.map(|()| true),
        }
    }

    pub(super) fn check_lock(&self) -> Result<(), SchedulerError> {
        self.lock.map_or(Ok(()), LockGuard::check).map_err(lock_error)
    }

    /// As [`Self::check_lock`], and certain: also what happened a moment ago is noticed.
    pub(super) fn verify_lock(&self) -> Result<(), SchedulerError> {
        self.lock.map_or(Ok(()), LockGuard::verify).map_err(lock_error)
    }

    /// Why it is no longer ours: what went wrong otherwise is then only what followed from that.
    pub(super) fn lock_loss(&self) -> Option<windlass_store::StoreError> {
        match self.verify_lock() {
            Err(SchedulerError::LockLost(error)) => Some(error),
            _ => None,
        }
    }

    /// Ends what runs here, at once and without a word to the books: they are somebody else's.
    pub(super) fn abandon(&mut self) {
        self.host.stop_actions(true);
        self.open_batch = super::DispatcherBatch::default();
        self.in_flight = None;
        if let Some(worker) = self.worker.take()
            && let Err(error) = self.host.ensure_dead(&worker.row().worker)
        {
            self.observer.on_notice(&format!("it is not certain that all of its jobs are dead: {error}"));
        }
    }
}

fn lock_error(error: windlass_store::StoreError) -> SchedulerError {
    if error.is_transient() { error.into() } else { SchedulerError::LockLost(error) }
}
