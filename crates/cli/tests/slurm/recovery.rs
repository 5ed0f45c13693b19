//! Workflows whose allocations ended before their jobs did.

use crate::support::{Cluster, eventually};
use crate::test_server::TestServer;
use std::time::Duration;
use windlass_types::Timestamp;

/// The actions of its spec request one small allocation at the start.
fn spec(jobs: &str) -> String {
    format!(
        "\
name: test
compute_node_wait_for_new_jobs_seconds: 1
resource_requirements:
  - {{name: small, num_cpus: 1, memory: 100m, runtime: PT10M}}
slurm_schedulers:
  - {{name: first, account: lab, nodes: 1, walltime: '00:20:00', mem: 200M, partition: standard}}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: first, scheduler_type: slurm}}
jobs:
{jobs}"
    )
}

/// Hangs in its first execution.
const HANGS_ONCE: &str = "  - {name: a, command: 'echo $SLURM_JOB_ID >> jobs; if mkdir first; then sleep 1000; fi', resource_requirements: small, scheduler: first}\n";

/// The Slurm jobs in which it ran, in order.
fn hosts(test_server: &TestServer<'_>) -> Vec<String> {
    test_server.work.read("jobs").lines().map(str::to_owned).collect()
}

/// Waits until it hangs there; returns the first Slurm job.
fn hanging_in(test_server: &TestServer<'_>) -> String {
    eventually("it has started", || test_server.work.path().join("first").exists());
    hosts(test_server)[0].clone()
}

#[test]
fn out_of_memory_job_reruns_in_larger_allocation() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "oom");
    let greedy = "  - {name: a, command: 'echo $SLURM_JOB_ID >> jobs; exec python3 -c \"x = bytearray(300 << 20)\"', resource_requirements: small, scheduler: first}\n";
    test_server.submit(&spec(greedy));
    test_server.await_status("a", "failed");
    let dry_run_output = test_server.json(&["recover", "1", "--memory-multiplier", "6", "--dry-run"]);
    assert_eq!(
        (&dry_run_output["run_again"], &dry_run_output["slurm"]["dry_run"]),
        (&1.into(), &true.into()),
        "{dry_run_output}"
    );
    let done = test_server.json(&["recover", "1", "--memory-multiplier", "6"]);
    assert_eq!(done["slurm"]["allocations"].as_array().unwrap().len(), 1, "{done}");
    test_server.await_status("a", "completed");
    let hosts = hosts(&test_server);
    assert!(hosts.len() == 2 && hosts[0] != hosts[1], "{hosts:?}");
}

#[test]
fn watch_replaces_canceled_allocation() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "watched");
    test_server.submit(&spec(HANGS_ONCE));
    let job = hanging_in(&test_server);
    let mut watch = test_server.start_watch(&["--auto-schedule"]);
    cluster.slurm("scancel", &[&job]);
    test_server.await_status("a", "completed");
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    assert_eq!(hosts(&test_server).len(), 2);
}

/// No job has failed: the remaining jobs need nodes, and none are requested.
#[test]
fn recover_requests_allocation_for_remaining_jobs() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "unfailed");
    test_server.submit(&spec(HANGS_ONCE));
    let job = hanging_in(&test_server);
    test_server.await_status("a", "running");
    let under_way = test_server.json(&["recover", "1"]);
    assert!(under_way["slurm"].is_null(), "workers are active: {under_way}");
    cluster.slurm("scancel", &[&job]);
    test_server.await_status("a", "ready");
    eventually("its allocation has ended, according to the database", || {
        test_server.allocations().iter().all(|row| row["state"] == "ended")
    });
    let dry_run_output = test_server.json(&["recover", "1", "--dry-run"]);
    assert_eq!(dry_run_output["slurm"]["schedulers"][0]["submitted"], 1, "{dry_run_output}");
    let done = test_server.json(&["recover", "1"]);
    assert_eq!((&done["run_again"], done["slurm"]["allocations"].as_array().unwrap().len()), (&0.into(), 1));
    let again = test_server.json(&["recover", "1"]);
    assert!(again["slurm"].is_null(), "they are requested already: {again}");
    test_server.await_status("a", "completed");
    assert_eq!(hosts(&test_server).len(), 2);
}

#[test]
fn watch_without_allocations_ends_and_regenerate_is_idempotent() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "alone");
    test_server.submit(&spec(HANGS_ONCE));
    let job = hanging_in(&test_server);
    cluster.slurm("scancel", &[&job]);
    test_server.await_status("a", "ready");
    assert_eq!(test_server.exit_code(&["watch", "1"]), Some(3));
    let why = test_server.windlass(&["why", "a"]);
    assert!(
        why.contains("no allocation is requested") && why.contains("slurm regenerate 1 --submit"),
        "{why}"
    );
    let first = test_server.json(&["slurm", "regenerate", "1", "--submit"]);
    let second = test_server.json(&["slurm", "regenerate", "1", "--submit"]);
    let asked = |done: &serde_json::Value| done["allocations"].as_array().unwrap().len();
    assert_eq!((asked(&first), asked(&second)), (1, 0), "{first}\n{second}");
    test_server.await_status("a", "completed");
    assert_eq!(hosts(&test_server).len(), 2);
}

/// All requested allocations fail: the watch retries once at once, and then only now and then.
#[test]
fn watch_limits_requests_after_failed_allocations() {
    let cluster = Cluster::shared();
    let test_server =
        TestServer::with_reconciler_and(&cluster, "in-vain", &["--slurm-windlass", "/bin/false"]);
    test_server
        .submit(&spec("  - {name: a, command: 'true', resource_requirements: small, scheduler: first}\n"));
    let mut watch = test_server.start_watch(&["--auto-schedule", "--auto-schedule-cooldown", "7"]);
    let mut asked = Vec::new();
    eventually("it was requested three times", || {
        let at = |row: &serde_json::Value| row["created_at"].as_str().unwrap().parse::<Timestamp>().unwrap();
        asked = test_server.allocations().iter().map(at).collect();
        asked.len() >= 3
    });
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(asked[2].since(asked[1]) >= Duration::from_secs(7), "{asked:?}");
    assert_eq!(test_server.status("a"), "ready", "it has not run");
}
