//! The commands of Slurm: each with a time limit of ours, within a budget, and with what its answer is worth.
//!
//! A controller serves thousands; whoever asks it without end is asked to leave. So questions come from one budget, and
//! after failures they become rarer. An answer is one of three things: Slurm did it, Slurm said no, or nobody knows. The last
//! one is not the second: a submission that timed out may have been accepted.

mod budget;
pub(crate) mod environment;

pub use budget::{Budget, BudgetOptions, Left, Tally};

use crate::read::accounts;
use crate::read::{sacct, sbatch, squeue, steps};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_api::slurm::SlurmAccount;
use windlass_core::slurm::sight::{BookedJob, QueueJob};
use windlass_core::slurm::steps::Step;
use windlass_proc::command;
use windlass_types::{Clock, Timestamp};

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    Answered(T),
    /// Slurm said no, in its words.
    Refused(String),
    /// Nobody knows: it took too long, or nobody could be reached. Nothing follows from it.
    Unknown(Unknown),
}

impl<T> Outcome<T> {
    pub fn answer(self) -> Option<T> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Refused(_) | Self::Unknown(_) => None,
        }
    }

    fn map<U>(self, with: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Answered(answer) => Outcome::Answered(with(answer)),
            Self::Refused(said) => Outcome::Refused(said),
            Self::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    #[error("`{tool}` took longer than {} s and was ended: the controller hangs or is overloaded", limit.as_secs())]
    TimedOut { tool: &'static str, limit: Duration },
    #[error("Slurm cannot be reached, which says nothing about its jobs: {said}")]
    Unreachable { said: String },
    #[error(
        "`{tool}` cannot be started: install Slurm's commands, and have them on the PATH of whoever runs this ({why})"
    )]
    NotStarted { tool: &'static str, why: String },
    #[error("`{tool}` printed what cannot be understood: {said}")]
    Unintelligible { tool: &'static str, said: String },
    /// It was not asked at all.
    #[error("Slurm is not asked before {until}, so as not to ask it too often")]
    Later { until: Timestamp },
}

impl Unknown {
    /// Whether it is certain that Slurm heard nothing.
    pub const fn was_not_asked(&self) -> bool {
        matches!(self, Self::NotStarted { .. } | Self::Later { .. })
    }
}

/// How Slurm is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmOptions {
    /// Where the commands are, if not on the path.
    pub tools: Option<PathBuf>,
    /// Set for each command: `SLURM_CONF`, for one that is not where commands look for it.
    pub environment: Vec<(String, String)>,
    /// How long a command may take. Slurm's own limits are shorter where all is well, and up to 90 s where it is not.
    pub limit: Duration,
    pub budget: BudgetOptions,
}

impl Default for SlurmOptions {
    fn default() -> Self {
        Self {
            tools: None,
            environment: Vec::new(),
            limit: Duration::from_secs(30),
            budget: BudgetOptions::default(),
        }
    }
}

/// The way to Slurm.
#[derive(Debug)]
pub struct Slurm {
    options: SlurmOptions,
    budget: Mutex<Budget>,
}

/// What `sacct` says, or that it never will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Books {
    Disabled,
    Jobs(BTreeMap<u64, BookedJob>),
}

/// So many numbers are given to a command at once.
const CHUNK: usize = 100;

impl Slurm {
    pub fn new(options: SlurmOptions) -> Self {
        let budget = Mutex::new(Budget::new(options.budget, Clock.now()));
        Self { options, budget }
    }

    /// For somebody who asks by himself, where no server does: as often as it takes, and without pauses.
    pub fn by_hand() -> Self {
        let budget = BudgetOptions { burst: u32::MAX, pause: Duration::ZERO, ..BudgetOptions::default() };
        Self::new(SlurmOptions { budget, ..SlurmOptions::default() })
    }

    /// All jobs of this user that the controller knows, those that are over a short while ago among them: one call.
    pub fn queue(&self) -> Outcome<Vec<QueueJob>> {
        let arguments = ["-h", "-r", "-t", "all", "--me", "-o", squeue::FORMAT];
        self.run(Tool::Squeue, &arguments.map(str::to_owned)).map(|printed| squeue::parse(&printed))
    }

    /// All steps of this user that are not over.
    pub fn steps(&self) -> Outcome<Vec<Step>> {
        let arguments = ["-h", "-s", "--me", "-o", steps::FORMAT];
        self.run(Tool::Squeue, &arguments.map(str::to_owned)).map(|printed| steps::parse(&printed))
    }

    /// Ends steps at once, by the names that Slurm has for them.
    pub fn kill_steps(&self, ids: &[String]) -> Outcome<()> {
        self.cancel_each(&["--signal=KILL".to_owned()], ids)
    }

