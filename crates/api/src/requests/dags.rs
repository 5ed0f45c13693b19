//! Runs of requests, called DAGs in the specification.

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
    /// Request of the run; omitted where it is clear from the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    pub workflow_id: String,
    pub round: u32,
    /// The run that this run continues.
    pub parent_dag_id: Option<String>,
    /// Why the run was created: `first` run of its round, continuation after a `stop`, automatic rescue after a
    /// `failure`, or rescue by a `person`.
    #[serde(default)]
    pub cause: String,
    /// Number of automatic rescues of the round, including this run.
    #[serde(default)]
    pub rescues: u32,
    /// `engine` or `htcondor`.
    pub backend: String,
    /// Id of the engine's workflow, for runs of the engine.
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
    /// Parts of the run that wait for an operator, and why. Only if one run is requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// History of the run, oldest first. Only if one run is requested.
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

/// A node of a run in its current state: a job of the engine or a node of DAGMan.
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
    /// Job id in the engine, as accepted by `windlass jobs get` and `windlass logs show`.
    pub job_id: Option<i64>,
    /// Cluster id in the HTCondor queue.
    pub cluster_id: Option<u64>,
    /// Site where the node runs or last ran, as far as HTCondor reports it.
    pub site: Option<String>,
}

/// A work unit of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagWorkUnit {
    pub work_unit: String,
    pub status: String,
    /// Site where the work unit runs; `null` until its landing job has started.
    pub site: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestDagNodeList {
    pub items: Vec<RequestDagNode>,
    pub offset: u64,
}

/// Locations of the logs of a run, on the machines that ran it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagLogs {
    pub dag_id: String,
    /// Directory with the manifests and reports of the work units.
    pub submit_dir: String,
    /// Directory with the output of the jobs.
    pub log_dir: Option<String>,
    pub engine_workflow_id: Option<i64>,
    /// HTCondor log files of the requested node, or of DAGMan.
    #[serde(default)]
    pub files: Vec<String>,
    pub message: String,
}

/// History of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DagHistory {
    pub items: Vec<RequestDagEvent>,
}

/// Reason for holding, releasing, removing or rescuing a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagReason {
    #[serde(default)]
    pub reason: String,
}

/// An action that was started on a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DagAction {
    pub request_name: String,
    /// `hold`, `release`, `remove` or `rescue`.
    pub action: String,
    pub message: String,
    /// The run before the action.
    pub dag: RequestDag,
}
