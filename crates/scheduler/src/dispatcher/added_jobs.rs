//! Jobs that running jobs add to the workflow, through another process and the books.
//!
//! They wait for the job that added them, so it is enough to look when an attempt is over; and it must be then, before the
//! run could be thought to be over. What follows for them is committed together with that end.

use super::{Dispatcher, local_worker_selector};
use crate::{SchedulerError, added_jobs};
use std::ops::Range;
use windlass_core::dispatch::WorkerUsage;

impl Dispatcher<'_> {
    /// Takes up what was added since the last time, if an attempt has ended and somebody else has written at all. While the
    /// books cannot be read it is put off, and with it the commit of what has ended.
    pub(super) fn load_added_jobs_if_due(&mut self) -> Result<(), SchedulerError> {
        if !self.has_attempt_ended || self.is_lock_uncertain {
            return Ok(());
        }
        match self.load_added_jobs() {
            Err(SchedulerError::Store(error)) if error.is_transient() => {
                self.record_store_problem(error.to_string());
                Ok(())
            }
            looked => looked,
        }
    }

    fn load_added_jobs(&mut self) -> Result<(), SchedulerError> {
        // While a commit is under way nothing waits for this: there is another look when it is done.
        let wait = self.in_flight.is_none();
        let commits = self.store.foreign_commit_count(wait)?;
        if commits.is_none() {
            return Ok(());
        }
        if self.last_foreign_commit != commits {
            self.insert_added_jobs()?;
            self.last_foreign_commit = commits;
        }
        self.drop_stale_added_jobs()?;
        self.has_attempt_ended = false;
        Ok(())
    }

    fn insert_added_jobs(&mut self) -> Result<(), SchedulerError> {
        let new = added_jobs::insert_added_jobs(
            self.store,
            self.workflow.id,
            &mut self.state,
            &mut self.open_batch.changes,
        )?;
        if new.is_empty() {
            return Ok(());
        }
        self.has_added_jobs = true;
        self.cancel_jobs_that_never_fit(new)
    }

    fn drop_stale_added_jobs(&mut self) -> Result<(), SchedulerError> {
        if self.has_added_jobs {
            added_jobs::drop_stale_added_jobs(
                self.store,
                &self.ended_attempts,
                &mut self.state,
                &mut self.open_batch.changes,
            )?;
        }
        self.ended_attempts.clear();
        Ok(())
    }

    /// They would wait for ever, and the run with them.
    fn cancel_jobs_that_never_fit(&mut self, new: Range<u32>) -> Result<(), SchedulerError> {
        let selector = local_worker_selector(self.host.labels());
        let empty: WorkerUsage = WorkerUsage::new(self.host.capacity());
        for job in new {
            let fits = empty.pool().could_hold(self.state.resources(job));
            let lacking = selector.missing_labels(&self.state.demand(job).location);
            let why = match (fits, lacking.as_slice()) {
                (true, []) => continue,
                (false, _) => "asks for more than this machine has".to_owned(),
                (true, lacking) => {
                    format!("has the label `{}`, which this machine lacks", lacking.join("`, `"))
                }
            };
            let id = self.state.attempt_key(job).job;
            let name = self.retry_until_done(|store| store.job_names(&[id]))?.pop().unwrap_or_default();
            self.observer.on_notice(&format!("job `{name}` was added and {why}: canceled"));
            self.state.on_unrunnable(job, &mut self.open_batch.changes);
        }
        Ok(())
    }
}
