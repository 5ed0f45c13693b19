//! The server itself, events, and short responses.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The server is running.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PingResponse {
    pub status: String,
}

/// Version of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionResponse {
    /// Version of the contract.
    pub api_version: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_hash: Option<String>,
}

/// A recorded event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub data: Value,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

/// Description of what was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MessageResponse {
    pub message: String,
}

/// Number of deleted items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeleteCountResponse {
    pub count: i64,
}

/// Number of users in the password file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReloadAuthResponse {
    pub message: String,
    pub user_count: i64,
}

/// An SQL statement. Always rejected by this server; see the operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminSqlRequest {
    pub sql: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_full_table: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<bool>,
}

/// The result of an SQL statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminSqlResponse {
    pub columns: Vec<String>,
    pub committed: bool,
    pub items: Vec<BTreeMap<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_affected: Option<i64>,
}

/// An SQL statement run by an administrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminAuditLogEntry {
    pub id: i64,
    pub user_name: String,
    pub allow_full_table: bool,
    pub committed: bool,
    pub is_write: bool,
    pub sql_text: String,
    pub success: bool,
    pub timestamp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_affected: Option<i64>,
}

/// An error response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorResponse {
    /// `{"error": KIND, "message": TEXT}`.
    pub error: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    #[serde(rename = "errorMessage", default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    #[serde(rename = "errorNum", default, skip_serializing_if = "Option::is_none")]
    pub error_num: Option<i64>,
}
