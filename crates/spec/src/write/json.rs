//! JSON and JSON5.

use super::{WIDTH, literal, quoted_with, short_scalars, utf16_escape};
use crate::event::Scalar;
use crate::json::is_identifier;
use crate::tree::{Tree, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Json,
    Json5,
}

pub(super) fn document(tree: &Tree<'_>, dialect: Dialect) -> String {
    let mut out = String::new();
    value(tree, dialect, 0, &mut out);
    out.push('\n');
    out
}

fn value(tree: &Tree<'_>, dialect: Dialect, depth: usize, out: &mut String) {
    match &tree.value {
        Value::Scalar(it) => out.push_str(&scalar(it)),
        Value::Bad => out.push_str("null"),
        Value::Map(entries) if entries.is_empty() => out.push_str("{}"),
        Value::List(items) if items.is_empty() => out.push_str("[]"),
        Value::Map(entries) => {
            let members = entries.iter().map(|entry| {
                let mut member = match dialect {
                    Dialect::Json => quoted(&entry.key),
                    Dialect::Json5 => json5_key(&entry.key),
                };
                member.push_str(": ");
                value(&entry.value, dialect, depth + 1, &mut member);
                member
            });
            block('{', members, '}', dialect, depth, out);
        }
        Value::List(items) => {
            if let Some(line) = short_list(items).filter(|line| 2 * depth + line.len() <= WIDTH) {
                out.push_str(&line);
                return;
            }
            let members = items.iter().map(|item| {
                let mut member = String::new();
                value(item, dialect, depth + 1, &mut member);
                member
            });
            block('[', members, ']', dialect, depth, out);
        }
    }
}

fn block(
    open: char,
    members: impl ExactSizeIterator<Item = String>,
    close: char,
    dialect: Dialect,
    depth: usize,
    out: &mut String,
) {
    let last = members.len().saturating_sub(1);
    out.push(open);
    for (index, member) in members.enumerate() {
        out.push('\n');
        out.push_str(&"  ".repeat(depth + 1));
        out.push_str(&member);
        if index < last || dialect == Dialect::Json5 {
            out.push(',');
        }
    }
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
    out.push(close);
}

fn short_list(items: &[Tree<'_>]) -> Option<String> {
    let items: Vec<String> = short_scalars(items)?.into_iter().map(scalar).collect();
    Some(format!("[{}]", items.join(", ")))
}

pub(super) fn scalar(scalar: &Scalar<'_>) -> String {
    literal(scalar).map_or_else(|| quoted(&scalar.text), str::to_owned)
}

pub(super) fn quoted(text: &str) -> String {
    quoted_with(text, utf16_escape)
}

pub(super) fn json5_key(text: &str) -> String {
    if is_identifier(text) { text.to_owned() } else { quoted(text) }
}
