//! Regular expressions of rules, each made when a line first has the words that it cannot do without.
//!
//! There are programs that run for one failure. To make all expressions ready would take them longer than everything
//! else that they do, and nearly every line is known by none of them.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::bytes::Regex;
use std::sync::OnceLock;

#[derive(Debug)]
pub(super) struct Expressions {
    patterns: Vec<(String, OnceLock<Option<Regex>>)>,
    /// Words in lower case, without which a pattern matches nothing; and whose they are.
    needles: AhoCorasick,
    needle_patterns: Vec<usize>,
    /// Patterns of which no such words are known.
    always: Vec<usize>,
}

impl Expressions {
    /// They are taken for expressions that can be read: one that cannot knows no line.
    pub(super) fn new(patterns: Vec<String>) -> Result<Self, aho_corasick::BuildError> {
        let (mut needles, mut needle_patterns, mut always) = (Vec::new(), Vec::new(), Vec::new());
        for (index, pattern) in patterns.iter().enumerate() {
            match needle(pattern) {
                Some(words) => {
                    needles.push(words.to_ascii_lowercase());
                    needle_patterns.push(index);
                }
                None => always.push(index),
            }
        }
        let patterns = patterns.into_iter().map(|pattern| (pattern, OnceLock::new())).collect();
        Ok(Self { patterns, needles: soonest(&needles)?, needle_patterns, always })
    }

    /// Which of them match a line; `lower` is the line in lower case.
    pub(super) fn matching(&self, line: &str, lower: &str) -> impl Iterator<Item = usize> {
        let by_words =
            self.needles.find_overlapping_iter(lower).map(|found| self.needle_patterns[found.pattern()]);
        let candidates: std::collections::BTreeSet<usize> =
            by_words.chain(self.always.iter().copied()).collect();
        candidates
            .into_iter()
            .filter(|&index| self.get(index).is_some_and(|regex| regex.is_match(line.as_bytes())))
    }

    fn get(&self, index: usize) -> Option<&Regex> {
        let (pattern, made) = &self.patterns[index];
        made.get_or_init(|| Regex::new(pattern).ok()).as_ref()
    }
}

/// The kind that is made soonest: what it is asked are the few last lines of a log.
pub(super) fn soonest(words: &[String]) -> Result<AhoCorasick, aho_corasick::BuildError> {
    AhoCorasick::builder().kind(Some(AhoCorasickKind::NoncontiguousNFA)).prefilter(false).build(words)
}

/// The longest words that every match contains, if the pattern is so plain that they can be seen: what stands outside of
/// brackets and is not repeated. Fewer than three letters would tell little.
fn needle(pattern: &str) -> Option<&str> {
    const SHORTEST: usize = 3;
    if pattern.contains("(?") || !pattern.is_ascii() {
        return None;
    }
    let bytes = pattern.as_bytes();
    let (mut depth, mut in_set) = (0_usize, false);
    let (mut best, mut begin) = (0..0, 0);
    let mut at = 0;
    while at <= bytes.len() {
        let byte = bytes.get(at).copied();
        if byte == Some(b'|') && depth == 0 && !in_set {
            return None;
        }
        let is_plain = depth == 0 && !in_set && byte.is_some_and(|byte| !br"\.+*?()|[]{}^$".contains(&byte));
        if is_plain {
            at += 1;
            continue;
        }
        // What a sign of repetition follows may be missing.
        let repeated = matches!(byte, Some(b'?' | b'*' | b'{'));
        let end = if repeated { at.saturating_sub(1).max(begin) } else { at };
        if end - begin > best.len() {
            best = begin..end;
        }
        at += match byte {
            Some(b'\\') => 2,
            Some(b'{') if !in_set => bytes[at..].iter().position(|byte| *byte == b'}')? + 1,
            _ => 1,
        };
        match byte {
            Some(b'[') if !in_set => {
                in_set = true;
                // `[]…]` and `[^]…]` begin with a bracket that does not end them.
                at += usize::from(bytes.get(at) == Some(&b'^'));
                at += usize::from(bytes.get(at) == Some(&b']'));
            }
            Some(b']') => in_set = false,
            Some(b'(') if !in_set => depth += 1,
            Some(b')') if !in_set => depth = depth.saturating_sub(1),
            _ => {}
        }
        begin = at;
    }
    let words = pattern.get(best)?;
    (words.len() >= SHORTEST).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_without_which_nothing_matches() {
        for (pattern, words) in [
            ("PBS: job killed: v?mem ", Some("PBS: job killed: ")),
            (r"reason: .?DeadlineExceeded", Some("DeadlineExceeded")),
            ("[Dd]etected [0-9]+ oom.kill event", Some("kill event")),
            (r"\[3011\]", Some("3011")),
            (r"\bEIO\b", Some("EIO")),
            (r"^error\[E[0-9]{4}\]", Some("error")),
            ("(squashfuse|fuse)[^ ]*: .*(failed|error)", None),
            ("one|another", None),
            ("(?i)words", None),
            ("colou?r", Some("colo")),
            ("ab{0,3}cdef", Some("cdef")),
            ("[]abc]defg", Some("defg")),
            ("[^]abc]defg", Some("defg")),
            ("a{2}", None),
            ("", None),
        ] {
            assert_eq!(needle(pattern), words, "{pattern}");
        }
    }

    fn rule_patterns() -> Vec<String> {
        let rules = super::super::default_rules();
        let texts = rules.iter().flat_map(|rule| rule.stderr.clone());
        texts.filter_map(|text| text.strip_prefix("re:").map(str::to_owned)).collect()
    }

    fn same_as_all_at_once(patterns: &[String], line: &str) {
        let all = regex::bytes::RegexSet::new(patterns).unwrap();
        let lazy = Expressions::new(patterns.to_vec()).unwrap();
        let found: Vec<usize> = lazy.matching(line, &line.to_ascii_lowercase()).collect();
        assert_eq!(found, all.matches(line.as_bytes()).into_iter().collect::<Vec<_>>(), "{line}");
    }

    #[test]
    fn examples_of_rules_are_known_as_if_all_were_made() {
        let patterns = rule_patterns();
        for rule in super::super::default_rules() {
            for line in rule.examples.iter().flat_map(|example| example.lines()) {
                same_as_all_at_once(&patterns, line);
            }
        }
    }

    proptest! {
        /// A text that a pattern matches is found, whatever the pattern: needles leave nothing out.
        #[test]
        fn whatever_matches_is_found(
            (index, line) in (0..rule_patterns().len()).prop_flat_map(|index| {
                let pattern = rule_patterns()[index].trim_start_matches('^').trim_end_matches('$').replace(r"\b", "");
                (Just(index), proptest::string::string_regex(&pattern).unwrap_or_else(|_| proptest::string::string_regex("x").unwrap()))
            }),
        ) {
            let patterns = rule_patterns();
            let regex = Regex::new(&patterns[index]).unwrap();
            let lazy = Expressions::new(patterns).unwrap();
            let found: Vec<usize> = lazy.matching(&line, &line.to_ascii_lowercase()).collect();
            prop_assert_eq!(found.contains(&index), regex.is_match(line.as_bytes()));
        }
    }
}
