//! Workflows without a spec: jobs, files and requirements that are created, updated and deleted by commands.

use crate::common::{Sandbox, documented_keys, eventually};
use serde_json::{Value, json};

/// `a` writes a file that `b` reads; all of it is created by commands.
fn by_hand() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox
        .windlass(&["workflows", "new", "-n", "hand", "-d", "by hand"])
        .exits(0)
        .prints("workflow 1: hand");
    sandbox.windlass(&["files", "create", "1", "-n", "out", "-p", "out.txt"]).exits(0).prints("file 1: out");
    let create = |args: &[&str]| sandbox.windlass(&[&["jobs", "create"], args].concat()).exits(0);
    create(&["1", "-n", "b", "-c", "cat out.txt > copy.txt", "-i", "1"]).prints("job 1: b");
    create(&["-n", "a", "-c", "echo one > out.txt", "-o", "out"]).prints("job 2: a");
    sandbox
}

fn names(sandbox: &Sandbox) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let jobs = sandbox.json(&["jobs"]);
    jobs.as_array().unwrap().iter().map(|job| (text(&job["name"]), text(&job["status"]))).collect()
}

#[test]
fn workflow_created_by_commands_runs_and_gains_jobs() {
    let sandbox = by_hand();
    assert_eq!(
        sandbox.json(&["jobs", "get", "b"])["depends_on_job_ids"],
        json!([2]),
        "it reads what `a` writes"
    );
    sandbox.windlass(&["run", "hand"]).exits(0);
    assert_eq!(sandbox.read("copy.txt"), "one\n");
    assert_eq!(sandbox.windlass(&["workflows", "is-complete", "1"]).stdout, "true\n");

    sandbox.write("more.txt", "echo 1 > first\n\n# not this\necho 2 > second\n");
    let made =
        ["jobs", "create-from-file", "1", "more.txt", "--cpus-per-job", "1", "--runtime-per-job", "PT1M"];
    let made = sandbox.json(&made);
    documented_keys(&made);
    assert_eq!(made["job_ids"], json!([3, 4]));
    // Numbering continues after the existing jobs.
    sandbox.write("last.txt", "true\n");
    let last = sandbox.windlass(&["jobs", "create-from-file", "hand", "last.txt"]).exits(0);
    assert_eq!(last.stdout, "workflow 1: job3\n");
    sandbox.windlass(&["run", "1"]).exits(0);
    assert_eq!((sandbox.read("first"), sandbox.read("second")), ("1\n".into(), "2\n".into()));
    let asked = sandbox.json(&["jobs", "list-resource-requirements", "1", "--job-id", "job1"]);
    assert_eq!((&asked[0]["num_cpus"], &asked[0]["runtime_seconds"]), (&json!(1), &json!(60.0)));
    assert_eq!(asked[0]["memory_bytes"], 0, "what is not said limits nothing");
    assert_eq!(sandbox.json(&["status"])["state"], "completed");
}

#[test]
fn changed_job_command_reruns_job() {
    let sandbox = by_hand();
    sandbox.windlass(&["run", "1"]).exits(0);
    let update = ["jobs", "update", "a", "-c", "echo two > out.txt", "--priority", "7", "--label", "x"];
    sandbox
        .windlass(&update)
        .exits(0)
        .says("job 2 (a): command echo one > out.txt → echo two > out.txt")
        .says("priority 0 → 7");
    assert!(names(&sandbox).iter().all(|(_, status)| status == "completed"));
    let why = sandbox.windlass(&["workflows", "reinit", "1", "--dry-run"]).exits(0);
    assert!(
        why.stdout.contains("echo one > out.txt") && why.stdout.contains("echo two > out.txt"),
        "{why:?}"
    );
    sandbox.windlass(&["workflows", "reinit", "1"]).exits(0);
    sandbox.windlass(&["run", "1", "--label", "x"]).exits(0);
    assert_eq!(sandbox.read("copy.txt"), "two\n");
    sandbox.windlass(&["workflows", "reinit", "1", "--dry-run"]).exits(0).prints("nothing has changed");

    let events = sandbox.json(&["events", "--type", "jobs"]);
    let change = events.as_array().unwrap().iter().find(|event| !event["data"]["changes"].is_null()).unwrap();
    let told = &change["data"]["changes"][0];
    documented_keys(told);
    assert_eq!((&told["old"], &told["new"]), (&json!("echo one > out.txt"), &json!("echo two > out.txt")));
    sandbox.windlass(&["jobs", "update", "a"]).exits(2).says("--command");
    sandbox.windlass(&["jobs", "update", "a", "--priority", "7"]).exits(0).says("already has these values");
}

