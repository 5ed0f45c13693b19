//! Commands about whole workflows.

use super::page::PageArgs;
use super::refs::{WorkflowRef, WorkflowSet};
use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WorkflowsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<WorkflowsVerb>,
    #[command(flatten)]
    pub(crate) list: WorkflowsListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowsVerb {
    /// List the workflows in this database, the newest first.
    List(WorkflowsListArgs),
    /// Show everything that is known about a workflow.
    Get(OneWorkflowArgs),
    /// Say whether a workflow is over; the exit code is 0 if it is, 3 if not.
    IsComplete(OneWorkflowArgs),
    /// As `windlass run`; the older spelling.
    #[command(hide = true)]
    Run(super::run::RunArgs),
    /// As `windlass create`; the older spelling.
    #[command(hide = true)]
    Create(super::run::CreateArgs),
    /// As `windlass status`; the older spelling.
    #[command(hide = true)]
    Status(StatusArgs),
    /// As `windlass cancel`; the older spelling.
    #[command(hide = true)]
    Cancel(CancelArgs),
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Examples:
  windlass list
  windlass list --sort-by name
  windlass list -f csv > workflows.csv")]
pub(crate) struct WorkflowsListArgs {
    /// Only workflows of this user.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Everybody's workflows. They are listed in any case.
    #[arg(short, long, hide = true)]
    pub(crate) all_users: bool,
    /// Only workflows of this access group.
    #[arg(short = 'g', long, value_name = "NAME", hide = true)]
    pub(crate) access_group: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OneWorkflowArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct ListOfWorkflowArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass status
  windlass status 1-5,9")]
pub(crate) struct StatusArgs {
    /// Workflows: ids, ranges such as `1-5,9`, names, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflows: Vec<WorkflowSet>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The process that runs the workflow is told to stop its jobs. If none runs it, the workflow is canceled at once. \
`windlass resume --retry-failed` starts a canceled workflow again.")]
pub(crate) struct CancelArgs {
    /// Workflows: ids, ranges such as `1-5,9`, names, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflows: Vec<WorkflowSet>,
    /// Return only when nothing of it runs any more.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Time that a job gets to end by itself, if this command has to end it.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = windlass_types::parse_duration)]
    pub(crate) grace: Duration,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Nobody is asked in any case: a canceled workflow can be started again. This is for Torc's sake.
    #[arg(short, long, alias = "no-prompts", hide = true)]
    pub(crate) yes: bool,
}
