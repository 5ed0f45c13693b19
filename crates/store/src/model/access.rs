//! Access groups and tokens. The meaning of roles is defined elsewhere.

use serde::{Deserialize, Serialize};
use windlass_types::{Timestamp, WorkflowId};

/// An access group: users who share workflows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessGroupRow {
    pub id: i64,
    pub name: String,
    pub description: Option<String>,
    pub created_at: Timestamp,
}

/// A member of an access group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMemberRow {
    pub id: i64,
    pub group_id: i64,
    pub user_name: String,
    /// Role in the group: `member`, `admin`.
    pub role: String,
    pub created_at: Timestamp,
}

/// A workflow shared with a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowGroupRow {
    pub workflow_id: WorkflowId,
    pub group_id: i64,
    pub created_at: Timestamp,
}

/// A token to store; only its hash is stored.
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
