//! What the books say about Slurm: allocations, and the schedulers that they are made from.

use super::WorkflowRef;
use super::jobs::NamedObjectArgs;
use super::list_options::ListPageArgs;
use super::workflows::ListInWorkflowArgs;
use clap::{Args, Subcommand};
use windlass_types::AllocationId;
use windlass_types::slurm::AllocationState;

#[derive(Debug, Subcommand)]
pub(crate) enum AllocationsSubcommand {
    /// List the allocations of a workflow, and how far each is.
    Allocations(AllocationsArgs),
    /// Have Slurm cancel allocations; what was not submitted yet never will be.
    Cancel(CancelAllocationsArgs),
    /// Ask for allocations, as a scheduler of the workflow says.
    ScheduleNodes(ScheduleNodesArgs),
    /// Tell what became of each allocation: who asked, when it was submitted, as which job of Slurm, how it ended.
    Audit(AllocationAuditArgs),
    /// Show how often Slurm's commands were called, how many calls failed, and what may be asked still.
    Rpc,
    /// List the schedulers of a workflow.
    List(ListInWorkflowArgs),
    /// Show a scheduler.
    Get(NamedObjectArgs),
    /// Give a workflow a scheduler.
    Create(CreateSchedulerArgs),
    /// Change a scheduler: for allocations that are asked for from then on.
    Update(UpdateSchedulerArgs),
    /// Delete a scheduler that no job names.
    Delete(NamedObjectArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
intended    to be submitted; the server does so as soon as it can
submitting  being submitted, or nobody knows yet what came of it
pending     Slurm has it, and it waits: why stands beside it
running     workers in it take jobs
completing  over, but its processes may not be
ended       over
refused     Slurm said no: why stands beside it
withdrawn   never submitted

Examples:
  windlass slurm allocations
  windlass slurm allocations 3 --open
  windlass slurm allocations last --state pending --format json")]
pub(crate) struct AllocationsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only those that are not over.
    #[arg(long)]
    pub(crate) open: bool,
    /// Only those in this state.
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    pub(crate) state: Option<AllocationState>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each line is something that happened to an allocation, by allocation and time. All of them have the tag that the first line
names in the comment of their job of Slurm: one that was submitted and is not in the books is found by it.

Examples:
  windlass slurm audit
  windlass slurm audit 3 --allocation 17
  windlass slurm audit last --format json")]
pub(crate) struct AllocationAuditArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only these, as `windlass slurm allocations` numbers them.
    #[arg(long = "allocation", value_name = "ALLOCATION")]
    pub(crate) allocations: Vec<AllocationId>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Jobs that run in it are not lost: they go back, and run again elsewhere.

Examples:
  windlass slurm cancel 17
  windlass slurm cancel 17 18 19 --reason 'wrong partition'")]
pub(crate) struct CancelAllocationsArgs {
    /// As `windlass slurm allocations` numbers them.
    #[arg(value_name = "ALLOCATION", required = true)]
    pub(crate) allocations: Vec<AllocationId>,
    /// Why, for whoever wonders.
    #[arg(long, value_name = "TEXT", default_value = "canceled by hand")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass slurm schedule-nodes last --scheduler night -n 4
  windlass slurm schedule-nodes 3 --start-one-worker-per-node        the only scheduler that it has")]
pub(crate) struct ScheduleNodesArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Which scheduler, by name or id. Not needed where the workflow has one only.
    #[arg(short, long, visible_alias = "scheduler-config-id", value_name = "NAME")]
    pub(crate) scheduler: Option<String>,
    /// So many allocations.
    #[arg(
        short = 'n',
        long,
        visible_alias = "num-hpc-jobs",
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) count: u32,
    /// A worker on each node, instead of one for all of them.
    #[arg(long)]
    pub(crate) start_one_worker_per_node: bool,
    /// A worker has no more jobs at once than this.
    // Not the one of `run`, for which there is a setting.
    #[arg(
        id = "worker_max_parallel_jobs",
        long = "max-parallel-jobs",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) max_parallel_jobs: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass slurm create last -n night --account lab --nodes 2 --walltime 04:00:00")]
pub(crate) struct CreateSchedulerArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Its name, new in the workflow.
    #[arg(short, long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) settings: SchedulerSettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateSchedulerArgs {
    #[command(flatten)]
    pub(crate) scheduler: NamedObjectArgs,
    /// Its new name.
    #[arg(short, long = "name", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) new_name: Option<String>,
    #[command(flatten)]
    pub(crate) settings: SchedulerSettingsArgs,
}

/// As in `slurm_schedulers` of a spec. An empty text takes back what was said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct SchedulerSettingsArgs {
    /// Who pays.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) account: Option<String>,
    /// Which partition; several of which any will do: `short,long`.
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// Which quality of service.
    #[arg(long, value_name = "NAME")]
    pub(crate) qos: Option<String>,
    /// Nodes of each allocation.
    #[arg(id = "scheduler_nodes", long = "nodes", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: Option<u32>,
    /// Tasks on each node, as `--ntasks-per-node` of sbatch has it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ntasks_per_node: Option<u32>,
    /// How long an allocation lasts: `04:00:00`, `1-12:00:00`, minutes.
    #[arg(id = "scheduler_walltime", long = "walltime", value_name = "TIME", value_parser = parse_walltime)]
    pub(crate) walltime: Option<String>,
    /// Memory of each node, as `sbatch --mem` takes it.
    #[arg(id = "scheduler_mem", long = "mem", value_name = "SIZE")]
    pub(crate) mem: Option<String>,
    /// GPUs and the like, as `sbatch --gres` takes them.
    #[arg(long, value_name = "LIST")]
    pub(crate) gres: Option<String>,
    /// Disk of each node, as `sbatch --tmp` takes it.
    #[arg(long, value_name = "SIZE")]
    pub(crate) tmp: Option<String>,
    /// More options for `sbatch`.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) extra: Option<String>,
    /// Whether its allocations come one after another.
    #[arg(long, value_name = "BOOL")]
    pub(crate) serialize_allocations: Option<bool>,
}

fn parse_state(text: &str) -> Result<AllocationState, String> {
    AllocationState::from_name(text)
        .ok_or_else(|| format!("write one of {}", AllocationState::ALL.map(AllocationState::name).join(", ")))
}

fn parse_walltime(text: &str) -> Result<String, String> {
    match windlass_types::settings::parse_walltime(text) {
        Ok(walltime) if !walltime.is_zero() => Ok(text.to_owned()),
        Ok(_) => Err("it lasts no time".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
