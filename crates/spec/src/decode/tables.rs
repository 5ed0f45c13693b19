//! The fields of a workflow spec, one table per kind of map. Whoever adds a field adds it here, and the compiler asks
//! for the rest.

mod handlers;
mod settings;

pub(super) use handlers::{FAILURE_HANDLER, FAILURE_RULE};
pub(crate) use settings::{ACTION, STDIO};
pub(super) use settings::{
    ActionField, DYNAMIC_JOBS, EXECUTION_CONFIG, RESOURCE_MONITOR, SLURM_SCHEDULER, StdioField, TRIAGE,
};

use super::shape::{Field, FieldId, Map, Type, fields};

/// Far above any machine, far below what sums of them could overflow.
const MANY: i64 = 1_000_000;
/// What fits a signed number of 32 bits, as others keep it.
const MOST: i64 = i32::MAX as i64;
/// About 136 years.
const MOST_SECONDS: i64 = u32::MAX as i64;

const NAMES: Type = Type::List(&Type::Filled);
const REGEXES: Type = Type::List(&Type::Regex);

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
    Part(Part),
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
pub(super) enum Part {
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
        .gone(&[
            ("jobs_sort_method", "it is gone since Torc 1.0; remove it, and give jobs that should go first a `priority`"),
            (
                "compute_node_min_time_for_new_jobs_seconds",
                "it has no place in a spec; remove it",
            ),
        ]);
    WorkflowField:
    WorkflowField::Version => Field::optional("version", Type::Integer(1, 1),
        "The version of the spec format.").default("1"),
    WorkflowField::Name => Field::required("name", Type::Name,
        "What the workflow is called in lists; need not be unique."),
    WorkflowField::User => Field::optional("user", Type::Name,
        "Whose workflow it is; for people.").default("whoever runs windlass").elsewhere(&["owner"]),
    WorkflowField::Description => Field::optional("description", Type::Text,
        "What it is for; for people."),
    WorkflowField::Project => Field::optional("project", Type::Name,
        "The project it belongs to; for people and filters."),
    WorkflowField::Metadata => Field::optional("metadata", Type::JsonMap,
        "Anything that should be kept with the workflow.").elsewhere(&["meta", "annotations"]),
    WorkflowField::Variables => Field::optional("variables", Type::Constants,
        "Constants: `{name}` stands for the value in every text.").elsewhere(&["vars", "constants"]),
    WorkflowField::Parameters => Field::optional("parameters", Type::Parameters,
        "Parameters that jobs, files and user data take up with `use_parameters`.").elsewhere(&["params", "matrix"]),
    WorkflowField::ParametersFile => Field::optional("parameters_file", Type::Filled,
        "A table (CSV, JSON, JSONL) that others take up with `use_parameters_file`."),
    WorkflowField::Env => Field::optional("env", Type::Env,
        "Environment variables for every job.").elsewhere(&["environment"]),
    WorkflowField::Stdio => Field::optional("stdio", Type::Map(&STDIO),
        "What is kept of what jobs print."),
    WorkflowField::Jobs => Field::required("jobs", Type::List(&Type::Map(&JOB)),
        "What is to be done; at least one.").node("job").elsewhere(&["tasks", "steps", "rules", "processes"]),
    WorkflowField::Files => Field::optional("files", Type::List(&Type::Map(&FILE)),
        "Files that jobs read and write; they order the jobs.").node("file"),
    WorkflowField::UserData => Field::optional("user_data", Type::List(&Type::Map(&USER_DATA)),
        "JSON values that jobs read and write; they order the jobs."),
    WorkflowField::Part(Part::Requirements) => Field::optional("resource_requirements",
        Type::List(&Type::Map(&REQUIREMENTS)),
        "What jobs may ask for, by name.").elsewhere(&["resources", "requirements"]),
    WorkflowField::Limits => Field::optional("limits", Type::Limits(1, MOST),
        "How many jobs run at once of those that name a limit, by its name: all of them together, on all machines.")
        .elsewhere(&["throttles", "categories", "pools"]),
    WorkflowField::Part(Part::FailureHandlers) => Field::optional("failure_handlers",
        Type::List(&Type::Map(&FAILURE_HANDLER)),
        "What to do when jobs fail, by name.").node("failure_handler"),
    WorkflowField::Part(Part::RetryBudget) => Field::optional("retry_budget", Type::RetryBudget,
        "So many retries by failure handlers in a run, all jobs together; when they are used up, no more jobs are started.")
        .default("two for each job, at least 1000").elsewhere(&["max_retries", "retries"]),
    WorkflowField::Part(Part::SlurmSchedulers) => Field::optional("slurm_schedulers",
        Type::List(&Type::Map(&SLURM_SCHEDULER)),
        "What is asked of Slurm, by name.").node("slurm_scheduler"),
    WorkflowField::SlurmDefaults => Field::optional("slurm_defaults", Type::SlurmOptions,
        "Options of sbatch for every allocation, without their dashes."),
    WorkflowField::Part(Part::Actions) => Field::optional("actions", Type::List(&Type::Map(&ACTION)),
        "What else happens when something happened.").node("action").elsewhere(&["hooks", "events"]),
    WorkflowField::Part(Part::ExecutionConfig) => Field::optional("execution_config", Type::Map(&EXECUTION_CONFIG),
        "How jobs are started and ended."),
    WorkflowField::Part(Part::ResourceMonitor) => Field::optional("resource_monitor", Type::Map(&RESOURCE_MONITOR),
        "What is measured while jobs run."),
    WorkflowField::Part(Part::DynamicJobs) => Field::optional("dynamic_jobs", Type::Map(&DYNAMIC_JOBS),
        "Limits for jobs that add jobs."),
    WorkflowField::UsePendingFailed => Field::optional("use_pending_failed", Type::Boolean,
        "A failure that no handler knows waits for a decision instead of failing the job.").default("false"),
    WorkflowField::Part(Part::Triage) => Field::optional("triage", Type::Map(&TRIAGE),
        "What agents may decide alone about failures that wait for a decision.").elsewhere(&["triage_policy"]),
    WorkflowField::ChangeDetection => Field::optional("change_detection", Type::Choice(&["mtime", "content"]),
        "How a changed file is told from an unchanged one: by time and size, or by what is in it.").default("mtime"),
    WorkflowField::EnableRoCrate => Field::optional("enable_ro_crate", Type::Boolean,
        "Kept for specs of Torc, without effect: this version writes no RO-Crate.").default("false"),
    WorkflowField::AccessGroups => Field::optional("access_groups", NAMES,
        "Groups that may see the workflow on a server.").node("access_group"),
    WorkflowField::ExpirationBuffer => Field::optional("compute_node_expiration_buffer_seconds",
        Type::Integer(0, MOST_SECONDS),
        "A worker takes no more jobs so many seconds before its time is up; kept for older specs."),
    WorkflowField::WaitForNewJobs => Field::optional("compute_node_wait_for_new_jobs_seconds",
        Type::Integer(0, MOST_SECONDS),
        "An idle worker leaves after so many seconds; 0: never.").default("90"),
    WorkflowField::IgnoreCompletion => Field::optional("compute_node_ignore_workflow_completion", Type::Boolean,
        "Workers stay when the workflow is over.").default("false"),
    WorkflowField::WaitForDatabase => Field::optional("compute_node_wait_for_healthy_database_minutes",
        Type::Integer(0, MOST_SECONDS),
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

const PARAMETERS: Field = Field::optional(
    "parameters",
    Type::Parameters,
    "Makes one for each value, or for each combination of values; `{name}` stands for the value.",
);
const PARAMETER_MODE: Field = Field::optional(
    "parameter_mode",
    Type::Choice(PARAMETER_MODES),
    "Every combination of the values, or first with first, second with second and so on.",
);
const USE_PARAMETERS: Field =
    Field::optional("use_parameters", NAMES, "Parameters of the workflow that are used here.");
const PARAMETERS_FILE: Field =
    Field::optional("parameters_file", Type::Filled, "A table (CSV, JSON, JSONL); makes one for each row.");
const USE_PARAMETERS_FILE: Field =
    Field::optional("use_parameters_file", Type::Boolean, "Uses the `parameters_file` of the workflow.");

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
    More(MoreField),
}

/// What few jobs have.
#[derive(Clone, Copy, Debug)]
pub(super) enum MoreField {
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
const IN_REQUIREMENTS: &str = "it belongs in an entry of the workflow's `resource_requirements`; \
    the job names that entry: `resource_requirements: NAME`";

#[rustfmt::skip]
const NEEDS: &[(&str, &str)] = &[
    ("cpus", IN_REQUIREMENTS),
    ("num_cpus", IN_REQUIREMENTS),
    ("cores", IN_REQUIREMENTS),
    ("threads", IN_REQUIREMENTS),
    ("ncpus", IN_REQUIREMENTS),
    ("memory", IN_REQUIREMENTS),
    ("mem", IN_REQUIREMENTS),
    ("ram", IN_REQUIREMENTS),
    ("mem_mb", IN_REQUIREMENTS),
    ("gpus", IN_REQUIREMENTS),
    ("num_gpus", IN_REQUIREMENTS),
    ("nodes", IN_REQUIREMENTS),
    ("num_nodes", IN_REQUIREMENTS),
    ("runtime", IN_REQUIREMENTS),
    ("walltime", IN_REQUIREMENTS),
    ("time", IN_REQUIREMENTS),
    ("timeout", IN_REQUIREMENTS),
    ("time_limit", IN_REQUIREMENTS),
    ("duration", IN_REQUIREMENTS),
];

fields! {
    JOB = "job", "One job, or as many as its parameters make.", .named(), .gone(NEEDS);
    JobField:
    JobField::Name => Field::required("name", Type::Name,
        "Unique in the workflow, also after parameters are filled in.").elsewhere(&["id"]),
    JobField::Command => Field::required("command", Type::Filled,
        "Run by a shell, in the directory where the workflow was created.")
        .elsewhere(&["cmd", "script", "shell", "run", "exec", "executable"]),
    JobField::More(MoreField::InvocationScript) => Field::optional("invocation_script", Type::Filled,
        "Put before the command: on the same line if it is one line, else on lines of its own."),
    JobField::DependsOn => Field::optional("depends_on", NAMES,
        "Jobs that must be over before this one starts.")
        .elsewhere(&["needs", "dependencies", "requires", "after", "blocked_by", "parents"]),
    JobField::More(MoreField::DependsOnRegexes) => Field::optional("depends_on_regexes", REGEXES,
        "The same for every job whose name matches."),
    JobField::InputFiles => Field::optional("input_files", NAMES,
        "Files that the job reads; it waits for the jobs that write them.").node("input_file").elsewhere(&["inputs"]),
    JobField::More(MoreField::InputFileRegexes) => Field::optional("input_file_regexes", REGEXES,
        "The same for every file whose name matches.").node("input_file_regex"),
    JobField::OutputFiles => Field::optional("output_files", NAMES,
        "Files that the job writes; they must be there when it is done.").node("output_file").elsewhere(&["outputs"]),
    JobField::More(MoreField::OutputFileRegexes) => Field::optional("output_file_regexes", REGEXES,
        "The same for every file whose name matches.").node("output_file_regex"),
    JobField::More(MoreField::InputUserData) => Field::optional("input_user_data", NAMES,
        "User data that the job reads; it waits for the jobs that write it."),
    JobField::More(MoreField::InputUserDataRegexes) => Field::optional("input_user_data_regexes", REGEXES,
        "The same for all user data whose name matches.").node("input_user_data_regex"),
    JobField::More(MoreField::OutputUserData) => Field::optional("output_user_data", NAMES,
        "User data that the job writes."),
    JobField::More(MoreField::OutputUserDataRegexes) => Field::optional("output_user_data_regexes", REGEXES,
        "The same for all user data whose name matches.").node("output_user_data_regex"),
    JobField::Env => Field::optional("env", Type::Env,
        "Environment variables for this job; they win over the workflow's.").elsewhere(&["environment"]),
    JobField::Requirements => Field::optional("resource_requirements", Type::Filled,
        "One of the workflow's `resource_requirements`.").elsewhere(&["resources", "requirements"]),
    JobField::Priority => Field::optional("priority", Type::Integer(0, MOST),
        "Among the jobs that may start, the highest goes first.").default("0"),
    JobField::CancelOnBlockingJobFailure => Field::optional("cancel_on_blocking_job_failure", Type::Boolean,
        "Canceled when a job that it waits for did not complete; `false`: it runs all the same.").default("true"),
    JobField::More(MoreField::SupportsTermination) => Field::optional("supports_termination", Type::Boolean,
        "The job saves its state when it is asked to end. Every job is asked before it is killed; `false` has no effect.")
        .default("true"),
    JobField::More(MoreField::FailureHandler) => Field::optional("failure_handler", Type::Filled,
        "One of the workflow's `failure_handlers`.").elsewhere(&["retries", "retry", "max_retries"]),
    JobField::More(MoreField::Scheduler) => Field::optional("scheduler", Type::Filled,
        "One of the workflow's `slurm_schedulers`; excludes `labels`."),
    JobField::More(MoreField::Labels) => Field::optional("labels", NAMES,
        "Only workers that carry all of these take the job; excludes `scheduler`.").node("label"),
    JobField::More(MoreField::Sites) => Field::optional("sites", NAMES,
        "Only workers at one of these sites take the job.").default("anywhere").node("site"),
    JobField::More(MoreField::Limit) => Field::optional("limit", Type::Filled,
        "One of the workflow's `limits`.").elsewhere(&["throttle", "category", "pool"]),
    JobField::More(MoreField::Stdio) => Field::optional("stdio", Type::Map(&STDIO),
        "What is kept of what this job prints; replaces the workflow's."),
    JobField::More(MoreField::Sweep(SweepField::Parameters)) => PARAMETERS.elsewhere(&["params", "matrix"]),
    JobField::More(MoreField::Sweep(SweepField::Mode)) => PARAMETER_MODE.default("product"),
    JobField::More(MoreField::Sweep(SweepField::UseParameters)) => USE_PARAMETERS.node("use_parameter"),
    JobField::More(MoreField::Sweep(SweepField::ParametersFile)) => PARAMETERS_FILE,
    JobField::More(MoreField::Sweep(SweepField::UseParametersFile)) => USE_PARAMETERS_FILE.default("false"),
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
    FileField::Name => Field::required("name", Type::Name,
        "Unique among the files, also after parameters are filled in."),
    FileField::Path => Field::required("path", Type::Filled,
        "Where it is; from the directory where the workflow was created, if not absolute.")
        .elsewhere(&["file", "filename"]),
    FileField::Identifier => Field::optional("identifier", Type::Filled,
        "What it is called elsewhere (a DOI, a URL), for the RO-Crate."),
    FileField::Mtime => Field::optional("st_mtime", Type::Number(0.0, 1e12),
        "When it was last changed, in seconds since 1970.").elsewhere(&["mtime"]),
    FileField::Sweep(SweepField::Parameters) => PARAMETERS.elsewhere(&["params", "matrix"]),
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
    UserDataField::Name => Field::required("name", Type::Name,
        "Unique among the user data, also after parameters are filled in."),
    UserDataField::Data => Field::optional("data", Type::Json,
        "What it holds at first; texts inside may hold `{name}`.").default("nothing").elsewhere(&["value"]),
    UserDataField::IsEphemeral => Field::optional("is_ephemeral", Type::Boolean,
        "Emptied before each run.").default("false").elsewhere(&["ephemeral"]),
    UserDataField::Sweep(SweepField::Parameters) => PARAMETERS.elsewhere(&["params", "matrix"]),
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
    RequirementsField::Name => Field::required("name", Type::Name,
        "Unique among the requirements."),
    RequirementsField::Cpus => Field::required("num_cpus", Type::Integer(1, MANY),
        "CPUs that are counted as taken.").aliases(&["cpus"]).elsewhere(&["cores", "threads", "ncpus"]),
    RequirementsField::Memory => Field::required("memory", Type::Size,
        "Memory that is counted as taken, and the most that the job may use.").elsewhere(&["mem", "ram", "mem_mb"]),
    RequirementsField::Gpus => Field::optional("num_gpus", Type::Integer(0, MANY),
        "GPUs that the job gets to itself.").default("0").aliases(&["gpus"]),
    RequirementsField::Nodes => Field::optional("num_nodes", Type::Integer(1, MANY),
        "Machines.").default("1").aliases(&["nodes"]),
    RequirementsField::Runtime => Field::optional("runtime", Type::Duration,
        "The longest that the job may run.").default("no limit; counts as 1h in plans")
        .aliases(&["walltime"]).elsewhere(&["time", "timeout", "time_limit", "duration"]),
}
