//! JSON and JSON5 as events. One reader for both: what only JSON5 has is read in a strict file too, and reported, so
//! that the mistakes behind it are found in the same reading.

mod number;
mod string;

use crate::diagnostic::{Diagnostic, Sink};
use crate::event::{Event, Events, Kind, Scalar, Stop};
use crate::source::Span;
use crate::tree::{MAX_DEPTH, too_deep};
use std::borrow::Cow;

/// The events of a JSON or JSON5 text.
pub(crate) struct Json<'s> {
    text: &'s str,
    at: usize,
    is_json5: bool,
    /// The open objects and arrays, from the outside in.
    levels: Vec<Level>,
    has_root: bool,
    /// Where the comments stand.
    comments: Vec<Span>,
}

struct Level {
    is_object: bool,
    open: Span,
    next: Next,
}

/// What comes next in an object or array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A member or the end.
    First,
    /// The value of the key that was read.
    Value,
    /// A comma or the end.
    Comma,
}

impl<'s> Json<'s> {
    pub(crate) fn strict(text: &'s str) -> Self {
        Self::new(text, false)
    }

    pub(crate) fn json5(text: &'s str) -> Self {
        Self::new(text, true)
    }

    fn new(text: &'s str, is_json5: bool) -> Self {
        Self { text, at: 0, is_json5, levels: Vec::new(), has_root: false, comments: Vec::new() }
    }

    /// The comments passed so far.
    pub(crate) fn comments(&self) -> &[Span] {
        &self.comments
    }

    fn rest(&self) -> &'s str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes note of something that JSON does not have.
    fn only_json5(&self, what: &str, span: Span, sink: &mut Sink) {
        if !self.is_json5 {
            sink.push(
                Diagnostic::new("json5", format!("{what} in a JSON file"))
                    .at(span)
                    .help("that is JSON5: name the file .json5"),
            );
        }
    }

    fn fail<T>(diagnostic: Diagnostic, sink: &mut Sink) -> Result<T, Stop> {
        sink.push(diagnostic);
        Err(Stop)
    }

    fn unexpected<T>(&self, expected: &str, sink: &mut Sink) -> Result<T, Stop> {
        let diagnostic = match (self.peek(), self.levels.last()) {
            (Some(found), _) => {
                let span = Span::new(self.at, self.at + found.len_utf8());
                Diagnostic::new("syntax", format!("expected {expected}, not `{}`", found.escape_default()))
                    .at(span)
            }
            (None, Some(level)) => {
                let bracket = if level.is_object { '{' } else { '[' };
                Diagnostic::new("syntax", format!("`{bracket}` is never closed")).at(level.open)
            }
            (None, None) => {
                Diagnostic::new("syntax", format!("expected {expected} at the end")).at(Span::at(self.at))
            }
        };
        Self::fail(diagnostic, sink)
    }

    /// Goes past white space and comments.
    fn skip_space(&mut self, sink: &mut Sink) -> Result<(), Stop> {
        loop {
            let is_space =
                |c: char| matches!(c, ' ' | '\t' | '\n' | '\r') || (self.is_json5 && is_json5_space(c));
            self.at += self.rest().len() - self.rest().trim_start_matches(is_space).len();
            let rest = self.rest();
            let length = if rest.starts_with("//") {
                rest.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(rest.len())
            } else if let Some(inside) = rest.strip_prefix("/*") {
                let Some(end) = inside.find("*/") else {
                    let span = Span::new(self.at, self.at + 2);
                    return Self::fail(
                        Diagnostic::new("syntax", "this comment is never closed").at(span),
                        sink,
                    );
                };
                end + 4
            } else {
                return Ok(());
            };
            let span = Span::new(self.at, self.at + length);
            self.only_json5("a comment", span, sink);
            self.comments.push(span);
            self.at += length;
        }
    }

    /// Takes a comma, or finds the closing bracket. True: a member follows.
    fn separator(&mut self, is_object: bool, sink: &mut Sink) -> Result<bool, Stop> {
        let close = if is_object { '}' } else { ']' };
        let is_first = self.levels.last().is_some_and(|level| level.next == Next::First);
        if self.peek() == Some(close) {
            return Ok(false);
        }
        if is_first {
            return Ok(true);
        }
        if self.peek() != Some(',') {
            return self.unexpected(&format!("`,` or `{close}`"), sink);
        }
        let comma = Span::new(self.at, self.at + 1);
        self.at += 1;
        self.skip_space(sink)?;
        if self.peek() != Some(close) {
            return Ok(true);
        }
        self.only_json5("a comma behind the last item", comma, sink);
        Ok(false)
    }

