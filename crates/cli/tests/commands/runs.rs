//! The output of a run: its lines, its summary, its results and logs.

use crate::common::{Output, Sandbox, documented_keys};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

const MIXED: &str = "\
name: mixed
jobs:
  - {name: good, command: echo fine; echo note >&2}
  - {name: bad, command: echo before; echo broken >&2; exit 3}
  - {name: hit, command: kill -SEGV $$}
  - {name: after, command: echo after, depends_on: [bad]}
";

fn after_mixed() -> (Sandbox, Output) {
    let sandbox = Sandbox::new();
    sandbox.write("mixed.yaml", MIXED);
    let output = sandbox.windlass(&["run", "mixed.yaml"]).exits(1);
    (sandbox, output)
}

#[test]
fn run_with_failures_names_jobs_causes_and_next_command() {
    let (sandbox, output) = after_mixed();
    let output = output
        .says("completed   good")
        .says("mixed: 1 completed, 2 failed, 1 canceled in ")
        .says("  bad  exit code 3\n    windlass_output/job_stdio/job_wf1_j2_r1_a1.e\n")
        .says("SIGSEGV (139)")
        .says("next: windlass logs bad --stderr\n      windlass resume --retry-failed\n");
    assert_eq!(output.stdout, "", "talk goes to stderr");
    assert!(!output.stderr.contains('\x1b'), "{}", output.stderr);
    sandbox.windlass(&["status"]).exits(0).prints("run 1, failed").prints("bad  exit code 3");
    sandbox.windlass(&["results", "--failed"]).exits(0).prints("exit code 3");
    sandbox.windlass(&["jobs", "-s", "canceled"]).exits(0).prints("after");
}

#[test]
fn quiet_run_prints_only_failures() {
    let sandbox = Sandbox::new();
    sandbox.write("good.yaml", "name: good\njobs: [{name: a, command: 'true'}]\n");
    let output = sandbox.windlass(&["run", "-q", "good.yaml"]).exits(0);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""));
    sandbox.write("mixed.yaml", MIXED);
    let output = sandbox.windlass(&["run", "-q", "mixed.yaml"]).exits(1).says("mixed: 1 completed, 2 failed");
    assert!(!output.stderr.contains("completed   good"));
}

#[test]
fn run_summary_as_json() {
    let sandbox = Sandbox::new();
    sandbox.write("mixed.yaml", MIXED);
    let output = sandbox.windlass(&["run", "mixed.yaml", "-f", "json"]).exits(1);
    let end: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(end["state"], "failed");
    assert_eq!(end["jobs"]["completed"], 1);
    let bad = &end["failures"][0];
    assert_eq!(
        (&bad["name"], &bad["return_code"], &bad["attempt_id"]),
        (&json!("bad"), &json!(3), &json!(1))
    );
    assert!(bad["log_path"].as_str().unwrap().ends_with("job_wf1_j2_r1_a1.e"));
    assert_eq!(end["failures"][1]["signal"], 11);
    assert_eq!(documented_keys(bad).len(), 10);
}

#[test]
fn results_have_stable_field_names() {
    let (sandbox, _) = after_mixed();
    let results = sandbox.json(&["results", "--job", "bad"]);
    assert_eq!(results.as_array().unwrap().len(), 1);
    let expected = BTreeSet::from([
        "id",
        "workflow_id",
        "job_id",
        "run_id",
        "attempt_id",
        "job_name",
        "status",
        "return_code",
        "signal",
        "out_of_memory",
        "reason",
        "class",
        "signature",
        "recovered",
        "worker_id",
        "started_at",
        "ended_at",
        "wall_seconds",
        "cpu_seconds",
        "peak_memory_bytes",
        "avg_memory_bytes",
        "peak_cpu_percent",
        "avg_cpu_percent",
    ]);
    assert_eq!(documented_keys(&results[0]), expected);
    assert_eq!(results[0]["return_code"], 3);
}

