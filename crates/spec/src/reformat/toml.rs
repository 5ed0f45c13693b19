//! Formats TOML: `key = value`, a blank line above each table, long lists with one item per line.

use super::UnsupportedLayout;
use super::layout_blocks::{CommentCursor, LayoutBlock, LayoutItem, MAX_WIDTH};
use crate::source::SourceSpan;
use toml_parser::ErrorSink;
use toml_parser::decoder::Encoding;
use toml_parser::parser::{EventReceiver, RecursionGuard, parse_document};

pub(super) fn find_comments(text: &str) -> Vec<SourceSpan> {
    read_document(text).comments
}

pub(super) fn render_layout(text: &str) -> Result<String, UnsupportedLayout> {
    let TomlLayoutReader { statements, comments, .. } = read_document(text);
    let mut layout = TomlLayout { text, comments: CommentCursor::new(text, comments) };
    let items =
        statements.iter().map(|statement| layout.layout_statement(statement)).collect::<Result<_, _>>()?;
    let below = layout.comments.take_rest();
    let mut out = String::new();
    LayoutBlock { items, comments_below: below, closing_line: String::new() }.write_to("  ", 0, &mut out);
    Ok(out)
}

fn read_document(text: &str) -> TomlLayoutReader {
    let tokens = toml_parser::Source::new(text).lex().into_vec();
    let mut reader = TomlLayoutReader::default();
    let mut guard = RecursionGuard::new(&mut reader, crate::tree::MAX_DEPTH as u32);
    parse_document(&tokens, &mut guard, &mut ());
    reader
}

/// The lines of a document in order.
#[derive(Default)]
struct TomlLayoutReader {
    statements: Vec<TomlStatement>,
    comments: Vec<SourceSpan>,
    /// Keys whose values have not been read.
    keys: Vec<SourceSpan>,
    /// The open lists and maps, outermost first.
    open: Vec<TomlPair>,
    header: Option<SourceSpan>,
}

enum TomlStatement {
    /// Writes `[a.b]` or `[[a.b]]`.
    Header {
        keys: Vec<SourceSpan>,
        whole: SourceSpan,
        is_array: bool,
    },
    Pair(TomlPair),
}

/// Writes a value and its key, if it has one.
struct TomlPair {
    keys: Vec<SourceSpan>,
    value: TomlValue,
}

enum TomlValue {
    Scalar(SourceSpan),
    List { items: Vec<TomlPair>, whole: SourceSpan },
    Map { entries: Vec<TomlPair>, whole: SourceSpan },
}

impl TomlValue {
    fn span(&self) -> SourceSpan {
        match self {
            Self::Scalar(span) | Self::List { whole: span, .. } | Self::Map { whole: span, .. } => *span,
        }
    }
}

impl TomlLayoutReader {
    fn add_pair(&mut self, pair: TomlPair) {
        match self.open.last_mut().map(|open| &mut open.value) {
            Some(TomlValue::List { items, .. }) => items.push(pair),
            Some(TomlValue::Map { entries, .. }) => entries.push(pair),
            Some(TomlValue::Scalar(_)) | None => self.statements.push(TomlStatement::Pair(pair)),
        }
    }

    fn enter(&mut self, value: TomlValue) -> bool {
        let keys = std::mem::take(&mut self.keys);
        self.open.push(TomlPair { keys, value });
        true
    }

    fn leave(&mut self, end: toml_parser::Span) {
        let Some(mut pair) = self.open.pop() else { return };
        if let TomlValue::List { whole, .. } | TomlValue::Map { whole, .. } = &mut pair.value {
            whole.end = end.end() as u32;
        }
        self.add_pair(pair);
    }

    fn close_header(&mut self, end: toml_parser::Span, is_array: bool) {
        let Some(open) = self.header.take() else { return };
        let whole = SourceSpan { start: open.start, end: end.end() as u32 };
        let keys = std::mem::take(&mut self.keys);
        self.statements.push(TomlStatement::Header { keys, whole, is_array });
    }
}

fn to_span(span: toml_parser::Span) -> SourceSpan {
    SourceSpan::new(span.start(), span.end())
}

