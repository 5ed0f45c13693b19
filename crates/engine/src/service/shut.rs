//! Workflows whose desk is shut for a moment: somebody has them to himself, or their rows are read anew.
//!
//! ```text
//!          a call needs it quiet, or the rows know better
//!   open ───────────────────────────────────────────────▶ closing: nothing new is decided, what was decided is written
//!     ▲                                                      │
//!     │ the rows were read                                   ▼
//!     └───────────────────────────────────────────────── away: a thread works on its rows, or reads them
//!     ▲                                                      │ they cannot be read
//!     └──────────────────── tried again, again and again ◀───┘
//! ```
//!
//! A workflow that is active in the books never loses its place. Whoever comes for it meanwhile waits, and what its last
//! desk knew and the rows do not say goes over to the next one ([`Left`]).

use super::call::{Answer, Call, Event};
use super::desk::{Desk, NoDesk};
use super::exchange::superseded;
use super::exchanges::{PATIENCE, Ticket};
use super::office::{Office, Slot, TROUBLE_PAUSE, refused, unavailable};
use super::panics::{read_caught, work_caught};
use super::talk::{Quiet, Refused};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use windlass_core::board::{Orphan, Stale};
use windlass_store::Error;
use windlass_store::model::{NewEvent, ResultFilter, Severity};
use windlass_types::fleet::ActionReport;
use windlass_types::work::{Assignment, AttemptKey, Report, Usage};
use windlass_types::{WorkerId, WorkflowId};

/// A workflow whose desk is shut.
pub(super) struct Shut {
    /// When its rows are read again, because they could not be; `None` while somebody is at them.
    pub(super) retry_at: Option<Instant>,
    /// No desk of it was there yet, so nobody knows who holds what of it.
    pub(super) is_unknown: bool,
    /// Who came meanwhile.
    pub(super) queue: VecDeque<Waiting>,
    left: Left,
}

/// A call that waits for its desk.
pub(super) struct Waiting {
    call: Call,
    since: Instant,
}

impl Waiting {
    pub(super) fn refuse(self, why: Refused) {
        self.call.refuse(why);
    }
}

/// What a desk knew and the rows do not say.
#[derive(Default)]
struct Left {
    /// Claims that are on disk, or may be, and that their workers have not heard of.
    claims: Vec<(WorkerId, Assignment)>,
    /// Reports that may not be on disk.
    heard: Vec<(WorkerId, Report)>,
    heard_actions: Vec<(WorkerId, ActionReport)>,
    /// Exchanges that wait for all that.
    tickets: Vec<Ticket>,
    /// Attempts with which their jobs are over, and after which nobody has looked for what they left behind.
    over: Vec<AttemptKey>,
    /// Nobody has said yet what is to run in its next run.
    awaits_word: bool,
}

impl Left {
    /// The database refused something of what was heard, and nobody knows what: only what decides is said again, so that one
    /// report does not hold up all others for ever.
    fn reduce(&mut self) {
        for (_, report) in &mut self.heard {
            if let Report::Ended(ended) = report {
                (ended.files, ended.last_words, ended.recovered) = (None, None, None);
                ended.usage = Usage::default();
            }
        }
        for (_, report) in &mut self.heard_actions {
            report.message = None;
        }
    }
}

/// What was found in the books: no desk is needed for a workflow that is not active.
pub(super) type Found = Result<Option<Box<Desk>>, NoDesk>;

impl Office {
    // ---- who waits ----

    /// Whether somebody who wants something of the workflow has to wait: the desk is shut or about to be, or not as quiet
    /// as this call needs it.
    pub(super) fn has_to_wait(&self, call: &Call, workflow: WorkflowId) -> bool {
        match self.slots.get(&workflow) {
            Some(Slot::Shut(_)) => true,
            Some(Slot::Open(desk)) => desk.is_closing() || (call.needs_quiet() && !desk.is_quiet()),
            None => false,
        }
    }

