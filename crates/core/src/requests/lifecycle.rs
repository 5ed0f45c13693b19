//! What is to be done about a request now: its rows and the news of it go in, changes, effects and alerts come out.
//!
//! An *effect* is something to be done outside: its outcome comes back as [`News`]. Effects are due because the rows say
//! so, never because they were due a moment ago; after a crash the same rows give the same effects again. Whoever carries
//! them out must therefore be able to do each twice, does not start one that is still under way, and does those about one
//! run, and those about one block, in the order in which they were given.

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
    BackendRunRef, BlockRow, NodeCounts, OutputStep, OutputStepKind, RequestFileCounts, RequestProcess,
};
use super::{RequestView, outputs};
use decision_builder::DecisionBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_types::Timestamp;
use windlass_types::payload::MergeOutput;
use windlass_types::requests::{RequestStatus, RequestUnitStatus};

pub use planned_round::{PlannedRound, PlannedRun};

/// Everything that a decision needs beside the rows.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleInputs<'a> {
    pub events: &'a [LifecycleEvent],
    /// Admission has a place for it (see [`super::admission`]).
    pub admitted: bool,
    /// Blocks of the versions that this request replaces. Needed only where their outputs are to go at once.
    pub previous: &'a [BlockRow],
    /// Sets of sites that units of the run may go to, without those that are closed to the request. Needed only where
    /// [`may_ban`] says so.
    pub unit_sites: &'a [BTreeSet<String>],
    /// The name of the run that this decision may make.
    pub new_run_uuid: &'a str,
}

/// What comes from outside: outcomes of effects, and what the backend says about the run.
#[derive(Clone, Debug, PartialEq)]
pub enum LifecycleEvent {
    Imported(Box<RequestProcess>),
    ImportFailed(EffectFailure),
    Planned(Box<PlannedRound>),
    /// There is nothing (more) to plan.
    NothingToPlan,
    PlanFailed(EffectFailure),
    /// A run is at its backend, under this name.
    Submitted {
        run: String,
        backend: BackendRunRef,
        /// The priority that it was handed over with, if that is known.
        priority: Option<i64>,
    },
    /// [`Effect::Prioritize`] is carried out.
    Prioritized {
        run: String,
        priority: i64,
    },
    SubmitFailed {
        run: String,
        failure: EffectFailure,
    },
    /// [`Effect::Stop`] is carried out. `there`: the backend had the run; that it is over comes as [`News::Run`].
    /// Otherwise it certainly does not run and will not.
    Stopped {
        run: String,
        was_running: bool,
    },
    /// [`Effect::Unpause`] is carried out.
    Unpaused {
        run: String,
    },
    /// The backend could not be told to stop a run.
    StopFailed {
        run: String,
        failure: EffectFailure,
    },
    RunReported(Box<RunReport>),
    /// What a round has done of the input, up to the end of this run, is credited.
    Settled {
        round: u32,
        run: String,
        files: RequestFileCounts,
    },
    SettleFailed {
        round: u32,
        failure: EffectFailure,
    },
    /// What there is of the outputs of a request that is given up is listed there.
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
        /// The name of the block, the id of the rule, where there is one; or what went wrong.
        outcome: Result<Option<String>, String>,
    },
}

/// What went wrong with an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectFailure {
    pub reason: String,
    /// It may go better next time; otherwise a person has to change something.
    pub is_retryable: bool,
}

/// What the backend says. `state` must have been asked for *before* the units, so that `Over` means: these are all.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    pub run: String,
    /// What it is called there. `None` where it was asked for by its UUID alone and not found: it may be on its way there.
    pub backend: Option<BackendRunRef>,
    pub state: RunState,
    pub counts: NodeCounts,
    pub units_completed: u32,
    pub units_failed: u32,
    /// What happened to units after `units_read`, ascending.
    pub units: Vec<WorkUnitReport>,
    /// Attempts that failed, after those that the tally has read, ascending.
    pub attempts: Vec<FailedAttemptReport>,
    /// How many attempts have ended at each site, well or not, in all runs of the round.
    pub site_totals: BTreeMap<String, RoleCounts>,
    /// What waits there for a person, and why: for the first look that finds more of it than the last one.
    pub held: Vec<String>,
    /// Why it ended, where the units do not say it.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The backend does not answer.
    Unknown,
    /// It answers, and knows nothing of this run.
    Gone,
    Running,
    /// Nothing more of it begins until somebody lets it go on.
    Halted,
    Over,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkUnitReport {
    pub seq: i64,
    pub unit: u32,
    pub status: RequestUnitStatus,
    /// Of a completed one: what its merge wrote, or why that cannot be read.
    pub output: Result<Option<MergeOutput>, String>,
}

