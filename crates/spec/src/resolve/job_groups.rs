//! Job groups: the common settings of the jobs of one entry except their commands, and their requirements.
//! Locations and limits are in [`super::sites_and_limits`].

use super::entry_details::{EntryDetail, PerJobNumber};
use super::relations::UNKNOWN_NUMBER;
use super::{EntryKind, NameResolver, duplicate_name_error};
use crate::diagnostic::SpecDiagnostic;
use crate::expand::{ParameterBindings, TextPosition, join_with_space, render_template};
use crate::model::{JobSpec, NamedText, RareJobFields};
use crate::name_index::NameIndex;
use crate::source::SourceSpan;
use crate::template::TextTemplate;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use windlass_types::{JobGroup, JobSettings};

/// A text that may differ from job to job.
pub(super) enum PerJobText {
    Same(String),
    ByJob(TextTemplate),
}

impl PerJobText {
    pub(super) fn text_for_job(&self, bindings: Option<&ParameterBindings>, index: u32) -> String {
        match self {
            Self::Same(text) => text.clone(),
            Self::ByJob(template) => {
                let mut text = String::new();
                render_template(template, bindings, index, &mut text);
                text
            }
        }
    }
}

/// The settings that can split the jobs of one entry into several job groups.
struct VaryingSettings {
    handler: PerJobNumber,
    scheduler: PerJobNumber,
    limit: PerJobNumber,
    labels: Vec<PerJobText>,
    sites: Vec<PerJobText>,
}

impl VaryingSettings {
    fn is_uniform(&self) -> bool {
        let numbers = [self.handler, self.scheduler, self.limit];
        let mut texts = self.labels.iter().chain(&self.sites);
        !numbers.iter().any(|number| matches!(number, PerJobNumber::Each(_)))
            && texts.all(|text| matches!(text, PerJobText::Same(_)))
    }
}

/// Whether the job group has only a name.
fn is_empty_group(group: &JobGroup<u32>) -> bool {
    *group == JobGroup { name: group.name.clone(), ..JobGroup::default() }
}

/// Details for the error about an unknown name.
pub(super) struct UnknownName<'v> {
    pub(super) what: &'static str,
    pub(super) code: &'static str,
    /// The values of the parameters in the name.
    pub(super) values: &'v str,
}

impl NameResolver<'_, '_> {
    pub(super) fn resolve_requirements(&mut self) {
        let defined = &self.spec.requirements;
        let name_of = |number: u32| defined[number as usize].name.as_str();
        let mut index = NameIndex::with_capacity(defined.len());
        for (number, requirement) in defined.iter().enumerate() {
            if let Some(first) = index.insert(&requirement.name, number as u32, name_of) {
                let first = defined[first as usize].span;
                let diagnostic =
                    duplicate_name_error("resource requirement", &requirement.name, requirement.span, first);
                self.sinks.errors.push(diagnostic);
            }
        }
        let names = &self.spec.requirement_names;
        self.resolved.requirements =
            names.iter().map(|name| index.find(name, name_of).unwrap_or(UNKNOWN_NUMBER)).collect();
        self.requirement_index = index;
        let is_missing = |name: &str, found: u32| found == UNKNOWN_NUMBER && !name.contains('{');
        if !names.iter().zip(&self.resolved.requirements).any(|(name, found)| is_missing(name, *found)) {
            return;
        }
        for used in self.spec.jobs.iter().filter_map(|job| job.requirements) {
            let name = &names[used.name as usize];
            if is_missing(name, self.resolved.requirements[used.name as usize]) {
                self.report_unknown_requirement(name, used.span, "");
            }
        }
    }

    fn report_unknown_requirement(&mut self, name: &str, span: SourceSpan, values: &str) {
        if !self.name_completeness.all_requirements {
            return;
        }
        let defined = self.spec.requirements.iter().map(|requirement| requirement.name.as_str());
        let unknown = UnknownName { what: "resource requirement", code: "unknown-requirement", values };
        self.report_unknown_name(&unknown, name, span, defined);
    }

    /// Resolves the requirements of the jobs of an entry.
    pub(super) fn find_requirements(&mut self, entry: u32, job: &JobSpec) -> PerJobNumber {
        let Some(used) = job.requirements else { return PerJobNumber::None };
        let spec = self.spec;
        let name = &spec.requirement_names[used.name as usize];
        if !name.contains('{') {
            return PerJobNumber::All(self.resolved.requirements[used.name as usize]);
        }
        let text = self.compile_job_text(name, TextPosition::from_span(used.span), entry);
        self.find_per_job(entry, &text, |this, name, values| {
            let name_of = |number: u32| spec.requirements[number as usize].name.as_str();
            let found = this.requirement_index.find(name, name_of);
            if found.is_none() {
                this.report_unknown_requirement(name, used.span, values);
            }
            found.unwrap_or(UNKNOWN_NUMBER)
        })
    }

