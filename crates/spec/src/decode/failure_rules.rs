//! Checks combinations of fields in a rule of a failure handler.

use super::SpecDecoder;
use super::object::DecodedObject;
use crate::diagnostic::SpecDiagnostic;
use crate::event::DocumentEventStream;
use crate::source::SourceSpan;
use windlass_types::format_iso_duration;
use windlass_types::settings::{FailureHandler, FailureRule};

/// Fields that modify another field: the field, the field it needs, and an example of that.
const DELAY_MODIFIERS: [(&str, &str, &str); 3] =
    [("backoff", "delay", "10s"), ("max_delay", "delay", "10s"), ("jitter", "delay", "10s")];

/// Fields that limit another field. Alone they have no effect and do no harm.
const LIMIT_FIELDS: [(&str, &str); 4] = [
    ("recovery_timeout", "recovery_script"),
    ("max_memory", "memory"),
    ("max_runtime", "runtime"),
    ("max_cpus", "cpus"),
];

/// Fields that define what happens before the next attempt.
const RETRY_PREPARATION_FIELDS: [&str; 5] = ["recovery_script", "delay", "memory", "runtime", "cpus"];

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    pub(super) fn check_failure_rule(&mut self, rule: &FailureRule, object: &DecodedObject) {
        if rule.has_no_conditions() {
            self.sink.push(
                SpecDiagnostic::new("empty-rule", "this rule matches no failure: it has no condition")
                    .with_span(object.span())
                    .with_help(
                        "add `exit_codes`, `signals`, `on`, `classes` or `stderr`, or `match_all_exit_codes: true`",
                    ),
            );
        }
        self.check_delay(rule, object);
        self.warn_about_max_retries(rule, object);
        for (field, begins) in LIMIT_FIELDS {
            if let (Some(span), None) = (object.key_span(field), object.key_span(begins)) {
                let message = format!("`{field}` has no effect: this rule has no `{begins}`");
                self.warnings.push(SpecDiagnostic::new("useless-field", message).with_span(span));
            }
        }
    }

    fn check_delay(&mut self, rule: &FailureRule, object: &DecodedObject) {
        for (field, needs, example) in DELAY_MODIFIERS {
            if let (Some(span), None) = (object.key_span(field), object.key_span(needs)) {
                self.sink.push(
                    SpecDiagnostic::new("incomplete-rule", format!("`{field}` needs a `{needs}`"))
                        .with_span(span)
                        .with_help(format!("add one, for example `{needs}: {example}`, or remove it")),
                );
            }
        }
        if let (Some(delay), Some(most)) = (rule.delay, rule.max_delay)
            && most < delay
        {
            let (delay, most) = (format_iso_duration(delay), format_iso_duration(most));
            let message = format!("`max_delay` is {most}, but the first delay is already {delay}");
            let place = |field| object.key_span(field).unwrap_or(object.span());
            self.sink.push(
                SpecDiagnostic::new("contradiction", message)
                    .with_span(place("max_delay"))
                    .with_label(place("delay"), "the first delay")
                    .with_help("raise `max_delay`, or lower `delay`"),
            );
        }
    }

    /// Checks `max_retries`, which counts attempts (as in Torc) and is easily misread.
    fn warn_about_max_retries(&mut self, rule: &FailureRule, object: &DecodedObject) {
        let Some(span) = object.key_span("max_retries").filter(|_| rule.max_retries <= 1) else { return };
        if rule.max_retries < 1 {
            self.warnings.push(
                SpecDiagnostic::new("no-retry", "`max_retries` counts attempts, including the first one")
                    .with_span(span)
                    .with_help("write 1 to make such a failure final, 2 or more to retry the job"),
            );
        }
        if let Some((field, place)) =
            RETRY_PREPARATION_FIELDS.iter().find_map(|field| Some((field, object.key_span(field)?)))
        {
            let message = format!(
                "`{field}` has no effect: `max_retries: {}` allows no second attempt",
                rule.max_retries
            );
            self.warnings.push(
                SpecDiagnostic::new("useless-field", message)
                    .with_span(place)
                    .with_label(span, "includes the first attempt")
                    .with_help("raise `max_retries` to 2 or more"),
            );
        }
    }

    /// Reports handlers without effect and rules that an earlier rule always overrides.
    pub(super) fn warn_about_handlers(&mut self, handlers: &[(FailureHandler, SourceSpan)]) {
        for (handler, span) in handlers {
            if handler.rules.is_empty() {
                let message = format!("`{}` has no rules", handler.name);
                let help = "give it a rule with `exit_codes`, or with `match_all_exit_codes: true`";
                self.warnings
                    .push(SpecDiagnostic::new("useless-rule", message).with_span(*span).with_help(help));
            }
            let is_for_all =
                |rule: &FailureRule| rule.match_all_exit_codes && !rule.has_conditions_beyond_codes();
            let mut for_all = (1..).zip(&handler.rules).filter(|(_, rule)| is_for_all(rule));
            let (Some((first, _)), Some((second, _))) =
                (for_all.next(), for_all.find(|(_, rule)| rule.exit_codes.is_empty()))
            else {
                continue;
            };
            let message = format!(
                "rule {second} of `{}` is never used: rule {first} also matches every failure",
                handler.name
            );
            self.warnings.push(
                SpecDiagnostic::new("useless-rule", message).with_span(*span).with_help("remove one of them"),
            );
        }
    }
}