    /// Puts a call at the end of the queue of its workflow. A worker that repeats an exchange waits once.
    pub(super) fn put_off(&mut self, workflow: WorkflowId, call: Call, since: Instant) {
        let Some(queue) = self.queue_of(workflow) else { return };
        let same = call.exchange_number();
        let before = queue.iter().position(|other| same.is_some() && other.call.exchange_number() == same);
        let before = before.and_then(|position| queue.remove(position));
        queue.push_back(Waiting { call, since });
        self.waited_for.insert(workflow);
        if let Some(before) = before {
            before.call.refuse(superseded());
        }
    }

    fn queue_of(&mut self, workflow: WorkflowId) -> Option<&mut VecDeque<Waiting>> {
        match self.slots.get_mut(&workflow)? {
            Slot::Open(desk) => Some(&mut desk.queue),
            Slot::Shut(shut) => Some(&mut shut.queue),
        }
    }

    /// Whoever waited for the desk to be quiet, or to be there again, is attended to.
    pub(super) fn let_in_whoever_waits(&mut self, workflow: WorkflowId) {
        let Some(desk) = self.desk(workflow) else { return };
        if desk.is_quiet() && !desk.is_outdated && !desk.queue.is_empty() {
            let queue = std::mem::take(&mut desk.queue);
            self.replay(queue);
        }
    }

    fn replay(&mut self, queue: VecDeque<Waiting>) {
        for Waiting { call, since } in queue {
            self.attend_to(call, since);
        }
    }

    /// Nobody waits for ever: workers are to know that they were heard, and where the database is in trouble nobody knows
    /// how long it takes.
    pub(super) fn send_away_who_waited_too_long(&mut self) {
        let now = self.now.at;
        for workflow in std::mem::take(&mut self.waited_for) {
            let is_in_trouble = self.retry_at(workflow).is_some();
            let Some(queue) = self.queue_of(workflow) else { continue };
            let is_enough = |waiting: &Waiting| {
                (is_in_trouble || waiting.call.is_of_worker()) && waiting.since + PATIENCE <= now
            };
            let (enough, rest): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(queue).into_iter().partition(is_enough);
            if !rest.is_empty() {
                *queue = rest;
                self.waited_for.insert(workflow);
            }
            for waiting in enough {
                waiting.call.refuse(unavailable(&format!("workflow {workflow} is not at hand")));
            }
        }
    }

    // ---- trouble ----

    /// Something of an open desk could not be read or written: it is tried again after a moment. If the trouble is not the
    /// database's, the rows are read then.
    pub(super) fn on_trouble(&mut self, workflow: WorkflowId, error: &Error) {
        let retry_at = self.now.at + TROUBLE_PAUSE;
        let Some(desk) = self.desk(workflow) else { return };
        desk.paused_until = Some(retry_at);
        desk.is_outdated |= !error.is_transient();
        self.troubled.insert(workflow);
    }

    /// When something of the workflow is tried again.
    pub(super) fn retry_at(&self, workflow: WorkflowId) -> Option<Instant> {
        match self.slots.get(&workflow)? {
            Slot::Open(desk) => desk.retry_at(),
            Slot::Shut(shut) => shut.retry_at,
        }
    }

    /// Tries again whatever is due.
    pub(super) fn look_at_trouble(&mut self) {
        let now = self.now.at;
        for workflow in self.troubled.iter().copied().collect::<Vec<_>>() {
            match self.retry_at(workflow) {
                Some(at) if at > now => {}
                Some(_) => self.try_again(workflow),
                None => _ = self.troubled.remove(&workflow),
            }
        }
    }

    fn try_again(&mut self, workflow: WorkflowId) {
        match self.slots.get_mut(&workflow) {
            Some(Slot::Shut(_)) => self.read(workflow),
            Some(Slot::Open(desk)) => match &mut desk.in_flight {
                Some(batch) if batch.retry_at.is_some() => {
                    batch.retry_at = None;
                    self.submit_in_flight(workflow);
                }
                _ => {
                    desk.paused_until = None;
                    self.stirred.insert(workflow);
                }
            },
            None => {}
        }
    }

    // ---- shutting ----

