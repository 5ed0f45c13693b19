//! One pass: look, decide, commit, act.

use super::mailbox::{Heard, Looked};
use super::{Parts, StewardOptions, StewardStatus, lock};
use crate::calls::{Books, Outcome, Slurm, Unknown};
use crate::render::batch;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windlass_core::slurm::book::{AllocationChange, CallCount};
use windlass_core::slurm::fate::{self, Accounting, Act, Fate, Sight, Tagged, Workers};
use windlass_core::slurm::home;
use windlass_core::slurm::offer::Offer;
use windlass_core::slurm::reasons;
use windlass_core::slurm::sight::{BookedJob, QueueJob};
use windlass_engine::service::{Refused, Reply, Service, Silent};
use windlass_store::model::{AllocationFilter, JobFilter, Severity, WorkerFilter, WorkflowRow};
use windlass_store::{Database, Error};
use windlass_types::slurm::{Allocation, AllocationState};
use windlass_types::{AllocationId, Clock, JobStatus, Resources, Timestamp, WorkflowId};

/// Something went wrong in a pass; the next one tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Books(#[from] Error),
    #[error(transparent)]
    Service(#[from] Refused),
    #[error("the service is gone")]
    Gone,
}

/// Waits for the answer of the service.
pub(super) fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, Trouble> {
    let (sender, receiver) = mpsc::sync_channel(1);
    call(Box::new(move |answer| {
        // Whoever asked waits for it, unless the whole process ends.
        sender.send(answer).unwrap_or_default();
    }));
    Ok(receiver.recv().map_err(|_| Trouble::Gone)??)
}

/// A job that was canceled and is still there is canceled again after this.
const CANCEL_AGAIN: Duration = Duration::from_mins(1);
/// All workflows are looked at for actions so often, in case that telling failed.
const LOOK_AT_ALL: Duration = Duration::from_mins(1);
/// Something happened so lately that more is to be expected.
const LIVELY: Duration = Duration::from_mins(2);

/// Makes the passes. What it remembers only saves questions: a new one begins from the rows.
pub(super) struct Passes {
    parts: Parts,
    pub(super) slurm: Arc<Slurm>,
    pub(super) options: StewardOptions,
    status: Arc<Mutex<StewardStatus>>,
    /// Before that there was nobody here whom a worker could have reached.
    began_at: Timestamp,
    polled_at: Option<Timestamp>,
    changed_at: Timestamp,
    looked_at_all: Option<Timestamp>,
    canceled: HashMap<u64, Timestamp>,
    /// Allocations that are not submitted before this.
    pub(super) holds: HashMap<AllocationId, Timestamp>,
    /// Tags in Slurm of allocations that are over, or not ours.
    tags: HashMap<String, Option<Tagged>>,
    /// Workers that are not heard of, whose steps are not known to be gone.
    pub(super) silent: Vec<(Instant, Silent)>,
    /// Whether Slurm answered in this pass.
    looked: Looked,
    /// The allocations whose credentials are accepted; `None`: of an earlier server.
    with_credentials: Option<BTreeSet<AllocationId>>,
}

impl std::fmt::Debug for Passes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passes").finish_non_exhaustive()
    }
}

impl Passes {
    pub(super) fn new(
        parts: Parts,
        slurm: Arc<Slurm>,
        options: StewardOptions,
        status: Arc<Mutex<StewardStatus>>,
    ) -> Self {
        Self {
            parts,
            slurm,
            options,
            status,
            began_at: Clock.now(),
            polled_at: None,
            changed_at: Clock.now(),
            looked_at_all: None,
            canceled: HashMap::new(),
            holds: HashMap::new(),
            tags: HashMap::new(),
            silent: Vec::new(),
            looked: Looked::Answered,
            with_credentials: None,
        }
    }

    pub(super) fn books(&self) -> &dyn Database {
        &*self.parts.books
    }

    pub(super) fn service(&self) -> &Service {
        &self.parts.service
    }

    /// How long to wait for the next one, unless something is told before.
    pub(super) fn pass(&mut self, heard: &Heard) -> Duration {
        let again = self.fence(&heard.silent);
        // Until something says otherwise.
        self.looked = Looked::Silent("a pass has failed; the log of the server says where".to_owned());
        let pause = self.try_pass(heard).unwrap_or_else(|trouble| {
            self.looked = Looked::Silent(trouble.to_string());
            tracing::warn!(error = %trouble, "a pass over the allocations had trouble");
            lock(&self.status).trouble = Some(trouble.to_string());
            self.options.fastest
        });
        if let Err(error) = self.note_calls() {
            tracing::warn!(%error, "what was asked of Slurm could not be noted");
        }
        again.map_or(pause, |again| again.min(pause))
    }

