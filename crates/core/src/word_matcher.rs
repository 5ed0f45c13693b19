//! Search for many words in a text, ignoring case.
//!
//! Built in microseconds with little memory. Some programs run for a single text, and an automaton of some
//! hundred words would take longer than the rest of their work.

/// Number of bytes of a word that are looked up before it is compared.
const START_BYTES: usize = 3;
const HASH_BITS: u32 = 14;

/// Words to search for. ASCII letters match in upper and lower case.
#[derive(Debug)]
pub(crate) struct WordMatcher {
    words: Vec<String>,
    /// One bit for each possible start of a word: nearly every position of a text is skipped by it.
    may_start: Vec<u64>,
    /// Start and word, ascending.
    words_by_start: Vec<(u32, usize)>,
    /// Words shorter than a start.
    short_words: Vec<usize>,
}

impl WordMatcher {
    /// No word may be empty.
    pub(crate) fn new(words: Vec<String>) -> Self {
        let mut words_by_start: Vec<(u32, usize)> = Vec::new();
        let mut short_words = Vec::new();
        for (index, word) in words.iter().enumerate() {
            match start_bits(word.as_bytes()) {
                Some(start) => words_by_start.push((start, index)),
                None => short_words.push(index),
            }
        }
        words_by_start.sort_unstable();
        let mut may_start = vec![0; (1 << HASH_BITS) / 64];
        for (start, _) in &words_by_start {
            let (place, bit) = start_place(*start);
            may_start[place] |= bit;
        }
        Self { words, may_start, words_by_start, short_words }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Returns the indices of the words that occur, ascending.
    pub(crate) fn find_in(&self, text: &str) -> Vec<usize> {
        let text = text.as_bytes();
        let mut found: Vec<usize> = Vec::new();
        for (at, window) in text.windows(START_BYTES).enumerate() {
            let Some(start) = start_bits(window) else { continue };
            let (place, bit) = start_place(start);
            if self.may_start[place] & bit == 0 {
                continue;
            }
            let first = self.words_by_start.partition_point(|(other, _)| *other < start);
            let alike = self.words_by_start[first..].iter().take_while(|(other, _)| *other == start);
            found.extend(alike.map(|(_, index)| *index).filter(|index| self.is_word_at(*index, &text[at..])));
        }
        let is_there = |index: &usize| (0..text.len()).any(|at| self.is_word_at(*index, &text[at..]));
        found.extend(self.short_words.iter().copied().filter(is_there));
        found.sort_unstable();
        found.dedup();
        found
    }

    fn is_word_at(&self, index: usize, text: &[u8]) -> bool {
        let word = self.words[index].as_bytes();
        text.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word))
    }
}

/// Equal for upper and lower case; some other characters collide too, which only costs a comparison.
fn start_bits(text: &[u8]) -> Option<u32> {
    let [a, b, c] = *text.first_chunk::<START_BYTES>()?;
    Some(u32::from_le_bytes([a, b, c, 0]) | 0x0020_2020)
}

/// Returns the position of the bit of a start.
fn start_place(start: u32) -> (usize, u64) {
    let hash = start.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS);
    ((hash / 64) as usize, 1 << (hash % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[&str]) -> WordMatcher {
        WordMatcher::new(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn words_are_found_anywhere_ignoring_case() {
        let words = words(&["Connection refused", "ref", "of", "://", "ENOSPC", "nothing", "é"]);
        for (text, found) in [
            ("", &[][..]),
            ("connection REFUSED", &[0, 1]),
            ("xconnection refused", &[0, 1]),
            ("connection refuse", &[1]),
            ("OF", &[2]),
            ("o", &[]),
            ("http://enospc", &[3, 4]),
            ("ref ref of OF", &[1, 2]),
            ("caf\u{e9}", &[6]),
            ("CAF\u{c9}", &[]),
        ] {
            assert_eq!(words.find_in(text), found, "{text}");
        }
    }

    proptest! {
        #[test]
        fn matcher_equals_separate_searches(list in prop::collection::vec("[aB@`é-]{1,5}", 0..20), text in "[abAB@`é-]{0,40}") {
            let lower = text.to_ascii_lowercase();
            let expected: Vec<usize> =
                (0..list.len()).filter(|index| lower.contains(&list[*index].to_ascii_lowercase())).collect();
            prop_assert_eq!(WordMatcher::new(list).find_in(&text), expected);
        }
    }
}
