//! The books of allocations: what is to be asked of Slurm, and what became of it. Nothing is decided here.

use crate::StoreError;
use crate::model::AllocationFilter;
use windlass_core::slurm::allocation_rows::{
    AllocationChange, AllocationSchedule, AppliedSchedule, ExternalAllocation, NewAllocation, SlurmCallCount,
};
use windlass_types::slurm::Allocation;
use windlass_types::{AllocationId, Timestamp, WorkflowId};

/// A row is there before Slurm hears of the allocation, and every change quotes the state that it was decided from.
pub trait AllocationStore: Send + Sync {
    /// New ones, all or none; `intended`. One that the same execution of an action has asked for already is not added again.
    /// Their ids, in order: for those that were not added, of the ones that are there.
    fn add_allocations(&self, new: &[NewAllocation], now: Timestamp)
    -> Result<Vec<AllocationId>, StoreError>;
    fn allocation(&self, id: AllocationId) -> Result<Option<Allocation>, StoreError>;
    fn allocations(&self, filter: &AllocationFilter) -> Result<Vec<Allocation>, StoreError>;
    /// Each applies only if the row is in the state, and has the job id, that the change quotes ([`Error::Unexpected`]); all or
    /// none. A change of state leaves an event.
    fn change_allocations(&self, changes: &[AllocationChange], now: Timestamp) -> Result<(), StoreError>;
    /// Nobody wants these any more. What was never submitted is withdrawn; of the others it is noted, for whoever talks to
    /// Slurm. What is over stays as it is. Refused for those that a client looks after. As they are then, in order.
    fn discard_allocations(
        &self,
        ids: &[AllocationId],
        why: &str,
        now: Timestamp,
    ) -> Result<Vec<Allocation>, StoreError>;

    /// How the schedulers, actions and open allocations of a workflow are, as one text that is another one when they are.
    fn schedule_fingerprint(&self, workflow: WorkflowId) -> Result<String, StoreError>;
    /// A whole schedule in one commit. Refused ([`Error::Unexpected`]) if what it was planned from is not so any more; so of two
    /// that were planned at once one is done.
    fn apply_schedule(
        &self,
        workflow: WorkflowId,
        schedule: &AllocationSchedule,
        now: Timestamp,
    ) -> Result<AppliedSchedule, StoreError>;

    /// Adds to the counters of the present hour.
    fn record_slurm_calls(&self, calls: &[SlurmCallCount], now: Timestamp) -> Result<(), StoreError>;
    /// By hour and command.
    fn slurm_calls(&self, since: Timestamp) -> Result<Vec<SlurmCallCount>, StoreError>;

    /// What a client says of an allocation that it looks after: a new one, or one that it spoke of before.
    fn record_client_allocation(
        &self,
        id: Option<AllocationId>,
        stated: &ExternalAllocation,
        now: Timestamp,
    ) -> Result<AllocationId, StoreError>;
    /// Forgets it. Refused while it is ours and not over.
    fn delete_allocation(&self, id: AllocationId, now: Timestamp) -> Result<(), StoreError>;
    /// Forgets all of a workflow, or (refused) none. How many there were.
    fn delete_allocations(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError>;
}
