//! The fields of a workflow spec, one table per kind of map. New fields are added here; the compiler reports what
//! else needs to change.

mod handlers;
mod settings;

pub(super) use handlers::{FAILURE_HANDLER, FAILURE_RULE};
pub(crate) use settings::{ACTION, STDIO};
pub(super) use settings::{
    ActionField, DYNAMIC_JOBS, EXECUTION_CONFIG, RESOURCE_MONITOR, SLURM_SCHEDULER, StdioField, TRIAGE,
};

use super::field_tables::{FieldId, FieldTable, FieldType, SpecField, fields};
use crate::model::NamedText;
use windlass_types::JobOptions;

/// Far more than any machine has, and far below any overflow of sums.
const MAX_RESOURCE_COUNT: i64 = windlass_types::worker_bounds::MAX_RESOURCE_COUNT as i64;
/// Fits a signed 32-bit number, as other tools store it.
const MAX_I32: i64 = i32::MAX as i64;
/// About 136 years.
const MAX_SECONDS: i64 = u32::MAX as i64;

const NAME_LIST: FieldType = FieldType::List(&FieldType::NonBlank);
const REGEX_LIST: FieldType = FieldType::List(&FieldType::Regex);

#[derive(Clone, Copy, Debug)]
pub(super) enum WorkflowField {
    Version,
    Name,
    User,
    Description,
    Project,
    Metadata,
    Variables,
    Parameters,
    ParametersFile,
    Env,
    Stdio,
    Jobs,
    Files,
    UserData,
    Limits,
    Deferred(DeferredSection),
    SlurmDefaults,
    UsePendingFailed,
    ChangeDetection,
    EnableRoCrate,
    AccessGroups,
    ExpirationBuffer,
    WaitForNewJobs,
    IgnoreCompletion,
    WaitForDatabase,
}

/// Fields that are decoded after the whole file is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeferredSection {
    Requirements,
    FailureHandlers,
    RetryBudget,
    SlurmSchedulers,
    Actions,
    ExecutionConfig,
    ResourceMonitor,
    DynamicJobs,
    Triage,
}

