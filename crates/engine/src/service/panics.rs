//! A panic in the scheduler is caught: the event that caused it is logged and rejected, and memory is made anew from the
//! rows, as a server that starts does it.
//!
//! Nothing that was decided and not committed survives: what a panic left half done is part of it. What workers reported
//! and the rows do not say they report again, because nobody confirmed it: every worker has to introduce itself again and
//! says what it holds. A report that caused a panic is not heard a second time. Its attempt counts as one that was lost
//! with its worker, so the job runs again, and is given up if that happens again and again.

use super::call::{Answer, Call, Event};
use super::crews::Crews;
use super::desk::{Desk, NoDesk};
use super::losses::Loss;
use super::nodes::Nodes;
use super::office::{Office, Slot, TROUBLE_PAUSE, refused, unavailable};
use super::shut::Found;
use super::talk::Refused;
use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use windlass_core::board::Stale;
use windlass_core::suspects::Evidence;
use windlass_store::Store;
use windlass_store::model::{NewEvent, Severity};
use windlass_types::work::AttemptKey;
use windlass_types::{JobId, WorkerId, WorkflowId};

/// After so many panics in the upkeep of one workflow it is left alone until the server starts again.
const MOST_OF_A_WORKFLOW: u32 = 3;
/// After so many panics without one round in between that went well nothing helps any more.
const MOST_IN_A_ROW: u32 = 20;
/// Reports that are remembered because they caused a panic.
const MOST_REJECTED: usize = 10_000;
/// How long the commits that were under way may take before the rows are read all the same.
const LONGEST_COMMIT: Duration = Duration::from_secs(30);

/// What the scheduler is doing: cheap to note, and told when it panics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    pub(super) what: &'static str,
    pub(super) workflow: Option<WorkflowId>,
    pub(super) job: Option<JobId>,
    pub(super) worker: Option<WorkerId>,
    /// A report that is being heard.
    pub(super) report: Option<AttemptKey>,
}

impl Activity {
    pub(super) fn upkeep(workflow: WorkflowId) -> Self {
        Self { what: "upkeep", workflow: Some(workflow), ..Self::default() }
    }

    /// It follows from no single event: the workflow itself is the cause.
    fn is_upkeep(&self) -> bool {
        ["upkeep", "committed", "rows_read"].contains(&self.what)
    }

    pub(super) fn of_report(worker: WorkerId, key: &AttemptKey) -> Self {
        let (workflow, job) = (Some(key.workflow), Some(key.job));
        Self { what: "report", workflow, job, worker: Some(worker), report: Some(*key) }
    }

    fn of_call(call: &Call) -> Self {
        Self {
            what: call.name(),
            workflow: match call {
                Call::Exchange { .. } | Call::Introduce { .. } => None,
                _ => call.workflows().first().copied(),
            },
            job: call.job(),
            worker: call.exchange_number().map(|(worker, _)| worker),
            report: None,
        }
    }

    pub(super) fn of_event(event: &Event) -> Self {
        match event {
            Event::Call(call) => Self::of_call(call),
            Event::Committed { workflow, .. } => {
                Self { what: "committed", workflow: Some(*workflow), ..Self::default() }
            }
            Event::Back { workflow, .. } => {
                Self { what: "rows_read", workflow: Some(*workflow), ..Self::default() }
            }
            Event::LookAround(_) | Event::Stop(_) => Self { what: "stop", ..Self::default() },
        }
    }
}

/// What is remembered of panics.
#[derive(Default)]
pub(super) struct Panics {
    in_a_row: u32,
    by_workflow: HashMap<WorkflowId, u32>,
    rejected: HashSet<(WorkerId, AttemptKey)>,
    /// Memory has to be made anew, and could not be yet.
    is_due: bool,
    /// Events that came while memory was made anew.
    pub(super) waiting: VecDeque<Event>,
    /// Batches that the store has not answered for.
    pub(super) batches: usize,
}

impl Panics {
    pub(super) fn note_good_round(&mut self) {
        self.in_a_row = 0;
    }

    /// Its upkeep panicked again and again.
    pub(super) fn is_left_alone(&self, workflow: WorkflowId) -> bool {
        self.by_workflow.get(&workflow).is_some_and(|times| *times >= MOST_OF_A_WORKFLOW)
    }
}

/// Runs `work`; a panic is an error in words.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| in_words(&*payload))
}

