//! Pages of lists.

use super::{
    AccessGroupModel, AdminAuditLogEntry, ComputeNodeModel, EventModel, FailureHandlerModel, FileModel,
    JobDependencyModel, JobFileRelationshipModel, JobModel, JobUserDataRelationshipModel,
    LocalSchedulerModel, ResourceRequirementsModel, ResultModel, RoCrateEntityModel, RunningJobModel,
    ScheduledComputeNodesModel, SlurmJobCorrelationModel, SlurmSchedulerModel, SlurmStatsModel,
    UserDataModel, UserGroupMembershipModel, WorkflowModel,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, Ref, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Maximum page length.
pub const MAX_PAGE: i64 = 100_000;

/// A page of a list, with its position in the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListPage<T> {
    pub items: Vec<T>,
    /// Number of items before this page.
    pub offset: i64,
    /// Maximum page length.
    pub max_limit: i64,
    /// Number of items in this page.
    pub count: i64,
    /// Number of items in all pages.
    pub total_count: i64,
    pub has_more: bool,
}

impl<T> ListPage<T> {
    pub fn new(items: Vec<T>, offset: i64, total_count: i64) -> Self {
        let count = items.len() as i64;
        let has_more = offset.saturating_add(count) < total_count;
        Self { items, offset, max_limit: MAX_PAGE, count, total_count, has_more }
    }

    /// Returns one page of a list that is in memory as a whole.
    pub fn from_full_list(all: Vec<T>, offset: i64, limit: i64) -> Self {
        let total = all.len() as i64;
        let skip = usize::try_from(offset).unwrap_or(0);
        let take = usize::try_from(limit).unwrap_or(0);
        Self::new(all.into_iter().skip(skip).take(take).collect(), offset, total)
    }
}

/// A page of a list of access groups or memberships, which has other fields in the contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupPage<T> {
    pub items: Vec<T>,
    pub offset: i64,
    /// The requested page length.
    pub limit: i64,
    pub total_count: i64,
    pub has_more: bool,
}

impl<T> GroupPage<T> {
    pub fn from_full_list(all: Vec<T>, offset: i64, limit: i64) -> Self {
        let ListPage { items, total_count, has_more, .. } = ListPage::from_full_list(all, offset, limit);
        Self { items, offset, limit, total_count, has_more }
    }
}

/// An item type of lists. The contract names the page type of each.
pub trait PageItem: ToSchema {
    const LIST_NAME: &'static str;
}

macro_rules! listed {
    ($($model:ty => $list:literal,)*) => {$(
        impl PageItem for $model {
            const LIST_NAME: &'static str = $list;
        }
    )*};
}

listed! {
    AccessGroupModel => "ListAccessGroupsResponse",
    AdminAuditLogEntry => "ListAdminAuditLogResponse",
    ComputeNodeModel => "ListComputeNodesResponse",
    EventModel => "ListEventsResponse",
    FailureHandlerModel => "ListFailureHandlersResponse",
    FileModel => "ListFilesResponse",
    JobDependencyModel => "ListJobDependenciesResponse",
    JobFileRelationshipModel => "ListJobFileRelationshipsResponse",
    JobModel => "ListJobsResponse",
    JobUserDataRelationshipModel => "ListJobUserDataRelationshipsResponse",
    LocalSchedulerModel => "ListLocalSchedulersResponse",
    ResourceRequirementsModel => "ListResourceRequirementsResponse",
    ResultModel => "ListResultsResponse",
    RoCrateEntityModel => "ListRoCrateEntitiesResponse",
    RunningJobModel => "RunningJobsResponse",
    ScheduledComputeNodesModel => "ListScheduledComputeNodesResponse",
    SlurmJobCorrelationModel => "SlurmJobCorrelationsResponse",
    SlurmSchedulerModel => "ListSlurmSchedulersResponse",
    SlurmStatsModel => "ListSlurmStatsResponse",
    UserDataModel => "ListUserDataResponse",
    UserGroupMembershipModel => "ListUserGroupMembershipsResponse",
    WorkflowModel => "ListWorkflowsResponse",
}

impl<T: PageItem> PartialSchema for ListPage<T> {
    fn schema() -> RefOr<Schema> {
        page_schema::<T>(&["offset", "max_limit", "count", "total_count"])
    }
}

impl<T: PageItem> ToSchema for ListPage<T> {
    fn name() -> Cow<'static, str> {
        T::LIST_NAME.into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
    }
}

impl<T: PageItem> PartialSchema for GroupPage<T> {
    fn schema() -> RefOr<Schema> {
        page_schema::<T>(&["offset", "limit", "total_count"])
    }
}

impl<T: PageItem> ToSchema for GroupPage<T> {
    fn name() -> Cow<'static, str> {
        T::LIST_NAME.into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        ListPage::<T>::schemas(schemas);
    }
}

fn page_schema<T: ToSchema>(numbers: &[&str]) -> RefOr<Schema> {
    let items = ArrayBuilder::new().items(Ref::from_schema_name(T::name()));
    let mut page = ObjectBuilder::new().property("items", items).required("items");
    for number in numbers {
        page = page.property(*number, i64::schema()).required(*number);
    }
    let more = ObjectBuilder::new().schema_type(Type::Boolean);
    page.property("has_more", more).required("has_more").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_page_has_count_total_and_has_more() {
        let page = ListPage::from_full_list(vec![1, 2, 3, 4, 5], 2, 2);
        assert_eq!(
            (page.items.as_slice(), page.count, page.total_count, page.has_more),
            (&[3, 4][..], 2, 5, true)
        );
        let last = ListPage::from_full_list(vec![1, 2, 3], 2, 10);
        assert_eq!((last.count, last.has_more), (1, false));
        let beyond = ListPage::from_full_list(vec![1], i64::MAX, 1);
        assert_eq!((beyond.count, beyond.has_more), (0, false));
    }
}
