//! The commands that create and show workflows, with the real binary: create, status, workflows, jobs, and their errors.

use crate::common::{Output, Sandbox, documented_keys};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Stdio;

const DIAMOND: &str = "\
name: diamond
jobs:
  - {name: top, command: echo top}
  - {name: left, command: echo left, depends_on: [top]}
  - {name: right, command: echo right, depends_on: [top]}
  - {name: bottom, command: echo bottom, depends_on: [left, right], priority: 3}
";

fn with_diamond() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("diamond.yaml", DIAMOND);
    sandbox.windlass(&["create", "diamond.yaml"]).exits(0).prints("workflow 1: diamond, 4 jobs");
    sandbox
}

#[test]
fn command_without_arguments_prints_help() {
    let output = Sandbox::new().windlass(&[""; 0]).exits(0);
    for word in ["run", "resume", "exec", "status", "logs", "Examples:"] {
        assert!(output.stdout.contains(word), "{word}\n{}", output.stdout);
    }
    assert!(!output.stdout.contains("__worker"));
}

#[test]
fn created_workflow_is_shown() {
    let sandbox = with_diamond();
    sandbox
        .windlass(&["status"])
        .exits(0)
        .prints("diamond  workflow 1, run 1, created")
        .prints("0 of 4 jobs completed (0%)")
        .prints("1 ready, 3 blocked")
        .prints("next: windlass resume");
    sandbox.windlass(&["jobs", "--status", "ready"]).exits(0).prints("top").prints("echo top");
    sandbox.windlass(&["workflows"]).exits(0).prints("diamond").prints("created");
    sandbox.windlass(&["results"]).exits(0).says("has no matching results");
}

#[test]
fn json_has_stable_field_names() {
    let sandbox = with_diamond();
    let status = sandbox.json(&["status"]);
    let workflow = BTreeSet::from([
        "id",
        "uuid",
        "name",
        "user",
        "description",
        "created_at",
        "run_id",
        "is_canceled",
        "is_archived",
        "project",
        "metadata",
        "settings",
        "submission_dir",
        "output_dir",
        "spec_path",
        "started_at",
        "ended_at",
        "state",
        "jobs",
        "elapsed_seconds",
    ]);
    assert_eq!(documented_keys(&status), &workflow | &BTreeSet::from(["running", "failures"]));
    assert_eq!(status["name"], "diamond");
    assert_eq!(status["user"], "tester");
    assert_eq!(status["state"], "created");
    assert_eq!(status["jobs"]["total"], 4);
    assert_eq!(status["jobs"]["blocked"], 3);
    assert_eq!(status["jobs"].as_object().unwrap().len(), 12);
    assert_eq!(status["submission_dir"], sandbox.path("").canonicalize().unwrap().to_str().unwrap());
    let created = status["created_at"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.contains('T'), "{created}");

    let list = sandbox.json(&["workflows"]);
    assert_eq!(documented_keys(&list[0]), workflow);

    let jobs = sandbox.json(&["jobs"]);
    assert_eq!(jobs.as_array().unwrap().len(), 4);
    assert_eq!(
        documented_keys(&jobs[3]),
        BTreeSet::from([
            "id",
            "workflow_id",
            "name",
            "command",
            "status",
            "attempt_id",
            "description",
            "priority",
            "cancel_on_blocking_job_failure",
            "resource_requirements",
            "kind",
            "params",
            "origin",
            "reused_from",
            "pid",
            "started_at",
            "return_code",
            "reason",
        ])
    );
    assert_eq!(jobs[3]["name"], "bottom");
    assert_eq!(jobs[3]["priority"], 3);
    assert_eq!(jobs[3]["status"], "blocked");
    assert_eq!(sandbox.json(&["results"]), json!([]));
}

#[test]
fn jobs_can_be_filtered_and_paged() {
    let sandbox = with_diamond();
    let names = |args: &[&str]| -> Vec<String> {
        let jobs = sandbox.json(args);
        jobs.as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["jobs", "--limit", "2", "--offset", "1"]), ["left", "right"]);
    assert_eq!(names(&["jobs", "diamond", "-s", "ready"]), ["top"]);
    assert_eq!(names(&["jobs", "1", "-s", "ready", "-s", "completed"]), ["top"]);
}

#[test]
fn dry_run_stores_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("diamond.yaml", DIAMOND);
    sandbox.windlass(&["create", "--dry-run", "diamond.yaml"]).exits(0).prints("4 jobs");
    assert!(!sandbox.path(".windlass").exists());
    let created = sandbox.json(&["create", "--dry-run", "diamond.yaml"]);
    assert_eq!(created["workflow_id"], Value::Null);
    assert_eq!(
        (&created["name"], &created["jobs"], &created["dry_run"]),
        (&json!("diamond"), &json!(4), &json!(true))
    );
}

