//! Lists in all formats, abbreviated names, ranges, default files, and Torc's names of commands.

use crate::common::{Output, Sandbox, eventually};
use serde_json::Value;
use std::process::Command;

const TROUBLE: &str = r#"
name: trouble
jobs:
  - {name: good, command: echo fine}
  - {name: bad_1, command: "echo starting; echo 'solver: command not found' >&2; exit 127"}
  - {name: bad_2, command: "echo 'No space left on device' >&2; exit 3"}
"#;

fn troubled() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("trouble.yaml", TROUBLE);
    sandbox.windlass(&["run", "trouble.yaml"]).exits(1);
    sandbox
}

fn with_three() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in ["alpha", "beta", "beta_2"] {
        sandbox.write("spec.yaml", &format!("name: {name}\njobs: [{{name: a, command: 'true'}}]\n"));
        sandbox.windlass(&["create", "spec.yaml"]).exits(0);
    }
    sandbox
}

#[test]
fn lists_have_same_rows_in_every_format() {
    let sandbox = troubled();
    let jobs = sandbox.json(&["jobs", "list"]);
    let csv = sandbox.windlass(&["jobs", "list", "1", "-f", "csv"]).exits(0).stdout;
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let keys: Vec<&String> = jobs[0].as_object().unwrap().keys().collect();
    assert_eq!(names.len(), keys.len());
    assert!(names.iter().all(|name| jobs[0].get(name).is_some()), "{names:?}");
    assert_eq!(lines.count(), 3);
    let table = sandbox.windlass(&["jobs"]).exits(0).stdout;
    assert_eq!(table.lines().count(), 4, "{table}");
}

#[test]
fn lists_are_sorted_limited_and_filtered() {
    let sandbox = troubled();
    let names = |args: &[&str]| -> Vec<String> {
        let rows = sandbox.json(args);
        rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["jobs", "--sort-by", "name"]), ["bad_1", "bad_2", "good"]);
    assert_eq!(names(&["jobs", "--sort-by", "name", "--reverse-sort", "-l", "1"]), ["good"]);
    assert_eq!(names(&["jobs", "--reverse"]), ["bad_2", "bad_1", "good"]);
    sandbox.windlass(&["jobs", "--sort-by", "nmae"]).exits(2).says("did you mean `name`?");
    let table = sandbox.windlass(&["jobs", "-x", "command"]).exits(0).stdout;
    assert!(!table.contains("COMMAND"), "{table}");
}

