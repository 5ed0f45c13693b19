//! Shell words: splitting without a shell, and quoting for one.

/// Text that cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordSplitError {
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("it ends with a backslash")]
    Backslash,
    #[error(
        "it contains a character that no argument can have: a newline, a NUL or another control character"
    )]
    Control,
}

/// Splits text into words as a shell does: quotes and backslashes count, and nothing is expanded or run.
pub fn split_words(text: &str) -> Result<Vec<String>, WordSplitError> {
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Err(WordSplitError::Control);
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => parse_single_quoted(&mut rest, word.get_or_insert_default())?,
            '"' => parse_double_quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(rest.next().ok_or(WordSplitError::Backslash)?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn parse_single_quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), WordSplitError> {
    loop {
        match rest.next().ok_or(WordSplitError::OpenQuote)? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

fn parse_double_quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), WordSplitError> {
    loop {
        match rest.next().ok_or(WordSplitError::OpenQuote)? {
            '"' => return Ok(()),
            '\\' => match rest.next().ok_or(WordSplitError::OpenQuote)? {
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

/// Quotes a word so that a shell reads it unchanged.
pub fn quote_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_split_like_a_shell() {
        let rows: &[(&str, &[&str])] = &[
            ("", &[]),
            ("  ", &[]),
            ("--reservation=x  -C\tgpu", &["--reservation=x", "-C", "gpu"]),
            ("--mail-user='a b' \"c d\"", &["--mail-user=a b", "c d"]),
            (r#"a\ b "x\"y" 'it'\''s'"#, &["a b", "x\"y", "it's"]),
            (r#""\n$HOME" ''"#, &[r"\n$HOME", ""]),
            ("$(touch /x) `id` ; rm", &["$(touch", "/x)", "`id`", ";", "rm"]),
        ];
        for (text, words) in rows {
            assert_eq!(split_words(text).unwrap(), *words, "{text:?}");
        }
    }

    #[test]
    fn unbalanced_quotes_are_an_error() {
        for (text, error) in [
            ("'a", WordSplitError::OpenQuote),
            ("\"a\\", WordSplitError::OpenQuote),
            ("a\\", WordSplitError::Backslash),
            ("a\nb", WordSplitError::Control),
            ("a\0", WordSplitError::Control),
        ] {
            assert_eq!(split_words(text), Err(error), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn quoted_words_round_trip(words in prop::collection::vec("[^\\p{Cc}]*", 0..5)) {
            let line = words.iter().map(|word| quote_word(word)).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(split_words(&line).unwrap(), words);
        }
    }
}
