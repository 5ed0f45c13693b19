//! The commands of Slurm: each with a time limit of ours, within a budget, and with what its answer is worth.
//!
//! A controller serves thousands; whoever asks it without end is asked to leave. So questions come from one budget, and
//! after failures they become rarer. An answer is one of three things: Slurm did it, Slurm said no, or nobody knows. The last
//! one is not the second: a submission that timed out may have been accepted.

mod call_budget;
pub(crate) mod environment;

pub use call_budget::{CallBudget, CallBudgetOptions, CallStatistics, RemainingCalls};

use crate::parse::sacct_usage;
use crate::parse::{sacct, sbatch, squeue, steps};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_api::slurm::SlurmAccountingEntry;
use windlass_core::slurm::job_steps::SlurmStep;
use windlass_core::slurm::slurm_jobs::{AccountedJob, QueueJob};
use windlass_process::command;
use windlass_types::{SystemClock, Timestamp};

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlurmOutcome<T> {
    Answered(T),
    /// Slurm said no, in its words.
    Refused(String),
    /// Nobody knows: it took too long, or nobody could be reached. Nothing follows from it.
    Unknown(SlurmUnavailable),
}

impl<T> SlurmOutcome<T> {
    pub fn into_answer(self) -> Option<T> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Refused(_) | Self::Unknown(_) => None,
        }
    }

    fn map_answer<U>(self, with: impl FnOnce(T) -> U) -> SlurmOutcome<U> {
        match self {
            Self::Answered(answer) => SlurmOutcome::Answered(with(answer)),
            Self::Refused(said) => SlurmOutcome::Refused(said),
            Self::Unknown(why) => SlurmOutcome::Unknown(why),
        }
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlurmUnavailable {
    #[error("`{tool}` took longer than {} s and was ended: the controller hangs or is overloaded", limit.as_secs())]
    TimedOut { tool: &'static str, limit: Duration },
    #[error("Slurm cannot be reached, which says nothing about its jobs: {said}")]
    Unreachable { said: String },
    #[error(
        "`{tool}` cannot be started: install Slurm's commands, and have them on the PATH of whoever runs this ({why})"
    )]
    NotStarted { tool: &'static str, why: String },
    #[error("`{tool}` printed what cannot be understood: {said}")]
    UnreadableAnswer { tool: &'static str, said: String },
    /// It was not asked at all.
    #[error("Slurm is not asked before {until}, so as not to ask it too often")]
    OutOfBudget { until: Timestamp },
}

impl SlurmUnavailable {
    /// Whether it is certain that Slurm heard nothing.
    pub const fn is_certainly_not_sent(&self) -> bool {
        matches!(self, Self::NotStarted { .. } | Self::OutOfBudget { .. })
    }
}

/// How Slurm is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmClientOptions {
    /// Where the commands are, if not on the path.
    pub tools_dir: Option<PathBuf>,
    /// Set for each command: `SLURM_CONF`, for one that is not where commands look for it.
    pub environment: Vec<(String, String)>,
    /// How long a command may take. Slurm's own limits are shorter where all is well, and up to 90 s where it is not.
    pub timeout: Duration,
    pub budget: CallBudgetOptions,
}

impl Default for SlurmClientOptions {
    fn default() -> Self {
        Self {
            tools_dir: None,
            environment: Vec::new(),
            timeout: Duration::from_secs(30),
            budget: CallBudgetOptions::default(),
        }
    }
}

/// The way to Slurm.
#[derive(Debug)]
pub struct SlurmClient {
    options: SlurmClientOptions,
    budget: Mutex<CallBudget>,
}

/// What `sacct` says, or that it never will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountingRecords {
    Disabled,
    Jobs(BTreeMap<u64, AccountedJob>),
}

/// So many numbers are given to a command at once.
const IDS_PER_CALL: usize = 100;

impl SlurmClient {
    pub fn new(options: SlurmClientOptions) -> Self {
        let budget = Mutex::new(CallBudget::new(options.budget, SystemClock.now()));
        Self { options, budget }
    }

