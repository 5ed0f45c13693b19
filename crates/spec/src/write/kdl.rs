//! KDL, version 2: a node for each field, and for each entry of a list of maps one with its name.

use super::{WIDTH, is_block_text, literal, quoted_with, short_scalars};
use crate::decode::shape::{Field, Map, Type};
use crate::decode::tables::WORKFLOW;
use crate::event::{Meaning, Scalar};
use crate::kdl::shape::Form;
use crate::kdl::{ITEM, LIST, MAP, is_bare_word};
use crate::tree::{Entry, Tree, Value};
use std::fmt::Write as _;

pub(super) fn document(tree: &Tree<'_>) -> String {
    let mut writer = Writer { out: String::new(), depth: 0 };
    writer.fields(&WORKFLOW, tree.entries().iter());
    writer.out
}

struct Writer {
    out: String,
    depth: usize,
}

impl Writer {
    fn line(&mut self, text: &str) {
        self.out.push_str(&"    ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn block(&mut self, head: &str, inside: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.line("}");
    }

    fn fields<'t, 's: 't>(&mut self, map: &Map, entries: impl Iterator<Item = &'t Entry<'s>>) {
        for entry in entries {
            match map.find(&entry.key) {
                Some((index, key)) => self.field(&map.fields[index], key, &entry.value),
                None => self.any(&entry.key, &entry.value),
            }
        }
    }

    fn field(&mut self, field: &Field, key: &str, value: &Tree<'_>) {
        match (Form::of(&field.is), &value.value) {
            (Form::Entries(map), Value::List(items)) => {
                for item in items {
                    self.entry(map, field.kdl_node(), item.entries());
                }
            }
            (Form::Map(map), Value::Map(entries)) => {
                self.block(key, |writer| writer.fields(map, entries.iter()));
            }
            (Form::Texts | Form::Numbers, Value::List(items)) => self.texts(field, key, items),
            _ => self.any(key, value),
        }
    }

    /// A node for each name, but numbers and regular expressions side by side: so do people, and Torc.
    fn texts(&mut self, field: &Field, key: &str, items: &[Tree<'_>]) {
        let is_joined = items.is_empty() || matches!(field.is, Type::List(Type::Integer(..) | Type::Regex));
        let line = short_scalars(items)
            .map(|items| items.into_iter().fold(key.to_owned(), |line, item| line + " " + &scalar(item)))
            .filter(|line| is_joined && 4 * self.depth + line.len() <= WIDTH);
        match line {
            Some(line) => self.line(&line),
            None => items.iter().for_each(|item| self.any(field.kdl_node(), item)),
        }
    }

    /// A map with known fields and perhaps a name.
    fn entry(&mut self, map: &Map, node: &str, entries: &[Entry<'_>]) {
        let name = entries.iter().find(|entry| map.is_named && entry.key == "name");
        let mut head = node.to_owned();
        if let Some(Value::Scalar(name)) = name.map(|entry| &entry.value.value) {
            head.push(' ');
            head.push_str(&scalar(name));
        }
        let rest = || entries.iter().filter(|entry| !(map.is_named && entry.key == "name"));
        if let Some(line) = properties(map, &head, rest()).filter(|line| 4 * self.depth + line.len() <= WIDTH)
        {
            self.line(&line);
            return;
        }
        self.block(&head, |writer| writer.fields(map, rest()));
    }

    /// A node where anything may stand.
    fn any(&mut self, key: &str, value: &Tree<'_>) {
        let node = word(key);
        match &value.value {
            Value::Scalar(it) if is_lines(&it.text) => {
                let text = self.lines(&it.text);
                self.line(&format!("{node} {text}"));
            }
            Value::Scalar(it) => self.line(&format!("{node} {}", scalar(it))),
            Value::Bad => self.line(&node),
            Value::Map(entries) if entries.is_empty() => self.line(&format!("{node} {{}}")),
            Value::Map(entries) => {
                // Nodes that are all called `-` would be taken for a list.
                let is_like_list = entries.iter().all(|entry| entry.key == ITEM);
                let head = if is_like_list { format!("({MAP}){node}") } else { node };
                self.block(&head, |writer| {
                    for entry in entries {
                        writer.any(&entry.key, &entry.value);
                    }
                });
            }
            Value::List(items) => self.list(&node, items),
        }
    }

    fn list(&mut self, node: &str, items: &[Tree<'_>]) {
        let line = short_scalars(items).map(|scalars| {
            // One value alone would be no list.
            let head = if scalars.len() < 2 { format!("({LIST}){node}") } else { node.to_owned() };
            scalars.into_iter().fold(head, |line, item| line + " " + &scalar(item))
        });
        match line.filter(|line| 4 * self.depth + line.len() <= WIDTH) {
            Some(line) => self.line(&line),
            None => {
                self.block(node, |writer| items.iter().for_each(|item| writer.any(ITEM, item)));
            }
        }
    }

    /// Several lines between triple quotes, indented like what stands around them.
    fn lines(&self, text: &str) -> String {
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

/// The entry on one line, if all its fields are short scalars and there are only a few.
fn properties<'t, 's: 't>(
    map: &Map,
    head: &str,
    entries: impl Iterator<Item = &'t Entry<'s>>,
) -> Option<String> {
    let mut line = head.to_owned();
    for entry in entries {
        let Value::Scalar(value) = &entry.value.value else { return None };
        // A job or an action is read better with a line for each of its fields.
        let is_simple = !value.text.contains('\n') && map.find(&entry.key).is_some();
        if !is_simple || matches!(map.what, "job" | "action") {
            return None;
        }
        line.extend([" ", &word(&entry.key), "=", &scalar(value)]);
    }
    Some(line)
}

/// Several lines that come back as they are: of blanks alone there may be none.
fn is_lines(text: &str) -> bool {
    is_block_text(text) && text.split('\n').all(|line| line.is_empty() || !line.trim().is_empty())
}

/// So many hashes that nothing in the text ends a raw string.
fn raw_hashes(text: &str) -> String {
    let longest = text.split('"').skip(1).map(|rest| rest.bytes().take_while(|b| *b == b'#').count());
    "#".repeat(longest.max().unwrap_or(0) + 1)
}

pub(super) fn scalar(scalar: &Scalar<'_>) -> String {
    match scalar.meaning() {
        Meaning::Number => scalar.text.clone().into_owned(),
        Meaning::Text => quoted(&scalar.text),
        Meaning::Null | Meaning::Boolean(_) => format!("#{}", literal(scalar).unwrap_or("null")),
    }
}

/// The name of a node or property.
pub(super) fn word(text: &str) -> String {
    if is_bare_word(text) || text == ITEM { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let is_printable = !text.contains(super::is_invisible);
    // Two quotes at the start would make three with the one that opens, which is another sort of string.
    if is_printable && text.contains('\\') && !text.starts_with("\"\"") {
        let hashes = raw_hashes(text);
        return format!("{hashes}\"{text}\"{hashes}");
    }
    quoted_with(text, |out, code| write!(out, "\\u{{{code:x}}}").unwrap_or_default())
}
