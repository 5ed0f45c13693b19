//! The fields of what a workflow says besides its jobs and their data. Maps without an enum are decoded by their table
//! alone, into the type of the same name in [`windlass_types::settings`].

use super::{MANY, MOST, MOST_SECONDS, NAMES, REGEXES};
use crate::decode::shape::{Field, FieldId, Map, Type, fields};

/// An exit code for something that went wrong.
const BAD_EXIT_CODE: Type = Type::Integer(1, 255);
const SECONDS: Type = Type::Integer(0, MOST_SECONDS);

#[derive(Clone, Copy, Debug)]
pub(in crate::decode) enum StdioField {
    Mode,
    DeleteOnSuccess,
}

fields! {
    STDIO = "stdio section", "What is kept of what jobs print.";
    StdioField:
    StdioField::Mode => Field::optional("mode",
        Type::Choice(&["separate", "combined", "none", "no_stdout", "no_stderr"]),
        "Two files, one file, neither, only standard error, only standard output.").default("separate"),
    StdioField::DeleteOnSuccess => Field::optional("delete_on_success", Type::Boolean,
        "Remove the files of an attempt that completed.").default("false"),
}

pub(in crate::decode) static DYNAMIC_JOBS: Map = Map::new(
    "dynamic_jobs section",
    "Limits for jobs that add jobs to their own workflow.",
    &[Field::optional("max_iterations", Type::Integer(1, MOST), "How often one line of jobs may add more.")
        .default("1000")],
);

pub(in crate::decode) static TRIAGE: Map = Map::new(
    "triage section",
    "What agents may decide alone about failures that wait for a decision (`use_pending_failed`). People may decide anything.",
    &[
        Field::optional(
            "min_confidence",
            Type::Number(0.0, 1.0),
            "What an agent is less sure of, or does not say how sure it is of, waits for a person.",
        )
        .default("no limit")
        .elsewhere(&["confidence", "threshold"]),
        Field::optional(
            "max_agent_retries",
            Type::Integer(0, MOST),
            "So often agents may have one job tried again in a run.",
        )
        .default("no limit")
        .elsewhere(&["max_retries", "retries"]),
        Field::optional(
            "require_evidence",
            Type::Boolean,
            "An agent has to quote what the job said; that it did is checked.",
        )
        .default("false")
        .elsewhere(&["evidence"]),
    ],
);

pub(in crate::decode) static SLURM_SCHEDULER: Map = Map::new(
    "Slurm scheduler",
    "What is asked of Slurm for an allocation.",
    &[
        Field::required("name", Type::Name, "Unique among the schedulers."),
        Field::required("account", Type::Filled, "Who pays."),
        Field::optional("partition", Type::Filled, "Where it should run.").default("the cluster's"),
        Field::optional("qos", Type::Filled, "Quality of service.").default("the cluster's"),
        Field::optional("nodes", Type::Integer(1, MANY), "Nodes of one allocation.").default("1"),
        Field::optional("walltime", Type::Walltime, "How long an allocation lasts.")
            .default("01:00:00")
            .elsewhere(&["time", "runtime"]),
        Field::optional("mem", Type::SlurmSize, "Memory of each node.").elsewhere(&["memory"]),
        Field::optional("gres", Type::Filled, "Generic resources, for example `gpu:4`."),
        Field::optional("ntasks_per_node", Type::Integer(1, MANY), "Tasks that Slurm counts on each node."),
        Field::optional("tmp", Type::SlurmSize, "Temporary disk space of each node."),
        Field::optional("extra", Type::Text, "More options of sbatch, as they would be typed.")
            .elsewhere(&["slurm_extra", "extra_args"]),
        Field::optional("serialize_allocations", Type::Boolean, "One allocation after the other.")
            .default("false"),
    ],
)
.named();

pub(in crate::decode) static EXECUTION_CONFIG: Map = Map::new(
    "execution_config section",
    "How jobs are started and ended. Some fields are for one `mode` only; with `auto` all of them may be given.",
    &[
        Field::optional(
            "mode",
            Type::Choice(&["direct", "slurm", "auto"]),
            "As processes, as steps of srun, or whichever fits the place.",
        )
        .default("direct"),
        Field::optional("sigkill_headroom_seconds", SECONDS, "SIGKILL comes so long before the allocation ends.")
            .default("60"),
        Field::optional("timeout_exit_code", BAD_EXIT_CODE, "Return code of a job that ran too long.").default("152"),
        Field::optional(
            "staggered_start",
            Type::Boolean,
            "Kept for specs of Torc, without effect: workers start as soon as they can.",
        )
        .default("false"),
        Field::optional("stdio", Type::Map(&STDIO), "As `stdio` of the workflow, which is the better place."),
        Field::optional("limit_resources", Type::Boolean, "Mode `direct`: jobs that use too much are ended.")
            .default("true"),
        Field::optional("termination_signal", Type::Signal, "Mode `direct`: what a job is asked to end with.")
            .default("SIGTERM"),
        Field::optional(
            "sigterm_lead_seconds",
            SECONDS,
            "Mode `direct`: the signal comes so long before `runtime` is over, and SIGKILL when it is. Else the signal \
             comes when `runtime` is over, and SIGKILL after `--grace`.",
        ),
        Field::optional("oom_exit_code", BAD_EXIT_CODE, "Mode `direct`: return code of a job that used too much memory.")
            .default("137"),
        Field::optional(
            "srun_termination_signal",
            Type::SrunSignal,
            "Mode `slurm`: signal and seconds before the end, for example `TERM@120`.",
        ),
        Field::optional("enable_cpu_bind", Type::Boolean, "Mode `slurm`: srun binds jobs to CPUs.").default("false"),
        Field::optional("srun_mpi", Type::Filled, "`srun --mpi` for workers that are started one per node."),
    ],
)
.gone(&[("job_stdio_overrides", "give the job its own `stdio` instead")]);

