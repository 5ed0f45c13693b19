//! Documents other than specs, in the formats of specs: read as JSON values with the location of every field, so
//! that callers can report errors at the right place.

use crate::convert::{read_unchecked_tree, tree_to_json};
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic, SpecDiagnostics};
use crate::format::SpecSource;
use crate::source::SourceSpan;
use crate::tree::DocumentTree;

/// A parsed document.
#[derive(Debug)]
pub struct LocatedDocument<'s> {
    name: &'s str,
    text: &'s str,
    tree: DocumentTree<'s>,
    value: serde_json::Value,
}

/// An error in a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// `splitting_params.lumi_mask`, `production_steps[1].fraction` or `production_steps.1.fraction`; empty:
    /// the whole document.
    pub field: String,
    pub message: String,
    pub help: Option<String>,
}

impl<'s> LocatedDocument<'s> {
    /// Parses a document and reports all syntax errors at once.
    pub fn parse(source: SpecSource<'s>) -> Result<Self, SpecDiagnostics> {
        let (text, format) = source.open()?;
        let tree = read_unchecked_tree(source.name, text, format)?;
        let mut sink = DiagnosticSink::default();
        let value = tree_to_json(&tree, &mut sink);
        if sink.is_empty() {
            Ok(Self { name: source.name, text, tree, value })
        } else {
            Err(sink.into_diagnostics(source.name, text))
        }
    }

    pub const fn value(&self) -> &serde_json::Value {
        &self.value
    }

    pub fn into_value(self) -> serde_json::Value {
        self.value
    }

    /// Returns diagnostics for the caller's errors at the locations of their fields. A missing field is reported
    /// at the map or list that should contain it.
    pub fn report_problems(&self, complaints: impl IntoIterator<Item = FieldProblem>) -> SpecDiagnostics {
        let mut sink = DiagnosticSink::default();
        for FieldProblem { field, message, help } in complaints {
            let message = if field.is_empty() { message } else { format!("{field}: {message}") };
            let mut diagnostic = SpecDiagnostic::new("request", message);
            diagnostic.span = self.find_span(&field);
            diagnostic.help = help;
            sink.push(diagnostic);
        }
        sink.into_diagnostics(self.name, self.text)
    }

    /// The location of the field, or of the innermost existing map or list on its path. `None` if not even the
    /// first step exists.
    fn find_span(&self, field: &str) -> Option<SourceSpan> {
        let (mut tree, mut found) = (&self.tree, None);
        for step in split_field_path(field) {
            let (next, span) = match step {
                // A number is an index into a list, in either notation.
                FieldPathStep::Key(key) if !tree.items().is_empty() => {
                    match key.parse().ok().and_then(|index: usize| tree.items().get(index)) {
                        Some(item) => (item, item.span),
                        None => break,
                    }
                }
                FieldPathStep::Key(key) => {
                    let entry = tree.entries().iter().find(|entry| entry.key == key);
                    let Some(entry) = entry else { break };
                    let is_scalar = entry.value.text().is_some();
                    (&entry.value, if is_scalar { entry.value.span } else { entry.key_span })
                }
                FieldPathStep::Index(index) => match tree.items().get(index) {
                    Some(item) => (item, item.span),
                    None => break,
                },
            };
            (tree, found) = (next, Some(span));
        }
        found
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldPathStep<'f> {
    Key(&'f str),
    Index(usize),
}

/// `a.b[2].c` → a, b, 2, c
fn split_field_path(field: &str) -> impl Iterator<Item = FieldPathStep<'_>> {
    field.split('.').flat_map(|part| {
        let (key, indices) = part.split_once('[').unwrap_or((part, ""));
        let indices = indices.split(['[', ']']).filter_map(|text| text.parse().ok());
        let key = Some(key).filter(|key| !key.is_empty()).map(FieldPathStep::Key);
        key.into_iter().chain(indices.map(FieldPathStep::Index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "request_name: a\nproduction_steps:\n  - {fraction: 0.1, priority: 5}\n  - fraction: 2\n    priority: 1\n";

    fn places(text: &str, fields: &[&str]) -> Vec<Option<(usize, usize)>> {
        let document = LocatedDocument::parse(SpecSource::new("r.yaml", text.as_bytes())).unwrap();
        let complaint =
            |field: &&str| FieldProblem { field: (*field).into(), message: "x".into(), help: None };
        let mut told = Vec::new();
        for field in fields {
            let diagnostics = document.report_problems([complaint(field)]);
            let report = &diagnostics.reports()[0];
            told.push(report.line.zip(report.column));
        }
        told
    }

    #[test]
    fn field_path_is_located_in_the_text() {
        assert_eq!(
            places(TEXT, &["request_name", "production_steps[1].fraction", "production_steps.0.priority"]),
            [Some((1, 15)), Some((4, 15)), Some((3, 31))]
        );
    }

    #[test]
    fn missing_field_is_located_at_its_parent() {
        assert_eq!(
            places(TEXT, &["production_steps[1].x", "production_steps[7]", "nothing", ""]),
            [Some((4, 5)), Some((2, 1)), None, None]
        );
    }

    #[test]
    fn located_documents_are_equal_in_all_formats() {
        let texts = [
            ("r.yaml", "name: a\nsteps: [{fraction: 0.5}]\n"),
            ("r.json", r#"{"name": "a", "steps": [{"fraction": 0.5}]}"#),
            ("r.json5", "{name: 'a', steps: [{fraction: 0.5}],}"),
            ("r.toml", "name = \"a\"\n[[steps]]\nfraction = 0.5\n"),
        ];
        for (name, text) in texts {
            let document = LocatedDocument::parse(SpecSource::new(name, text.as_bytes())).unwrap();
            assert_eq!(
                *document.value(),
                serde_json::json!({"name": "a", "steps": [{"fraction": 0.5}]}),
                "{name}"
            );
            let complaint =
                FieldProblem { field: "steps[0].fraction".into(), message: "too much".into(), help: None };
            assert!(document.report_problems([complaint]).reports()[0].line.is_some(), "{name}");
        }
    }
}
