//! Files, user data, events and other contents of a workflow; and user commands on workflows.

use crate::common::{Output, Sandbox, documented_keys};
use serde_json::{Value, json};
use std::process::Stdio;

const SPEC: &str = r"
name: parts
files:
  - {name: raw, path: in/raw.csv}
  - {name: clean, path: out/clean.csv}
user_data:
  - {name: limits, data: {low: 1}}
  - {name: best}
  - {name: wanted}
resource_requirements: [{name: small, num_cpus: 1, memory: 100m, runtime: PT5M}]
failure_handlers: [{name: again, rules: [{exit_codes: [3], max_retries: 2}]}]
actions: [{trigger_type: on_workflow_start, action_type: run_commands, commands: [echo hello]}]
jobs:
  - name: clean
    description: Removes invalid rows
    command: mkdir -p out && cp in/raw.csv out/clean.csv
    input_files: [raw]
    output_files: [clean]
    input_user_data: [limits, wanted]
    resource_requirements: small
    failure_handler: again
  - {name: fit, command: 'true', input_files: [clean], output_user_data: [best]}
";

fn with_parts() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("parts.yaml", SPEC);
    sandbox.windlass(&["create", "parts.yaml"]).exits(0);
    sandbox
}

fn names(list: &Value, field: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|row| row[field].as_str().unwrap().to_owned()).collect()
}

#[test]
fn files_are_listed_with_existence() {
    let sandbox = with_parts();
    assert_eq!(names(&sandbox.json(&["files"]), "name"), ["raw", "clean"]);
    assert_eq!(names(&sandbox.json(&["files", "list-required-existing"]), "name"), ["raw"]);
    assert_eq!(names(&sandbox.json(&["files", "list", "--produced-by-job-id", "clean"]), "name"), ["clean"]);
    assert_eq!(sandbox.json(&["files", "get", "raw"])["exists"], false);
    sandbox.write("in/raw.csv", "1,2\n");
    let raw = sandbox.json(&["files", "get", "raw"]);
    assert_eq!((&raw["exists"], &raw["size_bytes"]), (&json!(true), &json!(4)));
    assert_eq!(names(&sandbox.json(&["files", "--missing"]), "name"), ["clean"]);
    sandbox.windlass(&["files", "get", "rwa"]).exits(2).says("did you mean `raw`?");
}

#[test]
fn user_data_is_updated_created_and_deleted() {
    let sandbox = with_parts();
    assert_eq!(names(&sandbox.json(&["user-data"]), "name"), ["limits", "best", "wanted"]);
    assert_eq!(names(&sandbox.json(&["user-data", "list-missing", "1"]), "name"), ["wanted"]);
    assert_eq!(names(&sandbox.json(&["user-data", "list", "--producer-job-id", "fit"]), "name"), ["best"]);
    assert_eq!(
        names(&sandbox.json(&["user-data", "list", "--consumer-job-id", "1", "-l", "1"]), "name"),
        ["limits"]
    );
    sandbox
        .windlass(&["user-data", "update", "best", "-d", "{\"x\": 0.5}", "--dry-run"])
        .exits(0)
        .says("would change");
    assert_eq!(sandbox.json(&["user-data", "get", "best"])["data"], Value::Null);
    sandbox
        .windlass(&["user-data", "update", "best", "-d", "{\"x\": 0.5}"])
        .exits(0)
        .says("nothing → {\"x\":0.5}");
    assert_eq!(sandbox.json(&["user-data", "get", "best"])["data"]["x"], 0.5);
    sandbox.write("value.json", "[1, 2]");
    sandbox.windlass(&["user-data", "update", "2", "--data", "@value.json"]).exits(0);
    assert_eq!(sandbox.json(&["user-data", "get", "2"])["data"], json!([1, 2]));
    sandbox
        .windlass(&["user-data", "update", "best", "-d", "text"])
        .exits(2)
        .says("is not JSON")
        .says("hint:");
    sandbox.windlass(&["user-data", "update", "best", "--clear"]).exits(0);
    assert_eq!(sandbox.json(&["user-data", "get", "best"])["data"], Value::Null);

    assert_eq!(
        sandbox.json(&["user-data", "create", "-n", "seed", "-d", "7", "--ephemeral"])["is_ephemeral"],
        true
    );
    sandbox
        .windlass(&["user-data", "delete", "seed"])
        .exits(4)
        .says("confirmation is required")
        .says("--yes");
    sandbox.windlass(&["user-data", "delete", "seed", "--yes"]).exits(0);
    sandbox.windlass(&["user-data", "get", "seed"]).exits(2).says("has no user data `seed`");
}

