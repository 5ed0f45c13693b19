//! Mistakes in the command line as our own kind of error, so that they too come as JSON where JSON is wanted.

use crate::error::CliError;
use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;

/// Adds what was perhaps meant where clap has no idea: it does not recognise two letters that changed places.
pub(crate) fn add_suggestion(error: &mut clap::Error, command: &clap::Command, words: &[OsString]) {
    let of = innermost_command(command, words);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let has = |kind| error.get(kind).is_some();
    let found = if let Some(word) = text(ContextKind::InvalidSubcommand) {
        let names = of.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
        let near =
            windlass_spec::nearest_name(&word, names).filter(|_| !has(ContextKind::SuggestedSubcommand));
        near.map(|near| (ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near.to_owned()])))
    } else if let Some(flag) = text(ContextKind::InvalidArg).filter(|_| !has(ContextKind::SuggestedArg)) {
        let flags = of.get_arguments().chain(command.get_arguments().filter(|arg| arg.is_global_set()));
        let names = flags.filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long);
        let near = flag.strip_prefix("--").and_then(|flag| windlass_spec::nearest_name(flag, names));
        let unknown = error.kind() == clap::error::ErrorKind::UnknownArgument;
        near.filter(|_| unknown)
            .map(|near| (ContextKind::SuggestedArg, ContextValue::String(format!("--{near}"))))
    } else {
        None
    };
    if let Some((kind, value)) = found {
        error.insert(kind, value);
    }
}

/// The command or verb that the words lead to, as far as they are known.
fn innermost_command<'c>(command: &'c clap::Command, words: &[OsString]) -> &'c clap::Command {
    let words = words.iter().skip(1).filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    words.fold(command, |command, word| command.find_subcommand(word).unwrap_or(command))
}

/// What clap complains about: the complaint, and its tip or the usage as the hint.
pub(crate) fn to_cli_error(error: &clap::Error) -> CliError {
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
pub(crate) fn wants_json(words: &[OsString]) -> bool {
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
        let words: Vec<OsString> = std::iter::once(&"windlass").chain(line).map(OsString::from).collect();
        let mut wrong = super::super::build_command().try_get_matches_from(&words).unwrap_err();
        add_suggestion(&mut wrong, &super::super::build_command(), &words);
        to_cli_error(&wrong)
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
    fn letters_that_changed_places_are_recognised() {
        for (line, meant) in [
            (["rnu", "x.yaml"], "'run'"),
            (["logs", "--sdterr"], "'--stderr'"),
            (["jobs", "--fromat=json"], "'--format'"),
            (["job-dependencies", "job-fiel"], "'job-file'"),
        ] {
            let found = complaint(&line);
            assert!(
                found.hint.as_deref().is_some_and(|hint| hint.contains(meant)),
                "{line:?}: {:?}",
                found.hint
            );
        }
        let found = complaint(&["zzzzzz"]);
        assert!(!found.hint.unwrap().contains("similar"));
    }

    #[test]
    fn json_is_asked_for_in_many_ways() {
        let asks = |line: &str| wants_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["-f json statsu", "statsu --format json", "x --format=json", "x -fjson"] {
            assert!(asks(line), "{line}");
        }
        for line in ["-f table", "json", "exec -- x -f json", "--format"] {
            assert!(!asks(line), "{line}");
        }
    }
}
