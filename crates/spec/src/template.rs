//! Texts with `{name}` placeholders: parsed once, rendered once per job.
//!
//! A *placeholder* is a brace pair around exactly a name, or a name and a format: `{i}`, `{i:03d}`, `{x:.4f}`,
//! `{x:q}`. All other braces belong to the shell and are kept. Where values exist, `{{name}}` of a name without a
//! value is the text `{name}`. Used by spec files and by `exec`.

use crate::parameters::{ParameterValue, StoredParameterValue, parse_number};
use std::fmt::Write as _;
use std::ops::Range;

/// A placeholder in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplatePlaceholder<'t> {
    /// Including the braces.
    pub range: Range<usize>,
    pub name: &'t str,
    /// The format after the colon.
    pub format: Option<&'t str>,
    /// `${name}`: a shell variable.
    pub after_dollar: bool,
    /// `{{name}}`: the text `{name}`, or syntax of another template language.
    pub is_doubled: bool,
}

impl TemplatePlaceholder<'_> {
    /// The outer braces of `{{name}}`, which is the text `{name}` if there is no value of that name.
    /// `${{name}}` is kept.
    pub fn escape_range(&self, text: &str) -> Option<Range<usize>> {
        let outer = self.range.start.checked_sub(1)?..self.range.end + 1;
        (self.is_doubled && !text[..outer.start].ends_with('$')).then_some(outer)
    }

    /// Whether this is certainly meant as a placeholder: `{key:value}` may be anything, `{i:03d}` may not.
    pub fn is_unmistakable(&self) -> bool {
        let is_format = |format: &str| {
            let end = format.trim_start_matches(|c: char| c.is_ascii_digit() || ".<>^+-# ".contains(c));
            end.len() <= 1 && end.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'%')
        };
        !self.after_dollar && !self.is_doubled && self.format.is_none_or(is_format)
    }
}

/// Returns all placeholders of a text, in order.
pub fn find_placeholders(text: &str) -> impl Iterator<Item = TemplatePlaceholder<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let open = from + text[from..].find('{')?;
            from = open + 1;
            if let Some(placeholder) = parse_placeholder(text, open) {
                from = placeholder.range.end;
                return Some(placeholder);
            }
        }
    })
}

fn parse_placeholder(text: &str, open: usize) -> Option<TemplatePlaceholder<'_>> {
    let length = text[open + 1..].find(['{', '}']).filter(|at| text.as_bytes()[open + 1 + at] == b'}')?;
    let inside = &text[open + 1..open + 1 + length];
    let (name, format) = inside.split_once(':').map_or((inside, None), |(name, format)| (name, Some(format)));
    let end = open + length + 2;
    is_valid_name(name).then(|| TemplatePlaceholder {
        range: open..end,
        name,
        format,
        after_dollar: text[..open].ends_with('$'),
        is_doubled: text[..open].ends_with('{') && text[end..].starts_with('}'),
    })
}

/// Whether a name consists of letters, digits and `_`, and does not begin with a digit.
pub fn is_valid_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The format of an inserted value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaceholderFormat {
    #[default]
    Plain,
    /// `{i:03d}`: an integer, padded with zeros to this width.
    Padded(usize),
    /// `{x:.4f}`: a number with this many decimal places.
    Precise(usize),
    /// `{x:q}`: quoted as one word for a shell.
    Quoted,
}

impl PlaceholderFormat {
    /// Maximum width and number of decimal places: more than any reasonable number, too few to fill a disk.
    const MAX_WIDTH: usize = 100;

    /// Returns `None` for an unknown format.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str| {
            let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|width| all_digits && *width <= Self::MAX_WIDTH)
        };
        if text == "q" {
            return Some(Self::Quoted);
        }
        if let Some(width) = text.strip_prefix('0').and_then(|rest| rest.strip_suffix('d')) {
            return digits(width).map(Self::Padded);
        }
        let precision = text.strip_prefix('.')?.strip_suffix('f')?;
        digits(precision).map(Self::Precise)
    }

    /// Appends the value. Values that are not numbers are inserted unchanged by number formats.
    pub fn write_value(self, value: ParameterValue<'_>, out: &mut String) {
        // Text in the form of a number counts as a number here: it may come from a table, or be quoted.
        let number = match (self, value) {
            (Self::Padded(_) | Self::Precise(_), ParameterValue::Text(text)) => {
                // `007` is text to keep its zeros, but the number 7 for a number format.
                let significant = text.trim_start_matches('0');
                if significant.is_empty() {
                    parse_number(&text[..text.len().min(1)])
                } else {
                    parse_number(significant)
                }
            }
            _ => None,
        };
        let value = number.as_ref().map_or(value, StoredParameterValue::get);
        let written = match (self, value) {
            (Self::Padded(width), ParameterValue::Integer(number)) => write!(out, "{number:0width$}"),
            (Self::Precise(digits), ParameterValue::Float(number)) => write!(out, "{number:.digits$}"),
            (Self::Precise(digits), ParameterValue::Integer(number)) => {
                write!(out, "{:.digits$}", number as f64)
            }
            (Self::Quoted, ParameterValue::Text(text)) => {
                quote_shell_word(text, out);
                Ok(())
            }
            (Self::Quoted, value) => write!(out, "'{value}'"),
            (Self::Plain | Self::Padded(_) | Self::Precise(_), value) => write!(out, "{value}"),
        };
        // Writing to a string cannot fail.
        debug_assert!(written.is_ok());
    }
}

/// Appends `text` quoted as one word for `/bin/sh`.
pub fn quote_shell_word(text: &str, out: &mut String) {
    out.push('\'');
    for (index, part) in text.split('\'').enumerate() {
        if index > 0 {
            out.push_str(r"'\''");
        }
        out.push_str(part);
    }
    out.push('\'');
}

