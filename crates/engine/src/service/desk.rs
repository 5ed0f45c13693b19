//! One active workflow: its board, who holds what of it, and what was decided and is not on disk yet.

use super::call::Told;
use super::exchanges::Ticket;
use super::office::refused;
use super::shut::{Found, Waiting};
use super::talk::{Outline, ReadyJobs, Refused};
use crate::agenda::Agenda;
use crate::sequels::Sequels;
use crate::suspicion;
use crate::terms::{Terms, return_codes};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::board::{Board, Stale};
use windlass_core::change::Change;
use windlass_core::classify::Classifier;
use windlass_core::suspects::Suspects;
use windlass_store::Store;
use windlass_store::model::{HeldJob, ResultFilter, WorkerKind, WorkflowRow};
use windlass_types::fleet::{ActionOrder, ActionReport};
use windlass_types::settings::Trigger;
use windlass_types::work::{Assignment, AttemptKey, Report};
use windlass_types::{Attempt, JobId, Timestamp, WorkerId, WorkflowId};

/// What is known of an active workflow. Thrown away and made anew from the rows whenever memory and rows may disagree.
pub(super) struct Desk {
    /// Tells this desk from an earlier one of the same workflow.
    pub(super) birth: u64,
    pub(super) row: WorkflowRow,
    pub(super) terms: Terms,
    pub(super) board: Board,
    pub(super) sequels: Sequels,
    pub(super) held: HashMap<JobId, Hold>,
    pub(super) suspects: Suspects,
    pub(super) agenda: Agenda,
    /// Workers that were given something of it in this run.
    pub(super) joined: BTreeSet<WorkerId>,
    /// The run has begun and is not over.
    pub(super) is_active: bool,
    /// Somebody asked for it to end.
    pub(super) is_canceled: bool,
    pub(super) open: Decided,
    pub(super) in_flight: Option<InFlight>,
    /// Jobs have added others.
    pub(super) has_added: bool,
    /// Attempts with which their jobs are over, since the last look at what was left behind.
    pub(super) over: Vec<AttemptKey>,
    /// Stands for clients that claim without saying who they are.
    pub(super) claims: Option<WorkerId>,
    /// Workers without a lease that were alive, as far as the books know, when this was read.
    pub(super) unleased: HashSet<WorkerId>,
    /// Kept free for a job that is tried alone.
    pub(super) reserved: Option<WorkerId>,
    /// What waits until nothing of this desk is under way; from then on nobody else is attended to.
    pub(super) queue: VecDeque<Waiting>,
    /// The rows know better: it is made anew as soon as nothing is under way, and until then nobody is attended to.
    pub(super) is_outdated: bool,
    /// Something could not be read or written. Until then nothing new is begun.
    pub(super) paused_until: Option<Instant>,
    /// How long all attempts took together, those included that are on their way to disk.
    pub(super) wall: Duration,
    /// Its next run has begun, and nobody has said yet what is to run in it.
    pub(super) awaits_word: bool,
    /// How its jobs stand is counted for its actions.
    pub(super) is_counted: bool,
    /// Nothing more happens unless somebody decides, as far as was seen when last looked.
    pub(super) waits_for_decision: bool,
    /// Kinds of jobs that are done with, as far as was seen when last looked.
    pub(super) kinds_done: u64,
    /// What the figures count of it: ready and held.
    pub(super) figures: (usize, usize),
}

/// What a new desk is given.
pub(super) struct Birth {
    pub(super) number: u64,
    /// Of all rules for the classes of failures, where there are more than those built in.
    pub(super) classifier: Option<Arc<Classifier>>,
}

/// A job that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) worker: WorkerId,
    pub(super) attempt: Attempt,
    /// The worker has heard of it, so it may have started.
    pub(super) is_told: bool,
    pub(super) started_at: Option<Timestamp>,
}

/// Changes, and what to do once they are on disk.
#[derive(Default)]
pub(super) struct Decided {
    pub(super) changes: Vec<Change>,
    /// Jobs that were claimed; what is to be done for them is read when all of it goes to disk.
    pub(super) claimed: Vec<Claimed>,
    pub(super) assignments: Vec<(WorkerId, Assignment)>,
    /// Reports that the changes come from.
    pub(super) heard: Vec<(WorkerId, Report)>,
    pub(super) heard_actions: Vec<(WorkerId, ActionReport)>,
    /// Actions that begin.
    pub(super) orders: Vec<(WorkerId, ActionOrder)>,
    /// Exchanges whose answers rest on this.
    pub(super) tickets: Vec<Ticket>,
    /// Others who wait for it.
    pub(super) told: Vec<Told>,
    /// Workers that are gone; what they held is among the changes.
    pub(super) gone: Vec<WorkerId>,
}

