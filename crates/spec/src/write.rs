//! Trees as text, one writer per format. What they are given is normal (see [`crate::convert`]): an unquoted scalar is
//! `null`, `true`, `false` or a number of JSON, everything else is a string.

mod json;
mod kdl;
mod toml;
mod yaml;

use crate::diagnostic::Diagnostic;
use crate::event::{Meaning, Scalar};
use crate::format::Format;
use crate::tree::{Tree, Value};
use std::fmt::Write as _;

pub(crate) use yaml::double_quoted as yaml_quoted;

/// Lines become no longer than this where they can be broken.
const WIDTH: usize = 100;

/// The document in a format. An `Err` says what the format cannot express.
pub(crate) fn document(tree: &Tree<'_>, format: Format) -> Result<String, Diagnostic> {
    match format {
        Format::Yaml => Ok(yaml::document(tree)),
        Format::Json => Ok(json::document(tree, json::Dialect::Json)),
        Format::Json5 => Ok(json::document(tree, json::Dialect::Json5)),
        Format::Toml => toml::document(tree),
        Format::Kdl => Ok(kdl::document(tree)),
    }
}

/// One scalar as a value of a format, on one line.
pub(crate) fn scalar(scalar: &Scalar<'_>, format: Format) -> String {
    match format {
        Format::Yaml => yaml::flow_scalar(scalar),
        Format::Json | Format::Json5 => json::scalar(scalar),
        Format::Toml => toml::scalar(scalar),
        Format::Kdl => kdl::scalar(scalar),
    }
}

/// A key as a format writes it.
pub(crate) fn key(text: &str, format: Format) -> String {
    match format {
        Format::Yaml => yaml::key(text),
        Format::Json => json::quoted(text),
        Format::Json5 => json::json5_key(text),
        Format::Toml => toml::key(text),
        Format::Kdl => kdl::word(text),
    }
}

/// The items of a list of scalars without line breaks in them.
fn short_scalars<'t, 's>(items: &'t [Tree<'s>]) -> Option<Vec<&'t Scalar<'s>>> {
    let scalar = |item: &'t Tree<'s>| match &item.value {
        Value::Scalar(scalar) if !scalar.text.contains('\n') => Some(scalar),
        _ => None,
    };
    items.iter().map(scalar).collect()
}

/// A scalar that is written as it is: `null`, `true`, `7`.
fn literal<'t>(scalar: &'t Scalar<'_>) -> Option<&'t str> {
    match scalar.meaning() {
        Meaning::Null => Some("null"),
        Meaning::Boolean(true) => Some("true"),
        Meaning::Boolean(false) => Some("false"),
        Meaning::Number => Some(&scalar.text),
        Meaning::Text => None,
    }
}

/// `text` between double quotes with the escapes that JSON, YAML, TOML and KDL share; `unicode` writes the others.
fn quoted_with(text: &str, unicode: impl Fn(&mut String, u32)) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_invisible(c) => unicode(&mut out, u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Has to be escaped to be seen, or to survive.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `\u0041`, with two of them where one does not suffice.
fn utf16_escape(out: &mut String, code: u32) {
    let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}").unwrap_or_default();
    }
}

/// Several lines that a block of text can hold as they are.
fn is_block_text(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n') && !text.contains(|c: char| c != '\n' && is_invisible(c))
}