fields! {
    WORKFLOW = "workflow", "A complete spec file.",
        .removed_fields(&[
            ("jobs_sort_method", "it was removed in Torc 1.0; delete it, and use `priority` for jobs that should start first"),
            (
                "compute_node_min_time_for_new_jobs_seconds",
                "it does not belong in a spec; remove it",
            ),
        ]);
    WorkflowField:
    WorkflowField::Version => SpecField::optional("version", FieldType::Integer(1, 1),
        "The version of the spec format.").default("1"),
    WorkflowField::Name => SpecField::required("name", FieldType::Name,
        "Name of the workflow in listings; need not be unique."),
    WorkflowField::User => SpecField::optional("user", FieldType::Name,
        "Owner of the workflow; for information only.").default("the current user").foreign_names(&["owner"]),
    WorkflowField::Description => SpecField::optional("description", FieldType::Text,
        "Description of the workflow; for information only."),
    WorkflowField::Project => SpecField::optional("project", FieldType::Name,
        "Project of the workflow; for information and filters."),
    WorkflowField::Metadata => SpecField::optional("metadata", FieldType::JsonMap,
        "Free data that is stored with the workflow.").foreign_names(&["meta", "annotations"]),
    WorkflowField::Variables => SpecField::optional("variables", FieldType::Constants,
        "Constants: `{name}` is replaced by the value in every text.").foreign_names(&["vars", "constants"]),
    WorkflowField::Parameters => SpecField::optional("parameters", FieldType::Parameters,
        "Parameters that jobs, files and user data can refer to in `use_parameters`.").foreign_names(&["params", "matrix"]),
    WorkflowField::ParametersFile => SpecField::optional("parameters_file", FieldType::NonBlank,
        "A table (CSV, JSON, JSONL) that jobs, files and user data can refer to with `use_parameters_file`."),
    WorkflowField::Env => SpecField::optional("env", FieldType::Env,
        "Environment variables for every job.").foreign_names(&["environment"]),
    WorkflowField::Stdio => SpecField::optional("stdio", FieldType::Map(&STDIO),
        "Which output of jobs is kept."),
    WorkflowField::Jobs => SpecField::required("jobs", FieldType::List(&FieldType::Map(&JOB)),
        "The jobs; at least one.").node("job").foreign_names(&["tasks", "steps", "rules", "processes"]),
    WorkflowField::Files => SpecField::optional("files", FieldType::List(&FieldType::Map(&FILE)),
        "Files that jobs read and write; they define dependencies.").node("file"),
    WorkflowField::UserData => SpecField::optional("user_data", FieldType::List(&FieldType::Map(&USER_DATA)),
        "JSON values that jobs read and write; they define dependencies."),
    WorkflowField::Deferred(DeferredSection::Requirements) => SpecField::optional("resource_requirements",
        FieldType::List(&FieldType::Map(&REQUIREMENTS)),
        "Named resource requirements for jobs.").foreign_names(&["resources", "requirements"]),
    WorkflowField::Limits => SpecField::optional("limits", FieldType::Limits(1, MAX_I32),
        "Job limits by name: the maximum number of jobs with this limit that run at once, on all machines together.")
        .foreign_names(&["throttles", "categories", "pools"]),
    WorkflowField::Deferred(DeferredSection::FailureHandlers) => SpecField::optional("failure_handlers",
        FieldType::List(&FieldType::Map(&FAILURE_HANDLER)),
        "Named handlers for failed jobs.").node("failure_handler"),
    WorkflowField::Deferred(DeferredSection::RetryBudget) => SpecField::optional("retry_budget", FieldType::RetryBudget,
        "Maximum number of retries by failure handlers in a run, for all jobs together; after that no more jobs start.")
        .default("twice the number of jobs, at least 1000").foreign_names(&["max_retries", "retries"]),
    WorkflowField::Deferred(DeferredSection::SlurmSchedulers) => SpecField::optional("slurm_schedulers",
        FieldType::List(&FieldType::Map(&SLURM_SCHEDULER)),
        "Named settings for Slurm allocations.").node("slurm_scheduler"),
    WorkflowField::SlurmDefaults => SpecField::optional("slurm_defaults", FieldType::SlurmOptions,
        "sbatch options for every allocation, without leading dashes."),
    WorkflowField::Deferred(DeferredSection::Actions) => SpecField::optional("actions", FieldType::List(&FieldType::Map(&ACTION)),
        "Actions at points of the workflow, for example before the first job.").node("action").foreign_names(&["hooks", "events"]),
    WorkflowField::Deferred(DeferredSection::ExecutionConfig) => SpecField::optional("execution_config", FieldType::Map(&EXECUTION_CONFIG),
        "How jobs are started and terminated."),
    WorkflowField::Deferred(DeferredSection::ResourceMonitor) => SpecField::optional("resource_monitor", FieldType::Map(&RESOURCE_MONITOR),
        "Resource usage to record while jobs run."),
    WorkflowField::Deferred(DeferredSection::DynamicJobs) => SpecField::optional("dynamic_jobs", FieldType::Map(&DYNAMIC_JOBS),
        "Limits for jobs that add jobs."),
    WorkflowField::UsePendingFailed => SpecField::optional("use_pending_failed", FieldType::Boolean,
        "Failures that match no handler wait for a decision instead of failing the job.").default("false"),
    WorkflowField::Deferred(DeferredSection::Triage) => SpecField::optional("triage", FieldType::Map(&TRIAGE),
        "Decisions that agents may make without a person about failures that wait for a decision.").foreign_names(&["triage_policy"]),
    WorkflowField::ChangeDetection => SpecField::optional("change_detection", FieldType::Choice(&["mtime", "content"]),
        "How changed files are detected: by time and size, or by content.").default("mtime"),
    WorkflowField::EnableRoCrate => SpecField::optional("enable_ro_crate", FieldType::Boolean,
        "Accepted for specs of Torc, without effect: this version writes no RO-Crate.").default("false"),
    WorkflowField::AccessGroups => SpecField::optional("access_groups", NAME_LIST,
        "Groups whose members may see the workflow on a server.").node("access_group"),
    WorkflowField::ExpirationBuffer => SpecField::optional("compute_node_expiration_buffer_seconds",
        FieldType::Integer(0, MAX_SECONDS),
        "Seconds before its end at which a worker stops taking jobs; for older specs."),
    WorkflowField::WaitForNewJobs => SpecField::optional("compute_node_wait_for_new_jobs_seconds",
        FieldType::Integer(0, MAX_SECONDS),
        "Seconds after which an idle worker exits; 0: never.").default("90"),
    WorkflowField::IgnoreCompletion => SpecField::optional("compute_node_ignore_workflow_completion", FieldType::Boolean,
        "Workers keep running after the workflow ends.").default("false"),
    WorkflowField::WaitForDatabase => SpecField::optional("compute_node_wait_for_healthy_database_minutes",
        FieldType::Integer(0, MAX_SECONDS),
        "Minutes that a worker waits for a server that does not respond.").default("20"),
}

