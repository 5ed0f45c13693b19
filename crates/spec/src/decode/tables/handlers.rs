//! The fields of failure handlers, decoded by their tables alone into the types of the same names in
//! [`windlass_types::settings`].

use super::{MAX_I32, MAX_RESOURCE_COUNT};
use crate::decode::field_tables::{FieldTable, FieldType, GrowthUnit, SpecField};

/// What a process may leave behind, and what is noted for one that was lost.
const ANY_EXIT_CODE: FieldType = FieldType::Integer(-128, 255);
const FAILURE_CAUSE: FieldType =
    FieldType::Choice(&["out_of_memory", "timeout", "missing_output", "cannot_start"]);
const FAILURE_CLASS: FieldType =
    FieldType::Choice(&["transient", "permanent", "data", "infrastructure", "memory", "timeout", "unknown"]);

pub(in crate::decode) static FAILURE_HANDLER: FieldTable = FieldTable::new(
    "failure handler",
    "What to do when a job that names it fails.",
    &[
        SpecField::required("name", FieldType::Name, "Unique among the handlers."),
        SpecField::required(
            "rules",
            FieldType::List(&FieldType::Map(&FAILURE_RULE)),
            "Rules that list the exit code go first, then those with another condition, then `match_all_exit_codes`.",
        )
        .node("rule"),
    ],
)
.named();

pub(in crate::decode) static FAILURE_RULE: FieldTable = FieldTable::new(
    "rule",
    "One rule of a failure handler. It is for a failure if each condition that it names (`exit_codes`, `signals`, `on`, \
     `classes`, `stderr`) holds; of each, one entry is enough.",
    &[
        SpecField::optional("exit_codes", FieldType::List(&ANY_EXIT_CODE), "Return codes that it is for.")
            .node("exit_code"),
        SpecField::optional("match_all_exit_codes", FieldType::Boolean, "It is for every return code.")
            .default("false"),
        SpecField::optional(
            "signals",
            FieldType::List(&FieldType::Signal),
            "Signals that ended the job, also where a shell tells of them as 128 + number.",
        )
        .node("signal"),
        SpecField::optional("on", FieldType::List(&FAILURE_CAUSE), "What is known for certain about how the attempt ended.")
            .foreign_names(&["cause", "causes", "when"]),
        SpecField::optional("classes", FieldType::List(&FAILURE_CLASS), "What the failure is classified as.").node("class"),
        SpecField::optional(
            "stderr",
            FieldType::List(&FieldType::StderrPattern),
            "Words in the last lines of standard error, in upper or lower case; `re:` before a regular expression.",
        )
        .foreign_names(&["patterns", "stderr_patterns", "message", "messages"]),
        SpecField::optional("recovery_script", FieldType::NonBlank, "Run by a shell before the job is tried again.")
            .foreign_names(&["script", "command"]),
        SpecField::optional("recovery_timeout", FieldType::Duration, "The script is ended when it takes longer.")
            .default("PT10M"),
        SpecField::optional(
            "max_retries",
            FieldType::Integer(0, MAX_I32),
            "So many attempts at most, the first one included.",
        )
        .default("3")
        .foreign_names(&["retries", "attempts", "max_attempts"]),
        SpecField::optional("delay", FieldType::Duration, "The job waits so long before it is tried again.")
            .default("not at all")
            .foreign_names(&["wait", "retry_delay"]),
        SpecField::optional(
            "backoff",
            FieldType::Number(1.0, 1000.0),
            "The delay times this for each further attempt.",
        )
        .default("1"),
        SpecField::optional("max_delay", FieldType::Duration, "No delay is longer.").default("P1D"),
        SpecField::optional(
            "jitter",
            FieldType::Number(0.0, 1.0),
            "The delay is shorter or longer by chance, by up to this share of it.",
        )
        .default("0"),
        SpecField::optional("memory", FieldType::Growth(GrowthUnit::Size), "The job asks for so much more memory.")
            .foreign_names(&["mem"]),
        SpecField::optional("max_memory", FieldType::Size, "It never asks for more memory than this.")
            .default("what the largest worker has"),
        SpecField::optional("runtime", FieldType::Growth(GrowthUnit::Duration), "The job may run so much longer.")
            .foreign_names(&["walltime", "time"]),
        SpecField::optional("max_runtime", FieldType::Duration, "It never asks for more time than this.")
            .default("no limit"),
        SpecField::optional("cpus", FieldType::Growth(GrowthUnit::Count), "The job asks for so many more CPUs.")
            .foreign_names(&["num_cpus", "cores"]),
        SpecField::optional("max_cpus", FieldType::Integer(1, MAX_RESOURCE_COUNT), "It never asks for more CPUs than this.")
            .default("what the largest worker has"),
    ],
);
