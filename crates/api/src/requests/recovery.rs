//! Recovery: releasing, failing, restarting and invalidating requests, and the recovery state.

use super::BanResponse;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use windlass_types::Timestamp;
use windlass_types::requests::{CleanupPolicy, RequestOverrides, RequestStatus};

/// Releases a held request, optionally with changes. All changes are applied or none. Absent fields keep their
/// value; numeric types are wide enough that out-of-range values are reported together with all other errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Reason, stored in the audit trail.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 1000)]
    pub reason: String,
    /// After failures: run the failed work units again within the same round instead of leaving them to the
    /// next round.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rescue: bool,
    /// Sites to ban for this request for a limited time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub site_bans: Vec<String>,
    /// Duration of the bans in seconds. Default: the server's setting for automatic bans, seven days unless
    /// configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub ban_seconds: Option<i64>,
    /// Memory of a whole job (all cores together), in MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub memory_mb: Option<i64>,
    /// Seconds per event, for rounds planned from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub time_per_event_sec: Option<f64>,
    /// Number of retries of a processing job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub retry_count: Option<i64>,
    /// Share of failed work units (0 to 1) from which the request is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub error_hold_threshold: Option<f64>,
    /// Maximum number of automatic rescues of a round after failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub max_rescue_attempts: Option<i64>,
    /// Input files to exclude from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10_000)]
    pub excluded_files: Vec<String>,
}

/// A released request; it continues as soon as the reconciler has processed the release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseResponse {
    /// Name of the request.
    pub request_name: String,
    /// Status when the request was released.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// All overrides in effect, including earlier ones.
    #[schema(value_type = Object)]
    pub overrides: RequestOverrides,
    /// What was released, in words.
    pub message: String,
}

/// Fails a request permanently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FailRequest {
    /// Reason, stored in the history.
    #[schema(max_length = 1000)]
    pub reason: String,
    /// The backend of the run is permanently lost: if it does not answer, do not wait for the run to end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// Fails a request and submits its next version under a new name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestartRequest {
    /// Reason, stored in the history.
    #[schema(max_length = 1000)]
    pub reason: String,
    /// What happens to the old outputs when the new request is completed: `keep_until_replaced` or
    /// `immediate_cleanup`. Default: the policy of the old request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cleanup_policy: Option<CleanupPolicy>,
    /// The backend of the run is permanently lost: if it does not answer, do not wait for the run to end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// The request that replaces another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestartResponse {
    /// Name of the new request.
    pub request_name: String,
    /// Name of the restarted request.
    pub previous_version_request: String,
    /// Processing version of the new request.
    pub processing_version: u32,
    /// What happens to the old outputs.
    #[schema(value_type = String)]
    pub cleanup_policy: CleanupPolicy,
    /// Status of the new request.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Status of the old request; it becomes `failed` when none of its runs is active.
    #[schema(value_type = String)]
    pub previous_status: RequestStatus,
    /// Whether this call created the new request; otherwise it already existed.
    pub is_new: bool,
    /// What happened, in words.
    pub message: String,
}

/// Invalidates the outputs of a request that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InvalidateRequest {
    /// Reason, stored in the history.
    #[schema(max_length = 1000)]
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvalidateResponse {
    /// Name of the request.
    pub request_name: String,
    /// Number of blocks being invalidated.
    pub blocks: u64,
    /// Number of blocks that were already being invalidated, or were invalidated.
    pub blocks_invalidated_before: u64,
    /// What happened, in words.
    pub message: String,
}

/// Recovery state of a request: automatic recovery from failures, and changes by operators.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RequestRecoveryState {
    /// Current round, counted from 0; `null` if nothing is planned yet.
    pub round: Option<u32>,
    /// Number of automatic rescues used.
    pub rescues_used: u32,
    /// Number of work units of the current round.
    pub work_units: u32,
    /// Work units that completed.
    pub work_units_completed: u32,
    /// Work units that failed.
    pub work_units_failed: u32,
    /// Since when the run is paused (it starts no new work), because its attempts fail alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub paused_since: Option<Timestamp>,
    /// Since when the backend of the run does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub backend_silent_since: Option<Timestamp>,
    /// Changes by operators.
    #[schema(value_type = Object)]
    pub overrides: RequestOverrides,
    /// Active bans for this request only.
    pub site_bans: Vec<BanResponse>,
    /// Number of excluded input files.
    pub excluded_files: u64,
    /// Steps of registering or invalidating outputs that failed for too long. A release retries them.
    pub outputs_given_up: u64,
    /// `active`, `superseded` or `invalidated`; `null` without outputs.
    pub output_state: Option<String>,
}

/// An alert for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertResponse {
    /// Id of the alert.
    pub id: i64,
    /// Stable identifier of the type of alert, for programs.
    pub kind: String,
    /// Request of the alert; `null`: it is about a site or the server.
    pub request_name: Option<String>,
    /// The alert in words.
    pub message: String,
    /// Values of the alert, depending on its kind.
    #[schema(value_type = Object)]
    pub detail: Value,
    /// When the alert was raised.
    #[schema(value_type = String)]
    pub at: Timestamp,
    /// When the alert was handed to the notification channel.
    #[schema(value_type = Option<String>)]
    pub told_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertList {
    /// Oldest first.
    pub items: Vec<AlertResponse>,
}
