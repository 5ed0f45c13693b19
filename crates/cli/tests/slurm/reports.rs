//! Reports about finished allocations: by the commands, as JSON and as tables, and for agents.

use crate::support::{Cluster, eventually, windlass};
use crate::test_server::TestServer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/slurm.yaml");

/// A step that ends, and one that runs until its allocation is canceled.
const STEPS: &str = "\
name: steps
execution_config: {mode: slurm, sigkill_headroom_seconds: 5}
resource_requirements: [{name: small, num_cpus: 1, memory: 100m, runtime: PT2M}]
slurm_schedulers:
  - {name: one, account: lab, partition: standard, ntasks_per_node: 1, mem: 400M, walltime: '00:10:00', extra: '--cpus-per-task=2'}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: one, scheduler_type: slurm, num_allocations: 1}
jobs:
  - {name: brief, command: sleep 1, resource_requirements: small, scheduler: one}
  - {name: long, command: sleep 100, resource_requirements: small, scheduler: one}
";

/// Runs the example from `submit` until its allocations have ended.
fn study<'a>(cluster: &'a Cluster, name: &str) -> TestServer<'a> {
    let test_server = TestServer::with_reconciler(cluster, name);
    test_server.windlass(&["submit", "--slurm", "--account", "lab", EXAMPLE]);
    eventually("the example is done", || test_server.jobs().values().all(|status| status == "completed"));
    assert_eq!(test_server.work.read("study/total").trim(), "36");
    eventually("its allocations have ended", || {
        test_server
            .allocations()
            .iter()
            .all(|row| ["ended", "withdrawn"].contains(&row["state"].as_str().unwrap()))
    });
    test_server
}

/// The output of a command on a terminal of 80 columns: lines fit, and each of these texts is there.
#[track_caller]
fn fits(test_server: &TestServer<'_>, arguments: &[&str], wanted: &[&str]) -> String {
    let shown = test_server.on_terminal(arguments);
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{arguments:?}: {line:?} is too long in\n{shown}");
    }
    for text in wanted {
        assert!(shown.contains(text), "{arguments:?}: no `{text}` in\n{shown}");
    }
    shown
}

fn calls(test_server: &TestServer<'_>, command: &str) -> u64 {
    let told = test_server.json(&["slurm", "rpc"]);
    let commands = told["commands"].as_array().unwrap().iter();
    commands.filter(|of| of["command"] == command).filter_map(|of| of["last_day"]["calls"].as_u64()).sum()
}

#[test]
fn slurm_reports_show_outcome_of_allocations() {
    let cluster = Cluster::shared();
    let test_server = study(&cluster, "reports");
    let plan = ["slurm", "plan", EXAMPLE, "--account", "lab"];
    let planned = test_server.json(&plan);
    assert!(planned[0]["core_hours"].as_f64().unwrap() > 0.0, "{planned}");
    fits(&test_server, &plan, &["SCHEDULER", "ALLOCS", "CORE-H", "START"]);

    // Where the core-hours went: each is counted once.
    let usage = test_server.json(&["slurm", "usage", "1"]);
    let number = |name: &str| usage["total"][name].as_f64().unwrap();
    let (given, claimed) = (number("given_core_hours"), number("used_core_hours"));
    assert!(claimed > 0.0 && claimed <= given && given <= number("asked_core_hours"), "{usage}");
    assert!((given - claimed - number("idle_core_hours")).abs() < 0.002, "{usage}");
    let allocations = test_server.allocations();
    // Others were canceled while pending: no jobs were left for them.
    let began = allocations.iter().filter(|row| row["end"] == "COMPLETED").count();
    assert_eq!(usage["allocations"].as_array().unwrap().len(), allocations.len(), "{usage}");
    fits(&test_server, &["slurm", "usage", "1"], &["REQ", "ALLOC", "IDLE", "USE", "COMPLETED"]);

    // Records of accounting; the server queries them, and counts the query.
    let before = calls(&test_server, "sacct");
    let mut booked = Value::Null;
    eventually("accounting knows that they have ended", || {
        booked = test_server.json(&["slurm", "sacct", "1"]);
        let whole = booked.as_array().unwrap().iter().filter(|row| row["step"].is_null());
        whole.filter(|row| row["state"] == "COMPLETED").count() == began
    });
    let ids: Vec<&Value> = allocations.iter().map(|row| &row["id"]).collect();
    assert!(booked.as_array().unwrap().iter().all(|row| ids.contains(&&row["allocation_id"])), "{booked}");
    eventually("the query was counted", || calls(&test_server, "sacct") > before);
    fits(&test_server, &["slurm", "sacct", "1"], &["SLURM", "STATE", "ELAPSED", "COMPLETED"]);
    let none = test_server.json(&["slurm", "stats", "1"]);
    assert_eq!(none, json!([]), "none of its jobs ran as a step");
    assert_eq!(test_server.json(&["slurm", "logs", "1", "--errors-only"]), json!([]));

    let trail = test_server.json(&["slurm", "audit", "1"]);
    let count = |what: &str| trail.as_array().unwrap().iter().filter(|step| step["what"] == what).count();
    assert_eq!((count("asked"), count("ended")), (allocations.len(), allocations.len()), "{trail}");
    fits(&test_server, &["slurm", "audit", "1"], &["WHAT", "asked", "submitting", "ended", "tag "]);
    fits(&test_server, &["slurm", "rpc"], &["squeue", "sbatch", "sacct", "MEAN TIME"]);
    fits(&test_server, &["slurm", "allocations", "1"], &["SCHEDULER", "ended"]);
}

