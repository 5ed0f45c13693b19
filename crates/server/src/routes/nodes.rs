//! Nodes that get no jobs for a while, because they fail what others do not or because somebody says so.

use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path};
use crate::state::{AppState, ask};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::{Operation, Relation};
use windlass_core::nodes::Standing;
use windlass_engine::service::Present;
use windlass_store::model::NodeAside;
use windlass_types::{Clock, Timestamp};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list, set_aside)).routes(routes!(release))
}

/// Longer is for good: have its workers drain instead.
const LONGEST: Duration = Duration::from_hours(24 * 366);
const LONGEST_TEXT: usize = 1000;

/// A node that is set aside, or on probation after that.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Node {
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

impl Node {
    fn new(row: NodeAside, standing: Standing) -> Self {
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
pub(crate) struct Nodes {
    items: Vec<Node>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct NewAside {
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
    responses((status = 200, description = "Nodes that are not trusted, by name", body = Nodes)))]
async fn list(State(state): State<AppState>, caller: Caller) -> Answer<Json<Nodes>> {
    caller.may(Operation::Look, Relation::Own, "node")?;
    let rows = state.books(|store| store.nodes_aside()).await?;
    let present = ask(|reply| state.service.roster(reply)).await?;
    let now = Clock.now();
    // Of other users' workers there is nothing to know.
    let seen = |row: &NodeAside| {
        caller.0.sees_all() || row.user.as_deref().is_none_or(|user| *user == *caller.0.user)
    };
    let items = rows.into_iter().filter(seen).map(|row| {
        let standing = standing(&row, &present, now);
        Node::new(row, standing)
    });
    Ok(Json(Nodes { items: items.collect() }))
}

/// Set a node aside
///
/// Its workers get no more jobs for that time; what they have goes on. Then it is tried with one job.
#[utoipa::path(post, path = "/nodes", tag = "workers", request_body = NewAside, responses(
    (status = 200, description = "It is set aside", body = Node),
    (status = 403, description = "This is for operators"),
    (status = 422, description = "No name, or no time")))]
async fn set_aside(
    State(state): State<AppState>,
    caller: Caller,
    Json(new): Json<NewAside>,
) -> Answer<Json<Node>> {
    caller.may(Operation::ManageNodes, Relation::Own, "node")?;
    let spell = Duration::from_secs(new.seconds);
    if spell.is_zero() || spell > LONGEST {
        return Err(ApiError::invalid("a node is set aside for a second at least, and a year at most"));
    }
    if new.host.is_empty() || new.host.len().max(new.reason.len()) > LONGEST_TEXT {
        return Err(ApiError::invalid("a node has a name, and name and reason are at most 1000 bytes long"));
    }
    let now = Clock.now();
    let node = NodeAside {
        host: new.host,
        user: None,
        since: now,
        until: now.after(spell),
        set_by: caller.user().to_owned(),
        reason: new.reason,
        evidence: None,
    };
    let row = ask(|reply| state.service.set_node_aside(node, caller.user(), reply)).await?;
    Ok(Json(Node::new(row, Standing::SetAside)))
}

/// Where workers are there, as they are treated: a node that nobody stands in for is on probation before its time.
fn standing(row: &NodeAside, present: &[Present], now: Timestamp) -> Standing {
    let is_there = |one: &&Present| {
        one.set_aside.as_ref().is_some_and(|aside| aside.host == row.host && aside.user == row.user)
    };
    present.iter().find(is_there).map_or_else(|| Standing::of(Some(row.until), now), |one| one.standing)
}

/// Trust a node again
///
/// At once, and without probation.
#[utoipa::path(delete, path = "/nodes/{host}", tag = "workers", params(("host" = String, Path,)), responses(
    (status = 200, description = "It gets jobs again", body = Value),
    (status = 403, description = "This is for operators"),
    (status = 404, description = "It is not set aside")))]
async fn release(
    State(state): State<AppState>,
    caller: Caller,
    Path(host): Path<String>,
) -> Answer<Json<Value>> {
    caller.may(Operation::ManageNodes, Relation::Own, "node")?;
    ask(|reply| state.service.release_node(&host, caller.user(), reply)).await?;
    Ok(Json(serde_json::json!({"host": host, "released": true})))
}
