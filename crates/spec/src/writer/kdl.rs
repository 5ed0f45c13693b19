//! Writes KDL version 2: a node for each field, and for each entry of a list of maps one with its name.

use super::{MAX_WIDTH, as_literal, is_block_text, quote_with, short_scalars};
use crate::decode::field_tables::{FieldTable, FieldType, SpecField};
use crate::decode::tables::WORKFLOW;
use crate::event::{ScalarMeaning, ScalarText};
use crate::kdl::field_forms::FieldForm;
use crate::kdl::{ITEM_NODE, LIST_ANNOTATION, MAP_ANNOTATION, is_bare_word};
use crate::tree::{DocumentTree, TreeEntry, TreeValue};
use std::fmt::Write as _;

pub(super) fn render_document(tree: &DocumentTree<'_>) -> String {
    let mut writer = KdlWriter { out: String::new(), depth: 0 };
    writer.write_fields(&WORKFLOW, tree.entries().iter());
    writer.out
}

struct KdlWriter {
    out: String,
    depth: usize,
}

impl KdlWriter {
    fn write_line(&mut self, text: &str) {
        self.out.push_str(&"    ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn write_block(&mut self, head: &str, inside: impl FnOnce(&mut Self)) {
        self.write_line(&format!("{head} {{"));
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.write_line("}");
    }

    fn write_fields<'t, 's: 't>(
        &mut self,
        map: &FieldTable,
        entries: impl Iterator<Item = &'t TreeEntry<'s>>,
    ) {
        for entry in entries {
            match map.find_field(&entry.key) {
                Some((index, key)) => self.write_field(&map.fields[index], key, &entry.value),
                None => self.write_any(&entry.key, &entry.value),
            }
        }
    }

    fn write_field(&mut self, field: &SpecField, key: &str, value: &DocumentTree<'_>) {
        match (FieldForm::from_type(&field.field_type), &value.value) {
            (FieldForm::Entries(map), TreeValue::List(items)) => {
                for item in items {
                    self.write_entry(map, field.kdl_node(), item.entries());
                }
            }
            (FieldForm::Map(map), TreeValue::Map(entries)) => {
                self.write_block(key, |writer| writer.write_fields(map, entries.iter()));
            }
            (FieldForm::Texts | FieldForm::Numbers, TreeValue::List(items)) => {
                self.write_texts(field, key, items);
            }
            _ => self.write_any(key, value),
        }
    }

