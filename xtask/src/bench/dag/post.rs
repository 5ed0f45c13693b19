//! `cargo xtask bench dag post`: the duration of the POST script of one attempt, from the start of its process to
//! its end.
//!
//! The job that ended is the first one submitted, so that its log is as long as possible. Builds without
//! optimization are not judged.

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::options::{is_release, number, split_value};
use super::super::{build_windlass, cargo, run, target_directory};

const HELP: &str = "\
cargo xtask bench dag post [OPTIONS]: the POST script of one attempt, in a small group and in a large one

  --nodes N   in the large group (default 10000)     --runs N       of each case, the median counts (default 51)
                                                     --profile dev  do not optimise, and judge nothing (default: release)
";

/// The limit for the script, including the start of the process.
const MOST: Duration = Duration::from_millis(5);
const SMALL_GROUP: usize = 3;
/// The node whose POST script is measured.
const NODE: &str = "proc_000000";

struct Options {
    nodes: usize,
    runs: usize,
    is_release: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { nodes: 10_000, runs: 51, is_release: true };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--nodes" => options.nodes = number(value()?)?,
                "--runs" => options.runs = number(value()?)?,
                "--profile" => options.is_release = is_release(value()?)?,
                other => bail!("`bench dag post` does not know `{other}`; see --help"),
            }
        }
        ensure!(options.runs > 0, "--runs 0 measures nothing");
        Ok(options)
    }
}

/// How an attempt ended.
struct Case {
    what: &'static str,
    returned: &'static str,
    /// The report of the attempt; `None` if it left none.
    report: Option<&'static str>,
    stderr: &'static str,
    /// The expected exit code of the script.
    exit: i32,
}

const CASES: [Case; 3] = [
    Case { what: "success", returned: "0", report: Some(""), stderr: "", exit: 0 },
    Case {
        what: "failure, its report has a code",
        returned: "65",
        report: Some(r#", "failure": {"exit_code": 8021, "message": "cannot read /store/a.root"}"#),
        stderr: "reading\n",
        exit: 42,
    },
    Case {
        what: "failure, its last words decide",
        returned: "1",
        report: None,
        stderr: "curl: (7) Failed to connect to conditions.example port 443: Connection refused\n",
        exit: 1,
    },
];

pub(super) fn main(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let target = target_directory()?;
    let program = build(options.is_release, &target)?;
    let ground = target.join("bench").join(format!("dag-post-{}", std::process::id()));
    let slowest = measure_all(&options, &program, &ground);
    fs::remove_dir_all(&ground).with_context(|| format!("cannot remove {}", ground.display()))?;
    let slowest = slowest?;
    if options.is_release && slowest > MOST {
        bail!("a POST script took more than {MOST:?}");
    }
    Ok(())
}

fn build(is_release: bool, target: &Path) -> Result<PathBuf> {
    if is_release {
        return build_windlass(target).map_err(anyhow::Error::msg);
    }
    run(&mut cargo(["build", "--package", "windlass"]))?;
    Ok(target.join("debug/windlass"))
}

/// The largest median.
fn measure_all(options: &Options, program: &Path, ground: &Path) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for nodes in [SMALL_GROUP, options.nodes] {
        let unit = ground.join(format!("{nodes}/mg_000000"));
        make_group(&unit, nodes)?;
        println!("POST script in a group of {nodes} nodes");
        for case in &CASES {
            let mut times = Vec::new();
            for _ in 0..options.runs {
                times.push(measure(program, &unit, case)?);
            }
            times.sort_unstable();
            let (median, last) = (times[times.len() / 2], times[times.len() * 95 / 100]);
            println!("  {:<32} {:>7.2} ms, 95 % within {:.2} ms", case.what, ms(median), ms(last));
            slowest = slowest.max(median);
        }
    }
    Ok(slowest)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn measure(program: &Path, unit: &Path, case: &Case) -> Result<Duration> {
    fs::write(unit.join(format!("{NODE}.err")), case.stderr)?;
    let (report, post) = (unit.join("proc_0.json"), unit.join(format!("{NODE}.post.json")));
    fs::remove_file(post).ok();
    match case.report {
        Some(end) => fs::write(report, node_report(end))?,
        None => drop(fs::remove_file(report)),
    }
    let mut command = Command::new(program);
    command.args(["condor", "post", NODE, case.returned, "0", "3", "1000.0", "processing"]);
    command.current_dir(unit).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    let took = begun.elapsed();
    ensure!(status.code() == Some(case.exit), "{}: the script ended with {status}", case.what);
    Ok(took)
}

fn node_report(end: &str) -> String {
    format!(
        r#"{{"unit": "mg_000000", "node": 0, "site": "T2_X", "attempt": 1, "steps": [], "outputs": [],
            "inputs": ["/store/a.root"]{end}}}"#
    )
}

