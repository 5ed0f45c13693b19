//! Which nodes a spec in KDL has, and which field each of them is. The only format that needs this: the others write
//! the fields themselves.

/// A kind of map with known fields.
#[derive(Debug)]
pub(crate) struct Kind {
    /// What such a map is: "job".
    pub(crate) what: &'static str,
    /// Its name is the first value of its node.
    pub(crate) has_name: bool,
    pub(crate) fields: &'static [Field],
}

#[derive(Debug)]
pub(crate) struct Field {
    /// Of the spec.
    pub(crate) key: &'static str,
    /// What its node may be called. The first is how we write it.
    pub(crate) nodes: &'static [&'static str],
    pub(crate) form: Form,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// A scalar that is taken as written, or `true` and `false`.
    Text,
    Number,
    /// A list of texts: several values, several nodes, or both.
    Texts,
    Numbers,
    Map(&'static Kind),
    /// A list of maps, a node for each.
    Entries(&'static Kind),
    /// Anything.
    Any,
    /// A map of anything.
    AnyMap,
}

impl Kind {
    pub(crate) fn field_of_node(&self, node: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.nodes.contains(&node))
    }

    pub(crate) fn field_of_key(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.key == key)
    }

    pub(crate) fn article(&self) -> &'static str {
        if self.what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
    }
}

