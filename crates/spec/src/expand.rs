//! From entries to jobs, files and user data: as many of each as its parameters make, numbered in a fixed order.
//!
//! Nothing is written out that can be worked out: a name is (others look it up), a command is a [`Template`] and the
//! number of the job. Entries come in file order; within one the last parameter changes fastest.

mod compile;
mod constants;
mod sweep;

pub(crate) use compile::{Compiler, Part, Place, ReferenceTo, render};
pub(crate) use constants::Constants;
pub(crate) use sweep::Bindings;

use crate::Attachments;
use crate::decode::NamesRead;
use crate::diagnostic::{Diagnostic, Sink};
use crate::index::NameIndex;
use crate::model::{Named, Spec, Sweep};
use crate::source::Span;
use std::sync::Arc;
use sweep::Sweeps;

/// More jobs (or files, or user data) than this from one spec is a mistake, not a wish.
const MOST: u64 = 50_000_000;

/// What entries of one sort (jobs, files, user data) became.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    names: Names,
    /// The number of the first that each entry made.
    first: Vec<u32>,
    /// By entry; `None` for those without parameters.
    bindings: Vec<Option<Arc<Bindings>>>,
    /// Every entry made exactly one.
    is_one_each: bool,
    /// Entries that did not make what they should have: a name that is not found may be one of theirs.
    pub(crate) unmade: Vec<u32>,
}

/// One of a [`Series`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) entry: u32,
    /// Which of those that the entry made.
    pub(crate) index: u32,
}

impl Series {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number)
    }

    pub(crate) fn locate(&self, number: u32) -> Member {
        if self.is_one_each {
            return Member { entry: number, index: 0 };
        }
        let entry = self.first.partition_point(|first| *first <= number) - 1;
        Member { entry: entry as u32, index: number - self.first[entry] }
    }

    /// The numbers of what an entry made.
    pub(crate) fn range(&self, entry: u32) -> std::ops::Range<u32> {
        let next = self.first.get(entry as usize + 1).copied();
        self.first[entry as usize]..next.unwrap_or(self.len() as u32)
    }

    pub(crate) fn bindings(&self, entry: u32) -> Option<&Bindings> {
        self.bindings[entry as usize].as_deref()
    }

    /// `with i=3, x=0.1`, or nothing for an entry without parameters.
    pub(crate) fn values_of(&self, number: u32) -> String {
        let member = self.locate(number);
        self.bindings(member.entry).map_or_else(String::new, |bindings| bindings.describe(member.index))
    }

    pub(crate) fn index(&self) -> NameIndex {
        let mut index = NameIndex::with_capacity(self.len());
        for number in 0..self.len() as u32 {
            index.insert(self.name(number), number, |known| self.name(known));
        }
        index
    }
}

/// So many bytes may all names of one sort have.
const LONGEST_NAMES: usize = 1 << 30;

/// Names one after the other in one buffer.
#[derive(Clone, Debug, Default)]
struct Names {
    text: String,
    ends: Vec<u32>,
}

impl Names {
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

    /// Ends the name that was written to `text`. `false`: there is no more room.
    fn end(&mut self) -> bool {
        let is_room = self.text.len() <= LONGEST_NAMES;
        self.ends.extend(is_room.then_some(self.text.len() as u32));
        is_room
    }
}

/// What a spec makes, by name.
#[derive(Debug)]
pub(crate) struct Expanded {
    pub(crate) jobs: Series,
    pub(crate) files: Series,
    pub(crate) user_data: Series,
    pub(crate) constants: Constants,
}

/// Where problems go.
#[derive(Debug)]
pub(crate) struct Sinks {
    pub(crate) errors: Sink,
    pub(crate) warnings: Sink,
}

impl Default for Sinks {
    fn default() -> Self {
        Self { errors: Sink::default(), warnings: Sink::of_warnings() }
    }
}

/// Numbers all that the spec makes and gives it names.
pub(crate) fn expand(
    spec: &Spec<'_>,
    names: NamesRead,
    attachments: &dyn Attachments,
    sinks: &mut Sinks,
) -> Expanded {
    let constants = Constants::new(spec, names.all_variables, sinks);
    let mut sweeps = Sweeps::new(spec, names.all_parameters, &constants, attachments);
    let job = |entry: usize| (spec.jobs[entry].name, spec.jobs[entry].more.as_ref().map(|more| &more.sweep));
    let jobs = series("job", spec.jobs.len(), job, &mut sweeps, sinks);
    let file = |entry: usize| (spec.files[entry].name, Some(&spec.files[entry].sweep));
    let files = series("file", spec.files.len(), file, &mut sweeps, sinks);
    let data = |entry: usize| (spec.user_data[entry].name, Some(&spec.user_data[entry].sweep));
    let user_data = series("user data", spec.user_data.len(), data, &mut sweeps, sinks);
    sweeps.warn_of_unused(sinks);
    Expanded { jobs, files, user_data, constants }
}

