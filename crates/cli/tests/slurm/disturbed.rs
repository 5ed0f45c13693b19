//! What becomes of a workflow when a part of the cluster is down.

use crate::house::House;
use crate::lost::{begin, replace, stages};
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
    stages.await_ends(&house, 60);
    let rows = house.allocations();
    assert!(rows.iter().all(|row| row["slurm_job_id"] == job && row["state"] == "running"), "{rows:?}");
    cluster.mend();
    let stamps = stages.prove(&house);
    assert_eq!(stamps.killed(), 0);
    house.await_allocation("its end is known", |row| row["state"] == "ended" && row["end"] == "COMPLETED");
}