#[test]
fn job_passes_user_data_to_dependent() {
    let sandbox = Sandbox::new();
    let spec = r#"
name: pass
user_data: [{name: best}]
jobs:
  - name: find
    command: |
      WINDLASS user-data update ${user_data.output.best} --data '{"x": 3}'
  - name: use
    command: WINDLASS -f json user-data get ${user_data.input.best}
"#;
    sandbox.write("pass.yaml", &spec.replace("WINDLASS", env!("CARGO_BIN_EXE_windlass")));
    sandbox.windlass(&["run", "pass.yaml"]).exits(0);
    sandbox.windlass(&["logs", "use", "--stdout"]).exits(0).prints("\"x\": 3");
}

#[test]
fn job_dependencies_and_relations_are_listed() {
    let sandbox = with_parts();
    let waits = sandbox.json(&["job-dependencies", "job-job"]);
    assert_eq!(names(&waits, "job_name"), ["fit"]);
    assert_eq!(names(&waits, "depends_on_job_name"), ["clean"]);
    let uses = sandbox.json(&["job-dependencies", "job-file", "1"]);
    assert_eq!(names(&uses, "file_name"), ["raw", "clean", "clean"]);
    assert_eq!(names(&uses, "direction"), ["input", "output", "input"]);
    let uses = sandbox.json(&["job-dependencies", "job-user-data"]);
    assert_eq!(names(&uses, "user_data_name"), ["limits", "wanted", "best"]);
    assert_eq!(names(&sandbox.json(&["jobs", "--upstream-job-id", "clean"]), "name"), ["fit"]);
    assert_eq!(sandbox.json(&["jobs", "list", "--upstream-job-id", "fit"]), json!([]));
    let jobs = sandbox.json(&["jobs", "list", "--include-relationships"]);
    assert_eq!(jobs[1]["depends_on_job_ids"], json!([1]));
    assert_eq!(jobs[0]["input_file_ids"], json!([1]));
    assert_eq!(sandbox.json(&["jobs", "get", "fit"])["output_user_data_ids"], json!([2]));
}

#[test]
fn requirements_failure_handlers_and_actions_are_listed() {
    let sandbox = with_parts();
    let small = sandbox.json(&["resource-requirements", "get", "small"]);
    assert_eq!((&small["memory_bytes"], &small["runtime_seconds"]), (&json!(100 << 20), &json!(300.0)));
    assert_eq!(names(&sandbox.json(&["resource-requirements"]), "name"), ["small"]);
    let again = sandbox.json(&["failure-handlers", "get", "again"]);
    assert_eq!(again["rules"][0]["max_retries"], 2);
    let id = again["id"].to_string();
    assert_eq!(sandbox.json(&["failure-handlers", "get", &id])["name"], "again");
    let action = &sandbox.json(&["workflows", "list-actions"])[0];
    assert_eq!(
        (&action["trigger_type"], &action["commands"]),
        (&json!("on_workflow_start"), &json!(["echo hello"]))
    );
    sandbox
        .windlass(&["workflows", "list-actions"])
        .exits(0)
        .prints("on_workflow_start")
        .prints("echo hello");
    assert_eq!(sandbox.json(&["jobs", "list-resource-requirements"])[0]["memory_bytes"], 100 << 20);
    let handled = sandbox.json(&["jobs", "list-failure-handlers"]);
    assert_eq!(
        (&handled[0]["failure_handler"], &handled[1]["failure_handler"]),
        (&json!("again"), &Value::Null)
    );
}

