//! Commands that have moved: the words of old command lines are replaced before clap sees them.

use super::argument_order::{noun_position, verb_position};
use clap::Command;
use std::ffi::OsString;

/// A command under its old and its new name.
#[derive(Debug)]
pub(crate) struct OldSpelling {
    /// One or two words; those of two words take precedence.
    old: &'static str,
    new: &'static str,
    is_noted: bool,
}

impl OldSpelling {
    /// What to tell users of the old name, unless both names stay.
    pub(crate) fn note(&self) -> Option<String> {
        self.is_noted.then(|| format!("note: `windlass {}` is now `windlass {}`", self.old, self.new))
    }
}

/// A command of ours that was renamed.
const fn renamed(old: &'static str, new: &'static str) -> OldSpelling {
    OldSpelling { old, new, is_noted: true }
}

/// A command of Torc, or one that stays as a short form.
const fn kept(old: &'static str, new: &'static str) -> OldSpelling {
    OldSpelling { old, new, is_noted: false }
}

const OLD_SPELLINGS: &[OldSpelling] = &[
    renamed("triage", "failures pending"),
    renamed("triage list", "failures pending"),
    renamed("triage show", "failures show"),
    renamed("triage retry", "failures retry"),
    renamed("triage fail", "failures fail"),
    renamed("triage ignore", "failures ignore"),
    renamed("triage approve", "failures approve"),
    renamed("triage decline", "failures decline"),
    renamed("triage decisions", "failures decisions"),
    renamed("triage report", "failures report"),
    renamed("revisions", "failures revisions"),
    renamed("revisions undo", "failures undo"),
    renamed("classify", "failures classify"),
    renamed("tune", "resources tune"),
    renamed("plot", "resources plot"),
    renamed("plot resources", "resources plot"),
    renamed("actions", "workflows actions"),
    renamed("archive", "workflows archive"),
    renamed("export", "workflows export"),
    renamed("import", "workflows import"),
    renamed("reinit", "workflows reinit"),
    renamed("reset-status", "workflows reset-status"),
    renamed("dag", "request dag"),
    renamed("dags", "request dag"),
    renamed("admission", "request admission"),
    renamed("workers", "worker list"),
    renamed("workers list", "worker list"),
    renamed("workers show", "worker show"),
    renamed("workers get", "worker show"),
    renamed("workers drain", "worker drain"),
    renamed("workers retire", "worker retire"),
    renamed("nodes", "worker nodes"),
    renamed("login", "auth login"),
    renamed("logout", "auth logout"),
    renamed("whoami", "auth whoami"),
    renamed("token", "auth token"),
    renamed("password", "auth password"),
    // A note would appear at each start of a shell that has it in its startup file.
    kept("completions", "config completions"),
    kept("list", "workflows list"),
    // Torc's command line.
    kept("access-groups", "auth access-groups"),
    kept("compute-nodes", "worker list"),
    kept("compute-nodes list", "worker list"),
    kept("compute-nodes show", "worker show"),
    kept("compute-nodes get", "worker show"),
    kept("compute-nodes drain", "worker drain"),
    kept("compute-nodes retire", "worker retire"),
    kept("delete", "workflows delete"),
    kept("failure-handlers", "failures handlers"),
    kept("files", "jobs files"),
    kept("hpc", "slurm hpc"),
    kept("job-dependencies", "jobs dependencies"),
    kept("ping", "auth ping"),
    kept("plot-resources", "resources plot"),
    kept("remote", "worker remote"),
    kept("resource-requirements", "jobs requirements"),
    kept("results", "jobs results"),
    kept("user-data", "jobs user-data"),
    kept("workflows cancel", "cancel"),
    kept("workflows check-resources", "resources check"),
    kept("workflows correct-resources", "resources correct"),
    kept("workflows create", "create"),
    kept("workflows execution-plan", "plan"),
    kept("workflows run", "run"),
    kept("workflows status", "status"),
];

