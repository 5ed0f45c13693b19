//! Backends execute the runs of requests. Decisions about a run do not depend on its backend: a [`RunBackend`]
//! submits it, stops it, and reports its state.

mod attempts;
mod condor;
mod engine;
mod engine_jobs;
mod role_retries;

pub(crate) use attempts::MAX_ATTEMPTS_PER_READ as MOST_ATTEMPTS;
pub use condor::CondorOptions;
pub(crate) use condor::{CondorBackend, DagFileParameters};
pub(crate) use engine::EngineBackend;
pub(crate) use engine_jobs::{JobSize, RunSubmission};
pub(crate) use role_retries::RoleRetrySettings;

use std::collections::BTreeMap;
use windlass_core::requests::failures::{FailedAttemptReport, RoleCounts};
use windlass_core::requests::lifecycle::{EffectFailure, LifecycleEffect, RunState};
use windlass_core::requests::rows::{self, NodeCounts, RunRow};
use windlass_types::requests::RequestUnitStatus;

/// Each call is idempotent and needs no memory of earlier calls: the backend itself knows what was done.
pub(crate) trait RunBackend: Send + Sync + std::fmt::Debug {
    /// Makes sure that a run is submitted, as the first of its round or as the continuation of an earlier one,
    /// and returns its id at the backend.
    fn submit_run(&self, order: &RunContext<'_>) -> Result<rows::BackendRunRef, EffectFailure>;

    /// Requests the end of a run; the state shows when it has ended.
    fn stop_run(&self, order: &RunContext<'_>, reason: &str) -> Result<StopResult, EffectFailure>;

    /// The state of a submitted run, with failed attempts after `read`. `None`: it was not submitted.
    fn inspect_run(&self, run: &RunRow, read: i64) -> Option<RunSnapshot>;

    /// Pauses a run (no new work starts), or resumes it.
    fn set_paused(&self, run: &RunRow, is_paused: bool) -> Result<(), EffectFailure>;

    /// Keeps work that has not started away from the banned sites.
    fn apply_site_bans(&self, order: &RunContext<'_>) -> Result<(), EffectFailure>;

    /// Sets the priority of all jobs of a run that have not ended, including those that wait for others.
    fn update_priority(&self, order: &RunContext<'_>) -> Result<(), EffectFailure>;
}

/// A run, with all that a backend may need.
#[derive(Debug)]
pub(crate) struct RunContext<'a> {
    pub(crate) run: &'a RunRow,
    pub(crate) submission: RunSubmission,
    /// Of the same process.
    pub(crate) process_runs: Vec<RunRow>,
    /// Sites that are banned for it now.
    pub(crate) banned_sites: Vec<String>,
}

/// The result of [`RunBackend::stop_run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopResult {
    /// It exists under this id, and the stop was requested.
    Requested(rows::BackendRunRef),
    /// It certainly does not run and will not start.
    NotRunning,
}

/// The state of a run. It was read before the units: after the end, no further changes follow.
#[derive(Clone, Debug)]
pub(crate) struct RunSnapshot {
    /// Its id at the backend.
    pub(crate) backend: rows::BackendRunRef,
    pub(crate) state: RunState,
    pub(crate) counts: NodeCounts,
    pub(crate) units_completed: u32,
    pub(crate) units_failed: u32,
    /// Changes of units after `units_read` of the run, ascending.
    pub(crate) unit_changes: Vec<RunUnitChange>,
    /// Failed attempts, ascending.
    pub(crate) failed_attempts: Vec<FailedAttemptReport>,
    /// Number of ended attempts at each site.
    pub(crate) site_totals: BTreeMap<String, RoleCounts>,
    /// What waits for an operator, and why.
    pub(crate) held_reasons: Vec<String>,
    /// Why it ended, where the units do not show it.
    pub(crate) reason: Option<String>,
}

impl RunSnapshot {
    /// The backend does not answer.
    pub(crate) fn unknown(backend: rows::BackendRunRef) -> Self {
        Self {
            backend,
            state: RunState::Unknown,
            counts: NodeCounts::default(),
            units_completed: 0,
            units_failed: 0,
            unit_changes: Vec::new(),
            failed_attempts: Vec::new(),
            site_totals: BTreeMap::new(),
            held_reasons: Vec::new(),
            reason: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunUnitChange {
    pub(crate) seq: i64,
    pub(crate) unit: u32,
    pub(crate) status: RequestUnitStatus,
}

/// All backends.
#[derive(Debug)]
pub(crate) struct RunBackends {
    pub(crate) engine: EngineBackend,
    pub(crate) condor: CondorBackend,
    /// Where new runs go.
    pub(crate) new_run_backend: BackendKind,
}

/// A backend, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// The engine of this server, and its workers.
    #[default]
    Engine,
    Htcondor,
}

impl RunBackends {
    /// The backend of a run. Nothing else about a run depends on it.
    pub(crate) fn backend_for(&self, run: &RunRow) -> &dyn RunBackend {
        match &run.backend {
            rows::BackendRunRef::Engine { .. } => &self.engine,
            rows::BackendRunRef::Htcondor { .. } => &self.condor,
        }
    }

    /// Where a new run goes, given the active ones. An existing run stays where it is.
    pub(crate) fn choose_backend(
        &self,
        active: impl FnOnce() -> Result<Vec<RunRow>, EffectFailure>,
    ) -> Result<rows::BackendRunRef, EffectFailure> {
        match self.new_run_backend {
            BackendKind::Engine => Ok(rows::BackendRunRef::Engine { workflow: None, run: None }),
            BackendKind::Htcondor => Ok(self.condor.choose_schedd(&active()?)),
        }
    }
}

/// The service that an effect may have to wait for, where new runs go there. Other effects do not wait behind
/// it.
pub(crate) fn work_lane(
    for_new: BackendKind,
    run: Option<&RunRow>,
    effect: &LifecycleEffect,
) -> Option<String> {
    match (effect, run.map(|run| &run.backend)) {
        // All schedds are queried until one answers.
        (LifecycleEffect::Plan { .. }, _) if for_new == BackendKind::Htcondor => Some("any".to_owned()),
        (
            LifecycleEffect::Submit { .. }
            | LifecycleEffect::Resume { .. }
            | LifecycleEffect::Stop { .. }
            | LifecycleEffect::Unpause { .. }
            | LifecycleEffect::Prioritize { .. },
            Some(rows::BackendRunRef::Htcondor { schedd, .. }),
        ) => Some(format!("at {}", schedd.as_deref().unwrap_or_default())),
        _ => None,
    }
}
