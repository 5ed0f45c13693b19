//! What people and agents decided about failures and changed about jobs.

use serde::{Deserialize, Serialize};
use windlass_core::failure_commands::JobPatch;
use windlass_types::failure_commands::{FailureCommandKind, FailureCommandOutcome, RequestedJobChanges};
use windlass_types::{Attempt, FailureClass, JobId, JobStatus, RunId, Timestamp};

/// A decision about a failure, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRow {
    pub id: i64,
    pub job_id: JobId,
    pub job_name: String,
    pub run_id: RunId,
    /// The attempt that had failed.
    pub attempt_id: Attempt,
    pub made_at: Timestamp,
    pub made_by: String,
    pub is_agent: bool,
    pub verdict: FailureCommandKind,
    pub confidence: Option<f64>,
    pub reason: String,
    pub evidence: Vec<String>,
    pub changes: RequestedJobChanges,
    pub state: DecisionState,
    /// Who agreed or did not, and when.
    pub settled_at: Option<Timestamp>,
    pub settled_by: Option<String>,
    /// How the attempt ended that followed: the first that was not lost or stopped for no fault of the job.
    pub next_status: Option<JobStatus>,
    pub class: Option<FailureClass>,
    pub signature: Option<String>,
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionState {
    /// It waits for a person.
    Proposed,
    Done,
    Declined,
    /// Nobody answered the proposal before the job went on without it, or whoever made it made another.
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

/// Which decisions to list. Empty fields match everything.
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

/// Which changes to list. Empty fields match everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RevisionFilter {
    /// Only those that were made together under this number.
    pub batch: Option<i64>,
    pub job: Option<JobId>,
}

/// A change that somebody made to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRevisionRow {
    pub id: i64,
    /// Those of one number were made together.
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
    /// An attempt of the job has ended since. Unknown, and not so, of what was changed before that was noted.
    pub has_run: bool,
}

/// What came of a wish: what was done, or why nothing could be.
pub type PendingCommandResult = Result<Vec<FailureCommandOutcome>, String>;
