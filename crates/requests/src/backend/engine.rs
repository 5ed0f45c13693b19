//! Runs on the engine: handed over, stopped, gone on with, looked at. Each may be done twice: the engine's books say
//! whether it was done.

use super::jobs::{Graph, Submission};
use crate::outline::Outline;
use std::sync::Arc;
use std::sync::mpsc;
use windlass_core::requests::book::NodeCounts;
use windlass_core::requests::lifecycle::RunState;
use windlass_engine::service::{Quiet, Refused, Reply, Service};
use windlass_store::Store;
use windlass_store::model::{UnitRow, WorkflowRow};
use windlass_types::{JobStatus, RunId, StatusCounts, Timestamp, UnitCounts, WorkflowId};

/// Whoever does all this, in the engine's books.
const BY: &str = "lifecycle";

#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error("the database could not be used: {0}")]
    Store(#[from] windlass_store::Error),
    #[error("the engine refused: {0}")]
    Refused(#[from] Refused),
    #[error("workflow {0} of the engine is gone")]
    Gone(WorkflowId),
}

impl EngineError {
    /// It may go better next time.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Refused(refused) => {
                matches!(refused, Refused::Unavailable { .. } | Refused::Conflict { .. })
            }
            Self::Gone(_) => false,
        }
    }
}

/// A run, as the engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) workflow: WorkflowId,
    pub(crate) run: RunId,
}

/// How a run stands.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) state: RunState,
    pub(crate) counts: NodeCounts,
    pub(crate) units: UnitCounts,
    /// Ascending by what they changed after.
    pub(crate) news: Vec<UnitRow>,
}

#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) service: Service,
    pub(crate) store: Arc<dyn Store>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Engine {
    /// Creates the workflow unless it is there, and starts it unless it was.
    pub(crate) fn submit(
        &self,
        submission: &Submission,
        outline: &Outline,
        now: Timestamp,
    ) -> Result<Handed, EngineError> {
        let workflow = if let Some(row) = self.find(submission)? {
            row.id
        } else {
            let graph = Graph::new(submission, outline);
            graph.create(submission, |new, jobs| self.store.create_workflow(new, jobs, now))?
        };
        self.start(workflow)
    }

    /// The workflow of an earlier attempt to submit this.
    pub(crate) fn find(&self, submission: &Submission) -> Result<Option<WorkflowRow>, EngineError> {
        Ok(self.store.find_by_digest(&submission.digest, &submission.directory)?)
    }

    /// The run after `last`: what was canceled or failed is to run again, what is completed stays. `None`: there was none
    /// before, and it only has to be started.
    pub(crate) fn go_on(
        &self,
        workflow: WorkflowId,
        last: Option<RunId>,
        now: Timestamp,
    ) -> Result<Handed, EngineError> {
        // Otherwise it was begun before somebody crashed.
        if Some(self.row(workflow)?.run_id) <= last {
            ask(|reply| {
                let work = move |store: &dyn Store| begin_next(store, workflow, now);
                self.service.exclusive(workflow, Quiet::Free, Box::new(work), reply);
            })?;
        }
        self.start(workflow)
    }

    /// The current run of a workflow; `None`: there is no such workflow.
    pub(crate) fn current(&self, workflow: WorkflowId) -> Result<Option<Handed>, EngineError> {
        Ok(self.store.workflow(workflow)?.map(|row| Handed { workflow, run: row.run_id }))
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
    pub(crate) fn stop(&self, workflow: WorkflowId) -> Result<bool, EngineError> {
        match ask(|reply| self.service.cancel(workflow, BY, reply)) {
            Ok(()) | Err(Refused::Conflict { code: "workflow_over", .. }) => Ok(true),
            Err(Refused::NotFound(_)) => Ok(false),
            Err(refused) => Err(refused.into()),
        }
    }

    /// How a run stands, and which of its units changed after `read`. The state is read first, the units last: what is over
    /// then has no more news than these.
    pub(crate) fn look(&self, handed: Handed, read: i64) -> Look {
        self.try_look(handed, read).unwrap_or_else(|error| {
            tracing::warn!(workflow = %handed.workflow, %error, "cannot look at a run");
            Look {
                state: RunState::Unknown,
                counts: NodeCounts::default(),
                units: UnitCounts::default(),
                news: Vec::new(),
            }
        })
    }

    fn try_look(&self, handed: Handed, read: i64) -> Result<Look, EngineError> {
        let row = self.store.workflow(handed.workflow)?;
        let units = self.store.unit_counts(handed.workflow)?;
        let news = self.store.units(handed.workflow, u64::try_from(read).unwrap_or(0))?;
        let state = match &row {
            None => RunState::Gone,
            Some(row) if row.run_id > handed.run || row.ended_at.is_some() => RunState::Over,
            Some(_) => RunState::Running,
        };
        Ok(Look { state, counts: row.map(|row| counts(&row.counts)).unwrap_or_default(), units, news })
    }

    fn row(&self, workflow: WorkflowId) -> Result<WorkflowRow, EngineError> {
        self.store.workflow(workflow)?.ok_or(EngineError::Gone(workflow))
    }
}

/// Makes a call that answers by a closure, and waits for the answer.
fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, Refused> {
    let (sender, receiver) = mpsc::sync_channel(1);
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver.recv().unwrap_or_else(|_| Err(Refused::Internal("the engine has ended".to_owned())))
}

/// The engine knows which jobs have still to run.
fn begin_next(store: &dyn Store, workflow: WorkflowId, now: Timestamp) -> Result<(), windlass_store::Error> {
    let Some(row) = store.workflow(workflow)? else { return Ok(()) };
    match windlass_engine::begin_next_run(store, &row, now) {
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
