//! Reports about allocations: cost, measurements of Slurm, and errors in their output.

use super::list_options::ListPageArgs;
use super::object_refs::WorkflowRef;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmReportSubcommand {
    /// Show the core-hours of a workflow's allocations: used, failed, lost, idle.
    Usage(SlurmUsageArgs),
    /// Show Slurm's accounting of a workflow's allocations and steps.
    Sacct(SacctArgs),
    /// Show Slurm's measurements of each job that ran as a step.
    Stats(SlurmStatsArgs),
    /// Explain errors in the output of allocations.
    #[command(alias = "parse-logs")]
    Logs(SlurmLogsArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
REQ is the requested time. ALLOC is the time from an allocation's start to its end, or until now. USED is the part that running jobs reserved by \
their requirements, CPU the CPU time that they used. FAILED and LOST are parts of USED: failed attempts, and attempts that \
ended with their allocation. IDLE is the rest. All values are in core-hours.

Examples:
  windlass slurm usage
  windlass slurm usage 3 --format json")]
pub(crate) struct SlurmUsageArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Runs `sacct`, so this machine needs Slurm's commands. The usage of jobs is known if they run as steps \
(`execution_config: {mode: slurm}`) for longer than the sampling interval of Slurm (often 30 s).

Examples:
  windlass slurm sacct
  windlass slurm sacct 3 --save-json --output-dir reports")]
pub(crate) struct SacctArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Also write all data into a JSON file.
    #[arg(short, long)]
    pub(crate) save_json: bool,
    /// Directory of the JSON file.
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output_dir: PathBuf,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Accounting data of the workflow's steps is queried if `sacct` is available, and stored with the workflow.

Examples:
  windlass slurm stats
  windlass slurm stats 3 --sort-by max_rss_bytes --reverse --limit 10")]
pub(crate) struct SlurmStatsArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last", alias = "workflow-id")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Slurm reports how an allocation ended; its output may explain why. A line is evidence, not proof: Slurm also writes \
`CANCELLED AT` as a mere warning.

Examples:
  windlass slurm logs                          of the newest workflow
  windlass slurm logs 3 --errors-only
  windlass slurm logs slurm-4711.out logs/     of files and directories")]
pub(crate) struct SlurmLogsArgs {
    /// Workflow (id, name, or `last`), or files and directories to search.
    #[arg(value_name = "ID|PATH")]
    pub(crate) what: Vec<PathBuf>,
    /// Workflow: id, name, or `last`.
    #[arg(short, long, value_name = "ID", alias = "workflow-id")]
    pub(crate) workflow: Option<WorkflowRef>,
    /// Only errors, without warnings.
    #[arg(long)]
    pub(crate) errors_only: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}
