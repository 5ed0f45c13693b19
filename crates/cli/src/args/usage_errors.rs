//! Usage errors as errors of our own, so that they are printed as JSON where JSON is requested.

use crate::error::CliError;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

/// Improves clap's suggestions for unknown commands and options: it misses swapped letters, and suggests options
/// that have little in common with what was typed.
pub(crate) fn add_suggestion(error: &mut clap::Error, command: &clap::Command, words: &[OsString]) {
    let of = innermost_command(command, words);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    if let Some(word) = text(ContextKind::InvalidSubcommand) {
        let names = of.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
        let near = windlass_spec::nearest_name(&word, names);
        let others: Vec<&str> = match error.get(ContextKind::SuggestedSubcommand) {
            // Clap lists the best one last.
            Some(ContextValue::Strings(others)) => others.iter().rev().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        let others = others.into_iter().filter(|other| Some(*other) != near);
        let suggested: Vec<String> = near.into_iter().chain(others).map(str::to_owned).collect();
        if !suggested.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(suggested));
        }
    } else if let Some(expected) = expected_number(error)
        && let (Some(arg), Some(value)) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue))
    {
        let message = format!(
            "invalid value '{value}' for '{arg}': {expected}\n\nFor more information, try '--help'.\n"
        );
        *error = clap::Error::raw(error.kind(), message);
    } else if error.kind() == ErrorKind::UnknownArgument
        && let Some(typed) = text(ContextKind::InvalidArg)
        && let Some(flag) = typed.strip_prefix("--")
    {
        // `-- --flag` is almost never meant.
        error.remove(ContextKind::Suggested);
        error.remove(ContextKind::SuggestedArg);
        if command.get_arguments().any(|arg| arg.get_long() == Some(flag)) {
            let hint = format!("give '--{flag}' before the command: `windlass --{flag} … {}`", of.get_name());
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
        } else if let Some(near) = nearest_option(flag, of, command) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{near}")));
        }
    }
}

/// What a number must be, if the value of an option is none or out of range; without terms of Rust.
fn expected_number(error: &clap::Error) -> Option<String> {
    let source = error.source()?;
    if let Some(source) = source.downcast_ref::<ParseIntError>() {
        return Some(match source.kind() {
            IntErrorKind::PosOverflow => "the number is too large".to_owned(),
            IntErrorKind::NegOverflow => "the number is too small".to_owned(),
            _ => "expected a whole number".to_owned(),
        });
    }
    if source.is::<ParseFloatError>() {
        return Some("expected a number".to_owned());
    }
    // `0 is not in 1..=4294967295`
    let text = source.to_string();
    let (value, range) = text.split_once(" is not in ")?;
    let (low, high) = range.split_once("..")?;
    let high = high.trim_start_matches('=');
    let parse = |text: &str| text.parse::<i128>().ok();
    let is_type_limit = parse(high)? >= i128::from(u16::MAX);
    Some(if !is_type_limit {
        format!("expected {low} to {high}")
    } else if parse(value)? < parse(low)? {
        format!("expected {low} or more")
    } else {
        "the number is too large".to_owned()
    })
}

/// The option of the command nearest to a word; if none is near, a global one.
fn nearest_option(flag: &str, of: &clap::Command, root: &clap::Command) -> Option<String> {
    let names = |arg: &clap::Arg| -> Vec<String> {
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases).map(str::to_owned).collect()
    };
    let own: Vec<String> = of.get_arguments().filter(|arg| !arg.is_hide_set()).flat_map(names).collect();
    let global: Vec<String> =
        root.get_arguments().filter(|arg| arg.is_global_set()).flat_map(names).collect();
    let is_part = |name: &&String| {
        name.split('-').any(|part| part == flag) || flag.split('-').any(|part| part == name.as_str())
    };
    let begun =
        own.iter().filter(|name| flag.len() > 1 && name.starts_with(flag)).min_by_key(|name| name.len());
    (begun.map(String::as_str))
        .or_else(|| windlass_spec::nearest_name(flag, own.iter().map(String::as_str)))
        .or_else(|| own.iter().find(is_part).map(String::as_str))
        .or_else(|| windlass_spec::nearest_name(flag, global.iter().map(String::as_str)))
        .map(str::to_owned)
}

/// The innermost command that the words name.
fn innermost_command<'c>(command: &'c clap::Command, words: &[OsString]) -> &'c clap::Command {
    let words = words.iter().skip(1).filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    words.fold(command, |command, word| command.find_subcommand(word).unwrap_or(command))
}

/// Converts a usage error of clap: its message, and its tip or the usage as hint.
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

/// Whether the words request JSON; they may be invalid otherwise.
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
    fn usage_error_has_message_and_hint() {
        let found = complaint(&["statsu"]);
        assert!(found.message.contains("'statsu'"), "{}", found.message);
        assert!(found.hint.unwrap().contains("'status'"));
        let found = complaint(&["jobs", "--limit", "x"]);
        assert!(found.message.contains("invalid value 'x'"), "{}", found.message);
        let found = complaint(&["config", "completions"]);
        assert!(!found.message.contains('\n') && found.message.contains("<SHELL>"), "{}", found.message);
        assert!(found.hint.unwrap().starts_with("Usage: windlass config completions"));
    }

    #[test]
    fn transposed_letters_are_suggested() {
        for (line, meant) in [
            (["rnu", "x.yaml"], "'run'"),
            (["logs", "--sdterr"], "'--stderr'"),
            (["jobs", "--fromat=json"], "'--format'"),
            (["spec", "schmea"], "'schema'"),
            (["jobs", "--faild"], "'--failed'"),
            (["run", "--job"], "'--jobs'"),
            (["run", "--mem"], "'--memory'"),
            (["workflow", "list"], "'workflows'"),
        ] {
            let found = complaint(&line);
            assert!(
                found.hint.as_deref().is_some_and(|hint| hint.contains(meant)),
                "{line:?}: {:?}",
                found.hint
            );
        }
        for line in [["status", "--failed"], ["workflows", "--frobnicate"]] {
            let hint = complaint(&line).hint.unwrap();
            assert!(hint.starts_with("Usage: "), "{line:?}: {hint}");
        }
        let found = complaint(&["zzzzzz"]);
        assert!(!found.hint.unwrap().contains("similar"));
    }

    #[test]
    fn invalid_numbers_are_explained_without_terms_of_rust() {
        for (line, expected) in [
            (["jobs", "--limit=x"], "invalid value 'x' for '--limit <N>': expected a whole number"),
            (["jobs", "--limit=99999999999999999999"], "the number is too large"),
            (["run", "--max-parallel-jobs=0"], "expected 1 or more"),
            (["serve", "--hold-percent=101"], "expected 0 to 100"),
        ] {
            let message = complaint(&line).message;
            assert!(message.ends_with(expected), "{line:?}: {message}");
        }
    }

    #[test]
    fn json_format_option_is_detected_in_raw_arguments() {
        let asks = |line: &str| wants_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["-f json statsu", "statsu --format json", "x --format=json", "x -fjson"] {
            assert!(asks(line), "{line}");
        }
        for line in ["-f table", "json", "exec -- x -f json", "--format"] {
            assert!(!asks(line), "{line}");
        }
    }
}
