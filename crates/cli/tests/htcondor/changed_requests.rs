//! Requests that an operator changes while they are held: the changes apply to real jobs of the remaining work.
//! All requests run at the same time.

use crate::queries::{attempts, await_status, directory, last, runs};
use crate::step_commands::{path, reading, submit, unless, until};
use crate::support::{Pool, SITES, eventually};
use crate::test_server::{TestServer, fails_with};
use serde_json::{Value, json};
use std::fs;

#[test]
fn operator_changes_apply_to_remaining_jobs() {
    let pool = Pool::shared();
    let test_server = TestServer::open(&pool, "changed");
    test_server.add_files("one", 0..1, "/Muons/One-v1/RAW", &[SITES[3]]);
    test_server.add_files("two", 0..2, "/Muons/Two-v1/RAW", &[SITES[3]]);
    test_server.add_files("here", 0..5, "/Muons/Apart-v1/RAW", &[SITES[0]]);
    test_server.add_files("there", 5..6, "/Muons/Apart-v1/RAW", &[SITES[1], SITES[2]]);

    submit_hungry(&test_server);
    submit(&test_server, "removed", "/Muons/Two-v1/RAW", 1, &reading("f1", &until(&test_server, "go")));
    let bad = path(&test_server, "bad");
    let broken = format!(
        "[ -e {bad} ] || echo $WINDLASS_SITE > {bad}; [ $(cat {bad}) != $WINDLASS_SITE ] || {{ {}; }}",
        fails_with(8501)
    );
    submit(&test_server, "exhausted", "/Muons/Apart-v1/RAW", 1, &reading("f5", &broken));

    let done_once = remove_while_held(&pool, &test_server);
    fewer_retries_then_more_memory(&test_server);
    ban_when_rescues_are_used_up(&test_server);

    for (name, files) in [("removed", 2), ("hungry", 1), ("exhausted", 6)] {
        await_status(&test_server, name, "completed");
        test_server.check_files(name, 0..files);
    }
    check_removed(&test_server, done_once);
    check_memory(&pool, &test_server);
    check_banned(&test_server);
}

/// The job fails at first, then exceeds its memory until it is killed, then uses as much memory and succeeds.
fn submit_hungry(test_server: &TestServer) {
    let first = |file: &str, what: &str| {
        unless(test_server, file, &format!("touch {}; {what}", path(test_server, file)))
    };
    let takes =
        |seconds: u32| format!("python3 -c \"import time; x = b'x' * (2200 << 20); time.sleep({seconds})\"");
    let trouble = [first("broken", &fails_with(8501)), first("endless", &takes(600)), takes(5)].join("; ");
    submit(test_server, "hungry", "/Muons/One-v1/RAW", 1, &trouble);
}

/// Waits until its last run has this number and has failed, and an operator has to decide.
fn await_held(test_server: &TestServer, name: &str, number: usize) {
    eventually(&format!("run {number} of {name} has failed"), || {
        let (status, runs) = (test_server.status(name), runs(test_server, name));
        assert!(status != "completed", "{runs:#?}");
        status == "held" && runs.len() == number && runs[number - 1]["completed_at"].is_string()
    });
}

/// both changes are visible in the jobs, and the number of retries stays as it was set.
fn fewer_retries_then_more_memory(test_server: &TestServer) {
    await_held(test_server, "hungry", 1);
    test_server.windlass(&[
        "request",
        "release",
        "hungry",
        "--rescue",
        "--retries",
        "0",
        "--reason",
        "it is fixed",
    ]);
    await_held(test_server, "hungry", 2);
    test_server.windlass(&[
        "request",
        "release",
        "hungry",
        "--rescue",
        "--memory",
        "2900m",
        "--reason",
        "it needs more",
    ]);
}

/// The attempts of the only processing node, with the outcome of each.
fn hungry_node(test_server: &TestServer) -> Value {
    let report = directory(&last(test_server, "hungry")).join("mg_000000/proc_000000.post.json");
    serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap()
}

