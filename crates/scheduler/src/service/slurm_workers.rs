//! Workers in allocations of Slurm: which of them may work, and what they are told of their end.

use super::WorkflowPredicate;
use super::active_workflow::ActiveWorkflow;
use super::protocol::{CallError, SilentWorker};
use super::scheduler::{Scheduler, WorkflowSlot, store_call_error, unavailable_error};
use std::time::{Duration, Instant};
use windlass_core::crash_suspects::CrashEvidence;
use windlass_core::slurm::allocation_ends::{self, AllocationEviction};
use windlass_core::slurm::job_steps::runs_as_steps;
use windlass_core::slurm::worker_admission::admit_worker;
use windlass_store::StoreError;
use windlass_types::slurm::Allocation;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{AllocationId, JobId, Timestamp, WorkerId, WorkflowId};

/// So long others wait for what a worker may have left in Slurm: longer than whoever asks it ever pauses. Then it is more likely that
/// nobody can say than that something still runs.
pub const FENCING_TIMEOUT: Duration = Duration::from_mins(10);
/// So soon it is looked again who held what, where that cannot be seen just now.
const FENCING_RETRY_DELAY: Duration = Duration::from_secs(1);

/// What a silent worker held cannot be seen now.
struct HoldersUnavailable;

impl Scheduler {
    /// The allocation that it is in. One that is over, or that another job of Slurm is, has no use for it. One of a workflow
    /// that the worker may not work for does not exist for it.
    pub(super) fn check_allocation(
        &mut self,
        who: &WorkerRegistration,
        may: &WorkflowPredicate,
    ) -> Result<Option<Allocation>, CallError> {
        let Some(id) = who.allocation.map(AllocationId) else { return Ok(None) };
        let missing = || CallError::NotFound(format!("there is no allocation {id}"));
        let row = self.store.allocation(id).map_err(|error| store_call_error(&error))?;
        let mut row = row.ok_or_else(missing)?;
        let workflow = self.store.workflow(row.workflow).map_err(|error| store_call_error(&error))?;
        workflow.filter(|workflow| may(workflow)).ok_or_else(missing)?;
        let Some(place) = &who.slurm else { return Ok(None) };
        let change =
            admit_worker(&row, who.workflow, place, self.now.timestamp).map_err(CallError::NotFound)?;
        if let Some(change) = change {
            self.store.change_allocations(&[change], self.now.timestamp).map_err(|error| match error {
                // Whoever talks to Slurm was quicker; the next try finds what it wrote.
                StoreError::Unexpected { .. } => unavailable_error("the allocation has just changed"),
                error => store_call_error(&error),
            })?;
            self.notify_commit();
            // That of an earlier run, if it has one.
            row.ends_at = None;
        }
        Ok(Some(row))
    }

    /// Its workers are gone, whatever is left of their leases; unless Slurm may only have lost sight of them. Those who were asked to
    /// go have said goodbye, and hold nothing.
    pub(super) fn on_allocation_ended(&mut self, allocation: AllocationId) {
        let Ok(Some(row)) = self.store.allocation(allocation) else { return };
        if !allocation_ends::ended_all_processes(&row) {
            return;
        }
        let inside = self.sessions.iter().filter(|(_, session)| session.allocation == Some(allocation));
        let mut gone: Vec<WorkerId> = inside.map(|(worker, _)| *worker).collect();
        gone.sort_unstable();
        for worker in gone {
            // Which of its jobs is to blame, if any is, nobody saw.
            self.on_worker_lost(worker, &allocation_ends::describe_end(&row), CrashEvidence::Unconfirmed);
        }
    }

    /// The end of the allocation that a worker was in, if no job is to blame for it.
    pub(super) fn eviction_of(&self, allocation: Option<AllocationId>) -> Option<AllocationEviction> {
        // If the books cannot be read now, its jobs run again all the same.
        self.store
            .allocation(allocation?)
            .ok()
            .flatten()
            .as_ref()
            .and_then(AllocationEviction::from_allocation)
    }

    /// Steps of Slurm may outlive the worker that began them: what it held goes to nobody before they are gone. `true`: whoever
    /// sees to that has been told.
    pub(super) fn start_fencing(&mut self, worker: WorkerId) -> bool {
        let Some(told) = self.options.on_silent_worker.clone() else { return false };
        let silent = match self.find_silent_worker(worker) {
            Ok(None) => return false,
            Ok(Some(silent)) => silent,
            Err(HoldersUnavailable) => {
                let then = self.now.instant + FENCING_RETRY_DELAY;
                return self.sessions.get_mut(&worker).map(|session| session.lease_until = then).is_some();
            }
        };
        // It may speak up meanwhile, and then hears that it has lost everything.
        self.require_registration(worker);
        let patience = self.now.instant + FENCING_TIMEOUT;
        let Some(session) = self.sessions.get_mut(&worker) else { return false };
        (session.is_given_up, session.lease_until) = (true, patience);
        told(silent);
        true
    }