/// Fields that expand one entry into several.
#[derive(Clone, Copy, Debug)]
pub(super) enum SweepField {
    Parameters,
    Mode,
    UseParameters,
    ParametersFile,
    UseParametersFile,
}

pub(super) const PARAMETER_MODES: &[&str] = &["product", "zip"];

const PARAMETERS: SpecField = SpecField::optional(
    "parameters",
    FieldType::Parameters,
    "Creates one entry per value, or per combination of values; `{name}` is replaced by the value.",
);
const PARAMETER_MODE: SpecField = SpecField::optional(
    "parameter_mode",
    FieldType::Choice(PARAMETER_MODES),
    "`product`: every combination of the values; `zip`: first with first, second with second and so on.",
);
const USE_PARAMETERS: SpecField =
    SpecField::optional("use_parameters", NAME_LIST, "Parameters of the workflow to use here.");
const PARAMETERS_FILE: SpecField = SpecField::optional(
    "parameters_file",
    FieldType::NonBlank,
    "A table (CSV, JSON, JSONL); creates one entry per row.",
);
const USE_PARAMETERS_FILE: SpecField = SpecField::optional(
    "use_parameters_file",
    FieldType::Boolean,
    "Uses the `parameters_file` of the workflow.",
);

#[derive(Clone, Copy, Debug)]
pub(super) enum JobField {
    Name,
    Command,
    DependsOn,
    InputFiles,
    OutputFiles,
    Env,
    Requirements,
    Priority,
    CancelOnBlockingJobFailure,
    Rare(RareJobField),
}

/// Rarely used fields of jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum RareJobField {
    InvocationScript,
    DependsOnRegexes,
    InputFileRegexes,
    OutputFileRegexes,
    InputUserData,
    InputUserDataRegexes,
    OutputUserData,
    OutputUserDataRegexes,
    SupportsTermination,
    FailureHandler,
    Scheduler,
    Labels,
    Sites,
    Limit,
    Stdio,
    Sweep(SweepField),
    Option(JobOptionField),
}

/// A text among the [`JobOptions`].
pub(super) type JobOptionField = fn(&mut JobOptions<NamedText>) -> &mut Option<NamedText>;

/// Resource fields do not belong in a job, because most jobs share them with others.
const USE_REQUIREMENTS_HINT: &str = "it belongs in an entry of the workflow's `resource_requirements`; \
    refer to that entry from the job: `resource_requirements: NAME`";

#[rustfmt::skip]
const MISPLACED_RESOURCE_FIELDS: &[(&str, &str)] = &[
    ("cpus", USE_REQUIREMENTS_HINT),
    ("num_cpus", USE_REQUIREMENTS_HINT),
    ("cores", USE_REQUIREMENTS_HINT),
    ("threads", USE_REQUIREMENTS_HINT),
    ("ncpus", USE_REQUIREMENTS_HINT),
    ("memory", USE_REQUIREMENTS_HINT),
    ("mem", USE_REQUIREMENTS_HINT),
    ("ram", USE_REQUIREMENTS_HINT),
    ("mem_mb", USE_REQUIREMENTS_HINT),
    ("gpus", USE_REQUIREMENTS_HINT),
    ("num_gpus", USE_REQUIREMENTS_HINT),
    ("nodes", USE_REQUIREMENTS_HINT),
    ("num_nodes", USE_REQUIREMENTS_HINT),
    ("runtime", USE_REQUIREMENTS_HINT),
    ("walltime", USE_REQUIREMENTS_HINT),
    ("time", USE_REQUIREMENTS_HINT),
    ("timeout", USE_REQUIREMENTS_HINT),
    ("time_limit", USE_REQUIREMENTS_HINT),
    ("duration", USE_REQUIREMENTS_HINT),
];

