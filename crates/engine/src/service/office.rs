//! The thread that owns all desks and workers: calls come in, decisions are committed, answers go out.
//!
//! [`super::exchange`] hears workers, [`super::claims`] finds jobs for them, [`super::losses`] sees to what they leave behind,
//! [`super::actions`] to what is done beside the jobs, [`super::commits`] to what goes to disk and what is done afterwards,
//! [`super::failures`] to what follows failures, [`super::nodes`] to nodes that fail what others do not,
//! [`super::workflows`] to workflows as a whole, [`super::shut`] to those that are not at hand for a moment, and
//! [`super::verbs`] to clients that claim and complete jobs themselves.

use super::call::{Call, Event};
use super::clock::Moment;
use super::closed::Restraint;
use super::crews::Crews;
use super::desk::{Birth, Desk, is_active};
use super::figures::Gauges;
use super::mate::Mate;
use super::nodes::Nodes;
use super::panics::{Activity, Panics};
use super::pauses::{late_by, tick};
use super::shut::Shut;
use super::stale::Notes;
use super::talk::{Refused, Reply, ServiceOptions};
use super::workflows::Then;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::time::{Duration, Instant};
use windlass_store::Store;
use windlass_store::model::Part;
use windlass_types::{WorkerId, WorkflowId};

/// How long to wait before trying again when the database does not take anything.
pub(super) const TROUBLE_PAUSE: Duration = Duration::from_secs(1);
/// After its lease a worker is given so much longer: the answer was on its way, and clocks are not the same.
const MARGIN: Duration = Duration::from_secs(1);
/// Calls that are attended to before anything is committed or answered.
const GATHER: usize = 512;

pub(super) struct Office {
    pub(super) store: Arc<dyn Store>,
    pub(super) options: ServiceOptions,
    pub(super) post: Sender<Event>,
    pub(super) slots: HashMap<WorkflowId, Slot>,
    pub(super) mates: HashMap<WorkerId, Mate>,
    pub(super) crews: Crews,
    pub(super) nodes: Nodes,
    pub(super) gauges: Arc<Gauges>,
    pub(super) now: Moment,
    pub(super) next_birth: u64,
    /// Desks and workers that something happened to since the last round.
    pub(super) stirred: BTreeSet<WorkflowId>,
    pub(super) roused: BTreeSet<WorkerId>,
    /// Workflows with actions.
    pub(super) acting: BTreeSet<WorkflowId>,
    /// Workflows with a job that is to be tried alone, for which there was no worker when last asked.
    pub(super) lonely: BTreeSet<WorkflowId>,
    /// Workers that are gone, and how many commits there are still to be until the books may say so.
    pub(super) going: HashMap<WorkerId, usize>,
    /// When a worker was last given up because nothing was heard of it.
    pub(super) last_silence: Option<Instant>,
    /// What is done once a desk is made anew.
    pub(super) afterwards: Vec<(WorkflowId, Then, Reply<()>)>,
    /// Workflows of which the database did not do what it was asked.
    pub(super) troubled: BTreeSet<WorkflowId>,
    /// Workflows with jobs that wait for their time.
    pub(super) delaying: BTreeSet<WorkflowId>,
    /// Workflows that somebody waits for.
    pub(super) waited_for: BTreeSet<WorkflowId>,
    pub(super) notes: Notes,
    /// No unit elects one of these.
    pub(super) closed_sites: BTreeSet<String>,
    /// What holds back single workflows.
    pub(super) restraints: HashMap<WorkflowId, Restraint>,
    /// What is being done, should it panic; and what is known of panics before.
    pub(super) activity: Activity,
    pub(super) panics: Panics,
    is_stopping: bool,
    /// Who waits for everything to be at rest, and who for the end.
    lookers: Vec<SyncSender<()>>,
    farewells: Vec<SyncSender<()>>,
}

pub(super) enum Slot {
    Open(Box<Desk>),
    Shut(Box<Shut>),
}

