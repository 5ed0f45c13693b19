//! What is kept about a request while it lives: the rows of the books as values.
//!
//! A request has one [`Process`] (the *workflow* of the requests API); a process has runs (there: *DAGs*), one after the
//! other; its outputs gather in blocks; and what is to be done about outputs is a list of [`OutputStep`]s that survives
//! any crash.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use windlass_types::requests::{ProcessingBlockStatus, Request, RequestRunStatus, RequestStatus, SiteStatus};
use windlass_types::{RunId, Timestamp, WorkflowId};

pub use windlass_types::requests::{
    FileRemainder, RequestFileCounts, RequestFileRow, RequestFileState, RequestOverrides, RequestRunCause,
};

/// A request and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRow {
    /// `priority` and `production_steps` are what they are now; the others as they were wished for.
    pub request: Request,
    /// What people have changed about how it is carried out.
    #[serde(default, skip_serializing_if = "RequestOverrides::is_empty")]
    pub overrides: RequestOverrides,
    pub status: RequestStatus,
    /// Rises with every change. A change that quotes another one than it finds is refused.
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it came to its status.
    pub since: Timestamp,
    /// What somebody wants of it and the reconciler has not seen to yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<RequestCommand>,
    /// Why it is held, failed or aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was last said of it that it is stuck, so that it is not said at every pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alerted_at: Option<Timestamp>,
}

/// What a person asked for. Kept until it is done, so that a crash forgets nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestCommand {
    pub what: RequestCommandKind,
    pub by: String,
    pub reason: String,
    pub at: Timestamp,
    /// Of an end: the backend of its run is lost for good, so that nobody waits for a run there that does not answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Of a release: what failed is tried once more within its round, instead of in the next one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rescue: bool,
}

impl RequestCommand {
    /// Without any of the choices that some wishes have.
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
    /// A clean stop; it goes on when its turn comes again.
    Stop,
    /// The end of it, because nobody wants it any more: what is unfinished of its outputs is taken back.
    Abort,
    /// The end of it, because it cannot succeed or a new version takes its place: its outputs stay as they are.
    Fail,
    /// Out of `held`: after failures what is done is credited and the next round follows; otherwise it goes on where it was.
    Release,
    /// Its run is to end, and what follows is for a person to say.
    Remove,
}

/// The workflow of a request, as the requests API has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestProcess {
    pub uuid: String,
    pub request_name: String,
    /// Counted from 0; a round is planned once and has one run plus those that go on with it.
    pub round: u32,
    /// Generated events start here in the next round: past all that were ever planned.
    pub next_first_event: u64,
    pub next_first_lumi: u32,
    /// Number of the first block of the next round.
    pub next_block: u32,
    /// There is input that the rounds planned so far leave to later ones.
    #[serde(default)]
    pub more_input: bool,
    /// So many files had people excluded when the present round was planned.
    #[serde(default)]
    pub excluded: u64,
    /// Rounds whose outcome is credited: all before this one.
    #[serde(default)]
    pub settled: u32,
    /// What they left of the input.
    #[serde(default)]
    pub files: RequestFileCounts,
    /// What the present round is of the whole.
    #[serde(default)]
    pub extent: RoundExtent,
    /// Events that are registered in the first output dataset; what generation is measured by (DESIGN 6.5).
    #[serde(default)]
    pub events_produced: u64,
    /// Those of them that this round made.
    #[serde(default)]
    pub events_of_round: u64,
    /// Rounds just before it that were completed and made none.
    #[serde(default)]
    pub empty_rounds: u32,
    pub category_throttles: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_metrics: Option<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// How much of a request a round is, as it was when the round was planned: events where they are generated, else input
/// files. All 0: the round is all that there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundExtent {
    /// Done by the rounds before it.
    pub before: u64,
    /// Planned in it.
    pub planned: u64,
    /// Left to later ones.
    pub later: u64,
}

impl RoundExtent {
    /// The share of the whole request that is done when this share of the round is.
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
    /// The run that this one goes on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Why there is this run.
    pub cause: RequestRunCause,
    /// How many runs of this round, with this one, go on after failures by themselves.
    pub rescues: u32,
    /// Since then nothing new of it is to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Timestamp>,
    /// Since then its backend does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<Timestamp>,
    /// The priority that its jobs have; `None`: not known.
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
    /// Work units that are completed, those of the runs before it in this round included.
    pub units_completed: u32,
    pub units_failed: u32,
    /// How far the news of its work units have been read.
    pub units_read: i64,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

/// Where a run executes, and what it is called there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "backend", rename_all = "snake_case")]
pub enum BackendRunRef {
    /// `None` until it is handed over.
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
    /// As it is called in commands and answers.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Engine { .. } => "engine",
            Self::Htcondor { .. } => "htcondor",
        }
    }

    /// The same place, for a run that goes on with one there.
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
    /// Counted from 0 within the process and dataset.
    pub index: u32,
    pub dataset: String,
    pub first_unit: u32,
    pub last_unit: u32,
    /// Work units whose files are registered and protected.
    pub units_completed: u32,
    /// So many will be: all of its work units, or those that were completed when its round was settled.
    pub units_expected: u32,
    /// What the catalog calls it, once it is open there.
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

/// Something to be done in the catalog about outputs (DESIGN 6.6). Each may be done twice without harm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputStep {
    pub block: String,
    /// `None`: about the block as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<u32>,
    pub kind: OutputStepKind,
    pub state: OutputStepState,
    /// Attempts that failed since the last success.
    pub attempts: u32,
    /// Not before then.
    pub due_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The id of the rule, the name of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What it is about: the files of the unit and the site they are at.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

/// In the order in which they are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStepKind {
    /// The block is opened in the catalog.
    Open,
    /// The files of a unit are registered in it.
    Register,
    /// They are protected where they are.
    Protect,
    /// The block is closed.
    Close,
    /// It is to go to tape.
    Archive,
    /// Undoing: rules are removed, files made invalid.
    Invalidate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStepState {
    Pending,
    Done,
    /// Given up after too long; a person has to look.
    Failed,
    /// No longer wanted: its block is being taken back.
    Dropped,
}

impl OutputStepState {
    /// It stands in the way of what comes after it.
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

/// A line of the audit trail of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusTransition {
    /// Counted from 1 within the request.
    pub n: u32,
    /// `None`: it came to be.
    pub from: Option<RequestStatus>,
    pub to: RequestStatus,
    pub at: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Something that a person should know. Kept until it was told, so that a crash loses none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewAlert {
    /// One word, stable: for programs.
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
    /// When it was handed to whoever tells people.
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
    /// Where files are kept: a path of LFNs begins here.
    #[serde(default)]
    pub storage_path: Option<String>,
    pub updated_at: Timestamp,
}

/// That a site is to get no work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewBan {
    pub site: String,
    /// Of this request; `None`: of any.
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
    /// When people were told that it is over.
    #[serde(default)]
    pub expiry_told_at: Option<Timestamp>,
}
