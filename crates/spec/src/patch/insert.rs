//! Where new fields and entries go, and in what style: that of their neighbours.

use crate::event::Scalar;
use crate::format::Format;
use crate::source::Span;
use crate::tree::{Entry, Tree, Value};
use crate::write;

/// A spec's text that is being edited.
#[derive(Clone, Copy)]
pub(super) struct Text<'t> {
    pub(super) source: &'t str,
    pub(super) format: Format,
}

/// What comes in place of a piece of the text.
#[derive(Clone, Debug)]
pub(super) struct Splice {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) new: String,
}

/// The text with all of them, none of which may overlap.
pub(super) fn with_all(source: &str, mut splices: Vec<Splice>) -> String {
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

impl Text<'_> {
    #[expect(clippy::unused_self, reason = "beside its like")]
    pub(super) fn spliced(&self, start: usize, end: usize, new: &str) -> Splice {
        Splice { start, end, new: new.to_owned() }
    }

    pub(super) fn inserted(&self, at: usize, new: &str) -> Splice {
        self.spliced(at, at, new)
    }

    /// A field added to an entry.
    pub(super) fn with_field(&self, item: &Tree<'_>, field: &str, value: &Scalar<'_>) -> Splice {
        let pair = self.pair(field, value);
        // Behind the last field that stands alone on its line, in a line of its own.
        let own_line = item.entries().iter().rev().find(|entry| self.has_own_line(entry));
        let is_in_braces = self.is_bracketed(item);
        if let Some(entry) = own_line
            && (self.format != Format::Kdl || is_in_braces)
        {
            return self.with_line_behind(entry, item, &pair);
        }
        if self.format == Format::Kdl {
            let name = item.get("name").map_or(item.span, |name| name.span);
            let property =
                format!(" {}={}", write::key(field, self.format), write::scalar(value, self.format));
            return self.inserted(name.end as usize, &property);
        }
        let last = item.entries().last().map_or(item.span.end as usize, |entry| self.end(&entry.value));
        self.inserted(last, &format!(", {pair}"))
    }

    /// An entry added to a list.
    pub(super) fn with_entry(
        &self,
        list: &Tree<'_>,
        key: &str,
        name: &str,
        field: &str,
        value: &Scalar<'_>,
    ) -> Result<Splice, &'static str> {
        let Some(last) = list.items().last() else { return Err("the list is empty") };
        let end = self.end(last);
        let is_tables = self.format == Format::Toml && !self.is_bracketed(last);
        if is_tables || self.format == Format::Kdl {
            return Ok(self.with_line_at(end, &self.whole_entry(key, name, field, value)));
        }
        let fields = [self.pair("name", &text(name)), self.pair(field, value)];
        let start = last.entries().first().map_or(last.span.start, |entry| entry.key_span.start) as usize;
        if self.format == Format::Yaml && !self.is_bracketed(list) {
            let dash = self.source[..start].rfind('-').ok_or("the list has an unusual layout")?;
            let indent = self.indent(dash);
            let item = if self.is_bracketed(last) {
                format!("{indent}- {{{}}}", fields.join(", "))
            } else {
                let inner = " ".repeat(start - self.line_start(start) - indent.len() - 1);
                format!("{indent}-{inner}{}{}{indent} {inner}{}", fields[0], self.line_break(), fields[1])
            };
            return Ok(self.with_line_at(end, &item));
        }
        let item = match self.format {
            Format::Toml => format!("{{ {} }}", fields.join(", ")),
            _ => format!("{{{}}}", fields.join(", ")),
        };
        let open = last.span.start as usize;
        let has_own_line = self.source[self.line_start(open)..open].trim().is_empty();
        let separator = if has_own_line {
            format!(",{}{}", self.line_break(), self.indent(open))
        } else {
            ", ".to_owned()
        };
        Ok(self.inserted(end, &format!("{separator}{item}")))
    }

    /// A list with one entry added to the document.
    pub(super) fn with_list(
        &self,
        root: &Tree<'_>,
        key: &str,
        name: &str,
        field: &str,
        value: &Scalar<'_>,
    ) -> Splice {
        if self.is_bracketed(root) {
            let fields = [self.pair("name", &text(name)), self.pair(field, value)].join(", ");
            let list = format!("{}: [{{{fields}}}]", write::key(key, self.format));
            return match root.entries().last() {
                Some(entry) if self.has_own_line(entry) => self.with_line_behind(entry, root, &list),
                Some(entry) => self.inserted(self.end(&entry.value), &format!(", {list}")),
                None => self.inserted(root.span.end as usize, &list),
            };
        }
        let line_break = self.line_break();
        let entry = match self.format {
            Format::Yaml => {
                let fields = [self.pair("name", &text(name)), self.pair(field, value)];
                format!("{key}:{line_break}  - {}{line_break}    {}", fields[0], fields[1])
            }
            _ => self.whole_entry(key, name, field, value),
        };
        let ends_line = self.source.is_empty() || self.source.ends_with('\n');
        let before = if ends_line { "" } else { line_break };
        self.inserted(self.source.len(), &format!("{before}{entry}{line_break}"))
    }

    /// An entry that stands for itself: a table with its header, or a node.
    fn whole_entry(&self, key: &str, name: &str, field: &str, value: &Scalar<'_>) -> String {
        let line_break = self.line_break();
        if self.format == Format::Toml {
            let fields = [self.pair("name", &text(name)), self.pair(field, value)].join(line_break);
            return format!("{line_break}[[{}]]{line_break}{fields}", write::key(key, self.format));
        }
        let node = crate::decode::tables::WORKFLOW
            .find(key)
            .map_or(key, |(index, _)| crate::decode::tables::WORKFLOW.fields[index].kdl_node());
        let name = write::scalar(&text(name), self.format);
        format!("{node} {name} {}={}", write::key(field, self.format), write::scalar(value, self.format))
    }

    /// `field: value` as the format writes it.
    fn pair(&self, field: &str, value: &Scalar<'_>) -> String {
        let separator = match self.format {
            Format::Yaml | Format::Json | Format::Json5 => ": ",
            Format::Toml => " = ",
            Format::Kdl => " ",
        };
        format!("{}{separator}{}", write::key(field, self.format), write::scalar(value, self.format))
    }

    /// `pair` in a line of its own behind that of `entry`, with the commas that the format wants.
    fn with_line_behind(&self, entry: &Entry<'_>, item: &Tree<'_>, pair: &str) -> Splice {
        let indent = self.indent_of_key(entry);
        let wants_commas = matches!(self.format, Format::Json | Format::Json5)
            || (self.format != Format::Kdl && self.is_bracketed(item));
        let end = self.end(&entry.value);
        if !wants_commas {
            return self.with_line_at(end, &format!("{indent}{pair}"));
        }
        let behind = &self.source[end..];
        let comma = behind.find(|c: char| !c.is_whitespace()).filter(|at| behind[*at..].starts_with(','));
        match comma {
            // Behind the comma, and behind a comment that may follow it.
            Some(comma) => {
                let is_last = item.entries().last().is_some_and(|last| last.key_span == entry.key_span);
                let at = self.line_end(end + comma);
                let is_alone = is_last || self.source[end + comma + 1..at].trim_start().is_empty();
                if is_alone || self.source[end + comma + 1..at].trim_start().starts_with("//") {
                    return self.inserted(at, &format!("{}{indent}{pair},", self.line_break()));
                }
                self.inserted(end, &format!(", {pair}"))
            }
            None => self.inserted(end, &format!(",{}{indent}{pair}", self.line_break())),
        }
    }

    /// A line behind the one that holds the end of something.
    pub(super) fn with_line_at(&self, end: usize, line: &str) -> Splice {
        let at = self.line_end(end);
        self.inserted(at, &format!("{}{line}", self.line_break()))
    }

    /// Nothing else stands in the line of a field: it begins there, or behind a `-`, and its value ends there.
    fn has_own_line(&self, entry: &Entry<'_>) -> bool {
        let Value::Scalar(scalar) = &entry.value.value else { return false };
        let start = entry.key_span.start as usize;
        let before = self.source[self.line_start(start)..start].trim_start();
        let is_first = before.is_empty() || (self.format == Format::Yaml && before.trim_end() == "-");
        let end = self.end(&entry.value);
        let behind = self.source[end..self.line_end(end)].trim_start();
        let behind = behind.strip_prefix([',', ';']).unwrap_or(behind).trim_start();
        let is_last = behind.is_empty() || behind.starts_with('#') || behind.starts_with("//");
        is_first && is_last && !scalar.text.contains('\n') && self.line_start(end) == self.line_start(start)
    }

    pub(super) fn indent_of_key(&self, entry: &Entry<'_>) -> String {
        let start = entry.key_span.start as usize;
        let before = &self.source[self.line_start(start)..start];
        before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect()
    }

    /// The blanks at the beginning of a line.
    pub(super) fn indent(&self, at: usize) -> String {
        let line = &self.source[self.line_start(at)..at];
        line[..line.len() - line.trim_start().len()].to_owned()
    }

    pub(super) fn line_start(&self, at: usize) -> usize {
        self.source[..at].rfind('\n').map_or(0, |place| place + 1)
    }

    /// Before the line break.
    pub(super) fn line_end(&self, at: usize) -> usize {
        let end = self.source[at..].find('\n').map_or(self.source.len(), |length| at + length);
        if self.source[at..end].ends_with('\r') { end - 1 } else { end }
    }

    pub(super) fn line_break(&self) -> &'static str {
        if self.source.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// Stands between brackets of its own.
    pub(super) fn is_bracketed(&self, tree: &Tree<'_>) -> bool {
        is_bracket(self.source, tree.close)
    }

    /// Where a value ends.
    pub(super) fn end(&self, tree: &Tree<'_>) -> usize {
        if self.is_bracketed(tree) {
            return tree.close.end as usize;
        }
        let inside = match &tree.value {
            Value::Map(entries) => entries.iter().map(|entry| self.end(&entry.value)).max(),
            Value::List(items) => items.iter().map(|item| self.end(item)).max(),
            Value::Scalar(_) | Value::Bad => None,
        };
        let own = match tree.value {
            // What closes a node of KDL without braces is its last word.
            Value::Map(_) if self.format == Format::Kdl => tree.close.end,
            _ => tree.span.end,
        };
        inside.unwrap_or(0).max(own as usize)
    }
}

fn is_bracket(source: &str, span: Span) -> bool {
    matches!(source.get(span.start as usize..span.end as usize), Some("}" | "]"))
}

fn text(text: &str) -> Scalar<'_> {
    Scalar { text: text.into(), plain: false }
}
