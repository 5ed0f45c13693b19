//! The thread that owns all workflows and workers: calls come in, decisions are committed, replies go out.
//!
//! [`super::worker_exchange`] handles messages of workers, [`super::claims`] claims jobs for them,
//! [`super::lost_workers`] handles their loss, [`super::actions`] runs actions, [`super::commits`] submits
//! changes and performs their effects, [`super::failure_handling`] applies retry decisions,
//! [`super::node_quarantine`] handles bad nodes, [`super::workflow_lifecycle`] starts and ends workflows,
//! [`super::suspended_workflow`] reloads them, and [`super::job_commands`] serves clients that claim and
//! complete jobs themselves.

use super::active_workflow::{ActiveWorkflow, WorkflowLoadContext, is_active};
use super::attached_worker::LocalRunOutput;
use super::call_types::{CallError, CallReply, SchedulerOptions};
use super::clock::TimePoint;
use super::event_queue::{EventQueue, EventSender};
use super::metrics::SchedulerGauges;
use super::node_quarantine::NodeRegistry;
use super::panic_recovery::{PanicHistory, SchedulerActivity};
use super::restrictions::WorkflowRestriction;
use super::scheduler_call::{SchedulerCall, SchedulerEvent};
use super::stale_reports::StaleReportWriter;
use super::stall_detection::{max_wait, stall_duration};
use super::suspended_workflow::SuspendedWorkflow;
use super::worker_groups::WorkerGroups;
use super::worker_session::WorkerSession;
use super::workflow_lifecycle::ReloadCallback;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use windlass_store::Store;
use windlass_store::model::WorkflowPartId;
use windlass_types::{WorkerId, WorkflowId};

/// The delay before a retry when the database cannot be written.
pub(super) const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Added to each lease: the reply takes time, and clocks differ.
const LEASE_MARGIN: Duration = Duration::from_secs(1);
/// The number of calls handled before anything is committed or replied to.
pub(super) const MAX_CALLS_PER_ROUND: usize = 512;

pub(super) struct Scheduler {
    pub(super) store: Arc<dyn Store>,
    pub(super) options: SchedulerOptions,
    pub(super) sender: EventSender,
    pub(super) workflows: HashMap<WorkflowId, WorkflowSlot>,
    pub(super) sessions: HashMap<WorkerId, WorkerSession>,
    pub(super) groups: WorkerGroups,
    pub(super) nodes: NodeRegistry,
    pub(super) gauges: Arc<SchedulerGauges>,
    pub(super) now: TimePoint,
    pub(super) next_generation: u64,
    /// Workflows and workers with changes since the last round.
    pub(super) dirty_workflows: BTreeSet<WorkflowId>,
    pub(super) dirty_workers: BTreeSet<WorkerId>,
    /// Workflows with actions.
    pub(super) workflows_with_actions: BTreeSet<WorkflowId>,
    /// Workflows with an isolated suspect for which there was no worker at the last check.
    pub(super) workflows_with_waiting_suspect: BTreeSet<WorkflowId>,
    /// Lost workers, and the number of commits to wait for until they are retired in the database.
    pub(super) pending_retirements: HashMap<WorkerId, usize>,
    /// When the lease of a worker last expired.
    pub(super) last_lease_expiry: Option<Instant>,
    /// Callbacks to run after a workflow is reloaded.
    pub(super) reload_callbacks: Vec<(WorkflowId, ReloadCallback, CallReply<()>)>,
    /// Workflows with a failed operation of the database.
    pub(super) workflows_to_retry: BTreeSet<WorkflowId>,
    /// Workflows with delayed retries.
    pub(super) workflows_with_delayed_jobs: BTreeSet<WorkflowId>,
    /// Workflows with waiting calls.
    pub(super) awaited_workflows: BTreeSet<WorkflowId>,
    pub(super) stale_report_writer: StaleReportWriter,
    /// No unit elects one of these sites.
    pub(super) closed_sites: BTreeSet<String>,
    /// The restrictions of single workflows.
    pub(super) restrictions: HashMap<WorkflowId, WorkflowRestriction>,
    /// The current activity, for panics; and the earlier panics.
    pub(super) activity: SchedulerActivity,
    pub(super) panic_history: PanicHistory,
    /// Messages for the host of a local run; `None` at a server.
    pub(super) local_run: Option<LocalRunOutput>,
    is_stopping: bool,
    /// Callers that wait until everything is idle, and those that wait for the end.
    idle_waiters: Vec<SyncSender<()>>,
    shutdown_waiters: Vec<SyncSender<()>>,
}

