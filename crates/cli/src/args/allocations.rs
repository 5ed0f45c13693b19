//! Slurm allocations of a workflow, and the schedulers that define them.

use super::WorkflowRef;
use super::jobs::NamedObjectArgs;
use super::list_options::ListPageArgs;
use super::workflows::ListInWorkflowArgs;
use clap::{Args, Subcommand};
use windlass_types::AllocationId;
use windlass_types::slurm::AllocationState;

#[derive(Debug, Subcommand)]
pub(crate) enum AllocationsSubcommand {
    /// List the allocations of a workflow, and their states.
    Allocations(AllocationsArgs),
    /// Cancel allocations in Slurm; pending submissions are withdrawn.
    Cancel(CancelAllocationsArgs),
    /// Request allocations with a scheduler of the workflow.
    ScheduleNodes(ScheduleNodesArgs),
    /// Show the history of each allocation: requester, submission, Slurm job id, end.
    Audit(AllocationAuditArgs),
    /// Show how many Slurm commands the server called, how many failed, and how many it may still call.
    Rpc,
    /// List the schedulers of a workflow.
    List(ListInWorkflowArgs),
    /// Show a scheduler.
    Get(NamedObjectArgs),
    /// Create a scheduler in a workflow.
    Create(CreateSchedulerArgs),
    /// Change a scheduler; applies to allocations requested from then on.
    Update(UpdateSchedulerArgs),
    /// Delete a scheduler that no job uses.
    Delete(NamedObjectArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
States of an allocation:
  intended    to be submitted as soon as possible
  submitting  being submitted, or the result of the submission is unknown
  pending     waiting in the queue of Slurm; the reason is shown
  running     its workers take jobs
  completing  ended, but some processes may still run
  ended       ended
  refused     rejected by Slurm; the reason is shown
  withdrawn   never submitted

Examples:
  windlass slurm allocations
  windlass slurm allocations 3 --open
  windlass slurm allocations last --state pending --format json")]
pub(crate) struct AllocationsArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only allocations that have not ended.
    #[arg(long)]
    pub(crate) open: bool,
    /// Only allocations in this state.
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    pub(crate) state: Option<AllocationState>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each line is an event of an allocation; lines are sorted by allocation and time. The first line shows the tag of the \
allocation. The comment of its Slurm job contains the tag, which helps to find submissions that are missing from the \
database.

Examples:
  windlass slurm audit
  windlass slurm audit 3 --allocation 17
  windlass slurm audit last --format json")]
pub(crate) struct AllocationAuditArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only this allocation, by its id in `windlass slurm allocations`; repeat for more.
    #[arg(long = "allocation", value_name = "ALLOCATION")]
    pub(crate) allocations: Vec<AllocationId>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Running jobs in a canceled allocation return to the queue, and run again elsewhere.

Examples:
  windlass slurm cancel 17
  windlass slurm cancel 17 18 19 --reason 'wrong partition'")]
pub(crate) struct CancelAllocationsArgs {
    /// Allocations, by their ids in `windlass slurm allocations`.
    #[arg(value_name = "ALLOCATION", required = true)]
    pub(crate) allocations: Vec<AllocationId>,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT", default_value = "canceled by hand")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass slurm schedule-nodes last --scheduler night -n 4
  windlass slurm schedule-nodes 3 --start-one-worker-per-node        with the only scheduler of the workflow")]
pub(crate) struct ScheduleNodesArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Scheduler, by name or id. Default: the only scheduler of the workflow.
    #[arg(short, long, visible_alias = "scheduler-config-id", value_name = "NAME")]
    pub(crate) scheduler: Option<String>,
    /// Number of allocations.
    #[arg(
        short = 'n',
        long,
        visible_alias = "num-hpc-jobs",
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) count: u32,
    /// Start one worker on each node instead of one for all nodes.
    #[arg(long)]
    pub(crate) start_one_worker_per_node: bool,
    /// Maximum number of concurrent jobs of each worker.
    // A separate id: the option of `run` has a setting.
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
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Name of the scheduler; must be new in the workflow.
    #[arg(short, long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) settings: SchedulerSettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateSchedulerArgs {
    #[command(flatten)]
    pub(crate) scheduler: NamedObjectArgs,
    /// New name.
    #[arg(short, long = "name", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) new_name: Option<String>,
    #[command(flatten)]
    pub(crate) settings: SchedulerSettingsArgs,
}

/// Fields of `slurm_schedulers` in a spec. An empty value removes the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct SchedulerSettingsArgs {
    /// Account to charge.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) account: Option<String>,
    /// Partition, or several separated by commas, of which Slurm chooses one: `short,long`.
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// Quality of service (QOS).
    #[arg(long, value_name = "NAME")]
    pub(crate) qos: Option<String>,
    /// Number of nodes of each allocation.
    #[arg(id = "scheduler_nodes", long = "nodes", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: Option<u32>,
    /// Tasks per node, as `sbatch --ntasks-per-node`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ntasks_per_node: Option<u32>,
    /// Time limit of an allocation: `04:00:00`, `1-12:00:00`, or minutes.
    #[arg(id = "scheduler_walltime", long = "walltime", value_name = "TIME", value_parser = parse_walltime)]
    pub(crate) walltime: Option<String>,
    /// Memory per node, as `sbatch --mem`.
    #[arg(id = "scheduler_mem", long = "mem", value_name = "SIZE")]
    pub(crate) mem: Option<String>,
    /// Generic resources such as GPUs, as `sbatch --gres`.
    #[arg(long, value_name = "LIST")]
    pub(crate) gres: Option<String>,
    /// Temporary disk space per node, as `sbatch --tmp`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) tmp: Option<String>,
    /// Further options for `sbatch`.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) extra: Option<String>,
    /// Whether allocations run one after another instead of concurrently.
    #[arg(long, value_name = "BOOL")]
    pub(crate) serialize_allocations: Option<bool>,
}

fn parse_state(text: &str) -> Result<AllocationState, String> {
    AllocationState::from_name(text).ok_or_else(|| {
        format!("expected one of {}", AllocationState::ALL.map(AllocationState::name).join(", "))
    })
}

fn parse_walltime(text: &str) -> Result<String, String> {
    match windlass_types::settings::parse_walltime(text) {
        Ok(walltime) if !walltime.is_zero() => Ok(text.to_owned()),
        Ok(_) => Err("the time limit must be longer than zero".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
