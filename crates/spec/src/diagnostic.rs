//! What is wrong with a spec file, as data. [`crate::render`] draws it.

use crate::diagnostic_renderer::{self, DiagnosticStyle};
use crate::source::{LineIndex, SourceSpan};
use rustc_hash::{FxHashSet, FxHasher};
use serde::Serialize;
use std::hash::{Hash, Hasher};

/// So many problems are kept; the rest is counted.
const MAX_KEPT: usize = 50;
/// With so many, nobody reads on: what follows in such a file is noise.
const STOP_AFTER: usize = 1000;

/// Whether a spec can be used in spite of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticSeverity {
    #[default]
    Error,
    /// Worth saying; the spec is used all the same.
    Warning,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecDiagnostic {
    pub severity: DiagnosticSeverity,
    /// Names the kind of problem; stable, for tools.
    pub code: &'static str,
    pub message: String,
    /// The place to look at first.
    pub span: Option<SourceSpan>,
    /// Words at places; one at `span` itself stands beside its underline.
    pub labels: Vec<(SourceSpan, String)>,
    /// What to do about it.
    pub help: Option<String>,
}

impl SpecDiagnostic {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        let severity = DiagnosticSeverity::default();
        Self { severity, code, message: message.into(), span: None, labels: Vec::new(), help: None }
    }

    pub(crate) fn with_span(self, span: SourceSpan) -> Self {
        Self { span: Some(span), ..self }
    }

    pub(crate) fn with_label(mut self, span: SourceSpan, text: impl Into<String>) -> Self {
        self.labels.push((span, text.into()));
        self
    }

    pub(crate) fn with_help(self, text: impl Into<String>) -> Self {
        Self { help: Some(text.into()), ..self }
    }

    /// A guess at what was meant, if there is one.
    pub(crate) fn with_suggestion(self, suggestion: Option<&str>) -> Self {
        match suggestion {
            Some(word) => self.with_help(format!("did you mean `{word}`?")),
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
#[error("{}", self.render(DiagnosticStyle::Plain).trim_end())]
pub struct SpecDiagnostics {
    /// As the user named it, usually a path.
    pub source_name: String,
    pub source_text: String,
    pub list: Vec<SpecDiagnostic>,
    /// How many more there were than are listed.
    pub omitted: usize,
}

/// A problem with its place spelled out, for JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiagnosticReport {
    pub source: String,
    pub severity: DiagnosticSeverity,
    pub code: &'static str,
    pub message: String,
    /// From 1.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    pub help: Option<String>,
}

impl SpecDiagnostics {
    /// How many problems there are, listed or not.
    pub fn count(&self) -> usize {
        self.list.len() + self.omitted
    }

    /// The problems in pictures, for people.
    pub fn render(&self, style: DiagnosticStyle) -> String {
        diagnostic_renderer::render_diagnostics(self, style)
    }

    /// The problems as plain data, for tools.
    pub fn reports(&self) -> Vec<DiagnosticReport> {
        let lines = LineIndex::new(&self.source_text);
        let report = |diagnostic: &SpecDiagnostic| {
            let place = diagnostic.span.map(|span| lines.line_column(span.start));
            DiagnosticReport {
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
pub(crate) struct DiagnosticSink {
    severity: DiagnosticSeverity,
    list: Vec<SpecDiagnostic>,
    dropped: usize,
    /// Every call of [`Self::push`], told or not.
    pushes: usize,
    /// Fingerprints: a mistake inside an anchor is met again at every alias, and told once.
    fingerprints: FxHashSet<u64>,
}

impl DiagnosticSink {
    pub(crate) fn for_warnings() -> Self {
        Self { severity: DiagnosticSeverity::Warning, ..Self::default() }
    }

    pub(crate) fn push(&mut self, diagnostic: SpecDiagnostic) {
        self.pushes += 1;
        if !self.fingerprints.insert(diagnostic.fingerprint()) {
            return;
        }
        if self.is_full() {
            self.dropped += 1;
        } else {
            self.list.push(SpecDiagnostic { severity: self.severity, ..diagnostic });
        }
    }

    /// Further problems are only counted: no need to find good words for them.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_KEPT
    }

    /// There is no sense in reading on.
    pub(crate) fn should_stop(&self) -> bool {
        self.pushes >= STOP_AFTER
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
        self.list.len() + self.dropped
    }

    /// Sorted by place; problems of the file as a whole come first.
    pub(crate) fn into_diagnostics(mut self, source_name: &str, source: &str) -> SpecDiagnostics {
        self.list.sort_by_key(|diagnostic| diagnostic.span);
        let source_name = source_name.to_owned();
        // A large file is not copied for nothing.
        let source_text = if self.list.is_empty() { String::new() } else { source.to_owned() };
        SpecDiagnostics { source_name, source_text, list: self.list, omitted: self.dropped }
    }
}
