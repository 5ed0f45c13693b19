//! `windlass auth access-groups`: groups of users who share workflows on a server.

use crate::args::access_groups::{
    AccessGroupAddUserArgs, AccessGroupCreateArgs, AccessGroupUserArgs, AccessGroupsSubcommand,
    WorkflowShareArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use windlass_api::torc::{AccessGroupModel, UserGroupMembershipModel as Member};
use windlass_client::Client;

const GROUP_FIELDS: &[ListField<AccessGroupModel>] = &[
    ListField::new("id", |g: &AccessGroupModel| g.id.into()).column(TableColumn::number("ID")),
    ListField::new("name", |g: &AccessGroupModel| (&g.name).into()).column(TableColumn::text("NAME")),
    ListField::new("description", |g: &AccessGroupModel| g.description.as_ref().into())
        .column(TableColumn::flexible("DESCRIPTION")),
    ListField::new("created_at", |g: &AccessGroupModel| {
        g.created_at.as_deref().map(FieldValue::parse_time).into()
    }),
];

const MEMBER_FIELDS: &[ListField<Member>] = &[
    ListField::new("group_id", |m: &Member| m.group_id.into()),
    ListField::new("user_name", |m: &Member| (&m.user_name).into()).column(TableColumn::text("USER")),
    ListField::new("role", |m: &Member| (&m.role).into()).column(TableColumn::text("ROLE")),
    ListField::new("created_at", |m: &Member| m.created_at.as_deref().map(FieldValue::parse_time).into())
        .column(TableColumn::text("SINCE")),
];

pub(crate) fn run(ctx: &CliContext, verb: &AccessGroupsSubcommand) -> Result<CliExit, CliError> {
    let client = ctx.require_server()?;
    match verb {
        AccessGroupsSubcommand::List => list_groups(ctx, client),
        AccessGroupsSubcommand::Create(args) => create_group(ctx, client, args),
        AccessGroupsSubcommand::Delete(args) => {
            let group = find_group(client, &args.group)?;
            client.delete_group(group.id)?;
            ctx.ui.print_note(&format!("access group `{}` deleted", group.name));
            Ok(CliExit::Success)
        }
        AccessGroupsSubcommand::ListMembers(args) => {
            ctx.ui.print_list(
                &ListFields::new(MEMBER_FIELDS),
                client.members(find_group(client, &args.group)?.id)?,
            )?;
            Ok(CliExit::Success)
        }
        AccessGroupsSubcommand::AddUser(args) => add_user(ctx, client, args),
        AccessGroupsSubcommand::RemoveUser(args) => remove_user(ctx, client, args),
        AccessGroupsSubcommand::Share(args) => set_shared(ctx, client, args, true),
        AccessGroupsSubcommand::Unshare(args) => set_shared(ctx, client, args, false),
    }
}

/// Finds an existing group.
struct FoundAccessGroup {
    id: i64,
    name: String,
}

/// By name first, then by number: a group may be named `7`.
fn find_group(client: &Client, wanted: &str) -> Result<FoundAccessGroup, CliError> {
    let groups = client.groups()?;
    let number = wanted.parse().ok();
    let by_name = groups.iter().find(|group| group.name == wanted);
    let found = by_name.or_else(|| groups.iter().find(|group| group.id.is_some() && group.id == number));
    let found = found.and_then(|group| Some(FoundAccessGroup { id: group.id?, name: group.name.clone() }));
    found.ok_or_else(|| {
        CliError::user(format!("access group `{wanted}` does not exist, or you are not a member"))
            .with_hint("`windlass auth access-groups list` lists the groups that you can see")
    })
}

fn list_groups(ctx: &CliContext, client: &Client) -> Result<CliExit, CliError> {
    if ctx.ui.print_list(&ListFields::new(GROUP_FIELDS), client.groups()?)? == 0 {
        ctx.ui.print_note(
            "you are not a member of any group; an admin creates groups: `windlass auth access-groups create`",
        );
    }
    Ok(CliExit::Success)
}

fn create_group(
    ctx: &CliContext,
    client: &Client,
    args: &AccessGroupCreateArgs,
) -> Result<CliExit, CliError> {
    let group = client.create_group(&args.name, args.description.as_deref())?;
    ctx.ui.print_record(&ListFields::new(GROUP_FIELDS), group)?;
    Ok(CliExit::Success)
}

fn add_user(ctx: &CliContext, client: &Client, args: &AccessGroupAddUserArgs) -> Result<CliExit, CliError> {
    let group = find_group(client, &args.member.group.group)?;
    let member = client.add_member(group.id, &args.member.user, args.role.name())?;
    ctx.ui.print_note(&format!("{} is in `{}` as {}", member.user_name, group.name, member.role));
    Ok(CliExit::Success)
}

fn remove_user(ctx: &CliContext, client: &Client, args: &AccessGroupUserArgs) -> Result<CliExit, CliError> {
    let group = find_group(client, &args.group.group)?;
    client.remove_member(group.id, &args.user)?;
    ctx.ui.print_note(&format!("{} is no longer a member of `{}`", args.user, group.name));
    Ok(CliExit::Success)
}

fn set_shared(
    ctx: &CliContext,
    client: &Client,
    args: &WorkflowShareArgs,
    is_shared: bool,
) -> Result<CliExit, CliError> {
    let workflow = object_selection::find_workflow(&*ctx.open_read()?, &args.workflow)?;
    let group = find_group(client, &args.group.group)?;
    let how = if is_shared {
        client.share_workflow(workflow.id, group.id)?;
        "is shared"
    } else {
        client.unshare_workflow(workflow.id, group.id)?;
        "is no longer shared"
    };
    ctx.ui.print_note(&format!("workflow {} (`{}`) {how} with `{}`", workflow.id, workflow.name, group.name));
    Ok(CliExit::Success)
}