    /// What came of asking Slurm in the last pass.
    pub(super) fn looked(&self) -> Looked {
        self.looked.clone()
    }

    fn try_pass(&mut self, heard: &Heard) -> Result<Duration, Trouble> {
        let now = Clock.now();
        let workflows = self.workflows_to_look_at(heard, now)?;
        self.take_up_actions(&workflows)?;
        let open = self.open_rows()?;
        self.end_credentials(&open);
        let is_known = |row: &Allocation| row.state != AllocationState::Intended;
        if !open.iter().any(is_known) {
            // There is nothing to ask about.
            self.looked = Looked::Answered;
        }
        if open.is_empty() {
            self.note_status(&open, None);
            return Ok(self.options.fastest);
        }
        // Whoever waits for Slurm's answers, or for his turn, holds up nobody who is to go.
        let unwanted: Vec<u64> = open.iter().filter_map(fate::to_go).collect();
        self.cancel(&unwanted);
        let is_asked_to = heard.look.is_some() && open.iter().any(is_known);
        let polled =
            if is_asked_to || self.is_poll_due(&open, now) { self.poll(now) } else { Polled::NotAsked };
        let has_new = open.iter().any(|row| row.state == AllocationState::Intended);
        if matches!(polled, Polled::NotAsked) && !has_new {
            self.note_status(&open, None);
            return Ok(self.pause(&open));
        }
        let released = self.released(&open)?;
        let fates = self.fates(&open, &polled)?;
        self.settle(&open, &fates)?;
        if let Polled::Answered(queue) = &polled {
            self.cancel_strays(&open, queue)?;
        }
        self.act(&open, &fates, &released)?;
        let left = self.open_rows()?;
        self.note_status(&left, matches!(polled, Polled::Answered(_)).then_some(now));
        Ok(self.pause(&left))
    }

    /// What workers of allocations that are over could show is accepted no more.
    fn end_credentials(&mut self, open: &[Allocation]) {
        let Some(credentials) = &self.options.credentials else { return };
        let now: BTreeSet<AllocationId> = open.iter().map(|row| row.id).collect();
        if self.with_credentials.as_ref() != Some(&now) {
            credentials.keep_only(&now);
            self.with_credentials = Some(now);
        }
    }

    fn workflows_to_look_at(
        &mut self,
        heard: &Heard,
        now: Timestamp,
    ) -> Result<BTreeSet<WorkflowId>, Trouble> {
        let is_long_ago = self.looked_at_all.is_none_or(|at| now.since(at) >= LOOK_AT_ALL || at > now);
        if !heard.all && !is_long_ago {
            return Ok(heard.workflows.clone());
        }
        self.looked_at_all = Some(now);
        let is_active = |row: &&WorkflowRow| {
            row.started_at.is_some() && row.ended_at.is_none() && !row.is_canceled && !row.is_archived
        };
        let rows = self.books().workflows()?;
        Ok(rows.iter().filter(is_active).map(|row| row.id).chain(heard.workflows.iter().copied()).collect())
    }

    fn open_rows(&self) -> Result<Vec<Allocation>, Trouble> {
        let filter =
            AllocationFilter { is_open: Some(true), is_ours: Some(true), ..AllocationFilter::default() };
        Ok(self.books().allocations(&filter)?)
    }

    /// Slurm is asked only about what it may have.
    fn is_poll_due(&self, open: &[Allocation], now: Timestamp) -> bool {
        let is_known = |row: &Allocation| row.state != AllocationState::Intended;
        let interval = self.interval(open, now);
        let is_time = self.polled_at.is_none_or(|at| at > now || now.since(at) + SHORTLY >= interval);
        open.iter().any(is_known) && is_time
    }

