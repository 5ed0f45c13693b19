//! `cargo xtask bench dag render`: time to render a large run of a request to disk (the example `render` of
//! windlass-htcondor).
//!
//! Planning writes the manifests, one more file per unit, which are not counted here. Builds without optimization
//! are not judged.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::options::{is_release, number, split_value};
use super::super::{cargo, output, run, target_directory};

const HELP: &str = "\
cargo xtask bench dag render [OPTIONS]: a large run is rendered to disk

  --units N   (default 10000)            --runs N       the median counts (default 3)
  --nodes N   in each unit (default 10)  --profile dev  do not optimise, and judge nothing (default: release)
";

/// The limit for a run of the default size.
const MOST_SECONDS: f64 = 3.0;
/// Including its manifest. A directory counts as a file, because it costs as much.
const MOST_FILES_PER_UNIT: f64 = 4.0;

struct Options {
    units: usize,
    nodes: usize,
    runs: usize,
    is_release: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { units: 10_000, nodes: 10, runs: 3, is_release: true };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--units" => options.units = number(value()?)?,
                "--nodes" => options.nodes = number(value()?)?,
                "--runs" => options.runs = number(value()?)?,
                "--profile" => options.is_release = is_release(value()?)?,
                other => bail!("`bench dag render` does not know `{other}`; see --help"),
            }
        }
        Ok(options)
    }
}

/// The output of the example.
struct RenderSample {
    seconds: f64,
    files: f64,
    megabytes: f64,
}

impl RenderSample {
    fn parse(text: &str) -> Result<Self> {
        let told: Value = serde_json::from_str(text).context("the example printed no JSON")?;
        let value = |name: &str| told[name].as_f64().with_context(|| format!("no `{name}` in {text}"));
        Ok(Self {
            seconds: value("seconds")?,
            files: value("files")? + value("directories")?,
            megabytes: value("bytes")? / 1e6,
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
    let ground = target_directory()?.join("bench").join(format!("dag-render-{}", std::process::id()));
    let measured = measure(&program, &options, &ground);
    // Deleted only now: creating files is slow for a while after many were deleted.
    fs::remove_dir_all(&ground).with_context(|| format!("cannot remove {}", ground.display()))?;
    report(&options, &measured?)
}

/// The run with the median time.
fn measure(program: &Path, options: &Options, ground: &Path) -> Result<RenderSample> {
    let numbers = [options.units, options.nodes].map(|number| number.to_string());
    let mut samples = Vec::new();
    for run in 0..options.runs {
        let text = output(Command::new(program).arg(ground.join(run.to_string())).args(&numbers))?;
        samples.push(RenderSample::parse(&text)?);
    }
    samples.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    samples.into_iter().nth(options.runs.saturating_sub(1) / 2).context("there was no run")
}

fn report(options: &Options, sample: &RenderSample) -> Result<()> {
    let Options { units, nodes, .. } = options;
    let per_unit = sample.files / *units as f64 + 1.0;
    println!("a run of {units} units of {nodes} processing nodes, rendered to disk");
    println!("  time                           {:>8.3} s", sample.seconds);
    println!(
        "  files and directories          {:>8.0} ({per_unit:.1} for each unit with its manifest)",
        sample.files
    );
    println!("  written                        {:>8.1} MB", sample.megabytes);
    if options.is_release && (sample.seconds > MOST_SECONDS || per_unit > MOST_FILES_PER_UNIT) {
        bail!("rendering took more than {MOST_SECONDS} s or {MOST_FILES_PER_UNIT} files for each unit");
    }
    Ok(())
}

fn build(is_release: bool) -> Result<PathBuf> {
    let mut command = cargo(["build", "--package", "windlass-htcondor", "--example", "render"]);
    if is_release {
        command.arg("--release");
    }
    run(&mut command)?;
    let profile = if is_release { "release" } else { "debug" };
    Ok(target_directory()?.join(profile).join("examples/render"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_output_is_parsed() {
        let sample =
            RenderSample::parse(r#"{"seconds": 1.5, "files": 10, "directories": 2, "bytes": 3000000}"#)
                .unwrap();
        assert!((sample.files - 12.0).abs() < f64::EPSILON && (sample.megabytes - 3.0).abs() < f64::EPSILON);
        assert!(RenderSample::parse("{}").is_err());
    }
}
