//! Decides when changes are committed, and performs their effects after the commit.

use super::actions::workflow_setup;
use super::active_workflow::{WorkflowBatch, WorkflowCommit};
use super::exchange_sequence::CommitTicket;
use super::metrics::add_to_gauge;
use super::scheduler::{STORE_RETRY_DELAY, Scheduler, WorkflowSlot};
use super::scheduler_call::SchedulerEvent;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::change::{ActionChange, WorkflowChange};
use windlass_store::{ChangeBatch, StoreError};
use windlass_types::worker_messages::Assignment;
use windlass_types::{WorkerId, WorkflowId};

impl Scheduler {
    /// Submits the open batch of a workflow, unless a commit is under way: then it collects further changes.
    pub(super) fn submit_batch(&mut self, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow) else { return };
        if active.in_flight.is_some() || active.open_batch.is_empty() || active.awaits_added_jobs {
            return;
        }
        if !self.delays_commit(workflow) {
            self.submit_open_batch(workflow);
        }
    }

    pub(super) fn submit_open_batch(&mut self, workflow: WorkflowId) {
        self.load_claimed_jobs(workflow);
        self.count_attempts_by_site(workflow);
        let Some(active) = self.find_workflow(workflow) else { return };
        let mut then = std::mem::take(&mut active.open_batch);
        let changes: Arc<[_]> = std::mem::take(&mut then.changes).into();
        active.add_wall_time(&changes);
        active.batch_open_since = None;
        active.in_flight = Some(WorkflowCommit { changes, batch: then, retry_at: None });
        self.submit_commit(workflow);
    }

    /// Adds the number of attempts that ended per site and job to the commit, for observers of workflows with
    /// units.
    fn count_attempts_by_site(&mut self, workflow: WorkflowId) {
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let Some(WorkflowSlot::Active(active)) = slots.get_mut(&workflow) else { return };
        if !active.state.has_units() {
            return;
        }
        let mut ended: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for change in &active.open_batch.changes {
            let WorkflowChange::End { result, orphaned: false, .. } = change else { continue };
            if let Some(site) = worker_sessions.get(&result.worker).and_then(|session| session.usage.site()) {
                let job = active.state.job_index(result.key.job);
                let handler = job.and_then(|job| active.state.handler_name(job)).unwrap_or_default();
                *ended.entry((site, handler)).or_default() += 1;
            }
        }
        let counts = ended.into_iter().map(|((site, handler), attempts)| WorkflowChange::CountSiteAttempts {
            site: site.to_owned(),
            handler: handler.to_owned(),
            attempts,
        });
        let counts: Vec<WorkflowChange> = counts.collect();
        active.open_batch.changes.extend(counts);
    }

    pub(super) fn submit_commit(&mut self, workflow: WorkflowId) {
        let sender = self.sender.clone();
        let Some(active) = self.find_workflow(workflow) else { return };
        let Some(batch) = &active.in_flight else { return };
        let (generation, run, changes) = (active.generation, active.row.run_id, Arc::clone(&batch.changes));
        let done = move |result| {
            // The receiver is gone only after everything was committed.
            drop(sender.send(SchedulerEvent::Committed { workflow, generation, result }));
        };
        if changes.is_empty() {
            // The caller waits for changes that are already on disk.
            done(Ok(()));
        } else {
            self.store.submit(ChangeBatch { workflow, run, changes }, Box::new(done));
        }
        self.gauges.record_batch_submitted(self.now.timestamp);
        self.panic_history.unanswered_batches += 1;
    }

    pub(super) fn on_committed(
        &mut self,
        workflow: WorkflowId,
        generation: u64,
        result: Result<(), StoreError>,
    ) {
        let retry_at = self.now.instant + STORE_RETRY_DELAY;
        let gets_on = !result.as_ref().is_err_and(StoreError::is_transient);
        self.gauges.record_batch_answered(gets_on, self.now.timestamp);
        let is_local_run = self.local_run.is_some();
        let Some(active) = self.find_workflow(workflow).filter(|active| active.generation == generation)
        else {
            return;
        };
        match result {
            Ok(()) => {
                let Some(batch) = active.in_flight.take() else { return };
                let of_units = active.state.has_units() && batch.changes.iter().any(changes_units);
                let is_due = batch.changes.iter().any(triggers_action);
                add_to_gauge(&self.gauges.commits, 1);
                self.dirty_workflows.insert(workflow);
                self.notify_commit();
                if of_units || is_due {
                    self.notify_workflow_change(workflow);
                }
                self.perform_batch(workflow, batch.batch);
            }
            Err(error) if error.is_transient() => {
                if let Some(batch) = &mut active.in_flight {
                    batch.retry_at = Some(retry_at);
                }
                add_to_gauge(&self.gauges.refused_commits, 1);
                self.workflows_to_retry.insert(workflow);
                self.report_store_error(error);
            }
            Err(error) if is_local_run => {
                if let Some(batch) = &mut active.in_flight {
                    batch.retry_at = Some(retry_at);
                }
                self.report_store_error(error);
            }
            Err(error) => self.reload_after_refusal(workflow, &error),
        }
    }

    /// Performs the effects of a committed batch.
    fn perform_batch(&mut self, workflow: WorkflowId, done: WorkflowBatch) {
        for (worker, assignment) in done.assignments {
            self.dispatch_assignment(workflow, worker, assignment);
        }
        for (worker, order) in done.action_commands {
            self.dispatch_action(workflow, worker, order);
        }
        for ticket in done.tickets {
            self.on_ticket_committed(ticket);
        }
        if let Some(local_run) = &mut self.local_run {
            local_run.attempt_ends.extend(done.attempt_ends);
        }
        for worker in done.gone_workers {
            self.on_lost_worker_settled(worker);
        }
        // A caller that waits for the end reads the database next, so the end has to be recorded first.
        self.finish_if_over(workflow);
        for callback in done.callbacks {
            callback(Ok(()));
        }
        self.reload_if_outdated(workflow);
        self.resume_waiting_calls(workflow);
    }

    /// A commit that a reply depends on is done.
    pub(super) fn on_ticket_committed(&mut self, ticket: CommitTicket) {
        if let Some(session) = self.sessions.get_mut(&ticket.worker) {
            session.exchanges.complete_commit(ticket);
            self.dirty_workers.insert(ticket.worker);
        }
    }

    /// One workflow less has uncommitted changes of a lost worker.
    pub(super) fn on_lost_worker_settled(&mut self, worker: WorkerId) {
        if let Some(owes) = self.pending_retirements.get_mut(&worker) {
            *owes = owes.saturating_sub(1);
        }
    }

    /// Sends a committed claim, if it still belongs to the worker and the workflow still needs it.
    pub(super) fn dispatch_assignment(
        &mut self,
        workflow: WorkflowId,
        worker: WorkerId,
        assignment: Assignment,
    ) {
        let Self { workflows: slots, sessions: worker_sessions, dirty_workers, .. } = self;
        let Some(WorkflowSlot::Active(active)) = slots.get_mut(&workflow) else { return };
        let Ok(job) = active.check_fencing(worker, &assignment.key) else { return };
        let Some(session) = worker_sessions.get_mut(&worker) else { return };
        if active.is_canceled || session.is_leaving() {
            active.held_jobs.remove(&assignment.key.job);
            session.release_job(assignment.key.job);
            self.orphan_job(
                workflow,
                job,
                worker,
                windlass_core::workflow_state::OrphanDecision::NeverStarted,
                windlass_core::workflow_state::OrphanedAttempt::default(),
            );
            return;
        }
        session.queue_assignment(assignment, || workflow_setup(active));
        dirty_workers.insert(worker);
    }
}

/// Whether observers of units have to be notified: a unit changed, or an attempt in one failed.
fn changes_units(change: &WorkflowChange) -> bool {
    matches!(change, WorkflowChange::Unit(_) | WorkflowChange::End { failure: Some(_), .. })
}

/// Whether observers of actions have to be notified: one is due.
fn triggers_action(change: &WorkflowChange) -> bool {
    matches!(change, WorkflowChange::Action(ActionChange::Triggered { is_due: true, .. }))
}
