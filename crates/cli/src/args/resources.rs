//! Commands about requested and used resources: check, correct, tune, plot.

use super::WorkflowRef;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use windlass_types::{JobId, RunId};

#[derive(Debug, Args)]
pub(crate) struct ResourcesArgs {
    #[command(subcommand)]
    pub(crate) verb: ResourcesSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourcesSubcommand {
    /// Compare requested with used resources.
    Check(ResourcesCheckArgs),
    /// Correct the requirements of waiting and failed jobs from measurements.
    Correct(ResourcesCorrectArgs),
    /// Write corrected requirements into a spec file.
    Tune(TuneArgs),
    /// Plot CPU and memory usage and the jobs of a workflow over time.
    Plot(PlotResourcesArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints one line per job group, that is, the jobs of one entry of the spec. If the requirements should change, the line \
shows the proposed values and the number of runs they are based on.

Examples:
  windlass resources check
  windlass resources check 3 --include-failed --all
  windlass resources check -f json | jq '.classes[] | select(.proposal)'")]
pub(crate) struct ResourcesCheckArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only this run of the workflow. Default: the newest run of each job.
    #[arg(short, long, value_name = "N")]
    pub(crate) run_id: Option<RunId>,
    /// Include job groups whose requirements need no change.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Include failed attempts.
    #[arg(long)]
    pub(crate) include_failed: bool,
    /// Only job groups in which a job exceeded its requirements by more than this percentage.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min_over_utilization: Option<f64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Increases requirements that jobs exceeded, and decreases them where all jobs of a job group (the jobs of one entry of the \
spec) completed and the saving is significant. Changes apply to the jobs of one group; other jobs with the same \
requirements keep theirs. The spec file is not changed: see `windlass resources tune`.

Examples:
  windlass resources correct --dry-run
  windlass resources correct --memory-multiplier 1.5 --no-downsize
  windlass resources correct 3 --job-ids 12,13")]
pub(crate) struct ResourcesCorrectArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) sizing: SizingArgs,
    /// Only these jobs, by id, separated by commas.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) job_ids: Vec<JobId>,
    /// Show what would change without changing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Margins above the used resources.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SizingArgs {
    /// New memory as a multiple of the largest memory used.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_multiplier)]
    pub(crate) memory_multiplier: f64,
    /// New number of CPUs as a multiple of the largest number used.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_multiplier)]
    pub(crate) cpu_multiplier: f64,
    /// New time limit as a multiple of the longest run time.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_multiplier)]
    pub(crate) runtime_multiplier: f64,
    /// Never decrease requirements.
    #[arg(long)]
    pub(crate) no_downsize: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Uses the measurements of the newest workflow in the database that this file created. Without --apply it prints the changes \
as a diff. With --apply it changes only the numbers in the file, keeps comments and layout, and notes what each change is \
based on.

Examples:
  windlass resources tune sweep.yaml
  windlass resources tune sweep.yaml --apply
  windlass resources tune sweep.yaml --workflow 3 | patch sweep.yaml")]
pub(crate) struct TuneArgs {
    /// Spec file. Default: the spec of this directory.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: Option<PathBuf>,
    /// Write the changes into the file.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Workflow whose measurements are used: id, name, or `last`. Default: the newest workflow that this file
    /// created.
    #[arg(short, long, value_name = "ID")]
    pub(crate) workflow: Option<WorkflowRef>,
    #[command(flatten)]
    pub(crate) sizing: SizingArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Jobs are drawn as bars. Lines of CPU and memory usage require stored samples: set `resource_monitor: {jobs: {enabled: \
true, granularity: time_series}}` in the spec, or run `windlass exec --monitor time_series`. The page is a single file \
that needs no network.

Examples:
  windlass resources plot
  windlass resources plot 3 -o usage.html
  windlass resources plot -o usage.svg")]
pub(crate) struct PlotResourcesArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// File to write, `.html` or `.svg`. Default: `resources_wfID.html` in the output directory of the
    /// workflow.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Run of the workflow to plot. Default: the newest.
    #[arg(short, long, value_name = "N")]
    pub(crate) run: Option<RunId>,
}

pub(super) fn parse_multiplier(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("expected a factor of at least 1, for example 1.2".to_owned()),
    }
}
