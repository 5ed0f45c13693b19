//! Resolves entries with templates: the templates of their jobs, and the lists of each job.

use super::regexes::NoMatch;
use super::relations::{EntryRelation, UNKNOWN_NUMBER};
use super::{EntryKind, LIST_WITH_BRACES, NO_LIST, NameResolver, RelationKind};
use crate::diagnostic::SpecDiagnostic;
use crate::expand::{
    CommandReference, ReferenceKind, TemplateCompiler, TextPosition, join_with_space, render_template,
};
use crate::model::{JobSpec, ListRange, NamedText, RareJobFields};
use crate::source::SourceSpan;
use crate::template::TextTemplate;
use rustc_hash::FxHashSet;
use windlass_types::JobOptions;

/// The details of the jobs of an entry that is not plain.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryDetail {
    /// `None`: as written.
    pub(crate) command: Option<TextTemplate>,
    /// The targets of the references in the command.
    pub(crate) references: Vec<(ReferenceKind, ReferenceTarget)>,
    /// Only the variables that differ from job to job.
    pub(crate) env: Vec<(String, TextTemplate)>,
    /// Only if it differs from job to job.
    pub(crate) invocation_script: Option<TextTemplate>,
    pub(crate) options: JobOptions<TextTemplate>,
    pub(crate) requirements: PerJobNumber,
    pub(crate) job_group: PerJobNumber,
    pub(crate) relations: [EntryRelation; RelationKind::COUNT],
}

/// A number shared by all jobs of an entry, or one for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PerJobNumber {
    #[default]
    None,
    All(u32),
    /// A column in the relation lists.
    Each(u32),
}

/// The file or user data of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceTarget {
    Same(u32),
    /// This position in the own items of the job for this relation.
    Own {
        relation_kind: RelationKind,
        position: u32,
    },
}

/// One relation as written in an entry.
struct WrittenRelation<'p> {
    relation_kind: RelationKind,
    entry_kind: EntryKind,
    names: ListRange,
    regexes: ListRange,
    /// References in the command, with their numbers.
    command_references: Vec<(usize, &'p CommandReference)>,
}

impl NameResolver<'_, '_> {
    pub(super) fn resolve_jobs(&mut self) {
        let spec = self.spec;
        self.resolved.details.reserve(spec.jobs.len());
        for (entry, job) in (0..).zip(&spec.jobs) {
            if self.expanded.jobs.range(entry).is_empty() {
                self.resolve_plain_names(job);
                self.resolved.details.push(None);
                continue;
            }
            self.used_parameters = 0;
            let detail = if self.is_plain(entry, job) {
                None
            } else {
                Some(Box::new(self.resolve_detail(entry, job)))
            };
            self.resolved.details.push(detail);
            self.warn_unused_parameters(EntryKind::Jobs, entry, job.name);
        }
    }

    /// Resolves the plain names of an entry that could not be expanded. Texts with braces cannot be resolved.
    fn resolve_plain_names(&mut self, job: &JobSpec) {
        let nothing = RareJobFields::default();
        let more = job.rare.as_deref().unwrap_or(&nothing);
        for (sort, names, regexes) in [
            (EntryKind::Jobs, job.depends_on, more.depends_on_regexes),
            (EntryKind::Files, job.input_files, more.input_file_regexes),
            (EntryKind::Files, job.output_files, more.output_file_regexes),
            (EntryKind::UserData, more.input_user_data, more.input_user_data_regexes),
            (EntryKind::UserData, more.output_user_data, more.output_user_data_regexes),
        ] {
            self.find_shared_list(sort, names);
            let spec = self.spec;
            for pattern in &spec.names[regexes.range()] {
                let text = spec.texts.get(pattern.text);
                if !text.contains('{') {
                    self.find_matching_list(sort, text, pattern.span, None);
                }
            }
        }
    }

