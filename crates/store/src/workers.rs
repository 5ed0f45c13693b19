//! The books of workers.

use crate::StoreError;
use crate::model::{HeldJob, NewWorker, NodeQuarantineRow, WorkerFilter, WorkerRow, WorkerUpdate};
use windlass_types::{JobId, Timestamp, WorkerId, WorkflowId};

/// Who executes jobs: processes here, workers elsewhere, runners of Torc.
pub trait WorkerStore: Send + Sync {
    fn add_worker(&self, worker: &NewWorker, now: Timestamp) -> Result<WorkerId, StoreError>;
    /// It is gone, and holds nothing any more. Saying so twice changes nothing.
    fn retire_worker(&self, worker: WorkerId, now: Timestamp) -> Result<(), StoreError>;
    fn update_worker(
        &self,
        worker: WorkerId,
        update: &WorkerUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    /// Not those that somebody deleted.
    fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, StoreError>;
    /// Also if somebody deleted it: results speak of it.
    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, StoreError>;
    /// The job, if a worker holds it now.
    fn held_job(&self, workflow: WorkflowId, job: JobId) -> Result<Option<HeldJob>, StoreError>;
    /// Lists show them no more. All or none; refused for one that holds a job.
    fn delete_workers(&self, workers: &[WorkerId], now: Timestamp) -> Result<(), StoreError>;
    /// Workflows whose current run has begun and is not over, and that are not archived; ascending.
    fn active_workflows(&self) -> Result<Vec<WorkflowId>, StoreError>;

    /// Nodes that get no jobs, and those that have served their time and not been trusted again; by host.
    fn quarantined_nodes(&self) -> Result<Vec<NodeQuarantineRow>, StoreError>;
    /// In the place of what was said of the node and this user before.
    fn quarantine_node(&self, node: &NodeQuarantineRow, now: Timestamp) -> Result<(), StoreError>;
    /// It is trusted again, for this reason: for the workers of this user, for those of all (an empty user), or whatever
    /// was said of it (`None`). `false`: it was already.
    fn release_quarantined_node(
        &self,
        host: &str,
        user: Option<&str>,
        why: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
}
