//! What `recover` does about jobs that ended badly: each is diagnosed from the measurements of its own last attempt, and
//! gets more of what it ran out of, as far as a worker has it. Others that ask for the same keep what they ask for.

mod diagnosis;
mod remedy;

#[cfg(test)]
mod tests;

use crate::sizing::{AttemptObservation, ResourceChange};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use windlass_types::{Capacity, FailureClass, JobId, JobStatus, Resources};

/// A job that ended badly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailedJob {
    pub job: JobId,
    pub status: JobStatus,
    /// `None`: it asks for nothing, so that nothing of ours limited it.
    pub asked: Option<Resources>,
    /// `None`: it never ran.
    pub last: Option<LastAttempt>,
}

/// The newest attempt of a job, as the books have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastAttempt {
    pub observation: AttemptObservation,
    pub signal: Option<i32>,
    /// There is proof that it was ended for its memory.
    pub out_of_memory: bool,
    /// `None`: nobody classified it.
    pub class: Option<FailureClass>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryDiagnosis {
    OutOfMemory,
    Timeout,
    /// It kept more CPUs busy than it had asked for, and nothing else explains its failure.
    CpuOveruse,
    /// Its worker was gone: not the job's fault.
    WorkerLost,
    /// It did not fail: it was stopped, or what it waits for failed.
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

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub struct RecoverySettings<'a> {
    pub memory_multiplier: f64,
    pub runtime_multiplier: f64,
    pub cpu_multiplier: f64,
    /// What nobody can explain is tried again as it is.
    pub retry_unknown: bool,
    /// Those who may take the jobs; empty where nobody knows.
    pub workers: &'a [AvailableWorker],
}

/// A worker that may take jobs, or one that an allocation of Slurm would bring. What one has is not there for as long as
/// another one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableWorker {
    pub capacity: Capacity,
    /// So long a job may take there; `None`: as long as it likes.
    pub time_left: Option<Duration>,
}

impl AvailableWorker {
    /// Whether it could run a job that asks for this, with nothing else running.
    pub fn can_run(&self, asked: &Resources) -> bool {
        let Self { capacity: has, time_left: stays } = self;
        has.cpus >= asked.cpus
            && has.memory >= asked.memory
            && has.gpus >= asked.gpus
            && has.nodes >= asked.nodes
            && stays.is_none_or(|stays| asked.runtime.is_none_or(|runtime| runtime <= stays))
    }
}

/// What was found about one job, and what is done about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRemedy {
    pub job: JobId,
    pub diagnosis: RecoveryDiagnosis,
    /// What the diagnosis rests on: `used 2.1 GiB of 2 GiB`.
    pub evidence: String,
    pub next: RecoveryAction,
    /// What it asks for from then on, where that is something else.
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

/// What is to be done about each of them, in the same order.
pub fn plan_recovery(cases: &[FailedJob], terms: &RecoverySettings<'_>) -> Vec<JobRemedy> {
    cases.iter().map(|case| remedy::find_remedy(case, terms)).collect()
}
