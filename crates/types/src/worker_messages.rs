//! What the engine and a worker say to each other.
//!
//! The same messages travel over a socket pair to the worker of `windlass run` and, later, over HTTP to workers
//! elsewhere. A claim carries its [`AttemptKey`]; every report quotes it, and a stale one changes nothing.

use crate::worker_protocol::{StopCommand, WorkflowSetup};
use crate::{Attempt, Bytes, Capacity, JobId, Resources, RunId, Timestamp, WorkflowId, format_duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Names one execution of one job; the fencing token of every report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    pub workflow: WorkflowId,
    pub job: JobId,
    pub run: RunId,
    pub attempt: Attempt,
}

impl AttemptKey {
    /// `job_wf1_j7_r1_a2`: the stem of the log files and the name of a Slurm step.
    pub fn log_stem(&self) -> String {
        format!("job_wf{}_j{}_r{}_a{}", self.workflow, self.job, self.run, self.attempt)
    }
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} (workflow {}, run {}, attempt {})", self.job, self.workflow, self.run, self.attempt)
    }
}

/// Where a job's output goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdioMode {
    /// `.o` and `.e`.
    #[default]
    Separate,
    /// Both in `.log`.
    Combined,
    /// Neither is kept.
    None,
    /// Only `.e` is kept.
    NoStdout,
    /// Only `.o` is kept.
    NoStderr,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct StdioSettings {
    pub mode: StdioMode,
    pub delete_on_success: bool,
}

/// What ends a job before it ends by itself. Only what the user wrote: a default requirement limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLimits {
    pub memory: Option<Bytes>,
    pub runtime: Option<Duration>,
}

/// How a job is asked to end, where its workflow says more than the default: SIGTERM when its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminationSettings {
    /// The signal that asks, by number.
    pub signal: i32,
    /// The job is asked so long before its `runtime` is over, and killed when it is.
    pub lead: Option<Duration>,
}

/// One claimed job, with all that is needed to execute it. What a plain job does not have is not sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub key: AttemptKey,
    pub name: String,
    /// Run as `bash -c COMMAND`.
    pub command: String,
    /// A program and its arguments that `bash -c COMMAND` is handed to, to be run elsewhere: `srun` and its options. Its
    /// limits are kept there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launcher: Vec<String>,
    /// On top of the worker's own environment; names that the worker sets ([`is_set_by_worker`]) change nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// Parameters of the job by name, for `WINDLASS_PARAM_NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<(String, String)>,
    pub resources: Resources,
    /// `resources` are what the job named, not a default.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asked_for_resources: bool,
    pub limits: AttemptLimits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination: Option<TerminationSettings>,
    pub stdio: StdioSettings,
    /// Paths whose state is noted when the attempt starts, relative to the working directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_files: Vec<String>,
    /// Paths that must exist after exit code 0, relative to the working directory; their state is noted then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<String>,
    /// Files are told apart by what is in them, not only by size and time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hash_files: bool,
    /// Comes before the job, because an earlier attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Box<RecoveryScript>>,
}

impl Assignment {
    /// A job that only has a command.
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

/// What puts a failure right before the job is tried again. It belongs to the claim of the coming attempt, so it runs
/// where that attempt does, and again if that attempt is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryScript {
    /// For `bash -c`, or `sh -c` where there is no bash.
    pub script: String,
    /// The attempt that failed, and what it returned.
    pub failed: Attempt,
    pub return_code: i32,
    /// It is ended when it takes longer.
    pub limit: Duration,
}

impl RecoveryScript {
    /// The end of the name of its log, after the stem of the attempt that failed.
    pub const LOG_EXTENSION: &str = "recovery.log";
    /// The command that runs it. The script is in the environment: there it needs no quotes.
    pub const COMMAND: &str = r#"exec "$(command -v bash || command -v sh)" -c "$WINDLASS_RECOVERY_SCRIPT""#;
}

/// How a [`Recovery`] went. Whatever it did, the job was tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryScriptResult {
    /// It ended by itself, with this.
    Ended {
        exit: ProcessExit,
        wall: Duration,
    },
    /// It took too long and was ended.
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

/// `took longer than 2s, and was ended`.
impl fmt::Display for RecoveryScriptResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { exit: ProcessExit::Code(0), wall } => {
                write!(f, "ended well after {}", format_duration(*wall))
            }
            Self::Ended { exit: ProcessExit::Code(code), wall } => {
                write!(f, "ended with exit code {code} after {}", format_duration(*wall))
            }
            Self::Ended { exit: ProcessExit::Signal(signal), wall } => {
                write!(f, "was killed by signal {signal} after {}", format_duration(*wall))
            }
            Self::TimedOut { limit } => {
                write!(f, "took longer than {}, and was ended", format_duration(*limit))
            }
            Self::CannotStart(why) => write!(f, "could not be started: {why}"),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// A file as an attempt found it, so that a later run can tell whether it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSnapshot {
    /// Nanoseconds since 1970.
    pub mtime_ns: i64,
    pub size: u64,
    /// Of the contents, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// The files of an attempt: inputs as they were when it started, outputs as it left them. In the order of the
/// assignment; `None` is a file that was not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFiles {
    pub inputs: Vec<Option<FileSnapshot>>,
    pub outputs: Vec<Option<FileSnapshot>>,
}