/// The words with the new name of their command, and the entry if it had an old one. Also behind `help`.
pub(crate) fn replace_old_spelling(
    root: &Command,
    mut words: Vec<OsString>,
) -> (Vec<OsString>, Option<&'static OldSpelling>) {
    let mut noun_at = noun_position(root, &words);
    if words.get(noun_at).is_some_and(|word| word == "help") {
        noun_at += 1;
    }
    let Some(noun) = words.get(noun_at).and_then(|word| word.to_str()) else { return (words, None) };
    let verb_at = verb_position(root, &words, noun_at);
    let both = words.get(verb_at).and_then(|word| word.to_str()).map(|verb| format!("{noun} {verb}"));
    let find = |text: &str| OLD_SPELLINGS.iter().find(|spelling| spelling.old == text);
    let found = match both.as_deref().and_then(find) {
        Some(found) => {
            words.remove(verb_at);
            found
        }
        None => match find(noun) {
            Some(found) => found,
            None => return (words, None),
        },
    };
    words.splice(noun_at..=noun_at, found.new.split(' ').map(OsString::from));
    (words, Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{build_command, move_subcommands_first};

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn replaced(line: &str) -> String {
        let (words, _) = replace_old_spelling(&build_command(), words(line));
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    /// What clap makes of a line: its matches, or what it prints.
    fn parse(line: &str) -> String {
        let command = build_command();
        let (words, _) = replace_old_spelling(&command, words(line));
        let words = move_subcommands_first(&command, words);
        match command.try_get_matches_from(words) {
            Ok(matches) => format!("{matches:?}"),
            Err(error) => error.render().to_string(),
        }
    }

    #[test]
    fn old_spelling_parses_as_new_spelling() {
        for OldSpelling { old, new, .. } in OLD_SPELLINGS {
            for rest in ["--help", "-f json", "--no-such-option"] {
                let new_line = parse(&format!("windlass {new} {rest}"));
                assert_eq!(parse(&format!("windlass {old} {rest}")), new_line, "{old}");
                assert!(!new_line.contains("unrecognized subcommand"), "{new}: {new_line}");
            }
            assert_eq!(
                parse(&format!("windlass help {old}")),
                parse(&format!("windlass help {new}")),
                "{old}"
            );
        }
    }

    #[test]
    fn old_spelling_hides_no_command_and_is_not_chained() {
        let root = build_command();
        for OldSpelling { old, new, .. } in OLD_SPELLINGS {
            let mut command = Some(&root);
            for word in old.split(' ') {
                command = command.and_then(|command| command.find_subcommand(word));
            }
            assert!(command.is_none(), "{old}");
            assert_eq!(replaced(&format!("windlass {new}")), format!("windlass {new}"));
        }
    }

    #[test]
    fn old_spelling_replaces_only_command_words() {
        for (line, expected) in [
            ("windlass triage retry align_7", "windlass failures retry align_7"),
            ("windlass triage 3 --lines 2", "windlass failures pending 3 --lines 2"),
            ("windlass -q workers -f json drain 7", "windlass -q worker drain -f json 7"),
            ("windlass revisions show 3", "windlass failures revisions show 3"),
            ("windlass nodes set-aside n17", "windlass worker nodes set-aside n17"),
            ("windlass --db results results 3", "windlass --db results jobs results 3"),
            ("windlass help triage retry", "windlass help failures retry"),
            ("windlass exec -- windlass triage", "windlass exec -- windlass triage"),
            ("windlass status results", "windlass status results"),
            ("windlass", "windlass"),
        ] {
            assert_eq!(replaced(line), expected);
        }
    }

    #[test]
    fn torc_command_lines_parse() {
        for line in [
            "ping",
            "create diamond.yaml --no-resource-monitoring --skip-checks",
            "create --dry-run diamond.yaml",
            "run 1 --poll-interval 0.1 --num-cpus 2 --memory-gb 2",
            "-s --in-memory run diamond.yaml",
            "exec --param n=1:3 -- true {n}",
            "submit diamond.yaml",
            "status 1",
            "cancel 1 --no-prompts",
            "delete 1 --no-prompts",
            "recover 1 --dry-run --no-prompts -o out",
            "watch 1 --recover --max-retries 3 -p 60 --auto-schedule",
            "workflows list",
            "workflows get 1",
            "workflows init 1 --no-prompts --force",
            "workflows reinit 1 --dry-run",
            "workflows reset-status 1 --failed-only --no-prompts",
            "workflows sync-status 1 --dry-run",
            "workflows is-complete 1",
            "workflows list-actions 1",
            "workflows archive true 1 2",
            "workflows export 1 -o w.json",
            "workflows import w.json",
            "workflows delete 1 --no-prompts",
            "workflows execution-plan diamond.yaml",
            "workflows check-resources 1 --include-failed",
            "workflows correct-resources 1 --dry-run",
            "workflows run 1",
            "workflows create diamond.yaml",
            "workflows status 1",
            "workflows cancel 1",
            "jobs list 1 --status completed --limit 1",
            "jobs create-from-file 1 jobs.txt --cpus-per-job 1 --memory-per-job 1g --runtime-per-job PT1H",
            "jobs update 7 --runtime PT2H",
            "job-dependencies job-job 1",
            "job-dependencies job-file 1 --limit 1",
            "results list 1 --include-logs",
            "files list 1",
            "files list-required-existing 1",
            "user-data list 1 -o 2",
            "user-data update 1 --data 5",
            "events list 1 -s id -r",
            "events monitor 1 --duration 5",
            "resource-requirements list 1",
            "failure-handlers list 1",
            "compute-nodes list 1",
            "access-groups list-users climate",
            "access-groups add-workflow 1 climate",
            "plot-resources 1 -o use.html",
            "logs analyze --workflow-id 1",
            "logs bundle 1 -o out",
            "slurm generate diamond.yaml --account lab",
            "slurm regenerate 1 --submit -p 60",
            "slurm schedule-nodes 1 --scheduler-config-id night --num-hpc-jobs 2",
            "slurm plan-allocations diamond.yaml --skip-test-only",
            "slurm parse-logs 1 --errors-only",
            "hpc match --cpus 8",
            "remote add-workers 1 node1",
            "remote run 1",
        ] {
            let root = build_command();
            let (words, found) = replace_old_spelling(&root, words(&format!("windlass {line}")));
            assert_eq!(found.and_then(OldSpelling::note), None, "{line}");
            let parsed = root.try_get_matches_from(move_subcommands_first(&build_command(), words));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn note_is_for_renamed_commands_but_not_torc_commands() {
        let note =
            |line: &str| replace_old_spelling(&build_command(), words(line)).1.and_then(OldSpelling::note);
        assert_eq!(
            note("windlass triage list").as_deref(),
            Some("note: `windlass triage list` is now `windlass failures pending`")
        );
        for line in ["windlass results list 1", "windlass list", "windlass failures list"] {
            assert_eq!(note(line), None, "{line}");
        }
    }
}