#[test]
fn slurm_reports_show_step_usage_and_end_reason() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "steps-told");
    test_server.submit(STEPS);
    test_server.await_status("brief", "completed");
    test_server.await_status("long", "running");
    let row = test_server.await_allocation("it runs", |row| row["state"] == "running");
    test_server.windlass(&["slurm", "cancel", &row["id"].to_string(), "--reason", "enough"]);
    let row = test_server.await_allocation("it has ended", |row| row["state"] == "ended");
    assert_eq!(row["end"], "CANCELLED", "{row}");

    let mut stats = Value::Null;
    eventually("accounting has both steps", || {
        stats = test_server.json(&["slurm", "stats", "1"]);
        stats.as_array().unwrap().len() == 2
    });
    let of =
        |name: &str| stats.as_array().unwrap().iter().find(|one| one["job_name"] == name).unwrap().clone();
    let job = row["slurm_job_id"].to_string();
    assert_eq!(
        (&of("brief")["attempt_id"], &of("brief")["slurm_job_id"]),
        (&json!(1), &json!(job)),
        "{stats}"
    );
    assert_eq!(test_server.json(&["slurm", "stats", "1"]), stats, "stored records are stored once");
    fits(&test_server, &["slurm", "stats", "1"], &["JOB", "brief", "long", "MAX RSS", "CPU S"]);
    let booked = test_server.json(&["slurm", "sacct", "1"]);
    let steps: Vec<&str> =
        booked.as_array().unwrap().iter().filter_map(|row| row["job_name"].as_str()).collect();
    assert_eq!(steps.len(), 2, "{booked}");

    // Slurm's own message, with its meaning, beside the allocation and the job that was lost with it.
    let mut told = Value::Null;
    eventually("Slurm has written that it was canceled", || {
        told = test_server.json(&["slurm", "logs", "1"]);
        told.as_array().unwrap().iter().any(|found| found["text"].as_str().unwrap().contains("CANCELLED AT"))
    });
    let found =
        told.as_array().unwrap().iter().find(|found| found["text"].as_str().unwrap().contains("CANCELLED"));
    let found = found.unwrap();
    assert_eq!(
        (&found["allocation_id"], &found["allocation_end"]),
        (&row["id"], &json!("CANCELLED")),
        "{found}"
    );
    assert!(found["means"].as_str().is_some_and(|means| !means.is_empty()), "{found}");
    let shown = test_server.windlass(&["slurm", "logs", "1"]);
    assert!(shown.contains(&format!("(Slurm job {job}): CANCELLED")), "{shown}");
    assert!(shown.contains("did not complete there: long"), "{shown}");
}

