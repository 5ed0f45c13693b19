//! TOML as a tree: values from the parser's events, tables put where their headers say.
//!
//! A table or key that is given twice is kept twice, so that it is reported in the same words as in every format.

mod tables;

use crate::diagnostic::{Diagnostic, Sink};
use crate::event::{Stop, is_json_number};
use crate::source::Span;
use crate::tree::{MAX_DEPTH, Tree, too_deep};
use std::borrow::Cow;
use tables::{NodeId, Tables};
use toml_parser::decoder::{Encoding, ScalarKind};
use toml_parser::parser::{EventReceiver, RecursionGuard, parse_document};
use toml_parser::{ErrorSink, Expected, ParseError};

/// The parser goes on after a mistake, and finds one at every other byte of what is no TOML at all.
const MOST_ERRORS: usize = 1000;

/// Reads a whole document; what is wrong with it goes to the sink. `None`: there is nothing in it.
pub(crate) fn read<'s>(text: &'s str, sink: &mut Sink) -> Result<Option<Tree<'s>>, Stop> {
    let source = toml_parser::Source::new(text);
    let tokens = source.lex().into_vec();
    let mut errors = Errors::default();
    let mut reader = Reader::new(source);
    // The guard stops the parser's own recursion; the reader counts tables as well.
    let mut guard = RecursionGuard::new(&mut reader, MAX_DEPTH as u32);
    parse_document(&tokens, &mut guard, &mut errors);
    let is_too_deep = reader.too_deep.is_some();
    if let Some(span) = reader.too_deep {
        sink.push(too_deep(span));
    }
    for error in &errors.first {
        // The guard's own complaint was put in our words.
        if !(is_too_deep && error.description().contains("recurs")) {
            sink.push(diagnostic(error));
        }
    }
    if !errors.first.is_empty() || is_too_deep {
        return Err(Stop);
    }
    if reader.tables.is_empty() {
        return Ok(None);
    }
    reader.tables.into_tree().map(Some).map_err(|span| {
        sink.push(too_deep(span));
        Stop
    })
}

/// Takes the parser's complaints, as many as anybody wants to know of.
#[derive(Default)]
struct Errors {
    first: Vec<ParseError>,
}

impl ErrorSink for Errors {
    fn report_error(&mut self, error: ParseError) {
        if self.first.len() < MOST_ERRORS {
            self.first.push(error);
        }
    }
}

/// The parser's complaint in our form.
fn diagnostic(error: &ParseError) -> Diagnostic {
    let place = error.unexpected().or(error.context());
    let span = place.map_or(Span::default(), |span| Span::new(span.start(), span.end()));
    let diagnostic = Diagnostic::new("syntax", error.description().to_owned()).at(span);
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
    diagnostic.help(format!("expected {}", expected.join(", ")))
}

/// Takes the parser's events.
struct Reader<'s> {
    source: toml_parser::Source<'s>,
    tables: Tables<'s>,
    /// The keys of the path that is being read: `a.b`.
    path: Vec<(Cow<'s, str>, Span)>,
    /// The table of the last header.
    current: NodeId,
    /// Where the header that is being read begins, and whether it is one of an array.
    header: Option<(Span, bool)>,
    /// The open arrays and inline tables, from the outside in.
    open: Vec<NodeId>,
    too_deep: Option<Span>,
}

impl<'s> Reader<'s> {
    fn new(source: toml_parser::Source<'s>) -> Self {
        let tables = Tables::default();
        let current = tables.root();
        Self { source, tables, path: Vec::new(), current, header: None, open: Vec::new(), too_deep: None }
    }

    /// Opens the table of the header that was just read.
    fn enter_table(&mut self, end: toml_parser::Span) {
        let Some((start, is_array)) = self.header.take() else { return };
        let path = std::mem::take(&mut self.path);
        let span = Span::new(start.start as usize, end.end());
        match self.tables.header(&path, is_array, span) {
            Ok(table) => self.current = table,
            Err(Stop) => self.note_too_deep(span),
        }
    }

    fn note_too_deep(&mut self, span: Span) {
        self.too_deep.get_or_insert(span);
    }

    /// Puts a finished or just opened value where it belongs: under the key that was read, or at the end of the array.
    fn place(&mut self, value: NodeId, span: Span) {
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
            self.note_too_deep(span);
        }
    }

    fn enter(&mut self, node: NodeId, span: Span) -> bool {
        self.place(node, span);
        self.open.push(node);
        if self.open.len() >= MAX_DEPTH {
            self.note_too_deep(span);
        }
        self.too_deep.is_none()
    }

    fn leave(&mut self, span: toml_parser::Span) {
        if let Some(open) = self.open.pop() {
            self.tables.close(open, ours(span));
        }
    }
}

fn ours(span: toml_parser::Span) -> Span {
    Span::new(span.start(), span.end())
}

impl EventReceiver for Reader<'_> {
    fn std_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.header = Some((ours(span), false));
    }

    fn std_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.enter_table(span);
    }

    fn array_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.header = Some((ours(span), true));
    }

    fn array_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.enter_table(span);
    }

    fn inline_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) -> bool {
        let table = self.tables.add_table(ours(span));
        self.enter(table, ours(span))
    }

    fn inline_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.leave(span);
    }

    fn array_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) -> bool {
        let array = self.tables.add_array(ours(span));
        self.enter(array, ours(span))
    }

    fn array_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.leave(span);
    }

    fn simple_key(&mut self, span: toml_parser::Span, kind: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = self.source.get(span) else { return };
        let raw = toml_parser::Raw::new_unchecked(raw.as_str(), kind, span);
        let mut key = Cow::Borrowed("");
        raw.decode_key(&mut key, error);
        self.path.push((key, ours(span)));
    }

    fn scalar(&mut self, span: toml_parser::Span, kind: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = self.source.get(span) else { return };
        let raw = toml_parser::Raw::new_unchecked(raw.as_str(), kind, span);
        let mut text = Cow::Borrowed("");
        let plain = match raw.decode_scalar(&mut text, error) {
            ScalarKind::String => false,
            ScalarKind::Boolean(_) | ScalarKind::DateTime => true,
            ScalarKind::Float => {
                text = float(text);
                true
            }
            ScalarKind::Integer(radix) => {
                if let Some(number) = integer(&text, radix.value()) {
                    text = number;
                } else {
                    error.report_error(ParseError::new("the number is too large").with_unexpected(span));
                }
                true
            }
        };
        let node = self.tables.add_leaf(Tree::scalar(text, plain, ours(span)));
        self.place(node, ours(span));
    }
}

/// As JSON writes it, if it can: the parser has taken the `_` out.
fn float(text: Cow<'_, str>) -> Cow<'_, str> {
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

fn integer(text: &str, radix: u32) -> Option<Cow<'static, str>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { "-" } else { "" };
    if radix == 10 {
        return Some(Cow::Owned(format!("{sign}{unsigned}")));
    }
    let prefix = ["0x", "0o", "0b"].into_iter().find(|prefix| unsigned.starts_with(prefix));
    let digits = &unsigned[prefix.map_or(0, str::len)..];
    Some(Cow::Owned(u128::from_str_radix(digits, radix).ok()?.to_string()))
}
