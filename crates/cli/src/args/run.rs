//! Commands that run workflows, and their common options.

use super::object_refs::WorkflowRef;
use crate::parameter_sweep::ExecParameterArg;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use windlass_core::reuse::AcceptedChange;
use windlass_types::{Bytes, Timestamp};

#[derive(Debug, Args)]
#[command(after_help = "\
Running the same unchanged file again continues the workflow it created: completed jobs stay completed unless their input \
files have changed. A changed file creates a new workflow, which reuses the results of unchanged jobs and runs the others; \
`windlass plan` shows which and why. With --new all jobs run. A file is the same if it has the same text and directory; \
its name does not matter.

Examples:
  windlass run
  windlass run pipeline.yaml -j 8 --output-dir logs
  windlass run --new pipeline.yaml
  generate-spec | windlass run -")]
pub(crate) struct RunArgs {
    /// Spec file (`-` reads standard input), or a workflow: id, name, or `last`. Default: `windlass.yaml` or the
    /// only `*.windlass.yaml` of this directory.
    #[arg(value_name = "SPEC|ID")]
    pub(crate) spec: Option<PathBuf>,
    /// Create a new workflow and reuse no results.
    #[arg(long)]
    pub(crate) new: bool,
    /// Show what would run, as `windlass plan` does, without running it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Detect changed files by content instead of modification time.
    #[arg(long, visible_alias = "hash")]
    pub(crate) content: bool,
    /// Reuse the results of a job although it changed: `JOB` for any change, `JOB:FIELD` for one field,
    /// `*:FIELD` for one field of all jobs; repeat for more.
    #[arg(long, value_name = "JOB:FIELD")]
    pub(crate) accept: Vec<AcceptedChange>,
    #[command(flatten)]
    pub(crate) output: OutputDirArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) torc: TorcRunArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct OutputDirArgs {
    /// Directory for the logs of jobs; created if it does not exist.
    #[arg(short, long, value_name = "DIR", default_value = OutputDirArgs::DEFAULT_DIR)]
    pub(crate) output_dir: PathBuf,
}

impl OutputDirArgs {
    pub(crate) const DEFAULT_DIR: &str = "windlass_output";
}

#[derive(Debug, Args)]
#[command(after_help = "\
If windlass was killed, processes of jobs that still run are killed first, and these jobs run again. Failed jobs stay \
failed. With --retry-failed, a new run executes failed jobs, jobs canceled because of them, and their dependents.

Examples:
  windlass resume
  windlass resume --retry-failed
  windlass resume 3 -j 2")]
pub(crate) struct ResumeArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Also run failed, canceled and terminated jobs again, and their dependents.
    #[arg(long)]
    pub(crate) retry_failed: bool,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Commands run in bash. Several words after `--` are quoted as needed; a single word after `--` is a shell command.

`{name}` is replaced by the value of a parameter. In a shell command (-c, -C, or a single word after `--`), the value may \
contain only letters, digits and _./:=@%+,- (no characters that a shell interprets). For other values write `{name:q}`, \
without quotes around it: it inserts the value quoted. In several words after `--`, `{name}` and `{name:q}` both insert \
the value unchanged. Every parameter must be used.

Examples:
  windlass exec -c 'make test' -c 'make docs'
  windlass exec -j4 -C commands.txt                      one command per line
  ls *.png | sed 's/.*/convert & &.jpg/' | windlass exec -C -
  windlass exec --param i=1:10 -- ./simulate --seed {i}
  windlass exec --param a=1,2 --param b=x,y -- ./try {a} {b}            four jobs
  windlass exec --param a=1,2 --param b=x,y --link zip -- ./try {a} {b} two jobs
  windlass exec --param f=@files.txt --dry-run -- wc -l {f}
  windlass exec --param f=@files.txt -c 'sort {f:q} > {f:q}.sorted'")]
