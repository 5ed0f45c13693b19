//! Storage of users' permissions: access groups and tokens. Decides nothing.

use crate::StoreError;
use crate::model::{AccessGroupRow, GroupMemberRow, NewTokenRow, TokenRow, WorkflowGroupRow};
use windlass_types::{Timestamp, WorkflowId};

pub trait AccessStore: Send + Sync {
    /// Rejected if the name is taken.
    fn add_group(&self, name: &str, description: Option<&str>, now: Timestamp) -> Result<i64, StoreError>;
    fn groups(&self) -> Result<Vec<AccessGroupRow>, StoreError>;
    fn group(&self, id: i64) -> Result<Option<AccessGroupRow>, StoreError>;
    /// Also deletes its memberships; workflows shared with it are no longer.
    fn delete_group(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;

    /// An existing member gets the new role.
    fn add_member(
        &self,
        group: i64,
        user: &str,
        role: &str,
        now: Timestamp,
    ) -> Result<GroupMemberRow, StoreError>;
    fn remove_member(&self, group: i64, user: &str, now: Timestamp) -> Result<(), StoreError>;
    fn members(&self, group: i64) -> Result<Vec<GroupMemberRow>, StoreError>;
    /// Returns the groups of a user and the user's role in each.
    fn groups_of_user(&self, user: &str) -> Result<Vec<(AccessGroupRow, GroupMemberRow)>, StoreError>;

    /// Idempotent.
    fn share_workflow(
        &self,
        workflow: WorkflowId,
        group: i64,
        now: Timestamp,
    ) -> Result<WorkflowGroupRow, StoreError>;
    fn unshare_workflow(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<(), StoreError>;
    fn groups_sharing(&self, workflow: WorkflowId) -> Result<Vec<AccessGroupRow>, StoreError>;
    /// Whether the workflow is shared with a group of this user.
    fn is_shared_with(&self, workflow: WorkflowId, user: &str) -> Result<bool, StoreError>;

    fn add_token(&self, token: &NewTokenRow, now: Timestamp) -> Result<i64, StoreError>;
    /// Returns the tokens of one user, or of all, including expired ones.
    fn tokens(&self, user: Option<&str>) -> Result<Vec<TokenRow>, StoreError>;
    fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRow>, StoreError>;
    /// Revokes a token. Idempotent.
    fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
    /// Records the last use. Not an event; to be called periodically, not for each use.
    fn record_token_use(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
}
