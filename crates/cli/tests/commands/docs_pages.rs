//! Tests that run the documentation. Every page is executed in an empty directory, from top to bottom: console
//! blocks are run and must print the output that the page shows, and blocks that are specs are checked. A file
//! that `$ cat FILE` shows and that does not exist yet is created with the content shown.
//!
//! `cargo xtask docs` updates the output in the pages; review the diff before committing it.

use crate::common::Sandbox;
use crate::page_transcript::{self, PagePart, Step, normal};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn readme_transcripts_match_output() {
    walk(&[Path::new(ROOT).join("README.md")], 6);
}

#[test]
fn tutorial_transcripts_match_output() {
    walk(&[Path::new(ROOT).join("docs/tutorial.md")], 25);
}

#[test]
fn guide_transcripts_match_output() {
    walk(&pages("docs/guide"), 80);
}

#[test]
fn migration_page_transcripts_match_output() {
    walk(&pages("docs/coming-from"), 15);
}

#[test]
fn other_page_transcripts_match_output() {
    let tutorial = Path::new(ROOT).join("docs/tutorial.md");
    let others: Vec<PathBuf> = pages("docs").into_iter().filter(|page| *page != tutorial).collect();
    walk(&others, 0);
}

#[test]
fn job_environment_variables_are_documented() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/environment.md")).unwrap();
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: env\nresource_requirements: [{name: one, num_cpus: 1, memory: 100m, num_gpus: 1, runtime: 1h}]\n\
         jobs: [{name: 'a{name}', command: env, resource_requirements: one, parameters: {name: [1]}}]\n",
    );
    sandbox.windlass(&["run", "spec.yaml", "--num-gpus", "1"]).exits(0);
    let printed = sandbox.windlass(&["logs", "a1", "--stdout"]).exits(0).stdout;
    let names = printed.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name);
    let is_given = |name: &&str| {
        ["WINDLASS_", "TORC_", "CUDA_", "OMP_"].iter().any(|p| name.starts_with(p))
            && std::env::var_os(name).is_none()
    };
    let ours: Vec<&str> = names.filter(is_given).collect();
    assert!(ours.len() >= 17, "{ours:?}");
    for name in ours {
        assert!(page.contains(&format!("`{name}`")), "docs/environment.md does not explain {name}");
    }
}

#[test]
fn configuration_page_lists_every_setting() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/guide/configuration.md")).unwrap();
    let settings = Sandbox::new().json(&["config", "show"]);
    for setting in settings.as_array().unwrap() {
        let name = setting["name"].as_str().unwrap();
        assert!(page.contains(name), "docs/guide/configuration.md does not name {name}");
    }
}

#[test]
fn table_of_contents_lists_every_page() {
    let contents = fs::read_to_string(Path::new(ROOT).join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> =
        links(&contents).map(|link| Path::new(ROOT).join("docs").join(link)).collect();
    let there =
        ["docs", "docs/guide", "docs/coming-from", "docs/reference", "docs/design"].map(pages).concat();
    for page in there.iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        assert!(listed.contains(page), "docs/SUMMARY.md does not list {}", page.display());
    }
}

#[test]
fn documentation_links_have_targets() {
    let folders = [".", "docs", "docs/guide", "docs/coming-from", "docs/reference", "docs/design"];
    for page in folders.map(pages).concat() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (file, heading) =
                link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: `{link}` leads nowhere", page.display());
            if let Some(heading) = heading {
                let there = headings(&fs::read_to_string(&target).unwrap());
                assert!(
                    there.contains(heading),
                    "{}: `{link}` leads to no heading: {there:?}",
                    page.display()
                );
            }
        }
    }
}

/// The anchors of the headings of a page: lower case, spaces as hyphens, no punctuation.
fn headings(text: &str) -> BTreeSet<String> {
    let titles =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let name = |title: &str| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    titles.map(name).collect()
}

/// The targets of the Markdown links of a page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The pages of one folder, sorted.
fn pages(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(ROOT).join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    pages
}

/// Runs each page, and reports the problems of all of them together. `at_least` is the minimum number of
/// commands, so that blocks that are no longer recognized are noticed.
fn walk(pages: &[PathBuf], at_least: usize) {
    let mut commands = 0;
    let mut complaints = String::new();
    for path in pages {
        let text = fs::read_to_string(path).unwrap();
        let mut pieces = page_transcript::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(page_transcript::render(&pieces), text, "{} is not closed properly", path.display());
        let walk = PageRun::new();
        for piece in &mut pieces {
            match piece {
                PagePart::Prose(_) => {}
                PagePart::Spec { format, text } => complaints.extend(walk.check(format, text)),
                PagePart::Console(steps) => {
                    commands += steps.len();
                    complaints.extend(steps.iter_mut().filter_map(|step| walk.step(step)));
                }
            }
        }
        let walked = page_transcript::render(&pieces);
        if walked != text {
            fs::write(path, walked).unwrap();
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
    assert!(commands >= at_least, "these pages have shrunk to {commands} commands");
}

/// The execution of one page in its own directory.
struct PageRun {
    sandbox: Sandbox,
    /// Replaced in output, so that pages do not depend on the directory.
    dir: String,
    updates: bool,
}

impl PageRun {
    const HOME: &str = "/home/ada/sims";

    fn new() -> Self {
        let sandbox = Sandbox::new();
        let dir = sandbox.path("").canonicalize().unwrap().display().to_string();
        Self { sandbox, dir, updates: std::env::var_os("WINDLASS_UPDATE_GENERATED").is_some() }
    }

    /// Runs the command after a `$`; returns its output if that differs from the output shown.
    fn step(&self, step: &mut Step) -> Option<String> {
        if let Some(file) = step.command.strip_prefix("cat ")
            && !self.sandbox.path(file).exists()
        {
            self.sandbox.write(file, &step.shown);
            return None;
        }
        let printed = self.run(&step.command);
        if normal(&printed) == normal(&step.shown) {
            return None;
        }
        let Step { command, shown } = step;
        let complaint = format!("$ {command}\nis shown to print:\n{shown}\nand prints:\n{printed}\n");
        if self.updates {
            step.shown = printed;
            return None;
        }
        Some(complaint)
    }

    /// Runs a command without a terminal, with stdout and stderr combined.
    fn run(&self, command: &str) -> String {
        let binary = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(&self.dir)
            .env("PATH", path)
            .env("USER", "ada")
            .env("HOME", &self.dir)
            .env("XDG_CONFIG_HOME", self.sandbox.path(".config"))
            .env_remove("WINDLASS_DB")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap().replace(&self.dir, Self::HOME);
        // Editors remove trailing spaces.
        printed.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }

    /// The problems of a spec, if any.
    fn check(&self, format: &str, text: &str) -> Option<String> {
        let name = format!("block.{format}");
        self.sandbox.write(&name, text);
        let output = self.sandbox.windlass(&["create", "--dry-run", &name]);
        (output.code != 0).then(|| format!("{text}\n{}\n", output.stderr))
    }
}
