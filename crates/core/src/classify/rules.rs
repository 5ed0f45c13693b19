//! Rules as written in a file, and a compiled set of them.

use super::evidence::{FailureEvidence, ResourceLimit, TerminationCause};
use super::rule_patterns::RulePatterns;
use crate::word_matcher::WordMatcher;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use windlass_types::settings::StderrPattern;
use windlass_types::{Bytes, FailureClass, Resources, Signal};

/// One rule. It matches if each kind of condition that it names holds; one entry of each kind is sufficient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassificationRule {
    pub name: String,
    pub class: FailureClass,
    /// The meaning of a match, as part of a sentence.
    #[serde(default)]
    pub means: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<TerminationCause>,
    /// `SIGKILL`, `kill` or `9`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Signal>,
    /// 128 + n is signal n, for rules that apply only if no line matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// Words in one line, ignoring case, or `re:` and a regular expression.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
    /// The job had used nearly all of this requested resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<ResourceLimit>,
    /// The failure may be caused by the machine, if it failed other jobs too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub of_node: bool,
    /// Output that only this rule may match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// When a rule is evaluated, after the causes that Windlass observed itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleStage {
    /// An unambiguous signal.
    Signal,
    /// The most relevant line.
    Text,
    /// The exit code, if no line matches.
    Ending,
}

impl ClassificationRule {
    pub(super) fn has_no_conditions(&self) -> bool {
        self.on.is_empty() && self.signals.is_empty() && self.exit_codes.is_empty() && self.stderr.is_empty()
    }

    /// Builds a failure with this output that the rule matches.
    pub(super) fn example_evidence<'a>(&self, tail: &'a str) -> FailureEvidence<'a> {
        let asked =
            Resources { memory: Bytes(1 << 30), runtime: Some(Duration::from_mins(1)), ..Resources::DEFAULT };
        let is_near = |limit| self.near == Some(limit);
        FailureEvidence {
            signal: self.signals.first().map(|signal| signal.number()),
            cause: self.on.first().copied().unwrap_or(TerminationCause::Itself),
            wall: if is_near(ResourceLimit::Runtime) { Duration::from_mins(1) } else { Duration::ZERO },
            peak_memory: is_near(ResourceLimit::Memory).then_some(asked.memory),
            asked: Some(asked),
            ..FailureEvidence::from_exit(self.exit_codes.first().copied().unwrap_or(1), tail)
        }
    }

    fn stage(&self) -> RuleStage {
        match () {
            () if !self.signals.is_empty() => RuleStage::Signal,
            () if !self.stderr.is_empty() => RuleStage::Text,
            () => RuleStage::Ending,
        }
    }

    /// Whether all conditions hold, except those about lines.
    fn matches_evidence(&self, evidence: &FailureEvidence<'_>) -> bool {
        let signal = evidence.effective_signal();
        let is_signal = |named: &Signal| signal == Some(named.number());
        (self.on.is_empty() || self.on.contains(&evidence.cause))
            && (self.signals.is_empty() || self.signals.iter().any(is_signal))
            && (self.exit_codes.is_empty() || self.exit_codes.contains(&evidence.effective_code()))
            && self.near.is_none_or(|limit| evidence.is_near_limit(limit))
    }
}

/// An invalid rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("a rule has no name")]
    NoName,
    #[error("there are two rules `{0}`")]
    Duplicate(String),
    #[error("rule `{0}` has no condition: add one of stderr, exit_codes, signals, on")]
    NoCondition(String),
    #[error("rule `{0}` has an empty pattern, which matches every line")]
    Empty(String),
    #[error("rule `{rule}`: `{pattern}` is not a valid regular expression: {what}")]
    BadExpression { rule: String, pattern: String, what: String },
    #[error("rule `{rule}` does not match its own example `{example}`; {instead}")]
    BadExample { rule: String, example: String, instead: String },
}

/// A compiled list of rules in their order.
#[derive(Debug)]
pub(super) struct RuleSet {
    pub(super) rules: Vec<ClassificationRule>,
    words: WordMatcher,
    /// The rule of each word pattern.
    word_rules: Vec<usize>,
    expressions: RulePatterns,
    expression_rules: Vec<usize>,
}

/// A rule that matched, with the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleMatch<'r, 'l> {
    pub(super) rule: &'r ClassificationRule,
    pub(super) line: Option<&'l str>,
}

impl RuleSet {
    /// Checks and compiles rules of a user.
    pub(super) fn new(rules: Vec<ClassificationRule>) -> Result<Self, RuleError> {
        for (index, rule) in rules.iter().enumerate() {
            check_rule(rule)?;
            if rules[..index].iter().any(|other| other.name == rule.name) {
                return Err(RuleError::Duplicate(rule.name.clone()));
            }
        }
        Ok(Self::from_checked(rules))
    }

