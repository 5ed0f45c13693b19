//! Whose turn it is.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdmissionQueue {
    pub active_dags: u64,
    pub max_active_dags: u64,
    pub queued_workflows: u64,
    pub next_in_queue: Option<NextInQueue>,
    /// In the order in which they start; at most as many as were asked for.
    pub queue: Vec<NextInQueue>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextInQueue {
    pub request_name: String,
    pub priority: i64,
    #[schema(value_type = String)]
    pub queued_since: Timestamp,
    pub urgent: bool,
    pub requestor: String,
}

/// What is set about admission. In a change, what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionConfig {
    /// So many runs may be under way at once. 0: nothing more starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000)]
    pub max_active_dags: Option<u64>,
}

/// Requests and sites of a server in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemStatus {
    /// Of the server.
    pub version: String,
    pub active_dags: u64,
    pub max_active_dags: u64,
    pub queued_workflows: u64,
    /// By status; a status that no request has is left out.
    pub requests: BTreeMap<String, u64>,
    /// Blocks of outputs, by status.
    pub blocks: BTreeMap<String, u64>,
    /// Sites, by status.
    pub sites: BTreeMap<String, u64>,
}
