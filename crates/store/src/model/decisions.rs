//! Decisions about failures and revisions of jobs, by people and agents.

use serde::{Deserialize, Serialize};
use windlass_core::failure_commands::JobPatch;
use windlass_types::failure_commands::{FailureCommandKind, FailureCommandOutcome, RequestedJobChanges};
use windlass_types::{Attempt, FailureClass, JobId, JobStatus, RunId, Timestamp};

/// A decision about a failure, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRow {
    pub id: i64,
    pub job_id: JobId,
    pub job_name: String,
    pub run_id: RunId,
    /// The failed attempt.
    pub attempt_id: Attempt,
    pub made_at: Timestamp,
    pub made_by: String,
    pub is_agent: bool,
    #[serde(rename = "verdict")]
    pub kind: FailureCommandKind,
    pub confidence: Option<f64>,
    pub reason: String,
    pub evidence: Vec<String>,
    pub changes: RequestedJobChanges,
    pub state: DecisionState,
    /// Who approved or rejected it, and when.
    pub settled_at: Option<Timestamp>,
    pub settled_by: Option<String>,
    /// The outcome of the next attempt: the first that was not lost or stopped for reasons outside of the job.
    pub next_status: Option<JobStatus>,
    pub class: Option<FailureClass>,
    pub signature: Option<String>,
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionState {
    /// Waits for approval.
    Proposed,
    Done,
    Declined,
    /// The job continued before the proposal was answered, or its author made another one.
    Overtaken,
}

impl DecisionState {
    pub const ALL: [Self; 4] = [Self::Proposed, Self::Done, Self::Declined, Self::Overtaken];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Done => "done",
            Self::Declined => "declined",
            Self::Overtaken => "overtaken",
        }
    }
}

/// Selects decisions. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionFilter {
    pub id: Option<i64>,
    pub jobs: Vec<JobId>,
    pub run: Option<RunId>,
    pub state: Option<DecisionState>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Selects revisions. Empty fields match everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RevisionFilter {
    /// Only the changes of this revision.
    pub batch: Option<i64>,
    pub job: Option<JobId>,
}

/// A change of a job in a revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRevisionRow {
    pub id: i64,
    /// Changes with the same number were made together.
    pub batch: i64,
    pub job_id: JobId,
    pub job_name: String,
    pub job_status: JobStatus,
    pub made_at: Timestamp,
    pub made_by: String,
    pub reason: String,
    pub before: JobPatch,
    pub after: JobPatch,
    pub undone_at: Option<Timestamp>,
    pub undone_by: Option<String>,
    /// Whether an attempt of the job has ended since. `false` for changes older than this record.
    pub has_run: bool,
}

/// The result of a pending command: what was done, or why it was rejected.
pub type PendingCommandResult = Result<Vec<FailureCommandOutcome>, String>;
