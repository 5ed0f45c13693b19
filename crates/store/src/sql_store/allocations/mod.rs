//! [`AllocationStore`] on a database: selects the connection of each call.

mod rows;
mod schedule;

pub(crate) use rows::{record_known_end, refuse_open_allocations};

use super::{SqlStore, StoreBackend};
use crate::model::AllocationFilter;
use crate::{AllocationStore, StoreError};
use windlass_core::slurm::allocation_rows::{
    AllocationChange, AllocationSchedule, AppliedSchedule, ExternalAllocation, NewAllocation, SlurmCallCount,
};
use windlass_types::slurm::Allocation;
use windlass_types::{AllocationId, Timestamp, WorkflowId};

impl<B: StoreBackend> AllocationStore for SqlStore<B> {
    fn add_allocations(
        &self,
        new: &[NewAllocation],
        now: Timestamp,
    ) -> Result<Vec<AllocationId>, StoreError> {
        let new = new.to_vec();
        self.write_as_actor(now, move |db, by| {
            new.iter().map(|new| rows::add_allocation(db, new, by)).collect()
        })
    }

    fn allocation(&self, id: AllocationId) -> Result<Option<Allocation>, StoreError> {
        self.read(|db| rows::find_allocation(db, id))
    }

    fn allocations(&self, filter: &AllocationFilter) -> Result<Vec<Allocation>, StoreError> {
        self.read(|db| rows::list_allocations(db, filter))
    }

    fn change_allocations(&self, changes: &[AllocationChange], now: Timestamp) -> Result<(), StoreError> {
        let changes = changes.to_vec();
        self.write_as_actor(now, move |db, by| {
            changes.iter().try_for_each(|change| rows::change_allocation(db, change, by))
        })
    }

    fn discard_allocations(
        &self,
        ids: &[AllocationId],
        why: &str,
        now: Timestamp,
    ) -> Result<Vec<Allocation>, StoreError> {
        let (ids, why) = (ids.to_vec(), why.to_owned());
        self.write_as_actor(now, move |db, by| {
            ids.iter().map(|id| rows::discard_allocation(db, *id, &why, by)).collect()
        })
    }

    fn schedule_fingerprint(&self, workflow: WorkflowId) -> Result<String, StoreError> {
        self.read(|db| schedule::schedule_fingerprint(db, workflow))
    }

    fn apply_schedule(
        &self,
        workflow: WorkflowId,
        schedule: &AllocationSchedule,
        now: Timestamp,
    ) -> Result<AppliedSchedule, StoreError> {
        let schedule = schedule.clone();
        self.edit_workflow(workflow, now, move |db, by| schedule::apply_schedule(db, workflow, &schedule, by))
    }

    fn record_slurm_calls(&self, calls: &[SlurmCallCount], now: Timestamp) -> Result<(), StoreError> {
        let calls = calls.to_vec();
        self.write_as_actor(now, move |db, by| rows::record_slurm_calls(db, &calls, by.now))
    }

    fn slurm_calls(&self, since: Timestamp) -> Result<Vec<SlurmCallCount>, StoreError> {
        self.read(|db| rows::list_slurm_calls(db, since))
    }

    fn record_client_allocation(
        &self,
        id: Option<AllocationId>,
        stated: &ExternalAllocation,
        now: Timestamp,
    ) -> Result<AllocationId, StoreError> {
        let stated = stated.clone();
        self.write_as_actor(now, move |db, by| rows::record_client_allocation(db, id, &stated, by))
    }

    fn delete_allocation(&self, id: AllocationId, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| rows::delete_allocation(db, id, by))
    }

    fn delete_allocations(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, StoreError> {
        self.write_as_actor(now, move |db, by| rows::delete_allocations(db, workflow, by))
    }
}
