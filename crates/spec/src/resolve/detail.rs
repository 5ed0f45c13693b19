//! The jobs of an entry that is not plain: their templates, and the lists that belong to each of them.

use super::regexes::NoMatch;
use super::relations::{Relation, UNKNOWN};
use super::{BRACES, NONE, Resolver, Sort, Way};
use crate::diagnostic::Diagnostic;
use crate::expand::{Compiler, Part, Place, ReferenceTo, render, spaced};
use crate::model::{JobMore, JobSpec, List, Named};
use crate::source::Span;
use crate::template::Template;
use rustc_hash::FxHashSet;

/// What the jobs of an entry that is not plain have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detail {
    /// `None`: as written.
    pub(crate) command: Option<Template>,
    /// What the references in the command stand for.
    pub(crate) references: Vec<(ReferenceTo, Target)>,
    /// Only the variables that differ from job to job.
    pub(crate) env: Vec<(String, Template)>,
    /// Only if it differs from job to job.
    pub(crate) invocation_script: Option<Template>,
    pub(crate) requirements: PerJob,
    pub(crate) kind: PerJob,
    pub(crate) relations: [Relation; Way::COUNT],
}

/// A number that all jobs of an entry have, or each its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PerJob {
    #[default]
    None,
    All(u32),
    /// A column of the relations.
    Each(u32),
}

/// The file or user data that a reference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Same(u32),
    /// That position among the job's own of this way.
    Own {
        way: Way,
        position: u32,
    },
}

/// What an entry says about one way of relating.
struct Said<'p> {
    way: Way,
    sort: Sort,
    names: List,
    regexes: List,
    /// References in the command, with their numbers.
    parts: Vec<(usize, &'p Part)>,
}

impl Resolver<'_, '_> {
    pub(super) fn jobs(&mut self) {
        let spec = self.spec;
        self.done.details.reserve(spec.jobs.len());
        for (entry, job) in (0..).zip(&spec.jobs) {
            if self.expanded.jobs.range(entry).is_empty() {
                self.plain_names(job);
                self.done.details.push(None);
                continue;
            }
            self.used_parameters = 0;
            let detail =
                if self.is_plain(entry, job) { None } else { Some(Box::new(self.detail(entry, job))) };
            self.done.details.push(detail);
            self.unused_parameters(Sort::Jobs, entry, job.name);
        }
    }

    /// Looks up what an entry names that could not be expanded. What its texts with braces mean is not known.
    fn plain_names(&mut self, job: &JobSpec) {
        let nothing = JobMore::default();
        let more = job.more.as_deref().unwrap_or(&nothing);
        for (sort, names, regexes) in [
            (Sort::Jobs, job.depends_on, more.depends_on_regexes),
            (Sort::Files, job.input_files, more.input_file_regexes),
            (Sort::Files, job.output_files, more.output_file_regexes),
            (Sort::UserData, more.input_user_data, more.input_user_data_regexes),
            (Sort::UserData, more.output_user_data, more.output_user_data_regexes),
        ] {
            self.shared_list(sort, names);
            let spec = self.spec;
            for pattern in &spec.names[regexes.range()] {
                let text = spec.texts.get(pattern.text);
                if !text.contains('{') {
                    self.matching(sort, text, pattern.span, None);
                }
            }
        }
    }

    fn is_plain(&mut self, entry: u32, job: &JobSpec) -> bool {
        let requirements = job.requirements.map(|used| &self.spec.requirement_names[used.name as usize]);
        // All three, so that all names are looked up.
        let lists = [
            self.shared_list(Sort::Jobs, job.depends_on),
            self.shared_list(Sort::Files, job.input_files),
            self.shared_list(Sort::Files, job.output_files),
        ];
        !lists.contains(&BRACES)
            && self.expanded.jobs.bindings(entry).is_none()
            && job.more.is_none()
            && !self.has_braces(job.env)
            && !self.spec.texts.get(job.command.text).contains('{')
            && requirements.is_none_or(|name| !name.contains('{'))
    }

