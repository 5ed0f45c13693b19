//! Resolves names to numbers: the dependencies, inputs, outputs and requirements of each job, checked as a
//! whole.

mod cycle_report;
mod data_edges;
mod entry_details;
mod files_and_data;
mod foreign_parameters;
mod growth_limits;
mod incomplete_names;
mod job_groups;
mod regexes;
mod relations;
mod scheduler_fit;
mod settings;
mod sites_and_limits;
mod uncaptured_stderr;

pub(crate) use entry_details::{EntryDetail, PerJobNumber, ReferenceTarget};
pub(crate) use files_and_data::{DataTemplates, FileTemplates, fill_data};
pub(crate) use regexes::check_regex;
pub(crate) use relations::ListRef;
pub use settings::ResolvedAction;
pub(crate) use settings::ResolvedWorkflowSettings;

use crate::decode::NameCompleteness;
use crate::diagnostic::SpecDiagnostic;
use crate::expand::{
    DiagnosticSinks, EntryInstance, ExpandedEntries, ExpandedSpec, TemplateCompiler, TextPosition,
    join_with_space,
};
use crate::model::{ListRange, NamedText, WorkflowSpec};
use crate::name_index::NameIndex;
use crate::source::SourceSpan;
use crate::suggest::NameSuggester;
use crate::template::TextTemplate;
use regexes::NamePatterns;
use relations::RelationLists;
use rustc_hash::{FxHashMap, FxHashSet};
use windlass_types::JobGroup;

/// Marks an empty list in [`SharedListSlots`].
const NO_LIST: u32 = u32::MAX;
/// A list with braces, whose names depend on the job.
const LIST_WITH_BRACES: u32 = u32::MAX - 1;

/// The kind of entry that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Jobs,
    Files,
    UserData,
}

impl EntryKind {
    const fn singular(self) -> &'static str {
        match self {
            Self::Jobs => "job",
            Self::Files => "file",
            Self::UserData => "user data",
        }
    }

    const fn unknown_code(self) -> &'static str {
        match self {
            Self::Jobs => "unknown-job",
            Self::Files => "unknown-file",
            Self::UserData => "unknown-user-data",
        }
    }
}

/// The relations between a job and other entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelationKind {
    DependsOn,
    InputFiles,
    OutputFiles,
    InputUserData,
    OutputUserData,
    /// The producers of its input files.
    ThroughFiles,
    /// The producers of its input user data.
    ThroughUserData,
}

impl RelationKind {
    pub(crate) const COUNT: usize = 7;
    /// The relations that are dependencies.
    pub(crate) const DEPENDENCIES: [Self; 3] = [Self::DependsOn, Self::ThroughFiles, Self::ThroughUserData];

    /// Returns the field with the regular expressions for this relation.
    const fn regex_field(self) -> &'static str {
        match self {
            Self::DependsOn => "depends_on_regexes",
            Self::InputFiles | Self::ThroughFiles => "input_file_regexes",
            Self::OutputFiles => "output_file_regexes",
            Self::InputUserData | Self::ThroughUserData => "input_user_data_regexes",
            Self::OutputUserData => "output_user_data_regexes",
        }
    }
}

/// The shared list of each list of the spec without braces, by its start in [`WorkflowSpec::names`].
/// Sufficient for plain jobs (those without an [`EntryDetail`]).
#[derive(Clone, Debug, Default)]
struct SharedListSlots {
    jobs: Vec<u32>,
    files: Vec<u32>,
    user_data: Vec<u32>,
    through_files: Vec<u32>,
}

impl SharedListSlots {
    fn slots_mut(&mut self, sort: EntryKind) -> &mut Vec<u32> {
        match sort {
            EntryKind::Jobs => &mut self.jobs,
            EntryKind::Files => &mut self.files,
            EntryKind::UserData => &mut self.user_data,
        }
    }
}

fn find_slot(slots: &[u32], list: ListRange) -> u32 {
    if list.is_empty() { NO_LIST } else { slots.get(list.start as usize).copied().unwrap_or(NO_LIST) }
}

/// The resolved names of a spec.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResolvedSpec {
    relations: RelationLists,
    slots: SharedListSlots,
    /// By entry; `None` for plain jobs.
    pub(crate) details: Vec<Option<Box<EntryDetail>>>,
    /// The requirement of each of [`WorkflowSpec::requirement_names`].
    pub(crate) requirements: Vec<u32>,
    pub(crate) job_groups: Vec<JobGroup<u32>>,
    pub(crate) files: Vec<Option<Box<FileTemplates>>>,
    pub(crate) user_data: Vec<Option<Box<DataTemplates>>>,
    pub(crate) texts: ResolvedWorkflowSettings,
    pub(crate) actions: Vec<ResolvedAction>,
}