pub(crate) struct ExecArgs {
    /// Shell command; repeat for more. `{name}` inserts the value of a parameter, `{name:q}` inserts it
    /// quoted.
    #[arg(short, long = "command", value_name = "CMD")]
    pub(crate) commands: Vec<String>,
    /// File with one shell command per line; `-` reads standard input. Empty lines and lines starting with #
    /// are skipped.
    #[arg(short = 'C', long, value_name = "FILE")]
    pub(crate) commands_file: Option<PathBuf>,
    /// Values of parameter `{name}`: `n=1:10`, `n=01:10` (with leading zeros), `n=0:1:0.25`, `n=a,b`, `n=[a,b]`,
    /// or `n=@FILE` with one value per line; repeat for more parameters.
    #[arg(long = "param", value_name = "NAME=VALUES")]
    pub(crate) params: Vec<ExecParameterArg>,
    /// How several parameters are combined: `product` (all combinations of values) or `zip` (the first values
    /// together, then the second values).
    #[arg(long, value_enum, value_name = "METHOD", default_value = "product")]
    pub(crate) link: ParameterLink,
    /// Name of the workflow.
    #[arg(short, long, default_value = "exec")]
    pub(crate) name: String,
    /// Description of the workflow.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Print the commands without running them.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Command and its arguments.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) trailing: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputDirArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) monitor: ResourceMonitorArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ParameterLink {
    Product,
    Zip,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass submit pipeline.yaml                                      to the server of this database
  windlass submit --url https://windlass.example.org pipeline.yaml
  windlass submit --dry-run pipeline.yaml                            validate the file only
  windlass submit --slurm --account lab pipeline.yaml                in Slurm allocations
  windlass submit --backend htcondor pipeline.yaml                   as a DAG, without a server")]
pub(crate) struct SubmitArgs {
    /// Where the workflow runs: on the workers of a server, or in an HTCondor pool.
    #[arg(long, value_enum, value_name = "BACKEND", default_value = "server")]
    pub(crate) backend: SubmitBackendArg,
    #[command(flatten)]
    pub(crate) create: CreateArgs,
    #[command(flatten)]
    pub(crate) slurm: super::slurm::SlurmSubmitArgs,
    #[command(flatten)]
    pub(crate) dag: HtcondorSubmitArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SubmitBackendArg {
    Server,
    Htcondor,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "With --backend htcondor")]
pub(crate) struct HtcondorSubmitArgs {
    /// Name of the schedd. Default: the schedd of this machine.
    #[arg(long, value_name = "NAME")]
    pub(crate) schedd: Option<String>,
    /// Directory of the DAG and its logs. Default: a new directory in `.windlass/dags`. Repeating the command
    /// with the same directory continues an interrupted submission, and never submits twice.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Transfer input and output files even if HTCondor assumes that the workers share this file system.
    #[arg(long)]
    pub(crate) transfer: bool,
    /// X.509 proxy for the jobs.
    #[arg(long, value_name = "FILE")]
    pub(crate) proxy: Option<PathBuf>,
    /// Token for the jobs, available to them through BEARER_TOKEN_FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
    /// Attribute of all jobs, for example `accounting_group` for accounting; repeat for more.
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) attributes: Vec<(String, String)>,
}

/// `NAME=VALUE`
pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass create
  windlass create pipeline.yaml
  windlass create --dry-run pipeline.yaml     validate the file only")]
pub(crate) struct CreateArgs {
    /// Spec file; `-` reads standard input. Default: `windlass.yaml` or the only `*.windlass.yaml` of this
    /// directory.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: Option<PathBuf>,
    /// Validate the file and show what it would create, without storing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputDirArgs,
    #[command(flatten)]
    pub(crate) torc: TorcCreateArgs,
}

/// Options of `torc run` without effect here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Accepted for compatibility with Torc, without effect")]
pub(crate) struct TorcRunArgs {
    /// Polling interval; windlass does not poll.
    #[arg(short, long, value_name = "SECONDS")]
    poll_interval: Option<f64>,
    /// Maximum polling interval; windlass does not poll.
    #[arg(long, value_name = "SECONDS")]
    claim_backoff_max_secs: Option<f64>,
    /// Skip checks for Slurm; this command has none.
    #[arg(long)]
    skip_checks: bool,
    /// Rejected: `run` ends with its workflow. Use `windlass worker --persistent` with a server.
    #[arg(long, hide = true)]
    persistent: bool,
}

