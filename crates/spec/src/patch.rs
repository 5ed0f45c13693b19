//! New values in a spec's own text: only what must change does, comments and layout stay.
//!
//! An [`Edit`] names an entry of a list by its name, and a field of it. A field that is not there is added in the style
//! of its neighbours, and so is an entry. The result is read again and compared: an edit that would change anything else
//! (a value that several jobs share through an alias) is refused.

mod add;
mod insert;

pub use add::{Addition, NewEntry, NewField, add, without_schedule};

use crate::convert::{normal, read_tree};
use crate::decode::tables::WORKFLOW;
use crate::diagnostic::Diagnostics;
use crate::event::Scalar;
use crate::format::{Format, Source};
use crate::source::Span;
use crate::tree::{Entry, Tree, Value};
use crate::write;
use insert::{Splice, Text, with_all};
use std::borrow::Cow;

/// A field of an entry of a list, and what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit<'a> {
    /// A list of named maps at the top of the spec: `resource_requirements`, `jobs` …
    pub list: &'a str,
    /// The entry, as its `name` is written. It is added if there is none.
    pub name: &'a str,
    pub field: &'a str,
    pub value: NewValue<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NewValue<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    Flag(bool),
}

impl NewValue<'_> {
    fn scalar(&self) -> Scalar<'_> {
        match self {
            Self::Text(text) => Scalar { text: Cow::Borrowed(text), plain: false },
            Self::Integer(number) => Scalar { text: Cow::Owned(number.to_string()), plain: true },
            Self::Flag(is) => Scalar { text: Cow::Borrowed(if *is { "true" } else { "false" }), plain: true },
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    #[error("{0}")]
    Unreadable(Diagnostics),
    #[error("cannot set `{field}` of `{name}` in `{list}`: {why}; change it by hand")]
    ByHand { list: String, name: String, field: String, why: &'static str },
}

/// The text of the spec with the values in it.
pub fn set_values(source: Source<'_>, edits: &[Edit<'_>]) -> Result<String, PatchError> {
    let (original, format) = source.open().map_err(PatchError::Unreadable)?;
    let mut expected =
        crate::convert::read_any(source.name, original, format).map_err(PatchError::Unreadable)?;
    let mut text = original.to_owned();
    for edit in edits {
        let by_hand = |why| PatchError::ByHand {
            list: edit.list.to_owned(),
            name: edit.name.to_owned(),
            field: edit.field.to_owned(),
            why,
        };
        let splice = apply(&text, format, edit).map_err(by_hand)?;
        text = with_all(&text, vec![splice]);
        set_in_tree(&mut expected, edit);
        let is_right = read_tree(&text, format)
            .is_some_and(|tree| normal(tree).means_the_same(&normal(expected.clone())));
        if !is_right {
            return Err(by_hand("that would change something else as well"));
        }
    }
    Ok(text)
}

/// The text with one edit in it. An `Err` says why it cannot be made.
fn apply(source: &str, format: Format, edit: &Edit<'_>) -> Result<Splice, &'static str> {
    let tree = read_tree(source, format).ok_or("the spec cannot be read")?;
    let text = Text { source, format };
    let value = edit.value.scalar();
    let Some(list) = tree.get(edit.list) else {
        return Ok(text.with_list(&tree, edit.list, edit.name, edit.field, &value));
    };
    let Value::List(items) = &list.value else { return Err("the list is none") };
    let Some(item) = items.iter().find(|item| is_named(item, edit.name)) else {
        return text.with_entry(list, edit.list, edit.name, edit.field, &value);
    };
    set_field(&text, item, edit)
}

/// A field of an entry that is there.
fn set_field(text: &Text<'_>, item: &Tree<'_>, edit: &Edit<'_>) -> Result<Splice, &'static str> {
    let value = edit.value.scalar();
    match item.entries().iter().find(|entry| is_field(entry, edit)) {
        None => Ok(text.with_field(item, edit.field, &value)),
        Some(entry) => match &entry.value.value {
            Value::Scalar(old) => Ok(text.replaced(entry.value.span, old, &value)),
            _ => Err("what stands there is no plain value"),
        },
    }
}

fn is_named(item: &Tree<'_>, name: &str) -> bool {
    item.get("name").and_then(Tree::text) == Some(name)
}

/// Also under another name that is understood: `cpus` is `num_cpus`.
fn is_field(entry: &Entry<'_>, edit: &Edit<'_>) -> bool {
    let table = WORKFLOW.find(edit.list).and_then(|(index, _)| WORKFLOW.fields[index].is.map());
    let place = |name: &str| table.and_then(|table| table.find(name)).map(|(index, _)| index);
    entry.key == edit.field || (place(&entry.key).is_some() && place(&entry.key) == place(edit.field))
}

/// What the edit should have done.
fn set_in_tree(tree: &mut Tree<'_>, edit: &Edit<'_>) {
    let scalar = edit.value.scalar();
    let value = Tree::scalar(scalar.text.into_owned(), scalar.plain, Span::default());
    let entry =
        |key: &str, value| Entry { key: Cow::Owned(key.to_owned()), key_span: Span::default(), value };
    let Value::Map(root) = &mut tree.value else { return };
    if root.iter().all(|entry| entry.key != edit.list) {
        root.push(entry(edit.list, Tree::new(Value::List(Vec::new()), Span::default())));
    }
    let list = root.iter_mut().find(|entry| entry.key == edit.list);
    let Some(Value::List(items)) = list.map(|entry| &mut entry.value.value) else { return };
    if !items.iter().any(|item| is_named(item, edit.name)) {
        let name = Tree::scalar(edit.name.to_owned(), false, Span::default());
        items.push(Tree::new(Value::Map(vec![entry("name", name)]), Span::default()));
    }
    let item = items.iter_mut().find(|item| is_named(item, edit.name));
    let Some(Value::Map(fields)) = item.map(|item| &mut item.value) else { return };
    match fields.iter_mut().find(|entry| is_field(entry, edit)) {
        Some(entry) => entry.value = value,
        None => fields.push(entry(edit.field, value)),
    }
}

impl Text<'_> {
    /// The value in place of another one, in quotes like those that were there.
    fn replaced(&self, span: Span, old: &Scalar<'_>, new: &Scalar<'_>) -> Splice {
        let written = &self.source[span.start as usize..span.end as usize];
        let quote = written.chars().next().filter(|c| !old.plain && matches!(c, '"' | '\''));
        let mut value = write::scalar(new, self.format);
        if let Some(quote) = quote
            && !value.starts_with(['"', '\''])
            && !new.plain
            && !new.text.contains(['"', '\'', '\\'])
        {
            value = format!("{quote}{value}{quote}");
        }
        self.spliced(span.start as usize, span.end as usize, &value)
    }
}
