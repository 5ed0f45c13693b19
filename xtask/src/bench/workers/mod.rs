//! `cargo xtask bench workers`: one server, many workers, many short jobs, and concurrent queries.
//!
//! A [`server_under_test::ServerUnderTest`] is a server with its workers: [`windlass`] on SQLite, the same on [`postgres`], or
//! [`torc`] where it is installed. [`server_processes`] starts and ends their processes, [`probe`] sends queries over
//! [`http`] under load, and [`cpu_usage`] measures CPU time. Nothing is judged: it prints the measurements, and
//! fails only if a job was lost or ran twice, or a database was "locked".

mod cpu_usage;
pub(super) mod http;
mod options;
pub(super) mod postgres;
pub(super) mod probe;
pub(super) mod server_processes;
pub(super) mod server_under_test;
mod torc;
pub(super) mod windlass;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::cpu_usage::CpuUse;
use self::http::Http;
use self::options::{Options, ServerName};
use self::postgres::PostgresServer;
use self::probe::{QueryLatencies, QueryProbe};
use self::server_processes::ServerProcesses;
use self::server_under_test::ServerUnderTest;
use super::machine::MachineLoad;

/// The results of one side.
struct ServerResult {
    side: String,
    jobs: usize,
    loads: Vec<LoadResult>,
    /// The number of ready jobs, and the latencies of claiming one of them.
    claims: Vec<(usize, QueryLatencies)>,
}

/// The measurement of one kind of job.
struct LoadResult {
    /// As in [`Options::sleeps`].
    sleep: String,
    wall: Duration,
    cpu: CpuUse,
    probes: Vec<(&'static str, QueryLatencies)>,
}

pub(super) fn main(words: &[String], windlass: impl FnOnce() -> Result<std::path::PathBuf>) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", options::HELP);
        return Ok(());
    }
    let options = Options::parse(words)?;
    let windlass = match &options.windlass {
        Some(file) => fs::canonicalize(file).with_context(|| format!("cannot find {}", file.display()))?,
        None => windlass()?,
    };
    // Outside of the checkout, because the path of a socket must be short.
    let ground = std::env::temp_dir().join(format!("windlass-bench-{}", std::process::id()));
    print_head(&options);
    for (number, name) in options.sides.iter().copied().enumerate() {
        let place = ground.join(number.to_string());
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        let outcome = match name {
            ServerName::Sqlite => {
                measure(&options, &windlass::Windlass::new(&windlass, &place, None), &place)?
            }
            ServerName::PostgresServer => {
                let database = PostgresServer::start(&place.join("postgres"))?;
                measure(&options, &windlass::Windlass::new(&windlass, &place, Some(&database)), &place)?
            }
            ServerName::Torc => match torc::find(options.torc.as_deref()) {
                Ok(torc) => measure(&options, &torc::Torc::new(torc, &place), &place)?,
                Err(reason) => {
                    println!("\ntorc: left out: {reason}");
                    continue;
                }
            },
        };
        print!("{}", render(&outcome));
    }
    if !options.keep {
        fs::remove_dir_all(&ground).with_context(|| format!("cannot remove {}", ground.display()))?;
    }
    Ok(())
}

fn print_head(options: &Options) {
    println!("{}", MachineLoad::look().describe());
    println!("{} workers of {} slots, {} jobs", options.workers, options.slots, options.jobs);
}

fn measure(options: &Options, side: &dyn ServerUnderTest, place: &Path) -> Result<ServerResult> {
    let jobs = side.share(options);
    let mut server_processes = ServerProcesses::serve(side, place)?;
    let http = server_processes.http();
    // Jobs for the probe to claim; no worker takes them, because no worker has their label.
    let decoy = server_processes.submit("decoy", &decoy_spec(10_000))?;
    let mut loads = Vec::new();
    for sleep in &options.sleeps {
        loads.push(run_load(options, &mut server_processes, place, decoy, (jobs, sleep))?);
    }
    server_processes.dismiss_workers()?;

    let mut claims = Vec::new();
    for &size in &options.sizes {
        let id = server_processes.submit(&format!("ready-{size}"), &decoy_spec(size))?;
        claims.push((size, probe::claims(&http, id, 200.min(size / 2))?));
    }
    server_processes.end()?;
    Ok(ServerResult { side: side.name(), jobs, loads, claims })
}

