//! Text layout: width in terminal columns, truncation, and escaping of control characters.

use super::style::{COLOR_MARK_START, color_mark};
use std::borrow::Cow;
use std::io::{self, Write};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
use windlass_types::Timestamp;

pub(crate) fn display_width(text: &str) -> usize {
    text.width()
}

/// One line without control characters: names and commands come from files and may contain anything.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_unsafe_character(c) { ' ' } else { c }).collect()
}

/// Text made safe for a terminal: line ends, tabs, and colors of [`super::style::TextPainter`] are kept. Colors in
/// foreign text are left out; all other control characters, and those that change the text direction, are escaped.
pub(crate) fn escape_control(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe_character(c) && c != '\n' && c != '\t') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        if let Some((numbers, whole)) = color_numbers(rest, color_mark()) {
            shown.extend(["\x1b[", numbers, "m"]);
            length = whole;
        } else if let Some((_, whole)) = color_numbers(rest, "\x1b[") {
            length = whole;
        } else if !is_unsafe_character(c) || c == '\n' || c == '\t' {
            shown.push(c);
        } else if c == '\r' {
            // For `\r\n` the line end is kept; each state of a progress bar gets a line.
            shown.push_str(if rest[1..].starts_with('\n') { "" } else { "\n" });
        } else {
            shown.extend(c.escape_unicode());
        }
        rest = &rest[length..];
    }
    Cow::Owned(shown)
}

/// JSON whose strings are safe for a terminal: serde leaves DEL, C1 and direction controls as they are. Outside of
/// strings JSON has none of them.
pub(crate) fn escape_json(json: &str) -> Cow<'_, str> {
    let is_raw = |c: char| !c.is_ascii_control() && is_unsafe_character(c) || c == '\x7f';
    if !json.contains(is_raw) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_raw(c) {
            let mut units = [0; 2];
            escaped.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Writes JSON as [`escape_json`] returns it. Whole characters must be written at a time, as serde does.
pub(crate) struct JsonEscaper<W>(pub(crate) W);

impl<W: Write> Write for JsonEscaper<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(io::Error::other)?;
        self.0.write_all(escape_json(text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether a terminal would interpret the character instead of showing it.
fn is_unsafe_character(c: char) -> bool {
    c.is_control() || is_direction_control(c) || c == COLOR_MARK_START
}

/// Bidirectional formatting, and separators that some programs take for a line end.
fn is_direction_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The numbers of a sequence that starts with `start` and sets a color or weight, and the length of the sequence.
/// Sequences that hide text do not count.
fn color_numbers<'a>(text: &'a str, start: &str) -> Option<(&'a str, usize)> {
    let (numbers, _) = text.strip_prefix(start)?.split_once('m')?;
    let is_known = |number: &str| {
        matches!(number.parse(), Ok(0..=4_u8 | 22..=24 | 30..=49 | 90..=107)) || number.is_empty()
    };
    let is_color = numbers.len() <= 20 && numbers.split(';').all(is_known);
    is_color.then_some((numbers, start.len() + numbers.len() + "m".len()))
}

/// At most `limit` columns, with `…` at the end if truncated.
pub(crate) fn truncate(text: &str, limit: usize) -> String {
    if display_width(text) <= limit {
        return text.to_owned();
    }
    let room = limit.saturating_sub(1);
    let mut used = 0;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= room
    });
    let mut cut: String = kept.collect();
    if limit > 0 {
        cut.push('…');
    }
    cut
}

/// The same with `…` in the middle: similar names differ at their end.
pub(crate) fn truncate_middle(text: &str, limit: usize) -> String {
    if display_width(text) <= limit {
        return text.to_owned();
    }
    let end = limit.saturating_sub(1) / 2;
    let start = truncate(text, limit - end);
    // `…` and the text after it; a wide character may leave a column unused.
    let tail = truncate_start(text, end + 1);
    start + tail.strip_prefix('…').unwrap_or_default()
}

/// The same with `…` at the start.
pub(crate) fn truncate_start(text: &str, limit: usize) -> String {
    let backwards = |text: &str| text.chars().rev().collect::<String>();
    backwards(&truncate(&backwards(text), limit))
}

/// The text in lines of at most this width, broken at blanks; a longer word is broken anywhere.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && display_width(&line) + 1 + display_width(word) <= width {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for letter in word.chars() {
            if !line.is_empty() && display_width(&line) + letter.width().unwrap_or(0) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(letter);
        }
    }
    lines.push(line);
    lines
}

