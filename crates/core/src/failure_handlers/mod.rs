//! Retry decisions: whether a failed job is retried, when, with which resources, and after which script.
//!
//! The rules of a [`FailureHandler`](windlass_types::settings::FailureHandler) are compiled once;
//! [`decide_retry`] then decides about one failed attempt. Random numbers and surroundings are passed in as
//! values, so that equal input gives equal output.

mod request_retry_policy;
mod resource_growth;
mod retry_delay;
mod retry_messages;
mod rule_matching;

#[cfg(test)]
mod tests;

pub use request_retry_policy::RequestRetryPolicy;
pub use rule_matching::{CompiledHandler, HandlerRuleError};

use crate::requests::document::field_reader::nearest_word;
use rule_matching::MatchedRule;
use windlass_types::settings::{FailureCause, FailureRule};
use windlass_types::worker_messages::{ProcessExit, RecoveryScript};
use windlass_types::{Attempt, Capacity, FailureClass, Resources};

use std::time::Duration;

/// The properties of a failed attempt that rules can match.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttemptFacts<'a> {
    pub return_code: i32,
    /// How its first process ended; `None` if only the return code is known.
    pub exit: Option<ProcessExit>,
    /// `None`: it ended by itself.
    pub cause: Option<FailureCause>,
    pub class: FailureClass,
    /// The end of its standard error.
    pub stderr_tail: &'a str,
}

/// Other input of a retry decision.
#[derive(Clone, Copy, Debug)]
pub struct RetryContext<'a> {
    /// The attempt that failed.
    pub attempt: Attempt,
    /// Counted attempts of this run, including this one. Attempts whose worker died do not count.
    pub used_attempts: u32,
    /// The resources of the job; `None` if it requests none, so that nothing limits it.
    pub asked: Option<Resources>,
    /// Capacities of the workers that may run the job; empty if unknown.
    pub workers: &'a [Capacity],
    /// Maximum lifetime of workers, if known.
    pub max_worker_lifetime: Option<Duration>,
    pub budget: RetryBudgetUsage,
    /// A random number from the whole range.
    pub random: u64,
}

/// Retry budget of a workflow, and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudgetUsage {
    pub granted: u64,
    pub limit: u64,
}

impl RetryBudgetUsage {
    pub const fn is_used_up(self) -> bool {
        self.granted >= self.limit
    }
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerDecision {
    Retry(Box<HandlerRetry>),
    Final(HandlerFinal),
}

/// The job is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerRetry {
    /// Number of the matching rule, from 1.
    pub rule: usize,
    pub delay: Duration,
    /// Runs before the next attempt.
    pub recovery: Option<RecoveryScript>,
    /// The resources of the next attempt, if they change.
    pub resources: Option<Resources>,
    /// Message for the result of the failed attempt.
    pub message: String,
}

/// The job is not retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerFinal {
    pub reason: NoRetryReason,
    /// Message for the result of the failed attempt, if any.
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRetryReason {
    NoHandler,
    NoMatchingRule,
    /// The maximum number of attempts of the rule is reached.
    Exhausted,
    /// The job would fail in the same way: the exhausted resource cannot grow.
    Pointless,
    /// The retry budget of the workflow is used up.
    OverBudget,
}

impl NoRetryReason {
    /// Whether no rule handles the failure, so that it may wait for a decision (`use_pending_failed`).
    pub const fn is_unhandled(self) -> bool {
        matches!(self, Self::NoHandler | Self::NoMatchingRule)
    }
}

/// Returns the first key that is not a field of a rule, and the field that was probably meant.
pub fn find_unknown_field<'k>(
    keys: impl IntoIterator<Item = &'k String>,
) -> Option<(&'k str, Option<&'static str>)> {
    let unknown = keys.into_iter().find(|key| !FailureRule::FIELDS.contains(&key.as_str()))?;
    Some((unknown, nearest_word(unknown, FailureRule::FIELDS)))
}

/// Decides what happens after a failed or terminated attempt.
pub fn decide_retry(
    handler: Option<&CompiledHandler>,
    failure: &FailedAttemptFacts<'_>,
    situation: &RetryContext<'_>,
) -> HandlerDecision {
    let Some(handler) = handler else { return no_retry(NoRetryReason::NoHandler, None) };
    let Some(matched) = handler.match_failure(failure) else {
        return no_retry(NoRetryReason::NoMatchingRule, Some(retry_messages::no_rule_message(handler)));
    };
    let rule = matched.rule;
    if situation.used_attempts >= max_attempts(rule) {
        return no_retry(
            NoRetryReason::Exhausted,
            Some(retry_messages::exhausted_message(&matched, situation.used_attempts)),
        );
    }
    let grown = resource_growth::grow_resources(rule, failure, situation);
    // A script may change how much the job needs.
    if let Some(stuck) = grown.blocked_reason.filter(|_| rule.recovery_script.is_none()) {
        return no_retry(NoRetryReason::Pointless, Some(retry_messages::pointless_message(&matched, &stuck)));
    }
    if situation.budget.is_used_up() {
        return no_retry(
            NoRetryReason::OverBudget,
            Some(retry_messages::over_budget_message(situation.budget)),
        );
    }
    let delay = retry_delay::retry_delay(rule, situation.used_attempts, situation.random);
    HandlerDecision::Retry(Box::new(HandlerRetry {
        rule: matched.number,
        delay,
        recovery: recovery_script(&matched, failure, situation.attempt),
        resources: grown.resources,
        message: retry_messages::retry_message(&matched, situation.used_attempts, delay, &grown.changes),
    }))
}

/// Maximum number of attempts, including the first one.
fn max_attempts(rule: &FailureRule) -> u32 {
    u32::try_from(rule.max_retries).unwrap_or(0)
}

fn recovery_script(
    matched: &MatchedRule<'_>,
    failure: &FailedAttemptFacts<'_>,
    failed: Attempt,
) -> Option<RecoveryScript> {
    let script = matched.rule.recovery_script.clone()?;
    let limit = matched.rule.recovery_timeout();
    Some(RecoveryScript { script, failed, return_code: failure.return_code, limit })
}

const fn no_retry(why: NoRetryReason, words: Option<String>) -> HandlerDecision {
    HandlerDecision::Final(HandlerFinal { reason: why, message: words })
}
