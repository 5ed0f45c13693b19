//! The loop: reports come in, decisions are committed, assignments go out.
//!
//! [`reports`] says what a worker's words mean, [`commits`] when decisions go to disk and what is done afterwards,
//! [`workers`] how workers come and go, [`added`] what becomes of jobs that jobs add, [`show`] what somebody who watches is
//! told, [`actions`] what is done beside the jobs, [`wishes`] what others want done about them, [`kept_back`] what becomes of
//! jobs that cannot run here.

mod actions;
mod added_jobs;
mod commits;
mod pending_commands;
mod progress;
mod reports;
mod unrunnable_jobs;
mod workers;
mod workflow_lock;

use crate::action_schedule::ActionSchedule;
use crate::claim_pacer::ClaimPacer;
use crate::crash_suspects;
use crate::event_queue::{DispatcherEvent, EventQueue, EventSender};
use crate::execution_settings::ExecutionSettings;
use crate::retry_policy::WorkflowRetryPolicy;
use crate::run_observer::RunObserver;
use crate::worker_host::WorkerHost;
use crate::{SchedulerError, recovery_at_start};
use commits::{DispatcherBatch, DispatcherCommit};
use pending_commands::PendingCommands;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::classify::FailureClassifier;
use windlass_core::crash_suspects::CrashSuspects;
use windlass_core::dispatch::WorkerSelector;
use windlass_core::workflow_state::WorkflowState;
use windlass_store::Store;
use windlass_store::lock::LockGuard;
use windlass_store::model::WorkflowRow;
use windlass_types::worker_messages::{AttemptKey, StopReason};
use windlass_types::{JobId, LOCAL_SITE, StatusCounts, SystemClock, Timestamp, WorkerId};
use workers::ActiveWorker;

/// How long to wait before trying again when the disk is full or the worker cannot start anything.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// After the second interrupt a worker that does not answer is ended like a dead one.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct DispatcherOptions {
    /// How long a job may take to stop after it was asked to.
    pub grace: Duration,
    /// When the run ends, whatever is left to do; `None`: when everything is done.
    pub deadline: Option<RunDeadline>,
    /// Says of what class failures are; `None`: the rules that are built in, and no others.
    pub classifier: Option<Arc<FailureClassifier>>,
}

/// The end of a run whose time is limited. Nothing is started that asks for more time than is left; what still runs is
/// asked to stop a little before, and is ready again afterwards.
#[derive(Clone, Copy, Debug)]
pub struct RunDeadline {
    pub end: Instant,
    /// How long before the end jobs are asked to stop.
    pub stop_before_end: Duration,
}

impl RunDeadline {
    /// When jobs are asked to stop.
    fn stop_time(self) -> Instant {
        self.end.checked_sub(self.stop_before_end).unwrap_or(self.end)
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every job is settled.
    Finished,
    /// Some jobs wait for a decision, or all of them do: the retries are used up. It can be resumed.
    WaitingForDecision,
    /// Stopped on request; it can be resumed.
    Interrupted,
    Canceled,
}

#[derive(Debug)]
pub struct RunSummary {
    pub end: RunEnd,
    pub counts: StatusCounts,
    pub elapsed: Duration,
    /// Why jobs are left that cannot run here, if there are any: [`Error::TooLarge`] or [`Error::Elsewhere`].
    pub unrunnable_jobs: Option<SchedulerError>,
}

/// What can be said to a running dispatcher from other threads.
#[derive(Clone, Debug)]
pub struct DispatcherControl(EventSender);

impl DispatcherControl {
    /// Ctrl-C: the first asks the jobs to stop, the second kills them.
    pub fn interrupt(&self) {
        self.0.send(DispatcherEvent::Interrupt);
    }

    /// Somebody may have asked for something: look.
    pub fn check_requests(&self) {
        self.0.send(DispatcherEvent::CheckRequests);
    }
}

pub struct Dispatcher<'a> {
    store: &'a dyn Store,
    lock: Option<&'a LockGuard>,
    /// Nobody knows whether the lock is still ours: until somebody does, nothing is decided.
    is_lock_uncertain: bool,
    host: &'a mut dyn WorkerHost,
    observer: &'a mut dyn RunObserver,
    options: DispatcherOptions,
    workflow: WorkflowRow,
    settings: ExecutionSettings,
    retry_policy: WorkflowRetryPolicy,
    state: WorkflowState,
    actions: ActionSchedule,
    worker: Option<ActiveWorker>,
    deaths_in_a_row: u32,
    crash_suspects: CrashSuspects,
    /// Jobs that cannot run here.
    unrunnable_jobs: Vec<JobId>,
    events: EventQueue,
    /// What came in while the dispatcher could attend to nothing but a full disk.
    postponed_events: VecDeque<DispatcherEvent>,
    /// Decided and not yet handed to the store.
    open_batch: DispatcherBatch,
    batch_open_since: Option<Instant>,
    in_flight: Option<DispatcherCommit>,
    held_jobs: HashMap<u32, HeldAttempt>,
    /// An attempt is over whose job may have added others.
    has_attempt_ended: bool,
    /// Attempts with which their jobs are over, since the last look at what was added.
    ended_attempts: Vec<AttemptKey>,
    /// Whether jobs have added any at all.
    has_added_jobs: bool,
    /// As of when the books were last looked through for what others have written.
    last_foreign_commit: Option<i64>,
    pending_commands: PendingCommands,
    stop_reason: Option<StopReason>,
    interrupts: u32,
    kill_by: Option<Instant>,
    store_problem: Option<StoreProblem>,
    claim_pacer: ClaimPacer,
    clock: SystemClock,
    started: Instant,
    last_progress_at: Instant,
}

