//! Writes TOML: a table for each entry of a list of maps, short maps in braces.

use super::{MAX_WIDTH, as_literal, is_block_text, quote_with, short_scalars};
use crate::diagnostic::SpecDiagnostic;
use crate::event::ScalarText;
use crate::tree::{DocumentTree, TreeEntry, TreeValue};
use std::fmt::Write as _;

pub(super) fn render_document(tree: &DocumentTree<'_>) -> Result<String, SpecDiagnostic> {
    refuse_null(tree)?;
    let TreeValue::Map(entries) = &tree.value else {
        let message = "a TOML document must be a map";
        return Err(SpecDiagnostic::new("cannot-convert", message).with_span(tree.span));
    };
    let mut out = String::new();
    write_table(entries, &mut Vec::new(), &mut out);
    Ok(out)
}

fn refuse_null(tree: &DocumentTree<'_>) -> Result<(), SpecDiagnostic> {
    match &tree.value {
        TreeValue::Map(entries) => entries.iter().try_for_each(|entry| refuse_null(&entry.value)),
        TreeValue::List(items) => items.iter().try_for_each(refuse_null),
        TreeValue::Scalar(scalar) if scalar.is_null() => {
            Err(SpecDiagnostic::new("cannot-convert", "TOML has no `null`")
                .with_span(tree.span)
                .with_help("remove it, or choose another format"))
        }
        TreeValue::Scalar(_) | TreeValue::Bad => Ok(()),
    }
}

/// Writes the values of a table, then its inner tables: in TOML everything after a header belongs to it.
fn write_table(entries: &[TreeEntry<'_>], path: &mut Vec<String>, out: &mut String) {
    let (tables, values): (Vec<&TreeEntry<'_>>, Vec<&TreeEntry<'_>>) =
        entries.iter().partition(|entry| is_table(entry, path.is_empty()));
    for entry in values {
        out.push_str(&render_key(&entry.key));
        out.push_str(" = ");
        write_value(&entry.value, out);
        out.push('\n');
    }
    for entry in tables {
        path.push(render_key(&entry.key));
        match &entry.value.value {
            TreeValue::Map(entries) => {
                write_header('[', path, ']', out);
                write_table(entries, path, out);
            }
            TreeValue::List(items) => {
                for item in items {
                    write_array_header(path, out);
                    write_table(item.entries(), path, out);
                }
            }
            TreeValue::Scalar(_) | TreeValue::Bad => {}
        }
        path.pop();
    }
}

fn write_header(open: char, path: &[String], close: char, out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.extend([format!("{open}{}{close}\n", path.join("."))]);
}

fn write_array_header(path: &[String], out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.extend([format!("[[{}]]\n", path.join("."))]);
}

/// Whether a map gets its own header: every map at the top level, and maps that do not fit in braces on one
/// line.
fn is_table(entry: &TreeEntry<'_>, is_top: bool) -> bool {
    match &entry.value.value {
        TreeValue::Map(entries) if entries.is_empty() => false,
        TreeValue::Map(_) => is_top || !fits_inline(entry),
        TreeValue::List(items) => {
            !items.is_empty()
                && items.iter().all(|item| matches!(item.value, TreeValue::Map(_)))
                && (is_top || !fits_inline(entry))
        }
        TreeValue::Scalar(_) | TreeValue::Bad => false,
    }
}

fn fits_inline(entry: &TreeEntry<'_>) -> bool {
    let mut line = String::new();
    write_value(&entry.value, &mut line);
    !line.contains('\n') && entry.key.len() + 3 + line.len() <= MAX_WIDTH
}

fn write_value(tree: &DocumentTree<'_>, out: &mut String) {
    match &tree.value {
        TreeValue::Scalar(it) if is_block_text(&it.text) => out.push_str(&render_lines(&it.text)),
        TreeValue::Scalar(it) => out.push_str(&render_scalar(it)),
        TreeValue::Bad => out.push_str("\"\""),
        TreeValue::Map(entries) if entries.is_empty() => out.push_str("{}"),
        TreeValue::Map(entries) => {
            let members = entries.iter().map(|entry| {
                let mut member = format!("{} = ", render_key(&entry.key));
                write_inline_value(&entry.value, &mut member);
                member
            });
            out.extend([format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))]);
        }
        TreeValue::List(items) => write_list(items, out),
    }
}

/// Renders a value within braces, where everything must be on one line.
fn write_inline_value(tree: &DocumentTree<'_>, out: &mut String) {
    match &tree.value {
        TreeValue::Scalar(it) => out.push_str(&render_scalar(it)),
        TreeValue::List(items) => {
            let items = items.iter().map(|item| {
                let mut text = String::new();
                write_inline_value(item, &mut text);
                text
            });
            out.extend([format!("[{}]", items.collect::<Vec<_>>().join(", "))]);
        }
        TreeValue::Map(_) | TreeValue::Bad => write_value(tree, out),
    }
}

fn write_list(items: &[DocumentTree<'_>], out: &mut String) {
    if let Some(scalars) = short_scalars(items) {
        let line = scalars.into_iter().map(render_scalar).collect::<Vec<_>>().join(", ");
        if line.len() <= MAX_WIDTH {
            out.extend([format!("[{line}]")]);
            return;
        }
    }
    out.push_str("[\n");
    for item in items {
        out.push_str("  ");
        write_inline_value(item, out);
        out.push_str(",\n");
    }
    out.push(']');
}

pub(super) fn render_scalar(scalar: &ScalarText<'_>) -> String {
    match as_literal(scalar) {
        Some(literal) => literal.to_owned(),
        // A literal string saves escapes.
        None if scalar.text.contains(['\\', '"'])
            && !scalar.text.contains(|c: char| c == '\'' || super::is_invisible(c)) =>
        {
            format!("'{}'", scalar.text)
        }
        None => quote_text(&scalar.text),
    }
}

/// Writes several lines in triple quotes.
fn render_lines(text: &str) -> String {
    if text.contains(['\\', '"']) && !text.contains("''") && !text.ends_with('\'') {
        return format!("'''\n{text}'''");
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"\"\"\n{escaped}\"\"\"")
}

pub(super) fn render_key(text: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !text.is_empty() && text.chars().all(is_bare) { text.to_owned() } else { quote_text(text) }
}

fn quote_text(text: &str) -> String {
    quote_with(text, |out, code| {
        match code {
            0..=0xffff => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        }
        .unwrap_or_default();
    })
}
