//! Strings of JSON and JSON5.

use super::Json;
use crate::diagnostic::{Diagnostic, Sink};
use crate::event::Stop;
use crate::source::Span;
use std::borrow::Cow;

impl<'s> Json<'s> {
    /// The string that begins here.
    pub(super) fn string(&mut self, sink: &mut Sink) -> Result<Cow<'s, str>, Stop> {
        let start = self.at;
        let quote = if self.rest().starts_with('\'') { '\'' } else { '"' };
        self.at += 1;
        let mut owned: Option<String> = None;
        let mut from = self.at;
        loop {
            let rest = self.rest();
            let Some(length) = rest.find(|c: char| c == quote || c == '\\' || c < ' ') else {
                return Self::unclosed(start, sink);
            };
            self.at += length;
            match rest.as_bytes()[length] {
                b'\\' => {
                    let text = owned.get_or_insert_default();
                    text.push_str(&self.text[from..self.at]);
                    text.extend(self.escape(start, sink)?);
                    from = self.at;
                }
                b'\n' | b'\r' => return Self::unclosed(start, sink),
                control if control < b' ' => {
                    let span = Span::new(self.at, self.at + 1);
                    self.at += 1;
                    if !(self.is_json5 && control == b'\t') {
                        sink.push(
                            Diagnostic::new("syntax", "a control character in a string")
                                .at(span)
                                .help(format!("write it as `\\u{control:04x}`")),
                        );
                    }
                }
                _ => break,
            }
        }
        let last = &self.text[from..self.at];
        self.at += 1;
        if quote == '\'' {
            self.only_json5("a string in single quotes", Span::new(start, self.at), sink);
        }
        Ok(match owned {
            Some(text) => Cow::Owned(text + last),
            None => Cow::Borrowed(last),
        })
    }

    fn unclosed<T>(start: usize, sink: &mut Sink) -> Result<T, Stop> {
        let span = Span::new(start, start + 1);
        Self::fail(Diagnostic::new("syntax", "this quote is never closed").at(span), sink)
    }

    /// What the escape that begins here stands for. `None`: nothing (a line that goes on).
    fn escape(&mut self, string: usize, sink: &mut Sink) -> Result<Option<char>, Stop> {
        let start = self.at;
        let Some(letter) = self.text[start + 1..].chars().next() else { return Self::unclosed(string, sink) };
        self.at += 1 + letter.len_utf8();
        let known = match letter {
            '"' | '\\' | '/' => Some(letter),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => return self.unicode_escape(start, sink).map(Some),
            _ => None,
        };
        if known.is_some() {
            return Ok(known);
        }
        let meant = match letter {
            '\r' | '\n' | '\u{2028}' | '\u{2029}' => {
                if letter == '\r' && self.rest().starts_with('\n') {
                    self.at += 1;
                }
                None
            }
            'x' => Some(char::from(self.hex_digits(2, start, sink)? as u8)),
            'v' => Some('\u{b}'),
            '0' if !self.rest().starts_with(|c: char| c.is_ascii_digit()) => Some('\0'),
            '0'..='9' => return Self::fail(unknown_escape(start, self.at), sink),
            other => Some(other),
        };
        if self.is_json5 {
            return Ok(meant);
        }
        sink.push(unknown_escape(start, self.at));
        Ok(meant)
    }

    fn unicode_escape(&mut self, start: usize, sink: &mut Sink) -> Result<char, Stop> {
        let mut code = self.hex_digits(4, start, sink)?;
        if (0xd800..0xdc00).contains(&code) && self.rest().starts_with("\\u") {
            // The other half of a character that needs two.
            self.at += 2;
            let low = self.hex_digits(4, start, sink)?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            }
        }
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => Self::fail(
                Diagnostic::new("syntax", "half of a surrogate pair stands for no character")
                    .at(Span::new(start, self.at)),
                sink,
            ),
        }
    }

    fn hex_digits(&mut self, count: usize, start: usize, sink: &mut Sink) -> Result<u32, Stop> {
        let digits = self.rest().get(..count).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(code) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            let diagnostic =
                Diagnostic::new("syntax", format!("an escape that needs {count} hexadecimal digits"));
            return Self::fail(diagnostic.at(Span::new(start, self.at)), sink);
        };
        self.at += count;
        Ok(code)
    }
}

fn unknown_escape(start: usize, end: usize) -> Diagnostic {
    Diagnostic::new("syntax", "unknown escape in a string")
        .at(Span::new(start, end))
        .help("write `\\\\` for a backslash")
}