/// A job that the worker holds.
struct HeldAttempt {
    name: String,
    started: Option<(Instant, Timestamp)>,
}

struct StoreProblem {
    message: String,
    retry_at: Instant,
}

impl std::fmt::Debug for Dispatcher<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").field("workflow", &self.workflow.id).finish_non_exhaustive()
    }
}

impl<'a> Dispatcher<'a> {
    /// Takes the workflow over (see [`takeover::take_over`]) and gets ready to run it. The caller holds its lock.
    pub fn new(
        store: &'a dyn Store,
        host: &'a mut dyn WorkerHost,
        observer: &'a mut dyn RunObserver,
        workflow: WorkflowRow,
        options: DispatcherOptions,
    ) -> Result<Self, SchedulerError> {
        let clock = SystemClock;
        // Before the jobs are read: whatever is added from here on is found later.
        let foreign_commits = store.foreign_commit_count(true)?;
        let classifier = options.classifier.clone();
        let mut state =
            recovery_at_start::recover_workflow(store, host, observer, &workflow, classifier, clock.now())?;
        let suspects = crash_suspects::load_crash_suspects(store, &workflow, &mut state)?;
        let mut open = DispatcherBatch::default();
        let mut agenda = ActionSchedule::load(store, workflow.id)?;
        agenda.count_job_triggers(&state, &mut open.changes);
        // Whoever carried out some of them before is dead.
        if agenda.states.interrupt_runs(|_| true, clock.now(), &mut open.changes) > 0 {
            observer.on_notice(
                "an action was under way when an earlier process died; `windlass workflows actions` shows it",
            );
        }
        let has_added = !store.spawning_jobs(workflow.id)?.is_empty();
        let mut sequels = WorkflowRetryPolicy::load(store, &workflow, &state, options.classifier.clone())?;
        if sequels.is_budget_spent() {
            // Whoever calls this wants it to go on.
            store.add_event(&sequels.renew_budget(&workflow), clock.now())?;
        }
        let inbox = EventQueue::new().map_err(SchedulerError::Wait)?;
        let now = Instant::now();
        Ok(Self {
            store,
            lock: None,
            is_lock_uncertain: false,
            host,
            observer,
            options,
            settings: ExecutionSettings::from_workflow(&workflow),
            workflow,
            retry_policy: sequels,
            state,
            actions: agenda,
            worker: None,
            deaths_in_a_row: 0,
            crash_suspects: suspects,
            unrunnable_jobs: Vec::new(),
            events: inbox,
            postponed_events: VecDeque::new(),
            open_batch: open,
            batch_open_since: None,
            in_flight: None,
            held_jobs: HashMap::new(),
            has_attempt_ended: false,
            ended_attempts: Vec::new(),
            has_added_jobs: has_added,
            last_foreign_commit: foreign_commits,
            pending_commands: PendingCommands::new(now),
            stop_reason: None,
            interrupts: 0,
            kill_by: None,
            store_problem: None,
            claim_pacer: ClaimPacer::default(),
            clock,
            started: now,
            last_progress_at: now,
        })
    }

    /// Looks after the lock of the workflow, which can be lost, and stops should somebody else have it.
    #[must_use]
    pub fn with_lock(mut self, lock: &'a LockGuard) -> Self {
        self.lock = Some(lock);
        self
    }

    pub fn control(&self) -> DispatcherControl {
        DispatcherControl(self.events.sender())
    }

    /// Runs until nothing more happens by itself, or until it is told to stop.
    pub fn run(mut self) -> Result<RunSummary, SchedulerError> {
        let outcome =
            self.run_loop().map_err(|error| self.lock_loss().map_or(error, SchedulerError::LockLost));
        self.report_progress(Instant::now());
        if matches!(outcome, Err(SchedulerError::LockLost(_))) {
            self.abandon();
        }
        if outcome.is_err() {
            self.commit_remaining_changes();
        }
        let dismissed = self.dismiss_worker();
        outcome.and(dismissed)?;
        let end = self.finish_run()?;
        let kept_back = if end == RunEnd::WaitingForDecision { self.unrunnable_jobs_error()? } else { None };
        Ok(RunSummary {
            end,
            counts: *self.state.counts(),
            elapsed: self.started.elapsed(),
            unrunnable_jobs: kept_back,
        })
    }

