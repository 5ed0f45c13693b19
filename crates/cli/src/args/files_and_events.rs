//! Commands about what jobs read and write, and about what happened.

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
    /// Show one of them.
    Get(NamedObjectArgs),
    /// Name a file that jobs read or write.
    Create(super::crud::CreateFileArgs),
    /// Change the name or the path of one of them.
    Update(super::crud::UpdateFileArgs),
    /// Take one that no job uses out of the workflow; the file itself stays.
    Delete(NamedObjectArgs),
    /// List the files that must be there before the workflow runs: what jobs read and no job writes.
    ListRequiredExisting(ListInWorkflowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FilesListArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only what this job writes, by id or name.
    #[arg(long, value_name = "JOB", visible_alias = "produced-by")]
    pub(crate) produced_by_job_id: Option<JobRef>,
    /// Only files that are not there.
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
    /// Show one of them with its value.
    Get(NamedObjectArgs),
    /// Set the value of one of them; a job does this to pass a value on.
    #[command(visible_alias = "set")]
    Update(UpdateUserDataArgs),
    /// Add a piece of user data.
    Create(CreateUserDataArgs),
    /// Delete pieces of user data.
    Delete(DeleteUserDataArgs),
    /// List the user data that must be there before the workflow runs, and is not.
    ListMissing(ListInWorkflowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UserDataListArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only the one with this name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Only those that are forgotten before each run, or only those that are not.
    #[arg(long, value_name = "TRUE|FALSE", action = ArgAction::Set)]
    pub(crate) is_ephemeral: Option<bool>,
    /// Only what this job reads, by id or name.
    #[arg(long, value_name = "JOB")]
    pub(crate) consumer_job_id: Option<JobRef>,
    /// Only what this job writes, by id or name.
    #[arg(long, value_name = "JOB")]
    pub(crate) producer_job_id: Option<JobRef>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
In a job the workflow is known, and the id comes from the spec: `${user_data.output.NAME}`.

Examples:
  windlass jobs user-data update 7 --data '{\"best\": 0.3}'
  windlass jobs user-data update limits --data @limits.json
  compute | windlass jobs user-data update limits --data -")]
pub(crate) struct UpdateUserDataArgs {
    /// Its id or its name.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The value as JSON; `@FILE` reads it from a file and `-` from stdin.
    #[arg(short, long, value_name = "JSON", required_unless_present = "clear")]
    pub(crate) data: Option<String>,
    /// Take the value away.
    #[arg(long, conflicts_with = "data")]
    pub(crate) clear: bool,
    /// Say what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The workflow, if it is named by its name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct CreateUserDataArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Its name, new in the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    /// The value as JSON; `@FILE` reads it from a file and `-` from stdin. Without it: nothing yet.
    #[arg(short, long, value_name = "JSON")]
    pub(crate) data: Option<String>,
    /// Forgotten before each run.
    #[arg(long)]
    pub(crate) ephemeral: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteUserDataArgs {
    /// Their ids or names.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// The workflow, if they are named by name: id, name, or `last`.
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
    /// List what happened to a workflow, the oldest first.
    List(EventsListArgs),
    /// Add an event of your own.
    Create(CreateEventArgs),
    /// Show the newest event.
    GetLatestEvent(OneWorkflowArgs),
    /// Print events as they happen, until the workflow is over.
    #[command(visible_alias = "monitor")]
    Follow(FollowEventsArgs),
    /// Delete an event; another one says so.
    Delete(super::crud::RecordIdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EventsListArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only events of this category: `workflow`, `run`, `jobs`, `user` …
    #[arg(short = 't', long, value_name = "WORD", alias = "type")]
    pub(crate) category: Option<String>,
    /// Only events at least as severe as this.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "debug")]
    pub(crate) level: EventSeverityArg,
    /// Events of all workflows, also of those that are deleted.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateEventArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// What happened, as JSON; a text that is no JSON is taken as it is.
    #[arg(short, long, value_name = "JSON")]
    pub(crate) data: String,
    /// How severe it is.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub(crate) level: EventSeverityArg,
}

#[derive(Debug, Args)]
pub(crate) struct FollowEventsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only events at least as severe as this.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub(crate) level: EventSeverityArg,
    /// Stop after so many minutes.
    #[arg(short, long, value_name = "MINUTES", value_parser = parse_minutes)]
    pub(crate) duration: Option<Duration>,
    /// Write them to this file too, one JSON object per line.
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
    let minutes: u32 = text.parse().map_err(|_| "write a number of minutes".to_owned())?;
    Ok(Duration::from_mins(minutes.into()))
}