fn check_memory(pool: &Pool, test_server: &TestServer) {
    let all = attempts(&last(test_server, "hungry"));
    let node: Vec<&Value> = all.iter().filter(|attempt| attempt["node"] == "proc_000000").collect();
    let classes: Vec<&str> =
        node.iter().map(|attempt| attempt["failure"]["class"].as_str().unwrap_or("none")).collect();
    assert_eq!(classes, ["permanent", "memory", "none"], "once in each run: {node:#?}");
    assert_eq!(hungry_node(test_server)["max_retries"], 0, "{:#}", hungry_node(test_server));
    let asked: Vec<String> = node
        .iter()
        .map(|attempt| {
            let job = attempt["job"].as_str().unwrap();
            pool.condor("condor_history", &[job, "-autoformat", "RequestMemory"]).trim().to_owned()
        })
        .collect();
    assert_eq!(asked, ["2000", "2000", "2900"]);
}

/// A DAGMan that is removed while held writes no rescue file. Returns how often the completed unit had
/// submitted jobs.
fn remove_while_held(pool: &Pool, test_server: &TestServer) -> usize {
    eventually("one of its units is completed", || last(test_server, "removed")["work_units_completed"] == 1);
    let run = last(test_server, "removed");
    test_server.windlass(&["request", "dag", "hold", "removed", "--reason", "others first"]);
    let cluster = run["dagman_cluster_id"].as_str().unwrap();
    assert_eq!(pool.condor("condor_q", &[cluster, "-autoformat", "JobStatus"]), "5\n");
    test_server.windlass(&["request", "dag", "remove", "removed", "--yes", "--reason", "not now"]);
    await_held(test_server, "removed", 1);
    assert!(!directory(&run).join(RESCUE).exists(), "DAGMan left no rescue file");
    test_server.work.write("go", "");
    test_server.windlass(&["request", "dag", "rescue", "removed", "--reason", "now"]);
    submissions(&run)
}

const RESCUE: &str = "workflow.dag.rescue001";

fn submissions(run: &Value) -> usize {
    let log = fs::read_to_string(directory(run).join("mg_000000/group.dag.nodes.log")).unwrap();
    log.lines().filter(|line| line.starts_with("000 (")).count()
}

fn check_removed(test_server: &TestServer, done_once: usize) {
    let chain = runs(test_server, "removed");
    let [first, second] = &chain[..] else { panic!("{chain:#?}") };
    assert_eq!((&second["submit_dir"], &second["work_units_completed"]), (&first["submit_dir"], &json!(2)));
    let rescue = fs::read_to_string(directory(first).join(RESCUE)).unwrap();
    assert!(rescue.starts_with("# Written by windlass") && rescue.contains("DONE mg_000000\n"), "{rescue}");
    assert_eq!(submissions(first), done_once, "completed units do not run again");
}

/// E 3.3: three rescues fail as the run did, then an operator finds the cause.
fn ban_when_rescues_are_used_up(test_server: &TestServer) {
    await_held(test_server, "exhausted", 4);
    let shown = test_server.request("exhausted");
    assert!(shown["reason"].as_str().unwrap().contains("maximum of 3 rescues"), "{shown:#}");
    let bad = fs::read_to_string(path(test_server, "bad")).unwrap();
    test_server.windlass(&[
        "request",
        "release",
        "exhausted",
        "--ban",
        bad.trim(),
        "--reason",
        "that site is bad",
    ]);
}

fn check_banned(test_server: &TestServer) {
    let chain = runs(test_server, "exhausted");
    let (last, round) = chain.split_last().unwrap();
    assert!(round.len() == 4 && round.iter().all(|run| run["round"] == 0), "{chain:#?}");
    let units = (&last["round"], &last["total_work_units"], &last["work_units_completed"]);
    assert_eq!(units, (&json!(1), &json!(1), &json!(1)), "the failed units, and nothing else: {last:#}");
    let bad = fs::read_to_string(path(test_server, "bad")).unwrap();
    let made = attempts(last);
    assert!(!made.is_empty() && made.iter().all(|attempt| attempt["site"] != bad.trim()), "{made:#?}");
}
