//! Workflows that are suspended for a moment: for exclusive work on them, or while their rows are read again.
//!
//! ```text
//!          a call needs exclusive access, or the rows changed
//!   active ─────────────────────────────────────────────▶ closing: no new decisions, uncommitted ones are committed
//!     ▲                                                      │
//!     │ the rows were read                                   ▼
//!     └───────────────────────────────────────────────── suspended: a thread works on its rows, or reads them
//!     ▲                                                      │ they cannot be read
//!     └──────────────────── repeated until it succeeds ◀─────┘
//! ```
//!
//! A workflow that is active in the database always keeps its slot. Calls for it wait meanwhile, and state that
//! is not in the rows is passed on to the reloaded workflow ([`UnsavedState`]).

use super::active_workflow::{ActiveWorkflow, WorkflowLoadError};
use super::call_types::{CallError, ExclusiveRequirement};
use super::exchange_sequence::{COMMIT_WAIT, CommitTicket};
use super::panic_recovery::{catch_load_panic, run_exclusive_work};
use super::scheduler::{STORE_RETRY_DELAY, Scheduler, WorkflowSlot, store_call_error, unavailable_error};
use super::scheduler_call::{DeferredReply, SchedulerCall, SchedulerEvent};
use super::worker_exchange::superseded_error;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use windlass_core::workflow_state::{OrphanDecision, StaleAttemptReport};
use windlass_store::StoreError;
use windlass_store::model::{EventSeverity, NewEvent, ResultFilter};
use windlass_types::worker_messages::{Assignment, AttemptKey, AttemptReport, AttemptUsage};
use windlass_types::worker_protocol::ActionReport;
use windlass_types::{WorkerId, WorkflowId};

/// A suspended workflow.
pub(super) struct SuspendedWorkflow {
    /// When its rows are read again after a failure; `None` while they are being read or worked on.
    pub(super) retry_at: Option<Instant>,
    /// It was never loaded, so it is unknown who holds its jobs.
    pub(super) is_never_loaded: bool,
    /// Calls that arrived meanwhile.
    pub(super) waiting_calls: VecDeque<WaitingCall>,
    unsaved: UnsavedState,
}

/// A call that waits for its workflow.
pub(super) struct WaitingCall {
    call: SchedulerCall,
    since: Instant,
}

impl WaitingCall {
    pub(super) fn refuse(self, why: CallError) {
        self.call.refuse(why);
    }
}

/// State of the workflow that is not in its rows.
#[derive(Default)]
struct UnsavedState {
    /// Claims that are or may be on disk, and were not sent to their workers.
    unsent_claims: Vec<(WorkerId, Assignment)>,
    /// Reports that may not be on disk.
    reports: Vec<(WorkerId, AttemptReport)>,
    action_reports: Vec<(WorkerId, ActionReport)>,
    /// Exchanges that wait for these.
    tickets: Vec<CommitTicket>,
    /// Attempts that settled their jobs, before the check for stale added jobs.
    ended_attempts: Vec<AttemptKey>,
    /// Its next run has not been initialized.
    awaits_initialization: bool,
}

impl UnsavedState {
    /// Removes optional parts of reports: the database rejected some part, and it is unknown which. Only what
    /// decides is applied again, so that one report does not block all others for ever.
    fn keep_decisive_reports(&mut self) {
        for (_, report) in &mut self.reports {
            if let AttemptReport::Ended(ended) = report {
                (ended.files, ended.last_words, ended.recovered) = (None, None, None);
                ended.usage = AttemptUsage::default();
            }
        }
        for (_, report) in &mut self.action_reports {
            report.message = None;
        }
    }
}

/// The result of loading; `None` for a workflow that is not active.
pub(super) type WorkflowLoadResult = Result<Option<Box<ActiveWorkflow>>, WorkflowLoadError>;

impl Scheduler {
    // ---- waiting calls ----

    /// Whether the call has to wait: the workflow is suspended or closing, or has a commit under way that this
    /// call must not overlap.
    pub(super) fn must_wait(&self, call: &SchedulerCall, workflow: WorkflowId) -> bool {
        match self.workflows.get(&workflow) {
            Some(WorkflowSlot::Suspended(_)) => true,
            Some(WorkflowSlot::Active(active)) => {
                active.is_closing() || (call.needs_quiet() && !active.is_quiet())
            }
            None => false,
        }
    }