#[test]
fn events_name_user_and_action() {
    let sandbox = with_parts();
    sandbox.windlass(&["user-data", "update", "best", "-d", "1"]).exits(0);
    let events = sandbox.json(&["events"]);
    let last = events.as_array().unwrap().last().unwrap();
    assert_eq!(last["actor"], "tester");
    assert_eq!(sandbox.json(&["events", "get-latest-event"])["id"], last["id"]);
    sandbox
        .windlass(&["events", "create", "-d", "{\"message\": \"lunch\", \"n\": 1}", "--level", "warning"])
        .exits(0);
    let warnings = sandbox.json(&["events", "list", "1", "--level", "warning"]);
    assert_eq!(warnings.as_array().unwrap().len(), 1);
    assert_eq!((&warnings[0]["message"], &warnings[0]["data"]["n"]), (&json!("lunch"), &json!(1)));
    assert_eq!(sandbox.json(&["events", "list", "-t", "user", "-r", "-l", "1"])[0]["message"], "lunch");
}

#[test]
fn events_follow_ends_with_workflow() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "slow.yaml",
        "name: slow\njobs: [{name: a, command: 'while [ ! -e go ]; do sleep 0.05; done'}]\n",
    );
    sandbox.windlass(&["create", "slow.yaml"]).exits(0);
    let mut run = sandbox.start(&["resume"]);
    crate::common::eventually("the job runs", || sandbox.json(&["jobs", "running"]) != json!([]));
    let mut follow = sandbox.command(&["events", "follow", "--filename", "events.ndjson", "-f", "json"]);
    let follow = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    crate::common::eventually("the follower has begun", || sandbox.path("events.ndjson").exists());
    // It reads the newest event after it has created the file, so new events are created until one is printed.
    crate::common::eventually("an event is followed", || {
        sandbox.windlass(&["events", "create", "-d", "hello"]).exits(0);
        sandbox.read("events.ndjson").contains("hello")
    });
    sandbox.write("go", "");
    assert!(run.wait().unwrap().success());
    let output = follow.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("\"message\":\"hello\""));
}

#[test]
fn workflows_are_archived_and_unarchived() {
    let sandbox = with_parts();
    sandbox.windlass(&["create", "parts.yaml"]).exits(0);
    sandbox.windlass(&["workflows", "archive", "2", "--dry-run"]).exits(0).prints("would be archived");
    sandbox.windlass(&["workflows", "archive", "2"]).exits(0).prints("archived");
    assert_eq!(sandbox.json(&["status"])["id"], 1);
    assert_eq!(sandbox.json(&["list"]).as_array().unwrap().len(), 1);
    assert_eq!(sandbox.json(&["list", "--archived-only"])[0]["id"], 2);
    assert_eq!(sandbox.json(&["list", "--include-archived"]).as_array().unwrap().len(), 2);
    sandbox.windlass(&["workflows", "archive", "true", "1"]).exits(0);
    sandbox.windlass(&["status"]).exits(2).says("all workflows are archived");
    sandbox.windlass(&["workflows", "archive", "false", "1"]).exits(0).prints("restored");
    sandbox.windlass(&["workflows", "archive", "--restore", "1-2"]).exits(0);
    assert_eq!(sandbox.json(&["status"])["id"], 2);
}

