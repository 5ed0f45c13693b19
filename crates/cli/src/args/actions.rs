//! Actions of a workflow, which run commands or request allocations when something happens.

use super::WorkflowRef;
use super::workflows::ListInWorkflowArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  windlass workflows actions                     actions of the newest workflow, and their executions
  windlass workflows actions show 7              details of an action: its commands and executions
  windlass workflows actions retry 7             execute a failed action again"
)]
pub(crate) struct ActionsArgs {
    #[command(flatten)]
    pub(crate) list: ListInWorkflowArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<ActionsSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ActionsSubcommand {
    /// List the actions of a workflow, and their executions.
    List(ListInWorkflowArgs),
    /// Show the details of an action.
    #[command(alias = "get")]
    Show(OneActionArgs),
    /// Execute a failed or interrupted action again.
    Retry(OneActionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OneActionArgs {
    /// Id of the action, as `windlass workflows actions` shows it.
    #[arg(value_name = "ID")]
    pub(crate) action: i64,
    /// Workflow of the action: id, name, or `last`.
    #[arg(short, long, value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}
