//! A local run: hosts the scheduler for one workflow, on the thread of the caller, with one worker process that
//! is attached to it.
//!
//! The scheduler decides, commits and assigns as at a server. This is what a server has no counterpart for:
//! [`worker_process`] starts, replaces and stops the worker, [`commands`] applies commands of users that are
//! stored in the database, [`added_jobs`] looks for jobs that jobs add there, [`unrunnable_jobs`] handles jobs
//! that cannot run here, [`workflow_lock`] checks the lock, [`progress`] reports to the observer.

mod added_jobs;
mod commands;
mod progress;
mod unrunnable_jobs;
mod worker_process;
mod workflow_lock;

use super::active_workflow::{ActiveWorkflow, WorkflowLoadError};
use super::call_types::SchedulerOptions;
use super::event_queue::{EventQueue, EventSender};
use super::scheduler::{MAX_CALLS_PER_ROUND, STORE_RETRY_DELAY, Scheduler, WorkflowSlot};
use super::scheduler_call::{LocalRunEvent, SchedulerEvent};
use crate::run_observer::{AttemptEndNotice, RunObserver};
use crate::worker_host::WorkerHost;
use crate::{SchedulerError, recovery_at_start};
use commands::PendingCommands;
use progress::SettledRate;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::classify::FailureClassifier;
use windlass_store::lock::LockGuard;
use windlass_store::model::{WorkerRow, WorkflowRow};
use windlass_store::{Store, StoreError};
use windlass_types::worker_messages::StopReason;
use windlass_types::{JobId, StatusCounts, SystemClock, WorkflowId};

const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// After the second interrupt a worker that does not answer within this time is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of the last commit of a failed run.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct LocalRunOptions {
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

    fn time_left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
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

/// Controls a local run from other threads.
#[derive(Clone)]
pub struct LocalRunControl(EventSender);

impl LocalRunControl {
    /// Ctrl-C: the first asks the jobs to stop, the second kills them.
    pub fn interrupt(&self) {
        drop(self.0.send(LocalRunEvent::Interrupt.into()));
    }

    /// Checks for commands of users in the database.
    pub fn check_requests(&self) {
        drop(self.0.send(LocalRunEvent::CheckRequests.into()));
    }
}

pub struct LocalRun<'a> {
    store: Arc<dyn Store>,
    scheduler: Scheduler,
    events: EventQueue,
    /// Events that arrived while the run waited for the database.
    postponed_events: VecDeque<SchedulerEvent>,
    /// Events of the worker that arrived while the workflow was reloaded.
    postponed_reports: VecDeque<LocalRunEvent>,
    lock: Option<&'a LockGuard>,
    /// It is unknown whether the lock is still held: nothing is decided until that is known.
    is_lock_uncertain: bool,
    host: &'a mut dyn WorkerHost,
    observer: &'a mut dyn RunObserver,
    options: LocalRunOptions,
    workflow: WorkflowRow,
    /// The last known numbers of jobs.
    counts: StatusCounts,
    /// The instance of the workflow in the scheduler that was seen last.
    generation: u64,
    worker: Option<WorkerRow>,
    /// Dead workers whose files are kept until the changes of their jobs are committed.
    dead_workers: Vec<WorkerRow>,
    deaths_in_a_row: u32,
    /// Jobs that cannot run here.
    unrunnable_jobs: Vec<JobId>,
    /// The version of the database at the last check for writes of other processes.
    last_foreign_commit: Option<i64>,
    pending_commands: PendingCommands,
    stop_reason: Option<StopReason>,
    interrupts: u32,
    kill_by: Option<Instant>,
    problem: Option<PassingProblem>,
    settled_rate: SettledRate,
    clock: SystemClock,
    started: Instant,
    last_progress_at: Instant,
}

/// A problem that blocks progress for a while.
struct PassingProblem {
    message: String,
    retry_at: Instant,
}

impl PassingProblem {
    fn is_current(&self) -> bool {
        self.retry_at > Instant::now()
    }
}

impl std::fmt::Debug for LocalRun<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalRun").field("workflow", &self.workflow.id).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LocalRunControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalRunControl")
    }
}

