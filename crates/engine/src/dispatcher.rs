//! The loop: reports come in, decisions are committed, assignments go out.

use crate::host::{Sender, WorkerHost, receive};
use crate::observe::{AttemptEnd, Observer, Progress, RunningJob};
use crate::pace::Pace;
use crate::{Error, takeover};
use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use windlass_core::board::{Board, Stale, Verdict};
use windlass_core::change::Change;
use windlass_core::dispatch::Mirror;
use windlass_store::model::WorkflowRow;
use windlass_store::{Batch, Store};
use windlass_types::work::{
    Assignment, AttemptKey, Ended, FromWorker, Limits, Report, ReturnReason, StopReason, ToWorker,
};
use windlass_types::{Capacity, Clock, JobStatus, StatusCounts, WorkerId};

/// Completions that free nobody may wait this long for company before they are committed.
const LINGER: Duration = Duration::from_millis(10);
/// … or until there are so many.
const LARGEST_LINGERING_BATCH: usize = 256;
/// How long to wait before trying again when the disk is full or the worker cannot start anything.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// How long a worker that was told to quit may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// A worker that dies so often in a row without finishing a job is not replaced again.
const WORKER_DEATHS: u32 = 5;

#[derive(Clone, Debug)]
pub struct Options {
    /// How long a job may take to stop after it was asked to.
    pub grace: Duration,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every job is settled.
    Finished,
    /// Some jobs wait for a decision.
    Stuck,
    /// Stopped on request; it can be resumed.
    Interrupted,
    Canceled,
}

#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub end: RunEnd,
    pub counts: StatusCounts,
    pub elapsed: Duration,
}

/// What can be said to a running dispatcher from other threads.
#[derive(Clone, Debug)]
pub struct Control(mpsc::Sender<Event>);

impl Control {
    /// Ctrl-C: the first asks the jobs to stop, the second kills them.
    pub fn interrupt(&self) {
        self.tell(Event::Interrupt);
    }

    /// Somebody may have asked for cancellation: look.
    pub fn look_for_cancel(&self) {
        self.tell(Event::LookForCancel);
    }

    fn tell(&self, event: Event) {
        // An error means that the run is over, and then there is nobody to tell.
        self.0.send(event).unwrap_or_default();
    }
}

#[derive(Debug)]
enum Event {
    FromWorker { worker: WorkerId, message: FromWorker },
    WorkerGone { worker: WorkerId, confused: Option<String> },
    Committed(Result<(), windlass_store::Error>),
    Interrupt,
    LookForCancel,
}

pub struct Dispatcher<'a> {
    store: &'a dyn Store,
    host: &'a mut dyn WorkerHost,
    observer: &'a mut dyn Observer,
    options: Options,
    workflow: WorkflowRow,
    board: Board,
    worker: Option<ActiveWorker>,
    deaths_in_a_row: u32,
    events: mpsc::Receiver<Event>,
    events_in: mpsc::Sender<Event>,
    /// Decided and not yet handed to the store.
    open: Decided,
    open_since: Option<Instant>,
    in_flight: Option<InFlight>,
    held: HashMap<u32, Held>,
    stop: Option<StopReason>,
    interrupts: u32,
    trouble: Option<Trouble>,
    pace: Pace,
    clock: Clock,
    started: Instant,
    shown: Instant,
}

struct ActiveWorker {
    id: WorkerId,
    row: windlass_store::model::NewWorker,
    sender: Sender,
    /// Known once it has said hello.
    mirror: Option<Mirror>,
}

/// Changes, and what to do once they are on disk.
#[derive(Default)]
struct Decided {
    changes: Vec<Change>,
    assignments: Vec<Assignment>,
    ends: Vec<(AttemptKey, String, Verdict, Duration)>,
}

struct InFlight {
    changes: Arc<[Change]>,
    assignments: Vec<Assignment>,
    ends: Vec<(AttemptKey, String, Verdict, Duration)>,
    /// The commit failed for want of space…
    was_refused: bool,
    /// … and is tried again then.
    retry_at: Option<Instant>,
}

struct Held {
    name: String,
    since: Option<Instant>,
}