    fn is_plain(&mut self, entry: u32, job: &JobSpec) -> bool {
        let requirements = job.requirements.map(|used| &self.spec.requirement_names[used.name as usize]);
        // No short circuit, so that all names are resolved.
        let lists = [
            self.find_shared_list(EntryKind::Jobs, job.depends_on),
            self.find_shared_list(EntryKind::Files, job.input_files),
            self.find_shared_list(EntryKind::Files, job.output_files),
        ];
        !lists.contains(&LIST_WITH_BRACES)
            && self.expanded.jobs.bindings(entry).is_none()
            && job.rare.is_none()
            && !self.has_braces(job.env)
            && !self.spec.texts.get(job.command.text).contains('{')
            && requirements.is_none_or(|name| !name.contains('{'))
    }

    /// Whether an environment contains placeholders. A shared one is checked once.
    fn has_braces(&mut self, env: ListRange) -> bool {
        if env.is_empty() {
            return false;
        }
        let spec = self.spec;
        self.braces_in_env.resize(spec.variables.len(), None);
        *self.braces_in_env[env.start as usize].get_or_insert_with(|| {
            let mut values = spec.variables[env.range()].iter().map(|variable| variable.value.text);
            values.any(|value| spec.texts.get(value).contains('{'))
        })
    }

    fn resolve_detail(&mut self, entry: u32, job: &JobSpec) -> EntryDetail {
        let nothing = RareJobFields::default();
        let more = job.rare.as_deref().unwrap_or(&nothing);
        let (command, parts) = self.compile_command(entry, job.command);
        let mut detail = EntryDetail { command, ..EntryDetail::default() };
        let mut targets = vec![None; parts.len()];
        let referred = |to: ReferenceKind, is_output: bool| {
            let wanted =
                |(_, part): &(usize, &CommandReference)| part.kind == to && part.is_output == is_output;
            parts.iter().enumerate().filter(wanted).collect::<Vec<_>>()
        };
        let (file, data) = (ReferenceKind::File, ReferenceKind::UserData);
        #[rustfmt::skip]
        let all = [
            (RelationKind::DependsOn, EntryKind::Jobs, job.depends_on, more.depends_on_regexes, Vec::new()),
            (RelationKind::InputFiles, EntryKind::Files, job.input_files, more.input_file_regexes, referred(file, false)),
            (RelationKind::OutputFiles, EntryKind::Files, job.output_files, more.output_file_regexes, referred(file, true)),
            (RelationKind::InputUserData, EntryKind::UserData, more.input_user_data, more.input_user_data_regexes, referred(data, false)),
            (RelationKind::OutputUserData, EntryKind::UserData, more.output_user_data, more.output_user_data_regexes, referred(data, true)),
        ];
        for (way, sort, names, regexes, parts) in all {
            let said = WrittenRelation {
                relation_kind: way,
                entry_kind: sort,
                names,
                regexes,
                command_references: parts,
            };
            detail.relations[way as usize] = self.resolve_relation(entry, &said, &mut targets);
        }
        let target = |(part, target): (&CommandReference, &Option<ReferenceTarget>)| {
            (part.kind, target.unwrap_or(ReferenceTarget::Same(UNKNOWN_NUMBER)))
        };
        detail.references = parts.iter().zip(&targets).map(target).collect();
        detail.requirements = self.find_requirements(entry, job);
        self.resolve_job_group(entry, job, more, &mut detail);
        detail
    }

    fn compile_command(
        &mut self,
        entry: u32,
        command: NamedText,
    ) -> (Option<TextTemplate>, Vec<CommandReference>) {
        let texts = &self.spec.texts;
        let bindings = self.expanded.jobs.bindings(entry);
        let mut compiler = TemplateCompiler::new(&self.expanded.constants, bindings, self.sinks);
        let (template, parts) =
            compiler.compile_command(texts.get(command.text), TextPosition::from_named(texts, command));
        let in_names = parts.iter().filter_map(|part| part.name.as_ref());
        for template in template.iter().chain(in_names) {
            self.used_parameters |= template.parameters();
        }
        (template, parts)
    }

