//! Actions: commands triggered by workflow events.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An action that is executed when its trigger fires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkflowActionModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    /// Configuration of the action; its shape depends on the type.
    pub action_config: Value,
    /// `run_commands` or `schedule_nodes`.
    pub action_type: String,
    /// `on_workflow_start`, `on_workflow_complete`, `on_worker_start`, `on_worker_complete`, `on_jobs_ready` or
    /// `on_jobs_complete`.
    pub trigger_type: String,
    #[serde(default)]
    pub executed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_by: Option<i64>,
    #[serde(default)]
    pub is_recovery: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_ids: Option<Vec<i64>>,
    #[serde(default)]
    pub persistent: bool,
    #[serde(default = "one")]
    pub required_triggers: i64,
    #[serde(default)]
    pub trigger_count: i64,
}

const fn one() -> i64 {
    1
}

/// A runner claims an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimActionRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_id: Option<i64>,
}

/// Whether the runner got the action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClaimActionResponse {
    pub action_id: i64,
    #[serde(default)]
    pub success: bool,
}
