//! The main thread of a remote worker: receives all events, decides, and acts.

use crate::actions::ActionRunner;
use crate::event::RemoteWorkerEvent;
use crate::exchange_client::{ExchangeClient, ExchangeLane, ExchangeParameters, NextCall};
use crate::known_workflows::KnownWorkflows;
use crate::lease::ServerLease;
use crate::observer::{LoggingObserver, RemoteWorkerObserver, RemoteWorkerProgress};
use crate::options::{RemoteWorkerOptions, WorkerDeadline};
use crate::result_journal::{JournalEntry, ResultJournal, is_final_report, report_key};
use crate::server_callers::{CallerThread, QueuedCall, ServerCall, ServerConnection};
use crate::shutdown::{
    LeaveReason, RemoteWorkerSummary, ShutdownState, ShutdownUrgency, is_warning_expected, next_urgency,
};
use crate::state_directory::{
    SavedProcess, SavedWorkerState, StateDirectory, WorkerCredentials, unique_name,
};
use crate::undelivered_results::{self, UndeliveredResults};
use crate::worker_process::{REPORT_DELAY, WorkerProcess, WorkerProcessRecords};
use crate::{RemoteWorkerError, backoff};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_api::job_token::{JobTokenClaims, JobTokenSubject, secret_hash};
use windlass_client::{Client, Keyring};
use windlass_process::process_identity::{ProcessIdentity, boot_id, boot_time};
use windlass_process::{Signal, machine};
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptKey, AttemptReport, FromWorker, ProcessExit, ReturnReason, StopReason, ToWorker,
    server_url_variables,
};
use windlass_types::worker_protocol::{
    ActionReport, ExchangeReply, RegistrationReply, StaleReport, StopCommand, WorkerReconnect,
    WorkerRegistration,
};
use windlass_types::{Attempt, WorkflowId, log_attempt};

/// The number of deaths of the worker process in a row, without a completed job, after which it is not started
/// again. Higher than the number after which the server fails jobs that kill workers.
const MAX_WORKER_DEATHS: u32 = 12;
/// How often an idle persistent worker polls again if the server asked it to leave.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The delay of polls while more jobs are assigned than run at once: there will be reports before, and the
/// replies to these bring new jobs.
const BUSY_POLL_DELAY: Duration = REPORT_DELAY.saturating_mul(2);
/// The largest delay between two attempts to reach the server.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// The largest wait of the main loop, if nothing is due.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// A wake-up this much too late means that the process was stopped, or the machine slept.
const STALL_THRESHOLD: Duration = Duration::from_secs(1);

pub struct RemoteWorker {
    pub(crate) options: RemoteWorkerOptions,
    state_directory: StateDirectory,
    saved_state: SavedWorkerState,
    events: Receiver<RemoteWorkerEvent>,
    event_sender: Sender<RemoteWorkerEvent>,
    callers: [CallerThread; 2],
    pub(crate) exchange: ExchangeClient,
    pub(crate) lease: ServerLease,
    /// The lease as last sent to the worker process.
    reported_lease: Duration,
    journal: ResultJournal,
    /// The content of the state file.
    journaled_attempts: HashSet<AttemptKey>,
    journaled_actions: HashSet<(i64, Attempt)>,
    pub(crate) worker_process: Option<WorkerProcess>,
    started_processes: u32,
    deaths_in_a_row: u32,
    workflows: KnownWorkflows,
    /// The attempts that the server assigned to this worker.
    held_attempts: BTreeSet<AttemptKey>,
    /// The attempts in the worker process.
    pub(crate) busy_attempts: BTreeSet<AttemptKey>,
    pub(crate) actions: ActionRunner,
    pub(crate) shutdown: Option<ShutdownState>,
    pub(crate) idle_since: Instant,
    poll_after: Option<Instant>,
    first_contact_by: Instant,
    was_registered: bool,
    pub(crate) is_frozen: bool,
    undelivered: Vec<UndeliveredResults>,
    delivery: Option<JoinHandle<Vec<String>>>,
    last_progress: RemoteWorkerProgress,
    succeeded: u64,
    failed: u64,
    stopped: u64,
}

impl std::fmt::Debug for RemoteWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("home", &self.state_directory).finish_non_exhaustive()
    }
}

/// Ends a remote worker from another thread: first drain, then stop its jobs, then kill them.
#[derive(Clone, Debug)]
pub struct RemoteWorkerControl(Sender<RemoteWorkerEvent>);

impl RemoteWorkerControl {
    /// Drains the worker. Running jobs continue as long as there is time.
    pub fn drain(&self) {
        self.0.send(RemoteWorkerEvent::Drain).ok();
    }

    /// Warns of the worker's time limit. If the warning was expected the worker continues, because it starts no
    /// jobs that would not end in time; otherwise it drains.
    pub fn notify_time_limit(&self) {
        self.0.send(RemoteWorkerEvent::TimeLimitNotice).ok();
    }

    /// Stops the running jobs, which are returned to the server; a second call kills them.
    pub fn stop(&self) {
        self.0.send(RemoteWorkerEvent::Stop).ok();
    }

    pub fn interrupt(&self) {
        // A worker that has ended ignores this.
        self.0.send(RemoteWorkerEvent::Interrupt).ok();
    }
}