pub(crate) fn pad_left(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(display_width(text))))
}

/// `2026-08-22 10:11:12Z`: UTC, to the second.
pub(crate) fn render_time(at: Timestamp) -> String {
    let full = at.to_string();
    match full.split_once('.') {
        Some((seconds, _)) => format!("{}Z", seconds.replacen('T', " ", 1)),
        None => full,
    }
}

/// `1 job`, `3 jobs`.
pub(crate) fn render_count(n: u64, singular: &str) -> String {
    if n == 1 { format!("1 {singular}") } else { format!("{n} {singular}s") }
}

/// The word, quoted for `/bin/sh` if needed.
pub(crate) fn shell_quote(word: &str) -> String {
    if is_shell_safe(word) { word.to_owned() } else { quote_always(word) }
}

/// Whether a shell reads this as one unchanged word.
pub(crate) fn is_shell_safe(word: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    !word.is_empty() && word.chars().all(harmless)
}

pub(crate) fn quote_always(word: &str) -> String {
    let mut quoted = String::new();
    windlass_spec::template::quote_shell_word(word, &mut quoted);
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::style::{TextPainter, TextTone};
    use super::*;

    #[test]
    fn truncation_counts_columns_not_bytes() {
        for (text, limit, expected) in [
            ("hello", 5, "hello"),
            ("hello", 4, "hel…"),
            ("hello", 1, "…"),
            ("hello", 0, ""),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
        ] {
            assert_eq!(truncate(text, limit), expected, "{text} {limit}");
        }
    }

    #[test]
    fn shortened_name_keeps_both_ends() {
        for (text, limit, expected) in [
            ("simulate_with_alpha_17", 22, "simulate_with_alpha_17"),
            ("simulate_with_alpha_17", 11, "simul…ha_17"),
            ("simulate_with_alpha_17", 10, "simul…a_17"),
            ("hello", 2, "h…"),
            ("hello", 1, "…"),
            ("hello", 0, ""),
            ("日本語日本語", 6, "日…語"),
        ] {
            assert_eq!(truncate_middle(text, limit), expected, "{text} {limit}");
        }
    }

    #[test]
    fn times_render_as_utc_seconds() {
        assert_eq!(render_time(Timestamp(1_700_000_000_123_000)), "2023-11-14 22:13:20Z");
    }

    #[test]
    fn foreign_text_is_escaped_for_terminal() {
        for (text, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\x1b[31mred\x1b[0m \x1b[1;32mgood\x1b[m", "red good"),
            ("\u{10fffe}31mred", "\\u{10fffe}31mred"),
            ("a\u{7f}\u{2067}b", "a\\u{7f}\\u{2067}b"),
            ("\x1b[8mhidden", "\\u{1b}[8mhidden"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\x1b[2J\x1b[1;1H", "\\u{1b}[2J\\u{1b}[1;1H"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("10%\r20%\r\n", "10%\n20%\n"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!(escape_control(text), shown, "{text:?}");
        }
    }

    #[test]
    fn one_line_text_has_no_control_characters() {
        assert_eq!(one_line("a\nb\x1b[2J\tc"), "a b [2J c");
        assert_eq!(one_line("a\u{202e}b\u{9b}c\u{7f}d\u{2066}e"), "a b c d e");
    }

    #[test]
    fn escapes_other_than_painter_colors_are_removed() {
        let painted = TextPainter { enabled: true }.apply(TextTone::Bad, "a\x1b[32mb\x1b[2J");
        assert_eq!(escape_control(&painted), "\x1b[31mab\\u{1b}[2J\x1b[0m");
    }

    #[test]
    fn json_escapes_control_characters_without_changing_value() {
        let value = serde_json::json!({"n\u{9b}": "a\x1b[2J\u{7f}\u{85}\u{202e}b\u{10fffe}\n", "é": "日本"});
        let mut pretty = Vec::new();
        serde_json::to_writer_pretty(JsonEscaper(&mut pretty), &value).unwrap();
        for json in [String::from_utf8(pretty).unwrap(), escape_json(&value.to_string()).into_owned()] {
            assert!(!json.chars().any(|c| is_unsafe_character(c) && c != '\n'), "{json}");
            assert!(json.contains(r"\u009b") && json.contains(r"\u202e") && json.contains("日本"), "{json}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
        }
    }
}
