//! TOML: a table for each entry of a list of maps, short maps in braces.

use super::{WIDTH, is_block_text, literal, quoted_with, short_scalars};
use crate::diagnostic::Diagnostic;
use crate::event::Scalar;
use crate::tree::{Entry, Tree, Value};
use std::fmt::Write as _;

pub(super) fn document(tree: &Tree<'_>) -> Result<String, Diagnostic> {
    refuse_null(tree)?;
    let Value::Map(entries) = &tree.value else {
        let message = "a document in TOML is a map, and this is none";
        return Err(Diagnostic::new("cannot-convert", message).at(tree.span));
    };
    let mut out = String::new();
    table(entries, &mut Vec::new(), &mut out);
    Ok(out)
}

fn refuse_null(tree: &Tree<'_>) -> Result<(), Diagnostic> {
    match &tree.value {
        Value::Map(entries) => entries.iter().try_for_each(|entry| refuse_null(&entry.value)),
        Value::List(items) => items.iter().try_for_each(refuse_null),
        Value::Scalar(scalar) if scalar.is_null() => {
            Err(Diagnostic::new("cannot-convert", "TOML has no `null`")
                .at(tree.span)
                .help("leave it out, or choose another format"))
        }
        Value::Scalar(_) | Value::Bad => Ok(()),
    }
}

/// The values of a table, then the tables in it: in TOML what follows a header belongs to it.
fn table(entries: &[Entry<'_>], path: &mut Vec<String>, out: &mut String) {
    let (tables, values): (Vec<&Entry<'_>>, Vec<&Entry<'_>>) =
        entries.iter().partition(|entry| is_table(entry, path.is_empty()));
    for entry in values {
        out.push_str(&key(&entry.key));
        out.push_str(" = ");
        value(&entry.value, out);
        out.push('\n');
    }
    for entry in tables {
        path.push(key(&entry.key));
        match &entry.value.value {
            Value::Map(entries) => {
                header('[', path, ']', out);
                table(entries, path, out);
            }
            Value::List(items) => {
                for item in items {
                    header_of_array(path, out);
                    table(item.entries(), path, out);
                }
            }
            Value::Scalar(_) | Value::Bad => {}
        }
        path.pop();
    }
}

fn header(open: char, path: &[String], close: char, out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.extend([format!("{open}{}{close}\n", path.join("."))]);
}

fn header_of_array(path: &[String], out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.extend([format!("[[{}]]\n", path.join("."))]);
}

/// Gets a header of its own: every map at the top, and what does not fit in braces on one line.
fn is_table(entry: &Entry<'_>, is_top: bool) -> bool {
    match &entry.value.value {
        Value::Map(entries) if entries.is_empty() => false,
        Value::Map(_) => is_top || !fits_inline(entry),
        Value::List(items) => {
            !items.is_empty()
                && items.iter().all(|item| matches!(item.value, Value::Map(_)))
                && (is_top || !fits_inline(entry))
        }
        Value::Scalar(_) | Value::Bad => false,
    }
}

fn fits_inline(entry: &Entry<'_>) -> bool {
    let mut line = String::new();
    value(&entry.value, &mut line);
    !line.contains('\n') && entry.key.len() + 3 + line.len() <= WIDTH
}

fn value(tree: &Tree<'_>, out: &mut String) {
    match &tree.value {
        Value::Scalar(it) if is_block_text(&it.text) => out.push_str(&lines(&it.text)),
        Value::Scalar(it) => out.push_str(&scalar(it)),
        Value::Bad => out.push_str("\"\""),
        Value::Map(entries) if entries.is_empty() => out.push_str("{}"),
        Value::Map(entries) => {
            let members = entries.iter().map(|entry| {
                let mut member = format!("{} = ", key(&entry.key));
                inline_value(&entry.value, &mut member);
                member
            });
            out.extend([format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))]);
        }
        Value::List(items) => list(items, out),
    }
}

/// Within braces, where everything stands on one line.
fn inline_value(tree: &Tree<'_>, out: &mut String) {
    match &tree.value {
        Value::Scalar(it) => out.push_str(&scalar(it)),
        Value::List(items) => {
            let items = items.iter().map(|item| {
                let mut text = String::new();
                inline_value(item, &mut text);
                text
            });
            out.extend([format!("[{}]", items.collect::<Vec<_>>().join(", "))]);
        }
        Value::Map(_) | Value::Bad => value(tree, out),
    }
}

fn list(items: &[Tree<'_>], out: &mut String) {
    if let Some(scalars) = short_scalars(items) {
        let line = scalars.into_iter().map(scalar).collect::<Vec<_>>().join(", ");
        if line.len() <= WIDTH {
            out.extend([format!("[{line}]")]);
            return;
        }
    }
    out.push_str("[\n");
    for item in items {
        out.push_str("  ");
        inline_value(item, out);
        out.push_str(",\n");
    }
    out.push(']');
}

pub(super) fn scalar(scalar: &Scalar<'_>) -> String {
    match literal(scalar) {
        Some(literal) => literal.to_owned(),
        // As it is, where that saves escapes.
        None if scalar.text.contains(['\\', '"'])
            && !scalar.text.contains(|c: char| c == '\'' || super::is_invisible(c)) =>
        {
            format!("'{}'", scalar.text)
        }
        None => quoted(&scalar.text),
    }
}

/// Several lines between triple quotes.
fn lines(text: &str) -> String {
    if text.contains(['\\', '"']) && !text.contains("''") && !text.ends_with('\'') {
        return format!("'''\n{text}'''");
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"\"\"\n{escaped}\"\"\"")
}

pub(super) fn key(text: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !text.is_empty() && text.chars().all(is_bare) { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    quoted_with(text, |out, code| {
        match code {
            0..=0xffff => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        }
        .unwrap_or_default();
    })
}
