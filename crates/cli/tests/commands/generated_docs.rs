//! The generated reference pages match those that are checked in, and completions work.

use crate::common::Sandbox;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

fn files(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

#[test]
fn man_pages_and_reference_are_up_to_date() {
    let sandbox = Sandbox::new();
    sandbox.windlass(&["__docs", "docs"]).exits(0);
    let checked_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let (made, there) = (files(&sandbox.path("docs/man")), files(&checked_in.join("man")));
    assert_eq!(made.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>(), "run `cargo xtask docs`");
    for (name, text) in &made {
        assert!(there[name] == *text, "{name} is out of date: run `cargo xtask docs`");
    }
    for page in ["cli.md", "mcp-tools.json"] {
        let there = fs::read_to_string(checked_in.join("reference").join(page)).unwrap();
        let made = sandbox.read(&format!("docs/reference/{page}"));
        assert!(made == there, "{page} is out of date: run `cargo xtask docs`");
    }
}

#[test]
fn completions_exist_for_every_shell() {
    let sandbox = Sandbox::new();
    for (shell, part) in [
        ("bash", "complete -F _windlass"),
        ("zsh", "#compdef windlass"),
        ("fish", "complete -c windlass"),
        ("elvish", "edit:completion:arg-completer[windlass]"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        sandbox.windlass(&["completions", shell]).exits(0).prints(part);
    }
    sandbox.windlass(&["completions", "csh"]).exits(2).says("possible values: bash");
}

#[test]
fn bash_completes_subcommands() {
    let sandbox = Sandbox::new();
    let script = sandbox.windlass(&["completions", "bash"]).exits(0).stdout;
    sandbox.write("complete.bash", &script);
    let ask = "source complete.bash; COMP_WORDS=(windlass jobs ru); COMP_CWORD=2; \
               _windlass windlass ru jobs; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", ask]).current_dir(sandbox.path(".")).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "running", "{:?}", output.stderr);
}