/// What must be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum LifecycleEffect {
    /// See that input and sites exist, make the process.
    Import,
    Plan {
        round: u32,
    },
    /// Hand a run that is ready to the backend.
    Submit {
        run: String,
    },
    /// The same for one that goes on with another.
    Resume {
        run: String,
    },
    Stop {
        run: String,
        reason: String,
    },
    /// Nothing new of the run begins; what is under way goes on.
    Pause {
        run: String,
    },
    /// It goes on.
    Unpause {
        run: String,
    },
    /// Sites are closed to the request that were not: what has not begun begins elsewhere.
    AvoidSites {
        run: String,
    },
    /// The jobs of a run get the priority that its request has now.
    Prioritize {
        run: String,
        priority: i64,
    },
    /// Credit what a round has done of the input. This is the last of its runs, and over.
    Settle {
        round: u32,
        run: String,
    },
    /// Write down what there is of the outputs of a request that is given up, for those who clean up (E 4.2).
    WriteManifest,
    Step(Box<OutputStep>),
}

impl LifecycleEffect {
    /// What tells it from all others of its request.
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

/// Something that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleAlert {
    pub kind: AlertKind,
    pub request: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertKind {
    /// Too long in a status where nothing but we are waited for.
    Stuck(RequestStatus),
    StuckInQueue,
    SlowDag,
    ScheddUnreachable,
    Held,
    /// Nodes of a run, or the run itself, wait at the backend for a person.
    HeldNodes,
    OutputFailed,
    /// Many attempts of a run have failed with something in common.
    CorrelatedFailures,
    SiteBanned,
    /// A site is to blame, and is the only one for some of the work.
    BanRefused,
    /// Input files that cannot be read are left out.
    FilesExcluded,
    /// What there is of the outputs of a request that is given up could not be listed.
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
    /// A status that is not here is never stuck.
    pub timeouts: BTreeMap<RequestStatus, Duration>,
    /// After trouble that may pass.
    pub retry_after: Duration,
    /// A backend that has not answered for so long is told of.
    pub unresponsive_after: Duration,
    /// When failures are a matter for a person.
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

/// What follows. Changes are committed before effects are carried out and alerts told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LifecycleDecision {
    pub changes: Vec<RequestChange>,
    pub effects: Vec<LifecycleEffect>,
    /// They are among the changes too, so that none is lost; these are for whoever counts them.
    pub alerts: Vec<LifecycleAlert>,
    /// When to decide again even if there is no news.
    pub next_check: Option<Timestamp>,
}

impl LifecycleDecision {
    /// As the store takes it; `None` if nothing changes.
    pub fn commit(&self, view: &RequestView, at: Timestamp) -> Option<RequestCommit> {
        (!self.changes.is_empty()).then(|| RequestCommit {
            request: view.row.request.request_name.clone(),
            version: view.row.version,
            changes: self.changes.clone(),
            by: "lifecycle".to_owned(),
            at,
        })
    }
}

/// What is to be done about a request now.
pub fn decide_request(
    view: &RequestView,
    situation: &LifecycleInputs<'_>,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> LifecycleDecision {
    let mut desk = DecisionBuilder::new(view, situation, settings, now);
    desk.apply_events();
    let stuck = desk.alert_if_stuck();
    desk.alert_if_unresponsive();
    desk.apply_pending_command();
    desk.update_pause();
    desk.advance();
    desk.update_priority();
    if let Some(status) = stuck {
        desk.hold_if_stuck(status);
    }
    if !desk.is_ending {
        desk.update_outputs();
    }
    desk.into_decision()
}

/// Whether a request takes one of the places that admission gives out.
pub fn takes_slot(view: &RequestView) -> bool {
    match view.row.status {
        RequestStatus::Planning | RequestStatus::Stopping => true,
        // When its run is over, outputs being seen to are no load.
        RequestStatus::Active => view.run.as_ref().is_some_and(|run| run.status.is_active()),
        _ => false,
    }
}
