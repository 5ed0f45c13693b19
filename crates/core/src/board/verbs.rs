//! What people and other programs decide about single jobs, beside what workers report.

use super::{Board, Diagnosis, Failure, Next, Onward, Outcome, Stale};
use crate::change::{AttemptResult, Change};
use crate::classify::{Cause, Classifier, Evidence};
use crate::state::{self, JobEvent};
use rustc_hash::FxHashMap;
use std::time::Duration;
use windlass_types::work::{AttemptKey, Usage};
use windlass_types::{Attempt, JobId, JobStatus, Timestamp, WorkerId};

/// The end of an attempt as somebody states it, who is not a worker of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated {
    pub worker: WorkerId,
    pub status: JobStatus,
    pub return_code: i32,
    pub reason: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub wall: Duration,
    pub usage: Usage,
    /// The job is to run once more, whatever became of the attempt.
    pub again: bool,
}

/// Jobs that are to run again, and what follows for those that were built on them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Again {
    pub changes: Vec<Change>,
    /// Of all jobs that go back.
    pub count: u64,
}

impl Board {
    /// The end of an attempt as somebody states it. Says what became of the job.
    pub fn on_stated(
        &mut self,
        key: &AttemptKey,
        stated: Stated,
        changes: &mut Vec<Change>,
    ) -> Result<JobStatus, Stale> {
        let job = self.fenced(key)?;
        let event = match stated.status {
            _ if stated.again && !self.canceling => JobEvent::Requeue,
            JobStatus::Completed => JobEvent::Complete,
            JobStatus::Canceled => JobEvent::Cancel,
            JobStatus::Terminated => JobEvent::Terminate,
            JobStatus::PendingFailed => JobEvent::AwaitVerdict,
            _ => JobEvent::Fail,
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
        let onward = Onward::Retry(Box::default());
        Ok(self.end(job, Outcome { event, result, failure, onward }, changes))
    }

    /// Nobody says more about it than what it returned.
    fn stated_failure(&self, stated: &Stated, event: JobEvent) -> Option<Box<Failure>> {
        let next = match event {
            JobEvent::Requeue => Next::Retry,
            JobEvent::AwaitVerdict => Next::PendingFailed,
            JobEvent::Fail | JobEvent::Terminate => Next::Final,
            _ => return None,
        };
        let is_timeout = stated.status == JobStatus::Terminated && stated.return_code == self.codes.timeout;
        let evidence = Evidence {
            cause: if is_timeout { Cause::Timeout } else { Cause::Itself },
            wall: stated.wall,
            peak_memory: stated.usage.peak_memory,
            ..Evidence::of_exit(stated.return_code, "")
        };
        let diagnosis = Diagnosis::of(Classifier::standard(), &evidence);
        Some(Box::new(Failure { diagnosis, next, why: stated.reason.clone(), last_words: None }))
    }

    /// The verdict on a failure that waited for one, or a job that is not to run: `to` is failed, canceled or disabled.
    /// `false` where that is not possible from where it stands.
    pub fn on_decided(&mut self, job: u32, to: JobStatus, changes: &mut Vec<Change>) -> bool {
        let event = match to {
            JobStatus::Failed => JobEvent::Fail,
            JobStatus::Canceled => JobEvent::Cancel,
            JobStatus::Disabled => JobEvent::Disable,
            _ => return false,
        };
        let from = self.status(job);
        if from.is_active() || state::next(from, event).is_none() {
            return false;
        }
        self.unqueue(job);
        self.step(job, event, changes);
        self.settle(job, changes);
        true
    }

    /// `chosen` go back (to ready if `to_ready`, else to the start), and to the start goes what was built on them. Nothing
    /// changes here: the board cannot be wound back, so it is made anew from the rows once this is committed. `done`: the
    /// newest attempt of each job that left a result in this run. `Err`: a job that would go back is held.
    pub fn plan_again(
        &self,
        chosen: &[u32],
        to_ready: bool,
        with_dependents: bool,
        done: &FxHashMap<JobId, Attempt>,
    ) -> Result<Again, u32> {
        let mut again = Again::default();
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
                again.changes.push(Change::Retry { job: id, from, attempt });
                again.count += 1;
            } else if from != JobStatus::Uninitialized {
                let attempt = done.get(&id).map_or(Attempt::FIRST, |done| done.next());
                again.changes.push(Change::Reset { job: id, from, attempt });
                again.count += 1;
            }
            if !with_dependents {
                continue;
            }
            for dependent in self.graph.dependents(job) {
                // Left out on purpose.
                let stays = self.status(dependent) == JobStatus::Disabled;
                if !stays && !std::mem::replace(&mut goes_back[dependent as usize], true) {
                    stack.push((dependent, false));
                }
            }
        }
        Ok(again)
    }

    /// All jobs that stand like this.
    pub fn jobs_that(&self, is_meant: impl Fn(JobStatus) -> bool) -> Vec<u32> {
        (0u32..).zip(&self.status).filter(|(_, status)| is_meant(**status)).map(|(job, _)| job).collect()
    }
}
