//! `windlass watch`: follows a workflow, recovers it, continues, and reports the outcome.

use crate::common::{Output, Sandbox, eventually};
use crate::postgres_server::database;
use crate::recover::standing;
use crate::serve::StoppedOnDrop;
use serde_json::json;
use std::process::{Child, Stdio};

/// Runs out of memory with its first request.
const LARGE: &str = r#"name: large
resource_requirements: [{name: small, num_cpus: 1, memory: 40m, runtime: PT1H}]
jobs:
  - {name: large, command: "python3 -c 'print(len(bytearray(50 << 20)))'", resource_requirements: small}
  - {name: report, command: "true", depends_on: [large]}
"#;

const WAITS: &str = "name: w\njobs: [{name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done; exit $(cat go)'}]\n";

fn watching(sandbox: &Sandbox, args: &[&str]) -> Child {
    let mut command = sandbox.command(&[&["watch"], args].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Output {
        stdout: text(output.stdout),
        stderr: text(output.stderr),
        code: output.status.code().unwrap_or(-1),
    }
}

#[test]
fn watch_recovers_and_runs_stopped_workflow() {
    let sandbox = Sandbox::new();
    sandbox.write("large.yaml", LARGE);
    sandbox.windlass(&["run", "large.yaml"]).exits(1);
    sandbox.windlass(&["watch"]).exits(1).says("--recover");
    let watched = sandbox.windlass(&["watch", "--recover"]).exits(0).says("(1 of 3)").says("2 completed");
    assert!(watched.stdout.contains("out of memory"), "{}", watched.stdout);
    assert_eq!(standing(&sandbox)["large"], json!(["completed", 2]));
    sandbox.windlass(&["watch"]).exits(0);
}

/// One workflow with `recover`, one with `watch`.
#[test]
fn recover_and_watch_work_with_postgresql() {
    let sandbox = Sandbox::new();
    let database = database();
    let db = database.url();
    let here = |args: &[&str]| sandbox.windlass(&[args, &["--db", &db]].concat());
    sandbox.write("large.yaml", LARGE);
    here(&["run", "large.yaml"]).exits(1);
    here(&["recover", "--dry-run"]).exits(0).prints("1 job would run again").prints("out of memory");
    here(&["recover"]).exits(0).prints("1 job will run again").says("windlass resume 1");
    here(&["resume"]).exits(0).says("2 completed");
    let revision = sandbox.json(&["failures", "revisions", "--db", &db])[0].clone();
    assert!(revision["change"].as_str().unwrap().starts_with("memory 40 MiB → "), "{revision}");

    sandbox.write("other.yaml", &LARGE.replace("name: large\nres", "name: other\nres"));
    here(&["run", "other.yaml"]).exits(1);
    here(&["watch", "--recover"]).exits(0).says("(1 of 3)").says("2 completed");
}

#[test]
fn watch_prints_one_json_value() {
    let sandbox = Sandbox::new();
    sandbox.write("large.yaml", LARGE);
    sandbox.windlass(&["run", "large.yaml"]).exits(1);
    let overview = sandbox.json(&["watch", "--recover"]);
    assert_eq!((&overview["state"], &overview["jobs"]["completed"]), (&json!("completed"), &json!(2)));
}

#[test]
fn watch_limits_recoveries() {
    let sandbox = Sandbox::new();
    sandbox.write("no.yaml", "name: no\njobs: [{name: a, command: exit 3}]\n");
    sandbox.windlass(&["run", "no.yaml"]).exits(1);
    let recover = ["watch", "--recover", "--retry-unknown", "--max-retries", "2"];
    sandbox.windlass(&recover).exits(1).says("(2 of 2)").says("--max-retries");
    assert_eq!(standing(&sandbox)["a"], json!(["failed", 3]));
    // Unknown failures are not retried without --retry-unknown.
    sandbox.windlass(&["watch", "--recover"]).exits(1).prints("unknown");
    assert_eq!(standing(&sandbox)["a"], json!(["failed", 3]));
}

#[test]
fn watch_follows_run_of_other_process() {
    for (code, exit) in [("0", 0), ("3", 1)] {
        let sandbox = Sandbox::new();
        sandbox.write("w.yaml", WAITS);
        let mut run = sandbox.start(&["run", "w.yaml"]);
        eventually("it runs", || sandbox.path("runs").exists());
        let watch = watching(&sandbox, &[]);
        sandbox.write("go.new", code);
        std::fs::rename(sandbox.path("go.new"), sandbox.path("go")).unwrap();
        ended(watch).exits(exit);
        run.wait().unwrap();
    }
}

#[test]
fn watch_reports_or_recovers_idle_workflow() {
    let sandbox = Sandbox::new();
    sandbox.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    sandbox.windlass(&["create", "w.yaml"]).exits(0);
    sandbox.windlass(&["watch"]).exits(3).says("workflow 1 is not running");
    sandbox.windlass(&["watch", "--recover"]).exits(0).says("1 completed");
}

#[test]
fn watch_follows_and_recovers_server_workflow() {
    let sandbox = Sandbox::new();
    sandbox.write("large.yaml", LARGE);
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let mut worker = sandbox.start(&["worker"]);
    sandbox.windlass(&["submit", "large.yaml"]).exits(0);
    sandbox.windlass(&["watch", "--recover"]).exits(0).says("2 completed");
    assert_eq!(standing(&sandbox)["large"], json!(["completed", 2]));
    let held = sandbox.json(&["workflows", "sync-status"]);
    assert_eq!(held["jobs"], json!([]));
    worker.kill().unwrap();
    worker.wait().unwrap();
    served.stop();
}

const ASKS: &str = "name: asks\nuse_pending_failed: true\njobs: [{name: a, command: 'test -e mended'}]\n";

#[test]
fn watch_waits_for_decision_and_continues() {
    let sandbox = Sandbox::new();
    sandbox.write("asks.yaml", ASKS);
    sandbox.windlass(&["run", "asks.yaml"]).exits(6);
    sandbox.windlass(&["watch"]).exits(6).says("--wait-for-decisions");
    let mut watch = watching(&sandbox, &["--wait-for-decisions"]);
    let mut said = std::io::BufReader::new(watch.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("waiting for a decision") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut said, &mut line).unwrap(), 0, "it ended without a word");
    }
    sandbox.write("mended", "");
    sandbox.windlass(&["failures", "retry", "a", "--reason", "it is mended"]).exits(0);
    assert_eq!(ended(watch).code, 0);
    assert_eq!(standing(&sandbox)["a"], json!(["completed", 2]));
}

#[test]
fn finished_workflow_shows_run_time() {
    let sandbox = Sandbox::new();
    sandbox.write("one.yaml", "name: one\njobs: [{name: a, command: sleep 1.2}]\n");
    sandbox.windlass(&["run", "one.yaml"]).exits(0);
    sandbox.windlass(&["watch"]).exits(0).says("1 completed in 1.");
}
