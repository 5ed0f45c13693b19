//! Global options between a command and its subcommand: `windlass jobs -f json list`.
//!
//! A command without subcommand lists, and then takes a workflow. Clap stops to look for a subcommand after the
//! first option, and would take `list` for the name of a workflow. So the subcommand is moved to its command
//! before clap parses.

use clap::{Arg, Command};
use std::ffi::OsString;

/// The same words with each subcommand right behind its command.
pub(crate) fn move_subcommands_first(root: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let (mut command, mut at) = (root, noun_position(root, &words));
    while let Some(noun) = find_subcommand(command, &words, at) {
        let verb_at = verb_position(root, &words, at);
        if find_subcommand(noun, &words, verb_at).is_none() {
            break;
        }
        words[at + 1..=verb_at].rotate_right(1);
        (command, at) = (noun, at + 1);
    }
    words
}

/// Where the command is, behind the options of the root.
pub(super) fn noun_position(root: &Command, words: &[OsString]) -> usize {
    skip_flags(&root.get_arguments().collect::<Vec<_>>(), words, 1)
}

/// Where the subcommand of the command at `noun_at` is, if it has one.
pub(super) fn verb_position(root: &Command, words: &[OsString], noun_at: usize) -> usize {
    let global: Vec<&Arg> = root.get_arguments().filter(|arg| arg.is_global_set()).collect();
    skip_flags(&global, words, noun_at + 1)
}

fn find_subcommand<'c>(command: &'c Command, words: &[OsString], at: usize) -> Option<&'c Command> {
    command.find_subcommand(words.get(at)?.to_str()?)
}

/// The position of the first word from `at` on that is neither one of these options nor its value.
fn skip_flags(flags: &[&Arg], words: &[OsString], mut at: usize) -> usize {
    while let Some(taken) = words.get(at).and_then(|word| flag_word_count(flags, word.to_str()?)) {
        at += taken;
    }
    at
}

/// The number of words of an option with its value.
fn flag_word_count(flags: &[&Arg], word: &str) -> Option<usize> {
    let with_value = |arg: &Arg| if arg.get_action().takes_values() { 2 } else { 1 };
    if let Some(long) = word.strip_prefix("--") {
        let (name, joined) = long.split_once('=').map_or((long, false), |(name, _)| (name, true));
        let arg = flags.iter().find(|arg| arg.get_long() == Some(name))?;
        return Some(if joined { 1 } else { with_value(arg) });
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let short = letters.next()?;
    let arg = flags.iter().find(|arg| arg.get_short() == Some(short))?;
    // The rest of the word is the value, or more short options.
    Some(if letters.next().is_some() { 1 } else { with_value(arg) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = move_subcommands_first(&super::super::build_command(), words);
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn subcommand_after_global_options_is_recognized() {
        for (line, expected) in [
            ("windlass jobs -f json list 3", "windlass jobs list -f json 3"),
            ("windlass jobs -fjson -q get a", "windlass jobs get -fjson -q a"),
            (
                "windlass --db x jobs --format=csv --color never running",
                "windlass --db x jobs running --format=csv --color never",
            ),
            ("windlass -s events -f json delete 3", "windlass -s events delete -f json 3"),
            ("windlass jobs -q files -f json delete 3", "windlass jobs files delete -q -f json 3"),
        ] {
            assert_eq!(ordered(line), expected);
        }
    }

    #[test]
    fn other_arguments_keep_their_order() {
        for line in [
            "windlass",
            "windlass jobs list -f json",
            "windlass jobs -f list",
            "windlass jobs --limit 3 running",
            "windlass jobs -f json 3",
            "windlass jobs -f",
            "windlass exec -f json -- jobs -f json list",
            "windlass status -f json jobs list",
        ] {
            assert_eq!(ordered(line), line);
        }
    }

    #[test]
    fn clap_parses_reordered_subcommand() {
        use crate::args::jobs::JobsSubcommand;
        let parsed = super::super::tests::parse(&["jobs", "-f", "json", "running", "3"]).unwrap();
        let crate::args::CliCommand::Jobs(jobs) = parsed else { panic!("not jobs") };
        assert!(matches!(jobs.verb, Some(JobsSubcommand::Running(_))), "{jobs:?}");
    }
}