fields! {
    JOB = "job", "One job, or one per combination of its parameters.", .named(), .removed_fields(MISPLACED_RESOURCE_FIELDS);
    JobField:
    JobField::Name => SpecField::required("name", FieldType::Name,
        "Unique in the workflow, also after parameter expansion.").foreign_names(&["id"]),
    JobField::Rare(RareJobField::Option(|options| &mut options.description)) => SpecField::optional("description",
        FieldType::NonBlank, "What the job does, for people; shown in lists of jobs."),
    JobField::Command => SpecField::required("command", FieldType::NonBlank,
        "Shell command, run in the directory where the workflow was created.")
        .foreign_names(&["cmd", "script", "shell", "run", "exec", "executable"]),
    JobField::Rare(RareJobField::InvocationScript) => SpecField::optional("invocation_script", FieldType::NonBlank,
        "Text to put before the command: on the same line if it is a single line, else on separate lines."),
    JobField::DependsOn => SpecField::optional("depends_on", NAME_LIST,
        "Jobs that must end before this one starts.")
        .foreign_names(&["needs", "dependencies", "requires", "after", "blocked_by", "parents"]),
    JobField::Rare(RareJobField::DependsOnRegexes) => SpecField::optional("depends_on_regexes", REGEX_LIST,
        "Regular expressions; adds every job whose name matches to `depends_on`."),
    JobField::InputFiles => SpecField::optional("input_files", NAME_LIST,
        "Files that the job reads; it waits for the jobs that write them.").node("input_file").foreign_names(&["inputs"]),
    JobField::Rare(RareJobField::InputFileRegexes) => SpecField::optional("input_file_regexes", REGEX_LIST,
        "Regular expressions; adds every file whose name matches to `input_files`.").node("input_file_regex"),
    JobField::OutputFiles => SpecField::optional("output_files", NAME_LIST,
        "Files that the job writes; they must exist when it ends.").node("output_file").foreign_names(&["outputs"]),
    JobField::Rare(RareJobField::OutputFileRegexes) => SpecField::optional("output_file_regexes", REGEX_LIST,
        "Regular expressions; adds every file whose name matches to `output_files`.").node("output_file_regex"),
    JobField::Rare(RareJobField::InputUserData) => SpecField::optional("input_user_data", NAME_LIST,
        "User data that the job reads; it waits for the jobs that write it."),
    JobField::Rare(RareJobField::InputUserDataRegexes) => SpecField::optional("input_user_data_regexes", REGEX_LIST,
        "Regular expressions; adds all user data whose name matches to `input_user_data`.").node("input_user_data_regex"),
    JobField::Rare(RareJobField::OutputUserData) => SpecField::optional("output_user_data", NAME_LIST,
        "User data that the job writes."),
    JobField::Rare(RareJobField::OutputUserDataRegexes) => SpecField::optional("output_user_data_regexes", REGEX_LIST,
        "Regular expressions; adds all user data whose name matches to `output_user_data`.").node("output_user_data_regex"),
    JobField::Env => SpecField::optional("env", FieldType::Env,
        "Environment variables for this job; they override the workflow's.").foreign_names(&["environment"]),
    JobField::Requirements => SpecField::optional("resource_requirements", FieldType::NonBlank,
        "One of the workflow's `resource_requirements`.").foreign_names(&["resources", "requirements"]),
    JobField::Priority => SpecField::optional("priority", FieldType::Integer(0, MAX_I32),
        "Of the jobs that are ready, those with the highest priority start first.").default("0"),
    JobField::CancelOnBlockingJobFailure => SpecField::optional("cancel_on_blocking_job_failure", FieldType::Boolean,
        "Cancel the job if a job that it depends on does not complete; `false`: run it anyway.").default("true"),
    JobField::Rare(RareJobField::SupportsTermination) => SpecField::optional("supports_termination", FieldType::Boolean,
        "The job saves its state when it is asked to terminate. Every job is asked before it is killed; `false` has no effect.")
        .default("true"),
    JobField::Rare(RareJobField::FailureHandler) => SpecField::optional("failure_handler", FieldType::NonBlank,
        "One of the workflow's `failure_handlers`.").foreign_names(&["retries", "retry", "max_retries"]),
    JobField::Rare(RareJobField::Scheduler) => SpecField::optional("scheduler", FieldType::NonBlank,
        "One of the workflow's `slurm_schedulers`; excludes `labels`."),
    JobField::Rare(RareJobField::Labels) => SpecField::optional("labels", NAME_LIST,
        "Worker labels: only workers with all of them run the job; excludes `scheduler`.").node("label"),
    JobField::Rare(RareJobField::Sites) => SpecField::optional("sites", NAME_LIST,
        "Only workers at one of these sites run the job.").default("anywhere").node("site"),
    JobField::Rare(RareJobField::Limit) => SpecField::optional("limit", FieldType::NonBlank,
        "One of the workflow's `limits`.").foreign_names(&["throttle", "category", "pool"]),
    JobField::Rare(RareJobField::Stdio) => SpecField::optional("stdio", FieldType::Map(&STDIO),
        "Which output of this job is kept; replaces the workflow's setting."),
    JobField::Rare(RareJobField::Sweep(SweepField::Parameters)) => PARAMETERS.foreign_names(&["params", "matrix"]),
    JobField::Rare(RareJobField::Sweep(SweepField::Mode)) => PARAMETER_MODE.default("product"),
    JobField::Rare(RareJobField::Sweep(SweepField::UseParameters)) => USE_PARAMETERS.node("use_parameter"),
    JobField::Rare(RareJobField::Sweep(SweepField::ParametersFile)) => PARAMETERS_FILE,
    JobField::Rare(RareJobField::Sweep(SweepField::UseParametersFile)) => USE_PARAMETERS_FILE.default("false"),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FileField {
    Name,
    Path,
    Identifier,
    Mtime,
    Sweep(SweepField),
}

fields! {
    FILE = "file", "A file that jobs read or write, or one per combination of its parameters.", .named();
    FileField:
    FileField::Name => SpecField::required("name", FieldType::Name,
        "Unique among the files, also after parameter expansion."),
    FileField::Path => SpecField::required("path", FieldType::NonBlank,
        "Path of the file, absolute or relative to the directory where the workflow was created.")
        .foreign_names(&["file", "filename"]),
    FileField::Identifier => SpecField::optional("identifier", FieldType::NonBlank,
        "External identifier (a DOI, a URL), for the RO-Crate."),
    FileField::Mtime => SpecField::optional("st_mtime", FieldType::Number(0.0, 1e12),
        "Last modification time, in seconds since 1970.").foreign_names(&["mtime"]),
    FileField::Sweep(SweepField::Parameters) => PARAMETERS.foreign_names(&["params", "matrix"]),
    FileField::Sweep(SweepField::Mode) => PARAMETER_MODE.default("product"),
    FileField::Sweep(SweepField::UseParameters) => USE_PARAMETERS.node("use_parameter"),
    FileField::Sweep(SweepField::ParametersFile) => PARAMETERS_FILE,
    FileField::Sweep(SweepField::UseParametersFile) => USE_PARAMETERS_FILE.default("false"),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum UserDataField {
    Name,
    Data,
    IsEphemeral,
    Sweep(SweepField),
}

fields! {
    USER_DATA = "user data entry", "A JSON value that jobs read or write, or one per combination of its parameters.", .named();
    UserDataField:
    UserDataField::Name => SpecField::required("name", FieldType::Name,
        "Unique among the user data, also after parameter expansion."),
    UserDataField::Data => SpecField::optional("data", FieldType::Json,
        "Initial value; texts in it may contain `{name}`.").default("nothing").foreign_names(&["value"]),
    UserDataField::IsEphemeral => SpecField::optional("is_ephemeral", FieldType::Boolean,
        "Clear the value before each run.").default("false").foreign_names(&["ephemeral"]),
    UserDataField::Sweep(SweepField::Parameters) => PARAMETERS.foreign_names(&["params", "matrix"]),
    UserDataField::Sweep(SweepField::Mode) => PARAMETER_MODE.default("product"),
    UserDataField::Sweep(SweepField::UseParameters) => USE_PARAMETERS.node("use_parameter"),
    UserDataField::Sweep(SweepField::ParametersFile) => PARAMETERS_FILE,
    UserDataField::Sweep(SweepField::UseParametersFile) => USE_PARAMETERS_FILE.default("false"),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RequirementsField {
    Name,
    Cpus,
    Memory,
    Gpus,
    Nodes,
    Runtime,
}

fields! {
    REQUIREMENTS = "resource requirement", "Resources that a job with this requirement uses while it runs.", .named();
    RequirementsField:
    RequirementsField::Name => SpecField::required("name", FieldType::Name,
        "Unique among the resource requirements."),
    RequirementsField::Cpus => SpecField::required("num_cpus", FieldType::Integer(1, MAX_RESOURCE_COUNT),
        "CPUs reserved for the job.").aliases(&["cpus"]).foreign_names(&["cores", "threads", "ncpus"]),
    RequirementsField::Memory => SpecField::required("memory", FieldType::Size,
        "Memory reserved for the job, and the maximum that it may use.").foreign_names(&["mem", "ram", "mem_mb"]),
    RequirementsField::Gpus => SpecField::optional("num_gpus", FieldType::Integer(0, MAX_RESOURCE_COUNT),
        "GPUs reserved for the job.").default("0").aliases(&["gpus"]),
    RequirementsField::Nodes => SpecField::optional("num_nodes", FieldType::Integer(1, MAX_RESOURCE_COUNT),
        "Machines.").default("1").aliases(&["nodes"]),
    RequirementsField::Runtime => SpecField::optional("runtime", FieldType::Duration,
        "Maximum run time of the job.").default("no limit; plans assume 1h")
        .aliases(&["walltime"]).foreign_names(&["time", "timeout", "time_limit", "duration"]),
}
