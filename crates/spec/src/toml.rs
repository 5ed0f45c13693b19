//! Parses TOML into a tree: values from the parser's events, tables placed according to their headers.
//!
//! A repeated table or key is kept twice, so that it is reported with the same message as in every format.

mod tables;

use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::{StopReading, is_json_number};
use crate::source::SourceSpan;
use crate::tree::{DocumentTree, MAX_DEPTH, too_deep_error};
use std::borrow::Cow;
use tables::{TomlNodeId, TomlTables};
use toml_parser::decoder::{Encoding, ScalarKind};
use toml_parser::parser::{EventReceiver, RecursionGuard, parse_document};
use toml_parser::{ErrorSink, Expected, ParseError};

/// The parser continues after an error, and reports one for almost every byte of a file that is not TOML.
const MAX_ERRORS: usize = 1000;

/// Parses a whole document; problems go to the sink. Returns `None` if it is empty.
pub(crate) fn parse_toml<'s>(
    text: &'s str,
    sink: &mut DiagnosticSink,
) -> Result<Option<DocumentTree<'s>>, StopReading> {
    let source = toml_parser::Source::new(text);
    let tokens = source.lex().into_vec();
    let mut errors = TomlErrors::default();
    let mut reader = TomlReader::new(source);
    // The guard limits the parser's recursion; the reader counts tables as well.
    let mut guard = RecursionGuard::new(&mut reader, MAX_DEPTH as u32);
    parse_document(&tokens, &mut guard, &mut errors);
    let is_too_deep = reader.too_deep.is_some();
    if let Some(span) = reader.too_deep {
        sink.push(too_deep_error(span));
    }
    for error in &errors.first {
        // The error of the guard has already been reported in our words.
        if !(is_too_deep && error.description().contains("recurs")) {
            sink.push(error_diagnostic(error));
        }
    }
    if !errors.first.is_empty() || is_too_deep {
        return Err(StopReading);
    }
    if reader.tables.is_empty() {
        return Ok(None);
    }
    reader.tables.into_tree().map(Some).map_err(|span| {
        sink.push(too_deep_error(span));
        StopReading
    })
}

/// Collects the parser's errors, up to a limit.
#[derive(Default)]
struct TomlErrors {
    first: Vec<ParseError>,
}

impl ErrorSink for TomlErrors {
    fn report_error(&mut self, error: ParseError) {
        if self.first.len() < MAX_ERRORS {
            self.first.push(error);
        }
    }
}

/// Converts a parser error to a diagnostic.
fn error_diagnostic(error: &ParseError) -> SpecDiagnostic {
    let place = error.unexpected().or(error.context());
    let span = place.map_or(SourceSpan::default(), |span| SourceSpan::new(span.start(), span.end()));
    let diagnostic = SpecDiagnostic::new("syntax", error.description().to_owned()).with_span(span);
    let expected: Vec<String> = error
        .expected()
        .unwrap_or_default()
        .iter()
        .filter_map(|expected| match expected {
            Expected::Literal(text) => Some(format!("`{}`", text.escape_debug())),
            Expected::Description(text) => Some((*text).to_owned()),
            _ => None,
        })
        .collect();
    if expected.is_empty() {
        return diagnostic;
    }
    diagnostic.with_help(format!("expected {}", expected.join(", ")))
}

/// Receives the parser's events.
struct TomlReader<'s> {
    source: toml_parser::Source<'s>,
    tables: TomlTables<'s>,
    /// The keys of the current path: `a.b`.
    path: Vec<(Cow<'s, str>, SourceSpan)>,
    /// The table of the last header.
    current: TomlNodeId,
    /// The location of the current header, and whether it is an array header.
    header: Option<(SourceSpan, bool)>,
    /// The open arrays and inline tables, outermost first.
    open: Vec<TomlNodeId>,
    too_deep: Option<SourceSpan>,
}

impl<'s> TomlReader<'s> {
    fn new(source: toml_parser::Source<'s>) -> Self {
        let tables = TomlTables::default();
        let current = tables.root();
        Self { source, tables, path: Vec::new(), current, header: None, open: Vec::new(), too_deep: None }
    }

