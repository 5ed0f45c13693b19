//! What follows the failure of an attempt, as [`crate::handlers`] decided, and what the next attempt inherits.

use super::{
    AttemptFailure, AttemptOutcome, FailureDiagnosis, FailureDisposition, StaleAttemptReport, WorkflowState,
};
use crate::change::WorkflowChange;
use crate::dispatch::LocationConstraint;
use crate::failure_handlers::{self, HandlerDecision};
use crate::job_state::JobStateEvent;
use crate::outcome::decide_outcome;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass_types::settings::{FailureCause, FailureHandler};
use windlass_types::worker_messages::{AttemptEndReport, RecoveryScript};
use windlass_types::{FailureClass, Resources, Timestamp, WorkerId};

/// What attempts leave to the next one of the same job, beside its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NextAttempt {
    /// Nobody may claim it earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// How long that was ahead when it was decided: it never waits longer, whatever the clock says later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Owed before it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryScript>,
    /// Attempts of this run that count for no rule.
    pub excused: u32,
    /// What the job asks for from now on, where that has just changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// An attempt that failed or was terminated, before it is decided what follows.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttemptContext<'a> {
    pub job: u32,
    pub ended: &'a AttemptEndReport,
    pub return_code: i32,
    /// `None`: it named nothing, so nothing limits it.
    pub asked: Option<Resources>,
    /// Attempts that count, this one included.
    pub used_attempts: u32,
    /// Who says what follows, by his number among [`Board::handlers`].
    pub handler: Option<usize>,
    /// Where it belongs.
    pub location: &'a LocationConstraint,
    /// How many jobs the workflow has.
    pub jobs: u64,
}

impl FailedAttemptContext<'_> {
    /// As rules ask about it.
    pub fn as_failed_attempt(&self, class: FailureClass) -> failure_handlers::FailedAttemptFacts<'_> {
        failure_handlers::FailedAttemptFacts {
            return_code: self.return_code,
            exit: Some(self.ended.exit),
            cause: FailureCause::from_end_cause(&self.ended.cause),
            class,
            stderr_tail: self.ended.last_words.as_deref().unwrap_or_default(),
        }
    }
}

/// What follows a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// The job has failed, or was terminated, as its attempt. With words, where there are any.
    Final(Option<String>),
    /// Somebody is to say what happens next.
    AskOperator(Option<String>),
    /// It is tried again.
    Retry(Box<RetryPlan>),
}

/// What follows a failure, and what it was found to be, if anybody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosedRetryDecision {
    pub decision: RetryDecision,
    pub diagnosis: Option<FailureDiagnosis>,
}

