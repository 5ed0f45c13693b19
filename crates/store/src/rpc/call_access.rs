//! Access required by a call: read or write, and its objects.

use super::StoreCall;
use serde_json::Value;
use windlass_types::failure_commands::{FailureCommandBatch, PendingCommand};
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
/// Maximum number of jobs of one workflow that one call changes. Such a change cannot be split.
const MAX_JOBS_PER_CHANGE: usize = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAccess {
    pub level: AccessLevel,
    pub subject: CallSubject,
}

impl StoreCall {
    /// Returns the length of a list in the call that is too long, and the maximum.
    pub fn find_oversized_list(&self) -> Option<(usize, usize)> {
        let CallAccess { level, subject } = self.access();
        let (count, most) = match (self, level) {
            (Self::BeginNextRun { again: jobs, .. } | Self::DeleteJobs { jobs, .. }, _) => {
                (jobs.len(), MAX_JOBS_PER_CHANGE)
            }
            (
                Self::CarryOut { wanted: PendingCommand::Orders(FailureCommandBatch { orders, .. }), .. },
                _,
            ) => (orders.len(), MAX_JOBS_PER_CHANGE),
            // All lists of a read are ids or other terms of a filter.
            (_, AccessLevel::Read) => {
                (serde_json::to_value(self).map_or(0, |call| longest_list(&call)), MAX_IDS_PER_CALL)
            }
            (_, AccessLevel::Change) => (subject.count(), MAX_IDS_PER_CALL),
        };
        (count > most).then_some((count, most))
    }
}

fn longest_list(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(longest_list).max().unwrap_or(0).max(items.len()),
        Value::Object(fields) => fields.values().map(longest_list).max().unwrap_or(0),
        _ => 0,
    }
}

impl CallSubject {
    /// Returns the number of objects that it names.
    const fn count(&self) -> usize {
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
