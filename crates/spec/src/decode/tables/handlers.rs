//! The fields of failure handlers, deserialized by their tables alone into the types of the same names in
//! [`windlass_types::settings`].

use super::{MAX_I32, MAX_RESOURCE_COUNT};
use crate::decode::field_tables::{FieldTable, FieldType, GrowthUnit, SpecField};

/// Exit codes of a process, and those recorded for a lost one.
const ANY_EXIT_CODE: FieldType = FieldType::Integer(-128, 255);
const FAILURE_CAUSE: FieldType =
    FieldType::Choice(&["out_of_memory", "timeout", "missing_output", "cannot_start"]);
const FAILURE_CLASS: FieldType =
    FieldType::Choice(&["transient", "permanent", "data", "infrastructure", "memory", "timeout", "unknown"]);

pub(in crate::decode) static FAILURE_HANDLER: FieldTable = FieldTable::new(
    "failure handler",
    "Rules for failures of the jobs that use this handler.",
    &[
        SpecField::required("name", FieldType::Name, "Unique among the failure handlers."),
        SpecField::required(
            "rules",
            FieldType::List(&FieldType::Map(&FAILURE_RULE)),
            "Rules that list the exit code are tried first, then those with another condition, then `match_all_exit_codes`.",
        )
        .node("rule"),
    ],
)
.named();

pub(in crate::decode) static FAILURE_RULE: FieldTable = FieldTable::new(
    "rule",
    "One rule of a failure handler. It matches a failure if each of its conditions (`exit_codes`, `signals`, `on`, \
     `classes`, `stderr`) matches; in each, one matching entry is enough.",
    &[
        SpecField::optional(
            "exit_codes",
            FieldType::List(&ANY_EXIT_CODE),
            "Exit codes that the rule matches.",
        )
        .node("exit_code"),
        SpecField::optional("match_all_exit_codes", FieldType::Boolean, "The rule matches every exit code.")
            .default("false"),
        SpecField::optional(
            "signals",
            FieldType::List(&FieldType::Signal),
            "Signals that ended the job, also if a shell reports them as 128 + number.",
        )
        .node("signal"),
        SpecField::optional(
            "on",
            FieldType::List(&FAILURE_CAUSE),
            "Causes of the end of the attempt, as far as they are known for certain.",
        )
        .foreign_names(&["cause", "causes", "when"]),
        SpecField::optional(
            "classes",
            FieldType::List(&FAILURE_CLASS),
            "Failure classes that the rule matches.",
        )
        .node("class"),
        SpecField::optional(
            "stderr",
            FieldType::List(&FieldType::StderrPattern),
            "Texts in the last lines of standard error, ignoring case; `re:` starts a regular expression.",
        )
        .foreign_names(&["patterns", "stderr_patterns", "message", "messages"]),
        SpecField::optional(
            "recovery_script",
            FieldType::NonBlank,
            "Shell command to run before the job is retried.",
        )
        .foreign_names(&["script", "command"]),
        SpecField::optional(
            "recovery_timeout",
            FieldType::Duration,
            "Maximum run time of the recovery script; then it is killed.",
        )
        .default("PT10M"),
        SpecField::optional(
            "max_retries",
            FieldType::Integer(0, MAX_I32),
            "Maximum number of attempts, including the first one.",
        )
        .default("3")
        .foreign_names(&["retries", "attempts", "max_attempts"]),
        SpecField::optional("delay", FieldType::Duration, "Delay before the job is retried.")
            .default("no delay")
            .foreign_names(&["wait", "retry_delay"]),
        SpecField::optional(
            "backoff",
            FieldType::Number(1.0, 1000.0),
            "Factor by which the delay grows for each further attempt.",
        )
        .default("1"),
        SpecField::optional("max_delay", FieldType::Duration, "Maximum delay.").default("P1D"),
        SpecField::optional(
            "jitter",
            FieldType::Number(0.0, 1.0),
            "Maximum random change of the delay, as a fraction of it.",
        )
        .default("0"),
        SpecField::optional(
            "memory",
            FieldType::Growth(GrowthUnit::Size),
            "Increase of the job's memory for the next attempt.",
        )
        .foreign_names(&["mem"]),
        SpecField::optional("max_memory", FieldType::Size, "Maximum memory after increases.")
            .default("the memory of the largest worker"),
        SpecField::optional(
            "runtime",
            FieldType::Growth(GrowthUnit::Duration),
            "Increase of the job's run time limit for the next attempt.",
        )
        .foreign_names(&["walltime", "time"]),
        SpecField::optional("max_runtime", FieldType::Duration, "Maximum run time limit after increases.")
            .default("no limit"),
        SpecField::optional(
            "cpus",
            FieldType::Growth(GrowthUnit::Count),
            "Increase of the job's CPUs for the next attempt.",
        )
        .foreign_names(&["num_cpus", "cores"]),
        SpecField::optional(
            "max_cpus",
            FieldType::Integer(1, MAX_RESOURCE_COUNT),
            "Maximum number of CPUs after increases.",
        )
        .default("the CPUs of the largest worker"),
    ],
);
