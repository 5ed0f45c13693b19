//! Failures as rows, and their filters.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_types::{Attempt, Bytes, FailureClass, JobId, JobStatus, RunId, Timestamp, WorkerId};

/// A failure: a failed attempt with its classification and what followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRow {
    pub job_id: JobId,
    pub job_name: String,
    /// Current status of the job.
    pub job_status: JobStatus,
    pub run_id: RunId,
    pub attempt_id: Attempt,
    pub class: FailureClass,
    /// The classification rule that matched.
    pub rule: Option<String>,
    /// The signature and the message of the failure group.
    pub signature: String,
    pub message: String,
    /// The log excerpt of this failure and the end of its output.
    pub line: Option<String>,
    pub last_words: Option<String>,
    /// What happened to the job afterwards, and why.
    pub next: String,
    pub why: Option<String>,
    pub return_code: i32,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    pub ended_at: Timestamp,
    pub worker_id: WorkerId,
    pub host: String,
}

/// Number of ended attempts by site and by the `failure_role` of their job group (empty if it has none).
pub type AttemptCountsBySite = BTreeMap<String, BTreeMap<String, u64>>;

/// A failed attempt, for processes that follow a workflow without loading all of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Sequence number of the failure within the workflow, ascending.
    pub seq: i64,
    pub job_name: String,
    pub run_id: RunId,
    pub attempt_id: Attempt,
    pub class: FailureClass,
    /// The signature and the message of the failure group.
    pub signature: String,
    pub message: String,
    /// The end of its output.
    pub last_words: Option<String>,
    /// Whether the failure is final.
    pub is_final: bool,
    pub return_code: i32,
    pub peak_memory: Option<Bytes>,
    pub ended_at: Timestamp,
    /// The site of its worker.
    pub site: Option<String>,
}

/// Selects failures. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureFilter {
    /// `None`: the current run.
    pub run: Option<RunId>,
    pub signature: Option<String>,
    pub job: Option<JobId>,
    /// Only open ones: their jobs have failed for good, or wait for a decision.
    pub open_only: bool,
    /// Only jobs with this status.
    pub status: Vec<JobStatus>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// A failure group: failures of the current run with the same signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    pub signature: String,
    pub class: FailureClass,
    pub message: String,
    /// Log excerpt of one of them.
    pub line: Option<String>,
    pub attempts: u64,
    /// Number of jobs with this failure, including those that completed later.
    pub jobs: u64,
    /// Number of these jobs that failed for good.
    pub failed: u64,
    /// Number of these jobs that wait for a decision.
    pub pending: u64,
    /// Number of attempts that a failure handler retried.
    pub retried: u64,
    pub example: JobId,
}