impl Office {
    pub(super) fn new(
        store: Arc<dyn Store>,
        options: ServiceOptions,
        post: Sender<Event>,
        gauges: Arc<Gauges>,
    ) -> Self {
        let now = options.clock.now();
        let notes = Notes::start(Arc::clone(&store), options.on_commit.clone());
        Self {
            store,
            options,
            post,
            slots: HashMap::new(),
            mates: HashMap::new(),
            crews: Crews::default(),
            nodes: Nodes::default(),
            gauges,
            now,
            next_birth: 0,
            stirred: BTreeSet::new(),
            roused: BTreeSet::new(),
            acting: BTreeSet::new(),
            lonely: BTreeSet::new(),
            going: HashMap::new(),
            last_silence: None,
            afterwards: Vec::new(),
            troubled: BTreeSet::new(),
            delaying: BTreeSet::new(),
            waited_for: BTreeSet::new(),
            notes,
            closed_sites: BTreeSet::new(),
            restraints: HashMap::new(),
            activity: Activity::default(),
            panics: Panics::default(),
            is_stopping: false,
            lookers: Vec::new(),
            farewells: Vec::new(),
        }
    }

    /// Runs until it is told to stop and everything is on disk.
    pub(super) fn run(mut self, inbox: &Receiver<Event>) {
        let mut expected = self.now.at;
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.turn(inbox, &mut expected))) {
                Ok(true) => self.panics.note_good_round(),
                Ok(false) => break,
                Err(payload) => {
                    if let Err(payload) = self.on_panic(payload) {
                        resume_unwind(payload);
                    }
                }
            }
        }
        self.notes.flush();
        self.farewells.drain(..).for_each(told);
    }

    /// One round: what follows from the time and from what was decided, then what has come. `false`: it was the last one.
    fn turn(&mut self, inbox: &Receiver<Event>, expected: &mut Instant) -> bool {
        if !self.is_whole(inbox) {
            return true;
        }
        self.note_pause(*expected);
        self.activity = Activity { what: "time", ..Activity::default() };
        self.attend_to_time();
        self.settle();
        if !self.lookers.is_empty() && self.is_at_rest() {
            self.notes.flush();
            self.lookers.drain(..).for_each(told);
        }
        if self.is_stopping && self.is_at_rest() {
            return false;
        }
        *expected = self.next_deadline();
        if let Some(event) = self.next(inbox, *expected) {
            // What is noted because of it happens now, and not when this began to wait for it.
            self.now.wall = self.options.clock.now().wall;
            self.on_event(event);
            for event in inbox.try_iter().take(GATHER) {
                self.on_event(event);
            }
        }
        true
    }

    fn next(&mut self, inbox: &Receiver<Event>, until: Instant) -> Option<Event> {
        if let Some(event) = self.panics.waiting.pop_front() {
            return Some(event);
        }
        if !self.options.clock.runs_by_itself() {
            return inbox.recv().ok();
        }
        inbox.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }

    /// If this thread was not there for a while (the process was stopped, the database hung), nobody could renew anything:
    /// that is nobody's fault.
    fn note_pause(&mut self, expected: Instant) {
        self.now = self.options.clock.now();
        if let Some(late) = late_by(expected, self.now.at, self.options.lease) {
            for mate in self.mates.values_mut() {
                mate.lease_until += late;
            }
        }
        self.gauges.note_loop(self.now.wall);
    }

    /// When something happens by itself. At least a look at the time now and then, so that a pause is noticed for what
    /// it is.
    fn next_deadline(&self) -> Instant {
        // Counted from when this round began: a round that takes long is a pause as well.
        let now = self.now.at;
        let waits = self.mates.values().filter_map(|mate| mate.exchanges.deadline()).min();
        let rests = self.mates.values().filter_map(Mate::rested_at).min();
        let retries = self.troubled.iter().filter_map(|workflow| self.retry_at(*workflow));
        let latest = now + tick(self.options.lease);
        retries.chain(waits).chain(rests).chain(self.next_due()).min().unwrap_or(latest).clamp(now, latest)
    }

    fn on_event(&mut self, event: Event) {
        self.activity = Activity::of_event(&event);
        match event {
            Event::Call(call) => self.on_call(call),
            Event::Committed { workflow, birth, result } => {
                self.panics.batches = self.panics.batches.saturating_sub(1);
                self.on_committed(workflow, birth, result);
            }
            Event::Back { workflow, answer, found } => self.on_back(workflow, answer, found),
            Event::LookAround(sender) => self.lookers.push(sender),
            Event::Stop(sender) => {
                self.is_stopping = true;
                self.farewells.extend(sender);
                self.roused.extend(self.mates.keys());
            }
        }
    }

    /// Something went to disk.
    pub(super) fn tell_of_commit(&self) {
        if let Some(told) = &self.options.on_commit {
            told();
        }
    }

    /// Its run has begun or is over, a unit of it stands otherwise than before or had a failure; and that is on disk.
    pub(super) fn tell_of_change(&self, workflow: WorkflowId) {
        if let Some(told) = &self.options.on_change {
            told(workflow);
        }
    }

    fn on_call(&mut self, call: Call) {
        self.attend_to(call, self.now.at);
    }

    /// Does what somebody wants who came at `since`, or has him wait until all that it is about is at hand.
    pub(super) fn attend_to(&mut self, call: Call, since: Instant) {
        if self.is_stopping {
            return call.refuse(unavailable("the server is going down"));
        }
        if let Call::Exchange { exchange, speaker, .. } = &call
            && let Err(why) = self.recognise(exchange, speaker)
        {
            return call.refuse(why);
        }
        let workflows = match self.concerned(&call) {
            Ok(workflows) => workflows,
            Err(why) => return call.refuse(why),
        };
        match workflows.iter().find(|workflow| self.has_to_wait(&call, **workflow)) {
            Some(&workflow) => self.put_off(workflow, call, since),
            None => self.perform(call, workflows.first().copied()),
        }
    }

    /// The workflows that are touched if this is done.
    fn concerned(&mut self, call: &Call) -> Result<Vec<WorkflowId>, Refused> {
        let mut workflows = call.workflows();
        if let Some(job) = call.job() {
            let workflow = self.store.workflow_of(Part::Job(job)).map_err(|error| refused(&error))?;
            workflows.push(workflow.ok_or_else(|| Refused::NotFound(format!("there is no job {job}")))?);
        }
        match call {
            Call::Introduce { who, .. } => {
                let Some(before) = &who.before else { return Ok(workflows) };
                // What it does not name it gives back.
                workflows.extend(self.held_of(before.worker));
                let unknown = |(id, slot): (&WorkflowId, &Slot)| {
                    matches!(slot, Slot::Shut(shut) if shut.is_unknown).then_some(*id)
                };
                workflows.extend(self.slots.iter().filter_map(unknown));
            }
            Call::Exchange { exchange, .. } if exchange.leaving => {
                workflows.extend(self.held_of(exchange.worker));
            }
            Call::Retire { worker, .. } if self.mates.contains_key(worker) => {
                workflows.extend(self.held_of(*worker));
            }
            Call::Retire { worker, .. } => {
                let row = self.store.worker(*worker).map_err(|error| refused(&error))?;
                workflows.extend(row.and_then(|row| row.worker.workflow));
            }
            _ => {}
        }
        workflows.sort_unstable();
        workflows.dedup();
        if call.is_of_worker() {
            for workflow in &workflows {
                self.take_in_if_active(*workflow);
            }
        }
        Ok(workflows)
    }

    fn held_of(&self, worker: WorkerId) -> impl Iterator<Item = WorkflowId> + '_ {
        self.mates.get(&worker).into_iter().flat_map(|mate| {
            let errands = mate.actions.values().map(|errand| errand.workflow);
            mate.held.values().copied().chain(errands)
        })
    }

    /// Before a worker hears that a workflow is over, the books have to say so.
    fn take_in_if_active(&mut self, workflow: WorkflowId) {
        if self.slots.contains_key(&workflow) || self.panics.is_left_alone(workflow) {
            return;
        }
        match self.store.workflow(workflow) {
            Ok(row) if row.as_ref().is_none_or(|row| !is_active(row)) => {}
            outcome => self.take_in(workflow, outcome.is_err()),
        }
    }

    fn perform(&mut self, call: Call, workflow: Option<WorkflowId>) {
        match (call, workflow) {
            (Call::Introduce { who, sponsor, reply }, _) => self.on_introduce(&who, sponsor, reply),
            (Call::Exchange { exchange, reply, .. }, _) => self.on_exchange(exchange, reply),
            (Call::HangUp { worker, number, secret }, _) => self.on_hang_up(worker, number, &secret),
            (Call::AccessChanged, _) => self.on_access_changed(),
            (Call::AllocationEnds { allocation, ends_at }, _) => self.on_allocation_ends(allocation, ends_at),
            (Call::AllocationOver { allocation }, _) => self.on_allocation_over(allocation),
            (Call::Fenced { worker }, _) => self.on_fenced(worker),
            (Call::CloseSites(closed), _) => self.on_close_sites(closed),
            (Call::CloseSitesFor { workflow, closed }, _) => self.on_close_sites_for(workflow, closed),
            (Call::Pause { workflow, is_paused }, _) => self.on_pause(workflow, is_paused),
            (Call::Roster { reply }, _) => reply(Ok(self.roster())),
            (Call::SetNodeAside { node, by, reply }, _) => self.on_set_node_aside(node, &by, reply),
            (Call::ReleaseNode { host, by, reply }, _) => self.on_release_node(&host, &by, reply),
            (Call::Drain { worker, reply }, _) => self.on_drain(worker, reply),
            (Call::Retire { worker, by, reply }, _) => self.on_retire(worker, &by, reply),
            (Call::Start { workflow, by, reply }, _) => self.on_start(workflow, &by, reply),
            (Call::Initialize { workflow, only_uninitialized, clear_ephemeral, by, reply }, _) => {
                self.on_initialize(workflow, only_uninitialized, clear_ephemeral, &by, reply);
            }
            (Call::Cancel { workflow, by, reply }, _) => self.on_cancel(workflow, &by, reply),
            (Call::ResetStatus { workflow, force, by, reply }, _) => {
                self.on_reset_status(workflow, force, &by, reply);
            }
            (Call::ResetJobs { workflow, which, by, reply }, _) => {
                self.on_reset_jobs(workflow, &which, &by, reply);
            }
            (call @ Call::Exclusive { .. }, Some(workflow)) => self.on_exclusive(workflow, call),
            (Call::Claim { workflow, request, reply }, _) => self.on_claim(workflow, &request, reply),
            (Call::StartJob { job, run, node, reply }, Some(workflow)) => {
                self.on_start_job(workflow, job, run, node, reply);
            }
            (Call::Complete { workflow, completions, reply }, _) => {
                self.on_complete(workflow, completions, reply);
            }
            (Call::Retry { job, run, max_retries, by, reply }, Some(workflow)) => {
                self.on_retry(workflow, job, run, max_retries, &by, reply);
            }
            (Call::ChangeStatus { job, to, run, by, reply }, Some(workflow)) => {
                self.on_change_status(workflow, job, to, run, &by, reply);
            }
            (Call::Spawn { request, reply }, _) => self.on_spawn(&request, reply),
            (Call::Outline { workflow, reply }, _) => {
                reply(Ok(self.desk(workflow).map(|desk| desk.outline())));
            }
            (Call::PendingActions { workflow, reply }, _) => self.on_pending_actions(workflow, reply),
            (Call::ClaimAction { workflow, action, node, reply }, _) => {
                self.on_claim_action(workflow, action, node, reply);
            }
            (Call::RetryAction { workflow, action, by, reply }, _) => {
                self.on_retry_action(workflow, action, &by, reply);
            }
            (call, None) => call.refuse(Refused::Internal("nobody knows which workflow is meant".into())),
        }
    }

    /// What follows from the time alone.
    fn attend_to_time(&mut self) {
        let now = self.now.at;
        let dead = |(id, mate): (&WorkerId, &Mate)| (mate.lease_until < now).then_some(*id);
        let mut dead: Vec<WorkerId> = self.mates.iter().filter_map(dead).collect();
        dead.sort_unstable();
        for worker in dead {
            self.on_silence(worker);
        }
        let overdue = |(id, mate): (&WorkerId, &Mate)| {
            mate.exchanges.deadline().is_some_and(|deadline| deadline <= now).then_some(*id)
        };
        self.roused.extend(self.mates.iter().filter_map(overdue));
        for (worker, mate) in &mut self.mates {
            if mate.has_rested(now) {
                self.roused.insert(*worker);
            }
        }
        self.look_at_nodes();
        self.let_go_of_what_is_due();
        self.retire_those_gone();
        self.send_away_who_waited_too_long();
    }

    /// Brings everything that was stirred to rest: jobs are claimed, decisions handed to the store, answers given.
    fn settle(&mut self) {
        self.look_at_trouble();
        while !self.stirred.is_empty() || !self.roused.is_empty() {
            let stirred = std::mem::take(&mut self.stirred);
            for &workflow in &stirred {
                self.activity = Activity::upkeep(workflow);
                self.look_at_added(workflow);
                self.count_for_actions(workflow);
                self.place(workflow);
            }
            self.activity = Activity { what: "claims", ..Activity::default() };
            self.serve(&stirred);
            // What was claimed goes to disk together with what made room for it.
            let claimed = std::mem::take(&mut self.stirred);
            for &workflow in stirred.union(&claimed) {
                self.activity = Activity::upkeep(workflow);
                self.submit(workflow);
                self.make_anew_if_due(workflow);
                self.let_in_whoever_waits(workflow);
                self.conclude_if_over(workflow);
                self.look_after_failures(workflow);
                self.look_after_idle(workflow);
                self.note_figures(workflow);
            }
            self.activity = Activity { what: "answers", ..Activity::default() };
            self.answer_those_roused();
        }
        let waits = self.mates.values().map(|mate| mate.exchanges.waits()).sum();
        self.gauges.note_state(self.slots.len(), self.mates.len(), waits);
        if self.troubled.is_empty() {
            self.gauges.note_no_trouble();
        }
    }

    fn note_figures(&mut self, workflow: WorkflowId) {
        let gauges = Arc::clone(&self.gauges);
        if let Some(desk) = self.desk(workflow) {
            let figures = (desk.board.ready(), desk.held.len());
            gauges.note_desk(std::mem::replace(&mut desk.figures, figures), figures);
        }
    }

    /// Nothing is under way, or nothing will come of it soon.
    fn is_at_rest(&self) -> bool {
        self.stirred.is_empty()
            && self.panics.waiting.is_empty()
            && self.slots.values().all(|slot| match slot {
                Slot::Open(desk) => desk.is_quiet() || desk.is_in_trouble(),
                Slot::Shut(shut) => shut.retry_at.is_some(),
            })
    }

    pub(super) const fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// How long a worker that was heard of now is thought to be alive.
    pub(super) fn lease_from_now(&self) -> Instant {
        self.now.at + self.options.lease + MARGIN
    }

    /// The desk of a workflow that is in memory.
    pub(super) fn desk(&mut self, workflow: WorkflowId) -> Option<&mut Desk> {
        match self.slots.get_mut(&workflow) {
            Some(Slot::Open(desk)) => Some(desk),
            _ => None,
        }
    }

    /// The desk of a workflow, made from its rows if there is none.
    pub(super) fn open(&mut self, workflow: WorkflowId) -> Result<&mut Desk, Refused> {
        if self.panics.is_left_alone(workflow) {
            let detail = format!(
                "workflow {workflow} made the scheduler panic repeatedly and is left alone; restart the server to try again"
            );
            return Err(Refused::Internal(detail));
        }
        if !self.slots.contains_key(&workflow) {
            let birth = self.new_birth();
            let desk = Desk::read(&*self.store, workflow, birth).map_err(|no| no.refused(workflow))?;
            self.seat(desk);
        }
        self.stirred.insert(workflow);
        self.desk(workflow).ok_or_else(|| unavailable(&format!("workflow {workflow} is not at hand")))
    }

    pub(super) fn new_birth(&mut self) -> Birth {
        self.next_birth += 1;
        Birth { number: self.next_birth, classifier: self.options.classifier.clone() }
    }
}

