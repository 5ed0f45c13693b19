//! Actions of workflows: which worker runs them, and what happens to them when it is lost.
//!
//! A worker *joins* a workflow with the first job or action that it gets; actions that run once per worker are
//! for workers that have joined. The start of an execution is on disk before it is sent to its worker. If the
//! worker is lost, an execution that was never sent goes to another worker; any other is interrupted and not
//! repeated automatically, since it may be partly done.
//!
//! Clients of the contract claim actions themselves and do not report their results.

use super::active_workflow::ActiveWorkflow;
use super::call_types::{CallError, CallReply};
use super::scheduler::{Scheduler, WorkflowSlot, store_call_error};
use super::worker_session::WorkerSession;
use crate::action_schedule::ActionSchedule;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::actions::{ActionRunKey, WorkerStage};
use windlass_core::change::{ActionChange, WorkflowChange};
use windlass_core::node_quarantine::NodeEligibility;
use windlass_store::Store;
use windlass_store::model::{ActionRow, WorkerFilter, WorkerKind};
use windlass_types::settings::ActionTrigger;
use windlass_types::worker_protocol::{ActionCommand, ActionReport, WorkflowSetup};
use windlass_types::{WorkerId, WorkflowId};

impl Scheduler {
    /// Counts the triggers of actions: changes of jobs, and of the workflow as a whole.
    pub(super) fn count_action_triggers(&mut self, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow).filter(|active| !active.actions.states.is_empty())
        else {
            return;
        };
        if !active.may_run_actions() {
            // Later the current job states are counted instead of the changes.
            active.are_jobs_counted = false;
            return;
        }
        if std::mem::replace(&mut active.are_jobs_counted, true) {
            active.actions.states.count_changes(&mut active.open_batch.changes);
        } else {
            active.actions.count_job_triggers(&active.state, &mut active.open_batch.changes);
        }
        active.actions.states.on_trigger(ActionTrigger::OnWorkflowStart, &mut active.open_batch.changes);
        if active.has_no_jobs_left() {
            active
                .actions
                .states
                .on_trigger(ActionTrigger::OnWorkflowComplete, &mut active.open_batch.changes);
            if !active.joined_workers.is_empty() {
                active
                    .actions
                    .states
                    .on_trigger(ActionTrigger::OnWorkerComplete, &mut active.open_batch.changes);
            }
        }
    }

    /// Offers due actions of a workflow to workers: first to those that have joined it.
    pub(super) fn find_workers_for_actions(&mut self, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow).filter(|active| active.may_run_actions()) else {
            return;
        };
        if !active.actions.states.has_due_action() {
            return;
        }
        let mut candidates: Vec<WorkerId> = active.joined_workers.iter().copied().collect();
        if active.actions.states.has_unexecuted_action() {
            let joined = active.joined_workers.clone();
            let others = self.groups.workers_for(workflow).into_iter();
            candidates.extend(others.filter(|worker| !joined.contains(worker)));
        }
        for worker in candidates {
            self.offer_action(worker, workflow);
        }
    }

    /// Offers due actions of all permitted workflows to a worker.
    pub(super) fn find_actions_for_worker(&mut self, worker: WorkerId) {
        let Some(group) = self.sessions.get(&worker).and_then(|session| session.group) else { return };
        for workflow in self.workflows_with_actions.iter().copied().collect::<Vec<_>>() {
            let Some(active) = self.find_workflow(workflow) else {
                self.workflows_with_actions.remove(&workflow);
                continue;
            };
            let is_any_due = active.may_run_actions() && active.actions.states.has_due_action();
            if is_any_due && self.groups.may_work_for(group, workflow) {
                self.offer_action(worker, workflow);
            }
        }
    }

    /// Gives the worker the next action of the workflow, if one is for it.
    fn offer_action(&mut self, worker: WorkerId, workflow: WorkflowId) {
        let Some(session) = self.sessions.get(&worker).filter(|session| session.may_take_actions()) else {
            return;
        };
        let is_quarantined = session.standing == NodeEligibility::Quarantined;
        let Some(active) = self.find_workflow(workflow) else { return };
        let is_over = active.has_no_jobs_left() && active.actions.states.has_only_worker_end_actions();
        let stage = if is_over { WorkerStage::Leaving } else { WorkerStage::Working };
        if !active.joined_workers.contains(&worker) {
            if is_quarantined || !active.actions.states.needs_worker(worker, stage) {
                return;
            }
            active.add_worker(worker);
        }
        self.start_action(worker, workflow, stage);
    }

    /// Whether jobs of the workflow have to wait for actions before this worker's first job. If so, starts the
    /// first one.
    pub(super) fn start_first_action(&mut self, worker: WorkerId, workflow: WorkflowId) -> bool {
        let Some(active) = self.find_workflow(workflow).filter(|active| !active.actions.states.is_empty())
        else {
            return false;
        };
        active.add_worker(worker);
        self.start_action(worker, workflow, WorkerStage::Working);
        self.find_workflow(workflow).is_some_and(|active| active.actions.states.blocks_jobs(Some(worker)))
    }

    /// Starts the actions at the end of a worker that wants to leave. `true`: there are some.
    pub(super) fn start_final_actions(&mut self, worker: WorkerId) -> bool {
        if self.sessions.get(&worker).is_none_or(|session| session.has_successor) {
            return false;
        }
        let mut stays = false;
        for workflow in self.workflows_with_actions.iter().copied().collect::<Vec<_>>() {
            let Some(active) = self.find_workflow(workflow) else { continue };
            if active.may_run_actions() && active.joined_workers.contains(&worker) {
                active
                    .actions
                    .states
                    .on_trigger(ActionTrigger::OnWorkerComplete, &mut active.open_batch.changes);
                stays |= self.start_action(worker, workflow, WorkerStage::Leaving);
            }
        }
        stays
    }

    /// Starts the next action for this worker, if any: it is sent after the commit.
    fn start_action(&mut self, worker: WorkerId, workflow: WorkflowId, stage: WorkerStage) -> bool {
        let now = self.now.timestamp;
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let (Some(WorkflowSlot::Active(active)), Some(session)) =
            (slots.get_mut(&workflow), worker_sessions.get_mut(&worker))
        else {
            return false;
        };
        let ActiveWorkflow { actions: schedule, row, open_batch: open, .. } = &mut **active;
        let Some(order) = schedule.start_next(row, Some(worker), stage, now, &mut open.changes) else {
            return false;
        };
        session.actions.insert((order.action, order.attempt), ActionAssignment { workflow, is_sent: false });
        open.action_commands.push((worker, order));
        // The worker's waiting exchange stays open for the action.
        let number = session.exchanges.newest_number();
        self.wait_for_commit(worker, number, workflow);
        self.dirty_workflows.insert(workflow);
        true
    }

    /// Sends an action whose start is committed, if the worker is still connected and the workflow still needs
    /// it.
    pub(super) fn dispatch_action(&mut self, workflow: WorkflowId, worker: WorkerId, order: ActionCommand) {
        let key = (order.action, order.attempt);
        let Self { workflows: slots, sessions: worker_sessions, dirty_workers, .. } = self;
        let Some(WorkflowSlot::Active(active)) = slots.get_mut(&workflow) else { return };
        if !active.record_action_site(key, worker) {
            return;
        }
        let Some(session) = worker_sessions.get_mut(&worker) else { return };
        if active.is_canceled || session.is_leaving() {
            session.actions.remove(&key);
            active.actions.states.withdraw_run(key, &mut active.open_batch.changes);
            self.dirty_workflows.insert(workflow);
            return;
        }
        session.queue_action(order, || workflow_setup(active));
        dirty_workers.insert(worker);
    }

    /// Handles results of actions. Those that do not belong to the worker (any more) are recorded as stale.
    pub(super) fn on_action_reports(&mut self, worker: WorkerId, number: u64, reports: Vec<ActionReport>) {
        let mut late = Vec::new();
        for report in reports {
            if self.apply_action_report(worker, report.clone()) {
                self.wait_for_commit(worker, number, report.workflow);
            } else {
                late.push(report);
            }
        }
        self.record_late_actions(worker, &late);
    }

    /// Applies a result, and keeps the report until the commit. `false`: it does not belong to the worker.
    pub(super) fn apply_action_report(&mut self, worker: WorkerId, report: ActionReport) -> bool {
        let (key, workflow) = ((report.action, report.attempt), report.workflow);
        let Some(active) =
            self.find_workflow(workflow).filter(|active| active.record_action_site(key, worker))
        else {
            return false;
        };
        let ActiveWorkflow { actions: schedule, open_batch: open, .. } = active;
        let (at, code, message) = (report.ended_at, Some(report.return_code), report.message.clone());
        schedule.states.end_run(key, at, code, message, &mut open.changes);
        open.action_reports.push((worker, report));
        if let Some(session) = self.sessions.get_mut(&worker) {
            session.actions.remove(&key);
        }
        self.dirty_workflows.insert(workflow);
        true
    }

    /// Handles the actions of a lost worker.
    pub(super) fn lose_action_assignments(
        &mut self,
        worker: WorkerId,
        action_assignments: impl IntoIterator<Item = (ActionRunKey, ActionAssignment)>,
    ) {
        let now = self.now.timestamp;
        for (key, action_assignment) in action_assignments {
            let Some(active) = self
                .find_workflow(action_assignment.workflow)
                .filter(|active| active.record_action_site(key, worker))
            else {
                continue;
            };
            let ActiveWorkflow { actions: schedule, open_batch: open, .. } = active;
            if action_assignment.is_sent {
                schedule.states.interrupt_run(key, now, &mut open.changes);
            } else {
                schedule.states.withdraw_run(key, &mut open.changes);
                open.action_commands.retain(|(_, order)| (order.action, order.attempt) != key);
            }
            self.await_commit_before_retiring(worker, action_assignment.workflow);
        }
    }

    /// The same for a worker without a lease.
    pub(super) fn lose_unleased_actions(&mut self, worker: WorkerId, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow) else { return };
        let action_assignment = ActionAssignment { workflow, is_sent: true };
        let own = active.actions.states.running_actions().filter(|(_, at)| *at == Some(worker));
        let action_assignments: Vec<(ActionRunKey, ActionAssignment)> =
            own.map(|(key, _)| (key, action_assignment)).collect();
        self.lose_action_assignments(worker, action_assignments);
    }

    /// Compares the actions that a returning worker has. Returns those that do not belong to it any more; sends
    /// again those that it never got.
    pub(super) fn restore_action_assignments(
        &mut self,
        worker: WorkerId,
        has: &[ActionRunKey],
    ) -> Vec<ActionRunKey> {
        let Some(session) = self.sessions.get(&worker) else { return has.to_vec() };
        let lost = has.iter().copied().filter(|key| !session.actions.contains_key(key)).collect();
        let unreported: Vec<(ActionRunKey, WorkflowId)> = session
            .actions
            .iter()
            // The successor of a dead worker runs no actions.
            .filter(|(key, _)| !has.contains(key) && !session.has_successor)
            .map(|(key, action_assignment)| (*key, action_assignment.workflow))
            .collect();
        for (key, workflow) in unreported {
            self.resend_action(worker, workflow, key);
        }
        lost
    }

    /// Sends an action that the worker never got: now, or after the commit.
    fn resend_action(&mut self, worker: WorkerId, workflow: WorkflowId, key: ActionRunKey) {
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let (Some(WorkflowSlot::Active(active)), Some(session)) =
            (slots.get(&workflow), worker_sessions.get_mut(&worker))
        else {
            return;
        };
        if let Some(action_assignment) = session.actions.get_mut(&key) {
            action_assignment.is_sent = false;
        }
        let is_on_its_way = |orders: &[(WorkerId, ActionCommand)]| {
            orders.iter().any(|(_, order)| (order.action, order.attempt) == key)
        };
        let in_flight =
            active.in_flight.as_ref().is_some_and(|batch| is_on_its_way(&batch.batch.action_commands));
        if in_flight || is_on_its_way(&active.open_batch.action_commands) {
            return;
        }
        if let Some(order) = active.actions.action_command(&active.row, key.0, key.1) {
            session.queue_action(order, || workflow_setup(active));
            self.dirty_workers.insert(worker);
        }
    }

    /// Restores the action assignments of a workflow that was just loaded from its rows.
    pub(super) fn load_action_assignments(&mut self, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow) else { return };
        if active.actions.states.is_empty() {
            return;
        }
        let under_way: Vec<(ActionRunKey, Option<WorkerId>)> =
            active.actions.states.running_actions().collect();
        self.workflows_with_actions.insert(workflow);
        let keys: BTreeSet<ActionRunKey> = under_way.iter().map(|(key, _)| *key).collect();
        for session in self.sessions.values_mut() {
            session.actions.retain(|key, action_assignment| {
                action_assignment.workflow != workflow || keys.contains(key)
            });
        }
        for (key, worker) in under_way {
            self.load_action_assignment(workflow, key, worker);
        }
    }

    fn load_action_assignment(&mut self, workflow: WorkflowId, key: ActionRunKey, worker: Option<WorkerId>) {
        let now = self.now.timestamp;
        let Some((worker, session)) =
            worker.and_then(|worker| Some((worker, self.sessions.get_mut(&worker)?)))
        else {
            let is_going = worker.is_some_and(|worker| self.pending_retirements.contains_key(&worker));
            let Some(active) = self.find_workflow(workflow) else { return };
            // A worker without a lease may still run it.
            if is_going || !worker.is_some_and(|worker| active.unleased_workers.contains(&worker)) {
                active.actions.states.interrupt_run(key, now, &mut active.open_batch.changes);
            }
            return;
        };
        if session.group.is_none() {
            // It is unknown what the worker has received: it will report that itself.
            session.actions.insert(key, ActionAssignment { workflow, is_sent: true });
        } else if !session.knows_action(key) {
            session.actions.insert(key, ActionAssignment { workflow, is_sent: false });
            self.resend_action(worker, workflow, key);
        }
    }

    /// Cancels the actions of a canceled workflow: started ones are asked to stop, unsent ones are withdrawn.
    /// Returns the workers to ask.
    pub(super) fn cancel_actions(&mut self, workflow: WorkflowId) -> Vec<WorkerId> {
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let Some(WorkflowSlot::Active(active)) = slots.get_mut(&workflow) else { return Vec::new() };
        let mut at_it = Vec::new();
        for (key, worker) in active.actions.states.running_actions().collect::<Vec<_>>() {
            let Some((worker, session)) =
                worker.and_then(|worker| Some((worker, worker_sessions.get_mut(&worker)?)))
            else {
                continue;
            };
            if session.withdraw_action(key) {
                session.actions.remove(&key);
                active.actions.states.withdraw_run(key, &mut active.open_batch.changes);
            } else {
                at_it.push(worker);
            }
        }
        at_it
    }

    /// Whether the end of a workflow has to wait for actions.
    pub(super) fn waits_for_actions(&mut self, workflow: WorkflowId) -> bool {
        let Some(active) = self.find_workflow(workflow) else { return false };
        let actions = &active.actions.states;
        if actions.is_running() || active.is_canceled || actions.is_empty() {
            return actions.is_running();
        }
        let (is_owed, joined) = (actions.has_unexecuted_action(), active.joined_workers.clone());
        let is_due = |worker: &WorkerId| actions.next_due(Some(*worker), WorkerStage::Leaving).is_some();
        let due: Vec<WorkerId> = joined.into_iter().filter(is_due).collect();
        let is_there = |worker: &WorkerId| self.sessions.get(worker).is_some_and(WorkerSession::is_staying);
        due.iter().any(is_there) || (is_owed && !self.is_left_to_clients(workflow))
    }

    /// Whether only clients of the contract work for it: they run actions at their own pace.
    fn is_left_to_clients(&self, workflow: WorkflowId) -> bool {
        let kinds = vec![WorkerKind::Torc, WorkerKind::Claims];
        let filter = WorkerFilter { workflow: Some(workflow), kinds, ..WorkerFilter::default() };
        let is_ours =
            self.groups.workers_for(workflow).iter().any(|worker| self.sessions.contains_key(worker));
        !is_ours && self.store.workers(&filter).is_ok_and(|clients| !clients.is_empty())
    }

    /// Lists the actions that a client may run now.
    pub(super) fn on_pending_actions(&mut self, workflow: WorkflowId, reply: CallReply<Vec<ActionRow>>) {
        reply(self.pending_actions(workflow));
    }

    fn pending_actions(&mut self, workflow: WorkflowId) -> Result<Vec<ActionRow>, CallError> {
        let store = Arc::clone(&self.store);
        let noted;
        let (has_begun, schedule) = if let Some(active) = self.find_workflow(workflow) {
            (active.row.started_at.is_some(), &active.actions)
        } else {
            // From the database: none is running now.
            let row = store.workflow(workflow).map_err(|error| store_call_error(&error))?;
            let row = row.ok_or_else(|| CallError::NotFound(format!("there is no workflow {workflow}")))?;
            noted = ActionSchedule::load(&*store, workflow).map_err(|error| store_call_error(&error))?;
            (row.started_at.is_some(), &noted)
        };
        let claimable: BTreeSet<i64> = schedule.states.claimable_actions().filter(|_| has_begun).collect();
        let mut rows = store.actions(workflow).map_err(|error| store_call_error(&error))?;
        rows.retain(|row| claimable.contains(&row.id));
        Ok(rows)
    }

    /// A client claims an action. `false`: it cannot be claimed.
    pub(super) fn on_claim_action(
        &mut self,
        workflow: WorkflowId,
        action: i64,
        node: Option<WorkerId>,
        reply: CallReply<bool>,
    ) {
        let now = self.now.timestamp;
        let claimed = self.open_workflow(workflow).map(|active| {
            let ActiveWorkflow { actions: schedule, row, open_batch: open, .. } = active;
            row.started_at.is_some() && schedule.states.claim_action(action, node, now, &mut open.changes)
        });
        match claimed {
            Ok(claimed) => self.reply_when_committed(workflow, reply, claimed),
            Err(why) => reply(Err(why)),
        }
    }

    /// Runs an action again, on request. An ended run is reopened until that is done.
    pub(super) fn on_retry_action(
        &mut self,
        workflow: WorkflowId,
        action: i64,
        by: &str,
        reply: CallReply<()>,
    ) {
        match self.retry_action(workflow, action, by) {
            Ok(()) => self.reply_when_committed(workflow, reply, ()),
            Err(why) => reply(Err(why)),
        }
    }

    fn retry_action(&mut self, workflow: WorkflowId, action: i64, by: &str) -> Result<(), CallError> {
        let (store, now) = (self.store.acting_as(by), self.now.timestamp);
        let active = self.open_workflow(workflow)?;
        if active.row.is_archived || active.row.is_canceled || active.is_canceled {
            let detail = format!("workflow {workflow} is canceled or archived; its actions cannot run");
            return Err(CallError::Conflict { code: "workflow_over", detail });
        }
        store.retry_action(workflow, action, now).map_err(|error| store_call_error(&error))?;
        self.notify_commit();
        self.start_run(workflow, by)?;
        self.open_workflow(workflow)?.load_actions(&*store).map_err(|error| store_call_error(&error))
    }

    /// Resets actions when the workflow is initialized again. None is running.
    pub(super) fn reset_actions(
        &mut self,
        workflow: WorkflowId,
        everything: bool,
        by: &str,
    ) -> Result<(), CallError> {
        let (store, now) = (self.store.acting_as(by), self.now.timestamp);
        let active = self.open_workflow(workflow)?;
        if active.actions.states.is_empty() {
            return Ok(());
        }
        store.rearm_actions(workflow, everything, now).map_err(|error| store_call_error(&error))?;
        active.load_actions(&*store).map_err(|error| store_call_error(&error))
    }
}

