//! Converts a spec to another format with the same fields and values, so that the plan stays the same.
//!
//! Comments are lost: formats have them in different places, and JSON has none. Anchors and merge keys of YAML
//! are expanded. Values that a format cannot express (`null` in TOML) are rejected, and the result is parsed
//! again and compared before it is returned.

use crate::decode;
use crate::decode::field_tables::FieldTable;
use crate::decode::tables::WORKFLOW;
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic, SpecDiagnostics};
use crate::event::{ScalarMeaning, ScalarText, is_json_number};
use crate::format::{FormatReader, SpecFormat, SpecSource};
use crate::kdl::field_forms::FieldForm;
use crate::tree::{DocumentTree, TreeEntry, TreeValue};
use crate::writer;
use std::borrow::Cow;

/// Writes a spec in `format`. A spec with errors is rejected, and all errors are reported.
pub fn convert_spec(source: SpecSource<'_>, to: SpecFormat) -> Result<String, SpecDiagnostics> {
    let (text, from) = source.open()?;
    let fail = |diagnostic: SpecDiagnostic| {
        let mut sink = DiagnosticSink::default();
        sink.push(diagnostic);
        sink.into_diagnostics(source.name, text)
    };
    let tree = read_valid_tree(source.name, text, from)?;
    let written = writer::render_document(&tree, to).map_err(fail)?;
    let again = read_tree(&written, to).map(normalize_tree);
    if again.is_some_and(|again| again.is_equivalent(&tree)) {
        return Ok(written);
    }
    let message = format!("this spec cannot be written in {} without changing it", to.name());
    Err(fail(SpecDiagnostic::new("cannot-convert", message).with_help("please report this with the spec")))
}

/// Reads a document in any of the formats as a JSON value, without checking its fields.
pub fn document_to_json(source: SpecSource<'_>) -> Result<serde_json::Value, SpecDiagnostics> {
    let (text, format) = source.open()?;
    let mut sink = DiagnosticSink::default();
    let value = tree_to_json(&read_unchecked_tree(source.name, text, format)?, &mut sink);
    if sink.is_empty() { Ok(value) } else { Err(sink.into_diagnostics(source.name, text)) }
}

pub(crate) fn tree_to_json(tree: &DocumentTree<'_>, sink: &mut DiagnosticSink) -> serde_json::Value {
    match &tree.value {
        TreeValue::Map(entries) => {
            let mut map = serde_json::Map::new();
            for entry in entries {
                let value = tree_to_json(&entry.value, sink);
                if map.insert(entry.key.to_string(), value).is_some() {
                    let message = format!("field `{}` is given twice", entry.key);
                    sink.push(SpecDiagnostic::new("duplicate-field", message).with_span(entry.key_span));
                }
            }
            map.into()
        }
        TreeValue::List(items) => items.iter().map(|item| tree_to_json(item, sink)).collect(),
        TreeValue::Scalar(scalar) => match scalar.meaning() {
            ScalarMeaning::Null => serde_json::Value::Null,
            ScalarMeaning::Boolean(value) => value.into(),
            ScalarMeaning::Number => {
                serde_json::from_str(&scalar.text).unwrap_or_else(|_| scalar.text.as_ref().into())
            }
            ScalarMeaning::Text => scalar.text.as_ref().into(),
        },
        TreeValue::Bad => serde_json::Value::Null,
    }
}

/// Returns the normalized tree of a spec whose fields and values have no errors.
pub(crate) fn read_valid_tree<'s>(
    name: &str,
    text: &'s str,
    format: SpecFormat,
) -> Result<DocumentTree<'s>, SpecDiagnostics> {
    let decoded = decode::decode_spec(text, FormatReader::new(text, format));
    if !decoded.sink.is_empty() {
        return Err(decoded.sink.into_diagnostics(name, text));
    }
    Ok(read_tree(text, format)
        .map_or_else(|| DocumentTree::new(TreeValue::Bad, crate::SourceSpan::default()), normalize_tree))
}

