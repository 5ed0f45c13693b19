//! Routes of sites.

use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::{Json, OptionalJson, Path, Query};
use crate::requests::{RequestActor, sites};
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{BanList, BanSite, DrainSite, PatchSite, SiteList, SiteResponse, UnbanResponse};
use windlass_auth::AuthOperation;
use windlass_store::StoreDatabase;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_sites))
        .routes(routes!(list_bans))
        .routes(routes!(get_site, update_site))
        .routes(routes!(drain_site))
        .routes(routes!(enable_site))
        .routes(routes!(ban_site, unban_site))
}

/// List sites
#[utoipa::path(get, path = "/sites", tag = "sites", operation_id = "list_sites",
    responses((status = 200, description = "By name, with active bans", body = SiteList)))]
async fn list_sites(State(state): State<AppState>, caller: Caller) -> ApiResult<Json<SiteList>> {
    let now = state.now();
    caller.read_as_caller(&state, move |db| sites::list_sites(db, now)).await.map(Json)
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BanListQuery {
    /// Only bans of this site.
    site_name: Option<String>,
    /// Only bans that apply to this request: its own, and those for all requests.
    request_name: Option<String>,
    /// Include expired and lifted bans.
    all: Option<bool>,
}

/// List bans of sites
#[utoipa::path(get, path = "/sites/bans", tag = "sites", operation_id = "list_bans", params(BanListQuery),
    responses((status = 200, description = "Active bans, oldest first", body = BanList)))]
async fn list_bans(
    State(state): State<AppState>,
    caller: Caller,
    Query(wanted): Query<BanListQuery>,
) -> ApiResult<Json<BanList>> {
    let now = state.now();
    let BanListQuery { site_name, request_name, all } = wanted;
    let look = move |db: &dyn StoreDatabase| {
        sites::list_bans(db, site_name.as_deref(), request_name.as_deref(), all.unwrap_or(false), now)
    };
    caller.read_as_caller(&state, look).await.map(Json)
}

/// Get a site
#[utoipa::path(get, path = "/sites/{name}", tag = "sites", operation_id = "get_site", params(("name" = String, Path,)),
    responses((status = 200, description = "The site, with active bans", body = SiteResponse),
    (status = 404, description = "Site not found")))]
async fn get_site(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Json<SiteResponse>> {
    let now = state.now();
    caller.read_as_caller(&state, move |db| sites::get_site(db, &name, now)).await.map(Json)
}

/// Create or change a site
#[utoipa::path(patch, path = "/sites/{name}", tag = "sites", operation_id = "update_site",
    params(("name" = String, Path,)), request_body = PatchSite, responses(
    (status = 200, description = "As it is now", body = SiteResponse),
    (status = 403, description = "Requires the role operator"),
    (status = 422, description = "Invalid change")))]
async fn update_site(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Json(wanted): Json<PatchSite>,
) -> ApiResult<Json<SiteResponse>> {
    perform_site_change(&state, &caller, move |db, _, now| sites::patch_site(db, &name, &wanted, now)).await
}

/// Drain a site: running work ends, no new work starts
#[utoipa::path(post, path = "/sites/{name}/drain", tag = "sites", operation_id = "drain_site",
    params(("name" = String, Path,)), request_body = Option<DrainSite>, responses(
    (status = 200, description = "As it is now", body = SiteResponse),
    (status = 403, description = "Requires the role operator"),
    (status = 404, description = "Site not found")))]
async fn drain_site(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(wanted): OptionalJson<DrainSite>,
) -> ApiResult<Json<SiteResponse>> {
    perform_site_change(&state, &caller, move |db, _, now| sites::drain_site(db, &name, wanted.until, now))
        .await
}

/// Enable a site
#[utoipa::path(post, path = "/sites/{name}/enable", tag = "sites", operation_id = "enable_site",
    params(("name" = String, Path,)), responses(
    (status = 200, description = "As it is now", body = SiteResponse),
    (status = 403, description = "Requires the role operator"),
    (status = 404, description = "Site not found")))]
async fn enable_site(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Json<SiteResponse>> {
    perform_site_change(&state, &caller, move |db, _, now| sites::enable_site(db, &name, now)).await
}

/// Ban a site for a time: it gets no new work
#[utoipa::path(post, path = "/sites/{name}/ban", tag = "sites", operation_id = "ban_site",
    params(("name" = String, Path,)), request_body = BanSite, responses(
    (status = 200, description = "As it is now", body = SiteResponse),
    (status = 403, description = "Requires the role operator"),
    (status = 404, description = "Site or request not found"),
    (status = 409, description = "The ban would leave no site"),
    (status = 422, description = "Invalid duration")))]
async fn ban_site(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Json(wanted): Json<BanSite>,
) -> ApiResult<Json<SiteResponse>> {
    perform_site_change(&state, &caller, move |db, actor, now| {
        sites::ban_site(db, &name, &wanted, actor, now)
    })
    .await
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UnbanQuery {
    /// Only bans for this request.
    request_name: Option<String>,
}

/// Lift the bans of a site
#[utoipa::path(delete, path = "/sites/{name}/ban", tag = "sites", operation_id = "unban_site",
    params(("name" = String, Path,), UnbanQuery), responses(
    (status = 200, description = "Number of lifted bans", body = UnbanResponse),
    (status = 403, description = "Requires the role operator"),
    (status = 404, description = "Site not found")))]
async fn unban_site(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(which): Query<UnbanQuery>,
) -> ApiResult<Json<UnbanResponse>> {
    let of = which.request_name;
    perform_site_change(&state, &caller, move |db, actor, now| {
        sites::unban_site(db, &name, of.as_deref(), actor, now)
    })
    .await
}

/// A change of a site may affect any request.
async fn perform_site_change<T: Send + 'static>(
    state: &AppState,
    caller: &Caller,
    work: impl FnOnce(&dyn StoreDatabase, RequestActor<'_>, windlass_types::Timestamp) -> ApiResult<T>
    + Send
    + 'static,
) -> ApiResult<Json<T>> {
    let changed = caller.perform_as_caller(state, AuthOperation::ManageSites, work).await?;
    state.lifecycle.wake_all();
    Ok(Json(changed))
}