/// A job on its way to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    pub(super) worker: WorkerId,
    pub(super) job: u32,
    pub(super) key: AttemptKey,
}

impl Decided {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.told.is_empty() && self.gone.is_empty() && self.tickets.is_empty()
    }
}

/// Handed to the store.
pub(super) struct InFlight {
    pub(super) changes: Arc<[Change]>,
    pub(super) then: Decided,
    /// The commit failed for want of space or a database, and is tried again then.
    pub(super) retry_at: Option<Instant>,
}

/// Why a desk could not be made.
#[derive(Debug)]
pub(super) enum NoDesk {
    NotFound,
    Broken(String),
    Store(windlass_store::Error),
}

impl From<windlass_store::Error> for NoDesk {
    fn from(error: windlass_store::Error) -> Self {
        Self::Store(error)
    }
}

impl NoDesk {
    /// What somebody hears who asked for it.
    pub(super) fn refused(&self, workflow: WorkflowId) -> Refused {
        match self {
            Self::NotFound => Refused::NotFound(format!("there is no workflow {workflow}")),
            Self::Broken(why) => Refused::Conflict { code: "cycle", detail: why.clone() },
            Self::Store(error) => refused(error),
        }
    }
}

impl Desk {
    /// As [`Self::read`], unless the workflow is not active: then nobody needs a desk for it.
    pub(super) fn read_if_active(store: &dyn Store, id: WorkflowId, birth: Birth) -> Found {
        match store.workflow(id)? {
            Some(row) if is_active(&row) => Self::read(store, id, birth).map(|desk| Some(Box::new(desk))),
            _ => Ok(None),
        }
    }

    /// Reads all that is known of a workflow. Jobs that nobody has looked at stay so.
    pub(super) fn read(store: &dyn Store, id: WorkflowId, birth: Birth) -> Result<Self, NoDesk> {
        let row = store.workflow(id)?.ok_or(NoDesk::NotFound)?;
        let table = store.load_jobs(id)?;
        let mut board =
            Board::new(id, row.run_id, table).map_err(|cycle| NoDesk::Broken(cycle.to_string()))?;
        board.use_return_codes(return_codes(&row.settings));
        board.use_limits(&row.settings.limits, row.settings.max_units);
        let is_active = is_active(&row);
        let is_canceled = is_active && store.cancel_requested(id)?;
        if is_canceled {
            board.on_cancel();
        }
        let mut open = Decided::default();
        board.on_resumed(&mut open.changes);
        let suspects = suspicion::recall(store, &row, &mut board)?;
        let sequels = Sequels::of(store, &row, &board, birth.classifier)?;
        if sequels.is_used_up() {
            board.on_halt();
        }
        let hold = |held: HeldJob| {
            let (worker, attempt, started_at) = (held.worker, held.attempt, held.started_at);
            // Nobody remembers whether the worker has heard of it.
            (held.id, Hold { worker, attempt, is_told: true, started_at })
        };
        let held: HashMap<JobId, Hold> = store.held_jobs(id)?.into_iter().map(hold).collect();
        place_electors(store, &mut board, &held)?;
        if is_active {
            board.on_going_on(&mut open.changes);
        }
        let mut alive = store.active_workers(None)?;
        alive.retain(|row| row.worker.kind != WorkerKind::Remote);
        let stands_for_clients =
            alive.iter().find(|row| row.worker.kind == WorkerKind::Claims && row.worker.workflow == Some(id));
        let agenda = Agenda::noted(store, id)?;
        let joined = joined(store, &row, &agenda, &held)?;
        Ok(Self {
            birth: birth.number,
            terms: Terms::of(&row),
            board,
            sequels,
            held,
            suspects,
            agenda,
            joined,
            is_active,
            is_canceled,
            open,
            in_flight: None,
            has_added: !store.spawners(id)?.is_empty(),
            over: Vec::new(),
            claims: stands_for_clients.map(|row| row.id),
            unleased: alive.iter().map(|row| row.id).collect(),
            reserved: None,
            queue: VecDeque::new(),
            is_outdated: false,
            paused_until: None,
            wall: store.work_done(id)?.wall,
            awaits_word: false,
            is_counted: false,
            waits_for_decision: false,
            kinds_done: 0,
            figures: (0, 0),
            row,
        })
    }

    pub(super) fn id(&self) -> WorkflowId {
        self.row.id
    }

    /// Costs as many steps as there are kinds of jobs.
    pub(super) fn outline(&self) -> Outline {
        let ready = self.board.ready_by_demand().map(|(demand, jobs)| ReadyJobs {
            jobs: jobs as u64,
            runtime: demand.resources.runtime,
            labels: demand.place.labels.clone(),
        });
        Outline { ready: ready.collect(), wall: self.wall }
    }