    fn poll(&mut self, now: Timestamp) -> Polled {
        let before = self.polled_at.replace(now);
        let why = match self.slurm.queue() {
            Outcome::Answered(jobs) => {
                self.looked = Looked::Answered;
                return Polled::Answered(home::queued_here(jobs, &self.options.home));
            }
            Outcome::Unknown(why) if why.was_not_asked() => {
                if matches!(why, Unknown::Later { .. }) {
                    // It has the next call, before those who submit.
                    self.polled_at = before;
                }
                self.looked = Looked::Silent(why.to_string());
                return Polled::NotAsked;
            }
            Outcome::Unknown(why) => why.to_string(),
            Outcome::Refused(said) => format!("`squeue` failed: {said}"),
        };
        self.looked = Looked::Silent(why.clone());
        lock(&self.status).trouble = Some(why);
        Polled::Silent
    }

    /// Fast while something happens, slow while nothing does.
    fn interval(&self, open: &[Allocation], now: Timestamp) -> Duration {
        // However small the budget, half of it is for those who have something to do.
        let at_most = Duration::from_mins(2) / self.options.slurm.budget.per_minute.max(1);
        let fastest = self.options.fastest.max(at_most);
        let slowest = self.options.slowest.max(fastest);
        let quiet = now.since(self.changed_at);
        let moves = |row: &Allocation| {
            matches!(row.state, AllocationState::Submitting | AllocationState::Completing)
                || row.unwanted.is_some()
        };
        if quiet < LIVELY || open.iter().any(moves) {
            return fastest;
        }
        // As long as a twentieth of the time in which nothing happened: what waits for an hour may wait a minute more.
        (quiet / 20).clamp(fastest, slowest)
    }

    fn fates(&self, open: &[Allocation], polled: &Polled) -> Result<Vec<Fate>, Trouble> {
        let now = Clock.now();
        let seen = Seen::gather(self.books(), open, polled.jobs(), self.began_at)?;
        let was_asked = !matches!(polled, Polled::NotAsked);
        let decide = |row: &Allocation| {
            if !was_asked && row.state != AllocationState::Intended {
                return Fate::default();
            }
            fate::decide(row, &seen.sight(row, Accounting::NotAsked), &self.options.patience, now)
        };
        let first: Vec<Fate> = open.iter().map(decide).collect();
        let asked: Vec<&Allocation> =
            open.iter().zip(&first).filter(|(_, fate)| fate.ask_accounting).map(|(row, _)| row).collect();
        if asked.is_empty() {
            return Ok(first);
        }
        let answer = self.ask_accounting(&asked);
        let again = |(row, fate): (&Allocation, Fate)| {
            if !fate.ask_accounting {
                return fate;
            }
            let accounting = match &answer {
                None => Accounting::Silent,
                Some(Books::Disabled) => Accounting::Disabled,
                Some(Books::Jobs(jobs)) => Accounting::Answered(booked_of(row, jobs, open)),
            };
            fate::decide(row, &seen.sight(row, accounting), &self.options.patience, now)
        };
        Ok(open.iter().zip(first).map(again).collect())
    }

    fn ask_accounting(&self, rows: &[&Allocation]) -> Option<Books> {
        let ids: BTreeSet<u64> = rows.iter().filter_map(|row| row.job_id).collect();
        let lost = rows.iter().filter(|row| row.job_id.is_none());
        let home = &self.options.home;
        let names: BTreeSet<String> =
            lost.clone().map(|row| home::mark(&batch::job_name(row), home)).collect();
        let since = lost.filter_map(|row| row.submitted_at).min().unwrap_or_else(|| Clock.now());
        match self.slurm.booked(&ids, &names, since) {
            Outcome::Answered(Books::Jobs(jobs)) => {
                let here = |(id, job)| Some((id, home::booked_here(job, home)?));
                Some(Books::Jobs(jobs.into_iter().filter_map(here).collect()))
            }
            Outcome::Answered(Books::Disabled) => Some(Books::Disabled),
            Outcome::Refused(said) => {
                tracing::warn!(%said, "accounting has refused to answer");
                None
            }
            Outcome::Unknown(_) => None,
        }
    }

