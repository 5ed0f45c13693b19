//! Commands about what jobs ask for and what they use: `resources`, `tune`, `plot`.

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
    /// Compare what jobs asked for with what they used.
    Check(ResourcesCheckArgs),
    /// Give waiting and failed jobs better requirements, learned from what was used.
    Correct(ResourcesCorrectArgs),
    /// Write corrected requirements into a spec file.
    Tune(TuneArgs),
    /// Plot CPU and memory usage and the jobs of a workflow over time.
    Plot(PlotResourcesArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
One line for each class of jobs, that is the jobs of one entry of the spec. A proposal says what to ask for instead, and \
from how many runs it was learned.

Examples:
  windlass resources check
  windlass resources check 3 --include-failed --all
  windlass resources check -f json | jq '.classes[] | select(.proposal)'")]
pub(crate) struct ResourcesCheckArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only this run of the workflow; the newest run of each job by default.
    #[arg(short, long, value_name = "N")]
    pub(crate) run_id: Option<RunId>,
    /// Classes that ask for about what they use as well.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Attempts that failed as well.
    #[arg(long)]
    pub(crate) include_failed: bool,
    /// Only classes of which a job used more than this many percent over what it asked for.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min_over_utilization: Option<f64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Asks for more where jobs used more than they asked for, and for less where all jobs of a class completed and the saving \
is worth it. Applied per class of jobs, that is the jobs of one entry of the spec, so that others who share the \
requirements keep theirs. The spec file stays as it is: see `windlass resources tune`.

Examples:
  windlass resources correct --dry-run
  windlass resources correct --memory-multiplier 1.5 --no-downsize
  windlass resources correct 3 --job-ids 12,13")]
pub(crate) struct ResourcesCorrectArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) sizing: SizingArgs,
    /// Only these jobs, by id, separated by commas.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) job_ids: Vec<JobId>,
    /// Say what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// How much room is left above what was used.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SizingArgs {
    /// Ask for this many times the memory that was used at most.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_multiplier)]
    pub(crate) memory_multiplier: f64,
    /// Ask for this many times the CPUs that were used at most.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_multiplier)]
    pub(crate) cpu_multiplier: f64,
    /// Ask for this many times the time that was used at most.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_multiplier)]
    pub(crate) runtime_multiplier: f64,
    /// Never ask for less than before.
    #[arg(long)]
    pub(crate) no_downsize: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Learns from the newest workflow that this file made here. Without --apply it prints what it would change, as a diff. \
With --apply only the numbers in the file change: comments and layout stay, and each change says what it rests on.

Examples:
  windlass resources tune sweep.yaml
  windlass resources tune sweep.yaml --apply
  windlass resources tune sweep.yaml --workflow 3 | patch sweep.yaml")]
pub(crate) struct TuneArgs {
    /// Spec file; the spec of this directory by default.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: Option<PathBuf>,
    /// Write the changes into the file.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Learn from this workflow instead: its id, its name, or `last`.
    #[arg(short, long, value_name = "ID")]
    pub(crate) workflow: Option<WorkflowRef>,
    #[command(flatten)]
    pub(crate) sizing: SizingArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The bars of the jobs are always there. The lines need samples, which are kept if the spec says so \
(`resource_monitor: {jobs: {enabled: true, granularity: time_series}}`) or with `windlass exec --monitor time_series`. \
The page needs no network: everything is in the one file.

Examples:
  windlass resources plot
  windlass resources plot 3 -o usage.html
  windlass resources plot -o usage.svg")]
pub(crate) struct PlotResourcesArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// File to write, `.html` or `.svg`; `resources_wfID.html` in the output directory of the workflow by default.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Draw this run of the workflow instead of the newest.
    #[arg(short, long, value_name = "N")]
    pub(crate) run: Option<RunId>,
}

pub(super) fn parse_multiplier(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("write a factor of at least 1, for example 1.2".to_owned()),
    }
}
