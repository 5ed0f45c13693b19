//! Describes dependency cycles: which job waits for which, and why.

use super::{NameResolver, RelationKind};
use crate::cycle::{self, DependencyGraph};
use crate::diagnostic::SpecDiagnostic;
use crate::source::SourceSpan;

use super::relations::{ListRef, UNKNOWN_NUMBER};

/// Longer cycles are shortened to their beginning and end.
const MAX_SHOWN_JOBS: usize = 8;

/// Why a job waits for another.
enum WaitReason<'a> {
    /// Listed in `depends_on` at this location.
    Named(SourceSpan),
    Regex(SourceSpan),
    File(&'a str),
    UserData(&'a str),
}

impl DependencyGraph for NameResolver<'_, '_> {
    fn job_count(&self) -> u32 {
        self.expanded.jobs.len() as u32
    }

    fn shared_list_count(&self) -> usize {
        self.resolved.relations.shared_count()
    }

    fn dependency_list(&self, job: u32, n: u32) -> Option<ListRef<'_>> {
        let member = self.expanded.jobs.locate(job);
        let Some(detail) = &self.resolved.details[member.entry as usize] else {
            // A plain job has at most one list per relation; an empty slot is an empty list.
            let way = [RelationKind::DependsOn, RelationKind::ThroughFiles].get(n as usize)?;
            let list = self.resolved.relation_list(self.spec, member, *way, 0);
            return Some(list.unwrap_or(ListRef { shared: None, items: &[] }));
        };
        let mut n = n as usize;
        for way in RelationKind::DEPENDENCIES {
            let relation = &detail.relations[way as usize];
            match n.checked_sub(relation.count()) {
                Some(rest) => n = rest,
                None => return relation.list(&self.resolved.relations, member.index, n),
            }
        }
        None
    }
}

impl NameResolver<'_, '_> {
    pub(super) fn report_cycles(&mut self) {
        for cycle in cycle::find_cycles(self) {
            let diagnostic = self.describe_cycle(&cycle);
            self.sinks.errors.push(diagnostic);
        }
    }

    fn describe_cycle(&self, cycle: &[u32]) -> SpecDiagnostic {
        let last = cycle[cycle.len() - 1];
        let closing = self.find_wait_reason(last, cycle[0]);
        let span = self.reason_span(last, &closing);
        if let &[job] = cycle {
            let name = self.job_name(job);
            return match closing {
                WaitReason::File(file) => {
                    let message = format!("job `{name}` both reads and writes file `{file}`");
                    SpecDiagnostic::new("self-dependency", message)
                        .with_span(span)
                        .with_help("it would wait for itself")
                }
                WaitReason::UserData(data) => {
                    let message = format!("job `{name}` both reads and writes user data `{data}`");
                    SpecDiagnostic::new("self-dependency", message)
                        .with_span(span)
                        .with_help("it would wait for itself")
                }
                WaitReason::Named(_) | WaitReason::Regex(_) => {
                    SpecDiagnostic::new("self-dependency", format!("job `{name}` depends on itself"))
                        .with_span(span)
                }
            };
        }
        if self.sinks.errors.is_full() {
            return SpecDiagnostic::new("cycle", "jobs depend on each other in a cycle").with_span(span);
        }
        let message = format!("jobs depend on each other in a cycle: {}", self.format_cycle(cycle));
        let mut diagnostic = SpecDiagnostic::new("cycle", message)
            .with_span(span)
            .with_label(span, self.describe_wait(last, cycle[0], &closing));
        for pair in cycle.windows(2).take(MAX_SHOWN_JOBS) {
            let reason = self.find_wait_reason(pair[0], pair[1]);
            diagnostic = diagnostic.with_label(
                self.reason_span(pair[0], &reason),
                self.describe_wait(pair[0], pair[1], &reason),
            );
        }
        diagnostic
    }

    fn job_name(&self, job: u32) -> &str {
        self.expanded.jobs.name(job)
    }

