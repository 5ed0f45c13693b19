//! Selection of the matching rule. Rules that list the exit code come first, then rules with another condition,
//! then rules for all failures; among equals the order in which they are written. So a general rule never hides
//! a specific one.

use super::FailedAttemptFacts;
use regex::{Regex, RegexBuilder};
use windlass_types::Signal;
use windlass_types::settings::{FailureHandler, FailureRule, StderrPattern};
use windlass_types::worker_messages::ProcessExit;

/// Maximum memory of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 22;

/// A [`FailureHandler`] with compiled rules.
#[derive(Clone, Debug)]
pub struct CompiledHandler {
    name: String,
    rules: Vec<CompiledRule>,
}

#[derive(Clone, Debug)]
struct CompiledRule {
    rule: FailureRule,
    /// In the order of `rule.stderr`.
    patterns: Vec<Regex>,
}

/// An invalid rule.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("rule {rule} of failure handler `{handler}`: `{pattern}` is not a regular expression: {reason}")]
pub struct HandlerRuleError {
    pub handler: String,
    /// From 1.
    pub rule: usize,
    pub pattern: String,
    pub reason: String,
}

/// The matching rule.
pub(super) struct MatchedRule<'h> {
    pub(super) handler: &'h str,
    /// From 1.
    pub(super) number: usize,
    pub(super) rule: &'h FailureRule,
    /// The matching conditions in words.
    pub(super) reason: String,
}

/// How specific a rule is for the failure; the first is the most specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RuleSpecificity {
    Code,
    Condition,
    Anything,
}

impl CompiledHandler {
    pub fn compile(handler: &FailureHandler) -> Result<Self, HandlerRuleError> {
        let compile = |(number, rule): (usize, &FailureRule)| {
            let patterns = rule.stderr.iter().map(|text| {
                compile_pattern(text).map_err(|why| HandlerRuleError {
                    handler: handler.name.clone(),
                    rule: number,
                    pattern: text.clone(),
                    reason: why,
                })
            });
            Ok(CompiledRule { rule: rule.clone(), patterns: patterns.collect::<Result<_, _>>()? })
        };
        let rules = (1..).zip(&handler.rules).map(compile).collect::<Result<_, _>>()?;
        Ok(Self { name: handler.name.clone(), rules })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rule that matches this failure.
    pub(super) fn match_failure(&self, failure: &FailedAttemptFacts<'_>) -> Option<MatchedRule<'_>> {
        let specificity = |(number, rule)| Some((rule_specificity(rule, failure)?, number, rule));
        let (_, number, rule) =
            (1..).zip(&self.rules).filter_map(specificity).min_by_key(|(specificity, ..)| *specificity)?;
        Some(MatchedRule {
            handler: &self.name,
            number,
            rule: &rule.rule,
            reason: describe_match(rule, failure),
        })
    }
}

fn compile_pattern(text: &str) -> Result<Regex, String> {
    let mut builder = match StderrPattern::parse(text) {
        StderrPattern::Words(words) => {
            let mut builder = RegexBuilder::new(&regex::escape(words));
            builder.case_insensitive(true);
            builder
        }
        StderrPattern::Regex(regex) => {
            let mut builder = RegexBuilder::new(regex);
            builder.multi_line(true);
            builder
        }
    };
    builder.size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build().map_err(|error| {
        // The last line has the message; the others show the position in the pattern.
        let text = error.to_string();
        text.lines().last().unwrap_or_default().trim_start_matches("error:").trim().to_owned()
    })
}

/// Returns how specific the rule is; `None` if it does not match this failure.
fn rule_specificity(rule: &CompiledRule, failure: &FailedAttemptFacts<'_>) -> Option<RuleSpecificity> {
    let FailureRule { exit_codes, match_all_exit_codes, signals, on, classes, .. } = &rule.rule;
    let lists_code = exit_codes.contains(&failure.return_code);
    let is_for_code = lists_code || *match_all_exit_codes || exit_codes.is_empty();
    let speaks = is_for_code
        && (signals.is_empty() || matching_signal(signals, failure).is_some())
        && (on.is_empty() || failure.cause.is_some_and(|cause| on.contains(&cause)))
        && (classes.is_empty() || classes.contains(&failure.class))
        && (rule.patterns.is_empty() || matching_pattern(rule, failure).is_some());
    match () {
        () if !speaks || rule.rule.has_no_conditions() => None,
        () if lists_code => Some(RuleSpecificity::Code),
        () if rule.rule.has_conditions_beyond_codes() => Some(RuleSpecificity::Condition),
        () => Some(RuleSpecificity::Anything),
    }
}

/// Returns the signal of the rule that ended the job. A shell reports a signal of its command as 128 + number.
fn matching_signal(signals: &[Signal], failure: &FailedAttemptFacts<'_>) -> Option<Signal> {
    let number = match failure.exit {
        Some(ProcessExit::Signal(number)) => number,
        Some(ProcessExit::Code(code)) => code - 128,
        None => failure.return_code - 128,
    };
    signals.iter().copied().find(|signal| signal.number() == number)
}

/// Returns the pattern of the rule, as written, that matches the end of the output.
fn matching_pattern<'r>(rule: &'r CompiledRule, failure: &FailedAttemptFacts<'_>) -> Option<&'r str> {
    let found = rule.patterns.iter().position(|pattern| pattern.is_match(failure.stderr_tail))?;
    Some(&rule.rule.stderr[found])
}

/// Describes each condition of the rule and how it matched.
fn describe_match(rule: &CompiledRule, failure: &FailedAttemptFacts<'_>) -> String {
    let FailureRule { exit_codes, match_all_exit_codes, on, classes, .. } = &rule.rule;
    let names_codes = !exit_codes.is_empty() || *match_all_exit_codes;
    let parts = [
        names_codes.then(|| format!("exit code {}", failure.return_code)),
        matching_signal(&rule.rule.signals, failure).map(|signal| signal.to_string()),
        failure.cause.filter(|_| !on.is_empty()).map(|cause| cause.as_str().replace('_', " ")),
        (!classes.is_empty()).then(|| format!("class {}", failure.class)),
        matching_pattern(rule, failure).map(|pattern| format!("`{pattern}` in its stderr")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
