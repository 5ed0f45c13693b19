//! Commands on failed or waiting jobs, and their results.

use crate::{Attempt, Bytes, JobId, JobStatus, Resources};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A batch of failure commands. Each is applied or rejected separately; all that are applied are one commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureCommandBatch {
    /// Name of the agent that gives them. `None` for a person, who is identified by the caller's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Dry run: changes nothing; the response describes the changes that would be made.
    #[serde(default)]
    pub dry_run: bool,
    /// The caller has checked the quoted evidence against the full logs, which hold more than the database.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_looked_up: bool,
    pub orders: Vec<FailureCommand>,
}

/// A pending command for the process that runs the workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingCommand {
    Orders(FailureCommandBatch),
    /// Approves or rejects a proposal.
    Settle {
        decision: i64,
        agreed: bool,
    },
    /// Reverts a revision.
    Undo {
        batch: i64,
        /// Name of the agent that gives the command, if it is an agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureCommand {
    pub job: JobId,
    #[serde(rename = "verdict")]
    pub kind: FailureCommandKind,
    /// Changes to the job that apply from then on.
    #[serde(default)]
    pub changes: RequestedJobChanges,
    #[serde(default)]
    pub reason: String,
    /// Confidence in the decision, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Lines from the output of the job that support the decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCommandKind {
    /// Run the job again.
    Retry,
    /// Fail the job for good, with the usual effect on its dependents.
    Fail,
    /// Fail the job, but treat it as completed for its dependents.
    Ignore,
    /// Change the job and leave its state as it is.
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
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| format!("unknown failure command `{text}` (known: retry, fail, ignore, change)"))
    }
}

/// Changes to a job. Absent fields stay as they are.
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
    /// Name of the workflow's Slurm scheduler that the job moves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Slurm partition that the job moves to, together with the other settings of its scheduler.
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

    /// Returns the resource request of a job after these changes.
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

/// The result of one failure command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureCommandOutcome {
    pub job: JobId,
    #[serde(rename = "verdict")]
    pub kind: FailureCommandKind,
    pub answer: FailureCommandStatus,
    /// The reason, or a description of the effect.
    pub words: String,
    /// State and attempt of the job when the command was processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCommandStatus {
    /// Applied; in a dry run, would be applied.
    Done,
    /// Waits for approval.
    Proposed,
    Refused,
}

/// The triage policy: what agents may decide without approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TriagePolicy {
    /// Decisions of agents with a lower confidence wait for approval. A missing confidence counts as too low.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_confidence: Option<f64>,
    /// Maximum number of retries of one job in a run that agents may order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_agent_retries: Option<u32>,
    /// Agents have to quote the output of the job as evidence.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub require_evidence: bool,
}
