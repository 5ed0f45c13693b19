//! A resolved spec: expanded, all names known, dependencies without cycles.

use crate::diagnostic::{SpecDiagnostic, SpecDiagnostics};
use crate::expand::{EntryInstance, ExpandedSpec, ReferenceKind, render_template};
use crate::model::{RequirementsSpec, WorkflowSpec};
use crate::parameters::ParameterValue;
use crate::resolve::{EntryDetail, RelationKind, ResolvedAction, ResolvedSpec, fill_data};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use windlass_types::settings::{FailureHandler, SlurmScheduler, WorkflowSettings};
use windlass_types::worker_messages::StdioSettings;
use windlass_types::{JobDefinition, JobGroup};

/// A workflow as described by its spec file. Borrows from the text of the file.
///
/// Jobs, files and user data are numbered from 0: entries in file order, and within an entry in the order of
/// its parameters, the last of which changes fastest. Commands, paths and data are computed on access.
#[derive(Debug)]
pub struct ResolvedWorkflow<'s> {
    spec: WorkflowSpec<'s>,
    expanded: ExpandedSpec,
    resolved: ResolvedSpec,
    warnings: SpecDiagnostics,
}

/// A job of a [`ResolvedWorkflow`].
#[derive(Clone, Copy)]
pub struct ResolvedJob<'a> {
    pub name: &'a str,
    /// Index into [`ResolvedWorkflow::job_groups`].
    pub group: Option<u32>,
    /// Index into [`ResolvedWorkflow::requirements`].
    pub requirements: Option<u32>,
    pub priority: i32,
    pub cancel_on_blocking_job_failure: bool,
    workflow: &'a ResolvedWorkflow<'a>,
    member: EntryInstance,
}

/// A file of a [`ResolvedWorkflow`].
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedFile<'a> {
    pub name: &'a str,
    pub path: Cow<'a, str>,
    pub identifier: Option<Cow<'a, str>>,
    /// Seconds since 1970.
    pub st_mtime: Option<f64>,
}

/// User data of a [`ResolvedWorkflow`].
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedUserData<'a> {
    pub name: &'a str,
    pub data: Option<Cow<'a, Value>>,
    pub is_ephemeral: bool,
}

impl<'s> ResolvedWorkflow<'s> {
    pub(crate) fn new(
        spec: WorkflowSpec<'s>,
        expanded: ExpandedSpec,
        resolved: ResolvedSpec,
        warnings: SpecDiagnostics,
    ) -> Self {
        Self { spec, expanded, resolved, warnings }
    }

    pub fn name(&self) -> &str {
        &self.resolved.texts.name
    }

    pub fn user(&self) -> Option<&str> {
        self.resolved.texts.user.as_deref()
    }

    pub fn description(&self) -> Option<&str> {
        self.resolved.texts.description.as_deref()
    }

    /// The environment variables of every job.
    pub fn env(&self) -> &[(String, String)] {
        &self.resolved.texts.env
    }

    pub fn stdio(&self) -> StdioSettings {
        self.spec.stdio
    }

    pub fn settings(&self) -> &WorkflowSettings {
        &self.resolved.texts.settings
    }

    pub fn requirements(&self) -> &[RequirementsSpec] {
        &self.spec.requirements
    }

    pub fn failure_handlers(&self) -> &[FailureHandler] {
        &self.resolved.texts.failure_handlers
    }

    pub fn schedulers(&self) -> &[SlurmScheduler] {
        &self.resolved.texts.schedulers
    }

    pub fn actions(&self) -> &[ResolvedAction] {
        &self.resolved.actions
    }

    pub fn job_groups(&self) -> &[JobGroup<u32>] {
        &self.resolved.job_groups
    }

    /// The warnings, in file order.
    pub fn warnings(&self) -> &[SpecDiagnostic] {
        &self.warnings.list
    }

    /// The warnings with the text that they point into, for rendering or for tools.
    pub fn warning_diagnostics(&self) -> &SpecDiagnostics {
        &self.warnings
    }

    /// The number of entries of `jobs`, before expansion.
    pub fn entry_count(&self) -> usize {
        self.spec.jobs.len()
    }