    /// Whether an environment has something to fill in. One that many jobs share is looked at once.
    fn has_braces(&mut self, env: List) -> bool {
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

    fn detail(&mut self, entry: u32, job: &JobSpec) -> Detail {
        let nothing = JobMore::default();
        let more = job.more.as_deref().unwrap_or(&nothing);
        let (command, parts) = self.command(entry, job.command);
        let mut detail = Detail { command, ..Detail::default() };
        let mut targets = vec![None; parts.len()];
        let referred = |to: ReferenceTo, is_output: bool| {
            let wanted = |(_, part): &(usize, &Part)| part.to == to && part.is_output == is_output;
            parts.iter().enumerate().filter(wanted).collect::<Vec<_>>()
        };
        let (file, data) = (ReferenceTo::File, ReferenceTo::UserData);
        #[rustfmt::skip]
        let all = [
            (Way::DependsOn, Sort::Jobs, job.depends_on, more.depends_on_regexes, Vec::new()),
            (Way::InputFiles, Sort::Files, job.input_files, more.input_file_regexes, referred(file, false)),
            (Way::OutputFiles, Sort::Files, job.output_files, more.output_file_regexes, referred(file, true)),
            (Way::InputUserData, Sort::UserData, more.input_user_data, more.input_user_data_regexes, referred(data, false)),
            (Way::OutputUserData, Sort::UserData, more.output_user_data, more.output_user_data_regexes, referred(data, true)),
        ];
        for (way, sort, names, regexes, parts) in all {
            let said = Said { way, sort, names, regexes, parts };
            detail.relations[way as usize] = self.relation(entry, &said, &mut targets);
        }
        let target =
            |(part, target): (&Part, &Option<Target>)| (part.to, target.unwrap_or(Target::Same(UNKNOWN)));
        detail.references = parts.iter().zip(&targets).map(target).collect();
        detail.requirements = self.requirements_of(entry, job);
        self.kind(entry, job, more, &mut detail);
        detail
    }

    fn command(&mut self, entry: u32, command: Named) -> (Option<Template>, Vec<Part>) {
        let texts = &self.spec.texts;
        let bindings = self.expanded.jobs.bindings(entry);
        let mut compiler = Compiler::new(&self.expanded.constants, bindings, self.sinks);
        let (template, parts) = compiler.compile_command(texts.get(command.text), Place::of(texts, command));
        let in_names = parts.iter().filter_map(|part| part.name.as_ref());
        for template in template.iter().chain(in_names) {
            self.used_parameters |= template.parameters();
        }
        (template, parts)
    }

    fn relation(&mut self, entry: u32, said: &Said<'_>, targets: &mut [Option<Target>]) -> Relation {
        let mut relation = Relation::default();
        let mut same = Vec::new();
        let mut own = Vec::new();
        match self.shared_list(said.sort, said.names) {
            NONE => {}
            BRACES => {
                for name in &self.spec.names[said.names.range()] {
                    if self.means_another_entry(said.way, said.sort, entry, *name) {
                        continue;
                    }
                    let template = self.compile_named(*name, Some((Sort::Jobs, entry)));
                    let text = self.spec.texts.get(name.text);
                    match template {
                        Some(template) if template.has_values() => own.push((template, name.span)),
                        template => {
                            let text = template.as_ref().and_then(Template::constant).unwrap_or(text);
                            same.extend(self.find(said.sort, text, name.span, None));
                        }
                    }
                }
            }
            list => relation.shared.push(list),
        }
        for (number, part) in &said.parts {
            targets[*number] = match &part.name {
                Some(template) if template.has_values() => {
                    own.push((template.clone(), part.span));
                    Some(Target::Own { way: said.way, position: own.len() as u32 - 1 })
                }
                template => {
                    let text = template.as_ref().and_then(Template::constant).unwrap_or(&part.text);
                    let found = self.find(said.sort, text, part.span, None);
                    same.extend(found);
                    found.map(Target::Same)
                }
            };
        }
        if !same.is_empty() {
            relation.shared.push(self.done.relations.share(same));
        }
        self.own_names(entry, said.sort, &own, &mut relation);
        self.matches(entry, said, &mut relation);
        relation
    }

    /// Names that differ from job to job.
    fn own_names(&mut self, entry: u32, sort: Sort, own: &[(Template, Span)], relation: &mut Relation) {
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
                render(template, bindings, index, &mut name);
                items.push(self.find(sort, &name, *span, Some(job)).unwrap_or(UNKNOWN));
            }
        }
        self.scratch = name;
        self.done.relations.keep_own(relation, own.len(), &items);
    }

    /// What the regular expressions match.
    fn matches(&mut self, entry: u32, said: &Said<'_>, relation: &mut Relation) {
        let jobs = self.expanded.jobs.range(entry);
        // For each expression that differs from job to job, or that matches a job of the entry itself.
        let mut columns: Vec<Vec<u32>> = Vec::new();
        for pattern in &self.spec.names[said.regexes.range()] {
            let template = self.compile_named(*pattern, Some((Sort::Jobs, entry)));
            let lists = match &template {
                Some(template) if template.has_values() => {
                    Some(self.lists_by_job(entry, said.sort, template, pattern.span))
                }
                template => {
                    let text = self.spec.texts.get(pattern.text);
                    let text = template.as_ref().and_then(Template::constant).unwrap_or(text);
                    self.matching(said.sort, text, pattern.span, None).map(|list| vec![list; jobs.len()])
                }
            };
            let Some(mut lists) = lists else { continue };
            let was_changed =
                said.way == Way::DependsOn && self.leave_out_itself(entry, &mut lists, pattern.span);
            let is_shared = !was_changed && lists.windows(2).all(|pair| pair[0] == pair[1]);
            match lists.first() {
                Some(list) if is_shared => relation.shared.push(*list),
                _ => columns.push(lists),
            }
        }
        let by_job = (0..jobs.len()).flat_map(|job| columns.iter().map(move |lists| lists[job]));
        let by_job: Vec<u32> = by_job.collect();
        self.done.relations.keep_each(relation, columns.len(), &by_job);
    }

    fn lists_by_job(&mut self, entry: u32, sort: Sort, template: &Template, span: Span) -> Vec<u32> {
        let bindings = self.expanded.jobs.bindings(entry);
        let nothing = self.done.relations.share([]);
        let mut lists = Vec::new();
        let mut pattern = String::new();
        for (index, job) in (0..).zip(self.expanded.jobs.range(entry)) {
            pattern.clear();
            render(template, bindings, index, &mut pattern);
            lists.push(self.matching(sort, &pattern, span, Some(job)).unwrap_or(nothing));
        }
        lists
    }

    /// The shared list of what a regular expression matches.
    pub(super) fn matching(
        &mut self,
        sort: Sort,
        pattern: &str,
        span: Span,
        user: Option<u32>,
    ) -> Option<u32> {
        let series = self.series(sort);
        let found = self.patterns[sort as usize].matches(pattern, series, &mut self.done.relations);
        let problem = match found {
            Ok(list) => return Some(list),
            Err(problem) => problem,
        };
        let values = user.map_or_else(String::new, |job| self.expanded.jobs.values_of(job));
        let what = sort.singular();
        let diagnostic = match problem {
            // What it would match may be what could not be read.
            NoMatch::Nothing if self.may_match_unread(sort, pattern) => return None,
            NoMatch::Nothing => {
                let message = format!("the regular expression `{pattern}` matches the name of no {what}");
                Diagnostic::new("no-match", spaced(&message, &values))
            }
            NoMatch::Invalid(why) => {
                let message = format!("`{pattern}` is not a regular expression: {why}");
                Diagnostic::new("bad-regex", spaced(&message, &values))
            }
            NoMatch::TooMuchWork => {
                let message = "the regular expressions of the spec would have to be tried on too many names";
                Diagnostic::new("too-many", message).help("begin them with `^` and what the names begin with")
            }
        };
        self.sinks.errors.push(diagnostic.at(span));
        None
    }

    /// A job does not wait for itself because a regular expression matches its own name, too. Whether that changed
    /// any of the lists.
    fn leave_out_itself(&mut self, entry: u32, lists: &mut [u32], span: Span) -> bool {
        let jobs = self.expanded.jobs.range(entry);
        let mut changed: FxHashSet<u32> = FxHashSet::default();
        for (index, job) in jobs.clone().enumerate() {
            let items = self.done.relations.shared(lists[index]);
            if items.binary_search(&job).is_err() {
                continue;
            }
            if !changed.insert(lists[index]) {
                // Two jobs with the same list, both in it.
                let other = jobs.clone().find(|other| items.contains(other)).unwrap_or(job);
                let [a, b] = [other, job].map(|job| self.expanded.jobs.name(job));
                let message = format!("jobs wait for each other in a circle: {a} -> {b} -> {a}");
                let diagnostic = Diagnostic::new("cycle", message).at(span);
                self.sinks.errors.push(diagnostic.label(span, "matches several jobs of this entry itself"));
                lists.fill(self.done.relations.share([]));
                return false;
            }
            let others: Vec<u32> = items.iter().copied().filter(|item| *item != job).collect();
            lists[index] = self.done.relations.share(others);
        }
        !changed.is_empty()
    }
}