    /// For somebody who asks by himself, where no server does: as often as it takes, and without pauses.
    pub fn unlimited() -> Self {
        let budget = CallBudgetOptions {
            burst: u32::MAX,
            first_pause: Duration::ZERO,
            ..CallBudgetOptions::default()
        };
        Self::new(SlurmClientOptions { budget, ..SlurmClientOptions::default() })
    }

    /// All jobs of this user that the controller knows, those that are over a short while ago among them: one call.
    pub fn list_jobs(&self) -> SlurmOutcome<Vec<QueueJob>> {
        let arguments = ["-h", "-r", "-t", "all", "--me", "-o", squeue::FORMAT];
        self.run_command(SlurmTool::Squeue, &arguments.map(str::to_owned))
            .map_answer(|printed| squeue::parse_queue(&printed))
    }

    /// All steps of this user that are not over.
    pub fn list_steps(&self) -> SlurmOutcome<Vec<SlurmStep>> {
        let arguments = ["-h", "-s", "--me", "-o", steps::FORMAT];
        self.run_command(SlurmTool::Squeue, &arguments.map(str::to_owned))
            .map_answer(|printed| steps::parse_steps(&printed))
    }

    /// Ends steps at once, by the names that Slurm has for them.
    pub fn kill_steps(&self, ids: &[String]) -> SlurmOutcome<()> {
        self.cancel_each(&["--signal=KILL".to_owned()], ids)
    }

    /// What accounting has about these numbers, and about jobs with these names since then.
    pub fn find_accounted_jobs(
        &self,
        ids: &BTreeSet<u64>,
        names: &BTreeSet<String>,
        since: Timestamp,
    ) -> SlurmOutcome<AccountingRecords> {
        let mut jobs = BTreeMap::new();
        let usual = ["-n", "-P", "-X", "-D", "-o", sacct::FORMAT].map(str::to_owned);
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        let names: Vec<String> = names.iter().cloned().collect();
        let by_id = ids.chunks(IDS_PER_CALL).map(|ids| vec!["-j".to_owned(), ids.join(",")]);
        let by_name = names.chunks(IDS_PER_CALL).map(|names| {
            vec![
                format!("--name={}", names.join(",")),
                "-S".to_owned(),
                render_day_before(since),
                "-E".to_owned(),
                "now".to_owned(),
            ]
        });
        for which in by_id.chain(by_name) {
            let arguments: Vec<String> = usual.iter().cloned().chain(which).collect();
            match self.run_command(SlurmTool::Sacct, &arguments) {
                SlurmOutcome::Answered(printed) => jobs.extend(sacct::parse_jobs(&printed)),
                SlurmOutcome::Refused(said) if sacct::is_accounting_disabled(&said) => {
                    return SlurmOutcome::Answered(AccountingRecords::Disabled);
                }
                SlurmOutcome::Refused(said) => return SlurmOutcome::Refused(said),
                SlurmOutcome::Unknown(why) => return SlurmOutcome::Unknown(why),
            }
        }
        SlurmOutcome::Answered(AccountingRecords::Jobs(jobs))
    }

    /// What accounting measured of these jobs and of their steps; `None` where there is no accounting.
    pub fn list_accounting(&self, ids: &[u64]) -> SlurmOutcome<Option<Vec<SlurmAccountingEntry>>> {
        let mut rows = Vec::new();
        for chunk in ids.chunks(IDS_PER_CALL) {
            let ids: Vec<String> = chunk.iter().map(u64::to_string).collect();
            let arguments =
                ["-n", "-P", "-D", "-o", sacct_usage::FORMAT, "-j", &ids.join(",")].map(str::to_owned);
            match self.run_command(SlurmTool::Sacct, &arguments) {
                SlurmOutcome::Answered(printed) => rows.extend(sacct_usage::parse_accounting(&printed)),
                SlurmOutcome::Refused(said) if sacct::is_accounting_disabled(&said) => {
                    return SlurmOutcome::Answered(None);
                }
                SlurmOutcome::Refused(said) => return SlurmOutcome::Refused(said),
                SlurmOutcome::Unknown(why) => return SlurmOutcome::Unknown(why),
            }
        }
        SlurmOutcome::Answered(Some(rows))
    }