    /// Returns the name of an entry as written: `solve_{nu:.2f}`.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn entry_name(&self, entry: usize) -> &str {
        self.spec.texts.get(self.spec.jobs[entry].name.text)
    }

    pub fn job_count(&self) -> usize {
        self.expanded.jobs.len()
    }

    /// # Panics
    /// If there is no such job.
    pub fn job(&self, number: usize) -> ResolvedJob<'_> {
        let member = self.expanded.jobs.locate(number as u32);
        let entry = &self.spec.jobs[member.entry as usize];
        let (group, requirements) = match &self.resolved.details[member.entry as usize] {
            Some(detail) => (
                self.resolved.per_job_value(detail.job_group, member.index),
                self.resolved.per_job_value(detail.requirements, member.index),
            ),
            None => (None, entry.requirements.map(|used| self.resolved.requirements[used.name as usize])),
        };
        ResolvedJob {
            name: self.expanded.jobs.name(number as u32),
            group,
            requirements,
            priority: entry.priority,
            cancel_on_blocking_job_failure: entry.cancel_on_blocking_job_failure,
            workflow: self,
            member,
        }
    }

    pub fn jobs(&self) -> impl ExactSizeIterator<Item = ResolvedJob<'_>> {
        (0..self.job_count()).map(|number| self.job(number))
    }

    pub fn file_count(&self) -> usize {
        self.expanded.files.len()
    }

    /// # Panics
    /// If there is no such file.
    pub fn file(&self, number: usize) -> ResolvedFile<'_> {
        let member = self.expanded.files.locate(number as u32);
        let entry = &self.spec.files[member.entry as usize];
        let detail = self.resolved.files[member.entry as usize].as_deref();
        let bindings = self.expanded.files.bindings(member.entry);
        let fill = |template: Option<&_>, text| match template {
            Some(template) => {
                let mut filled = String::new();
                render_template(template, bindings, member.index, &mut filled);
                Cow::Owned(filled)
            }
            None => Cow::Borrowed(self.spec.texts.get(text)),
        };
        ResolvedFile {
            name: self.expanded.files.name(number as u32),
            path: fill(detail.and_then(|detail| detail.path.as_ref()), entry.path.text),
            identifier: entry.identifier.map(|identifier| {
                fill(detail.and_then(|detail| detail.identifier.as_ref()), identifier.text)
            }),
            st_mtime: entry.st_mtime,
        }
    }

    pub fn files(&self) -> impl ExactSizeIterator<Item = ResolvedFile<'_>> {
        (0..self.file_count()).map(|number| self.file(number))
    }

    pub fn user_data_count(&self) -> usize {
        self.expanded.user_data.len()
    }

    /// # Panics
    /// If there is no such user data.
    pub fn user_data(&self, number: usize) -> ResolvedUserData<'_> {
        let member = self.expanded.user_data.locate(number as u32);
        let entry = &self.spec.user_data[member.entry as usize];
        let detail = self.resolved.user_data[member.entry as usize].as_deref();
        let bindings = self.expanded.user_data.bindings(member.entry);
        ResolvedUserData {
            name: self.expanded.user_data.name(number as u32),
            data: entry.data.as_ref().map(|data| match detail {
                Some(detail) => Cow::Owned(fill_data(data, detail, bindings, member.index)),
                None => Cow::Borrowed(data),
            }),
            is_ephemeral: entry.is_ephemeral,
        }
    }

    pub fn all_user_data(&self) -> impl ExactSizeIterator<Item = ResolvedUserData<'_>> {
        (0..self.user_data_count()).map(|number| self.user_data(number))
    }
}

impl<'a> ResolvedJob<'a> {
    /// The index of its entry in the spec, from 0.
    pub fn entry(&self) -> usize {
        self.member.entry as usize
    }

    /// Replaces a definition by that of this job; its buffers are reused. The settings are those of its job group.
    pub fn fill_definition(&self, definition: &mut JobDefinition<u32>, first_user_data_id: i64) {
        definition.name.clear();
        definition.name.push_str(self.name);
        match self.command(first_user_data_id) {
            Cow::Owned(command) => definition.command = command,
            Cow::Borrowed(command) => {
                definition.command.clear();
                definition.command.push_str(command);
            }
        }
        definition.invocation_script = self.invocation_script();
        definition.env = self.env();
        definition.resource_requirements = self.requirements;
        definition.priority = self.priority;
        definition.cancel_on_blocking_job_failure = self.cancel_on_blocking_job_failure;
        let options = self.detail().map(|detail| detail.options.map(|text| self.fill_template(text)));
        definition.options = options.unwrap_or_default();
    }

