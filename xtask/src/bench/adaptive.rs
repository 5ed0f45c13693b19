//! `cargo xtask bench adaptive`: how well rounds learn from requests whose hints are wrong.
//!
//! Requests with random programs, and with hints that are wrong by factors from 0.3 to 5 in memory and time, are
//! planned, simulated with the model that `payload simulate` uses, and planned again from the measurements (the
//! example `adaptive` of windlass-payload). Nothing is timed, so results depend neither on the machine nor on the
//! build profile.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

use super::options::{number, split_value};
use super::{cargo, output, run, target_directory};

const HELP: &str = "\
cargo xtask bench adaptive [OPTIONS]: requests whose hints are wrong, round by round

  --profiles N  requests (default 100)      --seed N  which ones (default 1)
  --rounds N    (default 4)                 --all     a line for each of them as well
";

/// The largest accepted error of an estimate …
const NEAR: f64 = 0.20;
/// … in at least this share of the requests, from the second round on.
const SHARE: f64 = 0.95;

struct Options {
    profiles: usize,
    rounds: usize,
    seed: usize,
    all: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { profiles: 100, rounds: 4, seed: 1, all: false };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--profiles" => options.profiles = number(value()?)?,
                "--rounds" => options.rounds = number(value()?)?,
                "--seed" => options.seed = number(value()?)?,
                "--all" => options.all = true,
                other => bail!("`bench adaptive` does not know `{other}`; see --help"),
            }
        }
        if options.rounds < 2 {
            bail!("--rounds: what was learnt shows in the second one");
        }
        Ok(options)
    }
}

/// A round of a request.
#[derive(Clone, Copy)]
struct Line {
    error: f64,
    per_core_hour: f64,
    killed: u64,
}

impl Line {
    fn parse(text: &str) -> Result<Self> {
        let found: Value = serde_json::from_str(text).context("the example printed no JSON")?;
        let value = |name: &str| found[name].as_f64().with_context(|| format!("no `{name}` in {text}"));
        Ok(Self {
            error: value("error")?,
            per_core_hour: value("events_per_core_hour")?,
            killed: found["killed"].as_u64().with_context(|| format!("no `killed` in {text}"))?,
        })
    }
}

pub(super) fn main(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let text = run_simulated_rounds(&options)?;
    if options.all {
        print!("{text}");
    }
    let lines: Vec<Line> = text.lines().map(Line::parse).collect::<Result<_>>()?;
    let requests: Vec<&[Line]> = lines.chunks(options.rounds).collect();
    println!(
        "{} requests with hints wrong by 0.3 to 5 in memory and time, seed {}",
        requests.len(),
        options.seed
    );
    println!("  round  within 20 %  median error  events per core-hour  killed for memory");
    let rounds: Vec<Round> = (0..options.rounds).map(|round| Round::of(&requests, round)).collect();
    for (number, round) in rounds.iter().enumerate() {
        println!(
            "  {:>5}  {:>11}  {:>11.1}%  {:>19.2}×  {:>17}",
            number + 1,
            round.near,
            round.median_error * 100.0,
            round.gain,
            round.killed
        );
    }
    check_estimates(&rounds[1], requests.len())
}

/// The results of one round, over all requests.
struct Round {
    near: usize,
    median_error: f64,
    /// Events per core-hour relative to the first round: the geometric mean.
    gain: f64,
    killed: u64,
}

impl Round {
    fn of(requests: &[&[Line]], round: usize) -> Self {
        let mut errors: Vec<f64> = requests.iter().map(|rounds| rounds[round].error).collect();
        errors.sort_by(f64::total_cmp);
        let gain = |rounds: &&[Line]| (rounds[round].per_core_hour / rounds[0].per_core_hour).ln();
        Self {
            near: errors.iter().filter(|error| **error <= NEAR).count(),
            median_error: errors[errors.len() / 2],
            gain: (requests.iter().map(gain).sum::<f64>() / requests.len() as f64).exp(),
            killed: requests.iter().map(|rounds| rounds[round].killed).sum(),
        }
    }
}

fn check_estimates(second: &Round, requests: usize) -> Result<()> {
    let wanted = (requests as f64 * SHARE).ceil() as usize;
    if second.near < wanted {
        bail!("{} of {requests} estimates are within 20 % by round 2, fewer than {wanted}", second.near);
    }
    if second.gain <= 1.0 {
        bail!("round 2 gets no more done in a core-hour than round 1");
    }
    Ok(())
}

fn run_simulated_rounds(options: &Options) -> Result<String> {
    run(&mut cargo(["build", "--package", "windlass-payload", "--example", "adaptive"]))?;
    let program: PathBuf = target_directory()?.join("debug/examples/adaptive");
    let numbers = [options.profiles, options.rounds, options.seed].map(|number| number.to_string());
    output(Command::new(program).args(numbers))
}