/// An action assigned to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActionAssignment {
    pub(super) workflow: WorkflowId,
    /// It was sent to the worker, so it may have started.
    pub(super) is_sent: bool,
}

/// What a worker has to know about a workflow before its first job or action.
pub(super) fn workflow_setup(active: &ActiveWorkflow) -> WorkflowSetup {
    let row = &active.row;
    WorkflowSetup {
        workflow: row.id,
        run: row.run_id,
        name: row.name.clone(),
        submission_dir: row.submission_dir.clone(),
        output_dir: row.output_dir.clone(),
        resource_monitor: row.settings.resource_monitor,
        execution: row.settings.execution_config.clone().map(Box::new),
    }
}

impl ActiveWorkflow {
    /// Whether actions may start now.
    pub(super) fn may_run_actions(&self) -> bool {
        let is_wanted = self.is_active && !self.is_canceled && !self.awaits_initialization;
        is_wanted && self.paused_until.is_none() && !self.is_closing()
    }

    /// Reloads the actions. Triggers counted but not committed are counted again, from the current job states.
    fn load_actions(&mut self, store: &dyn Store) -> Result<(), windlass_store::StoreError> {
        let is_count = |change: &WorkflowChange| {
            matches!(change, WorkflowChange::Action(ActionChange::Triggered { .. }))
        };
        self.open_batch.changes.retain(|change| !is_count(change));
        self.actions = ActionSchedule::load(store, self.row.id)?;
        self.are_jobs_counted = false;
        Ok(())
    }

    /// All jobs are settled, and none is held.
    pub(super) fn has_no_jobs_left(&self) -> bool {
        self.state.is_finished() && self.held_jobs.is_empty()
    }

    /// Whether this worker runs the execution.
    fn record_action_site(&self, key: ActionRunKey, worker: WorkerId) -> bool {
        self.actions.states.running_actions().any(|(at, by)| at == key && by == Some(worker))
    }

    /// Records that the worker joined the workflow.
    fn add_worker(&mut self, worker: WorkerId) {
        if self.joined_workers.insert(worker) {
            self.actions.states.on_trigger(ActionTrigger::OnWorkerStart, &mut self.open_batch.changes);
        }
    }
}