    fn run_loop(&mut self) -> Result<(), SchedulerError> {
        if !self.state.is_finished() {
            self.on_check_requests()?;
        }
        if self.stop_reason.is_none() {
            self.hold_unrunnable_jobs_at_start()?;
        }
        let (id, now) = (self.workflow.id, self.clock.now());
        self.retry_until_done(|store| store.begin_run(id, now))?;
        if self.state.has_ready() {
            self.start_worker()?;
        }
        self.start_actions()?;
        while !self.is_run_over()? {
            self.release_delayed_jobs()?;
            self.check_pending_commands_if_due()?;
            if self.has_lock()? {
                self.apply_pending_commands()?;
                self.start_next_action();
                self.claim_jobs()?;
                self.submit_batch_if_due();
            }
            self.report_progress_if_due();
            if let Some(event) = self.wait_for_event() {
                self.on_event(event)?;
                while let Some(event) = self.events.try_next_event() {
                    self.on_event(event)?;
                }
            }
            if self.time_limit_notice_at().is_some_and(|at| at <= Instant::now()) {
                self.on_deadline("the time is up: what runs is asked to stop");
            }
            if self.kill_by.is_some_and(|by| by <= Instant::now()) {
                self.kill_by = None;
                self.on_worker_gone()?;
            }
            self.load_added_jobs_if_due()?;
        }
        // What is called complete has to be in the database that others will read.
        match self.verify_lock() {
            Err(SchedulerError::Store(error)) if error.is_transient() => Ok(()),
            verified => verified,
        }
    }

    fn on_event(&mut self, event: DispatcherEvent) -> Result<(), SchedulerError> {
        let is_current = |id: &WorkerId| self.worker.as_ref().is_some_and(|worker| worker.id == *id);
        match event {
            // News of a worker that was already given up and buried.
            DispatcherEvent::FromWorker { worker, .. } | DispatcherEvent::WorkerGone { worker, .. }
                if !is_current(&worker) =>
            {
                Ok(())
            }
            DispatcherEvent::FromWorker { message, .. } => {
                self.on_message(message);
                Ok(())
            }
            DispatcherEvent::WorkerGone { protocol_error: Some(what), .. } => {
                Err(SchedulerError::Protocol(what))
            }
            DispatcherEvent::WorkerGone { protocol_error: None, .. } => self.on_worker_gone(),
            DispatcherEvent::Committed(result) => self.on_committed(result),
            DispatcherEvent::ActionEnded(report) => {
                self.on_action_ended(report);
                Ok(())
            }
            DispatcherEvent::Interrupt => {
                self.on_interrupt();
                Ok(())
            }
            DispatcherEvent::CheckRequests => {
                self.on_check_requests().and_then(|()| self.check_pending_commands())
            }
        }
    }

    fn on_interrupt(&mut self) {
        self.interrupts += 1;
        let why = *self.stop_reason.get_or_insert(StopReason::Interrupted);
        self.host.stop_actions(self.interrupts > 1);
        if self.interrupts == 1 {
            self.stop_worker(why, self.options.grace);
        } else {
            self.stop_worker(why, Duration::ZERO);
            self.kill_by.get_or_insert(Instant::now() + KILL_TIMEOUT);
        }
    }

    /// When there will be something to say to the worker about the time.
    fn time_limit_notice_at(&self) -> Option<Instant> {
        self.options.deadline.filter(|_| self.stop_reason.is_none()).map(RunDeadline::stop_time)
    }

    /// As after Ctrl-C, but whoever is asked has until the end and no longer.
    fn on_deadline(&mut self, notice: &str) {
        let left = self.options.deadline.map(|until| until.end.saturating_duration_since(Instant::now()));
        self.observer.on_notice(notice);
        self.stop_reason = Some(StopReason::Interrupted);
        self.host.stop_actions(false);
        self.stop_worker(StopReason::Interrupted, left.unwrap_or(self.options.grace));
    }

    fn on_check_requests(&mut self) -> Result<(), SchedulerError> {
        let id = self.workflow.id;
        if self.stop_reason != Some(StopReason::Canceled)
            && self.retry_until_done(|store| store.cancel_requested(id))?
        {
            self.stop_reason = Some(StopReason::Canceled);
            self.state.on_cancel();
            self.host.stop_actions(false);
            self.stop_worker(StopReason::Canceled, self.options.grace);
        }
        Ok(())
    }