    /// The desk is thrown away; what it knew is kept for the next one.
    fn shut(&mut self, workflow: WorkflowId, left: Left) {
        let mut shut = Shut { retry_at: None, is_unknown: true, queue: VecDeque::new(), left };
        if let Some(Slot::Open(desk)) = self.slots.remove(&workflow) {
            self.gauges.note_desk(desk.figures, (0, 0));
            if let Some(mate) = desk.reserved.and_then(|worker| self.mates.get_mut(&worker)) {
                mate.reserved = None;
            }
            shut.left.awaits_word = desk.awaits_word;
            (shut.is_unknown, shut.queue, shut.left.over) = (false, desk.queue, desk.over);
        }
        self.crews.place(workflow, |_| None);
        self.slots.insert(workflow, Slot::Shut(Box::new(shut)));
    }

    /// Makes a desk anew from its rows, once nothing of it is under way.
    pub(super) fn make_anew_if_due(&mut self, workflow: WorkflowId) {
        let Some(desk) = self.desk(workflow) else { return };
        if desk.is_outdated && desk.is_quiet() && desk.paused_until.is_none() {
            self.make_anew(workflow);
        }
    }

    /// Shuts the desk and has its rows read. Nothing of it may be on its way to the disk.
    pub(super) fn make_anew(&mut self, workflow: WorkflowId) {
        self.shut(workflow, Left::default());
        self.read(workflow);
    }

    /// A workflow that is active and has no desk: its rows are read. `trouble`: even whether it is active could not be read.
    pub(super) fn take_in(&mut self, workflow: WorkflowId, trouble: bool) {
        self.shut(workflow, Left::default());
        if trouble {
            self.read_later(workflow);
        } else {
            self.read(workflow);
        }
    }

    /// A batch was refused: memory and books do not agree, so the desk is made anew. Whoever waits for something of it is
    /// told to come again; what workers reported is heard again by the next desk.
    pub(super) fn remake(&mut self, workflow: WorkflowId, error: &Error) {
        let Some(desk) = self.desk(workflow) else { return };
        let in_flight = desk.in_flight.take().map(|batch| batch.then);
        let mut left = Left::default();
        for lost in in_flight.into_iter().chain([std::mem::take(&mut desk.open)]) {
            left.claims.extend(lost.assignments);
            left.heard.extend(lost.heard);
            left.heard_actions.extend(lost.heard_actions);
            left.tickets.extend(lost.tickets);
            for told in lost.told {
                told(Err(refused(error)));
            }
            // Whatever they held is found when the rows are read.
            for worker in lost.gone {
                self.note_settled(worker);
            }
        }
        if error.is_invalid() {
            left.reduce();
            self.note_refusal(workflow, error);
        }
        for (then, reply) in self.take_afterwards(workflow) {
            reply(Err(refused(error)));
            // Should it be on disk all the same, it is not to be left half done.
            self.afterwards.push((workflow, then, Box::new(drop)));
        }
        self.shut(workflow, left);
        // A moment's pause: whatever it is, it might happen again at once.
        self.read_later(workflow);
    }

    /// What workers said is no secret to anybody who may see the workflow; why it is not there should not be one either.
    fn note_refusal(&self, workflow: WorkflowId, error: &Error) {
        let event = NewEvent {
            workflow: Some(workflow),
            job: None,
            severity: Severity::Warning,
            category: "report_reduced".to_owned(),
            message: format!(
                "reports were stored without output and measurements, which were refused: {error}"
            ),
            data: None,
        };
        // Where it cannot be written, the reports matter more.
        drop(self.store.add_event(&event, self.now.wall));
    }

    // ---- away ----

    /// Somebody has a quiet workflow to himself; afterwards its rows are read by the same thread.
    pub(super) fn on_exclusive(&mut self, workflow: WorkflowId, call: Call) {
        let Call::Exclusive { needs, work, .. } = call else { return };
        if let Some(desk) = self.desk(workflow)
            && needs == Quiet::Free
            && let Some(detail) = desk.what_is_held()
        {
            return work(Err(Refused::Conflict { code: "workflow_active", detail }))();
        }
        self.shut(workflow, Left::default());
        let (store, post, birth) = (Arc::clone(&self.store), self.post.clone(), self.new_birth());
        self.on_a_thread(workflow, move || {
            let read = || Desk::read_if_active(&*store, workflow, birth);
            let (answer, found) = work_caught(workflow, work, &*store, read);
            post.send(Event::Back { workflow, answer, found }).unwrap_or_default();
        });
    }

