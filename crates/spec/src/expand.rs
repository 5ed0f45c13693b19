//! Expands entries to jobs, files and user data, as many as their parameters make, numbered in a fixed order.
//!
//! Only names are stored, because they are looked up; a command stays a
//! [`TextTemplate`](crate::template::TextTemplate) plus the number of the job. Entries come in file order; within
//! an entry the last parameter changes fastest.

mod constants;
mod sweep;
mod template_compiler;

pub(crate) use constants::WorkflowConstants;
pub(crate) use sweep::ParameterBindings;
pub(crate) use template_compiler::{
    CommandReference, ReferenceKind, TemplateCompiler, TextPosition, render_template,
};

use crate::SpecAttachments;
use crate::decode::NameCompleteness;
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::model::{NamedText, ParameterSweep, WorkflowSpec};
use crate::name_index::NameIndex;
use crate::source::SourceSpan;
use std::sync::Arc;
use sweep::SweepReader;

/// Maximum number of jobs (or files, or user data) of one spec; more is certainly a mistake.
const MAX_INSTANCES: u64 = 50_000_000;

/// The expansion of the entries of one type (jobs, files, user data).
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpandedEntries {
    names: NameBuffer,
    /// The number of the first instance of each entry.
    first_numbers: Vec<u32>,
    /// By entry; `None` for entries without parameters.
    bindings: Vec<Option<Arc<ParameterBindings>>>,
    /// Every entry has exactly one instance.
    is_one_each: bool,
    /// Entries that were not expanded completely: an unknown name may be one of theirs.
    pub(crate) unexpanded_entries: Vec<u32>,
}

/// An instance of a [`ExpandedEntries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryInstance {
    pub(crate) entry: u32,
    /// The number of the instance within its entry.
    pub(crate) index: u32,
}

impl ExpandedEntries {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number)
    }

    pub(crate) fn locate(&self, number: u32) -> EntryInstance {
        if self.is_one_each {
            return EntryInstance { entry: number, index: 0 };
        }
        let entry = self.first_numbers.partition_point(|first| *first <= number) - 1;
        EntryInstance { entry: entry as u32, index: number - self.first_numbers[entry] }
    }

    /// The numbers of the instances of an entry.
    pub(crate) fn range(&self, entry: u32) -> std::ops::Range<u32> {
        let next = self.first_numbers.get(entry as usize + 1).copied();
        self.first_numbers[entry as usize]..next.unwrap_or(self.len() as u32)
    }

    pub(crate) fn bindings(&self, entry: u32) -> Option<&ParameterBindings> {
        self.bindings[entry as usize].as_deref()
    }

    /// Returns `with i=3, x=0.1`, or nothing for an entry without parameters.
    pub(crate) fn describe_values(&self, number: u32) -> String {
        let member = self.locate(number);
        self.bindings(member.entry)
            .map_or_else(String::new, |bindings| bindings.describe_values(member.index))
    }

    pub(crate) fn build_name_index(&self) -> NameIndex {
        let mut index = NameIndex::with_capacity(self.len());
        for number in 0..self.len() as u32 {
            index.insert(self.name(number), number, |known| self.name(known));
        }
        index
    }
}

/// Maximum total size of all names of one type, in bytes.
const MAX_NAME_BYTES: usize = 1 << 30;

/// Names, stored one after the other in one buffer.
#[derive(Clone, Debug, Default)]
struct NameBuffer {
    text: String,
    ends: Vec<u32>,
}

impl NameBuffer {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, number: u32) -> &str {
        let start = match number {
            0 => 0,
            _ => self.ends[number as usize - 1],
        };
        &self.text[start as usize..self.ends[number as usize] as usize]
    }

    /// Ends the name that was written to `text`. Returns `false` if there is no more room.
    fn finish_name(&mut self) -> bool {
        let is_room = self.text.len() <= MAX_NAME_BYTES;
        self.ends.extend(is_room.then_some(self.text.len() as u32));
        is_room
    }
}

/// The expansion of a spec, by name.
#[derive(Debug)]
pub(crate) struct ExpandedSpec {
    pub(crate) jobs: ExpandedEntries,
    pub(crate) files: ExpandedEntries,
    pub(crate) user_data: ExpandedEntries,
    pub(crate) constants: WorkflowConstants,
}

/// The sinks for problems.
#[derive(Debug)]
pub(crate) struct DiagnosticSinks {
    pub(crate) errors: DiagnosticSink,
    pub(crate) warnings: DiagnosticSink,
}

impl Default for DiagnosticSinks {
    fn default() -> Self {
        Self { errors: DiagnosticSink::default(), warnings: DiagnosticSink::for_warnings() }
    }
}

/// Numbers and names everything that the spec defines.
pub(crate) fn expand_spec(
    spec: &WorkflowSpec<'_>,
    names: NameCompleteness,
    attachments: &dyn SpecAttachments,
    sinks: &mut DiagnosticSinks,
) -> ExpandedSpec {
    let constants = WorkflowConstants::new(spec, names.all_variables, sinks);
    let mut sweeps = SweepReader::new(spec, names.all_parameters, &constants, attachments);
    let job = |entry: usize| (spec.jobs[entry].name, spec.jobs[entry].rare.as_ref().map(|more| &more.sweep));
    let jobs = expand_entries("job", spec.jobs.len(), job, &mut sweeps, sinks);
    let file = |entry: usize| (spec.files[entry].name, Some(&spec.files[entry].sweep));
    let files = expand_entries("file", spec.files.len(), file, &mut sweeps, sinks);
    let data = |entry: usize| (spec.user_data[entry].name, Some(&spec.user_data[entry].sweep));
    let user_data = expand_entries("user data", spec.user_data.len(), data, &mut sweeps, sinks);
    sweeps.warn_unused(sinks);
    ExpandedSpec { jobs, files, user_data, constants }
}