impl From<RetryDecision> for DiagnosedRetryDecision {
    fn from(sequel: RetryDecision) -> Self {
        Self { decision: sequel, diagnosis: None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryPlan {
    pub not_before: Option<Timestamp>,
    pub delay: Option<Duration>,
    pub recovery: Option<RecoveryScript>,
    pub resources: Option<Resources>,
    pub message: String,
}

impl RetryDecision {
    /// What a decision comes to at this time, where unforeseen failures may be asked about.
    pub fn from_handler_decision(decision: HandlerDecision, asks: bool, now: Timestamp) -> Self {
        match decision {
            HandlerDecision::Final(last) if asks && last.reason.is_unhandled() => {
                Self::AskOperator(last.message)
            }
            HandlerDecision::Final(last) => Self::Final(last.message),
            HandlerDecision::Retry(retry) => {
                let delay = Some(retry.delay).filter(|delay| !delay.is_zero());
                Self::Retry(Box::new(RetryPlan {
                    not_before: delay.map(|delay| now.after(delay)),
                    delay,
                    recovery: retry.recovery,
                    resources: retry.resources,
                    message: retry.message,
                }))
            }
        }
    }

    fn message(&self) -> Option<&str> {
        match self {
            Self::Final(words) | Self::AskOperator(words) => words.as_deref(),
            Self::Retry(again) => Some(&again.message),
        }
    }
}

/// How an attempt leads to another one.
pub(super) enum RetryMode {
    /// As its rule says; or somebody else asked for it, and then nothing comes with it.
    Retry(Box<RetryPlan>),
    /// It was nobody's failure.
    Excused,
    /// The same, but it has a worker to itself from now on.
    ExcusedIsolated,
}

/// What comes of an attempt that is over.
pub(super) struct AttemptFollowUp {
    pub(super) retry_mode: RetryMode,
    pub(super) failure: Option<Box<AttemptFailure>>,
}

impl WorkflowState {
    /// As [`Board::on_ended`]; `decide` is asked what follows if the attempt failed or was terminated.
    pub fn on_attempt_ended_with(
        &mut self,
        worker: WorkerId,
        ended: &AttemptEndReport,
        decide: impl FnOnce(FailedAttemptContext<'_>) -> DiagnosedRetryDecision,
        changes: &mut Vec<WorkflowChange>,
    ) -> Result<AttemptOutcome, StaleAttemptReport> {
        let job = self.find_current_attempt(&ended.key)?;
        let mut judged = decide_outcome(ended, self.resources(job), self.codes, self.canceling);
        let mut follows = AttemptFollowUp { retry_mode: RetryMode::Excused, failure: None };
        if matches!(judged.event, JobStateEvent::Fail | JobStateEvent::Terminate) && !self.canceling {
            let DiagnosedRetryDecision { decision: sequel, diagnosis } = decide(FailedAttemptContext {
                job,
                ended,
                return_code: judged.return_code,
                asked: self.has_resource_request(job).then(|| *self.resources(job)),
                used_attempts: self.used_attempts(job),
                handler: self.handler_index(job),
                location: &self.demand(job).location,
                jobs: self.ids.len() as u64,
            });
            let (next, why) = (FailureDisposition::from(&sequel), sequel.message().map(str::to_owned));
            let last_words = || ended.last_words.as_deref().map(str::to_owned);
            follows.failure = diagnosis.map(|diagnosis| {
                Box::new(AttemptFailure { diagnosis, next, reason: why, log_tail: last_words() })
            });
            judged.reason = join_reasons(judged.reason, sequel.message());
            match sequel {
                RetryDecision::Final(_) => {}
                RetryDecision::AskOperator(_) => judged.event = JobStateEvent::AwaitDecision,
                RetryDecision::Retry(again) => {
                    judged.event = JobStateEvent::Requeue;
                    follows.retry_mode = RetryMode::Retry(again);
                }
            }
        }
        Ok(self.conclude_attempt(job, worker, ended, judged, follows, changes))
    }

    /// Attempts of this run that count, with the one that is under way or next.
    pub fn used_attempts(&self, job: u32) -> u32 {
        let excused = self.inherited.get(&job).map_or(0, |carried| carried.excused);
        self.attempt[job as usize].0.saturating_sub(excused)
    }

    fn handler_index(&self, job: u32) -> Option<usize> {
        self.handler.get(job as usize)?.checked_sub(1).map(|number| number as usize)
    }

    /// The name of who says what follows its failures.
    pub fn handler_name(&self, job: u32) -> Option<&str> {
        self.handler_index(job)
            .and_then(|number| self.handlers.get(number))
            .map(|handler| handler.name.as_str())
    }

    pub fn handlers(&self) -> &[FailureHandler] {
        &self.handlers
    }

    /// Attempts that handlers had granted in this run when the board was made.
    pub const fn retries_granted(&self) -> u64 {
        self.retries_granted
    }

    /// The script that is owed before the attempt that is under way or next.
    pub fn recovery_script(&self, job: u32) -> Option<&RecoveryScript> {
        self.inherited.get(&job)?.recovery.as_ref()
    }

    /// Too much has failed: nothing more is claimed, and what was not begun stays as it is.
    pub fn on_halt(&mut self) {
        self.halted = true;
    }

    pub fn is_halted(&self) -> bool {
        self.halted
    }

    /// Somebody has it go on all the same.
    pub fn on_continue(&mut self) {
        self.halted = false;
    }

    /// Notes what the next attempt inherits, and says so for the books.
    pub(super) fn record_next_attempt(&mut self, job: u32, onward: RetryMode) -> Option<Box<NextAttempt>> {
        let before = self.inherited.remove(&job).unwrap_or_default();
        self.delayed.remove(job);
        let carried = match onward {
            RetryMode::Excused | RetryMode::ExcusedIsolated => NextAttempt {
                recovery: before.recovery,
                excused: before.excused.saturating_add(1),
                ..NextAttempt::default()
            },
            RetryMode::Retry(again) => NextAttempt {
                not_before: again.not_before,
                delay: again.delay,
                recovery: again.recovery,
                excused: before.excused,
                resources: again.resources,
            },
        };
        self.apply_next_attempt(job, &carried);
        (carried != NextAttempt::default()).then(|| Box::new(carried))
    }

    /// Lets what is carried over take effect.
    pub(super) fn apply_next_attempt(&mut self, job: u32, carried: &NextAttempt) {
        if let Some(at) = carried.not_before {
            self.delayed.set_delay(job, at, carried.delay);
        }
        if let Some(asked) = carried.resources {
            self.change_requirements(job, asked);
        }
        if carried.recovery.is_some() || carried.excused > 0 {
            let kept = NextAttempt { not_before: None, delay: None, resources: None, ..carried.clone() };
            self.inherited.insert(job, kept);
        }
    }

    /// The job asks for something else from now on; others of its class do not.
    fn change_requirements(&mut self, job: u32, asked: Resources) {
        let place = self.demand(job).location.clone();
        let class = self.find_or_add_class(asked);
        self.class[job as usize] = class;
        let lane = self.demand_number(class, place);
        self.assign_demand(job, lane);
    }
}

fn join_reasons(reason: Option<String>, words: Option<&str>) -> Option<String> {
    match (reason, words) {
        (Some(reason), Some(words)) => Some(format!("{reason}; {words}")),
        (reason, words) => reason.or_else(|| words.map(str::to_owned)),
    }
}
