//! The books of allocations: what is to be asked of Slurm, and what became of it. Nothing is decided here.

use crate::Error;
use crate::model::AllocationFilter;
use windlass_core::slurm::book::{
    AllocationChange, CallCount, NewAllocation, Schedule, Scheduled, StatedAllocation,
};
use windlass_types::slurm::Allocation;
use windlass_types::{AllocationId, Timestamp, WorkflowId};

/// A row is there before Slurm hears of the allocation, and every change quotes the state that it was decided from.
pub trait Allocations: Send + Sync {
    /// New ones, all or none; `intended`. One that the same execution of an action has asked for already is not added again.
    /// Their ids, in order: for those that were not added, of the ones that are there.
    fn add_allocations(&self, new: &[NewAllocation], now: Timestamp) -> Result<Vec<AllocationId>, Error>;
    fn allocation(&self, id: AllocationId) -> Result<Option<Allocation>, Error>;
    fn allocations(&self, filter: &AllocationFilter) -> Result<Vec<Allocation>, Error>;
    /// Each applies only if the row is in the state, and has the job id, that the change quotes ([`Error::Unexpected`]); all or
    /// none. A change of state leaves an event.
    fn change_allocations(&self, changes: &[AllocationChange], now: Timestamp) -> Result<(), Error>;
    /// Nobody wants these any more. What was never submitted is withdrawn; of the others it is noted, for whoever talks to
    /// Slurm. What is over stays as it is. Refused for those that a client looks after. As they are then, in order.
    fn discard_allocations(
        &self,
        ids: &[AllocationId],
        why: &str,
        now: Timestamp,
    ) -> Result<Vec<Allocation>, Error>;

    /// How the schedulers, actions and open allocations of a workflow are, as one text that is another one when they are.
    fn schedule_seen(&self, workflow: WorkflowId) -> Result<String, Error>;
    /// A whole schedule in one commit. Refused ([`Error::Unexpected`]) if what it was planned from is not so any more; so of two
    /// that were planned at once one is done.
    fn apply_schedule(
        &self,
        workflow: WorkflowId,
        schedule: &Schedule,
        now: Timestamp,
    ) -> Result<Scheduled, Error>;

    /// Adds to the counters of the present hour.
    fn note_slurm_calls(&self, calls: &[CallCount], now: Timestamp) -> Result<(), Error>;
    /// By hour and command.
    fn slurm_calls(&self, since: Timestamp) -> Result<Vec<CallCount>, Error>;

    /// What a client says of an allocation that it looks after: a new one, or one that it spoke of before.
    fn state_allocation(
        &self,
        id: Option<AllocationId>,
        stated: &StatedAllocation,
        now: Timestamp,
    ) -> Result<AllocationId, Error>;
    /// Forgets it. Refused while it is ours and not over.
    fn delete_allocation(&self, id: AllocationId, now: Timestamp) -> Result<(), Error>;
    /// Forgets all of a workflow, or (refused) none. How many there were.
    fn delete_allocations(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error>;
}
