//! Who one is, tokens, and reading the files again that say who is who.

use crate::caller::Caller;
use crate::error::{Answer, ApiError};
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
use windlass_api::tokens::{MadeToken, Me, NewToken, Token, Tokens};
use windlass_api::torc::ReloadAuthResponse;
use windlass_auth::{Operation, Relation, Role, Scopes, Secret, TokenRequest, grant};
use windlass_store::model::{self, TokenRow};
use windlass_types::Timestamp;

const LONGEST_NAME: usize = 200;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(me)).routes(routes!(list, create, revoke_all)).routes(routes!(revoke))
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

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Whose {
    /// Of this user; without it, your own. Others' are for admins.
    user: Option<String>,
    /// Everybody's, for admins.
    #[serde(default)]
    #[param(required = false)]
    all: bool,
}

/// Your tokens
///
/// Also those that are over. The secrets are not kept, so they are not told.
#[utoipa::path(get, path = "/tokens", tag = "access", params(Whose), responses(
    (status = 200, description = "Tokens", body = Tokens),
    (status = 403, description = "They are somebody else's"), (status = 404, description = "They are somebody else's")))]
async fn list(
    State(state): State<AppState>,
    caller: Caller,
    Query(whose): Query<Whose>,
) -> Answer<Json<Tokens>> {
    let user = if whose.all { None } else { Some(whose.user.unwrap_or_else(|| caller.user().to_owned())) };
    caller.may(Operation::ReadTokens, of_user(&caller, user.as_deref()), "token of others")?;
    let rows = state.books(move |store| store.tokens(user.as_deref())).await?;
    Ok(Json(Tokens { items: rows.into_iter().map(shown).collect() }))
}

/// Make a token
///
/// It is good for no more than the credential that it is asked for with, and for no longer. Its secret is told this once.
#[utoipa::path(post, path = "/tokens", tag = "access", request_body = NewToken, responses(
    (status = 200, description = "The token", body = MadeToken),
    (status = 403, description = "It would be good for more than you are"),
    (status = 422, description = "It makes no sense")))]
async fn create(
    State(state): State<AppState>,
    Caller(who): Caller,
    Json(asked): Json<NewToken>,
) -> Answer<Json<MadeToken>> {
    let now = state.now();
    let name = checked("name", &asked.name)?;
    let request = TokenRequest {
        user: asked.user.as_deref().map(|user| checked("user", user)).transpose()?,
        role: asked
            .role
            .as_deref()
            .map(Role::from_str)
            .transpose()
            .map_err(|e| ApiError::invalid(e.to_string()))?,
        scopes: Scopes::words(asked.scopes.iter().map(String::as_str))
            .map_err(|e| ApiError::invalid(e.to_string()))?,
        lasts: asked.expires_in.map(|seconds| Duration::from_secs(seconds.into())),
    };
    let (user, role, scopes, expires) =
        grant(&who, &request, now).map_err(|refused| ApiError::forbidden(refused.to_string()))?;
    let secret = Secret::random().map_err(ApiError::internal)?;
    let new = model::NewToken {
        hash: secret.hash().to_string(),
        name,
        user: user.to_string(),
        role: role.to_string(),
        scopes: scopes.named().into_iter().map(str::to_owned).collect(),
        expires_at: expires,
    };
    let id = {
        let (by, new) = (Arc::clone(&who.user), new.clone());
        state.books(move |store| store.acting_as(&by).add_token(&new, now)).await?
    };
    let about = Token {
        id,
        name: new.name,
        user: new.user,
        role: new.role,
        scopes: new.scopes,
        created_at: now.to_string(),
        expires_at: expires.map(|expires| expires.to_string()),
        ..Token::default()
    };
    Ok(Json(MadeToken { token: secret.reveal().to_owned(), about }))
}

/// Revoke a token
///
/// From then on it lets nobody in. It stays in the list.
#[utoipa::path(delete, path = "/tokens/{id}", tag = "access", params(("id" = i64, Path,)), responses(
    (status = 200, description = "It is revoked", body = Token),
    (status = 404, description = "You have no such token")))]
async fn revoke(State(state): State<AppState>, caller: Caller, Path(id): Path<i64>) -> Answer<Json<Token>> {
    let now = state.now();
    let what = format!("token {id}");
    let row = state.books(move |store| find(store, id)).await?.ok_or_else(|| ApiError::not_found(&what))?;
    caller.may(Operation::ChangeTokens, of_user(&caller, Some(&row.user)), &what)?;
    let by = Arc::clone(&caller.0.user);
    state.books(move |store| store.acting_as(&by).revoke_token(id, now)).await?;
    state.auth.revoke_token(id);
    let revoked_at = row.revoked_at.or(Some(now));
    Ok(Json(shown(TokenRow { revoked_at, ..row })))
}

/// Revoke all tokens of a user
///
/// For a user who has left, or whose machine was broken into. New ones can be made until the user's role is `none`.
#[utoipa::path(delete, path = "/tokens", operation_id = "revoke_all", tag = "access", params(OfUser), responses(
    (status = 200, description = "Those that were revoked now", body = Tokens),
    (status = 404, description = "The user is somebody else")))]
async fn revoke_all(
    State(state): State<AppState>,
    caller: Caller,
    Query(OfUser { user }): Query<OfUser>,
) -> Answer<Json<Tokens>> {
    let now = state.now();
    caller.may(Operation::ChangeTokens, of_user(&caller, Some(&user)), "token of others")?;
    let by = Arc::clone(&caller.0.user);
    let revoked = state
        .books(move |store| {
            let mut rows = store.tokens(Some(&user))?;
            rows.retain(|row| row.revoked_at.is_none());
            let store = store.acting_as(&by);
            rows.iter().try_for_each(|row| store.revoke_token(row.id, now).map(drop))?;
            Ok::<_, windlass_store::Error>(rows)
        })
        .await?;
    for row in &revoked {
        state.auth.revoke_token(row.id);
    }
    let items = revoked.into_iter().map(|row| shown(TokenRow { revoked_at: Some(now), ..row }));
    Ok(Json(Tokens { items: items.collect() }))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfUser {
    /// The user whose tokens are revoked; others' are for admins.
    user: String,
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

fn find(store: &dyn windlass_store::Store, id: i64) -> Result<Option<TokenRow>, windlass_store::Error> {
    Ok(store.tokens(None)?.into_iter().find(|row| row.id == id))
}

/// What something of this user is to somebody; `None`: of everybody.
fn of_user(caller: &Caller, user: Option<&str>) -> Relation {
    if user == Some(caller.user()) { Relation::Own } else { Relation::Other }
}

fn checked(what: &str, text: &str) -> Answer<String> {
    let is_fine = !text.is_empty()
        && text.len() <= LONGEST_NAME
        && text.trim() == text
        && !text.contains(|c: char| c.is_control());
    if is_fine {
        return Ok(text.to_owned());
    }
    Err(ApiError::invalid(format!(
        "{what}: 1 to {LONGEST_NAME} bytes, without control characters and without blanks at its ends"
    )))
}

fn shown(row: TokenRow) -> Token {
    let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
    Token {
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
