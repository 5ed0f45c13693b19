//! What became of allocations: what they cost, what Slurm measured, what their output says.

use super::list_options::ListPageArgs;
use super::object_refs::WorkflowRef;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmReportSubcommand {
    /// Show what became of the core-hours of a workflow's allocations.
    Usage(SlurmUsageArgs),
    /// Show what Slurm's accounting has about a workflow's allocations and their steps.
    Sacct(SacctArgs),
    /// Show what Slurm measured of each job that ran as a step.
    Stats(SlurmStatsArgs),
    /// Explain what the output of allocations says about trouble.
    #[command(alias = "parse-logs")]
    Logs(SlurmLogsArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
GIVEN is from an allocation's start to its end, or until now. USED is what jobs held of it by what they ask for, CPU the time of
processors that they used. FAILED and LOST are parts of USED: attempts that failed, and attempts that were ended with their
allocation. IDLE is what no job held. All in core-hours.

Examples:
  windlass slurm usage
  windlass slurm usage 3 --format json")]
pub(crate) struct SlurmUsageArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(after_help = "\
`sacct` is called here, so Slurm's commands have to be on this machine. What a job used is known where jobs run as steps
(`execution_config: {mode: slurm}`), and only if it ran for longer than Slurm takes to look (often 30 s).

Examples:
  windlass slurm sacct
  windlass slurm sacct 3 --save-json --output-dir reports")]
pub(crate) struct SacctArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Write all of it as JSON into a file, too.
    #[arg(short, long)]
    pub(crate) save_json: bool,
    /// Directory for that file.
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output_dir: PathBuf,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What accounting has about the workflow's steps is asked here if `sacct` is here, and kept with the workflow.

Examples:
  windlass slurm stats
  windlass slurm stats 3 --sort-by max_rss_bytes --reverse --limit 10")]
pub(crate) struct SlurmStatsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last", alias = "workflow-id")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
How an allocation ended is known from Slurm itself; its output may say why. A line is a sign and no proof: Slurm writes
`CANCELLED AT` also when it merely warns.

Examples:
  windlass slurm logs                          of the newest workflow
  windlass slurm logs 3 --errors-only
  windlass slurm logs slurm-4711.out logs/     files and directories")]
pub(crate) struct SlurmLogsArgs {
    /// Workflow (its id, its name, or `last`), or files and directories to look at instead.
    #[arg(value_name = "ID|PATH")]
    pub(crate) what: Vec<PathBuf>,
    /// Workflow: its id, its name, or `last`.
    #[arg(short, long, value_name = "ID", alias = "workflow-id")]
    pub(crate) workflow: Option<WorkflowRef>,
    /// Leave out mere hints.
    #[arg(long)]
    pub(crate) errors_only: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}
