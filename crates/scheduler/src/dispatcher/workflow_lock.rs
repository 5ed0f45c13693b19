//! The lock of the workflow. In a PostgreSQL database it is lost with the connection, and another process may
//! have taken it: after that this process must not decide anything.

use super::Dispatcher;
use crate::SchedulerError;
use windlass_store::lock::LockGuard;

impl Dispatcher<'_> {
    /// Whether decisions are permitted now. A lost lock is taken again; an error means that another process
    /// holds it.
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

    /// Like [`Self::check_lock`], but certain: also notices a loss a moment ago.
    pub(super) fn verify_lock(&self) -> Result<(), SchedulerError> {
        self.lock.map_or(Ok(()), LockGuard::verify).map_err(lock_error)
    }

    /// Why the lock was lost, if it was: other errors are then only consequences.
    pub(super) fn lock_loss(&self) -> Option<windlass_store::StoreError> {
        match self.verify_lock() {
            Err(SchedulerError::LockLost(error)) => Some(error),
            _ => None,
        }
    }

    /// Ends all running jobs at once, without writing to the database: another process owns it.
    pub(super) fn abandon(&mut self) {
        self.host.stop_actions(true);
        self.open_batch = super::DispatcherBatch::default();
        self.in_flight = None;
        if let Some(worker) = self.worker.take()
            && let Err(error) = self.host.ensure_dead(&worker.row().worker)
        {
            self.observer.on_notice(&format!("some of its jobs may still run: {error}"));
        }
    }
}

fn lock_error(error: windlass_store::StoreError) -> SchedulerError {
    if error.is_transient() { error.into() } else { SchedulerError::LockLost(error) }
}
