//! Runs many simulations with different seeds, for `cargo xtask soak`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool prints")]

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use windlass_sim::{SimulationOutcome, SimulationSetup, run_simulation};

const USAGE: &str = "soak [--seeds N] [--from N] [--seed N] [--request NAME] [--requests N] [--sites N] [--days N] [--jobs N]";

#[derive(Debug)]
struct Options {
    from: u64,
    seeds: u64,
    jobs: u64,
    setup: SimulationSetup,
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)) {
        Ok(options) => soak(&options),
        Err(what) => {
            eprintln!("error: {what}\nusage: {USAGE}");
            ExitCode::from(2)
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { from: 1, seeds: 20, jobs: 2, setup: SimulationSetup::large(0) };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
        if word == "--request" {
            options.setup.history_of = Some(value);
            continue;
        }
        let number: u64 = value.parse().map_err(|_| format!("`{word} {value}`: not a number"))?;
        let small = || u32::try_from(number).map_err(|_| format!("`{word} {value}`: too many"));
        match word.as_str() {
            "--seeds" => options.seeds = number,
            "--from" => options.from = number,
            "--seed" => (options.from, options.seeds) = (number, 1),
            "--requests" => options.setup.requests = small()?,
            "--sites" => options.setup.sites = small()?,
            "--days" => options.setup.days = small()?,
            "--jobs" => options.jobs = number.max(1),
            _ => return Err(format!("`{word}` is not an option")),
        }
    }
    Ok(options)
}

/// Runs all seeds; each thread takes the next free one.
fn soak(options: &Options) -> ExitCode {
    let next = AtomicU64::new(options.from);
    let end = options.from.saturating_add(options.seeds);
    let outcomes: Mutex<Vec<(SimulationOutcome, Duration)>> = Mutex::default();
    let panicked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let begin = Instant::now();
                    let setup = SimulationSetup { seed, ..options.setup.clone() };
                    let Ok(outcome) = catch_unwind(|| run_simulation(&setup)) else {
                        println!("seed {seed}: a decision panicked; the message is above");
                        panicked.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    let took = begin.elapsed();
                    tell(&outcome, took);
                    outcomes.lock().expect("no thread panics while holding it").push((outcome, took));
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("no thread panicked");
    sum_up(&outcomes, panicked.into_inner())
}

fn tell(outcome: &SimulationOutcome, took: Duration) {
    let figures = &outcome.statistics;
    let ends: Vec<String> =
        outcome.final_statuses.iter().map(|(status, count)| format!("{count} {status}")).collect();
    println!(
        "seed {}: {}; {} rounds, {} rescues, {} stops, {} holds, {} bans, {} promotions, {} crashes, \
         {} attempts, {} decisions; {:.1} days in {:.1} s{}",
        outcome.seed,
        ends.join(", "),
        figures.rounds,
        figures.rescues,
        figures.stops,
        figures.holds,
        figures.bans,
        figures.promotions,
        figures.crashes,
        figures.attempts,
        figures.decisions,
        outcome.simulated.as_secs_f64() / 86_400.0,
        took.as_secs_f64(),
        if outcome.violations.is_empty() { "" } else { "  BROKEN" },
    );
    for line in &outcome.history {
        println!("    {line}");
    }
    for violation in &outcome.violations {
        println!("{violation}");
    }
}

fn sum_up(outcomes: &[(SimulationOutcome, Duration)], panicked: u64) -> ExitCode {
    let broken: Vec<u64> =
        outcomes.iter().filter(|(one, _)| !one.violations.is_empty()).map(|(one, _)| one.seed).collect();
    let requests: u64 = outcomes.iter().flat_map(|(one, _)| one.final_statuses.values()).sum();
    let attempts: u64 = outcomes.iter().map(|(one, _)| one.statistics.attempts).sum();
    let longest = outcomes.iter().map(|(_, took)| *took).max().unwrap_or_default();
    println!(
        "{} simulations, {requests} requests, {attempts} attempts, the slowest in {:.1} s; {} broken{}, {panicked} panicked",
        outcomes.len(),
        longest.as_secs_f64(),
        broken.len(),
        if broken.is_empty() { String::new() } else { format!(": seeds {broken:?}") },
    );
    if broken.is_empty() && panicked == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
