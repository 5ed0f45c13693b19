//! What the jobs of one entry have in common besides their command, and what they ask for. Where they may run and how
//! many at once is in [`super::places`].

use super::detail::{Detail, PerJob};
use super::relations::UNKNOWN;
use super::{Resolver, Sort, duplicate};
use crate::diagnostic::Diagnostic;
use crate::expand::{Bindings, Place, render, spaced};
use crate::index::NameIndex;
use crate::model::{JobMore, JobSpec, Named};
use crate::source::Span;
use crate::template::Template;
use crate::workflow::JobKind;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// A text that may differ from job to job.
pub(super) enum Text {
    Same(String),
    ByJob(Template),
}

impl Text {
    pub(super) fn of_job(&self, bindings: Option<&Bindings>, index: u32) -> String {
        match self {
            Self::Same(text) => text.clone(),
            Self::ByJob(template) => {
                let mut text = String::new();
                render(template, bindings, index, &mut text);
                text
            }
        }
    }
}

/// What can make jobs of one entry jobs of several kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Differences {
    handler: Option<u32>,
    scheduler: Option<u32>,
    limit: Option<u32>,
    labels: Vec<String>,
    sites: Vec<String>,
}

/// Where [`Differences`] come from.
struct Differing {
    handler: PerJob,
    scheduler: PerJob,
    limit: PerJob,
    labels: Vec<Text>,
    sites: Vec<Text>,
}

impl Differing {
    fn is_the_same_for_all(&self) -> bool {
        let numbers = [self.handler, self.scheduler, self.limit];
        let mut texts = self.labels.iter().chain(&self.sites);
        !numbers.iter().any(|number| matches!(number, PerJob::Each(_)))
            && texts.all(|text| matches!(text, Text::Same(_)))
    }
}

impl JobKind {
    /// Holds nothing but its name.
    fn is_empty(&self) -> bool {
        *self == Self { name: self.name.clone(), ..Self::default() }
    }
}

/// What to say of a name that does not exist.
pub(super) struct Unknown<'v> {
    pub(super) what: &'static str,
    pub(super) code: &'static str,
    /// Of the parameters that made the name.
    pub(super) values: &'v str,
}

impl Resolver<'_, '_> {
    pub(super) fn requirements(&mut self) {
        let defined = &self.spec.requirements;
        let name_of = |number: u32| defined[number as usize].name.as_str();
        let mut index = NameIndex::with_capacity(defined.len());
        for (number, requirement) in defined.iter().enumerate() {
            if let Some(first) = index.insert(&requirement.name, number as u32, name_of) {
                let first = defined[first as usize].span;
                let diagnostic =
                    duplicate("resource requirement", &requirement.name, requirement.span, first);
                self.sinks.errors.push(diagnostic);
            }
        }
        let names = &self.spec.requirement_names;
        self.done.requirements =
            names.iter().map(|name| index.find(name, name_of).unwrap_or(UNKNOWN)).collect();
        self.requirement_index = index;
        let is_missing = |name: &str, found: u32| found == UNKNOWN && !name.contains('{');
        if !names.iter().zip(&self.done.requirements).any(|(name, found)| is_missing(name, *found)) {
            return;
        }
        for used in self.spec.jobs.iter().filter_map(|job| job.requirements) {
            let name = &names[used.name as usize];
            if is_missing(name, self.done.requirements[used.name as usize]) {
                self.unknown_requirement(name, used.span, "");
            }
        }
    }

    fn unknown_requirement(&mut self, name: &str, span: Span, values: &str) {
        if !self.read.all_requirements {
            return;
        }
        let defined = self.spec.requirements.iter().map(|requirement| requirement.name.as_str());
        let unknown = Unknown { what: "resource requirement", code: "unknown-requirement", values };
        self.unknown(&unknown, name, span, defined);
    }

    /// The requirements of the jobs of an entry.
    pub(super) fn requirements_of(&mut self, entry: u32, job: &JobSpec) -> PerJob {
        let Some(used) = job.requirements else { return PerJob::None };
        let spec = self.spec;
        let name = &spec.requirement_names[used.name as usize];
        if !name.contains('{') {
            return PerJob::All(self.done.requirements[used.name as usize]);
        }
        let text = self.text(name, Place::near(used.span), entry);
        self.number_of(entry, &text, |this, name, values| {
            let name_of = |number: u32| spec.requirements[number as usize].name.as_str();
            let found = this.requirement_index.find(name, name_of);
            if found.is_none() {
                this.unknown_requirement(name, used.span, values);
            }
            found.unwrap_or(UNKNOWN)
        })
    }