pub(super) enum WorkflowSlot {
    Active(Box<ActiveWorkflow>),
    Suspended(Box<SuspendedWorkflow>),
}

impl Scheduler {
    pub(super) fn new(
        store: Arc<dyn Store>,
        options: SchedulerOptions,
        sender: EventSender,
        gauges: Arc<SchedulerGauges>,
    ) -> Self {
        let now = options.clock.now();
        let stale_report_writer = StaleReportWriter::start(Arc::clone(&store), options.on_commit.clone());
        Self {
            store,
            options,
            sender,
            workflows: HashMap::new(),
            sessions: HashMap::new(),
            groups: WorkerGroups::default(),
            nodes: NodeRegistry::default(),
            gauges,
            now,
            next_generation: 0,
            dirty_workflows: BTreeSet::new(),
            dirty_workers: BTreeSet::new(),
            workflows_with_actions: BTreeSet::new(),
            workflows_with_waiting_suspect: BTreeSet::new(),
            pending_retirements: HashMap::new(),
            last_lease_expiry: None,
            reload_callbacks: Vec::new(),
            workflows_to_retry: BTreeSet::new(),
            workflows_with_delayed_jobs: BTreeSet::new(),
            awaited_workflows: BTreeSet::new(),
            stale_report_writer,
            closed_sites: BTreeSet::new(),
            restrictions: HashMap::new(),
            activity: SchedulerActivity::default(),
            panic_history: PanicHistory::default(),
            local_run: None,
            is_stopping: false,
            idle_waiters: Vec::new(),
            shutdown_waiters: Vec::new(),
        }
    }

