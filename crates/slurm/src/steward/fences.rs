//! Steps that outlive the worker that began them: ended before anybody else gets their jobs.
//!
//! A worker that is killed may leave its steps running, because Slurm ends a step only when the step is over, or the whole
//! allocation. So the service asks before it hands on what a silent worker held, and is answered when nothing of it is left.

use super::pass::Passes;
use crate::calls::Outcome;
use std::time::{Duration, Instant};
use windlass_core::slurm::steps::{Step, left_behind};
use windlass_engine::service::{FENCING, Silent};
use windlass_types::slurm::AllocationState;

/// So soon it is looked whether what was ended is gone.
const SOON: Duration = Duration::from_millis(300);

impl Passes {
    /// Sees to those that are silent. When to do so again, if it is not done.
    pub(super) fn fence(&mut self, heard: &[Silent]) -> Option<Duration> {
        let begun = Instant::now();
        self.silent.extend(heard.iter().map(|one| (begun, one.clone())));
        // For longer than that nobody waits, and Slurm has others to answer.
        self.silent.retain(|(since, _)| since.elapsed() < FENCING);
        let mut in_jobs = Vec::new();
        for (since, one) in std::mem::take(&mut self.silent) {
            match self.job_of(&one) {
                Ok(Some(job)) => in_jobs.push((since, job, one)),
                // In none of Slurm's jobs nothing is left.
                Ok(None) => self.service().tell_fenced(one.worker),
                // If the books cannot be read now, nobody knows.
                Err(_) => self.silent.push((since, one)),
            }
        }
        if in_jobs.is_empty() {
            return (!self.silent.is_empty()).then_some(self.options.fastest);
        }
        // No answer is no answer: the service waits, and the next pass asks again.
        let steps = self.slurm.steps().answer();
        let mut to_end = Vec::new();
        for (since, job, one) in in_jobs {
            let left = steps.as_deref().map(|steps| left_behind(steps, job, &one.held));
            match left {
                Some(left) if left.is_empty() => self.service().tell_fenced(one.worker),
                left => {
                    to_end.extend(left.into_iter().flatten().map(Step::id));
                    self.silent.push((since, one));
                }
            }
        }
        if !to_end.is_empty() {
            tracing::info!(steps = ?to_end, "ending steps whose worker is gone");
            if let Outcome::Refused(said) = self.slurm.kill_steps(&to_end) {
                // They may be over by now, which the next look shows.
                tracing::debug!(%said, "Slurm has not ended all of them");
            }
        }
        let newest = self.silent.iter().map(|(since, _)| since.elapsed()).min()?;
        // What cannot be ended is asked about ever more rarely: others want to know something of Slurm, too.
        Some(if steps.is_some() { SOON.max(newest / 4) } else { self.options.fastest })
    }

    /// The job of Slurm in which something of it may run.
    fn job_of(&self, silent: &Silent) -> Result<Option<u64>, windlass_store::Error> {
        let row = self.books().allocation(silent.allocation)?;
        Ok(row.filter(|row| row.state != AllocationState::Ended).and_then(|row| row.job_id))
    }
}