/// Submits jobs to running workers, starts the workers if they belong to the workflow, and waits for
/// completion.
fn run_load(
    options: &Options,
    server_processes: &mut ServerProcesses<'_>,
    place: &Path,
    decoy: i64,
    (jobs, sleep): (usize, &str),
) -> Result<LoadResult> {
    let http = server_processes.http();
    let ran = format!("ran-{sleep}");
    fs::create_dir(place.join(&ran))?;
    server_processes.add_workers(options, None)?;
    let before = server_processes.cpu()?;
    let begun = Instant::now();
    let load = server_processes.submit(&format!("load-{sleep}"), &load_spec(jobs, sleep, &ran))?;
    server_processes.add_workers(options, Some(load))?;
    let probe = QueryProbe::start(&http, load, decoy);
    server_processes::wait_until_complete(&http, load, options.patience)?;
    let wall = begun.elapsed();
    let probes = probe.stop()?;
    let cpu = server_processes.cpu()?.since(before);
    check_results(&http, load, jobs)?;
    check_files(&place.join(&ran), jobs)?;
    server_processes.dismiss_bound_workers()?;
    Ok(LoadResult { sleep: sleep.to_owned(), wall, cpu, probes })
}

/// Each job is a shell that creates a file that must not exist yet, and then optionally runs a program that
/// sleeps. It names the shell, so that the same shell is measured with every side.
fn load_spec(jobs: usize, sleep: &str, ran: &str) -> String {
    let sleeps = if sleep == options::NO_SLEEP { String::new() } else { format!("; exec sleep {sleep}") };
    format!(
        "name: load\njobs:\n  - {{name: \"job_{{i}}\", command: \"sh -c 'set -C; : > {ran}/{{i}}{sleeps}'\", \
         parameters: {{i: \"1:{jobs}\"}}}}\n"
    )
}

/// The description of a job.
fn kind_of(sleep: &str) -> String {
    let shell = "a shell that leaves a file";
    if sleep == options::NO_SLEEP { shell.to_owned() } else { format!("{shell}, then `sleep {sleep}`") }
}

fn decoy_spec(jobs: usize) -> String {
    format!(
        "name: decoy\njobs:\n  - {{name: \"job_{{i}}\", command: \"true\", labels: [unused], \
         parameters: {{i: \"1:{jobs}\"}}}}\n"
    )
}

/// Checks that every job completed and no job has two results.
fn check_results(http: &Http, workflow: i64, jobs: usize) -> Result<()> {
    let list = http.get(&format!("/results?workflow_id={workflow}&all_runs=true&limit=100000"))?;
    let items = list["items"].as_array().context("results without items")?;
    let mut seen: Vec<i64> = items.iter().filter_map(|item| item["job_id"].as_i64()).collect();
    seen.sort_unstable();
    let results = seen.len();
    seen.dedup();
    ensure!(results == seen.len(), "{} jobs ran twice", results - seen.len());
    ensure!(seen.len() == jobs, "{} of {jobs} jobs have a result", seen.len());
    let failed = items.iter().filter(|item| item["status"] != "completed").count();
    ensure!(failed == 0, "{failed} jobs did not complete");
    Ok(())
}

/// Checks the files that the jobs wrote, independent of the database. A job that ran twice failed.
fn check_files(directory: &Path, jobs: usize) -> Result<()> {
    let found = fs::read_dir(directory)?.count();
    ensure!(found == jobs, "{found} of {jobs} jobs left their file");
    Ok(())
}

fn render(outcome: &ServerResult) -> String {
    let mut text = format!("\n{}\n", outcome.side);
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "  {name:<30} {value}").expect("a String takes everything");
    };
    for load in &outcome.loads {
        let (jobs, seconds) = (outcome.jobs, load.wall.as_secs_f64());
        let rate = jobs as f64 / seconds;
        let done = format!("{jobs} jobs in {seconds:.1} s, {rate:.0} jobs/s; every job completed once");
        line("a job is", &kind_of(&load.sleep));
        line("all of them", &done);
        line("CPU ms per job", &load.cpu.per_job(jobs));
        for (name, latencies) in &load.probes {
            line(name, latencies);
        }
    }
    for (size, latencies) in &outcome.claims {
        line(&format!("claim, {size} ready, idle"), latencies);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_leave_proof_of_single_run() {
        let directory = std::env::temp_dir().join(format!("windlass-bench-test-{}", std::process::id()));
        let ran = directory.join("ran");
        fs::create_dir_all(&ran).unwrap();
        let spec = load_spec(3, options::NO_SLEEP, "ran");
        let command = spec.split('"').nth(3).unwrap().replace("{i}", "1");
        let succeeds = || {
            let mut shell = std::process::Command::new("sh");
            crate::shell::succeeds(shell.args(["-c", &command]).current_dir(&directory))
        };
        assert!(succeeds() && !succeeds(), "{command}");
        assert!(check_files(&ran, 1).is_ok() && check_files(&ran, 2).is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
