//! Rows of a request in the database, as values.
//!
//! A request has one [`RequestProgress`] (the *workflow* of the requests API), which has runs (there: *DAGs*), one
//! after another. Its outputs are collected in blocks, and the work on outputs is a list of [`OutputStep`]s that
//! survives crashes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use windlass_types::requests::{ProcessingBlockStatus, Request, RequestRunStatus, RequestStatus, SiteStatus};
use windlass_types::{RunId, Timestamp, WorkflowId};

pub use windlass_types::requests::{
    FileRemainder, RequestFileCounts, RequestFileRow, RequestFileState, RequestOverrides, RequestRunCause,
};

/// A request and its status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRow {
    /// `priority` and `production_steps` are current values; the other fields are as submitted.
    pub request: Request,
    /// Settings that users have changed for its execution.
    #[serde(default, skip_serializing_if = "RequestOverrides::is_empty")]
    pub overrides: RequestOverrides,
    pub status: RequestStatus,
    /// Increases with every change. A change based on another version is rejected.
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it reached its status.
    pub since: Timestamp,
    /// A command that the reconciler has not processed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<RequestCommand>,
    /// Why it is held, failed or aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was last reported as stuck, so that alerts are not repeated in every pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alerted_at: Option<Timestamp>,
}

/// A command of a user. Kept until it is processed, so that it survives a crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestCommand {
    pub what: RequestCommandKind,
    pub by: String,
    pub reason: String,
    pub at: Timestamp,
    /// For an end: the backend of its run is lost for good, so a run that does not answer is not awaited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// For a release: failed units are retried in a rescue of the same round, instead of in the next round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rescue: bool,
}

impl RequestCommand {
    /// Creates a command without options.
    pub fn new(
        what: RequestCommandKind,
        by: impl Into<String>,
        reason: impl Into<String>,
        at: Timestamp,
    ) -> Self {
        Self { what, by: by.into(), reason: reason.into(), at, lost: false, rescue: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestCommandKind {
    /// A clean stop; it continues after its next admission.
    Stop,
    /// Ends it because it is no longer wanted: unfinished outputs are undone.
    Abort,
    /// Ends it because it cannot succeed or a new version supersedes it: its outputs stay.
    Fail,
    /// Leaves `held`: after failures progress is recorded and the next round follows; otherwise it continues
    /// where it was.
    Release,
    /// Ends its run; an operator decides what follows.
    Remove,
}

/// The progress of a request over all of its rounds: its current round, and where the next one begins. The
/// requests API calls it the *workflow* of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestProgress {
    pub uuid: String,
    pub request_name: String,
    /// From 0; a round is planned once and has one run plus those that continue it.
    pub round: u32,
    /// First event number of the next round: beyond all that were ever planned.
    pub next_first_event: u64,
    pub next_first_lumi: u32,
    /// Number of the first block of the next round.
    pub next_block: u32,
    /// Whether the rounds planned so far leave input to later ones.
    #[serde(default)]
    pub more_input: bool,
    /// Number of files that users had excluded when the current round was planned.
    #[serde(default)]
    pub excluded: u64,
    /// Number of settled rounds.
    #[serde(default)]
    pub settled: u32,
    /// State of the input files after these rounds.
    #[serde(default)]
    pub files: RequestFileCounts,
    /// The part of the request that the current round covers.
    #[serde(default)]
    pub extent: RoundExtent,
    /// Events registered in the first output dataset; the progress of generation (DESIGN 6.5).
    #[serde(default)]
    pub events_produced: u64,
    /// Those produced by this round.
    #[serde(default)]
    pub events_of_round: u64,
    /// Number of preceding rounds that completed without events.
    #[serde(default)]
    pub empty_rounds: u32,
    pub category_throttles: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_metrics: Option<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The part of a request that a round covers, at the time of planning: events if generated, else input files.
/// All 0: the round is the whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundExtent {
    /// Done by earlier rounds.
    pub before: u64,
    /// Planned in this round.
    pub planned: u64,
    /// Left to later ones.
    pub later: u64,
}

impl RoundExtent {
    /// Returns the share of the whole request that is done when this share of the round is.
    pub fn done_share(self, of_round: f64) -> f64 {
        let whole = self.before.saturating_add(self.planned).saturating_add(self.later);
        if whole == 0 {
            return of_round;
        }
        (self.before as f64 + self.planned as f64 * of_round) / whole as f64
    }
}

/// One submission to a backend (R-016; the requests API calls it a DAG).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    pub uuid: String,
    pub process: String,
    pub round: u32,
    /// The run that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Why this run was created.
    pub cause: RequestRunCause,
    /// Number of automatic rescues in this round up to this run.
    pub rescues: u32,
    /// Since when it starts nothing new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Timestamp>,
    /// Since when its backend does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<Timestamp>,
    /// The priority of its jobs; `None`: unknown.
    pub priority: Option<i64>,
    pub backend: BackendRunRef,
    pub submit_dir: String,
    pub status: RequestRunStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_requested_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    pub totals: RunTotals,
    pub counts: NodeCounts,
    /// Completed work units, including those of earlier runs of this round.
    pub units_completed: u32,
    pub units_failed: u32,
    /// Sequence number of the last work unit report that was read.
    pub units_read: i64,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

/// The backend of a run, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "backend", rename_all = "snake_case")]
pub enum BackendRunRef {
    /// `None` until it is submitted.
    Engine {
        workflow: Option<WorkflowId>,
        run: Option<RunId>,
    },
    Htcondor {
        schedd: Option<String>,
        cluster: Option<String>,
    },
}

impl BackendRunRef {
    /// Name in commands and responses.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Engine { .. } => "engine",
            Self::Htcondor { .. } => "htcondor",
        }
    }