const GRANULARITY: Type = Type::Choice(&["summary", "time_series"]);

pub(in crate::decode) static RESOURCE_MONITOR: Map = Map::new(
    "resource_monitor section",
    "What is measured while jobs run.",
    &[
        Field::optional("sample_interval_seconds", Type::Number(0.01, 86400.0), "Time between two looks.")
            .default("10"),
        Field::optional(
            "flush_interval_seconds",
            Type::Integer(1, MOST_SECONDS),
            "Time between two writes to disk.",
        )
        .default("300"),
        Field::optional("generate_plots", Type::Boolean, "Draw the series when the workflow is over.")
            .default("false"),
        Field::optional("jobs", Type::Map(&MONITOR_JOBS), "What is kept for each job."),
        Field::optional("compute_node", Type::Map(&MONITOR_NODE), "What is kept for the machine."),
        Field::optional("enabled", Type::Boolean, "Older spelling of `jobs: {enabled: …}`."),
        Field::optional("granularity", GRANULARITY, "Older spelling of `jobs: {granularity: …}`."),
        Field::optional(
            "metrics",
            Type::List(&Type::Text),
            "Accepted without effect: CPU and memory are always measured.",
        ),
    ],
);

static MONITOR_JOBS: Map = Map::new(
    "section on jobs",
    "What is kept for each job.",
    &[
        Field::optional("enabled", Type::Boolean, "Measure at all.").default("false"),
        Field::optional("granularity", GRANULARITY, "Peaks and averages, or every sample.")
            .default("summary"),
    ],
);

static MONITOR_NODE: Map = Map::new(
    "section on compute nodes",
    "What is kept for the machine.",
    &[
        Field::optional("enabled", Type::Boolean, "Measure at all.").default("false"),
        Field::optional("granularity", GRANULARITY, "Peaks and averages, or every sample.")
            .default("summary"),
        Field::optional("cpu", Type::Boolean, "Its CPUs.").default("true"),
        Field::optional("memory", Type::Boolean, "Its memory.").default("true"),
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
    ActionField::Trigger => Field::required("trigger_type",
        Type::Choice(&["on_workflow_start", "on_workflow_complete", "on_worker_start", "on_worker_complete",
            "on_jobs_ready", "on_jobs_complete"]),
        "What must have happened.").elsewhere(&["trigger", "on", "when"]),
    ActionField::Type => Field::required("action_type", Type::Choice(&["run_commands", "schedule_nodes"]),
        "What to do.").elsewhere(&["type", "action"]),
    ActionField::Jobs => Field::optional("jobs", NAMES,
        "For `on_jobs_ready` and `on_jobs_complete`: all of these jobs.").node("job"),
    ActionField::JobNameRegexes => Field::optional("job_name_regexes", REGEXES,
        "The same for every job whose name matches.").node("job_name_regex"),
    ActionField::Commands => Field::optional("commands", NAMES,
        "For `run_commands`: run by a shell, one after the other.").node("command"),
    ActionField::Scheduler => Field::optional("scheduler", Type::Filled,
        "For `schedule_nodes`: one of the workflow's `slurm_schedulers`."),
    ActionField::SchedulerType => Field::optional("scheduler_type", Type::Choice(&["slurm", "local"]),
        "For `schedule_nodes`: who gives the nodes.").default("slurm"),
    ActionField::NumAllocations => Field::optional("num_allocations", Type::Integer(1, MANY),
        "For `schedule_nodes`: so many allocations.").default("1"),
    ActionField::OneWorkerPerNode => Field::optional("start_one_worker_per_node", Type::Boolean,
        "For `schedule_nodes`: a worker on each node of an allocation.").default("false"),
    ActionField::MaxParallelJobs => Field::optional("max_parallel_jobs", Type::Integer(1, MANY),
        "For `schedule_nodes`: a worker runs at most so many jobs at once."),
    ActionField::Persistent => Field::optional("persistent", Type::Boolean,
        "Done by every worker, not only by the first one.").default("false"),
}
