//! Who one is, and reading the files again that say who is who.

use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::extract::Json;
use crate::state::AppState;
use axum::extract::State;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::tokens::Me;
use windlass_api::torc::ReloadAuthResponse;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(me))
}

/// What of it Torc has as well.
pub(crate) fn torc() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(reload_auth))
}

/// Who you are here
#[utoipa::path(get, path = "/me", tag = "access", responses((status = 200, description = "You", body = Me)))]
async fn me(Caller(who): Caller) -> Json<Me> {
    Json(Me {
        user: who.user.to_string(),
        role: who.role.to_string(),
        scopes: who.scopes.named().into_iter().map(str::to_owned).collect(),
        groups: who.groups.iter().map(ToString::to_string).collect(),
        how: who.how.name().to_owned(),
        expires_at: who.expires.map(|expires| expires.to_string()),
    })
}

/// Read the password file and the rest of the auth file again
///
/// If they are no good, all stays as it was.
#[utoipa::path(post, path = "/admin/reload-auth", operation_id = "reload_auth", tag = "access", responses(
    (status = 200, description = "They are read", body = ReloadAuthResponse),
    (status = 422, description = "They are no good")))]
async fn reload_auth(State(state): State<AppState>, Caller(who): Caller) -> Answer<Json<ReloadAuthResponse>> {
    let gate = Arc::clone(&state.auth);
    let reloaded = crate::state::blocking(move || gate.reload()).await?;
    let reloaded = reloaded.map_err(|error| {
        tracing::error!(%error, "the auth file is no good; the old one stays in use");
        ApiError::invalid(error.to_string())
    })?;
    tracing::info!(by = %who.user, users = reloaded.users, "read the auth files again");
    Ok(Json(ReloadAuthResponse {
        message: format!("{} users and {} issuers are known", reloaded.users, reloaded.issuers),
        user_count: reloaded.users as i64,
    }))
}
