//! Lifecycle decisions of requests: rows and events go in, changes, effects and alerts come out.
//!
//! An *effect* is an action outside the database; its result returns as a [`LifecycleEvent`]. Effects follow
//! from the rows alone, never from earlier effects; after a crash the same rows give the same effects again.
//! The process that performs them must therefore make each idempotent, must not start one that is still in
//! progress, and must perform effects of one run or one block in the given order.

mod decision_builder;
mod events;
mod failure_response;
mod pending_commands;
mod planned_round;
#[cfg(test)]
mod recovery_tests;
mod run_recovery;
#[cfg(test)]
pub(crate) mod samples;
mod status_steps;
#[cfg(test)]
mod tests;

pub use failure_response::{FailureResponseSettings, may_ban_sites};

use super::change::{RequestChange, RequestCommit};
use super::failures::{FailedAttemptReport, RoleCounts};
use super::rounds::{McCompletion, RecoveryPolicy};
use super::rows::{
    BackendRunRef, BlockRow, NodeCounts, OutputStep, OutputStepKind, RequestFileCounts, RequestProgress,
};
use super::{RequestView, outputs};
use decision_builder::DecisionBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_types::Timestamp;
use windlass_types::payload::MergeOutput;
use windlass_types::requests::{RequestStatus, RequestUnitStatus};

pub use planned_round::{PlannedRound, PlannedRun};

/// Input of a decision besides the rows.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleInputs<'a> {
    pub events: &'a [LifecycleEvent],
    /// Whether admission has a slot for it (see [`super::admission`]).
    pub admitted: bool,
    /// Blocks of the versions that this request supersedes. Needed only if their outputs are invalidated
    /// immediately.
    pub previous: &'a [BlockRow],
    /// Sets of sites that units of the run may use, without those closed to the request. Needed only if
    /// [`may_ban_sites`] returns true.
    pub unit_sites: &'a [BTreeSet<String>],
    /// The name of a run that this decision may create.
    pub new_run_uuid: &'a str,
}

/// Results of effects, and reports of the backend about the run.
#[derive(Clone, Debug, PartialEq)]
pub enum LifecycleEvent {
    Imported(Box<RequestProgress>),
    ImportFailed(EffectFailure),
    Planned(Box<PlannedRound>),
    /// There is nothing (more) to plan.
    NothingToPlan,
    PlanFailed(EffectFailure),
    /// A run was submitted to its backend under this name.
    Submitted {
        run: String,
        backend: BackendRunRef,
        /// The priority at submission, if known.
        priority: Option<i64>,
    },
    /// [`LifecycleEffect::Prioritize`] was performed.
    Prioritized {
        run: String,
        priority: i64,
    },
    SubmitFailed {
        run: String,
        failure: EffectFailure,
    },
    /// [`LifecycleEffect::Stop`] was performed. `there`: the backend has the run; its end is reported by
    /// [`LifecycleEvent::RunReported`]. Otherwise it does not run and never will.
    Stopped {
        run: String,
        was_running: bool,
    },
    /// [`LifecycleEffect::Unpause`] was performed.
    Unpaused {
        run: String,
    },
    /// The stop command could not be sent to the backend.
    StopFailed {
        run: String,
        failure: EffectFailure,
    },
    RunReported(Box<RunReport>),
    /// The progress of a round on its input, up to the end of this run, is recorded.
    Settled {
        round: u32,
        run: String,
        files: RequestFileCounts,
    },
    SettleFailed {
        round: u32,
        failure: EffectFailure,
    },
    /// The manifest of the outputs of a failed request was written to this path.
    ManifestWritten {
        path: String,
    },
    ManifestFailed {
        reason: String,
    },
    Step {
        block: String,
        unit: Option<u32>,
        kind: OutputStepKind,
        /// The name of the block or the id of the rule, if any; or the error.
        outcome: Result<Option<String>, String>,
    },
}

/// The failure of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectFailure {
    pub reason: String,
    /// Whether a retry may succeed; otherwise an operator has to change something.
    pub is_retryable: bool,
}