/// As [`Desk::read`]; a panic because of its rows is a reason why there is no desk.
pub(super) fn read_caught(workflow: WorkflowId, read: impl FnOnce() -> Found) -> Found {
    caught(read).unwrap_or_else(|panic| {
        tracing::error!(%workflow, panic, "the rows of a workflow caused a panic; it is left alone");
        Err(NoDesk::Broken(format!("the rows of workflow {workflow} cannot be taken up: {panic}")))
    })
}

fn in_words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".into())
}

impl Office {
    /// As [`Office::take_up`], whatever the rows are like.
    pub(super) fn begin_with_rows(&mut self) -> Result<(), crate::Error> {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.take_up())) {
                Ok(outcome) => {
                    self.panics.is_due = false;
                    return outcome;
                }
                Err(payload) => {
                    if let Err(payload) = self.on_panic(payload) {
                        resume_unwind(payload);
                    }
                    self.clear();
                }
            }
        }
    }

    /// The scheduler panicked. `Err`: nothing helps any more.
    pub(super) fn on_panic(&mut self, payload: Box<dyn Any + Send>) -> Result<(), Box<dyn Any + Send>> {
        let activity = std::mem::take(&mut self.activity);
        let panic = in_words(&*payload);
        let Activity { what, workflow, job, worker, .. } = activity;
        let id = |id: Option<i64>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        tracing::error!(
            event = what,
            workflow = id(workflow.map(|id| id.0)),
            job = id(job.map(|id| id.0)),
            worker = id(worker.map(|id| id.0)),
            panic,
            "the scheduler panicked; the event is rejected, and memory is made anew from the database"
        );
        self.panics.in_a_row += 1;
        if self.panics.in_a_row > MOST_IN_A_ROW {
            return Err(payload);
        }
        self.reject_reports(&activity);
        self.tell_of_panic(&activity, &panic);
        self.panics.is_due = true;
        Ok(())
    }

    /// What caused it is not heard again: the report itself, or all that was to be committed together.
    fn reject_reports(&mut self, activity: &Activity) {
        let mut causes: Vec<(WorkerId, AttemptKey)> =
            activity.worker.zip(activity.report).into_iter().collect();
        if let Some(workflow) = activity.workflow.as_ref().filter(|_| activity.is_upkeep()) {
            if let Some(desk) = self.desk(*workflow) {
                let heard =
                    desk.open.heard.iter().chain(desk.in_flight.iter().flat_map(|batch| &batch.then.heard));
                causes.extend(heard.map(|(worker, report)| (*worker, *report.key())));
            }
            *self.panics.by_workflow.entry(*workflow).or_default() += 1;
        }
        if self.panics.rejected.len() + causes.len() > MOST_REJECTED {
            self.panics.rejected.clear();
        }
        self.panics.rejected.extend(causes);
    }

    fn tell_of_panic(&self, activity: &Activity, panic: &str) {
        let Activity { what, workflow, job, worker, .. } = *activity;
        let is_left_alone = workflow.is_some_and(|id| self.panics.is_left_alone(id));
        let then =
            if is_left_alone { "; the workflow is left alone until the server starts again" } else { "" };
        let event = NewEvent {
            workflow,
            job,
            severity: Severity::Error,
            category: "scheduler_panic".to_owned(),
            message: format!("the scheduler rejected an event ({what}) that made it panic: {panic}{then}"),
            data: Some(serde_json::json!({ "event": what, "worker_id": worker, "panic": panic })),
        };
        self.notes.note(event, self.now.wall);
    }

    /// Whether this report caused a panic. If so its attempt is lost.
    pub(super) fn is_rejected(&mut self, worker: WorkerId, key: &AttemptKey) -> Result<(), Stale> {
        if self.panics.rejected.is_empty() || !self.panics.rejected.remove(&(worker, *key)) {
            return Ok(());
        }
        let is_running = self.mates.get(&worker).is_some_and(|mate| mate.mirror.is_running(key.job));
        if self.desk(key.workflow).is_some_and(|desk| desk.fenced(worker, key).is_ok()) {
            self.orphan_of(key.workflow, key.job, worker, is_running, Loss::Died(Evidence::Witnessed));
            if let Some(mate) = self.mates.get_mut(&worker) {
                mate.let_go(key.job);
            }
        }
        Err(Stale { key: *key, found: "the report caused an internal error of the server".to_owned() })
    }

    /// Makes memory anew if that is due. `false`: it cannot be done just now, and nothing else is done before.
    pub(super) fn is_whole(&mut self, inbox: &Receiver<Event>) -> bool {
        if !self.panics.is_due {
            return true;
        }
        self.await_batches(inbox);
        self.clear();
        match self.take_up_again() {
            Ok(()) => self.panics.is_due = false,
            Err(error) => {
                tracing::error!(%error, "memory cannot be made anew; it is tried again");
                if let Ok(event) = inbox.recv_timeout(TROUBLE_PAUSE) {
                    self.panics.waiting.push_back(event);
                }
            }
        }
        !self.panics.is_due
    }

    /// The rows are read when all that was on its way to them is there. Those who waited for that are told.
    fn await_batches(&mut self, inbox: &Receiver<Event>) {
        let deadline = Instant::now() + LONGEST_COMMIT;
        while self.panics.batches > 0 {
            match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Committed { workflow, birth, result }) => {
                    self.panics.batches -= 1;
                    self.gauges.note_answered(true, self.now.wall);
                    let desk = self.desk(workflow).filter(|desk| desk.birth == birth);
                    let batch = desk.and_then(|desk| desk.in_flight.take());
                    for told in batch.into_iter().flat_map(|batch| batch.then.told) {
                        told(result.as_ref().copied().map_err(refused));
                    }
                }
                Ok(event) => self.panics.waiting.push_back(event),
                Err(_) => break,
            }
        }
        self.panics.batches = 0;
    }

    /// Forgets all that follows from the rows. Workflows whose rows somebody is at stay shut.
    fn clear(&mut self) {
        let open = |(id, slot): (&WorkflowId, &Slot)| matches!(slot, Slot::Open(_)).then_some(*id);
        for workflow in self.slots.iter().filter_map(open).collect::<Vec<_>>() {
            if let Some(Slot::Open(desk)) = self.slots.remove(&workflow) {
                self.let_down(*desk);
            }
            for (then, reply) in self.take_afterwards(workflow) {
                reply(Err(failed()));
                // Should what it follows be on disk, it is not to be left half done.
                self.afterwards.push((workflow, then, Box::new(drop)));
            }
        }
        for (_, mut mate) in self.mates.drain() {
            for reply in mate.exchanges.begin_anew() {
                reply(Err(super::exchange::unknown_worker()));
            }
        }
        (self.crews, self.nodes) = (Crews::default(), Nodes::default());
        self.stirred.clear();
        self.roused.clear();
        self.acting.clear();
        self.lonely.clear();
        self.delaying.clear();
        self.going.clear();
        self.last_silence = None;
        let slots = &self.slots;
        self.troubled.retain(|workflow| slots.contains_key(workflow));
        self.waited_for.retain(|workflow| slots.contains_key(workflow));
    }

    /// Whoever waits for something of a desk that is gone is told.
    fn let_down(&self, desk: Desk) {
        self.gauges.note_desk(desk.figures, (0, 0));
        let in_flight = desk.in_flight.map(|batch| batch.then);
        for told in in_flight.into_iter().chain([desk.open]).flat_map(|decided| decided.told) {
            told(Err(failed()));
        }
        for waiting in desk.queue {
            waiting.refuse(failed());
        }
    }

    fn take_up_again(&mut self) -> Result<(), windlass_store::Error> {
        self.now = self.options.clock.now();
        self.take_up_rows()?;
        let waiting: Vec<WorkflowId> = self.afterwards.iter().map(|(workflow, ..)| *workflow).collect();
        for workflow in waiting {
            if self.desk(workflow).is_some() {
                self.do_what_was_to_follow(workflow);
            }
        }
        self.tell_of_commit();
        Ok(())
    }
}

/// Somebody is at the rows of a workflow, and then they are read: a panic of either is told.
pub(super) fn work_caught(
    workflow: WorkflowId,
    work: super::call::ExclusiveWork,
    store: &dyn Store,
    read: impl FnOnce() -> Found,
) -> (Option<Answer>, Found) {
    let answer = caught(move || work(Ok(store)));
    if let Err(panic) = &answer {
        tracing::error!(%workflow, panic, "a change of a workflow caused a panic; it is rejected");
    }
    (answer.ok(), read_caught(workflow, read))
}

pub(super) fn failed() -> Refused {
    unavailable(
        "the scheduler had an internal error and has read the database again; see the log of the server",
    )
}