    fn find_wait_reason(&self, job: u32, on: u32) -> WaitReason<'_> {
        let member = self.expanded.jobs.locate(job);
        let entry = &self.spec.jobs[member.entry as usize];
        let waits = |way| self.resolved.relation_lists(self.spec, member, way).any(|list| list.contains(&on));
        if waits(RelationKind::DependsOn) {
            return self.find_named_dependency(member, on).unwrap_or_else(|| {
                let regexes =
                    entry.rare.as_ref().map(|more| &self.spec.names[more.depends_on_regexes.range()]);
                WaitReason::Regex(regexes.and_then(<[_]>::first).map_or(entry.name.span, |regex| regex.span))
            });
        }
        let writes = |way: RelationKind, item: u32| {
            let on = self.expanded.jobs.locate(on);
            self.resolved.relation_lists(self.spec, on, way).any(|list| list.contains(&item))
        };
        let common = |input: RelationKind, output: RelationKind| {
            let mut items = self.resolved.relation_lists(self.spec, member, input).flatten().copied();
            items.find(|item| *item != UNKNOWN_NUMBER && writes(output, *item))
        };
        let file = common(RelationKind::InputFiles, RelationKind::OutputFiles)
            .map(|file| WaitReason::File(self.expanded.files.name(file)));
        let data = || {
            let data = common(RelationKind::InputUserData, RelationKind::OutputUserData);
            data.map(|data| WaitReason::UserData(self.expanded.user_data.name(data)))
        };
        file.or_else(data).unwrap_or(WaitReason::Named(entry.name.span))
    }

    /// Returns the location in `depends_on` that refers to the job `on`.
    fn find_named_dependency(&self, member: crate::expand::EntryInstance, on: u32) -> Option<WaitReason<'_>> {
        let bindings = self.expanded.jobs.bindings(member.entry);
        let names = &self.spec.names[self.spec.jobs[member.entry as usize].depends_on.range()];
        let mut sinks = crate::expand::DiagnosticSinks::default();
        let found = names.iter().find(|name| {
            let text = self.spec.texts.get(name.text);
            let place = crate::expand::TextPosition::from_span(name.span);
            let mut compiler =
                crate::expand::TemplateCompiler::new(&self.expanded.constants, bindings, &mut sinks);
            let Some(template) = compiler.compile(text, place) else { return text == self.job_name(on) };
            let mut filled = String::new();
            crate::expand::render_template(&template, bindings, member.index, &mut filled);
            filled == self.job_name(on)
        });
        found.map(|name| WaitReason::Named(name.span))
    }

    fn reason_span(&self, job: u32, reason: &WaitReason<'_>) -> SourceSpan {
        match reason {
            WaitReason::Named(span) | WaitReason::Regex(span) => *span,
            WaitReason::File(_) | WaitReason::UserData(_) => {
                self.spec.jobs[self.expanded.jobs.locate(job).entry as usize].name.span
            }
        }
    }

    fn describe_wait(&self, job: u32, on: u32, reason: &WaitReason<'_>) -> String {
        format!("`{}` waits for `{}`{}", self.job_name(job), self.job_name(on), describe_reason(reason))
    }

    /// Formats a cycle as `a -> b (through file `x`) -> a`.
    fn format_cycle(&self, cycle: &[u32]) -> String {
        let count = cycle.len();
        let step = |position: usize| {
            let job = cycle[position % count];
            match position.checked_sub(1) {
                None => self.job_name(job).to_owned(),
                Some(before) => format!(
                    "{}{}",
                    self.job_name(job),
                    describe_reason(&self.find_wait_reason(cycle[before], job))
                ),
            }
        };
        if count < MAX_SHOWN_JOBS {
            return (0..=count).map(step).collect::<Vec<_>>().join(" -> ");
        }
        let left_out = format!("({} more)", count + 1 - MAX_SHOWN_JOBS);
        let beginning = (0..MAX_SHOWN_JOBS - 2).map(step);
        beginning.chain([left_out]).chain((count - 1..=count).map(step)).collect::<Vec<_>>().join(" -> ")
    }
}

fn describe_reason(reason: &WaitReason<'_>) -> String {
    match reason {
        WaitReason::Named(_) => String::new(),
        WaitReason::Regex(_) => " (by a regular expression)".to_owned(),
        WaitReason::File(name) => format!(" (through file `{name}`)"),
        WaitReason::UserData(name) => format!(" (through user data `{name}`)"),
    }
}
