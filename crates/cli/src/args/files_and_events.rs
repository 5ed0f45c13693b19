//! Commands about files, user data and events.

use super::jobs::NamedObjectArgs;
use super::list_options::{ConfirmArgs, ListPageArgs};
use super::object_refs::{JobRef, WorkflowRef};
use super::workflows::{ListInWorkflowArgs, OneWorkflowArgs};
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct FilesArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<FilesSubcommand>,
    #[command(flatten)]
    pub(crate) list: FilesListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesSubcommand {
    /// List the files that a workflow declares.
    List(FilesListArgs),
    /// Show the details of a file.
    Get(NamedObjectArgs),
    /// Declare a file that jobs read or write.
    Create(super::crud::CreateFileArgs),
    /// Change the name or path of a file.
    Update(super::crud::UpdateFileArgs),
    /// Remove a file that no job uses from the workflow; the file itself is kept.
    Delete(NamedObjectArgs),
    /// List the files that must exist before the workflow runs: inputs that no job writes.
    ListRequiredExisting(ListInWorkflowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FilesListArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only output files of this job, by id or name.
    #[arg(long, value_name = "JOB", visible_alias = "produced-by")]
    pub(crate) produced_by_job_id: Option<JobRef>,
    /// Only files that do not exist.
    #[arg(long)]
    pub(crate) missing: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct UserDataArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<UserDataSubcommand>,
    #[command(flatten)]
    pub(crate) list: UserDataListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserDataSubcommand {
    /// List the user data of a workflow.
    List(UserDataListArgs),
    /// Show user data with its value.
    Get(NamedObjectArgs),
    /// Set the value of user data; jobs use it to pass values to their dependents.
    #[command(visible_alias = "set")]
    Update(UpdateUserDataArgs),
    /// Create user data.
    Create(CreateUserDataArgs),
    /// Delete user data.
    Delete(DeleteUserDataArgs),
    /// List the user data that must have a value before the workflow runs, but has none.
    ListMissing(ListInWorkflowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UserDataListArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only user data with this name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Only ephemeral user data, which is cleared before each run (true), or only other user data (false).
    #[arg(long, value_name = "TRUE|FALSE", action = ArgAction::Set)]
    pub(crate) is_ephemeral: Option<bool>,
    /// Only inputs of this job, by id or name.
    #[arg(long, value_name = "JOB")]
    pub(crate) consumer_job_id: Option<JobRef>,
    /// Only outputs of this job, by id or name.
    #[arg(long, value_name = "JOB")]
    pub(crate) producer_job_id: Option<JobRef>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Inside a job, --workflow is not needed. `${user_data.output.NAME}` in a command of the spec inserts the id of the user data.

Examples:
  windlass jobs user-data update 7 --data '{\"best\": 0.3}'
  windlass jobs user-data update limits --data @limits.json
  compute | windlass jobs user-data update limits --data -")]
pub(crate) struct UpdateUserDataArgs {
    /// Id or name.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Value as JSON; `@FILE` reads it from a file, `-` from standard input.
    #[arg(short, long, value_name = "JSON", required_unless_present = "clear")]
    pub(crate) data: Option<String>,
    /// Remove the value.
    #[arg(long, conflicts_with = "data")]
    pub(crate) clear: bool,
    /// Show what would change without changing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Workflow in which a name is looked up: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct CreateUserDataArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Name of the user data; must be new in the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    /// Value as JSON; `@FILE` reads it from a file, `-` from standard input. Default: no value.
    #[arg(short, long, value_name = "JSON")]
    pub(crate) data: Option<String>,
    /// Clear the value before each run.
    #[arg(long)]
    pub(crate) ephemeral: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteUserDataArgs {
    /// Ids or names.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Workflow in which a name is looked up: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct EventsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<EventsSubcommand>,
    #[command(flatten)]
    pub(crate) list: EventsListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsSubcommand {
    /// List the events of a workflow, oldest first.
    List(EventsListArgs),
    /// Add an event.
    Create(CreateEventArgs),
    /// Show the newest event.
    GetLatestEvent(OneWorkflowArgs),
    /// Print events as they occur, until the workflow ends.
    #[command(visible_alias = "monitor")]
    Follow(FollowEventsArgs),
    /// Delete an event; the deletion is recorded as an event.
    Delete(super::crud::RecordIdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EventsListArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only events of this category: `workflow`, `run`, `jobs`, `user` …
    #[arg(short = 't', long, value_name = "WORD", alias = "type")]
    pub(crate) category: Option<String>,
    /// Only events of at least this severity.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "debug")]
    pub(crate) level: EventSeverityArg,
    /// Events of all workflows, including deleted ones.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateEventArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Event data as JSON; other text is stored as a string.
    #[arg(short, long, value_name = "JSON")]
    pub(crate) data: String,
    /// Severity of the event.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub(crate) level: EventSeverityArg,
}

#[derive(Debug, Args)]
pub(crate) struct FollowEventsArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only events of at least this severity.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub(crate) level: EventSeverityArg,
    /// Stop after this number of minutes. Default: when the workflow ends.
    #[arg(short, long, value_name = "MINUTES", value_parser = parse_minutes)]
    pub(crate) duration: Option<Duration>,
    /// Also write the events to this file, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) filename: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventSeverityArg {
    Debug,
    Info,
    Warning,
    Error,
}

fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes: u32 = text.parse().map_err(|_| "expected a number of minutes".to_owned())?;
    Ok(Duration::from_mins(minutes.into()))
}
