//! `cargo xtask bench dag latency`: the delay until a server knows that a unit has ended on a real pool
//! (`tools/htcondor-pool`).
//!
//! A request with some work units runs through a server, as users run it. A unit ends when its DAGMan writes its
//! metrics; the file system records that time to the millisecond, the event log only whole seconds. The state on
//! the server is polled with the command line. The delay consists of DAGMan of the run, which reads its log once
//! a second and runs the POST script of the unit, the poll of the files every two seconds, and the commit.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::super::options::{is_release, number, split_value};
use super::super::slurm::{Server, now, percentile};
use super::super::{build_windlass, cargo, output, run, target_directory};
use crate::htcondor::{Pool, PoolInstallation, place, tool};

const HELP: &str = "\
cargo xtask bench dag latency [OPTIONS]: from the end of a unit's DAG on a real pool until a server says that it is over

  --units N   (default 12)     --profile dev    do not optimise (default: release)
                               --windlass FILE  measure this binary (default: a build of this tree)
";

/// Timeout for a whole run.
const WAIT_TIMEOUT: Duration = Duration::from_mins(20);
/// Poll interval: the largest error of the measurement.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// The limit for the median. Builds without optimization are not judged.
const MOST_SECONDS: f64 = 5.0;
const SITE: &str = "T2_DE_Beta";
const DATASET: &str = "/Bench/Latency-v1/RAW";
const REQUEST: &str = "latency_v1";

struct Options {
    units: usize,
    is_release: bool,
    program: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { units: 12, is_release: true, program: None };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--units" => options.units = number(value()?)?,
                "--profile" => options.is_release = is_release(value()?)?,
                "--windlass" => options.program = Some(PathBuf::from(value()?)),
                other => bail!("`bench dag latency` does not know `{other}`; see --help"),
            }
        }
        ensure!(options.units > 0, "--units 0 measures nothing");
        Ok(options)
    }
}

pub(super) fn main(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build(options.is_release)?,
    };
    let pool_directory = PoolDirectory::new(&program)?;
    let measured = measure(&pool_directory, options.units);
    let told =
        measured.with_context(|| format!("what is left of it is in {}", pool_directory.path.display()))?;
    fs::remove_dir_all(&pool_directory.path)
        .with_context(|| format!("cannot remove {}", pool_directory.path.display()))?;
    report(&options, &told)
}

fn report(options: &Options, seconds: &[f64]) -> Result<()> {
    let at = |percent| percentile(seconds, percent).context("nothing was measured");
    let (median, worst) = (at(50)?, at(100)?);
    println!("from the end of a unit's DAG until the server says so, {} units", seconds.len());
    println!("  median {median:>6.2} s");
    println!("  worst  {worst:>6.2} s");
    if options.is_release && median > MOST_SECONDS {
        bail!("it took more than {MOST_SECONDS} s");
    }
    Ok(())
}

fn build(is_release: bool) -> Result<PathBuf> {
    let target = target_directory()?;
    if is_release {
        return build_windlass(&target).map_err(anyhow::Error::msg);
    }
    run(&mut cargo(["build", "--package", "windlass"]))?;
    Ok(target.join("debug/windlass"))
}

/// A directory that the pool can read and that belongs to its user, and the pool itself.
struct PoolDirectory {
    path: PathBuf,
    windlass: PathBuf,
    user: u32,
    /// The lock that tests use too, so that no other process stops the pool.
    _used: File,
    /// Stops the pool, unless it ran before.
    _pool: Pool,
}

impl PoolDirectory {
    fn new(program: &Path) -> Result<Self> {
        let pool = PoolInstallation::begin()?.finish()?;
        let used = OpenOptions::new().read(true).append(true).create(true).open(place().join("used.lock"))?;
        used.lock_shared()?;
        run(&mut tool("start"))?;
        let work = place().join("work");
        let user = fs::metadata(&work).with_context(|| format!("cannot look at {}", work.display()))?.uid();
        let path = work.join(format!("bench-latency-{}", std::process::id()));
        let windlass = path.join("windlass");
        let pool_directory = Self { path, windlass, user, _used: used, _pool: pool };
        pool_directory.directory("")?;
        fs::copy(program, &pool_directory.windlass)
            .with_context(|| format!("cannot copy {}", program.display()))?;
        fs::set_permissions(&pool_directory.windlass, fs::Permissions::from_mode(0o755))?;
        Ok(pool_directory)
    }

    fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        chown(&path, Some(self.user), Some(self.user))?;
        Ok(path)
    }

    /// Runs a command as the user of the pool, without the caller's environment.
    fn windlass(&self, words: &[&str]) -> Command {
        let mut command = tool("run");
        command.arg(&self.windlass).args(words).current_dir(&self.path);
        command.env("XDG_CONFIG_HOME", self.path.join("config"));
        command.env("XDG_STATE_HOME", self.path.join("state"));
        command.env_remove("WINDLASS_DB").env_remove("WINDLASS_URL").env_remove("WINDLASS_TOKEN");
        command
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        let text = output(&mut self.windlass(&[words, &["--format", "json"]].concat()))?;
        serde_json::from_str(&text).with_context(|| format!("`windlass {words:?}` printed no JSON"))
    }
}

