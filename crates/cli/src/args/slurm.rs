//! Slurm: allocations of workflows, and the resources of clusters.

use super::allocations::AllocationsSubcommand;
use super::regenerate::RegenerateArgs;
use super::slurm_reports::SlurmReportSubcommand;
use super::slurm_worker::SlurmWorkerArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use windlass_core::slurm::allocation_groups::{AllocationOptions, GroupBy, WalltimeStrategy};
use windlass_types::Bytes;

#[derive(Debug, Args)]
#[command(after_help = "\
Jobs with similar requirements share allocations: workers in an allocation run one job after another. `generate` adds \
schedulers and actions to the spec file, `plan` only shows the allocations.

Examples:
  windlass slurm plan pipeline.yaml                         show allocations and estimated start times
  windlass slurm generate pipeline.yaml -a lab -o out.yaml  write the spec with schedulers and actions")]
pub(crate) struct SlurmArgs {
    #[command(subcommand)]
    pub(crate) verb: SlurmSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmSubcommand {
    /// Add Slurm schedulers and actions for its jobs to a spec file.
    Generate(SlurmGenerateArgs),
    /// Show the allocations that the jobs of a spec need, and their estimated start times.
    #[command(alias = "plan-allocations")]
    Plan(SlurmPlanArgs),
    #[command(flatten)]
    Allocations(AllocationsSubcommand),
    #[command(flatten)]
    Reports(SlurmReportSubcommand),
    /// The worker that the batch script of an allocation starts; internal.
    #[command(hide = true)]
    Worker(SlurmWorkerArgs),
    /// Create new schedulers and allocations for the remaining jobs of a workflow.
    Regenerate(RegenerateArgs),
    /// Partitions and profiles of clusters: list, detect, show, partitions, match …
    Hpc(HpcArgs),
}

/// How jobs are packed into allocations.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Allocations")]
pub(crate) struct SlurmPackingArgs {
    /// Account to charge. Default: `account` in the slurm_defaults of the spec, then the setting
    /// `slurm.account`.
    #[arg(id = "slurm_account", short = 'a', long = "account", value_name = "NAME", value_parser = parse_word)]
    pub(crate) account: Option<String>,
    /// The value of the setting. The spec takes precedence over it, so it cannot be the default of --account.
    #[arg(id = "slurm_default_account", long = "default-account", hide = true, value_name = "NAME", value_parser = parse_word)]
    pub(crate) default_account: Option<String>,
    #[command(flatten)]
    pub(crate) profile: ClusterProfileArg,
    /// Which jobs share allocations: all jobs of a partition, or only jobs with the same requirements.
    #[arg(long, value_enum, value_name = "KEY", default_value = "partition")]
    pub(crate) group_by: GroupByArg,
    /// Time limit of allocations: the runtime of the longest job times --walltime-multiplier, or the maximum
    /// of the partition.
    #[arg(long, value_enum, value_name = "STRATEGY", default_value = "max-job-runtime")]
    pub(crate) walltime_strategy: WalltimeArg,
    /// Time limit of allocations as a multiple of the runtime of the longest job; at most the maximum of the
    /// partition.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = parse_multiplier)]
    pub(crate) walltime_multiplier: f64,
    /// Request one allocation with many nodes instead of many allocations with few nodes.
    #[arg(long)]
    pub(crate) single_allocation: bool,
    /// Use only this partition. Default: the best fit for the jobs.
    #[arg(long, value_name = "NAME", value_parser = parse_word)]
    pub(crate) partition: Option<String>,
}

impl SlurmPackingArgs {
    /// `defaults` is the account if the command line has none.
    pub(crate) fn options(&self, defaults: Option<&str>) -> AllocationOptions {
        AllocationOptions {
            account: self.account.as_deref().or(defaults).unwrap_or_default().to_owned(),
            group_by: match self.group_by {
                GroupByArg::Partition => GroupBy::Partition,
                GroupByArg::ResourceRequirements => GroupBy::Requirements,
            },
            walltime: match self.walltime_strategy {
                WalltimeArg::MaxJobRuntime => WalltimeStrategy::MaxJobRuntime,
                WalltimeArg::MaxPartitionTime => WalltimeStrategy::MaxPartitionTime,
            },
            multiplier: self.walltime_multiplier,
            single_allocation: self.single_allocation,
            partition: self.partition.clone(),
            ..AllocationOptions::default()
        }
    }
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClusterProfileArg {
    /// Profile of the cluster: a file, or the name of one of your profiles. Default: `slurm`, which queries
    /// Slurm.
    #[arg(id = "slurm_profile", long = "profile", value_name = "NAME|FILE")]
    pub(crate) profile: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupByArg {
    Partition,
    #[value(alias = "requirements")]
    ResourceRequirements,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WalltimeArg {
    MaxJobRuntime,
    MaxPartitionTime,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Jobs are grouped by their requirements and by whether they have dependencies; each group gets a scheduler, and an action that \
requests its allocations when its first jobs are ready. Comments and layout of the file are kept. If a job fits no partition, \
an error is reported and nothing is written.

Examples:
  windlass slurm generate pipeline.yaml -a lab --dry-run      show the changes
  windlass slurm generate pipeline.yaml -a lab                change the file
  windlass slurm generate pipeline.yaml -a lab -o slurm.yaml  write another file
  windlass slurm generate pipeline.yaml --overwrite           replace existing schedulers")]
pub(crate) struct SlurmGenerateArgs {
    /// Spec file. Default: `windlass.yaml` or the only `*.windlass.yaml` of this directory.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) packing: SlurmPackingArgs,
    /// Write schedulers only, without the actions that request allocations.
    #[arg(long)]
    pub(crate) no_actions: bool,
    /// Replace the schedulers of the spec. Comments in the file are lost.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Show what would change without writing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// File for the new spec; `-` prints it. Default: change the spec file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Estimated start times come from `sbatch --test-only`, and change as other users submit jobs.

Examples:
  windlass slurm plan pipeline.yaml
  windlass slurm plan pipeline.yaml --profile big.toml --offline   plan for another cluster")]
pub(crate) struct SlurmPlanArgs {
    /// Spec file. Default: `windlass.yaml` or the only `*.windlass.yaml` of this directory.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) packing: SlurmPackingArgs,
    /// Do not query Slurm for estimated start times.
    #[arg(long, visible_alias = "skip-test-only")]
    pub(crate) offline: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
By default, Windlass queries the resources of the cluster from Slurm. A profile is a file that describes another cluster, \
or details that Slurm does not report. Profiles are in the directory hpc/ beside your config.toml; --profile FILE uses a \
file elsewhere. There are no built-in profiles; `windlass slurm hpc generate` writes a profile of the current cluster.

Examples:
  windlass slurm hpc partitions                                    list partitions
  windlass slurm hpc match --cpus 8 --memory 32g --walltime 4h     list partitions for such a job, best first
  windlass slurm hpc generate -o ~/.config/windlass/hpc/ours.toml  save a profile to plan elsewhere")]
pub(crate) struct HpcArgs {
    #[command(subcommand)]
    pub(crate) verb: HpcSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HpcSubcommand {
    /// List the cluster profiles.
    List,
    /// Show which profile matches this cluster.
    Detect,
    /// Show a cluster and its partitions.
    Show(HpcShowArgs),
    /// List partitions with their nodes and limits.
    Partitions(HpcPartitionsArgs),
    /// List the partitions that fit a job, best first.
    Match(HpcMatchArgs),
    /// Write a profile of this cluster from the data of Slurm.
    Generate(HpcGenerateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct HpcShowArgs {
    /// Profile of the cluster: a file, or the name of one of your profiles. Default: `slurm`, which queries
    /// Slurm.
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HpcPartitionsArgs {
    #[command(flatten)]
    pub(crate) profile: HpcShowArgs,
    /// Only partitions with GPUs.
    #[arg(long)]
    pub(crate) gpu: bool,
    /// Only partitions where jobs share nodes.
    #[arg(long)]
    pub(crate) shared: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HpcMatchArgs {
    #[command(flatten)]
    pub(crate) profile: HpcShowArgs,
    /// CPUs per node.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cpus: u32,
    /// Memory per node: `32g`.
    #[arg(id = "match_memory", long = "memory", value_name = "SIZE", default_value = "1m")]
    pub(crate) memory: Bytes,
    /// Time limit: `4h`, `04:00:00`, `1-12:00:00`.
    #[arg(id = "match_walltime", long = "walltime", value_name = "TIME", default_value = "1h", value_parser = windlass_types::settings::parse_walltime)]
    pub(crate) walltime: Duration,
    /// GPUs per node.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) gpus: u32,
    /// Number of nodes.
    #[arg(id = "match_nodes", long = "nodes", value_name = "N", default_value_t = 1)]
    pub(crate) nodes: u32,
}

#[derive(Debug, Args)]
pub(crate) struct HpcGenerateArgs {
    /// Name of the profile. Default: the name of the cluster.
    #[arg(short, long, value_name = "NAME", value_parser = parse_word)]
    pub(crate) name: Option<String>,
    /// Display name of the cluster.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) display_name: Option<String>,
    /// File to write. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out standby partitions.
    #[arg(long)]
    pub(crate) skip_stdby: bool,
}

/// Options of `windlass submit`.
#[derive(Debug, Args)]
#[command(next_help_heading = "On Slurm")]
pub(crate) struct SlurmSubmitArgs {
    /// Request Slurm allocations. If the spec defines no schedulers, generate them from the requirements of
    /// its jobs, as `windlass slurm generate` does.
    #[arg(long)]
    pub(crate) slurm: bool,
    #[command(flatten)]
    pub(crate) packing: SlurmPackingArgs,
}

pub(crate) fn parse_word(text: &str) -> Result<String, String> {
    if windlass_core::slurm::cluster_profile::is_safe_name(text) {
        return Ok(text.to_owned());
    }
    Err("only letters, digits and _ - . + @ are allowed".to_owned())
}

fn parse_multiplier(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=100.0).contains(&factor) => Ok(factor),
        _ => Err("expected a number from 1 to 100".to_owned()),
    }
}
