//! Schemas of worker messages for the OpenAPI document. The messages themselves are in `windlass_types::worker_protocol`,
//! their limits in `windlass_types::worker_bounds`; a test keeps them in step.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A duration.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DurationMessage {
    /// At most about a hundred years.
    #[schema(maximum = 3_155_760_000_i64)]
    secs: u64,
    /// Fraction of a second, in nanoseconds.
    #[schema(maximum = 999_999_999)]
    nanos: u32,
}

/// Resources of a worker.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerCapacityMessage {
    /// Number of CPUs.
    #[schema(maximum = 1_000_000)]
    cpus: u32,
    /// Bytes per node.
    #[schema(maximum = 1_152_921_504_606_846_976_i64)]
    memory: u64,
    /// Number of GPUs.
    #[schema(maximum = 1_000_000)]
    gpus: u32,
    /// Number of nodes that the worker spans.
    #[schema(maximum = 65_536)]
    nodes: u32,
    /// Maximum number of concurrent jobs, regardless of their requirements.
    #[schema(maximum = 1_000_000)]
    max_jobs: Option<u32>,
}

/// One attempt of one job.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttemptKeyMessage {
    /// Id of the workflow.
    workflow: i64,
    /// Id of the job.
    job: i64,
    /// Number of the run of the workflow, from 1.
    run: i64,
    /// Number of the attempt, from 1.
    attempt: u32,
}

/// Whose jobs a worker runs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AcceptedJobOwnersMessage {
    Own,
    /// Also jobs of these users: up to 1,000 names, each up to 255 bytes.
    Users(Vec<String>),
    All,
}

/// Registration of a worker, or its return.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerRegistrationMessage {
    /// Names must not have control characters.
    #[schema(min_length = 1, max_length = 255)]
    host: String,
    /// Id of the current boot of the machine.
    #[schema(max_length = 255)]
    boot_id: String,
    /// Process id of the worker.
    #[schema(maximum = 2_147_483_647)]
    pid: u32,
    /// Start time of the process in clock ticks since the boot; identifies it together with `pid`.
    #[schema(maximum = 9_223_372_036_854_775_807_i64)]
    pid_start_ticks: u64,
    /// Resources that jobs may use.
    capacity: WorkerCapacityMessage,
    /// Version of windlass.
    #[serde(default)]
    #[schema(max_length = 255)]
    version: String,
    /// Each up to 255 bytes, without commas.
    #[serde(default)]
    #[schema(max_items = 64)]
    labels: Vec<String>,
    /// `local`, or a site configured by an operator.
    #[serde(default)]
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_.-]+$")]
    site: String,
    /// Run jobs of this workflow only.
    #[serde(default)]
    workflow: Option<i64>,
    /// Default: jobs of its own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jobs_of: Option<AcceptedJobOwnersMessage>,
    /// The previous registration of a worker that returns.
    #[serde(default)]
    before: Option<WorkerReconnectMessage>,
    /// The allocation that started the worker, of a workflow whose jobs its user may run.
    #[serde(default)]
    allocation: Option<i64>,
    /// Location of the worker in Slurm, if it runs in an allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slurm: Option<SlurmLocationMessage>,
}

/// The previous identity of a worker, and everything that it still holds.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerReconnectMessage {
    /// Previous id of the worker.
    worker: i64,
    /// Secret from the reply to the registration.
    #[schema(max_length = 256)]
    secret: String,
    /// Attempts that the worker still holds.
    #[schema(max_items = 100_000)]
    held: Vec<AttemptKeyMessage>,
    /// Executions of actions: action and attempt.
    #[schema(max_items = 100_000)]
    actions: Vec<(i64, u32)>,
}

/// Location of a worker in Slurm.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlurmLocationMessage {
    /// Job id in Slurm.
    #[schema(maximum = 4_294_967_295_i64)]
    job_id: u64,
    /// How often Slurm has restarted the job.
    #[schema(maximum = 2_147_483_647)]
    restarts: u32,
    /// Name of the node in Slurm.
    #[schema(max_length = 255)]
    node: String,
}

/// Response to a registration.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegistrationReplyMessage {
    /// New id of the worker.
    worker: i64,
    /// Secret that every exchange includes.
    secret: String,
    /// Time without contact after which the worker counts as lost.
    lease: DurationMessage,
    /// Attempts that the worker no longer holds.
    lost: Vec<AttemptKeyMessage>,
    /// Executions of actions that the worker no longer holds: action and attempt.
    lost_actions: Vec<(i64, u32)>,
}