    fn resolve_relation(
        &mut self,
        entry: u32,
        said: &WrittenRelation<'_>,
        targets: &mut [Option<ReferenceTarget>],
    ) -> EntryRelation {
        let mut relation = EntryRelation::default();
        let mut same = Vec::new();
        let mut own = Vec::new();
        match self.find_shared_list(said.entry_kind, said.names) {
            NO_LIST => {}
            LIST_WITH_BRACES => {
                for name in &self.spec.names[said.names.range()] {
                    if self.report_name_of_other_entry(said.relation_kind, said.entry_kind, entry, *name) {
                        continue;
                    }
                    let template = self.compile_named(*name, Some((EntryKind::Jobs, entry)));
                    let text = self.spec.texts.get(name.text);
                    match template {
                        Some(template) if template.has_values() => own.push((template, name.span)),
                        template => {
                            let text = template.as_ref().and_then(TextTemplate::as_constant).unwrap_or(text);
                            same.extend(self.find_number(said.entry_kind, text, name.span, None));
                        }
                    }
                }
            }
            list => relation.shared.push(list),
        }
        for (number, part) in &said.command_references {
            targets[*number] = match &part.name {
                Some(template) if template.has_values() => {
                    own.push((template.clone(), part.span));
                    Some(ReferenceTarget::Own {
                        relation_kind: said.relation_kind,
                        position: own.len() as u32 - 1,
                    })
                }
                template => {
                    let text = template.as_ref().and_then(TextTemplate::as_constant).unwrap_or(&part.text);
                    let found = self.find_number(said.entry_kind, text, part.span, None);
                    same.extend(found);
                    found.map(ReferenceTarget::Same)
                }
            };
        }
        if !same.is_empty() {
            relation.shared.push(self.resolved.relations.add_shared(same));
        }
        self.resolve_own_names(entry, said.entry_kind, &own, &mut relation);
        self.add_regex_matches(entry, said, &mut relation);
        relation
    }

    /// Resolves names that differ from job to job.
    fn resolve_own_names(
        &mut self,
        entry: u32,
        sort: EntryKind,
        own: &[(TextTemplate, SourceSpan)],
        relation: &mut EntryRelation,
    ) {
        if own.is_empty() {
            return;
        }
        let jobs = self.expanded.jobs.range(entry);
        let bindings = self.expanded.jobs.bindings(entry);
        let mut items = Vec::with_capacity(jobs.len() * own.len());
        let mut name = std::mem::take(&mut self.scratch);
        for (index, job) in (0..).zip(jobs) {
            for (template, span) in own {
                name.clear();
                render_template(template, bindings, index, &mut name);
                items.push(self.find_number(sort, &name, *span, Some(job)).unwrap_or(UNKNOWN_NUMBER));
            }
        }
        self.scratch = name;
        self.resolved.relations.add_own(relation, own.len(), &items);
    }

    /// Adds the matches of the regular expressions.
    fn add_regex_matches(&mut self, entry: u32, said: &WrittenRelation<'_>, relation: &mut EntryRelation) {
        let jobs = self.expanded.jobs.range(entry);
        // One column for each expression that differs from job to job, or that matches a job of the entry
        // itself.
        let mut columns: Vec<Vec<u32>> = Vec::new();
        for pattern in &self.spec.names[said.regexes.range()] {
            let template = self.compile_named(*pattern, Some((EntryKind::Jobs, entry)));
            let lists = match &template {
                Some(template) if template.has_values() => {
                    Some(self.match_lists_by_job(entry, said.entry_kind, template, pattern.span))
                }
                template => {
                    let text = self.spec.texts.get(pattern.text);
                    let text = template.as_ref().and_then(TextTemplate::as_constant).unwrap_or(text);
                    self.find_matching_list(said.entry_kind, text, pattern.span, None)
                        .map(|list| vec![list; jobs.len()])
                }
            };
            let Some(mut lists) = lists else { continue };
            let was_changed = said.relation_kind == RelationKind::DependsOn
                && self.exclude_self(entry, &mut lists, pattern.span);
            let is_shared = !was_changed && lists.windows(2).all(|pair| pair[0] == pair[1]);
            match lists.first() {
                Some(list) if is_shared => relation.shared.push(*list),
                _ => columns.push(lists),
            }
        }
        let by_job = (0..jobs.len()).flat_map(|job| columns.iter().map(move |lists| lists[job]));
        let by_job: Vec<u32> = by_job.collect();
        self.resolved.relations.add_each(relation, columns.len(), &by_job);
    }

