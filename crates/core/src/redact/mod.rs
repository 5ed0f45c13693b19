//! Redaction of secrets in texts shown to others: job logs, messages, input of agents.
//!
//! Two methods are combined: values of environment variables with secret names ([`SecretNames`]), wherever they
//! occur; and patterns of secrets in any text: passwords in URLs, tokens with a well-known prefix, private
//! keys. Neither finds everything. Redact *before* cutting a text: half a secret matches no pattern.

mod secret_names;

pub use secret_names::{MASK, SecretNames};

use crate::word_matcher::WordMatcher;
use aho_corasick::{AhoCorasick, MatchKind};
use regex::{Captures, Regex};
use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

/// Redacts secrets in texts of one job.
#[derive(Clone, Debug, Default)]
pub struct SecretRedactor {
    /// `None`: no value is known.
    values: Option<AhoCorasick>,
}

/// Shorter values also occur in ordinary words.
const MIN_SECRET_LENGTH: usize = 4;

impl SecretRedactor {
    /// Collects the values of variables with secret names.
    pub fn new<'e>(masking: &SecretNames, environment: impl IntoIterator<Item = (&'e str, &'e str)>) -> Self {
        let secret =
            environment.into_iter().filter(|(name, _)| masking.is_secret(name)).map(|(_, value)| value);
        // A value of several lines is printed line by line.
        let mut values: Vec<&str> =
            secret.flat_map(|value| std::iter::once(value).chain(value.lines())).collect();
        values.retain(|value| value.trim().len() >= MIN_SECRET_LENGTH);
        values.sort_unstable();
        values.dedup();
        let build =
            |values: &[&str]| AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(values);
        let values =
            (!values.is_empty()).then(|| build(&values).expect("an environment is smaller than the limit"));
        Self { values }
    }

    /// Replaces each secret by [`MASK`]; returns the same text if there is none.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = match &self.values {
            Some(values) if values.is_match(text) => {
                let masks = vec![MASK; values.patterns_len()];
                Cow::Owned(values.replace_all(text, &masks))
            }
            _ => Cow::Borrowed(text),
        };
        SecretPatterns::get().mask(text)
    }
}

/// All patterns, with a fast prefilter.
struct SecretPatterns {
    patterns: Vec<SecretPattern>,
    /// The required words of all patterns; most texts contain few of them.
    words: WordMatcher,
    /// The pattern of each of `words`.
    word_owners: Vec<usize>,
}

impl SecretPatterns {
    fn get() -> &'static Self {
        static SHAPES: LazyLock<SecretPatterns> = LazyLock::new(|| SecretPatterns::new(secret_patterns()));
        &SHAPES
    }

    fn new(shapes: Vec<SecretPattern>) -> Self {
        let words = shapes
            .iter()
            .enumerate()
            .flat_map(|(i, shape)| shape.required_words.iter().map(move |word| ((*word).to_owned(), i)));
        let (words, word_owners): (Vec<String>, Vec<usize>) = words.unzip();
        Self { patterns: shapes, words: WordMatcher::new(words), word_owners }
    }

    fn mask<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        let mut may_occur = vec![false; self.patterns.len()];
        for word in self.words.find_in(&text) {
            may_occur[self.word_owners[word]] = true;
        }
        let candidates = self.patterns.iter().zip(may_occur).filter(|(_, may)| *may);
        candidates.fold(text, |text, (shape, _)| shape.mask(text))
    }
}

/// A pattern of secrets. The groups `keep` and `after` remain visible.
struct SecretPattern {
    text: &'static str,
    /// Compiled when a text first contains one of the words: some programs run for a single text, and compiling
    /// all patterns would take longer than the rest of their work.
    pattern: OnceLock<Regex>,
    /// Without one of these words, ignoring case, the pattern cannot match.
    required_words: &'static [&'static str],
}

impl SecretPattern {
    const fn new(required_words: &'static [&'static str], text: &'static str) -> Self {
        Self { text, pattern: OnceLock::new(), required_words }
    }

    fn mask<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        let make = || Regex::new(self.text).expect("the pattern is a constant covered by tests");
        let pattern = self.pattern.get_or_init(make);
        if !pattern.is_match(&text) {
            return text;
        }
        let replacement = |found: &Captures<'_>| {
            let part = |name| found.name(name).map_or("", |part| part.as_str());
            format!("{}{MASK}{}", part("keep"), part("after"))
        };
        Cow::Owned(pattern.replace_all(&text, replacement).into_owned())
    }
}

