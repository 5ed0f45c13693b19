//! YAML: blocks, with literal text for scripts, and quotes only where another reader might be misled.

use super::{WIDTH, is_block_text, is_invisible, literal, quoted_with, short_scalars};
use crate::event::Scalar;
use crate::tree::{Entry, Tree, Value};
use std::fmt::Write as _;

pub(super) fn document(tree: &Tree<'_>) -> String {
    let mut out = String::new();
    match &tree.value {
        Value::Map(entries) if !entries.is_empty() => map(entries, 0, &mut out),
        Value::List(items) if !items.is_empty() => list(items, 0, &mut out),
        _ => {
            out.push_str(inline(tree, 0).as_deref().unwrap_or("null"));
            out.push('\n');
        }
    }
    out
}

fn map(entries: &[Entry<'_>], depth: usize, out: &mut String) {
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.push_str(&"  ".repeat(depth));
        }
        out.push_str(&key(&entry.key));
        out.push(':');
        member(&entry.value, depth, entry.key.len() + 1, out);
    }
}

/// What stands behind `key:`, with the line break behind it.
fn member(tree: &Tree<'_>, depth: usize, used: usize, out: &mut String) {
    if let Some(line) = inline(tree, 2 * depth + used) {
        out.push(' ');
        out.push_str(&line);
        out.push('\n');
        return;
    }
    match &tree.value {
        Value::Scalar(scalar) => {
            out.push(' ');
            block_text(&scalar.text, depth + 1, out);
        }
        Value::Map(entries) => {
            out.push('\n');
            out.push_str(&"  ".repeat(depth + 1));
            map(entries, depth + 1, out);
        }
        Value::List(items) => {
            out.push('\n');
            out.push_str(&"  ".repeat(depth + 1));
            list(items, depth + 1, out);
        }
        Value::Bad => out.push('\n'),
    }
}

fn list(items: &[Tree<'_>], depth: usize, out: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&"  ".repeat(depth));
        }
        out.push_str("- ");
        match &item.value {
            Value::Map(entries) if !entries.is_empty() => map(entries, depth + 1, out),
            _ => match (inline(item, 2 * depth + 2), &item.value) {
                (Some(line), _) => {
                    out.push_str(&line);
                    out.push('\n');
                }
                (None, Value::Scalar(scalar)) => block_text(&scalar.text, depth + 1, out),
                (None, Value::List(items)) => list(items, depth + 1, out),
                (None, Value::Map(_) | Value::Bad) => out.push('\n'),
            },
        }
    }
}

/// What fits behind a key on its line: a scalar, an empty map or list, a short list of scalars.
fn inline(tree: &Tree<'_>, used: usize) -> Option<String> {
    match &tree.value {
        Value::Scalar(scalar) if is_literal_block(&scalar.text) => None,
        Value::Scalar(scalar) => Some(block_scalar(scalar)),
        Value::Map(entries) => entries.is_empty().then(|| "{}".to_owned()),
        Value::List(items) => {
            let items: Vec<String> = short_scalars(items)?.into_iter().map(flow_scalar).collect();
            let line = format!("[{}]", items.join(", "));
            (used + line.len() < WIDTH || items.is_empty()).then_some(line)
        }
        Value::Bad => Some("null".to_owned()),
    }
}

fn is_literal_block(text: &str) -> bool {
    // Space at the beginning would be taken for indentation.
    is_block_text(text) && !text.starts_with([' ', '\t', '\n'])
}

/// `|` and the lines, one step further in.
fn block_text(text: &str, depth: usize, out: &mut String) {
    let body = text.trim_end_matches('\n');
    out.push_str(match text.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    out.push('\n');
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if !line.is_empty() {
            out.push_str(&"  ".repeat(depth));
            out.push_str(line);
        }
        out.push('\n');
    }
}

pub(super) fn key(text: &str) -> String {
    if text != "<<" && is_plain_in_flow(text) { text.to_owned() } else { quoted(text) }
}

/// A scalar outside of `[]` and `{}`.
fn block_scalar(scalar: &Scalar<'_>) -> String {
    match literal(scalar) {
        Some(literal) => literal.to_owned(),
        None if is_plain(&scalar.text) => scalar.text.clone().into_owned(),
        None => quoted(&scalar.text),
    }
}

/// A scalar that may stand anywhere.
pub(crate) fn flow_scalar(scalar: &Scalar<'_>) -> String {
    match literal(scalar) {
        Some(literal) => literal.to_owned(),
        None if is_plain_in_flow(&scalar.text) => scalar.text.clone().into_owned(),
        None => quoted(&scalar.text),
    }
}

/// Single quotes where they save escapes.
fn quoted(text: &str) -> String {
    let is_printable = !text.contains(is_invisible);
    if is_printable && text.contains(['\\', '"']) && !text.contains('\'') {
        return format!("'{text}'");
    }
    double_quoted(text)
}

pub(crate) fn double_quoted(text: &str) -> String {
    quoted_with(text, |out, code| {
        match code {
            0..=0xff => write!(out, "\\x{code:02x}"),
            0x100..=0xffff => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        }
        .unwrap_or_default();
    })
}

fn is_plain_in_flow(text: &str) -> bool {
    is_plain(text) && !text.contains([',', '[', ']', '{', '}'])
}

/// Means itself without quotes, to readers of YAML 1.1 as well.
fn is_plain(text: &str) -> bool {
    let can_begin = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '$' | '(' | '^' | '+');
    text.starts_with(can_begin)
        && !text.ends_with([' ', ':'])
        && !text.contains(is_invisible)
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.chars().any(|c| c.is_whitespace() && c != ' ')
        && !looks_typed(text)
}

/// Some reader takes it for a number, a time, a truth value or nothing.
fn looks_typed(text: &str) -> bool {
    const WORDS: [&str; 13] =
        ["null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan", "inf", "nan"];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_numeric = |c: char| c.is_ascii_hexdigit() || "+-_.:,xXoOTZ eE".contains(c);
    WORDS.contains(&unsigned.to_ascii_lowercase().as_str())
        || (unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && unsigned.chars().all(is_numeric))
}