    /// Has the rows of a workflow that is shut read.
    fn read(&mut self, workflow: WorkflowId) {
        if let Some(Slot::Shut(shut)) = self.slots.get_mut(&workflow) {
            shut.retry_at = None;
        }
        let (store, post, birth) = (Arc::clone(&self.store), self.post.clone(), self.new_birth());
        self.on_a_thread(workflow, move || {
            let read = || Desk::read(&*store, workflow, birth).map(|desk| Some(Box::new(desk)));
            let found = read_caught(workflow, read);
            post.send(Event::Back { workflow, answer: None, found }).unwrap_or_default();
        });
    }

    fn on_a_thread(&mut self, workflow: WorkflowId, work: impl FnOnce() + Send + 'static) {
        let begun = std::thread::Builder::new().name("windlass-shut".into()).spawn(work);
        if begun.is_err() {
            self.read_later(workflow);
        }
    }

    fn read_later(&mut self, workflow: WorkflowId) {
        let retry_at = self.now.at + TROUBLE_PAUSE;
        if let Some(Slot::Shut(shut)) = self.slots.get_mut(&workflow) {
            shut.retry_at = Some(retry_at);
            self.troubled.insert(workflow);
        }
    }

    /// Whoever was at the rows of a workflow is done.
    pub(super) fn on_back(&mut self, workflow: WorkflowId, answer: Option<Answer>, found: Found) {
        let queue = match found {
            Ok(Some(desk)) => self.reseat(*desk),
            Ok(None) => self.dissolve(workflow, &unavailable("it is not active")),
            Err(no @ (NoDesk::NotFound | NoDesk::Broken(_))) => {
                self.dissolve(workflow, &no.refused(workflow))
            }
            Err(NoDesk::Store(_)) => {
                self.read_later(workflow);
                VecDeque::new()
            }
        };
        self.tell_bound(workflow);
        if let Some(answer) = answer {
            self.tell_of_commit();
            answer();
        }
        self.replay(queue);
    }

    // ---- open again ----

    /// The desk that takes the place of a shut one: it is told what the last one knew. Returns who waits, unless they have
    /// to wait on.
    fn reseat(&mut self, desk: Desk) -> VecDeque<Waiting> {
        let workflow = desk.id();
        let Some(Slot::Shut(shut)) = self.slots.remove(&workflow) else { return VecDeque::new() };
        let Shut { queue, mut left, .. } = *shut;
        left.claims.extend(self.forget_holds_of(workflow));
        self.crews.dismiss(workflow);
        self.seat(desk);
        self.pass_on(workflow, left);
        self.do_what_was_to_follow(workflow);
        match self.desk(workflow) {
            Some(desk) if !desk.is_quiet() => {
                desk.queue = queue;
                VecDeque::new()
            }
            _ => queue,
        }
    }

    /// What the rows do not say, as far as they do not contradict it.
    fn pass_on(&mut self, workflow: WorkflowId, left: Left) {
        let Some(desk) = self.desk(workflow) else { return };
        desk.open.tickets.extend(left.tickets);
        desk.awaits_word = left.awaits_word;
        let is_over = |key: &AttemptKey| {
            let status = desk.board.index(key.job).map(|job| desk.board.status(job));
            status.is_some_and(windlass_types::JobStatus::is_settled)
        };
        let over: Vec<AttemptKey> = left.over.into_iter().filter(is_over).collect();
        desk.over.extend(over);
        for (worker, assignment) in left.claims {
            let Some(desk) = self.desk(workflow) else { return };
            if desk.fenced(worker, &assignment.key).is_err() {
                continue;
            }
            if let Some(hold) = desk.held.get_mut(&assignment.key.job) {
                hold.is_told = false;
            }
            self.hand_out(workflow, worker, assignment);
        }
        for (worker, report) in left.heard {
            if let Err(stale) = self.hear_report(worker, report) {
                self.record_stale_unless_written(worker, &stale);
            }
        }
        for (worker, report) in left.heard_actions {
            // One that is not under way any more is in the rows.
            self.hear_action(worker, report);
        }
        self.stirred.insert(workflow);
    }

