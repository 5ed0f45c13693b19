//! Workers as stored in the database: processes that claim jobs, on this machine or elsewhere.

use super::SortBy;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_types::{Bytes, Capacity, RunId, Timestamp, WorkerId, WorkflowId};

/// The type of a worker, which decides how its end is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerKind {
    /// A child of the scheduler of a local run: pid and token tell whether it is dead.
    #[default]
    Local,
    /// Has a lease and is dead when it expires without contact.
    Remote,
    /// A runner of Torc; a client reports its end.
    Torc,
    /// Represents all clients that claim jobs of a workflow without naming a compute node.
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

/// The record of a worker process, from which a later process can ensure that the worker and its jobs are dead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewWorker {
    pub kind: WorkerKind,
    /// `None`: works for every workflow that its user may run.
    pub workflow: Option<WorkflowId>,
    /// Run of that workflow at the start of the worker.
    pub run: Option<RunId>,
    pub user: String,
    /// Software version, for display.
    pub version: String,
    pub labels: Vec<String>,
    /// Its site; `None`: no site, so that it gets no jobs with sites.
    #[serde(default)]
    pub site: Option<String>,
    pub host: String,
    pub boot_id: String,
    pub pid: u32,
    /// Start time of the pid in clock ticks since boot, to detect a reused pid.
    pub pid_start_ticks: u64,
    /// Set in the environment of every process that it starts (`WINDLASS_WORKER=…`).
    pub token: String,
    /// Hash of its secret.
    pub secret_hash: Option<String>,
    /// The file where it records the processes that it starts.
    pub ledger_path: String,
    pub capacity: Capacity,
    /// The scheduled compute node that started it.
    pub allocation: Option<i64>,
    /// Columns of a compute node in the contract that Windlass does not use.
    pub extra: Option<Value>,
}

/// A local worker without user and resources; a default for struct updates.
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

/// Changes of a worker; `None` leaves a field as it is.
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
    /// `Some(None)`: it is active again.
    #[serde(
        default,
        deserialize_with = "super::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub ended_at: Option<Option<Timestamp>>,
}

/// Selects workers. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerFilter {
    pub ids: Vec<WorkerId>,
    /// Workers of this workflow.
    pub workflow: Option<WorkflowId>,
    /// With a workflow: also workers without one.
    pub also_shared: bool,
    pub kinds: Vec<WorkerKind>,
    pub host: Option<String>,
    /// Workers that this user registered.
    #[serde(default)]
    pub user: Option<String>,
    pub is_active: Option<bool>,
    pub allocation: Option<i64>,
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// A quarantined node: it fails jobs that other nodes do not, or was quarantined by a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeQuarantineRow {
    pub host: String,
    /// The user whose workers on it get no jobs; `None`: all users.
    #[serde(default)]
    pub user: Option<String>,
    pub since: Timestamp,
    /// Then a probe job is tried.
    pub until: Timestamp,
    pub set_by: String,
    pub reason: String,
    /// The counts behind it; `None`: set by a user.
    pub evidence: Option<Value>,
}