/// `entry` tells the name of an entry and how many it makes.
fn series<'a>(
    what: &'static str,
    entries: usize,
    entry: impl Fn(usize) -> (Named, Option<&'a Sweep>),
    sweeps: &mut Sweeps<'a, '_>,
    sinks: &mut Sinks,
) -> Series {
    let mut series = Series {
        names: Names { text: String::new(), ends: Vec::with_capacity(entries) },
        first: Vec::with_capacity(entries),
        bindings: Vec::with_capacity(entries),
        is_one_each: true,
        unmade: Vec::new(),
    };
    for number in 0..entries {
        let (name, sweep) = entry(number);
        let bindings = sweep.map_or(Ok(None), |sweep| sweeps.bindings(what, name, sweep, sinks));
        series.first.push(series.len() as u32);
        let is_made = bindings
            .as_ref()
            .is_ok_and(|bindings| add(&mut series, what, name, bindings.as_deref(), sweeps, sinks));
        series.unmade.extend((!is_made).then_some(number as u32));
        series.bindings.push(bindings.unwrap_or_default());
        series.is_one_each &= series.len() == number + 1;
    }
    report_duplicates(what, &series, |number| entry(number as usize).0.span, sinks);
    series
}

/// Adds the names that one entry makes. `false`: they could not be made.
fn add(
    series: &mut Series,
    what: &str,
    name: Named,
    bindings: Option<&Bindings>,
    sweeps: &Sweeps<'_, '_>,
    sinks: &mut Sinks,
) -> bool {
    let (texts, constants) = (&sweeps.spec.texts, sweeps.constants);
    let text = texts.get(name.text);
    let count = bindings.map_or(1, Bindings::count);
    if series.len() as u64 + count > MOST {
        let message = format!("the spec makes more than {MOST} {what}s");
        let diagnostic = Diagnostic::new("too-many", message).at(name.span);
        sinks.errors.push(diagnostic.help(format!("this entry alone makes {count}")));
        return false;
    }
    let known_errors = sinks.errors.count();
    let template = Compiler::new(constants, bindings, sinks).compile(text, Place::of(texts, name));
    let names = &mut series.names;
    names.ends.reserve(count as usize);
    for index in 0..count as u32 {
        match (&template, bindings) {
            (None, _) => names.text.push_str(text),
            (Some(template), bindings) => compile::render(template, bindings, index, &mut names.text),
        }
        if !names.end() {
            let message = format!("the names of all {what}s together are longer than 1 GB");
            sinks.errors.push(Diagnostic::new("too-many", message).at(name.span));
            return false;
        }
    }
    sinks.errors.count() == known_errors
}

fn report_duplicates(what: &str, series: &Series, place: impl Fn(u32) -> Span, sinks: &mut Sinks) {
    let mut index = NameIndex::with_capacity(series.len());
    let mut reported = None;
    for number in 0..series.len() as u32 {
        let name = series.name(number);
        let Some(first) = index.insert(name, number, |known| series.name(known)) else { continue };
        let entry = series.locate(number).entry;
        // One entry that clashes does so many times over.
        if reported == Some(entry) {
            continue;
        }
        reported = Some(entry);
        let first_entry = series.locate(first).entry;
        let (span, first_span) = (place(entry), place(first_entry));
        let again = spaced("again here", &series.values_of(number));
        let before = spaced("first here", &series.values_of(first));
        let plural = if what == "user data" { "user data".to_owned() } else { format!("{what}s") };
        let diagnostic =
            Diagnostic::new("duplicate-name", format!("two {plural} are named `{name}`")).at(span);
        sinks.errors.push(if entry == first_entry {
            clash_within(diagnostic, series, first, number)
        } else {
            diagnostic.label(span, again).label(first_span, before)
        });
    }
}

/// Why two of one entry have the same name.
fn clash_within(diagnostic: Diagnostic, series: &Series, first: u32, second: u32) -> Diagnostic {
    let span = diagnostic.span.unwrap_or_default();
    let [one, other] = [first, second].map(|number| series.values_of(number));
    if one == other {
        let (first, second) = (series.locate(first), series.locate(second));
        let repeated =
            series.bindings(first.entry).map(|bindings| bindings.repeated(first.index, second.index));
        let diagnostic = diagnostic.label(span, format!("both {one}"));
        return diagnostic.help(repeated.unwrap_or_default());
    }
    diagnostic
        .label(span, format!("both {one} and {other}"))
        .help("the name must hold every parameter that has several values")
}

/// Two words, or the one that there is.
pub(crate) fn spaced(a: &str, b: &str) -> String {
    if b.is_empty() { a.to_owned() } else { format!("{a} {b}") }
}
