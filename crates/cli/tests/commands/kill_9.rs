//! `kill -9` at random moments: in the end all jobs are completed, no job ran twice at the same time, and no job
//! that was recorded as completed ran again.

use crate::common::{Output, Sandbox, children_of, eventually, kill};
use crate::server_commands::KilledOnDrop;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const JOBS: usize = 2000;
const KILLS: usize = 10;

/// Takes a lock that the kernel releases when the last process of the execution ends: if a second execution
/// cannot take it, two executions overlapped. Then writes a line per execution. Some jobs last long enough to
/// outlive a crash and the restart after it; of these, some leave the process group and some lose their
/// environment.
const JOB: &str = r#"exec 9>>"locks/$1"
flock -n 9 || echo "$1" >> overlaps
echo "$WINDLASS_ATTEMPT" >> "out/$1"
case $(($1 % 20)) in
  3) setsid sleep 0.3 & wait ;;
  7) exec env -i sleep 0.3 ;;
  11) sleep 0.3; true ;;
esac
"#;

#[test]
fn run_killed_ten_times_loses_and_repeats_no_job() {
    let sandbox = prepared();
    let mut random = Random(std::process::id().into());
    println!("seed {}", random.0);

    let mut settled = HashMap::new();
    for round in 0..KILLS {
        let args: &[&str] = if round == 0 { &["run", "spec.yaml", "-j8"] } else { &["resume", "-j8"] };
        let mut run = sandbox.start(args);
        kill_at_a_random_moment(&sandbox, &mut run, &mut random, round);
        check_not_repeated(&sandbox, &settled);
        settled = completed_with_lines(&sandbox);
    }
    sandbox.windlass(&["resume", "-j8"]).exits(0);

    check_not_repeated(&sandbox, &settled);
    assert_eq!(completed_with_lines(&sandbox).len(), JOBS, "every job completed");
    let overlaps = fs::read_to_string(sandbox.path("overlaps")).unwrap_or_default();
    assert_eq!(overlaps, "", "two executions at once");
    check_attempts(&sandbox);
}

#[test]
fn copied_project_does_not_affect_jobs_of_original() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: original\njobs:\n  - {name: a, command: 'touch started; while [ ! -e gate ]; do sleep 0.05; done'}\n",
    );
    let mut run = sandbox.start(&["run", "spec.yaml"]);
    eventually("the job has started", || sandbox.path("started").exists());
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = copy_project(&sandbox, elsewhere.path());
    let in_copy = |args: &[&str]| Output::of(sandbox.command(args).current_dir(&copy));
    in_copy(&["resume"]).exits(4).says("another database file").says("--assume-dead");
    fs::write(sandbox.path("gate"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let results = sandbox.json(&["results"]);
    assert_eq!(results.as_array().unwrap().len(), 1, "it ran once: {results}");
    // Nothing of the original runs any more.
    in_copy(&["resume"]).exits(0);
}

#[test]
fn copied_project_does_not_use_server_of_original() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: original\njobs:\n  - {name: a, command: 'touch started; while [ ! -e gate ]; do sleep 0.05; done'}\n",
    );
    let _server = KilledOnDrop(sandbox.start(&["serve", "--listen", "127.0.0.1:0"]));
    eventually("it serves", || sandbox.windlass(&["ping"]).code == 0);
    sandbox.windlass(&["submit", "spec.yaml"]).exits(0);
    let mut worker = KilledOnDrop(sandbox.start(&["worker", "-w", "last"]));
    eventually("the job has started", || sandbox.path("started").exists());
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = copy_project(&sandbox, elsewhere.path());
    let in_copy = |args: &[&str]| Output::of(sandbox.command(args).current_dir(&copy));
    for args in [&["resume"][..], &["resume", "--take-over"]] {
        in_copy(args).exits(4).says("this database is a copy").says("process");
    }
    in_copy(&["cancel"]);
    fs::write(sandbox.path("gate"), "").unwrap();
    assert_eq!(worker.0.wait().unwrap().code(), Some(0));
    let results = sandbox.json(&["results"]);
    let outcomes: Vec<_> = results.as_array().unwrap().iter().map(|row| row["status"].clone()).collect();
    assert_eq!(outcomes, ["completed"], "{results}");
}

/// Copies the project as `cp -a` does; returns the copy.
fn copy_project(sandbox: &Sandbox, elsewhere: &Path) -> PathBuf {
    let copied = Command::new("cp").arg("-a").arg(sandbox.path("")).arg(elsewhere).status();
    assert!(copied.unwrap().success());
    fs::read_dir(elsewhere).unwrap().next().unwrap().unwrap().path()
}

fn prepared() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in ["out", "locks"] {
        fs::create_dir(sandbox.path(name)).unwrap();
    }
    sandbox.write("job.sh", JOB);
    let mut spec = String::from("name: kill\njobs:\n");
    for job in 0..JOBS {
        writeln!(spec, "  - {{name: j{job}, command: sh job.sh {job}}}").unwrap();
    }
    sandbox.write("spec.yaml", &spec);
    sandbox
}

/// Kills the scheduler, the worker, or both, after some more jobs have completed.
fn kill_at_a_random_moment(sandbox: &Sandbox, run: &mut Child, random: &mut Random, round: usize) {
    let goal = JOBS * (round + 1) / (KILLS + 2);
    let deadline = Instant::now() + Duration::from_mins(1);
    while fs::read_dir(sandbox.path("out")).unwrap().count() < goal {
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
        kill(pid, "KILL");
    }
    run.wait().unwrap();
}

/// The completed jobs, and how often each has been executed so far.
fn completed_with_lines(sandbox: &Sandbox) -> HashMap<String, usize> {
    let jobs = sandbox.json(&["jobs", "--status", "completed"]);
    let names = jobs.as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()[1..].to_owned());
    names.map(|job| (job.clone(), executions(sandbox, &job))).collect()
}

fn check_not_repeated(sandbox: &Sandbox, settled: &HashMap<String, usize>) {
    for (job, lines) in settled {
        assert_eq!(executions(sandbox, job), *lines, "job {job} was completed and ran again");
    }
}

/// Checks that every execution was a separate attempt: the numbers in a job's file increase strictly.
fn check_attempts(sandbox: &Sandbox) {
    for job in 0..JOBS {
        let text = sandbox.read(&format!("out/{job}"));
        let attempts: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert!(attempts.is_sorted_by(|a, b| a < b), "job {job}: attempts {attempts:?}");
    }
}

fn executions(sandbox: &Sandbox, job: &str) -> usize {
    sandbox.read(&format!("out/{job}")).lines().count()
}

/// A small generator, so that a failing run can be repeated from the printed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
