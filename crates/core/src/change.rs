//! Changes as values. The store applies a list of changes in one transaction, in order.

use crate::workflow_state::{AttemptFailure, NextAttempt};
use windlass_types::settings::ActionTrigger;
use windlass_types::worker_messages::{
    AttemptFiles, AttemptKey, AttemptUsage, ProcessExit, RecoveryScriptResult,
};
use windlass_types::{Attempt, JobId, JobStatus, Timestamp, WorkUnitStatus, WorkerId};

/// One change to the rows of a job, an action or a work unit; or an alarm of the workflow.
///
/// Every variant names the state that it starts from, so that the store can reject a change that does not fit
/// the database: memory and database then disagree, which is a bug and never ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkflowChange {
    /// A transition without other effects: unblocked, canceled by a failed dependency, reset.
    Status { job: JobId, from: JobStatus, to: JobStatus },
    /// `ready` → `pending`: the job may have started from now on.
    Claim { job: JobId, attempt: Attempt, worker: WorkerId },
    /// `pending` → `running`, for jobs that run long enough to be seen running.
    Start { job: JobId, attempt: Attempt, worker: WorkerId, at: Timestamp, pid: u32 },
    /// An attempt ended: `pending` or `running` → `to`, with a result row, and with `failure` if it failed. If
    /// `to` is `ready`, `inherited` is what the next attempt inherits (`None`: nothing).
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
    /// A claim moves to another worker: the job stays `pending`.
    ReassignClaim { job: JobId, from: WorkerId, to: WorkerId },
    /// An ended attempt is retried: `from` → `ready` at `attempt` + 1.
    Retry { job: JobId, from: JobStatus, attempt: Attempt },
    /// The job is reset and no worker holds it: `from` → `uninitialized`, with this attempt next.
    Reset { job: JobId, from: JobStatus, attempt: Attempt },
    /// A change of an action, in the same commit as its trigger.
    Action(ActionChange),
    /// Dependents of the job continue as if this attempt had not failed.
    Ignore { job: JobId, attempt: Attempt },
    /// A change of a work unit, in the same commit as its cause.
    Unit(WorkUnitChange),
    /// Number of attempts ending in this commit at a site, of jobs with this failure handler (empty name:
    /// none). For workflows with work units.
    CountSiteAttempts { site: String, handler: String, attempts: u32 },
    /// An alarm, in the same commit as its cause.
    RaiseAlarm(Box<WorkflowAlert>),
}

/// An event about a problem that only an operator can solve.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowAlert {
    pub category: String,
    pub message: String,
    pub data: serde_json::Value,
}

/// One change to the row of a work unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkUnitChange {
    pub number: u32,
    pub from: WorkUnitStatus,
    pub to: WorkUnitStatus,
    /// The site of the unit from now on; `None`: unknown.
    pub site: Option<String>,
}

/// One change to the rows of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionChange {
    /// The trigger has fired `to` times; `is_due` says whether the action is due now.
    Triggered { action: i64, from: u32, to: u32, is_due: bool },
    /// The action may have begun from now on.
    Started { action: i64, attempt: Attempt, worker: Option<WorkerId>, trigger: ActionTrigger, at: Timestamp },
    /// The action ended; without a return code if the result is unknown.
    Ended { action: i64, attempt: Attempt, at: Timestamp, return_code: Option<i32>, message: Option<String> },
    /// The action never reached its worker.
    Withdrawn { action: i64, attempt: Attempt },
    /// Claimed by a client that executes actions itself and does not report the result.
    Claimed { action: i64, attempt: Attempt, worker: Option<WorkerId>, at: Timestamp },
}

/// The result row of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptResult {
    pub key: AttemptKey,
    pub worker: WorkerId,
    /// How the *attempt* ended. May differ from the state of the job: an interrupted attempt is `terminated`
    /// while its job returns to `ready`.
    pub status: JobStatus,
    pub return_code: i32,
    pub exit: Option<ProcessExit>,
    pub out_of_memory: bool,
    /// Why it ended and what happens next, in words, where the exit code does not show it.
    pub reason: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub wall: std::time::Duration,
    pub usage: AttemptUsage,
    /// Its input and output files; `None` if it has none.
    pub files: Option<Box<AttemptFiles>>,
    /// The result of the recovery script of an earlier failure; `None` if there was none.
    pub recovered: Option<Box<RecoveryScriptResult>>,
}