/// Reports of a worker, and its free capacity.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerExchangeMessage {
    /// Id of the worker.
    worker: i64,
    /// Secret from the reply to the registration.
    #[schema(max_length = 256)]
    secret: String,
    /// From 1, incremented by each exchange; an exchange without a response is repeated with the same number.
    #[schema(maximum = 9_223_372_036_854_775_807_i64)]
    number: u64,
    /// Times are RFC 3339 and not before 1970, signals below 128; texts are cut after 64 KiB.
    #[serde(default)]
    #[schema(max_items = 1_000)]
    reports: Vec<AttemptReportMessage>,
    /// Actions that ended.
    #[serde(default)]
    #[schema(max_items = 1_000)]
    actions: Vec<ActionReportMessage>,
    /// How long the server may wait for work before it responds.
    wait: DurationMessage,
    /// How long the worker will stay; absent: no limit.
    #[serde(default)]
    time_left: Option<DurationMessage>,
    /// Whether the worker takes no more jobs.
    #[serde(default)]
    draining: bool,
    /// Whether this is the last exchange of the worker.
    #[serde(default)]
    leaving: bool,
}

/// Result of an action.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionReportMessage {
    /// Id of the workflow.
    workflow: i64,
    /// Number of the run of the workflow, from 1.
    run: i64,
    /// Id of the action.
    action: i64,
    /// Number of the execution, from 1.
    attempt: u32,
    /// When it started, in UTC.
    started_at: String,
    /// When it ended, in UTC.
    ended_at: String,
    /// Exit code of the action.
    return_code: i32,
    /// Why the action failed.
    message: Option<String>,
}

/// What happened to an attempt.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) enum AttemptReportMessage {
    Started {
        key: AttemptKeyMessage,
        at: String,
        pid: u32,
    },
    Ended(Box<AttemptEndMessage>),
    /// The usage of processes that an attempt left behind; precedes `Returned`.
    LeftBehind {
        key: AttemptKeyMessage,
        usage: AttemptUsageMessage,
    },
    /// Not started, or lost with the process that ran it.
    Returned {
        key: AttemptKeyMessage,
        why: ReturnReasonMessage,
    },
}

/// Why an attempt is returned.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) enum ReturnReasonMessage {
    Recalled,
    /// The worker cannot start it for reasons outside of the job.
    WorkerTrouble(String),
    WorkerDied,
    WorkerHung,
}

/// The end of an attempt.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttemptEndMessage {
    /// The attempt.
    key: AttemptKeyMessage,
    /// Start of the process.
    started_at: String,
    /// End of the process.
    ended_at: String,
    /// Time from start to end.
    wall: DurationMessage,
    /// Exit code or signal.
    exit: ProcessExitMessage,
    /// Why it ended.
    cause: AttemptEndCauseMessage,
    /// Measurements.
    usage: AttemptUsageMessage,
    /// Its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<AttemptFilesMessage>,
    /// The end of its standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_words: Option<String>,
    /// Result of its recovery script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovered: Option<RecoveryScriptResultMessage>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) enum ProcessExitMessage {
    Code(i32),
    Signal(i32),
}

/// Why an attempt ended.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) enum AttemptEndCauseMessage {
    Itself,
    Timeout,
    OutOfMemory,
    Stopped(StopReasonMessage),
    MissingOutputs(Vec<String>),
    CannotStart(String),
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReasonMessage {
    Interrupted,
    Canceled,
}

/// Measurements of an attempt; memory in bytes, 100 % is one core.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttemptUsageMessage {
    /// Highest memory.
    peak_memory: Option<u64>,
    /// Average memory.
    avg_memory: Option<u64>,
    /// User and system time.
    cpu_time: DurationMessage,
    /// Highest CPU usage.
    peak_cpu_percent: Option<f64>,
    /// Average CPU usage.
    avg_cpu_percent: Option<f64>,
}

/// Files of an attempt in the order of the assignment; null: missing.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttemptFilesMessage {
    /// States of the input files at the start.
    inputs: Vec<Option<FileSnapshotMessage>>,
    /// States of the output files at the end.
    outputs: Vec<Option<FileSnapshotMessage>>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileSnapshotMessage {
    /// Nanoseconds since 1970.
    mtime_ns: i64,
    /// Bytes.
    size: u64,
    /// Hash of the content, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) enum RecoveryScriptResultMessage {
    Ended { exit: ProcessExitMessage, wall: DurationMessage },
    TimedOut { limit: DurationMessage },
    CannotStart(String),
}