    /// What goes to disk is done.
    pub(super) fn note_work(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::End { result, .. } = change {
                self.wall = self.wall.saturating_add(result.wall);
            }
        }
    }

    /// Nothing is under way and nothing waits to be.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.is_none() && self.open.is_empty()
    }

    /// The database does not do what it is asked; tried again then.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        let commit = self.in_flight.as_ref().and_then(|batch| batch.retry_at);
        commit.or(self.paused_until)
    }

    pub(super) fn is_in_trouble(&self) -> bool {
        self.retry_at().is_some()
    }

    /// Somebody is to have it to himself, or it is to be made anew: whoever comes now comes afterwards.
    pub(super) fn is_closing(&self) -> bool {
        self.is_outdated || !self.queue.is_empty()
    }

    /// Who is still at something, in words.
    pub(super) fn what_is_held(&self) -> Option<String> {
        let (id, jobs, actions) = (self.id(), self.held.len(), self.agenda.actions.under_way().count());
        match (jobs, actions) {
            (0, 0) => None,
            (0, _) => Some(format!("{actions} actions of workflow {id} are under way")),
            (jobs, _) => Some(format!("{jobs} jobs of workflow {id} are held by workers")),
        }
    }

    /// Jobs may be claimed now. Not while a commit is under way: what it frees is claimed with the next one.
    pub(super) fn may_claim(&self) -> bool {
        self.is_active
            && !self.is_canceled
            && self.in_flight.is_none()
            && self.paused_until.is_none()
            && !self.is_closing()
    }

    /// What `worker` holds under this key, and the number of the job; a report of anybody else is stale.
    pub(super) fn fenced(&self, worker: WorkerId, key: &AttemptKey) -> Result<u32, Stale> {
        let stale = |found: String| Stale { key: *key, found };
        if key.run != self.row.run_id {
            return Err(stale(format!("workflow {} is in run {}", self.id(), self.row.run_id)));
        }
        match self.held.get(&key.job) {
            Some(hold) if hold.worker == worker && hold.attempt == key.attempt => {
                self.board.index(key.job).ok_or_else(|| stale("there is no such job".to_owned()))
            }
            Some(hold) => {
                let (attempt, holder) = (hold.attempt, hold.worker);
                Err(stale(format!("worker {holder} has the job in attempt {attempt}")))
            }
            None => Err(stale("nobody holds the job".to_owned())),
        }
    }

    /// The worker has what was claimed for it, once that is on disk.
    pub(super) fn hold(&mut self, worker: WorkerId, key: &AttemptKey, is_told: bool) {
        self.held.insert(key.job, Hold { worker, attempt: key.attempt, is_told, started_at: None });
    }

    /// The numbers of the jobs that somebody holds, ascending.
    pub(super) fn held_by(&self, worker: WorkerId) -> Vec<JobId> {
        let mut jobs: Vec<JobId> =
            self.held.iter().filter(|(_, hold)| hold.worker == worker).map(|(job, _)| *job).collect();
        jobs.sort_unstable();
        jobs
    }
}

/// Whoever comes to be done with a job that elects is where he was when he was given it.
fn place_electors(
    store: &dyn Store,
    board: &mut Board,
    held: &HashMap<JobId, Hold>,
) -> Result<(), windlass_store::Error> {
    if !board.has_units() {
        return Ok(());
    }
    for (id, hold) in held {
        if let Some(job) = board.index(*id).filter(|job| board.demand(*job).place.elects) {
            let worker = store.worker(hold.worker)?;
            board.note_site_of(job, worker.and_then(|row| row.worker.site).as_deref());
        }
    }
    Ok(())
}

/// Workers that were given something of the workflow, as far as the books know. Nobody asks where there are no actions.
fn joined(
    store: &dyn Store,
    row: &WorkflowRow,
    agenda: &Agenda,
    held: &HashMap<JobId, Hold>,
) -> Result<BTreeSet<WorkerId>, windlass_store::Error> {
    let mut joined: BTreeSet<WorkerId> = agenda.actions.hands().collect();
    if agenda.actions.is_empty() {
        return Ok(joined);
    }
    joined.extend(held.values().map(|hold| hold.worker));
    if agenda.actions.has(Trigger::OnWorkerComplete) {
        let filter = ResultFilter { run: Some(row.run_id), ..ResultFilter::default() };
        joined.extend(store.results(row.id, &filter)?.iter().map(|result| result.worker_id));
    }
    Ok(joined)
}

/// The current run has begun and is not over, and nobody has put the workflow away.
pub(super) fn is_active(row: &WorkflowRow) -> bool {
    row.started_at.is_some() && row.ended_at.is_none() && !row.is_archived && !row.is_canceled
}
