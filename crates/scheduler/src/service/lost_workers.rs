//! Workers that leave, are considered lost, or are declared dead, and what happens to their jobs.

use super::call_types::{CallError, CallReply};
use super::metrics::add_to_gauge;
use super::scheduler::{Scheduler, WorkflowSlot, store_call_error};
use super::scheduler_call::CommitCallback;
use super::worker_session::WorkerSession;
use crate::crash_suspects;
use std::time::Instant;
use windlass_core::crash_suspects::{CrashEvidence, JobPhaseAtCrash};
use windlass_core::slurm::allocation_ends::AllocationEviction;
use windlass_core::workflow_state::{OrphanDecision, OrphanedAttempt};
use windlass_store::model::{EventSeverity, NewEvent, WorkerUpdate};
use windlass_types::{JobId, WorkerId, WorkflowId};

/// The cause of the loss of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkerLossCause {
    /// With this evidence against the jobs that ran there.
    Died(CrashEvidence),
    Evicted(AllocationEviction),
}

impl Scheduler {
    /// Drains a worker: it accepts no more jobs, completes those it has, and leaves.
    pub(super) fn on_drain(&mut self, worker: WorkerId, reply: CallReply<()>) {
        let Some(session) = self.sessions.get_mut(&worker) else {
            return reply(Err(CallError::NotFound(format!("worker {worker} is not connected"))));
        };
        session.is_to_drain = true;
        session.outbox.has_session_change = true;
        self.release_reserved_worker(worker);
        self.dirty_workers.insert(worker);
        let update = WorkerUpdate { is_draining: Some(true), ..WorkerUpdate::default() };
        let noted = self.store.update_worker(worker, &update, self.now.timestamp);
        reply(noted.map_err(|error| store_call_error(&error)));
    }

    /// Handles the last exchange of a worker: it holds nothing and is gone after this.
    pub(super) fn on_leaving(&mut self, worker: WorkerId, number: u64) {
        let Some(session) = self.sessions.get_mut(&worker) else { return };
        session.has_left = true;
        self.pending_retirements.entry(worker).or_default();
        let action_assignments = std::mem::take(&mut session.actions);
        let mut held: Vec<(JobId, WorkflowId)> =
            session.held_jobs.iter().map(|(job, id)| (*job, *id)).collect();
        held.sort_unstable();
        self.lose_action_assignments(worker, action_assignments);
        for (job, workflow) in held {
            if let Some(session) = self.sessions.get_mut(&worker) {
                session.release_job(job);
            }
            let Some(active) = self.find_workflow(workflow) else { continue };
            let Some(index) = active.state.job_index(job) else { continue };
            let lost = active.held_jobs.remove(&job).map(|hold| hold.orphaned_attempt()).unwrap_or_default();
            let decision = if lost.started_at.is_some() {
                OrphanDecision::RunAgain(None)
            } else {
                OrphanDecision::NeverStarted
            };
            self.orphan_job(workflow, index, worker, decision, lost);
            self.wait_for_commit(worker, number, workflow);
        }
    }

    /// Handles a lost worker: all jobs that it may have started are orphans.
    pub(super) fn on_worker_lost(&mut self, worker: WorkerId, why: &str, evidence: CrashEvidence) {
        let Some(mut session) = self.sessions.remove(&worker) else { return };
        self.leave_node(&session, worker);
        self.pending_retirements.entry(worker).or_default();
        if let Some(group) = session.group {
            self.groups.remove_worker(group, worker, session.last_served_turn);
        }
        for reply in session.exchanges.reset() {
            let detail = format!("worker {worker} is considered lost: {why}");
            reply(Err(CallError::Conflict { code: "unknown_worker", detail }));
        }
        if let Some(active) = session.reserved_for.and_then(|workflow| self.find_workflow(workflow)) {
            active.reserved_worker = None;
        }
        add_to_gauge(&self.gauges.lost_workers, 1);
        let mut held: Vec<(WorkflowId, JobId)> =
            session.held_jobs.iter().map(|(job, id)| (*id, *job)).collect();
        held.sort_unstable();
        let by = match self.eviction_of(session.allocation).filter(|_| !held.is_empty()) {
            Some(eviction) => WorkerLossCause::Evicted(eviction),
            None => WorkerLossCause::Died(evidence),
        };
        for (workflow, job) in held {
            let is_running = session.usage.is_running(job);
            self.orphan_held_job(workflow, job, worker, is_running, by);
        }
        self.lose_action_assignments(worker, session.actions);
        self.record_worker_loss(worker, why);
    }

