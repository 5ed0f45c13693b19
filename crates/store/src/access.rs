//! The books of who may do what. Nothing is decided here.

use crate::StoreError;
use crate::model::{AccessGroupRow, GroupMemberRow, NewTokenRow, TokenRow, WorkflowGroupRow};
use windlass_types::{Timestamp, WorkflowId};

pub trait AccessStore: Send + Sync {
    /// Refused if there is one of that name.
    fn add_group(&self, name: &str, description: Option<&str>, now: Timestamp) -> Result<i64, StoreError>;
    fn groups(&self) -> Result<Vec<AccessGroupRow>, StoreError>;
    fn group(&self, id: i64) -> Result<Option<AccessGroupRow>, StoreError>;
    /// With its memberships; workflows are then shared by one group less.
    fn delete_group(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;

    /// Somebody who is a member already gets the new role.
    fn add_member(
        &self,
        group: i64,
        user: &str,
        role: &str,
        now: Timestamp,
    ) -> Result<GroupMemberRow, StoreError>;
    fn remove_member(&self, group: i64, user: &str, now: Timestamp) -> Result<(), StoreError>;
    fn members(&self, group: i64) -> Result<Vec<GroupMemberRow>, StoreError>;
    /// The groups that somebody belongs to, and his role in each.
    fn groups_of_user(&self, user: &str) -> Result<Vec<(AccessGroupRow, GroupMemberRow)>, StoreError>;

    /// Sharing twice changes nothing.
    fn share_workflow(
        &self,
        workflow: WorkflowId,
        group: i64,
        now: Timestamp,
    ) -> Result<WorkflowGroupRow, StoreError>;
    fn unshare_workflow(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<(), StoreError>;
    fn groups_sharing(&self, workflow: WorkflowId) -> Result<Vec<AccessGroupRow>, StoreError>;
    /// Whether the workflow is shared by a group that this user belongs to.
    fn is_shared_with(&self, workflow: WorkflowId, user: &str) -> Result<bool, StoreError>;

    fn add_token(&self, token: &NewTokenRow, now: Timestamp) -> Result<i64, StoreError>;
    /// Of one user, or all; also those that are over.
    fn tokens(&self, user: Option<&str>) -> Result<Vec<TokenRow>, StoreError>;
    fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRow>, StoreError>;
    /// It counts no more. Revoking twice changes nothing.
    fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
    /// Notes that it was used. Not an event; call it now and then, not each time.
    fn record_token_use(&self, id: i64, now: Timestamp) -> Result<(), StoreError>;
}
