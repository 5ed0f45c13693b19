//! Storage of allocations: requests to Slurm and their results. Decides nothing.

use crate::StoreError;
use crate::model::AllocationFilter;
use windlass_core::slurm::allocation_rows::{
    AllocationChange, AllocationSchedule, AppliedSchedule, ExternalAllocation, NewAllocation, SlurmCallCount,
};
use windlass_types::slurm::Allocation;
use windlass_types::{AllocationId, Timestamp, WorkflowId};

/// A row is committed before the allocation is submitted to Slurm, and every change names the state it was
/// decided from.
pub trait AllocationStore: Send + Sync {
    /// Adds new allocations in the state `intended`, all or none. One that the same execution of an action has
    /// already requested is not added again. Returns the ids in order, including those of existing ones.
    fn add_allocations(&self, new: &[NewAllocation], now: Timestamp)
    -> Result<Vec<AllocationId>, StoreError>;
    fn allocation(&self, id: AllocationId) -> Result<Option<Allocation>, StoreError>;
    fn allocations(&self, filter: &AllocationFilter) -> Result<Vec<Allocation>, StoreError>;
    /// Applies changes, all or none. Each requires that the row has the state and job id that the change names
    /// ([`StoreError::Unexpected`]). A change of state is recorded as an event.
    fn change_allocations(&self, changes: &[AllocationChange], now: Timestamp) -> Result<(), StoreError>;
    /// Marks allocations as unwanted. Unsubmitted ones are withdrawn; the others are marked for the allocation
    /// reconciler. Ended ones stay as they are. Rejected for those managed by a client. Returns them after the
    /// change, in order.
    fn discard_allocations(
        &self,
        ids: &[AllocationId],
        why: &str,
        now: Timestamp,
    ) -> Result<Vec<Allocation>, StoreError>;

    /// Returns a fingerprint of the schedulers, actions and open allocations of a workflow; it changes when
    /// they do.
    fn schedule_fingerprint(&self, workflow: WorkflowId) -> Result<String, StoreError>;
    /// Commits a whole schedule. Rejected ([`StoreError::Unexpected`]) if the state that it was planned from
    /// has changed, so that of two concurrent plans only one is applied.
    fn apply_schedule(
        &self,
        workflow: WorkflowId,
        schedule: &AllocationSchedule,
        now: Timestamp,
    ) -> Result<AppliedSchedule, StoreError>;

    /// Adds to the counters of the current hour.
    fn record_slurm_calls(&self, calls: &[SlurmCallCount], now: Timestamp) -> Result<(), StoreError>;
    /// Returns the counters by hour and command.
    fn slurm_calls(&self, since: Timestamp) -> Result<Vec<SlurmCallCount>, StoreError>;

    /// Adds or updates an allocation that a client manages.
    fn record_client_allocation(
        &self,
        id: Option<AllocationId>,
        stated: &ExternalAllocation,
        now: Timestamp,
    ) -> Result<AllocationId, StoreError>;
    /// Deletes the record. Rejected while Windlass manages it and it has not ended.
    fn delete_allocation(&self, id: AllocationId, now: Timestamp) -> Result<(), StoreError>;
    /// Deletes all records of a workflow, or none if one is rejected. Returns their number.
    fn delete_allocations(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError>;
}
