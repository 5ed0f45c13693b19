//! Adds several fields and entries at once, such as a schedule. Everything else stays unchanged.

use super::text_edits::{EditedText, TextSplice, apply_splices};
use super::{NewFieldValue, SpecEdit, SpecPatchError, is_edited_field, set_field};
use crate::convert::{normalize_tree, read_tree, read_unchecked_tree};
use crate::decode::field_tables::FieldTable;
use crate::decode::tables::WORKFLOW;
use crate::diagnostic::DiagnosticSink;
use crate::event::ScalarText;
use crate::format::{SpecFormat, SpecSource};
use crate::source::SourceSpan;
use crate::tree::{DocumentTree, TreeEntry, TreeValue};
use crate::writer;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::fmt::Write as _;

/// An entry to add at the end of a list at the top level of the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSpecEntry<'a> {
    pub list: &'a str,
    /// In the order in which they are written; `name` first, if there is one.
    pub fields: Vec<(&'a str, NewFieldContent<'a>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NewFieldContent<'a> {
    One(NewFieldValue<'a>),
    Many(Vec<Cow<'a, str>>),
}

/// Additions to a spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecAddition<'a> {
    /// Fields of existing entries, at most one per entry.
    pub fields: Vec<SpecEdit<'a>>,
    pub entries: Vec<NewSpecEntry<'a>>,
}

/// Returns the text of the spec with the additions. The result is parsed again and rejected if it differs from
/// the expected spec.
pub fn apply_addition(source: SpecSource<'_>, addition: &SpecAddition<'_>) -> Result<String, SpecPatchError> {
    let (original, format) = source.open().map_err(SpecPatchError::Unreadable)?;
    let mut expected =
        read_unchecked_tree(source.name, original, format).map_err(SpecPatchError::Unreadable)?;
    let mut text = set_fields(original, format, &expected, &addition.fields)?;
    add_fields_to_tree(&mut expected, &addition.fields);
    let mut lists: Vec<&str> = addition.entries.iter().map(|entry| entry.list).collect();
    lists.dedup();
    for list in lists {
        let entries: Vec<&NewSpecEntry<'_>> =
            addition.entries.iter().filter(|one| one.list == list).collect();
        let tree =
            read_tree(&text, format).ok_or_else(|| manual_edit_error(list, "the result cannot be parsed"))?;
        let splice = EntryWriter { text: EditedText { source: &text, format }, list }
            .insert_entries(&tree, &entries)
            .map_err(|why| manual_edit_error(list, why))?;
        text = apply_splices(&text, vec![splice]);
        add_entries_to_tree(&mut expected, list, &entries);
    }
    let is_right = read_tree(&text, format)
        .is_some_and(|tree| normalize_tree(tree).is_equivalent(&normalize_tree(expected)));
    if is_right { Ok(text) } else { Err(manual_edit_error("spec", "this would also change other values")) }
}

fn manual_edit_error(list: &str, why: &'static str) -> SpecPatchError {
    SpecPatchError::ManualEditNeeded {
        list: list.to_owned(),
        name: "*".to_owned(),
        field: "*".to_owned(),
        why,
    }
}

/// Sets all fields after parsing once.
fn set_fields(
    source: &str,
    format: SpecFormat,
    tree: &DocumentTree<'_>,
    edits: &[SpecEdit<'_>],
) -> Result<String, SpecPatchError> {
    let text = EditedText { source, format };
    let mut items: FxHashMap<(&str, &str), &DocumentTree<'_>> = FxHashMap::default();
    for entry in tree.entries() {
        for item in entry.value.items() {
            if let Some(name) = item.get("name").and_then(DocumentTree::text) {
                items.entry((&entry.key, name)).or_insert(item);
            }
        }
    }
    let mut splices = Vec::with_capacity(edits.len());
    for edit in edits {
        let fail = |why| SpecPatchError::ManualEditNeeded {
            list: edit.list.to_owned(),
            name: edit.name.to_owned(),
            field: edit.field.to_owned(),
            why,
        };
        let item = items.get(&(edit.list, edit.name)).ok_or_else(|| fail("there is no such entry"))?;
        splices.push(set_field(&text, item, edit).map_err(fail)?);
    }
    Ok(apply_splices(source, splices))
}

fn add_fields_to_tree(tree: &mut DocumentTree<'_>, edits: &[SpecEdit<'_>]) {
    let by_place: FxHashMap<(&str, &str), &SpecEdit<'_>> =
        edits.iter().map(|edit| ((edit.list, edit.name), edit)).collect();
    let TreeValue::Map(root) = &mut tree.value else { return };
    for list in root {
        let TreeValue::List(items) = &mut list.value.value else { continue };
        for item in items {
            let name = item.get("name").and_then(DocumentTree::text).unwrap_or_default();
            let Some(edit) = by_place.get(&(&*list.key, name)).copied() else { continue };
            let TreeValue::Map(fields) = &mut item.value else { continue };
            let value = field_tree(&NewFieldContent::One(edit.value.clone()));
            match fields.iter_mut().find(|entry| is_edited_field(entry, edit)) {
                Some(entry) => entry.value = value,
                None => fields.push(new_tree_entry(edit.field, value)),
            }
        }
    }
}

fn add_entries_to_tree(tree: &mut DocumentTree<'_>, list: &str, entries: &[&NewSpecEntry<'_>]) {
    let TreeValue::Map(root) = &mut tree.value else { return };
    if root.iter().all(|entry| entry.key != list) {
        root.push(new_tree_entry(
            list,
            DocumentTree::new(TreeValue::List(Vec::new()), SourceSpan::default()),
        ));
    }
    let found = root.iter_mut().find(|entry| entry.key == list);
    let Some(TreeValue::List(items)) = found.map(|entry| &mut entry.value.value) else { return };
    for new in entries {
        let fields = new.fields.iter().map(|(name, value)| new_tree_entry(name, field_tree(value))).collect();
        items.push(DocumentTree::new(TreeValue::Map(fields), SourceSpan::default()));
    }
}

