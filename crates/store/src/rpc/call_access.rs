//! What a request needs: to read or to change, and whose.

use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    AllocationId, EventId, FileId, JobId, RequirementsId, ResultId, UserDataId, WorkflowId,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLevel {
    Read,
    Change,
}

/// What a request is about. Whoever keeps the books finds out which workflows that is, and whether they may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallSubject {
    /// Everything there is. What may not be seen is left out of the answer.
    All,
    /// The database as a whole, not one of its workflows.
    Database,
    /// A workflow that is not there yet: it will be the caller's.
    New,
    Workflows(Vec<WorkflowId>),
    Jobs(Vec<JobId>),
    Attempts(Vec<AttemptKey>),
    File(FileId),
    UserData(UserDataId),
    Requirements(RequirementsId),
    Result(ResultId),
    Event(EventId),
    Scheduler(i64),
    Allocations(Vec<AllocationId>),
}

/// The most objects that one request may name.
pub const MOST_IDS: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAccess {
    pub level: AccessLevel,
    pub subject: CallSubject,
}

impl CallSubject {
    /// How many objects it names.
    pub const fn count(&self) -> usize {
        match self {
            Self::All | Self::Database | Self::New => 0,
            Self::Workflows(ids) => ids.len(),
            Self::Jobs(ids) => ids.len(),
            Self::Attempts(keys) => keys.len(),
            Self::Allocations(ids) => ids.len(),
            Self::File(_)
            | Self::UserData(_)
            | Self::Requirements(_)
            | Self::Result(_)
            | Self::Event(_)
            | Self::Scheduler(_) => 1,
        }
    }

    pub(super) fn workflow(id: WorkflowId) -> Self {
        Self::Workflows(vec![id])
    }

    /// Of this workflow, or of all.
    pub(super) fn workflow_or(id: Option<WorkflowId>, otherwise: Self) -> Self {
        id.map_or(otherwise, Self::workflow)
    }
}
