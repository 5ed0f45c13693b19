//! Commands about workflows.

use super::list_options::{ConfirmArgs, ListPageArgs};
use super::object_refs::{WorkflowRef, WorkflowSet};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WorkflowsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<WorkflowsSubcommand>,
    #[command(flatten)]
    pub(crate) list: WorkflowsListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowsSubcommand {
    /// List the workflows in this database, newest first.
    List(WorkflowsListArgs),
    /// Show the details of a workflow.
    Get(OneWorkflowArgs),
    /// Create a workflow without jobs, to add jobs with `windlass jobs create`.
    New(super::crud::NewWorkflowArgs),
    /// Change the name, description, owner, project or metadata of a workflow.
    Update(UpdateWorkflowArgs),
    /// Mark jobs whose inputs changed, and their dependents, to run again.
    Reinit(super::plan_and_reset::ReinitArgs),
    /// Mark jobs and their dependents to run again.
    ResetStatus(super::plan_and_reset::ResetStatusArgs),
    /// Return jobs of dead workers to the queue.
    SyncStatus(super::recover::SyncStatusArgs),
    /// Check that the input files of a workflow exist.
    Init(super::plan_and_reset::WorkflowInitArgs),
    /// Print `true` if a workflow has ended, otherwise `false`.
    IsComplete(OneWorkflowArgs),
    /// Hide workflows from lists, or restore them.
    Archive(WorkflowArchiveArgs),
    /// Delete workflows with their jobs, results and events.
    Delete(WorkflowDeleteArgs),
    /// Export a workflow to a file that another database can import.
    Export(WorkflowExportArgs),
    /// Import a workflow that `export` wrote.
    Import(WorkflowImportArgs),
    /// Actions of a workflow and their executions: list, show, retry.
    Actions(super::actions::ActionsArgs),
    /// List the definitions of the actions of a workflow.
    ListActions(ListInWorkflowArgs),
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Archived workflows are not listed by default.

Examples:
  windlass workflows
  windlass workflows list --include-archived --sort-by name
  windlass workflows list -f csv > workflows.csv")]
pub(crate) struct WorkflowsListArgs {
    /// Only archived workflows.
    #[arg(long)]
    pub(crate) archived_only: bool,
    /// Include archived workflows.
    #[arg(long, conflicts_with = "archived_only")]
    pub(crate) include_archived: bool,
    /// Only workflows of this user.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Accepted for Torc's scripts: the workflows of all users are always listed.
    #[arg(short, long, hide = true)]
    pub(crate) all_users: bool,
    /// Only workflows of this access group.
    #[arg(short = 'g', long, value_name = "NAME", hide = true)]
    pub(crate) access_group: Option<String>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OneWorkflowArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct ListInWorkflowArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass workflows update last --description 'the run for the paper'
  windlass workflows update 3 --project ocean --metadata '{\"grid\": \"1/12\"}'")]
pub(crate) struct UpdateWorkflowArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// New name.
    #[arg(short, long)]
    pub(crate) name: Option<String>,
    /// New description; an empty text removes it.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// New owner.
    #[arg(long, value_name = "NAME")]
    pub(crate) owner_user: Option<String>,
    /// New project; an empty text removes it.
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// New metadata, a JSON object that replaces the existing one.
    #[arg(long, value_name = "JSON")]
    pub(crate) metadata: Option<String>,
    /// Show what would change without changing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Archived workflows are not listed, and `last` does not refer to them. Nothing is deleted.

Examples:
  windlass workflows archive 1-5,9
  windlass workflows archive --restore 3")]
pub(crate) struct WorkflowArchiveArgs {
    /// Workflows: ids, ranges such as `1-5,9`, names, or `last`.
    #[arg(value_name = "ID", required = true)]
    pub(crate) workflows: Vec<WorkflowSet>,
    /// Restore the workflows instead.
    #[arg(long)]
    pub(crate) restore: bool,
    /// Show what would be done without doing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Deletes all data of these workflows in the database: jobs, results, events. Log files are kept. A running workflow cannot be \
deleted.

Examples:
  windlass workflows delete 3
  windlass workflows delete 1-5,9 --yes")]
pub(crate) struct WorkflowDeleteArgs {
    /// Workflows: ids, ranges such as `1-5,9`, names, or `last`.
    #[arg(value_name = "ID", required = true)]
    pub(crate) workflows: Vec<WorkflowSet>,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass workflows export > sim.json
  windlass workflows export 3 --include-results -o sim.json")]
pub(crate) struct WorkflowExportArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// File to write. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Include the results of attempts: exit codes, times, memory.
    #[arg(long)]
    pub(crate) include_results: bool,
    /// Include the events.
    #[arg(long)]
    pub(crate) include_events: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The workflow gets new ids. Without results in the file, or with --skip-results, all jobs run again. Jobs run in the \
current directory, not in that of the original workflow. Commands are not changed: ids that `${user_data.input.NAME}` \
inserted into them stay the old ids, and a warning lists these commands.

Examples:
  windlass workflows import sim.json
  windlass workflows import - --name copy < sim.json")]
pub(crate) struct WorkflowImportArgs {
    /// File that `windlass workflows export` wrote; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Name of the imported workflow. Default: the name in the file.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Do not import results.
    #[arg(long)]
    pub(crate) skip_results: bool,
    /// Do not import events.
    #[arg(long)]
    pub(crate) skip_events: bool,
    #[command(flatten)]
    pub(crate) output: super::run::OutputDirArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass status
  windlass status 1-5,9")]
pub(crate) struct WorkflowStatusArgs {
    /// Workflows: ids, ranges such as `1-5,9`, names, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflows: Vec<WorkflowSet>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The process that runs the workflow stops its jobs. If no process runs it, the workflow is canceled at once. \
`windlass resume --retry-failed` restarts a canceled workflow.")]
pub(crate) struct WorkflowCancelArgs {
    /// Workflows: ids, ranges such as `1-5,9`, names, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflows: Vec<WorkflowSet>,
    /// Wait until all jobs have stopped.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Time that a job has to exit before it is killed, if no other process runs the workflow.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = windlass_types::parse_duration)]
    pub(crate) grace: Duration,
    /// Show what would be done without doing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Accepted for Torc's scripts: there is no confirmation, because a canceled workflow can be restarted.
    #[arg(short, long, alias = "no-prompts", hide = true)]
    pub(crate) yes: bool,
}
