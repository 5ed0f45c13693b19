//! `windlass help`, readable also with many commands: in groups, with examples.

use crate::error::CliExit;
use std::fmt::Write as _;

const EXAMPLES: &str = "\
Examples:
  windlass demo                              watch a small workflow run
  windlass run pipeline.yaml                 run a workflow; run it again to go on where it stopped
  windlass status                            where the newest workflow stands
  windlass jobs --status failed              which jobs failed
  windlass logs align_7 --stderr             what one of them said
  windlass resume --retry-failed             go on, and try the failed ones again
  windlass exec -j4 -C commands.txt          run a list of commands, four at a time

Results are kept in .windlass/ in this directory or the nearest one above it that has one.";

/// Every command that is not hidden, in the order in which help shows them.
pub(crate) const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    (
        "Run",
        &[
            "run",
            "resume",
            "recover",
            "watch",
            "exec",
            "create",
            "submit",
            "plan",
            "cancel",
            "reinit",
            "reset-status",
            "demo",
        ],
    ),
    ("Look", &["status", "list", "jobs", "results", "logs", "why", "files", "user-data", "events"]),
    ("Produce", &["request", "dag", "catalog", "site", "admission", "payload", "condor"]),
    ("Mend", &["failures", "triage", "revisions", "classify"]),
    ("Improve", &["resources", "tune", "plot", "spec"]),
    ("Keep house", &["archive", "delete", "export", "import", "workflows", "db"]),
    ("Share", &["serve", "worker", "workers", "nodes", "remote", "ping", "mcp"]),
    ("On clusters", &["slurm", "hpc"]),
    ("Details", &["job-dependencies", "resource-requirements", "failure-handlers", "actions"]),
    ("Who you are", &["login", "logout", "whoami", "token", "password", "access-groups"]),
    ("Windlass itself", &["config", "completions", "help"]),
];

/// The command with its commands in groups.
pub(super) fn group_commands(command: clap::Command) -> clap::Command {
    let command = add_short_forms(command);
    let commands = render_command_groups(&command);
    // Clap takes braces for placeholders; none of our words has any.
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{commands}\nGlobal options:\n{{options}}{{after-help}}"
    );
    command.help_template(template).after_help(EXAMPLES).after_long_help(render_long_help())
}

/// Two of Torc's lists have short forms for what others spell out.
fn add_short_forms(command: clap::Command) -> clap::Command {
    let short = |list: clap::Command, forms: &[(&'static str, char)]| {
        forms.iter().fold(list, |list, (id, short)| list.mut_arg(id, |arg| arg.short(*short)))
    };
    command
        .mut_subcommand("events", |noun| {
            noun.mut_subcommand("list", |list| {
                short(list, &[("offset", 'o'), ("sort_by", 's'), ("reverse_sort", 'r')])
            })
        })
        .mut_subcommand("user-data", |noun| {
            noun.mut_subcommand("list", |list| short(list, &[("offset", 'o')]))
        })
}

fn render_command_groups(command: &clap::Command) -> String {
    let width = COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in COMMAND_GROUPS {
        write!(text, "\n{heading}:\n").expect("a String takes everything");
        for name in *names {
            let about = command_about(command, name);
            writeln!(text, "  {name:width$}  {about}").expect("a String takes everything");
        }
    }
    text
}

fn command_about(command: &clap::Command, name: &str) -> String {
    match command.find_subcommand(name).and_then(clap::Command::get_about) {
        Some(about) => about.to_string(),
        // Clap adds it only when it needs it.
        None => "Show this, or the help of a command".to_owned(),
    }
}

fn render_long_help() -> String {
    let codes = CliExit::ALL.map(|exit| format!("\n  {:>2}  {}", exit.code(), exit.meaning())).concat();
    format!("{EXAMPLES}\n\nExit codes:{codes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_place_in_one_group() {
        let mut grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = super::super::build_command();
        let mut known: Vec<&str> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name).collect();
        known.push("help");
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn the_help_shows_groups_options_and_examples() {
        let help = super::super::build_command().render_help().to_string();
        for part in
            ["\nRun:\n  run ", "\nLook:\n  status ", "--format <FORMAT>", "Examples:\n  windlass demo"]
        {
            assert!(help.contains(part), "{part}\n{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 110), "{help}");
        assert!(!help.contains("--in-memory") && !help.contains("__worker"), "{help}");
    }

    #[test]
    fn the_long_help_lists_every_exit_code() {
        let help = super::super::build_command().render_long_help().to_string();
        for exit in CliExit::ALL {
            let line = format!("  {:>2}  {}", exit.code(), exit.meaning());
            assert!(help.contains(&line), "{line}\n{help}");
        }
    }
}