impl RemoteWorker {
    /// Ends the processes that earlier workers left here, and starts the worker process.
    pub fn new(options: RemoteWorkerOptions) -> Result<Self, RemoteWorkerError> {
        let all_undelivered = undelivered_results::ensure_all_dead(&options.state_dir)?;
        let home = StateDirectory::create(&options.state_dir)?;
        let (sender, events) = channel();
        let way = Arc::new(ServerConnection::new(options.client.clone(), options.find_server.clone()));
        let caller = |name| {
            CallerThread::start(name, Arc::clone(&way), sender.clone())
                .map_err(RemoteWorkerError::StartWorkerProcess)
        };
        let callers = [caller("waits")?, caller("reports")?];
        let own = ProcessIdentity::own().map_err(RemoteWorkerError::StartWorkerProcess)?;
        let token = unique_name().map_err(RemoteWorkerError::StartWorkerProcess)?;
        let notes = SavedWorkerState {
            url: options.client.url().to_owned(),
            database: options.database.clone(),
            host: machine::hostname(),
            boot_id: boot_id().map_err(RemoteWorkerError::StartWorkerProcess)?,
            agent: Some(SavedProcess {
                pid: own.pid,
                start_ticks: own.start_ticks,
                token: token.clone(),
                ledger: PathBuf::new(),
            }),
            running_worker: None,
            me: None,
        };
        let now = Instant::now();
        let first = if options.persistent { options.give_up_after } else { options.first_contact };
        // A worker with an idle timeout does not wait longer than that for the server. In an allocation it
        // does: the node was queued for, and would have to be queued for again.
        let max_wait = options.idle_timeout.filter(|_| !options.persistent && options.slurm.is_none());
        let first = max_wait.map_or(first, |idle| idle.min(first));
        let mut agent = Self {
            journal: ResultJournal::new(home.journal_path()),
            actions: ActionRunner::new(token, {
                let sender = sender.clone();
                move |report| sender.send(RemoteWorkerEvent::ActionDone(report)).unwrap_or_default()
            })
            .with_environment(options.environment.clone()),
            options,
            state_directory: home,
            saved_state: notes,
            events,
            event_sender: sender,
            callers,
            exchange: ExchangeClient::default(),
            lease: ServerLease::default(),
            reported_lease: Duration::ZERO,
            journaled_attempts: HashSet::new(),
            journaled_actions: HashSet::new(),
            worker_process: None,
            started_processes: 0,
            deaths_in_a_row: 0,
            workflows: KnownWorkflows::default(),
            held_attempts: BTreeSet::new(),
            busy_attempts: BTreeSet::new(),
            shutdown: None,
            idle_since: now,
            poll_after: None,
            first_contact_by: now + first,
            was_registered: false,
            is_frozen: false,
            undelivered: all_undelivered,
            delivery: None,
            last_progress: RemoteWorkerProgress::default(),
            succeeded: 0,
            failed: 0,
            stopped: 0,
        };
        agent.start_worker_process()?;
        Ok(agent)
    }

    pub fn control(&self) -> RemoteWorkerControl {
        RemoteWorkerControl(self.event_sender.clone())
    }