    /// Appends a call to the queue of its workflow. A repeated exchange of a worker waits once.
    pub(super) fn enqueue_call(&mut self, workflow: WorkflowId, call: SchedulerCall, since: Instant) {
        let Some(queue) = self.waiting_calls_of(workflow) else { return };
        let same = call.exchange_number();
        let before = queue.iter().position(|other| same.is_some() && other.call.exchange_number() == same);
        let before = before.and_then(|position| queue.remove(position));
        queue.push_back(WaitingCall { call, since });
        self.awaited_workflows.insert(workflow);
        if let Some(before) = before {
            before.call.refuse(superseded_error());
        }
    }

    fn waiting_calls_of(&mut self, workflow: WorkflowId) -> Option<&mut VecDeque<WaitingCall>> {
        match self.workflows.get_mut(&workflow)? {
            WorkflowSlot::Active(active) => Some(&mut active.waiting_calls),
            WorkflowSlot::Suspended(suspended) => Some(&mut suspended.waiting_calls),
        }
    }

    /// Resumes calls that waited for a commit or for the workflow.
    pub(super) fn resume_waiting_calls(&mut self, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow) else { return };
        if active.is_quiet() && !active.is_outdated && !active.waiting_calls.is_empty() {
            let queue = std::mem::take(&mut active.waiting_calls);
            self.replay_calls(queue);
        }
    }

    fn replay_calls(&mut self, queue: VecDeque<WaitingCall>) {
        for WaitingCall { call, since } in queue {
            self.handle_call(call, since);
        }
    }

    /// Rejects calls that waited too long: workers need a reply, and database problems may last for an unknown
    /// time.
    pub(super) fn reject_overdue_calls(&mut self) {
        let now = self.now.instant;
        for workflow in std::mem::take(&mut self.awaited_workflows) {
            let is_in_trouble = self.workflow_retry_at(workflow).is_some();
            let Some(queue) = self.waiting_calls_of(workflow) else { continue };
            let is_enough = |waiting: &WaitingCall| {
                (is_in_trouble || waiting.call.is_from_worker()) && waiting.since + COMMIT_WAIT <= now
            };
            let (enough, rest): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(queue).into_iter().partition(is_enough);
            if !rest.is_empty() {
                *queue = rest;
                self.awaited_workflows.insert(workflow);
            }
            for waiting in enough {
                waiting.call.refuse(unavailable_error(&format!("workflow {workflow} is being reloaded")));
            }
        }
    }

    // ---- store errors ----

    /// Handles a failed read or write of an active workflow: it is repeated after a delay. If the cause is not
    /// the database itself, the rows are read again then.
    pub(super) fn on_store_error(&mut self, workflow: WorkflowId, error: StoreError) {
        let retry_at = self.now.instant + STORE_RETRY_DELAY;
        let Some(active) = self.find_workflow(workflow) else { return };
        active.paused_until = Some(retry_at);
        active.is_outdated |= !error.is_transient();
        self.workflows_to_retry.insert(workflow);
        self.report_store_error(error);
    }

    /// When a failed operation of the workflow is repeated.
    pub(super) fn workflow_retry_at(&self, workflow: WorkflowId) -> Option<Instant> {
        match self.workflows.get(&workflow)? {
            WorkflowSlot::Active(active) => active.retry_at(),
            WorkflowSlot::Suspended(suspended) => suspended.retry_at,
        }
    }

    /// Repeats all operations that are due.
    pub(super) fn retry_due_workflows(&mut self) {
        let now = self.now.instant;
        for workflow in self.workflows_to_retry.iter().copied().collect::<Vec<_>>() {
            match self.workflow_retry_at(workflow) {
                Some(at) if at > now => {}
                Some(_) => self.retry_workflow(workflow),
                None => _ = self.workflows_to_retry.remove(&workflow),
            }
        }
    }

    fn retry_workflow(&mut self, workflow: WorkflowId) {
        match self.workflows.get_mut(&workflow) {
            Some(WorkflowSlot::Suspended(_)) => self.load_suspended(workflow),
            Some(WorkflowSlot::Active(active)) => match &mut active.in_flight {
                Some(batch) if batch.retry_at.is_some() => {
                    batch.retry_at = None;
                    self.submit_commit(workflow);
                }
                _ => {
                    active.paused_until = None;
                    self.dirty_workflows.insert(workflow);
                }
            },
            None => {}
        }
    }

    // ---- suspending ----

    /// Discards the active workflow; its unsaved state is kept for the next load.
    fn suspend(&mut self, workflow: WorkflowId, left: UnsavedState) {
        let mut suspended = SuspendedWorkflow {
            retry_at: None,
            is_never_loaded: true,
            waiting_calls: VecDeque::new(),
            unsaved: left,
        };
        if let Some(WorkflowSlot::Active(active)) = self.workflows.remove(&workflow) {
            self.gauges.record_workflow_jobs(active.counted_jobs, (0, 0));
            if let Some(session) = active.reserved_worker.and_then(|worker| self.sessions.get_mut(&worker)) {
                session.reserved_for = None;
            }
            suspended.unsaved.awaits_initialization = active.awaits_initialization;
            (suspended.is_never_loaded, suspended.waiting_calls, suspended.unsaved.ended_attempts) =
                (false, active.waiting_calls, active.ended_attempts);
        }
        self.groups.update_turns(workflow, |_| None);
        self.workflows.insert(workflow, WorkflowSlot::Suspended(Box::new(suspended)));
    }

    /// Reloads a workflow from its rows, if it is outdated and no commit is under way.
    pub(super) fn reload_if_outdated(&mut self, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow) else { return };
        if active.is_outdated && active.is_quiet() && active.paused_until.is_none() {
            self.reload_workflow(workflow);
        }
    }

    /// Suspends a workflow and reads its rows. No commit of it may be under way.
    pub(super) fn reload_workflow(&mut self, workflow: WorkflowId) {
        self.suspend(workflow, UnsavedState::default());
        self.load_suspended(workflow);
    }

    /// Loads an active workflow that is not in memory. `trouble`: even whether it is active could not be read.
    pub(super) fn suspend_and_load(&mut self, workflow: WorkflowId, trouble: bool) {
        self.suspend(workflow, UnsavedState::default());
        if trouble {
            self.schedule_load(workflow);
        } else {
            self.load_suspended(workflow);
        }
    }

    /// Reloads a workflow after a rejected batch, because memory and database disagree. Callers that wait for
    /// it have to call again; reports of workers are applied again after the reload.
    pub(super) fn reload_after_refusal(&mut self, workflow: WorkflowId, error: &StoreError) {
        let Some(active) = self.find_workflow(workflow) else { return };
        let in_flight = active.in_flight.take().map(|batch| batch.batch);
        let mut left = UnsavedState::default();
        for lost in in_flight.into_iter().chain([std::mem::take(&mut active.open_batch)]) {
            left.unsent_claims.extend(lost.assignments);
            left.reports.extend(lost.reports);
            left.action_reports.extend(lost.action_reports);
            left.tickets.extend(lost.tickets);
            for callback in lost.callbacks {
                callback(Err(store_call_error(error)));
            }
            // The jobs they held are found when the rows are read.
            for worker in lost.gone_workers {
                self.on_lost_worker_settled(worker);
            }
        }
        if error.is_invalid() {
            left.keep_decisive_reports();
            self.record_refusal(workflow, error);
        }
        for (then, reply) in self.take_reload_callbacks(workflow) {
            reply(Err(store_call_error(error)));
            // If the change is on disk after all, it must still be completed.
            self.reload_callbacks.push((workflow, then, Box::new(drop)));
        }
        self.suspend(workflow, left);
        // After a delay: the same error might occur again at once.
        self.schedule_load(workflow);
    }

    /// Records that optional parts of reports were dropped, so that users who may see the workflow learn why
    /// they are missing.
    fn record_refusal(&self, workflow: WorkflowId, error: &StoreError) {
        let event = NewEvent {
            workflow: Some(workflow),
            job: None,
            severity: EventSeverity::Warning,
            category: "report_reduced".to_owned(),
            message: format!(
                "reports were stored without output and measurements, which the database rejected: {error}"
            ),
            data: None,
        };
        // If it cannot be written, the reports matter more.
        drop(self.store.add_event(&event, self.now.timestamp));
    }

    // ---- suspended ----

    /// Runs exclusive work on a workflow without commits under way; afterwards the same thread reads its rows.
    pub(super) fn on_exclusive(&mut self, workflow: WorkflowId, call: SchedulerCall) {
        let SchedulerCall::Exclusive { needs, work, .. } = call else { return };
        if let Some(active) = self.find_workflow(workflow)
            && needs == ExclusiveRequirement::NoHeldJobs
            && let Some(detail) = active.render_holders()
        {
            return work(Err(CallError::Conflict { code: "workflow_active", detail }))();
        }
        self.suspend(workflow, UnsavedState::default());
        let (store, sender, load_context) =
            (Arc::clone(&self.store), self.sender.clone(), self.next_load_context());
        self.run_on_thread(workflow, move || {
            let read = || ActiveWorkflow::load_if_active(&*store, workflow, load_context);
            let (answer, found) = run_exclusive_work(workflow, work, &*store, read);
            drop(sender.send(SchedulerEvent::ExclusiveWorkDone { workflow, reply: answer, loaded: found }));
        });
    }

    /// Reads the rows of a suspended workflow.
    fn load_suspended(&mut self, workflow: WorkflowId) {
        if let Some(WorkflowSlot::Suspended(suspended)) = self.workflows.get_mut(&workflow) {
            suspended.retry_at = None;
        }
        let (store, sender, load_context) =
            (Arc::clone(&self.store), self.sender.clone(), self.next_load_context());
        self.run_on_thread(workflow, move || {
            let read =
                || ActiveWorkflow::load(&*store, workflow, load_context).map(|active| Some(Box::new(active)));
            let found = catch_load_panic(workflow, read);
            drop(sender.send(SchedulerEvent::ExclusiveWorkDone { workflow, reply: None, loaded: found }));
        });
    }

    fn run_on_thread(&mut self, workflow: WorkflowId, work: impl FnOnce() + Send + 'static) {
        let begun = std::thread::Builder::new().name("windlass-shut".into()).spawn(work);
        if begun.is_err() {
            self.schedule_load(workflow);
        }
    }

    fn schedule_load(&mut self, workflow: WorkflowId) {
        let retry_at = self.now.instant + STORE_RETRY_DELAY;
        if let Some(WorkflowSlot::Suspended(suspended)) = self.workflows.get_mut(&workflow) {
            suspended.retry_at = Some(retry_at);
            self.workflows_to_retry.insert(workflow);
        }
    }

    /// Handles the end of exclusive work, or of reading the rows.
    pub(super) fn on_exclusive_work_done(
        &mut self,
        workflow: WorkflowId,
        answer: Option<DeferredReply>,
        found: WorkflowLoadResult,
    ) {
        let queue = match found {
            Ok(Some(active)) => self.reactivate(*active),
            Ok(None) => self.drop_suspended(workflow, &unavailable_error("it is not active")),
            Err(no @ (WorkflowLoadError::NotFound | WorkflowLoadError::InvalidRows(_))) => {
                self.drop_suspended(workflow, &no.to_call_error(workflow))
            }
            Err(WorkflowLoadError::Store(error)) => {
                self.report_store_error(error);
                self.schedule_load(workflow);
                VecDeque::new()
            }
        };
        self.notify_bound_workers(workflow);
        if let Some(answer) = answer {
            self.notify_commit();
            answer();
        }
        self.replay_calls(queue);
    }

    // ---- active again ----

    /// Replaces a suspended workflow by the loaded one, with the unsaved state. Returns the waiting calls,
    /// unless they have to keep waiting.
    fn reactivate(&mut self, active: ActiveWorkflow) -> VecDeque<WaitingCall> {
        let workflow = active.id();
        let Some(WorkflowSlot::Suspended(suspended)) = self.workflows.remove(&workflow) else {
            return VecDeque::new();
        };
        let SuspendedWorkflow { waiting_calls: queue, unsaved: mut left, .. } = *suspended;
        left.unsent_claims.extend(self.clear_holds(workflow));
        self.groups.remove_workflow(workflow);
        self.activate(active);
        self.restore_unsaved(workflow, left);
        self.run_reload_callbacks(workflow);
        match self.find_workflow(workflow) {
            Some(active) if !active.is_quiet() => {
                active.waiting_calls = queue;
                VecDeque::new()
            }
            _ => queue,
        }
    }

    /// Restores unsaved state as far as it does not contradict the rows.
    fn restore_unsaved(&mut self, workflow: WorkflowId, left: UnsavedState) {
        let Some(active) = self.find_workflow(workflow) else { return };
        active.open_batch.tickets.extend(left.tickets);
        active.awaits_initialization = left.awaits_initialization;
        let is_over = |key: &AttemptKey| {
            let status = active.state.job_index(key.job).map(|job| active.state.status(job));
            status.is_some_and(windlass_types::JobStatus::is_settled)
        };
        let over: Vec<AttemptKey> = left.ended_attempts.into_iter().filter(is_over).collect();
        active.ended_attempts.extend(over);
        for (worker, assignment) in left.unsent_claims {
            let Some(active) = self.find_workflow(workflow) else { return };
            if active.check_fencing(worker, &assignment.key).is_err() {
                continue;
            }
            if let Some(hold) = active.held_jobs.get_mut(&assignment.key.job) {
                hold.is_sent = false;
            }
            self.dispatch_assignment(workflow, worker, assignment);
        }
        for (worker, report) in left.reports {
            if let Err(stale) = self.apply_report(worker, report) {
                self.record_stale_unless_written(worker, &stale);
            }
        }
        for (worker, report) in left.action_reports {
            // An execution that is not running any more is in the rows.
            self.apply_action_report(worker, report);
        }
        self.dirty_workflows.insert(workflow);
    }

    /// Records a report that does not fit the rows after a reload as stale, unless it is in them already.
    fn record_stale_unless_written(&mut self, worker: WorkerId, stale: &StaleAttemptReport) {
        let AttemptKey { workflow, run, job, attempt } = stale.key;
        let filter =
            ResultFilter { job: Some(job), run: Some(run), worker: Some(worker), ..ResultFilter::default() };
        let results = self.store.results(workflow, &filter).unwrap_or_default();
        if results.iter().all(|row| row.key.attempt_id != attempt) {
            self.record_stale_report(worker, stale);
        }
    }

    /// Removes a workflow that cannot be loaded: it has ended, was deleted, or is invalid.
    fn drop_suspended(&mut self, workflow: WorkflowId, why: &CallError) -> VecDeque<WaitingCall> {
        let Some(WorkflowSlot::Suspended(suspended)) = self.workflows.remove(&workflow) else {
            return VecDeque::new();
        };
        let SuspendedWorkflow { waiting_calls: queue, unsaved: left, .. } = *suspended;
        drop(self.clear_holds(workflow));
        self.sessions.values_mut().for_each(|session| session.forget_workflow(workflow));
        self.groups.remove_workflow(workflow);
        for (worker, report) in left.reports {
            let stale = StaleAttemptReport { key: *report.key(), found: why.to_string() };
            self.record_stale_unless_written(worker, &stale);
        }
        for ticket in left.tickets {
            self.on_ticket_committed(ticket);
        }
        for (_, reply) in self.take_reload_callbacks(workflow) {
            reply(Err(why.clone()));
        }
        queue
    }

    /// Activates a workflow that was just loaded: adds it to the worker groups, and its held jobs to the worker
    /// sessions.
    pub(super) fn activate(&mut self, mut active: ActiveWorkflow) {
        let workflow = active.id();
        let row = active.row.clone();
        self.groups.add_workflow(workflow, |group| {
            !group.is_bound_elsewhere(workflow) && (group.may_work_for)(&row)
        });
        let mut held: Vec<_> = active.held_jobs.iter().map(|(job, hold)| (*job, *hold)).collect();
        held.sort_unstable_by_key(|(job, _)| *job);
        let mut orphans = Vec::new();
        for (job, hold) in held {
            let Some(number) = active.state.job_index(job) else { continue };
            let decision = match self.sessions.get_mut(&hold.worker) {
                Some(session) if !session.has_left => {
                    if session.held_jobs.insert(job, workflow).is_none() {
                        session.usage.take_unchecked(job, active.state.demand(number));
                    }
                    continue;
                }
                // It said that it holds nothing, so it has not started it.
                Some(_) if hold.started_at.is_none() => OrphanDecision::NeverStarted,
                None if active.unleased_workers.contains(&hold.worker)
                    && !self.pending_retirements.contains_key(&hold.worker) =>
                {
                    continue;
                }
                // Its holder cannot return.
                _ => OrphanDecision::RunAgain(None),
            };
            active.held_jobs.remove(&job);
            orphans.push((number, hold, decision));
        }
        self.workflows.insert(workflow, WorkflowSlot::Active(Box::new(active)));
        self.dirty_workflows.insert(workflow);
        self.load_action_assignments(workflow);
        for (number, hold, decision) in orphans {
            self.orphan_job(workflow, number, hold.worker, decision, hold.orphaned_attempt());
        }
    }

    /// Clears the held jobs of a workflow, to be restored from its rows. Returns the assignments not yet sent.
    fn clear_holds(&mut self, workflow: WorkflowId) -> Vec<(WorkerId, Assignment)> {
        let mut unsent = Vec::new();
        for (&worker, session) in &mut self.sessions {
            let news =
                session.outbox.assignments.iter().filter(|assignment| assignment.key.workflow == workflow);
            unsent.extend(news.map(|assignment| (worker, assignment.clone())));
            let held = session.held_jobs.iter().filter(|(_, id)| **id == workflow).map(|(job, _)| *job);
            for job in held.collect::<Vec<_>>() {
                session.release_job(job);
            }
        }
        unsent
    }
}
