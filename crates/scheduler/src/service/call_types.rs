//! The requests and replies of the service, in addition to the worker messages
//! (`windlass_types::worker_protocol`).

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass_core::classify::FailureClassifier;
use windlass_types::worker_bounds::{FieldOutOfBounds, check_time_limit};
use windlass_types::worker_messages::{AttemptKey, AttemptUsage};
use windlass_types::{
    AllocationId, Attempt, Capacity, JobId, JobStatus, RunId, StatusCounts, Timestamp, WorkerId, WorkflowId,
};

use super::WorkflowPredicate;
use super::clock::SchedulerClock;
use crate::worker_host::WorkerHost;

/// Called exactly once, on the thread of the service: must only pass the reply on.
pub type CallReply<T> = Box<dyn FnOnce(Result<T, CallError>) + Send>;

/// Why the service rejected a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    NotFound(String),
    /// The state does not permit it.
    #[error("{detail}")]
    Conflict { code: &'static str, detail: String },
    /// It is invalid in any state.
    #[error("{detail}")]
    Invalid { code: &'static str, detail: String },
    /// Can be repeated unchanged.
    #[error("{detail}")]
    Unavailable { detail: String, retry_after: Duration },
    #[error("{0}")]
    Internal(String),
}

/// Ensures that workers of earlier `windlass run` on this machine are dead with all they started.
pub type EarlierWorkerHost = Arc<Mutex<dyn WorkerHost + Send>>;

/// Called after every commit, on the thread of the service: must only pass the notification on.
pub type OnCommit = Arc<dyn Fn() + Send + Sync>;

/// Called with a workflow after a commit in which its run began or ended, an action became due, one of its
/// units changed, or an attempt in a unit failed; on the thread of the service: must only pass the notification
/// on.
pub type OnWorkflowChange = Arc<dyn Fn(WorkflowId) + Send + Sync>;

/// A worker in an allocation without contact, and the attempts that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachableAllocationWorker {
    pub worker: WorkerId,
    pub allocation: AllocationId,
    pub held_attempts: Vec<AttemptKey>,
}

pub type OnUnreachableAllocationWorker = Arc<dyn Fn(UnreachableAllocationWorker) + Send + Sync>;

/// Whether this is certainly still the only server of its database.
pub type IsLeadershipCertain = Arc<dyn Fn() -> bool + Send + Sync>;

/// The caller of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerCaller {
    /// May act only for the workers that this user registered.
    User(Arc<str>),
    /// May act for all workers.
    Operator,
}

impl WorkerCaller {
    pub(super) fn may_call_for(&self, user: &str) -> bool {
        match self {
            Self::User(name) => **name == *user,
            Self::Operator => true,
        }
    }
}

/// The user who registers a worker, and whose jobs it may therefore get.
#[derive(Clone)]
pub struct WorkerOwner {
    pub user: Arc<str>,
    /// It may get the jobs of all users, as operators may.
    pub sees_all: bool,
    /// Called for each workflow, and again when the permission may have changed.
    pub may_work_for: WorkflowPredicate,
}

impl fmt::Debug for WorkerOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerOwner")
            .field("user", &self.user)
            .field("sees_all", &self.sees_all)
            .finish_non_exhaustive()
    }
}

/// The options of the service.
#[derive(Clone)]
pub struct SchedulerOptions {
    /// How long a worker without contact is considered alive.
    pub lease: Duration,
    /// The grace period of jobs between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The address of the server, for the environment of actions.
    pub api_url: Option<String>,
    /// Used at the start for local workers that did not sign off. Without it they keep their jobs until they are
    /// retired.
    pub earlier_workers: Option<EarlierWorkerHost>,
    pub on_commit: Option<OnCommit>,
    pub on_change: Option<OnWorkflowChange>,
    /// Called with silent workers that may have left jobs running in Slurm. The callee reports when none are
    /// left ([`super::SchedulerHandle::notify_worker_fenced`]); only then, or after a timeout, the jobs are
    /// reassigned. Without it there is no waiting.
    pub on_silent_worker: Option<OnUnreachableAllocationWorker>,
    /// Checked before replies to workers: while another server may have taken over, no lease is renewed.
    /// Without it there is no other server.
    pub is_leadership_certain: Option<IsLeadershipCertain>,
    /// How long an earlier server may have renewed leases after this one has taken over.
    pub leadership_overlap: Duration,
    /// Failures of any user's workers on a host count against all workers there. Otherwise only against those
    /// of the same user, because the client that registers a worker states its host.
    pub shares_node_blame: bool,
    /// The rules that classify failures; `None`: only the built-in rules.
    pub classifier: Option<Arc<FailureClassifier>>,
    pub clock: SchedulerClock,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_mins(1),
            grace: Duration::from_secs(10),
            api_url: None,
            earlier_workers: None,
            on_commit: None,
            on_change: None,
            on_silent_worker: None,
            is_leadership_certain: None,
            leadership_overlap: Duration::ZERO,
            shares_node_blame: false,
            classifier: None,
            clock: SchedulerClock::default(),
        }
    }
}