    /// A report that was heard before and does not fit the rows: because it is in them, or because it never will be.
    fn record_stale_unless_written(&mut self, worker: WorkerId, stale: &Stale) {
        let AttemptKey { workflow, run, job, attempt } = stale.key;
        let filter =
            ResultFilter { job: Some(job), run: Some(run), worker: Some(worker), ..ResultFilter::default() };
        let results = self.store.results(workflow, &filter).unwrap_or_default();
        if results.iter().all(|row| row.key.attempt_id != attempt) {
            self.record_stale(worker, stale);
        }
    }

    /// There is no desk for the workflow, and nothing to come: it is over, deleted, or no good.
    fn dissolve(&mut self, workflow: WorkflowId, why: &Refused) -> VecDeque<Waiting> {
        let Some(Slot::Shut(shut)) = self.slots.remove(&workflow) else { return VecDeque::new() };
        let Shut { queue, left, .. } = *shut;
        drop(self.forget_holds_of(workflow));
        self.mates.values_mut().for_each(|mate| mate.forget(workflow));
        self.crews.dismiss(workflow);
        for (worker, report) in left.heard {
            let stale = Stale { key: *report.key(), found: why.to_string() };
            self.record_stale_unless_written(worker, &stale);
        }
        for ticket in left.tickets {
            self.pay(ticket);
        }
        for (_, reply) in self.take_afterwards(workflow) {
            reply(Err(why.clone()));
        }
        queue
    }

    /// A desk that was just made takes its place: workers learn of it, and those that hold jobs of it are known.
    pub(super) fn seat(&mut self, mut desk: Desk) {
        let workflow = desk.id();
        let row = desk.row.clone();
        self.crews.admit(workflow, |crew| !crew.is_bound_elsewhere(workflow) && (crew.may)(&row));
        let mut held: Vec<_> = desk.held.iter().map(|(job, hold)| (*job, *hold)).collect();
        held.sort_unstable_by_key(|(job, _)| *job);
        let mut orphans = Vec::new();
        for (job, hold) in held {
            let Some(number) = desk.board.index(job) else { continue };
            let fate = match self.mates.get_mut(&hold.worker) {
                Some(mate) if !mate.is_leaving => {
                    if mate.held.insert(job, workflow).is_none() {
                        mate.mirror.take_anyway(job, desk.board.demand(number));
                    }
                    continue;
                }
                // It said that it holds nothing, so it has not started it.
                Some(_) if hold.started_at.is_none() => Orphan::NeverStarted,
                None if desk.unleased.contains(&hold.worker) && !self.going.contains_key(&hold.worker) => {
                    continue;
                }
                // Nobody will come back for it.
                _ => Orphan::RunAgain(None),
            };
            desk.held.remove(&job);
            orphans.push((number, hold, fate));
        }
        self.slots.insert(workflow, Slot::Open(Box::new(desk)));
        self.stirred.insert(workflow);
        self.seat_errands(workflow);
        for (number, hold, fate) in orphans {
            self.orphan(workflow, number, hold.worker, fate, hold.started_at);
        }
    }

    /// Who holds what of it is told by its rows. Returns what workers were about to be told.
    fn forget_holds_of(&mut self, workflow: WorkflowId) -> Vec<(WorkerId, Assignment)> {
        let mut untold = Vec::new();
        for (&worker, mate) in &mut self.mates {
            let news = mate.outbox.assignments.iter().filter(|told| told.key.workflow == workflow);
            untold.extend(news.map(|told| (worker, told.clone())));
            let held = mate.held.iter().filter(|(_, id)| **id == workflow).map(|(job, _)| *job);
            for job in held.collect::<Vec<_>>() {
                mate.let_go(job);
            }
        }
        untold
    }
}