    /// Returns the command for `bash -c`. `${files.input.NAME}` is replaced by a path, and
    /// `${user_data.input.NAME}` by the id of the user data, whose ids start at `first_user_data_id`.
    pub fn command(&self, first_user_data_id: i64) -> Cow<'a, str> {
        self.command_with(|number| first_user_data_id + i64::from(number))
    }

    /// Like [`Self::command`] with arbitrary ids: `user_data_id` returns the id for a number.
    pub fn command_with(&self, user_data_id: impl Fn(u32) -> i64) -> Cow<'a, str> {
        let entry = &self.workflow.spec.jobs[self.member.entry as usize];
        let Some((detail, template)) =
            self.detail().and_then(|detail| Some((detail, detail.command.as_ref()?)))
        else {
            return Cow::Borrowed(self.workflow.spec.texts.get(entry.command.text));
        };
        let mut command = String::new();
        let bindings = self.bindings();
        let value = |parameter| {
            bindings.map_or(ParameterValue::Text(""), |bindings| bindings.value(parameter, self.member.index))
        };
        template.render(&mut command, value, |reference, out| {
            let (to, target) = detail.references[reference as usize];
            let number = self.workflow.resolved.resolve_target(detail, target, self.member.index);
            match to {
                ReferenceKind::File => out.push_str(&self.workflow.file(number as usize).path),
                ReferenceKind::UserData => out.push_str(&user_data_id(number).to_string()),
            }
        });
        Cow::Owned(command)
    }

    /// The variables whose values differ among the jobs of its group, in addition to those of the group; all of
    /// them if it has no group.
    pub fn env(&self) -> Vec<(String, String)> {
        let Some(detail) = self.detail() else {
            let spec = &self.workflow.spec;
            let env = &spec.variables[spec.jobs[self.member.entry as usize].env.range()];
            let text = |text| spec.texts.get(text).to_owned();
            return env.iter().map(|variable| (text(variable.name), text(variable.value.text))).collect();
        };
        detail.env.iter().map(|(name, template)| (name.clone(), self.fill_template(template))).collect()
    }

    /// Its own script, if it differs among the jobs of its group.
    pub fn invocation_script(&self) -> Option<String> {
        self.detail()?.invocation_script.as_ref().map(|template| self.fill_template(template))
    }

    /// In the order of [`JobGroup::parameters`].
    pub fn parameters(&self) -> Vec<(&'a str, ParameterValue<'a>)> {
        self.bindings().map_or_else(Vec::new, |bindings| bindings.pairs(self.member.index).collect())
    }

    /// The numbers of the jobs it depends on, explicitly or through files and user data: several lists,
    /// unordered, possibly with repetitions. Jobs that share a list get the same slice.
    pub fn depends_on(&self) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        let job = *self;
        RelationKind::DEPENDENCIES.into_iter().flat_map(move |way| job.relation_lists(way))
    }

    /// The numbers of its input files: several lists, possibly with repetitions.
    pub fn input_files(&self) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        self.relation_lists(RelationKind::InputFiles)
    }

    pub fn output_files(&self) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        self.relation_lists(RelationKind::OutputFiles)
    }

    pub fn input_user_data(&self) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        self.relation_lists(RelationKind::InputUserData)
    }

    pub fn output_user_data(&self) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        self.relation_lists(RelationKind::OutputUserData)
    }

    fn relation_lists(&self, way: RelationKind) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        self.workflow.resolved.relation_lists(&self.workflow.spec, self.member, way)
    }

    fn detail(&self) -> Option<&'a EntryDetail> {
        self.workflow.resolved.details[self.member.entry as usize].as_deref()
    }

    fn bindings(&self) -> Option<&'a crate::expand::ParameterBindings> {
        self.workflow.expanded.jobs.bindings(self.member.entry)
    }

    fn fill_template(&self, template: &crate::template::TextTemplate) -> String {
        let mut text = String::new();
        render_template(template, self.bindings(), self.member.index, &mut text);
        text
    }
}

impl fmt::Debug for ResolvedJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depends_on: Vec<&[u32]> = self.depends_on().collect();
        f.debug_struct("ResolvedJob")
            .field("name", &self.name)
            .field("command", &self.command(0))
            .field("depends_on", &depends_on)
            .finish_non_exhaustive()
    }
}
