//! Where runs of requests execute. What is decided about a run does not depend on where it is: a [`Backend`] takes it,
//! ends it, and says how it stands.

mod attempts;
mod condor;
mod engine;
mod engine_jobs;
mod role_retries;

pub(crate) use attempts::MAX_ATTEMPTS_PER_READ as MOST_ATTEMPTS;
pub use condor::CondorOptions;
pub(crate) use condor::{CondorBackend, DagFiles};
pub(crate) use engine::EngineBackend;
pub(crate) use engine_jobs::{JobSize, RunSubmission};
pub(crate) use role_retries::RoleRetrySettings;

use std::collections::BTreeMap;
use windlass_core::requests::failures::{FailedAttemptReport, RoleCounts};
use windlass_core::requests::lifecycle::{EffectFailure, LifecycleEffect, RunState};
use windlass_core::requests::rows::{self, NodeCounts, RunRow};
use windlass_types::requests::RequestUnitStatus;

/// Each call may be made twice, and by somebody who remembers nothing: what is there says what was done.
pub(crate) trait RunBackend: Send + Sync + std::fmt::Debug {
    /// Sees to it that a run is there, as the first of its round or going on with the one before it; and says what it is
    /// called there.
    fn submit_run(&self, order: &RunContext<'_>) -> Result<rows::BackendRunRef, EffectFailure>;

    /// What is there of a run is told to end; that it did is seen by looking.
    fn stop_run(&self, order: &RunContext<'_>, reason: &str) -> Result<StopResult, EffectFailure>;

    /// How a run stands that was handed over; of failed attempts those after `read`. `None`: it was not.
    fn inspect_run(&self, run: &RunRow, read: i64) -> Option<RunSnapshot>;

    /// Nothing new of a run begins, or it goes on.
    fn set_paused(&self, run: &RunRow, is_paused: bool) -> Result<(), EffectFailure>;

    /// What of a run has not begun yet begins at none of the banned sites.
    fn apply_site_bans(&self, order: &RunContext<'_>) -> Result<(), EffectFailure>;

    /// Jobs of a run that are not over, those that wait for others included, get the priority of the order.
    fn update_priority(&self, order: &RunContext<'_>) -> Result<(), EffectFailure>;
}

/// A run, with all that a backend may need to know of it.
#[derive(Debug)]
pub(crate) struct RunContext<'a> {
    pub(crate) run: &'a RunRow,
    pub(crate) submission: RunSubmission,
    /// Of the same process.
    pub(crate) process_runs: Vec<RunRow>,
    /// Sites where nothing of it may land now.
    pub(crate) banned_sites: Vec<String>,
}

/// What came of [`Backend::stop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopResult {
    /// It is there, under this name, and was told.
    Requested(rows::BackendRunRef),
    /// It certainly does not run and will not.
    NotRunning,
}

/// How a run stands. Its state was read before its units: what is over has no more news than these.
#[derive(Clone, Debug)]
pub(crate) struct RunSnapshot {
    /// What it is called there.
    pub(crate) backend: rows::BackendRunRef,
    pub(crate) state: RunState,
    pub(crate) counts: NodeCounts,
    pub(crate) units_completed: u32,
    pub(crate) units_failed: u32,
    /// What happened to units after `units_read` of the run, ascending.
    pub(crate) unit_changes: Vec<RunUnitChange>,
    /// Attempts that failed, ascending.
    pub(crate) failed_attempts: Vec<FailedAttemptReport>,
    /// How many attempts have ended at each site.
    pub(crate) site_totals: BTreeMap<String, RoleCounts>,
    /// What waits there for a person, and why.
    pub(crate) held_reasons: Vec<String>,
    /// Why it ended, where the units do not say it.
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

/// All there are.
#[derive(Debug)]
pub(crate) struct RunBackends {
    pub(crate) engine: EngineBackend,
    pub(crate) condor: CondorBackend,
    /// What becomes of new runs.
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
    /// The one that a run is for. Nothing else about a run depends on which it is.
    pub(crate) fn backend_for(&self, run: &RunRow) -> &dyn RunBackend {
        match &run.backend {
            rows::BackendRunRef::Engine { .. } => &self.engine,
            rows::BackendRunRef::Htcondor { .. } => &self.condor,
        }
    }

    /// Where a new run goes, given those that are not over. One that exists stays where it is.
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

/// Whom an effect may have to wait for, for as long as that one likes, where new runs go there. Nothing else waits behind
/// it.
pub(crate) fn work_lane(
    for_new: BackendKind,
    run: Option<&RunRow>,
    effect: &LifecycleEffect,
) -> Option<String> {
    match (effect, run.map(|run| &run.backend)) {
        // All schedds are asked, until one answers.
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
