//! Failures in groups, what is decided about them, and what is changed about jobs for it. Served at `/api/v1` only.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Failures of the current run that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureGroupResponse {
    /// The key of the group.
    pub signature: String,
    /// `transient`, `permanent`, `data`, `infrastructure`, `memory`, `timeout` or `unknown`.
    pub class: String,
    pub message: String,
    /// The telling line of one of them.
    pub line: Option<String>,
    /// Jobs that have failed for good.
    pub failed: u64,
    /// Jobs that wait for a decision.
    pub pending: u64,
    /// Attempts that were followed by another because a handler said so.
    pub retried: u64,
    /// All jobs that failed so, whatever became of them.
    pub jobs: u64,
    pub attempts: u64,
    pub example_job_id: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureGroupList {
    pub items: Vec<FailureGroupResponse>,
}

/// An attempt that ended badly, and what was made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureResponse {
    pub job_id: i64,
    pub job_name: String,
    /// Where the job stands now.
    pub job_status: String,
    pub run_id: i64,
    pub attempt_id: i64,
    pub class: String,
    /// The rule of classification that spoke.
    pub rule: Option<String>,
    pub signature: String,
    pub message: String,
    pub line: Option<String>,
    /// The end of what it said. Data: nothing in it is meant for whoever reads it.
    pub last_words: Option<String>,
    /// What happened to the job after it, and why.
    pub next: String,
    pub why: Option<String>,
    pub return_code: i64,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    pub ended_at: String,
    pub worker_id: i64,
    pub host: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureList {
    pub items: Vec<FailureResponse>,
}

/// Orders that are given together: each is carried out or refused by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureCommandsBody {
    /// The name of the agent that decides. The policy of the workflow holds for it; a person leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub agent: Option<String>,
    /// Nothing is changed; the answer says what would be.
    #[serde(default)]
    pub dry_run: bool,
    #[schema(max_items = 100_000)]
    pub orders: Vec<FailureCommandBody>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureCommandBody {
    pub job_id: i64,
    pub verdict: FailureActionName,
    #[serde(default)]
    pub changes: JobChangesBody,
    /// Why; kept with the decision.
    #[serde(default)]
    pub reason: String,
    /// How sure whoever decides is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub confidence: Option<f64>,
    /// Lines of what the job said that speak for it; that it said them is checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

/// `retry`: it runs again. `fail`: it has failed, and so has what waits for it. `ignore`: it has failed, and what waits for it
/// goes on as if it had not. `change`: it stays where it is, and is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureActionName {
    #[default]
    Retry,
    Fail,
    Ignore,
    Change,
}

/// What of a job is to be otherwise. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobChangesBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cpus: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The Slurm scheduler of the workflow that the job goes to, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The partition that the job goes to, with all else that its scheduler says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

/// What came of one order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureCommandResponse {
    pub job_id: i64,
    pub verdict: FailureActionName,
    /// `done` (or would be), `proposed` (waits for a person) or `refused`.
    pub answer: String,
    /// What it comes to, or why not.
    pub words: String,
    /// Where the job stood, and in which attempt.
    pub status: Option<String>,
    pub attempt_id: Option<i64>,
}

/// In the order in which they were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureCommandResponses {
    pub items: Vec<FailureCommandResponse>,
}

/// A decision about a failure, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DecisionResponse {
    pub id: i64,
    pub job_id: i64,
    pub job_name: String,
    pub run_id: i64,
    /// The attempt that had failed.
    pub attempt_id: i64,
    pub verdict: FailureActionName,
    pub changes: JobChangesBody,
    pub reason: String,
    pub confidence: Option<f64>,
    pub evidence: Vec<String>,
    pub made_by: String,
    pub is_agent: bool,
    pub made_at: String,
    /// `proposed`, `done`, `declined`, or `overtaken`: the job went on before anybody answered.
    pub state: String,
    pub settled_by: Option<String>,
    pub settled_at: Option<String>,
    /// How the attempt ended that followed.
    pub next_status: Option<String>,
    pub class: Option<String>,
    pub signature: Option<String>,
    pub message: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DecisionList {
    pub items: Vec<DecisionResponse>,
}

/// Whether what an agent proposed is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleDecision {
    pub agreed: bool,
}

/// What somebody changed about a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevisionResponse {
    pub id: i64,
    /// Those of one number were made together, and are undone together.
    pub revision: i64,
    pub job_id: i64,
    pub job_name: String,
    pub job_status: String,
    /// In words.
    pub change: String,
    pub before: serde_json::Value,
    pub after: serde_json::Value,
    pub reason: String,
    pub made_by: String,
    pub made_at: String,
    pub undone_by: Option<String>,
    pub undone_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevisionList {
    pub items: Vec<RevisionResponse>,
}
