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
    /// Id of the run.
    pub id: String,
    /// Request of the run; omitted where it is clear from the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    /// Id of the workflow of the request.
    pub workflow_id: String,
    /// Number of the round, from 0.
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
    /// Number of the run in the workflow of the engine, for runs of the engine.
    pub engine_run_id: Option<i64>,
    /// Name of the HTCondor schedd, for runs on HTCondor.
    pub schedd_name: Option<String>,
    /// Cluster id of DAGMan, for runs on HTCondor.
    pub dagman_cluster_id: Option<String>,
    /// Directory with the manifests and reports of the work units.
    pub submit_dir: String,
    /// Status of the run.
    #[schema(value_type = String)]
    pub status: RequestRunStatus,
    /// Number of nodes: the jobs of all work units.
    pub total_nodes: u64,
    /// Number of dependencies between nodes.
    pub total_edges: u64,
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
    /// When the end of the run was requested.
    #[schema(value_type = Option<String>)]
    pub stop_requested_at: Option<Timestamp>,
    /// Why the end of the run was requested.
    pub stop_reason: Option<String>,
    /// When the run was created.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When the backend accepted the run.
    #[schema(value_type = Option<String>)]
    pub submitted_at: Option<Timestamp>,
    /// When the run ended.
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
    /// Kind of the event.
    pub event_type: String,
    /// Status before the event.
    #[schema(value_type = Option<String>)]
    pub from_status: Option<RequestRunStatus>,
    /// Status after the event.
    #[schema(value_type = Option<String>)]
    pub to_status: Option<RequestRunStatus>,
    /// Nodes that completed.
    pub nodes_done: u64,
    /// Nodes that failed.
    pub nodes_failed: u64,
    /// Nodes that run.
    pub nodes_running: u64,
    /// Further values, depending on the kind of the entry.
    #[schema(value_type = Object)]
    pub detail: Value,
    /// When it happened.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestDagList {
    /// The entries of this page or list.
    pub items: Vec<RequestDag>,
    /// Number of entries before the first one of this page.
    pub offset: u64,
}

/// A node of a run in its current state: a job of the engine or a node of DAGMan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestDagNode {
    /// Name of the node.
    pub name: String,
    /// `landing`, `processing`, `merge` or `cleanup`.
    pub role: String,
    /// `mg_000012`
    pub work_unit: Option<String>,
    /// State of the node.
    pub status: String,
    /// Number of the latest attempt, from 1; 0: not started.
    pub attempt: i64,
    /// Exit code of the latest attempt.
    pub return_code: Option<i32>,
    /// Why the node failed or is held.
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
    /// Name of the work unit: `mg_000012`.
    pub work_unit: String,
    /// State of the work unit.
    pub status: String,
    /// Site where the work unit runs; `null` until its landing job has started.
    pub site: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestDagNodeList {
    /// The entries of this page or list.
    pub items: Vec<RequestDagNode>,
    /// Number of entries before the first one of this page.
    pub offset: u64,
}

/// Locations of the logs of a run, on the machines that ran it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagLogs {
    /// Id of the run.
    pub dag_id: String,
    /// Directory with the manifests and reports of the work units.
    pub submit_dir: String,
    /// Directory with the output of the jobs.
    pub log_dir: Option<String>,
    /// Id of the engine's workflow, for runs of the engine.
    pub engine_workflow_id: Option<i64>,
    /// HTCondor log files of the requested node, or of DAGMan.
    #[serde(default)]
    pub files: Vec<String>,
    /// How to read the logs.
    pub message: String,
}

/// History of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DagHistory {
    /// The entries of this page or list.
    pub items: Vec<RequestDagEvent>,
}

/// Reason for holding, releasing, removing or rescuing a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagReason {
    /// Reason, stored in the history.
    #[serde(default)]
    pub reason: String,
}

/// An action that was started on a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DagAction {
    /// Name of the request.
    pub request_name: String,
    /// `hold`, `release`, `remove` or `rescue`.
    pub action: String,
    /// What follows, in words.
    pub message: String,
    /// The run before the action.
    pub dag: RequestDag,
}
