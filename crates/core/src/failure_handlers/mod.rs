//! What happens after a failure: whether the job is tried again, when, with what, and after which script.
//!
//! The rules of a [`FailureHandler`] are compiled once; [`decide`] then weighs one failed attempt. Everything that chance or
//! the surroundings have to say comes in as a value, so that the same question has the same answer.

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

/// A failed attempt, as far as rules can ask about it.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttemptFacts<'a> {
    pub return_code: i32,
    /// How its first process ended; `None` where only the return code is known.
    pub exit: Option<ProcessExit>,
    /// `None`: it ended by itself.
    pub cause: Option<FailureCause>,
    pub class: FailureClass,
    /// The end of its standard error.
    pub stderr_tail: &'a str,
}

/// What else a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct RetryContext<'a> {
    /// The attempt that failed.
    pub attempt: Attempt,
    /// Attempts of this run that count, this one included. One whose worker died does not.
    pub used_attempts: u32,
    /// What the job asks for; `None` where it says nothing, so that nothing limits it.
    pub asked: Option<Resources>,
    /// What the workers that may take the job can give; empty where nobody knows.
    pub workers: &'a [Capacity],
    /// No worker stays longer than this, where that is known.
    pub max_worker_lifetime: Option<Duration>,
    pub budget: RetryBudgetUsage,
    /// A number by chance, out of all that there are.
    pub random: u64,
}

/// What handlers may spend on a workflow, and have spent.
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

/// The job is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerRetry {
    /// The number of the rule that says so, from 1.
    pub rule: usize,
    pub delay: Duration,
    /// Comes before the next attempt.
    pub recovery: Option<RecoveryScript>,
    /// What it asks for from now on, if that is something else.
    pub resources: Option<Resources>,
    /// For the result of the failed attempt.
    pub message: String,
}

/// The job is not tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerFinal {
    pub reason: NoRetryReason,
    /// For the result of the failed attempt, where there is something to say.
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRetryReason {
    NoHandler,
    NoMatchingRule,
    /// It has had as many attempts as the rule allows.
    Exhausted,
    /// It would fail in the same way: it cannot get more of what it ran out of.
    Pointless,
    /// The workflow has had as many retries as its budget allows.
    OverBudget,
}

impl NoRetryReason {
    /// Nobody foresaw this failure, so that somebody may be asked (`use_pending_failed`).
    pub const fn is_unhandled(self) -> bool {
        matches!(self, Self::NoHandler | Self::NoMatchingRule)
    }
}

/// The first of these that is no field of a rule, and the field that was probably meant.
pub fn find_unknown_field<'k>(
    keys: impl IntoIterator<Item = &'k String>,
) -> Option<(&'k str, Option<&'static str>)> {
    let unknown = keys.into_iter().find(|key| !FailureRule::FIELDS.contains(&key.as_str()))?;
    Some((unknown, nearest_word(unknown, FailureRule::FIELDS)))
}

/// What happens after an attempt that failed, or was terminated.
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
    // A script may well change how much the job needs.
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

/// So many attempts, the first one included.
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