/// Numbers the entries of one type; `entry` returns the name of an entry and its parameters.
fn expand_entries<'a>(
    what: &'static str,
    entries: usize,
    entry: impl Fn(usize) -> (NamedText, Option<&'a ParameterSweep>),
    sweeps: &mut SweepReader<'a, '_>,
    sinks: &mut DiagnosticSinks,
) -> ExpandedEntries {
    let mut series = ExpandedEntries {
        names: NameBuffer { text: String::new(), ends: Vec::with_capacity(entries) },
        first_numbers: Vec::with_capacity(entries),
        bindings: Vec::with_capacity(entries),
        is_one_each: true,
        unexpanded_entries: Vec::new(),
    };
    for number in 0..entries {
        let (name, sweep) = entry(number);
        let bindings = sweep.map_or(Ok(None), |sweep| sweeps.read_bindings(what, name, sweep, sinks));
        series.first_numbers.push(series.len() as u32);
        let is_made = bindings.as_ref().is_ok_and(|bindings| {
            add_entry_names(&mut series, what, name, bindings.as_deref(), sweeps, sinks)
        });
        series.unexpanded_entries.extend((!is_made).then_some(number as u32));
        series.bindings.push(bindings.unwrap_or_default());
        series.is_one_each &= series.len() == number + 1;
    }
    report_duplicates(what, &series, |number| entry(number as usize).0.span, sinks);
    series
}

/// Adds the names of the instances of one entry. Returns `false` if that failed.
fn add_entry_names(
    series: &mut ExpandedEntries,
    what: &str,
    name: NamedText,
    bindings: Option<&ParameterBindings>,
    sweeps: &SweepReader<'_, '_>,
    sinks: &mut DiagnosticSinks,
) -> bool {
    let (texts, constants) = (&sweeps.spec.texts, sweeps.constants);
    let text = texts.get(name.text);
    let count = bindings.map_or(1, ParameterBindings::count);
    if series.len() as u64 + count > MAX_INSTANCES {
        let message = format!("the spec defines more than {MAX_INSTANCES} {what}s");
        let diagnostic = SpecDiagnostic::new("too-many", message).with_span(name.span);
        sinks.errors.push(diagnostic.with_help(format!("this entry alone defines {count}")));
        return false;
    }
    let known_errors = sinks.errors.count();
    let template = TemplateCompiler::new(constants, bindings, sinks)
        .compile(text, TextPosition::from_named(texts, name));
    let names = &mut series.names;
    names.ends.reserve(count as usize);
    for index in 0..count as u32 {
        match (&template, bindings) {
            (None, _) => names.text.push_str(text),
            (Some(template), bindings) => {
                template_compiler::render_template(template, bindings, index, &mut names.text);
            }
        }
        if !names.finish_name() {
            let message = format!("the names of all {what}s together exceed 1 GB");
            sinks.errors.push(SpecDiagnostic::new("too-many", message).with_span(name.span));
            return false;
        }
    }
    sinks.errors.count() == known_errors
}

fn report_duplicates(
    what: &str,
    series: &ExpandedEntries,
    place: impl Fn(u32) -> SourceSpan,
    sinks: &mut DiagnosticSinks,
) {
    let mut index = NameIndex::with_capacity(series.len());
    let mut reported = None;
    for number in 0..series.len() as u32 {
        let name = series.name(number);
        let Some(first) = index.insert(name, number, |known| series.name(known)) else { continue };
        let entry = series.locate(number).entry;
        // Report each entry once, even if many of its instances clash.
        if reported == Some(entry) {
            continue;
        }
        reported = Some(entry);
        let first_entry = series.locate(first).entry;
        let (span, first_span) = (place(entry), place(first_entry));
        let again = join_with_space("again here", &series.describe_values(number));
        let before = join_with_space("first here", &series.describe_values(first));
        let plural = if what == "user data" { "user data".to_owned() } else { format!("{what}s") };
        let diagnostic =
            SpecDiagnostic::new("duplicate-name", format!("two {plural} are named `{name}`")).with_span(span);
        sinks.errors.push(if entry == first_entry {
            explain_duplicate_in_entry(diagnostic, series, first, number)
        } else {
            diagnostic.with_label(span, again).with_label(first_span, before)
        });
    }
}

/// Explains why two instances of one entry have the same name.
fn explain_duplicate_in_entry(
    diagnostic: SpecDiagnostic,
    series: &ExpandedEntries,
    first: u32,
    second: u32,
) -> SpecDiagnostic {
    let span = diagnostic.span.unwrap_or_default();
    let [one, other] = [first, second].map(|number| series.describe_values(number));
    if one == other {
        let (first, second) = (series.locate(first), series.locate(second));
        let repeated = series
            .bindings(first.entry)
            .map(|bindings| bindings.describe_repeated_values(first.index, second.index));
        let diagnostic = diagnostic.with_label(span, format!("both {one}"));
        return diagnostic.with_help(repeated.unwrap_or_default());
    }
    diagnostic
        .with_label(span, format!("both {one} and {other}"))
        .with_help("the name must contain every parameter that has several values")
}

/// Joins two words; the second may be empty.
pub(crate) fn join_with_space(a: &str, b: &str) -> String {
    if b.is_empty() { a.to_owned() } else { format!("{a} {b}") }
}
