//! The tokens of KDL: space and comments, strings in all forms, numbers, keywords.

use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::StopReading;
use crate::source::SourceSpan;
use std::borrow::Cow;

pub(super) struct KdlLexer<'s> {
    text: &'s str,
    pub(super) position: usize,
    /// Locations of the comments so far.
    pub(super) comments: Vec<SourceSpan>,
}

impl<'s> KdlLexer<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        Self { text, position: 0, comments: Vec::new() }
    }

    pub(super) fn rest(&self) -> &'s str {
        &self.text[self.position..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// The location of the next character.
    pub(super) fn next_span(&self) -> SourceSpan {
        SourceSpan::new(self.position, self.position + self.peek().map_or(0, char::len_utf8))
    }

    pub(super) fn take_if(&mut self, word: &str) -> bool {
        let is_there = self.rest().starts_with(word);
        self.position += if is_there { word.len() } else { 0 };
        is_there
    }

    /// Skips space within a node: blanks, `/* … */`, and a line end after `\`. Returns `true` if there was any.
    pub(super) fn skip_space(&mut self, sink: &mut DiagnosticSink) -> Result<bool, StopReading> {
        let start = self.position;
        loop {
            let before = self.position;
            self.position += self.rest().len() - self.rest().trim_start_matches(is_space).len();
            self.skip_block_comment(sink)?;
            if self.rest().starts_with('\\') {
                self.skip_continued_line(sink)?;
            }
            if self.position == before {
                return Ok(self.position > start);
            }
        }
    }

    /// Skips space, line ends and comments between nodes.
    pub(super) fn skip_lines(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        loop {
            let before = self.position;
            self.skip_space(sink)?;
            self.position += self.rest().len() - self.rest().trim_start_matches(is_newline).len();
            self.skip_line_comment();
            if self.position == before {
                return Ok(());
            }
        }
    }

    fn skip_line_comment(&mut self) {
        if self.rest().starts_with("//") {
            let length = self.rest().find(is_newline).unwrap_or(self.rest().len());
            self.comments.push(SourceSpan::new(self.position, self.position + length));
            self.position += length;
        }
    }

    /// Skips `/* … */`, which may be nested.
    fn skip_block_comment(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        let start = self.position;
        let mut depth = 0_usize;
        loop {
            if self.take_if("/*") {
                depth += 1;
            } else if depth == 0 {
                break;
            } else if self.take_if("*/") {
                depth -= 1;
            } else if let Some(c) = self.peek() {
                self.position += c.len_utf8();
            } else {
                return fail_unclosed("this comment is never closed", start, 2, sink);
            }
        }
        if self.position > start {
            self.comments.push(SourceSpan::new(start, self.position));
        }
        Ok(())
    }

    fn skip_continued_line(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        let start = self.position;
        self.position += 1;
        self.position += self.rest().len() - self.rest().trim_start_matches(is_space).len();
        self.skip_line_comment();
        match self.peek() {
            Some(c) if is_newline(c) => {
                self.position += if self.rest().starts_with("\r\n") { 2 } else { c.len_utf8() };
                Ok(())
            }
            None => Ok(()),
            Some(_) => fail_unclosed(
                "outside of a string, `\\` is only allowed at the end of a line",
                start,
                1,
                sink,
            ),
        }
    }

    /// Parses a number or keyword into the notation of the other formats. `None` if there is something else.
    pub(super) fn read_literal(
        &mut self,
        sink: &mut DiagnosticSink,
    ) -> Result<Option<Cow<'s, str>>, StopReading> {
        let rest = self.rest();
        if let Some(behind) = rest.strip_prefix('#') {
            if parse_raw_string_start(rest).is_some() {
                return Ok(None);
            }
            let word = &behind[..word_length(behind)];
            let Some(literal) = parse_keyword(word) else {
                let message = format!("unknown keyword `#{word}`");
                let span = SourceSpan::new(self.position, self.position + 1 + word.len());
                let help = "the keywords are `#true`, `#false`, `#null`, `#inf`, `#-inf` and `#nan`";
                sink.push(SpecDiagnostic::new("syntax", message).with_span(span).with_help(help));
                return Err(StopReading);
            };
            self.position += 1 + word.len();
            return Ok(Some(Cow::Borrowed(literal)));
        }
        if parse_raw_string_start(rest).is_some() {
            return Ok(None);
        }
        let word = &rest[..word_length(rest)];
        let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
        let span = SourceSpan::new(self.position, self.position + word.len());
        let literal = if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
            let Some(number) = parse_number(word) else {
                let help = "put it in quotes if it is a text";
                sink.push(
                    SpecDiagnostic::new("syntax", format!("`{word}` is not a number"))
                        .with_span(span)
                        .with_help(help),
                );
                return Err(StopReading);
            };
            number
        } else if let Some(literal) = parse_keyword(word) {
            Cow::Borrowed(literal)
        } else {
            return Ok(None);
        };
        self.position += word.len();
        Ok(Some(literal))
    }

    /// Parses a string in any form, including a bare word. `None` if there is something else.
    pub(super) fn read_string(
        &mut self,
        sink: &mut DiagnosticSink,
    ) -> Result<Option<Cow<'s, str>>, StopReading> {
        let rest = self.rest();
        if let Some((length, hashes)) = parse_raw_string_start(rest) {
            let start = self.position;
            self.position += length;
            return self.read_quoted(start, Some(hashes), sink).map(Some);
        }
        if rest.starts_with('"') {
            return self.read_quoted(self.position, None, sink).map(Some);
        }
        let word = &rest[..word_length(rest)];
        self.position += word.len();
        Ok((!word.is_empty()).then_some(Cow::Borrowed(word)))
    }

    /// Parses the string whose quotes begin here; `raw` strings have hashes around them and no escapes inside.
    fn read_quoted(
        &mut self,
        start: usize,
        raw: Option<usize>,
        sink: &mut DiagnosticSink,
    ) -> Result<Cow<'s, str>, StopReading> {
        let is_lines = self.rest().starts_with("\"\"\"");
        let quotes = if is_lines { "\"\"\"" } else { "\"" };
        // The empty string does not begin a longer one.
        let is_lines = is_lines && !(raw.is_some_and(|hashes| self.is_closed_by(2, hashes)));
        let quotes = if is_lines { quotes } else { "\"" };
        self.position += quotes.len();
        let end = match raw {
            Some(hashes) => self.rest().find(&format!("{quotes}{}", "#".repeat(hashes))),
            None => find_unescaped(self.rest(), quotes),
        };
        let Some(length) = end else { return fail_unclosed("this quote is never closed", start, 1, sink) };
        let (inside_at, inside) = (self.position, &self.rest()[..length]);
        self.position += length + quotes.len() + raw.unwrap_or(0);
        let inside = if is_lines {
            Cow::Owned(dedent(inside, SourceSpan::new(start, self.position), sink)?)
        } else {
            Cow::Borrowed(inside)
        };
        if raw.is_some() || !inside.contains('\\') {
            return Ok(inside);
        }
        unescape(&inside, inside_at, sink).map(Cow::Owned)
    }

    fn is_closed_by(&self, quotes: usize, hashes: usize) -> bool {
        let behind = &self.rest()[quotes..];
        behind.len() >= hashes && behind.bytes().take(hashes).all(|byte| byte == b'#') && hashes > 0
    }
}