/// Whoever waited for it may be gone.
#[expect(clippy::needless_pass_by_value, reason = "it is over with it")]
fn told(sender: SyncSender<()>) {
    sender.send(()).unwrap_or_default();
}

pub(super) fn unavailable(detail: &str) -> Refused {
    Refused::Unavailable { detail: detail.to_owned(), retry_after: TROUBLE_PAUSE }
}

/// What a failure of the store means to somebody who asked.
pub(super) fn refused(error: &windlass_store::Error) -> Refused {
    use windlass_store::Error as E;
    let detail = error.to_string();
    match error {
        error if error.is_transient() => Refused::Unavailable { detail, retry_after: TROUBLE_PAUSE },
        E::Closed => Refused::Unavailable { detail, retry_after: TROUBLE_PAUSE },
        E::Action { .. } => Refused::Conflict { code: "action", detail },
        error if error.is_missing() => Refused::NotFound(detail),
        error if error.is_invalid() => Refused::Invalid { code: "invalid", detail },
        E::NameTaken { .. } => Refused::Conflict { code: "name_taken", detail },
        E::Conflict { .. } | E::StaleRun { .. } => {
            Refused::Unavailable { detail, retry_after: Duration::ZERO }
        }
        E::StillActive { .. } | E::JobIsHeld { .. } | E::NotRunning { .. } => {
            Refused::Conflict { code: "workflow_active", detail }
        }
        E::Busy { .. } | E::InUse { .. } | E::RunNotBegun { .. } | E::NotBuried { .. } => {
            Refused::Conflict { code: "in_use", detail }
        }
        _ => Refused::Internal(detail),
    }
}
