//! `cargo xtask compat`: runs Torc's own command line against `windlass serve`, and writes its output as a
//! page.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell::{cargo, root, run};

const HELP: &str = "\
cargo xtask compat [--torc-bin FILE]: the real `torc` 1.0.0 against `windlass serve`

Without --torc-bin it is built from the crate registry (once; a quarter of an hour) below the target directory.
A session creates, initializes, runs, lists, cancels, resets and deletes workflows; what it prints is written into
docs/torc-compat.md. If a command does not end as expected, this fails.
";

const VERSION: &str = "1.0.0";
const BEGIN: &str = "<!-- session: written by `cargo xtask compat` -->";
const END: &str = "<!-- end of session -->";

/// One command of the session. `{id}` is the newest workflow.
struct CompatStep {
    words: &'static str,
    succeeds: bool,
}

const fn step(words: &'static str) -> CompatStep {
    CompatStep { words, succeeds: true }
}

const SESSION: &[CompatStep] = &[
    step("ping"),
    step("create diamond.yaml"),
    step("workflows list"),
    step("jobs list {id}"),
    step("job-dependencies job-job {id}"),
    step("workflows execution-plan {id}"),
    step("workflows init {id} --no-prompts"),
    step("status {id}"),
    step("run {id} --poll-interval 0.1 --num-cpus 2 --memory-gb 2"),
    step("status {id}"),
    step("workflows list-actions {id}"),
    step("jobs list {id}"),
    step("results list {id}"),
    step("compute-nodes list {id}"),
    step("events list {id}"),
    step("files list {id}"),
    step("user-data list {id}"),
    step("resource-requirements list {id}"),
    step("workflows reset-status {id} --no-prompts"),
    step("workflows init {id} --no-prompts --force"),
    step("cancel {id} --no-prompts"),
    step("workflows is-complete {id}"),
    step("delete {id} --no-prompts"),
    CompatStep { words: "workflows get {id}", succeeds: false },
];

/// The user of the session: Torc's command line lists the workflows of `$USER`.
const USER: &str = "ada";

/// Tables of events are too wide for a page.
const WIDTH: usize = 118;

const SPEC: &str = "\
name: diamond
description: two halves of one thing
jobs:
  - {name: split, command: echo split}
  - {name: left, command: echo left, depends_on: [split]}
  - {name: right, command: echo right, depends_on: [split]}
  - {name: join, command: echo join, depends_on: [left, right]}
actions:
  - {trigger_type: on_workflow_start, action_type: run_commands, commands: [echo begins >> order]}
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: [echo over >> order]}
";

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let torc = match arguments {
        [] => build_torc()?,
        [word] if word == "--help" || word == "-h" => {
            print!("{HELP}");
            return Ok(());
        }
        [flag, file] if flag == "--torc-bin" => PathBuf::from(file),
        _ => bail!("unknown arguments\n\n{HELP}"),
    };
    run(&mut cargo(["build", "--package", "windlass"]))?;
    let place = env::temp_dir().join(format!("windlass-compat-{}", std::process::id()));
    fs::create_dir_all(&place)?;
    let outcome = serve_and_record(&torc, &place);
    fs::remove_dir_all(&place)?;
    write_page(&outcome?)
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn build_torc() -> Result<PathBuf> {
    let place = target().join("torc");
    let file = place.join("bin/torc");
    if !file.exists() {
        let mut install = cargo(["install", "torc", "--version", VERSION, "--features", "client", "--root"]);
        // Without this variable the published sources do not compile.
        install.arg(&place).env("SQLX_OFFLINE", "true").env_remove("CARGO_TARGET_DIR");
        run(&mut install)?;
    }
    Ok(file)
}

/// Stops the server when dropped.
struct CompatServer(Child);

impl Drop for CompatServer {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn serve_and_record(torc: &Path, place: &Path) -> Result<String> {
    fs::write(place.join("diamond.yaml"), SPEC)?;
    let database = place.join("store.db");
    let mut serve = Command::new(target().join("debug/windlass"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--no-auth", "--db"]).arg(&database);
    let server = CompatServer(
        serve
            .current_dir(place)
            .env("USER", USER)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start windlass serve")?,
    );
    let url = wait_for_url(&database)?;
    let transcript = record(torc, place, &format!("{url}/torc-service/v1"));
    drop(server);
    transcript
}

/// Waits for the file beside the database into which the server writes its address.
fn wait_for_url(database: &Path) -> Result<String> {
    let file = PathBuf::from(format!("{}.run/server.json", database.display()));
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Ok(text) = fs::read_to_string(&file) {
            let told: serde_json::Value = serde_json::from_str(&text)?;
            return told["url"].as_str().map(str::to_owned).context("server.json names no url");
        }
        if Instant::now() > deadline {
            bail!("windlass serve did not come up");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn record(torc: &Path, place: &Path, url: &str) -> Result<String> {
    let mut transcript = String::new();
    let mut id = String::new();
    for step in SESSION {
        let words: Vec<String> = step.words.split(' ').map(|word| word.replace("{id}", &id)).collect();
        eprintln!("$ torc {}", words.join(" "));
        let mut command = Command::new(torc);
        command.args(&words).current_dir(place).env("TORC_API_URL", url).env("USER", USER);
        command.env("RUST_LOG", "error");
        let output = command.stdin(Stdio::null()).output().context("cannot start torc")?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        if output.status.success() != step.succeeds {
            bail!("`torc {}` ended with {}:\n{text}", words.join(" "), output.status);
        }
        if step.words.starts_with("create") {
            id = last_number(&text).context("`torc create` named no workflow")?;
        }
        let shown = text
            .trim_end()
            .replace(&place.display().to_string(), "~/work")
            .replace(url, "http://localhost:8080/torc-service/v1");
        let lines: Vec<String> = shown.lines().map(cut).collect();
        transcript.extend(["$ torc ", &words.join(" "), "\n", &lines.join("\n"), "\n\n"]);
    }
    Ok(transcript)
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line.to_owned(),
    }
}

fn last_number(text: &str) -> Option<String> {
    let mut numbers = text.rsplit(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    numbers.next().map(str::to_owned)
}

fn write_page(transcript: &str) -> Result<()> {
    let path = root().join("docs/torc-compat.md");
    let page = fs::read_to_string(&path).context("docs/torc-compat.md")?;
    let (before, rest) =
        page.split_once(BEGIN).context("docs/torc-compat.md has no place for the session")?;
    let (_, after) = rest.split_once(END).context("docs/torc-compat.md has no end of the session")?;
    fs::write(&path, format!("{before}{BEGIN}\n\n```text\n{}\n```\n\n{END}{after}", transcript.trim_end()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_too_wide_lines_are_cut() {
        assert_eq!(cut("│ short │"), "│ short │");
        assert_eq!(cut(&"─".repeat(WIDTH + 1)), format!("{} …", "─".repeat(WIDTH)));
    }

    #[test]
    fn workflow_id_is_last_number_in_output() {
        assert_eq!(last_number("Created workflow 12\nID: 34\n").as_deref(), Some("34"));
        assert_eq!(last_number("nothing"), None);
    }
}
