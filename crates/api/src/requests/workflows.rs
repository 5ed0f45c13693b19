//! How requests are carried out: their workflows, by UUID. Those of the engine have numbers and are told of elsewhere.

use super::dags::RequestDag;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::Timestamp;
use windlass_types::requests::{ProcessingBlockStatus, RequestRunStatus, RequestStatus};

/// The workflow of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestWorkflowDetails {
    pub id: String,
    pub request_name: String,
    pub status: String,
    pub input_dataset: Option<String>,
    pub splitting_algo: String,
    #[schema(value_type = Object)]
    pub splitting_params: Value,
    /// Counted from 0.
    pub round: u32,
    pub category_throttles: BTreeMap<String, u64>,
    #[schema(value_type = Option<Object>)]
    pub step_metrics: Option<Value>,
    /// Of the latest run.
    pub dag_id: Option<String>,
    pub events_produced: u64,
    /// All of them, the oldest first.
    pub dags: Vec<RequestDag>,
    /// By dataset and index, with the rules that protect them.
    #[serde(default)]
    pub blocks: Vec<BlockSummary>,
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
}

/// The workflow of a request in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestWorkflowSummary {
    /// A UUID.
    pub id: String,
    pub request_name: String,
    /// Of the workflow; that of the request is finer.
    pub status: String,
    #[schema(value_type = String)]
    pub request_status: RequestStatus,
    pub priority: i64,
    /// Counted from 0.
    pub round: u32,
    /// Of the latest run.
    pub dag_id: Option<String>,
    /// The workflow of the engine that the latest run is, if it is one: `GET /workflows/{id}` shows it.
    pub engine_workflow_id: Option<i64>,
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestWorkflowList {
    pub items: Vec<RequestWorkflowSummary>,
    /// The offset, in requests, of this page. Requests without a workflow are left out of it.
    pub offset: u64,
    /// Matching requests in all.
    pub total: u64,
}

/// What the rounds of a request thought their jobs would use, and what they used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestMetrics {
    pub request_name: String,
    /// The latest one, counted from 0.
    pub round: u32,
    pub jobs_sampled: u64,
    /// What is known of each step: `cpu_efficiency`, `rss_mb`, `wall_sec_per_event`, `threads`.
    #[schema(value_type = Object)]
    pub steps: Value,
    /// By round: `asked` (`from` hints or what was `measured`, `cores`, `memory_mb`, `expected_memory_mb`,
    /// `time_per_event_sec`, `events_per_job`, `units`, `jobs`, `events`), and `measured` once there is something.
    #[schema(value_type = Vec<Object>)]
    pub rounds: Vec<Value>,
}

/// How far a workflow is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestWorkflowStatus {
    pub workflow_id: Option<String>,
    pub request_name: String,
    /// Of the workflow; that of the request is finer.
    pub status: String,
    #[schema(value_type = String)]
    pub request_status: RequestStatus,
    /// Why it is held, failed or aborted.
    pub reason: Option<String>,
    pub priority: i64,
    #[schema(value_type = Option<Object>)]
    pub step_metrics: Option<Value>,
    pub dag: Option<DagSummary>,
    pub blocks: Vec<BlockSummary>,
    /// By nodes, of the latest run.
    pub progress_percent: f64,
    /// At the pace so far; `null` while that says nothing.
    #[schema(value_type = Option<String>)]
    pub estimated_completion: Option<Timestamp>,
    pub round: u32,
    /// What is still to be done about outputs in the catalog, and what was given up.
    pub output_steps_pending: u64,
    pub output_steps_failed: u64,
    /// Of the request; rises with every change.
    pub version: i64,
}

/// The latest run, counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DagSummary {
    pub id: String,
    #[schema(value_type = String)]
    pub status: RequestRunStatus,
    pub total_nodes: u64,
    pub node_counts: BTreeMap<String, u64>,
    pub nodes_idle: u64,
    pub nodes_running: u64,
    pub nodes_done: u64,
    pub nodes_failed: u64,
    pub nodes_held: u64,
    pub total_work_units: u32,
    pub work_units_completed: u32,
    pub work_units_failed: u32,
    /// Of the engine.
    pub engine_workflow_id: Option<i64>,
}

/// A block of outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockSummary {
    pub dataset_name: String,
    pub block_index: u32,
    #[schema(value_type = String)]
    pub status: ProcessingBlockStatus,
    /// `12/25`: registered of all.
    pub work_units: String,
    /// What the catalog calls it.
    pub block_name: Option<String>,
    pub tape_rule_id: Option<String>,
    /// By work unit: the rule that protects its files at their site. Only where one workflow is asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub source_rule_ids: BTreeMap<String, String>,
    /// Failed attempts to record what is still open about it in the catalog.
    #[serde(default)]
    pub attempts: u32,
    /// What the catalog said to the latest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
