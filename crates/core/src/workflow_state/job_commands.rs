//! Commands of users and other programs about single jobs, as opposed to reports of workers.

use super::{
    AttemptConclusion, AttemptFailure, FailureDiagnosis, FailureDisposition, RetryMode, StaleAttemptReport,
    WorkflowState,
};
use crate::change::{AttemptResult, WorkflowChange};
use crate::classify::{FailureClassifier, FailureEvidence, TerminationCause};
use crate::job_state::{self, JobStateEvent};
use rustc_hash::FxHashMap;
use std::time::Duration;
use windlass_types::worker_messages::{AttemptKey, AttemptUsage};
use windlass_types::{Attempt, JobId, JobStatus, Timestamp, WorkerId};

/// The end of an attempt as stated by a client that is not a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientAttemptEnd {
    pub worker: WorkerId,
    pub status: JobStatus,
    pub return_code: i32,
    pub reason: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub wall: Duration,
    pub usage: AttemptUsage,
    /// The job runs again after any outcome of the attempt.
    pub run_again: bool,
}

/// Jobs to run again, and the effect on their dependents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RerunPlan {
    pub changes: Vec<WorkflowChange>,
    /// Number of all jobs that are reset.
    pub count: u64,
}

impl WorkflowState {
    /// Ends an attempt as stated. Returns the outcome of the job.
    pub fn on_stated_end(
        &mut self,
        key: &AttemptKey,
        stated: ClientAttemptEnd,
        changes: &mut Vec<WorkflowChange>,
    ) -> Result<JobStatus, StaleAttemptReport> {
        let job = self.find_current_attempt(key)?;
        let event = match stated.status {
            _ if stated.run_again && !self.canceling => JobStateEvent::Requeue,
            JobStatus::Completed => JobStateEvent::Complete,
            JobStatus::Canceled => JobStateEvent::Cancel,
            JobStatus::Terminated => JobStateEvent::Terminate,
            JobStatus::PendingFailed => JobStateEvent::AwaitDecision,
            _ => JobStateEvent::Fail,
        };
        let failure = self.stated_failure(&stated, event);
        let result = AttemptResult {
            key: *key,
            worker: stated.worker,
            status: stated.status,
            return_code: stated.return_code,
            exit: None,
            out_of_memory: false,
            reason: stated.reason,
            started_at: stated.started_at,
            ended_at: stated.ended_at,
            wall: stated.wall,
            usage: stated.usage,
            files: None,
            recovered: None,
        };
        let retry_mode = RetryMode::Retry(Box::default());
        Ok(self.end_attempt(job, AttemptConclusion { event, result, failure, retry_mode }, changes))
    }

    /// Only its return code is known.
    fn stated_failure(&self, stated: &ClientAttemptEnd, event: JobStateEvent) -> Option<Box<AttemptFailure>> {
        let next = match event {
            JobStateEvent::Requeue => FailureDisposition::Retry,
            JobStateEvent::AwaitDecision => FailureDisposition::PendingFailed,
            JobStateEvent::Fail | JobStateEvent::Terminate => FailureDisposition::Final,
            _ => return None,
        };
        let is_timeout = stated.status == JobStatus::Terminated && stated.return_code == self.codes.timeout;
        let evidence = FailureEvidence {
            cause: if is_timeout { TerminationCause::Timeout } else { TerminationCause::Itself },
            wall: stated.wall,
            peak_memory: stated.usage.peak_memory,
            ..FailureEvidence::from_exit(stated.return_code, "")
        };
        let diagnosis = FailureDiagnosis::from_evidence(FailureClassifier::standard(), &evidence);
        Some(Box::new(AttemptFailure { diagnosis, next, reason: stated.reason.clone(), log_tail: None }))
    }

    /// Decides a pending failure, or removes a job from the run: `to` is failed, canceled or disabled. `false`
    /// if its state does not allow this.
    pub fn on_failure_decision(
        &mut self,
        job: u32,
        to: JobStatus,
        changes: &mut Vec<WorkflowChange>,
    ) -> bool {
        let event = match to {
            JobStatus::Failed => JobStateEvent::Fail,
            JobStatus::Canceled => JobStateEvent::Cancel,
            JobStatus::Disabled => JobStateEvent::Disable,
            _ => return false,
        };
        let from = self.status(job);
        if from.is_active() || job_state::next_status(from, event).is_none() {
            return false;
        }
        self.remove_from_queues(job);
        self.record_transition(job, event, changes);
        self.resolve_dependents(job, changes);
        true
    }

    /// Plans to reset `chosen` (to ready if `to_ready`, else uninitialized) and to uninitialize their
    /// dependents. Changes nothing here: the workflow state cannot go backwards, so it is rebuilt from the rows
    /// after the commit. `done`: the newest attempt with a result in this run, by job. `Err`: a job that would
    /// be reset is held.
    pub fn plan_rerun(
        &self,
        chosen: &[u32],
        to_ready: bool,
        with_dependents: bool,
        done: &FxHashMap<JobId, Attempt>,
    ) -> Result<RerunPlan, u32> {
        let mut again = RerunPlan::default();
        let mut goes_back = vec![false; self.ids.len()];
        for &job in chosen {
            goes_back[job as usize] = true;
        }
        let mut stack: Vec<(u32, bool)> = chosen.iter().map(|&job| (job, to_ready)).collect();
        while let Some((job, to_ready)) = stack.pop() {
            let from = self.status(job);
            if from.is_active() {
                return Err(job);
            }
            let id = self.ids[job as usize];
            if to_ready {
                let attempt = self.attempt[job as usize];
                again.changes.push(WorkflowChange::Retry { job: id, from, attempt });
                again.count += 1;
            } else if from != JobStatus::Uninitialized {
                let attempt = done.get(&id).map_or(Attempt::FIRST, |done| done.next());
                again.changes.push(WorkflowChange::Reset { job: id, from, attempt });
                again.count += 1;
            }
            if !with_dependents {
                continue;
            }
            for dependent in self.graph.dependents(job) {
                // Disabled jobs stay as they are.
                let stays = self.status(dependent) == JobStatus::Disabled;
                if !stays && !std::mem::replace(&mut goes_back[dependent as usize], true) {
                    stack.push((dependent, false));
                }
            }
        }
        Ok(again)
    }

    /// Returns all jobs with such a status.
    pub fn jobs_with_status(&self, is_meant: impl Fn(JobStatus) -> bool) -> Vec<u32> {
        (0u32..).zip(&self.status).filter(|(_, status)| is_meant(**status)).map(|(job, _)| job).collect()
    }
}