    /// Looks a name up that may differ from job to job; each spelling once.
    pub(super) fn number_of(
        &mut self,
        entry: u32,
        text: &Text,
        mut find: impl FnMut(&mut Self, &str, &str) -> u32,
    ) -> PerJob {
        if let Text::Same(name) = text {
            return PerJob::All(find(self, name, ""));
        }
        let bindings = self.expanded.jobs.bindings(entry);
        let mut known: FxHashMap<String, u32> = FxHashMap::default();
        let mut numbers = Vec::new();
        for (index, job) in (0..).zip(self.expanded.jobs.range(entry)) {
            let name = text.of_job(bindings, index);
            let number = known.get(&name).copied().unwrap_or_else(|| {
                let number = find(self, &name, &self.expanded.jobs.values_of(job));
                known.insert(name, number);
                number
            });
            numbers.push(number);
        }
        PerJob::Each(self.done.relations.keep_column(&numbers))
    }

    fn text(&mut self, text: &str, place: Place<'_, '_>, entry: u32) -> Text {
        match self.compile(text, place, Some((Sort::Jobs, entry))) {
            None => Text::Same(text.to_owned()),
            Some(template) => match template.constant() {
                Some(text) => Text::Same(text.to_owned()),
                None => Text::ByJob(template),
            },
        }
    }

    pub(super) fn named(&mut self, named: Named, entry: u32) -> Text {
        let texts = &self.spec.texts;
        self.text(texts.get(named.text), Place::of(texts, named), entry)
    }

    /// Makes the kind (or kinds) of an entry, and keeps in `detail` what differs from job to job.
    pub(super) fn kind(&mut self, entry: u32, job: &JobSpec, more: &JobMore, detail: &mut Detail) {
        let spec = self.spec;
        let mut kind = JobKind {
            name: spec.texts.get(job.name.text).to_owned(),
            stdio: more.stdio,
            supports_termination: more.supports_termination,
            ..JobKind::default()
        };
        if let Some(bindings) = self.expanded.jobs.bindings(entry) {
            kind.parameters = bindings.names().map(str::to_owned).collect();
        }
        for variable in &spec.variables[job.env.range()] {
            let name = spec.texts.get(variable.name).to_owned();
            match self.named(variable.value, entry) {
                Text::Same(value) => kind.env.push((name, value)),
                Text::ByJob(template) => detail.env.push((name, template)),
            }
        }
        match more.invocation_script.map(|script| self.named(script, entry)) {
            None => {}
            Some(Text::Same(script)) => kind.invocation_script = Some(script),
            Some(Text::ByJob(template)) => detail.invocation_script = Some(template),
        }
        let differences = Differing {
            handler: self.handler(entry, more.failure_handler),
            scheduler: self.scheduler(entry, more.scheduler),
            limit: self.limit(entry, more.limit),
            labels: spec.names[more.labels.range()].iter().map(|label| self.named(*label, entry)).collect(),
            sites: self.sites(entry, more.sites),
        };
        if self.expanded.jobs.bindings(entry).is_none() {
            self.kind_of_one(kind, &differences, detail);
        } else {
            detail.kind = self.kinds_of(entry, &kind, &differences);
        }
    }

    /// The kind of the one job of an entry without parameters. The job keeps its environment for itself, and jobs whose
    /// names differ only in numbers share the rest: a million of them that are written out need no million kinds.
    fn kind_of_one(&mut self, kind: JobKind, differing: &Differing, detail: &mut Detail) {
        let env = kind.env.iter().map(|(name, value)| (name.clone(), Template::of_text(value)));
        detail.env.extend(env);
        let differences = self.differences(differing, None, 0);
        let pattern = without_numbers(&kind.name);
        let kind = JobKind { env: Vec::new(), ..self.with(kind, differences) };
        if kind.is_empty() {
            return;
        }
        let kinds = &mut self.done.kinds;
        let number = match self.kinds_of_one.entry(JobKind { name: pattern, ..kind.clone() }) {
            Entry::Vacant(new) => {
                kinds.push(kind);
                *new.insert(kinds.len() as u32 - 1)
            }
            Entry::Occupied(known) => {
                // The first that is shared gets the name that fits all; kinds are known by their names.
                let shared = &mut kinds[*known.get() as usize];
                if shared.name != known.key().name && self.shared_kinds.insert(known.key().name.clone()) {
                    shared.name.clone_from(&known.key().name);
                }
                *known.get()
            }
        };
        detail.kind = PerJob::All(number);
    }

