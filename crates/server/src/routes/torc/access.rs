//! Access groups: users who share workflows.

use super::call_context::TorcCallContext;
use super::input;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::PageQuery;
use windlass_api::torc::{
    AccessCheckResponse, AccessGroupModel, GroupPage, UserGroupMembershipModel, WorkflowAccessGroupModel,
};
use windlass_auth::{AuthOperation, ObjectRelation};
use windlass_store::model::{AccessGroupRow, GroupMemberRow};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("access")
        .get(
            "/access_groups",
            "list_access_groups",
            "List the access groups that the caller may see",
            list_groups,
        )
        .post("/access_groups", "create_access_group", "Create an access group", create_group)
        .get("/access_groups/{id}", "get_access_group", "Get an access group", get_group)
        .delete("/access_groups/{id}", "delete_access_group", "Delete an access group", delete_group)
        .get("/access_groups/{id}/members", "list_group_members", "List the members of a group", list_members)
        .post("/access_groups/{id}/members", "add_user_to_group", "Add a member to a group", add_member)
        .delete(
            "/access_groups/{id}/members/{user_name}",
            "remove_user_from_group",
            "Remove a member from a group",
            remove_member,
        )
        .get("/users/{user_name}/groups", "list_user_groups", "List the groups of a user", list_user_groups)
        .get(
            "/workflows/{id}/access_groups",
            "list_workflow_groups",
            "List the groups that share a workflow",
            list_workflow_groups,
        )
        .post(
            "/workflows/{id}/access_groups/{group_id}",
            "add_workflow_to_group",
            "Share a workflow with a group",
            share_workflow,
        )
        .delete(
            "/workflows/{id}/access_groups/{group_id}",
            "remove_workflow_from_group",
            "Stop sharing a workflow with a group",
            unshare_workflow,
        )
        .get(
            "/access_check/{workflow_id}/{user_name}",
            "check_workflow_access",
            "Check whether a user may access a workflow",
            check_access,
        )
}

fn group_page(
    call: &TorcCallContext,
    groups: Vec<AccessGroupRow>,
    page: &PageQuery,
) -> ApiResult<GroupPage<AccessGroupModel>> {
    call.authorize(AuthOperation::ListVisible)?;
    let view = page.view();
    Ok(GroupPage::from_full_list(groups.into_iter().map(group_model).collect(), view.offset, view.limit))
}

/// Returns the group if the caller may perform the operation on it.
fn authorize_group(call: &TorcCallContext, operation: AuthOperation, id: i64) -> ApiResult<AccessGroupRow> {
    let missing = || ApiError::not_found(format_args!("access group {id}"));
    call.check_access(operation, ObjectRelation::Own, missing)?;
    let row = call.store().group(id)?.ok_or_else(missing)?;
    let mine = call.store().groups_of_user(call.caller_name())?.into_iter().find(|(group, _)| group.id == id);
    let relation = match mine {
        Some((_, member)) if member.role == "admin" => ObjectRelation::Own,
        Some(_) => ObjectRelation::Shared,
        None => ObjectRelation::Other,
    };
    call.check_access(operation, relation, missing)?;
    Ok(row)
}

fn list_groups(
    call: &TorcCallContext,
    Query(query): Query<PageQuery>,
) -> ApiResult<GroupPage<AccessGroupModel>> {
    call.authorize(AuthOperation::ListVisible)?;
    let groups = if call.principal.sees_all() {
        call.store().groups()?
    } else {
        call.store().groups_of_user(call.caller_name())?.into_iter().map(|(group, _)| group).collect()
    };
    group_page(call, groups, &query)
}

fn create_group(call: &TorcCallContext, Json(body): Json<AccessGroupModel>) -> ApiResult<AccessGroupModel> {
    call.authorize(AuthOperation::CreateGroup)?;
    let name = input::check_name("an access group", &body.name)?;
    let id = call.store().acting_as(call.caller_name()).add_group(
        &name,
        body.description.as_deref(),
        call.now(),
    )?;
    get_group(call, Path(id))
}