#[test]
fn objects_in_use_are_not_deleted() {
    let sandbox = by_hand();
    let made =
        ["resource-requirements", "create", "1", "-n", "big", "--num-cpus", "2", "-m", "1g", "-r", "1h"];
    let made = sandbox.json(&made);
    documented_keys(&made);
    assert_eq!((&made["num_cpus"], &made["memory_bytes"]), (&json!(2), &json!(1 << 30)));
    sandbox.windlass(&["jobs", "update", "b", "--resource-requirements-id", "big"]).exits(0);
    for (line, because) in [
        (["jobs", "delete", "a"], "job 1 (`b`) waits for it"),
        (["files", "delete", "out"], "reads or writes it"),
        (["resource-requirements", "delete", "big"], "job 1 (`b`) uses them"),
    ] {
        sandbox.windlass(&line).exits(4).says(because).says("hint:");
    }
    sandbox
        .windlass(&["resource-requirements", "update", "big", "--memory", "2g"])
        .exits(0)
        .says("2147483648");
    sandbox.windlass(&["files", "update", "out", "-p", "new.txt"]).exits(0).says("path out.txt → new.txt");
    assert_eq!(sandbox.json(&["files", "get", "out"])["path"], "new.txt");

    sandbox.windlass(&["jobs", "delete", "b", "--dry-run"]).exits(0).says("would delete job 1 (b)");
    sandbox.windlass(&["jobs", "delete", "b"]).exits(0);
    assert_eq!(names(&sandbox), [("a".into(), "ready".into())]);
    sandbox.windlass(&["resource-requirements", "delete", "big"]).exits(0);
    sandbox.windlass(&["jobs", "delete-all", "1"]).exits(4).says("--yes");
    sandbox.windlass(&["jobs", "delete-all", "1", "--no-prompts"]).exits(0);
    sandbox.windlass(&["files", "delete", "out"]).exits(0);
    assert_eq!((sandbox.json(&["jobs"]), sandbox.json(&["files"])), (json!([]), json!([])));
}

#[test]
fn results_are_deleted_by_id_and_events_are_kept() {
    let sandbox = by_hand();
    sandbox.windlass(&["run", "1"]).exits(0);
    let id = sandbox.json(&["results"])[0]["id"].to_string();
    sandbox.windlass(&["results", "delete", &id]).exits(0);
    sandbox.windlass(&["results", "delete", &id]).exits(2).says("there is no result");
    assert_eq!(sandbox.json(&["results"]).as_array().unwrap().len(), 1);
    let events = sandbox.json(&["events"]);
    let delete = ["events", "delete", &events[0]["id"].to_string()];
    sandbox.windlass(&delete).exits(4).says("was recorded by Windlass and cannot be changed or deleted");
    assert_eq!(sandbox.json(&["events"]), events);
}

#[test]
fn running_workflow_rejects_edits() {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", "name: long\njobs: [{name: wait, command: 'touch here; sleep 600'}]\n");
    let mut run = sandbox.start(&["run", "spec.yaml"]);
    eventually("the job runs", || sandbox.path("here").exists());
    for line in [
        &["jobs", "create", "1", "-n", "x", "-c", "true"][..],
        &["jobs", "update", "wait", "--priority", "1"],
        &["jobs", "delete", "wait"],
        &["files", "create", "1", "-n", "f", "-p", "f"],
    ] {
        sandbox.windlass(line).exits(4).says("is being run").says("windlass cancel 1");
    }
    crate::common::kill(run.id(), "INT");
    run.wait().unwrap();
    sandbox.windlass(&["jobs", "delete", "wait"]).exits(0);
}

#[test]
fn subcommand_takes_precedence_over_workflow_name() {
    let sandbox = by_hand();
    let listed = sandbox.windlass(&["jobs", "-f", "json", "list"]).exits(0).stdout;
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap(), sandbox.json(&["jobs", "list"]));
    sandbox.windlass(&["jobs", "-f", "csv", "get", "a"]).exits(0).prints("echo one");
}

#[test]
fn import_warns_about_changed_ids() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: data\nuser_data: [{name: u, data: 1}]\njobs:\n  - {name: reader, command: 'get ${user_data.input.u}'}\n  - {name: plain, command: sleep 1}\n",
    );
    sandbox.windlass(&["create", "spec.yaml"]).exits(0);
    sandbox.windlass(&["workflows", "export", "1", "-o", "out.json"]).exits(0);
    let import =
        sandbox.windlass(&["workflows", "import", "out.json"]).exits(0).says("job `reader`").says("(now 2)");
    assert!(!import.stderr.contains("plain"), "{import:?}");
    // An import into a database where the ids stay the same prints no notice.
    let other = sandbox.windlass(&["workflows", "import", "out.json", "--db", "other.db"]).exits(0);
    assert!(!other.stderr.contains("reader"), "{other:?}");
}
