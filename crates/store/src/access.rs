//! The books of who may do what. Nothing is decided here.

use crate::Error;
use crate::model::{GroupRow, MemberRow, NewToken, TokenRow, WorkflowGroupRow};
use windlass_types::{Timestamp, WorkflowId};

pub trait Access: Send + Sync {
    /// Refused if there is one of that name.
    fn add_group(&self, name: &str, description: Option<&str>, now: Timestamp) -> Result<i64, Error>;
    fn groups(&self) -> Result<Vec<GroupRow>, Error>;
    fn group(&self, id: i64) -> Result<Option<GroupRow>, Error>;
    /// With its memberships; workflows are then shared by one group less.
    fn delete_group(&self, id: i64, now: Timestamp) -> Result<(), Error>;

    /// Somebody who is a member already gets the new role.
    fn add_member(&self, group: i64, user: &str, role: &str, now: Timestamp) -> Result<MemberRow, Error>;
    fn remove_member(&self, group: i64, user: &str, now: Timestamp) -> Result<(), Error>;
    fn members(&self, group: i64) -> Result<Vec<MemberRow>, Error>;
    /// The groups that somebody belongs to, and his role in each.
    fn groups_of(&self, user: &str) -> Result<Vec<(GroupRow, MemberRow)>, Error>;

    /// Sharing twice changes nothing.
    fn share(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<WorkflowGroupRow, Error>;
    fn unshare(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<(), Error>;
    fn groups_sharing(&self, workflow: WorkflowId) -> Result<Vec<GroupRow>, Error>;
    /// Whether the workflow is shared by a group that this user belongs to.
    fn is_shared_with(&self, workflow: WorkflowId, user: &str) -> Result<bool, Error>;

    fn add_token(&self, token: &NewToken, now: Timestamp) -> Result<i64, Error>;
    /// Of one user, or all; also those that are over.
    fn tokens(&self, user: Option<&str>) -> Result<Vec<TokenRow>, Error>;
    fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRow>, Error>;
    /// It counts no more. Revoking twice changes nothing.
    fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), Error>;
    /// Notes that it was used. Not an event; call it now and then, not each time.
    fn note_token_use(&self, id: i64, now: Timestamp) -> Result<(), Error>;
}