fn new_tree_entry<'t>(key: &str, value: DocumentTree<'t>) -> TreeEntry<'t> {
    TreeEntry { key: Cow::Owned(key.to_owned()), key_span: SourceSpan::default(), value }
}

fn field_tree<'t>(field: &NewFieldContent<'_>) -> DocumentTree<'t> {
    let text = |text: &str, plain| DocumentTree::scalar(text.to_owned(), plain, SourceSpan::default());
    match field {
        NewFieldContent::One(value) => {
            let scalar = value.to_scalar();
            text(&scalar.text, scalar.is_plain)
        }
        NewFieldContent::Many(texts) => DocumentTree::new(
            TreeValue::List(texts.iter().map(|one| text(one, false)).collect()),
            SourceSpan::default(),
        ),
    }
}

/// Writes entries of one list in the style of the format.
struct EntryWriter<'t> {
    text: EditedText<'t>,
    list: &'t str,
}

impl EntryWriter<'_> {
    fn insert_entries(
        &self,
        root: &DocumentTree<'_>,
        entries: &[&NewSpecEntry<'_>],
    ) -> Result<TextSplice, &'static str> {
        match self.text.format {
            SpecFormat::Kdl => Ok(self.append_text(&self.render_nodes(entries))),
            SpecFormat::Toml => match root.get(self.list) {
                Some(list) if self.text.is_bracketed(list) => self.insert_in_brackets(list, entries),
                _ => Ok(self.append_text(&self.render_tables(entries))),
            },
            SpecFormat::Yaml | SpecFormat::Json | SpecFormat::Json5 => match root.get(self.list) {
                Some(list) if self.text.is_bracketed(list) => self.insert_in_brackets(list, entries),
                Some(list) => self.insert_in_block(list, entries),
                None if self.text.is_bracketed(root) => self.insert_in_object(root, entries),
                None => {
                    let key = writer::render_key(self.list, self.text.format);
                    let line_break = self.text.line_break();
                    let block = self.render_block("  ", entries);
                    Ok(self.append_text(&format!("{key}:{line_break}{block}")))
                }
            },
        }
    }

    fn append_text(&self, new: &str) -> TextSplice {
        let source = self.text.source;
        let line_break = self.text.line_break();
        let before = if source.is_empty() || source.ends_with('\n') { "" } else { line_break };
        self.text.insert_at(source.len(), &format!("{before}{new}{line_break}"))
    }

    /// Adds entries after the existing ones of a YAML list.
    fn insert_in_block(
        &self,
        list: &DocumentTree<'_>,
        entries: &[&NewSpecEntry<'_>],
    ) -> Result<TextSplice, &'static str> {
        let last = list.items().last().ok_or("the list is empty")?;
        let start = last.entries().first().map_or(last.span.start, |entry| entry.key_span.start) as usize;
        let dash = self.text.source[..start].rfind('-').ok_or("the list has an unusual layout")?;
        let indent = self.text.indent(dash);
        Ok(self.text.insert_line_after(self.text.value_end(last), &self.render_block(&indent, entries)))
    }

    fn render_block(&self, indent: &str, entries: &[&NewSpecEntry<'_>]) -> String {
        let line_break = self.text.line_break();
        let one = |entry: &&NewSpecEntry<'_>| {
            let pairs: Vec<String> =
                entry.fields.iter().map(|(name, value)| self.render_pair(name, value)).collect();
            format!("{indent}- {}", pairs.join(&format!("{line_break}{indent}  ")))
        };
        entries.iter().map(one).collect::<Vec<_>>().join(line_break)
    }

    /// Adds entries between the brackets of an existing list.
    fn insert_in_brackets(
        &self,
        list: &DocumentTree<'_>,
        entries: &[&NewSpecEntry<'_>],
    ) -> Result<TextSplice, &'static str> {
        let objects: Vec<String> = entries.iter().map(|entry| self.render_object(entry)).collect();
        let Some(last) = list.items().last() else {
            return Ok(self.text.insert_at(list.close.start as usize, &objects.join(", ")));
        };
        let open = last.span.start as usize;
        let before =
            self.text.source.get(self.text.line_start(open)..open).ok_or("the list cannot be located")?;
        let separator = if before.trim().is_empty() {
            format!(",{}{}", self.text.line_break(), self.text.indent(open))
        } else {
            ", ".to_owned()
        };
        let new = objects.iter().fold(String::new(), |new, object| new + &separator + object);
        Ok(self.text.insert_at(self.text.value_end(last), &new))
    }

    /// Adds a list to a document in braces.
    fn insert_in_object(
        &self,
        root: &DocumentTree<'_>,
        entries: &[&NewSpecEntry<'_>],
    ) -> Result<TextSplice, &'static str> {
        let last = root.entries().last().ok_or("the document is empty")?;
        let objects: Vec<String> = entries.iter().map(|entry| self.render_object(entry)).collect();
        let key = writer::render_key(self.list, self.text.format);
        let end = self.text.value_end(&last.value);
        let start = last.key_span.start as usize;
        let before = &self.text.source[self.text.line_start(start)..start];
        if !before.trim().is_empty() {
            return Ok(self.text.insert_at(end, &format!(", {key}: [{}]", objects.join(", "))));
        }
        let (line_break, indent) = (self.text.line_break(), self.text.indent_of_key(last));
        let inner = format!("{line_break}{indent}{indent}");
        let objects = objects.join(&format!(",{inner}"));
        let new = format!(",{line_break}{indent}{key}: [{inner}{objects}{line_break}{indent}]");
        Ok(self.text.insert_at(end, &new))
    }

    fn render_object(&self, entry: &NewSpecEntry<'_>) -> String {
        let pairs: Vec<String> =
            entry.fields.iter().map(|(name, value)| self.render_pair(name, value)).collect();
        match self.text.format {
            SpecFormat::Toml => format!("{{ {} }}", pairs.join(", ")),
            _ => format!("{{{}}}", pairs.join(", ")),
        }
    }

    fn render_pair(&self, name: &str, value: &NewFieldContent<'_>) -> String {
        let format = self.text.format;
        let separator = if format == SpecFormat::Toml { " = " } else { ": " };
        let value = match value {
            NewFieldContent::One(value) => writer::render_scalar(&value.to_scalar(), format),
            NewFieldContent::Many(texts) => format!("[{}]", self.render_texts(texts).join(", ")),
        };
        format!("{}{separator}{value}", writer::render_key(name, format))
    }

    fn render_texts(&self, texts: &[Cow<'_, str>]) -> Vec<String> {
        let one = |text: &Cow<'_, str>| {
            writer::render_scalar(
                &ScalarText { text: Cow::Borrowed(text), is_plain: false },
                self.text.format,
            )
        };
        texts.iter().map(one).collect()
    }

    /// Writes `[[list]]` for each entry.
    fn render_tables(&self, entries: &[&NewSpecEntry<'_>]) -> String {
        let line_break = self.text.line_break();
        let header =
            format!("{line_break}[[{}]]{line_break}", writer::render_key(self.list, self.text.format));
        let one = |entry: &&NewSpecEntry<'_>| {
            let pairs: Vec<String> =
                entry.fields.iter().map(|(name, value)| self.render_pair(name, value)).collect();
            format!("{header}{}", pairs.join(line_break))
        };
        entries.iter().map(one).collect::<Vec<_>>().join(line_break)
    }

    /// Writes a node for each entry, with a child for each field.
    fn render_nodes(&self, entries: &[&NewSpecEntry<'_>]) -> String {
        let line_break = self.text.line_break();
        let field = WORKFLOW.find_field(self.list).map(|(index, _)| &WORKFLOW.fields[index]);
        let node = field.map_or(self.list, |field| field.kdl_node());
        let map = field.and_then(|field| field.field_type.inner_table());
        let one = |entry: &&NewSpecEntry<'_>| {
            let mut head = node.to_owned();
            let mut children = String::new();
            for (name, value) in &entry.fields {
                match value {
                    NewFieldContent::One(value) if *name == "name" => {
                        head =
                            format!("{head} {}", writer::render_scalar(&value.to_scalar(), SpecFormat::Kdl));
                    }
                    NewFieldContent::One(value) => {
                        let value = writer::render_scalar(&value.to_scalar(), SpecFormat::Kdl);
                        let name = writer::render_key(name, SpecFormat::Kdl);
                        write!(children, "    {name} {value}{line_break}").unwrap_or_default();
                    }
                    NewFieldContent::Many(texts) => {
                        let child = child_node_name(map, name);
                        let values = self.render_texts(texts).join(" ");
                        write!(children, "    {child} {values}{line_break}").unwrap_or_default();
                    }
                }
            }
            format!("{head} {{{line_break}{children}}}")
        };
        entries.iter().map(one).collect::<Vec<_>>().join(line_break)
    }
}