#[test]
fn logs_show_both_streams_or_one() {
    let (sandbox, _) = after_mixed();
    let both = sandbox.windlass(&["logs", "bad"]).exits(0);
    assert_eq!(
        both.stdout,
        "==> stdout: windlass_output/job_stdio/job_wf1_j2_r1_a1.o <==\nbefore\n\n\
         ==> stderr: windlass_output/job_stdio/job_wf1_j2_r1_a1.e <==\nbroken\n"
    );
    assert_eq!(sandbox.windlass(&["logs", "2", "--stderr"]).exits(0).stdout, "broken\n");
    assert_eq!(sandbox.windlass(&["logs", "bad", "--stdout", "-n", "1"]).exits(0).stdout, "before\n");
    sandbox.windlass(&["logs", "hit"]).exits(0).says("job `hit`, attempt 1, printed nothing\n");
    sandbox.windlass(&["logs", "hit", "--stderr"]).exits(0).says("printed nothing to stderr\n");
    let none = sandbox.windlass(&["logs", "bad", "-n", "0"]).exits(0);
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", ""));
    sandbox.windlass(&["logs", "after"]).exits(2).says("job `after` did not run; it is canceled");
    sandbox
        .windlass(&["logs", "bad", "--attempt", "7"])
        .exits(2)
        .says("has no attempt 7")
        .says("hint: attempts: 1");
    let logs = sandbox.json(&["logs", "bad"]);
    assert_eq!(documented_keys(&logs).len(), 6);
    assert_eq!(logs["streams"][1]["stream"], "stderr");
    assert_eq!(logs["streams"][1]["text"], "broken\n");
}

#[test]
fn ambiguous_job_number_is_rejected() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "numbers.yaml",
        "name: numbers\njobs: [{name: '2', command: echo one}, {name: two, command: echo two}]\n",
    );
    sandbox.windlass(&["run", "numbers.yaml"]).exits(0);
    for args in [&["logs", "2"][..], &["results", "--job", "2"]] {
        sandbox.windlass(args).exits(2).says("`2` is both the id of job `two` and the name of job 1");
    }
    sandbox.windlass(&["logs", "1"]).exits(0).prints("one");
    sandbox.windlass(&["logs", "two", "--follow"]).exits(0).prints("two");
}

#[test]
fn next_command_names_stream_with_output() {
    let sandbox = Sandbox::new();
    for (command, next) in [
        ("echo no >&2; false", "next: windlass logs job1 --stderr\n"),
        ("echo no; false", "next: windlass logs job1\n"),
        ("false", "    no output\nnext: windlass why job1\n"),
    ] {
        sandbox.windlass(&["exec", "-c", command]).exits(1).says(next);
    }
}

#[test]
fn logs_of_earlier_runs_are_kept() {
    let (sandbox, _) = after_mixed();
    sandbox.windlass(&["resume", "--retry-failed"]).exits(1).says("job_wf1_j2_r2_a1.e");
    sandbox.windlass(&["logs", "bad"]).exits(0).prints("job_wf1_j2_r2_a1.e");
    sandbox.windlass(&["logs", "bad", "--run", "1"]).exits(0).prints("job_wf1_j2_r1_a1.e");
    // It completed in the first run and did not run again.
    sandbox.windlass(&["logs", "good"]).exits(0).prints("job_wf1_j1_r1_a1.o");
    sandbox.windlass(&["logs", "good", "--follow"]).exits(0).prints("fine\n");
    sandbox
        .windlass(&["logs", "good", "--run", "2"])
        .exits(2)
        .says("did not run in run 2")
        .says("--all-runs");
    assert_eq!(sandbox.json(&["results", "--job", "bad", "--all-runs"]).as_array().unwrap().len(), 2);
}

#[test]
fn logs_follow_ends_with_job() {
    let sandbox = Sandbox::new();
    let job = "echo begin; while [ ! -e go ]; do sleep 0.02; done; echo end; echo last >&2";
    sandbox.write("wait.yaml", &format!("name: wait\njobs: [{{name: w, command: '{job}'}}]\n"));
    sandbox.windlass(&["create", "wait.yaml"]).exits(0);

    let mut follow = sandbox
        .command(&["logs", "w", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut warning = String::new();
    BufReader::new(follow.stderr.take().unwrap()).read_line(&mut warning).unwrap();
    assert!(
        warning
            .contains("job `w` is ready and its workflow is not running; start it with `windlass resume 1`"),
        "{warning}"
    );

    let mut resume = sandbox.command(&["resume"]).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap());
    let mut seen = String::new();
    while !seen.ends_with("begin\n") {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    sandbox.windlass(&["status"]).exits(0).prints("run 1, running");
    sandbox.write("go", "");
    lines.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "==> stdout <==\nbegin\nend\n==> stderr <==\nlast\n");
    assert!(follow.wait().unwrap().success());
    assert!(resume.wait().unwrap().success());

    let lines = sandbox.windlass(&["logs", "w", "--follow", "-f", "json"]).exits(0).stdout;
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last, json!({"job_id": 1, "run_id": 1, "attempt_id": 1, "stream": "stderr", "line": "last"}));
}

