//! Suggestions ("did you mean …?"): the nearest known word.

/// Returns the candidate nearest to `word`, if it is near enough.
pub fn nearest_name<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    NameSuggester::default().nearest_name(word, candidates)
}

/// Finds similar words with bounded work, so that a typing error among a million names stays cheap.
#[derive(Debug)]
pub(crate) struct NameSuggester {
    comparisons_left: usize,
    rows: [Vec<usize>; 3],
}

impl Default for NameSuggester {
    fn default() -> Self {
        Self { comparisons_left: 3_000_000, rows: Default::default() }
    }
}

impl NameSuggester {
    /// Returns the candidate nearest to `word`, if it is near enough; the first of equally near ones.
    pub(crate) fn nearest_name<'c>(
        &mut self,
        word: &str,
        candidates: impl IntoIterator<Item = &'c str>,
    ) -> Option<&'c str> {
        let limit = word.chars().count().div_ceil(3).min(4);
        let mut best: Option<(usize, &str)> = None;
        for candidate in candidates {
            if self.comparisons_left == 0 {
                break;
            }
            self.comparisons_left -= 1;
            // A quick lower bound: every byte more or less costs at least a quarter of a change.
            if candidate.len().abs_diff(word.len()) > 4 * limit {
                continue;
            }
            let distance = self.edit_distance(word, candidate);
            if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
                best = Some((distance, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    /// Returns the number of insertions, deletions, replacements and transpositions that turn `a` into `b`;
    /// changes of case cost almost nothing.
    fn edit_distance(&mut self, a: &str, b: &str) -> usize {
        if a.eq_ignore_ascii_case(b) {
            return usize::from(a != b);
        }
        let [two_back, above, row] = &mut self.rows;
        above.clear();
        above.extend(0..=b.chars().count());
        let mut previous_a = None;
        for (i, char_a) in a.chars().enumerate() {
            row.clear();
            row.push(i + 1);
            let mut previous_b = None;
            for (j, char_b) in b.chars().enumerate() {
                let replace = above[j] + usize::from(char_a != char_b);
                let mut least = replace.min(above[j + 1] + 1).min(row[j] + 1);
                if previous_a == Some(char_b) && previous_b == Some(char_a) {
                    least = least.min(two_back[j - 1] + 1);
                }
                row.push(least);
                previous_b = Some(char_b);
            }
            previous_a = Some(char_a);
            std::mem::swap(two_back, above);
            std::mem::swap(above, row);
        }
        above.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_is_symmetric() {
        for (a, b, distance) in [
            ("", "", 0),
            ("", "abc", 3),
            ("comand", "command", 1),
            ("nmae", "name", 1),
            ("kitten", "sitting", 3),
            ("Name", "name", 1),
            ("NAME", "name", 1),
            ("größe", "grosse", 3),
        ] {
            assert_eq!(NameSuggester::default().edit_distance(a, b), distance, "{a} {b}");
            assert_eq!(NameSuggester::default().edit_distance(b, a), distance, "{b} {a}");
        }
    }

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["name", "command", "depends_on", "env"];
        for (word, suggestion) in [
            ("comand", Some("command")),
            ("depend_on", Some("depends_on")),
            ("dependsOn", Some("depends_on")),
            ("Env", Some("env")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(NameSuggester::default().nearest_name(word, known), suggestion, "{word}");
        }
    }

    #[test]
    fn number_of_comparisons_is_limited() {
        let mut suggester = NameSuggester { comparisons_left: 2, ..NameSuggester::default() };
        assert_eq!(suggester.nearest_name("ab", ["xx", "yy", "ab"]), None);
    }
}
