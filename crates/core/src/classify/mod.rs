//! Of what sort a failure is: transient, permanent, data, infrastructure, memory, timeout, or nothing that is known.
//!
//! The class is a label. It retries nothing by itself; rules of failure handlers may name it.
//!
//! What is asked, in this order; the first answer holds:
//!
//! 1. **Causes that Windlass saw itself** (out of memory, time over, cannot be started, worker lost, stopped). Only
//!    rules that name the cause (`on`) speak then, whatever the program said last.
//! 2. **Signals that say it all** (`signals`): SIGXCPU, SIGILL; SIGKILL just when the memory was used up.
//! 3. **The most telling line** (`stderr`): of several that a rule knows the *last* one, but nothing from before the
//!    last Python exception, nothing about trouble that was survived, and warnings only if nothing else speaks. Of
//!    several rules that know one line, the first. If the job was itself killed (SIGKILL, SIGTERM), only lines about
//!    memory, time and infrastructure count.
//! 4. **How it ended** (`exit_codes`): sysexits, the shell's 126 and 127, and signals that say little, as 128 + n.
//! 5. **The worker**: one that fails far more than its peers makes an unknown failure one of the infrastructure; also
//!    one of those that a broken machine causes (`of_node`): programs, libraries and files that are not there.
//! 6. Otherwise nothing is known. A bare "error" classifies nothing: a wrong retry costs more than none.
//!
//! Users' own rules are asked first, all of them, in the same order; one that has the name of a default replaces it.
//! The default rules are data: `rules.json`, each with examples that a test holds it to.

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

/// What a failure is taken for, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureClassification {
    pub class: FailureClass,
    /// The rule that spoke; `None` where none did.
    pub rule: Option<String>,
    /// The most telling line; where no rule knows one, the one that looks most like the reason.
    pub line: Option<String>,
    /// One sentence, without its full stop.
    pub why: String,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOrigin {
    /// Of the user.
    Own,
    Default,
}

/// What speaks where only the worker's record does.
pub const BAD_NODE: &str = "bad-node";

/// Rules, ready to be asked. Making one takes a good part of a millisecond; asking it, microseconds.
#[derive(Debug)]
pub struct FailureClassifier {
    own: RuleSet,
    defaults: RuleSet,
}

static STANDARD_CLASSIFIER: LazyLock<FailureClassifier> = LazyLock::new(|| {
    FailureClassifier::new(Vec::new()).expect("a test has read the rules that are built in")
});

impl FailureClassifier {
    /// The rules that are built in, and no others.
    pub fn standard() -> &'static Self {
        &STANDARD_CLASSIFIER
    }

    /// With rules of the user before those that are built in. A rule with the name of a default replaces it; if it names
    /// no condition, those of the default hold on.
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

    /// All rules in the order in which they are asked.
    pub fn rules(&self) -> impl Iterator<Item = (&ClassificationRule, RuleOrigin)> {
        let own = self.own.rules.iter().map(|rule| (rule, RuleOrigin::Own));
        own.chain(self.defaults.rules.iter().map(|rule| (rule, RuleOrigin::Default)))
    }

    pub fn classify(&self, evidence: &FailureEvidence<'_>) -> FailureClassification {
        let lines = log_lines::relevant_lines(evidence.tail);
        let spoken = self
            .own
            .match_evidence(evidence, &lines)
            .or_else(|| self.defaults.match_evidence(evidence, &lines));
        let mut found = match spoken {
            Some(spoken) => spoken.into(),
            None => classify_unknown(evidence),
        };
        let may_be_node = spoken.is_none_or(|spoken| spoken.rule.of_node);
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

    /// What a line by itself is a sign of.
    pub(crate) fn rule_for_line(&self, line: &str) -> Option<&ClassificationRule> {
        self.own.rule_for_line(line).or_else(|| self.defaults.rule_for_line(line))
    }

    /// Words of which every line that [`Self::about`] knows contains at least one, in upper or lower case. `None` where a
    /// rule is too intricate for that to be known.
    pub(crate) fn required_words(&self) -> Option<Vec<&str>> {
        Some(self.own.required_words()?.chain(self.defaults.required_words()?).collect())
    }

    /// What an exit code by itself means.
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

/// Takes from the default that it replaces what the rule does not say itself.
fn inherit_defaults(rule: &mut ClassificationRule, default: ClassificationRule) {
    if rule.means.is_empty() {
        rule.means = default.means;
    }
    if rule.has_no_conditions() {
        let ClassificationRule { on, signals, exit_codes, stderr, near, of_node, .. } = default;
        *rule = ClassificationRule { on, signals, exit_codes, stderr, near, of_node, ..rule.clone() };
    }
}

/// Every example of a rule is spoken about by that very rule.
fn check_rule_examples(classifier: &FailureClassifier, rule: &ClassificationRule) -> Result<(), RuleError> {
    for example in &rule.examples {
        let found = classifier.classify(&rule.example_evidence(example));
        if found.rule.as_ref() != Some(&rule.name) {
            let instead = match found.rule {
                Some(other) => format!("rule `{other}` does"),
                None => "none does".to_owned(),
            };
            return Err(RuleError::BadExample { rule: rule.name.clone(), example: example.clone(), instead });
        }
    }
    Ok(())
}

fn default_rules() -> Vec<ClassificationRule> {
    serde_json::from_str(include_str!("rules.json")).expect("a test has read the rules that are built in")
}

impl From<RuleMatch<'_, '_>> for FailureClassification {
    fn from(RuleMatch { rule, line }: RuleMatch<'_, '_>) -> Self {
        let why =
            if rule.means.is_empty() { format!("rule `{}` says so", rule.name) } else { rule.means.clone() };
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
        why: format!("no rule knows {ending} or what it said last"),
    }
}

/// The line that looks most like the reason, also to somebody who knows no rule; else the last one.
fn most_relevant_line(tail: &str) -> Option<String> {
    let tail = log_lines::log_tail(tail, false);
    let best = log_excerpt::excerpt_lines(tail, 1).pop().map(|finding| finding.text);
    best.or_else(|| {
        let mut lines =
            tail.split(['\n', '\r']).map(log_lines::strip_formatting).filter(|line| !line.is_empty());
        lines.next_back().map(|line| log_excerpt::truncate_line(&line))
    })
}
