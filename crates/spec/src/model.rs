//! A spec as decoded: names not yet looked up. Compact, because there may be a million jobs; [`crate::Workflow`] is the
//! comfortable view.

use crate::source::Span;
use crate::text::{Text, Texts};
use serde::Deserialize;
use windlass_types::Resources;
use windlass_types::settings::{Action, FailureHandler, Settings, SlurmScheduler};
use windlass_types::work::Stdio;

/// A workflow spec, decoded but not expanded: templates as they are written, names not looked up.
#[derive(Clone, Debug)]
pub struct Spec<'s> {
    pub(crate) texts: Texts<'s>,
    pub(crate) name: Named,
    pub(crate) user: Option<Named>,
    pub(crate) description: Option<Named>,
    pub(crate) project: Option<Named>,
    pub(crate) access_groups: List,
    pub(crate) stdio: Stdio,
    pub(crate) env: List,
    /// Constants that `{name}` stands for everywhere: `(name, value)`.
    pub(crate) constants: Vec<(Named, Named)>,
    /// Parameters of the workflow, which jobs, files and user data may opt in to.
    pub(crate) shared: SharedParameters,
    /// Without the project, the access groups and the limits, which have fields of their own here.
    pub(crate) settings: Settings,
    /// Where the strings of `metadata` and `slurm_defaults` are written that hold a brace.
    pub(crate) settings_strings: Vec<Named>,
    pub(crate) requirements: Vec<RequirementsSpec>,
    pub(crate) limits: Vec<LimitSpec>,
    pub(crate) jobs: Vec<JobSpec>,
    pub(crate) files: Vec<FileSpec>,
    pub(crate) user_data: Vec<UserDataSpec>,
    pub(crate) failure_handlers: Vec<(FailureHandler, Span)>,
    pub(crate) schedulers: Vec<(SlurmScheduler, Span)>,
    pub(crate) actions: Vec<ActionSpec>,
    /// What all `env` lists point into. A map that several jobs share through an alias stands here once.
    pub(crate) variables: Vec<Variable>,
    /// What all lists of names and of regular expressions point into (`depends_on`, `input_files`, `labels` …).
    /// A list that several jobs share through an alias stands here once.
    pub(crate) names: Vec<Named>,
    /// Every requirement name that jobs use, once.
    pub(crate) requirement_names: Vec<Box<str>>,
}

impl<'s> Spec<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self {
            texts: Texts::new(source),
            name: Named::default(),
            user: None,
            description: None,
            project: None,
            access_groups: List::default(),
            stdio: Stdio::default(),
            env: List::default(),
            constants: Vec::new(),
            shared: SharedParameters::default(),
            settings: Settings::default(),
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
pub(crate) struct Variable {
    pub(crate) name: Text,
    pub(crate) value: Named,
}

/// A named set of requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequirementsSpec {
    pub name: String,
    pub resources: Resources,
    pub(crate) span: Span,
}

/// How many jobs run at once of those that name it.
#[derive(Clone, Debug)]
pub(crate) struct LimitSpec {
    pub(crate) name: String,
    pub(crate) most: u32,
    pub(crate) span: Span,
}

/// An entry of `jobs`: one job, or as many as its parameters make.
#[derive(Clone, Debug)]
pub(crate) struct JobSpec {
    pub(crate) name: Named,
    pub(crate) command: Named,
    pub(crate) depends_on: List,
    pub(crate) env: List,
    pub(crate) requirements: Option<RequirementsUse>,
    pub(crate) priority: i32,
    pub(crate) cancel_on_blocking_job_failure: bool,
    pub(crate) input_files: List,
    pub(crate) output_files: List,
    /// What few jobs have; a million plain ones need not carry it.
    pub(crate) more: Option<Box<JobMore>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct JobMore {
    pub(crate) invocation_script: Option<Named>,
    pub(crate) supports_termination: Option<bool>,
    pub(crate) failure_handler: Option<Named>,
    pub(crate) scheduler: Option<Named>,
    pub(crate) stdio: Option<Stdio>,
    pub(crate) labels: List,
    pub(crate) sites: List,
    pub(crate) limit: Option<Named>,
    pub(crate) depends_on_regexes: List,
    pub(crate) input_file_regexes: List,
    pub(crate) output_file_regexes: List,
    pub(crate) input_user_data: List,
    pub(crate) input_user_data_regexes: List,
    pub(crate) output_user_data: List,
    pub(crate) output_user_data_regexes: List,
    pub(crate) sweep: Sweep,
}

#[derive(Clone, Debug)]
pub(crate) struct FileSpec {
    pub(crate) name: Named,
    pub(crate) path: Named,
    pub(crate) identifier: Option<Named>,
    /// Seconds since 1970, if the spec says when the file was last changed.
    pub(crate) st_mtime: Option<f64>,
    pub(crate) sweep: Sweep,
}

#[derive(Clone, Debug)]
pub(crate) struct UserDataSpec {
    pub(crate) name: Named,
    /// Strings inside may hold `{name}`.
    pub(crate) data: Option<serde_json::Value>,
    /// Where `data` is written.
    pub(crate) data_span: Span,
    /// Where those strings in it are written that hold a brace.
    pub(crate) strings: List,
    pub(crate) is_ephemeral: bool,
    pub(crate) sweep: Sweep,
}

/// How many of something one entry makes. Nothing said: one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep {
    /// In the order written.
    pub(crate) parameters: Vec<Parameter>,
    /// `None`: nothing said, which is a product.
    pub(crate) mode: Option<(ParameterMode, Span)>,
    /// Names of shared parameters.
    pub(crate) use_parameters: List,
    /// Path of a table.
    pub(crate) parameters_file: Option<Named>,
    /// Uses the table of the workflow.
    pub(crate) use_parameters_file: Option<(bool, Span)>,
    /// Something of it could not be read, so nobody knows what the entry makes.
    pub(crate) is_broken: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SharedParameters {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) parameters_file: Option<Named>,
}

#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: Named,
    pub(crate) values: ParameterValues,
}

#[derive(Clone, Debug)]
pub(crate) enum ParameterValues {
    /// One scalar: a range, a list in brackets, `@file`, or a single value. `plain`: written without quotes.
    Text { text: Named, plain: bool },
    /// A list of the format itself, `(value, written without quotes)`.
    List(Vec<(Named, bool)>),
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
    pub(crate) action: Action,
    /// Where it begins.
    pub(crate) span: Span,
    pub(crate) jobs: List,
    pub(crate) job_name_regexes: List,
    pub(crate) scheduler: Option<Named>,
    /// As [`Action::commands`], with their places.
    pub(crate) commands: List,
}

/// A name and where it is written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named {
    pub(crate) text: Text,
    pub(crate) span: Span,
}

/// A stretch of one of the lists in [`Spec`]. Two lists are the same one, or share nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl List {
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequirementsUse {
    /// Index into [`Spec::requirement_names`].
    pub(crate) name: u32,
    pub(crate) span: Span,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_stays_small() {
        assert!(size_of::<JobSpec>() <= 96, "{}", size_of::<JobSpec>());
    }
}
