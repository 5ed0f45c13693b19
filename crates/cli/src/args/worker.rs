//! Workers on this machine, and on machines reached by ssh.

use super::object_refs::WorkflowRef;
use super::run::{parse_memory, parse_time};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use windlass_agent::environment::check_pattern;
use windlass_types::{Bytes, LOCAL_SITE, Timestamp, check_site_name, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "\
A worker runs the jobs of your workflows until you stop it. With --workflow it exits when the workflow has ended. To stop \
it, press Ctrl-C or send SIGTERM. After the first signal it takes no more jobs and exits when its running jobs have ended. \
The second signal stops these jobs, which return to the queue; the third kills them.

While the server is unreachable, running jobs continue until the lease expires, and are then suspended until the server \
responds. Results that could not be delivered are stored on this machine, and delivered later by this or the next worker.

Examples:
  windlass worker --url http://head:8080
  windlass worker -w 7 -j 4                   run one workflow, four jobs at once
  windlass worker --label gpu --time-limit 8h
  windlass worker --jobs-of ana,bob           also run jobs of these users
  windlass worker list                        list the workers of a server
  windlass worker drain 7                     let worker 7 finish its jobs and exit
  windlass worker retire 7                    declare worker 7 dead, and run its jobs again at once")]
pub(crate) struct WorkerArgs {
    /// Take only jobs of this workflow, and exit when it has ended: id, name, prefix of the name, or `last`.
    #[arg(short, long, value_name = "WORKFLOW")]
    pub(crate) workflow: Option<WorkflowRef>,
    /// Label of this worker; repeat for more. A worker takes only jobs whose labels it has. A worker with
    /// labels takes no jobs without labels.
    #[arg(long, value_name = "LABEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) label: Vec<String>,
    /// Site of this worker, which jobs get as `WINDLASS_SITE`. Jobs that name sites run only on workers of
    /// these sites.
    #[arg(long = "site", value_name = "SITE", default_value = LOCAL_SITE, value_parser = parse_site)]
    pub(crate) worker_site: String,
    /// Also take jobs of these users, or of `all`. They run under the account of this worker with all its
    /// permissions, so use it only if you trust these users. Default: only jobs of the user of the worker's
    /// token.
    #[arg(long, value_name = "USER", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) jobs_of: Vec<String>,
    /// Also pass this variable of the worker's environment to its jobs; `NAME*` for all with this prefix; repeat
    /// for more. Default: PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, LC_*, TZ and TMPDIR.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = check_pattern)]
    pub(crate) pass_environment: Vec<String>,
    #[command(flatten)]
    pub(crate) offer: WorkerCapacityArgs,
    /// Time that a job has to exit after the stop signal before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Exit after this time: `90m`, `PT1H`. Jobs whose time limit exceeds the remaining time are not taken;
    /// running jobs are stopped before the end, and return to the queue. Default: no limit.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Time at which the worker exits: `2026-08-01T18:00:00Z`. Jobs whose time limit exceeds the remaining
    /// time are not taken. Default: no limit.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) end_time: Option<Timestamp>,
    /// Keep running while there are no jobs, and after the workflow has ended.
    #[arg(long, conflicts_with = "idle_timeout")]
    pub(crate) persistent: bool,
    /// Exit after this time without jobs. Default: no limit.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Kill suspended jobs after this time without contact to the server.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    pub(crate) give_up_after: Duration,
    /// Directory on a local disk for state that must survive a restart of the worker, such as undelivered
    /// results. Default: `~/.local/state/windlass/workers/HOST`.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// Resources of a machine that jobs may use.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Resources and lifetime of the worker")]
pub(crate) struct WorkerCapacityArgs {
    /// Maximum number of concurrent jobs.
    #[arg(short = 'j', long, visible_alias = "max-parallel-jobs", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_jobs: Option<u32>,
    /// Number of CPUs that jobs may use. Default: all of the machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Memory that jobs may use: a number of GiB, or a size such as `16G`. Default: all of the machine.
    #[arg(long = "memory-gb", visible_alias = "memory", value_name = "GIB", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Number of GPUs that jobs may use. Default: all of the machine.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each workflow has a list of machines, which is stored on this machine. Each machine must accept ssh without a password, be \
a known host (ssh asks about a new host at the first login), have windlass installed, and have the workflow's directory \
under the same path.

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
    /// Remove machines from the list of a workflow.
    #[command(visible_alias = "remove-worker")]
    Remove(RemoteRemoveArgs),
    /// Show the list of machines of a workflow.
    #[command(visible_alias = "list-workers")]
    List(RemoteListArgs),
    /// Start a worker on each machine that has none.
    Run(RemoteRunArgs),
    /// Check on each machine whether its worker runs.
    Status(RemoteStatusArgs),
    /// Stop the workers; running jobs return to the queue.
    Stop(RemoteStopArgs),
    /// Copy the logs of workers and jobs to this machine.
    CollectLogs(RemoteLogsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RemoteAddArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: WorkflowRef,
    /// Machines: `HOST`, `USER@HOST`, `HOST:PORT`.
    #[arg(value_name = "HOST", required = true)]
    pub(crate) hosts: Vec<String>,
    /// Do not check whether the machines are reachable.
    #[arg(long)]
    pub(crate) skip_ssh_check: bool,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteRemoveArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: WorkflowRef,
    /// Machines, as given to `add`.
    #[arg(value_name = "HOST", required = true)]
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteListArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteRunArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Label of the workers; repeat for more. A worker takes only jobs whose labels it has. A worker with
    /// labels takes no jobs without labels.
    #[arg(long, value_name = "LABEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) label: Vec<String>,
    /// Site of the workers. Jobs that name sites run only on workers of these sites.
    #[arg(long = "site", value_name = "SITE", default_value = LOCAL_SITE, value_parser = parse_site)]
    pub(crate) worker_site: String,
    #[command(flatten)]
    pub(crate) offer: WorkerCapacityArgs,
    /// Path of windlass on the machines.
    #[arg(long, value_name = "PATH", default_value = "windlass")]
    pub(crate) program: String,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteStatusArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteStopArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Let running jobs finish, and take no more.
    #[arg(long, conflicts_with = "force")]
    pub(crate) drain: bool,
    /// Kill the workers. Their jobs run again when their leases expire.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteLogsArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Directory for the logs, with a subdirectory per machine.
    #[arg(short, long, value_name = "DIR", default_value = "remote_logs")]
    pub(crate) local_output_dir: PathBuf,
    /// After copying, delete the logs of workers on the machines; the logs of jobs are kept there.
    #[arg(long)]
    pub(crate) delete: bool,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

/// Connections to the machines.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct SshArgs {
    /// Maximum number of concurrent ssh connections.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) max_parallel_ssh: u16,
    /// Option for ssh, as `ssh -o`; repeat for more.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) ssh_option: Vec<String>,
}

pub(crate) fn parse_site(text: &str) -> Result<String, String> {
    check_site_name(text).map(|()| text.to_owned()).map_err(|e| e.to_string())
}
