//! The layout of JSON and JSON5: a member per line, except in lists and maps that fit on one and were on one.

use super::outline::{Block, Comments, Item, WIDTH};
use crate::diagnostic::Sink;
use crate::event::Events as _;
use crate::event::Kind;
use crate::format::Format;
use crate::json::Json;
use crate::source::Span;
use crate::tree::{Tree, Value};

pub(super) fn comments(text: &str) -> Vec<Span> {
    let mut json = Json::json5(text);
    let mut sink = Sink::default();
    while matches!(json.next(&mut sink), Ok(event) if !matches!(event.kind, Kind::End)) {}
    json.comments().to_vec()
}

pub(super) fn lay_out(text: &str, tree: &Tree<'_>, format: Format) -> String {
    let comments = Comments::new(text, comments(text));
    let mut layout = Layout { text, comments, has_last_comma: format == Format::Json5 };
    let above = layout.comments.above(tree.span.start);
    let root = Item { above, ..layout.value(String::new(), tree, 0, "") };
    let below = layout.comments.rest();
    let mut out = String::new();
    Block { items: vec![root], below, close: String::new() }.print("  ", 0, &mut out);
    out
}

struct Layout<'s> {
    text: &'s str,
    comments: Comments<'s>,
    has_last_comma: bool,
}

impl Layout<'_> {
    fn source(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// The item that begins with `head` and goes on with a value and a comma.
    fn value(&mut self, head: String, tree: &Tree<'_>, depth: usize, comma: &str) -> Item {
        let mut item = Item { text: head, ..Item::default() };
        if let Some(line) = self.inline(tree, 2 * depth + item.text.len()) {
            item.text.extend([&line, comma]);
            item.beside = self.comments.beside(tree.close.end);
            return item;
        }
        let (open, close) = if matches!(tree.value, Value::Map(_)) { ("{", "}") } else { ("[", "]") };
        item.text.push_str(open);
        item.beside = self.comments.beside(tree.span.end);
        let count = tree.entries().len() + tree.items().len();
        let mut items = Vec::with_capacity(count);
        for index in 0..count {
            let comma = if index + 1 < count || self.has_last_comma { "," } else { "" };
            items.push(match tree.entries().get(index) {
                Some(entry) => self.member(entry.key_span, &entry.value, depth + 1, comma),
                None => self.element(&tree.items()[index], depth + 1, comma),
            });
        }
        let below = self.comments.below(tree.close.start);
        // What stands behind the closing bracket goes on with the next line.
        item.block = Some(Block { items, below, close: format!("{close}{comma}") });
        item
    }

    fn member(&mut self, key: Span, value: &Tree<'_>, depth: usize, comma: &str) -> Item {
        let is_apart = self.comments.is_apart(key.start);
        let mut above = self.comments.above(key.start);
        above.extend(self.comments.above(value.span.start));
        let head = format!("{}: ", self.source(key));
        Item { is_apart, above, ..self.value(head, value, depth, comma) }
    }

    fn element(&mut self, value: &Tree<'_>, depth: usize, comma: &str) -> Item {
        let is_apart = self.comments.is_apart(value.span.start);
        let above = self.comments.above(value.span.start);
        Item { is_apart, above, ..self.value(String::new(), value, depth, comma) }
    }

    /// The value on one line, if it was on one, has no comments in it, and fits.
    fn inline(&mut self, tree: &Tree<'_>, used: usize) -> Option<String> {
        if matches!(tree.value, Value::Scalar(_) | Value::Bad) {
            return Some(self.source(tree.span).to_owned());
        }
        let is_empty = tree.entries().is_empty() && tree.items().is_empty();
        let whole = Span { start: tree.span.start, end: tree.close.end };
        let has_breaks = self.source(whole).contains('\n') && !is_empty;
        if has_breaks || self.comments.has_within(whole.start, whole.end) {
            return None;
        }
        let line = self.line(tree);
        (used + line.len() < WIDTH || is_empty).then_some(line)
    }

    fn line(&self, tree: &Tree<'_>) -> String {
        match &tree.value {
            Value::Map(entries) => {
                let member = |entry: &crate::tree::Entry<'_>| {
                    format!("{}: {}", self.source(entry.key_span), self.line(&entry.value))
                };
                format!("{{{}}}", entries.iter().map(member).collect::<Vec<_>>().join(", "))
            }
            Value::List(items) => {
                format!("[{}]", items.iter().map(|item| self.line(item)).collect::<Vec<_>>().join(", "))
            }
            Value::Scalar(_) | Value::Bad => self.source(tree.span).to_owned(),
        }
    }
}
