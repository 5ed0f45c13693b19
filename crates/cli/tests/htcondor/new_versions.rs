//! Requests that are restarted, and outputs that are replaced; and generation that replaces lost events.

use crate::queries::{await_completion, await_status, last, runs};
use crate::step_commands::{reading, submit, unless};
use crate::support::{Pool, eventually};
use crate::test_server::{HOMES, House, fails_with, output};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn outputs(house: &House, name: &str) -> Value {
    house.request(name)["recovery"]["output_state"].clone()
}

/// E 4.3: the old outputs stay until the new ones exist. The restart decides what is deleted then.
#[test]
fn restarted_request_replaces_outputs_by_policy() {
    let pool = Pool::shared();
    let house = House::open(&pool, "anew");
    let input = "/Muons/Three-v1/RAW";
    house.add_files("three", 0..3, input, &HOMES);
    // One failed unit of three is too much: it is held.
    let broken = reading("f1", &unless(&house, "mended", &fails_with(8501)));
    for name in ["goes_v1", "stays_v1"] {
        submit(&house, name, input, 1, &broken);
    }
    for name in ["goes_v1", "stays_v1"] {
        await_status(&house, name, "held");
        eventually("the outputs are registered", || house.written(name).len() == 40);
        assert_eq!(outputs(&house, name), "active");
    }
    house.work.write("mended", "");
    let restart = ["request", "restart", "goes_v1", "--cleanup", "immediate", "--yes", "--reason", "mended"];
    assert_eq!(house.json(&restart)["request_name"], "goes_v2");
    let restart = ["request", "restart", "stays_v1", "--yes", "--reason", "mended"];
    assert_eq!(house.json(&restart)["request_name"], "stays_v2");
    for (name, next, state) in [("goes_v1", "goes_v2", "invalidated"), ("stays_v1", "stays_v2", "superseded")]
    {
        await_completion(&house, next);
        let dataset = output(name).replace("-v1/", "-v2/");
        let once: BTreeMap<u64, u64> = (1..=60).map(|event| (event, 1)).collect();
        assert_eq!(house.written_in(&dataset), once, "{next}");
        eventually(&format!("the outputs of {name} are {state}"), || outputs(&house, name) == state);
        assert_eq!(house.status(name), "failed");
        assert_eq!(house.request(name)["superseded_by_request"], next);
    }
    let invalid = |name: &str| house.json(&["catalog", "show", &output(name)])["invalid_files"].clone();
    assert_eq!((invalid("goes_v1"), invalid("stays_v1")), (json!(2), json!(0)));
}

/// E 5.1: event numbers are never used twice; new ones replace lost events.
#[test]
fn generation_with_lost_unit_makes_each_event_once() {
    let pool = Pool::shared();
    let house = House::open(&pool, "made");
    let lost = format!("[ $WINDLASS_FIRST_EVENT != 11 ] || {{ {}; }}", fails_with(8501));
    let make = "seq $WINDLASS_FIRST_EVENT $WINDLASS_LAST_EVENT | sed \"s/^/1 $WINDLASS_FIRST_LUMI /\" > $WINDLASS_OUTPUT";
    let document = json!({
        "request_name": "made", "output_datasets": [output("made")],
        "generation": {"events": 30, "events_per_lumi": 10}, "splitting_algo": "EventBased",
        "splitting_params": {"events_per_job": 10, "target_merged_size_kb": 10},
        "memory_mb": 100, "size_per_event_kb": 1, "site_whitelist": HOMES,
        "payload_config": {"steps": [{"name": "GEN", "command": format!("{lost}; {make}")}]},
    });
    house.work.write("made.json", &document.to_string());
    house.windlass(&["request", "submit", "made.json"]);
    await_status(&house, "made", "held");
    let first = last(&house, "made");
    assert_eq!((&first["work_units_completed"], &first["work_units_failed"]), (&2.into(), &1.into()));
    house.windlass(&["request", "release", "made", "--reason", "other events will do"]);
    await_completion(&house, "made");
    let expected: BTreeMap<u64, u64> = (1..=10).chain(21..=40).map(|event| (event, 1)).collect();
    assert_eq!(house.written("made"), expected, "lost events stay lost");
    let rounds: Vec<_> = runs(&house, "made").iter().map(|run| run["round"].clone()).collect();
    assert_eq!(rounds, [0, 1]);
}
