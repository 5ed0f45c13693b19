//! Messages between a remote worker and the server, in addition to those between any worker and engine
//! ([`crate::worker_messages`]).
//!
//! There is one call: a [`WorkerExchange`] carries reports and returns assignments and commands. The server holds
//! it until there is something to do or `wait` has passed. A newer exchange of the same worker ends the wait of
//! the older one at once, so that reports are never delayed by a long poll.
//!
//! Exchanges are numbered. A worker that got no reply repeats the same one; the server then applies nothing
//! twice and returns the same reply. A worker holds a *lease* from the moment it **sent** an exchange that was
//! answered; the server counts from the moment it **received** it. So the lease always expires on the worker
//! first.

use crate::settings::ExecutionConfig;
use crate::slurm::SlurmJobNode;
use crate::worker_messages::{Assignment, AttemptKey, AttemptReport, StopReason};
use crate::{Attempt, Capacity, RunId, Timestamp, WorkerId, WorkflowId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The registration of a worker, new or reconnecting after a restart of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRegistration {
    pub host: String,
    pub boot_id: String,
    pub pid: u32,
    pub pid_start_ticks: u64,
    pub capacity: Capacity,
    /// Software version, for display.
    #[serde(default)]
    pub version: String,
    /// It takes jobs with labels only if it has all of them, and jobs without labels only if it has none.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Its site: it takes jobs that name sites only if this is one of them.
    #[serde(default = "local_site")]
    pub site: String,
    /// Takes jobs of this workflow only; `None`: of every workflow that its user may run.
    #[serde(default)]
    pub workflow: Option<WorkflowId>,
    /// The users whose jobs it takes.
    #[serde(default, skip_serializing_if = "AcceptedJobOwners::is_own")]
    pub jobs_of: AcceptedJobOwners,
    /// For a reconnecting worker: its former session and everything it still holds. Attempts that it neither
    /// holds nor has reported were never started.
    #[serde(default)]
    pub before: Option<WorkerReconnect>,
    /// The scheduled compute node of the allocation that started it.
    #[serde(default)]
    pub allocation: Option<i64>,
    /// Its position in Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmJobNode>,
}

/// The users whose jobs a worker takes. They run with the worker's Unix account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptedJobOwners {
    /// The user who registered it.
    #[default]
    Own,
    /// These users too.
    Users(Vec<String>),
    /// All users. Requires the role of an operator.
    All,
}

impl AcceptedJobOwners {
    /// Formats the value for people: no user, a list, or `all`.
    pub fn from_users(users: &[String]) -> Self {
        match users {
            [] => Self::Own,
            users if users.iter().any(|user| user == "all") => Self::All,
            users => Self::Users(users.to_vec()),
        }
    }

    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }

    /// Whether jobs of this user are taken besides those of the worker's own user.
    pub fn includes(&self, user: &str) -> bool {
        match self {
            Self::Own => false,
            Self::Users(users) => users.iter().any(|one| one == user),
            Self::All => true,
        }
    }
}

/// For workers without knowledge of sites.
fn local_site() -> String {
    crate::LOCAL_SITE.to_owned()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReconnect {
    pub worker: WorkerId,
    pub secret: String,
    pub held: Vec<AttemptKey>,
    /// Executions of actions that run there or whose end it has not reported.
    #[serde(default)]
    pub actions: Vec<(i64, Attempt)>,
}

/// The reply to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationReply {
    pub worker: WorkerId,
    /// Repeated in every exchange; authenticates the worker session.
    pub secret: String,
    pub lease: Duration,
    /// Attempts that no longer belong to the worker: it stops them and reports nothing.
    pub lost: Vec<AttemptKey>,
    /// The same for executions of actions.
    #[serde(default)]
    pub lost_actions: Vec<(i64, Attempt)>,
}

/// From worker to server: reports, and the free capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerExchange {
    pub worker: WorkerId,
    pub secret: String,
    /// Counts from 1; repeated with the same number if there was no reply.
    pub number: u64,
    #[serde(default)]
    pub reports: Vec<AttemptReport>,
    #[serde(default)]
    pub actions: Vec<ActionReport>,
    /// Maximum time that the server may hold the exchange before an empty reply.
    pub wait: Duration,
    /// Remaining time: jobs with a longer runtime must not be assigned.
    #[serde(default)]
    pub time_left: Option<Duration>,
    /// Drains: it takes no new jobs and exits when its jobs have ended.
    #[serde(default)]
    pub draining: bool,
    /// Final exchange: it holds nothing and exits afterwards.
    #[serde(default)]
    pub leaving: bool,
}

impl WorkerExchange {
    /// Maximum number of reports in one exchange; the rest is sent in the next.
    pub const MAX_REPORTS: usize = 1000;
}

/// From server to worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExchangeReply {
    /// Number of the exchange that is answered.
    pub number: u64,
    /// Workflows that have ended: the worker may drop their settings. Applied before `workflows`, which may
    /// contain the same workflow again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<WorkflowId>,
    /// Workflows that are new to this worker; sent before the first job of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workflows: Vec<WorkflowSetup>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<Assignment>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionCommand>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<StopCommand>,
    /// Reports that came too late and were ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<StaleReport>,
    /// Drain: take no new jobs, finish running ones, and exit.
    #[serde(default)]
    pub drain: bool,
    /// The workflow of this worker has ended, or the server no longer needs the worker.
    #[serde(default)]
    pub dismissed: bool,
    /// New end time of its allocation, if it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in: Option<Duration>,
}

/// A report that does not match the current state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleReport {
    pub key: AttemptKey,
    /// The current state, for people: "workflow 3 has ended".
    pub found: String,
}

/// The parts of a workflow that a worker needs: where its jobs run and what they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowSetup {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub name: String,
    pub submission_dir: String,
    pub output_dir: String,
    #[serde(default)]
    pub resource_monitor: Option<crate::settings::ResourceMonitor>,
    /// Execution settings, if the workflow has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Box<ExecutionConfig>>,
}

/// Ends all attempts of a workflow on a worker, or single ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCommand {
    pub workflow: WorkflowId,
    /// Empty: all.
    #[serde(default)]
    pub attempts: Vec<AttemptKey>,
    pub why: StopReason,
    pub grace: Duration,
}

/// A workflow action that a worker executes: commands, one after the other, in the output directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCommand {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub action: i64,
    /// Number of this execution, from 1; a retry is a new execution.
    pub attempt: Attempt,
    /// The trigger, for display and logs: `on_jobs_complete` …
    pub trigger: String,
    pub commands: Vec<String>,
    pub env: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionReport {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub action: i64,
    pub attempt: Attempt,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    /// 0, or the exit code of the first failed command; later commands were not run.
    pub return_code: i32,
    /// Which command failed and how, as text.
    pub message: Option<String>,
}