impl TorcRunArgs {
    /// The given option that would change what Torc runs, and its replacement.
    pub(crate) fn unsupported_option(&self) -> Option<(&'static str, &'static str)> {
        self.persistent.then_some((
            "--persistent is not supported: `windlass run` ends with its workflow",
            "`windlass worker --persistent` waits for work of a server: `windlass serve`",
        ))
    }
}

/// Resource measurements of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Args)]
#[command(next_help_heading = "Measurements")]
pub(crate) struct ResourceMonitorArgs {
    /// CPU and memory measurements of jobs to store: a summary per attempt, all samples (`time_series`, for
    /// `windlass resources plot`), or none.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "summary")]
    pub(crate) monitor: ResourceMonitorArg,
    /// CPU and memory measurements of this machine to store: a summary, all samples (`time_series`), or none.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "off")]
    pub(crate) monitor_compute_node: ResourceMonitorArg,
    /// Plot the measurements at the end, as `windlass resources plot` does.
    #[arg(long)]
    pub(crate) generate_plots: bool,
    /// Interval between measurements, in seconds. Default: 10.
    #[arg(short = 'i', long, value_name = "SECONDS", value_parser = parse_interval)]
    pub(crate) sample_interval_seconds: Option<f64>,
}

impl Default for ResourceMonitorArgs {
    fn default() -> Self {
        Self {
            monitor: ResourceMonitorArg::Summary,
            monitor_compute_node: ResourceMonitorArg::Off,
            generate_plots: false,
            sample_interval_seconds: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResourceMonitorArg {
    Summary,
    #[value(name = "time_series", alias = "time-series")]
    TimeSeries,
    Off,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds, for example 1 or 0.5".to_owned()),
    }
}

/// Options of `torc create` without effect here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Accepted for compatibility with Torc, without effect")]
pub(crate) struct TorcCreateArgs {
    /// Do not measure jobs; ignored. Set `resource_monitor: {enabled: false}` in the spec instead.
    #[arg(long)]
    no_resource_monitoring: bool,
    /// Skip checks for Slurm; this command has none.
    #[arg(long)]
    skip_checks: bool,
}

impl TorcCreateArgs {
    /// The given option that would change what Torc does, with the reason why it has no effect.
    pub(crate) fn ignored_flag(&self) -> Option<(&'static str, &'static str)> {
        let instead = "set `resource_monitor: {enabled: false}` in the spec to disable measurements";
        self.no_resource_monitoring.then_some(("--no-resource-monitoring", instead))
    }
}

/// Resources of this machine that jobs may use.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "This machine")]
pub(crate) struct MachineArgs {
    /// Number of CPUs that jobs may use. Default: all of this machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Memory that jobs may use: a number of GiB, or a size such as `16G`. Default: all of this machine.
    #[arg(long = "memory-gb", visible_alias = "memory", value_name = "GIB", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Number of GPUs that jobs may use. Default: all of this machine.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
    /// Maximum number of concurrent jobs. If given, jobs without resource requirements are limited only by
    /// this number, not by the number of CPUs.
    #[arg(short = 'j', long, visible_alias = "jobs", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_parallel_jobs: Option<u32>,
    /// Label of this machine; repeat for more. A job with labels runs only on a machine that has all labels
    /// of the job.
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// Time that a job has to exit after the stop signal before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = windlass_types::parse_duration)]
    pub(crate) grace: Duration,
    /// Stop the run after this time: `90m`, `PT1H`. Jobs whose time limit exceeds the remaining time are not
    /// started; running jobs are stopped before the end. `windlass resume` continues the workflow. Default:
    /// no limit.
    #[arg(long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Time at which the run stops: `2026-08-01T18:00:00Z`. Jobs whose time limit exceeds the remaining time
    /// are not started. Default: no limit.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) end_time: Option<Timestamp>,
    /// Treat workers on other machines as dead, so that their jobs run again. Windlass cannot check them from
    /// this machine: verify first that they have stopped.
    #[arg(long)]
    pub(crate) assume_dead: bool,
    /// Stop workers left behind by a server that is no longer running, and run their jobs again.
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Start even if input files are missing.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Uses its own directory and database: --db, WINDLASS_DB and the workflows of this directory are not used."
)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) place: DemoDirArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<DemoSubcommand>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoDirArgs {
    /// Directory to use; created if it does not exist. Default: a new temporary directory.
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DemoSubcommand {
    /// Run a small campaign of requests on four simulated sites, with a retried failure and a request that
    /// runs in two steps.
    Requests(DemoDirArgs),
}

pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "expected a time with time zone, such as 2026-08-01T18:00:00Z or …+02:00".to_owned())
}

