//! Messages about retries in the result of a failed attempt.

use super::rule_matching::MatchedRule;
use super::{CompiledHandler, RetryBudgetUsage, max_attempts};
use std::time::Duration;
use windlass_types::format_duration;

pub(super) fn retry_message(
    matched: &MatchedRule<'_>,
    used: u32,
    delay: Duration,
    changes: &[String],
) -> String {
    let when = if delay.is_zero() { String::new() } else { format!(" in {}", format_duration(delay)) };
    let (next, of) = (used.saturating_add(1), max_attempts(matched.rule));
    let mut words = format!("attempt {next} of {of}{when} by {}", matched_rule_text(matched));
    let script = matched.rule.recovery_script.is_some().then(|| "after its recovery script".to_owned());
    let more: Vec<_> = changes.iter().cloned().chain(script).collect();
    if !more.is_empty() {
        words = format!("{words}: {}", more.join(", "));
    }
    words
}

pub(super) fn no_rule_message(handler: &CompiledHandler) -> String {
    format!("no rule of handler {} matches", handler.name())
}

pub(super) fn exhausted_message(matched: &MatchedRule<'_>, used: u32) -> String {
    let of = max_attempts(matched.rule);
    match of {
        0 | 1 => format!("not retried by {}", matched_rule_text(matched)),
        _ => format!("not retried after {used} of {of} attempts by {}", matched_rule_text(matched)),
    }
}

pub(super) fn pointless_message(matched: &MatchedRule<'_>, stuck: &str) -> String {
    format!("not retried by {}: {stuck}", matched_rule_text(matched))
}

pub(super) fn over_budget_message(budget: RetryBudgetUsage) -> String {
    format!("not retried: the workflow's retry budget of {} is used up", budget.limit)
}

/// `rule 1 of handler net (exit code 75)`.
fn matched_rule_text(matched: &MatchedRule<'_>) -> String {
    format!("rule {} of handler {} ({})", matched.number, matched.handler, matched.reason)
}
