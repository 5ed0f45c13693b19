//! Recovery of workflows: `recover`, `watch`, `workflows sync-status`.

use super::regenerate::AllocationArgs;
use super::resources::parse_multiplier;
use super::{MachineArgs, WorkflowRef};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Diagnoses each failed job from the measurements of its last attempt. A job that exceeded its memory or time limit, or used \
more CPUs than requested, gets larger requirements and runs again. Other jobs with the same requirements keep theirs, and \
no job requests more than a worker has. Jobs that failed for other reasons stay failed unless --retry-unknown or \
--recovery-hook is given. Jobs that were canceled because of a retried job run again; completed jobs stay completed. The \
workflow may be running.

Without a server, `windlass resume` or --run continues the workflow. If the workflow runs on Slurm, allocations for the \
jobs are requested, as `windlass slurm regenerate --submit` does; no job requests more than the nodes of a partition have.

Examples:
  windlass recover --dry-run
  windlass recover --run
  windlass recover 3 --memory-multiplier 2 --retry-unknown
  windlass recover --recovery-hook './fetch-missing-inputs.sh'
  windlass recover --ai-recovery
  windlass recover --ai-recovery --ai-agent-command 'my-agent --prompt-from-stdin'")]
pub(crate) struct RecoverArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Show what would be done without doing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Continue the workflow on this machine after the recovery.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) run: bool,
    #[command(flatten)]
    pub(crate) recovery: RecoveryArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) torc: TorcRecoverArgs,
}

/// How jobs are recovered.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recovery")]
pub(crate) struct RecoveryArgs {
    /// Factor by which to increase the memory of jobs that exceeded their memory limit.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = parse_multiplier)]
    pub(crate) memory_multiplier: f64,
    /// Factor by which to increase the time limit of jobs that exceeded it.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = parse_multiplier)]
    pub(crate) runtime_multiplier: f64,
    /// Factor by which to multiply the CPUs used by jobs that used more than requested; the result is requested.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2, value_parser = parse_multiplier)]
    pub(crate) cpu_multiplier: f64,
    /// Also retry jobs whose failure has no known cause.
    #[arg(long)]
    pub(crate) retry_unknown: bool,
    /// Shell command that fixes failures without known cause; those jobs then run again. It gets the id of the
    /// workflow as its last argument and in WINDLASS_WORKFLOW_ID. If it fails, nothing is recovered.
    #[arg(long, value_name = "CMD")]
    pub(crate) recovery_hook: Option<String>,
    #[command(flatten)]
    pub(crate) ai: AiAgentArgs,
    #[command(flatten)]
    pub(crate) allocations: AllocationArgs,
}

/// An agent that decides about jobs that wait for a decision (`use_pending_failed`).
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "AI agent")]
pub(crate) struct AiAgentArgs {
    /// Let an AI agent decide about jobs that wait for a decision (`pending_failed`) before the recovery.
    #[arg(long = "ai-recovery")]
    pub(crate) is_asked: bool,
    /// Program of the agent. `claude` is configured with `windlass mcp`; other programs get the prompt as last
    /// argument.
    #[arg(long = "ai-agent", value_name = "NAME", default_value = "claude")]
    pub(crate) agent: String,
    /// Shell command of an agent that reads the prompt from standard input.
    #[arg(long = "ai-agent-command", value_name = "CMD", conflicts_with = "agent")]
    pub(crate) command: Option<String>,
    /// Time after which the agent is terminated.
    #[arg(long = "ai-timeout", value_name = "DURATION", default_value = "15m", value_parser = windlass_types::parse_duration)]
    pub(crate) limit: Duration,
}

/// Options of `torc recover` without effect here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Accepted for compatibility with Torc, without effect")]
pub(crate) struct TorcRecoverArgs {
    /// Directory of the logs; taken from the workflow.
    #[arg(short, long = "output-dir", id = "torc_output_dir", value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Do not prompt; this command never prompts.
    #[arg(long)]
    no_prompts: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Follows a workflow until it ends. Exit codes: 0 all jobs completed, 1 some jobs did not complete, 3 the workflow is \
incomplete and not running, 6 failures wait for a decision. With --wait-for-decisions it waits for them instead of exiting \
with 6.

With --recover, each time the workflow stops with failures, it recovers the workflow as `windlass recover` does, and \
continues; at most --max-retries times. It runs a local workflow itself if no other process does; workflows of a server \
are run by its workers. If the workflow runs on Slurm, and jobs are ready but no allocation is left, it exits with 3, \
unless --auto-schedule requests new allocations.

Examples:
  windlass watch
  windlass watch 3 --recover --max-retries 5
  windlass watch --recover --ai-recovery
  windlass watch --wait-for-decisions
  windlass watch --recover --auto-schedule
  windlass watch --url https://windlass.example.org --recover")]
pub(crate) struct WatchArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Recover the workflow when it stops with failures, and continue.
    #[arg(short, long)]
    pub(crate) recover: bool,
    /// Maximum number of recoveries with --recover.
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    pub(crate) max_retries: u32,
    /// Wait for decisions about `pending_failed` jobs instead of exiting with 6.
    #[arg(long)]
    pub(crate) wait_for_decisions: bool,
    #[command(flatten)]
    pub(crate) recovery: RecoveryArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) slurm: AutoScheduleArgs,
    #[command(flatten)]
    pub(crate) torc: TorcWatchArgs,
}

/// Options of `torc watch` without effect here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Accepted for compatibility with Torc, without effect")]
pub(crate) struct TorcWatchArgs {
    /// Polling interval; changes are noticed at once.
    #[arg(short, long, value_name = "SECONDS")]
    poll_interval: Option<f64>,
    /// Show the number of jobs per state; windlass always does.
    #[arg(short, long)]
    show_job_counts: bool,
    /// Directory of the logs; taken from the workflow.
    #[arg(short, long = "output-dir", id = "torc_output_dir", value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// Slurm allocations that `watch` requests.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Automatic Slurm allocations")]
pub(crate) struct AutoScheduleArgs {
    /// Keep watching when jobs are ready and no allocation is left, for example if you request allocations by hand.
    /// Default: exit with 3.
    #[arg(long)]
    pub(crate) persistent: bool,
    /// Request allocations for ready jobs that have none, as `windlass slurm regenerate --submit` does; at
    /// once if no allocation is left.
    #[arg(long)]
    pub(crate) auto_schedule: bool,
    /// Number of ready jobs without an allocation at which --auto-schedule requests allocations.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) auto_schedule_threshold: u32,
    /// Minimum time between two requests of --auto-schedule, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub(crate) auto_schedule_cooldown: u64,
    /// Time in seconds after which --auto-schedule requests allocations even for a single ready job.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    pub(crate) auto_schedule_stranded_timeout: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Running jobs whose worker is dead return to the queue: the attempt is recorded as lost (return code -128), does not count as \
a retry, and the job runs again. A worker counts as dead only if its process is gone or its machine was rebooted; a worker \
on a machine that cannot be checked from here counts as alive. A server detects lost workers itself when their lease \
expires.

If the workflow runs on Slurm, the server queries its allocations now. Jobs in allocations that have ended return to the \
queue. If Slurm does not respond, nothing is changed.

Examples:
  windlass workflows sync-status --dry-run
  windlass workflows sync-status 3")]
pub(crate) struct SyncStatusArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Show what would be done without doing it. The server still updates the states of allocations from
    /// Slurm.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Treat workers on other machines as dead, so that their jobs run again. Windlass cannot check them from
    /// this machine: verify first that they have stopped.
    #[arg(long)]
    pub(crate) assume_dead: bool,
}
