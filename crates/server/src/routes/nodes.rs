//! Nodes that get no jobs for a while, because they fail what others do not or because somebody says so.

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
use windlass_core::node_quarantine::NodeStanding;
use windlass_scheduler::service::ConnectedWorker;
use windlass_store::model::NodeQuarantineRow;
use windlass_types::{SystemClock, Timestamp};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_quarantined_nodes, quarantine_node))
        .routes(routes!(release_node))
}

/// Longer is for good: have its workers drain instead.
const MAX_QUARANTINE: Duration = Duration::from_hours(24 * 366);
const MAX_REASON_LENGTH: usize = 1000;

/// A node that is set aside, or on probation after that.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct NodeQuarantineResponse {
    host: String,
    /// Whose workers get no jobs there; `null`: everyone's.
    user: Option<String>,
    /// `set_aside`: it gets no jobs. `on_probation`: it gets one at a time until one goes well.
    standing: &'static str,
    since: String,
    /// From then on it is on probation.
    until: String,
    /// `windlass`, or who did it by hand.
    set_by: String,
    reason: String,
    /// What was counted; `null` for what somebody did by hand.
    evidence: Option<Value>,
}

impl NodeQuarantineResponse {
    fn new(row: NodeQuarantineRow, standing: NodeStanding) -> Self {
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
    items: Vec<NodeQuarantineResponse>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct QuarantineNode {
    /// As `windlass workers` shows it.
    #[schema(min_length = 1, max_length = 1000)]
    host: String,
    /// For so many seconds; then it is tried with one job.
    #[schema(minimum = 1, maximum = 31_622_400)]
    seconds: u64,
    /// For whoever wonders.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
}

/// Nodes that are set aside, or on probation
#[utoipa::path(get, path = "/nodes", tag = "workers",
    responses((status = 200, description = "Nodes that are not trusted, by name", body = NodeQuarantineList)))]
async fn list_quarantined_nodes(
    State(state): State<AppState>,
    caller: Caller,
) -> ApiResult<Json<NodeQuarantineList>> {
    caller.authorize(AuthOperation::ListVisible, ObjectRelation::Own, "node")?;
    let rows = state.with_store(|store| store.quarantined_nodes()).await?;
    let present = call_service(|reply| state.service.list_workers(reply)).await?;
    let now = SystemClock.now();
    // Of other users' workers there is nothing to know.
    let seen = |row: &NodeQuarantineRow| {
        caller.0.sees_all() || row.user.as_deref().is_none_or(|user| *user == *caller.0.user)
    };
    let items = rows.into_iter().filter(seen).map(|row| {
        let standing = node_standing(&row, &present, now);
        NodeQuarantineResponse::new(row, standing)
    });
    Ok(Json(NodeQuarantineList { items: items.collect() }))
}

/// Set a node aside
///
/// Its workers get no more jobs for that time; what they have goes on. Then it is tried with one job.
#[utoipa::path(post, path = "/nodes", tag = "workers", request_body = QuarantineNode, responses(
    (status = 200, description = "It is set aside", body = NodeQuarantineResponse),
    (status = 403, description = "This is for operators"),
    (status = 422, description = "No name, or no time")))]
async fn quarantine_node(
    State(state): State<AppState>,
    caller: Caller,
    Json(new): Json<QuarantineNode>,
) -> ApiResult<Json<NodeQuarantineResponse>> {
    caller.authorize(AuthOperation::ManageNodes, ObjectRelation::Own, "node")?;
    let spell = Duration::from_secs(new.seconds);
    if spell.is_zero() || spell > MAX_QUARANTINE {
        return Err(ApiError::invalid("a node is set aside for a second at least, and a year at most"));
    }
    if new.host.is_empty() || new.host.len().max(new.reason.len()) > MAX_REASON_LENGTH {
        return Err(ApiError::invalid("a node has a name, and name and reason are at most 1000 bytes long"));
    }
    let now = SystemClock.now();
    let node = NodeQuarantineRow {
        host: new.host,
        user: None,
        since: now,
        until: now.after(spell),
        set_by: caller.user().to_owned(),
        reason: new.reason,
        evidence: None,
    };
    let row = call_service(|reply| state.service.quarantine_node(node, caller.user(), reply)).await?;
    Ok(Json(NodeQuarantineResponse::new(row, NodeStanding::SetAside)))
}

/// Where workers are there, as they are treated: a node that nobody stands in for is on probation before its time.
fn node_standing(row: &NodeQuarantineRow, present: &[ConnectedWorker], now: Timestamp) -> NodeStanding {
    let is_there = |one: &&ConnectedWorker| {
        one.quarantine.as_ref().is_some_and(|aside| aside.host == row.host && aside.user == row.user)
    };
    present
        .iter()
        .find(is_there)
        .map_or_else(|| NodeStanding::from_quarantine(Some(row.until), now), |one| one.standing)
}

/// Trust a node again
///
/// At once, and without probation.
#[utoipa::path(delete, path = "/nodes/{host}", tag = "workers", params(("host" = String, Path,)), responses(
    (status = 200, description = "It gets jobs again", body = Value),
    (status = 403, description = "This is for operators"),
    (status = 404, description = "It is not set aside")))]
async fn release_node(
    State(state): State<AppState>,
    caller: Caller,
    Path(host): Path<String>,
) -> ApiResult<Json<Value>> {
    caller.authorize(AuthOperation::ManageNodes, ObjectRelation::Own, "node")?;
    call_service(|reply| state.service.release_node(&host, caller.user(), reply)).await?;
    Ok(Json(serde_json::json!({"host": host, "released": true})))
}