impl std::fmt::Debug for SchedulerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SchedulerOptions").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// The condition for exclusive work on a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusiveRequirement {
    /// No job of it is held.
    NoHeldJobs,
    /// No condition: the work does not affect held jobs.
    NoneRequired,
}

/// Which jobs to reset. None of them is, if one awaits a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobsToReset {
    All,
    /// Unsuccessful jobs: failed, canceled, terminated, pending_failed.
    Failed,
    Jobs(Vec<JobId>),
}

/// A claim by a client that is not a remote worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimRequest {
    pub limit: usize,
    pub labels: Vec<String>,
    /// The resources that jobs have to fit; `None`: the oldest jobs of the highest priority, regardless of
    /// size.
    pub node: Option<NodeCapacityOffer>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeCapacityOffer {
    /// The free resources.
    pub capacity: Capacity,
    pub time_left: Option<Duration>,
    /// Jobs that name another scheduler are skipped…
    pub scheduler: Option<i64>,
    /// … even if there are no others.
    pub strict: bool,
}

impl ClaimRequest {
    pub(super) fn check_bounds(&self) -> Result<(), FieldOutOfBounds> {
        let Some(node) = &self.node else { return Ok(()) };
        node.capacity.check(&"node")?;
        node.time_left.map_or(Ok(()), |left| check_time_limit(&"time_limit", left))
    }
}

/// The end of a job, stated by a client that is not a remote worker.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCompletion {
    pub job: JobId,
    pub run: RunId,
    /// `None`: the current attempt.
    pub attempt: Option<Attempt>,
    /// Completed, failed, canceled, terminated or pending_failed.
    pub status: JobStatus,
    pub return_code: i32,
    pub exec_time: Duration,
    pub completion_time: Timestamp,
    pub usage: AttemptUsage,
    pub node: Option<WorkerId>,
}

/// The state of a workflow in memory, without a scan of its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkflowSnapshot {
    /// The requirements of jobs that can be claimed.
    pub ready_jobs: Vec<ReadyJobGroup>,
    /// The total wall time of all attempts, in all runs.
    pub wall_time: Duration,
}

/// A number of claimable jobs with the same requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyJobGroup {
    pub jobs: u64,
    pub runtime: Option<Duration>,
    pub labels: Vec<String>,
}

/// For monitoring: cheap to read at any time, and not a consistent snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerMetrics {
    /// Workers with a lease.
    pub workers: u64,
    /// Workflows in memory.
    pub workflows: u64,
    /// Jobs that can be claimed.
    pub ready_jobs: u64,
    /// Jobs that are held.
    pub held_jobs: u64,
    /// Exchanges that wait for work.
    pub waiting_exchanges: u64,
    /// Transactions since the start, and those that failed because the disk was full or the database
    /// unreachable.
    pub commits: u64,
    pub refused_commits: u64,
    /// Jobs assigned since the start, and attempts ended since then, by status.
    pub assigned_jobs: u64,
    pub ended_attempts: StatusCounts,
    /// Attempts lost with their workers, stale reports, workers considered lost.
    pub orphaned_attempts: u64,
    pub stale_reports: u64,
    pub lost_workers: u64,
    /// The time of the last round of the main loop: microseconds since 1970.
    pub last_loop_at: i64,
    /// Since when the store has been busy without completing a write, in microseconds since 1970; 0: it has
    /// nothing to write.
    pub writing_since: i64,
}
