//! Access groups: people who share workflows.

use super::call::Call;
use super::input;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::Paging;
use windlass_api::torc::{
    AccessCheckResponse, AccessGroupModel, GroupPage, UserGroupMembershipModel, WorkflowAccessGroupModel,
};
use windlass_auth::{Operation, Relation};
use windlass_store::model::{GroupRow, MemberRow};

pub(super) fn table() -> Table {
    Table::new("access")
        .get("/access_groups", "list_access_groups", "The groups that one may see", list)
        .post("/access_groups", "create_access_group", "Makes a group", create)
        .get("/access_groups/{id}", "get_access_group", "One group", get)
        .delete("/access_groups/{id}", "delete_access_group", "Deletes a group", delete)
        .get("/access_groups/{id}/members", "list_group_members", "Who is in a group", members)
        .post("/access_groups/{id}/members", "add_user_to_group", "Takes somebody into a group", add_member)
        .delete(
            "/access_groups/{id}/members/{user_name}",
            "remove_user_from_group",
            "Puts somebody out of it",
            remove_member,
        )
        .get("/users/{user_name}/groups", "list_user_groups", "The groups of somebody", groups_of)
        .get(
            "/workflows/{id}/access_groups",
            "list_workflow_groups",
            "The groups that share a workflow",
            sharing,
        )
        .post("/workflows/{id}/access_groups/{group_id}", "add_workflow_to_group", "Shares a workflow", share)
        .delete(
            "/workflows/{id}/access_groups/{group_id}",
            "remove_workflow_from_group",
            "Shares it no more",
            unshare,
        )
        .get(
            "/access_check/{workflow_id}/{user_name}",
            "check_workflow_access",
            "Whether somebody may see a workflow",
            check,
        )
}

fn page(call: &Call, groups: Vec<GroupRow>, page: &Paging) -> Answer<GroupPage<AccessGroupModel>> {
    call.may(Operation::Look)?;
    let view = page.view();
    Ok(GroupPage::of(groups.into_iter().map(model).collect(), view.offset, view.limit))
}

/// The group, if he may do this to it.
fn group(call: &Call, operation: Operation, id: i64) -> Answer<GroupRow> {
    let missing = || ApiError::not_found(format_args!("access group {id}"));
    call.judge(operation, Relation::Own, missing)?;
    let row = call.store().group(id)?.ok_or_else(missing)?;
    let mine = call.store().groups_of(call.by())?.into_iter().find(|(group, _)| group.id == id);
    let relation = match mine {
        Some((_, member)) if member.role == "admin" => Relation::Own,
        Some(_) => Relation::Shared,
        None => Relation::Other,
    };
    call.judge(operation, relation, missing)?;
    Ok(row)
}

fn list(call: &Call, Query(query): Query<Paging>) -> Answer<GroupPage<AccessGroupModel>> {
    call.may(Operation::Look)?;
    let groups = if call.who.sees_all() {
        call.store().groups()?
    } else {
        call.store().groups_of(call.by())?.into_iter().map(|(group, _)| group).collect()
    };
    page(call, groups, &query)
}

