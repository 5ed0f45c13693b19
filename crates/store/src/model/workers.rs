//! Workers as the books know them: processes that claim jobs, here or elsewhere.

use super::SortBy;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_types::{Bytes, Capacity, RunId, Timestamp, WorkerId, WorkflowId};

/// Who a worker is to us, and so what is known of its death.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerKind {
    /// A child of the process that decides: pid and token say whether it is dead.
    #[default]
    Local,
    /// It has a lease: it is dead when it was not heard of for longer.
    Remote,
    /// A runner of Torc: somebody says when it is gone.
    Torc,
    /// Stands for all clients that claim jobs of a workflow without saying who they are.
    Claims,
}

impl WorkerKind {
    pub const ALL: [Self; 4] = [Self::Local, Self::Remote, Self::Torc, Self::Claims];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Torc => "torc",
            Self::Claims => "claims",
        }
    }
}

/// A worker process as it is remembered, so that a later process can make sure that it and its jobs are dead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewWorker {
    pub kind: WorkerKind,
    /// `None`: works for whatever its user may run.
    pub workflow: Option<WorkflowId>,
    /// Of that workflow, when it began.
    pub run: Option<RunId>,
    pub user: String,
    /// Of its software, for people.
    pub version: String,
    pub labels: Vec<String>,
    /// Where it is; `None`: at no site, so that it gets nothing that has to do with sites.
    #[serde(default)]
    pub site: Option<String>,
    pub host: String,
    pub boot_id: String,
    pub pid: u32,
    /// Start time of that pid in clock ticks since boot, so that a reused pid is not taken for it.
    pub pid_start_ticks: u64,
    /// Stands in the environment of every process it starts (`WINDLASS_WORKER=…`).
    pub token: String,
    /// Of what it has to quote.
    pub secret_hash: Option<String>,
    /// Where it notes what it starts.
    pub ledger_path: String,
    pub capacity: Capacity,
    /// The scheduled compute node that started it.
    pub allocation: Option<i64>,
    /// What the contract knows of a compute node and nothing here holds.
    pub extra: Option<Value>,
}

/// A local worker of nobody that can do nothing, for filling in what does not matter.
impl Default for NewWorker {
    fn default() -> Self {
        Self {
            kind: WorkerKind::Local,
            workflow: None,
            run: None,
            user: String::new(),
            version: String::new(),
            labels: Vec::new(),
            site: None,
            host: String::new(),
            boot_id: String::new(),
            pid: 0,
            pid_start_ticks: 0,
            token: String::new(),
            secret_hash: None,
            ledger_path: String::new(),
            capacity: Capacity { cpus: 0, memory: Bytes(0), gpus: 0, nodes: 1, max_jobs: None },
            allocation: None,
            extra: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    pub id: WorkerId,
    #[serde(flatten)]
    pub worker: NewWorker,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub is_draining: bool,
}

impl WorkerRow {
    pub const fn is_active(&self) -> bool {
        self.ended_at.is_none()
    }
}

/// What to change about a worker; `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerUpdate {
    pub host: Option<String>,
    pub boot_id: Option<String>,
    pub pid: Option<u32>,
    pub pid_start_ticks: Option<u64>,
    pub version: Option<String>,
    pub labels: Option<Vec<String>>,
    #[serde(default)]
    pub site: Option<String>,
    pub capacity: Option<Capacity>,
    pub secret_hash: Option<String>,
    pub allocation: Option<i64>,
    pub extra: Option<Value>,
    pub is_draining: Option<bool>,
    pub started_at: Option<Timestamp>,
    /// `Some(None)`: it is there again.
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Option<Timestamp>>,
}

/// Which workers to list. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerFilter {
    pub ids: Vec<WorkerId>,
    /// Those that belong to it.
    pub workflow: Option<WorkflowId>,
    /// With a workflow: also those that belong to none.
    pub also_shared: bool,
    pub kinds: Vec<WorkerKind>,
    pub host: Option<String>,
    pub is_active: Option<bool>,
    pub allocation: Option<i64>,
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// A node that fails jobs which others do not, or of which somebody says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeQuarantineRow {
    pub host: String,
    /// Whose workers get no jobs there; `None`: everyone's.
    #[serde(default)]
    pub user: Option<String>,
    pub since: Timestamp,
    /// Then it is tried with one job.
    pub until: Timestamp,
    pub set_by: String,
    pub reason: String,
    /// What was counted; `None`: somebody set it aside by hand.
    pub evidence: Option<Value>,
}
