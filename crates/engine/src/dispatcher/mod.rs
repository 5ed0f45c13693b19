//! The loop: reports come in, decisions are committed, assignments go out.
//!
//! [`reports`] says what a worker's words mean, [`commits`] when decisions go to disk and what is done afterwards,
//! [`workers`] how workers come and go, [`added`] what becomes of jobs that jobs add, [`show`] what somebody who watches is
//! told, [`actions`] what is done beside the jobs, [`wishes`] what others want done about them, [`kept_back`] what becomes of
//! jobs that cannot run here.

mod actions;
mod added;
mod commits;
mod holding;
mod kept_back;
mod reports;
mod show;
mod wishes;
mod workers;

use crate::agenda::Agenda;
use crate::host::WorkerHost;
use crate::inbox::{Event, Inbox, Post};
use crate::observe::Observer;
use crate::pace::Pace;
use crate::sequels::Sequels;
use crate::suspicion;
use crate::terms::Terms;
use crate::{Error, takeover};
use commits::{Decided, InFlight};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::board::Board;
use windlass_core::classify::Classifier;
use windlass_core::dispatch::Taste;
use windlass_core::suspects::Suspects;
use windlass_store::Store;
use windlass_store::lock::LockGuard;
use windlass_store::model::WorkflowRow;
use windlass_types::work::{AttemptKey, StopReason};
use windlass_types::{Clock, JobId, LOCAL_SITE, StatusCounts, Timestamp, WorkerId};
use wishes::Wishes;
use workers::ActiveWorker;

/// How long to wait before trying again when the disk is full or the worker cannot start anything.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// After the second interrupt a worker that does not answer is ended like a dead one.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Options {
    /// How long a job may take to stop after it was asked to.
    pub grace: Duration,
    /// When the run ends, whatever is left to do; `None`: when everything is done.
    pub until: Option<Until>,
    /// Says of what class failures are; `None`: the rules that are built in, and no others.
    pub classifier: Option<Arc<Classifier>>,
}

/// The end of a run whose time is limited. Nothing is started that asks for more time than is left; what still runs is
/// asked to stop a little before, and is ready again afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    pub end: Instant,
    /// How long before the end jobs are asked to stop.
    pub lead: Duration,
}

impl Until {
    /// When jobs are asked to stop.
    fn warning(self) -> Instant {
        self.end.checked_sub(self.lead).unwrap_or(self.end)
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every job is settled.
    Finished,
    /// Some jobs wait for a decision, or all of them do: the retries are used up. It can be resumed.
    Stuck,
    /// Stopped on request; it can be resumed.
    Interrupted,
    Canceled,
}

#[derive(Debug)]
pub struct Summary {
    pub end: RunEnd,
    pub counts: StatusCounts,
    pub elapsed: Duration,
    /// Why jobs are left that cannot run here, if there are any: [`Error::TooLarge`] or [`Error::Elsewhere`].
    pub kept_back: Option<Error>,
}

/// What can be said to a running dispatcher from other threads.
#[derive(Clone, Debug)]
pub struct Control(Post);

impl Control {
    /// Ctrl-C: the first asks the jobs to stop, the second kills them.
    pub fn interrupt(&self) {
        self.0.send(Event::Interrupt);
    }

    /// Somebody may have asked for something: look.
    pub fn look(&self) {
        self.0.send(Event::Look);
    }
}

pub struct Dispatcher<'a> {
    store: &'a dyn Store,
    lock: Option<&'a LockGuard>,
    /// Nobody knows whether the lock is still ours: until somebody does, nothing is decided.
    is_lock_away: bool,
    host: &'a mut dyn WorkerHost,
    observer: &'a mut dyn Observer,
    options: Options,
    workflow: WorkflowRow,
    terms: Terms,
    sequels: Sequels,
    board: Board,
    agenda: Agenda,
    worker: Option<ActiveWorker>,
    deaths_in_a_row: u32,
    suspects: Suspects,
    /// Jobs that cannot run here.
    kept_back: Vec<JobId>,
    inbox: Inbox,
    /// What came in while the dispatcher could attend to nothing but a full disk.
    postponed: VecDeque<Event>,
    /// Decided and not yet handed to the store.
    open: Decided,
    open_since: Option<Instant>,
    in_flight: Option<InFlight>,
    held: HashMap<u32, Held>,
    /// An attempt is over whose job may have added others.
    something_ended: bool,
    /// Attempts with which their jobs are over, since the last look at what was added.
    over: Vec<AttemptKey>,
    /// Whether jobs have added any at all.
    has_added: bool,
    /// As of when the books were last looked through for what others have written.
    foreign_commits: Option<i64>,
    wishes: Wishes,
    stop: Option<StopReason>,
    interrupts: u32,
    kill_by: Option<Instant>,
    trouble: Option<Trouble>,
    pace: Pace,
    clock: Clock,
    started: Instant,
    shown: Instant,
}