/// Returns the node name of a list.
fn child_node_name<'m>(map: Option<&'static FieldTable>, name: &'m str) -> &'m str
where
    'static: 'm,
{
    map.and_then(|map| map.find_field(name).map(|(index, _)| map.fields[index].kdl_node())).unwrap_or(name)
}

/// Removes all Slurm settings: schedulers, the actions that request their allocations, and the references to
/// them. The spec is written from scratch, so its comments are lost.
pub fn remove_schedule(source: SpecSource<'_>) -> Result<String, SpecPatchError> {
    let (text, format) = source.open().map_err(SpecPatchError::Unreadable)?;
    let tree =
        crate::convert::read_valid_tree(source.name, text, format).map_err(SpecPatchError::Unreadable)?;
    let TreeValue::Map(entries) = tree.value else { return Err(manual_edit_error("spec", "it is no map")) };
    let mut kept = Vec::with_capacity(entries.len());
    for mut entry in entries {
        match &mut entry.value.value {
            _ if entry.key == "slurm_schedulers" => continue,
            TreeValue::List(items) if entry.key == "actions" => {
                items.retain(|item| {
                    item.get("action_type").and_then(DocumentTree::text) != Some("schedule_nodes")
                });
                if items.is_empty() {
                    continue;
                }
            }
            TreeValue::List(items) if entry.key == "jobs" => {
                for item in items {
                    if let TreeValue::Map(fields) = &mut item.value {
                        fields.retain(|field| field.key != "scheduler");
                    }
                }
            }
            _ => {}
        }
        kept.push(entry);
    }
    let tree = DocumentTree::new(TreeValue::Map(kept), SourceSpan::default());
    writer::render_document(&tree, format).map_err(|diagnostic| {
        let mut sink = DiagnosticSink::default();
        sink.push(diagnostic);
        SpecPatchError::Unreadable(sink.into_diagnostics(source.name, text))
    })
}

#[cfg(test)]
mod tests;
