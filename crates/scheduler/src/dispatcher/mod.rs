//! The main loop: reports come in, decisions are committed, assignments go out.
//!
//! [`reports`] interprets the messages of the worker, [`commits`] submits changes and performs their effects,
//! [`workers`] starts and replaces workers, [`added_jobs`] inserts jobs that jobs add, [`progress`] reports to
//! the observer, [`actions`] runs actions, [`pending_commands`] applies commands of users, [`unrunnable_jobs`]
//! handles jobs that cannot run here.

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
use crate::claim_ahead::ClaimAheadEstimator;
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

/// The delay before a retry when the disk is full or the worker cannot start processes.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// After the second interrupt a worker that does not answer within this time is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct DispatcherOptions {
    /// The grace period of jobs between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The time limit of the run; `None`: it ends when all jobs are settled.
    pub deadline: Option<RunDeadline>,
    /// The rules that classify failures; `None`: only the built-in rules.
    pub classifier: Option<Arc<FailureClassifier>>,
}

/// The time limit of a run. Jobs that request more than the remaining time are not started; running jobs are
/// stopped a little earlier, and become ready again.
#[derive(Clone, Copy, Debug)]
pub struct RunDeadline {
    pub end: Instant,
    /// How long before the end jobs are asked to stop.
    pub stop_before_end: Duration,
}

impl RunDeadline {
    /// The time at which jobs are asked to stop.
    fn stop_time(self) -> Instant {
        self.end.checked_sub(self.stop_before_end).unwrap_or(self.end)
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All jobs are settled.
    Finished,
    /// Jobs wait for a decision, or the retry budget is spent. The run can be resumed.
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
    /// Why the remaining jobs cannot run here, if there are any: for example [`SchedulerError::JobTooLarge`].
    pub unrunnable_jobs: Option<SchedulerError>,
}

/// Controls a running dispatcher from other threads.
#[derive(Clone, Debug)]
pub struct DispatcherControl(EventSender);

impl DispatcherControl {
    /// Ctrl-C: the first asks the jobs to stop, the second kills them.
    pub fn interrupt(&self) {
        self.0.send(DispatcherEvent::Interrupt);
    }