fn get_group(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<AccessGroupModel> {
    authorize_group(call, AuthOperation::ReadGroup, id).map(group_model)
}

fn delete_group(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<AccessGroupModel> {
    let row = authorize_group(call, AuthOperation::DeleteGroup, id)?;
    call.store().acting_as(call.caller_name()).delete_group(id, call.now())?;
    call.state.service.notify_access_changed();
    Ok(group_model(row))
}

fn list_members(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<PageQuery>,
) -> ApiResult<GroupPage<UserGroupMembershipModel>> {
    authorize_group(call, AuthOperation::ReadGroup, id)?;
    let members = call.store().members(id)?.into_iter().map(membership_model).collect();
    let view = query.view();
    Ok(GroupPage::from_full_list(members, view.offset, view.limit))
}

fn add_member(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<UserGroupMembershipModel>,
) -> ApiResult<UserGroupMembershipModel> {
    authorize_group(call, AuthOperation::ChangeGroup, id)?;
    if body.group_id != id && body.group_id != 0 {
        return Err(ApiError::invalid("the membership names another group than the path"));
    }
    let user = input::check_name("a member", &body.user_name)?;
    let role = match body.role.as_str() {
        "" | "member" => "member",
        "admin" => "admin",
        _ => return Err(ApiError::invalid("role: `member` or `admin`")),
    };
    Ok(membership_model(call.store().acting_as(call.caller_name()).add_member(
        id,
        &user,
        role,
        call.now(),
    )?))
}

fn remove_member(
    call: &TorcCallContext,
    Path((id, user)): Path<(i64, String)>,
) -> ApiResult<UserGroupMembershipModel> {
    authorize_group(call, AuthOperation::ChangeGroup, id)?;
    let member = call.store().members(id)?.into_iter().find(|member| member.user_name == user);
    let member =
        member.ok_or_else(|| ApiError::not_found(format_args!("member `{user}` of access group {id}")))?;
    call.store().acting_as(call.caller_name()).remove_member(id, &user, call.now())?;
    call.state.service.notify_access_changed();
    Ok(membership_model(member))
}

/// For another user, lists only groups that the caller shares with that user.
fn list_user_groups(
    call: &TorcCallContext,
    Path(user): Path<String>,
    Query(query): Query<PageQuery>,
) -> ApiResult<GroupPage<AccessGroupModel>> {
    call.authorize(AuthOperation::ListVisible)?;
    let mut groups: Vec<AccessGroupRow> =
        call.store().groups_of_user(&user)?.into_iter().map(|(group, _)| group).collect();
    if user != *call.principal.user && !call.principal.sees_all() {
        let mine: Vec<i64> =
            call.store().groups_of_user(call.caller_name())?.into_iter().map(|(group, _)| group.id).collect();
        groups.retain(|group| mine.contains(&group.id));
    }
    group_page(call, groups, &query)
}

fn list_workflow_groups(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<PageQuery>,
) -> ApiResult<GroupPage<AccessGroupModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    group_page(call, call.store().groups_sharing(row.id)?, &query)
}

/// A workflow can be shared with any visible group; the owner decides.
fn share_workflow(
    call: &TorcCallContext,
    Path((id, group_id)): Path<(i64, i64)>,
) -> ApiResult<WorkflowAccessGroupModel> {
    let row = call.authorize_workflow(AuthOperation::ShareWorkflow, id)?;
    authorize_group(call, AuthOperation::ReadGroup, group_id)?;
    let shared = call.store().acting_as(call.caller_name()).share_workflow(row.id, group_id, call.now())?;
    Ok(WorkflowAccessGroupModel {
        group_id,
        workflow_id: id,
        created_at: Some(shared.created_at.to_string()),
    })
}

fn unshare_workflow(
    call: &TorcCallContext,
    Path((id, group_id)): Path<(i64, i64)>,
) -> ApiResult<WorkflowAccessGroupModel> {
    let row = call.authorize_workflow(AuthOperation::ShareWorkflow, id)?;
    let is_shared = call.store().groups_sharing(row.id)?.iter().any(|group| group.id == group_id);
    if !is_shared {
        return Err(ApiError::not_found(format_args!("access group {group_id} of workflow {id}")));
    }
    call.store().acting_as(call.caller_name()).unshare_workflow(row.id, group_id, call.now())?;
    call.state.service.notify_access_changed();
    Ok(WorkflowAccessGroupModel { group_id, workflow_id: id, created_at: None })
}

fn check_access(
    call: &TorcCallContext,
    Path((id, user)): Path<(i64, String)>,
) -> ApiResult<AccessCheckResponse> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let (has_access, reason) = match () {
        () if row.user == user => (true, "owner of the workflow"),
        () if call.store().is_shared_with(row.id, &user)? => {
            (true, "member of a group that shares the workflow")
        }
        () => (false, "neither the owner nor a member of a group that shares the workflow"),
    };
    Ok(AccessCheckResponse { has_access, reason: Some(reason.to_owned()), user_name: user, workflow_id: id })
}

fn group_model(row: AccessGroupRow) -> AccessGroupModel {
    AccessGroupModel {
        id: Some(row.id),
        name: row.name,
        description: row.description,
        created_at: Some(row.created_at.to_string()),
    }
}

fn membership_model(row: GroupMemberRow) -> UserGroupMembershipModel {
    UserGroupMembershipModel {
        id: Some(row.id),
        group_id: row.group_id,
        user_name: row.user_name,
        role: row.role,
        created_at: Some(row.created_at.to_string()),
    }
}
