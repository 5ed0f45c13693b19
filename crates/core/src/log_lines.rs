//! The end of a log for classification: a limited number of lines without colors, the last line first.

use std::borrow::Cow;

/// The part at the end of a log that is kept and examined: bytes, and lines.
pub const LOG_TAIL_BYTES: usize = 8 * 1024;
pub const LOG_TAIL_LINES: usize = 40;

/// Phrases about errors that the program recovered from.
const RECOVERED_PHRASES: &[&str] =
    &["retrying", "will retry", "will be retried", "trying again", "(ignored)"];

/// Words of warnings: such a line counts only if no other line matches.
const WARNING_PHRASES: &[&str] = &["warn", "deprecat"];

/// Phrases that look like errors but are not.
const HARMLESS_PHRASES: &[&str] = &[
    "0 errors",
    "no error",
    "error=0",
    "errors: 0",
    "without error",
    "0 failed",
    "error rate",
    "error_rate",
];

/// The exception below was caused by the one above, or raised while it was handled.
const CHAINED_EXCEPTION_PHRASES: &[&str] =
    &["The above exception was the direct cause", "During handling of the above exception"];

const TRACEBACK: &str = "Traceback (most recent call last)";

/// Whether a line, in lower case, looks worse than it is.
pub(crate) fn is_harmless(lower: &str) -> bool {
    // `10 errors` are errors.
    let stands_alone = |at: usize| !lower[..at].ends_with(|c: char| c.is_ascii_digit() || c == '.');
    HARMLESS_PHRASES.iter().any(|words| {
        let mut found = lower.match_indices(words).map(|(at, _)| at);
        found.any(|at| !words.starts_with('0') || stands_alone(at))
    })
}

/// Returns the end of a text, from the start of a line. A text that is `torn` begins in the middle of a line.
pub fn log_tail(text: &str, torn: bool) -> &str {
    let text = text.trim_end();
    let cut = text.ceil_char_boundary(text.len().saturating_sub(LOG_TAIL_BYTES));
    let rest = &text[cut..];
    let whole = match rest.split_once('\n') {
        Some((_, rest)) if torn || cut > 0 => rest,
        _ => rest,
    };
    whole.rmatch_indices('\n').nth(LOG_TAIL_LINES - 1).map_or(whole, |(at, _)| &whole[at + 1..])
}

/// Returns lines that may explain why a program ended, the most relevant first: later lines before earlier
/// ones, warnings last. Lines before the last Python exception and errors that were survived are excluded.
pub(crate) fn relevant_lines(text: &str) -> Vec<Cow<'_, str>> {
    let lines: Vec<&str> = log_tail(text, false).split(['\n', '\r']).collect();
    let lines = &lines[last_exception_chain(&lines).unwrap_or(0)..];
    let (mut other_lines, mut warning_lines) = (Vec::new(), Vec::new());
    for line in lines.iter().rev().map(|line| strip_formatting(line)).filter(|line| !line.is_empty()) {
        let lower = line.to_lowercase();
        if is_harmless(&lower) || RECOVERED_PHRASES.iter().any(|words| lower.contains(words)) {
            continue;
        }
        let is_warning = WARNING_PHRASES.iter().any(|words| lower.contains(words));
        if is_warning { &mut warning_lines } else { &mut other_lines }.push(line);
    }
    other_lines.append(&mut warning_lines);
    other_lines
}

/// Returns the first line of the traceback of the last exception, including the exceptions that led to it.
fn last_exception_chain(lines: &[&str]) -> Option<usize> {
    let mut start = lines.iter().rposition(|line| line.contains(TRACEBACK))?;
    while let Some(earlier) = lines[..start].iter().rposition(|line| line.contains(TRACEBACK)) {
        let is_chained = |line: &&str| CHAINED_EXCEPTION_PHRASES.iter().any(|words| line.contains(words));
        if !lines[earlier..start].iter().any(is_chained) {
            break;
        }
        start = earlier;
    }
    Some(start)
}

/// Returns the number of the line with the exception of the last traceback: the first line after it that is not
/// indented.
pub(crate) fn last_exception(lines: &[&str]) -> Option<usize> {
    let start = lines.iter().rposition(|line| line.starts_with(TRACEBACK))?;
    let after = lines.iter().enumerate().skip(start + 1);
    after
        .filter(|(_, line)| !line.is_empty())
        .find(|(_, line)| !line.starts_with(char::is_whitespace))
        .map(|(n, _)| n)
}

/// Removes surrounding whitespace and terminal color sequences.
pub(crate) fn strip_formatting(line: &str) -> Cow<'_, str> {
    let line = line.trim();
    if !line.contains('\x1b') {
        return Cow::Borrowed(line);
    }
    let mut parts = line.split('\x1b');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // `[`, parameters, and a final letter; otherwise the escape is removed alone.
        let rest =
            part.strip_prefix('[').map(|rest| rest.trim_start_matches(|c: char| !c.is_ascii_alphabetic()));
        text.push_str(rest.map_or(part, |rest| rest.get(1..).unwrap_or_default()));
    }
    Cow::Owned(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_come_first_and_warnings_last() {
        let text = "one\nWARNING: two\nthree\n\n  four \rfive\nConnection reset, retrying in 5 s\n0 errors\n";
        assert_eq!(relevant_lines(text), ["five", "four", "three", "one", "WARNING: two"]);
        assert_eq!(relevant_lines(""), [""; 0]);
    }

    #[test]
    fn exception_hides_earlier_lines() {
        let text = "Connection refused\nTraceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'\nbye";
        assert_eq!(relevant_lines(text)[0], "bye");
        assert!(relevant_lines(text).iter().all(|line| line != "Connection refused"));
        let chained = "Traceback (most recent call last):\nConnectionRefusedError: [Errno 111]\n\n\
                       The above exception was the direct cause of the following exception:\n\n\
                       Traceback (most recent call last):\nmy.Error: cannot fetch";
        assert!(relevant_lines(chained).iter().any(|line| line.contains("Errno 111")));
    }

    #[test]
    fn long_texts_are_cut_at_line_boundaries() {
        assert_eq!(log_tail(&("ä".repeat(6000) + "\nlast\n"), false), "last");
        assert!(log_tail(&"ä".repeat(6000), false).len() <= LOG_TAIL_BYTES);
        let wide = ("0123456789".repeat(50) + "\n").repeat(100);
        let kept = log_tail(&wide, false);
        assert!(kept.len() <= LOG_TAIL_BYTES && kept.lines().count() == 16, "{}", kept.len());
        assert!(kept.lines().all(|line| line.len() == 500));
        let many = "line\n".repeat(2000);
        assert_eq!(log_tail(&many, false).lines().count(), LOG_TAIL_LINES);
        assert_eq!(
            (log_tail("torn\nwhole\n", true), log_tail("torn\nwhole", false)),
            ("whole", "torn\nwhole")
        );
        assert_eq!(log_tail("", true), "");
    }

    #[test]
    fn zero_error_counts_are_harmless() {
        for line in ["0 errors", "12 passed, 0 failed", "exit without error"] {
            assert!(is_harmless(line), "{line}");
        }
        for line in ["10 errors", "step 4711.0 failed", "error"] {
            assert!(!is_harmless(line), "{line}");
        }
    }

    #[test]
    fn color_codes_are_removed() {
        assert_eq!(strip_formatting("  \x1b[1;31merror\x1b[0m: x\x1b "), "error: x");
        assert_eq!(strip_formatting("\x1b["), "");
        assert_eq!(strip_formatting("plain"), "plain");
    }
}
