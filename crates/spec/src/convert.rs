//! A spec in another format: the same fields and values, so the same plan.
//!
//! Comments do not survive: formats have them in different places, and JSON has none. Anchors and merge keys of YAML are
//! written out. What a format cannot express (`null` in TOML) is refused, and the result is read again before it is given
//! out.

use crate::decode;
use crate::decode::shape::Map;
use crate::decode::tables::WORKFLOW;
use crate::diagnostic::{Diagnostic, Diagnostics, Sink};
use crate::event::{Meaning, Scalar, is_json_number};
use crate::format::{Format, Front, Source};
use crate::kdl::shape::Form;
use crate::tree::{Entry, Tree, Value};
use crate::write;
use std::borrow::Cow;

/// Writes a spec in a format. A spec with mistakes is refused with all of them.
pub fn convert(source: Source<'_>, to: Format) -> Result<String, Diagnostics> {
    let (text, from) = source.open()?;
    let fail = |diagnostic: Diagnostic| {
        let mut sink = Sink::default();
        sink.push(diagnostic);
        sink.into_diagnostics(source.name, text)
    };
    let tree = read_good(source.name, text, from)?;
    let written = write::document(&tree, to).map_err(fail)?;
    let again = read_tree(&written, to).map(normal);
    if again.is_some_and(|again| again.means_the_same(&tree)) {
        return Ok(written);
    }
    let message = format!("this spec cannot be written in {} without changing it", to.name());
    Err(fail(Diagnostic::new("cannot-convert", message).help("please report this with the spec")))
}

/// A document in any of the formats as a JSON value, whatever it is about.
pub fn to_json(source: Source<'_>) -> Result<serde_json::Value, Diagnostics> {
    let (text, format) = source.open()?;
    let mut sink = Sink::default();
    let value = json_value(&read_any(source.name, text, format)?, &mut sink);
    if sink.is_empty() { Ok(value) } else { Err(sink.into_diagnostics(source.name, text)) }
}

pub(crate) fn json_value(tree: &Tree<'_>, sink: &mut Sink) -> serde_json::Value {
    match &tree.value {
        Value::Map(entries) => {
            let mut map = serde_json::Map::new();
            for entry in entries {
                let value = json_value(&entry.value, sink);
                if map.insert(entry.key.to_string(), value).is_some() {
                    let message = format!("field `{}` is given twice", entry.key);
                    sink.push(Diagnostic::new("duplicate-field", message).at(entry.key_span));
                }
            }
            map.into()
        }
        Value::List(items) => items.iter().map(|item| json_value(item, sink)).collect(),
        Value::Scalar(scalar) => match scalar.meaning() {
            Meaning::Null => serde_json::Value::Null,
            Meaning::Boolean(value) => value.into(),
            Meaning::Number => {
                serde_json::from_str(&scalar.text).unwrap_or_else(|_| scalar.text.as_ref().into())
            }
            Meaning::Text => scalar.text.as_ref().into(),
        },
        Value::Bad => serde_json::Value::Null,
    }
}

/// The normal tree of a spec that has no mistakes in its fields and values.
pub(crate) fn read_good<'s>(name: &str, text: &'s str, format: Format) -> Result<Tree<'s>, Diagnostics> {
    let decoded = decode::decode(text, Front::new(text, format));
    if !decoded.sink.is_empty() {
        return Err(decoded.sink.into_diagnostics(name, text));
    }
    Ok(read_tree(text, format).map_or_else(|| Tree::new(Value::Bad, crate::Span::default()), normal))
}

/// The tree of a document as it stands, whatever its fields hold.
pub(crate) fn read_any<'s>(name: &str, text: &'s str, format: Format) -> Result<Tree<'s>, Diagnostics> {
    let mut sink = Sink::default();
    let tree = Tree::read(&mut Front::new(text, format), &mut sink).ok().flatten();
    match tree {
        Some(tree) if sink.is_empty() => Ok(tree),
        _ => {
            if sink.is_empty() {
                sink.push(Diagnostic::new("empty-file", "the file is empty"));
            }
            Err(sink.into_diagnostics(name, text))
        }
    }
}

/// The tree of a document, if it can be read.
pub(crate) fn read_tree(text: &str, format: Format) -> Option<Tree<'_>> {
    let mut sink = Sink::default();
    let tree = Tree::read(&mut Front::new(text, format), &mut sink).ok()??;
    sink.is_empty().then_some(tree)
}

/// The same spec with every unquoted scalar either `true`, `false`, `null` or a number of JSON. Fields that say nothing
/// (no value, an empty list of maps) are left out: some formats have no way to say that.
pub(crate) fn normal(mut tree: Tree<'_>) -> Tree<'_> {
    normalize(&mut tree, Form::Map(&WORKFLOW));
    tree
}

fn normalize(tree: &mut Tree<'_>, form: Form) {
    match &mut tree.value {
        Value::Map(entries) => {
            if let Form::Map(map) | Form::Entries(map) = form {
                normalize_fields(entries, map);
            } else {
                for entry in entries {
                    normalize(&mut entry.value, form);
                }
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| normalize(item, form)),
        Value::Scalar(scalar) => normalize_scalar(scalar, form),
        Value::Bad => {}
    }
}

fn normalize_fields(entries: &mut Vec<Entry<'_>>, map: &Map) {
    entries.retain(|entry| match &entry.value.value {
        Value::Scalar(scalar) => !scalar.is_null(),
        Value::List(items) => !items.is_empty() || !matches!(Form::of_key(map, &entry.key), Form::Entries(_)),
        Value::Map(_) | Value::Bad => true,
    });
    for entry in entries {
        normalize(&mut entry.value, Form::of_key(map, &entry.key));
    }
}

fn normalize_scalar(scalar: &mut Scalar<'_>, form: Form) {
    if !scalar.plain {
        return;
    }
    let meant = match form {
        _ if scalar.meaning() != Meaning::Text => None,
        Form::Number | Form::Numbers => number_of_json(&scalar.text),
        // Among parameters `+5` is a text.
        Form::Parameters => number_of_json(&scalar.text).filter(|_| !scalar.text.starts_with('+')),
        Form::Any | Form::AnyMap => decode::json_literal(&scalar.text),
        Form::Text | Form::Texts | Form::TextMap | Form::Map(_) | Form::Entries(_) => None,
    };
    if let Some(meant) = meant {
        scalar.text = Cow::Owned(meant);
    }
    match scalar.meaning() {
        Meaning::Null => scalar.text = Cow::Borrowed("null"),
        Meaning::Text => scalar.plain = false,
        Meaning::Boolean(_) | Meaning::Number => {}
    }
}

/// `.5`, `5.` and `+5` where a number is wanted.
fn number_of_json(text: &str) -> Option<String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { "-" } else { "" };
    let before = if unsigned.starts_with('.') { "0" } else { "" };
    let after = if unsigned.ends_with('.') { "0" } else { "" };
    let number = format!("{sign}{before}{unsigned}{after}");
    is_json_number(&number).then_some(number)
}

#[cfg(test)]
mod tests;
