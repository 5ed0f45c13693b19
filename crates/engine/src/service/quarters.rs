//! Workers in allocations of Slurm: which of them may work, and what they are told of their end.

use super::May;
use super::desk::Desk;
use super::office::{Office, Slot, refused, unavailable};
use super::talk::{Refused, Silent};
use std::time::{Duration, Instant};
use windlass_core::slurm::admit::admit;
use windlass_core::slurm::ends::{self, Eviction};
use windlass_core::slurm::steps::runs_steps;
use windlass_core::suspects::Evidence;
use windlass_store::Error;
use windlass_types::fleet::Introduction;
use windlass_types::slurm::Allocation;
use windlass_types::work::AttemptKey;
use windlass_types::{AllocationId, JobId, Timestamp, WorkerId, WorkflowId};

/// So long others wait for what a worker may have left in Slurm: longer than whoever asks it ever pauses. Then it is more likely that
/// nobody can say than that something still runs.
pub const FENCING: Duration = Duration::from_mins(10);
/// So soon it is looked again who held what, where that cannot be seen just now.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a silent worker held cannot be seen now.
struct NotNow;

impl Office {
    /// The allocation that it is in. One that is over, or that another job of Slurm is, has no use for it. One of a workflow
    /// that the worker may not work for does not exist for it.
    pub(super) fn admit(&mut self, who: &Introduction, may: &May) -> Result<Option<Allocation>, Refused> {
        let Some(id) = who.allocation.map(AllocationId) else { return Ok(None) };
        let missing = || Refused::NotFound(format!("there is no allocation {id}"));
        let row = self.store.allocation(id).map_err(|error| refused(&error))?;
        let mut row = row.ok_or_else(missing)?;
        let workflow = self.store.workflow(row.workflow).map_err(|error| refused(&error))?;
        workflow.filter(|workflow| may(workflow)).ok_or_else(missing)?;
        let Some(place) = &who.slurm else { return Ok(None) };
        let change = admit(&row, who.workflow, place, self.now.wall).map_err(Refused::NotFound)?;
        if let Some(change) = change {
            self.store.change_allocations(&[change], self.now.wall).map_err(|error| match error {
                // Whoever talks to Slurm was quicker; the next try finds what it wrote.
                Error::Unexpected { .. } => unavailable("the allocation has just changed"),
                error => refused(&error),
            })?;
            self.tell_of_commit();
            // That of an earlier run, if it has one.
            row.ends_at = None;
        }
        Ok(Some(row))
    }

    /// Its workers are gone, whatever is left of their leases; unless Slurm may only have lost sight of them. Those who were asked to
    /// go have said goodbye, and hold nothing.
    pub(super) fn on_allocation_over(&mut self, allocation: AllocationId) {
        let Ok(Some(row)) = self.store.allocation(allocation) else { return };
        if !ends::has_ended_all(&row) {
            return;
        }
        let inside = self.mates.iter().filter(|(_, mate)| mate.allocation == Some(allocation));
        let mut gone: Vec<WorkerId> = inside.map(|(worker, _)| *worker).collect();
        gone.sort_unstable();
        for worker in gone {
            // Which of its jobs is to blame, if any is, nobody saw.
            self.lose(worker, &ends::in_words(&row), Evidence::Hearsay);
        }
    }

    /// The end of the allocation that a worker was in, if no job is to blame for it.
    pub(super) fn eviction_of(&self, allocation: Option<AllocationId>) -> Option<Eviction> {
        // If the books cannot be read now, its jobs run again all the same.
        self.store.allocation(allocation?).ok().flatten().as_ref().and_then(Eviction::of)
    }

    /// Steps of Slurm may outlive the worker that began them: what it held goes to nobody before they are gone. `true`: whoever
    /// sees to that has been told.
    pub(super) fn begins_to_fence(&mut self, worker: WorkerId) -> bool {
        let Some(told) = self.options.on_silent.clone() else { return false };
        let silent = match self.silent(worker) {
            Ok(None) => return false,
            Ok(Some(silent)) => silent,
            Err(NotNow) => {
                let then = self.now.at + LOOK_AGAIN;
                return self.mates.get_mut(&worker).map(|mate| mate.lease_until = then).is_some();
            }
        };
        // It may speak up meanwhile, and then hears that it has lost everything.
        self.send_off(worker);
        let patience = self.now.at + FENCING;
        let Some(mate) = self.mates.get_mut(&worker) else { return false };
        (mate.is_given_up, mate.lease_until) = (true, patience);
        told(silent);
        true
    }

