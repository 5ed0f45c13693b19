//! The caller's identity, and access tokens. Served at `/api/v1` only.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The authenticated caller as the server sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerInfo {
    /// User whom the server recognizes.
    pub user: String,
    /// `viewer`, `user`, `operator` or `admin`.
    pub role: String,
    /// Scopes of the credential: `read`, `write`, `worker`, `agent`, `admin`.
    pub scopes: Vec<String>,
    /// Groups of the caller, as asserted by its identity provider.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Authentication method: `owner`, `token`, `password`, `jwt`, `certificate`; `open` if authentication is
    /// disabled.
    pub how: String,
    /// When the credential expires.
    #[serde(default)]
    pub expires_at: Option<String>,
}

/// A token to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Name to tell tokens apart.
    pub name: String,
    /// User of the token. Default: the caller. Only admins create tokens for other users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Role of the token, at most that of the caller. Default: the caller's role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// One or more of `read`, `write`, `worker`, `admin`.
    pub scopes: Vec<String>,
    /// Lifetime in seconds. Default: that of the credential that the request is made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub expires_in: Option<u32>,
}

/// A token as listed: without the secret, of which only a hash is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    /// Id of the token, to revoke it.
    pub id: i64,
    /// Name that tells tokens apart.
    pub name: String,
    /// User of the token.
    pub user: String,
    /// Maximum role of the token.
    pub role: String,
    /// Scopes of the token.
    pub scopes: Vec<String>,
    /// When it was created.
    pub created_at: String,
    /// When the token expires; `null`: never.
    #[serde(default)]
    pub expires_at: Option<String>,
    /// Accurate to the minute.
    #[serde(default)]
    pub last_used_at: Option<String>,
    /// When the token was revoked; `null`: it is valid.
    #[serde(default)]
    pub revoked_at: Option<String>,
}

/// A token that was just created. Its secret is returned only here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The token. It cannot be read again.
    pub token: String,
    /// Name, scopes and times of the token.
    pub about: TokenInfo,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// The entries of this page or list.
    pub items: Vec<TokenInfo>,
}