#[test]
fn spec_warnings_are_shown_and_change_nothing() {
    let sandbox = Sandbox::new();
    sandbox
        .write("odd.yaml", "name: odd\njobs: [{name: 'a{i}', command: 'echo {i:x}', parameters: {i: 1}}]\n");
    let drawn = "warning[unknown-format]: unknown format `:x`";
    sandbox.windlass(&["create", "odd.yaml"]).exits(0).prints("1 job").says(drawn);
    sandbox.windlass(&["create", "--dry-run", "odd.yaml"]).exits(0).says(drawn);
    sandbox.windlass(&["plan", "odd.yaml"]).exits(0).says(drawn);
    sandbox.windlass(&["run", "--new", "odd.yaml"]).exits(0).says(drawn);
    let quiet = sandbox.windlass(&["-q", "create", "--dry-run", "odd.yaml"]).exits(0);
    assert_eq!(quiet.stderr, "");
    for arguments in [&["create", "odd.yaml"][..], &["create", "--dry-run", "odd.yaml"]] {
        let warning = sandbox.json(arguments)["warnings"][0].as_str().unwrap().to_owned();
        assert!(warning.starts_with("odd.yaml:2:38: unknown format `:x`"), "{warning}");
    }
    let planned = sandbox.windlass(&["plan", "odd.yaml", "--format", "json"]).exits(0);
    let warnings: Value = serde_json::from_str(&planned.stderr).unwrap();
    let warning = &warnings["warnings"][0];
    assert_eq!((&warning["severity"], &warning["line"]), (&json!("warning"), &json!(2)));
}

#[test]
fn spec_is_read_from_stdin() {
    let sandbox = Sandbox::new();
    sandbox.write("diamond.yaml", DIAMOND);
    let file = std::fs::File::open(sandbox.path("diamond.yaml")).unwrap();
    Output::of(sandbox.command(&["create", "-"]).stdin(file)).exits(0).prints("workflow 1");
    assert_eq!(sandbox.json(&["status"])["spec_path"], Value::Null);
}

#[test]
fn database_is_found_in_parent_or_by_option() {
    let sandbox = with_diamond();
    sandbox.write("deep/down/x", "");
    let deep = sandbox.path("deep/down");
    Output::of(sandbox.command(&["status"]).current_dir(&deep)).exits(0).prints("diamond");
    Output::of(
        sandbox
            .command(&["status"])
            .current_dir("/")
            .env("WINDLASS_DB", sandbox.path(".windlass/windlass.db")),
    )
    .exits(0)
    .prints("diamond");
    sandbox.windlass(&["create", "diamond.yaml", "--db", "other.db"]).exits(0).prints("workflow 1");
    assert!(sandbox.path("other.db").exists());
}

#[test]
fn spec_errors_are_listed_with_line() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", "name: bad\njobs:\n  - {name: a, comand: x, depends_on: [b]}\n");
    let output =
        sandbox.windlass(&["create", "bad.yaml"]).exits(2).says("bad.yaml:3:").says("error: bad.yaml has");
    assert_eq!(output.stdout, "");
    let output = sandbox.windlass(&["create", "bad.yaml", "-f", "json"]).exits(2);
    let error: Value = serde_json::from_str(&output.stderr).unwrap();
    assert_eq!(error["kind"], "spec");
    assert_eq!(error["exit_code"], 2);
    assert_eq!(error["diagnostics"][0]["line"], 3);
    assert!(!sandbox.path(".windlass").exists());
}

#[test]
fn errors_have_hints() {
    let empty = Sandbox::new();
    empty
        .windlass(&["status"])
        .exits(2)
        .says("error: there is no .windlass directory")
        .says("hint: `windlass run SPEC`");
    empty.windlass(&["create", "no.yaml"]).exits(2).says("no.yaml").says("hint:");
    empty.windlass(&["status", "--db", "no.db"]).exits(2).says("no.db").says("hint:");
    let foreign = empty.windlass(&["status", "--db", "mysql://me:secret@foo/bar"]);
    foreign.exits(2).says("mysql://me@foo/bar is not a supported database").says("postgres://");
    empty.windlass(&["status", "--db", "http://there:8080"]).exits(2).says("use --url for a server");
    empty.windlass(&["statsu"]).exits(2).says("status");

    let sandbox = with_diamond();
    sandbox.windlass(&["status", "9"]).exits(2).says("no workflow 9").says("hint: `windlass workflows`");
    sandbox.windlass(&["status", "unknown"]).exits(2).says("no workflow named `unknown`");
    sandbox.windlass(&["logs", "middle"]).exits(2).says("has no job `middle`").says("windlass jobs 1");
    sandbox.windlass(&["logs", "top"]).exits(2).says("has not run yet").says("it is ready");
    let output = sandbox.windlass(&["results", "--job", "middle"]).exits(2).says("has no job `middle`");
    assert!(!output.stderr.contains("--workflow"), "{}", output.stderr);
    sandbox.windlass(&["create", "diamond.yaml"]).exits(0);
    sandbox
        .windlass(&["status", "diamond"])
        .exits(2)
        .says("2 workflows are named `diamond`: 2, 1")
        .says("newest is 2");
}

#[test]
fn file_that_is_not_a_database_is_left_unchanged() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.txt", "these are notes, and there are enough of them to look like something");
    sandbox.windlass(&["status", "--db", "notes.txt"]).exits(5).says("is not a database").says("hint:");
    sandbox.write("diamond.yaml", DIAMOND);
    sandbox.windlass(&["create", "diamond.yaml", "--db", "notes.txt"]).exits(5);
    assert!(sandbox.read("notes.txt").starts_with("these are notes"));
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let sandbox = Sandbox::new();
    let jobs: Vec<String> = (0..5000).map(|i| format!("  - {{name: job_{i}, command: echo {i}}}")).collect();
    sandbox.write("many.yaml", &format!("name: many\njobs:\n{}\n", jobs.join("\n")));
    sandbox.windlass(&["create", "many.yaml"]).exits(0);
    let mut child = sandbox.command(&["jobs"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}

#[test]
fn color_is_only_printed_on_request() {
    let sandbox = with_diamond();
    assert!(!sandbox.windlass(&["status"]).stdout.contains('\x1b'));
    assert!(sandbox.windlass(&["status", "--color", "always"]).stdout.contains('\x1b'));
}
