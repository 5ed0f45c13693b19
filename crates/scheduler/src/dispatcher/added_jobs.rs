//! Handles jobs that running jobs add to the workflow, through another process and the database.
//!
//! They wait for the job that added them, so it is enough to check when an attempt ends; and necessary, or the
//! run could be considered finished. Their changes are committed together with that end.

use super::{Dispatcher, local_worker_selector};
use crate::{SchedulerError, added_jobs};
use std::ops::Range;
use windlass_core::dispatch::WorkerUsage;

impl Dispatcher<'_> {
    /// Inserts the jobs added since the last check, if an attempt ended and another process has written to the
    /// database. While the database cannot be read this is postponed, and with it the commit of the ends.
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
        // While a commit is under way nothing waits for this: the check is repeated when it is done.
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

    /// Jobs that cannot run here would keep the run waiting for ever.
    fn cancel_jobs_that_never_fit(&mut self, new: Range<u32>) -> Result<(), SchedulerError> {
        let selector = local_worker_selector(self.host.labels());
        let empty: WorkerUsage = WorkerUsage::new(self.host.capacity());
        for job in new {
            let fits = empty.pool().could_hold(self.state.resources(job));
            let lacking = selector.missing_labels(&self.state.demand(job).location);
            let why = match (fits, lacking.as_slice()) {
                (true, []) => continue,
                (false, _) => "requests more than this machine has".to_owned(),
                (true, lacking) => {
                    format!("requires the label `{}`, which this machine lacks", lacking.join("`, `"))
                }
            };
            let id = self.state.attempt_key(job).job;
            let name = self.retry_until_done(|store| store.job_names(&[id]))?.pop().unwrap_or_default();
            self.observer.on_notice(&format!("added job `{name}` {why}: canceled"));
            self.state.on_unrunnable(job, &mut self.open_batch.changes);
        }
        Ok(())
    }
}
