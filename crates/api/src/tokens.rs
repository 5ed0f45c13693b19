//! Who one is, and tokens for programs. Served at `/api/v1` only.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who calls, as the server sees him.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerInfo {
    pub user: String,
    /// `viewer`, `user`, `operator` or `admin`.
    pub role: String,
    /// What the credential is good for: `read`, `write`, `worker`, `agent`, `admin`.
    pub scopes: Vec<String>,
    /// That whoever vouches for him says he belongs to.
    #[serde(default)]
    pub groups: Vec<String>,
    /// What he showed: `owner`, `token`, `password`, `jwt`, `certificate`; `open` where nothing is asked for.
    pub how: String,
    /// When it is no longer good.
    #[serde(default)]
    pub expires_at: Option<String>,
}

/// A token that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// For people, to tell tokens apart.
    pub name: String,
    /// For whom; without it, for whoever asks. Only admins make tokens for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// At most that of whoever asks; without it, his own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// `read`, `write`, `worker`, `admin`; at least one.
    pub scopes: Vec<String>,
    /// How many seconds it is good; without it, as long as the credential that it is asked for with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub expires_in: Option<u32>,
}

/// A token as it is listed: without the secret, of which only a hash is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    pub id: i64,
    pub name: String,
    pub user: String,
    pub role: String,
    pub scopes: Vec<String>,
    pub created_at: String,
    #[serde(default)]
    pub expires_at: Option<String>,
    /// To the minute.
    #[serde(default)]
    pub last_used_at: Option<String>,
    #[serde(default)]
    pub revoked_at: Option<String>,
}

/// A token that was just made. This is the only time that its secret is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    pub token: String,
    pub about: TokenInfo,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub items: Vec<TokenInfo>,
}