struct Trouble {
    text: String,
    until: Instant,
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
        observer: &'a mut dyn Observer,
        workflow: WorkflowRow,
        options: Options,
    ) -> Result<Self, Error> {
        let clock = Clock;
        let board = takeover::take_over(store, host, observer, &workflow, clock.now())?;
        refuse_what_never_fits(store, &board, host.capacity())?;
        let (events_in, events) = mpsc::channel();
        let now = Instant::now();
        Ok(Self {
            store,
            host,
            observer,
            options,
            workflow,
            board,
            worker: None,
            deaths_in_a_row: 0,
            events,
            events_in,
            open: Decided::default(),
            open_since: None,
            in_flight: None,
            held: HashMap::new(),
            stop: None,
            interrupts: 0,
            trouble: None,
            pace: Pace::default(),
            clock,
            started: now,
            shown: now,
        })
    }

    pub fn control(&self) -> Control {
        Control(self.events_in.clone())
    }

    /// Runs until nothing more happens by itself, or until it is told to stop.
    pub fn run(mut self) -> Result<Summary, Error> {
        let outcome = self.drive();
        self.show(Instant::now());
        self.dismiss_worker()?;
        outcome?;
        let end = self.conclude()?;
        Ok(Summary { end, counts: *self.board.counts(), elapsed: self.started.elapsed() })
    }

    fn drive(&mut self) -> Result<(), Error> {
        self.store.begin_run(self.workflow.id, self.clock.now())?;
        self.on_event(Event::LookForCancel)?;
        if self.board.has_ready() {
            self.start_worker()?;
        }
        while !self.is_over() {
            self.claim_more()?;
            self.submit_if_due();
            self.show_progress();
            if let Some(event) = self.wait() {
                self.on_event(event)?;
                while let Ok(event) = self.events.try_recv() {
                    self.on_event(event)?;
                }
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::FromWorker { worker, message } if self.worker.as_ref().is_some_and(|w| w.id == worker) => {
                self.on_message(message)
            }
            Event::WorkerGone { worker, confused }
                if self.worker.as_ref().is_some_and(|w| w.id == worker) =>
            {
                match confused {
                    Some(what) => Err(Error::Protocol(what)),
                    None => self.on_worker_gone(),
                }
            }
            // News of a worker that was already given up and buried.
            Event::FromWorker { .. } | Event::WorkerGone { .. } => Ok(()),
            Event::Committed(result) => self.on_committed(result),
            Event::Interrupt => {
                self.on_interrupt();
                Ok(())
            }
            Event::LookForCancel => self.on_look_for_cancel(),
        }
    }

    fn on_message(&mut self, message: FromWorker) -> Result<(), Error> {
        match message {
            FromWorker::Hello { capacity } => {
                if let Some(worker) = &mut self.worker {
                    worker.mirror = Some(Mirror::new(capacity));
                }
            }
            FromWorker::Reports(reports) => {
                for report in reports {
                    self.on_report(report);
                }
                if self.open_since.is_none() && !self.open.changes.is_empty() {
                    self.open_since = Some(Instant::now());
                }
            }
        }
        Ok(())
    }

    fn on_report(&mut self, report: Report) {
        let outcome = match report {
            Report::Started { key, at, pid } => {
                if let Some(held) = self.board.index(key.job).and_then(|job| self.held.get_mut(&job)) {
                    held.since = Some(Instant::now());
                }
                self.board.on_started(&key, at, pid, &mut self.open.changes)
            }
            Report::Ended(ended) => self.on_ended(&ended),
            Report::Returned { key, why } => {
                let outcome = self.hand_back(&key);
                if let ReturnReason::WorkerTrouble(text) = why {
                    self.in_trouble(text);
                }
                outcome
            }
        };
        if let Err(stale) = outcome {
            self.observer.notice(&stale.to_string());
        }
    }

    fn on_ended(&mut self, ended: &Ended) -> Result<(), Stale> {
        let worker = self.worker.as_ref().map_or(WorkerId(0), |w| w.id);
        let verdict = self.board.on_ended(worker, ended, &mut self.open.changes)?;
        self.deaths_in_a_row = 0;
        self.pace.on_ended(ended.wall);
        let name = self.let_go(&ended.key);
        self.open.ends.push((ended.key, name, verdict, ended.wall));
        Ok(())
    }

    fn hand_back(&mut self, key: &AttemptKey) -> Result<(), Stale> {
        self.board.on_returned(key, &mut self.open.changes)?;
        self.let_go(key);
        Ok(())
    }

    /// The worker no longer holds the job. Returns the job's name.
    fn let_go(&mut self, key: &AttemptKey) -> String {
        let Some(job) = self.board.index(key.job) else { return String::new() };
        if let Some(mirror) = self.mirror() {
            mirror.remove(job);
        }
        self.held.remove(&job).map(|held| held.name).unwrap_or_default()
    }

    /// Everything the worker held is an orphan, and a new worker takes its place.
    fn on_worker_gone(&mut self) -> Result<(), Error> {
        let Some(gone) = self.worker.take() else { return Ok(()) };
        let buried = self.host.bury(&gone.row).map_err(Error::Bury)?;
        let now = self.clock.now();
        let held = mem::take(&mut self.held);
        for job in held.keys().copied() {
            let may_have_started = buried.may_have_started(&self.board.key(job));
            self.board.on_orphaned(job, gone.id, None, may_have_started, now, &mut self.open.changes);
        }
        // Assignments that were decided but never sent are among the orphans; they must not go to the next worker.
        self.open.assignments.clear();
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.assignments.clear();
        }
        self.store.retire_worker(gone.id, now)?;
        self.host.forget(&gone.row);
        if self.stop.is_some() {
            return Ok(());
        }
        self.deaths_in_a_row += 1;
        if self.deaths_in_a_row >= WORKER_DEATHS {
            return Err(Error::WorkerKeepsDying(WORKER_DEATHS));
        }
        self.observer.notice(&format!("the worker died with {} jobs; a new one takes over", held.len()));
        self.start_worker()
    }

    fn on_committed(&mut self, result: Result<(), windlass_store::Error>) -> Result<(), Error> {
        match result {
            Ok(()) => {
                if let Some(done) = self.in_flight.take() {
                    if done.was_refused {
                        self.trouble = None;
                    }
                    self.perform(done);
                }
                Ok(())
            }
            Err(error) if error.is_transient() => {
                self.in_trouble(error.to_string());
                if let Some(in_flight) = &mut self.in_flight {
                    in_flight.was_refused = true;
                    in_flight.retry_at = Some(Instant::now() + TROUBLE_PAUSE);
                }
                Ok(())
            }
            Err(error) => Err(Error::Store(error)),
        }
    }

    /// It is on disk: now act on it.
    fn perform(&mut self, done: InFlight) {
        if self.stop.is_some() {
            // Claimed before the stop and never sent: it certainly did not start.
            for assignment in &done.assignments {
                // Stale means that its worker is gone as well, and the job was given back with it.
                self.hand_back(&assignment.key).unwrap_or_default();
            }
        } else if !done.assignments.is_empty() {
            self.tell_worker(&ToWorker::Assign(done.assignments));
        }
        for (key, name, verdict, wall) in &done.ends {
            self.observer.attempt_ended(&AttemptEnd {
                key: *key,
                name,
                attempt_status: verdict.attempt_status,
                job_status: verdict.job_status,
                return_code: verdict.return_code,
                wall: *wall,
                reason: verdict.reason.as_deref(),
            });
        }
    }

    fn on_interrupt(&mut self) {
        self.interrupts += 1;
        let grace = if self.interrupts == 1 { self.options.grace } else { Duration::ZERO };
        let why = *self.stop.get_or_insert(StopReason::Interrupted);
        self.stop_worker(why, grace);
    }

    fn on_look_for_cancel(&mut self) -> Result<(), Error> {
        if self.stop != Some(StopReason::Canceled) && self.store.cancel_requested(self.workflow.id)? {
            self.stop = Some(StopReason::Canceled);
            self.board.on_cancel();
            self.stop_worker(StopReason::Canceled, self.options.grace);
        }
        Ok(())
    }

    fn stop_worker(&mut self, why: StopReason, grace: Duration) {
        self.tell_worker(&ToWorker::Stop { why, grace });
    }

    fn tell_worker(&mut self, message: &ToWorker) {
        if let Some(worker) = &mut self.worker {
            // A broken line is noticed by its reader, which reports the worker gone.
            worker.sender.send(message).unwrap_or_default();
        }
    }

    fn start_worker(&mut self) -> Result<(), Error> {
        let started = self.host.start(&self.workflow).map_err(Error::Start)?;
        let id = self.store.add_worker(&started.worker, self.clock.now())?;
        let reader = started.stream.try_clone().map_err(|e| Error::Start(e.into()))?;
        let events = self.events_in.clone();
        let listen = move || {
            let tell = |event| events.send(event).unwrap_or_default();
            let confused = receive(reader, |message| tell(Event::FromWorker { worker: id, message }));
            tell(Event::WorkerGone { worker: id, confused });
        };
        std::thread::Builder::new()
            .name("worker-line".to_owned())
            .spawn(listen)
            .map_err(|e| Error::Start(e.into()))?;
        let sender = Sender::new(started.stream);
        self.worker = Some(ActiveWorker { id, row: started.worker, sender, mirror: None });
        Ok(())
    }

    /// Claims jobs for the worker if it has room now or will soon run dry.
    fn claim_more(&mut self) -> Result<(), Error> {
        if self.stop.is_some()
            || self.in_flight.is_some()
            || self.trouble.as_ref().is_some_and(Trouble::lasts)
        {
            return Ok(());
        }
        let Some(worker) = &mut self.worker else { return Ok(()) };
        let Some(mirror) = &mut worker.mirror else { return Ok(()) };
        let ahead = self.pace.ahead(mirror.running());
        if !self.board.has_ready() || mirror.queued() > ahead / 4 {
            return Ok(());
        }
        let taken = self.board.claim(worker.id, mirror, ahead, &mut self.open.changes);
        if taken.is_empty() {
            return Ok(());
        }
        self.pace.on_claimed(mirror.running());
        self.trouble = None;
        let keys: Vec<AttemptKey> = taken.iter().map(|&job| self.board.key(job)).collect();
        let ids: Vec<_> = keys.iter().map(|key| key.job).collect();
        for ((job, key), command) in taken.into_iter().zip(keys).zip(self.store.commands(&ids)?) {
            let resources = *self.board.resources(job);
            let limited = self.board.asked_for_resources(job);
            self.held.insert(job, Held { name: command.name.clone(), since: None });
            self.open.assignments.push(Assignment {
                key,
                name: command.name,
                command: command.command,
                env: merged_env(&self.workflow.env, command.env),
                resources,
                limits: Limits {
                    memory: limited.then_some(resources.memory),
                    runtime: limited.then_some(resources.runtime).flatten(),
                },
                stdio: self.workflow.stdio,
                output_files: Vec::new(),
            });
        }
        Ok(())
    }

    /// Hands what was decided to the store: at once if somebody waits for it, else after a little company has come.
    fn submit_if_due(&mut self) {
        let now = Instant::now();
        if let Some(in_flight) = &mut self.in_flight {
            if in_flight.retry_at.is_some_and(|at| at <= now) {
                in_flight.retry_at = None;
                self.submit_in_flight();
            }
            return;
        }
        if self.open.changes.is_empty() {
            return;
        }
        let company = self.open.changes.len() >= LARGEST_LINGERING_BATCH;
        let waited = self.open_since.is_none_or(|since| now.duration_since(since) >= LINGER);
        if self.is_awaited() || company || waited {
            let decided = mem::take(&mut self.open);
            self.open_since = None;
            self.in_flight = Some(InFlight {
                changes: decided.changes.into(),
                assignments: decided.assignments,
                ends: decided.ends,
                was_refused: false,
                retry_at: None,
            });
            self.submit_in_flight();
        }
    }

    fn submit_in_flight(&self) {
        let Some(in_flight) = &self.in_flight else { return };
        let events = self.events_in.clone();
        let batch = Batch {
            workflow: self.workflow.id,
            run: self.workflow.run_id,
            changes: Arc::clone(&in_flight.changes),
        };
        self.store
            .submit(batch, Box::new(move |result| events.send(Event::Committed(result)).unwrap_or_default()));
    }

    /// Somebody waits for the next commit: a worker for its assignments, or everybody because nothing else will come.
    fn is_awaited(&self) -> bool {
        let nothing_runs = self.worker.as_ref().and_then(|w| w.mirror.as_ref()).is_none_or(Mirror::is_idle);
        !self.open.assignments.is_empty() || nothing_runs
    }

    fn wait(&mut self) -> Option<Event> {
        let now = Instant::now();
        let linger = self.open_since.filter(|_| self.in_flight.is_none()).map(|since| since + LINGER);
        let retry = self.in_flight.as_ref().and_then(|f| f.retry_at);
        let trouble = self.trouble.as_ref().map(|t| t.until).filter(|until| *until > now);
        let progress = Some(self.shown + PROGRESS_INTERVAL);
        let until = [linger, retry, trouble, progress].into_iter().flatten().min()?;
        self.events.recv_timeout(until.saturating_duration_since(now)).ok()
    }

    fn is_over(&self) -> bool {
        let committed = self.open.changes.is_empty() && self.in_flight.is_none();
        let nothing_held = self.held.is_empty();
        let no_more_to_do = self.stop.is_some() || self.board.is_finished() || self.board.is_stuck();
        // Killed twice with the disk full: what could not be recorded will run again.
        let given_up = self.interrupts > 1 && nothing_held && self.trouble.is_some();
        (committed && nothing_held && no_more_to_do) || given_up
    }

    /// Lets the worker go, and makes sure that it went.
    fn dismiss_worker(&mut self) -> Result<(), Error> {
        let Some(mut worker) = self.worker.take() else { return Ok(()) };
        worker.sender.send(&ToWorker::Quit).unwrap_or_default();
        let gone = |event: &Event| matches!(event, Event::WorkerGone { worker: id, .. } if *id == worker.id);
        while self.events.recv_timeout(FAREWELL).is_ok_and(|event| !gone(&event)) {}
        self.host.bury(&worker.row).map_err(Error::Bury)?;
        self.store.retire_worker(worker.id, self.clock.now())?;
        self.host.forget(&worker.row);
        Ok(())
    }

    fn conclude(&self) -> Result<RunEnd, Error> {
        let now = self.clock.now();
        let end = match self.stop {
            Some(StopReason::Canceled) => RunEnd::Canceled,
            _ if self.board.is_finished() => RunEnd::Finished,
            Some(StopReason::Interrupted) => RunEnd::Interrupted,
            None => RunEnd::Stuck,
        };
        match end {
            RunEnd::Canceled => {
                self.store.mark_canceled(self.workflow.id, now)?;
                self.store.end_run(self.workflow.id, now)?;
            }
            RunEnd::Finished | RunEnd::Stuck => self.store.end_run(self.workflow.id, now)?,
            RunEnd::Interrupted => {}
        }
        Ok(end)
    }

    fn in_trouble(&mut self, text: String) {
        if self.trouble.as_ref().is_none_or(|t| t.text != text) {
            self.observer.notice(&text);
        }
        self.trouble = Some(Trouble { text, until: Instant::now() + TROUBLE_PAUSE });
    }

    fn mirror(&mut self) -> Option<&mut Mirror> {
        self.worker.as_mut()?.mirror.as_mut()
    }

    fn show_progress(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.shown) >= PROGRESS_INTERVAL {
            self.show(now);
        }
    }

    fn show(&mut self, now: Instant) {
        self.shown = now;
        let mut counts = *self.board.counts();
        self.pace.mark(now, counts.settled());
        // What waits in the worker's queue is claimed, but to somebody who looks it is ready and not running.
        let queued = self.mirror().map_or(0, |mirror| mirror.queued() as u64);
        counts.shift(JobStatus::Pending, JobStatus::Ready, queued);
        let mut running: Vec<RunningJob> = self
            .held
            .iter()
            .filter_map(|(&job, held)| {
                let elapsed = now.duration_since(held.since?);
                (self.board.status(job) == JobStatus::Running).then(|| RunningJob {
                    job: self.board.key(job).job,
                    name: held.name.clone(),
                    elapsed,
                })
            })
            .collect();
        running.sort_by(|a, b| b.elapsed.cmp(&a.elapsed).then(a.job.cmp(&b.job)));
        self.observer.progress(&Progress {
            counts,
            running,
            elapsed: now.duration_since(self.started),
            jobs_per_second: self.pace.rate(),
            trouble: self.trouble.as_ref().map(|t| t.text.clone()),
            stopping: self.stop.is_some(),
        });
    }
}

/// Before anything is started: a job that no worker here will ever hold would wait for ever.
fn refuse_what_never_fits(store: &dyn Store, board: &Board, capacity: Capacity) -> Result<(), Error> {
    let empty = Mirror::new(capacity);
    let mut too_large = board.too_large_for(&empty);
    let Some(first) = too_large.next() else { return Ok(()) };
    let count = 1 + too_large.count();
    let name = store.job_names(&[board.key(first).job])?.pop().unwrap_or_default();
    Err(Error::TooLarge {
        name,
        count,
        asked: Box::new(*board.resources(first)),
        capacity: Box::new(capacity),
    })
}

/// The workflow's variables, and the job's own, which win.
fn merged_env(workflow: &[(String, String)], job: Vec<(String, String)>) -> Vec<(String, String)> {
    let inherited = workflow.iter().filter(|(name, _)| job.iter().all(|(own, _)| own != name));
    let mut env: Vec<_> = inherited.cloned().collect();
    env.extend(job);
    env
}

impl Trouble {
    fn lasts(&self) -> bool {
        self.until > Instant::now()
    }
}
