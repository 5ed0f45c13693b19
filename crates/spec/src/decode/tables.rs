//! The fields of a workflow spec, one table per kind of map. Whoever adds a field adds it here, and the compiler asks
//! for the rest.

mod handlers;
mod settings;

pub(super) use handlers::{FAILURE_HANDLER, FAILURE_RULE};
pub(crate) use settings::{ACTION, STDIO};
pub(super) use settings::{
    ActionField, DYNAMIC_JOBS, EXECUTION_CONFIG, RESOURCE_MONITOR, SLURM_SCHEDULER, StdioField, TRIAGE,
};

use super::field_tables::{FieldId, FieldTable, FieldType, SpecField, fields};

/// Far above any machine, far below what sums of them could overflow.
const MAX_RESOURCE_COUNT: i64 = windlass_types::worker_bounds::MAX_RESOURCE_COUNT as i64;
/// What fits a signed number of 32 bits, as others keep it.
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

/// What is decoded when the whole file is read.
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
    WORKFLOW = "workflow", "A whole spec file.",
        .removed_fields(&[
            ("jobs_sort_method", "it is gone since Torc 1.0; remove it, and give jobs that should go first a `priority`"),
            (
                "compute_node_min_time_for_new_jobs_seconds",
                "it has no place in a spec; remove it",
            ),
        ]);
    WorkflowField:
    WorkflowField::Version => SpecField::optional("version", FieldType::Integer(1, 1),
        "The version of the spec format.").default("1"),
    WorkflowField::Name => SpecField::required("name", FieldType::Name,
        "What the workflow is called in lists; need not be unique."),
    WorkflowField::User => SpecField::optional("user", FieldType::Name,
        "Whose workflow it is; for people.").default("whoever runs windlass").foreign_names(&["owner"]),
    WorkflowField::Description => SpecField::optional("description", FieldType::Text,
        "What it is for; for people."),
    WorkflowField::Project => SpecField::optional("project", FieldType::Name,
        "The project it belongs to; for people and filters."),
    WorkflowField::Metadata => SpecField::optional("metadata", FieldType::JsonMap,
        "Anything that should be kept with the workflow.").foreign_names(&["meta", "annotations"]),
    WorkflowField::Variables => SpecField::optional("variables", FieldType::Constants,
        "Constants: `{name}` stands for the value in every text.").foreign_names(&["vars", "constants"]),
    WorkflowField::Parameters => SpecField::optional("parameters", FieldType::Parameters,
        "Parameters that jobs, files and user data take up with `use_parameters`.").foreign_names(&["params", "matrix"]),
    WorkflowField::ParametersFile => SpecField::optional("parameters_file", FieldType::NonBlank,
        "A table (CSV, JSON, JSONL) that others take up with `use_parameters_file`."),
    WorkflowField::Env => SpecField::optional("env", FieldType::Env,
        "Environment variables for every job.").foreign_names(&["environment"]),
    WorkflowField::Stdio => SpecField::optional("stdio", FieldType::Map(&STDIO),
        "What is kept of what jobs print."),
    WorkflowField::Jobs => SpecField::required("jobs", FieldType::List(&FieldType::Map(&JOB)),
        "What is to be done; at least one.").node("job").foreign_names(&["tasks", "steps", "rules", "processes"]),
    WorkflowField::Files => SpecField::optional("files", FieldType::List(&FieldType::Map(&FILE)),
        "Files that jobs read and write; they order the jobs.").node("file"),
    WorkflowField::UserData => SpecField::optional("user_data", FieldType::List(&FieldType::Map(&USER_DATA)),
        "JSON values that jobs read and write; they order the jobs."),
    WorkflowField::Deferred(DeferredSection::Requirements) => SpecField::optional("resource_requirements",
        FieldType::List(&FieldType::Map(&REQUIREMENTS)),
        "What jobs may ask for, by name.").foreign_names(&["resources", "requirements"]),
    WorkflowField::Limits => SpecField::optional("limits", FieldType::Limits(1, MAX_I32),
        "How many jobs run at once of those that name a limit, by its name: all of them together, on all machines.")
        .foreign_names(&["throttles", "categories", "pools"]),
    WorkflowField::Deferred(DeferredSection::FailureHandlers) => SpecField::optional("failure_handlers",
        FieldType::List(&FieldType::Map(&FAILURE_HANDLER)),
        "What to do when jobs fail, by name.").node("failure_handler"),
    WorkflowField::Deferred(DeferredSection::RetryBudget) => SpecField::optional("retry_budget", FieldType::RetryBudget,
        "So many retries by failure handlers in a run, all jobs together; when they are used up, no more jobs are started.")
        .default("two for each job, at least 1000").foreign_names(&["max_retries", "retries"]),
    WorkflowField::Deferred(DeferredSection::SlurmSchedulers) => SpecField::optional("slurm_schedulers",
        FieldType::List(&FieldType::Map(&SLURM_SCHEDULER)),
        "What is asked of Slurm, by name.").node("slurm_scheduler"),
    WorkflowField::SlurmDefaults => SpecField::optional("slurm_defaults", FieldType::SlurmOptions,
        "Options of sbatch for every allocation, without their dashes."),
    WorkflowField::Deferred(DeferredSection::Actions) => SpecField::optional("actions", FieldType::List(&FieldType::Map(&ACTION)),
        "What else happens when something happened.").node("action").foreign_names(&["hooks", "events"]),
    WorkflowField::Deferred(DeferredSection::ExecutionConfig) => SpecField::optional("execution_config", FieldType::Map(&EXECUTION_CONFIG),
        "How jobs are started and ended."),
    WorkflowField::Deferred(DeferredSection::ResourceMonitor) => SpecField::optional("resource_monitor", FieldType::Map(&RESOURCE_MONITOR),
        "What is measured while jobs run."),
    WorkflowField::Deferred(DeferredSection::DynamicJobs) => SpecField::optional("dynamic_jobs", FieldType::Map(&DYNAMIC_JOBS),
        "Limits for jobs that add jobs."),
    WorkflowField::UsePendingFailed => SpecField::optional("use_pending_failed", FieldType::Boolean,
        "A failure that no handler knows waits for a decision instead of failing the job.").default("false"),
    WorkflowField::Deferred(DeferredSection::Triage) => SpecField::optional("triage", FieldType::Map(&TRIAGE),
        "What agents may decide alone about failures that wait for a decision.").foreign_names(&["triage_policy"]),
    WorkflowField::ChangeDetection => SpecField::optional("change_detection", FieldType::Choice(&["mtime", "content"]),
        "How a changed file is told from an unchanged one: by time and size, or by what is in it.").default("mtime"),
    WorkflowField::EnableRoCrate => SpecField::optional("enable_ro_crate", FieldType::Boolean,
        "Kept for specs of Torc, without effect: this version writes no RO-Crate.").default("false"),
    WorkflowField::AccessGroups => SpecField::optional("access_groups", NAME_LIST,
        "Groups that may see the workflow on a server.").node("access_group"),
    WorkflowField::ExpirationBuffer => SpecField::optional("compute_node_expiration_buffer_seconds",
        FieldType::Integer(0, MAX_SECONDS),
        "A worker takes no more jobs so many seconds before its time is up; kept for older specs."),
    WorkflowField::WaitForNewJobs => SpecField::optional("compute_node_wait_for_new_jobs_seconds",
        FieldType::Integer(0, MAX_SECONDS),
        "An idle worker leaves after so many seconds; 0: never.").default("90"),
    WorkflowField::IgnoreCompletion => SpecField::optional("compute_node_ignore_workflow_completion", FieldType::Boolean,
        "Workers stay when the workflow is over.").default("false"),
    WorkflowField::WaitForDatabase => SpecField::optional("compute_node_wait_for_healthy_database_minutes",
        FieldType::Integer(0, MAX_SECONDS),
        "A worker waits so many minutes for a server that does not answer.").default("20"),
}