fn fail_unclosed<T>(
    message: &str,
    start: usize,
    length: usize,
    sink: &mut DiagnosticSink,
) -> Result<T, StopReading> {
    sink.push(SpecDiagnostic::new("syntax", message).with_span(SourceSpan::new(start, start + length)));
    Err(StopReading)
}

/// Returns the length of the prefix of a raw string that begins here, and its number of hashes.
/// Version 1 has an `r` before them, and may have none.
fn parse_raw_string_start(text: &str) -> Option<(usize, usize)> {
    let behind = text.strip_prefix('r');
    let hashes = behind.unwrap_or(text).bytes().take_while(|byte| *byte == b'#').count();
    let length = hashes + usize::from(behind.is_some());
    (length > 0 && text[length..].starts_with('"')).then_some((length, hashes))
}

/// Returns the location of the closing quotes.
fn find_unescaped(text: &str, quotes: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text[at..].find(['"', '\\'])?;
        if text[at..].starts_with('\\') {
            at += 1 + text[at + 1..].chars().next()?.len_utf8();
        } else if text[at..].starts_with(quotes) {
            return Some(at);
        } else {
            at += 1;
        }
    }
}

/// Returns the lines of a string in triple quotes, without the indentation of its last line.
fn dedent(inside: &str, span: SourceSpan, sink: &mut DiagnosticSink) -> Result<String, StopReading> {
    let refuse = |sink: &mut DiagnosticSink, message: &str, help: &str| {
        sink.push(SpecDiagnostic::new("syntax", message).with_span(span).with_help(help));
        Err(StopReading)
    };
    let text = inside.replace("\r\n", "\n").replace(is_newline, "\n");
    let Some(body) = text.strip_prefix('\n') else {
        return refuse(sink, "text after opening triple quotes", "start it on the next line");
    };
    let (lines, indent) = body.rsplit_once('\n').unwrap_or(("", body));
    if !indent.chars().all(is_space) {
        return refuse(sink, "text before closing triple quotes", "put the quotes on a separate line");
    }
    if body.len() == indent.len() {
        return Ok(String::new());
    }
    let mut dedented = String::with_capacity(lines.len());
    for (index, line) in lines.split('\n').enumerate() {
        if index > 0 {
            dedented.push('\n');
        }
        match line.strip_prefix(indent) {
            Some(rest) => dedented.push_str(if rest.chars().all(is_space) { "" } else { rest }),
            None if line.chars().all(is_space) => {}
            None => {
                return refuse(
                    sink,
                    "a line that is indented less than the closing quotes",
                    "indent all lines at least as far as the closing quotes",
                );
            }
        }
    }
    Ok(dedented)
}

