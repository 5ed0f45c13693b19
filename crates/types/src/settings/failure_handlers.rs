//! Failure handlers, their rules, and the retry budget of a workflow.
//!
//! Stored in the database as JSON and sent in that form to Torc's clients, which know four fields of a rule:
//! `exit_codes`, `match_all_exit_codes`, `recovery_script` and `max_retries`. The other fields are Windlass
//! only and are written only if set. Applied by `windlass_core::failure_handlers`.

use super::is_false;
use crate::amount::written;
use crate::worker_messages::AttemptEndCause;
use crate::{Bytes, FailureClass, Ratio, ResourceGrowth, Signal};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A named list of rules for the failures of the jobs that refer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureHandler {
    pub name: String,
    pub rules: Vec<FailureRule>,
}

/// A rule. It matches a failure if each type of condition that it has matches; one matching entry of a type is
/// enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureRule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    #[serde(skip_serializing_if = "is_false")]
    pub match_all_exit_codes: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Signal>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<FailureCause>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<FailureClass>,
    /// Substrings or `re:…` patterns; see [`StderrPattern`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_script: Option<String>,
    #[serde(with = "written::duration", skip_serializing_if = "Option::is_none")]
    pub recovery_timeout: Option<Duration>,
    /// Limit of attempts: 3 means at most three executions.
    pub max_retries: i32,

    #[serde(with = "written::duration", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Factor of the delay for each further attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Ratio>,
    #[serde(with = "written::duration", skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Duration>,
    /// Fraction of the delay by which it varies randomly in both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Ratio>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ResourceGrowth<Bytes>>,
    #[serde(with = "written::size", skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<ResourceGrowth<Duration>>,
    #[serde(with = "written::duration", skip_serializing_if = "Option::is_none")]
    pub max_runtime: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<ResourceGrowth<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpus: Option<u32>,
}

impl FailureRule {
    /// The field names.
    pub const FIELDS: [&str; 19] = [
        "exit_codes",
        "match_all_exit_codes",
        "signals",
        "on",
        "classes",
        "stderr",
        "recovery_script",
        "recovery_timeout",
        "max_retries",
        "delay",
        "backoff",
        "max_delay",
        "jitter",
        "memory",
        "max_memory",
        "runtime",
        "max_runtime",
        "cpus",
        "max_cpus",
    ];
}

impl Default for FailureRule {
    fn default() -> Self {
        Self {
            exit_codes: Vec::new(),
            match_all_exit_codes: false,
            signals: Vec::new(),
            on: Vec::new(),
            classes: Vec::new(),
            stderr: Vec::new(),
            recovery_script: None,
            recovery_timeout: None,
            max_retries: 3,
            delay: None,
            backoff: None,
            max_delay: None,
            jitter: None,
            memory: None,
            max_memory: None,
            runtime: None,
            max_runtime: None,
            cpus: None,
            max_cpus: None,
        }
    }
}

impl FailureRule {
    /// Default timeout of a recovery script.
    pub const RECOVERY_TIMEOUT: Duration = Duration::from_mins(10);
    /// Default limit of delays that grow by `backoff`.
    pub const MAX_DELAY: Duration = Duration::from_hours(24);

    /// Whether the rule has conditions besides exit codes.
    pub fn has_conditions_beyond_codes(&self) -> bool {
        !(self.signals.is_empty() && self.on.is_empty() && self.classes.is_empty() && self.stderr.is_empty())
    }

    /// Whether the rule has no conditions, so that it never matches.
    pub fn has_no_conditions(&self) -> bool {
        self.exit_codes.is_empty() && !self.match_all_exit_codes && !self.has_conditions_beyond_codes()
    }

    pub fn recovery_timeout(&self) -> Duration {
        self.recovery_timeout.unwrap_or(Self::RECOVERY_TIMEOUT)
    }

    /// The longest delay of this rule.
    pub fn max_delay(&self) -> Duration {
        self.max_delay.unwrap_or_else(|| Self::MAX_DELAY.max(self.delay.unwrap_or_default()))
    }
}

/// The cause of a failure, where it is known for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    OutOfMemory,
    Timeout,
    MissingOutput,
    CannotStart,
}

impl FailureCause {
    pub const ALL: [Self; 4] = [Self::OutOfMemory, Self::Timeout, Self::MissingOutput, Self::CannotStart];

    pub const fn from_end_cause(cause: &AttemptEndCause) -> Option<Self> {
        match cause {
            AttemptEndCause::OutOfMemory => Some(Self::OutOfMemory),
            AttemptEndCause::Timeout => Some(Self::Timeout),
            AttemptEndCause::MissingOutputs(_) => Some(Self::MissingOutput),
            AttemptEndCause::CannotStart(_) => Some(Self::CannotStart),
            AttemptEndCause::Itself | AttemptEndCause::Stopped(_) => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out_of_memory",
            Self::Timeout => "timeout",
            Self::MissingOutput => "missing_output",
            Self::CannotStart => "cannot_start",
        }
    }
}

