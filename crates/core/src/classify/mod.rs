//! Classification of failures: transient, permanent, data, infrastructure, memory, timeout or unknown.
//!
//! The class is a label. It causes no retry by itself; rules of failure handlers may use it.
//!
//! The steps, in this order; the first match decides:
//!
//! 1. **Causes observed by Windlass** (out of memory, timeout, cannot be started, worker lost, stopped). Only
//!    rules that name the cause (`on`) apply then, regardless of the output.
//! 2. **Unambiguous signals** (`signals`): SIGXCPU, SIGILL; SIGKILL only if the memory was used up.
//! 3. **The most relevant line** (`stderr`): the *last* one that a rule matches, but none before the last
//!    Python exception, none about errors that were survived, and warnings only if nothing else matches. If
//!    several rules match a line, the first one. If the job itself was killed (SIGKILL, SIGTERM), only lines
//!    about memory, time and infrastructure count.
//! 4. **The exit code** (`exit_codes`): sysexits, 126 and 127 of the shell, and ambiguous signals as 128 + n.
//! 5. **The worker**: if it fails far more often than its peers, unknown failures become infrastructure
//!    failures, and so do failures that a broken machine can cause (`of_node`): missing programs, libraries and
//!    files.
//! 6. Otherwise unknown. A bare "error" is not classified: a wrong retry costs more than none.
//!
//! Rules of the user come first, all of them, in the same order; a rule with the name of a default replaces it.
//! The default rules are data: `rules.json`, each with examples that a test checks.

pub mod cms_exit_codes;
mod evidence;
mod rule_patterns;
mod rules;
#[cfg(test)]
mod tests;

pub use evidence::{FailureEvidence, NodeFailureCounts, ResourceLimit, TerminationCause};
pub use rules::{ClassificationRule, RuleError};

use crate::{log_excerpt, log_lines};
use rules::{RuleMatch, RuleSet};
use serde::Serialize;
use std::sync::LazyLock;
use windlass_types::{FailureClass, signal_name};

/// The class of a failure and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureClassification {
    pub class: FailureClass,
    /// The rule that matched; `None` if none did.
    pub rule: Option<String>,
    /// The line that the rule matched; without a match, the most relevant line.
    pub line: Option<String>,
    /// One sentence without a full stop.
    pub why: String,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOrigin {
    /// Written by the user.
    Own,
    Default,
}

/// Name of the rule for failures that only the worker's history explains.
pub const BAD_NODE: &str = "bad-node";

/// A compiled set of rules. Creation takes most of a millisecond, a classification takes microseconds.
#[derive(Debug)]
pub struct FailureClassifier {
    own: RuleSet,
    defaults: RuleSet,
}

static STANDARD_CLASSIFIER: LazyLock<FailureClassifier> =
    LazyLock::new(|| FailureClassifier::new(Vec::new()).expect("a test checks the built-in rules"));

