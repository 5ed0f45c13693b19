//! Help texts of the whole program: commands in groups, examples, exit codes, and the global options on a page of their own.

use crate::error::CliExit;
use clap::{Arg, Command};
use std::fmt::Write as _;

const EXAMPLES: &str = "\
Examples:
  windlass demo                              run a small example workflow
  windlass run pipeline.yaml                 run a workflow; the same command continues it
  windlass status                            show the progress of the newest workflow
  windlass jobs --failed                     list the failed jobs
  windlass logs align_7 --stderr             show the stderr of a job
  windlass resume --retry-failed             continue, and retry failed jobs
  windlass exec -j4 -C commands.txt          run a list of commands, four at a time

`windlass help COMMAND` explains a command, `windlass help options` the global options.
Workflows are stored in .windlass/ in this directory or the nearest parent that has one.";

/// The commands on the first page of the help, in the order in which it lists them.
pub(crate) const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    ("Run", &["run", "resume", "exec", "create", "submit", "plan", "watch", "cancel"]),
    ("Inspect", &["status", "workflows", "jobs", "logs", "events", "why"]),
    ("Recover", &["recover", "failures", "resources"]),
    ("Requests", &["request", "catalog", "site"]),
    ("Clusters", &["worker", "slurm"]),
    ("Server", &["serve", "auth", "mcp"]),
    ("Administration", &["spec", "db", "config"]),
];

/// Documented commands that the groups leave out: the examples name `demo`, and users do not call the others.
pub(crate) const UNLISTED_COMMANDS: &[&str] = &["demo", "payload", "condor"];

const GLOBAL_OPTIONS: &str = "Global options";

/// The command with its commands in groups, and with one line about the global options in the help of each command.
pub(crate) fn group_commands(command: Command) -> Command {
    let commands = render_command_groups(&command);
    let page = Command::new("windlass").version(env!("CARGO_PKG_VERSION"));
    let options = render_options(page.args(command.get_arguments().cloned()));
    let line = list_global_options(&command);
    // Clap takes braces for placeholders; none of our texts has any.
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{commands}\n{GLOBAL_OPTIONS}:\n{options}{{after-help}}"
    );
    let command = command
        .mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg })
        .help_template(template)
        .after_help(EXAMPLES)
        .after_long_help(render_long_help());
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{{all-args}}\n\n{line}{{after-help}}"
    );
    command.mut_subcommands(|inner| set_help_template(inner, &template))
}

fn set_help_template(command: Command, template: &str) -> Command {
    command.help_template(template.to_owned()).mut_subcommands(|inner| set_help_template(inner, template))
}

/// The options that all commands have, with their full descriptions: the page of `windlass help options`.
pub(crate) fn render_global_options(command: &Command) -> String {
    let page = Command::new("windlass").disable_help_flag(true);
    let page = page.args(command.get_arguments().filter(|arg| arg.is_global_set()).cloned());
    format!("{GLOBAL_OPTIONS}, which all commands accept:\n{}", render_options(page))
}

/// The descriptions of the options of a page, as clap prints them.
fn render_options(page: Command) -> String {
    let mut page = page.help_template("{options}").max_term_width(100);
    page.render_help().to_string().trim_end().to_owned()
}

/// One line with the names of the global options.
fn list_global_options(command: &Command) -> String {
    let names = command.get_arguments().filter(|arg| arg.is_global_set()).filter_map(Arg::get_long);
    let names: Vec<String> = names.map(|name| format!("--{name}")).collect();
    format!("{GLOBAL_OPTIONS} (see `windlass help options`):\n  {}", names.join(", "))
}

/// The short forms of options that two of Torc's lists have.
pub(super) fn add_short_forms(command: Command) -> Command {
    let short = |list: Command, forms: &[(&'static str, char)]| {
        forms.iter().fold(list, |list, (id, short)| list.mut_arg(id, |arg| arg.short(*short)))
    };
    command
        .mut_subcommand("events", |noun| {
            noun.mut_subcommand("list", |list| {
                short(list, &[("offset", 'o'), ("sort_by", 's'), ("reverse_sort", 'r')])
            })
        })
        .mut_subcommand("jobs", |noun| {
            noun.mut_subcommand("user-data", |data| {
                data.mut_subcommand("list", |list| short(list, &[("offset", 'o')]))
            })
        })
}

fn render_command_groups(command: &Command) -> String {
    let width = COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in COMMAND_GROUPS {
        write!(text, "\n{heading}:\n").expect("writing to a String does not fail");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            writeln!(text, "  {name:width$}  {about}").expect("writing to a String does not fail");
        }
    }
    text
}

fn render_long_help() -> String {
    let codes = CliExit::ALL.map(|exit| format!("\n  {:>2}  {}", exit.code(), exit.meaning())).concat();
    format!("{EXAMPLES}\n\nExit codes:{codes}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{build_command, build_plain_command};

    #[test]
    fn each_command_is_in_one_help_group() {
        let mut grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert!(grouped.len() <= 28, "{} commands", grouped.len());
        grouped.extend(UNLISTED_COMMANDS);
        let command = build_command();
        let mut known: Vec<&str> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn help_shows_groups_options_and_examples() {
        let help = build_command().render_help().to_string();
        for part in
            ["\nRun:\n  run ", "\nInspect:\n  status ", "--format <FORMAT>", "Examples:\n  windlass demo"]
        {
            assert!(help.contains(part), "{part}\n{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 110), "{help}");
        assert!(!help.contains("--in-memory") && !help.contains("__worker"), "{help}");
        assert!(!help.contains("payload") && !help.contains("condor"), "{help}");
    }

    #[test]
    fn long_help_lists_every_exit_code() {
        let help = build_command().render_long_help().to_string();
        for exit in CliExit::ALL {
            let line = format!("  {:>2}  {}", exit.code(), exit.meaning());
            assert!(help.contains(&line), "{line}\n{help}");
        }
    }

    #[test]
    fn command_help_refers_to_global_options_page() {
        let mut command = build_command();
        command.build();
        let jobs = command.find_subcommand_mut("jobs").unwrap();
        for help in [
            jobs.render_help().to_string(),
            jobs.find_subcommand_mut("list").unwrap().render_long_help().to_string(),
        ] {
            assert!(
                help.contains("Global options (see `windlass help options`):\n  --db, --url, "),
                "{help}"
            );
            assert!(!help.contains("--db <"), "{help}");
        }
        let page = render_global_options(&build_plain_command());
        for arg in build_plain_command().get_arguments().filter(|arg| arg.is_global_set()) {
            assert!(
                page.contains(&format!("--{} ", arg.get_long().unwrap()))
                    || page.contains(&format!("--{}\n", arg.get_long().unwrap())),
                "{page}"
            );
        }
        assert!(!page.contains("--help") && !page.contains("--in-memory"), "{page}");
    }
}