/// A pattern to search for in the end of standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StderrPattern<'a> {
    /// Substring, case-insensitive.
    Words(&'a str),
    /// `re:…`; `^` and `$` match at line ends.
    Regex(&'a str),
}

impl<'a> StderrPattern<'a> {
    pub fn parse(text: &'a str) -> Self {
        match text.strip_prefix("re:") {
            Some(regex) => Self::Regex(regex),
            None => Self::Words(text),
        }
    }
}

/// The retry budget: how many retries failure handlers may grant in one run of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryBudget {
    Count(u32),
    /// A percentage of the jobs, such as `20%`.
    Share(Ratio),
}

impl RetryBudget {
    /// The default budget only stops retry storms: this many retries per job …
    pub const DEFAULT_RETRIES_PER_JOB: u64 = 2;
    /// … and at least this many in all.
    pub const DEFAULT_MIN_RETRIES: u64 = 1000;

    /// The number of retries in a workflow with this many jobs.
    pub fn max_retries(budget: Option<Self>, jobs: u64) -> u64 {
        match budget {
            None => jobs.saturating_mul(Self::DEFAULT_RETRIES_PER_JOB).max(Self::DEFAULT_MIN_RETRIES),
            Some(Self::Count(count)) => u64::from(count),
            Some(Self::Share(share)) => share.scale(jobs),
        }
    }
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "invalid retry budget `{0}`; write a number of retries, for example 100, or a share of the jobs: \"20%\""
)]
pub struct ParseBudgetError(pub String);

impl FromStr for RetryBudget {
    type Err = ParseBudgetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseBudgetError(text.to_owned());
        let trimmed = text.trim();
        if trimmed.ends_with('%') {
            return Ratio::from_percent(trimmed).map(Self::Share).map_err(|_| bad());
        }
        trimmed.parse().map(Self::Count).map_err(|_| bad())
    }
}

impl fmt::Display for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Share(share) => f.write_str(&share.to_percent()),
        }
    }
}

/// A number, or a text with a percent sign, as in a spec.
impl Serialize for RetryBudget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Share(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for RetryBudget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum WrittenBudget {
            Count(u32),
            Text(String),
        }
        match WrittenBudget::deserialize(deserializer)? {
            WrittenBudget::Count(count) => Ok(Self::Count(count)),
            WrittenBudget::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(json: serde_json::Value) -> FailureRule {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn torc_rule_is_read_and_written_unchanged() {
        let old = json!({"exit_codes": [10, 11], "match_all_exit_codes": true, "recovery_script": "x", "max_retries": 2});
        assert_eq!(serde_json::to_value(rule(old.clone())).unwrap(), old);
        assert_eq!(rule(json!({})).max_retries, 3);
        assert_eq!(
            serde_json::to_value(rule(json!({"exit_codes": [1]}))).unwrap(),
            json!({"exit_codes": [1], "max_retries": 3})
        );
        assert_eq!(rule(json!({"recovery_script": null, "delay": null})), FailureRule::default());
    }

    #[test]
    fn rule_with_all_fields_round_trips() {
        let full = json!({
            "exit_codes": [75], "match_all_exit_codes": true, "signals": ["SIGKILL", "SIGSEGV"],
            "on": ["out_of_memory", "timeout", "missing_output", "cannot_start"], "classes": ["transient"],
            "stderr": ["Connection refused", "re:^NCCL"], "recovery_script": "fix", "recovery_timeout": "PT1M",
            "max_retries": 5, "delay": "PT10S", "backoff": 2.0, "max_delay": "PT10M", "jitter": 0.2,
            "memory": "x1.5", "max_memory": "8g", "runtime": "+30%", "max_runtime": "PT2H", "cpus": "+1", "max_cpus": 8,
        });
        let read = rule(full.clone());
        assert_eq!(serde_json::to_value(&read).unwrap(), full);
        assert_eq!((read.delay, read.max_memory), (Some(Duration::from_secs(10)), Some(Bytes(8 << 30))));
        let in_numbers = rule(json!({"delay": 10, "max_memory": 1024, "signals": [9]}));
        assert_eq!(in_numbers.delay, Some(Duration::from_secs(10)));
        assert_eq!(
            (in_numbers.max_memory, in_numbers.signals),
            (Some(Bytes(1024)), vec![Signal::new(9).unwrap()])
        );
        for bad in [
            json!({"memory": "x0.5"}),
            json!({"delay": "soon"}),
            json!({"classes": ["odd"]}),
            json!({"signals": [99]}),
        ] {
            assert!(serde_json::from_value::<FailureRule>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn retry_budgets_are_parsed_and_computed() {
        for (json, limit) in
            [(json!(100), 100), (json!("100"), 100), (json!("20%"), 2), (json!("0.1%"), 1), (json!("0%"), 0)]
        {
            let budget: RetryBudget = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(RetryBudget::max_retries(Some(budget), 7), limit, "{json}");
        }
        assert_eq!(serde_json::to_value(RetryBudget::Count(3)).unwrap(), json!(3));
        let share: RetryBudget = "12.5 %".parse().unwrap();
        assert_eq!(serde_json::to_value(share).unwrap(), json!("12.5%"));
        assert_eq!(
            (RetryBudget::max_retries(None, 7), RetryBudget::max_retries(None, 10_000)),
            (1000, 20_000)
        );
        for bad in ["", "%", "many", "-1", "1.5", "x%"] {
            assert!(bad.parse::<RetryBudget>().is_err(), "{bad}");
        }
    }

    #[test]
    fn cause_names_and_json_agree() {
        for cause in FailureCause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), json!(cause.as_str()));
        }
    }
}