impl FailureClassifier {
    /// Returns the built-in rules alone.
    pub fn standard() -> &'static Self {
        &STANDARD_CLASSIFIER
    }

    /// Creates a classifier with rules of the user before the built-in ones. A rule with the name of a default
    /// replaces it; if it has no condition, it inherits those of the default.
    pub fn new(mut own: Vec<ClassificationRule>) -> Result<Self, RuleError> {
        let mut defaults = default_rules();
        for rule in &mut own {
            if let Some(place) = defaults.iter().position(|default| default.name == rule.name) {
                inherit_defaults(rule, defaults.remove(place));
            }
        }
        let classifier = Self { own: RuleSet::new(own)?, defaults: RuleSet::from_checked(defaults) };
        classifier.check_examples()?;
        Ok(classifier)
    }

    /// Returns all rules in the order of evaluation.
    pub fn rules(&self) -> impl Iterator<Item = (&ClassificationRule, RuleOrigin)> {
        let own = self.own.rules.iter().map(|rule| (rule, RuleOrigin::Own));
        own.chain(self.defaults.rules.iter().map(|rule| (rule, RuleOrigin::Default)))
    }

    pub fn classify(&self, evidence: &FailureEvidence<'_>) -> FailureClassification {
        let lines = log_lines::relevant_lines(evidence.tail);
        let matched_rule = self
            .own
            .match_evidence(evidence, &lines)
            .or_else(|| self.defaults.match_evidence(evidence, &lines));
        let mut found = match matched_rule {
            Some(matched_rule) => matched_rule.into(),
            None => classify_unknown(evidence),
        };
        let may_be_node = matched_rule.is_none_or(|matched_rule| matched_rule.rule.of_node);
        if let Some(node) = evidence.node
            && may_be_node
            && !evidence.cause.is_certain()
            && node.is_suspicious()
        {
            found.class = FailureClass::Infrastructure;
            found.rule = Some(BAD_NODE.to_owned());
            found.why = format!("{}; but {}", found.why, node.describe_counts());
        }
        if found.line.is_none() && !evidence.cause.is_certain() {
            found.line = most_relevant_line(evidence.tail);
        }
        found
    }

    /// Returns the rule that a line matches by itself.
    pub(crate) fn rule_for_line(&self, line: &str) -> Option<&ClassificationRule> {
        self.own.rule_for_line(line).or_else(|| self.defaults.rule_for_line(line))
    }

    /// Returns words of which every line that [`Self::rule_for_line`] matches contains at least one, ignoring
    /// case. `None` if a rule is too complex to derive them.
    pub(crate) fn required_words(&self) -> Option<Vec<&str>> {
        Some(self.own.required_words()?.chain(self.defaults.required_words()?).collect())
    }

    /// Returns the rule for an exit code by itself.
    pub(crate) fn rule_for_exit_code(&self, code: i32) -> Option<&ClassificationRule> {
        self.rules().map(|(rule, _)| rule).find(|rule| rule.exit_codes.contains(&code))
    }

    fn check_examples(&self) -> Result<(), RuleError> {
        for rule in &self.own.rules {
            check_rule_examples(self, rule)?;
        }
        Ok(())
    }
}

/// Copies what the rule leaves out from the default that it replaces.
fn inherit_defaults(rule: &mut ClassificationRule, default: ClassificationRule) {
    if rule.means.is_empty() {
        rule.means = default.means;
    }
    if rule.has_no_conditions() {
        let ClassificationRule { on, signals, exit_codes, stderr, near, of_node, .. } = default;
        *rule = ClassificationRule { on, signals, exit_codes, stderr, near, of_node, ..rule.clone() };
    }
}

/// Checks that every example of a rule is matched by that rule.
fn check_rule_examples(classifier: &FailureClassifier, rule: &ClassificationRule) -> Result<(), RuleError> {
    for example in &rule.examples {
        let found = classifier.classify(&rule.example_evidence(example));
        if found.rule.as_ref() != Some(&rule.name) {
            let instead = match found.rule {
                Some(other) => format!("rule `{other}` matches it"),
                None => "no rule matches it".to_owned(),
            };
            return Err(RuleError::BadExample { rule: rule.name.clone(), example: example.clone(), instead });
        }
    }
    Ok(())
}

fn default_rules() -> Vec<ClassificationRule> {
    serde_json::from_str(include_str!("rules.json")).expect("a test checks the built-in rules")
}

impl From<RuleMatch<'_, '_>> for FailureClassification {
    fn from(RuleMatch { rule, line }: RuleMatch<'_, '_>) -> Self {
        let why =
            if rule.means.is_empty() { format!("rule `{}` matched", rule.name) } else { rule.means.clone() };
        Self { class: rule.class, rule: Some(rule.name.clone()), line: line.map(str::to_owned), why }
    }
}

fn classify_unknown(evidence: &FailureEvidence<'_>) -> FailureClassification {
    let ending = match evidence.effective_signal() {
        Some(signal) => signal_name(signal).unwrap_or_else(|| format!("signal {signal}")),
        None => format!("exit code {}", evidence.return_code),
    };
    FailureClassification {
        class: FailureClass::Unknown,
        rule: None,
        line: None,
        why: format!("no rule matches {ending} or the output"),
    }
}

/// Returns the line that looks most like the cause, without regard to rules; else the last line.
fn most_relevant_line(tail: &str) -> Option<String> {
    let tail = log_lines::log_tail(tail, false);
    let best = log_excerpt::excerpt_lines(tail, 1).pop().map(|finding| finding.text);
    best.or_else(|| {
        let mut lines =
            tail.split(['\n', '\r']).map(log_lines::strip_formatting).filter(|line| !line.is_empty());
        lines.next_back().map(|line| log_excerpt::truncate_line(&line))
    })
}
