//! `windlass access-groups`: people who share workflows of a server.

use crate::args::access_groups::{AccessGroupsVerb, AddUserArgs, CreateGroupArgs, GroupUserArgs, ShareArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use windlass_api::torc::{AccessGroupModel, UserGroupMembershipModel as Member};
use windlass_client::Client;

const GROUPS: &[Field<AccessGroupModel>] = &[
    Field::new("id", |g: &AccessGroupModel| g.id.into()).column(Column::number("ID")),
    Field::new("name", |g: &AccessGroupModel| (&g.name).into()).column(Column::text("NAME")),
    Field::new("description", |g: &AccessGroupModel| g.description.as_ref().into())
        .column(Column::elastic("DESCRIPTION")),
    Field::new("created_at", |g: &AccessGroupModel| g.created_at.as_deref().map(Datum::time).into()),
];

const MEMBERS: &[Field<Member>] = &[
    Field::new("group_id", |m: &Member| m.group_id.into()),
    Field::new("user_name", |m: &Member| (&m.user_name).into()).column(Column::text("USER")),
    Field::new("role", |m: &Member| (&m.role).into()).column(Column::text("ROLE")),
    Field::new("created_at", |m: &Member| m.created_at.as_deref().map(Datum::time).into())
        .column(Column::text("SINCE")),
];

pub(crate) fn run(ctx: &Context, verb: &AccessGroupsVerb) -> Result<Exit, CliError> {
    let client = ctx.require_server()?;
    match verb {
        AccessGroupsVerb::List => list(ctx, client),
        AccessGroupsVerb::Create(args) => create(ctx, client, args),
        AccessGroupsVerb::Delete(args) => {
            let group = find(client, &args.group)?;
            client.delete_group(group.id)?;
            ctx.ui.note(&format!("group `{}` is deleted", group.name));
            Ok(Exit::Success)
        }
        AccessGroupsVerb::ListMembers(args) => {
            ctx.ui.print_list(&Listing::new(MEMBERS), client.members(find(client, &args.group)?.id)?)?;
            Ok(Exit::Success)
        }
        AccessGroupsVerb::AddUser(args) => add_user(ctx, client, args),
        AccessGroupsVerb::RemoveUser(args) => remove_user(ctx, client, args),
        AccessGroupsVerb::Share(args) => share(ctx, client, args, true),
        AccessGroupsVerb::Unshare(args) => share(ctx, client, args, false),
    }
}

/// A group that is there.
struct Found {
    id: i64,
    name: String,
}

/// By name, else by number: a group may be called `7`.
fn find(client: &Client, wanted: &str) -> Result<Found, CliError> {
    let groups = client.groups()?;
    let number = wanted.parse().ok();
    let by_name = groups.iter().find(|group| group.name == wanted);
    let found = by_name.or_else(|| groups.iter().find(|group| group.id.is_some() && group.id == number));
    let found = found.and_then(|group| Some(Found { id: group.id?, name: group.name.clone() }));
    found.ok_or_else(|| {
        CliError::user(format!("there is no access group `{wanted}`, or you are not in it"))
            .with_hint("`windlass access-groups list` shows those that you see")
    })
}

fn list(ctx: &Context, client: &Client) -> Result<Exit, CliError> {
    if ctx.ui.print_list(&Listing::new(GROUPS), client.groups()?)? == 0 {
        ctx.ui.note("you are in no group; an admin makes them: `windlass access-groups create`");
    }
    Ok(Exit::Success)
}

fn create(ctx: &Context, client: &Client, args: &CreateGroupArgs) -> Result<Exit, CliError> {
    let group = client.create_group(&args.name, args.description.as_deref())?;
    ctx.ui.print_record(&Listing::new(GROUPS), group)?;
    Ok(Exit::Success)
}

fn add_user(ctx: &Context, client: &Client, args: &AddUserArgs) -> Result<Exit, CliError> {
    let group = find(client, &args.who.of.group)?;
    let member = client.add_member(group.id, &args.who.user, args.role.name())?;
    ctx.ui.note(&format!("{} is in `{}` as {}", member.user_name, group.name, member.role));
    Ok(Exit::Success)
}

fn remove_user(ctx: &Context, client: &Client, args: &GroupUserArgs) -> Result<Exit, CliError> {
    let group = find(client, &args.of.group)?;
    client.remove_member(group.id, &args.user)?;
    ctx.ui.note(&format!("{} is not in `{}` any more", args.user, group.name));
    Ok(Exit::Success)
}

fn share(ctx: &Context, client: &Client, args: &ShareArgs, is_shared: bool) -> Result<Exit, CliError> {
    let workflow = select::workflow(&*ctx.open_read()?, &args.workflow)?;
    let group = find(client, &args.of.group)?;
    let how = if is_shared {
        client.share(workflow.id, group.id)?;
        "is shared"
    } else {
        client.unshare(workflow.id, group.id)?;
        "is not shared any more"
    };
    ctx.ui.note(&format!("workflow {} (`{}`) {how} with `{}`", workflow.id, workflow.name, group.name));
    Ok(Exit::Success)
}
