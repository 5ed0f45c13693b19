//! Retry decisions after failures, made by [`crate::failure_handlers`], and what the next attempt inherits.

use super::{
    AttemptFailure, AttemptOutcome, FailureDiagnosis, FailureDisposition, StaleAttemptReport, WorkflowState,
};
use crate::attempt_outcome::decide_outcome;
use crate::change::WorkflowChange;
use crate::dispatch::LocationConstraint;
use crate::failure_handlers::{self, HandlerDecision};
use crate::job_state::JobStateEvent;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass_types::settings::{FailureCause, FailureHandler};
use windlass_types::worker_messages::{AttemptEndReport, RecoveryScript};
use windlass_types::{FailureClass, Resources, Timestamp, WorkerId};

/// What an attempt passes on to the next one of the same job, besides its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NextAttempt {
    /// Earliest time of a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The delay at the time of the decision: the job never waits longer, even if the clock changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Runs before it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryScript>,
    /// Attempts of this run that do not count for rules.
    pub excused: u32,
    /// The new resource request of the job, if it has just changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// A failed or terminated attempt, before the retry decision.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttemptContext<'a> {
    pub job: u32,
    pub ended: &'a AttemptEndReport,
    pub return_code: i32,
    /// `None`: no request, so nothing limits it.
    pub asked: Option<Resources>,
    /// Counted attempts, including this one.
    pub used_attempts: u32,
    /// Index of its failure handler.
    pub handler: Option<usize>,
    /// Its location constraint.
    pub location: &'a LocationConstraint,
    /// Number of jobs of the workflow.
    pub jobs: u64,
}

impl FailedAttemptContext<'_> {
    /// Returns the facts that rules can match.
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
    /// The job has failed, or was terminated. With a message, if any.
    Final(Option<String>),
    /// Waits for a decision.
    AskOperator(Option<String>),
    /// It is retried.
    Retry(Box<RetryPlan>),
}

/// The retry decision, and the diagnosis of the failure, if it was examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosedRetryDecision {
    pub decision: RetryDecision,
    pub diagnosis: Option<FailureDiagnosis>,
}

