//! Node quarantine: nodes that get no jobs for a time, automatically after failures or by an operator.

use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path};
use crate::state::{AppState, call_service};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::{AuthOperation, ObjectRelation};
use windlass_core::node_quarantine::NodeEligibility;
use windlass_scheduler::service::ConnectedWorker;
use windlass_store::model::NodeQuarantineRow;
use windlass_types::{SystemClock, Timestamp};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_quarantined_nodes, quarantine_node))
        .routes(routes!(release_node))
}

/// Maximum duration; to stop using a node permanently, drain its workers.
const MAX_QUARANTINE: Duration = Duration::from_hours(24 * 366);
const MAX_REASON_LENGTH: usize = 1000;

/// A node in quarantine, or on probation after it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct NodeQuarantineResponse {
    /// Host name of the node.
    host: String,
    /// User whose workers get no jobs there; `null`: all users.
    user: Option<String>,
    /// `quarantined`: in quarantine, gets no jobs. `on_probation`: gets one job at a time until one completes.
    standing: &'static str,
    /// When the quarantine began.
    since: String,
    /// End of the quarantine; probation follows.
    until: String,
    /// `windlass`, or the user who set it.
    set_by: String,
    /// Why the node is in quarantine.
    reason: String,
    /// Failure counts behind an automatic quarantine; `null` if set by a user.
    evidence: Option<Value>,
}

impl NodeQuarantineResponse {
    fn new(row: NodeQuarantineRow, standing: NodeEligibility) -> Self {
        Self {
            host: row.host,
            user: row.user,
            standing: standing.as_str(),
            since: row.since.to_string(),
            until: row.until.to_string(),
            set_by: row.set_by,
            reason: row.reason,
            evidence: row.evidence,
        }
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct NodeQuarantineList {
    /// The entries of this page or list.
    items: Vec<NodeQuarantineResponse>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct QuarantineNode {
    /// Host name as `windlass worker list` shows it.
    #[schema(min_length = 1, max_length = 1000)]
    host: String,
    /// Duration in seconds; afterwards the node is tried with one job.
    #[schema(minimum = 1, maximum = 31_622_400)]
    seconds: u64,
    /// Reason, shown in listings.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
}

/// List nodes in quarantine or on probation
#[utoipa::path(get, path = "/nodes", tag = "workers",
    responses((status = 200, description = "Nodes by name", body = NodeQuarantineList)))]
async fn list_quarantined_nodes(
    State(state): State<AppState>,
    caller: Caller,
) -> ApiResult<Json<NodeQuarantineList>> {
    caller.authorize(AuthOperation::ListVisible, ObjectRelation::Own, "node")?;
    let rows = state.with_store(|store| store.quarantined_nodes()).await?;
    let present = call_service(|reply| state.service.list_workers(reply)).await?;
    let now = SystemClock.now();
    // Nodes of other users' workers are hidden.
    let seen = |row: &NodeQuarantineRow| {
        caller.0.sees_all() || row.user.as_deref().is_none_or(|user| *user == *caller.0.user)
    };
    let items = rows.into_iter().filter(seen).map(|row| {
        let standing = node_standing(&row, &present, now);
        NodeQuarantineResponse::new(row, standing)
    });
    Ok(Json(NodeQuarantineList { items: items.collect() }))
}

/// Quarantine a node
///
/// Its workers get no more jobs for that time; running jobs continue. Afterwards the node is tried with one
/// job.
#[utoipa::path(post, path = "/nodes", tag = "workers", request_body = QuarantineNode, responses(
    (status = 200, description = "The node is in quarantine", body = NodeQuarantineResponse),
    (status = 403, description = "Requires the role operator"),
    (status = 422, description = "Missing name or duration")))]
async fn quarantine_node(
    State(state): State<AppState>,
    caller: Caller,
    Json(new): Json<QuarantineNode>,
) -> ApiResult<Json<NodeQuarantineResponse>> {
    caller.authorize(AuthOperation::ManageNodes, ObjectRelation::Own, "node")?;
    let duration = Duration::from_secs(new.seconds);
    if duration.is_zero() || duration > MAX_QUARANTINE {
        return Err(ApiError::invalid(
            "the duration of a quarantine must be between one second and one year",
        ));
    }
    if new.host.is_empty() || new.host.len().max(new.reason.len()) > MAX_REASON_LENGTH {
        return Err(ApiError::invalid("host must not be empty; host and reason may have at most 1000 bytes"));
    }
    let now = SystemClock.now();
    let node = NodeQuarantineRow {
        host: new.host,
        user: None,
        since: now,
        until: now.plus(duration),
        set_by: caller.user().to_owned(),
        reason: new.reason,
        evidence: None,
    };
    let row = call_service(|reply| state.service.quarantine_node(node, caller.user(), reply)).await?;
    Ok(Json(NodeQuarantineResponse::new(row, NodeEligibility::Quarantined)))
}

/// Returns the standing of connected workers of the node, if any: a node without a substitute is on probation
/// early.
fn node_standing(row: &NodeQuarantineRow, present: &[ConnectedWorker], now: Timestamp) -> NodeEligibility {
    let is_there = |one: &&ConnectedWorker| {
        one.quarantine.as_ref().is_some_and(|aside| aside.host == row.host && aside.user == row.user)
    };
    present
        .iter()
        .find(is_there)
        .map_or_else(|| NodeEligibility::from_quarantine(Some(row.until), now), |one| one.standing)
}

/// Release a node from quarantine
///
/// Takes effect at once and skips probation.
#[utoipa::path(delete, path = "/nodes/{host}", tag = "workers", params(("host" = String, Path,)), responses(
    (status = 200, description = "The node gets jobs again", body = Value),
    (status = 403, description = "Requires the role operator"),
    (status = 404, description = "The node is not in quarantine")))]
async fn release_node(
    State(state): State<AppState>,
    caller: Caller,
    Path(host): Path<String>,
) -> ApiResult<Json<Value>> {
    caller.authorize(AuthOperation::ManageNodes, ObjectRelation::Own, "node")?;
    call_service(|reply| state.service.release_node(&host, caller.user(), reply)).await?;
    Ok(Json(serde_json::json!({"host": host, "released": true})))
}
