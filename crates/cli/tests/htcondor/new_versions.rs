//! Requests that are restarted, and outputs that are replaced; and generation that replaces lost events.

use crate::queries::{await_completion, await_status, last, runs};
use crate::step_commands::{reading, submit, unless};
use crate::support::{Pool, eventually};
use crate::test_server::{HOMES, TestServer, fails_with, output};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn outputs(test_server: &TestServer, name: &str) -> Value {
    test_server.request(name)["recovery"]["output_state"].clone()
}

/// E 4.3: the old outputs stay until the new ones exist. The restart decides what is deleted then.
#[test]
fn restarted_request_replaces_outputs_by_policy() {
    let pool = Pool::shared();
    let test_server = TestServer::open(&pool, "anew");
    let input = "/Muons/Three-v1/RAW";
    test_server.add_files("three", 0..3, input, &HOMES);
    // One failed unit of three is too much: it is held.
    let broken = reading("f1", &unless(&test_server, "mended", &fails_with(8501)));
    for name in ["goes_v1", "stays_v1"] {
        submit(&test_server, name, input, 1, &broken);
    }
    for name in ["goes_v1", "stays_v1"] {
        await_status(&test_server, name, "held");
        eventually("the outputs are registered", || test_server.written(name).len() == 40);
        assert_eq!(outputs(&test_server, name), "active");
    }
    test_server.work.write("mended", "");
    let restart = ["request", "restart", "goes_v1", "--cleanup", "immediate", "--yes", "--reason", "mended"];
    assert_eq!(test_server.json(&restart)["request_name"], "goes_v2");
    let restart = ["request", "restart", "stays_v1", "--yes", "--reason", "mended"];
    assert_eq!(test_server.json(&restart)["request_name"], "stays_v2");
    for (name, next, state) in [("goes_v1", "goes_v2", "invalidated"), ("stays_v1", "stays_v2", "superseded")]
    {
        await_completion(&test_server, next);
        let dataset = output(name).replace("-v1/", "-v2/");
        let once: BTreeMap<u64, u64> = (1..=60).map(|event| (event, 1)).collect();
        assert_eq!(test_server.written_in(&dataset), once, "{next}");
        eventually(&format!("the outputs of {name} are {state}"), || outputs(&test_server, name) == state);
        assert_eq!(test_server.status(name), "failed");
        assert_eq!(test_server.request(name)["superseded_by_request"], next);
    }
    let invalid = |name: &str| test_server.json(&["catalog", "show", &output(name)])["invalid_files"].clone();
    assert_eq!((invalid("goes_v1"), invalid("stays_v1")), (json!(2), json!(0)));
}

/// E 5.1: event numbers are never used twice; new ones replace lost events.
#[test]
fn generation_with_lost_unit_makes_each_event_once() {
    let pool = Pool::shared();
    let test_server = TestServer::open(&pool, "made");
    let lost = format!("[ $WINDLASS_FIRST_EVENT != 11 ] || {{ {}; }}", fails_with(8501));
    let make = "seq $WINDLASS_FIRST_EVENT $WINDLASS_LAST_EVENT | sed \"s/^/1 $WINDLASS_FIRST_LUMI /\" > $WINDLASS_OUTPUT";
    let document = json!({
        "request_name": "made", "output_datasets": [output("made")],
        "generation": {"events": 30, "events_per_lumi": 10}, "splitting_algo": "EventBased",
        "splitting_params": {"events_per_job": 10, "target_merged_size_kb": 10},
        "memory_mb": 100, "size_per_event_kb": 1, "site_whitelist": HOMES,
        "payload_config": {"steps": [{"name": "GEN", "command": format!("{lost}; {make}")}]},
    });
    test_server.work.write("made.json", &document.to_string());
    test_server.windlass(&["request", "submit", "made.json"]);
    await_status(&test_server, "made", "held");
    let first = last(&test_server, "made");
    assert_eq!((&first["work_units_completed"], &first["work_units_failed"]), (&2.into(), &1.into()));
    test_server.windlass(&["request", "release", "made", "--reason", "other events will do"]);
    await_completion(&test_server, "made");
    let expected: BTreeMap<u64, u64> = (1..=10).chain(21..=40).map(|event| (event, 1)).collect();
    assert_eq!(test_server.written("made"), expected, "lost events stay lost");
    let rounds: Vec<_> = runs(&test_server, "made").iter().map(|run| run["round"].clone()).collect();
    assert_eq!(rounds, [0, 1]);
}