impl EventReceiver for TomlLayoutReader {
    fn std_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.header = Some(to_span(span));
    }

    fn std_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.close_header(span, false);
    }

    fn array_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.header = Some(to_span(span));
    }

    fn array_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.close_header(span, true);
    }

    fn inline_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) -> bool {
        self.enter(TomlValue::Map { entries: Vec::new(), whole: to_span(span) })
    }

    fn inline_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.leave(span);
    }

    fn array_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) -> bool {
        self.enter(TomlValue::List { items: Vec::new(), whole: to_span(span) })
    }

    fn array_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.leave(span);
    }

    fn simple_key(&mut self, span: toml_parser::Span, _: Option<Encoding>, _: &mut dyn ErrorSink) {
        self.keys.push(to_span(span));
    }

    fn scalar(&mut self, span: toml_parser::Span, _: Option<Encoding>, _: &mut dyn ErrorSink) {
        let keys = std::mem::take(&mut self.keys);
        self.add_pair(TomlPair { keys, value: TomlValue::Scalar(to_span(span)) });
    }

    fn comment(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.comments.push(to_span(span));
    }
}

struct TomlLayout<'s> {
    text: &'s str,
    comments: CommentCursor<'s>,
}

impl TomlLayout<'_> {
    fn source(&self, span: SourceSpan) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    fn render_keys(&self, keys: &[SourceSpan]) -> String {
        keys.iter().map(|key| self.source(*key)).collect::<Vec<_>>().join(".")
    }

    fn layout_statement(&mut self, statement: &TomlStatement) -> Result<LayoutItem, UnsupportedLayout> {
        match statement {
            TomlStatement::Header { keys, whole, is_array } => {
                let keys = self.render_keys(keys);
                let text = if *is_array { format!("[[{keys}]]") } else { format!("[{keys}]") };
                let above = self.comments.take_above(whole.start);
                let beside = self.comments.take_trailing(whole.end);
                Ok(LayoutItem {
                    has_blank_line_above: true,
                    comments_above: above,
                    text,
                    trailing_comment: beside,
                    block: None,
                })
            }
            TomlStatement::Pair(pair) => self.layout_pair(pair, ""),
        }
    }

    /// Writes a separate line, optionally with a comma.
    fn layout_pair(&mut self, pair: &TomlPair, comma: &str) -> Result<LayoutItem, UnsupportedLayout> {
        let whole = pair.value.span();
        let start = pair.keys.first().map_or(whole.start, |key| key.start);
        let is_apart = self.comments.has_blank_line_above(start);
        let above = self.comments.take_above(start);
        let mut text = match pair.keys.as_slice() {
            [] => String::new(),
            keys => self.render_keys(keys) + " = ",
        };
        let has_comments = self.comments.has_within(whole.start, whole.end);
        if let TomlValue::List { items, .. } = &pair.value {
            let line = self.render_line(&pair.value);
            let was_broken = self.source(whole).contains('\n');
            if !items.is_empty() && (has_comments || was_broken || text.len() + line.len() > MAX_WIDTH) {
                text.push('[');
                let beside = self.comments.take_trailing(whole.start + 1);
                let items = items.iter().map(|item| self.layout_pair(item, ",")).collect::<Result<_, _>>()?;
                let below = self.comments.take_below(whole.end);
                let block =
                    Some(LayoutBlock { items, comments_below: below, closing_line: format!("]{comma}") });
                return Ok(LayoutItem {
                    has_blank_line_above: is_apart,
                    comments_above: above,
                    text,
                    block,
                    trailing_comment: beside,
                });
            }
        }
        if has_comments {
            let why = "a comment is inside braces, which the formatter does not support";
            return Err(UnsupportedLayout { reason: why, span: Some(whole) });
        }
        text.extend([&self.render_line(&pair.value), comma]);
        let beside = self.comments.take_trailing(whole.end);
        Ok(LayoutItem {
            has_blank_line_above: is_apart,
            comments_above: above,
            text,
            block: None,
            trailing_comment: beside,
        })
    }

    fn render_line(&self, value: &TomlValue) -> String {
        match value {
            TomlValue::Scalar(span) => self.source(*span).to_owned(),
            TomlValue::List { items, .. } => {
                let items: Vec<String> = items.iter().map(|item| self.render_line(&item.value)).collect();
                format!("[{}]", items.join(", "))
            }
            TomlValue::Map { entries, .. } if entries.is_empty() => "{}".to_owned(),
            TomlValue::Map { entries, .. } => {
                let entry = |pair: &TomlPair| {
                    format!("{} = {}", self.render_keys(&pair.keys), self.render_line(&pair.value))
                };
                format!("{{ {} }}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }
}
