//! What jobs printed.

use super::list_options::ListPageArgs;
use super::object_refs::{JobRef, WorkflowRef};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use windlass_types::RunId;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "\
Shows the newest attempt, both streams, unless told otherwise.

Examples:
  windlass logs align_7
  windlass logs align_7 --stderr --tail 20
  windlass logs follow align_7                  until the job is over, across attempts
  windlass logs 12 --run 1 --attempt 1
  windlass logs analyze                         lines of failed attempts that say what went wrong
  windlass logs bundle                          everything for somebody who is to help, in one file"
)]
pub(crate) struct LogsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<LogsSubcommand>,
    #[command(flatten)]
    pub(crate) show: Option<LogShowArgs>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogsSubcommand {
    /// Show what a job printed.
    Show(LogShowArgs),
    /// Print what a job writes, until it is over.
    Follow(LogShowArgs),
    /// Look for known signs of trouble in the logs of attempts that failed.
    Analyze(LogAnalyzeArgs),
    /// Pack logs, spec, status and results of a workflow into one file.
    Bundle(LogBundleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LogShowArgs {
    /// Job: its id, its name, or the beginning of its name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Only what it wrote to stderr.
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Only what it wrote to stdout.
    #[arg(long)]
    pub(crate) stdout: bool,
    /// Show this attempt instead of the newest.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// Show this run of the workflow instead of the newest in which the job ran.
    #[arg(short, long, value_name = "N")]
    pub(crate) run: Option<RunId>,
    /// Go on printing what the job writes until it is over.
    #[arg(long, conflicts_with_all = ["attempt", "run"])]
    pub(crate) follow: bool,
    /// Begin with the last N lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Workflow of the job: its id, its name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass logs analyze
  windlass logs analyze --workflow 3 -f csv
  windlass logs analyze slurm-4711.out other_logs/")]
pub(crate) struct LogAnalyzeArgs {
    /// Files, or directories of files, to look at instead of the logs of the workflow.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Workflow: its id, its name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last", alias = "workflow-id")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file is a gzipped tar with the spec, the status, the jobs, the results and the logs. Look into it before you give it \
away: commands and logs may hold secrets.

Examples:
  windlass logs bundle
  windlass logs bundle 3 --bundle-dir /tmp")]
pub(crate) struct LogBundleArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Directory to put the bundle into.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) bundle_dir: PathBuf,
    /// Taken for Torc's sake and not needed: the database knows where the logs are.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
}