/// Assignments and commands for a worker.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExchangeReplyMessage {
    /// Number of the exchange that is answered.
    number: u64,
    /// Workflows that have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    over: Vec<i64>,
    /// Workflows that are new to the worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    workflows: Vec<WorkflowSetupMessage>,
    /// Jobs to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    assignments: Vec<AssignmentMessage>,
    /// Actions to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    actions: Vec<ActionCommandMessage>,
    /// Attempts to stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stops: Vec<StopCommandMessage>,
    /// Reports that came too late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stale: Vec<StaleReportMessage>,
    /// Take no new jobs, finish running ones, and exit.
    drain: bool,
    /// The worker is no longer needed.
    dismissed: bool,
    /// New end time of its allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_in: Option<DurationMessage>,
}

/// The settings that the jobs of a workflow share.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkflowSetupMessage {
    /// Id of the workflow.
    workflow: i64,
    /// Run of the workflow.
    run: i64,
    /// Name of the workflow.
    name: String,
    /// Directory in which jobs run.
    submission_dir: String,
    /// Directory of logs and results.
    output_dir: String,
    /// `resource_monitor` of the workflow.
    resource_monitor: Option<serde_json::Value>,
    /// `execution_config` of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    execution: Option<serde_json::Value>,
}

/// A job to run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssignmentMessage {
    /// The attempt.
    key: AttemptKeyMessage,
    /// Name of the job.
    name: String,
    /// Runs as `bash -c COMMAND`.
    command: String,
    /// A program with arguments that starts the command elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    launcher: Vec<String>,
    /// Environment variables: names with values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<(String, String)>,
    /// Parameters: names with values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    params: Vec<(String, String)>,
    /// Resources that the job gets.
    resources: JobResourcesMessage,
    /// Whether `resources` were set for the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    asked_for_resources: bool,
    /// Limits that end the job.
    limits: AttemptLimitsMessage,
    /// How the job is told to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    termination: Option<TerminationMessage>,
    /// `mode` and `delete_on_success`.
    stdio: serde_json::Value,
    /// Paths of the input files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    input_files: Vec<String>,
    /// Paths of the output files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    output_files: Vec<String>,
    /// Whether the contents of the files are hashed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hash_files: bool,
    /// Script to run first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery: Option<RecoveryScriptMessage>,
}

/// The request of a job; memory in bytes per node.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobResourcesMessage {
    /// CPUs.
    cpus: u32,
    /// Memory.
    memory: u64,
    /// GPUs.
    gpus: u32,
    /// Nodes.
    nodes: u32,
    /// Requested time.
    runtime: Option<DurationMessage>,
}

/// Limits that end a job.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttemptLimitsMessage {
    /// Bytes.
    memory: Option<u64>,
    /// Longest time.
    runtime: Option<DurationMessage>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TerminationMessage {
    /// Number of the signal.
    signal: i32,
    /// Time before the limit at which the signal is sent.
    lead: Option<DurationMessage>,
}

/// A script that runs before the job because an earlier attempt failed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecoveryScriptMessage {
    /// Command of the script.
    script: String,
    /// The attempt that failed.
    failed: u32,
    /// Exit code of the failed attempt.
    return_code: i32,
    /// Longest time of the script.
    limit: DurationMessage,
}

/// An action to run: commands, one after the other.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionCommandMessage {
    /// Id of the workflow.
    workflow: i64,
    /// Run of the workflow.
    run: i64,
    /// Id of the action.
    action: i64,
    /// Execution of the action.
    attempt: u32,
    /// What triggered the action.
    trigger: String,
    /// Commands, run one after the other.
    commands: Vec<String>,
    /// Environment variables: names with values.
    env: Vec<(String, String)>,
}

