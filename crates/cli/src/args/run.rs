//! Commands that run something, and what they have in common.

use super::object_refs::WorkflowRef;
use crate::parameter_sweep::ExecParameterArg;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use windlass_core::reuse::AcceptedChange;
use windlass_types::{Bytes, Timestamp};

#[derive(Debug, Args)]
#[command(after_help = "\
Running the same, unchanged file again goes on with the workflow that it made: what completed stays completed, \
unless its input files have changed since. A changed file makes a new workflow, in which jobs that are as they were are \
reused and only the others run; `windlass plan` says which and why. With --new all of them run. The same means the same \
text in the same directory, whatever the file is called.

Examples:
  windlass run
  windlass run pipeline.yaml -j 8 --output-dir logs
  windlass run --new pipeline.yaml
  generate-spec | windlass run -")]
pub(crate) struct RunArgs {
    /// Spec file, or an existing workflow by its id, its name, or `last`; `-` reads a spec from stdin. Without it: the
    /// `windlass.yaml` or the only `*.windlass.yaml` of this directory.
    #[arg(value_name = "SPEC|ID")]
    pub(crate) spec: Option<PathBuf>,
    /// Make a new workflow and reuse nothing, even if this file was run here before.
    #[arg(long)]
    pub(crate) new: bool,
    /// Show what would run, as `windlass plan` does, and run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Tell changed files by what is in them, not by their times.
    #[arg(long, visible_alias = "hash")]
    pub(crate) content: bool,
    /// Take a change for one that means nothing, and reuse the job: `JOB`, `JOB:FIELD`, or `*:FIELD` for all jobs.
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
    /// Directory for the logs of jobs, made if it is not there.
    #[arg(short, long, value_name = "DIR", default_value = OutputDirArgs::DEFAULT_DIR)]
    pub(crate) output_dir: PathBuf,
}

impl OutputDirArgs {
    pub(crate) const DEFAULT_DIR: &str = "windlass_output";
}

#[derive(Debug, Args)]
#[command(after_help = "\
Jobs that were running when windlass died are first made sure to be dead, then run again. Jobs that failed stay \
failed unless --retry-failed is given; it starts a new run in which they, what was canceled because of them, and what was \
built on them, run again.

Examples:
  windlass resume
  windlass resume --retry-failed
  windlass resume 3 -j 2")]
pub(crate) struct ResumeArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Run failed, canceled and timed-out jobs again, and what was built on them.
    #[arg(long)]
    pub(crate) retry_failed: bool,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Commands are run by bash. Words after `--` are quoted as needed, so they arrive as typed; a single word after `--` \
is taken as a whole shell command.

`{name}` stands for the value of a parameter. In a shell command (-c, -C, a single word after `--`) it takes only values \
of letters, digits and _./:=@%+,- that mean nothing to a shell; `{name:q}` inserts any value, quoted, so write no quotes \
around it. Among several words after `--` both insert any value as it is. Every parameter must be used.

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
    /// A shell command; give it again for more. `{name}` and `{name:q}` stand for a parameter.
    #[arg(short, long = "command", value_name = "CMD")]
    pub(crate) commands: Vec<String>,
    /// File with one shell command per line; `-` is stdin. Empty lines and lines starting with # are skipped.
    #[arg(short = 'C', long, value_name = "FILE")]
    pub(crate) commands_file: Option<PathBuf>,
    /// Values for `{name}`: `n=1:10`, `n=01:10` (zeros in front), `n=0:1:0.25`, `n=a,b`, `n=[a,b]`, or `n=@FILE` with one
    /// per line.
    #[arg(long = "param", value_name = "NAME=VALUES")]
    pub(crate) params: Vec<ExecParameterArg>,
    /// How several parameters combine: every value with every other, or first with first, second with second.
    #[arg(long, value_enum, value_name = "HOW", default_value = "product")]
    pub(crate) link: ParameterLink,
    /// Name of the workflow.
    #[arg(short, long, default_value = "exec")]
    pub(crate) name: String,
    /// What it is about.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Print the commands and run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// A command and its arguments, as typed after `--`.
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
  windlass submit --dry-run pipeline.yaml                            check the file only
  windlass submit --slurm --account lab pipeline.yaml                in allocations of Slurm
  windlass submit --backend htcondor pipeline.yaml                   as a DAG, without a server")]
pub(crate) struct SubmitArgs {
    /// Who runs it: the workers of a server, or HTCondor.
    #[arg(long, value_enum, value_name = "WHO", default_value = "server")]
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
    /// Submit to the schedd of this name; otherwise to that of this machine.
    #[arg(long, value_name = "NAME")]
    pub(crate) schedd: Option<String>,
    /// Write the DAG and its logs there; otherwise into a directory of its own below `.windlass/dags`. The same
    /// command with the same directory goes on with a submission that was interrupted, and never submits twice.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Send input files to the workers and fetch output files, also if HTCondor believes that they see this file
    /// system.
    #[arg(long)]
    pub(crate) transfer: bool,
    /// An X.509 proxy for the jobs.
    #[arg(long, value_name = "FILE")]
    pub(crate) proxy: Option<PathBuf>,
    /// A token for the jobs, which find it by BEARER_TOKEN_FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
    /// An attribute for all jobs, for accounting. `accounting_group` is HTCondor's own.
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) attributes: Vec<(String, String)>,
}

/// `NAME=VALUE`
pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass create
  windlass create pipeline.yaml
  windlass create --dry-run pipeline.yaml     check the file only")]