    /// Runs until it is stopped and everything is committed.
    pub(super) fn run(mut self, inbox: &mut EventQueue) {
        let mut expected = self.now.instant;
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.run_round(inbox, &mut expected))) {
                Ok(true) => self.panic_history.record_successful_round(),
                Ok(false) => break,
                Err(payload) => {
                    if let Err(payload) = self.on_panic(payload) {
                        resume_unwind(payload);
                    }
                }
            }
        }
        self.stale_report_writer.flush();
        self.shutdown_waiters.drain(..).for_each(signal_waiter);
    }

    /// One round: handles deadlines and changes, then new events. `false`: it was the last one.
    fn run_round(&mut self, inbox: &mut EventQueue, expected: &mut Instant) -> bool {
        if !self.reload_if_due(inbox) {
            return true;
        }
        self.extend_leases_after_stall(*expected);
        self.activity = SchedulerActivity { description: "time", ..SchedulerActivity::default() };
        self.handle_deadlines();
        self.process_dirty_state();
        if !self.idle_waiters.is_empty() && self.is_idle() {
            self.stale_report_writer.flush();
            self.idle_waiters.drain(..).for_each(signal_waiter);
        }
        if self.is_stopping && self.is_idle() {
            return false;
        }
        *expected = self.next_deadline();
        if let Some(event) = self.next_event(inbox, *expected) {
            // Its consequences happen now, not when the wait for it began.
            self.now.timestamp = self.options.clock.now().timestamp;
            self.on_event(event);
            for event in std::iter::from_fn(|| inbox.try_next_event()).take(MAX_CALLS_PER_ROUND) {
                self.on_event(event);
            }
        }
        true
    }

    fn next_event(&mut self, inbox: &mut EventQueue, until: Instant) -> Option<SchedulerEvent> {
        if let Some(event) = self.panic_history.waiting_events.pop_front() {
            return Some(event);
        }
        inbox.next_event(self.options.clock.is_automatic().then_some(until))
    }

    /// If this thread stalled (the process was stopped, the database hung), extends all leases by the length of
    /// the stall, because no worker could renew its lease meanwhile.
    fn extend_leases_after_stall(&mut self, expected: Instant) {
        self.now = self.options.clock.now();
        if let Some(late) = stall_duration(expected, self.now.instant, self.options.lease) {
            for session in self.sessions.values_mut() {
                session.lease_until += late;
            }
        }
        self.gauges.record_loop(self.now.timestamp);
    }

    /// The time of the next deadline. At most a short wait, so that a stall is recognized.
    pub(super) fn next_deadline(&self) -> Instant {
        // Counted from the start of this round: a long round is a stall as well.
        let now = self.now.instant;
        let waits = self.sessions.values().filter_map(|session| session.exchanges.next_deadline()).min();
        let rests = self.sessions.values().filter_map(WorkerSession::next_cooldown_end).min();
        let retries = self.workflows_to_retry.iter().filter_map(|workflow| self.workflow_retry_at(*workflow));
        let latest = now + max_wait(self.options.lease);
        retries
            .chain(waits)
            .chain(rests)
            .chain(self.next_delayed_job())
            .min()
            .unwrap_or(latest)
            .clamp(now, latest)
    }

    pub(super) fn on_event(&mut self, event: SchedulerEvent) {
        self.activity = SchedulerActivity::for_event(&event);
        match event {
            SchedulerEvent::Call(call) => self.on_call(call),
            SchedulerEvent::Committed { workflow, generation, result } => {
                self.panic_history.unanswered_batches =
                    self.panic_history.unanswered_batches.saturating_sub(1);
                self.on_committed(workflow, generation, result);
            }
            SchedulerEvent::ExclusiveWorkDone { workflow, reply: answer, loaded: found } => {
                self.on_exclusive_work_done(workflow, answer, found);
            }
            SchedulerEvent::CheckTime(sender) => self.idle_waiters.push(sender),
            SchedulerEvent::Stop(sender) => {
                self.is_stopping = true;
                self.shutdown_waiters.extend(sender);
                self.dirty_workers.extend(self.sessions.keys());
            }
            SchedulerEvent::Local(_) => {}
        }
    }

    /// Notifies of a commit.
    pub(super) fn notify_commit(&self) {
        if let Some(notify) = &self.options.on_commit {
            notify();
        }
    }

    /// Notifies of a committed change: the run began or ended, or a unit changed or had a failure.
    pub(super) fn notify_workflow_change(&self, workflow: WorkflowId) {
        if let Some(notify) = &self.options.on_change {
            notify(workflow);
        }
    }

    fn on_call(&mut self, call: SchedulerCall) {
        self.handle_call(call, self.now.instant);
    }

    /// Performs a call that arrived at `since`, or queues it until all affected workflows are available.
    pub(super) fn handle_call(&mut self, call: SchedulerCall, since: Instant) {
        if self.is_stopping {
            return call.refuse(unavailable_error("the server is shutting down"));
        }
        if let SchedulerCall::Exchange { exchange, caller: speaker, .. } = &call
            && let Err(why) = self.authenticate_worker(exchange, speaker)
        {
            return call.refuse(why);
        }
        let workflows = match self.find_affected_workflows(&call) {
            Ok(workflows) => workflows,
            Err(why) => return call.refuse(why),
        };
        match workflows.iter().find(|workflow| self.must_wait(&call, **workflow)) {
            Some(&workflow) => self.enqueue_call(workflow, call, since),
            None => self.perform_call(call, workflows.first().copied()),
        }
    }

    /// The workflows that this call affects.
    fn find_affected_workflows(&mut self, call: &SchedulerCall) -> Result<Vec<WorkflowId>, CallError> {
        let mut workflows = call.workflows();
        if let Some(job) = call.job() {
            let workflow =
                self.store.workflow_of(WorkflowPartId::Job(job)).map_err(|error| store_call_error(&error))?;
            workflows.push(workflow.ok_or_else(|| CallError::NotFound(format!("there is no job {job}")))?);
        }
        match call {
            SchedulerCall::RegisterWorker { registration: who, .. } => {
                let Some(before) = &who.before else { return Ok(workflows) };
                // It returns the attempts that it does not name.
                workflows.extend(self.workflows_of_worker(before.worker));
                let unknown = |(id, slot): (&WorkflowId, &WorkflowSlot)| {
                    matches!(slot, WorkflowSlot::Suspended(suspended) if suspended.is_never_loaded)
                        .then_some(*id)
                };
                workflows.extend(self.workflows.iter().filter_map(unknown));
            }
            SchedulerCall::Exchange { exchange, .. } if exchange.leaving => {
                workflows.extend(self.workflows_of_worker(exchange.worker));
            }
            SchedulerCall::RetireWorker { worker, .. } if self.sessions.contains_key(worker) => {
                workflows.extend(self.workflows_of_worker(*worker));
            }
            SchedulerCall::RetireWorker { worker, .. } => {
                let row = self.store.worker(*worker).map_err(|error| store_call_error(&error))?;
                workflows.extend(row.and_then(|row| row.worker.workflow));
            }
            _ => {}
        }
        workflows.sort_unstable();
        workflows.dedup();
        if call.is_from_worker() {
            for workflow in &workflows {
                self.load_if_active(*workflow);
            }
        }
        Ok(workflows)
    }

    fn workflows_of_worker(&self, worker: WorkerId) -> impl Iterator<Item = WorkflowId> + '_ {
        self.sessions.get(&worker).into_iter().flat_map(|session| {
            let action_assignments =
                session.actions.values().map(|action_assignment| action_assignment.workflow);
            session.held_jobs.values().copied().chain(action_assignments)
        })
    }

    /// Loads an active workflow before its worker gets a reply: that a workflow has ended must be read from the
    /// database.
    fn load_if_active(&mut self, workflow: WorkflowId) {
        if self.workflows.contains_key(&workflow) || self.panic_history.is_disabled(workflow) {
            return;
        }
        match self.store.workflow(workflow) {
            Ok(row) if row.as_ref().is_none_or(|row| !is_active(row)) => {}
            outcome => self.suspend_and_load(workflow, outcome.is_err()),
        }
    }

    fn perform_call(&mut self, call: SchedulerCall, workflow: Option<WorkflowId>) {
        match (call, workflow) {
            (SchedulerCall::RegisterWorker { registration: who, owner: worker_owner, reply }, _) => {
                self.on_register_worker(&who, worker_owner, reply);
            }
            (SchedulerCall::Exchange { exchange, reply, .. }, _) => self.on_exchange(exchange, reply),
            (SchedulerCall::HangUp { worker, number, secret }, _) => self.on_hang_up(worker, number, &secret),
            (SchedulerCall::AccessChanged, _) => self.on_access_changed(),
            (SchedulerCall::AllocationEnds { allocation, ends_at }, _) => {
                self.on_allocation_end_time(allocation, ends_at);
            }
            (SchedulerCall::AllocationEnded { allocation }, _) => self.on_allocation_ended(allocation),
            (SchedulerCall::WorkerFenced { worker }, _) => self.on_worker_fenced(worker),
            (SchedulerCall::CloseSites(closed), _) => self.on_close_sites(closed),
            (SchedulerCall::CloseSitesFor { workflow, closed }, _) => {
                self.on_close_sites_for(workflow, closed);
            }
            (SchedulerCall::SetPaused { workflow, is_paused }, _) => self.on_set_paused(workflow, is_paused),
            (SchedulerCall::ListWorkers { reply }, _) => reply(Ok(self.list_workers())),
            (SchedulerCall::QuarantineNode { node, by, reply }, _) => {
                self.on_quarantine_node(node, &by, reply);
            }
            (SchedulerCall::ReleaseNode { host, by, reply }, _) => self.on_release_node(&host, &by, reply),
            (SchedulerCall::DrainWorker { worker, reply }, _) => self.on_drain(worker, reply),
            (SchedulerCall::RetireWorker { worker, by, reply }, _) => self.on_retire(worker, &by, reply),
            (SchedulerCall::StartWorkflow { workflow, by, reply }, _) => self.on_start(workflow, &by, reply),
            (SchedulerCall::Initialize { workflow, only_uninitialized, clear_ephemeral, by, reply }, _) => {
                self.on_initialize(workflow, only_uninitialized, clear_ephemeral, &by, reply);
            }
            (SchedulerCall::CancelWorkflow { workflow, by, reply }, _) => {
                self.on_cancel(workflow, &by, reply);
            }
            (SchedulerCall::ResetStatus { workflow, force, by, reply }, _) => {
                self.on_reset_status(workflow, force, &by, reply);
            }
            (SchedulerCall::ResetJobs { workflow, selection: which, by, reply }, _) => {
                self.on_reset_jobs(workflow, &which, &by, reply);
            }
            (call @ SchedulerCall::Exclusive { .. }, Some(workflow)) => self.on_exclusive(workflow, call),
            (SchedulerCall::ClaimJobs { workflow, request, reply }, _) => {
                self.on_claim(workflow, &request, reply);
            }
            (SchedulerCall::StartJob { job, run, node, reply }, Some(workflow)) => {
                self.on_start_job(workflow, job, run, node, reply);
            }
            (SchedulerCall::CompleteJobs { workflow, completions, reply }, _) => {
                self.on_complete(workflow, completions, reply);
            }
            (SchedulerCall::RetryJob { job, run, max_retries, by, reply }, Some(workflow)) => {
                self.on_retry(workflow, job, run, max_retries, &by, reply);
            }
            (SchedulerCall::ChangeJobStatus { job, new_status: to, run, by, reply }, Some(workflow)) => {
                self.on_change_status(workflow, job, to, run, &by, reply);
            }
            (SchedulerCall::SpawnJobs { request, reply }, _) => self.on_spawn(&request, reply),
            (SchedulerCall::SnapshotWorkflow { workflow, reply }, _) => {
                reply(Ok(self.find_workflow(workflow).map(|active| active.snapshot())));
            }
            (SchedulerCall::PendingActions { workflow, reply }, _) => {
                self.on_pending_actions(workflow, reply);
            }
            (SchedulerCall::ClaimAction { workflow, action, node, reply }, _) => {
                self.on_claim_action(workflow, action, node, reply);
            }
            (SchedulerCall::RetryAction { workflow, action, by, reply }, _) => {
                self.on_retry_action(workflow, action, &by, reply);
            }
            (call, None) => call.refuse(CallError::Internal("the call does not identify a workflow".into())),
        }
    }

    /// Handles everything that is due.
    pub(super) fn handle_deadlines(&mut self) {
        let now = self.now.instant;
        let dead = |(id, session): (&WorkerId, &WorkerSession)| {
            (session.attached.is_none() && session.lease_until < now).then_some(*id)
        };
        let mut dead: Vec<WorkerId> = self.sessions.iter().filter_map(dead).collect();
        dead.sort_unstable();
        for worker in dead {
            self.on_lease_expired(worker);
        }
        let overdue = |(id, session): (&WorkerId, &WorkerSession)| {
            session.exchanges.next_deadline().is_some_and(|deadline| deadline <= now).then_some(*id)
        };
        self.dirty_workers.extend(self.sessions.iter().filter_map(overdue));
        for (worker, session) in &mut self.sessions {
            if session.take_cooldown_ended(now) {
                self.dirty_workers.insert(*worker);
            }
        }
        self.update_quarantines();
        self.release_delayed_jobs();
        self.retire_gone_workers();
        self.reject_overdue_calls();
    }

    /// Processes all changes: claims jobs, submits batches, sends replies.
    pub(super) fn process_dirty_state(&mut self) {
        self.retry_due_workflows();
        self.send_to_attached_workers();
        while !self.dirty_workflows.is_empty() || !self.dirty_workers.is_empty() {
            let changed_workflows = std::mem::take(&mut self.dirty_workflows);
            for &workflow in &changed_workflows {
                self.activity = SchedulerActivity::for_upkeep(workflow);
                self.drop_stale_added_jobs(workflow);
                self.count_action_triggers(workflow);
                self.update_turns(workflow);
            }
            self.activity = SchedulerActivity { description: "claims", ..SchedulerActivity::default() };
            self.serve_waiting_workers(&changed_workflows);
            // Claims are committed together with the ends that made room for them.
            let claimed = std::mem::take(&mut self.dirty_workflows);
            for &workflow in changed_workflows.union(&claimed) {
                self.activity = SchedulerActivity::for_upkeep(workflow);
                self.submit_batch(workflow);
                self.reload_if_outdated(workflow);
                self.resume_waiting_calls(workflow);
                self.finish_if_over(workflow);
                self.update_failure_state(workflow);
                self.dismiss_idle_workers(workflow);
                self.update_gauges(workflow);
            }
            self.activity = SchedulerActivity { description: "answers", ..SchedulerActivity::default() };
            self.reply_to_dirty_workers();
        }
        let waits = self.sessions.values().map(|session| session.exchanges.count_waiting_callers()).sum();
        self.gauges.record_totals(self.workflows.len(), self.sessions.len(), waits);
        if self.workflows_to_retry.is_empty() {
            self.gauges.record_store_idle();
        }
    }

    fn update_gauges(&mut self, workflow: WorkflowId) {
        let gauges = Arc::clone(&self.gauges);
        if let Some(active) = self.find_workflow(workflow) {
            let figures = (active.state.ready_count(), active.held_jobs.len());
            gauges.record_workflow_jobs(std::mem::replace(&mut active.counted_jobs, figures), figures);
        }
    }

    /// Whether no commit is under way, or none can succeed soon.
    fn is_idle(&self) -> bool {
        self.dirty_workflows.is_empty()
            && self.panic_history.waiting_events.is_empty()
            && self.workflows.values().all(|slot| match slot {
                WorkflowSlot::Active(active) => active.is_quiet() || active.has_store_problem(),
                WorkflowSlot::Suspended(suspended) => suspended.retry_at.is_some(),
            })
    }

    pub(super) const fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// The end of a lease that is renewed now.
    pub(super) fn lease_from_now(&self) -> Instant {
        self.now.instant + self.options.lease + LEASE_MARGIN
    }

    /// The workflow, if it is active in memory.
    pub(super) fn find_workflow(&mut self, workflow: WorkflowId) -> Option<&mut ActiveWorkflow> {
        match self.workflows.get_mut(&workflow) {
            Some(WorkflowSlot::Active(active)) => Some(active),
            _ => None,
        }
    }

    /// The workflow, loaded from its rows if necessary.
    pub(super) fn open_workflow(&mut self, workflow: WorkflowId) -> Result<&mut ActiveWorkflow, CallError> {
        if self.panic_history.is_disabled(workflow) {
            let detail = format!(
                "workflow {workflow} made the scheduler panic repeatedly and is disabled; restart the server to try again"
            );
            return Err(CallError::Internal(detail));
        }
        if !self.workflows.contains_key(&workflow) {
            let load_context = self.next_load_context();
            let active = ActiveWorkflow::load(&*self.store, workflow, load_context)
                .map_err(|no| no.to_call_error(workflow))?;
            self.activate(active);
        }
        self.dirty_workflows.insert(workflow);
        self.find_workflow(workflow)
            .ok_or_else(|| unavailable_error(&format!("workflow {workflow} is being reloaded")))
    }

    pub(super) fn next_load_context(&mut self) -> WorkflowLoadContext {
        self.next_generation += 1;
        WorkflowLoadContext { generation: self.next_generation, classifier: self.options.classifier.clone() }
    }
}

