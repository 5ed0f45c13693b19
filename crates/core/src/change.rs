//! What a decision changes, as values. The store applies a list of changes in one transaction, in order.

use crate::workflow_state::{AttemptFailure, NextAttempt};
use windlass_types::settings::ActionTrigger;
use windlass_types::worker_messages::{
    AttemptFiles, AttemptKey, AttemptUsage, ProcessExit, RecoveryScriptResult,
};
use windlass_types::{Attempt, JobId, JobStatus, Timestamp, WorkUnitStatus, WorkerId};

/// One change to the rows of one job, of one action or of one unit; or a word about the workflow.
///
/// Every variant names the state it starts from, so that the store can refuse a change that does not fit what is
/// on disk: memory and database then disagree, which is a bug and never papered over.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkflowChange {
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
        failure: Option<Box<AttemptFailure>>,
        inherited: Option<Box<NextAttempt>>,
    },
    /// A claim that certainly never started: `pending` → `ready` with the same attempt number.
    ReturnClaim { job: JobId, worker: WorkerId },
    /// A claim that one worker made for another: `pending` stays `pending`, and the other one holds it.
    ReassignClaim { job: JobId, from: WorkerId, to: WorkerId },
    /// An attempt that had ended is followed by another: `from` → `ready` at `attempt` + 1.
    Retry { job: JobId, from: JobStatus, attempt: Attempt },
    /// Nobody holds it and it is to begin anew: `from` → `uninitialized`, with this attempt next.
    Reset { job: JobId, from: JobStatus, attempt: Attempt },
    /// Something about an action, in the same commit as what set it off.
    Action(ActionChange),
    /// Those that wait for the job go on as if this attempt had not failed.
    Ignore { job: JobId, attempt: Attempt },
    /// What follows for a unit, in the same commit as what decides it.
    Unit(WorkUnitChange),
    /// So many of the attempts that end in this commit were at a site, of jobs whose failures this handler sees to (none:
    /// an empty name); for workflows with units.
    CountSiteAttempts { site: String, handler: String, attempts: u32 },
    /// Somebody has to know of it, in the same commit as what led to it.
    RaiseAlarm(Box<WorkflowAlarm>),
}

/// An event that tells of something which only a person can put right.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowAlarm {
    pub category: String,
    pub message: String,
    pub data: serde_json::Value,
}

/// One change to the row of one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkUnitChange {
    pub number: u32,
    pub from: WorkUnitStatus,
    pub to: WorkUnitStatus,
    /// Where it is from now on; `None`: nobody knows (any more).
    pub site: Option<String>,
}

/// One change to the rows of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionChange {
    /// What it waits for has happened `to` times by now; with that it is due, or was so before or is not yet.
    Triggered { action: i64, from: u32, to: u32, is_due: bool },
    /// Somebody carries it out: from here on it may have begun.
    Started { action: i64, attempt: Attempt, worker: Option<WorkerId>, trigger: ActionTrigger, at: Timestamp },
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
    pub exit: Option<ProcessExit>,
    pub out_of_memory: bool,
    /// Why it ended and what happens next, in words, where that is not plain from the code.
    pub reason: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub wall: std::time::Duration,
    pub usage: AttemptUsage,
    /// Its files, as it found and left them; `None` where it has none.
    pub files: Option<Box<AttemptFiles>>,
    /// How the script went that an earlier failure owed; `None` where none did.
    pub recovered: Option<Box<RecoveryScriptResult>>,
}
