//! What is said to the service and what it answers, beyond the messages of workers (`windlass_types::fleet`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::classify::FailureClassifier;
use windlass_store::model::NewWorker;
use windlass_types::worker_bounds::{FieldOutOfBounds, check_time_limit};
use windlass_types::worker_messages::{AttemptKey, AttemptUsage};
use windlass_types::{
    AllocationId, Attempt, Capacity, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId,
};

use super::WorkflowPredicate;
use super::clock::SchedulerClock;

/// Called exactly once, on the thread of the service: hand the news on, do no work.
pub type CallReply<T> = Box<dyn FnOnce(Result<T, CallError>) + Send>;

/// Why the service did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    NotFound(String),
    /// It does not fit how things stand.
    #[error("{detail}")]
    Conflict { code: &'static str, detail: String },
    /// It makes no sense whatever the state.
    #[error("{detail}")]
    Invalid { code: &'static str, detail: String },
    /// Worth asking again, unchanged.
    #[error("{detail}")]
    Unavailable { detail: String, retry_after: Duration },
    #[error("{0}")]
    Internal(String),
}

/// Makes sure that a worker of an earlier `windlass run` on this machine is dead with all it started; `false`: it is not
/// certain.
pub type EnsureWorkerDead = Arc<dyn Fn(&NewWorker) -> bool + Send + Sync>;

/// Told after everything that went to disk, on the thread of the service: hand the news on, do no work.
pub type OnCommit = Arc<dyn Fn() + Send + Sync>;

/// Told of a workflow when its run has begun or is over, an action is due, one of its units stands otherwise than before, or
/// an attempt in a unit has failed, once that is on disk; on the thread of the service: hand the news on, do no work.
pub type OnWorkflowChange = Arc<dyn Fn(WorkflowId) + Send + Sync>;

/// A worker in an allocation that is not heard of any more, and what it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentWorker {
    pub worker: WorkerId,
    pub allocation: AllocationId,
    pub held_attempts: Vec<AttemptKey>,
}

pub type OnSilentWorker = Arc<dyn Fn(SilentWorker) + Send + Sync>;

/// Whether this is certainly still the one server of its books.
pub type IsLeadershipCertain = Arc<dyn Fn() -> bool + Send + Sync>;

/// Who speaks for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerCaller {
    /// For the workers that he introduced, and for no others.
    User(Arc<str>),
    /// For all of them.
    Operator,
}

impl WorkerCaller {
    pub(super) fn may_speak_for(&self, user: &str) -> bool {
        match self {
            Self::User(name) => **name == *user,
            Self::Operator => true,
        }
    }
}

/// Who introduces a worker, and whose jobs it may therefore be given.
#[derive(Clone)]
pub struct WorkerOwner {
    pub user: Arc<str>,
    /// Everybody's jobs, as operators do.
    pub sees_all: bool,
    /// Asked about each workflow that there is, and again when it may have changed.
    pub may_work_for: WorkflowPredicate,
}

impl fmt::Debug for WorkerOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sponsor")
            .field("user", &self.user)
            .field("sees_all", &self.sees_all)
            .finish_non_exhaustive()
    }
}

