//! The command line as types. Only shapes and words live here; what a command does is in `commands/`.

use crate::error::Exit;
use crate::sweep::ParamArg;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use windlass_types::{Bytes, JobId, JobStatus, RunId, WorkflowId};

const ABOUT: &str = "Runs graphs of jobs to completion, and never gives back progress that was made.";

const EXAMPLES: &str = "\
Examples:
  windlass demo                              watch a small workflow run
  windlass run pipeline.yaml                 run a workflow; run it again to go on where it stopped
  windlass status                            where the newest workflow stands
  windlass jobs --status failed              which jobs failed
  windlass logs align_7 --stderr             what one of them said
  windlass resume --retry-failed             go on, and try the failed ones again
  windlass exec -j4 -C commands.txt          run a list of commands, four at a time

Results are kept in .windlass/ in this directory or the nearest one above it that has one.";

#[derive(Debug, Parser)]
#[command(name = "windlass", version, about = ABOUT, after_help = EXAMPLES, after_long_help = long_help())]
#[command(infer_subcommands = false, disable_help_subcommand = false, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Use this database instead of looking for `.windlass/windlass.db` here and above.
    #[arg(long, value_name = "PATH", env = "WINDLASS_DB", global = true)]
    pub(crate) db: Option<PathBuf>,
    /// Print data as tables for people or as JSON for programs.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table", global = true)]
    pub(crate) format: Format,
    /// Print only data, failures and errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Colour the output; `auto` colours a terminal unless NO_COLOR is set.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", global = true)]
    pub(crate) color: ColorChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workflow from a spec file on this machine, or go on with it.
    Run(RunArgs),
    /// Go on with a workflow that was interrupted, killed, or left with failures.
    Resume(ResumeArgs),
    /// Run a list of commands, like GNU parallel, with everything a workflow has.
    Exec(ExecArgs),
    /// Check a spec file and store its workflow without running it.
    Create(CreateArgs),
    /// Show where a workflow stands.
    Status(StatusArgs),
    /// List the workflows in this database, the newest first.
    Workflows(WorkflowsArgs),
    /// List the jobs of a workflow.
    Jobs(JobsArgs),
    /// List attempts that ended: exit codes, times, memory.
    Results(ResultsArgs),
    /// Show what a job printed.
    Logs(LogsArgs),
    /// Stop a workflow for good: end what runs, start nothing more.
    Cancel(CancelArgs),
    /// Run a small workflow that explains itself.
    Demo(DemoArgs),
    /// The process that a run starts to execute jobs; not for people.
    #[command(name = "__worker", hide = true)]
    Worker,
}

