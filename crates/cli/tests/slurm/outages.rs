//! Workflows while a part of the cluster is down.

use crate::lost_allocations::{WatchedWorkflow, stages};
use crate::stages::Stages;
use crate::support::{Cluster, eventually};
use crate::test_server::TestServer;
use serde_json::Value;
use std::time::{Duration, Instant};

#[test]
fn node_failure_loses_no_job() {
    let cluster = Cluster::alone();
    // Longer than Slurm takes to give up a node, so that the reason why its worker is silent is known by then.
    let test_server = TestServer::with_reconciler_and(&cluster, "node", &["--lease", "45s"]);
    let mut watched = WatchedWorkflow::begin(&test_server, stages("standard", "--nodelist=n2", 60));
    cluster.disturb("kill-node", Some("n2"));
    cluster.kill_all_of(watched.job);
    watched.await_loss(&["NODE_FAIL"]);
    assert!(watched.prove().killed() > 0, "nothing ran on the node when it failed");
    watched.prove_causes(&["lost a node"]);
}

/// Slurm gives up the node while everything on it continues.
#[test]
fn worker_continues_on_node_lost_only_by_slurm() {
    let cluster = Cluster::alone();
    let test_server = TestServer::with_reconciler(&cluster, "apart");
    let mut watched = WatchedWorkflow::begin(&test_server, stages("standard", "--nodelist=n2", 20));
    cluster.disturb("kill-node", Some("n2"));
    watched.await_loss(&["NODE_FAIL"]);
    watched.prove();
}

/// A node that is lost while Slurm waits for the end of a canceled job on it: the job has then ended as canceled,
/// but still runs.
#[test]
fn canceled_job_on_lost_node_does_not_run_twice() {
    let cluster = Cluster::alone();
    let test_server = TestServer::with_reconciler_and(&cluster, "torn", &["--lease", "90s"]);
    test_server.submit(
        "\
name: test
slurm_schedulers:
  - {name: first, account: lab, nodes: 1, walltime: '00:30:00', mem: 200M, extra: '--nodelist=n2'}
  - {name: second, account: lab, nodes: 1, walltime: '00:30:00', mem: 200M, extra: '--nodelist=n3'}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: first, scheduler_type: slurm}
jobs:
  - {name: a, command: 'while true; do echo $SLURM_JOB_ID >> alive; sleep 0.2; done'}
",
    );
    let lives = |job: u64| {
        let lines = std::fs::read_to_string(test_server.work.path().join("alive")).unwrap_or_default();
        lines.lines().filter(|line| **line == job.to_string()).count()
    };
    let row = test_server.await_allocation("its job runs", |row| row["state"] == "running");
    let job = row["slurm_job_id"].as_u64().unwrap();
    eventually("it has started", || lives(job) > 0 && test_server.status("a") == "running");
    // Isolated: Slurm loses the node, and the agent has no contact any more.
    cluster.disturb("kill-node", Some("n2"));
    cluster.stop_processes_of(job, "slurm\0worker\0");
    cluster.slurm("scancel", &[&job.to_string()]);
    let ended = |row: &Value| row["slurm_job_id"] == job && row["state"] == "ended";
    let row = test_server.await_allocation("Slurm has given it up", ended);
    assert_eq!(row["end"], "CANCELLED", "{row}");
    let then = lives(job);
    eventually("it continues", || lives(job) > then + 5);
    assert_eq!(test_server.status("a"), "running", "it must not be reassigned");
    test_server.windlass(&["slurm", "schedule-nodes", "1", "--scheduler", "second"]);
    let is_next = |row: &Value| row["slurm_job_id"] != job && row["state"] == "running";
    let next = test_server.await_allocation("the next one runs", is_next)["slurm_job_id"].as_u64().unwrap();
    eventually("it runs there", || lives(next) > 10);
    let lines = test_server.work.read("alive");
    let first_of_next = lines.lines().position(|line| line == next.to_string()).unwrap();
    let both = lines.lines().skip(first_of_next).filter(|line| **line == job.to_string()).count();
    assert_eq!(both, 0, "it ran twice at once");
    cluster.kill_all_of(job);
}

#[test]
fn controller_outage_declares_no_worker_dead() {
    let cluster = Cluster::alone();
    let test_server = TestServer::with_reconciler(&cluster, "controller");
    let mut watched = WatchedWorkflow::begin(&test_server, stages("standard", "", 70));
    cluster.disturb("stop-ctld", None);
    let since = Instant::now();
    eventually("several calls to Slurm have failed", || {
        test_server.work.read("serve.log").matches("Slurm did not answer").count() >= 2
    });
    // Jobs continue meanwhile, except those that wait for the held one.
    Stages::await_ends(&test_server, 478);
    eventually("it is down for a minute", || since.elapsed() >= Duration::from_mins(1));
    let rows = test_server.allocations();
    let is_as_before = |row: &Value| row["slurm_job_id"] == watched.job && row["state"] == "running";
    assert!(rows.iter().any(is_as_before), "{rows:?}");
    assert!(rows.iter().all(|row| row["end"].is_null() && row["ended_at"].is_null()), "{rows:?}");
    cluster.repair();
    assert_eq!(watched.prove().killed(), 0);
    test_server
        .await_allocation("its end is known", |row| row["state"] == "ended" && row["end"] == "COMPLETED");
}

#[test]
fn unresponsive_controller_changes_no_state() {
    let cluster = Cluster::alone();
    let test_server = TestServer::with_reconciler(&cluster, "silent");
    test_server.submit(
        "\
name: test
slurm_schedulers: [{name: first, account: lab, nodes: 1, walltime: '00:05:00', mem: 200M}]
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: first, scheduler_type: slurm}
jobs:
  - {name: a, command: 'touch begun; sleep 1000', scheduler: first}
",
    );
    eventually("it has started", || test_server.work.path().join("begun").exists());
    let whole = test_server.json(&["workflows", "sync-status", "1"]);
    assert_eq!((&whole["slurm"]["answered"], &whole["lost"]), (&true.into(), &0.into()), "{whole}");
    cluster.disturb("stop-ctld", None);
    for arguments in [&["workflows", "sync-status", "1"][..], &["workflows", "sync-status", "1", "--dry-run"]]
    {
        let told = test_server.json(arguments);
        assert_eq!(
            (&told["slurm"]["answered"], &told["slurm"]["open"]),
            (&false.into(), &1.into()),
            "{told}"
        );
        assert_eq!((&told["lost"], &told["slurm"]["gone"]), (&0.into(), &serde_json::json!([])), "{told}");
    }
    assert_eq!(test_server.status("a"), "running");
    cluster.repair();
}
