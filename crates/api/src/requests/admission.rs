//! Admission: which request starts next.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdmissionQueue {
    /// Number of active runs.
    pub active_dags: u64,
    /// Maximum number of active runs.
    pub max_active_dags: u64,
    /// Number of queued requests.
    pub queued_workflows: u64,
    /// The request that starts next.
    pub next_in_queue: Option<NextInQueue>,
    /// Queued requests in the order in which they start, up to the requested number.
    pub queue: Vec<NextInQueue>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextInQueue {
    /// Name of the request.
    pub request_name: String,
    /// Priority; larger values go first.
    pub priority: i64,
    /// When the request entered the queue.
    #[schema(value_type = String)]
    pub queued_since: Timestamp,
    /// Whether it goes before all requests that are not urgent.
    pub urgent: bool,
    /// User who submitted the request.
    pub requestor: String,
}

/// Admission settings. In a change, absent fields keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionConfig {
    /// Maximum number of active runs. 0: no run starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000)]
    pub max_active_dags: Option<u64>,
}

/// Counts of requests and sites on a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemStatus {
    /// Version of the server.
    pub version: String,
    /// Number of active runs.
    pub active_dags: u64,
    /// Maximum number of active runs.
    pub max_active_dags: u64,
    /// Number of queued requests.
    pub queued_workflows: u64,
    /// Number of requests by status; statuses without requests are omitted.
    pub requests: BTreeMap<String, u64>,
    /// Number of output blocks by status.
    pub blocks: BTreeMap<String, u64>,
    /// Number of sites by status.
    pub sites: BTreeMap<String, u64>,
}
