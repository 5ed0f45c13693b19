//! Logs of jobs.

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
Default: stdout and stderr of the newest attempt.

Examples:
  windlass logs align_7
  windlass logs align_7 --stderr --tail 20
  windlass logs follow align_7                  until the job ends, including retries
  windlass logs 12 --run 1 --attempt 1
  windlass logs analyze                         error lines in the logs of failed attempts
  windlass logs bundle                          all files needed to report a problem, in one archive"
)]
pub(crate) struct LogsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<LogsSubcommand>,
    #[command(flatten)]
    pub(crate) show: Option<LogShowArgs>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogsSubcommand {
    /// Show the output of a job.
    Show(LogShowArgs),
    /// Follow the output of a job until it ends.
    Follow(LogShowArgs),
    /// Search the logs of failed attempts for known errors.
    Analyze(LogAnalyzeArgs),
    /// Pack the logs, spec, status and results of a workflow into one archive.
    Bundle(LogBundleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LogShowArgs {
    /// Job: id, name, or prefix of the name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Only stderr.
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Only stdout.
    #[arg(long)]
    pub(crate) stdout: bool,
    /// Number of the attempt. Default: the newest.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// Number of the run of the workflow. Default: the newest run of the job.
    #[arg(short, long, value_name = "N")]
    pub(crate) run: Option<RunId>,
    /// Keep printing new output until the job ends.
    #[arg(long, conflicts_with_all = ["attempt", "run"])]
    pub(crate) follow: bool,
    /// Print only the last N lines of the existing output. Default: all lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Workflow of the job: id, name, or `last`.
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
    /// Files or directories to search instead of the logs of the workflow.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Workflow: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last", alias = "workflow-id")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The archive is a gzipped tar with the spec, the status, the jobs, the results and the logs. Review it before you send it \
to others: commands and logs may contain secrets.

Examples:
  windlass logs bundle
  windlass logs bundle 3 --bundle-dir /tmp")]
pub(crate) struct LogBundleArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Directory for the archive.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) bundle_dir: PathBuf,
    /// Accepted for compatibility with Torc, without effect.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
}
