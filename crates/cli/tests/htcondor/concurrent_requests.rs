//! Requests that all run at the same time, each with a different failure.

use crate::test_server::{House, fails_with};

use crate::support::{Pool, eventually};
use serde_json::json;

#[test]
fn concurrent_requests_survive_mixed_failures() {
    let pool = Pool::shared();
    let house = House::open(&pool, "together");
    let once = |trouble: &str| format!("if [ $WINDLASS_ATTEMPT = 1 ]; then {trouble}; fi");
    // Exceeds its memory until it is killed.
    let hungry = "python3 -c \"import time; x = b'x' * (2200 << 20); time.sleep(600)\"";
    house.submit("plain", ":");
    house.submit("transient", &once(&fails_with(8015)));
    house.submit("permanent", &fails_with(8501));
    let unreadable = json!({"speed": 1_000_000, "faults": [{"kind": "bad_input"}]});
    house.submit_step("data", &json!({"name": "RECO", "simulation": unreadable}));
    house.submit("abort", &fails_with(50110));
    house.submit("memory", &once(hungry));

    eventually("the plain one is completed", || house.is_completed("plain"));
    house.check_outputs("plain");
    abort_stops_the_whole_run(&house);
    permanent_failure_is_not_tried_again(&house);
    data_failure_names_the_file(&house);
    eventually("it succeeds with more memory", || house.is_completed("memory"));
    more_memory_was_asked_for(&house);
    eventually("it succeeds when it is retried", || house.is_completed("transient"));
    assert_eq!(house.node_in_trouble("transient")["attempt"], 2);
    house.check_outputs("transient");
}

fn abort_stops_the_whole_run(house: &House) {
    eventually("the aborted one is held", || house.status("abort") == "held");
    let report = house.post_report("abort");
    assert_eq!(report["classification"]["action"], "abort", "{report:#}");
    let run = house.run("abort");
    assert_eq!(run["work_units_failed"], 1, "the others did not fail: {run:#}");
    let reason = house.request("abort")["reason"].to_string();
    assert!(reason.contains("one of its nodes ended the whole run"), "{reason}");
    let metrics = std::path::Path::new(run["submit_dir"].as_str().unwrap()).join("workflow.dag.metrics");
    let metrics: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(metrics).unwrap()).unwrap();
    assert_eq!(metrics["DagStatus"], 3, "the outer DAG was aborted: {metrics:#}");
}

fn permanent_failure_is_not_tried_again(house: &House) {
    eventually("its other units have ended", || house.status("permanent") == "held");
    let run = house.run("permanent");
    assert_eq!((&run["work_units_completed"], &run["work_units_failed"]), (&2.into(), &1.into()), "{run:#}");
    let node = house.node_in_trouble("permanent");
    assert_eq!((&node["attempt"], &node["status"]), (&1.into(), &"failed".into()), "{node:#}");
    assert_eq!(house.written("permanent").len(), 120, "outputs of the other units are kept");
}

fn data_failure_names_the_file(house: &House) {
    eventually("the one with a bad file is held", || house.status("data") == "held");
    let report = house.post_report("data");
    assert_eq!(report["classification"]["category"], "data", "{report:#}");
    let bad = report["classification"]["bad_input_files"].to_string();
    assert!(bad.contains("f4.txt"), "{report:#}");
}

fn more_memory_was_asked_for(house: &House) {
    let node = house.node_in_trouble("memory");
    assert_eq!(node["attempt"], 2, "{node:#}");
    let report = house.post_report("memory");
    let first = &report["attempts"][0];
    assert_eq!(first["category"], "memory", "{report:#}");
    house.check_outputs("memory");
}
