//! Serializes trees, one writer per format. The input is normalized (see [`crate::convert`]): an unquoted scalar
//! is `null`, `true`, `false` or a JSON number, everything else is a string.

mod json;
mod kdl;
mod toml;
mod yaml;

use crate::diagnostic::SpecDiagnostic;
use crate::event::{ScalarMeaning, ScalarText};
use crate::format::SpecFormat;
use crate::tree::{DocumentTree, TreeValue};
use std::fmt::Write as _;

pub(crate) use yaml::quote_double as yaml_quoted;

/// Maximum line length where lines can be broken.
const MAX_WIDTH: usize = 100;

/// Renders the document in a format. An `Err` says what the format cannot express.
pub(crate) fn render_document(tree: &DocumentTree<'_>, format: SpecFormat) -> Result<String, SpecDiagnostic> {
    match format {
        SpecFormat::Yaml => Ok(yaml::render_document(tree)),
        SpecFormat::Json => Ok(json::render_document(tree, json::JsonDialect::Json)),
        SpecFormat::Json5 => Ok(json::render_document(tree, json::JsonDialect::Json5)),
        SpecFormat::Toml => toml::render_document(tree),
        SpecFormat::Kdl => Ok(kdl::render_document(tree)),
    }
}

/// Renders one scalar as a value of a format, on one line.
pub(crate) fn render_scalar(scalar: &ScalarText<'_>, format: SpecFormat) -> String {
    match format {
        SpecFormat::Yaml => yaml::render_flow_scalar(scalar),
        SpecFormat::Json | SpecFormat::Json5 => json::render_scalar(scalar),
        SpecFormat::Toml => toml::render_scalar(scalar),
        SpecFormat::Kdl => kdl::render_scalar(scalar),
    }
}

/// Renders a key in a format.
pub(crate) fn render_key(text: &str, format: SpecFormat) -> String {
    match format {
        SpecFormat::Yaml => yaml::render_key(text),
        SpecFormat::Json => json::quote_text(text),
        SpecFormat::Json5 => json::render_json5_key(text),
        SpecFormat::Toml => toml::render_key(text),
        SpecFormat::Kdl => kdl::render_word(text),
    }
}

/// Returns the items of a list of scalars without line breaks.
fn short_scalars<'t, 's>(items: &'t [DocumentTree<'s>]) -> Option<Vec<&'t ScalarText<'s>>> {
    let scalar = |item: &'t DocumentTree<'s>| match &item.value {
        TreeValue::Scalar(scalar) if !scalar.text.contains('\n') => Some(scalar),
        _ => None,
    };
    items.iter().map(scalar).collect()
}

/// Creates an unquoted scalar: `null`, `true`, `7`.
fn as_literal<'t>(scalar: &'t ScalarText<'_>) -> Option<&'t str> {
    match scalar.meaning() {
        ScalarMeaning::Null => Some("null"),
        ScalarMeaning::Boolean(true) => Some("true"),
        ScalarMeaning::Boolean(false) => Some("false"),
        ScalarMeaning::Number => Some(&scalar.text),
        ScalarMeaning::Text => None,
    }
}

/// Renders `text` in double quotes with the escapes that JSON, YAML, TOML and KDL share; `unicode` renders the
/// others.
fn quote_with(text: &str, unicode: impl Fn(&mut String, u32)) -> String {
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

/// Whether a character must be escaped to be visible or to be preserved.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Renders `\u0041`, as a surrogate pair if necessary.
fn write_utf16_escape(out: &mut String, code: u32) {
    let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}").unwrap_or_default();
    }
}

/// Whether this is a text of several lines that a block text can contain unchanged.
fn is_block_text(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n') && !text.contains(|c: char| c != '\n' && is_invisible(c))
}