/// For each unit, in the order of their ends, the delay in seconds until the server knew it.
fn measure(pool_directory: &PoolDirectory, units: usize) -> Result<Vec<f64>> {
    let storage = pool_directory.directory("storage")?;
    let data = pool_directory.directory("data")?;
    for file in 0..units {
        fs::write(data.join(format!("f{file}.txt")), format!("1 1 {file}\n"))?;
    }
    let storage = storage.to_str().context("the pool is at a path that is no text")?;
    output(&mut pool_directory.windlass(&[
        "site",
        "set",
        SITE,
        "--slots",
        "100",
        "--storage-path",
        storage,
    ]))?;
    output(&mut pool_directory.windlass(&["catalog", "add", "data", "as", DATASET, "--site", SITE]))?;
    let program = pool_directory.windlass.to_str().context("the pool is at a path that is no text")?;
    let words = ["serve", "--listen", "127.0.0.1:0", "--backend", "htcondor", "--worker-program", program];
    let announced = pool_directory.path.join(".windlass/windlass.db.run/server.json");
    let server =
        Server::start(&mut pool_directory.windlass(&words), &pool_directory.path.join("server.log"), || {
            announced.exists()
        })?;
    let document = pool_directory.path.join("request.json");
    fs::write(&document, request().to_string())?;
    output(&mut pool_directory.windlass(&["request", "submit", "request.json"]))?;
    let (run, known) = follow(pool_directory, units)?;
    drop(server);
    let ends = ends(&run, units)?;
    Ok(known.iter().zip(&ends).map(|(known, end)| known - end).collect())
}

/// One unit per file.
fn request() -> Value {
    let step = json!({"name": "RECO", "command": "cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT"});
    json!({
        "request_name": REQUEST, "input_dataset": DATASET, "output_datasets": ["/Bench/Latency-v1/RECO"],
        "splitting_algo": "FileBased", "memory_mb": 100, "size_per_event_kb": 1,
        "splitting_params": {"files_per_job": 1, "target_merged_size_kb": 1},
        "payload_config": {"steps": [step]},
    })
}

/// Polls until all units have ended. Returns the directory of the run, and when each end became known.
fn follow(pool_directory: &PoolDirectory, units: usize) -> Result<(PathBuf, Vec<f64>)> {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    let mut known = Vec::new();
    loop {
        let runs = pool_directory.json(&["dag", "list", "--request", REQUEST])?;
        let (run, at) = (&runs[0], now()?);
        let count = |name: &str| run[name].as_u64().unwrap_or_default() as usize;
        ensure!(count("work_units_failed") == 0, "a unit has failed: {run:#}");
        let completed = count("work_units_completed").max(known.len());
        known.resize(completed, at);
        if run.is_object() {
            ensure!(count("total_work_units") == units, "{units} units were to be planned: {run:#}");
        }
        if completed >= units {
            let directory = run["submit_dir"].as_str().context("a run without a directory")?;
            return Ok((PathBuf::from(directory), known));
        }
        ensure!(Instant::now() < deadline, "{completed} of {units} units are over: {run:#}");
        thread::sleep(ASK_AGAIN);
    }
}

/// The times at which the DAGMans of units ended, ascending, by the clock of this machine.
fn ends(run: &Path, units: usize) -> Result<Vec<f64>> {
    let mut ends = Vec::with_capacity(units);
    for unit in 0..units {
        let path = run.join(format!("mg_{unit:06}/group.dag.metrics"));
        let written = fs::metadata(&path).and_then(|metadata| metadata.modified());
        let written = written.with_context(|| format!("cannot look at {}", path.display()))?;
        ends.push(written.duration_since(UNIX_EPOCH).context("it ended before 1970")?.as_secs_f64());
    }
    ends.sort_by(f64::total_cmp);
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_parsed_and_checked() {
        let options = parse(&["--units=3", "--windlass", "/usr/bin/windlass", "--profile", "dev"]).unwrap();
        assert_eq!((options.units, options.is_release), (3, false));
        assert_eq!(options.program.as_deref(), Some(Path::new("/usr/bin/windlass")));
        assert!(parse(&["--units", "0"]).is_err());
        assert!(parse(&["--sites", "3"]).is_err());
    }

    #[test]
    fn ends_are_sorted_by_time() {
        let run = tempfile();
        for (unit, second) in [(0_u32, 30), (1, 10), (2, 20)] {
            let directory = run.join(format!("mg_{unit:06}"));
            fs::create_dir_all(&directory).unwrap();
            let metrics = File::create(directory.join("group.dag.metrics")).unwrap();
            metrics.set_modified(UNIX_EPOCH + Duration::from_secs(second)).unwrap();
        }
        assert_eq!(ends(&run, 3).unwrap().iter().map(|end| *end as u64).collect::<Vec<_>>(), [10, 20, 30]);
        assert!(ends(&run, 4).is_err(), "one has not ended");
        fs::remove_dir_all(run).unwrap();
    }

    fn tempfile() -> PathBuf {
        std::env::temp_dir().join(format!("windlass-bench-latency-{}", std::process::id()))
    }
}