    /// Compiles rules without checking them. Checking takes several times as long, some programs run for a
    /// single failure, and a test checks the built-in rules.
    pub(super) fn from_checked(rules: Vec<ClassificationRule>) -> Self {
        let (mut words, mut word_rules) = (Vec::new(), Vec::new());
        let (mut expressions, mut expression_rules) = (Vec::new(), Vec::new());
        for (index, rule) in rules.iter().enumerate() {
            for pattern in &rule.stderr {
                match StderrPattern::parse(pattern) {
                    StderrPattern::Words(said) => {
                        words.push(said.to_owned());
                        word_rules.push(index);
                    }
                    StderrPattern::Regex(expression) => {
                        expressions.push(expression.to_owned());
                        expression_rules.push(index);
                    }
                }
            }
        }
        let (words, expressions) = (WordMatcher::new(words), RulePatterns::new(expressions));
        Self { rules, words, word_rules, expressions, expression_rules }
    }

    /// Returns the rules that match a line, in their order.
    fn rules_matching_line(&self, line: &str) -> Vec<usize> {
        let by_words = self.words.find_in(line).into_iter().map(|word| self.word_rules[word]);
        let by_expressions =
            self.expressions.matching_patterns(line).map(|index| self.expression_rules[index]);
        let mut rules: Vec<usize> = by_words.chain(by_expressions).collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    /// Returns words of which every line that a rule matches contains at least one, ignoring case.
    pub(super) fn required_words(&self) -> Option<impl Iterator<Item = &str>> {
        Some(self.words.all().chain(self.expressions.required_words()?))
    }

    /// Returns the first rule that matches a line, ignoring its other conditions.
    pub(super) fn rule_for_line(&self, line: &str) -> Option<&ClassificationRule> {
        let knows = |index: &usize| self.rules[*index].stage() == RuleStage::Text;
        self.rules_matching_line(line).into_iter().find(knows).map(|index| &self.rules[index])
    }

    /// Returns the rule that matches the evidence; `lines` are ordered by relevance.
    pub(super) fn match_evidence<'l>(
        &self,
        evidence: &FailureEvidence<'_>,
        lines: &'l [Cow<'_, str>],
    ) -> Option<RuleMatch<'_, 'l>> {
        let known: Vec<(&str, Vec<usize>)> = lines
            .iter()
            .map(|line| (&**line, self.rules_matching_line(line)))
            .filter(|(_, rules)| !rules.is_empty())
            .collect();
        if evidence.cause.is_certain() {
            return self.first_matching(evidence, &known, |rule| rule.on.contains(&evidence.cause));
        }
        let at = |stage| move |rule: &ClassificationRule| rule.stage() == stage;
        self.first_matching(evidence, &known, at(RuleStage::Signal))
            .or_else(|| self.match_line(evidence, &known))
            .or_else(|| self.first_matching(evidence, &known, at(RuleStage::Ending)))
    }

    /// Returns the first of these rules whose conditions hold.
    fn first_matching<'l>(
        &self,
        evidence: &FailureEvidence<'_>,
        known: &[(&'l str, Vec<usize>)],
        is_its_turn: impl Fn(&ClassificationRule) -> bool,
    ) -> Option<RuleMatch<'_, 'l>> {
        let turns = self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| is_its_turn(rule) && rule.matches_evidence(evidence));
        let mut rule_matches = turns.filter_map(|(index, rule)| {
            let line = known.iter().find(|(_, rules)| rules.contains(&index)).map(|(line, _)| *line);
            (rule.stderr.is_empty() || line.is_some()).then_some(RuleMatch { rule, line })
        });
        rule_matches.next()
    }

    /// Returns the rule for the most relevant line.
    fn match_line<'l>(
        &self,
        evidence: &FailureEvidence<'_>,
        known: &[(&'l str, Vec<usize>)],
    ) -> Option<RuleMatch<'_, 'l>> {
        known.iter().find_map(|(line, rules)| {
            let mut rules = rules.iter().map(|index| &self.rules[*index]);
            let rule = rules.find(|rule| {
                rule.stage() == RuleStage::Text
                    && rule.matches_evidence(evidence)
                    && evidence.can_be_due_to(rule.class)
            })?;
            Some(RuleMatch { rule, line: Some(line) })
        })
    }
}

fn check_rule(rule: &ClassificationRule) -> Result<(), RuleError> {
    if rule.name.trim().is_empty() {
        return Err(RuleError::NoName);
    }
    let name = || rule.name.clone();
    if rule.has_no_conditions() {
        return Err(RuleError::NoCondition(name()));
    }
    for pattern in &rule.stderr {
        let says_nothing = match StderrPattern::parse(pattern) {
            StderrPattern::Words(words) => words.trim().is_empty(),
            StderrPattern::Regex(expression) => {
                let bad = |error: regex::Error| RuleError::BadExpression {
                    rule: name(),
                    pattern: expression.to_owned(),
                    what: error.to_string(),
                };
                regex::bytes::Regex::new(expression).map_err(bad)?.is_match(b"")
            }
        };
        if says_nothing {
            return Err(RuleError::Empty(name()));
        }
    }
    Ok(())
}
