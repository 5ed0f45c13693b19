//! Slurm: what is asked of it for a workflow, and what a cluster has.

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
Windlass packs jobs into few allocations: those that ask for alike things share some, and workers in them take one job after \
the other. `generate` writes that into the spec file, `plan` only shows it.

Examples:
  windlass slurm plan pipeline.yaml                         what would be asked for, and when it would start
  windlass slurm generate pipeline.yaml -a lab -o out.yaml  the spec with schedulers and actions")]
pub(crate) struct SlurmArgs {
    #[command(subcommand)]
    pub(crate) verb: SlurmSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmSubcommand {
    /// Write schedulers and actions for a spec's jobs into it.
    Generate(SlurmGenerateArgs),
    /// Show which allocations a spec's jobs would share, and when they would start.
    #[command(alias = "plan-allocations")]
    Plan(SlurmPlanArgs),
    #[command(flatten)]
    Books(AllocationsSubcommand),
    #[command(flatten)]
    Reports(SlurmReportSubcommand),
    /// The worker that the batch script of an allocation starts; not for people.
    #[command(hide = true)]
    Worker(SlurmWorkerArgs),
    /// Make new schedulers and allocations for what is left of a workflow.
    Regenerate(RegenerateArgs),
    /// Partitions of a cluster, and which of them fit a job: list, detect, show, partitions, match …
    Hpc(HpcArgs),
}

/// How jobs are packed into allocations.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "How jobs are packed")]
pub(crate) struct SlurmPackingArgs {
    /// Who pays; otherwise the `account` of the spec's slurm_defaults, then the setting `slurm.account`.
    #[arg(id = "slurm_account", short = 'a', long = "account", value_name = "NAME", value_parser = parse_word)]
    pub(crate) account: Option<String>,
    /// What the setting says. It goes after the spec, so it cannot be the default of the other.
    #[arg(id = "slurm_default_account", long = "default-account", hide = true, value_name = "NAME", value_parser = parse_word)]
    pub(crate) default_account: Option<String>,
    #[command(flatten)]
    pub(crate) profile: ClusterProfileArg,
    /// Share allocations among all that goes to the same partition, or only among jobs with the same requirements.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "partition")]
    pub(crate) group_by: GroupByArg,
    /// Let allocations last as long as the longest job needs, or as long as the partition allows.
    #[arg(long, value_enum, value_name = "HOW", default_value = "max-job-runtime")]
    pub(crate) walltime_strategy: WalltimeArg,
    /// So many times the longest job's runtime, up to what the partition allows.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = parse_multiplier)]
    pub(crate) walltime_multiplier: f64,
    /// Ask for one allocation with many nodes instead of many with few.
    #[arg(long)]
    pub(crate) single_allocation: bool,
    /// Use this partition and no other.
    #[arg(long, value_name = "NAME", value_parser = parse_word)]
    pub(crate) partition: Option<String>,
}

impl SlurmPackingArgs {
    /// `defaults` says who pays where the command line does not.
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
    /// What the cluster has: a file, or the name of one among your profiles; `slurm`, or nothing, asks Slurm itself.
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
Jobs are grouped by what they ask for and by whether they wait for others; each group gets a scheduler, and an action that
asks for its allocations when its first jobs can start. Comments and layout of the file stay as they are. A job that fits no
partition is told of, and nothing is written.

Examples:
  windlass slurm generate pipeline.yaml -a lab --dry-run      what would change
  windlass slurm generate pipeline.yaml -a lab                changes the file
  windlass slurm generate pipeline.yaml -a lab -o slurm.yaml  leaves it alone
  windlass slurm generate pipeline.yaml --overwrite           anew, in place of those that it has")]
pub(crate) struct SlurmGenerateArgs {
    /// Spec file. Without it: the `windlass.yaml` or the only `*.windlass.yaml` of this directory.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) packing: SlurmPackingArgs,
    /// Write only schedulers, not the actions that ask for their allocations.
    #[arg(long)]
    pub(crate) no_actions: bool,
    /// Put new schedulers in place of those that the spec has. Comments of the file are lost then.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Show what would change, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the new spec there instead of changing the file; `-` prints it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
When allocations would start is what `sbatch --test-only` says now; it changes with what others submit.

Examples:
  windlass slurm plan pipeline.yaml
  windlass slurm plan pipeline.yaml --profile big.toml --offline   for a cluster that is not here")]
pub(crate) struct SlurmPlanArgs {
    /// Spec file. Without it: the `windlass.yaml` or the only `*.windlass.yaml` of this directory.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) packing: SlurmPackingArgs,
    /// Do not ask Slurm when allocations would start.
    #[arg(long, visible_alias = "skip-test-only")]
    pub(crate) offline: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What a cluster has is asked of Slurm itself. A profile describes a cluster that is not here, or one of which you know
more: a file in the directory hpc/ beside your config.toml, or anywhere with --profile FILE. No cluster is built in;
`windlass slurm hpc generate` writes a profile of the one that you are on.

Examples:
  windlass slurm hpc partitions                                    what there is
  windlass slurm hpc match --cpus 8 --memory 32g --walltime 4h     where such a job could run, the best first
  windlass slurm hpc generate -o ~/.config/windlass/hpc/ours.toml  keep it, to plan elsewhere")]
pub(crate) struct HpcArgs {
    #[command(subcommand)]
    pub(crate) verb: HpcSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HpcSubcommand {
    /// List the profiles that there are.
    List,
    /// Say which of them this cluster is.
    Detect,
    /// Show a cluster with its partitions.
    Show(HpcShowArgs),
    /// List partitions with their nodes and limits.
    Partitions(HpcPartitionsArgs),
    /// List the partitions that can hold a job, the best first.
    Match(HpcMatchArgs),
    /// Write a profile of this cluster, as Slurm describes it.
    Generate(HpcGenerateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct HpcShowArgs {
    /// As with --profile.
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HpcPartitionsArgs {
    #[command(flatten)]
    pub(crate) of: HpcShowArgs,
    /// Only those with GPUs.
    #[arg(long)]
    pub(crate) gpu: bool,
    /// Only those where jobs share nodes.
    #[arg(long)]
    pub(crate) shared: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HpcMatchArgs {
    #[command(flatten)]
    pub(crate) of: HpcShowArgs,
    /// So many CPUs on each node.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cpus: u32,
    /// So much memory on each node: `32g`.
    #[arg(id = "match_memory", long = "memory", value_name = "SIZE", default_value = "1m")]
    pub(crate) memory: Bytes,
    /// For so long: `4h`, `04:00:00`, `1-12:00:00`.
    #[arg(id = "match_walltime", long = "walltime", value_name = "TIME", default_value = "1h", value_parser = windlass_types::settings::parse_walltime)]
    pub(crate) walltime: Duration,
    /// So many GPUs on each node.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) gpus: u32,
    /// So many nodes at once.
    #[arg(id = "match_nodes", long = "nodes", value_name = "N", default_value_t = 1)]
    pub(crate) nodes: u32,
}

#[derive(Debug, Args)]
pub(crate) struct HpcGenerateArgs {
    /// What to call it; otherwise as the cluster is called.
    #[arg(short, long, value_name = "NAME", value_parser = parse_word)]
    pub(crate) name: Option<String>,
    /// What people call it.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) display_name: Option<String>,
    /// Write it there instead of printing it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out partitions for jobs that stand by.
    #[arg(long)]
    pub(crate) skip_stdby: bool,
}

/// With `windlass submit`.
#[derive(Debug, Args)]
#[command(next_help_heading = "On Slurm")]
pub(crate) struct SlurmSubmitArgs {
    /// Have the server ask Slurm for allocations also if the spec names no schedulers: they are made from what its jobs ask
    /// for, as `windlass slurm generate` does.
    #[arg(long)]
    pub(crate) slurm: bool,
    #[command(flatten)]
    pub(crate) packing: SlurmPackingArgs,
}

pub(crate) fn parse_word(text: &str) -> Result<String, String> {
    if windlass_core::slurm::cluster_profile::is_safe_name(text) {
        return Ok(text.to_owned());
    }
    Err("letters, digits and _ - . + @ are allowed".to_owned())
}

fn parse_multiplier(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=100.0).contains(&factor) => Ok(factor),
        _ => Err("write a number from 1 to 100".to_owned()),
    }
}