impl ResolvedSpec {
    /// Returns the `n`th list of a job; lists may be empty.
    pub(crate) fn relation_list(
        &self,
        spec: &WorkflowSpec<'_>,
        job: EntryInstance,
        way: RelationKind,
        n: usize,
    ) -> Option<ListRef<'_>> {
        if let Some(detail) = &self.details[job.entry as usize] {
            let relation = &detail.relations[way as usize];
            return relation.list(&self.relations, job.index, n);
        }
        let entry = &spec.jobs[job.entry as usize];
        let list = match way {
            RelationKind::DependsOn => find_slot(&self.slots.jobs, entry.depends_on),
            RelationKind::InputFiles => find_slot(&self.slots.files, entry.input_files),
            RelationKind::OutputFiles => find_slot(&self.slots.files, entry.output_files),
            RelationKind::ThroughFiles => find_slot(&self.slots.through_files, entry.input_files),
            RelationKind::InputUserData | RelationKind::OutputUserData | RelationKind::ThroughUserData => {
                NO_LIST
            }
        };
        let shared = |list: u32| ListRef { shared: Some(list), items: self.relations.shared(list) };
        (n == 0 && list < LIST_WITH_BRACES).then(|| shared(list))
    }

    /// Returns all non-empty lists of a job.
    pub(crate) fn relation_lists<'a>(
        &'a self,
        spec: &'a WorkflowSpec<'_>,
        job: EntryInstance,
        way: RelationKind,
    ) -> impl Iterator<Item = &'a [u32]> {
        let lists = (0..).map_while(move |n| self.relation_list(spec, job, way, n));
        lists.map(|list| list.items).filter(|items| !items.is_empty())
    }

    pub(crate) fn per_job_value(&self, value: PerJobNumber, index: u32) -> Option<u32> {
        match value {
            PerJobNumber::None => None,
            PerJobNumber::All(number) => Some(number),
            PerJobNumber::Each(start) => Some(self.relations.column(start, index)),
        }
    }

    /// Returns the number that a reference in a command of a job resolves to.
    pub(crate) fn resolve_target(&self, detail: &EntryDetail, target: ReferenceTarget, index: u32) -> u32 {
        match target {
            ReferenceTarget::Same(number) => number,
            ReferenceTarget::Own { relation_kind: way, position } => {
                detail.relations[way as usize].own(&self.relations, index)[position as usize]
            }
        }
    }
}

/// Resolves all names and checks the graph. Problems go to the sinks.
pub(crate) fn resolve_names(
    spec: &WorkflowSpec<'_>,
    expanded: &ExpandedSpec,
    names: NameCompleteness,
    sinks: &mut DiagnosticSinks,
) -> ResolvedSpec {
    let mut resolver = NameResolver {
        spec,
        expanded,
        name_indices: [
            expanded.jobs.build_name_index(),
            expanded.files.build_name_index(),
            expanded.user_data.build_name_index(),
        ],
        name_completeness: names,
        sinks,
        suggester: NameSuggester::default(),
        patterns: Default::default(),
        resolved: ResolvedSpec::default(),
        requirement_index: NameIndex::default(),
        handler_index: NameIndex::default(),
        scheduler_index: NameIndex::default(),
        single_job_groups: FxHashMap::default(),
        shared_group_names: FxHashSet::default(),
        used_limits: FxHashSet::default(),
        braces_in_env: Vec::new(),
        entries_by_template: Default::default(),
        used_parameters: 0,
        scratch: String::new(),
    };
    resolver.resolve_workflow_texts();
    resolver.resolve_requirements();
    resolver.resolve_jobs();
    resolver.warn_unused_limits();
    resolver.add_data_edges();
    resolver.report_cycles();
    resolver.resolve_files();
    resolver.resolve_user_data();
    resolver.resolve_actions();
    resolver.check_scheduler_fit();
    resolver.warn_growth_limits();
    resolver.warn_uncaptured_stderr();
    resolver.resolved
}

