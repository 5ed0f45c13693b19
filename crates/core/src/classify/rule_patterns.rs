//! Regular expressions of rules, each compiled when a line first contains its required words.
//!
//! Some programs run for a single failure. Compiling all expressions would take longer than the rest of their
//! work, and nearly every line matches none of them.

use crate::word_matcher::WordMatcher;
use regex::bytes::Regex;
use std::collections::BTreeSet;
use std::sync::OnceLock;

#[derive(Debug)]
pub(super) struct RulePatterns {
    patterns: Vec<(String, OnceLock<Option<Regex>>)>,
    /// Words that a match must contain, with their patterns.
    required_words: WordMatcher,
    word_patterns: Vec<usize>,
    /// Patterns without known required words.
    patterns_without_words: Vec<usize>,
}

impl RulePatterns {
    /// The patterns must be valid; an invalid one matches no line.
    pub(super) fn new(patterns: Vec<String>) -> Self {
        let (mut needles, mut word_patterns, mut patterns_without_words) =
            (Vec::new(), Vec::new(), Vec::new());
        for (index, pattern) in patterns.iter().enumerate() {
            match self::find_required_words(pattern) {
                Some(words) => {
                    word_patterns.extend(words.iter().map(|_| index));
                    needles.extend(words.into_iter().map(str::to_owned));
                }
                None => patterns_without_words.push(index),
            }
        }
        let patterns = patterns.into_iter().map(|pattern| (pattern, OnceLock::new())).collect();
        Self { patterns, required_words: WordMatcher::new(needles), word_patterns, patterns_without_words }
    }

    /// Returns words of which every matching line contains at least one. `None` if they are not known for all
    /// patterns.
    pub(super) fn required_words(&self) -> Option<impl Iterator<Item = &str>> {
        self.patterns_without_words.is_empty().then(|| self.required_words.all())
    }

    /// Returns the indices of the patterns that match a line, ascending.
    pub(super) fn matching_patterns(&self, line: &str) -> impl Iterator<Item = usize> {
        let by_words = self.required_words.find_in(line).into_iter().map(|word| self.word_patterns[word]);
        let candidates: BTreeSet<usize> =
            by_words.chain(self.patterns_without_words.iter().copied()).collect();
        candidates
            .into_iter()
            .filter(|&index| self.get_pattern(index).is_some_and(|regex| regex.is_match(line.as_bytes())))
    }

    fn get_pattern(&self, index: usize) -> Option<&Regex> {
        let (pattern, made) = &self.patterns[index];
        made.get_or_init(|| Regex::new(pattern).ok()).as_ref()
    }
}

/// Returns words of which every match contains at least one, if the pattern is simple enough. Words of fewer
/// than three letters are not used.
fn find_required_words(pattern: &str) -> Option<Vec<&str>> {
    if pattern.contains("(?") || !pattern.is_ascii() {
        return None;
    }
    let parts = parse_parts(pattern)?;
    let ways = parts.split(|part| matches!(part, PatternPart::Or));
    ways.map(required_words_of_branch).collect::<Option<Vec<_>>>().map(|ways| ways.concat())
}

/// Returns the longest required words of one alternative, or those of a required group.
fn required_words_of_branch<'p>(parts: &[PatternPart<'p>]) -> Option<Vec<&'p str>> {
    const SHORTEST: usize = 3;
    let words = parts
        .iter()
        .filter_map(|part| if let PatternPart::Literal(words) = part { Some(*words) } else { None });
    match words.rev().max_by_key(|words| words.len()) {
        Some(longest) if longest.len() >= SHORTEST => Some(vec![longest]),
        _ => parts.iter().find_map(|part| {
            if let PatternPart::Group(inner) = part { find_required_words(inner) } else { None }
        }),
    }
}

/// A required part of a pattern.
#[derive(Debug)]
enum PatternPart<'p> {
    Literal(&'p str),
    /// The content of parentheses.
    Group(&'p str),
    Or,
}

/// Returns `None` for an invalid expression.
fn parse_parts(pattern: &str) -> Option<Vec<PatternPart<'_>>> {
    let bytes = pattern.as_bytes();
    let is_optional = |at: usize| matches!(bytes.get(at), Some(b'?' | b'*' | b'{'));
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let begin = at;
        at = match byte {
            b'|' => {
                parts.push(PatternPart::Or);
                at + 1
            }
            b'(' => {
                let end = end_of_group(bytes, at)?;
                if !is_optional(end) {
                    parts.push(PatternPart::Group(&pattern[begin + 1..end - 1]));
                }
                end
            }
            b'[' => end_of_set(bytes, at)?,
            b'{' => at + bytes[at..].iter().position(|byte| *byte == b'}')? + 1,
            // These escapes are followed by the code of a character.
            b'\\' if matches!(bytes.get(at + 1), Some(b'x' | b'u' | b'U' | b'p' | b'P')) => return None,
            b'\\' => at + 2,
            b'.' | b'+' | b'*' | b'?' | b')' | b']' | b'}' | b'^' | b'$' => at + 1,
            _ => {
                let plain = |byte: &u8| !br"\.+*?()|[]{}^$".contains(byte);
                let end = at + bytes[at..].iter().take_while(|byte| plain(byte)).count();
                // The character before a repetition operator may be optional.
                let sure = if is_optional(end) { end - 1 } else { end };
                parts.push(PatternPart::Literal(&pattern[begin..sure]));
                end
            }
        };
    }
    Some(parts)
}

