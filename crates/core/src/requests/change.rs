//! What a decision about a request changes, as values. The store applies the changes of one [`Commit`] in one transaction.

use super::failures::FailureTally;
use super::rows::{
    BackendRunRef, BlockRow, NewAlert, NewBan, NodeCounts, OutputStep, OutputStepKind, OutputStepState,
    RequestCommand, RequestOverrides, RequestProcess, RunEvent, RunRow, RunTotals,
};
use std::sync::Arc;
use windlass_types::Timestamp;
use windlass_types::requests::{
    ProcessingBlockStatus, ProductionStep, Request, RequestRunStatus, RequestStatus,
};

/// All or nothing, and only if the request is still at the version that the decision was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestCommit {
    pub request: String,
    pub version: i64,
    pub changes: Vec<RequestChange>,
    /// Who decided: a person, or `lifecycle`.
    pub by: String,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RequestChange {
    /// Through here and nowhere else: leaves a line in the audit trail. The row's `since` is the time of the commit, its
    /// `reason` is this one, and its `alerted_at` is forgotten.
    Status {
        from: RequestStatus,
        to: RequestStatus,
        reason: Option<String>,
    },
    /// What keeps it where it is, while that lasts: for whoever looks, and for the person whom it may come to.
    BlockedReason(String),
    Priority(i64),
    /// What is left of them.
    ProductionSteps(Vec<ProductionStep>),
    Urgent(bool),
    SupersededBy(Option<String>),
    SetCommand(Option<RequestCommand>),
    /// As a whole.
    Overrides(Box<RequestOverrides>),
    /// A site that is to get nothing of a request, or of any.
    Ban(Box<NewBan>),
    /// The request that takes the place of this one: submitted in the same breath, so that there is never one without the
    /// other. Refused if there is one of that name, or if another request writes one of its output datasets. With what
    /// people have changed about it.
    AddVersion(Box<Request>, Box<RequestOverrides>),
    SetAlertedAt(Option<Timestamp>),
    /// Made or replaced as a whole.
    Process(Box<RequestProcess>),
    AddRun(Box<RunRow>),
    Run {
        run: String,
        change: RunChange,
    },
    /// What is known of the failed attempts of a run, as a whole.
    FailureTally {
        run: String,
        tally: Arc<FailureTally>,
    },
    /// Something that happened to a run; that its status changed is noted anyway.
    RecordRunEvent(Box<RunEvent>),
    /// A block of a new round; no change if the process has one of that dataset and index.
    AddBlock(Box<BlockRow>),
    Block {
        block: String,
        change: BlockChange,
    },
    /// Something to do; no change if it is there already.
    AddStep(Box<OutputStep>),
    /// How it went.
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
    /// To `submitted` sets `submitted_at`; to one that is an end, `completed_at`: the time of the commit. Leaves a line in
    /// the run's history.
    Status {
        from: RequestRunStatus,
        to: RequestRunStatus,
    },
    /// It was handed over, and this is what it is called there. The backend of a run never changes, only its name there.
    AssignBackend(BackendRunRef),
    /// How large it is, once it is planned.
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
    /// Since when nothing new of it is to begin; `None`: it goes on.
    Pause(Option<Timestamp>),
    /// Since when its backend does not answer; `None`: it does.
    Unresponsive(Option<Timestamp>),
    /// The priority that its backend has been told.
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
    /// So many of its units will be registered, and no more.
    UnitsExpected(u32),
    TapeRule(String),
}
