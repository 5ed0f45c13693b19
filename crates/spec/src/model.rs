//! A decoded spec before name lookup. Compact, because there may be a million jobs; [`crate::ResolvedWorkflow`]
//! is the convenient view.

use crate::source::SourceSpan;
use crate::text_store::{TextRef, TextStore};
use serde::Deserialize;
use windlass_types::settings::{FailureHandler, SlurmScheduler, WorkflowAction, WorkflowSettings};
use windlass_types::worker_messages::StdioSettings;
use windlass_types::{JobOptions, Resources};

/// A workflow spec, decoded but not expanded: templates are kept as written, names are not resolved.
#[derive(Clone, Debug)]
pub struct WorkflowSpec<'s> {
    pub(crate) texts: TextStore<'s>,
    pub(crate) name: NamedText,
    pub(crate) user: Option<NamedText>,
    pub(crate) description: Option<NamedText>,
    pub(crate) project: Option<NamedText>,
    pub(crate) access_groups: ListRange,
    pub(crate) stdio: StdioSettings,
    pub(crate) env: ListRange,
    /// Constants that `{name}` refers to everywhere: `(name, value)`.
    pub(crate) constants: Vec<(NamedText, NamedText)>,
    /// Parameters of the workflow that jobs, files and user data can use.
    pub(crate) shared_parameters: SharedParameters,
    /// Without the project, the access groups and the limits, which are separate fields here.
    pub(crate) settings: WorkflowSettings,
    /// The locations of the strings with braces in `metadata` and `slurm_defaults`.
    pub(crate) settings_strings: Vec<NamedText>,
    pub(crate) requirements: Vec<RequirementsSpec>,
    pub(crate) limits: Vec<LimitSpec>,
    pub(crate) jobs: Vec<JobSpec>,
    pub(crate) files: Vec<FileSpec>,
    pub(crate) user_data: Vec<UserDataSpec>,
    pub(crate) failure_handlers: Vec<(FailureHandler, SourceSpan)>,
    pub(crate) schedulers: Vec<(SlurmScheduler, SourceSpan)>,
    pub(crate) actions: Vec<ActionSpec>,
    /// Storage of all `env` lists. A map that several jobs share through an alias is stored once.
    pub(crate) variables: Vec<EnvVariable>,
    /// Storage of all lists of names and of regular expressions (`depends_on`, `input_files`, `labels` …).
    /// A list that several jobs share through an alias is stored once.
    pub(crate) names: Vec<NamedText>,
    /// The distinct requirement names that jobs use.
    pub(crate) requirement_names: Vec<Box<str>>,
}

impl<'s> WorkflowSpec<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self {
            texts: TextStore::new(source),
            name: NamedText::default(),
            user: None,
            description: None,
            project: None,
            access_groups: ListRange::default(),
            stdio: StdioSettings::default(),
            env: ListRange::default(),
            constants: Vec::new(),
            shared_parameters: SharedParameters::default(),
            settings: WorkflowSettings::default(),
            settings_strings: Vec::new(),
            requirements: Vec::new(),
            limits: Vec::new(),
            jobs: Vec::new(),
            files: Vec::new(),
            user_data: Vec::new(),
            failure_handlers: Vec::new(),
            schedulers: Vec::new(),
            actions: Vec::new(),
            variables: Vec::new(),
            names: Vec::new(),
            requirement_names: Vec::new(),
        }
    }
}

/// An environment variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvVariable {
    pub(crate) name: TextRef,
    pub(crate) value: NamedText,
}

/// A named set of requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequirementsSpec {
    pub name: String,
    pub resources: Resources,
    pub(crate) span: SourceSpan,
}

/// A job limit: the number of jobs with this limit that run at once.
#[derive(Clone, Debug)]
pub(crate) struct LimitSpec {
    pub(crate) name: String,
    pub(crate) max_running: u32,
    pub(crate) span: SourceSpan,
}

