//! Routes of the caller's identity, access tokens, and reloading authentication.

use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::tokens::{CallerInfo, CreateToken, CreatedToken, TokenInfo, TokenList};
use windlass_api::torc::ReloadAuthResponse;
use windlass_auth::{
    AuthOperation, ObjectRelation, TokenGrantRequest, TokenScopes, TokenSecret, UserRole, grant_token,
};
use windlass_store::model::{self, TokenRow};
use windlass_types::Timestamp;

const MAX_NAME_LENGTH: usize = 200;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(get_caller))
        .routes(routes!(list_tokens, create_token, revoke_user_tokens))
        .routes(routes!(revoke_token))
}

/// Routes that the Torc contract also has.
pub(crate) fn torc_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(reload_auth))
}

/// Get the caller's identity
#[utoipa::path(get, path = "/me", tag = "access", responses((status = 200, description = "You", body = CallerInfo)))]
async fn get_caller(Caller(who): Caller) -> Json<CallerInfo> {
    Json(CallerInfo {
        user: who.user.to_string(),
        role: who.role.to_string(),
        scopes: who.scopes.to_names().into_iter().map(str::to_owned).collect(),
        groups: who.groups.iter().map(ToString::to_string).collect(),
        how: who.method.name().to_owned(),
        expires_at: who.expires.map(|expires| expires.to_string()),
    })
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TokenListQuery {
    /// Tokens of this user. Default: the caller. Other users require the role admin.
    user: Option<String>,
    /// Tokens of all users. Requires the role admin.
    #[serde(default)]
    #[param(required = false)]
    all: bool,
}

/// List access tokens
///
/// Includes expired and revoked tokens. Secrets are not stored and cannot be returned.
#[utoipa::path(get, path = "/tokens", tag = "access", params(TokenListQuery), responses(
    (status = 200, description = "Tokens", body = TokenList),
    (status = 403, description = "The tokens belong to another user"), (status = 404, description = "The tokens belong to another user")))]
async fn list_tokens(
    State(state): State<AppState>,
    caller: Caller,
    Query(whose): Query<TokenListQuery>,
) -> ApiResult<Json<TokenList>> {
    let user = if whose.all { None } else { Some(whose.user.unwrap_or_else(|| caller.user().to_owned())) };
    caller.authorize(
        AuthOperation::ReadTokens,
        token_relation(&caller, user.as_deref()),
        "token of others",
    )?;
    let rows = state.with_store(move |store| store.tokens(user.as_deref())).await?;
    Ok(Json(TokenList { items: rows.into_iter().map(api_token).collect() }))
}

/// Create an access token
///
/// It has at most the permissions and the lifetime of the credential of this request. The secret is returned
/// only here.
#[utoipa::path(post, path = "/tokens", tag = "access", request_body = CreateToken, responses(
    (status = 200, description = "The token", body = CreatedToken),
    (status = 403, description = "The token would exceed the caller's permissions"),
    (status = 422, description = "Invalid request")))]
async fn create_token(
    State(state): State<AppState>,
    Caller(who): Caller,
    Json(asked): Json<CreateToken>,
) -> ApiResult<Json<CreatedToken>> {
    let now = state.now();
    let name = check_text("name", &asked.name)?;
    let request = TokenGrantRequest {
        user: asked.user.as_deref().map(|user| check_text("user", user)).transpose()?,
        role: asked
            .role
            .as_deref()
            .map(UserRole::from_str)
            .transpose()
            .map_err(|e| ApiError::invalid(e.to_string()))?,
        scopes: TokenScopes::parse_names(asked.scopes.iter().map(String::as_str))
            .map_err(|e| ApiError::invalid(e.to_string()))?,
        lifetime: asked.expires_in.map(|seconds| Duration::from_secs(seconds.into())),
    };
    let (user, role, scopes, expires) =
        grant_token(&who, &request, now).map_err(|refused| ApiError::forbidden(refused.to_string()))?;
    let secret = TokenSecret::random().map_err(ApiError::internal)?;
    let new = model::NewTokenRow {
        hash: secret.hash().to_string(),
        name,
        user: user.to_string(),
        role: role.to_string(),
        scopes: scopes.to_names().into_iter().map(str::to_owned).collect(),
        expires_at: expires,
    };
    let id = {
        let (by, new) = (Arc::clone(&who.user), new.clone());
        state.with_store(move |store| store.acting_as(&by).add_token(&new, now)).await?
    };
    let about = TokenInfo {
        id,
        name: new.name,
        user: new.user,
        role: new.role,
        scopes: new.scopes,
        created_at: now.to_string(),
        expires_at: expires.map(|expires| expires.to_string()),
        ..TokenInfo::default()
    };
    Ok(Json(CreatedToken { token: secret.reveal().to_owned(), about }))
}