/// Parses a size with unit, or a number of GiB.
pub(crate) fn parse_memory(text: &str) -> Result<Bytes, String> {
    let bytes = match text.parse::<f64>() {
        Ok(gib) => gib * f64::from(1 << 30),
        Err(_) => {
            text.parse::<Bytes>()
                .map_err(|_| "expected a number of GiB, or a size such as 16G or 512M".to_owned())?
                .0 as f64
        }
    };
    if bytes >= 1.0 && bytes < i64::MAX as f64 {
        Ok(Bytes(bytes as u64))
    } else {
        Err("the size is out of range".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CliCommand;
    use crate::args::tests::parse;

    #[test]
    fn run_options_describe_machine() {
        let CliCommand::Run(args) =
            parse(&["run", "a.yaml", "--num-cpus", "4", "--memory-gb", "1.5", "-j2", "--grace", "1m"])
                .unwrap()
        else {
            panic!("not run")
        };
        assert_eq!(args.machine.num_cpus, Some(4));
        assert_eq!(args.machine.memory, Some(Bytes(3 << 29)));
        assert_eq!(args.machine.max_parallel_jobs, Some(2));
        assert_eq!(args.machine.grace, Duration::from_mins(1));
        for wrong in [
            ["--num-cpus", "0"],
            ["-j", "0"],
            ["--memory-gb", "0"],
            ["--memory-gb", "x"],
            ["--grace", "soon"],
        ] {
            assert!(parse(&["run", "a.yaml", wrong[0], wrong[1]]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn exec_keeps_words_after_double_dash() {
        let CliCommand::Exec(args) =
            parse(&["exec", "--param", "n=1:3", "--link", "zip", "--", "sim", "--seed", "{n}"]).unwrap()
        else {
            panic!("not exec")
        };
        assert_eq!(args.trailing, ["sim", "--seed", "{n}"]);
        assert_eq!(args.link, ParameterLink::Zip);
        assert_eq!(args.params.len(), 1);
        assert!(parse(&["exec", "--param", "no-values"]).is_err());
    }

    #[test]
    fn torc_run_flags_parse_and_unsupported_ones_are_named() {
        let line = "run x.yaml -p 5 --claim-backoff-max-secs 3 --skip-checks --persistent --label gpu --time-limit PT1H";
        let line: Vec<&str> = line.split(' ').collect();
        let CliCommand::Run(args) = parse(&line).unwrap() else { panic!("not run") };
        assert!(args.torc.unsupported_option().unwrap().0.contains("--persistent"));
        assert_eq!(args.machine.label, ["gpu"]);
        assert_eq!(args.machine.time_limit, Some(Duration::from_hours(1)));
        for wrong in [["--end-time", "18:00"], ["--time-limit", "soon"]] {
            assert!(parse(&["exec", wrong[0], wrong[1], "-c", "true"]).is_err(), "{wrong:?}");
        }
        parse(&["exec", "--monitor", "time-series", "--generate-plots", "-i", "1", "-c", "true"]).unwrap();
        parse(&["create", "x.yaml", "--no-resource-monitoring", "--skip-checks"]).unwrap();
    }
}