impl From<RetryDecision> for DiagnosedRetryDecision {
    fn from(retry_decision: RetryDecision) -> Self {
        Self { decision: retry_decision, diagnosis: None }
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
    /// Converts a handler's decision at this time. `asks`: unhandled failures wait for a decision.
    pub fn from_handler_decision(decision: HandlerDecision, asks: bool, now: Timestamp) -> Self {
        match decision {
            HandlerDecision::Final(last) if asks && last.reason.is_unhandled() => {
                Self::AskOperator(last.message)
            }
            HandlerDecision::Final(last) => Self::Final(last.message),
            HandlerDecision::Retry(retry) => {
                let delay = Some(retry.delay).filter(|delay| !delay.is_zero());
                Self::Retry(Box::new(RetryPlan {
                    not_before: delay.map(|delay| now.plus(delay)),
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
    /// By its rule; or by a command, without changes.
    Retry(Box<RetryPlan>),
    /// The job was not the cause.
    Excused,
    /// The same, but it runs alone from now on.
    ExcusedIsolated,
}

/// What follows an ended attempt.
pub(super) struct AttemptFollowUp {
    pub(super) retry_mode: RetryMode,
    pub(super) failure: Option<Box<AttemptFailure>>,
}

impl WorkflowState {
    /// Like [`Self::on_attempt_ended`]; calls `decide` if the attempt failed or was terminated.
    pub fn on_attempt_ended_with(
        &mut self,
        worker: WorkerId,
        ended: &AttemptEndReport,
        decide: impl FnOnce(FailedAttemptContext<'_>) -> DiagnosedRetryDecision,
        changes: &mut Vec<WorkflowChange>,
    ) -> Result<AttemptOutcome, StaleAttemptReport> {
        let job = self.find_current_attempt(&ended.key)?;
        let mut end_decision = decide_outcome(ended, self.resources(job), self.codes, self.canceling);
        let mut follow_up = AttemptFollowUp { retry_mode: RetryMode::Excused, failure: None };
        if matches!(end_decision.event, JobStateEvent::Fail | JobStateEvent::Terminate) && !self.canceling {
            let DiagnosedRetryDecision { decision: retry_decision, diagnosis } =
                decide(FailedAttemptContext {
                    job,
                    ended,
                    return_code: end_decision.return_code,
                    asked: self.has_resource_request(job).then(|| *self.resources(job)),
                    used_attempts: self.used_attempts(job),
                    handler: self.handler_index(job),
                    location: &self.demand(job).location,
                    jobs: self.ids.len() as u64,
                });
            let (next, why) =
                (FailureDisposition::from(&retry_decision), retry_decision.message().map(str::to_owned));
            let last_words = || ended.last_words.as_deref().map(str::to_owned);
            follow_up.failure = diagnosis.map(|diagnosis| {
                Box::new(AttemptFailure { diagnosis, next, reason: why, log_tail: last_words() })
            });
            end_decision.reason = join_reasons(end_decision.reason, retry_decision.message());
            match retry_decision {
                RetryDecision::Final(_) => {}
                RetryDecision::AskOperator(_) => end_decision.event = JobStateEvent::AwaitDecision,
                RetryDecision::Retry(again) => {
                    end_decision.event = JobStateEvent::Requeue;
                    follow_up.retry_mode = RetryMode::Retry(again);
                }
            }
        }
        Ok(self.conclude_attempt(job, worker, ended, end_decision, follow_up, changes))
    }

    /// Returns the counted attempts of this run, including the current or next one.
    pub fn used_attempts(&self, job: u32) -> u32 {
        let excused = self.inherited.get(&job).map_or(0, |next_attempt| next_attempt.excused);
        self.attempt[job as usize].0.saturating_sub(excused)
    }

    fn handler_index(&self, job: u32) -> Option<usize> {
        self.handler.get(job as usize)?.checked_sub(1).map(|number| number as usize)
    }

    /// Returns the name of its failure handler.
    pub fn handler_name(&self, job: u32) -> Option<&str> {
        self.handler_index(job)
            .and_then(|number| self.handlers.get(number))
            .map(|handler| handler.name.as_str())
    }

    pub fn handlers(&self) -> &[FailureHandler] {
        &self.handlers
    }

    /// Retries granted by handlers in this run before this state was built.
    pub const fn retries_granted(&self) -> u64 {
        self.retries_granted
    }

    /// Returns the script to run before the current or next attempt.
    pub fn recovery_script(&self, job: u32) -> Option<&RecoveryScript> {
        self.inherited.get(&job)?.recovery.as_ref()
    }

    /// Too many failures: stops claims; jobs that have not started do not change.
    pub fn on_halt(&mut self) {
        self.halted = true;
    }

    pub fn is_halted(&self) -> bool {
        self.halted
    }

    /// Resumes claims by a command.
    pub fn on_continue(&mut self) {
        self.halted = false;
    }

    /// Records what the next attempt inherits, and returns it for the store.
    pub(super) fn record_next_attempt(
        &mut self,
        job: u32,
        retry_mode: RetryMode,
    ) -> Option<Box<NextAttempt>> {
        let before = self.inherited.remove(&job).unwrap_or_default();
        self.delayed.remove(job);
        let next_attempt = match retry_mode {
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
        self.apply_next_attempt(job, &next_attempt);
        (next_attempt != NextAttempt::default()).then(|| Box::new(next_attempt))
    }

    /// Applies what is inherited.
    pub(super) fn apply_next_attempt(&mut self, job: u32, next_attempt: &NextAttempt) {
        if let Some(at) = next_attempt.not_before {
            self.delayed.set_delay(job, at, next_attempt.delay);
        }
        if let Some(asked) = next_attempt.resources {
            self.change_requirements(job, asked);
        }
        if next_attempt.recovery.is_some() || next_attempt.excused > 0 {
            let kept = NextAttempt { not_before: None, delay: None, resources: None, ..next_attempt.clone() };
            self.inherited.insert(job, kept);
        }
    }

    /// Changes the request of one job, not of others in its class.
    fn change_requirements(&mut self, job: u32, asked: Resources) {
        let place = self.demand(job).location.clone();
        let class = self.find_or_add_class(asked);
        self.class[job as usize] = class;
        let demand = self.demand_number(class, place);
        self.assign_demand(job, demand);
    }
}

fn join_reasons(reason: Option<String>, words: Option<&str>) -> Option<String> {
    match (reason, words) {
        (Some(reason), Some(words)) => Some(format!("{reason}; {words}")),
        (reason, words) => reason.or_else(|| words.map(str::to_owned)),
    }
}