#[test]
fn delete_requires_confirmation_and_idle_workflow() {
    let sandbox = with_parts();
    sandbox.windlass(&["create", "parts.yaml"]).exits(0);
    sandbox.windlass(&["delete", "1-2"]).exits(4).says("workflow 1 (parts, 2 jobs)").says("--yes");
    sandbox.windlass(&["delete", "1", "--dry-run"]).exits(0).prints("would be deleted");
    assert_eq!(sandbox.json(&["list"]).as_array().unwrap().len(), 2);
    sandbox.windlass(&["delete", "1", "--no-prompts"]).exits(0).prints("deleted");
    sandbox.windlass(&["status", "1"]).exits(2);
    assert_eq!(sandbox.json(&["list"]).as_array().unwrap().len(), 1);

    sandbox.write("slow.yaml", "name: slow\njobs: [{name: a, command: 'echo > started; sleep 600'}]\n");
    let mut run = sandbox.start(&["run", "slow.yaml"]);
    crate::common::eventually("the job has started", || sandbox.path("started").exists());
    sandbox.windlass(&["delete", "3", "--yes"]).exits(4);
    sandbox.windlass(&["cancel", "3", "--grace", "1s", "--wait"]).exits(0);
    run.wait().unwrap();
    sandbox.windlass(&["delete", "3", "--yes"]).exits(0);
}

#[test]
fn workflow_description_and_metadata_are_updated() {
    let sandbox = with_parts();
    let change =
        ["workflows", "update", "last", "-n", "renamed", "-d", "for the paper", "--project", "ocean"];
    sandbox.windlass(&[&change[..], &["--metadata", "{\"grid\": 12}"]].concat()).exits(0).says("renamed");
    let changed = sandbox.json(&["workflows", "get", "renamed"]);
    assert_eq!((&changed["description"], &changed["project"]), (&json!("for the paper"), &json!("ocean")));
    assert_eq!(changed["metadata"], json!({"grid": 12}));
    sandbox.windlass(&["workflows", "update", "1", "--description", ""]).exits(0);
    assert_eq!(sandbox.json(&["workflows", "get"])["description"], Value::Null);
    sandbox.windlass(&["workflows", "update", "1"]).exits(2).says("no changes given");
    sandbox.windlass(&["workflows", "update", "1", "--metadata", "[1]"]).exits(2).says("not a JSON object");
}

#[test]
fn confirmation_without_terminal_is_an_error() {
    let sandbox = with_parts();
    let output = Output::of(sandbox.command(&["delete", "last"]).stdin(Stdio::null())).exits(4);
    assert!(output.stderr.contains("hint:"), "{}", output.stderr);
    assert_eq!(sandbox.json(&["list"]).as_array().unwrap().len(), 1);
}

#[test]
fn workflow_is_exported_and_imported() {
    let sandbox = with_parts();
    sandbox.write("in/raw.csv", "1,2\n");
    sandbox.windlass(&["user-data", "update", "wanted", "-d", "1"]).exits(0);
    sandbox.windlass(&["run", "1"]).exits(0);
    sandbox
        .windlass(&["workflows", "export", "--include-results", "-o", "parts.json"])
        .exits(0)
        .says("2 jobs");
    let file: Value = serde_json::from_str(&sandbox.read("parts.json")).unwrap();
    assert_eq!(file["workflow"]["name"], "parts");
    assert_eq!(sandbox.json(&["workflows", "export", "1"])["export_version"], "1.0");

    let with_results = sandbox.json(&["workflows", "import", "parts.json", "--name", "copy"]);
    assert_eq!(with_results, json!({"workflow_id": 2, "name": "copy", "jobs": 2}));
    assert_eq!(sandbox.json(&["status", "copy"])["state"], "completed");
    for workflow in ["1", "2"] {
        assert_eq!(sandbox.json(&["jobs", "list", workflow])[0]["description"], "Removes invalid rows");
    }
    sandbox.windlass(&["jobs", "get", "1"]).exits(0).prints("Removes invalid rows");
    sandbox
        .windlass(&["workflows", "import", "parts.json", "--skip-results"])
        .exits(0)
        .says("windlass resume 3");
    assert_eq!(sandbox.json(&["status", "3"])["state"], "created");
    sandbox.windlass(&["resume", "3"]).exits(0);

    let elsewhere = Sandbox::new();
    elsewhere.write(
        "parts.json",
        &sandbox
            .read("parts.json")
            .replace("submission_directory\": \"/", "submission_directory\": \"/gone/"),
    );
    elsewhere.windlass(&["workflows", "import", "parts.json", "--skip-results"]).exits(0);
    let here = elsewhere.path(".").canonicalize().unwrap();
    assert_eq!(elsewhere.json(&["status"])["submission_dir"], here.to_str().unwrap());

    sandbox.windlass(&["workflows", "import", "parts.yaml"]).exits(2).says("is not an exported workflow");
    sandbox.windlass(&["workflows", "import", "nothing.json"]).exits(2).says("cannot read nothing.json");
    sandbox.write("new.json", &sandbox.read("parts.json").replacen("\"1.0\"", "\"9.0\"", 1));
    sandbox.windlass(&["workflows", "import", "new.json"]).exits(4).says("version 9.0");
}