#[test]
fn demo_uses_own_database_and_can_be_quiet() {
    let sandbox = Sandbox::new();
    // An unrelated workflow in the directory above has no effect.
    sandbox.windlass(&["exec", "-c", "true"]).exits(0);
    let quiet =
        Output::of(sandbox.command(&["demo", "-q", "d"]).env("WINDLASS_DB", sandbox.path("other.db")));
    let quiet = quiet.exits(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    assert!(sandbox.path("d/.windlass/windlass.db").exists() && !sandbox.path("other.db").exists());
    assert!(sandbox.read("d/pi.txt").starts_with("3.1"));
    assert_eq!(sandbox.json(&["list"]).as_array().unwrap().len(), 1, "the demo is not in this database");
}

/// The commands that the demo suggests print the announced output.
#[test]
fn demo_suggestions_work() {
    let sandbox = Sandbox::new();
    let demo = sandbox.windlass(&["demo", "d"]).exits(0);
    let (_, next) = demo.stderr.split_once("Try next:").unwrap();
    let tried: Vec<&str> = next
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("windlass "))
        .filter_map(|line| line.split("  ").next())
        .collect();
    let shows = [
        ("status", "completed"),
        ("jobs results", "throw_01"),
        ("logs estimate", "3.1"),
        ("run --new demo.yaml", "completed"),
        ("exec --help", "Usage: windlass exec"),
    ];
    assert_eq!(tried, shows.map(|(words, _)| words), "{}", demo.stderr);
    for (words, shown) in shows {
        let words: Vec<&str> = words.split(' ').collect();
        let output = Output::of(sandbox.command(&words).current_dir(sandbox.path("d"))).exits(0);
        let printed = output.stdout + &output.stderr;
        assert!(printed.contains(shown), "{words:?}: {printed}");
    }
}

/// The commands that the demo suggests print the announced output.
#[test]
fn request_demo_suggestions_work() {
    let sandbox = Sandbox::new();
    let demo = sandbox.windlass(&["demo", "requests", "d"]).exits(0);
    let tried: Vec<Vec<String>> = demo
        .stderr
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("windlass "))
        .filter_map(|line| line.split("  ").next())
        .map(|words| words.split(' ').map(str::to_owned).collect())
        .collect();
    let expected =
        ["request list", "request show patient", "request plan byevent", "catalog", "request errors shaky"];
    assert_eq!(tried.iter().map(|words| words.join(" ")).collect::<Vec<_>>(), expected, "{}", demo.stderr);
    let shows = ["patient", "round 1 follows", "runs RECO: simulated", "/Pretend/made-v1/GEN", "SIGKILL"];
    for (words, shows) in tried.iter().zip(shows) {
        let db = sandbox.path("d/.windlass/windlass.db").display().to_string();
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--db", &db]).collect();
        sandbox.windlass(&words).exits(0).prints(shows);
    }
}

/// Both processes of a run write to its standard error.
#[test]
fn log_level_shows_decisions_with_their_ids() {
    let sandbox = Sandbox::new();
    sandbox.write("w.yaml", "name: w\njobs: [{name: bad, command: exit 3}]\n");
    let events = [
        "DEBUG job assigned to worker workflow=1 job=1 run=1 attempt=1 worker=1",
        "DEBUG process started workflow=1 job=1 run=1 attempt=1 pid=",
        "DEBUG attempt ended workflow=1 job=1 run=1 attempt=1 worker=1 status=\"failed\" return_code=3",
    ];
    let output = sandbox.windlass(&["--log-level", "debug", "run", "w.yaml"]).exits(1);
    events.iter().fold(output, |output, event| output.says(event));
    let mut command = sandbox.command(&["resume", "--retry-failed"]);
    let output = command.env("WINDLASS_LOG_LEVEL", "windlass_worker=debug").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("DEBUG process started workflow=1 job=1 run=2") && !said.contains("job assigned"),
        "{said}"
    );
    let output = sandbox.windlass(&["resume", "--retry-failed"]).exits(1);
    assert!(!output.stderr.contains("DEBUG"), "{}", output.stderr);
    sandbox
        .windlass(&["run", "--log-level", "debug", "w.yaml"])
        .exits(2)
        .says("give '--log-level' before the command: `windlass --log-level … run`");
    sandbox.windlass(&["--log-level", "loud", "status"]).exits(2).says("unknown level `loud`");
}