/// Returns the position after the parenthesis that closes the group that begins here.
fn end_of_group(bytes: &[u8], begin: usize) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, begin);
    loop {
        match bytes.get(at)? {
            b'\\' => at += 1,
            b'[' => at = end_of_set(bytes, at)? - 1,
            b'(' => depth += 1,
            b')' if depth == 1 => return Some(at + 1),
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

/// Returns the position after the bracket that closes the set that begins here. A bracket in the first place is
/// a member. `None` for nested sets.
fn end_of_set(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    at += usize::from(bytes.get(at) == Some(&b'^'));
    at += usize::from(bytes.get(at) == Some(&b']'));
    loop {
        match bytes.get(at)? {
            b'\\' => at += 1,
            b']' => return Some(at + 1),
            b'[' => return None,
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn required_words_of_patterns_are_found() {
        let none: &[&str] = &[];
        for (pattern, words) in [
            ("PBS: job killed: v?mem ", &["PBS: job killed: "][..]),
            (r"reason: .?DeadlineExceeded", &["DeadlineExceeded"]),
            ("[Dd]etected [0-9]+ oom.kill event", &["kill event"]),
            (r"\[3011\]", &["3011"]),
            (r"\bEIO\b", &["EIO"]),
            (r"^error\[E[0-9]{4}\]", &["error"]),
            ("(squashfuse|fuse)[^ ]*: .*(failed|error)", &["squashfuse", "fuse"]),
            ("(HTTP(/[0-9.]+)?|[Ss]tatus([ _][Cc]ode)?)[ :=]{1,3}40[137]", &["HTTP", "tatus"]),
            ("one|another", &["one", "another"]),
            ("one|[a-z]", none),
            ("(one|of)[a-z]", none),
            ("(one|of)?three", &["three"]),
            ("(one)?", none),
            ("(one){2}", none),
            ("((one|two)|three(s)?)[(]", &["one", "two", "three"]),
            ("(?i)words", none),
            ("colou?r", &["colo"]),
            ("ab{0,3}cdef", &["cdef"]),
            ("[]abc]defg", &["defg"]),
            ("[^]abc]defg", &["defg"]),
            (r"[\]abc]defg", &["defg"]),
            (r"\x41foobar", none),
            (r"\pLfoobar", none),
            ("[a[bc]defgh]xyz", none),
            ("a{2}", none),
            ("(abc", none),
            ("[abc", none),
            ("", none),
        ] {
            assert_eq!(find_required_words(pattern).unwrap_or_default(), words, "{pattern}");
        }
    }

    fn rule_patterns() -> Vec<String> {
        let rules = super::super::default_rules();
        let texts = rules.iter().flat_map(|rule| rule.stderr.clone());
        texts.filter_map(|text| text.strip_prefix("re:").map(str::to_owned)).collect()
    }

    fn same_as_all_at_once(patterns: &[String], line: &str) {
        let all = regex::bytes::RegexSet::new(patterns).unwrap();
        let lazy = RulePatterns::new(patterns.to_vec());
        let found: Vec<usize> = lazy.matching_patterns(line).collect();
        assert_eq!(found, all.matches(line.as_bytes()).into_iter().collect::<Vec<_>>(), "{line}");
    }

    #[test]
    fn prefilter_matches_the_examples_of_rules() {
        let patterns = rule_patterns();
        for rule in super::super::default_rules() {
            for line in rule.examples.iter().flat_map(|example| example.lines()) {
                same_as_all_at_once(&patterns, line);
            }
        }
    }

    proptest! {
        /// A matching text is found for every pattern: the prefilter drops no match.
        #[test]
        fn prefilter_drops_no_match(
            (index, line) in (0..rule_patterns().len()).prop_flat_map(|index| {
                let pattern = rule_patterns()[index].trim_start_matches('^').trim_end_matches('$').replace(r"\b", "");
                (Just(index), proptest::string::string_regex(&pattern).unwrap_or_else(|_| proptest::string::string_regex("x").unwrap()))
            }),
        ) {
            let patterns = rule_patterns();
            let regex = Regex::new(&patterns[index]).unwrap();
            let lazy = RulePatterns::new(patterns);
            let found: Vec<usize> = lazy.matching_patterns(&line).collect();
            prop_assert_eq!(found.contains(&index), regex.is_match(line.as_bytes()));
        }
    }
}
