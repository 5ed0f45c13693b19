//! Regular expressions for names: each pattern is tested once, against no more names than it can match.

use super::relations::RelationLists;
use crate::expand::ExpandedEntries;
use regex::{Regex, RegexBuilder};
use rustc_hash::FxHashMap;

/// Maximum total number of names to test all patterns of a workflow against. A million patterns that could each
/// match a million files would never finish.
const MAX_TRIALS: usize = 200_000_000;

/// Maximum memory of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 22;

/// The patterns for one kind of names.
#[derive(Debug, Default)]
pub(crate) struct NamePatterns {
    matches_by_pattern: FxHashMap<String, Result<u32, NoMatch>>,
    /// Numbers of all names, sorted by name; computed on first use.
    sorted: Option<Vec<u32>>,
    trials: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoMatch {
    Nothing,
    Invalid(String),
    TooMuchWork,
}

impl NamePatterns {
    /// Returns the shared list of the names that the pattern matches, sorted by number.
    pub(crate) fn match_names(
        &mut self,
        pattern: &str,
        names: &ExpandedEntries,
        relations: &mut RelationLists,
    ) -> Result<u32, NoMatch> {
        if let Some(known) = self.matches_by_pattern.get(pattern) {
            return known.clone();
        }
        let found = self.find_matches(pattern, names).and_then(|numbers| {
            if numbers.is_empty() { Err(NoMatch::Nothing) } else { Ok(relations.add_shared(numbers)) }
        });
        self.matches_by_pattern.insert(pattern.to_owned(), found.clone());
        found
    }

    fn find_matches(&mut self, pattern: &str, names: &ExpandedEntries) -> Result<Vec<u32>, NoMatch> {
        let regex = compile_pattern(pattern)?;
        let is_match = |number: &u32| regex.is_match(names.name(*number));
        let prefix = literal_prefix(pattern);
        if prefix.is_empty() {
            self.charge_trials(names.len())?;
            return Ok((0..names.len() as u32).filter(is_match).collect());
        }
        let sorted = self.sorted.get_or_insert_with(|| {
            let mut all: Vec<u32> = (0..names.len() as u32).collect();
            all.sort_unstable_by_key(|number| names.name(*number));
            all
        });
        let start = sorted.partition_point(|number| names.name(*number) < prefix);
        let length = sorted[start..].partition_point(|number| names.name(*number).starts_with(prefix));
        let mut found: Vec<u32> = sorted[start..start + length].iter().copied().filter(is_match).collect();
        found.sort_unstable();
        self.charge_trials(length)?;
        Ok(found)
    }

    fn charge_trials(&mut self, names: usize) -> Result<(), NoMatch> {
        self.trials += names;
        if self.trials > MAX_TRIALS { Err(NoMatch::TooMuchWork) } else { Ok(()) }
    }
}

/// Returns the error of a pattern, if it is invalid.
pub(crate) fn check_regex(pattern: &str) -> Result<(), String> {
    match compile_pattern(pattern) {
        Err(NoMatch::Invalid(why)) => Err(why),
        _ => Ok(()),
    }
}

fn compile_pattern(pattern: &str) -> Result<Regex, NoMatch> {
    let built =
        RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build();
    built.map_err(|error| {
        // The last line is the error; the others repeat the pattern, which is shown anyway.
        let text = error.to_string();
        let line = text.lines().last().unwrap_or_default();
        NoMatch::Invalid(line.trim_start_matches("error:").trim().to_owned())
    })
}

/// Returns the literal prefix of every match of `^abc…`. Empty if it cannot be determined easily.
pub(super) fn literal_prefix(pattern: &str) -> &str {
    let Some(rest) = pattern.strip_prefix('^') else { return "" };
    if rest.contains('|') {
        return "";
    }
    let is_literal = |c: char| c.is_alphanumeric() || "_-/ ,:=@%".contains(c);
    let end = rest.find(|c| !is_literal(c)).unwrap_or(rest.len());
    let mut prefix = &rest[..end];
    if rest[end..].starts_with(['*', '?', '{', '+']) {
        // The last character may be optional or repeated.
        prefix = prefix.char_indices().next_back().map_or("", |(at, _)| &prefix[..at]);
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_prefix_is_common_to_all_matches() {
        for (pattern, prefix) in [
            ("^res_1$", "res_1"),
            (r"^res_\d+", "res_"),
            ("^res_.*", "res_"),
            ("^ab*c", "a"),
            ("^ab?c", "a"),
            ("^ab{0,1}", "a"),
            ("^ab+", "a"),
            ("^a|b", ""),
            ("res", ""),
            ("^(a|b)c", ""),
            ("^(?i)abc", ""),
            ("^*", ""),
            ("^é*", ""),
            ("^", ""),
        ] {
            assert_eq!(literal_prefix(pattern), prefix, "{pattern}");
        }
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        assert!(matches!(compile_pattern("("), Err(NoMatch::Invalid(why)) if why.contains("unclosed group")));
        assert!(matches!(compile_pattern(r"\w{5000}{500}"), Err(NoMatch::Invalid(_))));
    }
}
