//! Mistakes in the command line as our own kind of error, so that they too come as JSON where JSON is wanted.

use crate::error::CliError;
use std::ffi::OsString;

/// What clap complains about: the complaint, and its tip or the usage as the hint.
pub(crate) fn error(error: &clap::Error) -> CliError {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    let message = paragraphs.next().unwrap_or("wrong usage");
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let rest: Vec<&str> = paragraphs.filter(|p| !p.starts_with("For more information")).collect();
    let tip = rest.iter().find_map(|paragraph| paragraph.strip_prefix("tip: "));
    let usage = rest.iter().find(|paragraph| paragraph.starts_with("Usage: "));
    let error = CliError::user(one_line(message));
    match tip.or(usage.copied()) {
        Some(hint) => error.with_hint(one_line(hint)),
        None => error,
    }
}

/// Whether the words ask for JSON, before they are known to make sense.
pub(crate) fn asks_for_json(words: &[OsString]) -> bool {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).take_while(|w| *w != "--").collect();
    let joined = words.iter().any(|word| matches!(*word, "--format=json" | "-fjson" | "-f=json"));
    joined || words.windows(2).any(|pair| matches!(pair, ["-f" | "--format", "json"]))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(line: &[&str]) -> CliError {
        let result = super::super::command().try_get_matches_from(std::iter::once(&"windlass").chain(line));
        error(&result.unwrap_err())
    }

    #[test]
    fn the_complaint_and_what_to_do() {
        let found = complaint(&["statsu"]);
        assert!(found.message.contains("'statsu'"), "{}", found.message);
        assert!(found.hint.unwrap().contains("'status'"));
        let found = complaint(&["jobs", "--limit", "x"]);
        assert!(found.message.contains("invalid value 'x'"), "{}", found.message);
        let found = complaint(&["completions"]);
        assert!(!found.message.contains('\n') && found.message.contains("<SHELL>"), "{}", found.message);
        assert!(found.hint.unwrap().starts_with("Usage: windlass completions"));
    }

    #[test]
    fn json_is_asked_for_in_many_ways() {
        let asks = |line: &str| asks_for_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["-f json statsu", "statsu --format json", "x --format=json", "x -fjson"] {
            assert!(asks(line), "{line}");
        }
        for line in ["-f table", "json", "exec -- x -f json", "--format"] {
            assert!(!asks(line), "{line}");
        }
    }
}