fn secret_patterns() -> Vec<SecretPattern> {
    vec![
        // The first one hides everything after the begin marker if the end marker is missing, the second one
        // what precedes a lone end marker.
        SecretPattern::new(
            &["private key-----"],
            r"(?P<keep>-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----)(?s:.*?)(?P<after>-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
        ),
        SecretPattern::new(
            &["private key-----"],
            r"(?m)(?:^[A-Za-z0-9+/=]{4,}\s*\n)+(?P<after>-----END [A-Z0-9 ]*PRIVATE KEY-----)",
        ),
        SecretPattern::new(&["://"], r"(?P<keep>[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(?P<after>@)"),
        SecretPattern::new(
            &["authorization"],
            r#"(?i)(?P<keep>authorization["']?\s*[:=]\s*["']?(?:[a-z]+\s+)?)[A-Za-z0-9._~+/=*-]{6,}"#,
        ),
        SecretPattern::new(&["bearer"], r"(?i)(?P<keep>\bbearer\s+)[A-Za-z0-9._~+/=-]{16,}"),
        SecretPattern::new(
            &["password", "passwd", "passphrase", "secret", "token", "key", "credential"],
            r#"(?ix)(?P<keep>
                (?: [a-z0-9_.-]*(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)[a-z0-9_-]*
                  | [a-z0-9_.-]*token )
                (?: ["']?\s*[=:]\s*["']? ))
                [^\s"',;&(){}\[\]]{4,}"#,
        ),
        SecretPattern::new(
            &["--pass", "--token", "--secret", "--api"],
            r#"(?i)(?P<keep>--(?:password|passwd|passphrase|token|secret|api-?key)[ =]["']?)[^\s"'=-][^\s"']*"#,
        ),
        // Tokens with a known prefix: AWS, GitHub, GitLab, Slack, Hugging Face, Google, OpenAI, Anthropic,
        // JWT, and Windlass.
        SecretPattern::new(
            &["akia", "asia", "gh", "glpat-", "xox", "hf_", "aiza", "sk-", "eyj", "wl_"],
            r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abeprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{20,}|AIza[A-Za-z0-9_-]{35}|sk-[A-Za-z0-9_-]{20,}|wl_[A-Za-z0-9_-]{20,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_variables_are_redacted_everywhere() {
        let environment = [
            ("API_TOKEN", "s3same"),
            ("HOME", "/home/ada"),
            ("DB_PASSWORD", "s3same-and-more"),
            ("KEY_PIN", "1"),
            ("SSH_KEY", "line one of it\nline two of it\n"),
            ("EMPTY_SECRET", ""),
        ];
        let redactor = SecretRedactor::new(&SecretNames::default(), environment);
        for (text, expected) in [
            ("at s3same-and-more!", "at ********!"),
            ("xs3samex in /home/ada 1", "x********x in /home/ada 1"),
            ("it says: line two of it.", "it says: ********."),
            ("nothing here", "nothing here"),
        ] {
            assert_eq!(redactor.redact(text), expected);
        }
        assert!(matches!(redactor.redact("nothing here"), Cow::Borrowed(_)));
        assert!(matches!(SecretRedactor::default().redact("s3same"), Cow::Borrowed("s3same")));
    }

    #[test]
    fn secret_looking_texts_are_redacted() {
        let redactor = SecretRedactor::default();
        for (text, expected) in [
            ("psql postgres://ada:hush@db:5432/x", "psql postgres://ada:********@db:5432/x"),
            ("Authorization: Bearer abc.def-123", "Authorization: Bearer ********"),
            ("authorization=Basic YWRhOmh1c2g=", "authorization=Basic ********"),
            ("sent bearer 0123456789abcdef", "sent bearer ********"),
            ("password=hush&x=1", "password=********&x=1"),
            ("{\"db_password\": \"hushhush\"}", "{\"db_password\": \"********\"}"),
            ("export API_KEY='abcd1234'", "export API_KEY='********'"),
            ("MY_TOKEN: abcd1234, next", "MY_TOKEN: ********, next"),
            ("login --password hush --user ada", "login --password ******** --user ada"),
            ("id AKIAIOSFODNN7EXAMPLE.", "id ********."),
            ("push ghp_0123456789abcdefghij0123", "push ********"),
            ("with wl_0123456789abcdefghij0123", "with ********"),
            ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2ln", "jwt ********"),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE KEY-----\nb",
                "a\n-----BEGIN RSA PRIVATE KEY-----********-----END RSA PRIVATE KEY-----\nb",
            ),
            ("-----BEGIN PRIVATE KEY-----\nMIIEcut off", "-----BEGIN PRIVATE KEY-----********"),
            ("MIIEabcd\nefgh\n-----END PRIVATE KEY-----", "********-----END PRIVATE KEY-----"),
        ] {
            let once = redactor.redact(text);
            assert_eq!(once, expected);
            assert_eq!(redactor.redact(&once), once, "again");
        }
    }

    #[test]
    fn harmless_words_are_not_redacted() {
        let redactor = SecretRedactor::default();
        for text in [
            "password authentication failed for user \"ada\"",
            "max_tokens=4096 used",
            "SyntaxError: unexpected token in line 3",
            "KeyError: 'energy'",
            "http://example.org:8080/path@x",
            "the token has expired",
            "keyboard: none",
            "risk-free and task-based",
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        ] {
            assert_eq!(redactor.redact(text), text);
        }
    }
}