/// A report of the backend. `state` must be read *before* the units, so that `Over` means that the units are
/// complete.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    pub run: String,
    /// Its name at the backend. `None` if it was looked up by UUID and not found: its submission may be in
    /// progress.
    pub backend: Option<BackendRunRef>,
    pub state: RunState,
    pub counts: NodeCounts,
    pub units_completed: u32,
    pub units_failed: u32,
    /// Events of units after `units_read`, ascending.
    pub units: Vec<WorkUnitReport>,
    /// Failed attempts after those in the tally, ascending.
    pub attempts: Vec<FailedAttemptReport>,
    /// Number of ended attempts at each site, completed or failed, in all runs of the round.
    pub site_totals: BTreeMap<String, RoleCounts>,
    /// Jobs held at the backend, with reasons: reported when their number grows.
    pub held: Vec<String>,
    /// Why it ended, if the units do not show it.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The backend does not answer.
    Unknown,
    /// It answers, and does not know this run.
    Gone,
    Running,
    /// It starts nothing new until it is released.
    Halted,
    Over,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkUnitReport {
    pub seq: i64,
    pub unit: u32,
    pub status: RequestUnitStatus,
    /// Output of the merge of a completed unit, or why it cannot be read.
    pub output: Result<Option<MergeOutput>, String>,
}

/// An action outside the database.
#[derive(Clone, Debug, PartialEq)]
pub enum LifecycleEffect {
    /// Checks input and sites, and creates the process.
    Import,
    Plan {
        round: u32,
    },
    /// Submits a run that is ready to the backend.
    Submit {
        run: String,
    },
    /// Submits a run that continues another.
    Resume {
        run: String,
    },
    Stop {
        run: String,
        reason: String,
    },
    /// The run starts nothing new; running jobs continue.
    Pause {
        run: String,
    },
    /// The run continues.
    Unpause {
        run: String,
    },
    /// New sites are closed to the request: work that has not begun uses other sites.
    AvoidSites {
        run: String,
    },
    /// Sets the priority of the jobs of a run to that of its request.
    Prioritize {
        run: String,
        priority: i64,
    },
    /// Records the progress of a round on its input. This is its last run, and has ended.
    Settle {
        round: u32,
        run: String,
    },
    /// Writes a manifest of the outputs of a failed request, for cleanup (E 4.2).
    WriteManifest,
    Step(Box<OutputStep>),
}

impl LifecycleEffect {
    /// Returns a key that is unique within the request.
    pub fn effect_key(&self) -> String {
        match self {
            Self::Import => "import".to_owned(),
            Self::Plan { round } => format!("plan {round}"),
            Self::Submit { run } | Self::Resume { run } => format!("submit {run}"),
            Self::Stop { run, .. } => format!("stop {run}"),
            Self::Pause { run } => format!("pause {run}"),
            Self::Unpause { run } => format!("unpause {run}"),
            Self::AvoidSites { run } => format!("avoid {run}"),
            Self::Prioritize { run, priority } => format!("prioritize {run} {priority}"),
            Self::Settle { run, .. } => format!("settle {run}"),
            Self::WriteManifest => "manifest".to_owned(),
            Self::Step(step) => format!("{} {} {:?}", step.kind.name(), step.block, step.unit),
        }
    }
}

/// An alert for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleAlert {
    pub kind: AlertKind,
    pub request: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertKind {
    /// Too long in a status that waits only for this system.
    Stuck(RequestStatus),
    StuckInQueue,
    SlowDag,
    ScheddUnreachable,
    Held,
    /// Nodes of a run, or the run itself, are held at the backend.
    HeldNodes,
    OutputFailed,
    /// Many attempts of a run fail in the same way or at the same site.
    CorrelatedFailures,
    SiteBanned,
    /// A site is to blame, but some of the work has no other site.
    BanRefused,
    /// Unreadable input files are excluded.
    FilesExcluded,
    /// The manifest of the outputs of a failed request could not be written.
    ManifestFailed,
}

