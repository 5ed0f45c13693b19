//! Workers of a server: the one on this machine, and those on machines that ssh reaches.

use super::object_refs::WorkflowRef;
use super::run::{parse_memory, parse_time};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use windlass_agent::environment::check_pattern;
use windlass_types::{Bytes, LOCAL_SITE, Timestamp, check_site_name, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "\
It takes the jobs of your workflows until you stop it: Ctrl-C (or SIGTERM) once lets what runs end and takes \
nothing more, twice stops what runs, which then goes back to be run again, three times kills it. Bound to a workflow, it \
leaves when that is over.

A server that is away is waited for: what runs goes on as long as the lease lasts, then it stands still until the server \
answers. Results that could not be delivered are kept on this machine, and delivered by this worker or the next one here.

Examples:
  windlass worker --url http://head:8080
  windlass worker -w 7 -j 4                   for one workflow, four jobs at once
  windlass worker --label gpu --time-limit 8h
  windlass worker --jobs-of ana,bob           also jobs of others, with the account of this worker")]
pub(crate) struct WorkerArgs {
    /// Take jobs of this workflow only, and leave when it is over: an id, a name, the beginning of one, or `last`.
    #[arg(short, long, value_name = "WORKFLOW")]
    pub(crate) workflow: Option<WorkflowRef>,
    /// A label of this worker. It takes jobs whose labels it has, all of them, and no jobs without labels. Give it again
    /// for more.
    #[arg(long, value_name = "LABEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) label: Vec<String>,
    /// Where this worker is. Jobs that name sites are only for workers at one of them; jobs see it as `WINDLASS_SITE`.
    #[arg(long = "site", value_name = "SITE", default_value = LOCAL_SITE, value_parser = parse_site)]
    pub(crate) worker_site: String,
    /// Also take the jobs of these users, or of `all`. They run with the account of this worker and can do everything that it can,
    /// so use it only where you trust these users. Default: only the jobs of the user that the worker's token belongs to.
    #[arg(long, value_name = "USER", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) jobs_of: Vec<String>,
    /// Also pass this variable of the worker's environment to its jobs; `NAME*` for all that begin so. Default: PATH, HOME, USER,
    /// LOGNAME, SHELL, LANG, LANGUAGE, LC_*, TZ and TMPDIR. Give it again for more.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = check_pattern)]
    pub(crate) pass_environment: Vec<String>,
    #[command(flatten)]
    pub(crate) offer: WorkerCapacityArgs,
    /// Time that a job gets to end by itself when it is stopped, before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Leave after this time: `90m`, `PT1H`. No job is taken that asks for more time than is left; what still runs is
    /// asked to stop before the end, and goes back to be run again.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Leave at this time, likewise: `2026-08-01T18:00:00Z`.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) end_time: Option<Timestamp>,
    /// Stay when there is nothing to do, also when the workflow is over.
    #[arg(long, conflicts_with = "idle_timeout")]
    pub(crate) persistent: bool,
    /// Leave when there was nothing to do for this time.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Kill jobs, which stand still by then, when the server could not be reached for this time.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    pub(crate) give_up_after: Duration,
    /// Keep what has to outlive this process in this directory, on a disk of this machine.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// What a machine may give to the jobs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What the machine gives")]
pub(crate) struct WorkerCapacityArgs {
    /// Run at most this many jobs at once.
    #[arg(short = 'j', long, visible_alias = "max-parallel-jobs", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_jobs: Option<u32>,
    /// Let jobs use this many CPUs at once instead of all that the machine has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Let jobs use this much memory at once instead of all that the machine has: a number of GiB, or a size such as `16G`.
    #[arg(long = "memory-gb", visible_alias = "memory", value_name = "GIB", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Let jobs use this many GPUs at once instead of all that are found.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The list of machines is kept for you on this machine. Machines must be reachable by ssh without a password, be known to it \
(ssh asks about a new one when you first log in by hand), have windlass installed, and see the workflow's directory under \
the same path.

Examples:
  windlass worker remote add 7 node1 alice@node2:2222
  windlass worker remote run 7 -j 8
  windlass worker remote status 7
  windlass worker remote stop 7
  windlass worker remote collect-logs 7")]
pub(crate) struct RemoteArgs {
    #[command(subcommand)]
    pub(crate) verb: RemoteSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RemoteSubcommand {
    /// Add machines to the list of a workflow.
    #[command(visible_alias = "add-workers")]
    Add(RemoteAddArgs),
    /// Take machines off the list.
    #[command(visible_alias = "remove-worker")]
    Remove(RemoteRemoveArgs),
    /// Show the list.
    #[command(visible_alias = "list-workers")]
    List(RemoteListArgs),
    /// Start a worker on each machine that has none.
    Run(RemoteRunArgs),
    /// Ask each machine whether its worker runs.
    Status(RemoteStatusArgs),
    /// Stop the workers; jobs that run go back to be run again.
    Stop(RemoteStopArgs),
    /// Fetch the logs of workers and jobs.
    CollectLogs(RemoteLogsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RemoteAddArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: WorkflowRef,
    /// Machines: `HOST`, `USER@HOST`, `HOST:PORT`.
    #[arg(value_name = "HOST", required = true)]
    pub(crate) hosts: Vec<String>,
    /// Do not try to reach them now.
    #[arg(long)]
    pub(crate) skip_ssh_check: bool,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteRemoveArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: WorkflowRef,
    /// Machines, as they were added.
    #[arg(value_name = "HOST", required = true)]
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteListArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteRunArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// A label of this worker. It takes jobs whose labels it has, all of them, and no jobs without labels. Give it again
    /// for more.
    #[arg(long, value_name = "LABEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) label: Vec<String>,
    /// Where the workers are. Jobs that name sites are only for workers at one of them.
    #[arg(long = "site", value_name = "SITE", default_value = LOCAL_SITE, value_parser = parse_site)]
    pub(crate) worker_site: String,
    #[command(flatten)]
    pub(crate) offer: WorkerCapacityArgs,
    /// How windlass is called on the machines.
    #[arg(long, value_name = "PATH", default_value = "windlass")]
    pub(crate) program: String,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteStatusArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteStopArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Let what runs end, and take nothing more.
    #[arg(long, conflicts_with = "force")]
    pub(crate) drain: bool,
    /// Kill the workers. What they held runs again when their leases are over.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteLogsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Put them here, in one directory per machine.
    #[arg(short, long, value_name = "DIR", default_value = "remote_logs")]
    pub(crate) local_output_dir: PathBuf,
    /// Delete the logs of the worker there once they are here; those of jobs stay.
    #[arg(long)]
    pub(crate) delete: bool,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

/// How the machines are reached.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "How the machines are reached")]
pub(crate) struct SshArgs {
    /// Talk to this many at once.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) max_parallel_ssh: u16,
    /// An option for ssh, as its `-o` takes it. Give it again for more.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) ssh_option: Vec<String>,
}

pub(crate) fn parse_site(text: &str) -> Result<String, String> {
    check_site_name(text).map(|()| text.to_owned()).map_err(|e| e.to_string())
}
