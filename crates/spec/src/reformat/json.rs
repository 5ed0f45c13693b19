//! Formats JSON and JSON5: one member per line, except in lists and maps that were on one line and fit on it.

use super::layout_blocks::{CommentCursor, LayoutBlock, LayoutItem, MAX_WIDTH};
use crate::diagnostic::DiagnosticSink;
use crate::event::DocumentEventKind;
use crate::event::DocumentEventStream as _;
use crate::format::SpecFormat;
use crate::json::JsonReader;
use crate::source::SourceSpan;
use crate::tree::{DocumentTree, TreeValue};

pub(super) fn find_comments(text: &str) -> Vec<SourceSpan> {
    let mut json = JsonReader::new_json5(text);
    let mut sink = DiagnosticSink::default();
    while matches!(json.next_event(&mut sink), Ok(event) if !matches!(event.kind, DocumentEventKind::End)) {}
    json.comments().to_vec()
}

pub(super) fn render_layout(text: &str, tree: &DocumentTree<'_>, format: SpecFormat) -> String {
    let comments = CommentCursor::new(text, find_comments(text));
    let mut layout = JsonLayout { text, comments, has_last_comma: format == SpecFormat::Json5 };
    let above = layout.comments.take_above(tree.span.start);
    let root = LayoutItem { comments_above: above, ..layout.layout_value(String::new(), tree, 0, "") };
    let below = layout.comments.take_rest();
    let mut out = String::new();
    LayoutBlock { items: vec![root], comments_below: below, closing_line: String::new() }
        .write_to("  ", 0, &mut out);
    out
}

struct JsonLayout<'s> {
    text: &'s str,
    comments: CommentCursor<'s>,
    has_last_comma: bool,
}

impl JsonLayout<'_> {
    fn source(&self, span: SourceSpan) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// Writes the item that begins with `head` and continues with a value and a comma.
    fn layout_value(
        &mut self,
        head: String,
        tree: &DocumentTree<'_>,
        depth: usize,
        comma: &str,
    ) -> LayoutItem {
        let mut item = LayoutItem { text: head, ..LayoutItem::default() };
        if let Some(line) = self.render_inline(tree, 2 * depth + item.text.len()) {
            item.text.extend([&line, comma]);
            item.trailing_comment = self.comments.take_trailing(tree.close.end);
            return item;
        }
        let (open, close) = if matches!(tree.value, TreeValue::Map(_)) { ("{", "}") } else { ("[", "]") };
        item.text.push_str(open);
        item.trailing_comment = self.comments.take_trailing(tree.span.end);
        let count = tree.entries().len() + tree.items().len();
        let mut items = Vec::with_capacity(count);
        for index in 0..count {
            let comma = if index + 1 < count || self.has_last_comma { "," } else { "" };
            items.push(match tree.entries().get(index) {
                Some(entry) => self.layout_member(entry.key_span, &entry.value, depth + 1, comma),
                None => self.layout_element(&tree.items()[index], depth + 1, comma),
            });
        }
        let below = self.comments.take_below(tree.close.start);
        // Text after the closing bracket continues on the next line.
        item.block =
            Some(LayoutBlock { items, comments_below: below, closing_line: format!("{close}{comma}") });
        item
    }

    fn layout_member(
        &mut self,
        key: SourceSpan,
        value: &DocumentTree<'_>,
        depth: usize,
        comma: &str,
    ) -> LayoutItem {
        let is_apart = self.comments.has_blank_line_above(key.start);
        let mut above = self.comments.take_above(key.start);
        above.extend(self.comments.take_above(value.span.start));
        let head = format!("{}: ", self.source(key));
        LayoutItem {
            has_blank_line_above: is_apart,
            comments_above: above,
            ..self.layout_value(head, value, depth, comma)
        }
    }

    fn layout_element(&mut self, value: &DocumentTree<'_>, depth: usize, comma: &str) -> LayoutItem {
        let is_apart = self.comments.has_blank_line_above(value.span.start);
        let above = self.comments.take_above(value.span.start);
        LayoutItem {
            has_blank_line_above: is_apart,
            comments_above: above,
            ..self.layout_value(String::new(), value, depth, comma)
        }
    }

    /// Returns the value on one line, if it was on one, has no comments in it, and fits.
    fn render_inline(&mut self, tree: &DocumentTree<'_>, used: usize) -> Option<String> {
        if matches!(tree.value, TreeValue::Scalar(_) | TreeValue::Bad) {
            return Some(self.source(tree.span).to_owned());
        }
        let is_empty = tree.entries().is_empty() && tree.items().is_empty();
        let whole = SourceSpan { start: tree.span.start, end: tree.close.end };
        let has_breaks = self.source(whole).contains('\n') && !is_empty;
        if has_breaks || self.comments.has_within(whole.start, whole.end) {
            return None;
        }
        let line = self.render_line(tree);
        (used + line.len() < MAX_WIDTH || is_empty).then_some(line)
    }

    fn render_line(&self, tree: &DocumentTree<'_>) -> String {
        match &tree.value {
            TreeValue::Map(entries) => {
                let member = |entry: &crate::tree::TreeEntry<'_>| {
                    format!("{}: {}", self.source(entry.key_span), self.render_line(&entry.value))
                };
                format!("{{{}}}", entries.iter().map(member).collect::<Vec<_>>().join(", "))
            }
            TreeValue::List(items) => {
                format!(
                    "[{}]",
                    items.iter().map(|item| self.render_line(item)).collect::<Vec<_>>().join(", ")
                )
            }
            TreeValue::Scalar(_) | TreeValue::Bad => self.source(tree.span).to_owned(),
        }
    }
}