    /// Hands an allocation over: its number. [`Outcome::Unknown`] may mean that it was accepted. `sbatch` reads the script
    /// from its standard input, so no file is written where others could have put a link. `environment`: what the job finds
    /// besides that of this process.
    pub fn submit(
        &self,
        arguments: &[String],
        script: &str,
        environment: &[(String, String)],
    ) -> SlurmOutcome<u64> {
        match self.run_within_budget(SlurmTool::Sbatch, arguments, Some(script), environment) {
            SlurmOutcome::Answered(SlurmOutput { stdout: printed, .. }) => sbatch::parse_job_id(&printed)
                .map_or_else(
                    || {
                        SlurmOutcome::Unknown(SlurmUnavailable::UnreadableAnswer {
                            tool: "sbatch",
                            said: shorten_message(&printed),
                        })
                    },
                    SlurmOutcome::Answered,
                ),
            SlurmOutcome::Refused(said) => SlurmOutcome::Refused(sbatch::parse_refusal(&said)),
            SlurmOutcome::Unknown(why) => SlurmOutcome::Unknown(why),
        }
    }

    /// Ends them, or takes them out of the queue. What is over already is no error.
    pub fn cancel_jobs(&self, ids: &[u64]) -> SlurmOutcome<()> {
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        self.cancel_each(&[], &ids)
    }

    fn cancel_each(&self, options: &[String], ids: &[String]) -> SlurmOutcome<()> {
        let mut outcome = SlurmOutcome::Answered(());
        for chunk in ids.chunks(IDS_PER_CALL) {
            let arguments = [options, chunk].concat();
            match self.run_command(SlurmTool::Scancel, &arguments) {
                SlurmOutcome::Answered(_) => {}
                // The others of them were canceled all the same.
                SlurmOutcome::Refused(said) => outcome = SlurmOutcome::Refused(said),
                SlurmOutcome::Unknown(why) => return SlurmOutcome::Unknown(why),
            }
        }
        outcome
    }

    /// What may be asked still.
    pub fn remaining_budget(&self) -> RemainingCalls {
        self.lock_budget().remaining(SystemClock.now())
    }

    /// What was asked since it was asked for the last time, by command.
    pub fn take_statistics(&self) -> BTreeMap<&'static str, CallStatistics> {
        self.lock_budget().take_statistics()
    }

    /// What was asked since the start, by command.
    pub fn total_statistics(&self) -> BTreeMap<&'static str, CallStatistics> {
        self.lock_budget().totals().clone()
    }

    fn lock_budget(&self) -> MutexGuard<'_, CallBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it printed.
    pub(crate) fn run_command(&self, tool: SlurmTool, arguments: &[String]) -> SlurmOutcome<String> {
        self.run_command_with_stderr(tool, arguments).map_answer(|said| said.stdout)
    }

    /// The same with what it wrote to its standard error, for commands that answer there.
    pub(crate) fn run_command_with_stderr(
        &self,
        tool: SlurmTool,
        arguments: &[String],
    ) -> SlurmOutcome<SlurmOutput> {
        self.run_within_budget(tool, arguments, None, &[])
    }

    fn run_within_budget(
        &self,
        tool: SlurmTool,
        arguments: &[String],
        input: Option<&str>,
        environment: &[(String, String)],
    ) -> SlurmOutcome<SlurmOutput> {
        if let Err(until) = self.lock_budget().take_call(tool, SystemClock.now()) {
            return SlurmOutcome::Unknown(SlurmUnavailable::OutOfBudget { until });
        }
        let began = Instant::now();
        let outcome = self.execute_command(tool, arguments, input, environment);
        self.lock_budget().record_call(
            tool,
            CallResult::from_outcome(&outcome),
            began.elapsed(),
            SystemClock.now(),
        );
        if let SlurmOutcome::Unknown(why) = &outcome {
            tracing::warn!(command = tool.name(), error = %why, "Slurm has not answered");
        }
        outcome
    }

    fn execute_command(
        &self,
        tool: SlurmTool,
        arguments: &[String],
        input: Option<&str>,
        environment: &[(String, String)],
    ) -> SlurmOutcome<SlurmOutput> {
        let (name, limit) = (tool.name(), self.options.timeout);
        let mut command = self.build_command(tool);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        let fed = input.map_or(Ok(()), |input| write_stdin(&mut command, input));
        let answer = match fed.and_then(|()| command::run_command(&mut command, limit)) {
            Ok(Some(answer)) => answer,
            Ok(None) => return SlurmOutcome::Unknown(SlurmUnavailable::TimedOut { tool: name, limit }),
            Err(error) => {
                return SlurmOutcome::Unknown(SlurmUnavailable::NotStarted {
                    tool: name,
                    why: error.to_string(),
                });
            }
        };
        let stdout = String::from_utf8_lossy(&answer.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
        if answer.status.success() {
            return SlurmOutcome::Answered(SlurmOutput { stdout, stderr });
        }
        let complaint = if stderr.trim().is_empty() { stdout } else { stderr };
        if is_unreachable(tool, &complaint) {
            return SlurmOutcome::Unknown(SlurmUnavailable::Unreachable {
                said: shorten_message(&complaint),
            });
        }
        SlurmOutcome::Refused(complaint)
    }

    fn build_command(&self, tool: SlurmTool) -> Command {
        let path = |tools: &PathBuf| tools.join(tool.name());
        let mut command =
            Command::new(self.options.tools_dir.as_ref().map_or_else(|| tool.name().into(), path));
        for (name, _) in std::env::vars_os() {
            if environment::is_dropped(&name.to_string_lossy(), tool == SlurmTool::Sbatch) {
                command.env_remove(name);
            }
        }
        command.envs(self.options.environment.iter().map(|(name, value)| (name, value)));
        // What is printed is read by us; what is submitted takes its environment along.
        if tool != SlurmTool::Sbatch {
            command.env("TZ", "UTC").env("LC_ALL", "C");
        }
        // Not where we happen to be: that may be a directory that is gone.
        command.stdin(Stdio::null()).current_dir(Path::new("/"));
        command
    }
}

