//! Recovery: what an operator says about a request that failed, or that is to end, and how it stands.

use super::BanResponse;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use windlass_types::Timestamp;
use windlass_types::requests::{CleanupPolicy, RequestOverrides, RequestStatus};

/// Lets a request go on that is held, perhaps otherwise than before. All of it holds, or none. What is not said stays as it
/// is; numbers are wide enough that whatever is wrong with them can be told together with the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Why; goes into the audit trail.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 1000)]
    pub reason: String,
    /// After failures: try what failed once more within the same round, instead of leaving it to the next one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rescue: bool,
    /// Sites that get nothing more of it for a while.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub site_bans: Vec<String>,
    /// For how long; as long as sites are banned by themselves without it, which is seven days unless the server is told
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub ban_seconds: Option<i64>,
    /// Of a whole job, all its cores together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub memory_mb: Option<i64>,
    /// Seconds that an event takes, for the rounds that are planned from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub time_per_event_sec: Option<f64>,
    /// How often a processing job is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub retry_count: Option<i64>,
    /// From this share of failed work units on it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub error_hold_threshold: Option<f64>,
    /// So often a round is rescued after failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub max_rescue_attempts: Option<i64>,
    /// Input files that are not to be read any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10_000)]
    pub excluded_files: Vec<String>,
}

/// A request that goes on, or will as soon as the reconciler has seen to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseResponse {
    pub request_name: String,
    /// As it was when it was released.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// All that hold now, with what was said before.
    #[schema(value_type = Object)]
    pub overrides: RequestOverrides,
    pub message: String,
}

/// Gives a request up for good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FailRequest {
    #[schema(max_length = 1000)]
    pub reason: String,
    /// The backend of its run is lost for good: if it does not answer, its run is not waited for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// Gives a request up, and begins it anew under another name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestartRequest {
    #[schema(max_length = 1000)]
    pub reason: String,
    /// What becomes of the old outputs when the new request is completed: `keep_until_replaced` or `immediate_cleanup`.
    /// Without it: as the old request has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cleanup_policy: Option<CleanupPolicy>,
    /// The backend of its run is lost for good: if it does not answer, its run is not waited for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// The request that takes the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestartResponse {
    /// Of the new one.
    pub request_name: String,
    pub previous_version_request: String,
    pub processing_version: u32,
    #[schema(value_type = String)]
    pub cleanup_policy: CleanupPolicy,
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Of the old one; it becomes `failed` when nothing of it runs any more.
    #[schema(value_type = String)]
    pub previous_status: RequestStatus,
    /// It was made by this call; otherwise it was there already.
    pub is_new: bool,
    pub message: String,
}

/// Takes the outputs of a request back that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InvalidateRequest {
    #[schema(max_length = 1000)]
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvalidateResponse {
    pub request_name: String,
    /// Blocks that are being taken back.
    pub blocks: u64,
    /// Those of all its blocks that were before.
    pub blocks_invalidated_before: u64,
    pub message: String,
}

/// What was done about failures of a request, and what people have changed about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RequestRecoveryState {
    /// The present round, counted from 0; `null`: nothing is planned yet.
    pub round: Option<u32>,
    /// How often it was rescued after failures by itself.
    pub rescues_used: u32,
    pub work_units: u32,
    pub work_units_completed: u32,
    pub work_units_failed: u32,
    /// Since then nothing new of its run begins: attempts failed alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub paused_since: Option<Timestamp>,
    /// Since then the backend of its run does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub backend_silent_since: Option<Timestamp>,
    #[schema(value_type = Object)]
    pub overrides: RequestOverrides,
    /// Those that hold now for this request alone.
    pub site_bans: Vec<BanResponse>,
    /// Input files that are not read any more.
    pub excluded_files: u64,
    /// Steps of recording its outputs, or of taking them back, that failed for too long: a release tries them again.
    pub outputs_given_up: u64,
    /// `active`, `superseded` or `invalidated`; `null`: it has no outputs.
    pub output_state: Option<String>,
}

/// Something that people were told, or are about to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertResponse {
    pub id: i64,
    /// One word, stable: for programs.
    pub kind: String,
    pub request_name: Option<String>,
    pub message: String,
    #[schema(value_type = Object)]
    pub detail: Value,
    #[schema(value_type = String)]
    pub at: Timestamp,
    /// When it was handed to whoever tells people.
    #[schema(value_type = Option<String>)]
    pub told_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertList {
    /// The oldest first.
    pub items: Vec<AlertResponse>,
}
