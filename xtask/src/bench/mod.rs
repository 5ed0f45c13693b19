//! `cargo xtask bench`: compares windlass with the floor of fork+exec, xargs and its peers, in interleaved
//! rounds.
//!
//! [`options`], [`workloads`] and [`competitors`] decide what runs, and [`measure`] runs it. The samples become
//! numbers in [`statistics`] and [`targets`], and text in [`report`] and [`table`].

mod adaptive;
mod competitors;
mod dag;
mod machine;
mod measure;
mod options;
mod peers;
mod plan;
mod report;
mod requests;
mod retries;
mod rounds;
mod slurm;
mod statistics;
mod table;
mod targets;
mod workers;
mod workloads;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use serde_json::Value;

use self::competitors::{LIST, SearchEnvironment};
use self::machine::MachineLoad;
use self::measure::NativeTools;
use self::options::Options;
use self::report::BenchReport;
use self::rounds::WorkloadRuns;
use self::workloads::{CREATION, RUNS};
use crate::shell::{cargo, output, run};

pub(crate) fn main(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", options::HELP);
        return Ok(());
    }
    // Separate benchmarks with their own options.
    let build = || build_windlass(&target_directory()?).map_err(anyhow::Error::msg);
    match words.split_first() {
        Some((first, rest)) if first == "workers" => return workers::main(rest, build),
        Some((first, rest)) if first == "retries" => return retries::main(rest, build),
        Some((first, rest)) if first == "adaptive" => return adaptive::main(rest),
        Some((first, rest)) if first == "plan" => return plan::main(rest),
        Some((first, rest)) if first == "dag" => return dag::main(rest),
        Some((first, rest)) if first == "requests" => return requests::main(rest, build),
        Some((first, rest)) if first == "slurm" => return slurm::main(rest, build),
        _ => {}
    }
    let known: Vec<&str> = LIST.iter().map(|(name, _)| *name).collect();
    let options = Options::parse(words, &known)?;
    let target = target_directory()?;
    let peers = target.join("bench-peers");
    peers::install(options.install, &peers);

    let native = NativeTools::build(&target.join("bench-native"))?;
    let windlass =
        if options.wants("windlass") { build_windlass(&target) } else { Err("not asked for".to_owned()) };
    let search_environment =
        SearchEnvironment { native: &native, windlass, baseline: options.baseline.clone(), peers: &peers };
    let run_directory = target.join("bench").join(format!("{}-{}", seconds_now(), std::process::id()));
    let outcome = perform(&options, &search_environment, &run_directory);
    // Deleted only now: on some file systems, creating files is slow for a while after many were deleted.
    if !options.keep && run_directory.exists() {
        fs::remove_dir_all(&run_directory)
            .with_context(|| format!("cannot remove {}", run_directory.display()))?;
    }
    publish(&outcome?, options.json.as_deref())
}

fn perform(
    options: &Options,
    search_environment: &SearchEnvironment<'_>,
    run_directory: &Path,
) -> Result<BenchReport> {
    let machine = MachineLoad::look();
    let entries = competitors::find_all(search_environment, |name| options.wants(name));
    let track = WorkloadRuns { native: search_environment.native, entries: &entries, options, run_directory };
    let asked = |letter: char| options.workloads.contains(&letter);
    let mut runs = Vec::new();
    for workload in RUNS.iter().filter(|workload| asked(workload.letter)) {
        runs.push(track.run_workload(workload)?);
    }
    let mut creations = Vec::new();
    if asked(CREATION) {
        for jobs in &options.sizes {
            creations.push(track.run_creation(*jobs)?);
        }
    }
    Ok(BenchReport { machine, slots: options.slots, runs, creations })
}

/// Prints the table to the terminal and writes the JSON to the requested file.
fn publish(report: &BenchReport, json: Option<&Path>) -> Result<()> {
    let text = report::render_text(report, table::terminal_width());
    let Some(file) = json else {
        print!("{text}");
        return Ok(());
    };
    let json = format!("{:#}\n", report::render_json(report));
    if file == Path::new("-") {
        eprint!("{text}");
        print!("{json}");
    } else {
        print!("{text}");
        fs::write(file, json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// A build that fails becomes a row that says so, so that the others are still measured.
fn build_windlass(target: &Path) -> Result<PathBuf, String> {
    let built = run(&mut cargo(["build", "--release", "--package", "windlass"]));
    built.map(|()| target.join("release/windlass")).map_err(|error| format!("{error:#}"))
}

fn target_directory() -> Result<PathBuf> {
    let text = output(&mut cargo(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata printed no JSON")?;
    let directory =
        metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(directory.into())
}

#[expect(clippy::disallowed_methods, reason = "only names a directory")]
fn seconds_now() -> u64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
