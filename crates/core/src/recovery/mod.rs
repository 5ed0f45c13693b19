//! What `recover` does about jobs that ended badly: each is diagnosed from the measurements of its own last attempt, and
//! gets more of what it ran out of, as far as a worker has it. Others that ask for the same keep what they ask for.

mod diagnosis;
mod remedy;

#[cfg(test)]
mod tests;

use crate::sizing::{Change, Observation};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use windlass_types::{Capacity, FailureClass, JobId, JobStatus, Resources};

/// A job that ended badly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
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
    pub seen: Observation,
    pub signal: Option<i32>,
    /// There is proof that it was ended for its memory.
    pub out_of_memory: bool,
    /// `None`: nobody classified it.
    pub class: Option<FailureClass>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Diagnosis {
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

impl Diagnosis {
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

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    pub memory_multiplier: f64,
    pub runtime_multiplier: f64,
    pub cpu_multiplier: f64,
    /// What nobody can explain is tried again as it is.
    pub retry_unknown: bool,
    /// Those who may take the jobs; empty where nobody knows.
    pub takers: &'a [Taker],
}

/// A worker that may take jobs, or one that an allocation of Slurm would bring. What one has is not there for as long as
/// another one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taker {
    pub has: Capacity,
    /// So long a job may take there; `None`: as long as it likes.
    pub stays: Option<Duration>,
}

impl Taker {
    /// Whether it could run a job that asks for this, with nothing else running.
    pub fn holds(&self, asked: &Resources) -> bool {
        let Self { has, stays } = self;
        has.cpus >= asked.cpus
            && has.memory >= asked.memory
            && has.gpus >= asked.gpus
            && has.nodes >= asked.nodes
            && stays.is_none_or(|stays| asked.runtime.is_none_or(|runtime| runtime <= stays))
    }
}

/// What was found about one job, and what is done about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    pub job: JobId,
    pub diagnosis: Diagnosis,
    /// What the diagnosis rests on: `used 2.1 GiB of 2 GiB`.
    pub evidence: String,
    pub next: Next,
    /// What it asks for from then on, where that is something else.
    pub changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "what", content = "why")]
pub enum Next {
    RunAgain,
    /// It stays as it is, for this reason.
    Stay(String),
}

impl Remedy {
    pub fn runs_again(&self) -> bool {
        self.next == Next::RunAgain
    }
}

/// What is to be done about each of them, in the same order.
pub fn plan(cases: &[Case], terms: &Terms<'_>) -> Vec<Remedy> {
    cases.iter().map(|case| remedy::find(case, terms)).collect()
}
