//! Storage of workers.

use crate::StoreError;
use crate::model::{HeldJob, NewWorker, NodeQuarantineRow, WorkerFilter, WorkerRow, WorkerUpdate};
use windlass_types::{JobId, Timestamp, WorkerId, WorkflowId};

/// Records of all workers: local, remote, and runners of Torc.
pub trait WorkerStore: Send + Sync {
    fn add_worker(&self, worker: &NewWorker, now: Timestamp) -> Result<WorkerId, StoreError>;
    /// Records the end of a worker, which holds no jobs any more. Idempotent.
    fn retire_worker(&self, worker: WorkerId, now: Timestamp) -> Result<(), StoreError>;
    fn update_worker(
        &self,
        worker: WorkerId,
        update: &WorkerUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    /// Without deleted ones.
    fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, StoreError>;
    /// Including deleted ones, because results refer to them.
    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, StoreError>;
    /// Returns the job if a worker holds it now.
    fn held_job(&self, workflow: WorkflowId, job: JobId) -> Result<Option<HeldJob>, StoreError>;
    /// Hides them from lists, all or none; rejected for a worker that holds a job.
    fn delete_workers(&self, workers: &[WorkerId], now: Timestamp) -> Result<(), StoreError>;
    /// Returns unarchived workflows whose current run is active; ascending.
    fn active_workflows(&self) -> Result<Vec<WorkflowId>, StoreError>;

    /// Returns quarantined nodes, including those whose quarantine has expired without a probe; by host.
    fn quarantined_nodes(&self) -> Result<Vec<NodeQuarantineRow>, StoreError>;
    /// Replaces an earlier quarantine of the node for this user.
    fn quarantine_node(&self, node: &NodeQuarantineRow, now: Timestamp) -> Result<(), StoreError>;
    /// Releases a node from quarantine: for the workers of this user, for all users (an empty user), or in any
    /// case (`None`). `false`: it was not quarantined.
    fn release_quarantined_node(
        &self,
        host: &str,
        user: Option<&str>,
        why: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
}
