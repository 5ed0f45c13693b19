//! The fields of settings of a workflow other than jobs and their data. Maps without an enum are decoded by their
//! table alone, into the type of the same name in [`windlass_types::settings`].

use super::{MAX_I32, MAX_RESOURCE_COUNT, MAX_SECONDS, NAME_LIST, REGEX_LIST};
use crate::decode::field_tables::{FieldId, FieldTable, FieldType, SpecField, fields};

/// An exit code that reports a failure.
const FAILURE_EXIT_CODE: FieldType = FieldType::Integer(1, 255);
const SECONDS: FieldType = FieldType::Integer(0, MAX_SECONDS);

#[derive(Clone, Copy, Debug)]
pub(in crate::decode) enum StdioField {
    Mode,
    DeleteOnSuccess,
}

fields! {
    STDIO = "stdio section", "Which output of jobs is kept.";
    StdioField:
    StdioField::Mode => SpecField::optional("mode",
        FieldType::Choice(&["separate", "combined", "none", "no_stdout", "no_stderr"]),
        "Standard output and standard error in two files, in one file, only one of them, or neither.").default("separate"),
    StdioField::DeleteOnSuccess => SpecField::optional("delete_on_success", FieldType::Boolean,
        "Remove the output files of completed attempts.").default("false"),
}

pub(in crate::decode) static DYNAMIC_JOBS: FieldTable = FieldTable::new(
    "dynamic_jobs section",
    "Limits for jobs that add jobs to their own workflow.",
    &[SpecField::optional(
        "max_iterations",
        FieldType::Integer(1, MAX_I32),
        "Maximum number of times that a job, the jobs it adds, and so on may add further jobs.",
    )
    .default("1000")],
);

pub(in crate::decode) static TRIAGE: FieldTable = FieldTable::new(
    "triage section",
    "Decisions that agents may make without a person about failures that wait for a decision (`use_pending_failed`). People may decide anything.",
    &[
        SpecField::optional(
            "min_confidence",
            FieldType::Number(0.0, 1.0),
            "Decisions with a lower confidence than this, or without one, wait for a person.",
        )
        .default("no limit")
        .foreign_names(&["confidence", "threshold"]),
        SpecField::optional(
            "max_agent_retries",
            FieldType::Integer(0, MAX_I32),
            "Maximum number of retries of one job by agents in a run.",
        )
        .default("no limit")
        .foreign_names(&["max_retries", "retries"]),
        SpecField::optional(
            "require_evidence",
            FieldType::Boolean,
            "Agents must quote the output of the job; the quotation is verified.",
        )
        .default("false")
        .foreign_names(&["evidence"]),
    ],
);

pub(in crate::decode) static SLURM_SCHEDULER: FieldTable = FieldTable::new(
    "Slurm scheduler",
    "Settings of a Slurm allocation.",
    &[
        SpecField::required("name", FieldType::Name, "Unique among the Slurm schedulers."),
        SpecField::required("account", FieldType::NonBlank, "Slurm account to charge."),
        SpecField::optional("partition", FieldType::NonBlank, "Slurm partition.")
            .default("the cluster's default"),
        SpecField::optional("qos", FieldType::NonBlank, "Slurm quality of service.")
            .default("the cluster's default"),
        SpecField::optional(
            "nodes",
            FieldType::Integer(1, MAX_RESOURCE_COUNT),
            "Number of nodes in an allocation.",
        )
        .default("1"),
        SpecField::optional("walltime", FieldType::Walltime, "Time limit of an allocation.")
            .default("01:00:00")
            .foreign_names(&["time", "runtime"]),
        SpecField::optional("mem", FieldType::SlurmSize, "Memory per node.").foreign_names(&["memory"]),
        SpecField::optional("gres", FieldType::NonBlank, "Generic resources per node, for example `gpu:4`."),
        SpecField::optional(
            "ntasks_per_node",
            FieldType::Integer(1, MAX_RESOURCE_COUNT),
            "Slurm tasks per node.",
        ),
        SpecField::optional("tmp", FieldType::SlurmSize, "Temporary disk space per node."),
        SpecField::optional("extra", FieldType::Text, "Further sbatch options, as on the command line.")
            .foreign_names(&["slurm_extra", "extra_args"]),
        SpecField::optional(
            "serialize_allocations",
            FieldType::Boolean,
            "Run the allocations one after the other.",
        )
        .default("false"),
    ],
)
.named();