/// An entry of `jobs`: one job, or one per combination of its parameters.
#[derive(Clone, Debug)]
pub(crate) struct JobSpec {
    pub(crate) name: NamedText,
    pub(crate) command: NamedText,
    pub(crate) depends_on: ListRange,
    pub(crate) env: ListRange,
    pub(crate) requirements: Option<RequirementsRef>,
    pub(crate) priority: i32,
    pub(crate) cancel_on_blocking_job_failure: bool,
    pub(crate) input_files: ListRange,
    pub(crate) output_files: ListRange,
    /// Rarely used fields, kept apart to save memory for a million plain jobs.
    pub(crate) rare: Option<Box<RareJobFields>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RareJobFields {
    pub(crate) invocation_script: Option<NamedText>,
    pub(crate) options: JobOptions<NamedText>,
    pub(crate) supports_termination: Option<bool>,
    pub(crate) failure_handler: Option<NamedText>,
    pub(crate) scheduler: Option<NamedText>,
    pub(crate) stdio: Option<StdioSettings>,
    pub(crate) labels: ListRange,
    pub(crate) sites: ListRange,
    pub(crate) limit: Option<NamedText>,
    pub(crate) depends_on_regexes: ListRange,
    pub(crate) input_file_regexes: ListRange,
    pub(crate) output_file_regexes: ListRange,
    pub(crate) input_user_data: ListRange,
    pub(crate) input_user_data_regexes: ListRange,
    pub(crate) output_user_data: ListRange,
    pub(crate) output_user_data_regexes: ListRange,
    pub(crate) sweep: ParameterSweep,
}

#[derive(Clone, Debug)]
pub(crate) struct FileSpec {
    pub(crate) name: NamedText,
    pub(crate) path: NamedText,
    pub(crate) identifier: Option<NamedText>,
    /// Seconds since 1970, if the spec says when the file was last changed.
    pub(crate) st_mtime: Option<f64>,
    pub(crate) sweep: ParameterSweep,
}

#[derive(Clone, Debug)]
pub(crate) struct UserDataSpec {
    pub(crate) name: NamedText,
    /// Strings in it may contain `{name}`.
    pub(crate) data: Option<serde_json::Value>,
    /// The location of `data`.
    pub(crate) data_span: SourceSpan,
    /// The locations of the strings in it that contain a brace.
    pub(crate) strings: ListRange,
    pub(crate) is_ephemeral: bool,
    pub(crate) sweep: ParameterSweep,
}

/// The parameters of one entry. Without any, the entry has one instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParameterSweep {
    /// In file order.
    pub(crate) parameters: Vec<SweepParameter>,
    /// `None`: not set, which means a product.
    pub(crate) mode: Option<(ParameterMode, SourceSpan)>,
    /// Names of shared parameters.
    pub(crate) use_parameters: ListRange,
    /// Path of a table.
    pub(crate) parameters_file: Option<NamedText>,
    /// Whether it uses the table of the workflow.
    pub(crate) use_parameters_file: Option<(bool, SourceSpan)>,
    /// Part of it could not be read, so the number of instances is unknown.
    pub(crate) is_broken: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SharedParameters {
    pub(crate) parameters: Vec<SweepParameter>,
    pub(crate) parameters_file: Option<NamedText>,
}

#[derive(Clone, Debug)]
pub(crate) struct SweepParameter {
    pub(crate) name: NamedText,
    pub(crate) values: WrittenParameterValues,
}

#[derive(Clone, Debug)]
pub(crate) enum WrittenParameterValues {
    /// One scalar: a range, a list in brackets, `@file`, or a single value. `plain` is true for unquoted ones.
    Text { text: NamedText, plain: bool },
    /// A list in the syntax of the format: `(value, is unquoted)`.
    List(Vec<(NamedText, bool)>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ParameterMode {
    #[default]
    Product,
    Zip,
}

#[derive(Clone, Debug)]
pub(crate) struct ActionSpec {
    pub(crate) action: WorkflowAction,
    /// Its location.
    pub(crate) span: SourceSpan,
    pub(crate) jobs: ListRange,
    pub(crate) job_name_regexes: ListRange,
    pub(crate) scheduler: Option<NamedText>,
    /// Like [`WorkflowAction::commands`], with their locations.
    pub(crate) commands: ListRange,
}

/// A name and its location.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NamedText {
    pub(crate) text: TextRef,
    pub(crate) span: SourceSpan,
}

/// A range in one of the lists of [`WorkflowSpec`]. Two ranges are equal or disjoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListRange {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl ListRange {
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequirementsRef {
    /// Index into [`WorkflowSpec::requirement_names`].
    pub(crate) name: u32,
    pub(crate) span: SourceSpan,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_spec_size_is_limited() {
        assert!(size_of::<JobSpec>() <= 96, "{}", size_of::<JobSpec>());
    }
}