/// Stops all attempts of a workflow, or the listed ones.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopCommandMessage {
    /// Id of the workflow.
    workflow: i64,
    /// Attempts to stop; empty: all of the workflow.
    attempts: Vec<AttemptKeyMessage>,
    /// Why they are stopped.
    why: StopReasonMessage,
    /// Time between the signal and SIGKILL.
    grace: DurationMessage,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StaleReportMessage {
    /// The reported attempt.
    key: AttemptKeyMessage,
    /// The current state, as text.
    found: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;
    use windlass_types::settings::{ExecutionConfig, ResourceMonitor};
    use windlass_types::slurm::SlurmJobNode;
    use windlass_types::worker_bounds as bounds;
    use windlass_types::worker_messages::{
        Assignment, AttemptEndCause, AttemptEndReport, AttemptFiles, AttemptKey, AttemptLimits,
        AttemptReport, AttemptUsage, FileSnapshot, ProcessExit, RecoveryScript, RecoveryScriptResult,
        ReturnReason, StopReason, TerminationSettings,
    };
    use windlass_types::worker_protocol::{
        AcceptedJobOwners, ActionCommand, ActionReport, ExchangeReply, RegistrationReply, StaleReport,
        StopCommand, WorkerExchange, WorkerReconnect, WorkerRegistration, WorkflowSetup,
    };
    use windlass_types::{
        Attempt, Bytes, Capacity, JobId, Resources, RunId, Timestamp, WorkerId, WorkflowId,
    };

    /// The schema parses the message and serializes it unchanged.
    #[track_caller]
    fn agrees<S: Serialize + serde::de::DeserializeOwned>(message: &impl Serialize) {
        let sent = json!(message);
        let read: S = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(json!(read), sent);
    }

    fn key() -> AttemptKey {
        AttemptKey { workflow: WorkflowId(1), job: JobId(2), run: RunId(3), attempt: Attempt(4) }
    }

    #[test]
    fn schema_lists_the_message_fields() {
        let before = WorkerReconnect {
            worker: WorkerId(1),
            secret: "s".into(),
            held: vec![key()],
            actions: vec![(1, Attempt(1))],
        };
        agrees::<WorkerRegistrationMessage>(&WorkerRegistration {
            host: "h".into(),
            boot_id: "b".into(),
            pid: 1,
            pid_start_ticks: 1,
            capacity: Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes: 1, max_jobs: Some(1) },
            version: "v".into(),
            labels: vec!["l".into()],
            site: "local".into(),
            workflow: Some(WorkflowId(1)),
            jobs_of: AcceptedJobOwners::Users(vec!["ana".into()]),
            before: Some(before),
            allocation: Some(1),
            slurm: Some(SlurmJobNode { job_id: 1, restarts: 0, node: "n".into() }),
        });
        let (lost, lost_actions) = (vec![key()], vec![(1, Attempt(1))]);
        let lease = Duration::from_mins(1);
        agrees::<RegistrationReplyMessage>(&RegistrationReply {
            worker: WorkerId(1),
            secret: "s".into(),
            lease,
            lost,
            lost_actions,
        });
        let action = ActionReport {
            workflow: WorkflowId(1),
            run: RunId(1),
            action: 1,
            attempt: Attempt(1),
            started_at: Timestamp(1),
            ended_at: Timestamp(2),
            return_code: 0,
            message: Some("m".into()),
        };
        agrees::<WorkerExchangeMessage>(&WorkerExchange {
            worker: WorkerId(1),
            secret: "s".into(),
            number: 1,
            reports: reports(),
            actions: vec![action],
            wait: lease,
            time_left: Some(lease),
            draining: true,
            leaving: true,
        });
        agrees::<ExchangeReplyMessage>(&exchange_reply());
    }

    fn reports() -> Vec<AttemptReport> {
        let second = Duration::from_secs(1);
        let usage = AttemptUsage {
            peak_memory: Some(Bytes(1)),
            avg_memory: Some(Bytes(1)),
            cpu_time: second,
            peak_cpu_percent: Some(1.5),
            avg_cpu_percent: Some(1.5),
        };
        let file = FileSnapshot { mtime_ns: 1, size: 1, hash: Some("h".into()) };
        let end = |cause, recovered| {
            AttemptReport::Ended(AttemptEndReport {
                key: key(),
                started_at: Timestamp(1),
                ended_at: Timestamp(2),
                wall: second,
                exit: ProcessExit::Signal(9),
                cause,
                usage,
                files: Some(Box::new(AttemptFiles {
                    inputs: vec![Some(file.clone()), None],
                    outputs: Vec::new(),
                })),
                last_words: Some("no".into()),
                recovered: Some(Box::new(recovered)),
            })
        };
        let returned = |why| AttemptReport::Returned { key: key(), why };
        vec![
            AttemptReport::Started { key: key(), at: Timestamp(1), pid: 7 },
            AttemptReport::LeftBehind { key: key(), usage },
            returned(ReturnReason::Recalled),
            returned(ReturnReason::WorkerTrouble("no space".into())),
            returned(ReturnReason::WorkerDied),
            returned(ReturnReason::WorkerHung),
            end(AttemptEndCause::Itself, RecoveryScriptResult::TimedOut { limit: second }),
            end(AttemptEndCause::Timeout, RecoveryScriptResult::CannotStart("no".into())),
            end(
                AttemptEndCause::OutOfMemory,
                RecoveryScriptResult::Ended { exit: ProcessExit::Code(1), wall: second },
            ),
            end(
                AttemptEndCause::Stopped(StopReason::Canceled),
                RecoveryScriptResult::CannotStart("no".into()),
            ),
            end(
                AttemptEndCause::MissingOutputs(vec!["f".into()]),
                RecoveryScriptResult::CannotStart("no".into()),
            ),
            end(AttemptEndCause::CannotStart("no".into()), RecoveryScriptResult::CannotStart("no".into())),
        ]
    }

    fn exchange_reply() -> ExchangeReply {
        let (second, pair) = (Duration::from_secs(1), || vec![("a".to_owned(), "b".to_owned())]);
        let setup = WorkflowSetup {
            workflow: WorkflowId(1),
            run: RunId(1),
            name: "w".into(),
            submission_dir: "/".into(),
            output_dir: "/".into(),
            resource_monitor: Some(ResourceMonitor::default()),
            execution: Some(Box::new(ExecutionConfig::default())),
        };
        let resources = Resources { runtime: Some(second), ..Resources::DEFAULT };
        let assignment = Assignment {
            launcher: vec!["srun".into()],
            env: pair(),
            params: pair(),
            asked_for_resources: true,
            limits: AttemptLimits { memory: Some(Bytes(1)), runtime: Some(second) },
            termination: Some(TerminationSettings { signal: 15, lead: Some(second) }),
            input_files: vec!["i".into()],
            output_files: vec!["o".into()],
            hash_files: true,
            recovery: Some(Box::new(RecoveryScript {
                script: "s".into(),
                failed: Attempt(1),
                return_code: 1,
                limit: second,
            })),
            ..Assignment::from_command(key(), "j".into(), "true".into(), resources)
        };
        let action = ActionCommand {
            workflow: WorkflowId(1),
            run: RunId(1),
            action: 1,
            attempt: Attempt(1),
            trigger: "on_start".into(),
            commands: vec!["true".into()],
            env: pair(),
        };
        let stop = StopCommand {
            workflow: WorkflowId(1),
            attempts: vec![key()],
            why: StopReason::Interrupted,
            grace: second,
        };
        ExchangeReply {
            number: 1,
            over: vec![WorkflowId(1)],
            workflows: vec![setup],
            assignments: vec![assignment],
            actions: vec![action],
            stops: vec![stop],
            stale: vec![StaleReport { key: key(), found: "f".into() }],
            drain: true,
            dismissed: true,
            ends_in: Some(second),
        }
    }

    #[test]
    fn schema_lists_the_checked_bounds() {
        let schema = |json: Value, field: &str, bound: &str| json["properties"][field][bound].as_u64();
        let of = |name: &str| {
            use utoipa::PartialSchema as _;
            match name {
                "capacity" => json!(WorkerCapacityMessage::schema()),
                "length" => json!(DurationMessage::schema()),
                _ => json!(WorkerRegistrationMessage::schema()),
            }
        };
        let expected = [
            ("capacity", "cpus", "maximum", u64::from(bounds::MAX_CPUS)),
            ("capacity", "memory", "maximum", bounds::MAX_MEMORY.0),
            ("capacity", "gpus", "maximum", u64::from(bounds::MAX_GPUS)),
            ("capacity", "nodes", "maximum", u64::from(bounds::MAX_NODES)),
            ("capacity", "max_jobs", "maximum", u64::from(bounds::MAX_JOBS)),
            ("length", "secs", "maximum", bounds::MAX_DURATION.as_secs()),
            ("introduction", "host", "maxLength", bounds::MAX_NAME_BYTES as u64),
            ("introduction", "labels", "maxItems", bounds::MAX_LABELS as u64),
        ];
        for (message, field, bound, value) in expected {
            assert_eq!(schema(of(message), field, bound), Some(value), "{message}.{field}");
        }
    }
}
