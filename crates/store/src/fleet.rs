//! The books of workers.

use crate::Error;
use crate::model::{HeldJob, NewWorker, NodeAside, WorkerFilter, WorkerRow, WorkerUpdate};
use windlass_types::{JobId, Timestamp, WorkerId, WorkflowId};

/// Who executes jobs: processes here, workers elsewhere, runners of Torc.
pub trait Fleet: Send + Sync {
    fn add_worker(&self, worker: &NewWorker, now: Timestamp) -> Result<WorkerId, Error>;
    /// It is gone, and holds nothing any more. Saying so twice changes nothing.
    fn retire_worker(&self, worker: WorkerId, now: Timestamp) -> Result<(), Error>;
    fn update_worker(&self, worker: WorkerId, update: &WorkerUpdate, now: Timestamp) -> Result<(), Error>;
    /// Not those that somebody deleted.
    fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, Error>;
    /// Also if somebody deleted it: results speak of it.
    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, Error>;
    /// The job, if a worker holds it now.
    fn held_job(&self, workflow: WorkflowId, job: JobId) -> Result<Option<HeldJob>, Error>;
    /// Lists show them no more. All or none; refused for one that holds a job.
    fn delete_workers(&self, workers: &[WorkerId], now: Timestamp) -> Result<(), Error>;
    /// Workflows whose current run has begun and is not over, and that are not archived; ascending.
    fn active_workflows(&self) -> Result<Vec<WorkflowId>, Error>;

    /// Nodes that get no jobs, and those that have served their time and not been trusted again; by host.
    fn nodes_aside(&self) -> Result<Vec<NodeAside>, Error>;
    /// In the place of what was said of the node and this user before.
    fn set_node_aside(&self, node: &NodeAside, now: Timestamp) -> Result<(), Error>;
    /// It is trusted again, for this reason: for the workers of this user, for those of all (an empty user), or whatever
    /// was said of it (`None`). `false`: it was already.
    fn release_node(&self, host: &str, user: Option<&str>, why: &str, now: Timestamp) -> Result<bool, Error>;
}
