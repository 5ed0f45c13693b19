//! What happens after a failure: whether the job is tried again, when, with what, and after which script.
//!
//! The rules of a [`FailureHandler`] are compiled once; [`decide`] then weighs one failed attempt. Everything that chance or
//! the surroundings have to say comes in as a value, so that the same question has the same answer.

mod care;
mod delay;
mod growth;
mod matching;
mod words;

#[cfg(test)]
mod tests;

pub use care::Care;
pub use matching::{BadRule, Handler};

use crate::requests::document::reader::nearest;
use matching::Matched;
use windlass_types::settings::{FailureCause, FailureRule};
use windlass_types::work::{Exit, Recovery};
use windlass_types::{Attempt, Capacity, FailureClass, Resources};

use std::time::Duration;

/// A failed attempt, as far as rules can ask about it.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    pub return_code: i32,
    /// How its first process ended; `None` where only the return code is known.
    pub exit: Option<Exit>,
    /// `None`: it ended by itself.
    pub cause: Option<FailureCause>,
    pub class: FailureClass,
    /// The end of its standard error.
    pub last_words: &'a str,
}

/// What else a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The attempt that failed.
    pub attempt: Attempt,
    /// Attempts of this run that count, this one included. One whose worker died does not.
    pub used: u32,
    /// What the job asks for; `None` where it says nothing, so that nothing limits it.
    pub asked: Option<Resources>,
    /// What the workers that may take the job can give; empty where nobody knows.
    pub workers: &'a [Capacity],
    /// No worker stays longer than this, where that is known.
    pub longest: Option<Duration>,
    pub budget: Budget,
    /// A number by chance, out of all that there are.
    pub dice: u64,
}

/// What handlers may spend on a workflow, and have spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub granted: u64,
    pub limit: u64,
}

impl Budget {
    pub const fn is_used_up(self) -> bool {
        self.granted >= self.limit
    }
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Retry(Box<Retry>),
    Final(Final),
}

/// The job is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of the rule that says so, from 1.
    pub rule: usize,
    pub delay: Duration,
    /// Comes before the next attempt.
    pub recovery: Option<Recovery>,
    /// What it asks for from now on, if that is something else.
    pub resources: Option<Resources>,
    /// For the result of the failed attempt.
    pub words: String,
}

/// The job is not tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Final {
    pub why: Stop,
    /// For the result of the failed attempt, where there is something to say.
    pub words: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    NoHandler,
    NoMatchingRule,
    /// It has had as many attempts as the rule allows.
    Exhausted,
    /// It would fail in the same way: it cannot get more of what it ran out of.
    Pointless,
    /// The workflow has had as many retries as its budget allows.
    OverBudget,
}

impl Stop {
    /// Nobody foresaw this failure, so that somebody may be asked (`use_pending_failed`).
    pub const fn is_unforeseen(self) -> bool {
        matches!(self, Self::NoHandler | Self::NoMatchingRule)
    }
}

/// The first of these that is no field of a rule, and the field that was probably meant.
pub fn unknown_field<'k>(
    keys: impl IntoIterator<Item = &'k String>,
) -> Option<(&'k str, Option<&'static str>)> {
    let unknown = keys.into_iter().find(|key| !FailureRule::FIELDS.contains(&key.as_str()))?;
    Some((unknown, nearest(unknown, FailureRule::FIELDS)))
}

/// What happens after an attempt that failed, or was terminated.
pub fn decide(handler: Option<&Handler>, failure: &Failure<'_>, situation: &Situation<'_>) -> Decision {
    let Some(handler) = handler else { return not_again(Stop::NoHandler, None) };
    let Some(matched) = handler.find(failure) else {
        return not_again(Stop::NoMatchingRule, Some(words::no_rule(handler)));
    };
    let rule = matched.rule;
    if situation.used >= allowed(rule) {
        return not_again(Stop::Exhausted, Some(words::exhausted(&matched, situation.used)));
    }
    let grown = growth::grow(rule, failure, situation);
    // A script may well change how much the job needs.
    if let Some(stuck) = grown.stuck.filter(|_| rule.recovery_script.is_none()) {
        return not_again(Stop::Pointless, Some(words::pointless(&matched, &stuck)));
    }
    if situation.budget.is_used_up() {
        return not_again(Stop::OverBudget, Some(words::over_budget(situation.budget)));
    }
    let delay = delay::delay(rule, situation.used, situation.dice);
    Decision::Retry(Box::new(Retry {
        rule: matched.number,
        delay,
        recovery: recovery(&matched, failure, situation.attempt),
        resources: grown.resources,
        words: words::retry(&matched, situation.used, delay, &grown.changes),
    }))
}

/// So many attempts, the first one included.
fn allowed(rule: &FailureRule) -> u32 {
    u32::try_from(rule.max_retries).unwrap_or(0)
}

fn recovery(matched: &Matched<'_>, failure: &Failure<'_>, failed: Attempt) -> Option<Recovery> {
    let script = matched.rule.recovery_script.clone()?;
    let limit = matched.rule.recovery_timeout();
    Some(Recovery { script, failed, return_code: failure.return_code, limit })
}

const fn not_again(why: Stop, words: Option<String>) -> Decision {
    Decision::Final(Final { why, words })
}
