//! The commands of Slurm, each with a timeout and within a call budget, and the meaning of their answers.
//!
//! A controller serves thousands of users. So all calls share one budget, and after failures they become rarer. A
//! call has one of three results: done, rejected, or unknown. Unknown is not rejected: a submission that timed
//! out may have been accepted.

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
use windlass_core::slurm::slurm_jobs::{SacctJob, SqueueJob};
use windlass_process::command;
use windlass_types::{SystemClock, Timestamp};

/// Authenticates the user to Slurm.
const TOKEN_VARIABLE: &str = "SLURM_JWT";

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlurmOutcome<T> {
    Answered(T),
    /// Rejected, with Slurm's message.
    Refused(String),
    /// Unknown: it timed out, or the controller could not be reached. Nothing follows from it.
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
            Self::Refused(message) => SlurmOutcome::Refused(message),
            Self::Unknown(why) => SlurmOutcome::Unknown(why),
        }
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlurmUnavailable {
    #[error("`{tool}` timed out after {} s: the controller hangs or is overloaded", limit.as_secs())]
    TimedOut { tool: &'static str, limit: Duration },
    #[error("cannot reach Slurm (the state of its jobs is unknown): {message}")]
    Unreachable { message: String },
    #[error(
        "cannot start `{tool}`: install Slurm's commands, and add them to the PATH of this process ({why})"
    )]
    NotStarted { tool: &'static str, why: String },
    #[error("cannot parse the output of `{tool}`: {message}")]
    UnreadableAnswer { tool: &'static str, message: String },
    /// The command was not called.
    #[error("Slurm is not called before {until}, because of the call budget")]
    OutOfBudget { until: Timestamp },
}

impl SlurmUnavailable {
    /// Whether it is certain that Slurm received nothing.
    pub const fn is_certainly_not_sent(&self) -> bool {
        matches!(self, Self::NotStarted { .. } | Self::OutOfBudget { .. })
    }
}

/// How Slurm is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmClientOptions {
    /// The directory of the commands, if not on the PATH.
    pub tools_dir: Option<PathBuf>,
    /// Set for each command: `SLURM_CONF`, for a configuration file in an unusual place.
    pub environment: Vec<(String, String)>,
    /// Timeout of a command. Slurm's own timeouts are shorter in good health, and up to 90 s otherwise.
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

/// The client for Slurm.
#[derive(Debug)]
pub struct SlurmClient {
    options: SlurmClientOptions,
    budget: Mutex<CallBudget>,
}

/// The answer of `sacct`, or that accounting is disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountingRecords {
    Disabled,
    Jobs(BTreeMap<u64, SacctJob>),
}

/// Maximum number of ids per command.
const IDS_PER_CALL: usize = 100;

impl SlurmClient {
    pub fn new(options: SlurmClientOptions) -> Self {
        let budget = Mutex::new(CallBudget::new(options.budget, SystemClock.now()));
        Self { options, budget }
    }

    /// For a single command without a server: without a budget and without pauses.
    pub fn unlimited() -> Self {
        let budget = CallBudgetOptions {
            burst: u32::MAX,
            first_pause: Duration::ZERO,
            ..CallBudgetOptions::default()
        };
        Self::new(SlurmClientOptions { budget, ..SlurmClientOptions::default() })
    }

    /// All jobs of this user that the controller knows, including those that ended recently: one call.
    pub fn list_jobs(&self) -> SlurmOutcome<Vec<SqueueJob>> {
        let arguments = ["-h", "-r", "-t", "all", "--me", "-o", squeue::FORMAT];
        self.run_command(SlurmTool::Squeue, &arguments.map(str::to_owned))
            .map_answer(|printed| squeue::parse_queue(&printed))
    }

    /// All steps of this user that have not ended.
    pub fn list_steps(&self) -> SlurmOutcome<Vec<SlurmStep>> {
        let arguments = ["-h", "-s", "--me", "-o", steps::FORMAT];
        self.run_command(SlurmTool::Squeue, &arguments.map(str::to_owned))
            .map_answer(|printed| steps::parse_steps(&printed))
    }

    /// Cancels steps at once, by their names in Slurm.
    pub fn kill_steps(&self, ids: &[String]) -> SlurmOutcome<()> {
        self.cancel_each(&["--signal=KILL".to_owned()], ids)
    }

