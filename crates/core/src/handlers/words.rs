//! What stands in the result of a failed attempt about what came of it.

use super::matching::Matched;
use super::{Budget, Handler, allowed};
use std::time::Duration;
use windlass_types::format_duration;

pub(super) fn retry(matched: &Matched<'_>, used: u32, delay: Duration, changes: &[String]) -> String {
    let when = if delay.is_zero() { String::new() } else { format!(" in {}", format_duration(delay)) };
    let (next, of) = (used.saturating_add(1), allowed(matched.rule));
    let mut words = format!("attempt {next} of {of}{when} by {}", spoken_by(matched));
    let script = matched.rule.recovery_script.is_some().then(|| "after its recovery script".to_owned());
    let more: Vec<_> = changes.iter().cloned().chain(script).collect();
    if !more.is_empty() {
        words = format!("{words}: {}", more.join(", "));
    }
    words
}

pub(super) fn no_rule(handler: &Handler) -> String {
    format!("no rule of handler {} is for it", handler.name())
}

pub(super) fn exhausted(matched: &Matched<'_>, used: u32) -> String {
    let of = allowed(matched.rule);
    match of {
        0 | 1 => format!("not tried again by {}", spoken_by(matched)),
        _ => format!("not tried again after {used} of {of} attempts by {}", spoken_by(matched)),
    }
}

pub(super) fn pointless(matched: &Matched<'_>, stuck: &str) -> String {
    format!("not tried again by {}: {stuck}", spoken_by(matched))
}

pub(super) fn over_budget(budget: Budget) -> String {
    format!("not tried again: the workflow's retry budget of {} is used up", budget.limit)
}

/// `rule 1 of handler net (exit code 75)`.
fn spoken_by(matched: &Matched<'_>) -> String {
    format!("rule {} of handler {} ({})", matched.number, matched.handler, matched.because)
}
