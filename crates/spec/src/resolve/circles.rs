//! Circles in words: who waits for whom, and through what.

use super::{Resolver, Way};
use crate::cycle::{self, Graph};
use crate::diagnostic::Diagnostic;
use crate::source::Span;

use super::relations::{ListRef, UNKNOWN};

/// Longer circles are shown by their beginning and end.
const SHOWN: usize = 8;

/// Why one job waits for another.
enum Reason<'a> {
    /// It says so, there.
    Named(Span),
    Regex(Span),
    File(&'a str),
    UserData(&'a str),
}

impl Graph for Resolver<'_, '_> {
    fn jobs(&self) -> u32 {
        self.expanded.jobs.len() as u32
    }

    fn shared_lists(&self) -> usize {
        self.done.relations.shared_count()
    }

    fn list(&self, job: u32, n: u32) -> Option<ListRef<'_>> {
        let member = self.expanded.jobs.locate(job);
        let Some(detail) = &self.done.details[member.entry as usize] else {
            // A plain job has at most one list of each of the two ways; an empty slot is an empty list.
            let way = [Way::DependsOn, Way::ThroughFiles].get(n as usize)?;
            let list = self.done.list(self.spec, member, *way, 0);
            return Some(list.unwrap_or(ListRef { shared: None, items: &[] }));
        };
        let mut n = n as usize;
        for way in Way::WAITS {
            let relation = &detail.relations[way as usize];
            match n.checked_sub(relation.count()) {
                Some(rest) => n = rest,
                None => return relation.list(&self.done.relations, member.index, n),
            }
        }
        None
    }
}

impl Resolver<'_, '_> {
    pub(super) fn circles(&mut self) {
        for circle in cycle::circles(self) {
            let diagnostic = self.circle(&circle);
            self.sinks.errors.push(diagnostic);
        }
    }

    fn circle(&self, circle: &[u32]) -> Diagnostic {
        let last = circle[circle.len() - 1];
        let closing = self.reason(last, circle[0]);
        let span = self.span(last, &closing);
        if let &[job] = circle {
            let name = self.name(job);
            return match closing {
                Reason::File(file) => {
                    let message = format!("job `{name}` both reads and writes file `{file}`");
                    Diagnostic::new("self-dependency", message).at(span).help("it would wait for itself")
                }
                Reason::UserData(data) => {
                    let message = format!("job `{name}` both reads and writes user data `{data}`");
                    Diagnostic::new("self-dependency", message).at(span).help("it would wait for itself")
                }
                Reason::Named(_) | Reason::Regex(_) => {
                    Diagnostic::new("self-dependency", format!("job `{name}` depends on itself")).at(span)
                }
            };
        }
        if self.sinks.errors.is_full() {
            return Diagnostic::new("cycle", "jobs wait for each other in a circle").at(span);
        }
        let message = format!("jobs wait for each other in a circle: {}", self.spell(circle));
        let mut diagnostic =
            Diagnostic::new("cycle", message).at(span).label(span, self.waits(last, circle[0], &closing));
        for pair in circle.windows(2).take(SHOWN) {
            let reason = self.reason(pair[0], pair[1]);
            diagnostic = diagnostic.label(self.span(pair[0], &reason), self.waits(pair[0], pair[1], &reason));
        }
        diagnostic
    }

    fn name(&self, job: u32) -> &str {
        self.expanded.jobs.name(job)
    }

    fn reason(&self, job: u32, on: u32) -> Reason<'_> {
        let member = self.expanded.jobs.locate(job);
        let entry = &self.spec.jobs[member.entry as usize];
        let waits = |way| self.done.lists(self.spec, member, way).any(|list| list.contains(&on));
        if waits(Way::DependsOn) {
            return self.where_named(member, on).unwrap_or_else(|| {
                let regexes =
                    entry.more.as_ref().map(|more| &self.spec.names[more.depends_on_regexes.range()]);
                Reason::Regex(regexes.and_then(<[_]>::first).map_or(entry.name.span, |regex| regex.span))
            });
        }
        let writes = |way: Way, item: u32| {
            let on = self.expanded.jobs.locate(on);
            self.done.lists(self.spec, on, way).any(|list| list.contains(&item))
        };
        let common = |input: Way, output: Way| {
            let mut items = self.done.lists(self.spec, member, input).flatten().copied();
            items.find(|item| *item != UNKNOWN && writes(output, *item))
        };
        let file = common(Way::InputFiles, Way::OutputFiles)
            .map(|file| Reason::File(self.expanded.files.name(file)));
        let data = || {
            let data = common(Way::InputUserData, Way::OutputUserData);
            data.map(|data| Reason::UserData(self.expanded.user_data.name(data)))
        };
        file.or_else(data).unwrap_or(Reason::Named(entry.name.span))
    }

    /// Where `depends_on` names the job `on`.
    fn where_named(&self, member: crate::expand::Member, on: u32) -> Option<Reason<'_>> {
        let bindings = self.expanded.jobs.bindings(member.entry);
        let names = &self.spec.names[self.spec.jobs[member.entry as usize].depends_on.range()];
        let mut sinks = crate::expand::Sinks::default();
        let found = names.iter().find(|name| {
            let text = self.spec.texts.get(name.text);
            let place = crate::expand::Place::near(name.span);
            let mut compiler = crate::expand::Compiler::new(&self.expanded.constants, bindings, &mut sinks);
            let Some(template) = compiler.compile(text, place) else { return text == self.name(on) };
            let mut filled = String::new();
            crate::expand::render(&template, bindings, member.index, &mut filled);
            filled == self.name(on)
        });
        found.map(|name| Reason::Named(name.span))
    }

    fn span(&self, job: u32, reason: &Reason<'_>) -> Span {
        match reason {
            Reason::Named(span) | Reason::Regex(span) => *span,
            Reason::File(_) | Reason::UserData(_) => {
                self.spec.jobs[self.expanded.jobs.locate(job).entry as usize].name.span
            }
        }
    }

    fn waits(&self, job: u32, on: u32, reason: &Reason<'_>) -> String {
        format!("`{}` waits for `{}`{}", self.name(job), self.name(on), through(reason))
    }

    /// `a -> b (through file `x`) -> a`
    fn spell(&self, circle: &[u32]) -> String {
        let count = circle.len();
        let step = |position: usize| {
            let job = circle[position % count];
            match position.checked_sub(1) {
                None => self.name(job).to_owned(),
                Some(before) => format!("{}{}", self.name(job), through(&self.reason(circle[before], job))),
            }
        };
        if count < SHOWN {
            return (0..=count).map(step).collect::<Vec<_>>().join(" -> ");
        }
        let left_out = format!("({} more)", count + 1 - SHOWN);
        let beginning = (0..SHOWN - 2).map(step);
        beginning.chain([left_out]).chain((count - 1..=count).map(step)).collect::<Vec<_>>().join(" -> ")
    }
}

fn through(reason: &Reason<'_>) -> String {
    match reason {
        Reason::Named(_) => String::new(),
        Reason::Regex(_) => " (by a regular expression)".to_owned(),
        Reason::File(name) => format!(" (through file `{name}`)"),
        Reason::UserData(name) => format!(" (through user data `{name}`)"),
    }
}
