//! Log lines that show what went wrong.
//!
//! Shared by `why` and by the analysis of whole logs. Specific causes are covered by the rules of
//! [`crate::classify`]; the patterns here are too vague for a rule: worth showing, but no proof. They are plain
//! words in a lower-case line: fast on large logs and easy to extend.

use crate::classify::FailureClassifier;
use crate::log_lines::{is_harmless, last_exception};
use crate::slurm::log_meanings;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde::Serialize;
use std::sync::LazyLock;

/// A pattern of a line worth showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogPattern {
    /// The words, in lower case, or the name of the rule.
    pub name: &'static str,
    pub means: &'static str,
    pub weight: LogSeverity,
}

/// Relevance of a line. If there is room for few lines, the most relevant ones are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSeverity {
    /// May be an error; often only a consequence of one.
    Hint,
    /// An error that the program detected.
    Error,
    /// Names the cause.
    Cause,
}

use LogSeverity::{Cause, Error, Hint};

const fn log_pattern(name: &'static str, means: &'static str, weight: LogSeverity) -> LogPattern {
    LogPattern { name, means, weight }
}

/// Meaning of `Killed` in a log when nothing else is known about the end.
pub(crate) const KILLED_MEANING: &str = "it was killed";

/// In order of preference: a line that no rule matches gets the meaning of the first pattern of the highest
/// severity.
const LOG_PATTERNS: &[LogPattern] = &[
    log_pattern(
        ": not found",
        "the shell cannot find the program: is it installed, and on the PATH of the job?",
        Cause,
    ),
    log_pattern("core dumped", "the program crashed", Error),
    log_pattern("assertion", "an assertion of the program failed", Error),
    log_pattern("error in ", "R stopped with an error", Error),
    log_pattern("execution halted", "R stopped with an error", Hint),
    log_pattern("loaderror", "Julia or Ruby could not load a file", Cause),
    log_pattern("exception in thread", "a Java program failed", Error),
    log_pattern("matlab:", "MATLAB stopped with an error", Error),
    log_pattern("mpi_abort", "a process of the MPI job aborted; the others were ended with it", Error),
    log_pattern(
        "mpirun noticed that process",
        "a process of the MPI job died; the others were ended with it",
        Error,
    ),
    log_pattern("oversubscribe", "more processes than CPUs", Hint),
    log_pattern("slurmstepd: error", "Slurm ended the step", Error),
    log_pattern("fatal error:", "the compiler failed", Error),
    log_pattern("make: ***", "make stopped", Hint),
    log_pattern("usage:", "the program was called with wrong arguments", Hint),
    log_pattern("traceback (most recent call last)", "a Python program failed", Hint),
    log_pattern("killed", KILLED_MEANING, Error),
    log_pattern("fatal", "the program failed", Error),
    log_pattern("error", "the program reported an error", Error),
    log_pattern("exception", "the program reported an error", Error),
    log_pattern("failed", "an operation failed", Hint),
    log_pattern("failure", "an operation failed", Hint),
    log_pattern("abort", "the program aborted", Hint),
];

/// A relevant line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogFinding {
    /// Line number within the text, from 1.
    pub line: usize,
    pub text: String,
    pub means: &'static str,
    pub weight: LogSeverity,
}

/// Longer lines are cut, for example progress bars without line ends.
const MAX_LINE: usize = 300;

/// Returns the pattern that a line matches, if any.
pub fn match_line(line: &str) -> Option<LogPattern> {
    let lower = line.to_lowercase();
    if is_harmless(&lower) {
        return None;
    }
    if let Some(rule) = FailureClassifier::standard().rule_for_line(line) {
        return Some(LogPattern { name: &rule.name, means: &rule.means, weight: Cause });
    }
    let found = LOG_PATTERNS.iter().filter(|sign| lower.contains(sign.name));
    // The first one with the highest severity: `max_by_key` alone would return the last.
    found.rev().max_by_key(|sign| sign.weight).copied()
}

/// Returns the position of the first word that may be part of a pattern, for [`match_line`] and for
/// [`crate::slurm::log_meanings`]. Lines without such words match nothing: in a large log nearly all lines are
/// skipped at reading speed.
pub fn find_possible_pattern(text: &[u8]) -> Option<usize> {
    static NEEDLES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
        let rules = FailureClassifier::standard().required_words()?;
        let needles =
            LOG_PATTERNS.iter().map(|sign| sign.name).chain(log_meanings::pattern_words()).chain(rules);
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(needles)
            .ok()
    });
    match &*NEEDLES {
        Some(needles) => needles.find(text).map(|found| found.start()),
        None => (!text.is_empty()).then_some(0),
    }
}