    /// Writes one node per name, but numbers and regular expressions in one node, as Torc does.
    fn write_texts(&mut self, field: &SpecField, key: &str, items: &[DocumentTree<'_>]) {
        let is_joined = items.is_empty()
            || matches!(field.field_type, FieldType::List(FieldType::Integer(..) | FieldType::Regex));
        let line = short_scalars(items)
            .map(|items| {
                items.into_iter().fold(key.to_owned(), |line, item| line + " " + &render_scalar(item))
            })
            .filter(|line| is_joined && 4 * self.depth + line.len() <= MAX_WIDTH);
        match line {
            Some(line) => self.write_line(&line),
            None => items.iter().for_each(|item| self.write_any(field.kdl_node(), item)),
        }
    }

    /// Writes a map with known fields and an optional name.
    fn write_entry(&mut self, map: &FieldTable, node: &str, entries: &[TreeEntry<'_>]) {
        let name = entries.iter().find(|entry| map.is_named && entry.key == "name");
        let mut head = node.to_owned();
        if let Some(TreeValue::Scalar(name)) = name.map(|entry| &entry.value.value) {
            head.push(' ');
            head.push_str(&render_scalar(name));
        }
        let rest = || entries.iter().filter(|entry| !(map.is_named && entry.key == "name"));
        if let Some(line) =
            render_properties(map, &head, rest()).filter(|line| 4 * self.depth + line.len() <= MAX_WIDTH)
        {
            self.write_line(&line);
            return;
        }
        self.write_block(&head, |writer| writer.write_fields(map, rest()));
    }

    /// Writes a node where any value is allowed.
    fn write_any(&mut self, key: &str, value: &DocumentTree<'_>) {
        let node = render_word(key);
        match &value.value {
            TreeValue::Scalar(it) if is_multiline(&it.text) => {
                let text = self.render_lines(&it.text);
                self.write_line(&format!("{node} {text}"));
            }
            TreeValue::Scalar(it) => self.write_line(&format!("{node} {}", render_scalar(it))),
            TreeValue::Bad => self.write_line(&node),
            TreeValue::Map(entries) if entries.is_empty() => self.write_line(&format!("{node} {{}}")),
            TreeValue::Map(entries) => {
                // Nodes that are all named `-` would be read as a list.
                let is_like_list = entries.iter().all(|entry| entry.key == ITEM_NODE);
                let head = if is_like_list { format!("({MAP_ANNOTATION}){node}") } else { node };
                self.write_block(&head, |writer| {
                    for entry in entries {
                        writer.write_any(&entry.key, &entry.value);
                    }
                });
            }
            TreeValue::List(items) => self.write_list(&node, items),
        }
    }

    fn write_list(&mut self, node: &str, items: &[DocumentTree<'_>]) {
        let line = short_scalars(items).map(|scalars| {
            // A single value would not be read as a list.
            let head = if scalars.len() < 2 { format!("({LIST_ANNOTATION}){node}") } else { node.to_owned() };
            scalars.into_iter().fold(head, |line, item| line + " " + &render_scalar(item))
        });
        match line.filter(|line| 4 * self.depth + line.len() <= MAX_WIDTH) {
            Some(line) => self.write_line(&line),
            None => {
                self.write_block(node, |writer| {
                    for item in items {
                        writer.write_any(ITEM_NODE, item);
                    }
                });
            }
        }
    }

    /// Writes several lines in triple quotes, indented like their surroundings.
    fn render_lines(&self, text: &str) -> String {
        let hashes = if text.contains(['\\', '"']) { raw_hashes(text) } else { String::new() };
        let indent = "    ".repeat(self.depth + 1);
        let mut out = format!("{hashes}\"\"\"\n");
        for line in text.split('\n') {
            if !line.is_empty() {
                out.push_str(&indent);
                out.push_str(line);
            }
            out.push('\n');
        }
        out.extend([indent.as_str(), "\"\"\"", &hashes]);
        out
    }
}

/// Returns the entry on one line, if it has only a few fields, all of them short scalars.
fn render_properties<'t, 's: 't>(
    map: &FieldTable,
    head: &str,
    entries: impl Iterator<Item = &'t TreeEntry<'s>>,
) -> Option<String> {
    let mut line = head.to_owned();
    for entry in entries {
        let TreeValue::Scalar(value) = &entry.value.value else { return None };
        // A job or an action is easier to read with one line per field.
        let is_simple = !value.text.contains('\n') && map.find_field(&entry.key).is_some();
        if !is_simple || matches!(map.noun, "job" | "action") {
            return None;
        }
        line.extend([" ", &render_word(&entry.key), "=", &render_scalar(value)]);
    }
    Some(line)
}

/// Whether a text of several lines is preserved: no line may consist of blanks only.
fn is_multiline(text: &str) -> bool {
    is_block_text(text) && text.split('\n').all(|line| line.is_empty() || !line.trim().is_empty())
}

/// Returns the number of hashes of a raw string, more than any sequence in the text.
fn raw_hashes(text: &str) -> String {
    let longest = text.split('"').skip(1).map(|rest| rest.bytes().take_while(|b| *b == b'#').count());
    "#".repeat(longest.max().unwrap_or(0) + 1)
}

pub(super) fn render_scalar(scalar: &ScalarText<'_>) -> String {
    match scalar.meaning() {
        ScalarMeaning::Number => scalar.text.clone().into_owned(),
        ScalarMeaning::Text => quote_text(&scalar.text),
        ScalarMeaning::Null | ScalarMeaning::Boolean(_) => {
            format!("#{}", as_literal(scalar).unwrap_or("null"))
        }
    }
}

/// Renders the name of a node or property.
pub(super) fn render_word(text: &str) -> String {
    if is_bare_word(text) || text == ITEM_NODE { text.to_owned() } else { quote_text(text) }
}

fn quote_text(text: &str) -> String {
    let is_printable = !text.contains(super::is_invisible);
    // Two quotes at the start would form three with the opening one, which begins another type of string.
    if is_printable && text.contains('\\') && !text.starts_with("\"\"") {
        let hashes = raw_hashes(text);
        return format!("{hashes}\"{text}\"{hashes}");
    }
    quote_with(text, |out, code| write!(out, "\\u{{{code:x}}}").unwrap_or_default())
}
