//! The fields of what a workflow says besides its jobs and their data. Maps without an enum are decoded by their table
//! alone, into the type of the same name in [`windlass_types::settings`].

use super::{MAX_I32, MAX_RESOURCE_COUNT, MAX_SECONDS, NAME_LIST, REGEX_LIST};
use crate::decode::field_tables::{FieldId, FieldTable, FieldType, SpecField, fields};

/// An exit code for something that went wrong.
const FAILURE_EXIT_CODE: FieldType = FieldType::Integer(1, 255);
const SECONDS: FieldType = FieldType::Integer(0, MAX_SECONDS);

#[derive(Clone, Copy, Debug)]
pub(in crate::decode) enum StdioField {
    Mode,
    DeleteOnSuccess,
}

fields! {
    STDIO = "stdio section", "What is kept of what jobs print.";
    StdioField:
    StdioField::Mode => SpecField::optional("mode",
        FieldType::Choice(&["separate", "combined", "none", "no_stdout", "no_stderr"]),
        "Two files, one file, neither, only standard error, only standard output.").default("separate"),
    StdioField::DeleteOnSuccess => SpecField::optional("delete_on_success", FieldType::Boolean,
        "Remove the files of an attempt that completed.").default("false"),
}

pub(in crate::decode) static DYNAMIC_JOBS: FieldTable = FieldTable::new(
    "dynamic_jobs section",
    "Limits for jobs that add jobs to their own workflow.",
    &[SpecField::optional(
        "max_iterations",
        FieldType::Integer(1, MAX_I32),
        "How often one line of jobs may add more.",
    )
    .default("1000")],
);

pub(in crate::decode) static TRIAGE: FieldTable = FieldTable::new(
    "triage section",
    "What agents may decide alone about failures that wait for a decision (`use_pending_failed`). People may decide anything.",
    &[
        SpecField::optional(
            "min_confidence",
            FieldType::Number(0.0, 1.0),
            "What an agent is less sure of, or does not say how sure it is of, waits for a person.",
        )
        .default("no limit")
        .foreign_names(&["confidence", "threshold"]),
        SpecField::optional(
            "max_agent_retries",
            FieldType::Integer(0, MAX_I32),
            "So often agents may have one job tried again in a run.",
        )
        .default("no limit")
        .foreign_names(&["max_retries", "retries"]),
        SpecField::optional(
            "require_evidence",
            FieldType::Boolean,
            "An agent has to quote what the job said; that it did is checked.",
        )
        .default("false")
        .foreign_names(&["evidence"]),
    ],
);

pub(in crate::decode) static SLURM_SCHEDULER: FieldTable = FieldTable::new(
    "Slurm scheduler",
    "What is asked of Slurm for an allocation.",
    &[
        SpecField::required("name", FieldType::Name, "Unique among the schedulers."),
        SpecField::required("account", FieldType::NonBlank, "Who pays."),
        SpecField::optional("partition", FieldType::NonBlank, "Where it should run.")
            .default("the cluster's"),
        SpecField::optional("qos", FieldType::NonBlank, "Quality of service.").default("the cluster's"),
        SpecField::optional("nodes", FieldType::Integer(1, MAX_RESOURCE_COUNT), "Nodes of one allocation.")
            .default("1"),
        SpecField::optional("walltime", FieldType::Walltime, "How long an allocation lasts.")
            .default("01:00:00")
            .foreign_names(&["time", "runtime"]),
        SpecField::optional("mem", FieldType::SlurmSize, "Memory of each node.").foreign_names(&["memory"]),
        SpecField::optional("gres", FieldType::NonBlank, "Generic resources, for example `gpu:4`."),
        SpecField::optional(
            "ntasks_per_node",
            FieldType::Integer(1, MAX_RESOURCE_COUNT),
            "Tasks that Slurm counts on each node.",
        ),
        SpecField::optional("tmp", FieldType::SlurmSize, "Temporary disk space of each node."),
        SpecField::optional("extra", FieldType::Text, "More options of sbatch, as they would be typed.")
            .foreign_names(&["slurm_extra", "extra_args"]),
        SpecField::optional("serialize_allocations", FieldType::Boolean, "One allocation after the other.")
            .default("false"),
    ],
)
.named();

pub(in crate::decode) static EXECUTION_CONFIG: FieldTable = FieldTable::new(
    "execution_config section",
    "How jobs are started and ended. Some fields are for one `mode` only; with `auto` all of them may be given.",
    &[
        SpecField::optional(
            "mode",
            FieldType::Choice(&["direct", "slurm", "auto"]),
            "As processes, as steps of srun, or whichever fits the place.",
        )
        .default("direct"),
        SpecField::optional("sigkill_headroom_seconds", SECONDS, "SIGKILL comes so long before the allocation ends.")
            .default("60"),
        SpecField::optional("timeout_exit_code", FAILURE_EXIT_CODE, "Return code of a job that ran too long.").default("152"),
        SpecField::optional(
            "staggered_start",
            FieldType::Boolean,
            "Kept for specs of Torc, without effect: workers start as soon as they can.",
        )
        .default("false"),
        SpecField::optional("stdio", FieldType::Map(&STDIO), "As `stdio` of the workflow, which is the better place."),
        SpecField::optional("limit_resources", FieldType::Boolean, "Mode `direct`: jobs that use too much are ended.")
            .default("true"),
        SpecField::optional("termination_signal", FieldType::Signal, "Mode `direct`: what a job is asked to end with.")
            .default("SIGTERM"),
        SpecField::optional(
            "sigterm_lead_seconds",
            SECONDS,
            "Mode `direct`: the signal comes so long before `runtime` is over, and SIGKILL when it is. Else the signal \
             comes when `runtime` is over, and SIGKILL after `--grace`.",
        ),
        SpecField::optional("oom_exit_code", FAILURE_EXIT_CODE, "Mode `direct`: return code of a job that used too much memory.")
            .default("137"),
        SpecField::optional(
            "srun_termination_signal",
            FieldType::SrunSignal,
            "Mode `slurm`: signal and seconds before the end, for example `TERM@120`.",
        ),
        SpecField::optional("enable_cpu_bind", FieldType::Boolean, "Mode `slurm`: srun binds jobs to CPUs.").default("false"),
        SpecField::optional("srun_mpi", FieldType::NonBlank, "`srun --mpi` for workers that are started one per node."),
    ],
)
.removed_fields(&[("job_stdio_overrides", "give the job its own `stdio` instead")]);

