//! Messages between the engine and a worker.
//!
//! The same messages travel over a socket pair to the worker of `windlass run` and over HTTP to remote workers.
//! A claim carries its [`AttemptKey`]; every report repeats it, and a stale report changes nothing.

use crate::worker_protocol::{StopCommand, WorkflowSetup};
use crate::{Attempt, Bytes, Capacity, JobId, Resources, RunId, Timestamp, WorkflowId, format_duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Identifies one execution of one job; the fencing token of every report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    pub workflow: WorkflowId,
    pub job: JobId,
    pub run: RunId,
    pub attempt: Attempt,
}

/// Writes a log event about one attempt, with its ids as fields; the crate that uses it depends on `tracing`.
#[macro_export]
macro_rules! log_attempt {
    ($level:ident, $key:expr, $($rest:tt)+) => {
        $crate::log_attempt!($level, target: module_path!(), $key, $($rest)+)
    };
    ($level:ident, target: $target:expr, $key:expr, $($rest:tt)+) => {
        ::tracing::$level!(
            target: $target,
            workflow = $key.workflow.0,
            job = $key.job.0,
            run = $key.run.0,
            attempt = $key.attempt.0,
            $($rest)+
        )
    };
}

impl AttemptKey {
    /// The stem of the log files and the name of the Slurm step: `job_wf1_j7_r1_a2`.
    pub fn log_stem(&self) -> String {
        format!("job_wf{}_j{}_r{}_a{}", self.workflow, self.job, self.run, self.attempt)
    }
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} (workflow {}, run {}, attempt {})", self.job, self.workflow, self.run, self.attempt)
    }
}

/// The destination of a job's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdioMode {
    /// Separate files `.o` and `.e`.
    #[default]
    Separate,
    /// One file `.log` for both.
    Combined,
    /// Both are discarded.
    None,
    /// Only standard error is kept, in `.e`.
    NoStdout,
    /// Only standard output is kept, in `.o`.
    NoStderr,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct StdioSettings {
    pub mode: StdioMode,
    pub delete_on_success: bool,
}

/// Limits that end a job. Only what the user set: default requirements limit nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLimits {
    pub memory: Option<Bytes>,
    pub runtime: Option<Duration>,
}

/// How a job is terminated if its workflow changes the default (SIGTERM at its time limit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminationSettings {
    /// Number of the signal sent first.
    pub signal: i32,
    /// Time between the signal and the end of `runtime`, when the job is killed.
    pub lead: Option<Duration>,
}

/// One claimed job with everything needed to execute it. Fields that a plain job lacks are not sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub key: AttemptKey,
    pub name: String,
    /// Runs as `bash -c COMMAND`.
    pub command: String,
    /// A program with arguments that gets `bash -c COMMAND` appended to run it elsewhere: `srun` and its
    /// options. The limits are enforced there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launcher: Vec<String>,
    /// Added to the worker's own environment; names that the worker sets ([`is_set_by_worker`]) are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// Parameters of the job by name, for `WINDLASS_PARAM_NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<(String, String)>,
    pub resources: Resources,
    /// Whether `resources` were set for the job instead of being the default.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asked_for_resources: bool,
    pub limits: AttemptLimits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination: Option<TerminationSettings>,
    pub stdio: StdioSettings,
    /// Input paths, relative to the working directory; their state is recorded when the attempt starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_files: Vec<String>,
    /// Output paths, relative to the working directory. They must exist after exit code 0; their state is
    /// recorded then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<String>,
    /// Whether files are compared by content, not only by size and time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hash_files: bool,
    /// Recovery script to run before the job, because an earlier attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Box<RecoveryScript>>,
}

impl Assignment {
    /// Creates a job that has only a command.
    pub fn from_command(key: AttemptKey, name: String, command: String, resources: Resources) -> Self {
        Self {
            key,
            name,
            command,
            launcher: Vec::new(),
            env: Vec::new(),
            params: Vec::new(),
            resources,
            asked_for_resources: false,
            limits: AttemptLimits::default(),
            termination: None,
            stdio: StdioSettings::default(),
            input_files: Vec::new(),
            output_files: Vec::new(),
            hash_files: false,
            recovery: None,
        }
    }
}

/// A recovery script that fixes a failure before the job is retried. It is part of the claim of the next
/// attempt, so it runs where that attempt runs, and again if that attempt is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryScript {
    /// Script for `bash -c`, or `sh -c` if there is no bash.
    pub script: String,
    /// The failed attempt and its exit code.
    pub failed: Attempt,
    pub return_code: i32,
    /// Timeout, after which it is killed.
    pub limit: Duration,
}

