//! The layout of TOML: `key = value`, a blank line above each table, long lists with an item per line.

use super::Unusual;
use super::outline::{Block, Comments, Item, WIDTH};
use crate::source::Span;
use toml_parser::ErrorSink;
use toml_parser::decoder::Encoding;
use toml_parser::parser::{EventReceiver, RecursionGuard, parse_document};

pub(super) fn comments(text: &str) -> Vec<Span> {
    read(text).comments
}

pub(super) fn lay_out(text: &str) -> Result<String, Unusual> {
    let Reader { statements, comments, .. } = read(text);
    let mut layout = Layout { text, comments: Comments::new(text, comments) };
    let items = statements.iter().map(|statement| layout.item(statement)).collect::<Result<_, _>>()?;
    let below = layout.comments.rest();
    let mut out = String::new();
    Block { items, below, close: String::new() }.print("  ", 0, &mut out);
    Ok(out)
}

fn read(text: &str) -> Reader {
    let tokens = toml_parser::Source::new(text).lex().into_vec();
    let mut reader = Reader::default();
    let mut guard = RecursionGuard::new(&mut reader, crate::tree::MAX_DEPTH as u32);
    parse_document(&tokens, &mut guard, &mut ());
    reader
}

/// The lines of a document in its order.
#[derive(Default)]
struct Reader {
    statements: Vec<Statement>,
    comments: Vec<Span>,
    /// Keys that were read and have no value yet.
    keys: Vec<Span>,
    /// Lists and maps that are open, from the outside in.
    open: Vec<Pair>,
    header: Option<Span>,
}

enum Statement {
    /// `[a.b]` or `[[a.b]]`.
    Header {
        keys: Vec<Span>,
        whole: Span,
        is_array: bool,
    },
    Pair(Pair),
}

/// A value and its key, if it has one.
struct Pair {
    keys: Vec<Span>,
    value: Value,
}

enum Value {
    Scalar(Span),
    List { items: Vec<Pair>, whole: Span },
    Map { entries: Vec<Pair>, whole: Span },
}

impl Value {
    fn span(&self) -> Span {
        match self {
            Self::Scalar(span) | Self::List { whole: span, .. } | Self::Map { whole: span, .. } => *span,
        }
    }
}

impl Reader {
    fn put(&mut self, pair: Pair) {
        match self.open.last_mut().map(|open| &mut open.value) {
            Some(Value::List { items, .. }) => items.push(pair),
            Some(Value::Map { entries, .. }) => entries.push(pair),
            Some(Value::Scalar(_)) | None => self.statements.push(Statement::Pair(pair)),
        }
    }

    fn enter(&mut self, value: Value) -> bool {
        let keys = std::mem::take(&mut self.keys);
        self.open.push(Pair { keys, value });
        true
    }

    fn leave(&mut self, end: toml_parser::Span) {
        let Some(mut pair) = self.open.pop() else { return };
        if let Value::List { whole, .. } | Value::Map { whole, .. } = &mut pair.value {
            whole.end = end.end() as u32;
        }
        self.put(pair);
    }

    fn close_header(&mut self, end: toml_parser::Span, is_array: bool) {
        let Some(open) = self.header.take() else { return };
        let whole = Span { start: open.start, end: end.end() as u32 };
        let keys = std::mem::take(&mut self.keys);
        self.statements.push(Statement::Header { keys, whole, is_array });
    }
}

fn ours(span: toml_parser::Span) -> Span {
    Span::new(span.start(), span.end())
}

impl EventReceiver for Reader {
    fn std_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.header = Some(ours(span));
    }

    fn std_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.close_header(span, false);
    }

    fn array_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.header = Some(ours(span));
    }

    fn array_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.close_header(span, true);
    }

    fn inline_table_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) -> bool {
        self.enter(Value::Map { entries: Vec::new(), whole: ours(span) })
    }

    fn inline_table_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.leave(span);
    }

    fn array_open(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) -> bool {
        self.enter(Value::List { items: Vec::new(), whole: ours(span) })
    }

    fn array_close(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.leave(span);
    }

    fn simple_key(&mut self, span: toml_parser::Span, _: Option<Encoding>, _: &mut dyn ErrorSink) {
        self.keys.push(ours(span));
    }

    fn scalar(&mut self, span: toml_parser::Span, _: Option<Encoding>, _: &mut dyn ErrorSink) {
        let keys = std::mem::take(&mut self.keys);
        self.put(Pair { keys, value: Value::Scalar(ours(span)) });
    }

    fn comment(&mut self, span: toml_parser::Span, _: &mut dyn ErrorSink) {
        self.comments.push(ours(span));
    }
}

struct Layout<'s> {
    text: &'s str,
    comments: Comments<'s>,
}

impl Layout<'_> {
    fn source(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    fn keys(&self, keys: &[Span]) -> String {
        keys.iter().map(|key| self.source(*key)).collect::<Vec<_>>().join(".")
    }

    fn item(&mut self, statement: &Statement) -> Result<Item, Unusual> {
        match statement {
            Statement::Header { keys, whole, is_array } => {
                let keys = self.keys(keys);
                let text = if *is_array { format!("[[{keys}]]") } else { format!("[{keys}]") };
                let above = self.comments.above(whole.start);
                let beside = self.comments.beside(whole.end);
                Ok(Item { is_apart: true, above, text, beside, block: None })
            }
            Statement::Pair(pair) => self.pair(pair, ""),
        }
    }

    /// A line of its own, perhaps with a comma.
    fn pair(&mut self, pair: &Pair, comma: &str) -> Result<Item, Unusual> {
        let whole = pair.value.span();
        let start = pair.keys.first().map_or(whole.start, |key| key.start);
        let is_apart = self.comments.is_apart(start);
        let above = self.comments.above(start);
        let mut text = match pair.keys.as_slice() {
            [] => String::new(),
            keys => self.keys(keys) + " = ",
        };
        let has_comments = self.comments.has_within(whole.start, whole.end);
        if let Value::List { items, .. } = &pair.value {
            let line = self.line(&pair.value);
            let was_broken = self.source(whole).contains('\n');
            if !items.is_empty() && (has_comments || was_broken || text.len() + line.len() > WIDTH) {
                text.push('[');
                let beside = self.comments.beside(whole.start + 1);
                let items = items.iter().map(|item| self.pair(item, ",")).collect::<Result<_, _>>()?;
                let below = self.comments.below(whole.end);
                let block = Some(Block { items, below, close: format!("]{comma}") });
                return Ok(Item { is_apart, above, text, block, beside });
            }
        }
        if has_comments {
            let why = "a comment stands within braces, where the layout has no place for it";
            return Err(Unusual { why, at: Some(whole) });
        }
        text.extend([&self.line(&pair.value), comma]);
        let beside = self.comments.beside(whole.end);
        Ok(Item { is_apart, above, text, block: None, beside })
    }

    fn line(&self, value: &Value) -> String {
        match value {
            Value::Scalar(span) => self.source(*span).to_owned(),
            Value::List { items, .. } => {
                let items: Vec<String> = items.iter().map(|item| self.line(&item.value)).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Map { entries, .. } if entries.is_empty() => "{}".to_owned(),
            Value::Map { entries, .. } => {
                let entry = |pair: &Pair| format!("{} = {}", self.keys(&pair.keys), self.line(&pair.value));
                format!("{{ {} }}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }
}
