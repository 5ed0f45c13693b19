//! What a worker elsewhere and the server say to each other, beyond what every worker and engine say ([`crate::worker_messages`]).
//!
//! One call does it all: an [`Exchange`] carries what happened and brings what to do. It waits at the server until there
//! is something to do or `wait` is over. A newer exchange of the same worker ends the wait of the older one at once, so
//! that a report never waits behind a wait.
//!
//! Exchanges are numbered. A worker that got no answer repeats the same one; the server then does nothing twice and
//! answers what it answered before. A worker holds a *lease* from the moment it **sent** an exchange that was answered;
//! the server counts from the moment it **received** it. So the worker always gives up first.

use crate::settings::ExecutionConfig;
use crate::slurm::SlurmJobNode;
use crate::worker_messages::{Assignment, AttemptKey, AttemptReport, StopReason};
use crate::{Attempt, Capacity, RunId, Timestamp, WorkerId, WorkflowId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A worker introduces itself, or comes back after the server was restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRegistration {
    pub host: String,
    pub boot_id: String,
    pub pid: u32,
    pub pid_start_ticks: u64,
    pub capacity: Capacity,
    /// Of the software, for people.
    #[serde(default)]
    pub version: String,
    /// It takes jobs with labels only if it has all of them, and jobs without labels only if it has none.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Where it is: it takes jobs that name sites only if this is one of them.
    #[serde(default = "local_site")]
    pub site: String,
    /// It works for this workflow only; `None`: for all that its user may run.
    #[serde(default)]
    pub workflow: Option<WorkflowId>,
    /// Whose jobs it takes.
    #[serde(default, skip_serializing_if = "AcceptedJobOwners::is_own")]
    pub jobs_of: AcceptedJobOwners,
    /// It was here before: who it was, and all that it still holds. What it no longer holds and has not reported was
    /// never started.
    #[serde(default)]
    pub before: Option<WorkerReconnect>,
    /// Where an allocation started it: the scheduled compute node it belongs to.
    #[serde(default)]
    pub allocation: Option<i64>,
    /// Where in Slurm that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmJobNode>,
}

/// Whose jobs a worker takes. They run with its Unix account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptedJobOwners {
    /// Of the user that introduced it.
    #[default]
    Own,
    /// Also of these.
    Users(Vec<String>),
    /// Of all users. It takes an operator.
    All,
}

impl AcceptedJobOwners {
    /// As people say it: no user, some, or `all`.
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

    /// Whether others than its own user are among them, and this is one.
    pub fn includes(&self, user: &str) -> bool {
        match self {
            Self::Own => false,
            Self::Users(users) => users.iter().any(|one| one == user),
            Self::All => true,
        }
    }
}

/// Of workers that know of no sites.
fn local_site() -> String {
    crate::LOCAL_SITE.to_owned()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReconnect {
    pub worker: WorkerId,
    pub secret: String,
    pub held: Vec<AttemptKey>,
    /// Executions of actions that are under way there, or whose end it has not reported.
    #[serde(default)]
    pub actions: Vec<(i64, Attempt)>,
}

/// The answer to an introduction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationReply {
    pub worker: WorkerId,
    /// Every exchange quotes it: nobody else can speak for this worker.
    pub secret: String,
    pub lease: Duration,
    /// Attempts that it thought were its own and are not any more: stop them, report nothing.
    pub lost: Vec<AttemptKey>,
    /// The same for executions of actions.
    #[serde(default)]
    pub lost_actions: Vec<(i64, Attempt)>,
}

/// Worker to server: what happened, and whether there is room for more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerExchange {
    pub worker: WorkerId,
    pub secret: String,
    /// From 1, one more with each; the same again when the answer did not come.
    pub number: u64,
    #[serde(default)]
    pub reports: Vec<AttemptReport>,
    #[serde(default)]
    pub actions: Vec<ActionReport>,
    /// How long the server may wait before it answers that there is nothing.
    pub wait: Duration,
    /// Nothing that asks for more time than this is to be assigned.
    #[serde(default)]
    pub time_left: Option<Duration>,
    /// It wants nothing more: it leaves when what it has is done.
    #[serde(default)]
    pub draining: bool,
    /// Last words: it holds nothing and is gone after this.
    #[serde(default)]
    pub leaving: bool,
}

impl WorkerExchange {
    /// No more reports than this in one; what is left goes with the next.
    pub const MAX_REPORTS: usize = 1000;
}

/// Server to worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExchangeReply {
    /// Of the exchange that is answered.
    pub number: u64,
    /// Workflows that are over: what the worker knows of them it may forget. Comes before `workflows`, which speaks of one
    /// anew should there be more of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<WorkflowId>,
    /// Workflows that this worker has not heard of, before the first job of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workflows: Vec<WorkflowSetup>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<Assignment>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionCommand>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<StopCommand>,
    /// Reports that came too late, and changed nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<StaleReport>,
    /// Take nothing more, finish what runs, and leave.
    #[serde(default)]
    pub drain: bool,
    /// The workflow that it works for is over, or the server wants it gone.
    #[serde(default)]
    pub dismissed: bool,
    /// Its allocation ends after this time, which is news: somebody has changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in: Option<Duration>,
}

/// A report that does not fit how things stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleReport {
    pub key: AttemptKey,
    /// How things stand, for people: "workflow 3 is over".
    pub found: String,
}

/// Where the jobs of a workflow run and what they have in common, as a worker has to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowSetup {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub name: String,
    pub submission_dir: String,
    pub output_dir: String,
    #[serde(default)]
    pub resource_monitor: Option<crate::settings::ResourceMonitor>,
    /// How its jobs are to be executed, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Box<ExecutionConfig>>,
}

/// Ends all that a worker holds of a workflow, or single attempts of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCommand {
    pub workflow: WorkflowId,
    /// Empty: all of them.
    #[serde(default)]
    pub attempts: Vec<AttemptKey>,
    pub why: StopReason,
    pub grace: Duration,
}

/// A workflow action that a worker is to carry out: commands, one after the other, in the output directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCommand {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub action: i64,
    /// Of this execution of it, from 1: a retry is a new one.
    pub attempt: Attempt,
    /// What set it off, for people and logs: `on_jobs_complete` …
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
    /// 0, or that of the first command that failed; the ones behind it were not run.
    pub return_code: i32,
    /// Which command failed and how, in words.
    pub message: Option<String>,
}
