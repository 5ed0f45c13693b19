//! What can be asked of the books of requests.

use super::SortBy;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::requests::rows::OutputStepState;
use windlass_types::requests::{ProcessingBlockStatus, RequestRunStatus, RequestStatus};
use windlass_types::{Timestamp, WorkflowId};

/// Which requests. What is not said does not matter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestFilter {
    /// In one of these; empty: in any.
    pub status: Vec<RequestStatus>,
    pub campaign: Option<String>,
    pub requestor: Option<String>,
    pub priority_min: Option<i64>,
    pub priority_max: Option<i64>,
    /// `*` stands for anything.
    pub name: Option<String>,
    pub previous_version: Option<String>,
    /// By `request_name`, `status`, `priority`, `campaign`, `created_at` or `updated_at`; without it by name.
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Which runs of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestRunFilter {
    pub process: Option<String>,
    pub status: Vec<RequestRunStatus>,
    pub workflow: Option<WorkflowId>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Which output steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputStepFilter {
    pub process: Option<String>,
    pub block: Option<String>,
    pub state: Vec<OutputStepState>,
    /// Due then or before.
    pub due: Option<Timestamp>,
    pub limit: Option<u64>,
}

/// Jobs at a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteUsage {
    pub running: u64,
    /// Claimed for a worker there, and not started.
    pub pending: u64,
}

/// Which bans of sites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteBanFilter {
    pub site: Option<String>,
    /// Those that hold for this request: its own and those of every request.
    pub applies_to: Option<String>,
    /// Those of every request alone.
    pub only_general: bool,
    /// Neither removed nor over at that time.
    pub active_at: Option<Timestamp>,
    /// Over at that time, though nobody removed them, and nobody was told yet.
    pub expired_unnotified: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFilter {
    pub request: Option<String>,
    pub kind: Option<String>,
    /// Nobody was told yet.
    pub only_unnotified: bool,
    /// The newest so many.
    pub limit: Option<u64>,
}

/// Something that was configured while the server ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingRow {
    pub name: String,
    pub value: Value,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

/// How many there are of what, in which state. States that nothing is in are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub requests: BTreeMap<RequestStatus, u64>,
    pub runs: BTreeMap<RequestRunStatus, u64>,
    pub blocks: BTreeMap<ProcessingBlockStatus, u64>,
    /// Output steps that are still to be done, and that were given up.
    pub steps_pending: u64,
    pub steps_failed: u64,
    pub alerts_unnotified: u64,
}

impl RequestCounts {
    /// Requests that wait for their turn.
    pub fn queue_depth(&self) -> u64 {
        self.requests.get(&RequestStatus::Queued).copied().unwrap_or_default()
    }
}
