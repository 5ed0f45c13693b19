//! The phase of a workflow.

use serde::Serialize;
use windlass_store::model::WorkflowRow;
use windlass_store::{Store, StoreLocation};
use windlass_types::{JobStatus, StatusCounts};

/// Phase of a workflow, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowPhase {
    /// Never started.
    Created,
    /// A process is running it.
    Running,
    /// Started and not finished, but no process is running it.
    Interrupted,
    /// All remaining work waits for decisions about failures.
    NeedsDecision,
    /// All jobs completed.
    Completed,
    /// All jobs have ended, and some did not complete.
    Failed,
    Canceled,
}

impl WorkflowPhase {
    pub fn from_row(row: &WorkflowRow, has_active_process: bool) -> Self {
        let counts = &row.counts;
        match () {
            () if row.started_at.is_some() && !row.is_canceled && needs_decision(counts) => {
                Self::NeedsDecision
            }
            () if has_active_process => Self::Running,
            () if row.is_canceled => Self::Canceled,
            () if counts.settled() < counts.total() => match row.started_at {
                None => Self::Created,
                Some(_) => Self::Interrupted,
            },
            () if counts.unsuccessful() > 0 => Self::Failed,
            () => Self::Completed,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::NeedsDecision => "needs_decision",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
}

/// Whether all remaining work waits for decisions about failures.
pub fn needs_decision(counts: &StatusCounts) -> bool {
    let may_go_on = counts.active() + counts.get(JobStatus::Ready) + counts.get(JobStatus::Uninitialized);
    counts.get(JobStatus::PendingFailed) > 0 && may_go_on == 0
}

/// Whether the database belongs to a server.
pub fn is_remote_store(store: &dyn Store) -> bool {
    matches!(store.location(), StoreLocation::Server(_))
}

/// Whether a process runs the workflow now; a server runs every workflow that is started and not finished. A
/// lock that cannot be checked counts as free: showing the workflow matters more.
pub fn has_active_process(store: &dyn Store, row: &WorkflowRow) -> bool {
    if is_remote_store(store) {
        return row.started_at.is_some() && row.ended_at.is_none() && !row.is_canceled;
    }
    store.lock_holder(row.id).is_ok_and(|holder| holder.is_some())
}