#[test]
fn list_fields_are_documented() {
    let sandbox = with_parts();
    for list in [
        "files",
        "user-data",
        "events",
        "resource-requirements",
        "failure-handlers",
        "workflows list-actions",
        "job-dependencies job-job",
        "job-dependencies job-file",
        "job-dependencies job-user-data",
        "jobs --include-relationships",
        "jobs list-resource-requirements",
        "jobs list-failure-handlers",
        "config show --origin",
        "config show",
        "config paths",
        "archive last --dry-run",
        "delete last --dry-run",
    ] {
        let rows = sandbox.json(&list.split(' ').collect::<Vec<_>>());
        assert!(documented_keys(&rows[0]).len() >= 3, "{list}");
    }
}

/// Log files are named by numbers that are unique only within one database.
#[test]
fn log_directory_belongs_to_one_database() {
    let sandbox = Sandbox::new();
    sandbox.write("x.yaml", "name: x\njobs: [{name: a, command: echo I am x}]\n");
    sandbox.write("y.yaml", "name: y\njobs: [{name: a, command: echo I am y}]\n");
    sandbox.windlass(&["--db", "a.db", "run", "x.yaml"]).exits(0);
    let named = ["--db", "b.db", "run", "y.yaml", "--new", "-o", "./windlass_output"];
    sandbox.windlass(&named).exits(4).says("a.db").says("--output-dir");
    assert!(!sandbox.path("b.db").exists(), "nothing was made");
    sandbox.windlass(&["--db", "b.db", "run", "y.yaml"]).exits(0);
    assert!(sandbox.path("windlass_output.b/job_stdio/job_wf1_j1_r1_a1.o").exists());
    sandbox.windlass(&["--db", "a.db", "logs", "a"]).exits(0).prints("I am x");
    // If the database was deleted, a new one may use the directory.
    std::fs::remove_file(sandbox.path("a.db")).unwrap();
    sandbox.windlass(&["--db", "a.db", "run", "y.yaml"]).exits(0);
}

#[test]
fn imported_workflow_runs_in_import_directory() {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", "name: w\njobs: [{name: a, command: pwd > here}]\n");
    sandbox.windlass(&["create", "spec.yaml"]).exits(0);
    sandbox.windlass(&["workflows", "export", "-o", "w.json"]).exits(0);
    std::fs::create_dir(sandbox.path("elsewhere")).unwrap();
    let there = |args: &[&str]| {
        crate::common::Output::of(sandbox.command(args).current_dir(sandbox.path("elsewhere"))).exits(0)
    };
    there(&["--db", "there.db", "import", "../w.json"]).says("next: windlass resume 1");
    there(&["--db", "there.db", "resume"]);
    assert!(sandbox.path("elsewhere/here").exists() && !sandbox.path("here").exists());
}
