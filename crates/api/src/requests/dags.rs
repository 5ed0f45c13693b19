//! Runs of requests: the specification calls them DAGs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::Timestamp;
use windlass_types::requests::RequestRunStatus;

/// One submission to a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestDag {
    pub id: String,
    /// Whose run it is; not where that is plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    pub workflow_id: String,
    pub round: u32,
    /// The run that this one goes on with.
    pub parent_dag_id: Option<String>,
    /// Why there is this run: `first` of its round; going on after a `stop`, or after a `failure` by itself; or because a
    /// `person` said so.
    #[serde(default)]
    pub cause: String,
    /// How many runs of its round, with this one, go on after failures by themselves.
    #[serde(default)]
    pub rescues: u32,
    /// `engine` or `htcondor`.
    pub backend: String,
    /// Of the engine.
    pub engine_workflow_id: Option<i64>,
    pub engine_run_id: Option<i64>,
    pub schedd_name: Option<String>,
    pub dagman_cluster_id: Option<String>,
    pub submit_dir: String,
    #[schema(value_type = String)]
    pub status: RequestRunStatus,
    pub total_nodes: u64,
    pub total_edges: u64,
    pub node_counts: BTreeMap<String, u64>,
    pub nodes_idle: u64,
    pub nodes_running: u64,
    pub nodes_done: u64,
    pub nodes_failed: u64,
    pub nodes_held: u64,
    pub total_work_units: u32,
    pub work_units_completed: u32,
    pub work_units_failed: u32,
    #[schema(value_type = Option<String>)]
    pub stop_requested_at: Option<Timestamp>,
    pub stop_reason: Option<String>,
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>)]
    pub submitted_at: Option<Timestamp>,
    #[schema(value_type = Option<String>)]
    pub completed_at: Option<Timestamp>,
    /// What of it waits for a person at this moment, and why; only where one is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// What happened to it, the oldest first; only where one is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RequestDagEvent>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestDagEvent {
    pub event_type: String,
    #[schema(value_type = Option<String>)]
    pub from_status: Option<RequestRunStatus>,
    #[schema(value_type = Option<String>)]
    pub to_status: Option<RequestRunStatus>,
    pub nodes_done: u64,
    pub nodes_failed: u64,
    pub nodes_running: u64,
    #[schema(value_type = Object)]
    pub detail: Value,
    #[schema(value_type = String)]
    pub created_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestDagList {
    pub items: Vec<RequestDag>,
    pub offset: u64,
}

/// A node of a run as it is at this moment: a job of the engine, or a node of DAGMan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestDagNode {
    pub name: String,
    /// `landing`, `processing`, `merge` or `cleanup`.
    pub role: String,
    /// `mg_000012`
    pub work_unit: Option<String>,
    pub status: String,
    pub attempt: i64,
    pub return_code: Option<i32>,
    pub reason: Option<String>,
    /// Of the engine: `windlass jobs get`, `windlass logs show` take it.
    pub job_id: Option<i64>,
    /// In the queue of HTCondor.
    pub cluster_id: Option<u64>,
    /// Where it runs, or ran last, as far as HTCondor has told.
    pub site: Option<String>,
}

/// A work unit of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagWorkUnit {
    pub work_unit: String,
    pub status: String,
    /// Where it runs; `null` until it is elected.
    pub site: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestDagNodeList {
    pub items: Vec<RequestDagNode>,
    pub offset: u64,
}

/// Where the logs of a run are, on the machines that ran it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagLogs {
    pub dag_id: String,
    /// Manifests and reports of its work units.
    pub submit_dir: String,
    /// What its jobs printed.
    pub log_dir: Option<String>,
    pub engine_workflow_id: Option<i64>,
    /// Of HTCondor: those of the node that was asked for, or of DAGMan.
    #[serde(default)]
    pub files: Vec<String>,
    pub message: String,
}

/// What happened to a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DagHistory {
    pub items: Vec<RequestDagEvent>,
}

/// Why somebody holds, releases, removes or rescues a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagReason {
    #[serde(default)]
    pub reason: String,
}

/// What was begun about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DagAction {
    pub request_name: String,
    /// `hold`, `release`, `remove` or `rescue`.
    pub action: String,
    pub message: String,
    /// As it was before.
    pub dag: RequestDag,
}