impl RecoveryScript {
    /// Suffix of its log file name, after the stem of the failed attempt.
    pub const LOG_EXTENSION: &str = "recovery.log";
    /// The command that runs it. The script is passed in the environment, where it needs no quoting.
    pub const COMMAND: &str = r#"exec "$(command -v bash || command -v sh)" -c "$WINDLASS_RECOVERY_SCRIPT""#;
}

/// The result of a [`RecoveryScript`]. The job is retried in any case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryScriptResult {
    /// It ended with this exit code.
    Ended {
        exit: ProcessExit,
        wall: Duration,
    },
    /// It timed out and was killed.
    TimedOut {
        limit: Duration,
    },
    CannotStart(String),
}

impl RecoveryScriptResult {
    pub const fn succeeded(&self) -> bool {
        matches!(self, Self::Ended { exit: ProcessExit::Code(0), .. })
    }
}

/// For example `timed out after 2s`.
impl fmt::Display for RecoveryScriptResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { exit: ProcessExit::Code(0), wall } => {
                write!(f, "completed after {}", format_duration(*wall))
            }
            Self::Ended { exit: ProcessExit::Code(code), wall } => {
                write!(f, "ended with exit code {code} after {}", format_duration(*wall))
            }
            Self::Ended { exit: ProcessExit::Signal(signal), wall } => {
                write!(f, "was killed by signal {signal} after {}", format_duration(*wall))
            }
            Self::TimedOut { limit } => {
                write!(f, "timed out after {}", format_duration(*limit))
            }
            Self::CannotStart(why) => write!(f, "could not be started: {why}"),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The state of a file during an attempt, so that a later run can detect changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSnapshot {
    /// Nanoseconds since 1970.
    pub mtime_ns: i64,
    pub size: u64,
    /// Digest of the contents, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// The files of an attempt: inputs at its start, outputs at its end, in the order of the assignment. `None` is
/// a missing file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFiles {
    pub inputs: Vec<Option<FileSnapshot>>,
    pub outputs: Vec<Option<FileSnapshot>>,
}

/// Whether the name is reserved: Windlass uses some variables to find the processes of a job.
pub fn is_reserved_variable(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// The variable with the token of a job. Set by its worker; specs cannot set it.
pub const JOB_TOKEN_VARIABLE: &str = "WINDLASS_TOKEN";

/// The prefix of reserved names.
pub const RESERVED_PREFIX: &str = "WINDLASS_";

/// Whether the worker sets an environment variable of this name, so that a job's own value has no effect.
pub fn is_set_by_worker(name: &str) -> bool {
    is_reserved_variable(name) || TORC_NAMES.iter().any(|own| name.strip_prefix("TORC_") == Some(own))
}

/// The names after `TORC_` of the variables that Torc's contract guarantees to every job.
const TORC_NAMES: [&str; 9] = [
    "WORKFLOW_ID",
    "RUN_ID",
    "JOB_ID",
    "JOB_NAME",
    "ATTEMPT_ID",
    "RETURN_CODE",
    "OUTPUT_DIR",
    "WORKFLOW_SUBMISSION_DIR",
    "GPU_VISIBLE_DEVICES",
];

/// The variables with the address of the server. Where no server is involved, they are removed: a server that
/// the user's environment names knows nothing of a local run.
pub const SERVER_URL_VARIABLES: [&str; 3] = ["WINDLASS_URL", "WINDLASS_API_URL", "TORC_API_URL"];

/// Their values: the address, and for Torc's clients that of their API.
pub fn server_url_variables(origin: &str) -> [(&'static str, String); 3] {
    let torc = format!("{}{TORC_PREFIX}", origin.trim_end_matches('/'));
    let [url, api_url, torc_api_url] = SERVER_URL_VARIABLES;
    [(url, origin.to_owned()), (api_url, origin.to_owned()), (torc_api_url, torc)]
}

/// Path of the Torc-compatible API of a server.
pub const TORC_PREFIX: &str = "/torc-service/v1";

/// Messages from the engine to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Common settings of a workflow's jobs; sent before the first of them and after changes. A worker of a
    /// single workflow gets them at its start instead.
    Workflow(Box<WorkflowSetup>),
    /// The workflow has ended: its settings can be dropped. Running jobs keep theirs.
    Forget(WorkflowId),
    /// The lease: jobs may run until this time, measured since the boot of the machine. When it expires they
    /// are frozen; a later time thaws them. Without this message there is no limit. Answered by
    /// [`FromWorker::Alive`].
    Lease(Duration),
    /// Start these jobs, in this order, as soon as their resources are free.
    Assign(Vec<Assignment>),
    /// Return jobs that have not started; terminate running ones, and kill what is left after the grace period.
    Stop { why: StopReason, grace: Duration },
    /// The same for one workflow or for single attempts.
    StopSome(StopCommand),
    /// Return jobs that have not started; running jobs continue.
    Recall,
    /// Exit and kill running jobs, as if the connection were lost. Sent when there are no jobs.
    Quit,
}

/// Why the engine stopped a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Ctrl-C was pressed: the job returns to ready and runs again on resume.
    Interrupted,
    /// The workflow was canceled.
    Canceled,
}

