//! Parses JSON and JSON5 into events. JSON5 syntax is also parsed in a strict file, and reported, so
//! that later errors are found in the same pass.

mod number;
mod string;

use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, ScalarText, StopReading};
use crate::source::SourceSpan;
use crate::tree::{MAX_DEPTH, too_deep_error};
use std::borrow::Cow;

/// The events of a JSON or JSON5 text.
pub(crate) struct JsonReader<'s> {
    text: &'s str,
    position: usize,
    is_json5: bool,
    /// The open objects and arrays, outermost first.
    levels: Vec<JsonLevel>,
    has_root: bool,
    /// The locations of the comments.
    comments: Vec<SourceSpan>,
}

struct JsonLevel {
    is_object: bool,
    open: SourceSpan,
    next: JsonExpectation,
}

/// The next expected token in an object or array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonExpectation {
    /// A member or the end.
    First,
    /// The value of the current key.
    Value,
    /// A comma or the end.
    Comma,
}

impl<'s> JsonReader<'s> {
    pub(crate) fn new_strict(text: &'s str) -> Self {
        Self::new(text, false)
    }

    pub(crate) fn new_json5(text: &'s str) -> Self {
        Self::new(text, true)
    }

    fn new(text: &'s str, is_json5: bool) -> Self {
        Self { text, position: 0, is_json5, levels: Vec::new(), has_root: false, comments: Vec::new() }
    }

    /// Returns the comments so far.
    pub(crate) fn comments(&self) -> &[SourceSpan] {
        &self.comments
    }

    fn rest(&self) -> &'s str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Reports syntax that JSON does not have.
    fn report_json5_only(&self, what: &str, span: SourceSpan, sink: &mut DiagnosticSink) {
        if !self.is_json5 {
            sink.push(
                SpecDiagnostic::new("json5", format!("{what} in a JSON file"))
                    .with_span(span)
                    .with_help("this is JSON5: use the extension .json5"),
            );
        }
    }

    fn fail<T>(diagnostic: SpecDiagnostic, sink: &mut DiagnosticSink) -> Result<T, StopReading> {
        sink.push(diagnostic);
        Err(StopReading)
    }

    fn fail_unexpected<T>(&self, expected: &str, sink: &mut DiagnosticSink) -> Result<T, StopReading> {
        let diagnostic = match (self.peek(), self.levels.last()) {
            (Some(found), _) => {
                let span = SourceSpan::new(self.position, self.position + found.len_utf8());
                SpecDiagnostic::new(
                    "syntax",
                    format!("expected {expected}, not `{}`", found.escape_default()),
                )
                .with_span(span)
            }
            (None, Some(level)) => {
                let bracket = if level.is_object { '{' } else { '[' };
                SpecDiagnostic::new("syntax", format!("`{bracket}` is never closed")).with_span(level.open)
            }
            (None, None) => SpecDiagnostic::new("syntax", format!("expected {expected} at the end"))
                .with_span(SourceSpan::from_offset(self.position)),
        };
        Self::fail(diagnostic, sink)
    }

    /// Skips white space and comments.
    fn skip_space(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        loop {
            let is_space =
                |c: char| matches!(c, ' ' | '\t' | '\n' | '\r') || (self.is_json5 && is_json5_space(c));
            self.position += self.rest().len() - self.rest().trim_start_matches(is_space).len();
            let rest = self.rest();
            let length = if rest.starts_with("//") {
                rest.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(rest.len())
            } else if let Some(inside) = rest.strip_prefix("/*") {
                let Some(end) = inside.find("*/") else {
                    let span = SourceSpan::new(self.position, self.position + 2);
                    return Self::fail(
                        SpecDiagnostic::new("syntax", "this comment is never closed").with_span(span),
                        sink,
                    );
                };
                end + 4
            } else {
                return Ok(());
            };
            let span = SourceSpan::new(self.position, self.position + length);
            self.report_json5_only("a comment", span, sink);
            self.comments.push(span);
            self.position += length;
        }
    }

    /// Consumes a comma or finds the closing bracket. Returns `true` if a member follows.
    fn read_separator(&mut self, is_object: bool, sink: &mut DiagnosticSink) -> Result<bool, StopReading> {
        let close = if is_object { '}' } else { ']' };
        let is_first = self.levels.last().is_some_and(|level| level.next == JsonExpectation::First);
        if self.peek() == Some(close) {
            return Ok(false);
        }
        if is_first {
            return Ok(true);
        }
        if self.peek() != Some(',') {
            return self.fail_unexpected(&format!("`,` or `{close}`"), sink);
        }
        let comma = SourceSpan::new(self.position, self.position + 1);
        self.position += 1;
        self.skip_space(sink)?;
        if self.peek() != Some(close) {
            return Ok(true);
        }
        self.report_json5_only("a comma after the last item", comma, sink);
        Ok(false)
    }

