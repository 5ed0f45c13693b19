//! Compute nodes: the contract's name for workers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComputeNodeModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub compute_node_type: String,
    pub hostname: String,
    pub memory_gb: f64,
    pub num_cpus: i64,
    pub num_gpus: i64,
    pub num_nodes: i64,
    pub pid: i64,
    pub start_time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg_cpu_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg_memory_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<f64>,
    /// When its allocation ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_active: Option<bool>,
    /// Labels of the worker: it runs jobs with labels only if it has all of them; a worker with labels runs no
    /// jobs without labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_cpu_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_count: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_config_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
}

/// A host on which workers of a workflow can be started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RemoteWorkerModel {
    pub workflow_id: i64,
    pub worker: String,
}
