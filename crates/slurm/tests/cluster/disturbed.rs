//! What happens to those who use the cluster when a part of it is down.

use crate::support::{Cluster, eventually};

#[test]
fn a_controller_that_was_down_has_its_jobs_again() {
    let cluster = Cluster::alone();
    let job = cluster.submit(&["--time=5"], "sleep 300");
    cluster.await_state(job, &["RUNNING"]);
    cluster.disturb("stop-ctld", None);
    let answer = cluster.command("scontrol").arg("ping").output().unwrap();
    assert!(!answer.status.success(), "{answer:?}");
    cluster.mend();
    eventually("it is told to end", || {
        cluster.slurm("scancel", &[&job.to_string()]);
        cluster.state(job).is_some_and(|state| state == "CANCELLED")
    });
}
