//! `cargo xtask bench plan`: time and memory for planning a large dataset, with each splitter.
//!
//! Each line is a separate process (the example `plan` of windlass-core), so that it has its own memory peak.
//! Memory is that of the whole process, including the files as the catalog returned them. Builds without
//! optimization are not judged.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

use super::machine::MachineLoad;
use super::options::{is_release, number, split_value};
use super::{cargo, output, run, target_directory};

const HELP: &str = "\
cargo xtask bench plan [OPTIONS]: a large dataset planned with each splitter

  --files N   (default 100000)       --runs N       the median of so many (default 3)
  --lumis N   (default 1000000)      --profile dev  do not optimise, and judge nothing (default: release)
";

const SPLITTERS: [&str; 4] = ["FileBased", "EventBased", "LumiBased", "EventAwareLumiBased"];
const SPREADS: [&str; 2] = ["blocks", "scattered"];
/// The limit for a dataset of the default size.
const MOST_SECONDS: f64 = 3.0;
const MOST_MB: u64 = 500;

struct Options {
    files: usize,
    lumis: usize,
    runs: usize,
    is_release: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { files: 100_000, lumis: 1_000_000, runs: 3, is_release: true };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--files" => options.files = number(value()?)?,
                "--lumis" => options.lumis = number(value()?)?,
                "--runs" => options.runs = number(value()?)?,
                "--profile" => options.is_release = is_release(value()?)?,
                other => bail!("`bench plan` does not know `{other}`; see --help"),
            }
        }
        Ok(options)
    }
}

/// The output of the example.
struct PlanSample {
    seconds: f64,
    dataset_mb: u64,
    peak_mb: u64,
    nodes: u64,
    units: u64,
}

impl PlanSample {
    fn parse(text: &str) -> Result<Self> {
        let found: Value = serde_json::from_str(text).context("the example printed no JSON")?;
        let count = |name: &str| found[name].as_u64().with_context(|| format!("no `{name}` in {text}"));
        Ok(Self {
            seconds: found["seconds"].as_f64().with_context(|| format!("no `seconds` in {text}"))?,
            dataset_mb: count("dataset_mb")?,
            peak_mb: count("peak_mb")?,
            nodes: count("nodes")?,
            units: count("units")?,
        })
    }
}

pub(super) fn main(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let program = build(options.is_release)?;
    println!("{}", MachineLoad::look().describe());
    println!("{} files, {} lumis; median of {}", options.files, options.lumis, options.runs);
    println!(
        "  {:<20} {:<10} {:>8} {:>8} {:>12} {:>9} {:>8}",
        "splitter", "replicas", "s", "peak MB", "of it files", "jobs", "units"
    );
    let mut missed = Vec::new();
    for splitter in SPLITTERS {
        for spread in SPREADS {
            let sample = measure(&program, &options, splitter, spread)?;
            println!(
                "  {splitter:<20} {spread:<10} {:>8.2} {:>8} {:>12} {:>9} {:>8}",
                sample.seconds, sample.peak_mb, sample.dataset_mb, sample.nodes, sample.units
            );
            if sample.seconds > MOST_SECONDS || sample.peak_mb > MOST_MB {
                missed.push(format!("{splitter} {spread}"));
            }
        }
    }
    if options.is_release && !missed.is_empty() {
        bail!("over {MOST_SECONDS} s or {MOST_MB} MB: {}", missed.join(", "));
    }
    Ok(())
}

fn build(is_release: bool) -> Result<PathBuf> {
    let mut command = cargo(["build", "--package", "windlass-core", "--example", "plan"]);
    if is_release {
        command.arg("--release");
    }
    run(&mut command)?;
    let profile = if is_release { "release" } else { "debug" };
    Ok(target_directory()?.join(profile).join("examples/plan"))
}

/// The run with the median time.
fn measure(program: &PathBuf, options: &Options, splitter: &str, spread: &str) -> Result<PlanSample> {
    let (files, lumis) = (options.files.to_string(), options.lumis.to_string());
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        let text = output(Command::new(program).args([splitter, &files, &lumis, spread]))?;
        samples.push(PlanSample::parse(&text)?);
    }
    samples.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    samples.into_iter().nth((options.runs - 1) / 2).context("there was no run")
}