    fn wait_for_event(&mut self) -> Option<DispatcherEvent> {
        if let Some(event) = self.postponed_events.pop_front() {
            return Some(event);
        }
        let now = Instant::now();
        let linger = self.commit_deadline().filter(|_| self.in_flight.is_none());
        let retry = self.in_flight.as_ref().and_then(|f| f.retry_at);
        let trouble = self.store_problem.as_ref().map(|t| t.retry_at).filter(|until| *until > now);
        let progress = Some(self.last_progress_at + PROGRESS_INTERVAL);
        let due = self.state.next_due().map(|due| now + due.since(self.clock.now()));
        let warning = self.time_limit_notice_at();
        let until =
            [linger, retry, trouble, due, warning, self.kill_by, progress].into_iter().flatten().min()?;
        self.events.next_event(until)
    }

    /// Jobs that had to wait before they are tried again may be claimed when their time has come.
    fn release_delayed_jobs(&mut self) -> Result<(), SchedulerError> {
        if self.state.next_due().is_none() {
            return Ok(());
        }
        self.state.release_due(self.clock.now());
        if self.state.has_ready() && self.worker.is_none() && self.stop_reason.is_none() {
            // Nothing else was there to be done when the run began.
            self.start_worker()?;
        }
        Ok(())
    }

    /// Whoever wished for something in the last moment is attended to.
    fn is_run_over(&mut self) -> Result<bool, SchedulerError> {
        if !self.has_nothing_to_do() {
            return Ok(false);
        }
        self.check_pending_commands()?;
        Ok(self.stop_reason.is_some() || !self.pending_commands.is_any_pending)
    }

    fn has_nothing_to_do(&self) -> bool {
        let committed = self.open_batch.changes.is_empty() && self.in_flight.is_none();
        let nothing_held = self.held_jobs.is_empty();
        let no_more_to_do = self.stop_reason.is_some() || self.state.is_finished() || self.state.is_stuck();
        // Told twice to stop with the disk full: what could not be recorded will run again.
        let is_refused = self.is_lock_uncertain || self.in_flight.as_ref().is_some_and(|f| f.was_refused);
        let given_up = self.interrupts > 1 && nothing_held && is_refused;
        // Jobs may have been added that could not be looked for yet.
        let knows_all = !self.has_attempt_ended || self.stop_reason.is_some();
        (committed && knows_all && nothing_held && no_more_to_do && self.actions_are_done()) || given_up
    }

    /// Notes how it ended. Whoever asked for cancellation in the last moment is answered as well.
    fn finish_run(&mut self) -> Result<RunEnd, SchedulerError> {
        let (id, now) = (self.workflow.id, self.clock.now());
        let finished = self.state.is_finished();
        if !finished {
            self.on_check_requests()?;
        }
        let end = match self.stop_reason {
            Some(StopReason::Canceled) => RunEnd::Canceled,
            _ if finished => RunEnd::Finished,
            Some(StopReason::Interrupted) => RunEnd::Interrupted,
            None => RunEnd::WaitingForDecision,
        };
        if matches!(end, RunEnd::Finished | RunEnd::Canceled) {
            self.retry_until_done(|store| store.end_run(id, end == RunEnd::Canceled, now))?;
        }
        Ok(end)
    }

    fn record_store_problem(&mut self, text: String) {
        if self.store_problem.as_ref().is_none_or(|t| t.message != text) {
            self.observer.on_notice(&text);
        }
        self.store_problem =
            Some(StoreProblem { message: text, retry_at: Instant::now() + STORE_RETRY_DELAY });
    }

    /// Does something small and waits a full disk or a database that is away out, unless it is told twice to stop.
    fn retry_until_done<T>(
        &mut self,
        work: impl Fn(&dyn Store) -> Result<T, windlass_store::StoreError>,
    ) -> Result<T, SchedulerError> {
        loop {
            match self.check_lock().and_then(|()| Ok(work(self.store)?)) {
                Err(SchedulerError::Store(error)) if error.is_transient() && self.interrupts < 2 => {
                    self.record_store_problem(error.to_string());
                    self.wait_out_problem();
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits for a moment, attending to nothing but interrupts.
    fn wait_out_problem(&mut self) {
        let until = Instant::now() + STORE_RETRY_DELAY;
        while let Some(event) = self.events.next_event(until) {
            match event {
                DispatcherEvent::Interrupt => self.on_interrupt(),
                other => self.postponed_events.push_back(other),
            }
        }
        self.report_progress(Instant::now());
    }
}

impl StoreProblem {
    fn is_current(&self) -> bool {
        self.retry_at > Instant::now()
    }
}

/// What the only worker takes: it is here, and whatever is to run has to run here.
fn local_worker_selector(labels: &[String]) -> WorkerSelector {
    WorkerSelector::default().at_site(Some(LOCAL_SITE)).with_labels_of_only_worker(labels.to_vec())
}