    /// What accounting has about these numbers, and about jobs with these names since then.
    pub fn booked(&self, ids: &BTreeSet<u64>, names: &BTreeSet<String>, since: Timestamp) -> Outcome<Books> {
        let mut jobs = BTreeMap::new();
        let usual = ["-n", "-P", "-X", "-D", "-o", sacct::FORMAT].map(str::to_owned);
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        let names: Vec<String> = names.iter().cloned().collect();
        let by_id = ids.chunks(CHUNK).map(|ids| vec!["-j".to_owned(), ids.join(",")]);
        let by_name = names.chunks(CHUNK).map(|names| {
            vec![
                format!("--name={}", names.join(",")),
                "-S".to_owned(),
                day(since),
                "-E".to_owned(),
                "now".to_owned(),
            ]
        });
        for which in by_id.chain(by_name) {
            let arguments: Vec<String> = usual.iter().cloned().chain(which).collect();
            match self.run(Tool::Sacct, &arguments) {
                Outcome::Answered(printed) => jobs.extend(sacct::parse(&printed)),
                Outcome::Refused(said) if sacct::is_disabled(&said) => {
                    return Outcome::Answered(Books::Disabled);
                }
                Outcome::Refused(said) => return Outcome::Refused(said),
                Outcome::Unknown(why) => return Outcome::Unknown(why),
            }
        }
        Outcome::Answered(Books::Jobs(jobs))
    }

    /// What accounting measured of these jobs and of their steps; `None` where there is no accounting.
    pub fn accounts(&self, ids: &[u64]) -> Outcome<Option<Vec<SlurmAccount>>> {
        let mut rows = Vec::new();
        for chunk in ids.chunks(CHUNK) {
            let ids: Vec<String> = chunk.iter().map(u64::to_string).collect();
            let arguments =
                ["-n", "-P", "-D", "-o", accounts::FORMAT, "-j", &ids.join(",")].map(str::to_owned);
            match self.run(Tool::Sacct, &arguments) {
                Outcome::Answered(printed) => rows.extend(accounts::parse(&printed)),
                Outcome::Refused(said) if sacct::is_disabled(&said) => return Outcome::Answered(None),
                Outcome::Refused(said) => return Outcome::Refused(said),
                Outcome::Unknown(why) => return Outcome::Unknown(why),
            }
        }
        Outcome::Answered(Some(rows))
    }

    /// Hands an allocation over: its number. [`Outcome::Unknown`] may mean that it was accepted. `sbatch` reads the script
    /// from its standard input, so no file is written where others could have put a link. `environment`: what the job finds
    /// besides that of this process.
    pub fn submit(
        &self,
        arguments: &[String],
        script: &str,
        environment: &[(String, String)],
    ) -> Outcome<u64> {
        match self.run_within(Tool::Sbatch, arguments, Some(script), environment) {
            Outcome::Answered(Said { stdout: printed, .. }) => sbatch::job_id(&printed).map_or_else(
                || Outcome::Unknown(Unknown::Unintelligible { tool: "sbatch", said: brief(&printed) }),
                Outcome::Answered,
            ),
            Outcome::Refused(said) => Outcome::Refused(sbatch::refusal(&said)),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        }
    }

    /// Ends them, or takes them out of the queue. What is over already is no error.
    pub fn cancel(&self, ids: &[u64]) -> Outcome<()> {
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        self.cancel_each(&[], &ids)
    }

    fn cancel_each(&self, options: &[String], ids: &[String]) -> Outcome<()> {
        let mut outcome = Outcome::Answered(());
        for chunk in ids.chunks(CHUNK) {
            let arguments = [options, chunk].concat();
            match self.run(Tool::Scancel, &arguments) {
                Outcome::Answered(_) => {}
                // The others of them were canceled all the same.
                Outcome::Refused(said) => outcome = Outcome::Refused(said),
                Outcome::Unknown(why) => return Outcome::Unknown(why),
            }
        }
        outcome
    }

    /// What may be asked still.
    pub fn left(&self) -> Left {
        self.budget().left(Clock.now())
    }

