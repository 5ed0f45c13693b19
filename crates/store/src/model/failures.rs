//! What is known of failures.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_types::{Attempt, Bytes, FailureClass, JobId, JobStatus, RunId, Timestamp, WorkerId};

/// An attempt that ended badly, and what was made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRow {
    pub job_id: JobId,
    pub job_name: String,
    /// Where the job stands now.
    pub job_status: JobStatus,
    pub run_id: RunId,
    pub attempt_id: Attempt,
    pub class: FailureClass,
    /// The rule of classification that spoke.
    pub rule: Option<String>,
    /// The same for all that failed alike, and what those are called.
    pub signature: String,
    pub message: String,
    /// The telling line of this one, and the end of what it said.
    pub line: Option<String>,
    pub last_words: Option<String>,
    /// What happened to the job after it, and why.
    pub next: String,
    pub why: Option<String>,
    pub return_code: i32,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    pub ended_at: Timestamp,
    pub worker_id: WorkerId,
    pub host: String,
}

/// How many attempts have ended, by site and by the name of who sees to the failures of their jobs (nobody: an empty one).
pub type SiteCounts = BTreeMap<String, BTreeMap<String, u64>>;

/// A failed attempt, for whoever follows a workflow without looking at all of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Higher than that of all failures of the workflow that were noted before it.
    pub seq: i64,
    pub job_name: String,
    pub run_id: RunId,
    pub attempt_id: Attempt,
    pub class: FailureClass,
    /// The same for all that failed alike, and what those are called.
    pub signature: String,
    pub message: String,
    /// The end of what it said.
    pub last_words: Option<String>,
    /// Nothing follows it by itself.
    pub is_final: bool,
    pub return_code: i32,
    pub peak_memory: Option<Bytes>,
    pub ended_at: Timestamp,
    /// Where its worker is.
    pub site: Option<String>,
}

/// Which failures to list. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureFilter {
    /// `None`: the current one.
    pub run: Option<RunId>,
    pub signature: Option<String>,
    pub job: Option<JobId>,
    /// Only those that nothing came after: their jobs have failed, or wait for a decision.
    pub open_only: bool,
    /// Only of jobs that stand like this.
    pub status: Vec<JobStatus>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Failures of the current run that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    pub signature: String,
    pub class: FailureClass,
    pub message: String,
    /// The telling line of one of them.
    pub line: Option<String>,
    pub attempts: u64,
    /// How many jobs failed so, whatever became of them,
    pub jobs: u64,
    /// of which so many have failed for good,
    pub failed: u64,
    /// so many wait for a decision,
    pub pending: u64,
    /// and so many attempts were followed by another because a handler said so.
    pub retried: u64,
    pub example: JobId,
}