    fn match_lists_by_job(
        &mut self,
        entry: u32,
        sort: EntryKind,
        template: &TextTemplate,
        span: SourceSpan,
    ) -> Vec<u32> {
        let bindings = self.expanded.jobs.bindings(entry);
        let nothing = self.resolved.relations.add_shared([]);
        let mut lists = Vec::new();
        let mut pattern = String::new();
        for (index, job) in (0..).zip(self.expanded.jobs.range(entry)) {
            pattern.clear();
            render_template(template, bindings, index, &mut pattern);
            lists.push(self.find_matching_list(sort, &pattern, span, Some(job)).unwrap_or(nothing));
        }
        lists
    }

    /// Returns the shared list of the matches of a regular expression.
    pub(super) fn find_matching_list(
        &mut self,
        sort: EntryKind,
        pattern: &str,
        span: SourceSpan,
        user: Option<u32>,
    ) -> Option<u32> {
        let series = self.entry_series(sort);
        let found = self.patterns[sort as usize].match_names(pattern, series, &mut self.resolved.relations);
        let problem = match found {
            Ok(list) => return Some(list),
            Err(problem) => problem,
        };
        let values = user.map_or_else(String::new, |job| self.expanded.jobs.describe_values(job));
        let what = sort.singular();
        let diagnostic = match problem {
            // The match may be an entry that could not be read.
            NoMatch::Nothing if self.may_match_unread(sort, pattern) => return None,
            NoMatch::Nothing => {
                let message = format!("the regular expression `{pattern}` matches no {what}");
                SpecDiagnostic::new("no-match", join_with_space(&message, &values))
            }
            NoMatch::Invalid(why) => {
                let message = format!("`{pattern}` is not a regular expression: {why}");
                SpecDiagnostic::new("bad-regex", join_with_space(&message, &values))
            }
            NoMatch::TooMuchWork => {
                let message = "the regular expressions of the spec would be tested against too many names";
                SpecDiagnostic::new("too-many", message).with_help("start them with `^` and a literal prefix")
            }
        };
        self.sinks.errors.push(diagnostic.with_span(span));
        None
    }

    /// Removes each job from its own list, because a job does not wait for itself if a regular expression
    /// matches its name. Returns whether any list changed.
    fn exclude_self(&mut self, entry: u32, lists: &mut [u32], span: SourceSpan) -> bool {
        let jobs = self.expanded.jobs.range(entry);
        let mut changed: FxHashSet<u32> = FxHashSet::default();
        for (index, job) in jobs.clone().enumerate() {
            let items = self.resolved.relations.shared(lists[index]);
            if items.binary_search(&job).is_err() {
                continue;
            }
            if !changed.insert(lists[index]) {
                // Two jobs in the same list that both use it.
                let other = jobs.clone().find(|other| items.contains(other)).unwrap_or(job);
                let [a, b] = [other, job].map(|job| self.expanded.jobs.name(job));
                let message = format!("jobs depend on each other in a cycle: {a} -> {b} -> {a}");
                let diagnostic = SpecDiagnostic::new("cycle", message).with_span(span);
                self.sinks
                    .errors
                    .push(diagnostic.with_label(span, "matches several jobs of this entry itself"));
                lists.fill(self.resolved.relations.add_shared([]));
                return false;
            }
            let others: Vec<u32> = items.iter().copied().filter(|item| *item != job).collect();
            lists[index] = self.resolved.relations.add_shared(others);
        }
        !changed.is_empty()
    }
}
