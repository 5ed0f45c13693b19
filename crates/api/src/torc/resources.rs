//! Resource requirements, failure handlers, and schedulers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Resource requirements of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceRequirementsModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub name: String,
    /// `512`, `200m`, `4g` … (1024-based).
    #[serde(default = "least_memory")]
    pub memory: String,
    #[serde(default = "one")]
    pub num_cpus: i64,
    #[serde(default)]
    pub num_gpus: i64,
    #[serde(default = "one")]
    pub num_nodes: i64,
    /// ISO 8601: `PT30M`.
    #[serde(default = "least_runtime")]
    pub runtime: String,
}

fn least_memory() -> String {
    "1m".to_owned()
}

fn least_runtime() -> String {
    "PT1M".to_owned()
}

const fn one() -> i64 {
    1
}

/// What to do when jobs with this handler fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FailureHandlerModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub name: String,
    /// JSON text: a list of rules.
    pub rules: String,
}

/// A machine that runs jobs without a batch system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LocalSchedulerModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_cpus: Option<i64>,
}

/// Settings for Slurm allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlurmSchedulerModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub account: String,
    pub nodes: i64,
    pub walltime: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ntasks_per_node: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serialize_allocations: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmp: Option<String>,
}

/// A requested allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduledComputeNodesModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub scheduler_config_id: i64,
    /// Job id in the batch system.
    pub scheduler_id: i64,
    pub scheduler_type: String,
    /// `pending`, `active`, `complete` or `canceled`.
    pub status: String,
}
