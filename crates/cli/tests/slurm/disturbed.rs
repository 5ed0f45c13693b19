//! What becomes of a workflow when a part of the cluster is down.

use crate::house::House;
use crate::lost::{begin, replace, stages};
use crate::stages::Stages;
use crate::support::{Cluster, eventually};

#[test]
fn a_node_that_fails_takes_no_job_with_it() {
    let cluster = Cluster::alone();
    let house = House::with_steward(&cluster, "node");
    let stages = stages("standard", "--nodelist=n2", 0.7);
    let job = begin(&house, &stages);
    cluster.disturb("kill-node", Some("n2"));
    cluster.kill_all_of(job);
    replace(&house, job, &["NODE_FAIL"]);
    let stamps = stages.prove(&house);
    assert!(stamps.killed() > 0, "nothing ran on the node when it failed");
}

/// Slurm gives up the node while everything on it goes on.
#[test]
fn a_node_that_only_slurm_has_lost_works_on() {
    let cluster = Cluster::alone();
    let house = House::with_steward(&cluster, "apart");
    let stages = stages("standard", "--nodelist=n2", 0.7);
    let job = begin(&house, &stages);
    cluster.disturb("kill-node", Some("n2"));
    replace(&house, job, &["NODE_FAIL"]);
    stages.prove(&house);
}

#[test]
fn while_the_controller_is_down_nothing_is_declared_dead() {
    let cluster = Cluster::alone();
    let house = House::with_steward(&cluster, "controller");
    let stages = stages("standard", "", 0.7);
    let job = begin(&house, &stages);
    cluster.disturb("stop-ctld", None);
    eventually("Slurm was asked in vain, several times", || {
        house.work.read("serve.log").matches("Slurm has not answered").count() >= 2
    });
    // Jobs go on meanwhile.
    Stages::await_ends(&house, 60);
    let rows = house.allocations();
    assert!(rows.iter().all(|row| row["slurm_job_id"] == job && row["state"] == "running"), "{rows:?}");
    cluster.mend();
    let stamps = stages.prove(&house);
    assert_eq!(stamps.killed(), 0);
    house.await_allocation("its end is known", |row| row["state"] == "ended" && row["end"] == "COMPLETED");
}

#[test]
fn nothing_is_concluded_from_a_controller_that_does_not_answer() {
    let cluster = Cluster::alone();
    let house = House::with_steward(&cluster, "silent");
    house.submit(
        "\
name: test
slurm_schedulers: [{name: first, account: lab, nodes: 1, walltime: '00:05:00', mem: 200M}]
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: first, scheduler_type: slurm}
jobs:
  - {name: a, command: 'touch begun; sleep 1000', scheduler: first}
",
    );
    eventually("it has begun", || house.work.path().join("begun").exists());
    let whole = house.json(&["workflows", "sync-status", "1"]);
    assert_eq!((&whole["slurm"]["answered"], &whole["lost"]), (&true.into(), &0.into()), "{whole}");
    cluster.disturb("stop-ctld", None);
    for arguments in [&["workflows", "sync-status", "1"][..], &["workflows", "sync-status", "1", "--dry-run"]]
    {
        let told = house.json(arguments);
        assert_eq!(
            (&told["slurm"]["answered"], &told["slurm"]["open"]),
            (&false.into(), &1.into()),
            "{told}"
        );
        assert_eq!((&told["lost"], &told["slurm"]["gone"]), (&0.into(), &serde_json::json!([])), "{told}");
    }
    assert_eq!(house.status("a"), "running");
    cluster.mend();
}
