//! Requests that an operator changes while they are held: the changes apply to real jobs of the remaining work.
//! All requests run at the same time.

use crate::queries::{attempts, await_status, directory, last, runs};
use crate::step_commands::{path, reading, submit, unless, until};
use crate::support::{Pool, SITES, eventually};
use crate::test_server::{House, fails_with};
use serde_json::{Value, json};
use std::fs;

#[test]
fn operator_changes_apply_to_remaining_jobs() {
    let pool = Pool::shared();
    let house = House::open(&pool, "changed");
    house.add_files("one", 0..1, "/Muons/One-v1/RAW", &[SITES[3]]);
    house.add_files("two", 0..2, "/Muons/Two-v1/RAW", &[SITES[3]]);
    house.add_files("here", 0..5, "/Muons/Apart-v1/RAW", &[SITES[0]]);
    house.add_files("there", 5..6, "/Muons/Apart-v1/RAW", &[SITES[1], SITES[2]]);

    submit_hungry(&house);
    submit(&house, "removed", "/Muons/Two-v1/RAW", 1, &reading("f1", &until(&house, "go")));
    let bad = path(&house, "bad");
    let broken = format!(
        "[ -e {bad} ] || echo $WINDLASS_SITE > {bad}; [ $(cat {bad}) != $WINDLASS_SITE ] || {{ {}; }}",
        fails_with(8501)
    );
    submit(&house, "exhausted", "/Muons/Apart-v1/RAW", 1, &reading("f5", &broken));

    let done_once = remove_while_held(&pool, &house);
    fewer_retries_then_more_memory(&house);
    ban_when_rescues_are_used_up(&house);

    for (name, files) in [("removed", 2), ("hungry", 1), ("exhausted", 6)] {
        await_status(&house, name, "completed");
        house.check_files(name, 0..files);
    }
    check_removed(&house, done_once);
    check_memory(&pool, &house);
    check_banned(&house);
}

/// The job fails at first, then exceeds its memory until it is killed, then uses as much memory and succeeds.
fn submit_hungry(house: &House) {
    let first = |file: &str, what: &str| unless(house, file, &format!("touch {}; {what}", path(house, file)));
    let takes =
        |seconds: u32| format!("python3 -c \"import time; x = b'x' * (2200 << 20); time.sleep({seconds})\"");
    let trouble = [first("broken", &fails_with(8501)), first("endless", &takes(600)), takes(5)].join("; ");
    submit(house, "hungry", "/Muons/One-v1/RAW", 1, &trouble);
}

/// Waits until its last run has this number and has failed, and an operator has to decide.
fn await_held(house: &House, name: &str, number: usize) {
    eventually(&format!("run {number} of {name} has failed"), || {
        let (status, runs) = (house.status(name), runs(house, name));
        assert!(status != "completed", "{runs:#?}");
        status == "held" && runs.len() == number && runs[number - 1]["completed_at"].is_string()
    });
}

/// both changes are visible in the jobs, and the number of retries stays as it was set.
fn fewer_retries_then_more_memory(house: &House) {
    await_held(house, "hungry", 1);
    house.windlass(&[
        "request",
        "release",
        "hungry",
        "--rescue",
        "--retries",
        "0",
        "--reason",
        "it is fixed",
    ]);
    await_held(house, "hungry", 2);
    house.windlass(&[
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
fn hungry_node(house: &House) -> Value {
    let report = directory(&last(house, "hungry")).join("mg_000000/proc_000000.post.json");
    serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap()
}

fn check_memory(pool: &Pool, house: &House) {
    let all = attempts(&last(house, "hungry"));
    let node: Vec<&Value> = all.iter().filter(|attempt| attempt["node"] == "proc_000000").collect();
    let classes: Vec<&str> =
        node.iter().map(|attempt| attempt["failure"]["class"].as_str().unwrap_or("none")).collect();
    assert_eq!(classes, ["permanent", "memory", "none"], "once in each run: {node:#?}");
    assert_eq!(hungry_node(house)["max_retries"], 0, "{:#}", hungry_node(house));
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
fn remove_while_held(pool: &Pool, house: &House) -> usize {
    eventually("one of its units is completed", || last(house, "removed")["work_units_completed"] == 1);
    let run = last(house, "removed");
    house.windlass(&["request", "dag", "hold", "removed", "--reason", "others first"]);
    let cluster = run["dagman_cluster_id"].as_str().unwrap();
    assert_eq!(pool.condor("condor_q", &[cluster, "-autoformat", "JobStatus"]), "5\n");
    house.windlass(&["request", "dag", "remove", "removed", "--yes", "--reason", "not now"]);
    await_held(house, "removed", 1);
    assert!(!directory(&run).join(RESCUE).exists(), "DAGMan left no rescue file");
    house.work.write("go", "");
    house.windlass(&["request", "dag", "rescue", "removed", "--reason", "now"]);
    submissions(&run)
}

const RESCUE: &str = "workflow.dag.rescue001";

fn submissions(run: &Value) -> usize {
    let log = fs::read_to_string(directory(run).join("mg_000000/group.dag.nodes.log")).unwrap();
    log.lines().filter(|line| line.starts_with("000 (")).count()
}

fn check_removed(house: &House, done_once: usize) {
    let chain = runs(house, "removed");
    let [first, second] = &chain[..] else { panic!("{chain:#?}") };
    assert_eq!((&second["submit_dir"], &second["work_units_completed"]), (&first["submit_dir"], &json!(2)));
    let rescue = fs::read_to_string(directory(first).join(RESCUE)).unwrap();
    assert!(rescue.starts_with("# Written by windlass") && rescue.contains("DONE mg_000000\n"), "{rescue}");
    assert_eq!(submissions(first), done_once, "completed units do not run again");
}

/// E 3.3: three rescues fail as the run did, then an operator finds the cause.
fn ban_when_rescues_are_used_up(house: &House) {
    await_held(house, "exhausted", 4);
    let shown = house.request("exhausted");
    assert!(shown["reason"].as_str().unwrap().contains("maximum of 3 rescues"), "{shown:#}");
    let bad = fs::read_to_string(path(house, "bad")).unwrap();
    house.windlass(&["request", "release", "exhausted", "--ban", bad.trim(), "--reason", "that site is bad"]);
}

fn check_banned(house: &House) {
    let chain = runs(house, "exhausted");
    let (last, round) = chain.split_last().unwrap();
    assert!(round.len() == 4 && round.iter().all(|run| run["round"] == 0), "{chain:#?}");
    let units = (&last["round"], &last["total_work_units"], &last["work_units_completed"]);
    assert_eq!(units, (&json!(1), &json!(1), &json!(1)), "the failed units, and nothing else: {last:#}");
    let bad = fs::read_to_string(path(house, "bad")).unwrap();
    let made = attempts(last);
    assert!(!made.is_empty() && made.iter().all(|attempt| attempt["site"] != bad.trim()), "{made:#?}");
}
