//! Failure signatures: equal for the same failure of many jobs, without ids, numbers and paths that differ.
//!
//! `#` stands for numbers, hexadecimal numbers, ids, dates and names of temporary files; a path keeps `…/` and
//! its last part. Normalization is idempotent.

use crate::classify::{FailureClassification, FailureEvidence, TerminationCause};
use crate::log_lines;
use regex::{Captures, Regex};
use serde::Serialize;
use std::sync::LazyLock;
use windlass_types::{FailureClass, digest_bytes, signal_name};

/// What failures of the same kind have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct FailureSignature {
    /// 16 hexadecimal digits, the same on every machine.
    pub key: String,
    /// For people: the normalized line, or how the attempt ended if there is no output.
    pub message: String,
}

impl FailureSignature {
    /// Returns the signature of a classified failure.
    pub fn from_classification(evidence: &FailureEvidence<'_>, found: &FailureClassification) -> Self {
        // After a timeout or out-of-memory failure the output is not the cause.
        let line = found.line.as_deref().filter(|_| !evidence.cause.is_certain());
        Self::new(found.class, &describe_end(evidence), line)
    }

    /// `ending` says how it ended, `line` is the most relevant line of the output.
    pub fn new(class: FailureClass, ending: &str, line: Option<&str>) -> Self {
        let said = line.map(normalise_line).unwrap_or_default();
        let whole = format!("{class}\0{ending}\0{said}");
        let mut key = digest_bytes(whole.as_bytes());
        key.truncate(16);
        Self { key, message: if said.is_empty() { ending.to_owned() } else { said } }
    }
}

/// Describes how it ended, in words common to all failures of the kind.
fn describe_end(evidence: &FailureEvidence<'_>) -> String {
    match (evidence.cause, evidence.effective_signal()) {
        (TerminationCause::Itself, Some(signal)) => {
            signal_name(signal).unwrap_or_else(|| format!("signal {signal}"))
        }
        (TerminationCause::Itself, None) => format!("exit code {}", evidence.return_code),
        (cause, _) => cause.as_str().replace('_', " "),
    }
}

/// Longer messages are cut.
const MAX_MESSAGE: usize = 200;
const MAX_PASSES: usize = 8;

/// Parts that differ between failures of the same kind, in order of preference.
static VARIABLE_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?x)
        (?P<date> \d{4}-\d\d-\d\d (?:[T\ ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)? (?:Z|[+-]\d\d:?\d\d)?
                | (?:[A-Z][a-z]{2}\ +)? (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\ +\d{1,2}\ +(?:\d{4}\ +)?\d\d:\d\d:\d\d(?:\ \d{4})?
                | \d{1,4}/\d{1,2}/\d{1,4}
                | \d{1,2}:\d\d:\d\d(?:[.,]\d+)? )
      | (?P<id>   [0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12} )
      | (?P<url>  [A-Za-z][A-Za-z0-9+.-]*://[^\s'\x22<>()\[\]{},;]+ )
      | (?P<path> [\w.~+@%\#…-]*(?:/[\w.~+@%\#…-]*)+ )
      | (?P<temp> \btmp[a-z0-9_]{8}\b | \btmp\.[A-Za-z0-9]{6,12}\b )
      | (?P<real> \b\d+(?:[.,]\d+)*[eE][+-]?\d+\b )
      | (?P<word> [A-Za-z0-9]*[0-9](?:[A-Za-z0-9]|[.,][0-9])* )";
    Regex::new(pattern).expect("the pattern is a constant covered by tests")
});

/// Several numbers in a row become one; a sign before a number is part of it.
static NUMBER_RUN_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"#(?:(?:,\ ?|\ |\.|-|:)[+-]?#)+").expect("the pattern is a constant covered by tests")
});
static SIGN_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(^|[\s=(\[{,:<>])[+-]+#").expect("the pattern is a constant covered by tests")
});

/// Replaces the parts of a line that differ from job to job.
pub fn normalise_line(line: &str) -> String {
    let blanks_once: String =
        log_lines::strip_formatting(line).split_whitespace().collect::<Vec<_>>().join(" ");
    let whole = normalise_fully(blanks_once);
    match truncate_message(&whole) {
        Some(start) => normalise_fully(start) + " …",
        None => whole,
    }
}

/// Repeats the normalization until nothing changes. Few texts need a second pass; the limit is for unusual
/// ones.
fn normalise_fully(mut text: String) -> String {
    for _ in 0..MAX_PASSES {
        let next = normalise_once(&text);
        if next == text {
            break;
        }
        text = next;
    }
    text
}

fn normalise_once(text: &str) -> String {
    let text = VARIABLE_PATTERN.replace_all(text, |found: &Captures<'_>| replace_match(found));
    let text = SIGN_PATTERN.replace_all(&text, "$1#");
    NUMBER_RUN_PATTERN.replace_all(&text, "#").into_owned()
}

fn replace_match(found: &Captures<'_>) -> String {
    let whole = &found[0];
    if found.name("url").is_some() {
        return normalise_url(whole);
    }
    if found.name("path").is_some() {
        return normalise_path(whole);
    }
    if found.name("word").is_some() {
        return normalise_word(whole);
    }
    "#".to_owned()
}

/// Keeps the scheme and the host: they identify the server that failed.
fn normalise_url(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let tail = if rest.len() > host.len() && rest.contains('/') { "/…" } else { "" };
    format!("{scheme}://{}{tail}", normalise_words(host))
}

/// `…/ref.fa`. Text with a slash that is not a path (`and/or`) stays, except for its numbers.
fn normalise_path(text: &str) -> String {
    let trimmed = text.trim_end_matches('/');
    let (folders, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    let starts_like_one = ["/", "~", "./", "../", "…/"].iter().any(|start| text.starts_with(start));
    let is_path = starts_like_one || folders.contains('/') || name.contains('.');
    match () {
        () if !is_path => normalise_words(text),
        () if name.is_empty() || name == "…" => "/".to_owned(),
        () => format!("…/{}", normalise_words(name)),
    }
}

/// Normalizes a text without slashes, word by word.
fn normalise_words(text: &str) -> String {
    static PARTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?P<temp>\btmp[a-z0-9_]{8}\b|\btmp\.[A-Za-z0-9]{6,12}\b)|[A-Za-z0-9]*[0-9](?:[A-Za-z0-9]|[.,][0-9])*")
            .expect("the pattern is a constant covered by tests")
    });
    let replace = |found: &Captures<'_>| {
        if found.name("temp").is_some() { "#".to_owned() } else { normalise_word(&found[0]) }
    };
    PARTS.replace_all(text, replace).into_owned()
}

