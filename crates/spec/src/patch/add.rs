//! Several new fields and entries at once: a schedule for a spec. What is there already stays as it is.

use super::insert::{Splice, Text, with_all};
use super::{Edit, NewValue, PatchError, is_field, set_field};
use crate::convert::{normal, read_any, read_tree};
use crate::decode::shape::Map;
use crate::decode::tables::WORKFLOW;
use crate::diagnostic::Sink;
use crate::event::Scalar;
use crate::format::{Format, Source};
use crate::source::Span;
use crate::tree::{Entry, Tree, Value};
use crate::write;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::fmt::Write as _;

/// An entry that is added at the end of a list at the top of the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry<'a> {
    pub list: &'a str,
    /// In the order in which they are written; `name` first, if it has one.
    pub fields: Vec<(&'a str, NewField<'a>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NewField<'a> {
    One(NewValue<'a>),
    Many(Vec<Cow<'a, str>>),
}

/// What is added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Addition<'a> {
    /// Fields of entries that are there, at most one for each entry.
    pub fields: Vec<Edit<'a>>,
    pub entries: Vec<NewEntry<'a>>,
}

/// The text of the spec with all of it. The result is read again: if it says anything else, it is refused.
pub fn add(source: Source<'_>, addition: &Addition<'_>) -> Result<String, PatchError> {
    let (original, format) = source.open().map_err(PatchError::Unreadable)?;
    let mut expected = read_any(source.name, original, format).map_err(PatchError::Unreadable)?;
    let mut text = with_fields(original, format, &expected, &addition.fields)?;
    expect_fields(&mut expected, &addition.fields);
    let mut lists: Vec<&str> = addition.entries.iter().map(|entry| entry.list).collect();
    lists.dedup();
    for list in lists {
        let entries: Vec<&NewEntry<'_>> = addition.entries.iter().filter(|one| one.list == list).collect();
        let tree = read_tree(&text, format).ok_or_else(|| by_hand(list, "the result cannot be read"))?;
        let splice = Writer { text: Text { source: &text, format }, list }
            .add(&tree, &entries)
            .map_err(|why| by_hand(list, why))?;
        text = with_all(&text, vec![splice]);
        expect_entries(&mut expected, list, &entries);
    }
    let is_right =
        read_tree(&text, format).is_some_and(|tree| normal(tree).means_the_same(&normal(expected)));
    if is_right { Ok(text) } else { Err(by_hand("spec", "that would change something else as well")) }
}

fn by_hand(list: &str, why: &'static str) -> PatchError {
    PatchError::ByHand { list: list.to_owned(), name: "*".to_owned(), field: "*".to_owned(), why }
}

/// All fields in one reading.
fn with_fields(
    source: &str,
    format: Format,
    tree: &Tree<'_>,
    edits: &[Edit<'_>],
) -> Result<String, PatchError> {
    let text = Text { source, format };
    let mut items: FxHashMap<(&str, &str), &Tree<'_>> = FxHashMap::default();
    for entry in tree.entries() {
        for item in entry.value.items() {
            if let Some(name) = item.get("name").and_then(Tree::text) {
                items.entry((&entry.key, name)).or_insert(item);
            }
        }
    }
    let mut splices = Vec::with_capacity(edits.len());
    for edit in edits {
        let fail = |why| PatchError::ByHand {
            list: edit.list.to_owned(),
            name: edit.name.to_owned(),
            field: edit.field.to_owned(),
            why,
        };
        let item = items.get(&(edit.list, edit.name)).ok_or_else(|| fail("there is no such entry"))?;
        splices.push(set_field(&text, item, edit).map_err(fail)?);
    }
    Ok(with_all(source, splices))
}

fn expect_fields(tree: &mut Tree<'_>, edits: &[Edit<'_>]) {
    let by_place: FxHashMap<(&str, &str), &Edit<'_>> =
        edits.iter().map(|edit| ((edit.list, edit.name), edit)).collect();
    let Value::Map(root) = &mut tree.value else { return };
    for list in root {
        let Value::List(items) = &mut list.value.value else { continue };
        for item in items {
            let name = item.get("name").and_then(Tree::text).unwrap_or_default();
            let Some(edit) = by_place.get(&(&*list.key, name)).copied() else { continue };
            let Value::Map(fields) = &mut item.value else { continue };
            let value = tree_of(&NewField::One(edit.value.clone()));
            match fields.iter_mut().find(|entry| is_field(entry, edit)) {
                Some(entry) => entry.value = value,
                None => fields.push(entry(edit.field, value)),
            }
        }
    }
}

fn expect_entries(tree: &mut Tree<'_>, list: &str, entries: &[&NewEntry<'_>]) {
    let Value::Map(root) = &mut tree.value else { return };
    if root.iter().all(|entry| entry.key != list) {
        root.push(entry(list, Tree::new(Value::List(Vec::new()), Span::default())));
    }
    let found = root.iter_mut().find(|entry| entry.key == list);
    let Some(Value::List(items)) = found.map(|entry| &mut entry.value.value) else { return };
    for new in entries {
        let fields = new.fields.iter().map(|(name, value)| entry(name, tree_of(value))).collect();
        items.push(Tree::new(Value::Map(fields), Span::default()));
    }
}