    /// What was asked since it was asked for the last time, by command.
    pub fn take_tally(&self) -> BTreeMap<&'static str, Tally> {
        self.budget().take_tally()
    }

    /// What was asked since the start, by command.
    pub fn totals(&self) -> BTreeMap<&'static str, Tally> {
        self.budget().totals().clone()
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it printed.
    pub(crate) fn run(&self, tool: Tool, arguments: &[String]) -> Outcome<String> {
        self.run_in_full(tool, arguments).map(|said| said.stdout)
    }

    /// The same with what it wrote to its standard error, for commands that answer there.
    pub(crate) fn run_in_full(&self, tool: Tool, arguments: &[String]) -> Outcome<Said> {
        self.run_within(tool, arguments, None, &[])
    }

    fn run_within(
        &self,
        tool: Tool,
        arguments: &[String],
        input: Option<&str>,
        environment: &[(String, String)],
    ) -> Outcome<Said> {
        if let Err(until) = self.budget().take(tool, Clock.now()) {
            return Outcome::Unknown(Unknown::Later { until });
        }
        let began = Instant::now();
        let outcome = self.call(tool, arguments, input, environment);
        self.budget().note(tool, Ending::of(&outcome), began.elapsed(), Clock.now());
        if let Outcome::Unknown(why) = &outcome {
            tracing::warn!(command = tool.name(), error = %why, "Slurm has not answered");
        }
        outcome
    }

    fn call(
        &self,
        tool: Tool,
        arguments: &[String],
        input: Option<&str>,
        environment: &[(String, String)],
    ) -> Outcome<Said> {
        let (name, limit) = (tool.name(), self.options.limit);
        let mut command = self.command(tool);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        let fed = input.map_or(Ok(()), |input| feed(&mut command, input));
        let answer = match fed.and_then(|()| command::run(&mut command, limit)) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Outcome::Unknown(Unknown::TimedOut { tool: name, limit }),
            Err(error) => {
                return Outcome::Unknown(Unknown::NotStarted { tool: name, why: error.to_string() });
            }
        };
        let stdout = String::from_utf8_lossy(&answer.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
        if answer.status.success() {
            return Outcome::Answered(Said { stdout, stderr });
        }
        let complaint = if stderr.trim().is_empty() { stdout } else { stderr };
        if is_unreachable(tool, &complaint) {
            return Outcome::Unknown(Unknown::Unreachable { said: brief(&complaint) });
        }
        Outcome::Refused(complaint)
    }

    fn command(&self, tool: Tool) -> Command {
        let path = |tools: &PathBuf| tools.join(tool.name());
        let mut command = Command::new(self.options.tools.as_ref().map_or_else(|| tool.name().into(), path));
        for (name, _) in std::env::vars_os() {
            if environment::is_dropped(&name.to_string_lossy(), tool == Tool::Sbatch) {
                command.env_remove(name);
            }
        }
        command.envs(self.options.environment.iter().map(|(name, value)| (name, value)));
        // What is printed is read by us; what is submitted takes its environment along.
        if tool != Tool::Sbatch {
            command.env("TZ", "UTC").env("LC_ALL", "C");
        }
        // Not where we happen to be: that may be a directory that is gone.
        command.stdin(Stdio::null()).current_dir(Path::new("/"));
        command
    }
}

/// Has the command read this on its standard input. A thread writes it: a pipe holds only so much.
fn feed(command: &mut Command, input: &str) -> io::Result<()> {
    let (reader, mut writer) = io::pipe()?;
    command.stdin(reader);
    let input = input.to_owned();
    // If the command does not read it all, it has failed and says so itself.
    let write = move || writer.write_all(input.as_bytes()).unwrap_or_default();
    std::thread::Builder::new().name("windlass-script".into()).spawn(write).map(drop)
}

/// What a command that succeeded wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The commands that are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tool {
    Squeue,
    Sacct,
    Sbatch,
    Scancel,
    Sinfo,
    Scontrol,
}

impl Tool {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Squeue => "squeue",
            Self::Sacct => "sacct",
            Self::Sbatch => "sbatch",
            Self::Scancel => "scancel",
            Self::Sinfo => "sinfo",
            Self::Scontrol => "scontrol",
        }
    }

    /// Accounting is another service, and may be down while the controller is not.
    const fn service(self) -> Service {
        match self {
            Self::Sacct => Service::Accounting,
            _ => Service::Controller,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    Controller,
    Accounting,
}

/// How a call went, for whoever counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Answered,
    Refused,
    TimedOut,
    Failed,
}

impl Ending {
    const fn of<T>(outcome: &Outcome<T>) -> Self {
        match outcome {
            Outcome::Answered(_) => Self::Answered,
            Outcome::Refused(_) => Self::Refused,
            Outcome::Unknown(Unknown::TimedOut { .. }) => Self::TimedOut,
            Outcome::Unknown(_) => Self::Failed,
        }
    }
}

/// Each command has its own words before these, and most exit with 1.
const UNREACHABLE: &[&str] = &[
    "Unable to contact slurm controller",
    "Socket timed out",
    "timed out",
    "Connection refused",
    "Connection timed out",
    "Connection reset",
    "Transport endpoint",
    "Zero Bytes were transmitted",
    "Munge",
    "munge",
    "uthentication",
    "Problem talking to the database",
    "Unable to establish",
    "slurm_persist_conn",
    "backup controller in standby",
    "nable to resolve",
    "ommunication",
    "Resource temporarily unavailable",
    "Slurm temporarily",
    "Could not establish a configuration source",
    "Unable to process configuration file",
];

/// What a controller says whose reason nobody has a number for. Of a submission that is a refusal: a site's own script
/// for submissions (`job_submit.lua`) that says no without a reason.
const UNSPECIFIED: &str = "Unspecified error";

fn is_unreachable(tool: Tool, complaint: &str) -> bool {
    UNREACHABLE.iter().any(|words| complaint.contains(words))
        || (tool != Tool::Sbatch && complaint.contains(UNSPECIFIED))
}

/// A day before: clocks differ, and jobs are looked for by their names anyway.
fn day(since: Timestamp) -> String {
    let before = Timestamp(since.0.saturating_sub(86_400_000_000)).to_string();
    before.split('.').next().unwrap_or_default().to_owned()
}

fn brief(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3);
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
