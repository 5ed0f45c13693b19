//! Requests whose pool, DAGMan or server is down for a time.

use crate::step_commands::until;
use crate::support::{Pool, eventually};
use crate::test_server::TestServer;
use std::path::Path;

fn is_running(test_server: &TestServer, name: &str) -> bool {
    test_server.status(name) == "active" && test_server.node_in_trouble(name)["status"] == "running"
}

#[test]
fn running_requests_survive_pool_restart() {
    let pool = Pool::private();
    let test_server = TestServer::open(&pool, "stopped");
    let wait_command = until(&test_server, "go");
    test_server.submit("patient", &wait_command);
    eventually("its node runs", || is_running(&test_server, "patient"));
    pool.stop();
    let cluster = test_server.run("patient")["dagman_cluster_id"].clone();
    // No failure is reported: the state is unknown.
    assert_eq!(test_server.status("patient"), "active");
    pool.start();
    test_server.work.write("go", "");
    eventually("it is completed", || test_server.is_completed("patient"));
    assert_eq!(test_server.run("patient")["dagman_cluster_id"], cluster, "it is still the same DAG");
    test_server.check_outputs("patient");
}

/// The locations of the logs of a run, from its server.
fn check_logs(test_server: &TestServer, id: &str) {
    let logs = |words: &[&str]| test_server.json(&[&["dag", "logs", id], words].concat());
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
    let said = test_server.refused(&["request", "dag", "logs", id, "../../secret", "--unit", "1"]);
    assert!(said.contains("is not a valid node name"), "{said}");
}

#[test]
fn dagman_hold_and_release_survive_server_kill() {
    let pool = Pool::shared();
    let mut test_server = TestServer::open(&pool, "held");
    let wait_command = until(&test_server, "go");
    test_server.submit("held", &wait_command);
    eventually("its node runs", || is_running(&test_server, "held"));
    let run = test_server.run("held");
    let (id, cluster) = (run["id"].as_str().unwrap(), run["dagman_cluster_id"].as_str().unwrap());
    check_logs(&test_server, id);
    test_server.windlass(&["request", "dag", "hold", id, "--reason", "to look at it"]);
    let job_status = || pool.condor("condor_q", &[cluster, "-autoformat", "JobStatus"]);
    assert_eq!(job_status(), "5\n");
    let paused = Path::new(run["submit_dir"].as_str().unwrap()).join("paused");
    assert!(paused.exists(), "started units are paused as well");
    test_server.kill_server();
    test_server.serve();
    // Running jobs continue without a server.
    test_server.work.write("go", "");
    test_server.windlass(&["request", "dag", "release", id]);
    assert!(!paused.exists());
    eventually("it is completed", || test_server.is_completed("held"));
    assert_eq!(test_server.run("held")["id"], id, "it is still the same run");
    test_server.check_outputs("held");
}