pub(in crate::decode) static EXECUTION_CONFIG: FieldTable = FieldTable::new(
    "execution_config section",
    "How jobs are started and terminated. Some fields are for one `mode` only; `auto` accepts all of them.",
    &[
        SpecField::optional(
            "mode",
            FieldType::Choice(&["direct", "slurm", "auto"]),
            "Start jobs as processes (`direct`), as srun steps (`slurm`), or choose by environment (`auto`).",
        )
        .default("direct"),
        SpecField::optional("sigkill_headroom_seconds", SECONDS, "Time before the end of the allocation at which SIGKILL is sent.")
            .default("60"),
        SpecField::optional("timeout_exit_code", FAILURE_EXIT_CODE, "Exit code of a job that exceeded its run time limit.").default("152"),
        SpecField::optional(
            "staggered_start",
            FieldType::Boolean,
            "Accepted for specs of Torc, without effect: workers start as soon as possible.",
        )
        .default("false"),
        SpecField::optional("stdio", FieldType::Map(&STDIO), "Same as `stdio` of the workflow, which is preferred."),
        SpecField::optional("limit_resources", FieldType::Boolean, "Mode `direct`: terminate jobs that exceed their resource limits.")
            .default("true"),
        SpecField::optional("termination_signal", FieldType::Signal, "Mode `direct`: signal that asks a job to terminate.")
            .default("SIGTERM"),
        SpecField::optional(
            "sigterm_lead_seconds",
            SECONDS,
            "Mode `direct`: time before the end of `runtime` at which the signal is sent; SIGKILL follows at the end. Without it, \
             the signal is sent at the end of `runtime`, and SIGKILL after `--grace`.",
        ),
        SpecField::optional("oom_exit_code", FAILURE_EXIT_CODE, "Mode `direct`: exit code of a job that exceeded its memory limit.")
            .default("137"),
        SpecField::optional(
            "srun_termination_signal",
            FieldType::SrunSignal,
            "Mode `slurm`: signal and seconds before the end, for example `TERM@120`.",
        ),
        SpecField::optional("enable_cpu_bind", FieldType::Boolean, "Mode `slurm`: let srun bind jobs to CPUs.").default("false"),
        SpecField::optional("srun_mpi", FieldType::NonBlank, "Value of `srun --mpi` for workers that are started one per node."),
    ],
)
.removed_fields(&[("job_stdio_overrides", "set `stdio` in the job instead")]);

const GRANULARITY: FieldType = FieldType::Choice(&["summary", "time_series"]);

pub(in crate::decode) static RESOURCE_MONITOR: FieldTable = FieldTable::new(
    "resource_monitor section",
    "Resource usage to record while jobs run.",
    &[
        SpecField::optional(
            "sample_interval_seconds",
            FieldType::Number(0.01, 86400.0),
            "Time between two samples.",
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
            "Write plots of the time series when the workflow ends.",
        )
        .default("false"),
        SpecField::optional("jobs", FieldType::Map(&MONITOR_JOBS), "Resource usage to record for each job."),
        SpecField::optional(
            "compute_node",
            FieldType::Map(&MONITOR_NODE),
            "Resource usage to record for the compute node.",
        ),
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
    "Resource usage to record for each job.",
    &[
        SpecField::optional("enabled", FieldType::Boolean, "Enable measurements.").default("false"),
        SpecField::optional("granularity", GRANULARITY, "Record peaks and averages, or every sample.")
            .default("summary"),
    ],
);

static MONITOR_NODE: FieldTable = FieldTable::new(
    "section on compute nodes",
    "Resource usage to record for the compute node.",
    &[
        SpecField::optional("enabled", FieldType::Boolean, "Enable measurements.").default("false"),
        SpecField::optional("granularity", GRANULARITY, "Record peaks and averages, or every sample.")
            .default("summary"),
        SpecField::optional("cpu", FieldType::Boolean, "Record CPU usage.").default("true"),
        SpecField::optional("memory", FieldType::Boolean, "Record memory usage.").default("true"),
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
    ACTION = "action", "An action that an event triggers.";
    ActionField:
    ActionField::Trigger => SpecField::required("trigger_type",
        FieldType::Choice(&["on_workflow_start", "on_workflow_complete", "on_worker_start", "on_worker_complete",
            "on_jobs_ready", "on_jobs_complete"]),
        "Event that triggers the action.").foreign_names(&["trigger", "on", "when"]),
    ActionField::Type => SpecField::required("action_type", FieldType::Choice(&["run_commands", "schedule_nodes"]),
        "Type of the action.").foreign_names(&["type", "action"]),
    ActionField::Jobs => SpecField::optional("jobs", NAME_LIST,
        "For `on_jobs_ready` and `on_jobs_complete`: triggers when all of these jobs are ready or complete.").node("job"),
    ActionField::JobNameRegexes => SpecField::optional("job_name_regexes", REGEX_LIST,
        "Regular expressions; adds every job whose name matches to `jobs`.").node("job_name_regex"),
    ActionField::Commands => SpecField::optional("commands", NAME_LIST,
        "For `run_commands`: shell commands, run one after the other.").node("command"),
    ActionField::Scheduler => SpecField::optional("scheduler", FieldType::NonBlank,
        "For `schedule_nodes`: one of the workflow's `slurm_schedulers`."),
    ActionField::SchedulerType => SpecField::optional("scheduler_type", FieldType::Choice(&["slurm", "local"]),
        "For `schedule_nodes`: type of the scheduler.").default("slurm"),
    ActionField::NumAllocations => SpecField::optional("num_allocations", FieldType::Integer(1, MAX_RESOURCE_COUNT),
        "For `schedule_nodes`: number of allocations.").default("1"),
    ActionField::OneWorkerPerNode => SpecField::optional("start_one_worker_per_node", FieldType::Boolean,
        "For `schedule_nodes`: start one worker on each node of an allocation.").default("false"),
    ActionField::MaxParallelJobs => SpecField::optional("max_parallel_jobs", FieldType::Integer(1, MAX_RESOURCE_COUNT),
        "For `schedule_nodes`: maximum number of jobs that a worker runs at once."),
    ActionField::Persistent => SpecField::optional("persistent", FieldType::Boolean,
        "Every worker runs the action, not only the first one.").default("false"),
}
