//! Runs on the engine: submit, stop, continue, query. Each is idempotent: the engine's database shows what was
//! done.

mod overrides;

use self::overrides::RunOverrideChanges;
use super::engine_jobs::{RunGraph, RunSubmission};
use super::{MOST_ATTEMPTS, RunBackend, RunContext, RunSnapshot, RunUnitChange, StopResult, attempts};
use crate::planned_run_units::PlannedRunUnits;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use windlass_core::requests::lifecycle::{EffectFailure, RunState};
use windlass_core::requests::rows::{self, NodeCounts, RunRow};
use windlass_scheduler::service::{CallError, CallReply, ExclusiveRequirement, SchedulerHandle};
use windlass_store::model::{WorkUnitStatusRow, WorkflowRow};
use windlass_store::{Store, StoreDatabase};
use windlass_types::requests::RequestUnitStatus;
use windlass_types::{JobStatus, RunId, StatusCounts, SystemClock, Timestamp, WorkflowId};

/// The user name of these changes in the engine's database.
const ACTOR_NAME: &str = "lifecycle";

#[derive(Debug, thiserror::Error)]
enum EngineBackendError {
    #[error("cannot use the database: {0}")]
    Store(#[from] windlass_store::StoreError),
    #[error("the engine rejected it: {0}")]
    Refused(#[from] CallError),
    #[error("workflow {0} of the engine does not exist")]
    WorkflowNotFound(WorkflowId),
    #[error("{directory}: cannot read its plan: {source}")]
    NoPlan { directory: String, source: std::io::Error },
}

impl EngineBackendError {
    /// A retry may succeed.
    fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Refused(refused) => {
                matches!(refused, CallError::Unavailable { .. } | CallError::Conflict { .. })
            }
            Self::WorkflowNotFound(_) | Self::NoPlan { .. } => false,
        }
    }
}

impl From<EngineBackendError> for EffectFailure {
    fn from(error: EngineBackendError) -> Self {
        Self { is_retryable: error.is_transient(), reason: error.to_string() }
    }
}

/// A run, by its ids in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EngineRunId {
    workflow: WorkflowId,
    run: RunId,
}

impl EngineRunId {
    fn from_run(run: &RunRow) -> Option<Self> {
        match run.backend {
            rows::BackendRunRef::Engine { workflow: Some(workflow), run: Some(run) } => {
                Some(Self { workflow, run })
            }
            _ => None,
        }
    }

    const fn to_backend(self) -> rows::BackendRunRef {
        rows::BackendRunRef::Engine { workflow: Some(self.workflow), run: Some(self.run) }
    }
}

#[derive(Clone)]
pub(crate) struct EngineBackend {
    pub(crate) service: SchedulerHandle,
    pub(crate) store: Arc<dyn StoreDatabase>,
}

impl std::fmt::Debug for EngineBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBackend").field("service", &self.service).finish_non_exhaustive()
    }
}

impl RunBackend for EngineBackend {
    /// As a new workflow, or as the next run of the workflow of its round.
    fn submit_run(&self, order: &RunContext<'_>) -> Result<rows::BackendRunRef, EffectFailure> {
        let now = SystemClock.now();
        let handed = match self.find_workflow(order)? {
            Some(workflow) => self.start_next_run(order, workflow, now)?,
            None => self.create_workflow(&order.submission, now)?,
        };
        Ok(handed.to_backend())
    }

    /// A run whose submission was not recorded is recorded first.
    fn stop_run(&self, order: &RunContext<'_>, _reason: &str) -> Result<StopResult, EffectFailure> {
        let Some(handed) = self.find_run(order)? else { return Ok(StopResult::NotRunning) };
        let there = self.cancel_workflow(handed.workflow)?;
        Ok(if there { StopResult::Requested(handed.to_backend()) } else { StopResult::NotRunning })
    }

    fn inspect_run(&self, run: &RunRow, read: i64) -> Option<RunSnapshot> {
        let handed = EngineRunId::from_run(run)?;
        Some(self.try_inspect_run(run, handed, read).unwrap_or_else(|error| {
            tracing::warn!(workflow = %handed.workflow, %error, "cannot query a run");
            RunSnapshot::unknown(handed.to_backend())
        }))
    }

    /// Not stored in the database: repeated as long as it applies.
    fn set_paused(&self, run: &RunRow, is_paused: bool) -> Result<(), EffectFailure> {
        if let Some(handed) = EngineRunId::from_run(run) {
            self.service.set_paused(handed.workflow, is_paused);
        }
        Ok(())
    }

    fn apply_site_bans(&self, order: &RunContext<'_>) -> Result<(), EffectFailure> {
        if let Some(handed) = EngineRunId::from_run(order.run) {
            self.service.set_closed_sites_for(handed.workflow, order.banned_sites.iter().cloned().collect());
        }
        Ok(())
    }

