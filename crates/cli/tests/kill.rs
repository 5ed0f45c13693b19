//! `kill -9` at random moments: in the end everything is done, nothing is done twice at once, and nothing that was on the
//! books as completed runs again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const JOBS: usize = 2000;
const KILLS: usize = 10;

/// Takes a lock that the kernel releases when the last process of the execution is gone: if a second execution finds it
/// taken, two overlapped. Then leaves a line per execution.
const JOB: &str = r#"exec 9>>"locks/$1"
flock -n 9 || echo "$1" >> overlaps
echo "$WINDLASS_ATTEMPT" >> "out/$1"
case $1 in
  *0) setsid sleep 0.02 9>&9 & wait ;; # some leave the process group,
  *5) env -i sleep 0.01 ;;             # some lose the environment
esac
"#;

#[test]
fn a_program_killed_ten_times_loses_nothing_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let mut random = Random(std::process::id().into());
    println!("seed {}", random.0);

    let mut first = spawn(dir, &["run", "spec.yaml"]);
    kill_at_a_random_moment(dir, &mut first, &mut random, 0);
    let mut settled = completed_with_lines(dir);
    for round in 1..KILLS {
        let mut run = spawn(dir, &["resume"]);
        kill_at_a_random_moment(dir, &mut run, &mut random, round);
        check_not_repeated(dir, &settled);
        settled = completed_with_lines(dir);
    }
    let last = windlass(dir, &["resume"]);
    assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));

    check_not_repeated(dir, &settled);
    assert_eq!(completed_with_lines(dir).len(), JOBS, "every job completed");
    assert!(
        !dir.join("overlaps").exists(),
        "overlapped: {}",
        fs::read_to_string(dir.join("overlaps")).unwrap()
    );
    check_attempts(dir);
}

fn prepare(dir: &Path) {
    for name in ["out", "locks"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    fs::write(dir.join("job.sh"), JOB).unwrap();
    let mut spec = String::from("name: kill\njobs:\n");
    for job in 0..JOBS {
        writeln!(spec, "  - {{name: j{job}, command: sh job.sh {job}}}").unwrap();
    }
    fs::write(dir.join("spec.yaml"), spec).unwrap();
}

/// Kills the engine alone, the worker alone, or both, once some more jobs are done.
fn kill_at_a_random_moment(dir: &Path, run: &mut Child, random: &mut Random, round: usize) {
    let goal = JOBS * (round + 1) / (KILLS + 2);
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_dir(dir.join("out")).unwrap().count() < goal {
        assert!(run.try_wait().unwrap().is_none(), "the run ended before it could be killed");
        assert!(Instant::now() < deadline, "no progress");
        std::thread::yield_now();
    }
    let mut victims = children_of(run.id());
    match random.below(3) {
        0 => victims.clear(),
        1 => victims.push(run.id()),
        _ => victims.insert(0, run.id()),
    }
    victims.push(run.id());
    for pid in victims {
        Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status().unwrap();
    }
    run.wait().unwrap();
}

/// The completed jobs, and how often each had been executed by now.
fn completed_with_lines(dir: &Path) -> HashMap<String, usize> {
    let output = windlass(dir, &["jobs", "--status", "completed", "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let jobs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = jobs.as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()[1..].to_owned());
    names.map(|job| (job.clone(), executions(dir, &job))).collect()
}

fn check_not_repeated(dir: &Path, settled: &HashMap<String, usize>) {
    for (job, lines) in settled {
        assert_eq!(executions(dir, job), *lines, "job {job} was completed and ran again");
    }
}

/// Every execution was an attempt of its own: numbers rise, and none stands twice in a job's file.
fn check_attempts(dir: &Path) {
    for job in 0..JOBS {
        let text = fs::read_to_string(dir.join("out").join(job.to_string())).unwrap();
        let attempts: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert!(attempts.is_sorted_by(|a, b| a < b), "job {job}: attempts {attempts:?}");
    }
}

fn executions(dir: &Path, job: &str) -> usize {
    fs::read_to_string(dir.join("out").join(job)).unwrap().lines().count()
}

fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn spawn(dir: &Path, args: &[&str]) -> Child {
    command(dir, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn windlass(dir: &Path, args: &[&str]) -> std::process::Output {
    command(dir, args).output().unwrap()
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(args).current_dir(dir).env_remove("WINDLASS_DB").stdin(Stdio::null());
    command
}

/// A small generator, so that a failing run can be repeated from the seed it prints.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
