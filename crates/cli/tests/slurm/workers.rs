//! Workers in allocations: which jobs they take, and what happens to these when the allocation ends.

use crate::lost_allocations::preempt;
use crate::support::Cluster;
use crate::test_server::TestServer;

/// Detects overlapping executions of one job.
fn alone(name: &str, body: &str) -> String {
    format!("exec 9>>{name}.lock; flock -n 9 || touch overlap; {body}")
}

fn spec(jobs: &[(&str, String)]) -> String {
    let line = |(name, command): &(&str, String)| format!("  - {{name: {name}, command: '{command}'}}\n");
    let jobs: String = jobs.iter().map(line).collect();
    format!(
        "name: test\nexecution_config: {{sigkill_headroom_seconds: 2, sigterm_lead_seconds: 1}}\njobs:\n{jobs}"
    )
}

#[test]
fn jobs_complete_in_two_allocations_and_workers_exit() {
    let cluster = Cluster::shared();
    let mut test_server = TestServer::open(&cluster, "two");
    let names: Vec<String> = (0..8).map(|number| format!("j{number}")).collect();
    let command = |name: &String| alone(name, "echo $SLURM_JOB_ID >> done");
    let jobs: Vec<(&str, String)> = names.iter().map(|name| (name.as_str(), command(name))).collect();
    test_server.submit(&spec(&jobs));
    let allocations =
        [(), ()].map(|()| test_server.allocate(&["--cpus-per-task=1", "--mem=1500", "--time=5"]));
    for name in &names {
        test_server.await_status(name, "completed");
    }
    for job in allocations {
        cluster.await_state(job, &["COMPLETED"]);
    }
    assert_eq!(test_server.work.read("done").lines().count(), 8);
    assert!(!test_server.work.path().join("overlap").exists());
}

#[test]
fn job_of_canceled_allocation_reruns_in_another() {
    let cluster = Cluster::shared();
    let mut test_server = TestServer::open(&cluster, "cancelled");
    let once = alone("a", "if mkdir first; then sleep 1000; fi; echo again >> done");
    test_server.submit(&spec(&[("a", once)]));
    let first = test_server.allocate(&["--cpus-per-task=1", "--mem=1500", "--time=5"]);
    test_server.await_status("a", "running");
    crate::support::eventually("it has started", || test_server.work.path().join("first").exists());
    cluster.slurm("scancel", &[&first.to_string()]);
    cluster.await_state(first, &["CANCELLED"]);
    test_server.await_status("a", "ready");
    test_server.allocate(&["--cpus-per-task=1", "--mem=1500", "--time=5"]);
    test_server.await_status("a", "completed");
    assert_eq!(test_server.work.read("done"), "again\n");
    assert!(!test_server.work.path().join("overlap").exists());
}

#[test]
fn job_that_kills_itself_fails() {
    let cluster = Cluster::shared();
    let mut test_server = TestServer::open(&cluster, "suicide");
    test_server.submit(&spec(&[("a", "kill -KILL $$".to_owned())]));
    let job = test_server.allocate(&["--cpus-per-task=1", "--mem=1500", "--time=5"]);
    test_server.await_status("a", "failed");
    cluster.await_state(job, &["COMPLETED", "FAILED"]);
}

#[test]
fn preempted_job_reruns_in_another_allocation() {
    let cluster = Cluster::shared();
    let mut test_server = TestServer::open(&cluster, "preempted");
    let once = alone("a", "if mkdir first; then sleep 1000; fi; echo again >> done");
    test_server.submit(&spec(&[("a", once)]));
    let node = cluster.reserve_node();
    let [reservation, nodes] = node.options();
    let low = test_server.allocate(&[
        "--partition=preempt",
        &reservation,
        &nodes,
        "--cpus-per-task=4",
        "--mem=1500",
        "--time=5",
    ]);
    crate::support::eventually("it has started", || test_server.work.path().join("first").exists());
    let high = preempt(&cluster, &node);
    cluster.await_state(low, &["PREEMPTED"]);
    cluster.slurm("scancel", &[&high.to_string()]);
    test_server.allocate(&["--cpus-per-task=1", "--mem=1500", "--time=5"]);
    test_server.await_status("a", "completed");
    assert!(!test_server.work.path().join("overlap").exists());
}

#[test]
fn job_longer_than_allocation_is_not_started() {
    let cluster = Cluster::shared();
    let mut test_server = TestServer::open(&cluster, "short");
    let jobs = "\
name: test
compute_node_wait_for_new_jobs_seconds: 2
resource_requirements:
  - {name: long, num_cpus: 1, memory: 100m, runtime: PT1H}
  - {name: brief, num_cpus: 1, memory: 100m, runtime: PT1S}
jobs:
  - {name: long, command: touch long, resource_requirements: long}
  - {name: brief, command: touch brief, resource_requirements: brief}
";
    test_server.submit(jobs);
    let job = test_server.allocate(&["--cpus-per-task=2", "--mem=1500", "--time=5"]);
    cluster.await_state(job, &["COMPLETED"]);
    assert_eq!(
        (test_server.status("brief"), test_server.status("long")),
        ("completed".into(), "ready".into())
    );
    assert!(!test_server.work.path().join("long").exists());
}

#[test]
fn job_gets_requested_gpus() {
    let cluster = Cluster::shared();
    let mut test_server = TestServer::open(&cluster, "cards");
    let jobs = "\
name: test
resource_requirements:
  - {name: card, num_cpus: 1, num_gpus: 1, memory: 100m}
  - {name: none, num_cpus: 1, memory: 100m}
jobs:
  # Side by side: each waits for the other.
  - {name: a, command: 'echo $CUDA_VISIBLE_DEVICES > a; until test -s b; do sleep 0.1; done', resource_requirements: card}
  - {name: b, command: 'echo $CUDA_VISIBLE_DEVICES > b; until test -s a; do sleep 0.1; done', resource_requirements: card}
  - {name: c, command: 'echo ${CUDA_VISIBLE_DEVICES-all of them} > c', resource_requirements: none}
";
    test_server.submit(jobs);
    test_server.allocate(&["--partition=gpu", "--gres=gpu:2", "--cpus-per-task=2", "--mem=500", "--time=5"]);
    for job in ["a", "b", "c"] {
        test_server.await_status(job, "completed");
    }
    let mut cards = [test_server.work.read("a"), test_server.work.read("b")];
    cards.sort();
    assert_eq!(cards, ["0\n", "1\n"]);
    assert_eq!(test_server.work.read("c"), "\n", "a job without GPUs sees none");
}