/// The receiver may be gone.
#[expect(clippy::needless_pass_by_value, reason = "the sender is used up")]
fn signal_waiter(sender: SyncSender<()>) {
    sender.send(()).unwrap_or_default();
}

pub(super) fn unavailable_error(detail: &str) -> CallError {
    CallError::Unavailable { detail: detail.to_owned(), retry_after: STORE_RETRY_DELAY }
}

/// Converts an error of the store into one for the caller.
pub(super) fn store_call_error(error: &windlass_store::StoreError) -> CallError {
    use windlass_store::StoreError as E;
    let detail = error.to_string();
    match error {
        error if error.is_transient() => CallError::Unavailable { detail, retry_after: STORE_RETRY_DELAY },
        E::Closed => CallError::Unavailable { detail, retry_after: STORE_RETRY_DELAY },
        E::Action { .. } => CallError::Conflict { code: "action", detail },
        error if error.is_missing() => CallError::NotFound(detail),
        error if error.is_invalid() => CallError::Invalid { code: "invalid", detail },
        E::NameTaken { .. } => CallError::Conflict { code: "name_taken", detail },
        E::Conflict { .. } | E::StaleRun { .. } => {
            CallError::Unavailable { detail, retry_after: Duration::ZERO }
        }
        E::StillActive { .. } | E::JobIsHeld { .. } | E::NotRunning { .. } => {
            CallError::Conflict { code: "workflow_active", detail }
        }
        E::Busy { .. } | E::InUse { .. } | E::RunNotBegun { .. } | E::WorkersMayBeAlive { .. } => {
            CallError::Conflict { code: "in_use", detail }
        }
        _ => CallError::Internal(detail),
    }
}
