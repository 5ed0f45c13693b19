//! Access groups: users who share workflows.

use crate::{CALL_TIMEOUT, Client, ClientError};
use windlass_api::torc::{
    AccessGroupModel, GroupPage, UserGroupMembershipModel as Member, WorkflowAccessGroupModel as Share,
};
use windlass_types::WorkflowId;

/// A limit above any real number of groups: lists are fetched whole.
const LIST_ALL_QUERY: &str = "limit=100000";

impl Client {
    /// Lists the groups that the caller may see.
    pub fn groups(&self) -> Result<Vec<AccessGroupModel>, ClientError> {
        let page: GroupPage<AccessGroupModel> =
            self.get(&format!("/api/v1/access_groups?{LIST_ALL_QUERY}"))?;
        Ok(page.items)
    }

    /// Creates a group without members.
    pub fn create_group(
        &self,
        name: &str,
        description: Option<&str>,
    ) -> Result<AccessGroupModel, ClientError> {
        let (name, description) = (name.to_owned(), description.map(str::to_owned));
        let group = AccessGroupModel { name, description, ..AccessGroupModel::default() };
        self.post("/api/v1/access_groups", &group)
    }

    pub fn delete_group(&self, group: i64) -> Result<AccessGroupModel, ClientError> {
        self.delete(&format!("/api/v1/access_groups/{group}"))
    }

    pub fn members(&self, group: i64) -> Result<Vec<Member>, ClientError> {
        let page: GroupPage<Member> =
            self.get(&format!("/api/v1/access_groups/{group}/members?{LIST_ALL_QUERY}"))?;
        Ok(page.items)
    }

    pub fn add_member(&self, group: i64, user: &str, role: &str) -> Result<Member, ClientError> {
        let (user_name, role) = (user.to_owned(), role.to_owned());
        let member = Member { group_id: group, user_name, role, ..Member::default() };
        self.post(&format!("/api/v1/access_groups/{group}/members"), &member)
    }

    pub fn remove_member(&self, group: i64, user: &str) -> Result<Member, ClientError> {
        let url = self.url_for_name(&format!("/api/v1/access_groups/{group}/members"), user)?;
        self.call(self.http.delete(url), CALL_TIMEOUT)
    }

    pub fn share_workflow(&self, workflow: WorkflowId, group: i64) -> Result<Share, ClientError> {
        self.post(&format!("/api/v1/workflows/{workflow}/access_groups/{group}"), &serde_json::json!({}))
    }

    pub fn unshare_workflow(&self, workflow: WorkflowId, group: i64) -> Result<Share, ClientError> {
        self.delete(&format!("/api/v1/workflows/{workflow}/access_groups/{group}"))
    }
}