    /// What a worker may have left in Slurm, if nobody was told of it yet.
    fn find_silent_worker(&self, worker: WorkerId) -> Result<Option<SilentWorker>, HoldersUnavailable> {
        let Some(session) = self.sessions.get(&worker).filter(|session| !session.is_given_up) else {
            return Ok(None);
        };
        let Some(allocation) = session.allocation else { return Ok(None) };
        if session
            .held_jobs
            .values()
            .any(|workflow| matches!(self.workflows.get(workflow), Some(WorkflowSlot::Suspended(_))))
        {
            return Err(HoldersUnavailable);
        }
        let key = |(job, workflow): (&JobId, &WorkflowId)| {
            let Some(WorkflowSlot::Active(active)) = self.workflows.get(workflow) else { return None };
            let hold = active.held_jobs.get(job).filter(|hold| hold.is_sent)?;
            let (run, attempt) = (active.row.run_id, hold.attempt);
            Some((active, AttemptKey { workflow: *workflow, job: *job, run, attempt }))
        };
        let Some(row) = self.store.allocation(allocation).map_err(|_| HoldersUnavailable)? else {
            return Ok(None);
        };
        let as_steps = |active: &ActiveWorkflow| {
            runs_as_steps(active.row.settings.execution_config.as_ref(), row.request.nodes as usize)
        };
        let held = session.held_jobs.iter().filter_map(key).filter(|(active, _)| as_steps(active));
        let mut held: Vec<AttemptKey> = held.map(|(_, key)| key).collect();
        held.sort_unstable();
        Ok((!held.is_empty()).then_some(SilentWorker { worker, allocation, held_attempts: held }))
    }

    /// Nothing of it runs any more.
    pub(super) fn on_worker_fenced(&mut self, worker: WorkerId) {
        if self.sessions.get(&worker).is_some_and(|session| session.is_given_up) {
            self.on_lease_expired(worker);
        }
    }

    /// Nothing that is left of its only workflow would ever fit a worker in an allocation, which holds nothing: its node is
    /// kept for nobody. Where jobs add others nobody knows what comes.
    pub(super) fn is_unneeded(&self, worker: WorkerId) -> bool {
        let Some(session) = self.sessions.get(&worker).filter(|session| session.allocation.is_some()) else {
            return false;
        };
        let Some(WorkflowSlot::Active(active)) =
            session.bound_workflow.and_then(|bound| self.workflows.get(&bound))
        else {
            return false;
        };
        let is_free =
            session.held_jobs.is_empty() && session.actions.is_empty() && session.reserved_for.is_none();
        // When all jobs are over, actions may still be for it.
        let is_under_way =
            active.is_active && !active.state.is_finished() && !active.actions.states.has_unexecuted_action();
        is_free && is_under_way && !active.has_added_jobs && !active.state.has_work_for(&session.usage)
    }

    /// The last job of a kind is over: workers may have nothing to stay for.
    pub(super) fn dismiss_idle_workers(&mut self, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow) else { return };
        let done = active.state.emptied_demand_count();
        if std::mem::replace(&mut active.job_groups_done, done) != done {
            self.notify_bound_workers(workflow);
        }
    }

    pub(super) fn on_allocation_end_time(&mut self, allocation: AllocationId, ends_at: Timestamp) {
        let Some(end) = self.to_instant(ends_at) else { return };
        let inside = self.sessions.iter_mut().filter(|(_, session)| session.allocation == Some(allocation));
        let told: Vec<WorkerId> = inside
            .map(|(worker, session)| {
                session.outbox.allocation_end = Some(end);
                *worker
            })
            .collect();
        self.dirty_workers.extend(told);
    }

    /// Whoever comes, or comes back, may have missed that its allocation ends at another time than Slurm said at its start. A
    /// time that is past says nothing: it has been changed since, and whoever talks to Slurm will tell.
    pub(super) fn send_allocation_end(&mut self, worker: WorkerId, row: &Allocation) {
        let end = row.ends_at.filter(|at| *at > self.now.timestamp).and_then(|at| self.to_instant(at));
        if let Some(session) = self.sessions.get_mut(&worker) {
            session.allocation = Some(row.id);
            session.scheduler = row.scheduler;
            session.outbox.allocation_end = end.or(session.outbox.allocation_end);
        }
    }

    fn to_instant(&self, at: Timestamp) -> Option<Instant> {
        self.now.instant.checked_add(at.since(self.now.timestamp))
    }
}
