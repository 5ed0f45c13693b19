//! What is done around the jobs of a workflow.

use super::WorkflowRef;
use super::workflows::ListInWorkflowArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  windlass workflows actions                     those of the newest workflow, and how they went
  windlass workflows actions show 7              all about one: its commands, its executions
  windlass workflows actions retry 7             one that failed once more"
)]
pub(crate) struct ActionsArgs {
    #[command(flatten)]
    pub(crate) list: ListInWorkflowArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<ActionsSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ActionsSubcommand {
    /// List the actions of a workflow, and how they went.
    List(ListInWorkflowArgs),
    /// Show all about one.
    #[command(alias = "get")]
    Show(OneActionArgs),
    /// Carry out one once more that failed or was interrupted.
    Retry(OneActionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OneActionArgs {
    /// The number that `windlass workflows actions` shows.
    #[arg(value_name = "ID")]
    pub(crate) action: i64,
    /// The workflow that it belongs to: id, name, or `last`.
    #[arg(short, long, value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}