/// How the service is to behave.
#[derive(Clone)]
pub struct SchedulerOptions {
    /// How long a worker that is not heard of is thought to be alive.
    pub lease: Duration,
    /// How long a job may take to stop after it was asked to.
    pub grace: Duration,
    /// Where the server is reached, for the environment of actions.
    pub api_url: Option<String>,
    /// Called at the start for local workers that never said goodbye. Without it their jobs stay theirs until somebody
    /// retires them.
    pub ensure_dead: Option<EnsureWorkerDead>,
    pub on_commit: Option<OnCommit>,
    pub on_change: Option<OnWorkflowChange>,
    /// Told of workers that are not heard of and may have left jobs running in Slurm. Whoever is told says when nothing of
    /// them is left ([`super::Service::tell_fenced`]); only then, or after a while, others get the jobs. Without it nobody is
    /// waited for.
    pub on_silent_worker: Option<OnSilentWorker>,
    /// Asked before workers are answered: while another server may have taken over, nobody's lease is renewed. Without it
    /// there is no other.
    pub is_leadership_certain: Option<IsLeadershipCertain>,
    /// For how long a server before this one may have gone on to renew leases after this one has taken over.
    pub leadership_overlap: Duration,
    /// Failures of any user's workers on a host are held against all workers there. Otherwise only against those of the same
    /// user: whoever introduces a worker says on which host it is.
    pub shares_node_blame: bool,
    /// Says of what class failures are; `None`: the rules that are built in, and no others.
    pub classifier: Option<Arc<FailureClassifier>>,
    pub clock: SchedulerClock,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_mins(1),
            grace: Duration::from_secs(10),
            api_url: None,
            ensure_dead: None,
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
        f.debug_struct("ServiceOptions").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// What must hold before something is done to a workflow behind the back of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusiveRequirement {
    /// Nobody holds a job of it.
    NoHeldJobs,
    /// Nothing: it touches no job that may be held.
    NoneRequired,
}

/// Which jobs go back to the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobsToReset {
    All,
    /// What did not end well: failed, canceled, terminated, pending_failed.
    Failed,
    Jobs(Vec<JobId>),
}

/// A claim by somebody who is no worker of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimRequest {
    pub limit: usize,
    pub labels: Vec<String>,
    /// What the jobs have to fit into; `None`: the oldest of the highest priority, whatever they ask for.
    pub node: Option<NodeCapacityOffer>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeCapacityOffer {
    /// What is free now.
    pub capacity: Capacity,
    pub time_left: Option<Duration>,
    /// Jobs that name another scheduler are not for it…
    pub scheduler: Option<i64>,
    /// … not even when nothing else is left.
    pub strict: bool,
}

impl ClaimRequest {
    pub(super) fn check_bounds(&self) -> Result<(), FieldOutOfBounds> {
        let Some(node) = &self.node else { return Ok(()) };
        node.capacity.check(&"node")?;
        node.time_left.map_or(Ok(()), |left| check_time_limit(&"time_limit", left))
    }
}

/// Somebody who is no worker of ours states how a job ended.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCompletion {
    pub job: JobId,
    pub run: RunId,
    /// `None`: the one that is under way.
    pub attempt: Option<Attempt>,
    /// Completed, failed, canceled, terminated or pending_failed.
    pub status: JobStatus,
    pub return_code: i32,
    pub exec_time: Duration,
    pub completion_time: Timestamp,
    pub usage: AttemptUsage,
    pub node: Option<WorkerId>,
}

/// How a workflow stands that the service has in memory, without a look at its jobs one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkflowSnapshot {
    /// What jobs that may be claimed ask for.
    pub ready_jobs: Vec<ReadyJobGroup>,
    /// How long all attempts took together, in all runs.
    pub wall_time: Duration,
}

/// So many jobs that may be claimed have this in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyJobGroup {
    pub jobs: u64,
    pub runtime: Option<Duration>,
    pub labels: Vec<String>,
}

/// For monitoring: cheap to read at any time, and not a consistent picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerMetrics {
    /// Workers with a lease.
    pub workers: u64,
    /// Workflows in memory.
    pub workflows: u64,
    /// Jobs that may be claimed.
    pub ready_jobs: u64,
    /// Jobs that somebody holds.
    pub held_jobs: u64,
    /// Exchanges that wait for something to do.
    pub waiting_exchanges: u64,
    /// Transactions since the start, and those among them that failed for want of space or a database.
    pub commits: u64,
    pub refused_commits: u64,
    /// Jobs handed out and ended since the start.
    pub assigned_jobs: u64,
    pub ended_attempts: u64,
    /// Attempts lost with their workers, reports that came too late, workers that were given up.
    pub orphaned_attempts: u64,
    pub stale_reports: u64,
    pub lost_workers: u64,
    /// When the thread of the service last looked around: microseconds since 1970.
    pub last_loop_at: i64,
    /// Since when the store has been at something without getting anything done, in microseconds since 1970; 0: nothing is
    /// to be written.
    pub writing_since: i64,
}
