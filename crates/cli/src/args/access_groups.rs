//! People who share workflows.

use super::object_refs::WorkflowRef;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "\
Whoever is in a group with which a workflow is shared sees it, and may act on it as his role allows. Admins of the server \
make groups and delete them; a group's own admins take people in and put them out. Owners share their workflows.

Examples:
  windlass auth access-groups create climate --description 'the climate people'
  windlass auth access-groups add-user climate ana --role admin
  windlass auth access-groups share 7 climate
  windlass auth access-groups unshare 7 climate")]
pub(crate) struct AccessGroupsArgs {
    #[command(subcommand)]
    pub(crate) verb: AccessGroupsSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessGroupsSubcommand {
    /// List the groups that you are in; operators and admins see all.
    List,
    /// Make a group; admins only.
    Create(AccessGroupCreateArgs),
    /// Delete a group; what was shared with it is shared no more. Admins only.
    Delete(AccessGroupArgs),
    /// List who is in a group.
    #[command(alias = "list-users")]
    ListMembers(AccessGroupArgs),
    /// Take somebody into a group.
    AddUser(AccessGroupAddUserArgs),
    /// Put somebody out of a group.
    RemoveUser(AccessGroupUserArgs),
    /// Share a workflow with a group.
    #[command(alias = "add-workflow")]
    Share(WorkflowShareArgs),
    /// Share a workflow with a group no more.
    #[command(alias = "remove-workflow")]
    Unshare(WorkflowShareArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AccessGroupCreateArgs {
    /// What it is called; no two have the same name.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What it is for.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AccessGroupArgs {
    /// The group: its name or its id.
    #[arg(value_name = "GROUP")]
    pub(crate) group: String,
}

#[derive(Debug, Args)]
pub(crate) struct AccessGroupUserArgs {
    #[command(flatten)]
    pub(crate) of: AccessGroupArgs,
    /// The name of the user.
    #[arg(value_name = "USER")]
    pub(crate) user: String,
}

#[derive(Debug, Args)]
pub(crate) struct AccessGroupAddUserArgs {
    #[command(flatten)]
    pub(crate) who: AccessGroupUserArgs,
    /// What he is in the group; admins take people in and put them out.
    #[arg(short, long, value_enum, default_value = "member")]
    pub(crate) role: AccessGroupRoleArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessGroupRoleArg {
    Member,
    Admin,
}

impl AccessGroupRoleArg {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct WorkflowShareArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) of: AccessGroupArgs,
}
