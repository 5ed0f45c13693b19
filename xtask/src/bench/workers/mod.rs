//! `cargo xtask bench workers`: one server, many workers, many short jobs, and somebody who looks on.
//!
//! [`fleet`] starts and ends the processes, [`probe`] asks questions while they work, [`http`] is how. Nothing here
//! judges: it prints what was measured, and fails only where a job was lost, run twice, or a database was "locked".

mod fleet;
mod http;
mod postgres;
mod probe;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::fleet::{Fleet, Stage};
use self::http::Http;
use self::postgres::Postgres;
use self::probe::{Latencies, Probe};

const HELP: &str = "\
cargo xtask bench workers [OPTIONS]: one server, many workers, many short jobs

Starts `windlass serve` and as many `windlass worker`s, submits jobs that each sleep a few milliseconds, and
asks for lists, status and claims meanwhile. Prints jobs per second, how long the questions took, and how long a
claim takes when ever more jobs are ready. On SQLite and on PostgreSQL (its server is started for this).

  --workers N      (default 16)            --jobs N     (default 20000)
  --sleep SECONDS  of each job (default 0.002)
  --slots N        jobs at once per worker (default 2)
  --db NAME        sqlite, postgres or both (default both)
  --sizes N,N      ready jobs for the claims (default 1000,10000,100000)
  --keep           leave the directory
";

struct Options {
    workers: usize,
    jobs: usize,
    sleep: String,
    slots: usize,
    sizes: Vec<usize>,
    databases: Vec<Database>,
    keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Database {
    Sqlite,
    Postgres,
}

/// What one database came to.
struct Outcome {
    database: Database,
    jobs_per_second: f64,
    wall: Duration,
    probes: Vec<(&'static str, Latencies)>,
    /// Ready jobs, and how long a claim of one took.
    claims: Vec<(usize, Latencies)>,
}

pub(super) fn main(words: &[String], windlass: &Path, ground: &Path) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = parse(words)?;
    println!(
        "{} workers of {} slots, {} jobs of {} s, on {} CPUs",
        options.workers,
        options.slots,
        options.jobs,
        options.sleep,
        std::thread::available_parallelism().map_or(0, std::num::NonZero::get)
    );
    for database in options.databases.iter().copied() {
        let place = ground.join(format!("{database:?}").to_lowercase());
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        let outcome = measure(&options, database, windlass, &place)?;
        print(&outcome);
    }
    if !options.keep {
        fs::remove_dir_all(ground).with_context(|| format!("cannot remove {}", ground.display()))?;
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<Options> {
    let mut options = Options {
        workers: 16,
        jobs: 20_000,
        sleep: "0.002".into(),
        slots: 2,
        sizes: vec![1_000, 10_000, 100_000],
        databases: vec![Database::Sqlite, Database::Postgres],
        keep: false,
    };
    let mut words = words.iter().flat_map(|word| super::options::split_value(word));
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word {
            "--workers" => options.workers = super::options::number(value()?)?,
            "--jobs" => options.jobs = super::options::number(value()?)?,
            "--slots" => options.slots = super::options::number(value()?)?,
            "--sizes" => {
                options.sizes = value()?.split(',').map(super::options::number).collect::<Result<_>>()?;
            }
            "--sleep" => {
                let text = value()?;
                text.parse::<f64>().with_context(|| format!("`{text}` is no number of seconds"))?;
                text.clone_into(&mut options.sleep);
            }
            "--db" => {
                options.databases = match value()? {
                    "sqlite" => vec![Database::Sqlite],
                    "postgres" => vec![Database::Postgres],
                    "both" => vec![Database::Sqlite, Database::Postgres],
                    other => bail!("`{other}` is none of sqlite, postgres, both"),
                };
            }
            "--keep" => options.keep = true,
            other => bail!("`bench workers` does not know `{other}`; see --help"),
        }
    }
    Ok(options)
}

fn measure(options: &Options, database: Database, windlass: &Path, place: &Path) -> Result<Outcome> {
    let postgres = match database {
        Database::Postgres => Some(Postgres::start(&place.join("postgres"))?),
        Database::Sqlite => None,
    };
    let location = postgres.as_ref().map_or_else(|| "w.db".to_owned(), Postgres::url);
    let stage = Stage { windlass, place, location: &location };
    let mut fleet = Fleet::serve(&stage)?;
    let http = fleet.http()?;

    fleet.add_workers(options.workers, options.slots)?;
    fleet::wait_for_workers(&http, options.workers)?;
    // Something to claim that no worker takes: they have no label.
    let decoy = submit(&stage, "decoy", &decoy_spec(10_000))?;
    let id = submit(&stage, "load", &spec(options.jobs, &options.sleep))?;
    let begun = Instant::now();
    let probe = Probe::start(&http, id, decoy);
    fleet::wait_until_complete(&http, id)?;
    let wall = begun.elapsed();
    let probes = probe.stop()?;
    check(&http, id, options.jobs)?;
    let jobs_per_second = options.jobs as f64 / wall.as_secs_f64();
    fleet.dismiss_workers()?;

    let mut claims = Vec::new();
    for &size in &options.sizes {
        let id = submit(&stage, &format!("ready-{size}"), &decoy_spec(size))?;
        claims.push((size, probe::claims(&http, id, 200.min(size / 2))?));
    }
    fleet.end()?;
    Ok(Outcome { database, jobs_per_second, wall, probes, claims })
}

fn submit(stage: &Stage<'_>, name: &str, spec: &str) -> Result<i64> {
    let file: PathBuf = stage.place.join(format!("{name}.yaml"));
    fs::write(&file, spec).with_context(|| format!("cannot write {}", file.display()))?;
    stage.submit(&file)
}

fn spec(jobs: usize, sleep: &str) -> String {
    format!(
        "name: load\njobs:\n  - {{name: \"job_{{i}}\", command: sleep {sleep}, parameters: {{i: \"1:{jobs}\"}}}}\n"
    )
}

fn decoy_spec(jobs: usize) -> String {
    format!(
        "name: decoy\njobs:\n  - {{name: \"job_{{i}}\", command: \"true\", labels: [nobody], \
         parameters: {{i: \"1:{jobs}\"}}}}\n"
    )
}

/// Every job completed, and no job has two results.
fn check(http: &Http, workflow: i64, jobs: usize) -> Result<()> {
    let list = http.get(&format!("/api/v1/results?workflow_id={workflow}&all_runs=true&limit=100000"))?;
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

fn print(outcome: &Outcome) {
    println!(
        "\n{:?}: {:.0} jobs/s ({:.1} s); every job completed once",
        outcome.database,
        outcome.jobs_per_second,
        outcome.wall.as_secs_f64()
    );
    for (name, latencies) in &outcome.probes {
        println!("  {name:<28} {latencies}");
    }
    for (size, latencies) in &outcome.claims {
        println!("  {:<28} {latencies}", format!("claim, {size} ready, idle"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_read() {
        let options = parsed("--workers=4 --jobs 1_000 --db postgres --sizes 10,20").unwrap();
        assert_eq!((options.workers, options.jobs), (4, 1000));
        assert_eq!(options.databases, [Database::Postgres]);
        assert_eq!(options.sizes, [10, 20]);
        assert!(parsed("--db oracle").is_err() && parsed("--sleep soon").is_err() && parsed("x").is_err());
    }
}
