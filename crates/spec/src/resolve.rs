//! Names become numbers: what each job waits for and what it asks for, checked as a whole.

use crate::cycle;
use crate::decode::NamesRead;
use crate::diagnostic::{Diagnostic, Sink};
use crate::index::NameIndex;
use crate::model::Spec;
use crate::source::Span;
use crate::suggest::Suggester;

/// Stands for a name that was reported.
const UNKNOWN: u32 = u32::MAX;

/// What the names of a spec stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The job behind each of [`Spec::names`]. Jobs that share a list share this part too.
    pub(crate) targets: Vec<u32>,
    /// The requirement behind each of [`Spec::requirement_names`].
    pub(crate) requirements: Vec<u32>,
}

/// Looks all names up and checks the graph. Whatever is wrong goes to the sink.
pub(crate) fn resolve(spec: &Spec<'_>, names: NamesRead, sink: &mut Sink) -> Resolved {
    let mut resolver = Resolver { spec, names, sink, suggester: Suggester::default() };
    let requirements = resolver.requirements();
    let targets = resolver.dependencies();
    cycle::report_cycles(spec, &targets, resolver.sink);
    Resolved { targets, requirements }
}

struct Resolver<'a, 's> {
    spec: &'a Spec<'s>,
    names: NamesRead,
    sink: &'a mut Sink,
    suggester: Suggester,
}

impl Resolver<'_, '_> {
    fn requirements(&mut self) -> Vec<u32> {
        let defined = &self.spec.requirements;
        let name_of = |number: u32| defined[number as usize].name.as_str();
        let mut index = NameIndex::with_capacity(defined.len());
        for (number, requirement) in defined.iter().enumerate() {
            if let Some(first) = index.insert(&requirement.name, number as u32, name_of) {
                let first = defined[first as usize].span;
                self.sink.push(duplicate("resource requirement", &requirement.name, requirement.span, first));
            }
        }
        let names = &self.spec.requirement_names;
        let found: Vec<u32> = names.iter().map(|name| index.find(name, name_of).unwrap_or(UNKNOWN)).collect();
        if self.names.all_requirements && found.contains(&UNKNOWN) {
            self.unknown_requirements(&found);
        }
        found
    }

    fn unknown_requirements(&mut self, found: &[u32]) {
        for used in self.spec.jobs.iter().filter_map(|job| job.requirements) {
            if found[used.name as usize] != UNKNOWN {
                continue;
            }
            let name = &self.spec.requirement_names[used.name as usize];
            let defined = self.spec.requirements.iter().map(|requirement| requirement.name.as_str());
            let suggestion = if self.sink.is_full() { None } else { self.suggester.nearest(name, defined) };
            let message = format!("no resource requirement is named `{name}`");
            self.sink.push(Diagnostic::new("unknown-requirement", message).at(used.span).suggest(suggestion));
        }
    }

    fn dependencies(&mut self) -> Vec<u32> {
        let spec = self.spec;
        let name_of = |job: u32| spec.job_name(job);
        let mut index = NameIndex::with_capacity(spec.jobs.len());
        for (number, job) in spec.jobs.iter().enumerate() {
            let name = spec.texts.get(job.name.text);
            if let Some(first) = index.insert(name, number as u32, name_of) {
                let first = spec.jobs[first as usize].name.span;
                self.sink.push(duplicate("job", name, job.name.span, first));
            }
        }
        let mut targets = vec![UNKNOWN; spec.names.len()];
        let mut looked_up = vec![false; spec.names.len()];
        for list in spec.jobs.iter().map(|job| job.depends_on.range()) {
            // A list that several jobs share is looked up once.
            if list.is_empty() || std::mem::replace(&mut looked_up[list.start], true) {
                continue;
            }
            for place in list {
                let dependency = spec.names[place];
                let name = spec.texts.get(dependency.text);
                let target = index.find(name, name_of);
                if target.is_none() && self.names.all_jobs {
                    self.unknown_job(name, dependency.span);
                }
                targets[place] = target.unwrap_or(UNKNOWN);
            }
        }
        targets
    }

    fn unknown_job(&mut self, name: &str, span: Span) {
        let jobs = self.spec.jobs.iter().map(|job| self.spec.texts.get(job.name.text));
        let suggestion = if self.sink.is_full() { None } else { self.suggester.nearest(name, jobs) };
        let diagnostic = Diagnostic::new("unknown-job", format!("no job is named `{name}`")).at(span);
        self.sink.push(diagnostic.suggest(suggestion));
    }
}

fn duplicate(what: &str, name: &str, span: Span, first: Span) -> Diagnostic {
    Diagnostic::new("duplicate-name", format!("two {what}s are named `{name}`"))
        .at(span)
        .label(span, "again here")
        .label(first, "first here")
}
