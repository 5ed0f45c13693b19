//! Groups of users who share workflows.

use super::object_refs::WorkflowRef;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "\
Members of a group see the workflows that are shared with it, and may act on them as far as their role permits. Server \
admins create and delete groups; admins of a group add and remove members; owners share their workflows.

Examples:
  windlass auth access-groups create climate --description 'climate modeling'
  windlass auth access-groups add-user climate ana --role admin
  windlass auth access-groups share 7 climate
  windlass auth access-groups unshare 7 climate")]
pub(crate) struct AccessGroupsArgs {
    #[command(subcommand)]
    pub(crate) verb: AccessGroupsSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessGroupsSubcommand {
    /// List your groups; operators and admins see all groups.
    List,
    /// Create a group (admins only).
    Create(AccessGroupCreateArgs),
    /// Delete a group, and stop sharing workflows with it (admins only).
    Delete(AccessGroupArgs),
    /// List the members of a group.
    #[command(alias = "list-users")]
    ListMembers(AccessGroupArgs),
    /// Add a user to a group.
    AddUser(AccessGroupAddUserArgs),
    /// Remove a user from a group.
    RemoveUser(AccessGroupUserArgs),
    /// Share a workflow with a group.
    #[command(alias = "add-workflow")]
    Share(WorkflowShareArgs),
    /// Stop sharing a workflow with a group.
    #[command(alias = "remove-workflow")]
    Unshare(WorkflowShareArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AccessGroupCreateArgs {
    /// Name of the group; must be unique.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Description of the group.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AccessGroupArgs {
    /// Group: name or id.
    #[arg(value_name = "GROUP")]
    pub(crate) group: String,
}

#[derive(Debug, Args)]
pub(crate) struct AccessGroupUserArgs {
    #[command(flatten)]
    pub(crate) group: AccessGroupArgs,
    /// Name of the user.
    #[arg(value_name = "USER")]
    pub(crate) user: String,
}

#[derive(Debug, Args)]
pub(crate) struct AccessGroupAddUserArgs {
    #[command(flatten)]
    pub(crate) member: AccessGroupUserArgs,
    /// Role in the group; `admin` may add and remove members.
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
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) group: AccessGroupArgs,
}
