//! Steps that outlive the worker that began them: ended before anybody else gets their jobs.
//!
//! A worker that is killed may leave its steps running, because Slurm ends a step only when the step is over, or the whole
//! allocation. So the service asks before it hands on what a silent worker held, and is answered when nothing of it is left.

use super::reconcile_pass::ReconcilePasses;
use crate::slurm_client::SlurmOutcome;
use std::time::{Duration, Instant};
use windlass_core::slurm::job_steps::{SlurmStep, orphaned_steps};
use windlass_scheduler::service::{FENCING_TIMEOUT, SilentWorker};
use windlass_types::slurm::AllocationState;

/// So soon it is looked whether what was ended is gone.
const FENCING_CHECK_INTERVAL: Duration = Duration::from_millis(300);

impl ReconcilePasses {
    /// Sees to those that are silent. When to do so again, if it is not done.
    pub(super) fn fence_silent_workers(&mut self, heard: &[SilentWorker]) -> Option<Duration> {
        let begun = Instant::now();
        self.silent_workers.extend(heard.iter().map(|one| (begun, one.clone())));
        // For longer than that nobody waits, and Slurm has others to answer.
        self.silent_workers.retain(|(since, _)| since.elapsed() < FENCING_TIMEOUT);
        let mut in_jobs = Vec::new();
        for (since, one) in std::mem::take(&mut self.silent_workers) {
            match self.find_slurm_job(&one) {
                Ok(Some(job)) => in_jobs.push((since, job, one)),
                // In none of Slurm's jobs nothing is left.
                Ok(None) => self.scheduler().notify_worker_fenced(one.worker),
                // If the books cannot be read now, nobody knows.
                Err(_) => self.silent_workers.push((since, one)),
            }
        }
        if in_jobs.is_empty() {
            return (!self.silent_workers.is_empty()).then_some(self.options.active_interval);
        }
        // No answer is no answer: the service waits, and the next pass asks again.
        let steps = self.slurm.list_steps().into_answer();
        let mut to_end = Vec::new();
        for (since, job, one) in in_jobs {
            let left = steps.as_deref().map(|steps| orphaned_steps(steps, job, &one.held_attempts));
            match left {
                Some(left) if left.is_empty() => self.scheduler().notify_worker_fenced(one.worker),
                left => {
                    to_end.extend(left.into_iter().flatten().map(SlurmStep::step_id));
                    self.silent_workers.push((since, one));
                }
            }
        }
        if !to_end.is_empty() {
            tracing::info!(steps = ?to_end, "ending steps whose worker is gone");
            if let SlurmOutcome::Refused(said) = self.slurm.kill_steps(&to_end) {
                // They may be over by now, which the next look shows.
                tracing::debug!(%said, "Slurm has not ended all of them");
            }
        }
        let newest = self.silent_workers.iter().map(|(since, _)| since.elapsed()).min()?;
        // What cannot be ended is asked about ever more rarely: others want to know something of Slurm, too.
        Some(if steps.is_some() {
            FENCING_CHECK_INTERVAL.max(newest / 4)
        } else {
            self.options.active_interval
        })
    }

    /// The job of Slurm in which something of it may run.
    fn find_slurm_job(&self, silent: &SilentWorker) -> Result<Option<u64>, windlass_store::StoreError> {
        let row = self.database().allocation(silent.allocation)?;
        Ok(row.filter(|row| row.state != AllocationState::Ended).and_then(|row| row.job_id))
    }
}
