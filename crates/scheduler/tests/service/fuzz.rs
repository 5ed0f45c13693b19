//! Fuzz tests of the worker protocol and of claims: for any parseable message, the scheduler survives, replies, and
//! keeps its database valid.

use crate::clients;
use crate::kit::{Fixture, Worker, ask, later, me, plain, someone, token_owner};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use windlass_scheduler::service::{ClaimRequest, JobCompletion, NodeCapacityOffer, WorkflowPredicate};
use windlass_store::model::{EventFilter, WorkerFilter};
use windlass_types::worker_bounds::{MAX_LABELS, MAX_NODES};
use windlass_types::worker_messages::AttemptUsage;
use windlass_types::worker_protocol::{WorkerExchange, WorkerRegistration};
use windlass_types::{Bytes, Capacity, JobStatus as S, Timestamp};

/// Values that often break programs.
fn hostile() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(u64::MAX)),
        Just(json!(u64::MAX - 1)),
        Just(json!(i64::MIN)),
        Just(json!(i64::MAX)),
        Just(json!(u32::MAX)),
        Just(json!(i32::MAX)),
        Just(json!(1e308)),
        any::<u64>().prop_map(|n| json!(n)),
        any::<u32>().prop_map(|n| json!(n)),
        (0_u32..4).prop_map(|n| json!(n)),
    ];
    let text = prop_oneof![
        Just(json!("")),
        Just(json!("a\0b")),
        Just(json!("\u{1b}[2J\n")),
        Just(json!("x".repeat(300))),
        Just(json!("x".repeat(200_000))),
        Just(json!("9999-12-31T23:59:59Z")),
        Just(json!("-009999-01-02T01:59:59Z")),
        Just(json!("0000-01-01T00:00:00Z")),
        ".{0,20}".prop_map(|text| json!(text)),
    ];
    let duration = prop_oneof![
        Just(json!({ "secs": u64::MAX, "nanos": 999_999_999 })),
        Just(json!({ "secs": i64::MAX, "nanos": 0 })),
        any::<u64>().prop_map(|secs| json!({ "secs": secs, "nanos": 0 })),
    ];
    let other = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        Just(json!([])),
        Just(json!({})),
        Just(json!(vec!["l"; 1000])),
    ];
    prop_oneof![4 => number, 3 => text, 3 => duration, 1 => other]
}

/// The paths of all values in a document, without the document itself.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    let mut visit = |name: &str, inner: &Value| {
        let path = format!("{path}/{name}");
        places(inner, &path, found);
        found.push(path);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| visit(name, inner)),
        Value::Array(list) => list.iter().enumerate().for_each(|(n, inner)| visit(&n.to_string(), inner)),
        _ => {}
    }
}

fn changed(mut document: Value, changes: &[(prop::sample::Index, Value)]) -> Value {
    for (index, value) in changes {
        let mut found = Vec::new();
        places(&document, "", &mut found);
        if let Some(place) =
            found.get(index.index(found.len().max(1))).and_then(|path| document.pointer_mut(path))
        {
            *place = value.clone();
        }
    }
    document
}

fn introduction() -> Value {
    let mut who = json!(WorkerRegistration { workflow: None, ..someone(2) });
    who["labels"] = json!(["a"]);
    who["allocation"] = json!(null);
    who["slurm"] = json!({ "job_id": 7, "restarts": 0, "node": "n1" });
    who["before"] = json!({ "worker": 1, "secret": "s", "held": [key(1)], "actions": [[1, 1]] });
    who
}

fn key(job: i64) -> Value {
    json!({ "workflow": 1, "job": job, "run": 1, "attempt": 1 })
}

/// Acts for this worker about its jobs.
fn exchange(worker: &Worker) -> Value {
    let time = "2026-01-31T12:00:00Z";
    let second = json!({ "secs": 1, "nanos": 0 });
    let held = worker.keys();
    let job = |n: usize| held.get(n).map_or_else(|| key(1), |key| json!(key));
    let mut said = json!(worker.same(Vec::new(), Duration::ZERO));
    said["time_left"] = json!({ "secs": 3600, "nanos": 0 });
    said["reports"] = json!([
        { "Started": { "key": job(0), "at": time, "pid": 7 } },
        { "Ended": {
            "key": job(0), "started_at": time, "ended_at": time, "wall": second, "exit": { "Code": 1 },
            "cause": { "MissingOutputs": ["out.txt"] },
            "usage": { "peak_memory": 1, "avg_memory": 1, "cpu_time": second, "peak_cpu_percent": 1.0,
                       "avg_cpu_percent": 1.0 },
            "files": { "inputs": [{ "mtime_ns": 1, "size": 1, "hash": "h" }, null], "outputs": [] },
            "last_words": "no", "recovered": { "Ended": { "exit": { "Signal": 9 }, "wall": second } },
        } },
        { "Returned": { "key": job(1), "why": { "WorkerTrouble": "no space" } } },
    ]);
    said["actions"] = json!([{ "workflow": 1, "run": 1, "action": 1, "attempt": 1, "started_at": time,
        "ended_at": time, "return_code": 0, "message": "m" }]);
    said
}

