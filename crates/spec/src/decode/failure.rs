//! What the fields of a rule of a failure handler mean together.

use super::Decoder;
use super::object::Object;
use crate::diagnostic::Diagnostic;
use crate::event::Events;
use crate::source::Span;
use windlass_types::settings::{FailureHandler, FailureRule};
use windlass_types::write_duration;

/// Fields that shape something which another field begins: the field, what it needs, and how that may look.
const SHAPES: [(&str, &str, &str); 3] =
    [("backoff", "delay", "10s"), ("max_delay", "delay", "10s"), ("jitter", "delay", "10s")];

/// Fields that limit something which another field begins. Without that they do nothing, and no harm.
const LIMITS: [(&str, &str); 4] = [
    ("recovery_timeout", "recovery_script"),
    ("max_memory", "memory"),
    ("max_runtime", "runtime"),
    ("max_cpus", "cpus"),
];

/// Fields that say what happens before the next attempt.
const BEFORE_THE_NEXT: [&str; 5] = ["recovery_script", "delay", "memory", "runtime", "cpus"];

impl<'s, E: Events<'s>> Decoder<'s, E> {
    pub(super) fn check_failure_rule(&mut self, rule: &FailureRule, object: &Object) {
        if rule.names_nothing() {
            self.sink.push(
                Diagnostic::new("empty-rule", "this rule is for no failure, because it names none")
                    .at(object.span())
                    .help(
                        "give it `exit_codes`, `signals`, `on`, `classes` or `stderr`, or `match_all_exit_codes: true`",
                    ),
            );
        }
        self.check_delay(rule, object);
        self.look_over_attempts(rule, object);
        for (field, begins) in LIMITS {
            if let (Some(span), None) = (object.place_of(field), object.place_of(begins)) {
                let message = format!("`{field}` has no effect: this rule has no `{begins}`");
                self.warnings.push(Diagnostic::new("useless-field", message).at(span));
            }
        }
    }

    fn check_delay(&mut self, rule: &FailureRule, object: &Object) {
        for (field, needs, example) in SHAPES {
            if let (Some(span), None) = (object.place_of(field), object.place_of(needs)) {
                self.sink.push(
                    Diagnostic::new("incomplete-rule", format!("`{field}` needs a `{needs}`"))
                        .at(span)
                        .help(format!("add one, for example `{needs}: {example}`, or remove it")),
                );
            }
        }
        if let (Some(delay), Some(most)) = (rule.delay, rule.max_delay)
            && most < delay
        {
            let (delay, most) = (write_duration(delay), write_duration(most));
            let message = format!("`max_delay` is {most}, and the first delay is {delay} already");
            let place = |field| object.place_of(field).unwrap_or(object.span());
            self.sink.push(
                Diagnostic::new("contradiction", message)
                    .at(place("max_delay"))
                    .label(place("delay"), "the first delay")
                    .help("raise `max_delay`, or lower `delay`"),
            );
        }
    }

    /// `max_retries` counts attempts, as Torc has it, which is easily taken for something else.
    fn look_over_attempts(&mut self, rule: &FailureRule, object: &Object) {
        let Some(span) = object.place_of("max_retries").filter(|_| rule.max_retries <= 1) else { return };
        if rule.max_retries < 1 {
            self.warnings.push(
                Diagnostic::new(
                    "no-retry",
                    "`max_retries` counts attempts, and the first one is always made",
                )
                .at(span)
                .help("write 1 if such a failure is final, 2 or more if the job is to be tried again"),
            );
        }
        if let Some((field, place)) =
            BEFORE_THE_NEXT.iter().find_map(|field| Some((field, object.place_of(field)?)))
        {
            let message = format!(
                "`{field}` has no effect: `max_retries: {}` allows no second attempt",
                rule.max_retries
            );
            self.warnings.push(
                Diagnostic::new("useless-field", message)
                    .at(place)
                    .label(span, "counts the first attempt too")
                    .help("raise `max_retries` to 2 or more"),
            );
        }
    }

    /// Handlers that never do anything, and rules that another one always comes before.
    pub(super) fn look_over_handlers(&mut self, handlers: &[(FailureHandler, Span)]) {
        for (handler, span) in handlers {
            if handler.rules.is_empty() {
                let message = format!("`{}` has no rules", handler.name);
                let help = "give it a rule with `exit_codes`, or with `match_all_exit_codes: true`";
                self.warnings.push(Diagnostic::new("useless-rule", message).at(*span).help(help));
            }
            let is_for_all = |rule: &FailureRule| rule.match_all_exit_codes && !rule.names_more_than_codes();
            let mut for_all = (1..).zip(&handler.rules).filter(|(_, rule)| is_for_all(rule));
            let (Some((first, _)), Some((second, _))) =
                (for_all.next(), for_all.find(|(_, rule)| rule.exit_codes.is_empty()))
            else {
                continue;
            };
            let message = format!(
                "rule {second} of `{}` is never used: rule {first} is for every failure, too",
                handler.name
            );
            self.warnings.push(Diagnostic::new("useless-rule", message).at(*span).help("remove one of them"));
        }
    }
}
