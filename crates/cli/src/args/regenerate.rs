//! New Slurm allocations for the remaining jobs of a workflow: `slurm regenerate`, and options of `recover` and
//! `watch`.

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
For workflows whose allocations ended before their jobs did. Pending actions of the workflow that would request \
allocations are marked as executed; the remaining jobs are grouped by their requirements, and each group gets a scheduler. \
With --submit, allocations for ready jobs are requested now, and a new action requests those for blocked jobs when the \
jobs become ready; `windlass workflows reinit` removes this action. Allocations that were already requested are taken into \
account: repeating the command requests nothing twice.

Examples:
  windlass slurm regenerate 3 --dry-run           show what would be requested
  windlass slurm regenerate 3 -a lab --submit     request new allocations
  windlass slurm regenerate 3 --partition long --walltime 12:00:00 --submit")]
pub(crate) struct RegenerateArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) packing: SlurmPackingArgs,
    /// Time limit of the allocations: `4h`, `04:00:00`, `1-12:00:00`. Default: the time limit of the previous
    /// allocations, if the jobs fit.
    #[arg(id = "regenerate_walltime", long = "walltime", value_name = "TIME", value_parser = parse_walltime)]
    pub(crate) walltime: Option<Duration>,
    /// Request the allocations of ready jobs now.
    #[arg(long)]
    pub(crate) submit: bool,
    /// Show what would be done without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also include these jobs in any state, by id, separated by commas; for example jobs to be reset.
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

/// Options of `torc slurm regenerate` without effect here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Accepted for compatibility with Torc, without effect")]
struct TorcRegenerateArgs {
    /// Directory of the logs; taken from the workflow.
    #[arg(short, long = "output-dir", id = "torc_output_dir", value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Polling interval of workers; workers do not poll.
    #[arg(short, long, value_name = "SECONDS")]
    poll_interval: Option<u32>,
}

/// Options for new allocations of `recover` and `watch`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "New Slurm allocations")]
pub(crate) struct AllocationArgs {
    /// Account to charge. Default: the account of the previous allocations.
    #[arg(id = "allocation_account", long = "account", value_name = "NAME", value_parser = parse_word)]
    account: Option<String>,
    /// Partition. Default: the partition of the previous allocations if all had the same, otherwise the best
    /// fit for the jobs.
    #[arg(id = "allocation_partition", long = "partition", value_name = "NAME", value_parser = parse_word)]
    pub(crate) partition: Option<String>,
    /// Time limit of the allocations: `4h`, `04:00:00`. Default: the time limit of the previous allocations
    /// if all had the same, otherwise 1.5 times the runtime of the longest job.
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
