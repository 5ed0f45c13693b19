//! Commands about whole workflows.

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
    Reinit(super::plan::ReinitArgs),
    /// Mark jobs and their dependents to run again.
    ResetStatus(super::plan::ResetStatusArgs),
    /// Return jobs of dead workers to the queue.
    SyncStatus(super::recover::SyncStatusArgs),
    /// Check that the input files of a workflow exist.
    Init(super::plan::WorkflowInitArgs),
    /// Report whether a workflow has ended.
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
    /// List the actions of a workflow as they are defined.
    ListActions(ListInWorkflowArgs),
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Archived workflows are left out unless asked for.

Examples:
  windlass list
  windlass list --include-archived --sort-by name
  windlass list -f csv > workflows.csv")]
pub(crate) struct WorkflowsListArgs {
    /// Only workflows that were archived.
    #[arg(long)]
    pub(crate) archived_only: bool,
    /// Archived workflows as well.
    #[arg(long, conflicts_with = "archived_only")]
    pub(crate) include_archived: bool,
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
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OneWorkflowArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct ListInWorkflowArgs {
    /// Workflow: its id, its name, or `last`.
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
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Its new name.
    #[arg(short, long)]
    pub(crate) name: Option<String>,
    /// What it is about; an empty text takes it away.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// The user it belongs to.
    #[arg(long, value_name = "NAME")]
    pub(crate) owner_user: Option<String>,
    /// The project it belongs to; an empty text takes it away.
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Notes as a JSON object, in place of those that are there.
    #[arg(long, value_name = "JSON")]
    pub(crate) metadata: Option<String>,
    /// Say what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
An archived workflow is left out of lists, and `last` does not mean it. Nothing of it is deleted.

Examples:
  windlass workflows archive 1-5,9
  windlass workflows archive --restore 3")]
pub(crate) struct WorkflowArchiveArgs {
    /// Workflows: ids, ranges such as `1-5,9`, names, or `last`.
    #[arg(value_name = "ID", required = true)]
    pub(crate) workflows: Vec<WorkflowSet>,
    /// Bring them back instead.
    #[arg(long)]
    pub(crate) restore: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Everything in the database about these workflows is gone afterwards: jobs, results, events. Their logs stay where they \
are. A workflow that somebody runs is not deleted.

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
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// File to write; standard output if none is named.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// With the results of its attempts.
    #[arg(long)]
    pub(crate) include_results: bool,
    /// With its events.
    #[arg(long)]
    pub(crate) include_events: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The workflow gets new ids. Results come along if the file holds them; otherwise its jobs have yet to run. Jobs run in \
the current directory, wherever they ran before. Commands are taken as they are: where a spec says \
`${user_data.input.NAME}` they hold the old id, which is pointed out.

Examples:
  windlass workflows import sim.json
  windlass workflows import - --name copy < sim.json")]
pub(crate) struct WorkflowImportArgs {
    /// File that `windlass workflows export` wrote; `-` reads it from stdin.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Give the workflow this name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Leave out the results that are in the file.
    #[arg(long)]
    pub(crate) skip_results: bool,
    /// Leave out the events that are in the file.
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
The process that runs the workflow is told to stop its jobs. If none runs it, the workflow is canceled at once. \
`windlass resume --retry-failed` starts a canceled workflow again.")]
pub(crate) struct WorkflowCancelArgs {
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
