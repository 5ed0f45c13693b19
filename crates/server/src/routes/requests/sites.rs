//! Sites.

use crate::caller::Caller;
use crate::error::Answer;
use crate::extract::{Json, JsonOr, Path, Query};
use crate::requests::{Actor, sites};
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{Bans, Drain, NewBan, PatchSite, Site, Sites, Unbanned};
use windlass_auth::Operation;
use windlass_store::Database;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(bans))
        .routes(routes!(show, patch))
        .routes(routes!(drain))
        .routes(routes!(enable))
        .routes(routes!(ban, unban))
}

/// Sites
#[utoipa::path(get, path = "/sites", tag = "sites", operation_id = "list_sites",
    responses((status = 200, description = "By name, with the bans that hold", body = Sites)))]
async fn list(State(state): State<AppState>, caller: Caller) -> Answer<Json<Sites>> {
    let now = state.now();
    caller.look(&state, move |db| sites::list(db, now)).await.map(Json)
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BansWanted {
    /// Only those of this site.
    site_name: Option<String>,
    /// Only those that hold for this request: its own, and those for all.
    request_name: Option<String>,
    /// Also those that are over or were lifted.
    all: Option<bool>,
}

/// Bans of sites
#[utoipa::path(get, path = "/sites/bans", tag = "sites", operation_id = "list_bans", params(BansWanted),
    responses((status = 200, description = "Those that hold, the oldest first", body = Bans)))]
async fn bans(
    State(state): State<AppState>,
    caller: Caller,
    Query(wanted): Query<BansWanted>,
) -> Answer<Json<Bans>> {
    let now = state.now();
    let BansWanted { site_name, request_name, all } = wanted;
    let look = move |db: &dyn Database| {
        sites::bans(db, site_name.as_deref(), request_name.as_deref(), all.unwrap_or(false), now)
    };
    caller.look(&state, look).await.map(Json)
}

/// A site
#[utoipa::path(get, path = "/sites/{name}", tag = "sites", operation_id = "get_site", params(("name" = String, Path,)),
    responses((status = 200, description = "The site, with the bans that hold", body = Site),
    (status = 404, description = "There is no such site")))]
async fn show(State(state): State<AppState>, caller: Caller, Path(name): Path<String>) -> Answer<Json<Site>> {
    let now = state.now();
    caller.look(&state, move |db| sites::show(db, &name, now)).await.map(Json)
}

/// Change what is known of a site, or make one known
#[utoipa::path(patch, path = "/sites/{name}", tag = "sites", operation_id = "update_site",
    params(("name" = String, Path,)), request_body = PatchSite, responses(
    (status = 200, description = "As it is now", body = Site),
    (status = 403, description = "This is for operators"),
    (status = 422, description = "The change makes no sense")))]
async fn patch(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Json(wanted): Json<PatchSite>,
) -> Answer<Json<Site>> {
    change(&state, &caller, move |db, _, now| sites::patch(db, &name, &wanted, now)).await
}

/// Have a site finish what it has and get nothing new
#[utoipa::path(post, path = "/sites/{name}/drain", tag = "sites", operation_id = "drain_site",
    params(("name" = String, Path,)), request_body = Option<Drain>, responses(
    (status = 200, description = "As it is now", body = Site),
    (status = 403, description = "This is for operators"),
    (status = 404, description = "There is no such site")))]
async fn drain(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    JsonOr(wanted): JsonOr<Drain>,
) -> Answer<Json<Site>> {
    change(&state, &caller, move |db, _, now| sites::drain(db, &name, wanted.until, now)).await
}

/// Have a site get work again
#[utoipa::path(post, path = "/sites/{name}/enable", tag = "sites", operation_id = "enable_site",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "As it is now", body = Site),
    (status = 403, description = "This is for operators"),
    (status = 404, description = "There is no such site")))]
async fn enable(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Answer<Json<Site>> {
    change(&state, &caller, move |db, _, now| sites::enable(db, &name, now)).await
}

/// Have a site get no new work for a while
#[utoipa::path(post, path = "/sites/{name}/ban", tag = "sites", operation_id = "ban_site",
    params(("name" = String, Path,)), request_body = NewBan, responses(
    (status = 200, description = "As it is now", body = Site),
    (status = 403, description = "This is for operators"),
    (status = 404, description = "There is no such site, or no such request"),
    (status = 409, description = "It would leave no site"),
    (status = 422, description = "The time makes no sense")))]
async fn ban(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Json(wanted): Json<NewBan>,
) -> Answer<Json<Site>> {
    change(&state, &caller, move |db, actor, now| sites::ban(db, &name, &wanted, actor, now)).await
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichBans {
    /// Only those for work of this request.
    request_name: Option<String>,
}

/// Lift the bans of a site
#[utoipa::path(delete, path = "/sites/{name}/ban", tag = "sites", operation_id = "unban_site",
    params(("name" = String, Path,), WhichBans), responses(
    (status = 200, description = "How many were lifted", body = Unbanned),
    (status = 403, description = "This is for operators"),
    (status = 404, description = "There is no such site")))]
async fn unban(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(which): Query<WhichBans>,
) -> Answer<Json<Unbanned>> {
    let of = which.request_name;
    change(&state, &caller, move |db, actor, now| sites::unban(db, &name, of.as_deref(), actor, now)).await
}

/// Whatever changes about a site may concern any request.
async fn change<T: Send + 'static>(
    state: &AppState,
    caller: &Caller,
    work: impl FnOnce(&dyn Database, Actor<'_>, windlass_types::Timestamp) -> Answer<T> + Send + 'static,
) -> Answer<Json<T>> {
    let changed = caller.act(state, Operation::ManageSites, work).await?;
    state.lifecycle.nudge_all();
    Ok(Json(changed))
}
