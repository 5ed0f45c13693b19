//! `cargo xtask bench dag watch`: one process that follows many running DAGs (the example `watch` of
//! windlass-htcondor).
//!
//! Builds without optimization are not judged.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::super::options::{is_release, number, split_value};
use super::super::{cargo, output, run, target_directory};

const HELP: &str = "\
cargo xtask bench dag watch [OPTIONS]: many running DAGs are followed

  --dags N    (default 300)      --runs N       passes after all got on, the median counts (default 5)
  --units N   (default 1000)     --profile dev  do not optimise, and judge nothing (default: release)
  --nodes N   in each unit (default 10)
";

/// The limit for one pass over DAGs of the default number and size.
const MOST_SECONDS: f64 = 1.0;

struct Options {
    dags: usize,
    units: usize,
    nodes: usize,
    runs: usize,
    is_release: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { dags: 300, units: 1000, nodes: 10, runs: 5, is_release: true };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--dags" => options.dags = number(value()?)?,
                "--units" => options.units = number(value()?)?,
                "--nodes" => options.nodes = number(value()?)?,
                "--runs" => options.runs = number(value()?)?,
                "--profile" => options.is_release = is_release(value()?)?,
                other => bail!("`bench dag watch` does not know `{other}`; see --help"),
            }
        }
        Ok(options)
    }
}

pub(super) fn main(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let program = build(options.is_release)?;
    let ground = target_directory()?.join("bench").join(format!("dag-watch-{}", std::process::id()));
    let numbers = [options.dags, options.units, options.nodes, options.runs].map(|number| number.to_string());
    let told = output(Command::new(program).arg(&ground).args(numbers));
    fs::remove_dir_all(&ground).with_context(|| format!("cannot remove {}", ground.display()))?;
    let told: Value = serde_json::from_str(&told?).context("the example printed no JSON")?;
    report(&options, &told)
}

fn report(options: &Options, told: &Value) -> Result<()> {
    let Options { dags, units, nodes, .. } = options;
    let busy = median(told, "busy_seconds")?;
    println!("{dags} running DAGs of {} nodes ({units} units, half of them over)", units * nodes);
    println!("  attempts that have ended       {:>8.0}", single(told, "attempts")?);
    println!("  first pass                     {:>8.3} s", single(told, "first_seconds")?);
    println!("  … until all are counted        {:>8.3} s each, at most", longest(told, "counting_seconds")?);
    println!("  pass after each got on a bit   {busy:>8.3} s");
    println!("  pass without news              {:>8.3} s", median(told, "quiet_seconds")?);
    println!("  memory for all of them         {:>8.1} MB", single(told, "memory_kb")? / 1024.0);
    println!("  peak of the process            {:>8.0} MB", single(told, "peak_mb")?);
    if options.is_release && busy > MOST_SECONDS {
        bail!("a pass took more than {MOST_SECONDS} s");
    }
    Ok(())
}

fn build(is_release: bool) -> Result<PathBuf> {
    let mut command = cargo(["build", "--package", "windlass-htcondor", "--example", "watch"]);
    if is_release {
        command.arg("--release");
    }
    run(&mut command)?;
    let profile = if is_release { "release" } else { "debug" };
    Ok(target_directory()?.join(profile).join("examples/watch"))
}

fn single(told: &Value, name: &str) -> Result<f64> {
    told[name].as_f64().with_context(|| format!("no `{name}` in {told}"))
}

/// Sorted in ascending order.
fn sorted(told: &Value, name: &str) -> Result<Vec<f64>> {
    let list = told[name].as_array().with_context(|| format!("no `{name}` in {told}"))?;
    let mut numbers: Vec<f64> = list.iter().filter_map(Value::as_f64).collect();
    numbers.sort_by(f64::total_cmp);
    Ok(numbers)
}

fn median(told: &Value, name: &str) -> Result<f64> {
    let numbers = sorted(told, name)?;
    numbers.get(numbers.len() / 2).copied().with_context(|| format!("there was no run: `{name}`"))
}

/// The largest value; 0 if there are none.
fn longest(told: &Value, name: &str) -> Result<f64> {
    Ok(sorted(told, name)?.last().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_output_is_summarized() {
        let told = serde_json::json!({ "busy": [3.0, 1.0, 2.0], "none": [], "one": 4 });
        assert!((median(&told, "busy").unwrap() - 2.0).abs() < f64::EPSILON);
        assert!((longest(&told, "busy").unwrap() - 3.0).abs() < f64::EPSILON);
        assert!((single(&told, "one").unwrap() - 4.0).abs() < f64::EPSILON);
        assert!(median(&told, "none").is_err());
        assert!(median(&told, "missing").is_err());
        assert!(longest(&told, "none").unwrap().abs() < f64::EPSILON);
    }
}