    /// The accounting records of these ids, and of jobs with these names since then.
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
                SlurmOutcome::Refused(message) if sacct::is_accounting_disabled(&message) => {
                    return SlurmOutcome::Answered(AccountingRecords::Disabled);
                }
                SlurmOutcome::Refused(message) => return SlurmOutcome::Refused(message),
                SlurmOutcome::Unknown(why) => return SlurmOutcome::Unknown(why),
            }
        }
        SlurmOutcome::Answered(AccountingRecords::Jobs(jobs))
    }

    /// The measured usage of these jobs and of their steps; `None` without accounting.
    pub fn list_accounting(&self, ids: &[u64]) -> SlurmOutcome<Option<Vec<SlurmAccountingEntry>>> {
        let mut rows = Vec::new();
        for chunk in ids.chunks(IDS_PER_CALL) {
            let ids: Vec<String> = chunk.iter().map(u64::to_string).collect();
            let arguments =
                ["-n", "-P", "-D", "-o", sacct_usage::FORMAT, "-j", &ids.join(",")].map(str::to_owned);
            match self.run_command(SlurmTool::Sacct, &arguments) {
                SlurmOutcome::Answered(printed) => rows.extend(sacct_usage::parse_accounting(&printed)),
                SlurmOutcome::Refused(message) if sacct::is_accounting_disabled(&message) => {
                    return SlurmOutcome::Answered(None);
                }
                SlurmOutcome::Refused(message) => return SlurmOutcome::Refused(message),
                SlurmOutcome::Unknown(why) => return SlurmOutcome::Unknown(why),
            }
        }
        SlurmOutcome::Answered(Some(rows))
    }

    /// Submits an allocation and returns its job id. [`CallResultLabel::Unknown`] may mean that it was accepted.
    /// `sbatch` reads the script from its standard input, so no file is written where another user could have
    /// created a link. `environment`: added to the environment of this process for the job.
    pub fn submit(
        &self,
        arguments: &[String],
        script: &str,
        environment: &[(String, String)],
    ) -> SlurmOutcome<u64> {
        let mut arguments = arguments.to_vec();
        if self.has_slurm_token() && !arguments.iter().any(|word| word.starts_with("--export")) {
            // `sbatch` needs the token, which authenticates the user of the server; the job must not get it.
            arguments.push(format!("--export=ALL,{TOKEN_VARIABLE}="));
        }
        match self.run_within_budget(SlurmTool::Sbatch, &arguments, Some(script), environment) {
            SlurmOutcome::Answered(SlurmOutput { stdout: printed, .. }) => sbatch::parse_job_id(&printed)
                .map_or_else(
                    || {
                        SlurmOutcome::Unknown(SlurmUnavailable::UnreadableAnswer {
                            tool: "sbatch",
                            message: shorten_message(&printed),
                        })
                    },
                    SlurmOutcome::Answered,
                ),
            SlurmOutcome::Refused(message) => SlurmOutcome::Refused(sbatch::parse_refusal(&message)),
            SlurmOutcome::Unknown(why) => SlurmOutcome::Unknown(why),
        }
    }

    fn has_slurm_token(&self) -> bool {
        std::env::var_os(TOKEN_VARIABLE).is_some()
            || self.options.environment.iter().any(|(name, _)| name == TOKEN_VARIABLE)
    }

    /// Cancels jobs, running or pending. Jobs that have ended are not an error.
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
                SlurmOutcome::Refused(message) => outcome = SlurmOutcome::Refused(message),
                SlurmOutcome::Unknown(why) => return SlurmOutcome::Unknown(why),
            }
        }
        outcome
    }

    /// The remaining call budget.
    pub fn remaining_budget(&self) -> RemainingCalls {
        self.lock_budget().remaining(SystemClock.now())
    }

    /// The calls since the last time this was called, by command.
    pub fn take_statistics(&self) -> BTreeMap<&'static str, CallStatistics> {
        self.lock_budget().take_statistics()
    }

    /// The calls since the start, by command.
    pub fn total_statistics(&self) -> BTreeMap<&'static str, CallStatistics> {
        self.lock_budget().totals().clone()
    }

    fn lock_budget(&self) -> MutexGuard<'_, CallBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Standard output.
    pub(crate) fn run_command(&self, tool: SlurmTool, arguments: &[String]) -> SlurmOutcome<String> {
        self.run_command_with_stderr(tool, arguments).map_answer(|message| message.stdout)
    }

    /// The same with standard error, for commands that answer there.
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
            CallResultLabel::from_outcome(&outcome),
            began.elapsed(),
            SystemClock.now(),
        );
        if let SlurmOutcome::Unknown(why) = &outcome {
            tracing::warn!(command = tool.name(), error = %why, "Slurm did not answer");
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
                message: shorten_message(&complaint),
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
        // The output is parsed in this process; a submitted job inherits the environment.
        if tool != SlurmTool::Sbatch {
            command.env("TZ", "UTC").env("LC_ALL", "C");
        }
        // Not the current directory: it may have been removed.
        command.stdin(Stdio::null()).current_dir(Path::new("/"));
        command
    }
}

/// Writes the standard input of the command. In a thread: a pipe has a limited capacity.
fn write_stdin(command: &mut Command, input: &str) -> io::Result<()> {
    let (reader, mut writer) = io::pipe()?;
    command.stdin(reader);
    let input = input.to_owned();
    // A command that does not read all of it has failed and reports that itself.
    let write = move || writer.write_all(input.as_bytes()).unwrap_or_default();
    std::thread::Builder::new().name("windlass-script".into()).spawn(write).map(drop)
}

/// The output of a successful command.
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

    /// Accounting is another service, and may be down while the controller is up.
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

/// How a call ended, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallResultLabel {
    Answered,
    Refused,
    TimedOut,
    Failed,
}

impl CallResultLabel {
    const fn from_outcome<T>(outcome: &SlurmOutcome<T>) -> Self {
        match outcome {
            SlurmOutcome::Answered(_) => Self::Answered,
            SlurmOutcome::Refused(_) => Self::Refused,
            SlurmOutcome::Unknown(SlurmUnavailable::TimedOut { .. }) => Self::TimedOut,
            SlurmOutcome::Unknown(_) => Self::Failed,
        }
    }
}

/// Each command has its own text before these, and most exit with 1.
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

/// What a controller prints for a reason without a number. For a submission that is a rejection: a submission
/// script of the site (`job_submit.lua`) rejects without a reason.
const UNSPECIFIED_MESSAGE: &str = "Unspecified error";

fn is_unreachable(tool: SlurmTool, complaint: &str) -> bool {
    UNREACHABLE_MESSAGES.iter().any(|words| complaint.contains(words))
        || (tool != SlurmTool::Sbatch && complaint.contains(UNSPECIFIED_MESSAGE))
}

/// A day before: clocks differ, and jobs are searched by name anyway.
fn render_day_before(since: Timestamp) -> String {
    let before = Timestamp(since.0.saturating_sub(86_400_000_000)).to_string();
    before.split('.').next().unwrap_or_default().to_owned()
}

fn shorten_message(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty()).take(3);
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
