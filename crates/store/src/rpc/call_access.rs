//! Access required by a call: read or write, and its objects.

use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    AllocationId, EventId, FileId, JobId, RequirementsId, ResultId, UserDataId, WorkflowId,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLevel {
    Read,
    Change,
}

/// The objects of a call. The server finds their workflows and checks whether the caller may use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallSubject {
    /// Everything. Objects that the caller may not see are omitted from the response.
    All,
    /// The database as a whole instead of a workflow.
    Database,
    /// A workflow that is about to be created: the caller will be its owner.
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

/// Maximum number of objects in one call.
pub const MAX_IDS_PER_CALL: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAccess {
    pub level: AccessLevel,
    pub subject: CallSubject,
}

impl CallSubject {
    /// Returns the number of objects that it names.
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