struct NameResolver<'a, 's> {
    spec: &'a WorkflowSpec<'s>,
    expanded: &'a ExpandedSpec,
    /// For jobs, files and user data.
    name_indices: [NameIndex; 3],
    name_completeness: NameCompleteness,
    sinks: &'a mut DiagnosticSinks,
    suggester: NameSuggester,
    patterns: [NamePatterns; 3],
    resolved: ResolvedSpec,
    requirement_index: NameIndex,
    handler_index: NameIndex,
    scheduler_index: NameIndex,
    /// The job groups of entries without parameters, with the numbers in their names masked.
    single_job_groups: FxHashMap<JobGroup<u32>, u32>,
    /// The names of job groups that several entries share.
    shared_group_names: FxHashSet<String>,
    /// The numbers of the limits that jobs use.
    used_limits: FxHashSet<u32>,
    /// Whether an environment contains braces, by its start in [`WorkflowSpec::variables`].
    braces_in_env: Vec<Option<bool>>,
    /// The entries of jobs, files and user data whose names contain braces, by these names as written; built
    /// when a name is not found.
    entries_by_template: [Option<FxHashMap<&'a str, u32>>; 3],
    /// Bit set of the parameters that the texts of the current entry use.
    used_parameters: u64,
    scratch: String,
}

impl<'a> NameResolver<'a, '_> {
    fn entry_series(&self, sort: EntryKind) -> &'a ExpandedEntries {
        match sort {
            EntryKind::Jobs => &self.expanded.jobs,
            EntryKind::Files => &self.expanded.files,
            EntryKind::UserData => &self.expanded.user_data,
        }
    }

    /// Compiles a text of an entry.
    fn compile_text(
        &mut self,
        text: &str,
        place: TextPosition<'_, '_>,
        of: Option<(EntryKind, u32)>,
    ) -> Option<TextTemplate> {
        let bindings = of.and_then(|(sort, entry)| self.entry_series(sort).bindings(entry));
        let mut compiler = TemplateCompiler::new(&self.expanded.constants, bindings, self.sinks);
        let template = compiler.compile(text, place);
        self.used_parameters |= template.as_ref().map_or(0, TextTemplate::parameters);
        template
    }

    fn compile_named(&mut self, named: NamedText, of: Option<(EntryKind, u32)>) -> Option<TextTemplate> {
        let texts = &self.spec.texts;
        self.compile_text(texts.get(named.text), TextPosition::from_named(texts, named), of)
    }

    /// Returns the shared list of a list of the spec, [`NO_LIST`] or [`LIST_WITH_BRACES`]. Each list is
    /// resolved once.
    fn find_shared_list(&mut self, sort: EntryKind, list: ListRange) -> u32 {
        if list.is_empty() {
            return NO_LIST;
        }
        let slots = self.resolved.slots.slots_mut(sort);
        if slots.is_empty() {
            slots.resize(self.spec.names.len(), NO_LIST);
        }
        let known = slots[list.start as usize];
        if known != NO_LIST {
            return known;
        }
        let names = &self.spec.names[list.range()];
        let found = if names.iter().any(|name| self.spec.texts.get(name.text).contains('{')) {
            LIST_WITH_BRACES
        } else {
            let numbers: Vec<u32> = names
                .iter()
                .filter_map(|name| self.find_number(sort, self.spec.texts.get(name.text), name.span, None))
                .collect();
            self.resolved.relations.add_shared(numbers)
        };
        self.resolved.slots.slots_mut(sort)[list.start as usize] = found;
        found
    }

    /// Returns the number of a name; reports an unknown one. `user` is the job whose values are in the name.
    fn find_number(
        &mut self,
        sort: EntryKind,
        name: &str,
        span: SourceSpan,
        user: Option<u32>,
    ) -> Option<u32> {
        let series = self.entry_series(sort);
        let found = self.name_indices[sort as usize].find(name, |number| series.name(number));
        if found.is_none() && !self.may_be_unread(sort, name) {
            let values = user.map_or_else(String::new, |job| self.expanded.jobs.describe_values(job));
            let message = join_with_space(&format!("no {} is named `{name}`", sort.singular()), &values);
            let diagnostic = SpecDiagnostic::new(sort.unknown_code(), message).with_span(span);
            let known = (0..series.len() as u32).map(|number| series.name(number));
            let nearest =
                if self.sinks.errors.is_full() { None } else { self.suggester.nearest_name(name, known) };
            self.sinks.errors.push(diagnostic.with_suggestion(nearest));
        }
        found
    }

    /// Warns about parameters that the current entry does not use.
    fn warn_unused_parameters(&mut self, sort: EntryKind, entry: u32, name: NamedText) {
        let Some(bindings) = self.entry_series(sort).bindings(entry) else { return };
        let used = std::mem::take(&mut self.used_parameters) | self.parameters_used_in(name, bindings);
        for (number, parameter) in bindings.declared_parameters().take_while(|(number, _)| *number < 64) {
            if used & (1 << number) == 0 {
                let message = format!("this {} does not use its parameter `{parameter}`", sort.singular());
                self.sinks
                    .warnings
                    .push(SpecDiagnostic::new("unused-parameter", message).with_span(name.span));
            }
        }
    }

    fn parameters_used_in(&self, name: NamedText, bindings: &crate::expand::ParameterBindings) -> u64 {
        let placeholders = crate::template::find_placeholders(self.spec.texts.get(name.text));
        let bits = placeholders
            .filter_map(|placeholder| bindings.find_parameter(placeholder.name))
            .map(|number| 1u64.checked_shl(number));
        bits.flatten().fold(0, |all, bit| all | bit)
    }
}

fn duplicate_name_error(what: &str, name: &str, span: SourceSpan, first: SourceSpan) -> SpecDiagnostic {
    SpecDiagnostic::new("duplicate-name", format!("two {what}s are named `{name}`"))
        .with_span(span)
        .with_label(span, "again here")
        .with_label(first, "first here")
}
