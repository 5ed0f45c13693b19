//! Filters and summaries of requests.

use super::SortBy;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::requests::rows::OutputStepState;
use windlass_types::requests::{ProcessingBlockStatus, RequestRunStatus, RequestStatus};
use windlass_types::{Timestamp, WorkflowId};

/// Selects requests. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestFilter {
    /// In one of these states; empty: any.
    pub status: Vec<RequestStatus>,
    pub campaign: Option<String>,
    pub requestor: Option<String>,
    pub priority_min: Option<i64>,
    pub priority_max: Option<i64>,
    /// `*` matches anything.
    pub name: Option<String>,
    pub previous_version: Option<String>,
    /// Sort field: `request_name`, `status`, `priority`, `campaign`, `created_at` or `updated_at`; default:
    /// name.
    pub sort: Option<SortBy>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Selects runs of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestRunFilter {
    pub process: Option<String>,
    pub status: Vec<RequestRunStatus>,
    pub workflow: Option<WorkflowId>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Selects output steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputStepFilter {
    pub process: Option<String>,
    pub block: Option<String>,
    pub state: Vec<OutputStepState>,
    /// Due at or before this time.
    pub due: Option<Timestamp>,
    pub limit: Option<u64>,
}

/// Number of jobs at a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteUsage {
    pub running: u64,
    /// Claimed for a worker at the site, not started.
    pub pending: u64,
}

/// Selects bans of sites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteBanFilter {
    pub site: Option<String>,
    /// Bans that affect this request: its own and global ones.
    pub applies_to: Option<String>,
    /// Only global bans.
    pub only_general: bool,
    /// Neither removed nor expired at this time.
    pub active_at: Option<Timestamp>,
    /// Expired at this time, not removed, and not yet announced.
    pub expired_unnotified: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFilter {
    pub request: Option<String>,
    pub kind: Option<String>,
    /// Not yet announced.
    pub only_unnotified: bool,
    /// Only the newest of this number.
    pub limit: Option<u64>,
}

/// A setting that was changed while the server ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingRow {
    pub name: String,
    pub value: Value,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

/// Counts of objects by state. States with a count of zero are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub requests: BTreeMap<RequestStatus, u64>,
    pub runs: BTreeMap<RequestRunStatus, u64>,
    pub blocks: BTreeMap<ProcessingBlockStatus, u64>,
    /// Output steps that are pending, and that were abandoned.
    pub steps_pending: u64,
    pub steps_failed: u64,
    pub alerts_unnotified: u64,
}

impl RequestCounts {
    /// Queued requests.
    pub fn queue_depth(&self) -> u64 {
        self.requests.get(&RequestStatus::Queued).copied().unwrap_or_default()
    }
}