    /// Returns the same backend, for a run that continues this one.
    #[must_use]
    pub fn for_continuation(&self) -> Self {
        match self {
            Self::Engine { workflow, .. } => Self::Engine { workflow: *workflow, run: None },
            Self::Htcondor { schedd, .. } => Self::Htcondor { schedd: schedd.clone(), cluster: None },
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTotals {
    pub nodes: u64,
    pub edges: u64,
    /// By role.
    pub by_role: BTreeMap<String, u64>,
    pub units: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    pub idle: u64,
    pub running: u64,
    pub done: u64,
    pub failed: u64,
    pub held: u64,
}

/// A line of the history of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    pub run: String,
    pub event_type: String,
    pub from: Option<RequestRunStatus>,
    pub to: Option<RequestRunStatus>,
    pub counts: NodeCounts,
    pub detail: Map<String, Value>,
    pub at: Timestamp,
}

/// Work units `first_unit..=last_unit` of a round, as one block of one dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockRow {
    pub uuid: String,
    pub process: String,
    pub round: u32,
    /// From 0 within the process and dataset.
    pub index: u32,
    pub dataset: String,
    pub first_unit: u32,
    pub last_unit: u32,
    /// Work units whose files are registered and protected.
    pub units_completed: u32,
    /// Expected number: all of its work units, or those completed when its round was settled.
    pub units_expected: u32,
    /// Its name in the catalog, once it is open there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub is_closed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tape_rule: Option<String>,
    pub status: ProcessingBlockStatus,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl BlockRow {
    pub const fn total_units(&self) -> u32 {
        self.last_unit - self.first_unit + 1
    }
}

/// A catalog step for outputs (DESIGN 6.6). Idempotent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputStep {
    pub block: String,
    /// `None`: concerns the whole block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<u32>,
    pub kind: OutputStepKind,
    pub state: OutputStepState,
    /// Failed attempts since the last success.
    pub attempts: u32,
    /// Earliest time of the next attempt.
    pub due_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The id of the rule, or the name of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Its parameters: the files of the unit and their site.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

/// In the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStepKind {
    /// Opens the block in the catalog.
    Open,
    /// Registers the files of a unit in it.
    Register,
    /// Protects them at their site.
    Protect,
    /// Closes the block.
    Close,
    /// Archives it to tape.
    Archive,
    /// Undo: removes rules, invalidates files.
    Invalidate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStepState {
    Pending,
    Done,
    /// Failed for too long; an operator has to decide.
    Failed,
    /// No longer wanted: its block is being undone.
    Dropped,
}

impl OutputStepState {
    /// Whether later steps have to wait for it.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Failed)
    }
}

impl OutputStepKind {
    pub const ALL: [Self; 6] =
        [Self::Open, Self::Register, Self::Protect, Self::Close, Self::Archive, Self::Invalidate];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Register => "register",
            Self::Protect => "protect",
            Self::Close => "close",
            Self::Archive => "archive",
            Self::Invalidate => "invalidate",
        }
    }
}

impl OutputStepState {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Done, Self::Failed, Self::Dropped];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// A line of the audit log of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusTransition {
    /// From 1 within the request.
    pub n: u32,
    /// `None`: created.
    pub from: Option<RequestStatus>,
    pub to: RequestStatus,
    pub at: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An alert for operators. Kept until it is sent, so that a crash loses none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewAlert {
    /// One stable word for programs.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    pub message: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertRow {
    pub id: i64,
    #[serde(flatten)]
    pub alert: NewAlert,
    pub at: Timestamp,
    /// When it was passed to the notifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_at: Option<Timestamp>,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteRow {
    pub name: String,
    pub status: SiteStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_until: Option<Timestamp>,
    pub total_slots: Option<u64>,
    pub running_slots: u64,
    pub pending_slots: u64,
    #[serde(default)]
    pub thresholds: BTreeMap<String, u64>,
    #[serde(default)]
    pub schedd_name: Option<String>,
    #[serde(default)]
    pub collector_host: Option<String>,
    #[serde(default)]
    pub storage_element: Option<String>,
    /// Path prefix of LFNs in its storage.
    #[serde(default)]
    pub storage_path: Option<String>,
    pub updated_at: Timestamp,
}

/// A site that is to get no work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewBan {
    pub site: String,
    /// For this request; `None`: for all.
    #[serde(default)]
    pub request: Option<String>,
    pub reason: String,
    #[serde(default)]
    pub failure_data: Value,
    pub by: String,
    pub expires_at: Timestamp,
}

/// A site that gets no work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteBan {
    pub id: i64,
    #[serde(flatten)]
    pub ban: NewBan,
    pub created_at: Timestamp,
    #[serde(default)]
    pub removed_at: Option<Timestamp>,
    #[serde(default)]
    pub removed_by: Option<String>,
    /// When its expiry was reported.
    #[serde(default)]
    pub expiry_told_at: Option<Timestamp>,
}