    /// Resolves a name that may differ from job to job; each spelling once.
    pub(super) fn find_per_job(
        &mut self,
        entry: u32,
        text: &PerJobText,
        mut find: impl FnMut(&mut Self, &str, &str) -> u32,
    ) -> PerJobNumber {
        if let PerJobText::Same(name) = text {
            return PerJobNumber::All(find(self, name, ""));
        }
        let bindings = self.expanded.jobs.bindings(entry);
        let mut known: FxHashMap<String, u32> = FxHashMap::default();
        let mut numbers = Vec::new();
        for (index, job) in (0..).zip(self.expanded.jobs.range(entry)) {
            let name = text.text_for_job(bindings, index);
            let number = known.get(&name).copied().unwrap_or_else(|| {
                let number = find(self, &name, &self.expanded.jobs.describe_values(job));
                known.insert(name, number);
                number
            });
            numbers.push(number);
        }
        PerJobNumber::Each(self.resolved.relations.add_column(&numbers))
    }

    fn compile_job_text(&mut self, text: &str, place: TextPosition<'_, '_>, entry: u32) -> PerJobText {
        match self.compile_text(text, place, Some((EntryKind::Jobs, entry))) {
            None => PerJobText::Same(text.to_owned()),
            Some(template) => match template.as_constant() {
                Some(text) => PerJobText::Same(text.to_owned()),
                None => PerJobText::ByJob(template),
            },
        }
    }

    pub(super) fn compile_job_named(&mut self, named: NamedText, entry: u32) -> PerJobText {
        let texts = &self.spec.texts;
        self.compile_job_text(texts.get(named.text), TextPosition::from_named(texts, named), entry)
    }

    /// Creates the job group (or groups) of an entry, and stores in `detail` the settings that differ from job
    /// to job.
    pub(super) fn resolve_job_group(
        &mut self,
        entry: u32,
        job: &JobSpec,
        more: &RareJobFields,
        detail: &mut EntryDetail,
    ) {
        let spec = self.spec;
        let mut group = JobGroup {
            name: spec.texts.get(job.name.text).to_owned(),
            settings: JobSettings {
                stdio: more.stdio,
                supports_termination: more.supports_termination,
                ..JobSettings::default()
            },
            ..JobGroup::default()
        };
        if let Some(bindings) = self.expanded.jobs.bindings(entry) {
            group.parameters = bindings.names().map(str::to_owned).collect();
        }
        for variable in &spec.variables[job.env.range()] {
            let name = spec.texts.get(variable.name).to_owned();
            match self.compile_job_named(variable.value, entry) {
                PerJobText::Same(value) => group.env.push((name, value)),
                PerJobText::ByJob(template) => detail.env.push((name, template)),
            }
        }
        match more.invocation_script.map(|script| self.compile_job_named(script, entry)) {
            None => {}
            Some(PerJobText::Same(script)) => group.invocation_script = Some(script),
            Some(PerJobText::ByJob(template)) => detail.invocation_script = Some(template),
        }
        detail.options = more.options.map(|text| match self.compile_job_named(*text, entry) {
            PerJobText::Same(text) => TextTemplate::from_text(&text),
            PerJobText::ByJob(template) => template,
        });
        let differences = VaryingSettings {
            handler: self.resolve_handler(entry, more.failure_handler),
            scheduler: self.resolve_scheduler(entry, more.scheduler),
            limit: self.resolve_limit(entry, more.limit),
            labels: spec.names[more.labels.range()]
                .iter()
                .map(|label| self.compile_job_named(*label, entry))
                .collect(),
            sites: self.resolve_sites(entry, more.sites),
        };
        if self.expanded.jobs.bindings(entry).is_none() {
            self.add_single_job_group(group, &differences, detail);
        } else {
            detail.job_group = self.add_job_groups(entry, &group, &differences);
        }
    }

    /// Returns the job group of the single job of an entry without parameters. The job keeps its own environment,
    /// and jobs whose names differ only in numbers share the rest, so that a million explicit jobs do not need a
    /// million job groups.
    fn add_single_job_group(
        &mut self,
        group: JobGroup<u32>,
        differing: &VaryingSettings,
        detail: &mut EntryDetail,
    ) {
        let env = group.env.iter().map(|(name, value)| (name.clone(), TextTemplate::from_text(value)));
        detail.env.extend(env);
        let settings = self.compute_settings(&group.settings, differing, None, 0);
        let pattern = mask_numbers(&group.name);
        let group = JobGroup { env: Vec::new(), settings, ..group };
        if is_empty_group(&group) {
            return;
        }
        let groups = &mut self.resolved.job_groups;
        let number = match self.single_job_groups.entry(JobGroup { name: pattern, ..group.clone() }) {
            Entry::Vacant(new) => {
                groups.push(group);
                *new.insert(groups.len() as u32 - 1)
            }
            Entry::Occupied(known) => {
                // The first shared one gets the masked name, because job groups are identified by name.
                let shared = &mut groups[*known.get() as usize];
                if shared.name != known.key().name && self.shared_group_names.insert(known.key().name.clone())
                {
                    shared.name.clone_from(&known.key().name);
                }
                *known.get()
            }
        };
        detail.job_group = PerJobNumber::All(number);
    }