/// A parsed text: rendering allocates only its output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextTemplate {
    /// The constant parts, concatenated.
    text: Box<str>,
    pieces: Box<[TemplatePiece]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text {
        start: u32,
        end: u32,
    },
    /// The number of a parameter.
    Value {
        parameter: u32,
        format: PlaceholderFormat,
    },
    /// The number of a value that the owner of the template inserts.
    Reference(u32),
}

impl TextTemplate {
    /// Whether there are no placeholders.
    pub(crate) fn from_text(text: &str) -> Self {
        let mut builder = TemplateBuilder::default();
        builder.push_text(text);
        builder.finish()
    }

    /// Appends the text with all values inserted.
    pub(crate) fn render<'v>(
        &self,
        out: &mut String,
        value: impl Fn(u32) -> ParameterValue<'v>,
        mut reference: impl FnMut(u32, &mut String),
    ) {
        for piece in &self.pieces {
            match *piece {
                TemplatePiece::Text { start, end } => out.push_str(&self.text[start as usize..end as usize]),
                TemplatePiece::Value { parameter, format } => format.write_value(value(parameter), out),
                TemplatePiece::Reference(number) => reference(number, out),
            }
        }
    }

    /// Whether the text may differ between jobs of one entry.
    pub(crate) fn has_values(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, TemplatePiece::Value { .. }))
    }

    /// Bit set of the first 64 parameters that it uses.
    pub(crate) fn parameters(&self) -> u64 {
        let bit = |piece: &TemplatePiece| match piece {
            TemplatePiece::Value { parameter, .. } => 1u64.checked_shl(*parameter).unwrap_or(0),
            _ => 0,
        };
        self.pieces.iter().map(bit).fold(0, |all, bit| all | bit)
    }

    /// Returns the text, if it has no placeholders.
    pub(crate) fn as_constant(&self) -> Option<&str> {
        match *self.pieces {
            [] => Some(""),
            [TemplatePiece::Text { start, end }] => Some(&self.text[start as usize..end as usize]),
            _ => None,
        }
    }
}

/// Builds a template.
#[derive(Debug, Default)]
pub(crate) struct TemplateBuilder {
    text: String,
    pieces: Vec<TemplatePiece>,
}

impl TemplateBuilder {
    pub(crate) fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        let now = self.text.len() as u32;
        match self.pieces.last_mut() {
            Some(TemplatePiece::Text { end, .. }) => *end = now,
            _ => self.pieces.push(TemplatePiece::Text { start: now - text.len() as u32, end: now }),
        }
    }

    pub(crate) fn push_value(&mut self, parameter: u32, format: PlaceholderFormat) {
        self.pieces.push(TemplatePiece::Value { parameter, format });
    }

    pub(crate) fn push_reference(&mut self, number: u32) {
        self.pieces.push(TemplatePiece::Reference(number));
    }

    pub(crate) fn finish(self) -> TextTemplate {
        TextTemplate { text: self.text.into(), pieces: self.pieces.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        find_placeholders(text).map(|placeholder| text[placeholder.range].to_owned()).collect()
    }

    #[test]
    fn placeholders_are_braces_around_a_name() {
        for (text, expected) in [
            ("sim {i} {x:.4f}{_a1}", vec!["{i}", "{x:.4f}", "{_a1}"]),
            ("{} {a,b} {print $1} { i } {1} {a b} {a-b} {", vec![]),
            ("{{i}} ${i} {a{i}b}", vec!["{i}", "{i}", "{i}"]),
            ("ü{i}ü", vec!["{i}"]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn unmistakable_placeholders_are_recognized() {
        let sure = |text: &str| {
            find_placeholders(text).next().is_some_and(|placeholder| placeholder.is_unmistakable())
        };
        for text in ["{i}", "{i:03d}", "{x:.4f}", "{x:q}", "{x:>8}", "{x:e}", "{x:}"] {
            assert!(sure(text), "{text}");
        }
        for text in ["${i}", "{{i}}", "{key:value}", "{a:1,b:2}"] {
            assert!(!sure(text), "{text}");
        }
    }

    #[test]
    fn placeholder_formats_are_applied() {
        let put = |format: &str, value| {
            let mut out = String::new();
            PlaceholderFormat::parse(format).unwrap_or_default().write_value(value, &mut out);
            out
        };
        let (integer, float, text) = (ParameterValue::Integer, ParameterValue::Float, ParameterValue::Text);
        for (format, value, expected) in [
            ("03d", integer(7), "007"),
            ("03d", integer(-7), "-07"),
            ("03d", integer(12345), "12345"),
            ("03d", float(1.5), "1.5"),
            ("03d", text("x"), "x"),
            ("03d", text("7"), "007"),
            ("05d", text("007"), "00007"),
            ("03d", text("0"), "000"),
            ("03d", text(""), ""),
            (".2f", float(0.1), "0.10"),
            (".0f", float(2.5), "2"),
            (".2f", integer(3), "3.00"),
            (".2f", text("1.1"), "1.10"),
            ("q", text("it's"), r"'it'\''s'"),
            ("q", text(""), "''"),
            ("q", integer(7), "'7'"),
            ("x", integer(255), "255"),
            ("3d", integer(7), "7"),
        ] {
            assert_eq!(put(format, value), expected, "{format} {value}");
        }
        for unknown in ["x", "3d", "d", "0d", ".f", "f", "0999d", ".+2f", "", "qq"] {
            assert_eq!(PlaceholderFormat::parse(unknown), None, "{unknown}");
        }
    }
}
