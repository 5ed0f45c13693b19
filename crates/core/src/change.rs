//! What a decision changes, as values. The store applies a list of changes in one transaction, in order.

use crate::board::{Carried, Failure};
use serde::{Deserialize, Serialize};
use windlass_types::orders::{Changes, Verdict};
use windlass_types::settings::Trigger;
use windlass_types::work::{AttemptKey, Exit, FilesSeen, Recovered, Usage};
use windlass_types::{Attempt, JobId, JobStatus, RequirementsId, Resources, Timestamp, WorkerId};

/// One change to the rows of one job, or of one action.
///
/// Every variant names the state it starts from, so that the store can refuse a change that does not fit what is
/// on disk: memory and database then disagree, which is a bug and never papered over.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A transition that leaves no other trace: unblocked, canceled by a failed dependency, reset.
    Status { job: JobId, from: JobStatus, to: JobStatus },
    /// `ready` → `pending`: from here on it may have started.
    Claim { job: JobId, attempt: Attempt, worker: WorkerId },
    /// `pending` → `running`, for jobs that run long enough for somebody to look.
    Start { job: JobId, attempt: Attempt, worker: WorkerId, at: Timestamp, pid: u32 },
    /// An attempt is over: `pending` or `running` → `to`, and a result row; with `failure`, if it failed. If it leads to
    /// `ready`, `carried` is all that the next attempt inherits; nothing, where it is absent.
    End {
        from: JobStatus,
        to: JobStatus,
        result: AttemptResult,
        next_attempt: Attempt,
        orphaned: bool,
        failure: Option<Box<Failure>>,
        carried: Option<Box<Carried>>,
    },
    /// A claim that certainly never started: `pending` → `ready` with the same attempt number.
    GiveBack { job: JobId, worker: WorkerId },
    /// A claim that one worker made for another: `pending` stays `pending`, and the other one holds it.
    HandOver { job: JobId, from: WorkerId, to: WorkerId },
    /// An attempt that had ended is followed by another: `from` → `ready` at `attempt` + 1.
    Retry { job: JobId, from: JobStatus, attempt: Attempt },
    /// Nobody holds it and it is to begin anew: `from` → `uninitialized`, with this attempt next.
    Reset { job: JobId, from: JobStatus, attempt: Attempt },
    /// Something about an action, in the same commit as what set it off.
    Action(ActionChange),
    /// Those that wait for the job go on as if this attempt had not failed.
    Ignore { job: JobId, attempt: Attempt },
    /// What somebody decided about a failure, or wants to.
    Decide(Box<Decision>),
    /// What became of a decision that waited for a person.
    Settle { decision: i64, is_done: bool, by: String, at: Timestamp },
    /// The job, which nobody holds, is otherwise from now on.
    Revise(Box<Revision>),
}

/// What somebody decided about the failure of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub key: AttemptKey,
    pub by: String,
    pub is_agent: bool,
    pub at: Timestamp,
    pub verdict: Verdict,
    pub confidence: Option<f64>,
    pub reason: String,
    pub evidence: Vec<String>,
    pub changes: Changes,
    /// Carried out; else it waits for a person.
    pub is_done: bool,
}

/// What somebody changed about a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    pub job: JobId,
    /// Where the job stands, which is nobody's.
    pub from: JobStatus,
    /// Those that were made together, within the workflow.
    pub batch: i64,
    pub by: String,
    pub at: Timestamp,
    pub reason: String,
    pub before: Edition,
    pub after: Edition,
}

/// What of a job somebody can change while it waits; only what changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// What a job asks for, and where it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    #[serde(flatten)]
    pub resources: Resources,
    pub by: AskedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskedBy {
    /// It names nothing.
    Nothing,
    /// A set that it may share with others.
    Row(RequirementsId),
    /// The job alone.
    Itself,
}

/// One change to the rows of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionChange {
    /// What it waits for has happened `to` times by now; with that it is due, or was so before or is not yet.
    Triggered { action: i64, from: u32, to: u32, is_due: bool },
    /// Somebody carries it out: from here on it may have begun.
    Started { action: i64, attempt: Attempt, worker: Option<WorkerId>, trigger: Trigger, at: Timestamp },
    /// It is over; without a return code where nobody knows how it went.
    Ended { action: i64, attempt: Attempt, at: Timestamp, return_code: Option<i32>, message: Option<String> },
    /// Whoever was to carry it out never heard of it.
    Withdrawn { action: i64, attempt: Attempt },
    /// A client has it that carries out actions by itself and does not say how that went.
    Claimed { action: i64, attempt: Attempt, worker: Option<WorkerId>, at: Timestamp },
}

/// The result row of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptResult {
    pub key: AttemptKey,
    pub worker: WorkerId,
    /// How the *attempt* ended. Not always what the job becomes: an interrupted attempt is `terminated` while its
    /// job goes back to `ready`.
    pub status: JobStatus,
    pub return_code: i32,
    pub exit: Option<Exit>,
    pub out_of_memory: bool,
    /// Why it ended and what happens next, in words, where that is not plain from the code.
    pub reason: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub wall: std::time::Duration,
    pub usage: Usage,
    /// Its files, as it found and left them; `None` where it has none.
    pub files: Option<Box<FilesSeen>>,
    /// How the script went that an earlier failure owed; `None` where none did.
    pub recovered: Option<Box<Recovered>>,
}