/// A group in which all nodes have run except the one whose job ends now: terms, event log, reports of the
/// others.
fn make_group(unit: &Path, nodes: usize) -> Result<()> {
    fs::create_dir_all(unit).with_context(|| format!("cannot make {}", unit.display()))?;
    let asked = json!({"cpus": 1, "memory": 2_u64 << 30, "gpus": 0, "nodes": 1, "runtime": {"secs": 3600, "nanos": 0}});
    let kind = json!({"role": "Processing", "retries": 3, "asked": asked});
    let terms =
        json!({"name": "r", "run": "u", "program": "/usr/bin/windlass", "kinds": {"processing": kind}});
    fs::write(unit.with_file_name("condor.json"), terms.to_string())?;
    fs::write(unit.join("elected.inc"), "MY.DESIRED_Sites = \"T2_X\"\n")?;
    fs::write(unit.join("group.dag.nodes.log"), event_log(nodes))?;
    for node in 1..nodes {
        fs::write(unit.join(format!("proc_{node:06}.post.json")), "{}")?;
    }
    Ok(())
}

/// Jobs are numbered from 1000 and run one after another; the first one ends last.
fn event_log(nodes: usize) -> String {
    let mut log = String::new();
    for node in 0..nodes {
        let job = 1000 + node;
        // Writing to a string does not fail.
        write!(
            log,
            "000 ({job}.000.000) 2026-11-15 06:00:00 Job submitted from host: <127.0.0.1:9618?addrs=127.0.0.1-9618&alias=pool&sock=schedd_1>\n    DAG Node: proc_{node:06}\n...\n\
             001 ({job}.000.000) 2026-11-15 06:00:01 Job executing on host: <127.0.0.1:9618?addrs=127.0.0.1-9618&alias=pool&sock=startd_1>\n\tSlotName: slot1_1@pool\n\tCpus = 1\n\tGLIDEIN_CMSSite = \"T2_X\"\n\tMemory = 2048\n...\n"
        )
        .ok();
        if node > 0 {
            log += &terminated(job);
        }
    }
    log + &terminated(1000)
}

fn terminated(job: usize) -> String {
    format!(
        "005 ({job}.000.000) 2026-11-15 07:00:01 Job terminated.\n\t(1) Normal termination (return value 0)\n\
         \t\tUsr 0 00:50:00, Sys 0 00:01:00  -  Run Remote Usage\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n\
         \t\tUsr 0 00:50:00, Sys 0 00:01:00  -  Total Remote Usage\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage\n\
         \t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job\n\t0  -  Total Bytes Sent By Job\n\t0  -  Total Bytes Received By Job\n\
         \tPartitionable Resources :    Usage  Request Allocated\n\t   Cpus                 :     0.85        1         1\n\
         \t   Disk (KB)            :     45       1024      2048\n\t   Memory (MB)          :   1800       2048      2048\n\
         \t   TimeExecute (s)      :   3600\n\n\tJob terminated of its own accord at 2026-11-15T07:00:01Z with exit-code 0.\n...\n\
         016 ({job}.000.000) 2026-11-15 07:00:02 POST Script terminated.\n\t(1) Normal termination (return value 0)\n    DAG Node: x\n...\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_job_ends_last_in_event_log() {
        let log = event_log(3);
        assert_eq!(log.matches("\n...\n").count(), 3 * 4);
        assert!(log.starts_with("000 (1000.000.000)"));
        assert!(log.rfind("005 (1000.").unwrap() > log.rfind("005 (1002.").unwrap());
    }
}
