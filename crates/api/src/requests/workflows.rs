//! Workflows of requests, by UUID. Workflows of the engine have integer ids and other routes.

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
    /// UUID of the workflow.
    pub id: String,
    /// Name of the request.
    pub request_name: String,
    /// Status of the workflow; that of the request is finer.
    pub status: String,
    /// Dataset that is read; `null`: events are generated.
    pub input_dataset: Option<String>,
    /// How the input is split into jobs.
    pub splitting_algo: String,
    /// Parameters of the split.
    #[schema(value_type = Object)]
    pub splitting_params: Value,
    /// Current round, counted from 0.
    pub round: u32,
    /// Maximum number of concurrent nodes by category.
    pub category_throttles: BTreeMap<String, u64>,
    /// Measured values of the steps, if there are any.
    #[schema(value_type = Option<Object>)]
    pub step_metrics: Option<Value>,
    /// Id of the latest run.
    pub dag_id: Option<String>,
    /// Number of events in the registered outputs.
    pub events_produced: u64,
    /// All runs, oldest first.
    pub dags: Vec<RequestDag>,
    /// Output blocks by dataset and index, with the rules that protect them.
    #[serde(default)]
    pub blocks: Vec<BlockSummary>,
    /// When it was created.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
}

/// The workflow of a request in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestWorkflowSummary {
    /// A UUID.
    pub id: String,
    /// Name of the request.
    pub request_name: String,
    /// Status of the workflow; that of the request is finer.
    pub status: String,
    /// Status of the request.
    #[schema(value_type = String)]
    pub request_status: RequestStatus,
    /// Priority; larger values go first.
    pub priority: i64,
    /// Current round, counted from 0.
    pub round: u32,
    /// Id of the latest run.
    pub dag_id: Option<String>,
    /// The workflow of the engine that the latest run is, if it is one: `GET /workflows/{id}` shows it.
    pub engine_workflow_id: Option<i64>,
    /// When it was created.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestWorkflowList {
    /// The entries of this page or list.
    pub items: Vec<RequestWorkflowSummary>,
    /// Offset of this page, counted in requests. Requests without a workflow are skipped.
    pub offset: u64,
    /// Total number of matching requests.
    pub total: u64,
}

/// Expected and measured resource usage of the jobs of a request, by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestMetrics {
    /// Name of the request.
    pub request_name: String,
    /// The latest round, counted from 0.
    pub round: u32,
    /// Number of measured jobs.
    pub jobs_sampled: u64,
    /// Measured values of each step: `cpu_efficiency`, `rss_mb`, `wall_sec_per_event`, `threads`.
    #[schema(value_type = Object)]
    pub steps: Value,
    /// By round: `asked` (`from` hints or what was `measured`, `cores`, `memory_mb`, `expected_memory_mb`,
    /// `time_per_event_sec`, `events_per_job`, `units`, `jobs`, `events`), and `measured` once there are
    /// measurements.
    #[schema(value_type = Vec<Object>)]
    pub rounds: Vec<Value>,
}

/// Progress of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestWorkflowStatus {
    /// UUID of the workflow.
    pub workflow_id: Option<String>,
    /// Name of the request.
    pub request_name: String,
    /// Status of the workflow; that of the request is finer.
    pub status: String,
    /// Status of the request.
    #[schema(value_type = String)]
    pub request_status: RequestStatus,
    /// Why the request is held, failed or aborted.
    pub reason: Option<String>,
    /// Priority; larger values go first.
    pub priority: i64,
    /// Measured values of the steps, if there are any.
    #[schema(value_type = Option<Object>)]
    pub step_metrics: Option<Value>,
    /// The latest run.
    pub dag: Option<DagSummary>,
    /// Blocks of outputs.
    pub blocks: Vec<BlockSummary>,
    /// Share of completed nodes of the latest run, in percent.
    pub progress_percent: f64,
    /// Estimated from the pace so far; `null` while there is too little data.
    #[schema(value_type = Option<String>)]
    pub estimated_completion: Option<Timestamp>,
    /// Current round, from 0.
    pub round: u32,
    /// Pending steps for outputs in the catalog, and (`output_steps_failed`) steps that were given up.
    pub output_steps_pending: u64,
    /// Steps for outputs in the catalog that were given up.
    pub output_steps_failed: u64,
    /// Version of the request, incremented by every change.
    pub version: i64,
}

/// The latest run in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DagSummary {
    /// Id of the run.
    pub id: String,
    /// Status of the run.
    #[schema(value_type = String)]
    pub status: RequestRunStatus,
    /// Number of nodes: the jobs of all work units.
    pub total_nodes: u64,
    /// Number of nodes by role.
    pub node_counts: BTreeMap<String, u64>,
    /// Nodes that have not started.
    pub nodes_idle: u64,
    /// Nodes that run.
    pub nodes_running: u64,
    /// Nodes that completed.
    pub nodes_done: u64,
    /// Nodes that failed.
    pub nodes_failed: u64,
    /// Nodes that are held.
    pub nodes_held: u64,
    /// Number of work units.
    pub total_work_units: u32,
    /// Work units that completed.
    pub work_units_completed: u32,
    /// Work units that failed.
    pub work_units_failed: u32,
    /// Id of the engine's workflow, for runs of the engine.
    pub engine_workflow_id: Option<i64>,
}

/// A block of outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockSummary {
    /// Dataset of the block.
    pub dataset_name: String,
    /// Number of the block in its dataset, from 0.
    pub block_index: u32,
    /// Status of the block.
    #[schema(value_type = String)]
    pub status: ProcessingBlockStatus,
    /// Registered work units of all: `12/25`.
    pub work_units: String,
    /// Name of the block in the catalog.
    pub block_name: Option<String>,
    /// Rule that archives the block on tape.
    pub tape_rule_id: Option<String>,
    /// By work unit: the rule that protects its files at their site. Only if one workflow is requested.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub source_rule_ids: BTreeMap<String, String>,
    /// Failed attempts of the block's next catalog operation.
    #[serde(default)]
    pub attempts: u32,
    /// Error of the latest failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