pub(crate) struct CreateArgs {
    /// Spec file; `-` reads it from stdin. Without it: the `windlass.yaml` or the only `*.windlass.yaml` of this
    /// directory.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: Option<PathBuf>,
    /// Check the file and say what it would create; store nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputDirArgs,
    #[command(flatten)]
    pub(crate) torc: TorcCreateArgs,
}

/// Flags of `torc run` that have nothing to do here, so that scripts need no change.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Understood for Torc's sake, without effect")]
pub(crate) struct TorcRunArgs {
    /// How often to ask for work. Nobody polls here.
    #[arg(short, long, value_name = "SECONDS")]
    poll_interval: Option<f64>,
    /// Longest pause between two questions for work. Nobody polls here.
    #[arg(long, value_name = "SECONDS")]
    claim_backoff_max_secs: Option<f64>,
    /// Leave out the checks of a spec for Slurm. They come with Slurm.
    #[arg(long)]
    skip_checks: bool,
    /// Refused: `run` ends with its workflow. `windlass worker --persistent` waits for more work of a server.
    #[arg(long, hide = true)]
    persistent: bool,
}

impl TorcRunArgs {
    /// A flag that would have changed what Torc runs, and what is for it here.
    pub(crate) fn unsupported_option(&self) -> Option<(&'static str, &'static str)> {
        self.persistent.then_some((
            "--persistent waits for more work, and `windlass run` ends with its workflow",
            "`windlass worker --persistent` waits for work of a server: `windlass serve`",
        ))
    }
}

/// What is measured while the commands run.
#[derive(Clone, Copy, Debug, PartialEq, Args)]
#[command(next_help_heading = "What to measure")]
pub(crate) struct ResourceMonitorArgs {
    /// What to keep of each job: a summary of each attempt, or every sample for `windlass resources plot`.
    #[arg(long, value_enum, value_name = "HOW", default_value = "summary")]
    pub(crate) monitor: ResourceMonitorArg,
    /// What to keep of the machine.
    #[arg(long, value_enum, value_name = "HOW", default_value = "off")]
    pub(crate) monitor_compute_node: ResourceMonitorArg,
    /// Draw what was measured when all is done, as `windlass resources plot` does.
    #[arg(long)]
    pub(crate) generate_plots: bool,
    /// Time between two samples.
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
        _ => Err("write a number of seconds, for example 1 or 0.5".to_owned()),
    }
}

/// As [`TorcRunArgs`], for `create`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Understood for Torc's sake, without effect")]
pub(crate) struct TorcCreateArgs {
    /// Do not measure jobs. They are measured all the same; `resource_monitor: {enabled: false}` in the spec is for that.
    #[arg(long)]
    pub(crate) no_resource_monitoring: bool,
    /// Leave out the checks of a spec for Slurm. They come with Slurm.
    #[arg(long)]
    skip_checks: bool,
}

/// What this machine may give to the jobs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "This machine")]
pub(crate) struct MachineArgs {
    /// Let jobs use this many CPUs at once instead of all that the machine has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Let jobs use this much memory at once instead of all that the machine has: a number of GiB, or a size such as `16G`.
    #[arg(long = "memory-gb", visible_alias = "memory", value_name = "GIB", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Let jobs use this many GPUs at once instead of all that are found.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
    /// Run at most this many jobs at once; jobs that name no requirements then count only against this number.
    #[arg(short = 'j', long, visible_alias = "jobs", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_parallel_jobs: Option<u32>,
    /// Label of this machine; repeat for more. Jobs with labels run only where the machine has all of them. At a server,
    /// a worker with labels takes no jobs without labels.
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// Time that a job gets to end by itself when it is stopped, before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = windlass_types::parse_duration)]
    pub(crate) grace: Duration,
    /// Stop after this time: `90m`, `PT1H`. No job is started that asks for more time than is left; what still runs is
    /// asked to stop before the end, and killed then. `windlass resume` goes on.
    #[arg(long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Stop at this time, likewise: `2026-08-01T18:00:00Z`.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) end_time: Option<Timestamp>,
    /// Take a worker on another machine, which cannot be asked from here, for dead. Make sure of it first.
    #[arg(long)]
    pub(crate) assume_dead: bool,
    /// End workers that live on although their server is gone, and run their jobs again.
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Start also if input files are missing that no job makes.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
It has a directory and a database of its own: --db, WINDLASS_DB and the workflows of this directory are left alone."
)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) place: DemoDirArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<DemoSubcommand>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoDirArgs {
    /// Directory to run it in, made if it is not there; a new one among the temporary files by default.
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DemoSubcommand {
    /// A small campaign of requests on four pretend sites, with a failure and a partial production step.
    Requests(DemoDirArgs),
}

pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "write a time with its zone, such as 2026-08-01T18:00:00Z or …+02:00".to_owned())
}

/// A size as people write it, or a bare number of GiB.
pub(crate) fn parse_memory(text: &str) -> Result<Bytes, String> {
    let bytes = match text.parse::<f64>() {
        Ok(gib) => gib * f64::from(1 << 30),
        Err(_) => {
            text.parse::<Bytes>()
                .map_err(|_| "write a number of GiB, or a size such as 16G or 512M".to_owned())?
                .0 as f64
        }
    };
    if bytes >= 1.0 && bytes < i64::MAX as f64 {
        Ok(Bytes(bytes as u64))
    } else {
        Err("must be more than nothing and less than the universe".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CliCommand;
    use crate::args::tests::parse;

    #[test]
    fn the_machine_is_described() {
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
    fn exec_takes_words_after_two_dashes_as_they_are() {
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
    fn flags_of_torc_are_understood_and_those_that_mattered_are_named() {
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
