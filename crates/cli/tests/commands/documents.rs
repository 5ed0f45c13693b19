//! The documents tell the truth. Console blocks are run, line by line, and must print what they show; the specs of the
//! reference are good, and it names what jobs find.
//!
//! Times, memory sizes and dates differ from run to run and are compared as `#`; lines may come in another order, since
//! jobs run at the same time.

use crate::common::Sandbox;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_tour_of_the_readme_is_what_one_sees() {
    let readme = include_str!("../../../../README.md");
    let sandbox = Sandbox::new();
    let mut commands = 0;
    for (command, shown) in steps(readme) {
        if let Some(file) = command.strip_prefix("cat ") {
            // The file that the tour shows is the file that it uses.
            sandbox.write(file, &shown);
            continue;
        }
        let printed = run(&sandbox, &command);
        assert_eq!(normal(&printed), normal(&shown), "$ {command}\n{printed}");
        commands += 1;
    }
    assert!(commands >= 6, "the tour has shrunk to {commands} commands");
}

const SPEC: &str = include_str!("../../../../docs/spec.md");

#[test]
fn every_spec_in_the_reference_is_good() {
    let sandbox = Sandbox::new();
    let blocks: Vec<&str> = SPEC.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    assert!(blocks.len() >= 5, "the reference has shrunk to {} specs", blocks.len());
    for block in blocks {
        sandbox.write("spec.yaml", block);
        sandbox.windlass(&["create", "--dry-run", "spec.yaml"]).exits(0);
    }
}

#[test]
fn the_reference_names_every_variable_that_a_job_finds() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: env\nresource_requirements: [{name: one, num_cpus: 1, memory: 100m, num_gpus: 1}]\n\
         jobs: [{name: a, command: env, resource_requirements: one}]\n",
    );
    sandbox.windlass(&["run", "spec.yaml", "--num-gpus", "1"]).exits(0);
    let printed = sandbox.windlass(&["logs", "a", "--stdout"]).exits(0).stdout;
    let names = printed.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name);
    let ours: Vec<&str> =
        names.filter(|name| ["WINDLASS_", "TORC_", "CUDA_"].iter().any(|p| name.starts_with(p))).collect();
    assert!(ours.len() >= 15, "{ours:?}");
    for name in ours {
        assert!(SPEC.contains(&format!("`{name}`")), "docs/spec.md does not explain {name}");
    }
}

/// `(command, what it is shown to print)` for every `$` line in a console block.
fn steps(document: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for block in document.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let mut open = false;
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push((command.to_owned(), String::new()));
                open = true;
            } else if open {
                let (_, shown) = steps.last_mut().unwrap();
                shown.push_str(line);
                shown.push('\n');
            }
        }
    }
    steps
}

/// As in a terminal that is not one: both streams, in one.
fn run(sandbox: &Sandbox, command: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", &format!("{{ {command}\n}} 2>&1")])
        .current_dir(sandbox.path("."))
        .env("PATH", path)
        .env_remove("WINDLASS_DB")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn normal(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(normal_line).collect();
    lines.sort();
    lines
}

/// Columns are as wide as what stands in them, so runs of spaces count as one.
fn normal_line(line: &str) -> String {
    line.split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| if varies(word) { "#" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

fn varies(word: &str) -> bool {
    let Some(rest) = word.trim_end_matches(',').strip_prefix(|c: char| c.is_ascii_digit()) else {
        return false;
    };
    let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | ':'));
    matches!(unit, "ms" | "s" | "m" | "Z") || (unit.is_empty() && rest.contains(['-', ':']))
}