impl<'a> LocalRun<'a> {
    /// Recovers the workflow (see [`recovery_at_start::recover_workflow`]) and prepares to run it. The caller
    /// holds its lock.
    pub fn new(
        store: Arc<dyn Store>,
        host: &'a mut dyn WorkerHost,
        observer: &'a mut dyn RunObserver,
        workflow: WorkflowRow,
        options: LocalRunOptions,
    ) -> Result<Self, SchedulerError> {
        let clock = SystemClock;
        // Taken before the jobs are read, so that jobs added from here on are found later.
        let foreign_commits = store.foreign_commit_count(true)?;
        let classifier = options.classifier.clone();
        recovery_at_start::recover_workflow(
            &*store,
            host,
            observer,
            &workflow,
            classifier.clone(),
            clock.now(),
        )?;
        let events = EventQueue::new().map_err(SchedulerError::Wait)?;
        let service_options =
            SchedulerOptions { grace: options.grace, classifier, ..SchedulerOptions::default() };
        let mut scheduler =
            Scheduler::new(Arc::clone(&store), service_options, events.sender(), Arc::default());
        scheduler.local_run = Some(super::attached_worker::LocalRunOutput::default());
        let context = scheduler.next_load_context();
        let mut active =
            ActiveWorkflow::load(&*store, workflow.id, context).map_err(|error| match error {
                WorkflowLoadError::NotFound => SchedulerError::NoSuchWorkflow(workflow.id),
                WorkflowLoadError::InvalidRows(_) => SchedulerError::Cycle(workflow.id),
                WorkflowLoadError::Store(error) => error.into(),
            })?;
        if active.actions.states.is_running() {
            observer.on_notice(
                "an action was running when an earlier process died; see `windlass workflows actions`",
            );
        }
        if active.state.is_halted() {
            // The caller wants the workflow to continue.
            store.add_event(&active.retry_policy.renew_budget(&workflow), clock.now())?;
            active.state.on_continue();
        }
        active.state.on_initialize_rest(&mut active.open_batch.changes);
        let (generation, counts) = (active.generation, *active.state.counts());
        scheduler.activate(active);
        let now = Instant::now();
        Ok(Self {
            store,
            scheduler,
            events,
            postponed_events: VecDeque::new(),
            postponed_reports: VecDeque::new(),
            lock: None,
            is_lock_uncertain: false,
            host,
            observer,
            options,
            workflow,
            counts,
            generation,
            worker: None,
            dead_workers: Vec::new(),
            deaths_in_a_row: 0,
            unrunnable_jobs: Vec::new(),
            last_foreign_commit: foreign_commits,
            pending_commands: PendingCommands::new(now),
            stop_reason: None,
            interrupts: 0,
            kill_by: None,
            problem: None,
            settled_rate: SettledRate::default(),
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

    pub fn control(&self) -> LocalRunControl {
        LocalRunControl(self.events.sender())
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
        self.retire_dead_workers()?;
        let end = self.finish_run()?;
        let unrunnable_jobs =
            if end == RunEnd::WaitingForDecision { self.unrunnable_jobs_error()? } else { None };
        self.scheduler.stale_report_writer.flush();
        Ok(RunSummary { end, counts: self.counts, elapsed: self.started.elapsed(), unrunnable_jobs })
    }

    fn run_loop(&mut self) -> Result<(), SchedulerError> {
        if !is_finished(&self.counts) {
            self.check_cancel_request()?;
        }
        if self.stop_reason.is_none() {
            self.hold_unrunnable_jobs_at_start()?;
        }
        self.begin_run()?;
        loop {
            self.decide()?;
            if self.is_run_over()? {
                break;
            }
            self.handle_events()?;
        }
        // The end must be in the database that others will read.
        match self.verify_lock() {
            Err(SchedulerError::Store(error)) if error.is_transient() => Ok(()),
            verified => verified,
        }
    }

    fn begin_run(&mut self) -> Result<(), SchedulerError> {
        let (id, now) = (self.workflow.id, self.clock.now());
        self.retry_until_done(|store| store.begin_run(id, now))?;
        if let Some(active) = self.scheduler.find_workflow(id) {
            active.begin_run(now);
        }
        self.scheduler.dirty_workflows.insert(id);
        Ok(())
    }

    /// Decides, commits and assigns, if the lock is held.
    fn decide(&mut self) -> Result<(), SchedulerError> {
        self.scheduler.now = self.scheduler.options.clock.now();
        self.check_pending_commands_if_due()?;
        if self.has_lock()? {
            self.load_added_jobs_if_due()?;
            self.submit_pending_commands();
            self.start_worker_if_needed()?;
            self.limit_worker_time();
            if self.active().and_then(ActiveWorkflow::commit_deadline).is_some_and(|at| at <= Instant::now())
            {
                self.scheduler.dirty_workflows.insert(self.workflow.id);
            }
            self.scheduler.handle_deadlines();
            self.scheduler.process_dirty_state();
            self.take_output()?;
            self.forget_retired_workers();
            self.stop_if_nothing_fits_in_time();
        }
        self.report_progress_if_due();
        Ok(())
    }

    /// Waits for an event and handles all that have arrived, and what is due.
    fn handle_events(&mut self) -> Result<(), SchedulerError> {
        if let Some(event) = self.wait_for_event() {
            self.scheduler.now = self.scheduler.options.clock.now();
            self.on_event(event)?;
            for _ in 0..MAX_CALLS_PER_ROUND {
                let Some(event) = self.events.try_next_event() else { break };
                self.on_event(event)?;
            }
        }
        if self.accepts_reports() {
            for event in std::mem::take(&mut self.postponed_reports) {
                self.on_local_event(event)?;
            }
        }
        if self.time_limit_notice_at().is_some_and(|at| at <= Instant::now()) {
            self.on_deadline("time limit reached: stopping the running jobs");
        }
        if self.kill_by.is_some_and(|by| by <= Instant::now()) {
            self.kill_by = None;
            self.on_worker_gone()?;
        }
        self.take_output()
    }

    fn on_event(&mut self, event: SchedulerEvent) -> Result<(), SchedulerError> {
        match event {
            SchedulerEvent::Local(event) => self.on_local_event(event),
            event => {
                self.scheduler.on_event(event);
                self.check_reload()
            }
        }
    }

    fn on_local_event(&mut self, event: LocalRunEvent) -> Result<(), SchedulerError> {
        let is_current = |id| self.worker.as_ref().is_some_and(|row| row.id == id);
        // In their order.
        let must_wait = !self.accepts_reports() || !self.postponed_reports.is_empty();
        match event {
            LocalRunEvent::Interrupt => {
                self.on_interrupt();
                Ok(())
            }
            LocalRunEvent::CheckRequests => {
                self.check_cancel_request().and_then(|()| self.check_pending_commands())
            }
            LocalRunEvent::CommandsApplied(result) => self.on_commands_applied(result),
            event @ (LocalRunEvent::FromWorker { .. }
            | LocalRunEvent::WorkerGone { .. }
            | LocalRunEvent::ActionEnded { .. })
                if must_wait =>
            {
                self.postponed_reports.push_back(event);
                Ok(())
            }
            LocalRunEvent::ActionEnded { worker, report } => {
                self.on_action_ended(worker, report);
                Ok(())
            }
            // Events of a worker that is dead already.
            LocalRunEvent::FromWorker { worker, .. } | LocalRunEvent::WorkerGone { worker, .. }
                if !is_current(worker) =>
            {
                Ok(())
            }
            LocalRunEvent::FromWorker { worker, message } => {
                self.scheduler.on_attached_message(worker, message);
                if self.active().is_some_and(|active| active.awaits_added_jobs) {
                    self.deaths_in_a_row = 0;
                }
                Ok(())
            }
            LocalRunEvent::WorkerGone { protocol_error: Some(what), .. } => {
                Err(SchedulerError::Protocol(what))
            }
            LocalRunEvent::WorkerGone { protocol_error: None, .. } => self.on_worker_gone(),
        }
    }

    /// The workflow, unless it is being reloaded.
    fn active(&self) -> Option<&ActiveWorkflow> {
        match self.scheduler.workflows.get(&self.workflow.id) {
            Some(WorkflowSlot::Active(active)) => Some(active),
            _ => None,
        }
    }

    /// Whether reports of the worker can be applied: not while the workflow is, or has to be, reloaded.
    fn accepts_reports(&self) -> bool {
        self.active().is_some_and(|active| !active.is_closing())
    }

    /// Prepares a workflow that was just reloaded.
    fn check_reload(&mut self) -> Result<(), SchedulerError> {
        let id = self.workflow.id;
        if !self.scheduler.workflows.contains_key(&id) {
            return Err(SchedulerError::NoSuchWorkflow(id));
        }
        let Some(active) = self.scheduler.find_workflow(id) else { return Ok(()) };
        if std::mem::replace(&mut self.generation, active.generation) == active.generation {
            return Ok(());
        }
        // Only this process ends the run.
        active.is_active = true;
        active.state.on_initialize_rest(&mut active.open_batch.changes);
        let is_cancel_requested = active.is_canceled;
        if self.stop_reason == Some(StopReason::Canceled) {
            self.scheduler.cancel_jobs(id);
        } else if is_cancel_requested {
            self.check_cancel_request()?;
        }
        self.hold_new_unrunnable_jobs()
    }

    /// Performs what the scheduler left for its host.
    fn take_output(&mut self) -> Result<(), SchedulerError> {
        let Some(local_run) = &mut self.scheduler.local_run else { return Ok(()) };
        let output = std::mem::take(local_run);
        for notice in output.notices {
            self.observer.on_notice(&notice);
        }
        for problem in output.problems {
            self.record_problem(problem);
        }
        for end in output.attempt_ends {
            self.observer.on_attempt_ended(&AttemptEndNotice {
                key: end.key,
                name: &end.name,
                attempt_status: end.outcome.attempt_status,
                job_status: end.outcome.job_status,
                return_code: end.outcome.return_code,
                wall_time: end.wall_time,
                reason: end.outcome.reason.as_deref(),
            });
        }
        for (worker, order) in output.actions {
            self.perform_action(worker, order);
        }
        output.failure.map_or(Ok(()), |error| Err(error.into()))
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
        let left = self.options.deadline.map(RunDeadline::time_left);
        self.observer.on_notice(notice);
        self.stop_reason = Some(StopReason::Interrupted);
        self.host.stop_actions(false);
        self.stop_worker(StopReason::Interrupted, left.unwrap_or(self.options.grace));
    }

    /// Ends a run with a time limit when an idle worker could take none of the ready jobs any more.
    fn stop_if_nothing_fits_in_time(&mut self) {
        if self.options.deadline.is_none() || self.stop_reason.is_some() || self.problem.is_some() {
            return;
        }
        let Some(worker) = self.worker.as_ref().map(|row| row.id) else { return };
        let is_waiting = self.scheduler.sessions.get(&worker).is_some_and(|session| {
            session.may_take_jobs() && session.held_jobs.is_empty() && session.next_cooldown_end().is_none()
        });
        let could_claim = self.active().is_some_and(|active| {
            active.is_quiet()
                && active.may_claim()
                && active.state.has_ready()
                && !active.actions.states.blocks_jobs(Some(worker))
        });
        if is_waiting && could_claim {
            self.on_deadline("no remaining job would end within the time limit: starting no more jobs");
        }
    }

    fn wait_for_event(&mut self) -> Option<SchedulerEvent> {
        if let Some(event) = self.postponed_events.pop_front() {
            return Some(event);
        }
        let active = self.active();
        let commit =
            active.filter(|active| active.in_flight.is_none()).and_then(ActiveWorkflow::commit_deadline);
        let trouble = self.problem.as_ref().filter(|problem| problem.is_current()).map(|it| it.retry_at);
        let warning = self.time_limit_notice_at();
        let due = [commit, trouble, warning, self.kill_by, Some(self.last_progress_at + PROGRESS_INTERVAL)];
        let until = due.into_iter().flatten().chain([self.scheduler.next_deadline()]).min();
        self.events.next_event(until)
    }

    /// Handles commands that arrived at the last moment.
    fn is_run_over(&mut self) -> Result<bool, SchedulerError> {
        if !self.has_nothing_to_do() {
            return Ok(false);
        }
        self.check_pending_commands()?;
        Ok(self.stop_reason.is_some() || !self.pending_commands.is_any_pending)
    }

    fn has_nothing_to_do(&mut self) -> bool {
        let is_stopped = self.stop_reason.is_some();
        let worker = self.worker.as_ref().and_then(|row| self.scheduler.sessions.get(&row.id));
        let is_worker_free = worker.is_none_or(|session| session.held_jobs.is_empty());
        let has_problem =
            self.is_lock_uncertain || self.active().is_none_or(ActiveWorkflow::has_store_problem);
        if self.interrupts > 1 && is_worker_free && has_problem {
            // Interrupted twice with the disk full: ends that could not be recorded run again.
            return true;
        }
        let Some(active) = self.active() else { return false };
        let is_idle = active.is_quiet() && !active.is_closing() && active.held_jobs.is_empty();
        // There may be added jobs that could not be checked for.
        let knows_all = !active.awaits_added_jobs || is_stopped;
        let is_at_end = is_stopped || active.state.is_finished() || active.state.is_stuck();
        is_idle && knows_all && is_at_end && self.are_actions_done()
    }

    /// Whether no action is running or due. Starts those at the end of the worker.
    fn are_actions_done(&mut self) -> bool {
        let (id, is_stopped) = (self.workflow.id, self.stop_reason.is_some());
        let Some(actions) = self.active().map(|active| &active.actions.states) else { return true };
        if is_stopped || actions.is_empty() {
            return !actions.is_running();
        }
        if self.scheduler.dirty_workflows.contains(&id) || self.scheduler.waits_for_actions(id) {
            return false;
        }
        if let Some(worker) = self.worker.as_ref().map(|row| row.id) {
            self.scheduler.start_final_actions(worker);
        }
        self.active().is_some_and(|active| active.is_quiet() && !active.actions.states.is_running())
    }

    /// Records how the run ended, also answering a cancel request that arrived at the last moment.
    fn finish_run(&mut self) -> Result<RunEnd, SchedulerError> {
        let (id, now) = (self.workflow.id, self.clock.now());
        let finished = is_finished(&self.counts);
        if !finished {
            self.check_cancel_request()?;
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

    /// Commits the reports received so far, when the run fails. Claims that were never sent stay in the
    /// database; the next recovery at start returns them.
    fn commit_remaining_changes(&mut self) {
        let (id, until) = (self.workflow.id, Instant::now() + LAST_COMMIT_TIMEOUT);
        loop {
            let Some(active) = self.scheduler.find_workflow(id) else { return };
            match &active.in_flight {
                None if active.open_batch.changes.is_empty() => return,
                None => self.scheduler.submit_open_batch(id),
                Some(batch) if batch.retry_at.is_some() => return,
                Some(_) => {}
            }
            match self.events.next_event(Some(until)) {
                Some(event @ SchedulerEvent::Committed { result: Ok(()), .. }) => {
                    self.scheduler.on_event(event);
                }
                Some(SchedulerEvent::Committed { .. }) | None => return,
                Some(_) => {}
            }
        }
    }

    fn record_problem(&mut self, text: String) {
        if self.problem.as_ref().is_none_or(|problem| problem.message != text) {
            self.observer.on_notice(&text);
        }
        self.problem = Some(PassingProblem { message: text, retry_at: Instant::now() + STORE_RETRY_DELAY });
    }

    /// Repeats a small operation until the database works again, unless interrupted twice.
    fn retry_until_done<T>(
        &mut self,
        work: impl Fn(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, SchedulerError> {
        loop {
            match self.check_lock().and_then(|()| Ok(work(&*self.store)?)) {
                Err(SchedulerError::Store(error)) if error.is_transient() && self.interrupts < 2 => {
                    self.record_problem(error.to_string());
                    self.wait_out_problem();
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits for a moment, handling only interrupts.
    fn wait_out_problem(&mut self) {
        let until = Instant::now() + STORE_RETRY_DELAY;
        while let Some(event) = self.events.next_event(Some(until)) {
            match event {
                SchedulerEvent::Local(LocalRunEvent::Interrupt) => self.on_interrupt(),
                other => self.postponed_events.push_back(other),
            }
        }
        self.report_progress(Instant::now());
    }

    const fn id(&self) -> WorkflowId {
        self.workflow.id
    }
}

fn is_finished(counts: &StatusCounts) -> bool {
    counts.settled() == counts.total()
}
