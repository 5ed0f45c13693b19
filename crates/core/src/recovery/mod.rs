//! Recovery of failed jobs: each is diagnosed from the measurements of its own last attempt and gets more of
//! what it ran out of, as far as a worker has it. Other jobs with the same request keep theirs.

mod diagnosis;
mod remedy;

#[cfg(test)]
mod tests;

use crate::sizing::{AttemptObservation, ResourceChange};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use windlass_types::{Capacity, FailureClass, JobId, JobStatus, Resources};

/// A failed job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailedJob {
    pub job: JobId,
    pub status: JobStatus,
    /// `None`: it requests nothing, so no limit of Windlass applied.
    pub asked: Option<Resources>,
    /// `None`: it never ran.
    pub last: Option<LastAttempt>,
}

/// The newest attempt of a job, from the database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastAttempt {
    pub observation: AttemptObservation,
    pub signal: Option<i32>,
    /// Whether it was certainly ended because of its memory.
    pub out_of_memory: bool,
    /// `None`: not classified.
    pub class: Option<FailureClass>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryDiagnosis {
    OutOfMemory,
    Timeout,
    /// It used more CPUs than requested, and nothing else explains its failure.
    CpuOveruse,
    /// Its worker was lost; the job is not the cause.
    WorkerLost,
    /// It did not fail: it was stopped, or a dependency failed.
    Canceled,
    Unknown,
}

impl RecoveryDiagnosis {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out of memory",
            Self::Timeout => "timeout",
            Self::CpuOveruse => "CPU over-use",
            Self::WorkerLost => "worker lost",
            Self::Canceled => "canceled",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for RecoveryDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Settings of a recovery.
#[derive(Clone, Copy, Debug)]
pub struct RecoverySettings<'a> {
    pub memory_multiplier: f64,
    pub runtime_multiplier: f64,
    pub cpu_multiplier: f64,
    /// Retry unexplained failures unchanged.
    pub retry_unknown: bool,
    /// The workers that may run the jobs; empty if unknown.
    pub workers: &'a [AvailableWorker],
}

/// A worker that may run jobs, or one that a Slurm allocation would bring. Resources of one worker cannot be
/// combined with the lifetime of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableWorker {
    pub capacity: Capacity,
    /// Maximum runtime of a job there; `None`: unlimited.
    pub time_left: Option<Duration>,
}

impl AvailableWorker {
    /// Whether it could run this job with nothing else running.
    pub fn can_run(&self, asked: &Resources) -> bool {
        let Self { capacity: has, time_left: stays } = self;
        has.cpus >= asked.cpus
            && has.memory >= asked.memory
            && has.gpus >= asked.gpus
            && has.nodes >= asked.nodes
            && stays.is_none_or(|stays| asked.runtime.is_none_or(|runtime| runtime <= stays))
    }
}

/// The diagnosis of one job and the action to take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRemedy {
    pub job: JobId,
    pub diagnosis: RecoveryDiagnosis,
    /// Evidence of the diagnosis: `used 2.1 GiB of 2 GiB`.
    pub evidence: String,
    pub next: RecoveryAction,
    /// The changes of its request, if any.
    pub changes: Vec<ResourceChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "what", content = "why")]
pub enum RecoveryAction {
    RunAgain,
    /// It stays as it is, for this reason.
    Stay(String),
}

impl JobRemedy {
    pub fn runs_again(&self) -> bool {
        self.next == RecoveryAction::RunAgain
    }
}

/// Returns the remedy for each job, in the same order.
pub fn plan_recovery(cases: &[FailedJob], terms: &RecoverySettings<'_>) -> Vec<JobRemedy> {
    cases.iter().map(|case| remedy::find_remedy(case, terms)).collect()
}