    /// What a worker may have left in Slurm, if nobody was told of it yet.
    fn silent(&self, worker: WorkerId) -> Result<Option<Silent>, NotNow> {
        let Some(mate) = self.mates.get(&worker).filter(|mate| !mate.is_given_up) else { return Ok(None) };
        let Some(allocation) = mate.allocation else { return Ok(None) };
        if mate.held.values().any(|workflow| matches!(self.slots.get(workflow), Some(Slot::Shut(_)))) {
            return Err(NotNow);
        }
        let key = |(job, workflow): (&JobId, &WorkflowId)| {
            let Some(Slot::Open(desk)) = self.slots.get(workflow) else { return None };
            let hold = desk.held.get(job).filter(|hold| hold.is_told)?;
            let (run, attempt) = (desk.row.run_id, hold.attempt);
            Some((desk, AttemptKey { workflow: *workflow, job: *job, run, attempt }))
        };
        let Some(row) = self.store.allocation(allocation).map_err(|_| NotNow)? else { return Ok(None) };
        let as_steps =
            |desk: &Desk| runs_steps(desk.row.settings.execution_config.as_ref(), row.request.nodes as usize);
        let held = mate.held.iter().filter_map(key).filter(|(desk, _)| as_steps(desk));
        let mut held: Vec<AttemptKey> = held.map(|(_, key)| key).collect();
        held.sort_unstable();
        Ok((!held.is_empty()).then_some(Silent { worker, allocation, held }))
    }

    /// Nothing of it runs any more.
    pub(super) fn on_fenced(&mut self, worker: WorkerId) {
        if self.mates.get(&worker).is_some_and(|mate| mate.is_given_up) {
            self.on_silence(worker);
        }
    }

    /// Nothing that is left of its only workflow would ever fit a worker in an allocation, which holds nothing: its node is
    /// kept for nobody. Where jobs add others nobody knows what comes.
    pub(super) fn is_of_no_use(&self, worker: WorkerId) -> bool {
        let Some(mate) = self.mates.get(&worker).filter(|mate| mate.allocation.is_some()) else {
            return false;
        };
        let Some(Slot::Open(desk)) = mate.bound.and_then(|bound| self.slots.get(&bound)) else {
            return false;
        };
        let is_free = mate.held.is_empty() && mate.actions.is_empty() && mate.reserved.is_none();
        // When all jobs are over, actions may still be for it.
        let is_under_way = desk.is_active && !desk.board.is_finished() && !desk.agenda.actions.is_owed();
        is_free && is_under_way && !desk.has_added && !desk.board.has_use_for(&mate.mirror)
    }

    /// The last job of a kind is over: workers may have nothing to stay for.
    pub(super) fn look_after_idle(&mut self, workflow: WorkflowId) {
        let Some(desk) = self.desk(workflow) else { return };
        let done = desk.board.kinds_done();
        if std::mem::replace(&mut desk.kinds_done, done) != done {
            self.tell_bound(workflow);
        }
    }

    pub(super) fn on_allocation_ends(&mut self, allocation: AllocationId, ends_at: Timestamp) {
        let Some(end) = self.end_at(ends_at) else { return };
        let inside = self.mates.iter_mut().filter(|(_, mate)| mate.allocation == Some(allocation));
        let told: Vec<WorkerId> = inside
            .map(|(worker, mate)| {
                mate.outbox.ends = Some(end);
                *worker
            })
            .collect();
        self.roused.extend(told);
    }

    /// Whoever comes, or comes back, may have missed that its allocation ends at another time than Slurm said at its start. A
    /// time that is past says nothing: it has been changed since, and whoever talks to Slurm will tell.
    pub(super) fn settle_in(&mut self, worker: WorkerId, row: &Allocation) {
        let end = row.ends_at.filter(|at| *at > self.now.wall).and_then(|at| self.end_at(at));
        if let Some(mate) = self.mates.get_mut(&worker) {
            mate.allocation = Some(row.id);
            mate.scheduler = row.scheduler;
            mate.outbox.ends = end.or(mate.outbox.ends);
        }
    }

    fn end_at(&self, at: Timestamp) -> Option<Instant> {
        self.now.at.checked_add(at.since(self.now.wall))
    }
}