/// Revoke an access token
///
/// It is rejected from then on, and stays in the list.
#[utoipa::path(delete, path = "/tokens/{id}", tag = "access", params(("id" = i64, Path,)), responses(
    (status = 200, description = "It is revoked", body = TokenInfo),
    (status = 404, description = "Token not found")))]
async fn revoke_token(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<TokenInfo>> {
    let now = state.now();
    let what = format!("token {id}");
    let row = state
        .with_store(move |store| find_token(store, id))
        .await?
        .ok_or_else(|| ApiError::not_found(&what))?;
    caller.authorize(AuthOperation::ChangeTokens, token_relation(&caller, Some(&row.user)), &what)?;
    let by = Arc::clone(&caller.0.user);
    state.with_store(move |store| store.acting_as(&by).revoke_token(id, now)).await?;
    state.authenticator.revoke_token(id);
    let revoked_at = row.revoked_at.or(Some(now));
    Ok(Json(api_token(TokenRow { revoked_at, ..row })))
}

/// Revoke all tokens of a user
///
/// For a user who has left, or whose machine was compromised. The user can create new tokens unless the role is
/// set to `none`.
#[utoipa::path(delete, path = "/tokens", operation_id = "revoke_all", tag = "access", params(RevokeTokensQuery), responses(
    (status = 200, description = "The tokens revoked by this call", body = TokenList),
    (status = 404, description = "The user is not the caller")))]
async fn revoke_user_tokens(
    State(state): State<AppState>,
    caller: Caller,
    Query(RevokeTokensQuery { user }): Query<RevokeTokensQuery>,
) -> ApiResult<Json<TokenList>> {
    let now = state.now();
    caller.authorize(AuthOperation::ChangeTokens, token_relation(&caller, Some(&user)), "token of others")?;
    let by = Arc::clone(&caller.0.user);
    let revoked = state
        .with_store(move |store| {
            let mut rows = store.tokens(Some(&user))?;
            rows.retain(|row| row.revoked_at.is_none());
            let store = store.acting_as(&by);
            rows.iter().try_for_each(|row| store.revoke_token(row.id, now).map(drop))?;
            Ok::<_, windlass_store::StoreError>(rows)
        })
        .await?;
    for row in &revoked {
        state.authenticator.revoke_token(row.id);
    }
    let items = revoked.into_iter().map(|row| api_token(TokenRow { revoked_at: Some(now), ..row }));
    Ok(Json(TokenList { items: items.collect() }))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RevokeTokensQuery {
    /// The user whose tokens are revoked; other users require the role admin.
    user: String,
}

/// Reload the auth file and the password file
///
/// If they are invalid, the current configuration stays in use.
#[utoipa::path(post, path = "/admin/reload-auth", operation_id = "reload_auth", tag = "access", responses(
    (status = 200, description = "Reloaded", body = ReloadAuthResponse),
    (status = 422, description = "Invalid files")))]
async fn reload_auth(
    State(state): State<AppState>,
    Caller(who): Caller,
) -> ApiResult<Json<ReloadAuthResponse>> {
    let authenticator = Arc::clone(&state.authenticator);
    let reloaded = crate::state::run_blocking(move || authenticator.reload()).await?;
    let reloaded = reloaded.map_err(|error| {
        tracing::error!(%error, "the auth file is invalid; the current configuration stays in use");
        ApiError::invalid(error.to_string())
    })?;
    tracing::info!(by = %who.user, users = reloaded.users, "reloaded the auth files");
    Ok(Json(ReloadAuthResponse {
        message: format!("reloaded: {} users, {} issuers", reloaded.users, reloaded.issuers),
        user_count: reloaded.users as i64,
    }))
}

fn find_token(
    store: &dyn windlass_store::Store,
    id: i64,
) -> Result<Option<TokenRow>, windlass_store::StoreError> {
    Ok(store.tokens(None)?.into_iter().find(|row| row.id == id))
}

/// Returns the caller's relation to objects of this user; `None`: of all users.
fn token_relation(caller: &Caller, user: Option<&str>) -> ObjectRelation {
    if user == Some(caller.user()) { ObjectRelation::Own } else { ObjectRelation::Other }
}

fn check_text(what: &str, text: &str) -> ApiResult<String> {
    let is_fine = !text.is_empty()
        && text.len() <= MAX_NAME_LENGTH
        && text.trim() == text
        && !text.contains(|c: char| c.is_control());
    if is_fine {
        return Ok(text.to_owned());
    }
    Err(ApiError::invalid(format!(
        "{what} must have 1 to {MAX_NAME_LENGTH} bytes, without control characters or leading and trailing blanks"
    )))
}

fn api_token(row: TokenRow) -> TokenInfo {
    let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
    TokenInfo {
        id: row.id,
        name: row.name,
        user: row.user,
        role: row.role,
        scopes: row.scopes,
        created_at: row.created_at.to_string(),
        expires_at: text(row.expires_at),
        last_used_at: text(row.last_used_at),
        revoked_at: text(row.revoked_at),
    }
}
