//! Problems of a spec file, as data. [`crate::diagnostic_renderer`] formats them.

use crate::diagnostic_renderer::{self, DiagnosticStyle};
use crate::source::{LineIndex, SourceSpan};
use rustc_hash::{FxHashSet, FxHasher};
use serde::Serialize;
use std::hash::{Hash, Hasher};

/// Maximum number of problems to keep; further ones are only counted.
const MAX_KEPT: usize = 50;
/// With this many problems the rest of the file is not worth checking.
const STOP_AFTER: usize = 1000;

/// Whether a spec can be used despite a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticSeverity {
    #[default]
    Error,
    /// A warning; the spec is used anyway.
    Warning,
}

/// A problem in a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecDiagnostic {
    pub severity: DiagnosticSeverity,
    /// Type of the problem; stable, for tools.
    pub code: &'static str,
    pub message: String,
    /// The main location.
    pub span: Option<SourceSpan>,
    /// Texts at locations; one at `span` itself is shown next to its underline.
    pub labels: Vec<(SourceSpan, String)>,
    /// How to fix it.
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

    /// Adds a suggestion, if there is one.
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

/// All problems of a file, in file order, with the text that they point into.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render(DiagnosticStyle::Plain).trim_end())]
pub struct SpecDiagnostics {
    /// The source as named by the user, usually a path.
    pub source_name: String,
    pub source_text: String,
    pub list: Vec<SpecDiagnostic>,
    /// The number of further problems.
    pub omitted: usize,
}

/// A problem with its resolved location, for JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiagnosticReport {
    pub source: String,
    pub severity: DiagnosticSeverity,
    pub code: &'static str,
    pub message: String,
    /// Starts at 1.
    pub line: Option<usize>,
    /// Starts at 1, in characters.
    pub column: Option<usize>,
    pub help: Option<String>,
}

impl SpecDiagnostics {
    /// Returns the number of problems, listed or not.
    pub fn count(&self) -> usize {
        self.list.len() + self.omitted
    }

    /// Renders the problems with source excerpts, for people.
    pub fn render(&self, style: DiagnosticStyle) -> String {
        diagnostic_renderer::render_diagnostics(self, style)
    }

    /// Returns the problems as plain data, for tools.
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
    /// Number of calls of [`Self::push`], including duplicates.
    pushes: usize,
    /// Fingerprints: a mistake inside an anchor appears again at every alias and is reported once.
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

    /// Whether further problems are only counted and need no suggestion.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_KEPT
    }

    /// Whether parsing should stop.
    pub(crate) fn should_stop(&self) -> bool {
        self.pushes >= STOP_AFTER
    }

    /// Grows with every problem, including repeated ones.
    pub(crate) fn pushes(&self) -> usize {
        self.pushes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the number of problems, kept or not.
    pub(crate) fn count(&self) -> usize {
        self.list.len() + self.dropped
    }

    /// Sorts by location; problems of the whole file come first.
    pub(crate) fn into_diagnostics(mut self, source_name: &str, source: &str) -> SpecDiagnostics {
        self.list.sort_by_key(|diagnostic| diagnostic.span);
        let source_name = source_name.to_owned();
        // Avoids copying a large file needlessly.
        let source_text = if self.list.is_empty() { String::new() } else { source.to_owned() };
        SpecDiagnostics { source_name, source_text, list: self.list, omitted: self.dropped }
    }
}
