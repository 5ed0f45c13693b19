//! Requests whose pool, DAGMan or server is down for a time.

use crate::step_commands::until;
use crate::support::{Pool, eventually};
use crate::test_server::House;
use std::path::Path;

fn is_running(house: &House, name: &str) -> bool {
    house.status(name) == "active" && house.node_in_trouble(name)["status"] == "running"
}

#[test]
fn running_requests_survive_pool_restart() {
    let pool = Pool::private();
    let house = House::open(&pool, "stopped");
    let gate = until(&house, "go");
    house.submit("patient", &gate);
    eventually("its node runs", || is_running(&house, "patient"));
    pool.stop();
    let cluster = house.run("patient")["dagman_cluster_id"].clone();
    // No failure is reported: the state is unknown.
    assert_eq!(house.status("patient"), "active");
    pool.start();
    house.work.write("go", "");
    eventually("it is completed", || house.is_completed("patient"));
    assert_eq!(house.run("patient")["dagman_cluster_id"], cluster, "it is still the same DAG");
    house.check_outputs("patient");
}

/// The locations of the logs of a run, from its server.
fn check_logs(house: &House, id: &str) {
    let logs = |words: &[&str]| house.json(&[&["dag", "logs", id], words].concat());
    let landing = logs(&["landing", "--unit", "1"]);
    let files = landing["files"].to_string();
    assert!(
        files.contains("/mg_000001/landing.err") && files.contains("/mg_000001/landing.post.json"),
        "{files}"
    );
    assert!(logs(&[])["files"].to_string().contains("/workflow.dag.dagman.out"));
    for (words, told) in [
        (&["landing"][..], "specify its work unit (--unit N)"),
        (&["lnading", "--unit", "1"], "there is no node lnading in mg_000001"),
    ] {
        let found = logs(words);
        assert_eq!(found["files"], serde_json::json!([]), "{found:#}");
        assert!(found["message"].as_str().unwrap().contains(told), "{found:#}");
    }
    let said = house.refused(&["request", "dag", "logs", id, "../../secret", "--unit", "1"]);
    assert!(said.contains("is not a valid node name"), "{said}");
}

#[test]
fn dagman_hold_and_release_survive_server_kill() {
    let pool = Pool::shared();
    let mut house = House::open(&pool, "held");
    let gate = until(&house, "go");
    house.submit("held", &gate);
    eventually("its node runs", || is_running(&house, "held"));
    let run = house.run("held");
    let (id, cluster) = (run["id"].as_str().unwrap(), run["dagman_cluster_id"].as_str().unwrap());
    check_logs(&house, id);
    house.windlass(&["request", "dag", "hold", id, "--reason", "to look at it"]);
    let job_status = || pool.condor("condor_q", &[cluster, "-autoformat", "JobStatus"]);
    assert_eq!(job_status(), "5\n");
    let paused = Path::new(run["submit_dir"].as_str().unwrap()).join("paused");
    assert!(paused.exists(), "started units are paused as well");
    house.kill_server();
    house.serve();
    // Running jobs continue without a server.
    house.work.write("go", "");
    house.windlass(&["request", "dag", "release", id]);
    assert!(!paused.exists());
    eventually("it is completed", || house.is_completed("held"));
    assert_eq!(house.run("held")["id"], id, "it is still the same run");
    house.check_outputs("held");
}