    /// Runs until there is a reason to leave.
    pub fn run(
        mut self,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<RemoteWorkerSummary, RemoteWorkerError> {
        let observer = &mut LoggingObserver(observer);
        let end = self.run_loop(observer);
        for text in self.delivery.take().and_then(|thread| thread.join().ok()).into_iter().flatten() {
            observer.on_notice(&text);
        }
        // In any case no process may outlive the worker.
        self.actions.stop_all(Signal::KILL);
        if let Some(running_worker) = self.worker_process.take() {
            running_worker.dismiss()?;
        }
        let undelivered = self.count_undelivered();
        let has_words = end.is_err() && self.exchange.undelivered().any(is_final_report);
        let kept = (undelivered > 0 || has_words).then(|| self.state_directory.directory().to_owned());
        if kept.is_some() {
            // No job is left that needs it.
            Keyring::open(self.state_directory.directory())?.remove(self.options.client.url())?;
            // The worker that delivers the results has no processes to end.
            self.state_directory.save_state(&SavedWorkerState {
                agent: None,
                running_worker: None,
                ..self.saved_state
            })?;
        } else {
            self.state_directory.remove();
        }
        let end = end?;
        let (succeeded, failed, stopped) = (self.succeeded, self.failed, self.stopped);
        Ok(RemoteWorkerSummary { reason: end, succeeded, failed, stopped, undelivered, kept })
    }

    fn run_loop(
        &mut self,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<LeaveReason, RemoteWorkerError> {
        loop {
            self.check_deadlines(observer)?;
            self.send_next_calls();
            self.report_progress(observer);
            if let Some(end) = self.leave_reason_if_done() {
                self.notify_if_undelivered(observer);
                return Ok(end);
            }
            let due = self.next_deadline();
            let mut next = self.events.recv_timeout(due.saturating_duration_since(Instant::now()));
            self.extend_after_stall(due);
            // Handle all pending events before any timeout is judged.
            while let Ok(event) = next {
                self.on_event(event, observer)?;
                next = self.events.try_recv().map_err(|_| RecvTimeoutError::Timeout);
            }
        }
    }

    /// The time of the next check if no event arrives.
    fn next_deadline(&self) -> Instant {
        let now = Instant::now();
        let lease_over = self.lease.expires_at().filter(|_| !self.is_frozen);
        let lease_over = lease_over.map(|until| now + until.saturating_sub(boot_time()));
        let silence = self.lease.silence(boot_time());
        let gives_up = self.was_registered
            && self.shutdown.is_none_or(|leaving| leaving.urgency < ShutdownUrgency::Kill);
        let give_up = gives_up.then(|| now + self.options.give_up_after.saturating_sub(silence));
        let hang = self
            .worker_process
            .as_ref()
            .and_then(|running_worker| running_worker.awaiting_reply_since)
            .map(|at| at + self.lease.worker_reply_timeout());
        let idle = self.idle_deadline();
        let shutdown_timeout = self
            .shutdown
            .and_then(|leaving| leaving.ready_since.map(|since| since + self.leaving_timeout(leaving)));
        let until = self
            .options
            .deadline
            .filter(|_| self.shutdown.is_none_or(|l| l.urgency == ShutdownUrgency::None));
        let stop = until.map(|until| until.stop_time());
        let all = [
            self.exchange.retry_at(),
            self.poll_after,
            lease_over,
            give_up,
            hang,
            idle,
            shutdown_timeout,
            stop,
        ];
        all.into_iter().flatten().chain([now + MAX_WAIT]).min().unwrap_or(now)
    }

    /// After a stall of this process, a missing answer of the worker process proves nothing yet.
    fn extend_after_stall(&mut self, due: Instant) {
        let now = Instant::now();
        if now > due + STALL_THRESHOLD
            && let Some(running_worker) = &mut self.worker_process
        {
            running_worker.awaiting_reply_since = running_worker.awaiting_reply_since.map(|_| now);
        }
    }

    fn on_event(
        &mut self,
        event: RemoteWorkerEvent,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<(), RemoteWorkerError> {
        match event {
            RemoteWorkerEvent::WorkerMessage(number, message) if self.is_current(number) => {
                self.on_worker_message(message, observer);
            }
            RemoteWorkerEvent::WorkerGone(number) if self.is_current(number) => {
                // Where Slurm ends all processes at once, the jobs are not at fault.
                let is_ended = self.options.slurm.is_some() && self.is_leaving_or_stopped();
                let why = if is_ended { ReturnReason::Recalled } else { ReturnReason::WorkerDied };
                self.replace_worker_process(&why, observer)?;
            }
            RemoteWorkerEvent::Registered { epoch, sent, result } if epoch == self.exchange.epoch => {
                match result {
                    Ok(registration) => self.on_registered(&registration, sent, observer)?,
                    Err(error) => self.on_registration_failed(error, observer)?,
                }
            }
            RemoteWorkerEvent::Replied { epoch, number, sent, result } if epoch == self.exchange.epoch => {
                match result {
                    Ok(answer) => self.on_reply(ExchangeReply { number, ..answer }, sent, observer),
                    Err(error) => self.on_exchange_failed(number, &error, observer),
                }
            }
            // From a worker process that is dead, or an earlier registration.
            RemoteWorkerEvent::WorkerMessage(..)
            | RemoteWorkerEvent::WorkerGone(_)
            | RemoteWorkerEvent::Registered { .. }
            | RemoteWorkerEvent::Replied { .. } => {}
            RemoteWorkerEvent::ServerMoved(client) => self.on_server_moved(client, observer)?,
            RemoteWorkerEvent::ActionDone(report) => {
                if self.actions.on_action_ended(&report) {
                    self.exchange.enqueue_action_report(report);
                    self.journal_results(observer);
                }
            }
            RemoteWorkerEvent::Interrupt => {
                let is_shutdown =
                    self.worker_process.as_ref().is_some_and(|running_worker| running_worker.was_terminated);
                let shutdown_urgency = next_urgency(self.shutdown.as_ref());
                let shutdown_urgency =
                    if is_shutdown { shutdown_urgency.max(ShutdownUrgency::Stop) } else { shutdown_urgency };
                let why = if shutdown_urgency == ShutdownUrgency::None {
                    LeaveReason::Drained
                } else {
                    LeaveReason::Stopped
                };
                observer.on_notice(match shutdown_urgency {
                    ShutdownUrgency::None => {
                        "draining: running jobs are completed; interrupt again to stop them"
                    }
                    ShutdownUrgency::Stop => "stopping the running jobs; interrupt again to kill them",
                    ShutdownUrgency::Kill => "killing the running jobs",
                });
                self.start_leaving(why, shutdown_urgency);
            }
            RemoteWorkerEvent::Drain => self.start_draining(observer),
            RemoteWorkerEvent::TimeLimitNotice => {
                let left =
                    self.options.deadline.map(|until| until.end.saturating_duration_since(Instant::now()));
                if !is_warning_expected(left, self.options.warning_before_end) {
                    self.start_draining(observer);
                } else if self.shutdown.is_none() {
                    observer.on_notice("time limit near: starting only jobs that end in time");
                }
            }
            RemoteWorkerEvent::Stop => {
                let shutdown_urgency = next_urgency(self.shutdown.as_ref()).max(ShutdownUrgency::Stop);
                observer.on_notice("asked to end: stopping the running jobs; they run again elsewhere");
                self.start_leaving(LeaveReason::Stopped, shutdown_urgency);
            }
        }
        Ok(())
    }

    fn start_draining(&mut self, observer: &mut dyn RemoteWorkerObserver) {
        if self.shutdown.is_none() {
            observer.on_notice("asked to end soon: draining; running jobs continue as long as there is time");
        }
        self.start_leaving(LeaveReason::Drained, ShutdownUrgency::None);
    }

    // ---- the worker process

    fn is_current(&self, number: u32) -> bool {
        self.worker_process.as_ref().is_some_and(|running_worker| running_worker.number == number)
    }

    fn start_worker_process(&mut self) -> Result<(), RemoteWorkerError> {
        self.started_processes += 1;
        let mut running_worker = WorkerProcess::start(
            &self.options,
            &self.state_directory,
            self.started_processes,
            self.event_sender.clone(),
        )?;
        tracing::info!(
            pid = running_worker.process.pid,
            number = self.started_processes,
            "worker process started"
        );
        self.saved_state.running_worker = Some(running_worker.process.clone());
        self.state_directory.save_state(&self.saved_state)?;
        for site in self.workflows.iter() {
            running_worker.send(&ToWorker::Workflow(Box::new(site.clone())));
        }
        if let Some(until) = self.lease.expires_at() {
            running_worker.send(&ToWorker::Lease(until));
        }
        self.worker_process = Some(running_worker);
        Ok(())
    }

    /// Sends a message; failure counts as the death of the worker process.
    fn send_to_worker_process(&mut self, message: &ToWorker) {
        if let Some(running_worker) = &mut self.worker_process
            && !running_worker.send(message)
        {
            self.event_sender.send(RemoteWorkerEvent::WorkerGone(running_worker.number)).ok();
        }
    }

    /// Replaces a worker process that died or hangs: its jobs are lost, or were never started.
    pub(crate) fn replace_worker_process(
        &mut self,
        why: &ReturnReason,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<(), RemoteWorkerError> {
        let Some(running_worker) = self.worker_process.take() else { return Ok(()) };
        let WorkerProcessRecords { started_attempts: started, recorded_ends: mut ends, leftover_usage } =
            running_worker.ensure_dead()?;
        // Jobs that ended, but whose reports did not arrive.
        let ended: Vec<AttemptReport> =
            self.busy_attempts.iter().filter_map(|key| ends.remove(key)).map(AttemptReport::Ended).collect();
        self.report_to_server(ended, observer);
        let lost = std::mem::take(&mut self.busy_attempts);
        let may_have_started = |key: &AttemptKey| started.as_ref().is_none_or(|keys| keys.contains(key));
        let count = lost.iter().filter(|key| may_have_started(key)).count();
        let what = if *why == ReturnReason::WorkerHung { "hung and was ended" } else { "died" };
        observer.on_notice(&format!(
            "the worker process {what} ({count} of its jobs had started); starting a new one"
        ));
        let reports = lost.into_iter().filter(|key| self.held_attempts.contains(key)).flat_map(|key| {
            let why = if may_have_started(&key) { why.clone() } else { ReturnReason::Recalled };
            let left = leftover_usage.get(&key).map(|usage| AttemptReport::LeftBehind { key, usage: *usage });
            left.into_iter().chain([AttemptReport::Returned { key, why }])
        });
        self.exchange.enqueue_reports(reports.collect::<Vec<_>>());
        self.journal_results(observer);
        self.deaths_in_a_row += 1;
        if self.deaths_in_a_row >= MAX_WORKER_DEATHS {
            return Err(RemoteWorkerError::WorkerKeepsDying(MAX_WORKER_DEATHS));
        }
        self.start_worker_process()
    }

    fn on_worker_message(&mut self, message: FromWorker, observer: &mut dyn RemoteWorkerObserver) {
        match message {
            FromWorker::Hello { .. } => {}
            FromWorker::Terminated => self.on_worker_process_terminated(),
            FromWorker::Alive { frozen, .. } => {
                if let Some(running_worker) = &mut self.worker_process {
                    running_worker.is_frozen = frozen;
                    if frozen || !self.is_frozen {
                        running_worker.awaiting_reply_since = None;
                    }
                }
            }
            FromWorker::Reports(reports) => {
                self.report_to_server(reports, observer);
            }
        }
    }

    /// It received SIGTERM, and its jobs probably too. If this worker was asked to end as well, the whole
    /// machine or allocation is being shut down: there is no time to let jobs complete.
    fn on_worker_process_terminated(&mut self) {
        if let Some(running_worker) = &mut self.worker_process {
            running_worker.was_terminated = true;
        }
        if self.shutdown.is_some() {
            self.start_leaving(LeaveReason::Stopped, ShutdownUrgency::Stop);
        }
    }

    fn report_to_server(&mut self, reports: Vec<AttemptReport>, observer: &mut dyn RemoteWorkerObserver) {
        let reports: Vec<AttemptReport> =
            reports.into_iter().filter(|report| self.record_report(report, observer)).collect();
        self.exchange.enqueue_reports(reports);
        self.journal_results(observer);
    }

    /// Whether jobs that end now do so because this worker has to leave.
    fn is_leaving_or_stopped(&self) -> bool {
        self.shutdown.is_some_and(|leaving| leaving.urgency >= ShutdownUrgency::Stop)
    }

    fn record_report(&mut self, report: &AttemptReport, observer: &mut dyn RemoteWorkerObserver) -> bool {
        let key = report_key(report);
        if is_final_report(report) {
            self.busy_attempts.remove(&key);
            self.idle_since = Instant::now();
        }
        if let AttemptReport::Ended(ended) = report {
            self.deaths_in_a_row = 0;
            observer.on_attempt_ended(ended);
            let succeeded = ended.exit == ProcessExit::Code(0) && ended.cause == AttemptEndCause::Itself;
            let count = match &ended.cause {
                // It is returned and runs again.
                AttemptEndCause::Stopped(StopReason::Interrupted) if self.shutdown.is_some() => {
                    &mut self.stopped
                }
                _ if succeeded => &mut self.succeeded,
                _ => &mut self.failed,
            };
            *count += 1;
        }
        if let AttemptReport::Returned { why: ReturnReason::WorkerTrouble(trouble), .. } = report
            && self.workflows.record_problem(key.workflow, trouble)
        {
            observer
                .on_notice(&format!("jobs of workflow {} cannot be started here: {trouble}", key.workflow));
        }
        // Reports of attempts that were reassigned are dropped.
        self.held_attempts.contains(&key)
    }

    // ---- the server

    fn send_next_calls(&mut self) {
        let now = Instant::now();
        self.poll_after = self.poll_after.filter(|until| now < *until);
        let parameters = self.exchange_parameters(now);
        while let Some(next) = self.exchange.next_call(now, &parameters) {
            let (lane, call) = match next {
                NextCall::Register => {
                    (ExchangeLane::Report, ServerCall::Register(Box::new(self.build_registration())))
                }
                NextCall::Exchange(lane, exchange) => (lane, ServerCall::Exchange(exchange)),
            };
            let order = QueuedCall { epoch: self.exchange.epoch, call, timeout: self.lease.reply_timeout() };
            self.callers[lane as usize].enqueue_call(order);
        }
    }

    fn exchange_parameters(&self, now: Instant) -> ExchangeParameters {
        let until = self.options.deadline.map(|until| until.stop_time());
        ExchangeParameters {
            wait: self.lease.exchange_wait(),
            time_left: until.map(|end| end.saturating_duration_since(now)),
            is_draining: self.shutdown.is_some(),
            is_leaving: self.shutdown.is_some_and(|leaving| leaving.ready_since.is_some()),
            skips_polling: self.poll_after.is_some(),
        }
    }

    fn build_registration(&self) -> WorkerRegistration {
        let before = self.saved_state.me.as_ref().map(|me| WorkerReconnect {
            worker: me.worker,
            secret: me.secret.clone(),
            held: self.held_attempts.iter().copied().collect(),
            actions: self.held_actions(),
        });
        WorkerRegistration {
            host: self.saved_state.host.clone(),
            boot_id: self.saved_state.boot_id.clone(),
            pid: self.saved_state.agent.as_ref().map_or(0, |agent| agent.pid),
            pid_start_ticks: self.saved_state.agent.as_ref().map_or(0, |agent| agent.start_ticks),
            capacity: self.options.capacity,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: self.options.labels.clone(),
            site: self.options.site.clone(),
            jobs_of: self.options.jobs_of.clone(),
            workflow: self.options.workflow,
            before,
            allocation: self.options.scheduled_compute_node,
            slurm: self.options.slurm.clone(),
        }
    }

    /// The running actions, and those whose results the server has not got.
    fn held_actions(&self) -> Vec<(i64, Attempt)> {
        let ended = self.exchange.undelivered_actions().map(|report| (report.action, report.attempt));
        self.actions.keys().chain(ended).collect()
    }

    fn on_registered(
        &mut self,
        registration: &RegistrationReply,
        sent: Duration,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<(), RemoteWorkerError> {
        let me = WorkerCredentials { worker: registration.worker, secret: registration.secret.clone() };
        self.saved_state.me = Some(me.clone());
        self.state_directory.save_state(&self.saved_state)?;
        if self.was_registered {
            observer.on_notice("the server has accepted this worker again");
        } else {
            // Until now it was unknown whether there is work.
            self.idle_since = Instant::now();
        }
        self.was_registered = true;
        let lease = registration.lease;
        tracing::info!(worker = me.worker.0, url = %self.options.client.url(), ?lease, "registered at the server");
        self.exchange.on_registered(me);
        // First of all: reassigned jobs must not continue for a moment.
        self.drop_lost_attempts(&registration.lost, observer);
        self.actions.kill_reassigned_actions(&registration.lost_actions);
        self.forget_unused_workflows();
        self.renew_lease(registration.lease, sent);
        self.deliver_undelivered();
        Ok(())
    }

    fn drop_lost_attempts(&mut self, lost: &[AttemptKey], observer: &mut dyn RemoteWorkerObserver) {
        let mut orders: BTreeMap<WorkflowId, Vec<AttemptKey>> = BTreeMap::new();
        for key in lost {
            self.held_attempts.remove(key);
            if self.busy_attempts.contains(key) {
                orders.entry(key.workflow).or_default().push(*key);
            }
        }
        let count: usize = orders.values().map(Vec::len).sum();
        if count > 0 {
            observer.on_notice(&format!(
                "{count} jobs were reassigned to other workers in the meantime and are ended here"
            ));
        }
        for (workflow, attempts) in orders {
            let why = StopReason::Interrupted;
            self.send_to_worker_process(&ToWorker::StopSome(StopCommand {
                workflow,
                attempts,
                why,
                grace: Duration::ZERO,
            }));
        }
    }

    fn on_registration_failed(
        &mut self,
        error: windlass_client::ClientError,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<(), RemoteWorkerError> {
        let now = Instant::now();
        if !self.was_registered
            && (!error.is_transient() || now >= self.first_contact_by || self.shutdown.is_some())
        {
            return Err(error.into());
        }
        if error.problem().is_some_and(|problem| problem.status == 404) {
            observer.on_notice(&format!("the server does not need this worker any more: {error}"));
            self.start_leaving(LeaveReason::Dismissed, ShutdownUrgency::Kill);
        }
        self.notify_server_away(&error, observer);
        let pause = self.retry_delay(&error);
        self.exchange.on_registration_failed(now + pause);
        self.journal_results(observer);
        Ok(())
    }

    fn on_exchange_failed(
        &mut self,
        number: u64,
        error: &windlass_client::ClientError,
        observer: &mut dyn RemoteWorkerObserver,
    ) {
        tracing::debug!(number, %error, "exchange with the server failed");
        if matches!(error.code(), Some("unknown_worker" | "superseded")) {
            self.exchange.reset();
            return;
        }
        self.notify_server_away(error, observer);
        let pause = self.retry_delay(error);
        self.exchange.on_exchange_failed(number, Instant::now() + pause);
        self.journal_results(observer);
    }

    /// Switches to the new address; jobs find its token in the same place as before.
    fn on_server_moved(
        &mut self,
        client: Client,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<(), RemoteWorkerError> {
        // Both lanes search for it.
        if client.is_same_server(&self.options.client) {
            return Ok(());
        }
        if client.url() != self.options.client.url() {
            observer.on_notice(&format!("the server of this database is now at {}", client.url()));
        }
        if let Some(kept) = client.server_for_jobs() {
            let mut keyring = Keyring::open(self.state_directory.directory())?;
            keyring.remove(self.options.client.url())?;
            keyring.save(kept)?;
        }
        client.url().clone_into(&mut self.saved_state.url);
        self.state_directory.save_state(&self.saved_state)?;
        self.options.client = client;
        self.exchange.clear_backoff();
        Ok(())
    }

    fn notify_server_away(
        &self,
        error: &windlass_client::ClientError,
        observer: &mut dyn RemoteWorkerObserver,
    ) {
        if !self.exchange.is_away() {
            observer.on_notice(&format!("{error}; trying again"));
        }
    }

    fn retry_delay(&self, error: &windlass_client::ClientError) -> Duration {
        let longest = if self.lease.length().is_zero() { MAX_BACKOFF } else { self.lease.length() / 6 };
        let longest = longest.min(MAX_BACKOFF);
        let own = backoff::backoff_delay(self.exchange.failures() + 1, longest, backoff::random_fraction());
        own.max(error.retry_after().unwrap_or_default().min(longest))
    }

    fn on_reply(&mut self, answer: ExchangeReply, sent: Duration, observer: &mut dyn RemoteWorkerObserver) {
        if self.exchange.is_away() {
            observer.on_notice("the server answers again");
        }
        let (said, ready) = self.exchange.on_reply(answer);
        for report in said.iter().flat_map(|exchange| &exchange.reports) {
            if is_final_report(report) {
                self.held_attempts.remove(&report_key(report));
            }
        }
        let is_kept = !self.journaled_attempts.is_empty() || !self.journaled_actions.is_empty();
        let nothing_left = self.exchange.undelivered().next().is_none()
            && self.exchange.undelivered_actions().next().is_none();
        if is_kept && nothing_left {
            self.journaled_attempts.clear();
            self.journaled_actions.clear();
            // Remaining entries would be delivered again and rejected.
            self.journal.clear().ok();
        }
        self.renew_lease(self.lease.length(), sent);
        for answer in ready {
            self.apply_reply(answer, observer);
        }
        let reported = said.is_some_and(|exchange| !exchange.reports.is_empty());
        if reported && self.busy_attempts.len() > self.options.capacity.approximate_slots() {
            self.poll_after = self.poll_after.max(Some(Instant::now() + BUSY_POLL_DELAY));
        }
    }

    fn apply_reply(&mut self, mut answer: ExchangeReply, observer: &mut dyn RemoteWorkerObserver) {
        if let Some(end) = answer.ends_in.and_then(|left| Instant::now().checked_add(left)) {
            let lead = self.options.deadline.map_or(self.options.grace, |until| until.stop_before_end);
            self.options.deadline = Some(WorkerDeadline { end, stop_before_end: lead });
        }
        for StaleReport { key, found } in &answer.stale {
            observer.on_notice(&format!("the server rejected a report of {key}: {found}"));
        }
        self.forget_workflows(answer.over);
        for site in answer.workflows {
            self.send_to_worker_process(&ToWorker::Workflow(Box::new(site.clone())));
            self.workflows.insert(site);
        }
        let keys: Vec<AttemptKey> = answer.assignments.iter().map(|assignment| assignment.key).collect();
        for key in &keys {
            log_attempt!(debug, key, "job assigned by the server");
        }
        self.held_attempts.extend(&keys);
        if self.shutdown.is_some() {
            let back =
                keys.into_iter().map(|key| AttemptReport::Returned { key, why: ReturnReason::Recalled });
            self.exchange.enqueue_reports(back);
        } else if !keys.is_empty() {
            for assignment in &mut answer.assignments {
                let token = self.job_token(JobTokenSubject::Job(assignment.key));
                // At the front: variables of the job come later and override these.
                assignment.env.splice(0..0, token);
            }
            if let Some(launcher) = &self.options.launcher {
                for assignment in &mut answer.assignments {
                    let execution = self.workflows.execution_config(assignment.key.workflow);
                    assignment.launcher = launcher(assignment, execution);
                }
            }
            let launches = answer.assignments.iter().any(|assignment| !assignment.launcher.is_empty());
            if let Some(running_worker) = &mut self.worker_process {
                running_worker.has_launched |= launches;
            }
            self.busy_attempts.extend(keys);
            self.send_to_worker_process(&ToWorker::Assign(answer.assignments));
        }
        for order in answer.stops {
            tracing::debug!(workflow = order.workflow.0, why = ?order.why, jobs = order.attempts.len(), "told to stop jobs");
            if order.attempts.is_empty() {
                self.actions.stop_workflow_actions(order.workflow, order.grace);
            }
            self.send_to_worker_process(&ToWorker::StopSome(order));
        }
        for mut order in answer.actions {
            order.env.extend(self.server_variables());
            let (workflow, action, attempt) = (order.workflow, order.action, order.attempt);
            order.env.extend(self.job_token(JobTokenSubject::Action { workflow, action, attempt }));
            if self.shutdown.is_some_and(|leaving| leaving.urgency > ShutdownUrgency::None) {
                self.actions.report_refused(&order, "the worker was stopped");
                continue;
            }
            tracing::debug!(
                workflow = workflow.0,
                action,
                attempt = attempt.0,
                "action assigned by the server"
            );
            let directory = self.workflows.output_dir(order.workflow);
            self.actions.start_action(order, directory);
        }
        if answer.drain {
            self.start_leaving(LeaveReason::Drained, ShutdownUrgency::None);
        }
        if answer.dismissed {
            self.on_dismissed();
        }
    }

    fn forget_workflows(&mut self, over: Vec<WorkflowId>) {
        for workflow in over {
            self.workflows.forget(workflow);
            self.send_to_worker_process(&ToWorker::Forget(workflow));
        }
    }

    /// Drops unused workflows: a server that accepts this worker again introduces each workflow anew, and does
    /// not list those that ended in the meantime.
    fn forget_unused_workflows(&mut self) {
        let of_jobs = self.busy_attempts.iter().map(|key| key.workflow);
        let in_use = of_jobs.chain(self.actions.workflows()).collect();
        self.forget_workflows(self.workflows.unused(&in_use));
    }

    /// The token of a job or action: valid for its workflow while it runs here. Derived here, so that the
    /// server need not create and store one per job.
    fn job_token(&self, work: JobTokenSubject) -> Option<(String, String)> {
        self.options.client.token()?;
        let me = self.saved_state.me.as_ref()?;
        let token = JobTokenClaims { worker: me.worker, work }.sign(&secret_hash(&me.secret));
        Some((crate::JOB_TOKEN_VARIABLE.to_owned(), token))
    }

    /// The environment variables by which the commands of actions reach the server.
    fn server_variables(&self) -> Vec<(String, String)> {
        let urls = server_url_variables(self.options.client.url());
        let keyring =
            self.options.client.server_for_jobs().and_then(|_| self.state_directory.directory().to_str());
        let keyring = keyring.map(|directory| (crate::KEYRING_VARIABLE.to_owned(), directory.to_owned()));
        urls.into_iter().map(|(name, url)| (name.to_owned(), url)).chain(keyring).collect()
    }

    /// A worker that stays, or has an idle timeout, polls again later.
    fn on_dismissed(&mut self) {
        let may_stay = self.options.persistent || self.options.idle_timeout.is_some();
        if may_stay && !self.options.leaves_when_over {
            self.poll_after = Some(Instant::now() + IDLE_POLL_INTERVAL.min(self.lease.exchange_wait()));
        } else {
            self.start_leaving(LeaveReason::Dismissed, ShutdownUrgency::None);
        }
    }

    pub(crate) fn renew_lease(&mut self, length: Duration, sent: Duration) {
        self.lease.renew(length, sent);
        let now = boot_time();
        let Some(until) = self.lease.expires_at().filter(|until| now < *until) else { return };
        let was_frozen = std::mem::replace(&mut self.is_frozen, false);
        if was_frozen {
            self.actions.thaw_all();
        }
        if was_frozen || until >= self.reported_lease + length / 10 {
            self.reported_lease = until;
            self.ask_worker_process(&ToWorker::Lease(until));
        }
    }

    /// Sends a message that the worker process has to answer.
    pub(crate) fn ask_worker_process(&mut self, message: &ToWorker) {
        if let Some(running_worker) = &mut self.worker_process {
            running_worker.awaiting_reply_since.get_or_insert_with(Instant::now);
        }
        self.send_to_worker_process(message);
    }

    /// While the server is unreachable, results are stored on disk first.
    fn journal_results(&mut self, observer: &mut dyn RemoteWorkerObserver) {
        if !self.exchange.is_away() {
            return;
        }
        let new = |report: &&AttemptReport| {
            is_final_report(report) && !self.journaled_attempts.contains(&report_key(report))
        };
        let reports = self.exchange.undelivered().filter(new).cloned().map(JournalEntry::Report);
        let new = |report: &&ActionReport| !self.journaled_actions.contains(&(report.action, report.attempt));
        let actions = self.exchange.undelivered_actions().filter(new).cloned().map(JournalEntry::Action);
        let entries: Vec<JournalEntry> = reports.chain(actions).collect();
        if let Err(error) = self.journal.append(&entries) {
            let path = self.state_directory.journal_path();
            observer.on_notice(&format!("results cannot be stored in {}: {error}", path.display()));
            return;
        }
        for entry in &entries {
            match entry {
                JournalEntry::Report(report) => _ = self.journaled_attempts.insert(report_key(report)),
                JournalEntry::Action(report) => {
                    _ = self.journaled_actions.insert((report.action, report.attempt));
                }
            }
        }
    }

    /// Delivers the results of earlier workers here, now that the server can be reached.
    fn deliver_undelivered(&mut self) {
        let all_undelivered = std::mem::take(&mut self.undelivered);
        if all_undelivered.is_empty() {
            return;
        }
        let (client, who) = (self.options.client.clone(), self.build_registration());
        let database = self.options.database.clone();
        let deliver = move || {
            let results = all_undelivered
                .into_iter()
                .map(|undelivered| undelivered.deliver(&client, database.as_deref(), &who));
            let told = results.filter_map(|result| match result {
                Ok(0) => None,
                Ok(1) => Some("delivered a result of an earlier worker on this machine".to_owned()),
                Ok(count) => Some(format!("delivered {count} results of an earlier worker on this machine")),
                Err(error) => Some(format!(
                    "results of an earlier worker on this machine are not delivered yet: {error}"
                )),
            });
            told.collect()
        };
        // If no thread can be started, the next worker does it.
        self.delivery = thread::Builder::new().name("legacies".to_owned()).spawn(deliver).ok();
    }

    // ---- leaving

    /// Starts to leave; a later reason can only increase the urgency.
    pub(crate) fn start_leaving(&mut self, why: LeaveReason, shutdown_urgency: ShutdownUrgency) {
        let before = self.shutdown.map(|leaving| leaving.urgency);
        if before.is_some_and(|before| before >= shutdown_urgency) {
            return;
        }
        tracing::info!(reason = ?why, urgency = ?shutdown_urgency, "leaving");
        self.shutdown = Some(ShutdownState { reason: why, urgency: shutdown_urgency, ready_since: None });
        let interrupted = StopReason::Interrupted;
        match shutdown_urgency {
            ShutdownUrgency::None => self.send_to_worker_process(&ToWorker::Recall),
            ShutdownUrgency::Stop => {
                self.actions.stop_all(Signal::TERM);
                self.send_to_worker_process(&ToWorker::Stop { why: interrupted, grace: self.options.grace });
            }
            ShutdownUrgency::Kill => {
                self.actions.stop_all(Signal::KILL);
                self.send_to_worker_process(&ToWorker::Stop { why: interrupted, grace: Duration::ZERO });
            }
        }
    }

    fn leave_reason_if_done(&self) -> Option<LeaveReason> {
        let leaving = self.shutdown?;
        let waited =
            leaving.ready_since.is_some_and(|since| since.elapsed() >= self.leaving_timeout(leaving));
        let never_began = !self.was_registered && leaving.ready_since.is_some();
        (self.exchange.is_over || waited || never_began).then_some(leaving.reason)
    }

    fn leaving_timeout(&self, leaving: ShutdownState) -> Duration {
        leaving.server_timeout(self.count_undelivered() > 0, self.options.give_up_after)
    }

    /// The number of undelivered results. Returned jobs do not count: the server reassigns them when the lease
    /// expires.
    fn count_undelivered(&self) -> usize {
        let results = self.exchange.undelivered().filter(|report| matches!(report, AttemptReport::Ended(_)));
        results.count() + self.exchange.undelivered_actions().count()
    }

    fn notify_if_undelivered(&self, observer: &mut dyn RemoteWorkerObserver) {
        if self.was_registered && !self.exchange.is_over {
            observer.on_notice("the server does not answer; leaving without signing off");
        }
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.state_directory.directory().to_owned()
    }

    pub(crate) const fn was_registered(&self) -> bool {
        self.was_registered
    }

    fn report_progress(&mut self, observer: &mut dyn RemoteWorkerObserver) {
        let progress = RemoteWorkerProgress {
            worker: self.saved_state.me.as_ref().map(|me| me.worker.0),
            held_attempts: self.busy_attempts.len(),
            succeeded: self.succeeded,
            failed: self.failed,
            undelivered: if self.exchange.is_away() { self.exchange.undelivered().count() } else { 0 },
            is_server_away: self.exchange.is_away(),
            is_frozen: self.is_frozen,
            is_leaving: self.shutdown.is_some(),
        };
        if progress != self.last_progress {
            observer.on_progress(&progress);
            self.last_progress = progress;
        }
    }
}