/// A job that the worker holds.
struct Held {
    name: String,
    started: Option<(Instant, Timestamp)>,
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
        // Before the jobs are read: whatever is added from here on is found later.
        let foreign_commits = store.foreign_commits(true)?;
        let classifier = options.classifier.clone();
        let mut board = takeover::take_over(store, host, observer, &workflow, classifier, clock.now())?;
        let suspects = suspicion::recall(store, &workflow, &mut board)?;
        let mut open = Decided::default();
        let mut agenda = Agenda::noted(store, workflow.id)?;
        agenda.look_at(&board, &mut open.changes);
        // Whoever carried out some of them before is dead.
        if agenda.actions.interrupt(|_| true, clock.now(), &mut open.changes) > 0 {
            observer
                .notice("an action was under way when an earlier process died; `windlass actions` shows it");
        }
        let has_added = !store.spawners(workflow.id)?.is_empty();
        let mut sequels = Sequels::of(store, &workflow, &board, options.classifier.clone())?;
        if sequels.is_used_up() {
            // Whoever calls this wants it to go on.
            store.add_event(&sequels.renew(&workflow), clock.now())?;
        }
        let inbox = Inbox::new().map_err(Error::Wait)?;
        let now = Instant::now();
        Ok(Self {
            store,
            lock: None,
            is_lock_away: false,
            host,
            observer,
            options,
            terms: Terms::of(&workflow),
            workflow,
            sequels,
            board,
            agenda,
            worker: None,
            deaths_in_a_row: 0,
            suspects,
            kept_back: Vec::new(),
            inbox,
            postponed: VecDeque::new(),
            open,
            open_since: None,
            in_flight: None,
            held: HashMap::new(),
            something_ended: false,
            over: Vec::new(),
            has_added,
            foreign_commits,
            wishes: Wishes::none(now),
            stop: None,
            interrupts: 0,
            kill_by: None,
            trouble: None,
            pace: Pace::default(),
            clock,
            started: now,
            shown: now,
        })
    }

    /// Looks after the lock of the workflow, which can be lost, and stops should somebody else have it.
    #[must_use]
    pub fn holding(mut self, lock: &'a LockGuard) -> Self {
        self.lock = Some(lock);
        self
    }

    pub fn control(&self) -> Control {
        Control(self.inbox.post())
    }

    /// Runs until nothing more happens by itself, or until it is told to stop.
    pub fn run(mut self) -> Result<Summary, Error> {
        let outcome = self.drive().map_err(|error| self.is_lost().map_or(error, Error::LockLost));
        self.show(Instant::now());
        if matches!(outcome, Err(Error::LockLost(_))) {
            self.abandon();
        }
        if outcome.is_err() {
            self.save_what_was_decided();
        }
        let dismissed = self.dismiss_worker();
        outcome.and(dismissed)?;
        let end = self.conclude()?;
        let kept_back = if end == RunEnd::Stuck { self.why_kept_back()? } else { None };
        Ok(Summary { end, counts: *self.board.counts(), elapsed: self.started.elapsed(), kept_back })
    }

    fn drive(&mut self) -> Result<(), Error> {
        if !self.board.is_finished() {
            self.on_look_for_cancel()?;
        }
        if self.stop.is_none() {
            self.keep_back_at_start()?;
        }
        let (id, now) = (self.workflow.id, self.clock.now());
        self.insist(|store| store.begin_run(id, now))?;
        if self.board.has_ready() {
            self.start_worker()?;
        }
        self.begin_actions()?;
        while !self.is_over()? {
            self.let_go_of_what_is_due()?;
            self.look_for_wishes_in_time()?;
            if self.has_lock()? {
                self.grant_wishes()?;
                self.carry_out_next();
                self.claim_more()?;
                self.submit_if_due();
            }
            self.show_progress();
            if let Some(event) = self.wait() {
                self.on_event(event)?;
                while let Some(event) = self.inbox.try_next() {
                    self.on_event(event)?;
                }
            }
            if self.warns_at().is_some_and(|at| at <= Instant::now()) {
                self.on_time_up("the time is up: what runs is asked to stop");
            }
            if self.kill_by.is_some_and(|by| by <= Instant::now()) {
                self.kill_by = None;
                self.on_worker_gone()?;
            }
            self.pick_up_added()?;
        }
        // What is called complete has to be in the database that others will read.
        match self.verify_lock() {
            Err(Error::Store(error)) if error.is_transient() => Ok(()),
            verified => verified,
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), Error> {
        let is_current = |id: &WorkerId| self.worker.as_ref().is_some_and(|worker| worker.id == *id);
        match event {
            // News of a worker that was already given up and buried.
            Event::FromWorker { worker, .. } | Event::WorkerGone { worker, .. } if !is_current(&worker) => {
                Ok(())
            }
            Event::FromWorker { message, .. } => {
                self.on_message(message);
                Ok(())
            }
            Event::WorkerGone { confused: Some(what), .. } => Err(Error::Protocol(what)),
            Event::WorkerGone { confused: None, .. } => self.on_worker_gone(),
            Event::Committed(result) => self.on_committed(result),
            Event::ActionEnded(report) => {
                self.on_action_ended(report);
                Ok(())
            }
            Event::Interrupt => {
                self.on_interrupt();
                Ok(())
            }
            Event::Look => self.on_look_for_cancel().and_then(|()| self.look_for_wishes()),
        }
    }

    fn on_interrupt(&mut self) {
        self.interrupts += 1;
        let why = *self.stop.get_or_insert(StopReason::Interrupted);
        self.host.stop_actions(self.interrupts > 1);
        if self.interrupts == 1 {
            self.stop_worker(why, self.options.grace);
        } else {
            self.stop_worker(why, Duration::ZERO);
            self.kill_by.get_or_insert(Instant::now() + LAST_WORDS);
        }
    }

    /// When there will be something to say to the worker about the time.
    fn warns_at(&self) -> Option<Instant> {
        self.options.until.filter(|_| self.stop.is_none()).map(Until::warning)
    }

    /// As after Ctrl-C, but whoever is asked has until the end and no longer.
    fn on_time_up(&mut self, notice: &str) {
        let left = self.options.until.map(|until| until.end.saturating_duration_since(Instant::now()));
        self.observer.notice(notice);
        self.stop = Some(StopReason::Interrupted);
        self.host.stop_actions(false);
        self.stop_worker(StopReason::Interrupted, left.unwrap_or(self.options.grace));
    }

    fn on_look_for_cancel(&mut self) -> Result<(), Error> {
        let id = self.workflow.id;
        if self.stop != Some(StopReason::Canceled) && self.insist(|store| store.cancel_requested(id))? {
            self.stop = Some(StopReason::Canceled);
            self.board.on_cancel();
            self.host.stop_actions(false);
            self.stop_worker(StopReason::Canceled, self.options.grace);
        }
        Ok(())
    }

    fn wait(&mut self) -> Option<Event> {
        if let Some(event) = self.postponed.pop_front() {
            return Some(event);
        }
        let now = Instant::now();
        let linger = self.lingers_until().filter(|_| self.in_flight.is_none());
        let retry = self.in_flight.as_ref().and_then(|f| f.retry_at);
        let trouble = self.trouble.as_ref().map(|t| t.until).filter(|until| *until > now);
        let progress = Some(self.shown + PROGRESS_INTERVAL);
        let due = self.board.next_due().map(|due| now + due.since(self.clock.now()));
        let warning = self.warns_at();
        let until =
            [linger, retry, trouble, due, warning, self.kill_by, progress].into_iter().flatten().min()?;
        self.inbox.next(until)
    }

    /// Jobs that had to wait before they are tried again may be claimed when their time has come.
    fn let_go_of_what_is_due(&mut self) -> Result<(), Error> {
        if self.board.next_due().is_none() {
            return Ok(());
        }
        self.board.on_time(self.clock.now());
        if self.board.has_ready() && self.worker.is_none() && self.stop.is_none() {
            // Nothing else was there to be done when the run began.
            self.start_worker()?;
        }
        Ok(())
    }

    /// Whoever wished for something in the last moment is attended to.
    fn is_over(&mut self) -> Result<bool, Error> {
        if !self.has_nothing_to_do() {
            return Ok(false);
        }
        self.look_for_wishes()?;
        Ok(self.stop.is_some() || !self.wishes.are_there)
    }

    fn has_nothing_to_do(&self) -> bool {
        let committed = self.open.changes.is_empty() && self.in_flight.is_none();
        let nothing_held = self.held.is_empty();
        let no_more_to_do = self.stop.is_some() || self.board.is_finished() || self.board.is_stuck();
        // Told twice to stop with the disk full: what could not be recorded will run again.
        let is_refused = self.is_lock_away || self.in_flight.as_ref().is_some_and(|f| f.was_refused);
        let given_up = self.interrupts > 1 && nothing_held && is_refused;
        // Jobs may have been added that could not be looked for yet.
        let knows_all = !self.something_ended || self.stop.is_some();
        (committed && knows_all && nothing_held && no_more_to_do && self.actions_are_done()) || given_up
    }

    /// Notes how it ended. Whoever asked for cancellation in the last moment is answered as well.
    fn conclude(&mut self) -> Result<RunEnd, Error> {
        let (id, now) = (self.workflow.id, self.clock.now());
        let finished = self.board.is_finished();
        if !finished {
            self.on_look_for_cancel()?;
        }
        let end = match self.stop {
            Some(StopReason::Canceled) => RunEnd::Canceled,
            _ if finished => RunEnd::Finished,
            Some(StopReason::Interrupted) => RunEnd::Interrupted,
            None => RunEnd::Stuck,
        };
        if matches!(end, RunEnd::Finished | RunEnd::Canceled) {
            self.insist(|store| store.end_run(id, end == RunEnd::Canceled, now))?;
        }
        Ok(end)
    }

    fn in_trouble(&mut self, text: String) {
        if self.trouble.as_ref().is_none_or(|t| t.text != text) {
            self.observer.notice(&text);
        }
        self.trouble = Some(Trouble { text, until: Instant::now() + TROUBLE_PAUSE });
    }

    /// Does something small and waits a full disk or a database that is away out, unless it is told twice to stop.
    fn insist<T>(
        &mut self,
        work: impl Fn(&dyn Store) -> Result<T, windlass_store::Error>,
    ) -> Result<T, Error> {
        loop {
            match self.check_lock().and_then(|()| Ok(work(self.store)?)) {
                Err(Error::Store(error)) if error.is_transient() && self.interrupts < 2 => {
                    self.in_trouble(error.to_string());
                    self.sit_out();
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits for a moment, attending to nothing but interrupts.
    fn sit_out(&mut self) {
        let until = Instant::now() + TROUBLE_PAUSE;
        while let Some(event) = self.inbox.next(until) {
            match event {
                Event::Interrupt => self.on_interrupt(),
                other => self.postponed.push_back(other),
            }
        }
        self.show(Instant::now());
    }
}

impl Trouble {
    fn lasts(&self) -> bool {
        self.until > Instant::now()
    }
}

/// What the only worker takes: it is here, and whatever is to run has to run here.
fn here(labels: &[String]) -> Taste {
    Taste::default().at_site(Some(LOCAL_SITE)).with_labels_of_only_worker(labels.to_vec())
}