    /// Opens the table of the current header.
    fn enter_table(&mut self, end: toml_parser::Span) {
        let Some((start, is_array)) = self.header.take() else { return };
        let path = std::mem::take(&mut self.path);
        let span = SourceSpan::new(start.start as usize, end.end());
        match self.tables.open_header(&path, is_array, span) {
            Ok(table) => self.current = table,
            Err(StopReading) => self.record_too_deep(span),
        }
    }

    fn record_too_deep(&mut self, span: SourceSpan) {
        self.too_deep.get_or_insert(span);
    }

    /// Inserts a finished or just opened value: under the current key, or at the end of the array.
    fn attach_value(&mut self, value: TomlNodeId, span: SourceSpan) {
        let (target, is_array) = match self.open.last() {
            Some(open) => (*open, self.tables.is_array(*open)),
            None => (self.current, false),
        };
        if is_array {
            self.tables.push_item(target, value);
            return;
        }
        let path = std::mem::take(&mut self.path);
        if self.tables.insert(target, &path, value).is_err() {
            self.record_too_deep(span);
        }
    }

    fn enter(&mut self, node: TomlNodeId, span: SourceSpan) -> bool {
        self.attach_value(node, span);
        self.open.push(node);
        if self.open.len() >= MAX_DEPTH {
            self.record_too_deep(span);
        }
        self.too_deep.is_none()
    }

    fn leave(&mut self, span: toml_parser::Span) {
        if let Some(open) = self.open.pop() {
            self.tables.close(open, to_span(span));
        }
    }
}

fn to_span(span: toml_parser::Span) -> SourceSpan {
    SourceSpan::new(span.start(), span.end())
}

impl EventReceiver for TomlReader<'_> {
    fn std_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.header = Some((to_span(span), false));
    }

    fn std_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.enter_table(span);
    }

    fn array_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.header = Some((to_span(span), true));
    }

    fn array_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.enter_table(span);
    }

    fn inline_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) -> bool {
        let table = self.tables.add_table(to_span(span));
        self.enter(table, to_span(span))
    }

    fn inline_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.leave(span);
    }

    fn array_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) -> bool {
        let array = self.tables.add_array(to_span(span));
        self.enter(array, to_span(span))
    }

    fn array_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.leave(span);
    }

    fn simple_key(&mut self, span: toml_parser::Span, kind: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = self.source.get(span) else { return };
        let raw = toml_parser::Raw::new_unchecked(raw.as_str(), kind, span);
        let mut key = Cow::Borrowed("");
        raw.decode_key(&mut key, error);
        self.path.push((key, to_span(span)));
    }

    fn scalar(&mut self, span: toml_parser::Span, kind: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = self.source.get(span) else { return };
        let raw = toml_parser::Raw::new_unchecked(raw.as_str(), kind, span);
        let mut text = Cow::Borrowed("");
        let plain = match raw.decode_scalar(&mut text, error) {
            ScalarKind::String => false,
            ScalarKind::Boolean(_) | ScalarKind::DateTime => true,
            ScalarKind::Float => {
                text = to_json_float(text);
                true
            }
            ScalarKind::Integer(radix) => {
                if let Some(number) = to_json_integer(&text, radix.value()) {
                    text = number;
                } else {
                    error.report_error(ParseError::new("the number is too large").with_unexpected(span));
                }
                true
            }
        };
        let node = self.tables.add_leaf(DocumentTree::scalar(text, plain, to_span(span)));
        self.attach_value(node, to_span(span));
    }
}

/// Returns the number in JSON syntax, if possible: the parser has removed the `_`.
fn to_json_float(text: Cow<'_, str>) -> Cow<'_, str> {
    if is_json_number(&text) {
        return text;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let sign = if text.starts_with('-') { "-" } else { "" };
    Cow::Owned(match unsigned {
        "inf" => format!("{sign}.inf"),
        "nan" => ".nan".to_owned(),
        _ => format!("{sign}{unsigned}"),
    })
}

fn to_json_integer(text: &str, radix: u32) -> Option<Cow<'static, str>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { "-" } else { "" };
    if radix == 10 {
        return Some(Cow::Owned(format!("{sign}{unsigned}")));
    }
    let prefix = ["0x", "0o", "0b"].into_iter().find(|prefix| unsigned.starts_with(prefix));
    let digits = &unsigned[prefix.map_or(0, str::len)..];
    Some(Cow::Owned(u128::from_str_radix(digits, radix).ok()?.to_string()))
}