impl AlertKind {
    /// As in `wms2_alerts_total{type}`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stuck(RequestStatus::Submitted) => "stuck_in_submitted",
            Self::Stuck(RequestStatus::Planning) => "stuck_in_planning",
            Self::Stuck(RequestStatus::Stopping) => "stuck_in_stopping",
            Self::Stuck(RequestStatus::Resubmitting) => "stuck_in_resubmitting",
            Self::Stuck(RequestStatus::Partial) => "stuck_in_partial",
            Self::Stuck(_) => "stuck",
            Self::StuckInQueue => "stuck_in_queue",
            Self::SlowDag => "slow_dag",
            Self::ScheddUnreachable => "schedd_unreachable",
            Self::Held => "held",
            Self::HeldNodes => "held_nodes",
            Self::OutputFailed => "output_failed",
            Self::CorrelatedFailures => "failing_alike",
            Self::SiteBanned => "site_banned",
            Self::BanRefused => "ban_refused",
            Self::FilesExcluded => "files_excluded",
            Self::ManifestFailed => "manifest_failed",
        }
    }
}

#[derive(Clone, Debug)]
pub struct LifecycleSettings {
    /// Time after which a status counts as stuck; without an entry it never does.
    pub timeouts: BTreeMap<RequestStatus, Duration>,
    /// Delay after a transient failure.
    pub retry_after: Duration,
    /// Time without an answer after which a backend is reported.
    pub unresponsive_after: Duration,
    /// When failures need an operator.
    pub recovery: RecoveryPolicy,
    pub outputs: outputs::OutputRetryPolicy,
    pub mc_completion: McCompletion,
    pub failure_response: FailureResponseSettings,
}

impl Default for LifecycleSettings {
    fn default() -> Self {
        const HOUR: u64 = 3600;
        let timeouts = [
            (RequestStatus::Submitted, HOUR),
            (RequestStatus::Queued, 7 * 24 * HOUR),
            (RequestStatus::Planning, HOUR),
            (RequestStatus::Active, 30 * 24 * HOUR),
            (RequestStatus::Stopping, HOUR),
            (RequestStatus::Resubmitting, 600),
            (RequestStatus::Partial, HOUR),
        ];
        Self {
            timeouts: timeouts.map(|(status, seconds)| (status, Duration::from_secs(seconds))).into(),
            retry_after: Duration::from_mins(1),
            unresponsive_after: Duration::from_hours(1),
            recovery: RecoveryPolicy::default(),
            outputs: outputs::OutputRetryPolicy::default(),
            mc_completion: McCompletion::default(),
            failure_response: FailureResponseSettings::default(),
        }
    }
}

/// The result of a decision. Changes are committed before effects are performed and alerts are sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LifecycleDecision {
    pub changes: Vec<RequestChange>,
    pub effects: Vec<LifecycleEffect>,
    /// They are also among the changes, so that none is lost; these are for metrics.
    pub alerts: Vec<LifecycleAlert>,
    /// When to decide again even without events.
    pub next_check: Option<Timestamp>,
}

impl LifecycleDecision {
    /// Returns the commit for the store; `None` if nothing changes.
    pub fn to_commit(&self, view: &RequestView, at: Timestamp) -> Option<RequestCommit> {
        (!self.changes.is_empty()).then(|| RequestCommit {
            request: view.row.request.request_name.clone(),
            version: view.row.version,
            changes: self.changes.clone(),
            by: "lifecycle".to_owned(),
            at,
        })
    }
}

/// Decides what to do about a request now.
pub fn decide_request(
    view: &RequestView,
    situation: &LifecycleInputs<'_>,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> LifecycleDecision {
    let mut builder = DecisionBuilder::new(view, situation, settings, now);
    builder.apply_events();
    let stuck = builder.alert_if_stuck();
    builder.alert_if_unresponsive();
    builder.apply_pending_command();
    builder.update_pause();
    builder.advance();
    builder.update_priority();
    if let Some(status) = stuck {
        builder.hold_if_stuck(status);
    }
    if !builder.is_ending {
        builder.update_outputs();
    }
    builder.into_decision()
}

/// Whether a request uses an admission slot.
pub fn takes_slot(view: &RequestView) -> bool {
    match view.row.status {
        RequestStatus::Planning | RequestStatus::Stopping => true,
        // Registering outputs after the end of the run does not use a slot.
        RequestStatus::Active => view.run.as_ref().is_some_and(|run| run.status.is_active()),
        _ => false,
    }
}
