//! Commands about whole workflows.

use super::list_options::{ConfirmArgs, ListPageArgs};
use super::object_refs::{WorkflowRef, WorkflowSet};
use clap::{ArgAction, Args, Subcommand};
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
    /// List the workflows in this database, the newest first.
    List(WorkflowsListArgs),
    /// Show everything that is known about a workflow.
    Get(OneWorkflowArgs),
    /// Make a workflow without jobs, to be filled by hand.
    New(super::crud::NewWorkflowArgs),
    /// Change the name, the description or other notes of a workflow.
    Update(UpdateWorkflowArgs),
    /// Put workflows out of sight, or back.
    Archive(TorcWorkflowArchiveArgs),
    /// Delete workflows with all that is known about them.
    Delete(WorkflowDeleteArgs),
    /// Say whether a workflow is over.
    IsComplete(OneWorkflowArgs),
    /// List what is to be done when something happens in a workflow.
    ListActions(ListInWorkflowArgs),
    /// Write a workflow to a file that another database can import.
    Export(WorkflowExportArgs),
    /// Read a workflow that `export` wrote.
    Import(WorkflowImportArgs),
    /// Have jobs run again, and what was built on them; as `windlass reset-status`.
    ResetStatus(super::plan::ResetStatusArgs),
    /// Check that a workflow has all it needs to run.
    Init(super::plan::WorkflowInitArgs),
    /// Find what changed since a workflow ran, and have it run again; as `windlass reinit`.
    Reinit(super::plan::ReinitArgs),
    /// Show what a spec or a workflow would do; as `windlass plan`.
    ExecutionPlan(super::plan::PlanArgs),
    /// Compare what jobs asked for with what they used; as `windlass resources check`.
    CheckResources(super::resources::ResourcesCheckArgs),
    /// Give jobs better requirements; as `windlass resources correct`.
    CorrectResources(super::resources::ResourcesCorrectArgs),
    /// Find running jobs whose worker is gone, and have them run again.
    SyncStatus(super::recover::SyncStatusArgs),
    /// As `windlass run`; the older spelling.
    #[command(hide = true)]
    Run(super::run::RunArgs),
    /// As `windlass create`; the older spelling.
    #[command(hide = true)]
    Create(super::run::CreateArgs),
    /// As `windlass status`; the older spelling.
    #[command(hide = true)]
    Status(WorkflowStatusArgs),
    /// As `windlass cancel`; the older spelling.
    #[command(hide = true)]
    Cancel(WorkflowCancelArgs),
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
  windlass archive 1-5,9
  windlass archive --restore 3")]
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
pub(crate) struct TorcWorkflowArchiveArgs {
    /// `true` puts them out of sight, `false` brings them back.
    #[arg(value_name = "TRUE|FALSE", action = ArgAction::Set)]
    pub(crate) is_archived: bool,
    /// Workflows: ids, ranges such as `1-5,9`, names, or `last`.
    #[arg(value_name = "ID", required = true)]
    pub(crate) workflows: Vec<WorkflowSet>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Everything in the database about these workflows is gone afterwards: jobs, results, events. Their logs stay where they \
are. A workflow that somebody runs is not deleted.

Examples:
  windlass delete 3
  windlass delete 1-5,9 --yes")]
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
  windlass export > sim.json
  windlass export 3 --include-results -o sim.json")]
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
  windlass import sim.json
  windlass import - --name copy < sim.json")]
pub(crate) struct WorkflowImportArgs {
    /// File that `windlass export` wrote; `-` reads it from stdin.
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
