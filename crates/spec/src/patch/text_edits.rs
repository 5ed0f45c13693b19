//! Places new fields and entries in the text, in the style of their neighbors.

use crate::event::ScalarText;
use crate::format::SpecFormat;
use crate::source::SourceSpan;
use crate::tree::{DocumentTree, TreeEntry, TreeValue};
use crate::writer;

/// The text of a spec that is being edited.
#[derive(Clone, Copy)]
pub(super) struct EditedText<'t> {
    pub(super) source: &'t str,
    pub(super) format: SpecFormat,
}

/// The replacement of a part of the text.
#[derive(Clone, Debug)]
pub(super) struct TextSplice {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) new: String,
}

/// Returns the text with all splices, which must not overlap.
pub(super) fn apply_splices(source: &str, mut splices: Vec<TextSplice>) -> String {
    splices.sort_by_key(|splice| splice.start);
    let added: usize = splices.iter().map(|splice| splice.new.len()).sum();
    let mut text = String::with_capacity(source.len() + added);
    let mut done = 0;
    for splice in &splices {
        text.push_str(&source[done..splice.start]);
        text.push_str(&splice.new);
        done = splice.end;
    }
    text.push_str(&source[done..]);
    text
}

impl EditedText<'_> {
    #[expect(clippy::unused_self, reason = "beside its like")]
    pub(super) fn splice(&self, start: usize, end: usize, new: &str) -> TextSplice {
        TextSplice { start, end, new: new.to_owned() }
    }

    pub(super) fn insert_at(&self, at: usize, new: &str) -> TextSplice {
        self.splice(at, at, new)
    }

    /// Adds a field to an entry.
    pub(super) fn insert_field(
        &self,
        item: &DocumentTree<'_>,
        field: &str,
        value: &ScalarText<'_>,
    ) -> TextSplice {
        let pair = self.render_pair(field, value);
        // After the last field that is alone on its line, on a separate line.
        let own_line = item.entries().iter().rev().find(|entry| self.has_own_line(entry));
        let is_in_braces = self.is_bracketed(item);
        if let Some(entry) = own_line
            && (self.format != SpecFormat::Kdl || is_in_braces)
        {
            return self.insert_line_after_entry(entry, item, &pair);
        }
        if self.format == SpecFormat::Kdl {
            let name = item.get("name").map_or(item.span, |name| name.span);
            let property = format!(
                " {}={}",
                writer::render_key(field, self.format),
                writer::render_scalar(value, self.format)
            );
            return self.insert_at(name.end as usize, &property);
        }
        let last = item.entries().last().map_or(item.span.end as usize, |entry| self.value_end(&entry.value));
        self.insert_at(last, &format!(", {pair}"))
    }

    /// Adds an entry to a list.
    pub(super) fn insert_entry(
        &self,
        list: &DocumentTree<'_>,
        key: &str,
        name: &str,
        field: &str,
        value: &ScalarText<'_>,
    ) -> Result<TextSplice, &'static str> {
        let Some(last) = list.items().last() else { return Err("the list is empty") };
        let end = self.value_end(last);
        let is_tables = self.format == SpecFormat::Toml && !self.is_bracketed(last);
        if is_tables || self.format == SpecFormat::Kdl {
            return Ok(self.insert_line_after(end, &self.render_whole_entry(key, name, field, value)));
        }
        let fields = [self.render_pair("name", &plain_scalar(name)), self.render_pair(field, value)];
        let start = last.entries().first().map_or(last.span.start, |entry| entry.key_span.start) as usize;
        if self.format == SpecFormat::Yaml && !self.is_bracketed(list) {
            let dash = self.source[..start].rfind('-').ok_or("the list has an unusual layout")?;
            let indent = self.indent(dash);
            let item = if self.is_bracketed(last) {
                format!("{indent}- {{{}}}", fields.join(", "))
            } else {
                let inner = " ".repeat(start - self.line_start(start) - indent.len() - 1);
                format!("{indent}-{inner}{}{}{indent} {inner}{}", fields[0], self.line_break(), fields[1])
            };
            return Ok(self.insert_line_after(end, &item));
        }
        let item = match self.format {
            SpecFormat::Toml => format!("{{ {} }}", fields.join(", ")),
            _ => format!("{{{}}}", fields.join(", ")),
        };
        let open = last.span.start as usize;
        let has_own_line = self.source[self.line_start(open)..open].trim().is_empty();
        let separator = if has_own_line {
            format!(",{}{}", self.line_break(), self.indent(open))
        } else {
            ", ".to_owned()
        };
        Ok(self.insert_at(end, &format!("{separator}{item}")))
    }

    /// Adds a list with one entry to the document.
    pub(super) fn insert_list(
        &self,
        root: &DocumentTree<'_>,
        key: &str,
        name: &str,
        field: &str,
        value: &ScalarText<'_>,
    ) -> TextSplice {
        if self.is_bracketed(root) {
            let fields =
                [self.render_pair("name", &plain_scalar(name)), self.render_pair(field, value)].join(", ");
            let list = format!("{}: [{{{fields}}}]", writer::render_key(key, self.format));
            return match root.entries().last() {
                Some(entry) if self.has_own_line(entry) => self.insert_line_after_entry(entry, root, &list),
                Some(entry) => self.insert_at(self.value_end(&entry.value), &format!(", {list}")),
                None => self.insert_at(root.span.end as usize, &list),
            };
        }
        let line_break = self.line_break();
        let entry = match self.format {
            SpecFormat::Yaml => {
                let fields = [self.render_pair("name", &plain_scalar(name)), self.render_pair(field, value)];
                format!("{key}:{line_break}  - {}{line_break}    {}", fields[0], fields[1])
            }
            _ => self.render_whole_entry(key, name, field, value),
        };
        let ends_line = self.source.is_empty() || self.source.ends_with('\n');
        let before = if ends_line { "" } else { line_break };
        self.insert_at(self.source.len(), &format!("{before}{entry}{line_break}"))
    }

    /// Writes a separate entry: a table with its header, or a node.
    fn render_whole_entry(&self, key: &str, name: &str, field: &str, value: &ScalarText<'_>) -> String {
        let line_break = self.line_break();
        if self.format == SpecFormat::Toml {
            let fields = [self.render_pair("name", &plain_scalar(name)), self.render_pair(field, value)]
                .join(line_break);
            return format!("{line_break}[[{}]]{line_break}{fields}", writer::render_key(key, self.format));
        }
        let node = crate::decode::tables::WORKFLOW
            .find_field(key)
            .map_or(key, |(index, _)| crate::decode::tables::WORKFLOW.fields[index].kdl_node());
        let name = writer::render_scalar(&plain_scalar(name), self.format);
        format!(
            "{node} {name} {}={}",
            writer::render_key(field, self.format),
            writer::render_scalar(value, self.format)
        )
    }

    /// Writes `field: value` in the syntax of the format.
    fn render_pair(&self, field: &str, value: &ScalarText<'_>) -> String {
        let separator = match self.format {
            SpecFormat::Yaml | SpecFormat::Json | SpecFormat::Json5 => ": ",
            SpecFormat::Toml => " = ",
            SpecFormat::Kdl => " ",
        };
        format!(
            "{}{separator}{}",
            writer::render_key(field, self.format),
            writer::render_scalar(value, self.format)
        )
    }

    /// Inserts `pair` on a separate line after that of `entry`, with the commas that the format requires.
    fn insert_line_after_entry(
        &self,
        entry: &TreeEntry<'_>,
        item: &DocumentTree<'_>,
        pair: &str,
    ) -> TextSplice {
        let indent = self.indent_of_key(entry);
        let wants_commas = matches!(self.format, SpecFormat::Json | SpecFormat::Json5)
            || (self.format != SpecFormat::Kdl && self.is_bracketed(item));
        let end = self.value_end(&entry.value);
        if !wants_commas {
            return self.insert_line_after(end, &format!("{indent}{pair}"));
        }
        let behind = &self.source[end..];
        let comma = behind.find(|c: char| !c.is_whitespace()).filter(|at| behind[*at..].starts_with(','));
        match comma {
            // After the comma, and after a comment that may follow it.
            Some(comma) => {
                let is_last = item.entries().last().is_some_and(|last| last.key_span == entry.key_span);
                let at = self.line_end(end + comma);
                let is_alone = is_last || self.source[end + comma + 1..at].trim_start().is_empty();
                if is_alone || self.source[end + comma + 1..at].trim_start().starts_with("//") {
                    return self.insert_at(at, &format!("{}{indent}{pair},", self.line_break()));
                }
                self.insert_at(end, &format!(", {pair}"))
            }
            None => self.insert_at(end, &format!(",{}{indent}{pair}", self.line_break())),
        }
    }

    /// Inserts a line after the one that contains the end of an element.
    pub(super) fn insert_line_after(&self, end: usize, line: &str) -> TextSplice {
        let at = self.line_end(end);
        self.insert_at(at, &format!("{}{line}", self.line_break()))
    }

    /// Whether a field is alone on its line: it begins there, or after a `-`, and its value ends there.
    fn has_own_line(&self, entry: &TreeEntry<'_>) -> bool {
        let TreeValue::Scalar(scalar) = &entry.value.value else { return false };
        let start = entry.key_span.start as usize;
        let before = self.source[self.line_start(start)..start].trim_start();
        let is_first = before.is_empty() || (self.format == SpecFormat::Yaml && before.trim_end() == "-");
        let end = self.value_end(&entry.value);
        let behind = self.source[end..self.line_end(end)].trim_start();
        let behind = behind.strip_prefix([',', ';']).unwrap_or(behind).trim_start();
        let is_last = behind.is_empty() || behind.starts_with('#') || behind.starts_with("//");
        is_first && is_last && !scalar.text.contains('\n') && self.line_start(end) == self.line_start(start)
    }

    pub(super) fn indent_of_key(&self, entry: &TreeEntry<'_>) -> String {
        let start = entry.key_span.start as usize;
        let before = &self.source[self.line_start(start)..start];
        before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect()
    }

    /// Returns the blanks at the beginning of a line.
    pub(super) fn indent(&self, at: usize) -> String {
        let line = &self.source[self.line_start(at)..at];
        line[..line.len() - line.trim_start().len()].to_owned()
    }

    pub(super) fn line_start(&self, at: usize) -> usize {
        self.source[..at].rfind('\n').map_or(0, |place| place + 1)
    }

    /// The end of a line, before the line break.
    pub(super) fn line_end(&self, at: usize) -> usize {
        let end = self.source[at..].find('\n').map_or(self.source.len(), |length| at + length);
        if self.source[at..end].ends_with('\r') { end - 1 } else { end }
    }

    pub(super) fn line_break(&self) -> &'static str {
        if self.source.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// Whether a value has its own brackets.
    pub(super) fn is_bracketed(&self, tree: &DocumentTree<'_>) -> bool {
        is_bracket(self.source, tree.close)
    }

    /// Returns the end of a value.
    pub(super) fn value_end(&self, tree: &DocumentTree<'_>) -> usize {
        if self.is_bracketed(tree) {
            return tree.close.end as usize;
        }
        let inside = match &tree.value {
            TreeValue::Map(entries) => entries.iter().map(|entry| self.value_end(&entry.value)).max(),
            TreeValue::List(items) => items.iter().map(|item| self.value_end(item)).max(),
            TreeValue::Scalar(_) | TreeValue::Bad => None,
        };
        let own = match tree.value {
            // A KDL node without braces ends with its last word.
            TreeValue::Map(_) if self.format == SpecFormat::Kdl => tree.close.end,
            _ => tree.span.end,
        };
        inside.unwrap_or(0).max(own as usize)
    }
}

fn is_bracket(source: &str, span: SourceSpan) -> bool {
    matches!(source.get(span.start as usize..span.end as usize), Some("}" | "]"))
}

fn plain_scalar(text: &str) -> ScalarText<'_> {
    ScalarText { text: text.into(), is_plain: false }
}
