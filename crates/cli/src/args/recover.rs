//! Bringing workflows back: `recover`, `watch`, `workflows sync-status`.

use super::regenerate::AllocationArgs;
use super::resources::parse_multiplier;
use super::{MachineArgs, WorkflowRef};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Each job that failed is diagnosed from the measurements of its own last attempt. What ran out of memory or time, or used \
more CPUs than it asked for, asks for more and runs again; it alone: others that share its requirements keep theirs, and \
nothing grows beyond what a worker has. What failed for other reasons stays as it is unless --retry-unknown or a hook that \
puts things right says otherwise. Jobs that were canceled because of those that run again come back with them; what \
completed stays completed. All this works also while other jobs of the workflow run.

Without a server, jobs wait for `windlass resume`; --run goes on at once. If the workflow runs on Slurm, allocations are asked for \
in which they can run, as `windlass slurm regenerate --submit` does; nothing grows beyond the nodes of a partition.

Examples:
  windlass recover --dry-run
  windlass recover --run
  windlass recover 3 --memory-multiplier 2 --retry-unknown
  windlass recover --recovery-hook './fetch-missing-inputs.sh'
  windlass recover --ai-recovery
  windlass recover --ai-recovery --ai-agent-command 'my-agent --prompt-from-stdin'")]
pub(crate) struct RecoverArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Go on with the workflow here when it is recovered.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) run: bool,
    #[command(flatten)]
    pub(crate) how: RecoveryArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) torc: TorcRecoverArgs,
}

/// How jobs are recovered.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "How to recover")]
pub(crate) struct RecoveryArgs {
    /// Ask for this many times the memory that a job used or had.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = parse_multiplier)]
    pub(crate) memory_multiplier: f64,
    /// Ask for this many times the time that a job had.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = parse_multiplier)]
    pub(crate) runtime_multiplier: f64,
    /// Ask for this many times the CPUs that a job kept busy, if those were more than it had asked for.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_multiplier)]
    pub(crate) cpu_multiplier: f64,
    /// Run also those again whose failure nothing explains.
    #[arg(long)]
    pub(crate) retry_unknown: bool,
    /// Shell command that puts things right where failures are unexplained; those jobs then run again. The id of the
    /// workflow is its last argument, and stands in WINDLASS_WORKFLOW_ID. If it fails, nothing is done.
    #[arg(long, value_name = "CMD")]
    pub(crate) recovery_hook: Option<String>,
    #[command(flatten)]
    pub(crate) ai: AiAgentArgs,
    #[command(flatten)]
    pub(crate) allocations: AllocationArgs,
}

/// An agent that decides on jobs which wait for a decision (`use_pending_failed`).
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Agent")]
pub(crate) struct AiAgentArgs {
    /// Have an agent decide on jobs that are `pending_failed`, before anything else.
    #[arg(long = "ai-recovery")]
    pub(crate) is_asked: bool,
    /// Program of the agent. `claude` is told of `windlass mcp`; another one is given the prompt as its last argument.
    #[arg(long = "ai-agent", value_name = "NAME", default_value = "claude")]
    pub(crate) agent: String,
    /// Shell command of an agent, which gets the prompt on its standard input.
    #[arg(long = "ai-agent-command", value_name = "CMD", conflicts_with = "agent")]
    pub(crate) command: Option<String>,
    /// Time after which the agent is ended.
    #[arg(long = "ai-timeout", value_name = "DURATION", default_value = "15m", value_parser = windlass_types::parse_duration)]
    pub(crate) limit: Duration,
}

/// Flags of `torc recover` that have nothing to do here, so that scripts need no change.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Understood for Torc's sake, without effect")]
pub(crate) struct TorcRecoverArgs {
    /// Where logs are. The workflow knows.
    #[arg(short, long = "output-dir", id = "torc_output_dir", value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Ask nothing. Nothing is asked.
    #[arg(long)]
    no_prompts: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Follows a workflow until it is over and says by its exit code how it went: 0 all jobs completed, 1 some did not, 3 it \
stopped before its end and nobody runs it, 6 failures wait for a decision. With --wait-for-decisions it does not exit with 6, but \
waits for the decisions and goes on.

With --recover it does what `windlass recover` does whenever the workflow has stopped with failures, up to --max-retries \
times, and goes on. A workflow of this machine that nobody runs it runs itself; a server's is run by its workers. If those come \
with allocations of Slurm and none is left although jobs are ready, it stops (3), unless --auto-schedule asks for new ones.

Examples:
  windlass watch
  windlass watch 3 --recover --max-retries 5
  windlass watch --recover --ai-recovery
  windlass watch --wait-for-decisions
  windlass watch --recover --auto-schedule
  windlass watch --url https://windlass.example.org --recover")]
pub(crate) struct WatchArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Recover the workflow when it stops with failures, and go on.
    #[arg(short, long)]
    pub(crate) recover: bool,
    /// Recover at most this many times.
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    pub(crate) max_retries: u32,
    /// Wait while jobs are `pending_failed` until a decision is made, then go on, instead of exiting with 6.
    #[arg(long)]
    pub(crate) wait_for_decisions: bool,
    #[command(flatten)]
    pub(crate) how: RecoveryArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) slurm: AutoScheduleArgs,
    #[command(flatten)]
    pub(crate) torc: TorcWatchArgs,
}

/// Flags of `torc watch` that have nothing to do here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Understood for Torc's sake, without effect")]
pub(crate) struct TorcWatchArgs {
    /// How often to ask how things stand. A server tells by itself, and a file is looked at all the time.
    #[arg(short, long, value_name = "SECONDS")]
    poll_interval: Option<f64>,
    /// Show how many jobs are in which state. That is always shown.
    #[arg(short, long)]
    show_job_counts: bool,
    /// Where logs are. The workflow knows.
    #[arg(short, long = "output-dir", id = "torc_output_dir", value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// Allocations of Slurm that are asked for on the way.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "If the workflow runs on Slurm")]
pub(crate) struct AutoScheduleArgs {
    /// Go on although jobs are ready and no allocation is left: somebody will ask for one.
    #[arg(long)]
    pub(crate) persistent: bool,
    /// Ask for allocations, as `windlass slurm regenerate --submit` does, where jobs are ready that none is asked for. If none is
    /// left at all, at once.
    #[arg(long)]
    pub(crate) auto_schedule: bool,
    /// So many such jobs are worth an allocation.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) auto_schedule_threshold: u32,
    /// Time from one time that allocations are asked for to the next.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub(crate) auto_schedule_cooldown: u64,
    /// Time after which a single such job is worth an allocation.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    pub(crate) auto_schedule_stranded_timeout: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Jobs that are noted as running although their worker is gone go back: their attempt is noted as lost (return code -128), \
uses up no retry, and the next one is due. A worker counts as gone only on proof: its process is not there any more, or its \
machine was started anew. One on a machine that cannot be seen from here counts as alive. A server gives up workers by \
itself, when their lease is over.

If the workflow runs on Slurm, the server asks Slurm now what became of its allocations. Those that are gone are noted as such, \
and what ran in them goes back at once. If Slurm does not answer, nothing is known, and nothing is changed.

Examples:
  windlass workflows sync-status --dry-run
  windlass workflows sync-status 3")]
pub(crate) struct SyncStatusArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Say what would be done, and do nothing. Where a server looks after allocations of Slurm it asks Slurm now all the
    /// same, and what it learns about them takes effect, as it would a little later by itself.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take a worker on another machine, which cannot be asked from here, for dead. Make sure of it first.
    #[arg(long)]
    pub(crate) assume_dead: bool,
}
