//! New allocations of Slurm for what is left of a workflow: `slurm regenerate`, and what `recover` and `watch` may be told about
//! them.

use super::WorkflowRef;
use super::slurm::{ClusterProfileArg, SlurmPackingArgs, parse_word};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_core::slurm::allocation_groups::AllocationOptions;
use windlass_types::JobId;
use windlass_types::settings::parse_walltime;

#[derive(Debug, Args)]
#[command(after_help = "\
For workflows whose allocations ended before their jobs did. Actions of the workflow that would ask for allocations are noted as
carried out; jobs that still have to run are grouped anew by what they ask for; each group gets a scheduler. Allocations for
jobs that can start now are asked for with --submit; for those that wait for others an action asks when they are ready. It goes
when the workflow is initialised anew. What is asked for already counts: run twice, or by two at once, it creates nothing twice.

Examples:
  windlass slurm regenerate 3 --dry-run           what would be asked for
  windlass slurm regenerate 3 -a lab --submit     new allocations, as soon as the server comes to it
  windlass slurm regenerate 3 --partition long --walltime 12:00:00 --submit")]
pub(crate) struct RegenerateArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) packing: SlurmPackingArgs,
    /// Let allocations last exactly so long: `4h`, `04:00:00`, `1-12:00:00`; otherwise as long as all did before, if jobs fit.
    #[arg(id = "regenerate_walltime", long = "walltime", value_name = "TIME", value_parser = parse_walltime)]
    pub(crate) walltime: Option<Duration>,
    /// Ask for the allocations of jobs that can start now.
    #[arg(long)]
    pub(crate) submit: bool,
    /// Show what would be done, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// These jobs as well, whatever their state: those that are about to be reset.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) include_job_ids: Vec<i64>,
    #[command(flatten)]
    torc: TorcRegenerateArgs,
}

impl RegenerateArgs {
    pub(crate) fn options(&self, defaults: Option<&str>) -> AllocationOptions {
        AllocationOptions { exact_walltime: self.walltime, ..self.packing.options(defaults) }
    }

    pub(crate) fn include(&self) -> Vec<JobId> {
        self.include_job_ids.iter().copied().map(JobId).collect()
    }
}

/// Flags of `torc slurm regenerate` that have nothing to do here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Understood for Torc's sake, without effect")]
struct TorcRegenerateArgs {
    /// Where logs are. The workflow knows.
    #[arg(short, long = "output-dir", id = "torc_output_dir", value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// How often workers ask for jobs. They are told.
    #[arg(short, long, value_name = "SECONDS")]
    poll_interval: Option<u32>,
}

/// Where new allocations go. With `recover` and `watch`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "New allocations, if the workflow runs on Slurm")]
pub(crate) struct AllocationArgs {
    /// Who pays for them; otherwise whoever paid before.
    #[arg(id = "allocation_account", long = "account", value_name = "NAME", value_parser = parse_word)]
    account: Option<String>,
    /// Their partition; otherwise the one that all had, or the best for what the jobs ask for.
    #[arg(id = "allocation_partition", long = "partition", value_name = "NAME", value_parser = parse_word)]
    pub(crate) partition: Option<String>,
    /// Let them last exactly so long: `4h`, `04:00:00`; otherwise as long as all did, or half as long again as the longest job.
    #[arg(id = "allocation_walltime", long = "walltime", value_name = "TIME", value_parser = parse_walltime)]
    walltime: Option<Duration>,
    #[command(flatten)]
    pub(crate) profile: ClusterProfileArg,
}

impl AllocationArgs {
    pub(crate) fn options(&self, defaults: Option<&str>) -> AllocationOptions {
        AllocationOptions {
            account: self.account.as_deref().or(defaults).unwrap_or_default().to_owned(),
            partition: self.partition.clone(),
            exact_walltime: self.walltime,
            ..AllocationOptions::default()
        }
    }
}
