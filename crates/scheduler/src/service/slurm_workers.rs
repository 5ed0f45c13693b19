//! Workers in Slurm allocations: which of them may work, and what they learn about the end of the allocation.

use super::WorkflowPredicate;
use super::active_workflow::ActiveWorkflow;
use super::call_types::{CallError, UnreachableAllocationWorker};
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

/// How long the reassignment of jobs waits for steps that a worker may have left in Slurm: longer than the
/// largest pause of the allocation reconciler. After that it is more likely that the state is unknowable than
/// that a step still runs.
pub const FENCING_TIMEOUT: Duration = Duration::from_mins(10);
/// The delay before the next check if the held jobs are not available.
const FENCING_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The jobs that a silent worker holds are not available now.
struct HoldersUnavailable;

impl Scheduler {
    /// The allocation of the worker. Fails if it has ended or belongs to another Slurm job; one of a workflow
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
                // The allocation reconciler was faster; the next try finds its changes.
                StoreError::Unexpected { .. } => unavailable_error("the allocation has just changed"),
                error => store_call_error(&error),
            })?;
            self.notify_commit();
            // It belongs to an earlier run of the Slurm job, if set.
            row.ends_at = None;
        }
        Ok(Some(row))
    }

    /// Handles the end of an allocation: its workers are lost, regardless of their leases; unless Slurm may
    /// only have lost contact. Workers that were asked to leave have signed off, and hold nothing.
    pub(super) fn on_allocation_ended(&mut self, allocation: AllocationId) {
        let Ok(Some(row)) = self.store.allocation(allocation) else { return };
        if !allocation_ends::ended_all_processes(&row) {
            return;
        }
        let inside = self.sessions.iter().filter(|(_, session)| session.allocation == Some(allocation));
        let mut gone: Vec<WorkerId> = inside.map(|(worker, _)| *worker).collect();
        gone.sort_unstable();
        for worker in gone {
            // It is unknown which of its jobs is the cause, if any.
            self.on_worker_lost(worker, &allocation_ends::describe_end(&row), CrashEvidence::Unconfirmed);
        }
    }

    /// The eviction of a worker by the end of its allocation, if no job caused that.
    pub(super) fn eviction_of(&self, allocation: Option<AllocationId>) -> Option<AllocationEviction> {
        // If the database cannot be read now, its jobs run again all the same.
        self.store
            .allocation(allocation?)
            .ok()
            .flatten()
            .as_ref()
            .and_then(AllocationEviction::from_allocation)
    }

    /// Slurm steps may outlive their worker: its jobs are not reassigned before the steps are gone. `true`:
    /// fencing was requested.
    pub(super) fn start_fencing(&mut self, worker: WorkerId) -> bool {
        let Some(notify) = self.options.on_silent_worker.clone() else { return false };
        let silent = match self.find_silent_worker(worker) {
            Ok(None) => return false,
            Ok(Some(silent)) => silent,
            Err(HoldersUnavailable) => {
                let then = self.now.instant + FENCING_RETRY_DELAY;
                return self.sessions.get_mut(&worker).map(|session| session.lease_until = then).is_some();
            }
        };
        // If it returns in the meantime, it learns that it has lost all its jobs.
        self.require_registration(worker);
        let max_wait = self.now.instant + FENCING_TIMEOUT;
        let Some(session) = self.sessions.get_mut(&worker) else { return false };
        (session.is_given_up, session.lease_until) = (true, max_wait);
        notify(silent);
        true
    }

    /// The attempts that a worker may have left in Slurm, if not reported yet.
    fn find_silent_worker(
        &self,
        worker: WorkerId,
    ) -> Result<Option<UnreachableAllocationWorker>, HoldersUnavailable> {
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
        Ok((!held.is_empty()).then_some(UnreachableAllocationWorker {
            worker,
            allocation,
            held_attempts: held,
        }))
    }

    /// Nothing of the worker runs any more.
    pub(super) fn on_worker_fenced(&mut self, worker: WorkerId) {
        if self.sessions.get(&worker).is_some_and(|session| session.is_given_up) {
            self.on_lease_expired(worker);
        }
    }

    /// Whether an idle worker in an allocation is not needed: no remaining job of its only workflow would fit
    /// it. Never if jobs add others, because those are unknown.
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
        // When all jobs are settled, there may still be actions for it.
        let is_under_way =
            active.is_active && !active.state.is_finished() && !active.actions.states.has_unexecuted_action();
        is_free && is_under_way && !active.has_added_jobs && !active.state.has_work_for(&session.usage)
    }

    /// Checks, when the last job of a group has settled, whether workers are unneeded.
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
        let workers: Vec<WorkerId> = inside
            .map(|(worker, session)| {
                session.outbox.allocation_end = Some(end);
                *worker
            })
            .collect();
        self.dirty_workers.extend(workers);
    }

    /// Sends the changed end of its allocation to a worker that registers, which may have missed it. An end in
    /// the past is outdated; the allocation reconciler will send the current one.
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