    fn resolve_handler(&mut self, entry: u32, named: Option<NamedText>) -> PerJobNumber {
        let (handlers, all_read) = (&self.spec.failure_handlers, self.name_completeness.all_failure_handlers);
        let Some(named) = named else { return PerJobNumber::None };
        let text = self.compile_job_named(named, entry);
        self.find_per_job(entry, &text, |this, name, values| {
            let name_of = |number: u32| handlers[number as usize].0.name.as_str();
            let found = this.handler_index.find(name, name_of);
            if found.is_none() && all_read {
                let known = handlers.iter().map(|(handler, _)| handler.name.as_str());
                let unknown =
                    UnknownName { what: "failure handler", code: "unknown-failure-handler", values };
                this.report_unknown_name(&unknown, name, named.span, known);
            }
            found.unwrap_or(UNKNOWN_NUMBER)
        })
    }

    fn resolve_scheduler(&mut self, entry: u32, named: Option<NamedText>) -> PerJobNumber {
        let Some(named) = named else { return PerJobNumber::None };
        let text = self.compile_job_named(named, entry);
        self.find_per_job(entry, &text, |this, name, values| this.find_scheduler(name, named.span, values))
    }

    /// Returns the number of a scheduler; reports an unknown one.
    pub(super) fn find_scheduler(&mut self, name: &str, span: SourceSpan, values: &str) -> u32 {
        let schedulers = &self.spec.schedulers;
        let name_of = |number: u32| schedulers[number as usize].0.name.as_str();
        let found = self.scheduler_index.find(name, name_of);
        if found.is_none() && self.name_completeness.all_schedulers {
            let known = schedulers.iter().map(|(scheduler, _)| scheduler.name.as_str());
            let unknown = UnknownName { what: "scheduler", code: "unknown-scheduler", values };
            self.report_unknown_name(&unknown, name, span, known);
        }
        found.unwrap_or(UNKNOWN_NUMBER)
    }

    pub(super) fn report_unknown_name<'n>(
        &mut self,
        unknown: &UnknownName<'_>,
        name: &str,
        span: SourceSpan,
        known: impl Iterator<Item = &'n str>,
    ) {
        let nearest =
            if self.sinks.errors.is_full() { None } else { self.suggester.nearest_name(name, known) };
        let message = join_with_space(&format!("no {} is named `{name}`", unknown.what), unknown.values);
        self.sinks
            .errors
            .push(SpecDiagnostic::new(unknown.code, message).with_span(span).with_suggestion(nearest));
    }

    /// Returns the settings of a job; `common` are those that do not differ.
    fn compute_settings(
        &self,
        common: &JobSettings<u32>,
        differing: &VaryingSettings,
        bindings: Option<&ParameterBindings>,
        index: u32,
    ) -> JobSettings<u32> {
        let known = |number: u32| (number != UNKNOWN_NUMBER).then_some(number);
        let number = |number: PerJobNumber| self.resolved.per_job_value(number, index).and_then(known);
        let texts =
            |texts: &[PerJobText]| texts.iter().map(|text| text.text_for_job(bindings, index)).collect();
        JobSettings {
            failure_handler: number(differing.handler),
            scheduler: number(differing.scheduler),
            limit: number(differing.limit).map(|number| self.spec.limits[number as usize].name.clone()),
            labels: texts(&differing.labels),
            sites: texts(&differing.sites),
            ..*common
        }
    }

    /// Creates one job group, or several if their settings differ from job to job.
    fn add_job_groups(
        &mut self,
        entry: u32,
        group: &JobGroup<u32>,
        differing: &VaryingSettings,
    ) -> PerJobNumber {
        let bindings = self.expanded.jobs.bindings(entry);
        let count = self.expanded.jobs.range(entry).len() as u32;
        let mut made: FxHashMap<JobSettings<u32>, u32> = FxHashMap::default();
        let mut group_for = |index: u32| {
            let settings = self.compute_settings(&group.settings, differing, bindings, index);
            *made.entry(settings).or_insert_with_key(|settings| {
                self.resolved.job_groups.push(JobGroup { settings: settings.clone(), ..group.clone() });
                self.resolved.job_groups.len() as u32 - 1
            })
        };
        if differing.is_uniform() {
            return PerJobNumber::All(group_for(0));
        }
        let groups: Vec<u32> = (0..count).map(group_for).collect();
        PerJobNumber::Each(self.resolved.relations.add_column(&groups))
    }
}

/// Returns `work_#` for `work_017`.
fn mask_numbers(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '0'..='9' if pattern.ends_with('#') => {}
            '0'..='9' => pattern.push('#'),
            _ => pattern.push(c),
        }
    }
    pattern
}