/// Whether a job cannot set an environment variable of this name: by some of them Windlass finds what a job started.
pub fn is_reserved_variable(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// The variable with the token of a job. Its worker sets it; specs cannot.
pub const JOB_TOKEN_VARIABLE: &str = "WINDLASS_TOKEN";

/// How the names begin that jobs cannot set.
pub const RESERVED_PREFIX: &str = "WINDLASS_";

/// Whether the worker itself sets an environment variable of this name, so that a job's own value has no effect.
pub fn is_set_by_worker(name: &str) -> bool {
    is_reserved_variable(name) || TORC_NAMES.iter().any(|own| name.strip_prefix("TORC_") == Some(own))
}

/// What follows `TORC_` in the names of Torc's contract that every job finds.
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

/// What Torc's clients take for the address of this server.
pub fn torc_api_url(origin: &str) -> String {
    format!("{}{TORC_PREFIX}", origin.trim_end_matches('/'))
}

/// Where a server answers as Torc does.
pub const TORC_PREFIX: &str = "/torc-service/v1";

/// Engine to worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// What the jobs of a workflow have in common, before the first of them, and again when that has changed. A worker of
    /// one workflow is told when it is started, and hears nothing of the kind.
    Workflow(Box<WorkflowSetup>),
    /// This workflow is over: what was said of it can be forgotten. What still runs keeps what it began with.
    Forget(WorkflowId),
    /// Jobs may run until this time on the clock that counts from the boot of the machine. When it is over they are
    /// frozen, and a later time thaws them. Without a word of it they run as long as they like. Answered by
    /// [`FromWorker::Alive`].
    Lease(Duration),
    /// Start these, in this order, as soon as their resources are free.
    Assign(Vec<Assignment>),
    /// Hand back what has not started; ask what runs to stop, and kill what is left after the grace period.
    Stop { why: StopReason, grace: Duration },
    /// The same for one workflow, or for single attempts.
    StopSome(StopCommand),
    /// Hand back what has not started; what runs goes on.
    Recall,
    /// Exit, and kill whatever still runs, as if the link were lost. Sent when nothing runs and nothing waits.
    Quit,
}

/// Why the engine ended a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Somebody pressed Ctrl-C: the job goes back to ready and runs again on resume.
    Interrupted,
    /// Somebody canceled the workflow.
    Canceled,
}

/// Worker to engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// First message: what this worker can give.
    Hello { capacity: Capacity },
    /// What happened since the last message, in order.
    Reports(Vec<AttemptReport>),
    /// The lease that it knows of, and whether its jobs are frozen.
    Alive { lease: Duration, frozen: bool },
    /// The worker process received SIGTERM or SIGHUP. It starts no more jobs, reports jobs that end from now on as
    /// interrupted, and hangs up unless it is told [`ToWorker::Stop`] soon.
    Terminated,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AttemptReport {
    /// Sent for jobs that have run for a little while; a short job only sends `Ended`.
    Started {
        key: AttemptKey,
        at: Timestamp,
        pid: u32,
    },
    Ended(AttemptEndReport),
    /// Never started: handed back on request, or this worker could not start it through no fault of the job. Or started and
    /// lost with the process that ran it.
    Returned {
        key: AttemptKey,
        why: ReturnReason,
    },
}

impl AttemptReport {
    /// The attempt it is about.
    pub const fn key(&self) -> &AttemptKey {
        match self {
            Self::Started { key, .. } | Self::Returned { key, .. } => key,
            Self::Ended(ended) => &ended.key,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReturnReason {
    /// The engine asked for it.
    Recalled,
    /// No space for its logs, no process or memory to be had: worth trying again later.
    WorkerTrouble(String),
    /// It had started, or may have, and died with the process that ran it: an orphan, told by whoever buried that process.
    WorkerDied,
    /// The same, but that process was ended because it did not answer.
    WorkerHung,
}

/// The end of an attempt, with what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEndReport {
    pub key: AttemptKey,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    /// Measured on the monotonic clock, so it may differ from the difference of the two timestamps.
    pub wall: Duration,
    pub exit: ProcessExit,
    pub cause: AttemptEndCause,
    pub usage: AttemptUsage,
    /// `None` where the assignment named no files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Box<AttemptFiles>>,
    /// The end of what it wrote to standard error, if it ended badly and that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_words: Option<String>,
    /// What came before it, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Box<RecoveryScriptResult>>,
}

/// How the first process of the job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
}

impl ProcessExit {
    /// The exit code as is, 128 + n for a signal.
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

/// Who ended it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptEndCause {
    /// It ended by itself (which includes a signal from outside Windlass).
    Itself,
    /// Its `runtime` was over.
    Timeout,
    /// It used more than its `memory`.
    OutOfMemory,
    /// The engine asked.
    Stopped(StopReason),
    /// Exit code 0, but these declared outputs are not there.
    MissingOutputs(Vec<String>),
    /// It could not be started and never will be as it is written (for example a command longer than the system takes).
    CannotStart(String),
}

/// What an attempt used. `None` where it was over before it could be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptUsage {
    pub peak_memory: Option<Bytes>,
    pub avg_memory: Option<Bytes>,
    /// User and system time of the whole tree that was waited for.
    pub cpu_time: Duration,
    /// 100 is one core busy.
    pub peak_cpu_percent: Option<f64>,
    pub avg_cpu_percent: Option<f64>,
}

/// Codes that the contract gives a meaning, whatever the process itself returned.
pub mod return_code {
    /// Ended because its `runtime` was over.
    pub const TIMEOUT: i32 = 152;
    /// Ended because it used more than its `memory`.
    pub const OUT_OF_MEMORY: i32 = 137;
    /// Exit code 0 without its declared outputs.
    pub const MISSING_OUTPUT: i32 = 1;
    /// Could not be started.
    pub const CANNOT_START: i32 = 126;
    /// Its worker died while it ran.
    pub const ORPHANED: i32 = -128;
    /// A client asked for another attempt without a word of what this one returned.
    pub const NOT_REPORTED: i32 = -1;
}
