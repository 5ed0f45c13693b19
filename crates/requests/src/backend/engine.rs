//! Runs on the engine: handed over, stopped, gone on with, looked at. Each may be done twice: the engine's books say
//! whether it was done.

mod adapt;

use self::adapt::Changes;
use super::jobs::{Graph, Submission};
use super::{Backend, Look, MOST_ATTEMPTS, Order, Stop, UnitChange, attempts};
use crate::outline::Outline;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use windlass_core::requests::book::{self, NodeCounts, RunRow};
use windlass_core::requests::lifecycle::{RunState, Trouble};
use windlass_engine::service::{Quiet, Refused, Reply, Service};
use windlass_store::model::{UnitRow, WorkflowRow};
use windlass_store::{Database, Store};
use windlass_types::requests::UnitStatus;
use windlass_types::{Clock, JobStatus, RunId, StatusCounts, Timestamp, WorkflowId};

/// Whoever does all this, in the engine's books.
const BY: &str = "lifecycle";

#[derive(Debug, thiserror::Error)]
enum EngineError {
    #[error("the database could not be used: {0}")]
    Store(#[from] windlass_store::Error),
    #[error("the engine refused: {0}")]
    Refused(#[from] Refused),
    #[error("workflow {0} of the engine is gone")]
    Gone(WorkflowId),
    #[error("{directory}: its plan cannot be read: {source}")]
    NoPlan { directory: String, source: std::io::Error },
}

impl EngineError {
    /// It may go better next time.
    fn is_passing(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Refused(refused) => {
                matches!(refused, Refused::Unavailable { .. } | Refused::Conflict { .. })
            }
            Self::Gone(_) | Self::NoPlan { .. } => false,
        }
    }
}

impl From<EngineError> for Trouble {
    fn from(error: EngineError) -> Self {
        Self { again: error.is_passing(), reason: error.to_string() }
    }
}

/// A run, as the engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handed {
    workflow: WorkflowId,
    run: RunId,
}

impl Handed {
    fn of(run: &RunRow) -> Option<Self> {
        match run.backend {
            book::Backend::Engine { workflow: Some(workflow), run: Some(run) } => {
                Some(Self { workflow, run })
            }
            _ => None,
        }
    }

    const fn backend(self) -> book::Backend {
        book::Backend::Engine { workflow: Some(self.workflow), run: Some(self.run) }
    }
}

