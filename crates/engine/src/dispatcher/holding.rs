//! The lock of the workflow. In a PostgreSQL database it is lost with its connection, and then somebody else may have taken
//! it: whatever is decided after that is not ours to decide.

use super::Dispatcher;
use crate::Error;
use windlass_store::lock::LockGuard;

impl Dispatcher<'_> {
    /// Whether something may be decided now. One that was lost is taken again; an error says that somebody else has it.
    pub(super) fn has_lock(&mut self) -> Result<bool, Error> {
        if self.is_lock_away && self.trouble.as_ref().is_some_and(super::Trouble::lasts) {
            return Ok(false);
        }
        let checked = self.check_lock();
        self.is_lock_away = checked.is_err();
        match checked {
            Err(Error::Store(error)) if error.is_transient() => {
                self.in_trouble(error.to_string());
                Ok(false)
            }
            checked => checked.map(|()| true),
        }
    }

    pub(super) fn check_lock(&self) -> Result<(), Error> {
        self.lock.map_or(Ok(()), LockGuard::check).map_err(lock_error)
    }

    /// As [`Self::check_lock`], and certain: also what happened a moment ago is noticed.
    pub(super) fn verify_lock(&self) -> Result<(), Error> {
        self.lock.map_or(Ok(()), LockGuard::verify).map_err(lock_error)
    }

    /// Why it is no longer ours: what went wrong otherwise is then only what followed from that.
    pub(super) fn is_lost(&self) -> Option<windlass_store::Error> {
        match self.verify_lock() {
            Err(Error::LockLost(error)) => Some(error),
            _ => None,
        }
    }

    /// Ends what runs here, at once and without a word to the books: they are somebody else's.
    pub(super) fn abandon(&mut self) {
        self.host.stop_actions(true);
        self.open = super::Decided::default();
        self.in_flight = None;
        if let Some(worker) = self.worker.take()
            && let Err(error) = self.host.bury(&worker.row().worker)
        {
            self.observer.notice(&format!("it is not certain that all of its jobs are dead: {error}"));
        }
    }
}

fn lock_error(error: windlass_store::Error) -> Error {
    if error.is_transient() { error.into() } else { Error::LockLost(error) }
}