fn entry<'t>(key: &str, value: Tree<'t>) -> Entry<'t> {
    Entry { key: Cow::Owned(key.to_owned()), key_span: Span::default(), value }
}

fn tree_of<'t>(field: &NewField<'_>) -> Tree<'t> {
    let text = |text: &str, plain| Tree::scalar(text.to_owned(), plain, Span::default());
    match field {
        NewField::One(value) => {
            let scalar = value.scalar();
            text(&scalar.text, scalar.plain)
        }
        NewField::Many(texts) => {
            Tree::new(Value::List(texts.iter().map(|one| text(one, false)).collect()), Span::default())
        }
    }
}

/// Writes entries of one list in the style of the format.
struct Writer<'t> {
    text: Text<'t>,
    list: &'t str,
}

impl Writer<'_> {
    fn add(&self, root: &Tree<'_>, entries: &[&NewEntry<'_>]) -> Result<Splice, &'static str> {
        match self.text.format {
            Format::Kdl => Ok(self.at_the_end(&self.nodes(entries))),
            Format::Toml => match root.get(self.list) {
                Some(list) if self.text.is_bracketed(list) => self.in_brackets(list, entries),
                _ => Ok(self.at_the_end(&self.tables(entries))),
            },
            Format::Yaml | Format::Json | Format::Json5 => match root.get(self.list) {
                Some(list) if self.text.is_bracketed(list) => self.in_brackets(list, entries),
                Some(list) => self.in_block(list, entries),
                None if self.text.is_bracketed(root) => self.in_object(root, entries),
                None => {
                    let key = write::key(self.list, self.text.format);
                    let line_break = self.text.line_break();
                    let block = self.block("  ", entries);
                    Ok(self.at_the_end(&format!("{key}:{line_break}{block}")))
                }
            },
        }
    }

    fn at_the_end(&self, new: &str) -> Splice {
        let source = self.text.source;
        let line_break = self.text.line_break();
        let before = if source.is_empty() || source.ends_with('\n') { "" } else { line_break };
        self.text.inserted(source.len(), &format!("{before}{new}{line_break}"))
    }

    /// Entries of a list of YAML, behind those that are there.
    fn in_block(&self, list: &Tree<'_>, entries: &[&NewEntry<'_>]) -> Result<Splice, &'static str> {
        let last = list.items().last().ok_or("the list is empty")?;
        let start = last.entries().first().map_or(last.span.start, |entry| entry.key_span.start) as usize;
        let dash = self.text.source[..start].rfind('-').ok_or("the list has an unusual layout")?;
        let indent = self.text.indent(dash);
        Ok(self.text.with_line_at(self.text.end(last), &self.block(&indent, entries)))
    }

    fn block(&self, indent: &str, entries: &[&NewEntry<'_>]) -> String {
        let line_break = self.text.line_break();
        let one = |entry: &&NewEntry<'_>| {
            let pairs: Vec<String> =
                entry.fields.iter().map(|(name, value)| self.pair(name, value)).collect();
            format!("{indent}- {}", pairs.join(&format!("{line_break}{indent}  ")))
        };
        entries.iter().map(one).collect::<Vec<_>>().join(line_break)
    }

    /// Between the brackets of a list that is there.
    fn in_brackets(&self, list: &Tree<'_>, entries: &[&NewEntry<'_>]) -> Result<Splice, &'static str> {
        let objects: Vec<String> = entries.iter().map(|entry| self.object(entry)).collect();
        let Some(last) = list.items().last() else {
            return Ok(self.text.inserted(list.close.start as usize, &objects.join(", ")));
        };
        let open = last.span.start as usize;
        let before = self.text.source.get(self.text.line_start(open)..open).ok_or("the list has no place")?;
        let separator = if before.trim().is_empty() {
            format!(",{}{}", self.text.line_break(), self.text.indent(open))
        } else {
            ", ".to_owned()
        };
        let new = objects.iter().fold(String::new(), |new, object| new + &separator + object);
        Ok(self.text.inserted(self.text.end(last), &new))
    }

    /// A new list in a document that stands between braces.
    fn in_object(&self, root: &Tree<'_>, entries: &[&NewEntry<'_>]) -> Result<Splice, &'static str> {
        let last = root.entries().last().ok_or("the document is empty")?;
        let objects: Vec<String> = entries.iter().map(|entry| self.object(entry)).collect();
        let key = write::key(self.list, self.text.format);
        let end = self.text.end(&last.value);
        let start = last.key_span.start as usize;
        let before = &self.text.source[self.text.line_start(start)..start];
        if !before.trim().is_empty() {
            return Ok(self.text.inserted(end, &format!(", {key}: [{}]", objects.join(", "))));
        }
        let (line_break, indent) = (self.text.line_break(), self.text.indent_of_key(last));
        let inner = format!("{line_break}{indent}{indent}");
        let objects = objects.join(&format!(",{inner}"));
        let new = format!(",{line_break}{indent}{key}: [{inner}{objects}{line_break}{indent}]");
        Ok(self.text.inserted(end, &new))
    }

    fn object(&self, entry: &NewEntry<'_>) -> String {
        let pairs: Vec<String> = entry.fields.iter().map(|(name, value)| self.pair(name, value)).collect();
        match self.text.format {
            Format::Toml => format!("{{ {} }}", pairs.join(", ")),
            _ => format!("{{{}}}", pairs.join(", ")),
        }
    }

    fn pair(&self, name: &str, value: &NewField<'_>) -> String {
        let format = self.text.format;
        let separator = if format == Format::Toml { " = " } else { ": " };
        let value = match value {
            NewField::One(value) => write::scalar(&value.scalar(), format),
            NewField::Many(texts) => format!("[{}]", self.texts(texts).join(", ")),
        };
        format!("{}{separator}{value}", write::key(name, format))
    }

    fn texts(&self, texts: &[Cow<'_, str>]) -> Vec<String> {
        let one = |text: &Cow<'_, str>| {
            write::scalar(&Scalar { text: Cow::Borrowed(text), plain: false }, self.text.format)
        };
        texts.iter().map(one).collect()
    }

    /// `[[list]]` for each.
    fn tables(&self, entries: &[&NewEntry<'_>]) -> String {
        let line_break = self.text.line_break();
        let header = format!("{line_break}[[{}]]{line_break}", write::key(self.list, self.text.format));
        let one = |entry: &&NewEntry<'_>| {
            let pairs: Vec<String> =
                entry.fields.iter().map(|(name, value)| self.pair(name, value)).collect();
            format!("{header}{}", pairs.join(line_break))
        };
        entries.iter().map(one).collect::<Vec<_>>().join(line_break)
    }

    /// A node for each, with a child for each field.
    fn nodes(&self, entries: &[&NewEntry<'_>]) -> String {
        let line_break = self.text.line_break();
        let field = WORKFLOW.find(self.list).map(|(index, _)| &WORKFLOW.fields[index]);
        let node = field.map_or(self.list, |field| field.kdl_node());
        let map = field.and_then(|field| field.is.map());
        let one = |entry: &&NewEntry<'_>| {
            let mut head = node.to_owned();
            let mut children = String::new();
            for (name, value) in &entry.fields {
                match value {
                    NewField::One(value) if *name == "name" => {
                        head = format!("{head} {}", write::scalar(&value.scalar(), Format::Kdl));
                    }
                    NewField::One(value) => {
                        let value = write::scalar(&value.scalar(), Format::Kdl);
                        let name = write::key(name, Format::Kdl);
                        write!(children, "    {name} {value}{line_break}").unwrap_or_default();
                    }
                    NewField::Many(texts) => {
                        let child = child(map, name);
                        let values = self.texts(texts).join(" ");
                        write!(children, "    {child} {values}{line_break}").unwrap_or_default();
                    }
                }
            }
            format!("{head} {{{line_break}{children}}}")
        };
        entries.iter().map(one).collect::<Vec<_>>().join(line_break)
    }
}