const fn field(key: &'static str, nodes: &'static [&'static str], form: Form) -> Field {
    Field { key, nodes, form }
}

/// Fields whose nodes have the name of the field: `same![Text: a, b]`.
macro_rules! fields {
    ($($form:expr => $key:literal $(= $($node:literal)|+)?),* $(,)?) => {
        &[$(field($key, fields!(@nodes $key $(= $($node)|+)?), $form)),*]
    };
    (@nodes $key:literal) => { &[$key] };
    (@nodes $key:literal = $($node:literal)|+) => { &[$($node),+] };
}

use Form::{Any, AnyMap, Entries, Map, Number, Numbers, Text, Texts};

pub(crate) static WORKFLOW: Kind = Kind {
    what: "workflow",
    has_name: false,
    fields: fields![
        Text => "name",
        Text => "user",
        Text => "description",
        Text => "project",
        AnyMap => "metadata",
        AnyMap => "parameters",
        Text => "parameters_file",
        AnyMap => "variables",
        AnyMap => "env",
        Map(&STDIO) => "stdio",
        Texts => "access_groups" = "access_group" | "access_groups",
        Text => "use_pending_failed",
        Text => "enable_ro_crate",
        Text => "change_detection",
        Number => "compute_node_expiration_buffer_seconds",
        Number => "compute_node_wait_for_new_jobs_seconds",
        Text => "compute_node_ignore_workflow_completion",
        Number => "compute_node_wait_for_healthy_database_minutes",
        Text => "jobs_sort_method",
        Map(&DYNAMIC_JOBS) => "dynamic_jobs",
        Map(&EXECUTION_CONFIG) => "execution_config",
        Map(&RESOURCE_MONITOR) => "resource_monitor",
        AnyMap => "slurm_defaults",
        Entries(&REQUIREMENTS) => "resource_requirements",
        Entries(&FAILURE_HANDLER) => "failure_handlers" = "failure_handler",
        Entries(&SLURM_SCHEDULER) => "slurm_schedulers" = "slurm_scheduler",
        Entries(&FILE) => "files" = "file",
        Entries(&USER_DATA) => "user_data",
        Entries(&JOB) => "jobs" = "job",
        Entries(&ACTION) => "actions" = "action",
    ],
};

pub(crate) static JOB: Kind = Kind {
    what: "job",
    has_name: true,
    fields: fields![
        Text => "name",
        Text => "command",
        Text => "invocation_script",
        AnyMap => "env",
        Text => "cancel_on_blocking_job_failure",
        Text => "supports_termination",
        Text => "resource_requirements",
        Text => "failure_handler",
        Texts => "depends_on" = "depends_on" | "depends_on_job" | "depends_on_jobs",
        Texts => "depends_on_regexes" = "depends_on_regexes" | "depends_on_regex",
        Texts => "input_files" = "input_file" | "input_files",
        Texts => "input_file_regexes" = "input_file_regexes" | "input_file_regex",
        Texts => "output_files" = "output_file" | "output_files",
        Texts => "output_file_regexes" = "output_file_regexes" | "output_file_regex",
        Texts => "input_user_data",
        Texts => "input_user_data_regexes" = "input_user_data_regexes" | "input_user_data_regex",
        Texts => "output_user_data",
        Texts => "output_user_data_regexes" = "output_user_data_regexes" | "output_user_data_regex",
        Text => "scheduler",
        AnyMap => "parameters",
        Text => "parameter_mode",
        Texts => "use_parameters" = "use_parameters" | "use_parameter",
        Text => "parameters_file",
        Text => "use_parameters_file",
        Map(&STDIO) => "stdio",
        Number => "priority",
        Texts => "labels" = "label" | "labels",
    ],
};

pub(crate) static FILE: Kind = Kind {
    what: "file",
    has_name: true,
    fields: fields![
        Text => "name",
        Text => "path",
        Text => "identifier",
        Number => "st_mtime",
        AnyMap => "parameters",
        Text => "parameter_mode",
        Texts => "use_parameters" = "use_parameters" | "use_parameter",
        Text => "parameters_file",
        Text => "use_parameters_file",
    ],
};

pub(crate) static USER_DATA: Kind = Kind {
    what: "user_data",
    has_name: true,
    fields: fields![
        Text => "name",
        Any => "data",
        Text => "is_ephemeral",
        AnyMap => "parameters",
        Text => "parameter_mode",
        Texts => "use_parameters" = "use_parameters" | "use_parameter",
        Text => "parameters_file",
        Text => "use_parameters_file",
    ],
};

pub(crate) static REQUIREMENTS: Kind = Kind {
    what: "resource requirement",
    has_name: true,
    fields: fields![
        Text => "name",
        Number => "num_cpus",
        Text => "memory",
        Number => "num_gpus",
        Number => "num_nodes",
        Text => "runtime",
    ],
};

pub(crate) static FAILURE_HANDLER: Kind = Kind {
    what: "failure handler",
    has_name: true,
    fields: fields![
        Text => "name",
        Entries(&FAILURE_RULE) => "rules" = "rule",
    ],
};

pub(crate) static FAILURE_RULE: Kind = Kind {
    what: "rule",
    has_name: false,
    fields: fields![
        Numbers => "exit_codes" = "exit_codes" | "exit_code",
        Text => "match_all_exit_codes",
        Text => "recovery_script",
        Number => "max_retries",
    ],
};

pub(crate) static SLURM_SCHEDULER: Kind = Kind {
    what: "slurm scheduler",
    has_name: true,
    fields: fields![
        Text => "name",
        Text => "account",
        Text => "gres",
        Text => "mem",
        Number => "nodes",
        Number => "ntasks_per_node",
        Text => "partition",
        Text => "qos",
        Text => "tmp",
        Text => "walltime",
        Text => "extra",
        Text => "serialize_allocations",
    ],
};

pub(crate) static ACTION: Kind = Kind {
    what: "action",
    has_name: false,
    fields: fields![
        Text => "trigger_type",
        Text => "action_type",
        Texts => "jobs" = "job" | "jobs",
        Texts => "job_name_regexes" = "job_name_regexes" | "job_name_regex",
        Texts => "commands" = "command" | "commands",
        Text => "scheduler",
        Text => "scheduler_type",
        Number => "num_allocations",
        Text => "start_one_worker_per_node",
        Number => "max_parallel_jobs",
        Text => "persistent",
    ],
};

static STDIO: Kind =
    Kind { what: "stdio", has_name: false, fields: fields![Text => "mode", Text => "delete_on_success"] };

static DYNAMIC_JOBS: Kind =
    Kind { what: "dynamic_jobs", has_name: false, fields: fields![Number => "max_iterations"] };

static EXECUTION_CONFIG: Kind = Kind {
    what: "execution_config",
    has_name: false,
    fields: fields![
        Text => "mode",
        Number => "sigkill_headroom_seconds",
        Number => "timeout_exit_code",
        Text => "staggered_start",
        Map(&STDIO) => "stdio",
        Text => "limit_resources",
        Text => "termination_signal",
        Number => "sigterm_lead_seconds",
        Number => "oom_exit_code",
        Text => "srun_termination_signal",
        Text => "enable_cpu_bind",
        Text => "srun_mpi",
    ],
};

static RESOURCE_MONITOR: Kind = Kind {
    what: "resource_monitor",
    has_name: false,
    fields: fields![
        Number => "sample_interval_seconds",
        Number => "flush_interval_seconds",
        Text => "generate_plots",
        Text => "enabled",
        Text => "granularity",
        Map(&MONITOR_SCOPE) => "jobs",
        Map(&MONITOR_NODE) => "compute_node",
    ],
};

static MONITOR_SCOPE: Kind =
    Kind { what: "scope", has_name: false, fields: fields![Text => "enabled", Text => "granularity"] };

static MONITOR_NODE: Kind = Kind {
    what: "scope",
    has_name: false,
    fields: fields![Text => "enabled", Text => "granularity", Text => "cpu", Text => "memory"],
};