/// What this machine may give to the jobs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "This machine")]
pub(crate) struct MachineArgs {
    /// Let jobs use this many CPUs at once instead of all that the machine has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Let jobs use this much memory at once, in GiB, instead of all that the machine has.
    #[arg(long = "memory-gb", value_name = "GIB", value_parser = parse_gib)]
    pub(crate) memory: Option<Bytes>,
    /// Let jobs use this many GPUs at once instead of all that are found.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
    /// Run at most this many jobs at once; jobs that name no requirements then count only against this number.
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_parallel_jobs: Option<u32>,
    /// Time that a job gets to end by itself when it is stopped, before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = windlass_types::parse_duration)]
    pub(crate) grace: Duration,
    /// Take a worker on another machine, which cannot be asked from here, for dead. Make sure of it first.
    #[arg(long)]
    pub(crate) assume_dead: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Running the same, unchanged file again goes on with the workflow that it made: what completed stays completed. \
A changed file, or --new, makes a new workflow. The same means the same text in the same directory, whatever the file is \
called.

What a spec may say: docs/spec.md in the source of windlass.

Examples:
  windlass run pipeline.yaml
  windlass run pipeline.yaml -j 8 --output-dir logs
  windlass run --new pipeline.yaml
  generate-spec | windlass run -")]
pub(crate) struct RunArgs {
    /// Spec file in YAML; `-` reads it from stdin.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: PathBuf,
    /// Make a new workflow even if this file was run here before.
    #[arg(long)]
    pub(crate) new: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Directory for the logs of jobs, made if it is not there.
    #[arg(short, long, value_name = "DIR", default_value = "windlass_output")]
    pub(crate) output_dir: PathBuf,
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
Commands are run by /bin/sh. Words after `--` are quoted as needed, so they arrive as typed; a single word after `--` \
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
    pub(crate) params: Vec<ParamArg>,
    /// How several parameters combine: every value with every other, or first with first, second with second.
    #[arg(long, value_enum, value_name = "HOW", default_value = "product")]
    pub(crate) link: Link,
    /// Name of the workflow.
    #[arg(short, long, default_value = "exec")]
    pub(crate) name: String,
    /// Print the commands and run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// A command and its arguments, as typed after `--`.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) trailing: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    Product,
    Zip,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass create pipeline.yaml
  windlass create --dry-run pipeline.yaml     check the file only")]
pub(crate) struct CreateArgs {
    /// Spec file in YAML; `-` reads it from stdin.
    #[arg(value_name = "SPEC")]
    pub(crate) spec: PathBuf,
    /// Check the file and say what it would create; store nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct WorkflowsArgs {}

#[derive(Debug, Args)]
#[command(after_help = "\
States of a job:
  uninitialized   made, not yet looked at
  blocked         waits for the jobs it depends on
  ready           may start
  pending         given to a worker, may have started
  running         has started
  completed       ended with exit code 0
  failed          ended otherwise
  canceled        did not run, or was stopped, because somebody or a failed dependency said so
  terminated      ended by windlass because its time was up
  disabled        left out on purpose
  pending_failed  failed, and somebody is to say what happens next

Examples:
  windlass jobs --status failed --status terminated
  windlass jobs 3 --limit 20 --offset 40
  windlass jobs -f json | jq -r '.[] | select(.return_code == 137) | .name'")]
pub(crate) struct JobsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only jobs in this state; give it again for more.
    #[arg(short, long, value_name = "STATUS")]
    pub(crate) status: Vec<JobStatus>,
    /// List at most this many jobs.
    #[arg(short, long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Leave out this many jobs at the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Every attempt leaves a result, also the ones that failed and were tried again.

Examples:
  windlass results --failed
  windlass results --job align_7 --all-runs")]
pub(crate) struct ResultsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only attempts that did not complete.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only this job, by id or name.
    #[arg(short, long, value_name = "JOB")]
    pub(crate) job: Option<JobRef>,
    /// Earlier runs of the workflow as well.
    #[arg(long)]
    pub(crate) all_runs: bool,
    /// List at most this many attempts.
    #[arg(short, long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Leave out this many attempts at the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Shows the newest attempt, both streams, unless told otherwise.

Examples:
  windlass logs align_7
  windlass logs align_7 --stderr --tail 20
  windlass logs align_7 --follow                until the job is over, across attempts
  windlass logs 12 --run 1 --attempt 1")]
pub(crate) struct LogsArgs {
    /// Job: its id or its name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Only what it wrote to stderr.
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Only what it wrote to stdout.
    #[arg(long)]
    pub(crate) stdout: bool,
    /// Show this attempt instead of the newest.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// Show this run of the workflow instead of the newest in which the job ran.
    #[arg(short, long, value_name = "N")]
    pub(crate) run: Option<RunId>,
    /// Go on printing what the job writes until it is over.
    #[arg(long, conflicts_with_all = ["attempt", "run"])]
    pub(crate) follow: bool,
    /// Begin with the last N lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Workflow of the job: its id, its name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The process that runs the workflow is told to stop its jobs. If none runs it, the workflow is canceled at once. \
`windlass resume --retry-failed` starts a canceled workflow again.")]
pub(crate) struct CancelArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Return only when nothing of it runs any more.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Time that a job gets to end by itself, if this command has to end it.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = windlass_types::parse_duration)]
    pub(crate) grace: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
It has a directory and a database of its own: --db, WINDLASS_DB and the workflows of this directory are left alone.")]
pub(crate) struct DemoArgs {
    /// Directory to run it in, made if it is not there; a new one among the temporary files by default.
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Which workflow is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkflowRef {
    /// The newest.
    Last,
    Id(WorkflowId),
    Name(String),
}

impl FromStr for WorkflowRef {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.parse() {
            Ok(id) => Self::Id(id),
            Err(_) if text == "last" => Self::Last,
            Err(_) => Self::Name(text.to_owned()),
        })
    }
}

/// Which job of a workflow is meant. A number may be an id or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobRef {
    pub(crate) text: String,
    pub(crate) id: Option<JobId>,
}

