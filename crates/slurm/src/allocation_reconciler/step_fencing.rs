//! Steps that outlive their worker: they are canceled before other workers get their jobs.
//!
//! A killed worker may leave steps running, because Slurm ends a step only when its processes end or with the
//! whole allocation. So the service asks before it reassigns the jobs of a silent worker, and gets an answer when
//! no step is left.

use super::reconcile_pass::AllocationPassRunner;
use crate::slurm_client::SlurmOutcome;
use std::time::{Duration, Instant};
use windlass_core::slurm::job_steps::{SlurmStep, orphaned_steps};
use windlass_scheduler::service::{FENCING_TIMEOUT, UnreachableAllocationWorker};
use windlass_types::slurm::AllocationState;

/// Time until the check whether canceled steps have ended.
const FENCING_CHECK_INTERVAL: Duration = Duration::from_millis(300);

impl AllocationPassRunner {
    /// Handles silent workers. Returns when to run again if steps are left.
    pub(super) fn fence_silent_workers(
        &mut self,
        notices: &[UnreachableAllocationWorker],
    ) -> Option<Duration> {
        let begun = Instant::now();
        self.silent_workers.extend(notices.iter().map(|one| (begun, one.clone())));
        // After that time no caller waits, and Slurm has more urgent calls.
        self.silent_workers.retain(|(since, _)| since.elapsed() < FENCING_TIMEOUT);
        let mut in_jobs = Vec::new();
        for (since, one) in std::mem::take(&mut self.silent_workers) {
            match self.find_slurm_job(&one) {
                Ok(Some(job)) => in_jobs.push((since, job, one)),
                // Without a Slurm job there are no steps.
                Ok(None) => self.scheduler().notify_worker_fenced(one.worker),
                // If the database cannot be read now, the answer is unknown.
                Err(_) => self.silent_workers.push((since, one)),
            }
        }
        if in_jobs.is_empty() {
            return (!self.silent_workers.is_empty()).then_some(self.options.active_interval);
        }
        // Without an answer the service waits, and the next pass asks again.
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
            tracing::info!(steps = ?to_end, "canceling steps of a lost worker");
            if let SlurmOutcome::Refused(message) = self.slurm.kill_steps(&to_end) {
                // They may have ended by now; the next check shows it.
                tracing::debug!(%message, "Slurm did not cancel all of them");
            }
        }
        let newest = self.silent_workers.iter().map(|(since, _)| since.elapsed()).min()?;
        // Steps that cannot be canceled are queried less and less often, to save calls.
        Some(if steps.is_some() {
            FENCING_CHECK_INTERVAL.max(newest / 4)
        } else {
            self.options.active_interval
        })
    }

    /// The Slurm job in which its steps may run.
    fn find_slurm_job(
        &self,
        silent: &UnreachableAllocationWorker,
    ) -> Result<Option<u64>, windlass_store::StoreError> {
        let row = self.database().allocation(silent.allocation)?;
        Ok(row.filter(|row| row.state != AllocationState::Ended).and_then(|row| row.job_id))
    }
}