/// Returns the most relevant lines of `text`, at most `limit`, in their order. Always includes the exception of
/// the last Python traceback; among lines of equal severity the later ones.
pub fn excerpt_lines(text: &str, limit: usize) -> Vec<LogFinding> {
    let lines: Vec<&str> = text.lines().collect();
    let exception = last_exception(&lines);
    let mut found: Vec<LogFinding> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let is_exception = exception == Some(number);
        let sign = match_line(line);
        if sign.is_none() && !is_exception {
            continue;
        }
        let (means, weight) = match sign {
            Some(sign) if !is_exception => (sign.means, sign.weight),
            Some(sign) if sign.weight == Cause => (sign.means, Cause),
            _ => ("the exception that ended the Python program", Cause),
        };
        found.push(LogFinding { line: number + 1, text: truncate_line(line), means, weight });
    }
    let mut best: Vec<usize> = (0..found.len()).collect();
    best.sort_by_key(|&i| std::cmp::Reverse((exception == Some(found[i].line - 1), found[i].weight, i)));
    best.truncate(limit);
    best.sort_unstable();
    best.into_iter().map(|i| found[i].clone()).collect()
}

pub(crate) fn truncate_line(line: &str) -> String {
    let line = line.trim();
    match line.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_patterns_are_lower_case_and_unique() {
        for (i, sign) in LOG_PATTERNS.iter().enumerate() {
            assert_eq!(sign.name, sign.name.to_lowercase());
            assert!(LOG_PATTERNS[..i].iter().all(|other| other.name != sign.name), "{} twice", sign.name);
        }
    }

    #[test]
    fn prefilter_finds_every_line_with_a_pattern() {
        let standard = FailureClassifier::standard();
        assert!(standard.required_words().is_some(), "every default rule has required words");
        let examples = standard.rules().flat_map(|(rule, _)| &rule.examples).flat_map(|text| text.lines());
        let of_slurm = log_meanings::example_lines();
        let mut known = 0;
        for line in LOG_PATTERNS.iter().map(|sign| sign.name).chain(examples).chain(of_slurm) {
            if match_line(line).is_some() || log_meanings::explain_line(line).is_some() {
                known += 1;
                assert!(find_possible_pattern(line.as_bytes()).is_some(), "{line}");
                assert!(find_possible_pattern(line.to_uppercase().as_bytes()).is_some(), "{line}");
            }
        }
        assert!(known > 100, "{known}");
        assert_eq!(find_possible_pattern(b"step 7 of 9: all is well\n"), None);
        assert_eq!(find_possible_pattern(b"fine\nan Error\n"), Some(8));
    }

    #[test]
    fn line_gets_its_most_severe_pattern() {
        for (line, name) in [
            ("bash: line 1: solvr: command not found", "program-missing"),
            ("zsh: solvr: not found here", ": not found"),
            ("cp: cannot stat 'x': No such file or directory", "file-missing"),
            ("Error: std::bad_alloc", "no-memory"),
            ("RuntimeError: CUDA out of memory. Tried", "gpu-memory"),
            ("Error in library(ggplot3) : there is no package called 'ggplot3'", "r-package"),
            ("thread 'main' panicked at src/main.rs:2:5:", "rust-panic"),
            ("clang: fatal error: nothing", "fatal error:"),
            ("Killed", "killed"),
            ("some Error", "error"),
        ] {
            assert_eq!(match_line(line).map(|sign| sign.name), Some(name), "{line}");
        }
        for line in
            ["all is well", "compiled with 0 errors", "12 passed, 0 failed", "training error rate 0.3"]
        {
            assert_eq!(match_line(line), None, "{line}");
        }
    }

    #[test]
    fn exception_of_last_traceback_is_found_by_any_name() {
        let text = "starting\nTraceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'first'\n\
                    During handling\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    \
                    boom()\nmy.Boom: it went off\nbye\n";
        let found = excerpt_lines(text, 1);
        assert_eq!((found[0].line, found[0].text.as_str()), (9, "my.Boom: it went off"));
    }

    #[test]
    fn most_severe_lines_are_kept_in_order() {
        let text =
            "warning: step failed\nerror: one\nerror: two\nopen: No such file or directory\nerror: three\n";
        let lines: Vec<usize> = excerpt_lines(text, 3).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [3, 4, 5]);
        assert_eq!(excerpt_lines("fine\n", 3), []);
    }

    #[test]
    fn long_lines_are_cut_at_character_boundaries() {
        let found = excerpt_lines(&format!("error {}", "ä".repeat(1000)), 1);
        assert_eq!(found[0].text.chars().count(), MAX_LINE + 1);
    }
}
