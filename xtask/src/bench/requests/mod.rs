//! `cargo xtask bench requests`: the cost of the lifecycle with many large active requests, on each database, and
//! the response time of a server that has them all.
//!
//! The example `passes` of windlass-requests fills a new database with real requests and measures passes; [`api`]
//! then serves that database and queries it. Builds without optimization are not judged.

mod api;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::machine::MachineLoad;
use super::options::{is_release, number, split_value};
use super::workers::postgres::PostgresServer;
use super::workers::windlass::Windlass;
use super::{cargo, output, run, target_directory};

const HELP: &str = "\
cargo xtask bench requests [OPTIONS]: passes over many requests, and the API meanwhile

Puts a dataset into the catalog, takes up one request of ten times N jobs and then all others, and measures passes: when
nothing changed, when each request has a few completed work units to tell of, and the first one of a server that has just
begun. Then a server has all of them, people change priorities, and others look.

  --requests N     (default 300)        --files N        of the dataset, ten lumis each (default 100000)
  --jobs N         of each (default 10000)               --side sqlite,postgres
  --seconds N      how long the server is asked (default 10)
  --profile dev    do not optimise, and judge nothing (default: release)
";

/// The limit for every pass, at the default size.
const MOST_SECONDS: f64 = 1.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatabaseKind {
    Sqlite,
    PostgresServer,
}

struct Options {
    requests: usize,
    jobs: usize,
    files: usize,
    sides: Vec<DatabaseKind>,
    time: Duration,
    is_release: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self {
            requests: 300,
            jobs: 10_000,
            files: 100_000,
            sides: vec![DatabaseKind::Sqlite, DatabaseKind::PostgresServer],
            time: Duration::from_secs(10),
            is_release: true,
        };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--requests" => options.requests = number(value()?)?,
                "--jobs" => options.jobs = number(value()?)?,
                "--files" => options.files = number(value()?)?,
                "--seconds" => options.time = Duration::from_secs(number(value()?)? as u64),
                "--side" => options.sides = value()?.split(',').map(side).collect::<Result<_>>()?,
                "--profile" => options.is_release = is_release(value()?)?,
                other => bail!("`bench requests` does not know `{other}`; see --help"),
            }
        }
        Ok(options)
    }
}

fn side(word: &str) -> Result<DatabaseKind> {
    match word {
        "sqlite" => Ok(DatabaseKind::Sqlite),
        "postgres" => Ok(DatabaseKind::PostgresServer),
        other => bail!("there is no side `{other}`; there are sqlite and postgres"),
    }
}

pub(super) fn main(words: &[String], windlass: impl FnOnce() -> Result<PathBuf>) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let passes = build(options.is_release, "windlass-requests", &["--example", "passes"], "examples/passes")?;
    let windlass = if options.is_release { windlass()? } else { build(false, "windlass", &[], "windlass")? };
    println!("{}", MachineLoad::look().describe());
    println!("{} requests of {} jobs; {} files", options.requests, options.jobs, options.files);
    // Outside of the checkout, because the path of a socket must be short.
    let ground = std::env::temp_dir().join(format!("windlass-bench-requests-{}", std::process::id()));
    let outcome = options.sides.iter().try_fold(Vec::new(), |mut missed, &side| {
        let place = ground.join(format!("{side:?}").to_lowercase());
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        missed.extend(measure(&options, side, (&passes, &windlass), &place)?);
        Ok::<_, anyhow::Error>(missed)
    });
    fs::remove_dir_all(&ground).with_context(|| format!("cannot remove {}", ground.display()))?;
    match outcome? {
        missed if missed.is_empty() || !options.is_release => Ok(()),
        missed => bail!("over {MOST_SECONDS} s: {}", missed.join(", ")),
    }
}

fn build(is_release: bool, package: &str, words: &[&str], program: &str) -> Result<PathBuf> {
    let mut command = cargo(["build", "--package", package]);
    command.args(words);
    if is_release {
        command.arg("--release");
    }
    run(&mut command)?;
    let profile = if is_release { "release" } else { "debug" };
    Ok(target_directory()?.join(profile).join(program))
}

/// The passes that took too long.
fn measure(
    options: &Options,
    side: DatabaseKind,
    (passes, windlass): (&Path, &Path),
    place: &Path,
) -> Result<Vec<String>> {
    let postgres = match side {
        DatabaseKind::Sqlite => None,
        DatabaseKind::PostgresServer => Some(PostgresServer::start(&place.join("postgres"))?),
    };
    let database_location =
        postgres.as_ref().map_or_else(|| place.join("w.db").display().to_string(), PostgresServer::url);
    let numbers = [options.requests, options.jobs, options.files].map(|number| number.to_string());
    let text = output(Command::new(passes).arg(database_location).arg(place.join("campaign")).args(numbers))?;
    let found: Value = serde_json::from_str(&text).context("the example printed no JSON")?;
    println!("\n{side:?}");
    let missed = report(&found, options)?;
    api::measure(&Windlass::new(windlass, place, postgres.as_ref()), place, options.time)?;
    Ok(missed.into_iter().map(|pass| format!("{pass} ({side:?})")).collect())
}

/// Prints the measurements of the example. Returns the passes that took too long.
fn report(found: &Value, options: &Options) -> Result<Vec<&'static str>> {
    let seconds = |name: &str| found[name].as_f64().with_context(|| format!("no `{name}` in {found}"));
    let Options { requests, jobs, files, .. } = options;
    let lines = [
        ("add_files", format!("{files} files of ten lumis each, added to the catalog")),
        ("read_files", "the same read".to_owned()),
        ("plan_large", format!("a request of {} jobs, planned", jobs * 10)),
        ("submit_large", "the same submitted to the engine".to_owned()),
        ("take_up", format!("{requests} requests of {jobs} jobs, planned and submitted")),
        ("open_requests", "which requests are open".to_owned()),
        ("views", "all that is decided by, of all of them".to_owned()),
    ];
    for (name, what) in lines {
        println!("  {what:<58} {:>9.3} s", seconds(name)?);
    }
    let passes = [
        ("idle_pass", "pass, nothing has changed (median of 5)"),
        ("news_pass", "pass, three units of news of each"),
        ("longest_pass", "the longest pass until all is seen to"),
        ("first_pass", "first pass of a server, three units of news of each"),
    ];
    let mut missed = Vec::new();
    for (name, what) in passes {
        let took = seconds(name)?;
        println!("  {what:<58} {took:>9.3} s   ({:.2} × what it may take)", took / MOST_SECONDS);
        if took > MOST_SECONDS {
            missed.push(what);
        }
    }
    Ok(missed)
}