    fn handler(&mut self, entry: u32, named: Option<Named>) -> PerJob {
        let (handlers, all_read) = (&self.spec.failure_handlers, self.read.all_failure_handlers);
        let Some(named) = named else { return PerJob::None };
        let text = self.named(named, entry);
        self.number_of(entry, &text, |this, name, values| {
            let name_of = |number: u32| handlers[number as usize].0.name.as_str();
            let found = this.handler_index.find(name, name_of);
            if found.is_none() && all_read {
                let known = handlers.iter().map(|(handler, _)| handler.name.as_str());
                let unknown = Unknown { what: "failure handler", code: "unknown-failure-handler", values };
                this.unknown(&unknown, name, named.span, known);
            }
            found.unwrap_or(UNKNOWN)
        })
    }

    fn scheduler(&mut self, entry: u32, named: Option<Named>) -> PerJob {
        let Some(named) = named else { return PerJob::None };
        let text = self.named(named, entry);
        self.number_of(entry, &text, |this, name, values| this.find_scheduler(name, named.span, values))
    }

    /// The number of a scheduler; one that does not exist is reported.
    pub(super) fn find_scheduler(&mut self, name: &str, span: Span, values: &str) -> u32 {
        let schedulers = &self.spec.schedulers;
        let name_of = |number: u32| schedulers[number as usize].0.name.as_str();
        let found = self.scheduler_index.find(name, name_of);
        if found.is_none() && self.read.all_schedulers {
            let known = schedulers.iter().map(|(scheduler, _)| scheduler.name.as_str());
            let unknown = Unknown { what: "scheduler", code: "unknown-scheduler", values };
            self.unknown(&unknown, name, span, known);
        }
        found.unwrap_or(UNKNOWN)
    }

    pub(super) fn unknown<'n>(
        &mut self,
        unknown: &Unknown<'_>,
        name: &str,
        span: Span,
        known: impl Iterator<Item = &'n str>,
    ) {
        let nearest = if self.sinks.errors.is_full() { None } else { self.suggester.nearest(name, known) };
        let message = spaced(&format!("no {} is named `{name}`", unknown.what), unknown.values);
        self.sinks.errors.push(Diagnostic::new(unknown.code, message).at(span).suggest(nearest));
    }

    fn differences(&self, differing: &Differing, bindings: Option<&Bindings>, index: u32) -> Differences {
        let known = |number: u32| (number != UNKNOWN).then_some(number);
        let number = |number: PerJob| self.done.per_job(number, index).and_then(known);
        let texts = |texts: &[Text]| texts.iter().map(|text| text.of_job(bindings, index)).collect();
        Differences {
            handler: number(differing.handler),
            scheduler: number(differing.scheduler),
            limit: number(differing.limit),
            labels: texts(&differing.labels),
            sites: texts(&differing.sites),
        }
    }

    fn with(&self, kind: JobKind, differences: Differences) -> JobKind {
        let Differences { handler: failure_handler, scheduler, limit, labels, sites } = differences;
        let limit = limit.map(|number| self.spec.limits[number as usize].name.clone());
        JobKind { failure_handler, scheduler, labels, sites, limit, ..kind }
    }

    /// One kind, unless what is in [`Differences`] differs from job to job.
    fn kinds_of(&mut self, entry: u32, kind: &JobKind, differing: &Differing) -> PerJob {
        let bindings = self.expanded.jobs.bindings(entry);
        let count = self.expanded.jobs.range(entry).len() as u32;
        let mut made: FxHashMap<Differences, u32> = FxHashMap::default();
        let mut kind_for = |index: u32| {
            let differences = self.differences(differing, bindings, index);
            *made.entry(differences).or_insert_with_key(|differences| {
                self.done.kinds.push(self.with(kind.clone(), differences.clone()));
                self.done.kinds.len() as u32 - 1
            })
        };
        if differing.is_the_same_for_all() {
            return PerJob::All(kind_for(0));
        }
        let kinds: Vec<u32> = (0..count).map(kind_for).collect();
        PerJob::Each(self.done.relations.keep_column(&kinds))
    }
}

/// `work_#` for `work_017`.
fn without_numbers(name: &str) -> String {
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
