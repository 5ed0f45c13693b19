//! Requests that all run at the same time, each with a different failure.

use crate::test_server::{TestServer, fails_with};

use crate::support::{Pool, eventually};
use serde_json::json;

#[test]
fn concurrent_requests_survive_mixed_failures() {
    let pool = Pool::shared();
    let test_server = TestServer::open(&pool, "together");
    let once = |trouble: &str| format!("if [ $WINDLASS_ATTEMPT = 1 ]; then {trouble}; fi");
    // Exceeds its memory until it is killed.
    let hungry = "python3 -c \"import time; x = b'x' * (2200 << 20); time.sleep(600)\"";
    test_server.submit("plain", ":");
    test_server.submit("transient", &once(&fails_with(8015)));
    test_server.submit("permanent", &fails_with(8501));
    let unreadable = json!({"speed": 1_000_000, "faults": [{"kind": "bad_input"}]});
    test_server.submit_step("data", &json!({"name": "RECO", "simulation": unreadable}));
    test_server.submit("abort", &fails_with(50110));
    test_server.submit("memory", &once(hungry));

    eventually("the plain one is completed", || test_server.is_completed("plain"));
    test_server.check_outputs("plain");
    abort_stops_the_whole_run(&test_server);
    permanent_failure_is_not_tried_again(&test_server);
    data_failure_names_the_file(&test_server);
    eventually("it succeeds with more memory", || test_server.is_completed("memory"));
    more_memory_was_asked_for(&test_server);
    eventually("it succeeds when it is retried", || test_server.is_completed("transient"));
    assert_eq!(test_server.node_in_trouble("transient")["attempt"], 2);
    test_server.check_outputs("transient");
}

fn abort_stops_the_whole_run(test_server: &TestServer) {
    eventually("the aborted one is held", || test_server.status("abort") == "held");
    let report = test_server.post_report("abort");
    assert_eq!(report["classification"]["action"], "abort", "{report:#}");
    let run = test_server.run("abort");
    assert_eq!(run["work_units_failed"], 1, "the others did not fail: {run:#}");
    let reason = test_server.request("abort")["reason"].to_string();
    assert!(reason.contains("one of its nodes ended the whole run"), "{reason}");
    let metrics = std::path::Path::new(run["submit_dir"].as_str().unwrap()).join("workflow.dag.metrics");
    let metrics: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(metrics).unwrap()).unwrap();
    assert_eq!(metrics["DagStatus"], 3, "the outer DAG was aborted: {metrics:#}");
}

fn permanent_failure_is_not_tried_again(test_server: &TestServer) {
    eventually("its other units have ended", || test_server.status("permanent") == "held");
    let run = test_server.run("permanent");
    assert_eq!((&run["work_units_completed"], &run["work_units_failed"]), (&2.into(), &1.into()), "{run:#}");
    let node = test_server.node_in_trouble("permanent");
    assert_eq!((&node["attempt"], &node["status"]), (&1.into(), &"failed".into()), "{node:#}");
    assert_eq!(test_server.written("permanent").len(), 120, "outputs of the other units are kept");
}

fn data_failure_names_the_file(test_server: &TestServer) {
    eventually("the one with a bad file is held", || test_server.status("data") == "held");
    let report = test_server.post_report("data");
    assert_eq!(report["classification"]["category"], "data", "{report:#}");
    let bad = report["classification"]["bad_input_files"].to_string();
    assert!(bad.contains("f4.txt"), "{report:#}");
}

fn more_memory_was_asked_for(test_server: &TestServer) {
    let node = test_server.node_in_trouble("memory");
    assert_eq!(node["attempt"], 2, "{node:#}");
    let report = test_server.post_report("memory");
    let first = &report["attempts"][0];
    assert_eq!(first["category"], "memory", "{report:#}");
    test_server.check_outputs("memory");
}
