//! The lock of the workflow. In a PostgreSQL database it is lost with the connection, and another process may
//! have taken it: after that this process must not decide anything.

use super::{LocalRun, PassingProblem};
use crate::SchedulerError;
use windlass_store::StoreError;
use windlass_store::lock::LockGuard;

impl LocalRun<'_> {
    /// Whether decisions are permitted now. A lost lock is taken again; an error means that another process
    /// holds it.
    pub(super) fn has_lock(&mut self) -> Result<bool, SchedulerError> {
        if self.is_lock_uncertain && self.problem.as_ref().is_some_and(PassingProblem::is_current) {
            return Ok(false);
        }
        let checked = self.check_lock();
        self.is_lock_uncertain = checked.is_err();
        match checked {
            Err(SchedulerError::Store(error)) if error.is_transient() => {
                self.record_problem(error.to_string());
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
    pub(super) fn lock_loss(&self) -> Option<StoreError> {
        match self.verify_lock() {
            Err(SchedulerError::LockLost(error)) => Some(error),
            _ => None,
        }
    }

    /// Ends all running jobs at once, without writing to the database: another process owns it.
    pub(super) fn abandon(&mut self) {
        self.host.stop_actions(true);
        self.scheduler.workflows.clear();
        if let Some(row) = self.worker.take()
            && let Err(error) = self.host.ensure_dead(&row.worker)
        {
            self.observer.on_notice(&format!("some of its jobs may still run: {error}"));
        }
    }
}

fn lock_error(error: StoreError) -> SchedulerError {
    if error.is_transient() { error.into() } else { SchedulerError::LockLost(error) }
}