fn create(call: &Call, Json(body): Json<AccessGroupModel>) -> Answer<AccessGroupModel> {
    call.may(Operation::CreateGroup)?;
    let name = input::name("an access group", &body.name)?;
    let id = call.store().acting_as(call.by()).add_group(&name, body.description.as_deref(), call.now())?;
    get(call, Path(id))
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<AccessGroupModel> {
    group(call, Operation::ReadGroup, id).map(model)
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<AccessGroupModel> {
    let row = group(call, Operation::DeleteGroup, id)?;
    call.store().acting_as(call.by()).delete_group(id, call.now())?;
    call.state.service.access_changed();
    Ok(model(row))
}

fn members(
    call: &Call,
    Path(id): Path<i64>,
    Query(query): Query<Paging>,
) -> Answer<GroupPage<UserGroupMembershipModel>> {
    group(call, Operation::ReadGroup, id)?;
    let members = call.store().members(id)?.into_iter().map(membership).collect();
    let view = query.view();
    Ok(GroupPage::of(members, view.offset, view.limit))
}

fn add_member(
    call: &Call,
    Path(id): Path<i64>,
    Json(body): Json<UserGroupMembershipModel>,
) -> Answer<UserGroupMembershipModel> {
    group(call, Operation::ChangeGroup, id)?;
    if body.group_id != id && body.group_id != 0 {
        return Err(ApiError::invalid("the membership names another group than the path"));
    }
    let user = input::name("a member", &body.user_name)?;
    let role = match body.role.as_str() {
        "" | "member" => "member",
        "admin" => "admin",
        _ => return Err(ApiError::invalid("role: `member` or `admin`")),
    };
    Ok(membership(call.store().acting_as(call.by()).add_member(id, &user, role, call.now())?))
}

fn remove_member(call: &Call, Path((id, user)): Path<(i64, String)>) -> Answer<UserGroupMembershipModel> {
    group(call, Operation::ChangeGroup, id)?;
    let member = call.store().members(id)?.into_iter().find(|member| member.user_name == user);
    let member =
        member.ok_or_else(|| ApiError::not_found(format_args!("member `{user}` of access group {id}")))?;
    call.store().acting_as(call.by()).remove_member(id, &user, call.now())?;
    call.state.service.access_changed();
    Ok(membership(member))
}

/// Of others, only those groups that one shares with them.
fn groups_of(
    call: &Call,
    Path(user): Path<String>,
    Query(query): Query<Paging>,
) -> Answer<GroupPage<AccessGroupModel>> {
    call.may(Operation::Look)?;
    let mut groups: Vec<GroupRow> =
        call.store().groups_of(&user)?.into_iter().map(|(group, _)| group).collect();
    if user != *call.who.user && !call.who.sees_all() {
        let mine: Vec<i64> =
            call.store().groups_of(call.by())?.into_iter().map(|(group, _)| group.id).collect();
        groups.retain(|group| mine.contains(&group.id));
    }
    page(call, groups, &query)
}

fn sharing(
    call: &Call,
    Path(id): Path<i64>,
    Query(query): Query<Paging>,
) -> Answer<GroupPage<AccessGroupModel>> {
    let row = call.workflow(Operation::ReadWorkflow, id)?;
    page(call, call.store().groups_sharing(row.id)?, &query)
}

/// With any group that one sees; who owns the workflow decides.
fn share(call: &Call, Path((id, group_id)): Path<(i64, i64)>) -> Answer<WorkflowAccessGroupModel> {
    let row = call.workflow(Operation::ShareWorkflow, id)?;
    group(call, Operation::ReadGroup, group_id)?;
    let shared = call.store().acting_as(call.by()).share(row.id, group_id, call.now())?;
    Ok(WorkflowAccessGroupModel {
        group_id,
        workflow_id: id,
        created_at: Some(shared.created_at.to_string()),
    })
}

fn unshare(call: &Call, Path((id, group_id)): Path<(i64, i64)>) -> Answer<WorkflowAccessGroupModel> {
    let row = call.workflow(Operation::ShareWorkflow, id)?;
    let is_shared = call.store().groups_sharing(row.id)?.iter().any(|group| group.id == group_id);
    if !is_shared {
        return Err(ApiError::not_found(format_args!("access group {group_id} of workflow {id}")));
    }
    call.store().acting_as(call.by()).unshare(row.id, group_id, call.now())?;
    call.state.service.access_changed();
    Ok(WorkflowAccessGroupModel { group_id, workflow_id: id, created_at: None })
}

fn check(call: &Call, Path((id, user)): Path<(i64, String)>) -> Answer<AccessCheckResponse> {
    let row = call.workflow(Operation::ReadWorkflow, id)?;
    let (has_access, reason) = match () {
        () if row.user == user => (true, "it is the owner"),
        () if call.store().is_shared_with(row.id, &user)? => (true, "a group shares it"),
        () => (false, "it is neither the owner nor in a group that shares it"),
    };
    Ok(AccessCheckResponse { has_access, reason: Some(reason.to_owned()), user_name: user, workflow_id: id })
}

fn model(row: GroupRow) -> AccessGroupModel {
    AccessGroupModel {
        id: Some(row.id),
        name: row.name,
        description: row.description,
        created_at: Some(row.created_at.to_string()),
    }
}

fn membership(row: MemberRow) -> UserGroupMembershipModel {
    UserGroupMembershipModel {
        id: Some(row.id),
        group_id: row.group_id,
        user_name: row.user_name,
        role: row.role,
        created_at: Some(row.created_at.to_string()),
    }
}