    /// What was decided goes to disk; then the service and people are told.
    fn settle(&mut self, open: &[Allocation], fates: &[Fate]) -> Result<(), Trouble> {
        let changes: Vec<AllocationChange> = fates.iter().filter_map(|fate| fate.change.clone()).collect();
        if changes.iter().any(|change| change.from != change.to) {
            self.changed_at = Clock.now();
        }
        self.commit(&changes)?;
        for change in &changes {
            // Also if the row was otherwise by then: Slurm has said so.
            if let Some(Some(at)) = change.ends_at {
                self.service().tell_allocation_ends(change.id, at);
            }
            if change.from != change.to && change.to == AllocationState::Ended {
                self.service().tell_allocation_over(change.id);
            }
        }
        for (row, fate) in open.iter().zip(fates) {
            if let Some(reason) = &fate.alarm {
                let number = row.job_id.map(|id| format!(", job {id} of Slurm,")).unwrap_or_default();
                let words = reasons::in_words(reason);
                let message = format!("allocation {}{number} will not start by itself: {words}", row.id);
                self.tell(row.workflow, Severity::Warning, message)?;
            }
        }
        Ok(())
    }

    /// All at once; one by one where somebody was faster with one of them: what was decided from an older row is decided
    /// again.
    pub(super) fn commit(&self, changes: &[AllocationChange]) -> Result<(), Trouble> {
        if changes.is_empty() {
            return Ok(());
        }
        match self.books().change_allocations(changes, Clock.now()) {
            Err(Error::Unexpected { .. }) => {}
            other => return Ok(other?),
        }
        for change in changes {
            match self.books().change_allocations(std::slice::from_ref(change), Clock.now()) {
                Err(Error::Unexpected { .. }) => {
                    tracing::debug!(id = %change.id, "an allocation is otherwise by now");
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn act(
        &mut self,
        open: &[Allocation],
        fates: &[Fate],
        released: &BTreeSet<AllocationId>,
    ) -> Result<(), Trouble> {
        let acts =
            || open.iter().zip(fates).flat_map(|(row, fate)| fate.acts.iter().map(move |act| (row, act)));
        let to_cancel: Vec<u64> = acts()
            .filter_map(|(_, act)| match act {
                Act::Cancel(job) => Some(*job),
                Act::Submit => None,
            })
            .collect();
        self.cancel(&to_cancel);
        let mut submitted = false;
        for (row, _) in acts().filter(|(_, act)| **act == Act::Submit) {
            if row.state != AllocationState::Intended || released.contains(&row.id) {
                submitted |= self.submit(row, open)?;
            }
        }
        if submitted {
            self.changed_at = Clock.now();
        }
        Ok(())
    }

    fn cancel(&mut self, jobs: &[u64]) {
        let now = Clock.now();
        self.canceled.retain(|_, at| now.since(*at) < CANCEL_AGAIN && *at <= now);
        let jobs: Vec<u64> = jobs.iter().copied().filter(|job| !self.canceled.contains_key(job)).collect();
        if jobs.is_empty() {
            return;
        }
        match self.slurm.cancel(&jobs) {
            Outcome::Answered(()) => tracing::info!(?jobs, "canceled jobs of Slurm"),
            Outcome::Refused(said) => tracing::warn!(?jobs, %said, "Slurm refuses to cancel"),
            // The next pass tries again.
            Outcome::Unknown(_) => return,
        }
        self.canceled.extend(jobs.into_iter().map(|job| (job, now)));
    }

    /// Jobs that bear a tag of ours and belong to nobody.
    fn cancel_strays(&mut self, open: &[Allocation], queue: &[QueueJob]) -> Result<(), Trouble> {
        // As the rows are now: what was found by its tag has its number.
        let rows =
            if open.iter().any(|row| row.job_id.is_none()) { self.open_rows()? } else { open.to_vec() };
        let mut known: BTreeMap<&str, Tagged> =
            rows.iter().map(|row| (row.tag.as_str(), Tagged::Open(row.job_id))).collect();
        let prefixes: BTreeSet<&str> = rows.iter().filter_map(|row| fate::prefix_of(&row.tag)).collect();
        let mut over = Vec::new();
        for job in queue.iter().filter(|job| job.is_alive()) {
            let tag = fate::tag_of(job);
            if !known.contains_key(tag) && fate::prefix_of(tag).is_some() && self.is_over(tag)? {
                over.push(tag);
            }
        }
        known.extend(over.into_iter().map(|tag| (tag, Tagged::Over)));
        let strays = fate::strays(queue, &known, &prefixes);
        if !strays.is_empty() {
            tracing::warn!(jobs = ?strays, "jobs of Slurm that bear our tags and belong to no allocation are canceled");
            self.cancel(&strays);
        }
        Ok(())
    }

    /// Whether the books have an allocation with this tag; it is none of the open ones.
    fn is_over(&mut self, tag: &str) -> Result<bool, Trouble> {
        if let Some(known) = self.tags.get(tag) {
            return Ok(known.is_some());
        }
        let filter = AllocationFilter { tag: Some(tag.to_owned()), ..AllocationFilter::default() };
        let is_there =
            self.books().allocations(&filter)?.iter().any(|row| row.is_ours && row.state.is_over());
        if self.tags.len() > 10_000 {
            self.tags.clear();
        }
        self.tags.insert(tag.to_owned(), is_there.then_some(Tagged::Over));
        Ok(is_there)
    }

    fn note_status(&self, open: &[Allocation], answered_at: Option<Timestamp>) {
        let mut status = lock(&self.status);
        status.open.clear();
        for row in open {
            *status.open.entry(row.state).or_default() += 1;
        }
        if let Some(at) = answered_at {
            status.last_answer_at = Some(at);
            status.trouble = None;
        }
    }

    /// The books are looked at often, which costs little; Slurm only when it is due.
    fn pause(&self, open: &[Allocation]) -> Duration {
        let is_to_go =
            |row: &Allocation| fate::to_go(row).is_some_and(|job| !self.canceled.contains_key(&job));
        let waits = open.iter().any(|row| row.state == AllocationState::Intended || is_to_go(row));
        if waits && self.slurm.left().calls == 0 { Duration::from_secs(1) } else { self.options.fastest }
    }

    fn note_calls(&self) -> Result<(), Error> {
        let counts: Vec<CallCount> = self
            .slurm
            .take_tally()
            .into_iter()
            .map(|(command, tally)| CallCount {
                hour: Timestamp(0),
                command: command.to_owned(),
                calls: tally.calls,
                failures: tally.failures(),
                took: tally.took,
            })
            .collect();
        if counts.is_empty() { Ok(()) } else { self.books().note_slurm_calls(&counts, Clock.now()) }
    }
}

/// What came of the question for all jobs.
enum Polled {
    NotAsked,
    Silent,
    Answered(Vec<QueueJob>),
}

impl Polled {
    fn jobs(&self) -> Option<&[QueueJob]> {
        match self {
            Self::Answered(jobs) => Some(jobs),
            Self::NotAsked | Self::Silent => None,
        }
    }
}

/// A pass that comes so little early is not sent back.
const SHORTLY: Duration = Duration::from_millis(100);

/// What a pass knows besides Slurm's answers.
struct Seen<'a> {
    queue: Option<&'a [QueueJob]>,
    by_id: HashMap<u64, &'a QueueJob>,
    by_tag: HashMap<&'a str, Vec<&'a QueueJob>>,
    workers: HashMap<AllocationId, Workers>,
    not_needed: HashMap<AllocationId, String>,
    served_since: Timestamp,
}

impl<'a> Seen<'a> {
    fn gather(
        books: &dyn Database,
        open: &[Allocation],
        queue: Option<&'a [QueueJob]>,
        served_since: Timestamp,
    ) -> Result<Self, Trouble> {
        let mut seen = Self {
            queue,
            served_since,
            by_id: HashMap::new(),
            by_tag: HashMap::new(),
            workers: HashMap::new(),
            not_needed: HashMap::new(),
        };
        for job in queue.unwrap_or_default() {
            seen.by_id.insert(job.job_id, job);
            seen.by_tag.entry(fate::tag_of(job)).or_default().push(job);
        }
        for worker in books.active_workers(None)? {
            if let Some(id) = worker.worker.allocation {
                seen.workers.insert(AllocationId(id), Workers { has_come: true, is_alive: true });
            }
        }
        for row in open {
            let is_asked = row.state == AllocationState::Running && !seen.workers.contains_key(&row.id);
            if is_asked {
                let filter =
                    WorkerFilter { allocation: Some(row.id.0), limit: Some(1), ..WorkerFilter::default() };
                let has_come = !books.workers(&filter)?.is_empty();
                seen.workers.insert(row.id, Workers { has_come, is_alive: false });
            }
        }
        for id in open.iter().map(|row| row.workflow).collect::<BTreeSet<_>>() {
            seen.see_use(books, id, open.iter().filter(|row| row.workflow == id))?;
        }
        Ok(seen)
    }

    /// Which of these allocations of a workflow nobody needs.
    fn see_use<'r>(
        &mut self,
        books: &dyn Database,
        id: WorkflowId,
        open: impl Iterator<Item = &'r Allocation>,
    ) -> Result<(), Trouble> {
        let workflow = books.workflow(id)?;
        if let Some(why) = not_needed(id, workflow.as_ref()) {
            self.not_needed.extend(open.map(|row| (row.id, why.clone())));
            return Ok(());
        }
        let is_waiting =
            |row: &&Allocation| matches!(row.state, AllocationState::Intended | AllocationState::Pending);
        let waiting: Vec<&Allocation> = open.filter(is_waiting).collect();
        let Some(workflow) = workflow.filter(|_| !waiting.is_empty()) else { return Ok(()) };
        let Some(left) = left(books, &workflow)? else { return Ok(()) };
        for row in waiting {
            let offer = Offer::from(&row.request);
            if !left.iter().any(|asks| offer.holds(asks)) {
                let why = format!("none of the jobs that are left fits into it ({} of them)", left.len());
                self.not_needed.insert(row.id, why);
            }
        }
        Ok(())
    }

    fn sight<'s>(&'s self, row: &Allocation, accounting: Accounting<'s>) -> Sight<'s> {
        let queue = self.queue.map(|_| {
            let mut jobs: Vec<&QueueJob> = self.by_tag.get(row.tag.as_str()).cloned().unwrap_or_default();
            let own = row.job_id.and_then(|id| self.by_id.get(&id).copied());
            if let Some(own) = own.filter(|own| !jobs.iter().any(|job| job.job_id == own.job_id)) {
                jobs.push(own);
            }
            jobs
        });
        Sight {
            queue,
            accounting,
            workers: self.workers.get(&row.id).copied().unwrap_or_default(),
            not_needed: self.not_needed.get(&row.id).map(String::as_str),
            served_since: self.served_since,
        }
    }
}

/// Why allocations of a workflow have nothing left to do. One that waits is kept while any job is not over, be it held by
/// somebody: his allocation may end before the job does, and then this one goes on with it.
fn not_needed(id: WorkflowId, row: Option<&WorkflowRow>) -> Option<String> {
    let Some(row) = row else { return Some(format!("workflow {id} is gone")) };
    let is_over = row.counts.total() > 0 && row.counts.settled() == row.counts.total();
    match () {
        () if row.is_canceled => Some(format!("workflow {id} was canceled")),
        () if row.is_archived => Some(format!("workflow {id} was put away")),
        () if is_over => Some(format!("all jobs of workflow {id} are over")),
        () => None,
    }
}

/// When so few jobs of a workflow are left they are looked at.
const FEW: u64 = 200;

/// What the jobs ask for that are not over, also those that somebody holds. `None`: there are many, or some do not say.
fn left(books: &dyn Database, workflow: &WorkflowRow) -> Result<Option<Vec<Resources>>, Trouble> {
    if workflow.counts.total() - workflow.counts.settled() > FEW {
        return Ok(None);
    }
    let asked = books.requirements(workflow.id)?;
    let resources_of = |name: &String| asked.iter().find(|row| row.name == *name).map(|row| row.resources);
    let status = JobStatus::ALL.into_iter().filter(|status| !status.is_settled()).collect();
    let jobs = books.jobs(workflow.id, &JobFilter { status, limit: Some(FEW), ..JobFilter::default() })?;
    let left: Option<Vec<Resources>> =
        jobs.iter().map(|job| job.resource_requirements.as_ref().and_then(resources_of)).collect();
    Ok(left.filter(|left| !left.is_empty()))
}

/// What accounting has of an allocation: under its number, or its tag. Where comments are not kept, one of a series is known
/// by the name of the series and by belonging to no other allocation.
fn booked_of<'a>(
    row: &Allocation,
    jobs: &'a BTreeMap<u64, BookedJob>,
    open: &[Allocation],
) -> Vec<&'a BookedJob> {
    if let Some(id) = row.job_id {
        return jobs.get(&id).into_iter().collect();
    }
    let series = batch::job_name(row);
    let is_others = |job: &BookedJob| open.iter().any(|other| other.job_id == Some(job.job_id));
    let is_own = |job: &&BookedJob| {
        job.bears(&row.tag)
            || (row.request.serialize && job.comment.is_empty() && job.name == series && !is_others(job))
    };
    jobs.values().filter(is_own).collect()
}
