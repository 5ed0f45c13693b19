//! `cargo xtask bench retries`: the cost of a retry, and the time until a storm of failures ends.
//!
//! Each round runs the same jobs three times: all of them succeed; every tenth fails once and is retried by its
//! handler; all of them fail until the retry budget of the workflow is used up. Nothing is judged: it prints the
//! measurements, and fails only if the database lacks an expected record.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::machine::MachineLoad;
use super::options::{number, split_value};

const HELP: &str = "\
cargo xtask bench retries [OPTIONS]: what a retry costs, and how soon a storm of failures is over

Runs N jobs that succeed, the same with every tenth failing once (a handler has it tried again), and the same with all of
them failing until the retry budget (100) is used up; all on this machine, in SQLite. A job is a shell that looks for its
file, and where there is none makes it and fails.

  --jobs N         (default 10000)         --runs N     rounds (default 3)
  --slots N        jobs at once (default 2)
  --windlass FILE  measure this binary (default: a release build)
";

/// One job in this many fails once.
const SHARE: usize = 10;
const BUDGET: usize = 100;
/// The exit code for failed jobs: see docs/exit-codes.md.
const JOBS_FAILED: i32 = 1;
const NEEDS_DECISION: i32 = 6;

struct Options {
    jobs: usize,
    runs: usize,
    slots: usize,
    windlass: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { jobs: 10_000, runs: 3, slots: 2, windlass: None };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--jobs" => options.jobs = number(value()?)?,
                "--runs" => options.runs = number(value()?)?,
                "--slots" => options.slots = number(value()?)?,
                "--windlass" => options.windlass = Some(value()?.into()),
                other => bail!("`bench retries` does not know `{other}`; see --help"),
            }
        }
        ensure!(options.jobs >= SHARE && options.runs > 0, "a few jobs and a round are needed");
        Ok(options)
    }
}

pub(super) fn main(words: &[String], windlass: impl FnOnce() -> Result<PathBuf>) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let windlass = match &options.windlass {
        Some(file) => fs::canonicalize(file).with_context(|| format!("cannot find {}", file.display()))?,
        None => windlass()?,
    };
    let ground = std::env::temp_dir().join(format!("windlass-bench-retries-{}", std::process::id()));
    let outcome = perform(&options, &windlass, &ground);
    if ground.exists() {
        fs::remove_dir_all(&ground).with_context(|| format!("cannot remove {}", ground.display()))?;
    }
    outcome
}

fn perform(options: &Options, windlass: &Path, ground: &Path) -> Result<()> {
    println!("{}", MachineLoad::look().describe());
    println!(
        "{} jobs, {} at once, every tenth fails once; {} rounds",
        options.jobs, options.slots, options.runs
    );
    let mut ratios = Vec::new();
    for round in 1..=options.runs {
        let place = |name: &str| ground.join(format!("{round}-{name}"));
        let plain = measure(options, windlass, &place("plain"), RetryLoad::Plain)?;
        let mixed = measure(options, windlass, &place("mixed"), RetryLoad::Mixed)?;
        let storm = measure(options, windlass, &place("storm"), RetryLoad::Storm)?;
        let per_job = plain.as_secs_f64() / options.jobs as f64;
        let per_retry = (mixed.as_secs_f64() - plain.as_secs_f64()) / (options.jobs / SHARE) as f64;
        ratios.push(per_retry / per_job);
        println!(
            "  round {round}: plain {:.2} s ({:.3} ms a job), with retries {:.2} s ({:.3} ms a retry, {:.2} × a job), \
             storm over after {:.2} s",
            plain.as_secs_f64(),
            per_job * 1e3,
            mixed.as_secs_f64(),
            per_retry * 1e3,
            per_retry / per_job,
            storm.as_secs_f64(),
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("a retry costs {:.2} × a plain job (median of {})", ratios[ratios.len() / 2], ratios.len());
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RetryLoad {
    Plain,
    Mixed,
    Storm,
}

fn measure(options: &Options, windlass: &Path, place: &Path, load: RetryLoad) -> Result<Duration> {
    let there = place.join("there");
    fs::create_dir_all(&there)?;
    let fails = |job: usize| match load {
        RetryLoad::Plain => false,
        RetryLoad::Mixed => job.is_multiple_of(SHARE),
        RetryLoad::Storm => true,
    };
    for job in (1..=options.jobs).filter(|job| !fails(*job)) {
        fs::write(there.join(job.to_string()), "")?;
    }
    fs::write(place.join("spec.yaml"), spec(options.jobs, load))?;
    let mut command = Command::new(windlass);
    let slots = options.slots.to_string();
    command.args(["--db", "windlass.db", "run", "spec.yaml", "--quiet", "-o", "output"]);
    command.args(["--num-cpus", &slots, "--max-parallel-jobs", &slots]);
    let begun = Instant::now();
    let output = command
        .current_dir(place)
        .output()
        .with_context(|| format!("cannot start {}", windlass.display()))?;
    let wall = begun.elapsed();
    let expected = if load == RetryLoad::Storm { [NEEDS_DECISION, JOBS_FAILED] } else { [0, 0] };
    ensure!(
        output.status.code().is_some_and(|code| expected.contains(&code)),
        "windlass ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    check_results(options, windlass, place, load)?;
    Ok(wall)
}

/// In a storm no file is left behind, so that every attempt fails.
fn spec(jobs: usize, load: RetryLoad) -> String {
    let (leaves, budget) = match load {
        RetryLoad::Storm => ("", format!("retry_budget: {BUDGET}\n")),
        _ => (": > there/{i}; ", String::new()),
    };
    let command = format!("if test -e there/{{i}}; then exit 0; fi; {leaves}exit 75");
    format!(
        "name: retries\n{budget}failure_handlers:\n  - name: again\n    rules: [{{exit_codes: [75], max_retries: 3}}]\n\
         jobs:\n  - {{name: \"job_{{i}}\", command: \"{command}\", failure_handler: again, \
         parameters: {{i: \"1:{jobs}\"}}}}\n"
    )
}

fn check_results(options: &Options, windlass: &Path, place: &Path, load: RetryLoad) -> Result<()> {
    let mut command = Command::new(windlass);
    command.args(["--db", "windlass.db", "status", "--format", "json"]).current_dir(place);
    let answer = command.output().context("cannot ask for the status")?;
    let status: Value =
        serde_json::from_slice(&answer.stdout).context("`status --format json` printed no JSON")?;
    let completed = status["jobs"]["completed"].as_u64().unwrap_or(0) as usize;
    match load {
        RetryLoad::Storm => ensure!(completed == 0, "{completed} jobs completed in a storm"),
        _ => ensure!(completed == options.jobs, "{completed} of {} jobs completed", options.jobs),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_checked() {
        let parsed =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let options = parsed("--jobs=500 --runs 2").unwrap();
        assert_eq!((options.jobs, options.runs), (500, 2));
        assert!(parsed("--jobs 3").is_err() && parsed("x").is_err());
    }

    #[test]
    fn jobs_fail_permanently_only_in_storm_load() {
        assert!(spec(10, RetryLoad::Mixed).contains(": > there/{i}"));
        assert!(!spec(10, RetryLoad::Storm).contains(": > there"));
        assert!(spec(10, RetryLoad::Storm).contains("retry_budget: 100"));
    }
}
