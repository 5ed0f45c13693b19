//! Access groups: people who share workflows.

use crate::{Client, Error, TIMEOUT};
use windlass_api::torc::{
    AccessGroupModel, GroupPage, UserGroupMembershipModel as Member, WorkflowAccessGroupModel as Share,
};
use windlass_types::WorkflowId;

/// More than anybody has: a list comes whole.
const ALL: &str = "limit=100000";

impl Client {
    /// Those that one may see.
    pub fn groups(&self) -> Result<Vec<AccessGroupModel>, Error> {
        let page: GroupPage<AccessGroupModel> = self.get(&format!("/api/v1/access_groups?{ALL}"))?;
        Ok(page.items)
    }

    /// Nobody is in it yet.
    pub fn create_group(&self, name: &str, description: Option<&str>) -> Result<AccessGroupModel, Error> {
        let (name, description) = (name.to_owned(), description.map(str::to_owned));
        let group = AccessGroupModel { name, description, ..AccessGroupModel::default() };
        self.post("/api/v1/access_groups", &group)
    }

    pub fn delete_group(&self, group: i64) -> Result<AccessGroupModel, Error> {
        self.delete(&format!("/api/v1/access_groups/{group}"))
    }

    pub fn members(&self, group: i64) -> Result<Vec<Member>, Error> {
        let page: GroupPage<Member> = self.get(&format!("/api/v1/access_groups/{group}/members?{ALL}"))?;
        Ok(page.items)
    }

    pub fn add_member(&self, group: i64, user: &str, role: &str) -> Result<Member, Error> {
        let (user_name, role) = (user.to_owned(), role.to_owned());
        let member = Member { group_id: group, user_name, role, ..Member::default() };
        self.post(&format!("/api/v1/access_groups/{group}/members"), &member)
    }

    pub fn remove_member(&self, group: i64, user: &str) -> Result<Member, Error> {
        let url = self.address_of(&format!("/api/v1/access_groups/{group}/members"), user)?;
        self.call(self.http.delete(url), TIMEOUT)
    }

    pub fn share(&self, workflow: WorkflowId, group: i64) -> Result<Share, Error> {
        self.post(&format!("/api/v1/workflows/{workflow}/access_groups/{group}"), &serde_json::json!({}))
    }

    pub fn unshare(&self, workflow: WorkflowId, group: i64) -> Result<Share, Error> {
        self.delete(&format!("/api/v1/workflows/{workflow}/access_groups/{group}"))
    }
}