    fn update_priority(&self, order: &RunContext<'_>) -> Result<(), EffectFailure> {
        match EngineRunId::from_run(order.run) {
            Some(handed) => Ok(self.set_priority(handed.workflow, order.submission.job_priority())?),
            None => Ok(()),
        }
    }
}

impl EngineBackend {
    /// Jobs held by workers keep their order; all others are ordered again.
    fn set_priority(&self, workflow: WorkflowId, priority: i32) -> Result<(), EngineBackendError> {
        let now = SystemClock.now();
        let set = call_service(|reply| {
            let work = move |store: &dyn Store| {
                let changes = overrides::plan_priorities(&store.load_jobs(workflow)?.priority, priority);
                if changes.is_empty() { Ok(0) } else { store.change_priorities(workflow, &changes, now) }
            };
            self.service.run_exclusive(workflow, ExclusiveRequirement::NoneRequired, Box::new(work), reply);
        });
        match set {
            // Ended runs have no order.
            Ok(_) | Err(CallError::Conflict { code: "workflow_over", .. } | CallError::NotFound(_)) => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    /// The workflow that the runs of a round share, if there is one.
    fn find_workflow(&self, order: &RunContext<'_>) -> Result<Option<WorkflowId>, EngineBackendError> {
        if let rows::BackendRunRef::Engine { workflow: Some(workflow), .. } = order.run.backend {
            return Ok(Some(workflow));
        }
        let RunSubmission { digest, directory, .. } = &order.submission;
        Ok(self.store.find_by_digest(digest, directory)?.map(|row| row.id))
    }

    /// The engine's state of this run. If its submission was not recorded: is the engine's current run this one,
    /// or still the previous one?
    fn find_run(&self, order: &RunContext<'_>) -> Result<Option<EngineRunId>, EngineBackendError> {
        if let Some(handed) = EngineRunId::from_run(order.run) {
            return Ok(Some(handed));
        }
        let Some(workflow) = self.find_workflow(order)? else { return Ok(None) };
        let current = self.store.workflow(workflow)?.map(|row| EngineRunId { workflow, run: row.run_id });
        Ok(current.filter(|current| Some(current.run) > last_known_run(order, workflow)))
    }

    /// Creates the workflow and starts it.
    fn create_workflow(
        &self,
        submission: &RunSubmission,
        now: Timestamp,
    ) -> Result<EngineRunId, EngineBackendError> {
        let outline = read_outline(submission)?;
        let graph = RunGraph::new(submission, &outline);
        let workflow =
            graph.create_workflow(submission, |new, jobs| self.store.create_workflow(new, jobs, now))?;
        self.start_workflow(workflow)
    }

    /// The next run of a workflow: canceled or failed jobs run again with the current settings; completed ones
    /// stay, and units at closed sites choose another one. Without an earlier run it only has to be started.
    fn start_next_run(
        &self,
        order: &RunContext<'_>,
        workflow: WorkflowId,
        now: Timestamp,
    ) -> Result<EngineRunId, EngineBackendError> {
        // The previous run may have been paused.
        self.service.set_paused(workflow, false);
        self.service.set_closed_sites_for(workflow, order.banned_sites.iter().cloned().collect());
        // Otherwise it was started before a crash.
        if Some(self.workflow_row(workflow)?.run_id) <= last_known_run(order, workflow) {
            let (banned, submission) = (order.banned_sites.clone(), order.submission.clone());
            let outline = read_outline(&submission)?;
            call_service(|reply| {
                let work = move |store: &dyn Store| {
                    // First: this is repeated as long as the run has not started.
                    RunOverrideChanges::plan_changes(store, workflow, &submission, &outline)?
                        .apply_changes(store, workflow, now)?;
                    prepare_next_run(store, workflow, &banned, now)
                };
                self.service.run_exclusive(workflow, ExclusiveRequirement::NoHeldJobs, Box::new(work), reply);
            })?;
        }
        self.start_workflow(workflow)
    }

    /// Starts the current run, or returns it if it was started before.
    fn start_workflow(&self, workflow: WorkflowId) -> Result<EngineRunId, EngineBackendError> {
        match call_service(|reply| self.service.start_workflow(workflow, ACTOR_NAME, reply)) {
            Ok(run) => Ok(EngineRunId { workflow, run }),
            Err(CallError::Conflict { code: "workflow_over", .. }) => {
                Ok(EngineRunId { workflow, run: self.workflow_row(workflow)?.run_id })
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// No more claims, and workers with jobs of it are notified. `false`: there is no such workflow.
    fn cancel_workflow(&self, workflow: WorkflowId) -> Result<bool, EngineBackendError> {
        match call_service(|reply| self.service.cancel_workflow(workflow, ACTOR_NAME, reply)) {
            Ok(()) | Err(CallError::Conflict { code: "workflow_over", .. }) => Ok(true),
            Err(CallError::NotFound(_)) => Ok(false),
            Err(refused) => Err(refused.into()),
        }
    }

    /// The state is read first, the units last. Ended attempts at sites are counted after the failures there.
    fn try_inspect_run(
        &self,
        run: &RunRow,
        handed: EngineRunId,
        read: i64,
    ) -> Result<RunSnapshot, EngineBackendError> {
        let row = self.store.workflow(handed.workflow)?;
        let failed = self.store.failed_attempts(handed.workflow, read, MOST_ATTEMPTS + 1)?;
        let site_totals = attempts::counts_by_role(&self.store.site_counts(handed.workflow)?);
        let units = self.store.work_unit_counts(handed.workflow)?;
        let updates = self.store.work_units(handed.workflow, u64::try_from(run.units_read).unwrap_or(0))?;
        let directory = Path::new(&run.submit_dir);
        let state = match &row {
            None => RunState::Gone,
            Some(row) if row.run_id > handed.run || row.ended_at.is_some() => RunState::Over,
            Some(_) => RunState::Running,
        };
        Ok(RunSnapshot {
            backend: handed.to_backend(),
            state,
            counts: row.map(|row| node_counts(&row.counts)).unwrap_or_default(),
            units_completed: u32::try_from(units.completed).unwrap_or(u32::MAX),
            units_failed: u32::try_from(units.failed).unwrap_or(u32::MAX),
            unit_changes: updates.iter().map(unit_change).collect(),
            failed_attempts: failed
                .into_iter()
                .filter_map(|failed| attempts::from_engine_attempt(directory, failed))
                .collect(),
            site_totals,
            held_reasons: Vec::new(),
            reason: None,
        })
    }

    fn workflow_row(&self, workflow: WorkflowId) -> Result<WorkflowRow, EngineBackendError> {
        self.store.workflow(workflow)?.ok_or(EngineBackendError::WorkflowNotFound(workflow))
    }
}

fn read_outline(submission: &RunSubmission) -> Result<PlannedRunUnits, EngineBackendError> {
    PlannedRunUnits::read(Path::new(&submission.directory))
        .map_err(|source| EngineBackendError::NoPlan { directory: submission.directory.clone(), source })
}

/// The last of the engine's runs of this workflow that is known to belong to another run of the request.
fn last_known_run(order: &RunContext<'_>, workflow: WorkflowId) -> Option<RunId> {
    let engine_run = |row: &RunRow| match row.backend {
        rows::BackendRunRef::Engine { workflow: Some(id), run } if id == workflow => run,
        _ => None,
    };
    order.process_runs.iter().filter_map(engine_run).max()
}

fn unit_change(unit: &WorkUnitStatusRow) -> RunUnitChange {
    use windlass_types::WorkUnitStatus as Engine;
    let status = match unit.status {
        Engine::Waiting => RequestUnitStatus::Waiting,
        Engine::Active => RequestUnitStatus::Active,
        Engine::Completed => RequestUnitStatus::Completed,
        Engine::Failed => RequestUnitStatus::Failed,
        Engine::Canceled => RequestUnitStatus::Canceled,
    };
    RunUnitChange { seq: i64::try_from(unit.seq).unwrap_or(i64::MAX), unit: unit.number, status }
}

/// Makes a call that answers by a closure, and waits for the answer.
fn call_service<T: Send + 'static>(call: impl FnOnce(CallReply<T>)) -> Result<T, CallError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver.recv().unwrap_or_else(|_| Err(CallError::Internal("the engine has stopped".to_owned())))
}

/// The engine knows which jobs still have to run.
fn prepare_next_run(
    store: &dyn Store,
    workflow: WorkflowId,
    left: &[String],
    now: Timestamp,
) -> Result<(), windlass_store::StoreError> {
    let Some(row) = store.workflow(workflow)? else { return Ok(()) };
    match windlass_scheduler::begin_next_run_at_other_sites(store, &row, left, now) {
        Err(windlass_scheduler::SchedulerError::Store(error)) => Err(error),
        // It was made without cycles, so this is the only possible error.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn node_counts(of: &StatusCounts) -> NodeCounts {
    let sum = |statuses: &[JobStatus]| statuses.iter().map(|status| of.get(*status)).sum();
    NodeCounts {
        idle: sum(&[JobStatus::Uninitialized, JobStatus::Blocked, JobStatus::Ready, JobStatus::Canceled]),
        running: sum(&[JobStatus::Pending, JobStatus::Running]),
        done: sum(&[JobStatus::Completed]),
        failed: sum(&[JobStatus::Failed, JobStatus::Terminated]),
        held: sum(&[JobStatus::PendingFailed]),
    }
}