/// Normalizes a word that contains a digit: a number, an id, or a name with a number.
fn normalise_word(text: &str) -> String {
    let is_hex = |digits: &str| digits.len() >= 8 && digits.chars().all(|c| c.is_ascii_hexdigit());
    let kinds: Vec<bool> = text.chars().map(|c| c.is_ascii_alphabetic()).collect();
    let changes = kinds.windows(2).filter(|pair| pair[0] != pair[1]).count();
    if text.starts_with("0x") || is_hex(text) || changes >= 3 {
        return "#".to_owned();
    }
    let mut result = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_alphabetic() => result.push(c),
            _ if result.ends_with('#') => {}
            _ => result.push('#'),
        }
    }
    result
}

/// Returns the beginning of a text that is too long, cut at a word boundary if possible. Leaves room for ` …`,
/// and for the `…/` of a path that is cut.
fn truncate_message(text: &str) -> Option<String> {
    text.char_indices().nth(MAX_MESSAGE)?;
    let end = text.char_indices().nth(MAX_MESSAGE - 4).map_or(text.len(), |(end, _)| end);
    let start = &text[..end];
    let words = start.rfind(' ').map_or(start, |blank| &start[..blank]);
    Some(words.trim_end_matches([' ', '…']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::FailureClassifier;
    use proptest::prelude::*;

    #[test]
    fn job_specific_parts_are_removed() {
        for (line, expected) in [
            ("No such file or directory: '/data/run17/ref.fa'", "No such file or directory: '…/ref.fa'"),
            ("cannot open results/part_0017.csv", "cannot open …/part_#.csv"),
            ("cannot open /scratch/ada/", "cannot open …/ada"),
            ("cannot read / and ~/x and ../y/z9", "cannot read / and …/x and …/z#"),
            ("read/write and/or TCP/IP", "read/write and/or TCP/IP"),
            ("2026-02-26T14:30:00.123Z ERROR [worker-7] failed", "# ERROR [worker-#] failed"),
            ("26/02/2026 14:30:00 failed", "# failed"),
            ("Feb 26 14:30:00 node17 kernel: oops", "# node# kernel: oops"),
            ("job 6f1c2a34-9b1e-4c55-8f00-0123456789ab failed", "job # failed"),
            ("segfault at 0x7ffde1a2 ip 00007f3a9c", "segfault at # ip #"),
            ("commit deadbeef1 of x7f3k9", "commit # of #"),
            ("energy -5.3e-7 above 1,000.5 in (3, 4, 5)", "energy # above # in (#)"),
            ("unable to open '/tmp/tmpab_cdefg' or 'tmp.aB3dE6'", "unable to open '…/#' or '#'"),
            ("  File \"/opt/lib/python3.11/x.py\", line 12, in run", "File \"…/x.py\", line #, in run"),
            (
                "GET https://ada:pw@db7.example.org:5432/a/b?c=1 failed",
                "GET https://db#.example.org:#/… failed",
            ),
            ("\x1b[31merror\x1b[0m:   many   blanks", "error: many blanks"),
            ("KeyError: 'energy'", "KeyError: 'energy'"),
            ("a: 1 2 3 4", "a: #"),
            ("", ""),
        ] {
            assert_eq!(normalise_line(line), expected, "{line}");
        }
    }

    #[test]
    fn long_messages_are_truncated_once() {
        let long = normalise_line(&"word ".repeat(200));
        assert!(
            long.ends_with("word …") && (MAX_MESSAGE - 9..=MAX_MESSAGE).contains(&long.chars().count()),
            "{long}"
        );
        assert_eq!(normalise_line(&long), long);
    }

    fn of(code: i32, signal: Option<i32>, cause: TerminationCause, tail: &str) -> FailureSignature {
        let evidence = FailureEvidence { signal, cause, ..FailureEvidence::from_exit(code, tail) };
        FailureSignature::from_classification(&evidence, &FailureClassifier::standard().classify(&evidence))
    }

    #[test]
    fn signature_key_depends_on_class_end_and_line() {
        let found = of(
            1,
            None,
            TerminationCause::Itself,
            "cp: cannot stat '/data/7/ref.fa': No such file or directory",
        );
        assert_eq!(found.message, "cp: cannot stat '…/ref.fa': No such file or directory");
        // Stored in databases: changing the key would change all stored ones.
        assert_eq!(found.key, "c7ec78903f0fe58b");
        assert_ne!(
            found.key,
            of(
                2,
                None,
                TerminationCause::Itself,
                "cp: cannot stat '/data/7/ref.fa': No such file or directory"
            )
            .key
        );
        assert_ne!(
            found.key,
            of(
                1,
                None,
                TerminationCause::Itself,
                "cp: cannot stat '/data/7/ref.gtf': No such file or directory"
            )
            .key
        );
        assert_eq!(
            of(139, None, TerminationCause::Itself, ""),
            of(139, Some(11), TerminationCause::Itself, "")
        );
    }

    #[test]
    fn message_defaults_to_the_end_of_the_attempt() {
        assert_eq!(of(3, None, TerminationCause::Itself, "").message, "exit code 3");
        assert_eq!(of(139, Some(11), TerminationCause::Itself, "").message, "SIGSEGV");
        let over = of(152, Some(9), TerminationCause::Timeout, "step 17 of 200");
        assert_eq!(over.message, "timeout");
        assert_eq!(over, of(152, Some(15), TerminationCause::Timeout, "another step"));
        assert_eq!(of(1, None, TerminationCause::MissingOutput, "").message, "missing output");
    }

    fn key(line: &str) -> String {
        FailureSignature::new(FailureClass::Unknown, "exit code 1", Some(line)).key
    }

    proptest! {
        #[test]
        fn normalization_is_idempotent(line in "\\PC{0,80}|[a-f0-9 ./#…:,'\"-]{0,80}|[A-Za-z0-9/._ -]{0,400}") {
            let once = normalise_line(&line);
            prop_assert_eq!(normalise_line(&once), once);
        }

        #[test]
        fn numbers_paths_and_ids_do_not_change_the_key(
            (a, b) in (0u64.., 0u64..),
            (x, y) in (0.0..1e6f64, -1e6..1e6f64),
            (dirs, more) in ("(/[a-z]{1,8}[0-9]{0,3}){1,4}", "(/[a-z]{1,8}[0-9]{0,3}){1,4}"),
            (id, other) in (any::<u128>(), any::<u128>()),
        ) {
            let line = |n: u64, real: f64, dir: &str, id: u128| {
                let hex = format!("{id:032x}");
                let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
                format!("task {n}: cannot open '{dir}/ref.fa' of {uuid} at {id:#x}, loss {real:.3} (job_{n})")
            };
            prop_assert_eq!(key(&line(a, x, &dirs, id)), key(&line(b, y, &more, other)));
        }

        #[test]
        fn different_words_give_different_keys(a in "[a-z]{3,9}( [a-z]{3,9}){0,5}", b in "[a-z]{3,9}( [a-z]{3,9}){0,5}") {
            let is_temp = |text: &str| text.split(' ').any(|word| word.starts_with("tmp"));
            prop_assume!(a != b && !is_temp(&a) && !is_temp(&b));
            prop_assert_ne!(key(&a), key(&b));
        }
    }
}
