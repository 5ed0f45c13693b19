//! Writes JSON and JSON5.

use super::{MAX_WIDTH, as_literal, quote_with, short_scalars, write_utf16_escape};
use crate::event::ScalarText;
use crate::json::is_identifier;
use crate::tree::{DocumentTree, TreeValue};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonDialect {
    Json,
    Json5,
}

pub(super) fn render_document(tree: &DocumentTree<'_>, dialect: JsonDialect) -> String {
    let mut out = String::new();
    write_value(tree, dialect, 0, &mut out);
    out.push('\n');
    out
}

fn write_value(tree: &DocumentTree<'_>, dialect: JsonDialect, depth: usize, out: &mut String) {
    match &tree.value {
        TreeValue::Scalar(it) => out.push_str(&render_scalar(it)),
        TreeValue::Bad => out.push_str("null"),
        TreeValue::Map(entries) if entries.is_empty() => out.push_str("{}"),
        TreeValue::List(items) if items.is_empty() => out.push_str("[]"),
        TreeValue::Map(entries) => {
            let members = entries.iter().map(|entry| {
                let mut member = match dialect {
                    JsonDialect::Json => quote_text(&entry.key),
                    JsonDialect::Json5 => render_json5_key(&entry.key),
                };
                member.push_str(": ");
                write_value(&entry.value, dialect, depth + 1, &mut member);
                member
            });
            write_block('{', members, '}', dialect, depth, out);
        }
        TreeValue::List(items) => {
            if let Some(line) = render_short_list(items).filter(|line| 2 * depth + line.len() <= MAX_WIDTH) {
                out.push_str(&line);
                return;
            }
            let members = items.iter().map(|item| {
                let mut member = String::new();
                write_value(item, dialect, depth + 1, &mut member);
                member
            });
            write_block('[', members, ']', dialect, depth, out);
        }
    }
}

fn write_block(
    open: char,
    members: impl ExactSizeIterator<Item = String>,
    close: char,
    dialect: JsonDialect,
    depth: usize,
    out: &mut String,
) {
    let last = members.len().saturating_sub(1);
    out.push(open);
    for (index, member) in members.enumerate() {
        out.push('\n');
        out.push_str(&"  ".repeat(depth + 1));
        out.push_str(&member);
        if index < last || dialect == JsonDialect::Json5 {
            out.push(',');
        }
    }
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
    out.push(close);
}

fn render_short_list(items: &[DocumentTree<'_>]) -> Option<String> {
    let items: Vec<String> = short_scalars(items)?.into_iter().map(render_scalar).collect();
    Some(format!("[{}]", items.join(", ")))
}

pub(super) fn render_scalar(scalar: &ScalarText<'_>) -> String {
    as_literal(scalar).map_or_else(|| quote_text(&scalar.text), str::to_owned)
}

pub(super) fn quote_text(text: &str) -> String {
    quote_with(text, write_utf16_escape)
}

pub(super) fn render_json5_key(text: &str) -> String {
    if is_identifier(text) { text.to_owned() } else { quote_text(text) }
}