    /// Checks for commands of users in the database.
    pub fn check_requests(&self) {
        self.0.send(DispatcherEvent::CheckRequests);
    }
}

pub struct Dispatcher<'a> {
    store: &'a dyn Store,
    lock: Option<&'a LockGuard>,
    /// It is unknown whether the lock is still held: nothing is decided until that is known.
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
    /// Events that arrived while the dispatcher waited for the database.
    postponed_events: VecDeque<DispatcherEvent>,
    /// Changes not yet submitted to the store.
    open_batch: DispatcherBatch,
    batch_open_since: Option<Instant>,
    in_flight: Option<DispatcherCommit>,
    held_jobs: HashMap<u32, HeldAttempt>,
    /// An attempt has ended whose job may have added others.
    has_attempt_ended: bool,
    /// The attempts that settled their jobs since the last check for added jobs.
    ended_attempts: Vec<AttemptKey>,
    /// Whether jobs have added any jobs.
    has_added_jobs: bool,
    /// The version of the database at the last check for writes of other processes.
    last_foreign_commit: Option<i64>,
    pending_commands: PendingCommands,
    stop_reason: Option<StopReason>,
    interrupts: u32,
    kill_by: Option<Instant>,
    store_problem: Option<StoreProblem>,
    claim_ahead: ClaimAheadEstimator,
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
    /// Recovers the workflow (see [`recovery_at_start::recover_workflow`]) and prepares to run it. The caller
    /// holds its lock.
    pub fn new(
        store: &'a dyn Store,
        host: &'a mut dyn WorkerHost,
        observer: &'a mut dyn RunObserver,
        workflow: WorkflowRow,
        options: DispatcherOptions,
    ) -> Result<Self, SchedulerError> {
        let clock = SystemClock;
        // Taken before the jobs are read, so that jobs added from here on are found later.
        let foreign_commits = store.foreign_commit_count(true)?;
        let classifier = options.classifier.clone();
        let mut state =
            recovery_at_start::recover_workflow(store, host, observer, &workflow, classifier, clock.now())?;
        let suspects = crash_suspects::load_crash_suspects(store, &workflow, &mut state)?;
        let mut open = DispatcherBatch::default();
        let mut action_schedule = ActionSchedule::load(store, workflow.id)?;
        action_schedule.count_job_triggers(&state, &mut open.changes);
        // The process that ran some of them before is dead.
        if action_schedule.states.interrupt_runs(|_| true, clock.now(), &mut open.changes) > 0 {
            observer.on_notice(
                "an action was running when an earlier process died; see `windlass workflows actions`",
            );
        }
        let has_added = !store.spawning_jobs(workflow.id)?.is_empty();
        let mut retry_policy =
            WorkflowRetryPolicy::load(store, &workflow, &state, options.classifier.clone())?;
        if retry_policy.is_budget_spent() {
            // The caller wants the workflow to continue.
            store.add_event(&retry_policy.renew_budget(&workflow), clock.now())?;
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
            retry_policy,
            state,
            actions: action_schedule,
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
            claim_ahead: ClaimAheadEstimator::default(),
            clock,
            started: now,
            last_progress_at: now,
        })
    }

    /// Checks the lock of the workflow, and stops if another process holds it.
    #[must_use]
    pub fn with_lock(mut self, lock: &'a LockGuard) -> Self {
        self.lock = Some(lock);
        self
    }

    pub fn control(&self) -> DispatcherControl {
        DispatcherControl(self.events.sender())
    }

    /// Runs until nothing more can happen without a command, or until it is stopped.
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
        let unrunnable_jobs =
            if end == RunEnd::WaitingForDecision { self.unrunnable_jobs_error()? } else { None };
        Ok(RunSummary { end, counts: *self.state.counts(), elapsed: self.started.elapsed(), unrunnable_jobs })
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
                self.on_deadline("time limit reached: stopping the running jobs");
            }
            if self.kill_by.is_some_and(|by| by <= Instant::now()) {
                self.kill_by = None;
                self.on_worker_gone()?;
            }
            self.load_added_jobs_if_due()?;
        }
        // The end must be in the database that others will read.
        match self.verify_lock() {
            Err(SchedulerError::Store(error)) if error.is_transient() => Ok(()),
            verified => verified,
        }
    }

    fn on_event(&mut self, event: DispatcherEvent) -> Result<(), SchedulerError> {
        let is_current = |id: &WorkerId| self.worker.as_ref().is_some_and(|worker| worker.id == *id);
        match event {
            // Events of a worker that is dead already.
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

    /// The time of the next action because of the time limit.
    fn time_limit_notice_at(&self) -> Option<Instant> {
        self.options.deadline.filter(|_| self.stop_reason.is_none()).map(RunDeadline::stop_time)
    }

    /// Like Ctrl-C, but jobs have only until the end of the time limit.
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
        let commit_deadline = self.commit_deadline().filter(|_| self.in_flight.is_none());
        let retry = self.in_flight.as_ref().and_then(|f| f.retry_at);
        let trouble = self.store_problem.as_ref().map(|t| t.retry_at).filter(|until| *until > now);
        let progress = Some(self.last_progress_at + PROGRESS_INTERVAL);
        let due = self.state.next_due().map(|due| now + due.since(self.clock.now()));
        let warning = self.time_limit_notice_at();
        let until = [commit_deadline, retry, trouble, due, warning, self.kill_by, progress]
            .into_iter()
            .flatten()
            .min()?;
        self.events.next_event(until)
    }

    /// Makes delayed retries claimable when they are due.
    fn release_delayed_jobs(&mut self) -> Result<(), SchedulerError> {
        if self.state.next_due().is_none() {
            return Ok(());
        }
        self.state.release_due(self.clock.now());
        if self.state.has_ready() && self.worker.is_none() && self.stop_reason.is_none() {
            // The run had nothing to do but wait when it began.
            self.start_worker()?;
        }
        Ok(())
    }

    /// Handles commands that arrived at the last moment.
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
        // Interrupted twice with the disk full: ends that could not be recorded run again.
        let is_refused = self.is_lock_uncertain || self.in_flight.as_ref().is_some_and(|f| f.was_refused);
        let given_up = self.interrupts > 1 && nothing_held && is_refused;
        // There may be added jobs that could not be checked for.
        let knows_all = !self.has_attempt_ended || self.stop_reason.is_some();
        (committed && knows_all && nothing_held && no_more_to_do && self.actions_are_done()) || given_up
    }

    /// Records how the run ended, also answering a cancel request that arrived at the last moment.
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

    /// Repeats a small operation until the database works again, unless interrupted twice.
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

    /// Waits for a moment, handling only interrupts.
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

/// What the only worker accepts: jobs for this machine.
fn local_worker_selector(labels: &[String]) -> WorkerSelector {
    WorkerSelector::default().at_site(Some(LOCAL_SITE)).with_labels_of_only_worker(labels.to_vec())
}