#[test]
fn long_lists_are_paged() {
    let sandbox = Sandbox::new();
    let jobs: Vec<String> = (0..4500).map(|i| format!("  - {{name: job_{i}, command: 'true'}}")).collect();
    sandbox.write("many.yaml", &format!("name: many\njobs:\n{}\n", jobs.join("\n")));
    sandbox.windlass(&["create", "many.yaml"]).exits(0);
    let all = sandbox.json(&["jobs"]);
    let ids: Vec<i64> = all.as_array().unwrap().iter().map(|job| job["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, (1..=4500).collect::<Vec<_>>());
    let part =
        sandbox.windlass(&["jobs", "--offset", "1000", "--limit", "3000", "-f", "csv"]).exits(0).stdout;
    assert_eq!(part.lines().count(), 3001);
    assert!(part.lines().nth(1).unwrap().starts_with("1001,"), "{part}");
}

#[test]
fn get_shows_full_object() {
    let sandbox = troubled();
    assert_eq!(sandbox.json(&["jobs", "get", "good"])["status"], "completed");
    assert_eq!(sandbox.json(&["jobs", "get", "2"])["name"], "bad_1");
    sandbox.windlass(&["jobs", "get", "good"]).exits(0).prints("cancel_on_blocking_job_failure");
    let result = sandbox.json(&["results", "get", "1"]);
    assert_eq!(result["attempt_id"], 1);
    sandbox.windlass(&["results", "get", "99"]).exits(2).says("has no result 99");
    assert_eq!(sandbox.json(&["workflows", "get"])["state"], "failed");
    sandbox.windlass(&["workflows", "is-complete", "1"]).exits(0).prints("true");
    assert_eq!(sandbox.json(&["workflows", "is-complete"])["is_complete"], true);
}

#[test]
fn results_are_filtered_by_code_and_status_with_logs() {
    let sandbox = troubled();
    let failed = sandbox.json(&["results", "list", "1", "--return-code", "3", "--include-logs"]);
    assert_eq!(failed.as_array().unwrap().len(), 1);
    assert_eq!(failed[0]["job_name"], "bad_2");
    assert_eq!(failed[0]["stdout_path"], Value::Null);
    let log = failed[0]["stderr_path"].as_str().unwrap();
    assert!(sandbox.read(log).contains("No space left"));
    assert_eq!(sandbox.json(&["results", "-s", "completed"]).as_array().unwrap().len(), 1);
    assert_eq!(sandbox.json(&["results", "--run-id", "2"]), serde_json::json!([]));
}

#[test]
fn workflows_are_selected_by_name_prefix_and_range() {
    let sandbox = with_three();
    assert_eq!(sandbox.json(&["status", "al"])["name"], "alpha");
    assert_eq!(sandbox.json(&["status", "beta"])["id"], 2);
    sandbox.windlass(&["status", "bet"]).exits(2).says("2 workflows start with `bet`: 3 (beta_2), 2 (beta)");
    sandbox.windlass(&["status", "alpah"]).exits(2).says("did you mean `alpha`?");
    let uuid = sandbox.json(&["status", "1"])["uuid"].as_str().unwrap().to_owned();
    assert_eq!(sandbox.json(&["status", &uuid[..13]])["id"], 1);
    let several = sandbox.json(&["status", "1-2,last"]);
    assert_eq!(
        several.as_array().unwrap().iter().map(|w| w["id"].as_i64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    sandbox.windlass(&["status", "7-9"]).exits(2).says("no workflow from 7 to 9");
    sandbox.windlass(&["status", "1-9", "-f", "csv"]).exits(0).prints("beta_2");
    let listed = sandbox.windlass(&["list", "--sort-by", "name"]).exits(0).stdout;
    assert!(listed.find("alpha").unwrap() < listed.find("beta_2").unwrap(), "{listed}");
}

#[test]
fn jobs_are_selected_by_name_prefix() {
    let sandbox = troubled();
    sandbox.windlass(&["logs", "goo"]).exits(0).prints("fine");
    sandbox.windlass(&["logs", "bad"]).exits(2).says("several jobs start with `bad`: `bad_1`, `bad_2`");
    sandbox.windlass(&["logs", "show", "godo"]).exits(2).says("did you mean `good`?");
    // A job id is enough, whichever workflow it belongs to.
    sandbox.write("other.yaml", "name: other\njobs: [{name: x, command: 'true'}]\n");
    sandbox.windlass(&["create", "other.yaml"]).exits(0);
    sandbox.windlass(&["logs", "show", "1"]).exits(0).prints("fine");
}

#[test]
fn cancel_takes_several_workflows() {
    let sandbox = with_three();
    sandbox.windlass(&["cancel", "1-2", "--dry-run"]).exits(0).says("would cancel workflow 1 (alpha)");
    assert_eq!(sandbox.json(&["status", "1"])["state"], "created");
    sandbox.windlass(&["cancel", "1-2", "--no-prompts"]).exits(0).says("workflow 2 (beta) is canceled");
    assert_eq!(sandbox.json(&["status", "2"])["state"], "canceled");
    assert_eq!(sandbox.json(&["status", "3"])["state"], "created");
}

#[test]
fn spec_in_current_directory_is_found() {
    let sandbox = Sandbox::new();
    sandbox.windlass(&["run"]).exits(2).says("no spec given").says("hint:");
    sandbox.write("a.windlass.yaml", "name: a\njobs: [{name: x, command: 'true'}]\n");
    sandbox.windlass(&["run"]).exits(0);
    sandbox.write("b.windlass.yaml", "name: b\njobs: [{name: x, command: 'true'}]\n");
    sandbox.windlass(&["create"]).exits(2).says("a.windlass.yaml, b.windlass.yaml");
    sandbox.write("windlass.yaml", "name: c\njobs: [{name: x, command: 'true'}]\n");
    sandbox.windlass(&["create", "--dry-run"]).exits(0).prints("c, 1 job");
}

#[test]
fn run_accepts_workflow_or_file() {
    let sandbox = with_three();
    sandbox.windlass(&["run", "1", "-p", "5"]).exits(0);
    sandbox.windlass(&["run", "1", "--persistent"]).exits(2).says("windlass worker --persistent");
    assert_eq!(sandbox.json(&["status", "1"])["state"], "completed");
    sandbox.windlass(&["run", "beta_2"]).exits(0);
    assert_eq!(sandbox.json(&["status", "3"])["state"], "completed");
    sandbox.windlass(&["run", "1"]).exits(0).says("has ended");
    sandbox.windlass(&["run", "1", "--new"]).exits(2).says("--new creates a workflow from a spec");
    sandbox.windlass(&["run", "missing.yaml"]).exits(2).says("cannot read the spec missing.yaml");
    sandbox.windlass(&["workflows", "run", "2"]).exits(0);
}

#[test]
fn jobs_running_lists_running_jobs() {
    let sandbox = Sandbox::new();
    sandbox.write("slow.yaml", "name: slow\njobs: [{name: a, command: 'echo > started; sleep 600'}]\n");
    let mut run = sandbox.start(&["run", "slow.yaml"]);
    eventually("the job has started", || sandbox.path("started").exists());
    eventually("the job is listed", || sandbox.json(&["jobs", "running"])[0]["name"] == "a");
    sandbox.windlass(&["cancel", "--grace", "1s", "--wait"]).exits(0);
    run.wait().unwrap();
    sandbox.windlass(&["jobs", "running"]).exits(0).says("are running");
}

#[test]
fn log_analysis_finds_error_lines_of_failed_attempts() {
    let sandbox = troubled();
    let found = sandbox.json(&["logs", "analyze"]);
    let lines: Vec<(&str, i64, &str)> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["job_name"].as_str().unwrap(), f["line"].as_i64().unwrap(), f["text"].as_str().unwrap()))
        .collect();
    assert_eq!(lines, [("bad_1", 1, "solver: command not found"), ("bad_2", 1, "No space left on device")]);
    sandbox.write("elsewhere/x.log", "fine\nfine\nPermission denied\n");
    let found = sandbox.json(&["logs", "analyze", "elsewhere"]);
    assert_eq!((&found[0]["path"], &found[0]["line"]), (&"elsewhere/x.log".into(), &3.into()));
    sandbox.write("elsewhere/x.log", "fine\n");
    sandbox.windlass(&["logs", "analyze", "elsewhere"]).exits(0).says("no known error patterns in 1 file");
}

#[test]
fn log_bundle_has_logs_spec_and_state() {
    let sandbox = troubled();
    sandbox.windlass(&["logs", "bundle", "--bundle-dir", "out"]).exits(0).prints("out/wf1.tar.gz");
    let unpack = Command::new("tar")
        .args(["-xzf", "out/wf1.tar.gz", "-C", "out"])
        .current_dir(sandbox.path("."))
        .status()
        .unwrap();
    assert!(unpack.success());
    assert_eq!(sandbox.read("out/wf1/spec.yaml"), TROUBLE);
    let results: Value = serde_json::from_str(&sandbox.read("out/wf1/results.json")).unwrap();
    assert_eq!(results.as_array().unwrap().len(), 3);
    let jobs: Value = serde_json::from_str(&sandbox.read("out/wf1/jobs.json")).unwrap();
    assert_eq!(jobs[1]["name"], "bad_1");
    assert_eq!(sandbox.read("out/wf1/job_stdio/job_wf1_j1_r1_a1.o"), "fine\n");
    let left: Vec<_> =
        std::fs::read_dir(sandbox.path("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn failed_jobs_list_includes_timeouts() {
    let sandbox = Sandbox::new();
    let spec = "name: ends\nresource_requirements: [{name: short, num_cpus: 1, memory: 1g, runtime: PT1S}]\njobs:\n\
        \x20 - {name: bad, command: exit 3}\n  - {name: slow, command: sleep 60, resource_requirements: short}\n\
        \x20 - {name: good, command: 'true'}\n";
    sandbox.write("ends.yaml", spec);
    sandbox.windlass(&["run", "ends.yaml"]).exits(1);
    let names = |args: &[&str]| -> Vec<String> {
        let rows = sandbox.json(args);
        let mut names: Vec<String> =
            rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&["jobs", "--status", "failed"]), ["bad", "slow"]);
    assert_eq!(names(&["jobs", "--failed"]), ["bad", "slow"]);
    assert_eq!(names(&["jobs", "--status", "terminated"]), ["slow"]);
    assert_eq!(names(&["jobs", "--status", "completed,terminated"]), ["good", "slow"]);
    let row = &sandbox.json(&["workflows"])[0]["jobs"];
    assert_eq!((&row["completed"], &row["failed"], &row["terminated"]), (&1.into(), &1.into(), &1.into()));
    sandbox
        .windlass(&["workflows"])
        .exits(0)
        .prints("COMPLETED  FAILED  CANCELED")
        .prints("3          1       2         0");
    sandbox.windlass(&["status"]).prints("1 of 3 jobs completed (33%)");
}

/// Names and log lines with escape sequences, C1 controls and direction controls.
#[test]
fn control_characters_are_escaped_in_all_output() {
    let sandbox = Sandbox::new();
    // \033]0; sets a title, \033[35m a color that Windlass does not use, \302\233 is CSI as C1, \342\200\256
    // an override.
    let says = r"printf '\033]0;owned\007\033[35merror: \302\233 2J \342\200\256 gnp.exe \177\n' >&2; exit 3";
    let name = "w\u{202e}x\u{2066}y";
    let spec = serde_json::json!({"name": name, "jobs": [{"name": format!("j{name}"), "command": says}]});
    sandbox.write("spec.json", &spec.to_string());
    let ran = sandbox.windlass(&["run", "spec.json", "--color", "always"]);
    let is_raw = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    let check = |output: &Output, command: &str| {
        for text in [&output.stdout, &output.stderr] {
            let own = ["0", "1", "2", "31", "32", "33", "36"];
            let plain =
                own.iter().fold(text.clone(), |text, code| text.replace(&format!("\x1b[{code}m"), ""));
            assert!(!plain.contains(is_raw), "{command}: {text:?}");
        }
    };
    check(&ran, "run");
    assert!(ran.stderr.contains("\x1b["), "colors of its own are still there: {ran:?}");
    for command in [
        &["list"] as &[&str],
        &["status"],
        &["jobs", "list"],
        &["results", "list"],
        &["failures"],
        &["why", "1"],
        &["events"],
        &["logs", "analyze"],
        &["plan", "spec.json"],
        &["workflows", "get", "1"],
    ] {
        for format in ["table", "csv", "json"] {
            let output = sandbox.windlass(&[command, &["--format", format, "--color", "always"]].concat());
            check(&output, &format!("{command:?} {format}"));
            if format == "json" && output.code == 0 {
                serde_json::from_str::<serde_json::Value>(&output.stdout).unwrap();
            }
        }
    }
    let listed = sandbox.json(&["list"]);
    assert_eq!(listed[0]["name"], name, "JSON means the same");
}
