//! Text made to fit: widths in terminal columns, truncation, and nothing that could confuse the terminal.

use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
use windlass_types::Timestamp;

pub(crate) fn display_width(text: &str) -> usize {
    text.width()
}

/// One line without control characters: names and commands come from files and may hold anything.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Text of others, ready for a terminal: line ends, tabs and colours stay; every other control character, and every
/// character that changes the direction of text, is shown as an escape and does nothing.
pub(crate) fn escape_control(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe_character(c) && c != '\n' && c != '\t') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = color_sequence_length(rest).unwrap_or(c.len_utf8());
        let is_colour = color_sequence_length(rest).is_some();
        if is_colour || !is_unsafe_character(c) || c == '\n' || c == '\t' {
            shown.push_str(&rest[..length]);
        } else if c == '\r' {
            // Of `\r\n` the line end stays; a progress bar gets a line for each of its states.
            shown.push_str(if rest[1..].starts_with('\n') { "" } else { "\n" });
        } else {
            shown.extend(c.escape_unicode());
        }
        rest = &rest[length..];
    }
    Cow::Owned(shown)
}

/// Whether a terminal does something else with it than showing it.
fn is_unsafe_character(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// The length of a sequence that sets a colour or a weight, at the start of the text. Text that is made invisible is none.
fn color_sequence_length(text: &str) -> Option<usize> {
    let (numbers, _) = text.strip_prefix("\x1b[")?.split_once('m')?;
    let is_known = |number: &str| {
        matches!(number.parse(), Ok(0..=4_u8 | 22..=24 | 30..=49 | 90..=107)) || number.is_empty()
    };
    let is_colour = numbers.len() <= 20 && numbers.split(';').all(is_known);
    is_colour.then_some("\x1b[".len() + numbers.len() + "m".len())
}

/// At most `limit` columns, with `…` at the end if something was cut.
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

/// The same with `…` in the middle: names of a family differ at their end.
pub(crate) fn truncate_middle(text: &str, limit: usize) -> String {
    if display_width(text) <= limit {
        return text.to_owned();
    }
    let end = limit.saturating_sub(1) / 2;
    let start = truncate(text, limit - end);
    // `…` and what follows it; a wide letter may leave a column unused.
    let tail = truncate_start(text, end + 1);
    start + tail.strip_prefix('…').unwrap_or_default()
}

/// The same with `…` at the start.
pub(crate) fn truncate_start(text: &str, limit: usize) -> String {
    let backwards = |text: &str| text.chars().rev().collect::<String>();
    backwards(&truncate(&backwards(text), limit))
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

/// A word that `/bin/sh` takes as it is, quoted if need be.
pub(crate) fn shell_quote(word: &str) -> String {
    if is_shell_safe(word) { word.to_owned() } else { quote_always(word) }
}

/// Whether a shell takes this for one word and changes nothing in it.
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
    fn of_names_both_ends_are_kept() {
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
    fn times_are_utc_to_the_second() {
        assert_eq!(render_time(Timestamp(1_700_000_000_123_000)), "2023-11-14 22:13:20Z");
    }

    #[test]
    fn text_of_others_does_nothing_to_a_terminal() {
        for (text, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\x1b[31mred\x1b[0m \x1b[1;32mgood\x1b[m", "\x1b[31mred\x1b[0m \x1b[1;32mgood\x1b[m"),
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
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(one_line("a\nb\x1b[2J\tc"), "a b [2J c");
    }
}
