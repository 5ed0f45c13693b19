//! The end of a log as it is judged: few enough lines, without colours, the last word first.

use std::borrow::Cow;

/// So much of the end of a log is kept and looked at, however long it is: bytes, and lines.
pub const LOG_TAIL_BYTES: usize = 8 * 1024;
pub const LOG_TAIL_LINES: usize = 40;

/// Said about trouble that the program got over.
const RECOVERED_PHRASES: &[&str] =
    &["retrying", "will retry", "will be retried", "trying again", "(ignored)"];

/// A line that says no more than this is an opinion, not what ended the program, unless nothing else speaks.
const WARNING_PHRASES: &[&str] = &["warn", "deprecat"];

/// What sounds like trouble and is none.
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

/// The exception that follows was raised because of the one above, or while it was handled.
const CHAINED_EXCEPTION_PHRASES: &[&str] =
    &["The above exception was the direct cause", "During handling of the above exception"];

const TRACEBACK: &str = "Traceback (most recent call last)";

/// Whether a line, in lower case, sounds worse than it is.
pub(crate) fn is_harmless(lower: &str) -> bool {
    // `10 errors` are some.
    let stands_alone = |at: usize| !lower[..at].ends_with(|c: char| c.is_ascii_digit() || c == '.');
    HARMLESS_PHRASES.iter().any(|words| {
        let mut found = lower.match_indices(words).map(|(at, _)| at);
        found.any(|at| !words.starts_with('0') || stands_alone(at))
    })
}

/// The end of a text, from the start of a line. A text that is `torn` begins in the middle of one.
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

/// What may tell why a program ended, the most telling first: later lines before earlier ones, warnings after all
/// others. What was said before the last Python exception had no consequences, and trouble that was survived is none.
pub(crate) fn relevant_lines(text: &str) -> Vec<Cow<'_, str>> {
    let lines: Vec<&str> = log_tail(text, false).split(['\n', '\r']).collect();
    let lines = &lines[last_exception_chain(&lines).unwrap_or(0)..];
    let (mut firm, mut opinions) = (Vec::new(), Vec::new());
    for line in lines.iter().rev().map(|line| strip_formatting(line)).filter(|line| !line.is_empty()) {
        let lower = line.to_lowercase();
        if is_harmless(&lower) || RECOVERED_PHRASES.iter().any(|words| lower.contains(words)) {
            continue;
        }
        let is_opinion = WARNING_PHRASES.iter().any(|words| lower.contains(words));
        if is_opinion { &mut opinions } else { &mut firm }.push(line);
    }
    firm.append(&mut opinions);
    firm
}

/// Where the traceback begins whose exception was the last, with those that led to it.
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

/// The number of the line that names the exception of the last traceback: the first one after it that is not indented.
pub(crate) fn last_exception(lines: &[&str]) -> Option<usize> {
    let start = lines.iter().rposition(|line| line.starts_with(TRACEBACK))?;
    let after = lines.iter().enumerate().skip(start + 1);
    after
        .filter(|(_, line)| !line.is_empty())
        .find(|(_, line)| !line.starts_with(char::is_whitespace))
        .map(|(n, _)| n)
}

/// Without blanks around it and without the sequences that colour a terminal.
pub(crate) fn strip_formatting(line: &str) -> Cow<'_, str> {
    let line = line.trim();
    if !line.contains('\x1b') {
        return Cow::Borrowed(line);
    }
    let mut parts = line.split('\x1b');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // `[`, parameters, and a letter that ends it; anything else is only an escape without a meaning here.
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
    fn an_exception_ends_what_was_said_before_it() {
        let text = "Connection refused\nTraceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'\nbye";
        assert_eq!(relevant_lines(text)[0], "bye");
        assert!(relevant_lines(text).iter().all(|line| line != "Connection refused"));
        let chained = "Traceback (most recent call last):\nConnectionRefusedError: [Errno 111]\n\n\
                       The above exception was the direct cause of the following exception:\n\n\
                       Traceback (most recent call last):\nmy.Error: cannot fetch";
        assert!(relevant_lines(chained).iter().any(|line| line.contains("Errno 111")));
    }

    #[test]
    fn long_texts_are_cut_at_a_line() {
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
    fn no_errors_are_harmless_and_ten_are_not() {
        for line in ["0 errors", "12 passed, 0 failed", "exit without error"] {
            assert!(is_harmless(line), "{line}");
        }
        for line in ["10 errors", "step 4711.0 failed", "error"] {
            assert!(!is_harmless(line), "{line}");
        }
    }

    #[test]
    fn colours_are_taken_off() {
        assert_eq!(strip_formatting("  \x1b[1;31merror\x1b[0m: x\x1b "), "error: x");
        assert_eq!(strip_formatting("\x1b["), "");
        assert_eq!(strip_formatting("plain"), "plain");
    }
}