impl FromStr for JobRef {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self { text: text.to_owned(), id: text.parse().ok() })
    }
}

fn parse_gib(text: &str) -> Result<Bytes, String> {
    let gib: f64 = text.parse().map_err(|_| "write a number of GiB, for example 16 or 0.5".to_owned())?;
    let bytes = gib * f64::from(1 << 30);
    if bytes >= 1.0 && bytes < i64::MAX as f64 {
        Ok(Bytes(bytes as u64))
    } else {
        Err("must be more than nothing and less than the universe".to_owned())
    }
}

fn long_help() -> String {
    let codes = Exit::ALL.map(|exit| format!("\n  {:>2}  {}", exit.code(), exit.meaning())).concat();
    format!("{EXAMPLES}\n\nExit codes:{codes}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(line: &[&str]) -> Result<Command, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"windlass").chain(line)).map(|cli| cli.command.unwrap())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_argument_and_command_is_explained() {
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains(' '), "{} {}: `{help}`", command.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn workflows_are_named_by_id_name_or_last() {
        for (text, expected) in [
            ("last", WorkflowRef::Last),
            ("7", WorkflowRef::Id(WorkflowId(7))),
            ("sim", WorkflowRef::Name("sim".into())),
        ] {
            let Command::Status(args) = parse(&["status", text]).unwrap() else { panic!("not status") };
            assert_eq!(args.workflow, expected);
        }
        let Command::Status(args) = parse(&["status"]).unwrap() else { panic!("not status") };
        assert_eq!(args.workflow, WorkflowRef::Last);
    }

    #[test]
    fn the_machine_is_described() {
        let Command::Run(args) =
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
        let Command::Exec(args) =
            parse(&["exec", "--param", "n=1:3", "--link", "zip", "--", "sim", "--seed", "{n}"]).unwrap()
        else {
            panic!("not exec")
        };
        assert_eq!(args.trailing, ["sim", "--seed", "{n}"]);
        assert_eq!(args.link, Link::Zip);
        assert_eq!(args.params.len(), 1);
        assert!(parse(&["exec", "--param", "no-values"]).is_err());
    }

    #[test]
    fn several_states_may_be_asked_for_and_only_known_ones() {
        let Command::Jobs(args) = parse(&["jobs", "-s", "failed", "--status", "ready"]).unwrap() else {
            panic!("not jobs")
        };
        assert_eq!(args.status, [JobStatus::Failed, JobStatus::Ready]);
        let error = parse(&["jobs", "--status", "done"]).unwrap_err().to_string();
        assert!(error.contains("pending_failed"), "{error}");
    }

    #[test]
    fn every_state_is_explained() {
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("jobs").unwrap().render_long_help().to_string();
        for status in JobStatus::ALL {
            assert!(help.contains(&format!("\n  {:<14}  ", status.name())), "{status}\n{help}");
        }
    }

    #[test]
    fn examples_survive_claps_own_placeholders() {
        // Clap takes `{n}` for a line break.
        for command in Cli::command().get_subcommands_mut() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.contains("{n}"), "{}", command.get_name());
        }
    }

    #[test]
    fn the_long_help_lists_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for exit in Exit::ALL {
            let line = format!("  {:>2}  {}", exit.code(), exit.meaning());
            assert!(help.contains(&line), "{line}\n{help}");
        }
    }
}
