//! Jobs that this only worker can never run, because they request too much or must run elsewhere. They are held
//! back while all others run.

use super::LocalRun;
use crate::SchedulerError;
use crate::service::attached_worker::only_worker_key;
use windlass_core::dispatch::{WorkerSelector, WorkerUsage};

impl LocalRun<'_> {
    /// What the only worker accepts: jobs for this machine.
    pub(super) fn selector(&self) -> WorkerSelector {
        only_worker_key(self.id(), &self.workflow.user, self.host.labels()).selector()
    }

    /// Holds jobs back before anything is started. An error if no other job could run.
    pub(super) fn hold_unrunnable_jobs_at_start(&mut self) -> Result<(), SchedulerError> {
        self.hold_unrunnable_jobs();
        match self.unrunnable_jobs_error()? {
            Some(why) if self.active().is_some_and(|active| active.state.is_stuck()) => Err(why),
            Some(why) => {
                self.observer.on_notice(&format!("{why}: not started; the other jobs run"));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Holds jobs back after a change by others, and reports new ones.
    pub(super) fn hold_new_unrunnable_jobs(&mut self) -> Result<(), SchedulerError> {
        let before = std::mem::take(&mut self.unrunnable_jobs);
        self.hold_unrunnable_jobs();
        let is_new = self.unrunnable_jobs.iter().any(|job| !before.contains(job));
        if let Some(why) = self.unrunnable_jobs_error()?.filter(|_| is_new) {
            self.observer.on_notice(&format!("{why}: not started; the other jobs run"));
        }
        Ok(())
    }

    fn hold_unrunnable_jobs(&mut self) {
        let (id, empty) = (self.id(), WorkerUsage::with_selector(self.host.capacity(), self.selector()));
        let Some(active) = self.scheduler.find_workflow(id) else { return };
        let kept = active.state.withhold_unrunnable(&empty);
        self.unrunnable_jobs = kept.into_iter().map(|job| active.state.attempt_key(job).job).collect();
    }

    /// Names the first remaining one, their number, and why they cannot run here.
    pub(super) fn unrunnable_jobs_error(&mut self) -> Result<Option<SchedulerError>, SchedulerError> {
        let id = self.id();
        let Some(active) = self.scheduler.find_workflow(id) else { return Ok(None) };
        let state = &active.state;
        self.unrunnable_jobs
            .retain(|id| state.job_index(*id).is_some_and(|job| !state.status(job).is_settled()));
        let first = self.unrunnable_jobs.first().and_then(|id| Some((*id, state.job_index(*id)?)));
        let Some((job_id, job)) = first else { return Ok(None) };
        let (demand, asked) = (state.demand(job).clone(), Box::new(*state.resources(job)));
        let (count, capacity) = (self.unrunnable_jobs.len(), self.host.capacity());
        let name = self.retry_until_done(|store| store.job_names(&[job_id]))?.pop().unwrap_or_default();
        let selector = self.selector();
        let labels: Vec<String> =
            selector.missing_labels(&demand.location).into_iter().map(str::to_owned).collect();
        if !labels.is_empty() {
            return Ok(Some(SchedulerError::MissingLabels { name, count, labels }));
        }
        if !selector.accepts_location(&demand.location) {
            return Ok(Some(SchedulerError::WrongSite { name, count, sites: demand.location.sites }));
        }
        Ok(Some(SchedulerError::JobTooLarge { name, count, asked, capacity: Box::new(capacity) }))
    }
}