    /// Handles a worker without contact for longer than its lease.
    pub(super) fn on_lease_expired(&mut self, worker: WorkerId) {
        if self.start_fencing(worker) {
            return;
        }
        let evidence = if self.are_other_workers_silent(worker) {
            CrashEvidence::Unconfirmed
        } else {
            CrashEvidence::LostContact
        };
        self.last_lease_expiry = Some(self.now.instant);
        let was_only_away = self.sessions.get(&worker).is_some_and(|session| session.has_returned);
        self.on_worker_lost(worker, "its lease expired", evidence);
        if was_only_away {
            self.on_lost_worker_returned(worker);
        }
    }

    /// Whether another worker was lost recently or is silent: then a common cause is more likely than a job.
    fn are_other_workers_silent(&self, worker: WorkerId) -> bool {
        let lease = self.options.lease;
        let since = |past: Instant| self.now.instant.saturating_duration_since(past);
        let full = self.lease_from_now();
        // A worker with contact calls three times within its lease.
        let is_quiet = |session: &WorkerSession| {
            session.is_given_up || full.saturating_duration_since(session.lease_until) > lease / 2
        };
        self.last_lease_expiry.is_some_and(|last| since(last) < lease)
            || self.sessions.iter().any(|(id, session)| *id != worker && is_quiet(session))
    }

    fn record_worker_loss(&self, worker: WorkerId, why: &str) {
        let event = NewEvent {
            workflow: None,
            job: None,
            severity: EventSeverity::Warning,
            category: "worker_lost".to_owned(),
            message: format!("worker {worker} is considered lost: {why}"),
            data: Some(serde_json::json!({ "worker_id": worker })),
        };
        // If this fails, the results of its jobs still record the loss.
        drop(self.store.add_event(&event, self.now.timestamp));
        self.notify_commit();
    }

    /// A worker that was considered lost has returned: withdraws the evidence that its silence was against
    /// jobs.
    pub(super) fn on_lost_worker_returned(&mut self, worker: WorkerId) {
        let mut concerned = Vec::new();
        for (id, slot) in &mut self.workflows {
            let WorkflowSlot::Active(active) = slot else {
                // The next load of its rows finds the event.
                concerned.push(*id);
                continue;
            };
            let cleared = active.crash_suspects.withdraw_evidence(worker);
            if cleared.is_empty() {
                continue;
            }
            concerned.push(*id);
            self.dirty_workflows.insert(*id);
            for job in cleared.into_iter().filter(|job| !active.crash_suspects.is_suspicious(*job)) {
                if let Some(index) = active.state.job_index(job) {
                    active.state.clear_isolation(index);
                }
            }
        }
        for workflow in concerned {
            // Without the event a restarted server keeps evidence that this one has withdrawn: no more than
            // that.
            drop(
                self.store
                    .add_event(&crash_suspects::worker_returned_event(workflow, worker), self.now.timestamp),
            );
            self.notify_commit();
        }
    }

    /// Handles one job that a lost worker held. Returns what becomes of it.
    pub(super) fn orphan_held_job(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        worker: WorkerId,
        is_running: bool,
        by: WorkerLossCause,
    ) -> Option<OrphanDecision> {
        let active = self.find_workflow(workflow)?;
        let index = active.state.job_index(job)?;
        let hold = active.held_jobs.get(&job).copied().filter(|hold| hold.worker == worker)?;
        active.held_jobs.remove(&job);
        let at = match () {
            () if !hold.is_sent => JobPhaseAtCrash::NotStarted,
            () if active.state.is_running_isolated(index) => JobPhaseAtCrash::Isolated,
            () if is_running || hold.started_at.is_some() => JobPhaseAtCrash::Running,
            () => JobPhaseAtCrash::Waiting,
        };
        let decision = match by {
            WorkerLossCause::Died(evidence) => {
                active.crash_suspects.on_worker_death(job, worker, at, evidence)
            }
            WorkerLossCause::Evicted(_) if at == JobPhaseAtCrash::NotStarted => OrphanDecision::NeverStarted,
            WorkerLossCause::Evicted(eviction) => OrphanDecision::Evicted(eviction),
        };
        self.orphan_job(workflow, index, worker, decision, hold.orphaned_attempt());
        Some(decision)
    }

    /// Applies the decision about an orphaned job; it is committed with the next batch of its workflow.
    pub(super) fn orphan_job(
        &mut self,
        workflow: WorkflowId,
        job: u32,
        worker: WorkerId,
        decision: OrphanDecision,
        lost: OrphanedAttempt,
    ) {
        let now = self.now.timestamp;
        let Some(active) = self.find_workflow(workflow) else { return };
        let key = active.state.attempt_key(job);
        active.state.on_orphaned(job, worker, decision, lost, now, &mut active.open_batch.changes);
        if active.state.status(job).is_settled() {
            active.ended_attempts.push(key);
        }
        active.open_batch.claimed_jobs.retain(|claimed| claimed.key.job != key.job);
        self.await_commit_before_retiring(worker, workflow);
        if decision != OrphanDecision::NeverStarted {
            add_to_gauge(&self.gauges.orphaned_attempts, 1);
        }
        self.dirty_workflows.insert(workflow);
    }

