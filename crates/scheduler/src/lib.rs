//! Runs workflows: the scheduler that turns decisions of `windlass-core` into commits, and commits into
//! assignments.
//!
//! Invariants:
//! - A completion is on disk before anything is done because of it: dependents become ready and the next jobs
//!   are claimed in the same transaction, and only then are they assigned to a worker.
//! - A claim is on disk before it is sent to its worker, so that after a crash every job that may have started
//!   is known.
//! - Memory changes only together with the [`windlass_core::change::WorkflowChange`]s that are committed; a
//!   commit that fails because the disk is full is repeated unchanged until it succeeds.
//!
//! This crate starts no processes: a [`worker_host::WorkerHost`] starts workers and ensures that dead ones are
//! dead.

mod action_schedule;
mod added_jobs;
mod claim_ahead;
mod crash_suspects;
mod execution_settings;
mod recovery_at_start;
mod retry_policy;
pub mod run_observer;
pub mod service;
pub mod worker_host;

pub use recovery_at_start::{
    begin_next_run, begin_next_run_at_other_sites, load_job_holders, recover_workflow,
};
pub use retry_policy::is_retry_budget_spent;
pub use service::{LocalRun, LocalRunControl, LocalRunOptions, RunDeadline, RunEnd, RunSummary};

use windlass_types::{Capacity, LOCAL_SITE, Resources, WorkflowId};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    #[error("the database could not be used")]
    Store(#[from] windlass_store::StoreError),
    #[error("there is no workflow {0}")]
    NoSuchWorkflow(WorkflowId),
    #[error("workflow {0} has a dependency cycle: every job waits for another one")]
    Cycle(WorkflowId),
    #[error("`{name}`{} more than this machine has", others(*.count, "request"))]
    JobTooLarge { name: String, count: usize, asked: Box<Resources>, capacity: Box<Capacity> },
    #[error(
        "`{name}`{} only at {}; this machine is at the site {LOCAL_SITE}",
        others(*.count, "run"),
        .sites.join(" or ")
    )]
    WrongSite { name: String, count: usize, sites: Vec<String> },
    #[error("`{name}`{} the label `{}`, which this machine lacks", others(*.count, "require"), .labels.join("`, `"))]
    MissingLabels { name: String, count: usize, labels: Vec<String> },
    #[error("the worker could not be started")]
    StartWorker(#[source] worker_host::WorkerHostError),
    #[error("an earlier worker and its jobs may still be running")]
    EnsureWorkerDead(#[source] worker_host::WorkerHostError),
    #[error("the worker died {0} times in a row without completing a job")]
    WorkerKeepsDying(u32),
    #[error("cannot wait for events")]
    Wait(#[source] std::io::Error),
    #[error("this run lost the lock of the workflow and has stopped")]
    LockLost(#[source] windlass_store::StoreError),
    #[error("invalid message from the worker: {0}")]
    Protocol(String),
}

/// The text after the first name: ` requests`, or ` and 3 more jobs request`.
fn others(count: usize, verb: &str) -> String {
    match count {
        0 | 1 => format!(" {verb}s"),
        2 => format!(" and 1 more job {verb}"),
        _ => format!(" and {} more jobs {verb}", count - 1),
    }
}