    fn close_level(&mut self) -> DocumentEvent<'s> {
        let span = SourceSpan::new(self.position, self.position + 1);
        self.position += 1;
        let is_object = self.levels.pop().is_some_and(|level| level.is_object);
        DocumentEvent {
            kind: if is_object { DocumentEventKind::MapEnd } else { DocumentEventKind::SeqEnd },
            span,
        }
    }

    fn read_key(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        let start = self.position;
        let text = match self.peek() {
            Some('"' | '\'') => self.read_string(sink)?,
            Some(c) if is_identifier_start(c) => {
                let rest = self.rest();
                let word = &rest[..rest.len() - rest.trim_start_matches(is_identifier_part).len()];
                self.position += word.len();
                self.report_json5_only("a key without quotes", SourceSpan::new(start, self.position), sink);
                Cow::Borrowed(word)
            }
            _ => return self.fail_unexpected("a key in quotes", sink),
        };
        let span = SourceSpan::new(start, self.position);
        self.skip_space(sink)?;
        if self.peek() != Some(':') {
            return self.fail_unexpected("`:` after the key", sink);
        }
        self.position += 1;
        if let Some(level) = self.levels.last_mut() {
            level.next = JsonExpectation::Value;
        }
        Ok(DocumentEvent { kind: DocumentEventKind::Key { text, merged: false }, span })
    }

    fn read_value(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        self.skip_space(sink)?;
        if let Some(level) = self.levels.last_mut() {
            level.next = JsonExpectation::Comma;
        }
        let start = self.position;
        let kind = match self.peek() {
            Some(open @ ('{' | '[')) => {
                self.position += 1;
                let span = SourceSpan::new(start, self.position);
                if self.levels.len() >= MAX_DEPTH {
                    return Self::fail(too_deep_error(span), sink);
                }
                let is_object = open == '{';
                self.levels.push(JsonLevel { is_object, open: span, next: JsonExpectation::First });
                if is_object { DocumentEventKind::MapStart(None) } else { DocumentEventKind::SeqStart(None) }
            }
            Some('"' | '\'') => {
                DocumentEventKind::Scalar(ScalarText { text: self.read_string(sink)?, is_plain: false })
            }
            Some('0'..='9' | '+' | '-' | '.') => self.read_number(sink),
            Some(c) if is_identifier_start(c) => self.read_word(sink)?,
            _ => return self.fail_unexpected("a value", sink),
        };
        Ok(DocumentEvent { kind, span: SourceSpan::new(start, self.position) })
    }

    /// Parses a value that is a word: `true`, `null`, or a string without quotes.
    fn read_word(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEventKind<'s>, StopReading> {
        let rest = self.rest();
        let word = &rest[..rest.len() - rest.trim_start_matches(is_identifier_part).len()];
        let span = SourceSpan::new(self.position, self.position + word.len());
        match word {
            "true" | "false" | "null" => {
                self.position += word.len();
                Ok(DocumentEventKind::Scalar(ScalarText { text: Cow::Borrowed(word), is_plain: true }))
            }
            "Infinity" | "NaN" => Ok(self.read_number(sink)),
            _ => {
                let diagnostic = SpecDiagnostic::new("syntax", format!("a string needs quotes: \"{word}\""))
                    .with_span(span);
                self.position += word.len();
                if self.ends_value() {
                    // Only the quotes are missing: continue after it.
                    sink.push(diagnostic);
                    return Ok(DocumentEventKind::Bad);
                }
                Self::fail(diagnostic, sink)
            }
        }
    }

    fn ends_value(&self) -> bool {
        matches!(self.rest().trim_start().chars().next(), None | Some(',' | '}' | ']'))
    }

    /// The state before and after the root value.
    fn read_outside_root(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        match self.peek() {
            None => Ok(DocumentEvent {
                kind: DocumentEventKind::End,
                span: SourceSpan::from_offset(self.position),
            }),
            Some(_) if self.has_root => self.fail_unexpected("nothing after the end", sink),
            Some(_) => {
                self.has_root = true;
                self.read_value(sink)
            }
        }
    }
}

impl<'s> DocumentEventStream<'s> for JsonReader<'s> {
    fn next_event(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        self.skip_space(sink)?;
        match self.levels.last() {
            None => self.read_outside_root(sink),
            Some(JsonLevel { next: JsonExpectation::Value, .. }) => self.read_value(sink),
            Some(JsonLevel { is_object: true, .. }) => {
                if self.read_separator(true, sink)? {
                    self.read_key(sink)
                } else {
                    Ok(self.close_level())
                }
            }
            Some(JsonLevel { is_object: false, .. }) => {
                if self.read_separator(false, sink)? {
                    self.read_value(sink)
                } else {
                    Ok(self.close_level())
                }
            }
        }
    }

    fn leave_collection(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        let depth = self.levels.len();
        while self.levels.len() >= depth.max(1) {
            self.next_event(sink)?;
        }
        Ok(())
    }
}

fn is_json5_space(c: char) -> bool {
    matches!(c, '\u{b}' | '\u{c}' | '\u{a0}' | '\u{feff}' | '\u{2028}' | '\u{2029}')
        || (c.is_whitespace() && !c.is_control())
}

fn is_identifier_start(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '_' | '$')
}

pub(crate) fn is_identifier_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '\u{200c}' | '\u{200d}')
}

/// Whether a word may be a key without quotes.
pub(crate) fn is_identifier(text: &str) -> bool {
    text.starts_with(is_identifier_start) && text.chars().all(is_identifier_part)
}