/// Messages from a worker to the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// First message: the capacity of this worker.
    Hello { capacity: Capacity },
    /// Reports since the last message, in order.
    Reports(Vec<AttemptReport>),
    /// The lease that the worker knows, and whether its jobs are frozen.
    Alive { lease: Duration, frozen: bool },
    /// The worker process received SIGTERM or SIGHUP. It starts no more jobs, reports jobs that end from now on
    /// as interrupted, and disconnects unless it receives [`ToWorker::Stop`] soon.
    Terminated,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AttemptReport {
    /// Sent for jobs that have run for a short time; shorter jobs only send `Ended`.
    Started {
        key: AttemptKey,
        at: Timestamp,
        pid: u32,
    },
    Ended(AttemptEndReport),
    /// The usage of processes that an attempt left behind when its worker process died, until they were ended.
    /// Precedes `Returned`.
    LeftBehind {
        key: AttemptKey,
        usage: AttemptUsage,
    },
    /// Never started: returned on request, or this worker could not start it for reasons outside of the job. Or
    /// started and lost with the process that ran it.
    Returned {
        key: AttemptKey,
        why: ReturnReason,
    },
}

impl AttemptReport {
    /// Returns the attempt of the report.
    pub const fn key(&self) -> &AttemptKey {
        match self {
            Self::Started { key, .. } | Self::LeftBehind { key, .. } | Self::Returned { key, .. } => key,
            Self::Ended(ended) => &ended.key,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReturnReason {
    /// The engine requested it.
    Recalled,
    /// No disk space for its logs, no process slots or no memory: a later attempt may succeed.
    WorkerTrouble(String),
    /// It had started, or may have, and died with the process that ran it: an orphan, reported by the agent of
    /// that process.
    WorkerDied,
    /// The same, but that process was killed because it did not respond.
    WorkerHung,
}

/// The end of an attempt with its measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEndReport {
    pub key: AttemptKey,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    /// Measured on the monotonic clock, so it may differ from the difference of the timestamps.
    pub wall: Duration,
    pub exit: ProcessExit,
    pub cause: AttemptEndCause,
    pub usage: AttemptUsage,
    /// `None` if the assignment has no files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Box<AttemptFiles>>,
    /// The end of its standard error, if it failed and the output is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_words: Option<String>,
    /// Result of the recovery script, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Box<RecoveryScriptResult>>,
}

/// How the first process of the job exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
}

impl ProcessExit {
    /// Returns the exit code, or 128 + n for signal n.
    pub const fn return_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128_i32.saturating_add(signal),
        }
    }

    pub const fn signal(self) -> Option<i32> {
        match self {
            Self::Code(_) => None,
            Self::Signal(signal) => Some(signal),
        }
    }
}

/// The cause of the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptEndCause {
    /// It exited by itself (or by a signal from outside Windlass).
    Itself,
    /// It reached its `runtime` limit.
    Timeout,
    /// It exceeded its `memory` limit.
    OutOfMemory,
    /// The engine stopped it.
    Stopped(StopReason),
    /// Exit code 0, but these declared outputs are missing.
    MissingOutputs(Vec<String>),
    /// It cannot be started as it is written (for example, its command is longer than the system allows).
    CannotStart(String),
}

/// The resource usage of an attempt. `None` if it ended before it could be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptUsage {
    pub peak_memory: Option<Bytes>,
    pub avg_memory: Option<Bytes>,
    /// User and system time of all processes that were waited for.
    pub cpu_time: Duration,
    /// 100 is one busy core.
    pub peak_cpu_percent: Option<f64>,
    pub avg_cpu_percent: Option<f64>,
}

/// Exit codes defined by the contract, independent of the process's own exit code.
pub mod return_code {
    /// Reached its `runtime` limit.
    pub const TIMEOUT: i32 = 152;
    /// Exceeded its `memory` limit.
    pub const OUT_OF_MEMORY: i32 = 137;
    /// Exit code 0 without its declared outputs.
    pub const MISSING_OUTPUT: i32 = 1;
    /// Could not be started.
    pub const CANNOT_START: i32 = 126;
    /// Its worker died during the execution.
    pub const ORPHANED: i32 = -128;
    /// A client requested another attempt without reporting the result of this one.
    pub const NOT_REPORTED: i32 = -1;
}