    fn close(&mut self) -> Event<'s> {
        let span = Span::new(self.at, self.at + 1);
        self.at += 1;
        let is_object = self.levels.pop().is_some_and(|level| level.is_object);
        Event { kind: if is_object { Kind::MapEnd } else { Kind::SeqEnd }, span }
    }

    fn key(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        let start = self.at;
        let text = match self.peek() {
            Some('"' | '\'') => self.string(sink)?,
            Some(c) if is_identifier_start(c) => {
                let rest = self.rest();
                let word = &rest[..rest.len() - rest.trim_start_matches(is_identifier_part).len()];
                self.at += word.len();
                self.only_json5("a key without quotes", Span::new(start, self.at), sink);
                Cow::Borrowed(word)
            }
            _ => return self.unexpected("a key in quotes", sink),
        };
        let span = Span::new(start, self.at);
        self.skip_space(sink)?;
        if self.peek() != Some(':') {
            return self.unexpected("`:` behind the key", sink);
        }
        self.at += 1;
        if let Some(level) = self.levels.last_mut() {
            level.next = Next::Value;
        }
        Ok(Event { kind: Kind::Key { text, merged: false }, span })
    }

    fn value(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        self.skip_space(sink)?;
        if let Some(level) = self.levels.last_mut() {
            level.next = Next::Comma;
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(open @ ('{' | '[')) => {
                self.at += 1;
                let span = Span::new(start, self.at);
                if self.levels.len() >= MAX_DEPTH {
                    return Self::fail(too_deep(span), sink);
                }
                let is_object = open == '{';
                self.levels.push(Level { is_object, open: span, next: Next::First });
                if is_object { Kind::MapStart(None) } else { Kind::SeqStart(None) }
            }
            Some('"' | '\'') => Kind::Scalar(Scalar { text: self.string(sink)?, plain: false }),
            Some('0'..='9' | '+' | '-' | '.') => self.number(sink),
            Some(c) if is_identifier_start(c) => self.word(sink)?,
            _ => return self.unexpected("a value", sink),
        };
        Ok(Event { kind, span: Span::new(start, self.at) })
    }

    /// A value that is a word: `true`, `null`, or a string that lacks its quotes.
    fn word(&mut self, sink: &mut Sink) -> Result<Kind<'s>, Stop> {
        let rest = self.rest();
        let word = &rest[..rest.len() - rest.trim_start_matches(is_identifier_part).len()];
        let span = Span::new(self.at, self.at + word.len());
        match word {
            "true" | "false" | "null" => {
                self.at += word.len();
                Ok(Kind::Scalar(Scalar { text: Cow::Borrowed(word), plain: true }))
            }
            "Infinity" | "NaN" => Ok(self.number(sink)),
            _ => {
                let diagnostic =
                    Diagnostic::new("syntax", format!("a string needs quotes: \"{word}\"")).at(span);
                self.at += word.len();
                if self.ends_value() {
                    // Only the quotes are missing: go on behind it.
                    sink.push(diagnostic);
                    return Ok(Kind::Bad);
                }
                Self::fail(diagnostic, sink)
            }
        }
    }

    fn ends_value(&self) -> bool {
        matches!(self.rest().trim_start().chars().next(), None | Some(',' | '}' | ']'))
    }

    /// Before and after the root value.
    fn outside(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        match self.peek() {
            None => Ok(Event { kind: Kind::End, span: Span::at(self.at) }),
            Some(_) if self.has_root => self.unexpected("nothing behind the end", sink),
            Some(_) => {
                self.has_root = true;
                self.value(sink)
            }
        }
    }
}

impl<'s> Events<'s> for Json<'s> {
    fn next(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        self.skip_space(sink)?;
        match self.levels.last() {
            None => self.outside(sink),
            Some(Level { next: Next::Value, .. }) => self.value(sink),
            Some(Level { is_object: true, .. }) => {
                if self.separator(true, sink)? {
                    self.key(sink)
                } else {
                    Ok(self.close())
                }
            }
            Some(Level { is_object: false, .. }) => {
                if self.separator(false, sink)? {
                    self.value(sink)
                } else {
                    Ok(self.close())
                }
            }
        }
    }

    fn leave(&mut self, sink: &mut Sink) -> Result<(), Stop> {
        let depth = self.levels.len();
        while self.levels.len() >= depth.max(1) {
            self.next(sink)?;
        }
        Ok(())
    }
}

fn is_json5_space(c: char) -> bool {
    matches!(c, '\u{b}' | '\u{c}' | '\u{a0}' | '\u{feff}' | '\u{2028}' | '\u{2029}')
        || (c.is_whitespace() && !c.is_control())
}

fn is_identifier_start(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '_' | '$')
}

pub(crate) fn is_identifier_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '\u{200c}' | '\u{200d}')
}

/// A word that may stand as a key without quotes.
pub(crate) fn is_identifier(text: &str) -> bool {
    text.starts_with(is_identifier_start) && text.chars().all(is_identifier_part)
}
