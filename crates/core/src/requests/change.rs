//! Changes of a request as values. The store applies the changes of one [`RequestCommit`] in one transaction.

use super::failures::FailureTally;
use super::rows::{
    BackendRunRef, BlockRow, NewAlert, NewBan, NodeCounts, OutputStep, OutputStepKind, OutputStepState,
    RequestCommand, RequestOverrides, RequestProgress, RunEvent, RunRow, RunTotals,
};
use std::sync::Arc;
use windlass_types::Timestamp;
use windlass_types::requests::{
    PriorityStep, ProcessingBlockStatus, Request, RequestRunStatus, RequestStatus,
};

/// Atomic; applied only if the request still has the version that the decision was based on.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestCommit {
    pub request: String,
    pub version: i64,
    pub changes: Vec<RequestChange>,
    /// Who decided: a user, or `lifecycle`.
    pub by: String,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RequestChange {
    /// The only way to change the status; adds a line to the audit log. Sets `since` to the time of the commit
    /// and `reason` to this one, and clears `alerted_at`.
    Status {
        from: RequestStatus,
        to: RequestStatus,
        reason: Option<String>,
    },
    /// Why it makes no progress, for display and for the operator who may be alerted.
    BlockedReason(String),
    Priority(i64),
    /// The remaining steps.
    ProductionSteps(Vec<PriorityStep>),
    Urgent(bool),
    SupersededBy(Option<String>),
    SetCommand(Option<RequestCommand>),
    /// Replaces all overrides.
    Overrides(Box<RequestOverrides>),
    /// Bans a site for a request, or for all.
    Ban(Box<NewBan>),
    /// Submits the request that supersedes this one, in the same commit, so that there is never one without the
    /// other. Refused if the name exists, or if another request writes one of its output datasets. With the
    /// overrides set by users.
    AddVersion(Box<Request>, Box<RequestOverrides>),
    SetAlertedAt(Option<Timestamp>),
    /// Added or replaced as a whole.
    Process(Box<RequestProgress>),
    AddRun(Box<RunRow>),
    Run {
        run: String,
        change: RunChange,
    },
    /// The failed attempts of a run, replaced as a whole.
    FailureTally {
        run: String,
        tally: Arc<FailureTally>,
    },
    /// An event of a run; changes of its status are recorded anyway.
    RecordRunEvent(Box<RunEvent>),
    /// A block of a new round; ignored if the process has a block of that dataset and index.
    AddBlock(Box<BlockRow>),
    Block {
        block: String,
        change: BlockChange,
    },
    /// A step to do; ignored if it exists.
    AddStep(Box<OutputStep>),
    /// The result of a step.
    Step {
        block: String,
        unit: Option<u32>,
        kind: OutputStepKind,
        state: OutputStepState,
        attempts: u32,
        due_at: Timestamp,
        first_failed_at: Option<Timestamp>,
        last_error: Option<String>,
        result: Option<String>,
    },
    Alert(Box<NewAlert>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum RunChange {
    /// Sets `submitted_at` for `submitted` and `completed_at` for a final status, to the time of the commit.
    /// Adds a line to the history of the run.
    Status {
        from: RequestRunStatus,
        to: RequestRunStatus,
    },
    /// Records the name of the submitted run at the backend. The backend of a run never changes.
    AssignBackend(BackendRunRef),
    /// Its size, once it is planned.
    Totals(RunTotals),
    Counts(NodeCounts),
    Units {
        completed: u32,
        failed: u32,
        read: i64,
    },
    Stop {
        at: Timestamp,
        reason: String,
    },
    /// Since when it starts nothing new; `None`: not paused.
    Pause(Option<Timestamp>),
    /// Since when its backend does not answer; `None`: it answers.
    Unresponsive(Option<Timestamp>),
    /// The priority that was sent to its backend.
    Priority(i64),
}

#[derive(Clone, Debug, PartialEq)]
pub enum BlockChange {
    Status {
        from: ProcessingBlockStatus,
        to: ProcessingBlockStatus,
    },
    Opened {
        name: String,
    },
    Closed,
    UnitsCompleted(u32),
    /// The number of its units that will be registered.
    UnitsExpected(u32),
    TapeRule(String),
}
