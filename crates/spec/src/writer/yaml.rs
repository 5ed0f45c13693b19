//! Writes YAML: blocks, literal texts for scripts, and quotes only where another parser might misread the
//! value.

use super::{MAX_WIDTH, as_literal, is_block_text, is_invisible, quote_with, short_scalars};
use crate::event::ScalarText;
use crate::tree::{DocumentTree, TreeEntry, TreeValue};
use std::fmt::Write as _;

pub(super) fn render_document(tree: &DocumentTree<'_>) -> String {
    let mut out = String::new();
    match &tree.value {
        TreeValue::Map(entries) if !entries.is_empty() => write_map(entries, 0, &mut out),
        TreeValue::List(items) if !items.is_empty() => write_list(items, 0, &mut out),
        _ => {
            out.push_str(render_inline(tree, 0).as_deref().unwrap_or("null"));
            out.push('\n');
        }
    }
    out
}

fn write_map(entries: &[TreeEntry<'_>], depth: usize, out: &mut String) {
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.push_str(&"  ".repeat(depth));
        }
        out.push_str(&render_key(&entry.key));
        out.push(':');
        write_member(&entry.value, depth, entry.key.len() + 1, out);
    }
}

/// Writes the value after `key:`, including the line break.
fn write_member(tree: &DocumentTree<'_>, depth: usize, used: usize, out: &mut String) {
    if let Some(line) = render_inline(tree, 2 * depth + used) {
        out.push(' ');
        out.push_str(&line);
        out.push('\n');
        return;
    }
    match &tree.value {
        TreeValue::Scalar(scalar) => {
            out.push(' ');
            write_block_text(&scalar.text, depth + 1, out);
        }
        TreeValue::Map(entries) => {
            out.push('\n');
            out.push_str(&"  ".repeat(depth + 1));
            write_map(entries, depth + 1, out);
        }
        TreeValue::List(items) => {
            out.push('\n');
            out.push_str(&"  ".repeat(depth + 1));
            write_list(items, depth + 1, out);
        }
        TreeValue::Bad => out.push('\n'),
    }
}

fn write_list(items: &[DocumentTree<'_>], depth: usize, out: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&"  ".repeat(depth));
        }
        out.push_str("- ");
        match &item.value {
            TreeValue::Map(entries) if !entries.is_empty() => write_map(entries, depth + 1, out),
            _ => match (render_inline(item, 2 * depth + 2), &item.value) {
                (Some(line), _) => {
                    out.push_str(&line);
                    out.push('\n');
                }
                (None, TreeValue::Scalar(scalar)) => write_block_text(&scalar.text, depth + 1, out),
                (None, TreeValue::List(items)) => write_list(items, depth + 1, out),
                (None, TreeValue::Map(_) | TreeValue::Bad) => out.push('\n'),
            },
        }
    }
}

/// Returns a value that fits on the line of its key: a scalar, an empty map or list, a short list of scalars.
fn render_inline(tree: &DocumentTree<'_>, used: usize) -> Option<String> {
    match &tree.value {
        TreeValue::Scalar(scalar) if is_literal_block(&scalar.text) => None,
        TreeValue::Scalar(scalar) => Some(render_block_scalar(scalar)),
        TreeValue::Map(entries) => entries.is_empty().then(|| "{}".to_owned()),
        TreeValue::List(items) => {
            let items: Vec<String> = short_scalars(items)?.into_iter().map(render_flow_scalar).collect();
            let line = format!("[{}]", items.join(", "));
            (used + line.len() < MAX_WIDTH || items.is_empty()).then_some(line)
        }
        TreeValue::Bad => Some("null".to_owned()),
    }
}

fn is_literal_block(text: &str) -> bool {
    // Space at the beginning would be read as indentation.
    is_block_text(text) && !text.starts_with([' ', '\t', '\n'])
}

/// Writes `|` and the lines, indented one level further.
fn write_block_text(text: &str, depth: usize, out: &mut String) {
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

pub(super) fn render_key(text: &str) -> String {
    if text != "<<" && is_plain_in_flow(text) { text.to_owned() } else { quote_text(text) }
}

/// Renders a scalar outside of `[]` and `{}`.
fn render_block_scalar(scalar: &ScalarText<'_>) -> String {
    match as_literal(scalar) {
        Some(literal) => literal.to_owned(),
        None if is_plain(&scalar.text) => scalar.text.clone().into_owned(),
        None => quote_text(&scalar.text),
    }
}

/// Renders a scalar for any context.
pub(crate) fn render_flow_scalar(scalar: &ScalarText<'_>) -> String {
    match as_literal(scalar) {
        Some(literal) => literal.to_owned(),
        None if is_plain_in_flow(&scalar.text) => scalar.text.clone().into_owned(),
        None => quote_text(&scalar.text),
    }
}

/// Single quotes if they save escapes.
fn quote_text(text: &str) -> String {
    let is_printable = !text.contains(is_invisible);
    if is_printable && text.contains(['\\', '"']) && !text.contains('\'') {
        return format!("'{text}'");
    }
    quote_double(text)
}

pub(crate) fn quote_double(text: &str) -> String {
    quote_with(text, |out, code| {
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

/// Whether a text keeps its meaning without quotes, also in YAML 1.1.
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

/// Whether some parser reads it as a number, a time, a boolean or null.
fn looks_typed(text: &str) -> bool {
    const WORDS: [&str; 13] =
        ["null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan", "inf", "nan"];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_numeric = |c: char| c.is_ascii_hexdigit() || "+-_.:,xXoOTZ eE".contains(c);
    WORDS.contains(&unsigned.to_ascii_lowercase().as_str())
        || (unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && unsigned.chars().all(is_numeric))
}
