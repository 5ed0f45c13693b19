//! `cargo xtask bench slurm`: the time from one job to the next in an allocation, and from `submit` to the first
//! job; compared with torc on the same cluster, in the same run.
//!
//! Both get the same spec files, and the jobs themselves record the times ([`job_stamps`]). The cluster is that
//! of the tests, used exclusively ([`cluster`]); [`sides`] has the servers and the submissions.

mod cluster;
mod job_stamps;
mod slurm_competitors;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::cluster::ExclusiveCluster;
use self::job_stamps::{JobPattern, JobTimes};
use self::slurm_competitors::{SlurmCompetitor, Torc, TorcPolling, Windlass};
pub(super) use self::{
    job_stamps::{now, percentile},
    slurm_competitors::Server,
};
use super::machine::MachineLoad;
use super::options::{number, split_value};
use super::statistics::median;

const HELP: &str = "\
cargo xtask bench slurm [OPTIONS]: jobs in allocations of Slurm, beside torc

Starts the cluster of the tests (tools/slurm-cluster; wants root) and measures with the jobs' own clock, in one allocation
with room for one job:
  next    from a job's end to the start of the next one, which could have run at any time
  hop     from a job's end to the start of the one that waits for it
  start   from before `submit` to the start of the first job

torc is measured as it comes, and told to hurry as much as it can be (`torc-server -c 1`, `torc submit -p 1`).

  --jobs N         of windlass, for next and for hop (default 200)
  --torc-jobs N    of torc that hurries (default 20); as it comes it gets a quarter of them
  --runs N         submissions (default 5)
  --torc-bin DIR   where torc, torc-server and torc-slurm-job-runner are; without it torc is left out
  --windlass FILE  measure this binary (default: a release build)
";

/// Timeout for all jobs of one measurement: torc as shipped takes up to a minute from one job to the next.
const WAIT_TIMEOUT: Duration = Duration::from_mins(15);

struct Options {
    jobs: usize,
    torc_jobs: usize,
    runs: usize,
    torc: Option<PathBuf>,
    windlass: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { jobs: 200, torc_jobs: 20, runs: 5, torc: None, windlass: None };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--jobs" => options.jobs = number(value()?)?,
                "--torc-jobs" => options.torc_jobs = number(value()?)?,
                "--runs" => options.runs = number(value()?)?,
                "--torc-bin" => options.torc = Some(value()?.into()),
                "--windlass" => options.windlass = Some(value()?.into()),
                other => bail!("`bench slurm` does not know `{other}`; see --help"),
            }
        }
        ensure!(options.jobs > 1 && options.torc_jobs >= 8, "a few jobs are needed: from one to the next");
        Ok(options)
    }
}

pub(super) fn main(words: &[String], windlass: impl FnOnce() -> Result<PathBuf>) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let absolute =
        |file: &PathBuf| fs::canonicalize(file).with_context(|| format!("cannot find {}", file.display()));
    let torc = options.torc.as_ref().map(absolute).transpose()?;
    let windlass = match &options.windlass {
        Some(file) => absolute(file)?,
        None => windlass()?,
    };
    let cluster = ExclusiveCluster::alone()?;
    println!("{}", MachineLoad::look().describe());
    println!("{:<34} {:>6} {:>34} {:>34} {:>24}", "", "jobs", "next, ms", "hop, ms", "start, ms");
    let ground = std::env::temp_dir().join(format!("windlass-bench-slurm-{}", std::process::id()));
    let outcome = compare(&options, &cluster, (&windlass, torc.as_deref()), &ground);
    cluster.clear()?;
    if ground.exists() && outcome.is_ok() {
        fs::remove_dir_all(&ground).with_context(|| format!("cannot remove {}", ground.display()))?;
    }
    outcome.with_context(|| format!("what they left is in {}", ground.display()))
}

