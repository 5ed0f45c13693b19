//! What the jobs of one entry have in common besides their command, and what they ask for.

use super::detail::{Detail, PerJob};
use super::relations::UNKNOWN;
use super::{Resolver, Sort, duplicate};
use crate::diagnostic::Diagnostic;
use crate::expand::{Place, render, spaced};
use crate::index::NameIndex;
use crate::model::{JobMore, JobSpec, Named};
use crate::source::Span;
use crate::template::Template;
use crate::workflow::JobKind;
use rustc_hash::FxHashMap;

/// A text that may differ from job to job.
enum Text {
    Same(String),
    ByJob(Template),
}

/// What can make jobs of one entry jobs of several kinds.
type Differences = (Option<u32>, Option<u32>, Vec<String>);

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
        let nearest = if self.sinks.errors.is_full() { None } else { self.suggester.nearest(name, defined) };
        let message = spaced(&format!("no resource requirement is named `{name}`"), values);
        self.sinks.errors.push(Diagnostic::new("unknown-requirement", message).at(span).suggest(nearest));
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
            let found = spec.requirements.iter().position(|requirement| requirement.name == name);
            if found.is_none() {
                this.unknown_requirement(name, used.span, values);
            }
            found.map_or(UNKNOWN, |number| number as u32)
        })
    }

    /// Looks a name up that may differ from job to job; each spelling once.
    fn number_of(
        &mut self,
        entry: u32,
        text: &Text,
        mut find: impl FnMut(&mut Self, &str, &str) -> u32,
    ) -> PerJob {
        let template = match text {
            Text::Same(name) => return PerJob::All(find(self, name, "")),
            Text::ByJob(template) => template,
        };
        let bindings = self.expanded.jobs.bindings(entry);
        let mut known: FxHashMap<String, u32> = FxHashMap::default();
        let mut numbers = Vec::new();
        for (index, job) in (0..).zip(self.expanded.jobs.range(entry)) {
            let mut name = String::new();
            render(template, bindings, index, &mut name);
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

    fn named(&mut self, named: Named, entry: u32) -> Text {
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
        for (name, value) in &spec.variables[job.env.range()] {
            match self.text(value, Place::near(job.name.span), entry) {
                Text::Same(value) => kind.env.push((name.clone(), value)),
                Text::ByJob(template) => detail.env.push((name.clone(), template)),
            }
        }
        match more.invocation_script.map(|script| self.named(script, entry)) {
            None => {}
            Some(Text::Same(script)) => kind.invocation_script = Some(script),
            Some(Text::ByJob(template)) => detail.invocation_script = Some(template),
        }
        let handler = self.handler(entry, more.failure_handler);
        let scheduler = self.scheduler(entry, more.scheduler);
        let labels: Vec<Text> =
            spec.names[more.labels.range()].iter().map(|label| self.named(*label, entry)).collect();
        detail.kind = self.kinds_of(entry, &kind, handler, scheduler, &labels);
    }

    fn handler(&mut self, entry: u32, named: Option<Named>) -> PerJob {
        let Some(named) = named else { return PerJob::None };
        let names: Vec<String> =
            self.spec.failure_handlers.iter().map(|(handler, _)| handler.name.clone()).collect();
        let all_read = self.read.all_failure_handlers;
        self.lookup(entry, named, &names, all_read, "failure handler")
    }

    fn scheduler(&mut self, entry: u32, named: Option<Named>) -> PerJob {
        let Some(named) = named else { return PerJob::None };
        let names: Vec<String> =
            self.spec.schedulers.iter().map(|(scheduler, _)| scheduler.name.clone()).collect();
        self.lookup(entry, named, &names, self.read.all_schedulers, "scheduler")
    }

    fn lookup(&mut self, entry: u32, named: Named, names: &[String], all_read: bool, what: &str) -> PerJob {
        let text = self.named(named, entry);
        let code = if what == "scheduler" { "unknown-scheduler" } else { "unknown-failure-handler" };
        self.number_of(entry, &text, |this, name, values| {
            let found = names.iter().position(|known| known == name);
            if found.is_none() && all_read {
                let nearest = this.suggester.nearest(name, names.iter().map(String::as_str));
                let message = spaced(&format!("no {what} is named `{name}`"), values);
                this.sinks.errors.push(Diagnostic::new(code, message).at(named.span).suggest(nearest));
            }
            found.map_or(UNKNOWN, |number| number as u32)
        })
    }

    /// One kind, unless handler, scheduler or labels differ from job to job.
    fn kinds_of(
        &mut self,
        entry: u32,
        kind: &JobKind,
        handler: PerJob,
        scheduler: PerJob,
        labels: &[Text],
    ) -> PerJob {
        let known = |number: u32| (number != UNKNOWN).then_some(number);
        let is_one = !matches!(handler, PerJob::Each(_))
            && !matches!(scheduler, PerJob::Each(_))
            && labels.iter().all(|label| matches!(label, Text::Same(_)));
        let bindings = self.expanded.jobs.bindings(entry);
        let differences = |this: &Self, index: u32| -> Differences {
            let label = |label: &Text| match label {
                Text::Same(text) => text.clone(),
                Text::ByJob(template) => {
                    let mut text = String::new();
                    render(template, bindings, index, &mut text);
                    text
                }
            };
            (
                this.done.per_job(handler, index).and_then(known),
                this.done.per_job(scheduler, index).and_then(known),
                labels.iter().map(label).collect(),
            )
        };
        let mut made: FxHashMap<Differences, u32> = FxHashMap::default();
        let mut kind_for = |this: &mut Self, index: u32| {
            let differences = differences(this, index);
            *made.entry(differences.clone()).or_insert_with(|| {
                let (failure_handler, scheduler, labels) = differences;
                this.done.kinds.push(JobKind { failure_handler, scheduler, labels, ..kind.clone() });
                this.done.kinds.len() as u32 - 1
            })
        };
        if is_one {
            let is_plain = JobKind { name: String::new(), ..kind.clone() } == JobKind::default();
            if is_plain && differences(self, 0) == Differences::default() {
                return PerJob::None;
            }
            return PerJob::All(kind_for(self, 0));
        }
        let count = self.expanded.jobs.range(entry).len() as u32;
        let kinds: Vec<u32> = (0..count).map(|index| kind_for(self, index)).collect();
        PerJob::Each(self.done.relations.keep_column(&kinds))
    }
}
