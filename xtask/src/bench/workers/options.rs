//! The arguments of `cargo xtask bench workers`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bench::options::{number, split_value};

pub(in crate::bench) const HELP: &str = "\
cargo xtask bench workers [OPTIONS]: one server, many workers, many short jobs

Starts a server and its workers, submits short jobs, and asks for lists, status and claims meanwhile. Prints jobs per
second, the CPU time of all processes, the duration of the queries, and how long a claim takes when ever more jobs are ready.
On SQLite, on PostgreSQL (whose server is started for this), and the same with torc-server and torc's runners where they
are on the machine.

A job is `sh -c 'set -C; : > FILE'`: one program, about a millisecond of CPU, a few milliseconds from start to end with as
many at once as here. With a number of seconds it is that and then `exec sleep SECONDS`: a second program, which costs as
much again. Both kinds are measured, one after the other, with the same server and the same workers.

  --workers N      (default 16)            --jobs N     of each kind (default 20000)
  --sleep S,S      kinds of jobs: 0 for the shell alone, or seconds (default 0,0.002)
  --slots N        jobs at once per worker (default 2)
  --side NAME,NAME sqlite, postgres, torc (default all three)
  --sizes N,N      ready jobs for the claims (default 1000,10000,100000)
  --windlass FILE  measure this binary (default: a release build)
  --torc FILE      this `torc`, with `torc-server` beside it (default: on PATH)
  --torc-jobs N    jobs that torc runs (default 4000: it takes its time)
  --patience N     seconds until it is given up that the jobs end (default 600)
  --keep           leave the directory
";

/// The shell without a sleep.
pub(in crate::bench) const NO_SLEEP: &str = "0";

#[derive(Debug)]
pub(in crate::bench) struct Options {
    pub(in crate::bench) workers: usize,
    pub(in crate::bench) jobs: usize,
    /// Kinds of jobs: [`NO_SLEEP`], or the seconds that each sleeps.
    pub(in crate::bench) sleeps: Vec<String>,
    pub(in crate::bench) slots: usize,
    pub(in crate::bench) sizes: Vec<usize>,
    pub(in crate::bench) sides: Vec<ServerName>,
    pub(in crate::bench) windlass: Option<PathBuf>,
    pub(in crate::bench) torc: Option<PathBuf>,
    pub(in crate::bench) torc_jobs: usize,
    pub(in crate::bench) patience: Duration,
    pub(in crate::bench) keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum ServerName {
    Sqlite,
    PostgresServer,
    Torc,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 16,
            jobs: 20_000,
            sleeps: vec![NO_SLEEP.into(), "0.002".into()],
            slots: 2,
            sizes: vec![1_000, 10_000, 100_000],
            sides: vec![ServerName::Sqlite, ServerName::PostgresServer, ServerName::Torc],
            windlass: None,
            torc: None,
            torc_jobs: 4_000,
            patience: Duration::from_mins(10),
            keep: false,
        }
    }
}

impl Options {
    pub(in crate::bench) fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--workers" => options.workers = number(value()?)?,
                "--jobs" => options.jobs = number(value()?)?,
                "--torc-jobs" => options.torc_jobs = number(value()?)?,
                "--slots" => options.slots = number(value()?)?,
                "--patience" => options.patience = Duration::from_secs(number(value()?)? as u64),
                "--sizes" => options.sizes = value()?.split(',').map(number).collect::<Result<_>>()?,
                "--sleep" => options.sleeps = value()?.split(',').map(seconds).collect::<Result<_>>()?,
                "--side" => options.sides = value()?.split(',').map(side).collect::<Result<_>>()?,
                "--windlass" => options.windlass = Some(value()?.into()),
                "--torc" => options.torc = Some(value()?.into()),
                "--keep" => options.keep = true,
                other => bail!("`bench workers` does not know `{other}`; see --help"),
            }
        }
        Ok(options)
    }
}

fn seconds(text: &str) -> Result<String> {
    let number: f64 = text.parse().with_context(|| format!("`{text}` is no number of seconds"))?;
    Ok(if number > 0.0 { text.to_owned() } else { NO_SLEEP.to_owned() })
}

fn side(name: &str) -> Result<ServerName> {
    match name {
        "sqlite" => Ok(ServerName::Sqlite),
        "postgres" => Ok(ServerName::PostgresServer),
        "torc" => Ok(ServerName::Torc),
        other => bail!("`{other}` is none of sqlite, postgres, torc"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_parsed_and_checked() {
        let options = parsed("--workers=4 --jobs 1_000 --side postgres,torc --sizes 10,20").unwrap();
        assert_eq!((options.workers, options.jobs), (4, 1000));
        assert_eq!(options.sides, [ServerName::PostgresServer, ServerName::Torc]);
        assert_eq!(options.sizes, [10, 20]);
        assert_eq!(parsed("--sleep 0.0,0.01").unwrap().sleeps, [NO_SLEEP, "0.01"]);
        assert!(parsed("--side oracle").is_err() && parsed("--sleep soon").is_err() && parsed("x").is_err());
    }
}