/// One after the other: each side uses the cluster alone.
fn compare(
    options: &Options,
    cluster: &ExclusiveCluster,
    (windlass, torc): (&Path, Option<&Path>),
    ground: &Path,
) -> Result<()> {
    let place = |name: &str| -> Result<PathBuf> {
        let place = ground.join(name);
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        Ok(place)
    };
    let ours = Windlass::serve(windlass, cluster, &place("windlass")?)?;
    measure(&ours, cluster, options.jobs, options.runs)?;
    drop(ours);
    let Some(torc) = torc else { return Ok(()) };
    let frequent_polling = Torc::serve(torc, TorcPolling::All, cluster, &place("torc-hurried")?)?;
    measure(&frequent_polling, cluster, options.torc_jobs, options.runs)?;
    drop(frequent_polling);
    let shipped = Torc::serve(torc, TorcPolling::AsShipped, cluster, &place("torc")?)?;
    measure(&shipped, cluster, options.torc_jobs / 4, options.runs)
}

/// Prints a line.
fn measure(side: &dyn SlurmCompetitor, cluster: &ExclusiveCluster, jobs: usize, runs: usize) -> Result<()> {
    let next = perform(side, cluster, "next", JobPattern::Independent(jobs))?.gaps();
    let hop = perform(side, cluster, "hop", JobPattern::Chain(jobs))?.gaps();
    let mut starts = Vec::new();
    for run in 1..=runs {
        let began = job_stamps::now()?;
        let spans = perform(side, cluster, &format!("start-{run}"), JobPattern::Independent(1))?;
        starts.push(spans.first() - began);
    }
    println!(
        "{:<34} {jobs:>6} {:>34} {:>34} {:>24}",
        side.name(),
        in_words(next)?,
        in_words(hop)?,
        format!("{:.0} of {runs}", 1e3 * median(starts.into_iter()).context("no start was measured")?)
    );
    Ok(())
}

fn in_words(gaps: Vec<f64>) -> Result<String> {
    let most = gaps.iter().copied().fold(0.0, f64::max);
    let late = job_stamps::percentile(&gaps, 99).context("no jobs followed each other")?;
    let middle = median(gaps.into_iter()).context("no jobs followed each other")?;
    Ok(format!("{:.1}, p99 {:.1}, most {:.1}", middle * 1e3, late * 1e3, most * 1e3))
}

/// Submits, waits until all jobs have left their stamps, and then ends the allocation, so that the next
/// measurement finds an idle cluster.
fn perform(
    side: &dyn SlurmCompetitor,
    cluster: &ExclusiveCluster,
    name: &str,
    shape: JobPattern,
) -> Result<JobTimes> {
    let place = side.place().join(name);
    fs::create_dir_all(&place)?;
    fs::write(place.join("job.sh"), job_stamps::JOB)?;
    fs::write(place.join("spec.yaml"), job_stamps::spec(name, &shape))?;
    side.submit(&place)?;
    let deadline = Instant::now() + WAIT_TIMEOUT;
    let spans = loop {
        let text = fs::read_to_string(place.join("stamps")).unwrap_or_default();
        if text.lines().count() >= shape.jobs() && text.ends_with('\n') {
            break JobTimes::read(&text)?;
        }
        ensure!(
            Instant::now() < deadline,
            "{}: {} of {} jobs of `{name}` have run",
            side.name(),
            text.lines().count(),
            shape.jobs()
        );
        thread::sleep(Duration::from_millis(50));
    };
    ensure!(
        spans.are_alone(),
        "{}: two jobs of `{name}` ran at once where there is room for one",
        side.name()
    );
    cluster.clear()?;
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_checked() {
        let parsed =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let options = parsed("--jobs=50 --torc-jobs 8 --torc-bin /opt/torc/bin").unwrap();
        assert_eq!((options.jobs, options.torc_jobs, options.runs), (50, 8, 5));
        assert_eq!(options.torc, Some("/opt/torc/bin".into()));
        assert!(parsed("--jobs 1").is_err() && parsed("x").is_err() && parsed("--runs 0").is_err());
    }
}