/// The output of a script with the official SDK.
#[track_caller]
fn session(test_server: &TestServer<'_>, arguments: &[&str]) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("../../target"), PathBuf::from);
    let python = target.join("torc-client/bin/python");
    assert!(python.exists(), "{} is missing: `cargo xtask test` installs it", python.display());
    let mut command = test_server.command_of(&python);
    command.arg(root.join("tests/mcp/slurm.py")).arg(EXAMPLE).args(arguments);
    command.env("PYTHONDONTWRITEBYTECODE", "1").stderr(Stdio::piped());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn saw_the_cluster(seen: &Value, allocations: &[Value]) {
    let sacct = &seen["sacct"];
    assert_eq!(sacct["count"], allocations.len(), "{sacct}");
    assert_eq!(sacct["accounts_trouble"], Value::Null, "{sacct}");
    let job = &allocations[0]["slurm_job_id"];
    let told = sacct["allocations"].as_array().unwrap();
    assert!(
        told.iter().any(|row| row["slurm_job_id"] == *job && row["slurm_state"] == "COMPLETED"),
        "{sacct}"
    );
    let booked = sacct["accounts"].as_array().unwrap();
    let whole = booked.iter().find(|row| row["slurm_job_id"] == *job && row["step"].is_null()).unwrap();
    assert_eq!(whole["allocation_id"], allocations[0]["id"], "{whole}");
    let groups = seen["plan"]["groups"].as_array().unwrap();
    assert!(groups[0]["start"].as_str().unwrap().starts_with("20"), "{groups:?}");
    assert_eq!((&groups[0]["partition"], groups[0]["allocations"].is_u64()), (&json!("standard"), true));
    assert_eq!(seen["offline"]["groups"][0]["start"], Value::Null);
    let said = |name: &str| seen[name].as_str().unwrap();
    assert!(said("huge").contains("job `a` fits no partition"), "{}", said("huge"));
    assert!(said("mistaken").contains("check_spec"), "{}", said("mistaken"));
    assert!(said("sly").contains("account: only letters"), "{}", said("sly"));
}

#[test]
fn agents_read_slurm_reports_on_server_and_login_node() {
    let cluster = Cluster::shared();
    let test_server = TestServer::served(
        &cluster,
        "agents",
        &["--slurm", "--slurm-poll", "1s", "--slurm-calls", "600", "--mcp"],
    );
    test_server.windlass(&["submit", "--slurm", "--account", "lab", EXAMPLE]);
    eventually("the example is done", || test_server.jobs().values().all(|status| status == "completed"));
    let is_over = |row: &Value| ["ended", "withdrawn"].contains(&row["state"].as_str().unwrap());
    eventually("its allocations have ended", || test_server.allocations().iter().all(is_over));
    let allocations: Vec<Value> = test_server.allocations();
    eventually("accounting has the first", || {
        let booked = test_server.json(&["slurm", "sacct", "1"]);
        booked.as_array().unwrap().iter().any(|row| row["slurm_job_id"] == allocations[0]["slurm_job_id"])
    });

    let before = calls(&test_server, "sinfo");
    let (url, token) = test_server.address();
    let seen = session(&test_server, &["http", &url, &token, "1"]);
    saw_the_cluster(&seen, &allocations);
    eventually("the queries of the agent were counted", || calls(&test_server, "sinfo") > before);
    let program = windlass().display().to_string();
    let seen = session(&test_server, &["stdio", &program, "1", "--allow-write"]);
    saw_the_cluster(&seen, &allocations);
    made_for_slurm(&test_server, &seen);
}

/// The spec was completed with Slurm settings, and no workflow was created from specs that cannot run.
#[track_caller]
fn made_for_slurm(test_server: &TestServer<'_>, seen: &Value) {
    assert_eq!(seen["validated"]["valid"], true, "{seen}");
    assert!(seen["validated"]["summary"]["action_count"].as_u64().unwrap() > 0, "{seen}");
    let id = seen["made"]["workflow_id"].to_string();
    let schedulers = test_server.json(&["slurm", "list", &id]);
    let schedulers = schedulers.as_array().unwrap();
    assert!(!schedulers.is_empty() && schedulers.iter().all(|one| one["account"] == "lab"), "{schedulers:?}");
    let said = |name: &str| seen[name].as_str().unwrap();
    assert!(said("unfit").contains("job `a` fits no partition"), "{}", said("unfit"));
    assert!(said("free").contains("no Slurm account given"), "{}", said("free"));
    assert!(said("local").contains("set workflow_type to slurm"), "{}", said("local"));
    assert_eq!(
        test_server.json(&["workflows"]).as_array().unwrap().len(),
        2,
        "one by `submit`, one by the agent"
    );
}
