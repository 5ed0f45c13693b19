//! Changes values in the text of a spec and keeps comments and layout.
//!
//! A [`SpecEdit`] identifies an entry of a list by its name, and one of its fields. Missing fields and entries
//! are added in the style of their neighbors. The result is parsed again and compared: an edit that would change
//! anything else (a value that several jobs share through an alias) is rejected.

mod additions;
mod text_edits;

pub use additions::{NewFieldContent, NewSpecEntry, SpecAddition, apply_addition, remove_schedule};

use crate::convert::{normalize_tree, read_tree};
use crate::decode::tables::WORKFLOW;
use crate::diagnostic::SpecDiagnostics;
use crate::event::ScalarText;
use crate::format::{SpecFormat, SpecSource};
use crate::source::SourceSpan;
use crate::tree::{DocumentTree, TreeEntry, TreeValue};
use crate::writer;
use std::borrow::Cow;
use text_edits::{EditedText, TextSplice, apply_splices};

/// A field of a list entry, and its new value.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecEdit<'a> {
    /// A list of named maps at the top level of the spec: `resource_requirements`, `jobs` …
    pub list: &'a str,
    /// The `name` of the entry as written. A missing entry is added.
    pub name: &'a str,
    pub field: &'a str,
    pub value: NewFieldValue<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NewFieldValue<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    Flag(bool),
}

impl NewFieldValue<'_> {
    fn to_scalar(&self) -> ScalarText<'_> {
        match self {
            Self::Text(text) => ScalarText { text: Cow::Borrowed(text), is_plain: false },
            Self::Integer(number) => ScalarText { text: Cow::Owned(number.to_string()), is_plain: true },
            Self::Flag(is) => {
                ScalarText { text: Cow::Borrowed(if *is { "true" } else { "false" }), is_plain: true }
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SpecPatchError {
    #[error("{0}")]
    Unreadable(SpecDiagnostics),
    #[error("cannot set `{field}` of `{name}` in `{list}`: {why}; edit it manually")]
    ManualEditNeeded { list: String, name: String, field: String, why: &'static str },
}

/// Returns the text of the spec with the new values.
pub fn set_values(source: SpecSource<'_>, edits: &[SpecEdit<'_>]) -> Result<String, SpecPatchError> {
    let (original, format) = source.open().map_err(SpecPatchError::Unreadable)?;
    let mut expected = crate::convert::read_unchecked_tree(source.name, original, format)
        .map_err(SpecPatchError::Unreadable)?;
    let mut text = original.to_owned();
    for edit in edits {
        let by_hand = |why| SpecPatchError::ManualEditNeeded {
            list: edit.list.to_owned(),
            name: edit.name.to_owned(),
            field: edit.field.to_owned(),
            why,
        };
        let splice = apply_edit(&text, format, edit).map_err(by_hand)?;
        text = apply_splices(&text, vec![splice]);
        apply_edit_to_tree(&mut expected, edit);
        let is_right = read_tree(&text, format)
            .is_some_and(|tree| normalize_tree(tree).is_equivalent(&normalize_tree(expected.clone())));
        if !is_right {
            return Err(by_hand("this would also change other values"));
        }
    }
    Ok(text)
}

/// Returns the splice for one edit, or why it cannot be made.
fn apply_edit(source: &str, format: SpecFormat, edit: &SpecEdit<'_>) -> Result<TextSplice, &'static str> {
    let tree = read_tree(source, format).ok_or("the spec cannot be parsed")?;
    let text = EditedText { source, format };
    let value = edit.value.to_scalar();
    let Some(list) = tree.get(edit.list) else {
        return Ok(text.insert_list(&tree, edit.list, edit.name, edit.field, &value));
    };
    let TreeValue::List(items) = &list.value else { return Err("it is not a list") };
    let Some(item) = items.iter().find(|item| has_name(item, edit.name)) else {
        return text.insert_entry(list, edit.list, edit.name, edit.field, &value);
    };
    set_field(&text, item, edit)
}

/// Sets a field of an existing entry.
fn set_field(
    text: &EditedText<'_>,
    item: &DocumentTree<'_>,
    edit: &SpecEdit<'_>,
) -> Result<TextSplice, &'static str> {
    let value = edit.value.to_scalar();
    match item.entries().iter().find(|entry| is_edited_field(entry, edit)) {
        None => Ok(text.insert_field(item, edit.field, &value)),
        Some(entry) => match &entry.value.value {
            TreeValue::Scalar(old) => Ok(text.replace_value(entry.value.span, old, &value)),
            _ => Err("the current value is not a scalar"),
        },
    }
}

fn has_name(item: &DocumentTree<'_>, name: &str) -> bool {
    item.get("name").and_then(DocumentTree::text) == Some(name)
}

/// Whether the entry is the edited field, also under an alias: `cpus` is `num_cpus`.
fn is_edited_field(entry: &TreeEntry<'_>, edit: &SpecEdit<'_>) -> bool {
    let table =
        WORKFLOW.find_field(edit.list).and_then(|(index, _)| WORKFLOW.fields[index].field_type.inner_table());
    let place = |name: &str| table.and_then(|table| table.find_field(name)).map(|(index, _)| index);
    entry.key == edit.field || (place(&entry.key).is_some() && place(&entry.key) == place(edit.field))
}

/// Applies the edit to the expected tree.
fn apply_edit_to_tree(tree: &mut DocumentTree<'_>, edit: &SpecEdit<'_>) {
    let scalar = edit.value.to_scalar();
    let value = DocumentTree::scalar(scalar.text.into_owned(), scalar.is_plain, SourceSpan::default());
    let entry = |key: &str, value| TreeEntry {
        key: Cow::Owned(key.to_owned()),
        key_span: SourceSpan::default(),
        value,
    };
    let TreeValue::Map(root) = &mut tree.value else { return };
    if root.iter().all(|entry| entry.key != edit.list) {
        root.push(entry(edit.list, DocumentTree::new(TreeValue::List(Vec::new()), SourceSpan::default())));
    }
    let list = root.iter_mut().find(|entry| entry.key == edit.list);
    let Some(TreeValue::List(items)) = list.map(|entry| &mut entry.value.value) else { return };
    if !items.iter().any(|item| has_name(item, edit.name)) {
        let name = DocumentTree::scalar(edit.name.to_owned(), false, SourceSpan::default());
        items.push(DocumentTree::new(TreeValue::Map(vec![entry("name", name)]), SourceSpan::default()));
    }
    let item = items.iter_mut().find(|item| has_name(item, edit.name));
    let Some(TreeValue::Map(fields)) = item.map(|item| &mut item.value) else { return };
    match fields.iter_mut().find(|entry| is_edited_field(entry, edit)) {
        Some(entry) => entry.value = value,
        None => fields.push(entry(edit.field, value)),
    }
}

impl EditedText<'_> {
    /// Replaces a value and keeps its quotes.
    fn replace_value(&self, span: SourceSpan, old: &ScalarText<'_>, new: &ScalarText<'_>) -> TextSplice {
        let written = &self.source[span.start as usize..span.end as usize];
        let quote = written.chars().next().filter(|c| !old.is_plain && matches!(c, '"' | '\''));
        let mut value = writer::render_scalar(new, self.format);
        if let Some(quote) = quote
            && !value.starts_with(['"', '\''])
            && !new.is_plain
            && !new.text.contains(['"', '\'', '\\'])
        {
            value = format!("{quote}{value}{quote}");
        }
        self.splice(span.start as usize, span.end as usize, &value)
    }
}