/// Has the command read this on its standard input. A thread writes it: a pipe holds only so much.
fn write_stdin(command: &mut Command, input: &str) -> io::Result<()> {
    let (reader, mut writer) = io::pipe()?;
    command.stdin(reader);
    let input = input.to_owned();
    // If the command does not read it all, it has failed and says so itself.
    let write = move || writer.write_all(input.as_bytes()).unwrap_or_default();
    std::thread::Builder::new().name("windlass-script".into()).spawn(write).map(drop)
}

/// What a command that succeeded wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlurmOutput {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The commands that are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SlurmTool {
    Squeue,
    Sacct,
    Sbatch,
    Scancel,
    Sinfo,
    Scontrol,
}

impl SlurmTool {
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
    const fn service(self) -> SlurmService {
        match self {
            Self::Sacct => SlurmService::Accounting,
            _ => SlurmService::Controller,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SlurmService {
    Controller,
    Accounting,
}

/// How a call went, for whoever counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallResult {
    Answered,
    Refused,
    TimedOut,
    Failed,
}

impl CallResult {
    const fn from_outcome<T>(outcome: &SlurmOutcome<T>) -> Self {
        match outcome {
            SlurmOutcome::Answered(_) => Self::Answered,
            SlurmOutcome::Refused(_) => Self::Refused,
            SlurmOutcome::Unknown(SlurmUnavailable::TimedOut { .. }) => Self::TimedOut,
            SlurmOutcome::Unknown(_) => Self::Failed,
        }
    }
}

/// Each command has its own words before these, and most exit with 1.
const UNREACHABLE_MESSAGES: &[&str] = &[
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
const UNSPECIFIED_MESSAGE: &str = "Unspecified error";

fn is_unreachable(tool: SlurmTool, complaint: &str) -> bool {
    UNREACHABLE_MESSAGES.iter().any(|words| complaint.contains(words))
        || (tool != SlurmTool::Sbatch && complaint.contains(UNSPECIFIED_MESSAGE))
}

/// A day before: clocks differ, and jobs are looked for by their names anyway.
fn render_day_before(since: Timestamp) -> String {
    let before = Timestamp(since.0.saturating_sub(86_400_000_000)).to_string();
    before.split('.').next().unwrap_or_default().to_owned()
}

fn shorten_message(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3);
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
