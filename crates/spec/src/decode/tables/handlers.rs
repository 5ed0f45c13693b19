//! The fields of failure handlers, decoded by their tables alone into the types of the same names in
//! [`windlass_types::settings`].

use super::{MANY, MOST};
use crate::decode::shape::{Field, Grows, Map, Type};

/// What a process may leave behind, and what is noted for one that was lost.
const ANY_EXIT_CODE: Type = Type::Integer(-128, 255);
const CAUSE: Type = Type::Choice(&["out_of_memory", "timeout", "missing_output", "cannot_start"]);
const CLASS: Type =
    Type::Choice(&["transient", "permanent", "data", "infrastructure", "memory", "timeout", "unknown"]);

pub(in crate::decode) static FAILURE_HANDLER: Map = Map::new(
    "failure handler",
    "What to do when a job that names it fails.",
    &[
        Field::required("name", Type::Name, "Unique among the handlers."),
        Field::required(
            "rules",
            Type::List(&Type::Map(&FAILURE_RULE)),
            "Rules that list the exit code go first, then those with another condition, then `match_all_exit_codes`.",
        )
        .node("rule"),
    ],
)
.named();

pub(in crate::decode) static FAILURE_RULE: Map = Map::new(
    "rule",
    "One rule of a failure handler. It is for a failure if each condition that it names (`exit_codes`, `signals`, `on`, \
     `classes`, `stderr`) holds; of each, one entry is enough.",
    &[
        Field::optional("exit_codes", Type::List(&ANY_EXIT_CODE), "Return codes that it is for.")
            .node("exit_code"),
        Field::optional("match_all_exit_codes", Type::Boolean, "It is for every return code.")
            .default("false"),
        Field::optional(
            "signals",
            Type::List(&Type::Signal),
            "Signals that ended the job, also where a shell tells of them as 128 + number.",
        )
        .node("signal"),
        Field::optional("on", Type::List(&CAUSE), "What is known for certain about how the attempt ended.")
            .elsewhere(&["cause", "causes", "when"]),
        Field::optional("classes", Type::List(&CLASS), "What the failure is classified as.").node("class"),
        Field::optional(
            "stderr",
            Type::List(&Type::StderrPattern),
            "Words in the last lines of standard error, in upper or lower case; `re:` before a regular expression.",
        )
        .elsewhere(&["patterns", "stderr_patterns", "message", "messages"]),
        Field::optional("recovery_script", Type::Filled, "Run by a shell before the job is tried again.")
            .elsewhere(&["script", "command"]),
        Field::optional("recovery_timeout", Type::Duration, "The script is ended when it takes longer.")
            .default("PT10M"),
        Field::optional(
            "max_retries",
            Type::Integer(0, MOST),
            "So many attempts at most, the first one included.",
        )
        .default("3")
        .elsewhere(&["retries", "attempts", "max_attempts"]),
        Field::optional("delay", Type::Duration, "The job waits so long before it is tried again.")
            .default("not at all")
            .elsewhere(&["wait", "retry_delay"]),
        Field::optional(
            "backoff",
            Type::Number(1.0, 1000.0),
            "The delay times this for each further attempt.",
        )
        .default("1"),
        Field::optional("max_delay", Type::Duration, "No delay is longer.").default("P1D"),
        Field::optional(
            "jitter",
            Type::Number(0.0, 1.0),
            "The delay is shorter or longer by chance, by up to this share of it.",
        )
        .default("0"),
        Field::optional("memory", Type::Growth(Grows::Size), "The job asks for so much more memory.")
            .elsewhere(&["mem"]),
        Field::optional("max_memory", Type::Size, "It never asks for more memory than this.")
            .default("what the largest worker has"),
        Field::optional("runtime", Type::Growth(Grows::Duration), "The job may run so much longer.")
            .elsewhere(&["walltime", "time"]),
        Field::optional("max_runtime", Type::Duration, "It never asks for more time than this.")
            .default("no limit"),
        Field::optional("cpus", Type::Growth(Grows::Count), "The job asks for so many more CPUs.")
            .elsewhere(&["num_cpus", "cores"]),
        Field::optional("max_cpus", Type::Integer(1, MANY), "It never asks for more CPUs than this.")
            .default("what the largest worker has"),
    ],
);