const GRANULARITY: FieldType = FieldType::Choice(&["summary", "time_series"]);

pub(in crate::decode) static RESOURCE_MONITOR: FieldTable = FieldTable::new(
    "resource_monitor section",
    "What is measured while jobs run.",
    &[
        SpecField::optional(
            "sample_interval_seconds",
            FieldType::Number(0.01, 86400.0),
            "Time between two looks.",
        )
        .default("10"),
        SpecField::optional(
            "flush_interval_seconds",
            FieldType::Integer(1, MAX_SECONDS),
            "Time between two writes to disk.",
        )
        .default("300"),
        SpecField::optional(
            "generate_plots",
            FieldType::Boolean,
            "Draw the series when the workflow is over.",
        )
        .default("false"),
        SpecField::optional("jobs", FieldType::Map(&MONITOR_JOBS), "What is kept for each job."),
        SpecField::optional("compute_node", FieldType::Map(&MONITOR_NODE), "What is kept for the machine."),
        SpecField::optional("enabled", FieldType::Boolean, "Older spelling of `jobs: {enabled: …}`."),
        SpecField::optional("granularity", GRANULARITY, "Older spelling of `jobs: {granularity: …}`."),
        SpecField::optional(
            "metrics",
            FieldType::List(&FieldType::Text),
            "Accepted without effect: CPU and memory are always measured.",
        ),
    ],
);

static MONITOR_JOBS: FieldTable = FieldTable::new(
    "section on jobs",
    "What is kept for each job.",
    &[
        SpecField::optional("enabled", FieldType::Boolean, "Measure at all.").default("false"),
        SpecField::optional("granularity", GRANULARITY, "Peaks and averages, or every sample.")
            .default("summary"),
    ],
);

static MONITOR_NODE: FieldTable = FieldTable::new(
    "section on compute nodes",
    "What is kept for the machine.",
    &[
        SpecField::optional("enabled", FieldType::Boolean, "Measure at all.").default("false"),
        SpecField::optional("granularity", GRANULARITY, "Peaks and averages, or every sample.")
            .default("summary"),
        SpecField::optional("cpu", FieldType::Boolean, "Its CPUs.").default("true"),
        SpecField::optional("memory", FieldType::Boolean, "Its memory.").default("true"),
    ],
);

#[derive(Clone, Copy, Debug)]
pub(in crate::decode) enum ActionField {
    Trigger,
    Type,
    Jobs,
    JobNameRegexes,
    Commands,
    Scheduler,
    SchedulerType,
    NumAllocations,
    OneWorkerPerNode,
    MaxParallelJobs,
    Persistent,
}

fields! {
    ACTION = "action", "Something to do when something happened.";
    ActionField:
    ActionField::Trigger => SpecField::required("trigger_type",
        FieldType::Choice(&["on_workflow_start", "on_workflow_complete", "on_worker_start", "on_worker_complete",
            "on_jobs_ready", "on_jobs_complete"]),
        "What must have happened.").foreign_names(&["trigger", "on", "when"]),
    ActionField::Type => SpecField::required("action_type", FieldType::Choice(&["run_commands", "schedule_nodes"]),
        "What to do.").foreign_names(&["type", "action"]),
    ActionField::Jobs => SpecField::optional("jobs", NAME_LIST,
        "For `on_jobs_ready` and `on_jobs_complete`: all of these jobs.").node("job"),
    ActionField::JobNameRegexes => SpecField::optional("job_name_regexes", REGEX_LIST,
        "The same for every job whose name matches.").node("job_name_regex"),
    ActionField::Commands => SpecField::optional("commands", NAME_LIST,
        "For `run_commands`: run by a shell, one after the other.").node("command"),
    ActionField::Scheduler => SpecField::optional("scheduler", FieldType::NonBlank,
        "For `schedule_nodes`: one of the workflow's `slurm_schedulers`."),
    ActionField::SchedulerType => SpecField::optional("scheduler_type", FieldType::Choice(&["slurm", "local"]),
        "For `schedule_nodes`: who gives the nodes.").default("slurm"),
    ActionField::NumAllocations => SpecField::optional("num_allocations", FieldType::Integer(1, MAX_RESOURCE_COUNT),
        "For `schedule_nodes`: so many allocations.").default("1"),
    ActionField::OneWorkerPerNode => SpecField::optional("start_one_worker_per_node", FieldType::Boolean,
        "For `schedule_nodes`: a worker on each node of an allocation.").default("false"),
    ActionField::MaxParallelJobs => SpecField::optional("max_parallel_jobs", FieldType::Integer(1, MAX_RESOURCE_COUNT),
        "For `schedule_nodes`: a worker runs at most so many jobs at once."),
    ActionField::Persistent => SpecField::optional("persistent", FieldType::Boolean,
        "Done by every worker, not only by the first one.").default("false"),
}
