//! KDL, version 2: a node for each field, and for each entry of a list of maps one with its name.

use super::{WIDTH, is_block_text, literal, quoted_with, short_scalars};
use crate::event::{Meaning, Scalar};
use crate::kdl::shape::{Field, Form, Kind, WORKFLOW};
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

    fn fields<'t, 's: 't>(&mut self, kind: &Kind, entries: impl Iterator<Item = &'t Entry<'s>>) {
        for entry in entries {
            match kind.field_of_key(&entry.key) {
                Some(field) => self.field(field, &entry.value),
                None => self.any(&entry.key, &entry.value),
            }
        }
    }

    fn field(&mut self, field: &Field, value: &Tree<'_>) {
        let node = field.nodes[0];
        match (field.form, &value.value) {
            (Form::Entries(kind), Value::List(items)) => {
                for item in items {
                    self.entry(kind, node, item.entries());
                }
            }
            (Form::Map(kind), Value::Map(entries)) => {
                self.block(node, |writer| writer.fields(kind, entries.iter()));
            }
            (Form::Texts | Form::Numbers, Value::List(items)) => self.texts(node, items),
            _ => self.any(node, value),
        }
    }

    /// Values in one node while they fit, else a node for each.
    fn texts(&mut self, node: &str, items: &[Tree<'_>]) {
        let line = short_scalars(items)
            .map(|items| items.into_iter().fold(node.to_owned(), |line, item| line + " " + &scalar(item)));
        match line.filter(|line| 4 * self.depth + line.len() <= WIDTH) {
            Some(line) => self.line(&line),
            None => items.iter().for_each(|item| self.any(node, item)),
        }
    }

    /// A map with known fields and perhaps a name.
    fn entry(&mut self, kind: &Kind, node: &str, entries: &[Entry<'_>]) {
        let name = entries.iter().find(|entry| kind.has_name && entry.key == "name");
        let mut head = node.to_owned();
        if let Some(Value::Scalar(name)) = name.map(|entry| &entry.value.value) {
            head.push(' ');
            head.push_str(&name_scalar(name));
        }
        let rest = || entries.iter().filter(|entry| !(kind.has_name && entry.key == "name"));
        if let Some(line) =
            properties(kind, &head, rest()).filter(|line| 4 * self.depth + line.len() <= WIDTH)
        {
            self.line(&line);
            return;
        }
        self.block(&head, |writer| writer.fields(kind, rest()));
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
    kind: &Kind,
    head: &str,
    entries: impl Iterator<Item = &'t Entry<'s>>,
) -> Option<String> {
    let mut line = head.to_owned();
    for entry in entries {
        let Value::Scalar(value) = &entry.value.value else { return None };
        let is_simple = !value.text.contains('\n') && kind.field_of_key(&entry.key).is_some();
        if !is_simple || kind.what == "job" || kind.what == "action" {
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

/// Names are quoted also where they need not be: that is how people write them.
fn name_scalar(name: &Scalar<'_>) -> String {
    scalar(name)
}

/// The name of a node or property.
pub(super) fn word(text: &str) -> String {
    if is_bare_word(text) || text == ITEM { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let is_printable = !text.contains(super::is_invisible);
    if is_printable && text.contains('\\') {
        let hashes = raw_hashes(text);
        return format!("{hashes}\"{text}\"{hashes}");
    }
    quoted_with(text, |out, code| write!(out, "\\u{{{code:x}}}").unwrap_or_default())
}