#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) service: Service,
    pub(crate) store: Arc<dyn Database>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Backend for Engine {
    /// As a new workflow, or as the next run of the one that its round has.
    fn hand_over(&self, order: &Order<'_>) -> Result<book::Backend, Trouble> {
        let now = Clock.now();
        let handed = match self.workflow_of(order)? {
            Some(workflow) => self.go_on(order, workflow, now)?,
            None => self.submit(&order.submission, now)?,
        };
        Ok(handed.backend())
    }

    /// One that came there unnoticed is first told of.
    fn stop(&self, order: &Order<'_>, _reason: &str) -> Result<Stop, Trouble> {
        let Some(handed) = self.find(order)? else { return Ok(Stop::NotThere) };
        let there = self.cancel(handed.workflow)?;
        Ok(if there { Stop::Told(handed.backend()) } else { Stop::NotThere })
    }

    fn look(&self, run: &RunRow, read: i64) -> Option<Look> {
        let handed = Handed::of(run)?;
        Some(self.try_look(run, handed, read).unwrap_or_else(|error| {
            tracing::warn!(workflow = %handed.workflow, %error, "cannot look at a run");
            Look::unknown(handed.backend())
        }))
    }

    /// Not in its books: it is said again as long as it holds.
    fn pause(&self, run: &RunRow, is_paused: bool) -> Result<(), Trouble> {
        if let Some(handed) = Handed::of(run) {
            self.service.pause(handed.workflow, is_paused);
        }
        Ok(())
    }

    fn avoid(&self, order: &Order<'_>) -> Result<(), Trouble> {
        if let Some(handed) = Handed::of(order.run) {
            self.service.close_sites_for(handed.workflow, order.banned.iter().cloned().collect());
        }
        Ok(())
    }

    fn prioritize(&self, order: &Order<'_>) -> Result<(), Trouble> {
        match Handed::of(order.run) {
            Some(handed) => Ok(self.set_priority(handed.workflow, order.submission.job_priority())?),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// Jobs that workers hold keep their places; all others are ordered anew.
    fn set_priority(&self, workflow: WorkflowId, priority: i32) -> Result<(), EngineError> {
        let now = Clock.now();
        let set = ask(|reply| {
            let work = move |store: &dyn Store| {
                let changes = adapt::priorities(&store.load_jobs(workflow)?.priority, priority);
                if changes.is_empty() { Ok(0) } else { store.change_priorities(workflow, &changes, now) }
            };
            self.service.exclusive(workflow, Quiet::Any, Box::new(work), reply);
        });
        match set {
            // What is over has no order.
            Ok(_) | Err(Refused::Conflict { code: "workflow_over", .. } | Refused::NotFound(_)) => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    /// The workflow that the runs of a round have in common, if there is one.
    fn workflow_of(&self, order: &Order<'_>) -> Result<Option<WorkflowId>, EngineError> {
        if let book::Backend::Engine { workflow: Some(workflow), .. } = order.run.backend {
            return Ok(Some(workflow));
        }
        let Submission { digest, directory, .. } = &order.submission;
        Ok(self.store.find_by_digest(digest, directory)?.map(|row| row.id))
    }

    /// What the engine has of this run. Of a run that was not known to be there: is the one that the engine has now this
    /// one, or still the one before it?
    fn find(&self, order: &Order<'_>) -> Result<Option<Handed>, EngineError> {
        if let Some(handed) = Handed::of(order.run) {
            return Ok(Some(handed));
        }
        let Some(workflow) = self.workflow_of(order)? else { return Ok(None) };
        let current = self.store.workflow(workflow)?.map(|row| Handed { workflow, run: row.run_id });
        Ok(current.filter(|current| Some(current.run) > last_run(order, workflow)))
    }

    /// Creates the workflow and starts it.
    fn submit(&self, submission: &Submission, now: Timestamp) -> Result<Handed, EngineError> {
        let outline = outline(submission)?;
        let graph = Graph::new(submission, &outline);
        let workflow = graph.create(submission, |new, jobs| self.store.create_workflow(new, jobs, now))?;
        self.start(workflow)
    }

    /// The next run of a workflow: what was canceled or failed is to run again, as it is wished for now; what is completed
    /// stays, and units at sites that are closed by now elect another one. If there was none before, it only has to be started.
    fn go_on(&self, order: &Order<'_>, workflow: WorkflowId, now: Timestamp) -> Result<Handed, EngineError> {
        // The run before it may have been paused.
        self.service.pause(workflow, false);
        self.service.close_sites_for(workflow, order.banned.iter().cloned().collect());
        // Otherwise it was begun before somebody crashed.
        if Some(self.row(workflow)?.run_id) <= last_run(order, workflow) {
            let (banned, submission) = (order.banned.clone(), order.submission.clone());
            let outline = outline(&submission)?;
            ask(|reply| {
                let work = move |store: &dyn Store| {
                    // First: as long as the run has not begun this is done again.
                    Changes::find(store, workflow, &submission, &outline)?.write(store, workflow, now)?;
                    begin_next(store, workflow, &banned, now)
                };
                self.service.exclusive(workflow, Quiet::Free, Box::new(work), reply);
            })?;
        }
        self.start(workflow)
    }

    /// Starts the current run, or says which it is if that was done.
    fn start(&self, workflow: WorkflowId) -> Result<Handed, EngineError> {
        match ask(|reply| self.service.start_workflow(workflow, BY, reply)) {
            Ok(run) => Ok(Handed { workflow, run }),
            Err(Refused::Conflict { code: "workflow_over", .. }) => {
                Ok(Handed { workflow, run: self.row(workflow)?.run_id })
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// No more claims, and whoever has something of it is told. `false`: there is no such workflow.
    fn cancel(&self, workflow: WorkflowId) -> Result<bool, EngineError> {
        match ask(|reply| self.service.cancel(workflow, BY, reply)) {
            Ok(()) | Err(Refused::Conflict { code: "workflow_over", .. }) => Ok(true),
            Err(Refused::NotFound(_)) => Ok(false),
            Err(refused) => Err(refused.into()),
        }
    }

    /// The state is read first, the units last. What has ended at sites is counted after what failed there.
    fn try_look(&self, run: &RunRow, handed: Handed, read: i64) -> Result<Look, EngineError> {
        let row = self.store.workflow(handed.workflow)?;
        let failed = self.store.failed_attempts(handed.workflow, read, MOST_ATTEMPTS + 1)?;
        let site_totals = attempts::by_role(&self.store.site_counts(handed.workflow)?);
        let units = self.store.unit_counts(handed.workflow)?;
        let news = self.store.units(handed.workflow, u64::try_from(run.units_read).unwrap_or(0))?;
        let directory = Path::new(&run.submit_dir);
        let state = match &row {
            None => RunState::Gone,
            Some(row) if row.run_id > handed.run || row.ended_at.is_some() => RunState::Over,
            Some(_) => RunState::Running,
        };
        Ok(Look {
            backend: handed.backend(),
            state,
            counts: row.map(|row| counts(&row.counts)).unwrap_or_default(),
            units_completed: u32::try_from(units.completed).unwrap_or(u32::MAX),
            units_failed: u32::try_from(units.failed).unwrap_or(u32::MAX),
            news: news.iter().map(unit_change).collect(),
            attempts: failed
                .into_iter()
                .filter_map(|failed| attempts::of_engine(directory, failed))
                .collect(),
            site_totals,
            held: Vec::new(),
            reason: None,
        })
    }

    fn row(&self, workflow: WorkflowId) -> Result<WorkflowRow, EngineError> {
        self.store.workflow(workflow)?.ok_or(EngineError::Gone(workflow))
    }
}

fn outline(submission: &Submission) -> Result<Outline, EngineError> {
    Outline::read(Path::new(&submission.directory))
        .map_err(|source| EngineError::NoPlan { directory: submission.directory.clone(), source })
}

/// The last of the engine's runs of this workflow that is known to have been another run of the request.
fn last_run(order: &Order<'_>, workflow: WorkflowId) -> Option<RunId> {
    let engine_run = |row: &RunRow| match row.backend {
        book::Backend::Engine { workflow: Some(id), run } if id == workflow => run,
        _ => None,
    };
    order.others.iter().filter_map(engine_run).max()
}

fn unit_change(unit: &UnitRow) -> UnitChange {
    use windlass_types::UnitStatus as Engine;
    let status = match unit.status {
        Engine::Waiting => UnitStatus::Waiting,
        Engine::Active => UnitStatus::Active,
        Engine::Completed => UnitStatus::Completed,
        Engine::Failed => UnitStatus::Failed,
        Engine::Canceled => UnitStatus::Canceled,
    };
    UnitChange { seq: i64::try_from(unit.seq).unwrap_or(i64::MAX), unit: unit.number, status }
}

/// Makes a call that answers by a closure, and waits for the answer.
fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, Refused> {
    let (sender, receiver) = mpsc::sync_channel(1);
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver.recv().unwrap_or_else(|_| Err(Refused::Internal("the engine has ended".to_owned())))
}

/// The engine knows which jobs have still to run.
fn begin_next(
    store: &dyn Store,
    workflow: WorkflowId,
    left: &[String],
    now: Timestamp,
) -> Result<(), windlass_store::Error> {
    let Some(row) = store.workflow(workflow)? else { return Ok(()) };
    match windlass_engine::begin_next_run_elsewhere(store, &row, left, now) {
        Err(windlass_engine::Error::Store(error)) => Err(error),
        // It was made without cycles, so nothing else can be wrong with it.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn counts(of: &StatusCounts) -> NodeCounts {
    let sum = |statuses: &[JobStatus]| statuses.iter().map(|status| of.get(*status)).sum();
    NodeCounts {
        idle: sum(&[JobStatus::Uninitialized, JobStatus::Blocked, JobStatus::Ready, JobStatus::Canceled]),
        running: sum(&[JobStatus::Pending, JobStatus::Running]),
        done: sum(&[JobStatus::Completed]),
        failed: sum(&[JobStatus::Failed, JobStatus::Terminated]),
        held: sum(&[JobStatus::PendingFailed]),
    }
}
