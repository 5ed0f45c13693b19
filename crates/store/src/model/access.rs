//! Who may do what: access groups, and tokens of programs. What a role means is decided elsewhere.

use serde::{Deserialize, Serialize};
use windlass_types::{Timestamp, WorkflowId};

/// People who share workflows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessGroupRow {
    pub id: i64,
    pub name: String,
    pub description: Option<String>,
    pub created_at: Timestamp,
}

/// Somebody who belongs to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMemberRow {
    pub id: i64,
    pub group_id: i64,
    pub user_name: String,
    /// In the group: `member`, `admin`.
    pub role: String,
    pub created_at: Timestamp,
}

/// A workflow that a group shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowGroupRow {
    pub workflow_id: WorkflowId,
    pub group_id: i64,
    pub created_at: Timestamp,
}

/// A token to be kept; only its hash is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTokenRow {
    pub hash: String,
    pub name: String,
    pub user: String,
    pub role: String,
    pub scopes: Vec<String>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    pub id: i64,
    pub name: String,
    pub user: String,
    pub role: String,
    pub scopes: Vec<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}