/// What makes several of one entry.
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
    "Makes one for each value, or for each combination of values; `{name}` stands for the value.",
);
const PARAMETER_MODE: SpecField = SpecField::optional(
    "parameter_mode",
    FieldType::Choice(PARAMETER_MODES),
    "Every combination of the values, or first with first, second with second and so on.",
);
const USE_PARAMETERS: SpecField =
    SpecField::optional("use_parameters", NAME_LIST, "Parameters of the workflow that are used here.");
const PARAMETERS_FILE: SpecField = SpecField::optional(
    "parameters_file",
    FieldType::NonBlank,
    "A table (CSV, JSON, JSONL); makes one for each row.",
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

/// What few jobs have.
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
}

/// What a job needs does not stand in the job, for most jobs share it with others.
const USE_REQUIREMENTS_HINT: &str = "it belongs in an entry of the workflow's `resource_requirements`; \
    the job names that entry: `resource_requirements: NAME`";

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
    JOB = "job", "One job, or as many as its parameters make.", .named(), .removed_fields(MISPLACED_RESOURCE_FIELDS);
    JobField:
    JobField::Name => SpecField::required("name", FieldType::Name,
        "Unique in the workflow, also after parameters are filled in.").foreign_names(&["id"]),
    JobField::Command => SpecField::required("command", FieldType::NonBlank,
        "Run by a shell, in the directory where the workflow was created.")
        .foreign_names(&["cmd", "script", "shell", "run", "exec", "executable"]),
    JobField::Rare(RareJobField::InvocationScript) => SpecField::optional("invocation_script", FieldType::NonBlank,
        "Put before the command: on the same line if it is one line, else on lines of its own."),
    JobField::DependsOn => SpecField::optional("depends_on", NAME_LIST,
        "Jobs that must be over before this one starts.")
        .foreign_names(&["needs", "dependencies", "requires", "after", "blocked_by", "parents"]),
    JobField::Rare(RareJobField::DependsOnRegexes) => SpecField::optional("depends_on_regexes", REGEX_LIST,
        "The same for every job whose name matches."),
    JobField::InputFiles => SpecField::optional("input_files", NAME_LIST,
        "Files that the job reads; it waits for the jobs that write them.").node("input_file").foreign_names(&["inputs"]),
    JobField::Rare(RareJobField::InputFileRegexes) => SpecField::optional("input_file_regexes", REGEX_LIST,
        "The same for every file whose name matches.").node("input_file_regex"),
    JobField::OutputFiles => SpecField::optional("output_files", NAME_LIST,
        "Files that the job writes; they must be there when it is done.").node("output_file").foreign_names(&["outputs"]),
    JobField::Rare(RareJobField::OutputFileRegexes) => SpecField::optional("output_file_regexes", REGEX_LIST,
        "The same for every file whose name matches.").node("output_file_regex"),
    JobField::Rare(RareJobField::InputUserData) => SpecField::optional("input_user_data", NAME_LIST,
        "User data that the job reads; it waits for the jobs that write it."),
    JobField::Rare(RareJobField::InputUserDataRegexes) => SpecField::optional("input_user_data_regexes", REGEX_LIST,
        "The same for all user data whose name matches.").node("input_user_data_regex"),
    JobField::Rare(RareJobField::OutputUserData) => SpecField::optional("output_user_data", NAME_LIST,
        "User data that the job writes."),
    JobField::Rare(RareJobField::OutputUserDataRegexes) => SpecField::optional("output_user_data_regexes", REGEX_LIST,
        "The same for all user data whose name matches.").node("output_user_data_regex"),
    JobField::Env => SpecField::optional("env", FieldType::Env,
        "Environment variables for this job; they win over the workflow's.").foreign_names(&["environment"]),
    JobField::Requirements => SpecField::optional("resource_requirements", FieldType::NonBlank,
        "One of the workflow's `resource_requirements`.").foreign_names(&["resources", "requirements"]),
    JobField::Priority => SpecField::optional("priority", FieldType::Integer(0, MAX_I32),
        "Among the jobs that may start, the highest goes first.").default("0"),
    JobField::CancelOnBlockingJobFailure => SpecField::optional("cancel_on_blocking_job_failure", FieldType::Boolean,
        "Canceled when a job that it waits for did not complete; `false`: it runs all the same.").default("true"),
    JobField::Rare(RareJobField::SupportsTermination) => SpecField::optional("supports_termination", FieldType::Boolean,
        "The job saves its state when it is asked to end. Every job is asked before it is killed; `false` has no effect.")
        .default("true"),
    JobField::Rare(RareJobField::FailureHandler) => SpecField::optional("failure_handler", FieldType::NonBlank,
        "One of the workflow's `failure_handlers`.").foreign_names(&["retries", "retry", "max_retries"]),
    JobField::Rare(RareJobField::Scheduler) => SpecField::optional("scheduler", FieldType::NonBlank,
        "One of the workflow's `slurm_schedulers`; excludes `labels`."),
    JobField::Rare(RareJobField::Labels) => SpecField::optional("labels", NAME_LIST,
        "Only workers that carry all of these take the job; excludes `scheduler`.").node("label"),
    JobField::Rare(RareJobField::Sites) => SpecField::optional("sites", NAME_LIST,
        "Only workers at one of these sites take the job.").default("anywhere").node("site"),
    JobField::Rare(RareJobField::Limit) => SpecField::optional("limit", FieldType::NonBlank,
        "One of the workflow's `limits`.").foreign_names(&["throttle", "category", "pool"]),
    JobField::Rare(RareJobField::Stdio) => SpecField::optional("stdio", FieldType::Map(&STDIO),
        "What is kept of what this job prints; replaces the workflow's."),
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
    FILE = "file", "A file that jobs read or write, or as many as its parameters make.", .named();
    FileField:
    FileField::Name => SpecField::required("name", FieldType::Name,
        "Unique among the files, also after parameters are filled in."),
    FileField::Path => SpecField::required("path", FieldType::NonBlank,
        "Where it is; from the directory where the workflow was created, if not absolute.")
        .foreign_names(&["file", "filename"]),
    FileField::Identifier => SpecField::optional("identifier", FieldType::NonBlank,
        "What it is called elsewhere (a DOI, a URL), for the RO-Crate."),
    FileField::Mtime => SpecField::optional("st_mtime", FieldType::Number(0.0, 1e12),
        "When it was last changed, in seconds since 1970.").foreign_names(&["mtime"]),
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
    USER_DATA = "user data entry", "A JSON value that jobs read or write, or as many as its parameters make.", .named();
    UserDataField:
    UserDataField::Name => SpecField::required("name", FieldType::Name,
        "Unique among the user data, also after parameters are filled in."),
    UserDataField::Data => SpecField::optional("data", FieldType::Json,
        "What it holds at first; texts inside may hold `{name}`.").default("nothing").foreign_names(&["value"]),
    UserDataField::IsEphemeral => SpecField::optional("is_ephemeral", FieldType::Boolean,
        "Emptied before each run.").default("false").foreign_names(&["ephemeral"]),
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
    REQUIREMENTS = "resource requirement", "What a job that names it takes up while it runs.", .named();
    RequirementsField:
    RequirementsField::Name => SpecField::required("name", FieldType::Name,
        "Unique among the requirements."),
    RequirementsField::Cpus => SpecField::required("num_cpus", FieldType::Integer(1, MAX_RESOURCE_COUNT),
        "CPUs that are counted as taken.").aliases(&["cpus"]).foreign_names(&["cores", "threads", "ncpus"]),
    RequirementsField::Memory => SpecField::required("memory", FieldType::Size,
        "Memory that is counted as taken, and the most that the job may use.").foreign_names(&["mem", "ram", "mem_mb"]),
    RequirementsField::Gpus => SpecField::optional("num_gpus", FieldType::Integer(0, MAX_RESOURCE_COUNT),
        "GPUs that the job gets to itself.").default("0").aliases(&["gpus"]),
    RequirementsField::Nodes => SpecField::optional("num_nodes", FieldType::Integer(1, MAX_RESOURCE_COUNT),
        "Machines.").default("1").aliases(&["nodes"]),
    RequirementsField::Runtime => SpecField::optional("runtime", FieldType::Duration,
        "The longest that the job may run.").default("no limit; counts as 1h in plans")
        .aliases(&["walltime"]).foreign_names(&["time", "timeout", "time_limit", "duration"]),
}
