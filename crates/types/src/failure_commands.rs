//! What somebody wants done about jobs that have failed or wait, and what came of it.

use crate::{Attempt, Bytes, JobId, JobStatus, Resources};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Orders that are given together: each is carried out or refused by itself, and what is carried out is one commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureCommandBatch {
    /// Who gives them, if it is an agent: its name. A person is known by whoever asks in his name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Nothing is changed; the answer says what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Whoever gives them has looked up what is quoted as evidence, in more than the books have of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_looked_up: bool,
    pub orders: Vec<FailureCommand>,
}

/// What may be wanted of whoever has the workflow in hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriageCommand {
    Orders(FailureCommandBatch),
    /// A decision that waits for a person is carried out, or not.
    Settle {
        decision: i64,
        agreed: bool,
    },
    /// What was changed together is put back.
    Undo {
        batch: i64,
        /// Who wants it, if it is an agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureCommand {
    pub job: JobId,
    pub verdict: FailureCommandKind,
    /// What the job is to be from then on.
    #[serde(default)]
    pub changes: RequestedJobChanges,
    #[serde(default)]
    pub reason: String,
    /// From 0 to 1, how sure whoever decided is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Lines of what the job said that speak for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCommandKind {
    /// It runs again.
    Retry,
    /// It has failed, and so has what waits for it.
    Fail,
    /// It has failed, and what waits for it goes on as if it had not.
    Ignore,
    /// It stays where it is, and is changed.
    Change,
}

impl FailureCommandKind {
    pub const ALL: [Self; 4] = [Self::Retry, Self::Fail, Self::Ignore, Self::Change];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Fail => "fail",
            Self::Ignore => "ignore",
            Self::Change => "change",
        }
    }
}

impl fmt::Display for FailureCommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for FailureCommandKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|verdict| verdict.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is no verdict (known: retry, fail, ignore, change)"))
    }
}

/// What of a job is to be otherwise. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestedJobChanges {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The Slurm scheduler of the workflow that it goes to, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The partition that it goes to, with all else that its scheduler says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl RequestedJobChanges {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub const fn changes_resources(&self) -> bool {
        self.memory_bytes.is_some()
            || self.runtime_seconds.is_some()
            || self.cpus.is_some()
            || self.gpus.is_some()
            || self.nodes.is_some()
    }

    /// What a job asks for with these, that asked for something before.
    pub fn apply_to_resources(&self, asked: Resources) -> Resources {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        Resources {
            cpus: self.cpus.unwrap_or(asked.cpus),
            memory: self.memory_bytes.unwrap_or(asked.memory),
            runtime: self.runtime_seconds.and_then(seconds).or(asked.runtime),
            gpus: self.gpus.unwrap_or(asked.gpus),
            nodes: self.nodes.unwrap_or(asked.nodes),
        }
    }
}

/// What came of one order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureCommandOutcome {
    pub job: JobId,
    pub verdict: FailureCommandKind,
    pub answer: FailureCommandStatus,
    /// Why, or what it comes to.
    pub words: String,
    /// Where the job stood, and in which attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCommandStatus {
    /// It was done, or would be.
    Done,
    /// It waits for a person.
    Proposed,
    Refused,
}

/// What agents may decide alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TriagePolicy {
    /// Below it a decision of an agent waits for a person. One that does not say how sure it is, is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_confidence: Option<f64>,
    /// How often agents may have one job tried again in a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_agent_retries: Option<u32>,
    /// Agents have to quote what the job said.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub require_evidence: bool,
}