/// What the node of a list is called.
fn child<'m>(map: Option<&'static Map>, name: &'m str) -> &'m str
where
    'static: 'm,
{
    map.and_then(|map| map.find(name).map(|(index, _)| map.fields[index].kdl_node())).unwrap_or(name)
}

/// The spec without what it asks of Slurm: schedulers, the actions that ask for their allocations, and who names them. It is
/// written anew, so its comments are lost.
pub fn without_schedule(source: Source<'_>) -> Result<String, PatchError> {
    let (text, format) = source.open().map_err(PatchError::Unreadable)?;
    let tree = crate::convert::read_good(source.name, text, format).map_err(PatchError::Unreadable)?;
    let Value::Map(entries) = tree.value else { return Err(by_hand("spec", "it is no map")) };
    let mut kept = Vec::with_capacity(entries.len());
    for mut entry in entries {
        match &mut entry.value.value {
            _ if entry.key == "slurm_schedulers" => continue,
            Value::List(items) if entry.key == "actions" => {
                items.retain(|item| item.get("action_type").and_then(Tree::text) != Some("schedule_nodes"));
                if items.is_empty() {
                    continue;
                }
            }
            Value::List(items) if entry.key == "jobs" => {
                for item in items {
                    if let Value::Map(fields) = &mut item.value {
                        fields.retain(|field| field.key != "scheduler");
                    }
                }
            }
            _ => {}
        }
        kept.push(entry);
    }
    let tree = Tree::new(Value::Map(kept), Span::default());
    write::document(&tree, format).map_err(|diagnostic| {
        let mut sink = Sink::default();
        sink.push(diagnostic);
        PatchError::Unreadable(sink.into_diagnostics(source.name, text))
    })
}

#[cfg(test)]
mod tests;
