//! Handles jobs that running jobs add to the workflow, through another process and the database.
//!
//! They wait for the job that added them, so it is enough to check when an attempt ends; and necessary, or the
//! run could be considered finished. Their changes are committed together with that end.

use super::LocalRun;
use crate::{SchedulerError, added_jobs};
use std::ops::Range;
use windlass_core::dispatch::WorkerUsage;

impl LocalRun<'_> {
    /// Inserts the jobs added since the last check, if an attempt ended and another process has written to the
    /// database. While the database cannot be read this is postponed, and with it the commit of the ends.
    pub(super) fn load_added_jobs_if_due(&mut self) -> Result<(), SchedulerError> {
        if !self.active().is_some_and(|active| active.awaits_added_jobs) {
            return Ok(());
        }
        match self.load_added_jobs() {
            Err(SchedulerError::Store(error)) if error.is_transient() => {
                self.record_problem(error.to_string());
                Ok(())
            }
            looked => looked,
        }
    }

    fn load_added_jobs(&mut self) -> Result<(), SchedulerError> {
        let id = self.id();
        // While a commit is under way nothing waits for this: the check is repeated when it is done.
        let wait = self.active().is_some_and(|active| active.in_flight.is_none());
        let commits = self.store.foreign_commit_count(wait)?;
        if commits.is_none() {
            return Ok(());
        }
        if self.last_foreign_commit != commits {
            self.insert_added_jobs()?;
            self.last_foreign_commit = commits;
        }
        if let Some(active) = self.scheduler.find_workflow(id) {
            active.awaits_added_jobs = false;
        }
        self.scheduler.dirty_workflows.insert(id);
        Ok(())
    }

    fn insert_added_jobs(&mut self) -> Result<(), SchedulerError> {
        let id = self.id();
        let Some(active) = self.scheduler.find_workflow(id) else { return Ok(()) };
        let new = added_jobs::insert_added_jobs(
            &*self.store,
            id,
            &mut active.state,
            &mut active.open_batch.changes,
        )?;
        if new.is_empty() {
            return Ok(());
        }
        active.has_added_jobs = true;
        self.cancel_jobs_that_never_fit(new)
    }

    /// Jobs that cannot run here would keep the run waiting for ever.
    fn cancel_jobs_that_never_fit(&mut self, new: Range<u32>) -> Result<(), SchedulerError> {
        let (id, selector) = (self.id(), self.selector());
        let empty: WorkerUsage = WorkerUsage::new(self.host.capacity());
        for job in new {
            let Some(active) = self.active() else { return Ok(()) };
            let fits = empty.pool().could_hold(active.state.resources(job));
            let lacking = selector.missing_labels(&active.state.demand(job).location);
            let why = match (fits, lacking.as_slice()) {
                (true, []) => continue,
                (false, _) => "requests more than this machine has".to_owned(),
                (true, lacking) => {
                    format!("requires the label `{}`, which this machine lacks", lacking.join("`, `"))
                }
            };
            let job_id = active.state.attempt_key(job).job;
            let name = self.retry_until_done(|store| store.job_names(&[job_id]))?.pop().unwrap_or_default();
            self.observer.on_notice(&format!("added job `{name}` {why}: canceled"));
            if let Some(active) = self.scheduler.find_workflow(id) {
                active.state.on_unrunnable(job, &mut active.open_batch.changes);
            }
        }
        Ok(())
    }
}
