//! Strings of JSON and JSON5.

use super::JsonReader;
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::StopReading;
use crate::source::SourceSpan;
use std::borrow::Cow;

impl<'s> JsonReader<'s> {
    /// Parses the string that begins here.
    pub(super) fn read_string(&mut self, sink: &mut DiagnosticSink) -> Result<Cow<'s, str>, StopReading> {
        let start = self.position;
        let quote = if self.rest().starts_with('\'') { '\'' } else { '"' };
        self.position += 1;
        let mut owned: Option<String> = None;
        let mut from = self.position;
        loop {
            let rest = self.rest();
            let Some(length) = rest.find(|c: char| c == quote || c == '\\' || c < ' ') else {
                return Self::fail_unclosed(start, sink);
            };
            self.position += length;
            match rest.as_bytes()[length] {
                b'\\' => {
                    let text = owned.get_or_insert_default();
                    text.push_str(&self.text[from..self.position]);
                    text.extend(self.read_escape(start, sink)?);
                    from = self.position;
                }
                b'\n' | b'\r' => return Self::fail_unclosed(start, sink),
                control if control < b' ' => {
                    let span = SourceSpan::new(self.position, self.position + 1);
                    self.position += 1;
                    if !(self.is_json5 && control == b'\t') {
                        sink.push(
                            SpecDiagnostic::new("syntax", "a control character in a string")
                                .with_span(span)
                                .with_help(format!("write it as `\\u{control:04x}`")),
                        );
                    }
                }
                _ => break,
            }
        }
        let last = &self.text[from..self.position];
        self.position += 1;
        if quote == '\'' {
            self.report_json5_only("a string in single quotes", SourceSpan::new(start, self.position), sink);
        }
        Ok(match owned {
            Some(text) => Cow::Owned(text + last),
            None => Cow::Borrowed(last),
        })
    }

    fn fail_unclosed<T>(start: usize, sink: &mut DiagnosticSink) -> Result<T, StopReading> {
        let span = SourceSpan::new(start, start + 1);
        Self::fail(SpecDiagnostic::new("syntax", "this quote is never closed").with_span(span), sink)
    }

    /// Returns the character of the escape that begins here; `None` for a line continuation.
    fn read_escape(&mut self, string: usize, sink: &mut DiagnosticSink) -> Result<Option<char>, StopReading> {
        let start = self.position;
        let Some(letter) = self.text[start + 1..].chars().next() else {
            return Self::fail_unclosed(string, sink);
        };
        self.position += 1 + letter.len_utf8();
        let known = match letter {
            '"' | '\\' | '/' => Some(letter),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => return self.read_unicode_escape(start, sink).map(Some),
            _ => None,
        };
        if known.is_some() {
            return Ok(known);
        }
        let meant = match letter {
            '\r' | '\n' | '\u{2028}' | '\u{2029}' => {
                if letter == '\r' && self.rest().starts_with('\n') {
                    self.position += 1;
                }
                None
            }
            'x' => Some(char::from(self.read_hex_digits(2, start, sink)? as u8)),
            'v' => Some('\u{b}'),
            '0' if !self.rest().starts_with(|c: char| c.is_ascii_digit()) => Some('\0'),
            '0'..='9' => return Self::fail(unknown_escape_error(start, self.position), sink),
            other => Some(other),
        };
        if self.is_json5 {
            return Ok(meant);
        }
        sink.push(unknown_escape_error(start, self.position));
        Ok(meant)
    }

    fn read_unicode_escape(&mut self, start: usize, sink: &mut DiagnosticSink) -> Result<char, StopReading> {
        let mut code = self.read_hex_digits(4, start, sink)?;
        if (0xd800..0xdc00).contains(&code) && self.rest().starts_with("\\u") {
            // The second half of a surrogate pair.
            self.position += 2;
            let low = self.read_hex_digits(4, start, sink)?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            }
        }
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => Self::fail(
                SpecDiagnostic::new("syntax", "half of a surrogate pair is not a character")
                    .with_span(SourceSpan::new(start, self.position)),
                sink,
            ),
        }
    }

    fn read_hex_digits(
        &mut self,
        count: usize,
        start: usize,
        sink: &mut DiagnosticSink,
    ) -> Result<u32, StopReading> {
        let digits = self.rest().get(..count).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(code) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            let diagnostic =
                SpecDiagnostic::new("syntax", format!("an escape that needs {count} hexadecimal digits"));
            return Self::fail(diagnostic.with_span(SourceSpan::new(start, self.position)), sink);
        };
        self.position += count;
        Ok(code)
    }
}

fn unknown_escape_error(start: usize, end: usize) -> SpecDiagnostic {
    SpecDiagnostic::new("syntax", "unknown escape in a string")
        .with_span(SourceSpan::new(start, end))
        .with_help("write `\\\\` for a backslash")
}
