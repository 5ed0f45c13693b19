//! Requests: submit, list, change and stop.

use super::RequestRecoveryState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use windlass_types::Timestamp;
use windlass_types::requests::{CleanupPolicy, PriorityStep, Request, RequestStatus};

/// An accepted request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SubmitResponse {
    /// Name of the request.
    pub request_name: String,
    /// Status of the request.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Later priorities of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub production_steps: Vec<PriorityStep>,
    /// The workflow of the request.
    pub workflow: RequestWorkflowRef,
}

/// The workflow of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestWorkflowRef {
    /// UUID of the workflow.
    pub id: String,
    /// `new`, `planning`, `active`, `stopping`, `resubmitting`, `completed`, `partial`, `failed` or `aborted`.
    pub status: String,
}

/// A request in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestSummary {
    /// Name of the request.
    pub request_name: String,
    /// Status of the request.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Priority; larger values go first.
    pub priority: i64,
    /// Whether it goes before all requests that are not urgent.
    pub urgent: bool,
    /// User who submitted the request.
    pub requestor: String,
    /// Campaign of the request.
    pub campaign: Option<String>,
    /// Dataset that is read; `null`: events are generated.
    pub input_dataset: Option<String>,
    /// Datasets that are written.
    pub output_datasets: Vec<String>,
    /// When the request was submitted.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
    /// When the request entered its status.
    #[schema(value_type = String)]
    pub since: Timestamp,
    /// Why the request is held, failed or aborted.
    pub reason: Option<String>,
    /// Version of the request, incremented by every change.
    pub version: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestList {
    /// The entries of this page or list.
    pub items: Vec<RequestSummary>,
    /// Total number of matching requests.
    pub total: u64,
    /// Number of entries before the first one of this page.
    pub offset: u64,
}

/// A request in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "Value")]
pub struct FullRequest {
    /// As submitted, with the current priority and production steps.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub request: Request,
    /// Status of the request.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Why the request is held, failed or aborted.
    pub reason: Option<String>,
    /// A pending command on this request.
    pub wanted: Option<PendingCommandResponse>,
    /// Oldest first.
    pub status_transitions: Vec<StatusTransitionResponse>,
    /// The workflow of the request.
    pub workflow: RequestWorkflowRef,
    /// When the request was submitted.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
    /// When the request entered its status.
    #[schema(value_type = String)]
    pub since: Timestamp,
    /// Version of the request, incremented by every change; also in the header `ETag`.
    pub version: i64,
    /// Recovery from failures, and changes by operators.
    pub recovery: RequestRecoveryState,
}

/// Two steps, because `serde(flatten)` loses that the keys of a lumi mask are numbers.
impl TryFrom<Value> for FullRequest {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        #[derive(Deserialize)]
        struct FullRequestFields {
            status: RequestStatus,
            reason: Option<String>,
            wanted: Option<PendingCommandResponse>,
            status_transitions: Vec<StatusTransitionResponse>,
            workflow: RequestWorkflowRef,
            created_at: Timestamp,
            updated_at: Timestamp,
            since: Timestamp,
            version: i64,
            #[serde(default)]
            recovery: RequestRecoveryState,
        }
        let rest = FullRequestFields::deserialize(&value)?;
        Ok(Self {
            request: serde_json::from_value(value)?,
            status: rest.status,
            reason: rest.reason,
            wanted: rest.wanted,
            status_transitions: rest.status_transitions,
            workflow: rest.workflow,
            created_at: rest.created_at,
            updated_at: rest.updated_at,
            since: rest.since,
            version: rest.version,
            recovery: rest.recovery,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingCommandResponse {
    /// `stop`, `abort`, `fail`, `release` or `remove`.
    pub what: String,
    /// User who gave the command.
    pub by: String,
    /// Reason of the command.
    pub reason: String,
    /// When the command was given.
    #[schema(value_type = String)]
    pub at: Timestamp,
}

/// An entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusTransitionResponse {
    /// `null`: the request was created.
    #[schema(value_type = Option<String>)]
    pub from: Option<RequestStatus>,
    /// The new status.
    #[schema(value_type = String)]
    pub to: RequestStatus,
    /// When the status changed.
    #[schema(value_type = String)]
    pub timestamp: Timestamp,
    /// User or server who changed it.
    pub by: String,
    /// Why it changed.
    pub reason: Option<String>,
}

/// Changes to a request. Absent fields keep their value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PatchRequest {
    /// New priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Whether the request goes before all requests that are not urgent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urgent: Option<bool>,
    /// `submitted` starts a new request, `queued` releases a held one, `stopping` and `aborted` end it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub status: Option<RequestStatus>,
    /// New list of later priorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub production_steps: Option<Vec<PriorityStep>>,
    /// Reason, stored in the audit trail.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub reason: Option<String>,
    /// The version that the change is based on, as in the header `If-Match`. Without either, the change applies
    /// to any version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopRequest {
    /// Reason, stored in the history.
    #[schema(max_length = 1000)]
    pub reason: String,
}

/// A clean stop that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StopResponse {
    /// Name of the request.
    pub request_name: String,
    /// Status of the request.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Status before the command.
    #[schema(value_type = String)]
    pub previous_status: RequestStatus,
    /// Reason of the stop.
    pub stop_reason: String,
    /// What happened, in words.
    pub message: String,
}

/// A request that is being aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AbortResponse {
    /// Name of the request.
    pub request_name: String,
    /// `aborted`, or the previous status while parts of the request still run.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Status before the command.
    #[schema(value_type = String)]
    pub previous_status: RequestStatus,
    /// What happened, in words.
    pub message: String,
}

/// A version of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestVersion {
    /// Name of the request.
    pub request_name: String,
    /// Processing version, from 1.
    pub processing_version: u32,
    /// Status of the request.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// What happens to the outputs when a later version replaces them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cleanup_policy: Option<CleanupPolicy>,
    /// Name of the request that replaces this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// Why the request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestVersionList {
    /// The newest successor of the requested version.
    pub current: RequestVersion,
    /// Earlier versions, oldest first.
    pub versions: Vec<RequestVersion>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn request_with_lumi_mask_round_trips() {
        let text = json!({
            "request_name": "r", "requestor": "me", "output_datasets": ["/A/B-v1/RECO"], "memory_mb": 1,
            "time_per_event_sec": 1.0, "size_per_event_kb": 1.0, "multicore": 1, "splitting_algo": "LumiBased",
            "splitting_params": {"lumi_mask": {"1": [[1, 20]]}}, "processing_version": 1, "priority": 5,
            "cleanup_policy": "keep_until_replaced", "status": "active", "reason": null, "wanted": null,
            "status_transitions": [], "workflow": {"id": "x", "status": "active"}, "version": 3,
            "created_at": "2026-01-30T10:00:00Z", "updated_at": "2026-01-30T10:00:00Z", "since": "2026-01-30T10:00:00Z",
        });
        let shown: FullRequest = serde_json::from_value(text).unwrap();
        assert!(shown.request.splitting_params.lumi_mask.as_ref().unwrap().contains(1, 20));
        let again: FullRequest = serde_json::from_value(serde_json::to_value(&shown).unwrap()).unwrap();
        assert_eq!(again, shown);
    }
}
