//! [`Allocations`] on a database: which connection does what.

mod rows;
mod schedule;

pub(crate) use rows::{name_known_end, refuse_while_open};

use super::{Backend, Books};
use crate::model::AllocationFilter;
use crate::{Allocations, Error};
use windlass_core::slurm::book::{
    AllocationChange, CallCount, NewAllocation, Schedule, Scheduled, StatedAllocation,
};
use windlass_types::slurm::Allocation;
use windlass_types::{AllocationId, Timestamp, WorkflowId};

impl<B: Backend> Allocations for Books<B> {
    fn add_allocations(&self, new: &[NewAllocation], now: Timestamp) -> Result<Vec<AllocationId>, Error> {
        let new = new.to_vec();
        self.act(now, move |db, by| new.iter().map(|new| rows::add(db, new, by)).collect())
    }

    fn allocation(&self, id: AllocationId) -> Result<Option<Allocation>, Error> {
        self.read(|db| rows::find(db, id))
    }

    fn allocations(&self, filter: &AllocationFilter) -> Result<Vec<Allocation>, Error> {
        self.read(|db| rows::list(db, filter))
    }

    fn change_allocations(&self, changes: &[AllocationChange], now: Timestamp) -> Result<(), Error> {
        let changes = changes.to_vec();
        self.act(now, move |db, by| changes.iter().try_for_each(|change| rows::change(db, change, by)))
    }

    fn discard_allocations(
        &self,
        ids: &[AllocationId],
        why: &str,
        now: Timestamp,
    ) -> Result<Vec<Allocation>, Error> {
        let (ids, why) = (ids.to_vec(), why.to_owned());
        self.act(now, move |db, by| ids.iter().map(|id| rows::discard(db, *id, &why, by)).collect())
    }

    fn schedule_seen(&self, workflow: WorkflowId) -> Result<String, Error> {
        self.read(|db| schedule::seen(db, workflow))
    }

    fn apply_schedule(
        &self,
        workflow: WorkflowId,
        schedule: &Schedule,
        now: Timestamp,
    ) -> Result<Scheduled, Error> {
        let schedule = schedule.clone();
        self.edit(workflow, now, move |db, by| schedule::apply(db, workflow, &schedule, by))
    }

    fn note_slurm_calls(&self, calls: &[CallCount], now: Timestamp) -> Result<(), Error> {
        let calls = calls.to_vec();
        self.act(now, move |db, by| rows::note_calls(db, &calls, by.now))
    }

    fn slurm_calls(&self, since: Timestamp) -> Result<Vec<CallCount>, Error> {
        self.read(|db| rows::calls(db, since))
    }

    fn state_allocation(
        &self,
        id: Option<AllocationId>,
        stated: &StatedAllocation,
        now: Timestamp,
    ) -> Result<AllocationId, Error> {
        let stated = stated.clone();
        self.act(now, move |db, by| rows::state(db, id, &stated, by))
    }

    fn delete_allocation(&self, id: AllocationId, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| rows::delete(db, id, by))
    }

    fn delete_allocations(&self, workflow: WorkflowId, now: Timestamp) -> Result<u64, Error> {
        self.act(now, move |db, by| rows::delete_all(db, workflow, by))
    }
}