/// Invariants that hold after any message.
fn is_sound(fixture: &Fixture) {
    fixture.service.check_time();
    assert!(fixture.service.is_alive());
    let panics = EventFilter { category: Some("scheduler_panic".into()), ..EventFilter::default() };
    let told = fixture.store.events(None, &panics).unwrap();
    assert!(told.is_empty(), "no message makes the scheduler panic: {told:?}");
    for row in fixture.store.workers(&WorkerFilter::default()).unwrap() {
        let worker = row.worker;
        assert!(worker.capacity.nodes <= MAX_NODES && worker.labels.len() <= MAX_LABELS, "{worker:?}");
        assert!(!worker.host.contains(char::is_control) && worker.host.len() < 256, "{worker:?}");
    }
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

#[test]
fn the_scheduler_survives_any_registration() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let changes = vec((any::<prop::sample::Index>(), hostile()), 1..4);
    TestRunner::new(config(300))
        .run(&changes, |changes| {
            // Unparseable messages are rejected before they come here.
            if let Ok(who) = serde_json::from_value::<WorkerRegistration>(changed(introduction(), &changes)) {
                let may: WorkflowPredicate = Arc::new(|_| true);
                drop(ask(|reply| fixture.service.register_worker(who, token_owner("me", may), reply)));
            }
            is_sound(&fixture);
            Ok(())
        })
        .unwrap();
    fixture.restart();
    is_sound(&fixture);
    fixture.pass(crate::kit::LEASE + Duration::from_secs(3));
    Worker::new(&fixture, 1).work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 2]);
}

#[test]
fn the_scheduler_survives_any_report() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&vec![plain(); 200]);
    let worker = RefCell::new(Worker::new(&fixture, 2));
    let changes = vec((any::<prop::sample::Index>(), hostile()), 0..4);
    TestRunner::new(config(300))
        .run(&changes, |changes| {
            let mut worker = worker.borrow_mut();
            worker.number += 1;
            if let Ok(said) = serde_json::from_value::<WorkerExchange>(changed(exchange(&worker), &changes)) {
                let said = WorkerExchange { leaving: false, wait: Duration::ZERO, ..said };
                let reports = said.reports.clone();
                let answer = later(|reply| fixture.service.exchange(said, me(), reply));
                if let Ok(answer) = fixture.in_time(&answer) {
                    worker.takes(&reports, &answer);
                } else {
                    let held = worker.keys();
                    worker.come_back(&fixture, &held);
                }
            }
            // Cooldowns after failed starts end sooner or later.
            fixture.hand.advance(Duration::from_secs(1));
            is_sound(&fixture);
            Ok(())
        })
        .unwrap();
    fixture.restart();
    is_sound(&fixture);
    fixture.pass(crate::kit::LEASE + Duration::from_secs(3));
    Worker::new(&fixture, 4).work_off(&fixture);
    let statuses = fixture.statuses(workflow);
    assert!(statuses.iter().all(|status| status.has_ended()), "{statuses:?}");
}

/// Claims of Torc's clients, and the ends that they report.
#[test]
fn the_scheduler_survives_any_claim() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&vec![plain(); 2000]);
    let node = clients::node(&fixture, workflow);
    let number = || prop_oneof![Just(0), Just(u64::MAX), Just(i64::MAX as u64), 0_u64..4, any::<u64>()];
    let limit = prop_oneof![9 => 0_usize..4, 1 => 0_usize..40];
    let parts = (limit, vec(number(), 11), vec(".{0,300}", 0..70), any::<bool>(), any::<bool>());
    TestRunner::new(config(300))
        .run(&parts, |(limit, numbers, labels, is_by_resources, strict)| {
            let [cpus, memory, gpus, nodes, max_jobs, time, scheduler, wall, at, cpu, code] = numbers[..]
            else {
                panic!("{numbers:?}")
            };
            let capacity = Capacity {
                cpus: cpus as u32,
                memory: Bytes(memory),
                gpus: gpus as u32,
                nodes: nodes as u32,
                max_jobs: Some(max_jobs as u32),
            };
            let time_left = Some(Duration::from_secs(time));
            let scheduler = Some(scheduler as i64);
            let offer = NodeCapacityOffer { capacity, time_left, scheduler, strict };
            let request = ClaimRequest { limit, labels, node: is_by_resources.then_some(offer) };
            let claimed =
                ask(|reply| fixture.service.claim_jobs(workflow, request, reply)).unwrap_or_default();
            for job in claimed {
                drop(clients::start(&fixture, job, node));
                let usage = AttemptUsage { cpu_time: Duration::from_secs(cpu), ..AttemptUsage::default() };
                let completion = JobCompletion {
                    return_code: code as i32,
                    exec_time: Duration::from_secs(wall),
                    completion_time: Timestamp(at as i64),
                    usage,
                    ..clients::completion(job, S::Completed)
                };
                drop(ask(|reply| fixture.service.complete_jobs(workflow, vec![completion], reply)));
            }
            is_sound(&fixture);
            Ok(())
        })
        .unwrap();
    let request = ClaimRequest { limit: 1, labels: Vec::new(), node: None };
    let claimed = ask(|reply| fixture.service.claim_jobs(workflow, request, reply)).unwrap();
    clients::start(&fixture, claimed[0], node).unwrap();
    let completion = clients::completion(claimed[0], S::Completed);
    let ended = ask(|reply| fixture.service.complete_jobs(workflow, vec![completion], reply)).unwrap();
    ended[0].1.as_ref().unwrap();
    fixture.restart();
    is_sound(&fixture);
    assert!(fixture.statuses(workflow).contains(&S::Completed), "valid claims and ends are still accepted");
}