/// Returns the tree of a document without checking its fields.
pub(crate) fn read_unchecked_tree<'s>(
    name: &str,
    text: &'s str,
    format: SpecFormat,
) -> Result<DocumentTree<'s>, SpecDiagnostics> {
    let mut sink = DiagnosticSink::default();
    let tree = DocumentTree::from_events(&mut FormatReader::new(text, format), &mut sink).ok().flatten();
    match tree {
        Some(tree) if sink.is_empty() => Ok(tree),
        _ => {
            if sink.is_empty() {
                sink.push(SpecDiagnostic::new("empty-file", "the file is empty"));
            }
            Err(sink.into_diagnostics(name, text))
        }
    }
}

/// Returns the tree of a document, if it can be parsed.
pub(crate) fn read_tree(text: &str, format: SpecFormat) -> Option<DocumentTree<'_>> {
    let mut sink = DiagnosticSink::default();
    let tree = DocumentTree::from_events(&mut FormatReader::new(text, format), &mut sink).ok()??;
    sink.is_empty().then_some(tree)
}

/// Normalizes a spec: every unquoted scalar becomes `true`, `false`, `null` or a JSON number. Fields without
/// content (no value, an empty list of maps) are left out, because some formats cannot express them.
pub(crate) fn normalize_tree(mut tree: DocumentTree<'_>) -> DocumentTree<'_> {
    normalize_in_place(&mut tree, FieldForm::Map(&WORKFLOW));
    tree
}

fn normalize_in_place(tree: &mut DocumentTree<'_>, form: FieldForm) {
    match &mut tree.value {
        TreeValue::Map(entries) => {
            if let FieldForm::Map(map) | FieldForm::Entries(map) = form {
                normalize_fields(entries, map);
            } else {
                for entry in entries {
                    normalize_in_place(&mut entry.value, form);
                }
            }
        }
        TreeValue::List(items) => items.iter_mut().for_each(|item| normalize_in_place(item, form)),
        TreeValue::Scalar(scalar) => normalize_scalar(scalar, form),
        TreeValue::Bad => {}
    }
}

fn normalize_fields(entries: &mut Vec<TreeEntry<'_>>, map: &FieldTable) {
    entries.retain(|entry| match &entry.value.value {
        TreeValue::Scalar(scalar) => !scalar.is_null(),
        TreeValue::List(items) => {
            !items.is_empty() || !matches!(FieldForm::for_key(map, &entry.key), FieldForm::Entries(_))
        }
        TreeValue::Map(_) | TreeValue::Bad => true,
    });
    for entry in entries {
        normalize_in_place(&mut entry.value, FieldForm::for_key(map, &entry.key));
    }
}

fn normalize_scalar(scalar: &mut ScalarText<'_>, form: FieldForm) {
    if !scalar.is_plain {
        return;
    }
    let meant = match form {
        _ if scalar.meaning() != ScalarMeaning::Text => None,
        FieldForm::Number | FieldForm::Numbers => to_json_number(&scalar.text),
        // `+5` is a text in parameters.
        FieldForm::Parameters => to_json_number(&scalar.text).filter(|_| !scalar.text.starts_with('+')),
        FieldForm::Any | FieldForm::AnyMap => decode::to_json_literal(&scalar.text),
        FieldForm::Text
        | FieldForm::Texts
        | FieldForm::TextMap
        | FieldForm::Map(_)
        | FieldForm::Entries(_) => None,
    };
    if let Some(meant) = meant {
        scalar.text = Cow::Owned(meant);
    }
    match scalar.meaning() {
        ScalarMeaning::Null => scalar.text = Cow::Borrowed("null"),
        ScalarMeaning::Text => scalar.is_plain = false,
        ScalarMeaning::Boolean(_) | ScalarMeaning::Number => {}
    }
}

/// Normalizes `.5`, `5.` and `+5` where a number is expected.
fn to_json_number(text: &str) -> Option<String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { "-" } else { "" };
    let before = if unsigned.starts_with('.') { "0" } else { "" };
    let after = if unsigned.ends_with('.') { "0" } else { "" };
    let number = format!("{sign}{before}{unsigned}{after}");
    is_json_number(&number).then_some(number)
}

#[cfg(test)]
mod tests;