    /// A lost worker must not be retired before the changes of its jobs in this workflow are committed.
    pub(super) fn await_commit_before_retiring(&mut self, worker: WorkerId, workflow: WorkflowId) {
        if self.pending_retirements.contains_key(&worker)
            && let Some(active) = self.find_workflow(workflow)
            && !active.open_batch.gone_workers.contains(&worker)
        {
            active.open_batch.gone_workers.push(worker);
            *self.pending_retirements.entry(worker).or_default() += 1;
        }
        self.dirty_workflows.insert(workflow);
    }

    /// Ends the reservation of a worker that accepts no more jobs; another one has to be reserved.
    pub(super) fn release_reserved_worker(&mut self, worker: WorkerId) {
        let reserved = self.sessions.get_mut(&worker).and_then(|session| session.reserved_for.take());
        if let Some(active) = reserved.and_then(|workflow| self.find_workflow(workflow)) {
            active.reserved_worker = None;
            let id = active.id();
            self.dirty_workflows.insert(id);
        }
    }

    /// A caller declares the worker dead: a remote one, a Torc runner, or a local one of an earlier run.
    pub(super) fn on_retire(&mut self, worker: WorkerId, by: &str, reply: CallReply<()>) {
        if self.sessions.contains_key(&worker) {
            self.on_worker_lost(worker, &format!("declared dead by {by}"), CrashEvidence::Unconfirmed);
            return self.reply_when_jobs_committed(worker, reply);
        }
        match self.store.worker(worker) {
            Ok(Some(row)) if row.ended_at.is_none() => {
                self.on_unleased_worker_lost(worker, row.worker.workflow);
                self.reply_when_jobs_committed(worker, reply);
            }
            Ok(Some(_)) => reply(Ok(())),
            Ok(None) => reply(Err(CallError::NotFound(format!("there is no worker {worker}")))),
            Err(error) => reply(Err(store_call_error(&error))),
        }
    }

    /// Handles the loss of a worker without a lease; it held jobs of one workflow at most.
    pub(super) fn on_unleased_worker_lost(&mut self, worker: WorkerId, workflow: Option<WorkflowId>) {
        self.pending_retirements.entry(worker).or_default();
        let Some(workflow) = workflow else { return };
        let Ok(active) = self.open_workflow(workflow) else { return };
        for job in active.held_by(worker) {
            let is_running = self
                .find_workflow(workflow)
                .and_then(|active| active.held_jobs.get(&job)?.started_at)
                .is_some();
            self.orphan_held_job(
                workflow,
                job,
                worker,
                is_running,
                WorkerLossCause::Died(CrashEvidence::Unconfirmed),
            );
        }
        self.lose_unleased_actions(worker, workflow);
    }

    /// Replies when the changes of the worker's jobs are committed.
    fn reply_when_jobs_committed(&mut self, worker: WorkerId, reply: CallReply<()>) {
        let rests_on = self.workflows.values_mut().find_map(|slot| match slot {
            WorkflowSlot::Active(active) if active.open_batch.gone_workers.contains(&worker) => Some(active),
            _ => None,
        });
        match rests_on {
            Some(active) => active.open_batch.callbacks.push(reply as CommitCallback),
            None => reply(Ok(())),
        }
    }

    /// Retires lost workers in the database after the changes of their jobs are committed.
    pub(super) fn retire_gone_workers(&mut self) {
        let ready: Vec<WorkerId> = self
            .pending_retirements
            .iter()
            .filter(|(_, owes)| **owes == 0)
            .map(|(worker, _)| *worker)
            .collect();
        for worker in ready {
            let waits = self
                .sessions
                .get(&worker)
                .is_some_and(|session| session.exchanges.count_waiting_callers() > 0);
            if waits {
                // Its last exchange gets a reply first.
                self.dirty_workers.insert(worker);
                continue;
            }
            match self.store.retire_worker(worker, self.now.timestamp) {
                Err(error) if error.is_transient() => {}
                // Retired already, or deleted: no difference.
                Ok(()) | Err(_) => {
                    self.pending_retirements.remove(&worker);
                    self.notify_commit();
                    let Some(session) = self.sessions.remove(&worker) else { continue };
                    self.leave_node(&session, worker);
                    if let Some(group) = session.group {
                        self.groups.remove_worker(group, worker, session.last_served_turn);
                    }
                }
            }
        }
    }
}