fn unescape(text: &str, at: usize, sink: &mut DiagnosticSink) -> Result<String, StopReading> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let place = at + (text.len() - behind.len()) - 1;
        let letter = behind.chars().next().unwrap_or(' ');
        rest = &behind[letter.len_utf8().min(behind.len())..];
        match letter {
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            's' => out.push(' '),
            '\\' | '"' | '/' => out.push(letter),
            'u' => {
                let code = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let parsed = code.and_then(|(digits, after)| {
                    let is_hex = (1..=6).contains(&digits.len())
                        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                    let code = is_hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()?;
                    Some((char::from_u32(code)?, after))
                });
                let Some((c, after)) = parsed else {
                    return fail_unclosed("write a character as `\\u{1f600}`", place, 2, sink);
                };
                out.push(c);
                rest = after;
            }
            c if is_space(c) || is_newline(c) => {
                rest = rest.trim_start_matches(|c| is_space(c) || is_newline(c));
            }
            _ => {
                let diagnostic = SpecDiagnostic::new("syntax", "unknown escape in a string")
                    .with_span(SourceSpan::new(place, place + 1 + letter.len_utf8()));
                sink.push(
                    diagnostic.with_help("write `\\\\` for a backslash, or `#\"…\"#` for a raw string"),
                );
                return Err(StopReading);
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn parse_keyword(word: &str) -> Option<&'static str> {
    Some(match word {
        "true" => "true",
        "false" => "false",
        "null" => "null",
        "inf" => ".inf",
        "-inf" => "-.inf",
        "nan" => ".nan",
        _ => return None,
    })
}

/// Returns a number in JSON syntax, if possible. `None` if it is not a number.
fn parse_number(word: &str) -> Option<Cow<'_, str>> {
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    let sign = if word.starts_with('-') { "-" } else { "" };
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = unsigned.strip_prefix(prefix) {
            let is_number = digits.starts_with(|c: char| c.is_digit(radix));
            let digits = is_number.then(|| digits.replace('_', ""))?;
            return Some(Cow::Owned(format!("{sign}{}", u128::from_str_radix(&digits, radix).ok()?)));
        }
    }
    let is_digits =
        |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(is_digit_or_line);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let is_number = is_digits(whole) && fraction.is_none_or(is_digits) && exponent.is_none_or(is_digits);
    if !is_number {
        return None;
    }
    if word.starts_with('+') || word.contains('_') {
        return Some(Cow::Owned(format!("{sign}{}", unsigned.replace('_', ""))));
    }
    Some(Cow::Borrowed(word))
}

fn is_digit_or_line(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'_'
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !is_word_part(c)).unwrap_or(text.len())
}

fn is_word_part(c: char) -> bool {
    !is_space(c) && !is_newline(c) && !c.is_control() && !"(){}[]/\\\"#;=".contains(c)
}

/// Whether a string needs no quotes in any implementation of KDL 2.
pub(crate) fn is_bare_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(is_plain)
        && parse_keyword(text).is_none()
}

fn is_space(c: char) -> bool {
    c == '\t' || c == '\u{feff}' || (c.is_whitespace() && !is_newline(c))
}

pub(super) fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kdl_numbers_are_normalized() {
        for (word, text) in [
            ("5", Some("5")),
            ("+5", Some("5")),
            ("-1_000.5e-3", Some("-1000.5e-3")),
            ("0xFF", Some("255")),
            ("-0b1_0", Some("-2")),
            ("0o17", Some("15")),
            ("0755", Some("0755")),
            ("1.", None),
            ("1e", None),
            ("1.2.3", None),
            ("0x_1", None),
            ("5a", None),
            ("1._5", None),
        ] {
            assert_eq!(parse_number(word).as_deref(), text, "{word}");
        }
    }
}
