//! What is wrong with a spec file, as data. [`crate::render`] draws it.

use crate::render::{self, Style};
use crate::source::{Lines, Span};
use rustc_hash::{FxHashSet, FxHasher};
use serde::Serialize;
use std::hash::{Hash, Hasher};

/// So many problems are kept; the rest is counted.
const KEPT: usize = 50;
/// With so many, nobody reads on: what follows in such a file is noise.
const ENOUGH: usize = 1000;

/// Whether a spec can be used in spite of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    #[default]
    Error,
    /// Worth saying; the spec is used all the same.
    Warning,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Names the kind of problem; stable, for tools.
    pub code: &'static str,
    pub message: String,
    /// The place to look at first.
    pub span: Option<Span>,
    /// Words at places; one at `span` itself stands beside its underline.
    pub labels: Vec<(Span, String)>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        let severity = Severity::default();
        Self { severity, code, message: message.into(), span: None, labels: Vec::new(), help: None }
    }

    pub(crate) fn at(self, span: Span) -> Self {
        Self { span: Some(span), ..self }
    }

    pub(crate) fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push((span, text.into()));
        self
    }

    pub(crate) fn help(self, text: impl Into<String>) -> Self {
        Self { help: Some(text.into()), ..self }
    }

    /// A guess at what was meant, if there is one.
    pub(crate) fn suggest(self, suggestion: Option<&str>) -> Self {
        match suggestion {
            Some(word) => self.help(format!("did you mean `{word}`?")),
            None => self,
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        (self.code, self.span, &self.message).hash(&mut hasher);
        hasher.finish()
    }
}

/// All problems of a file, in the order of the file, with the text they point into.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render(Style::Plain).trim_end())]
pub struct Diagnostics {
    /// As the user named it, usually a path.
    pub source_name: String,
    pub source_text: String,
    pub list: Vec<Diagnostic>,
    /// How many more there were than are listed.
    pub more: usize,
}

/// A problem with its place spelled out, for JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub source: String,
    pub severity: Severity,
    pub code: &'static str,
    pub message: String,
    /// From 1.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    pub help: Option<String>,
}

impl Diagnostics {
    /// How many problems there are, listed or not.
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// The problems in pictures, for people.
    pub fn render(&self, style: Style) -> String {
        render::diagnostics(self, style)
    }

    /// The problems as plain data, for tools.
    pub fn reports(&self) -> Vec<Report> {
        let lines = Lines::new(&self.source_text);
        let report = |diagnostic: &Diagnostic| {
            let place = diagnostic.span.map(|span| lines.line_column(span.start));
            Report {
                source: self.source_name.clone(),
                severity: diagnostic.severity,
                code: diagnostic.code,
                message: diagnostic.message.clone(),
                line: place.map(|(line, _)| line),
                column: place.map(|(_, column)| column),
                help: diagnostic.help.clone(),
            }
        };
        self.list.iter().map(report).collect()
    }
}

/// Collects problems of one severity while a file is read.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    severity: Severity,
    list: Vec<Diagnostic>,
    more: usize,
    /// Every call of [`Self::push`], told or not.
    pushes: usize,
    /// Fingerprints: a mistake inside an anchor is met again at every alias, and told once.
    known: FxHashSet<u64>,
}

impl Sink {
    pub(crate) fn of_warnings() -> Self {
        Self { severity: Severity::Warning, ..Self::default() }
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.pushes += 1;
        if !self.known.insert(diagnostic.fingerprint()) {
            return;
        }
        if self.is_full() {
            self.more += 1;
        } else {
            self.list.push(Diagnostic { severity: self.severity, ..diagnostic });
        }
    }

    /// Further problems are only counted: no need to find good words for them.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= KEPT
    }

    /// There is no sense in reading on.
    pub(crate) fn is_enough(&self) -> bool {
        self.pushes >= ENOUGH
    }

    /// Grows with every problem, also with one that is met again.
    pub(crate) fn pushes(&self) -> usize {
        self.pushes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many problems there are, kept or not.
    pub(crate) fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// Sorted by place; problems of the file as a whole come first.
    pub(crate) fn into_diagnostics(mut self, source_name: &str, source: &str) -> Diagnostics {
        self.list.sort_by_key(|diagnostic| diagnostic.span);
        let source_name = source_name.to_owned();
        // A large file is not copied for nothing.
        let source_text = if self.list.is_empty() { String::new() } else { source.to_owned() };
        Diagnostics { source_name, source_text, list: self.list, more: self.more }
    }
}
