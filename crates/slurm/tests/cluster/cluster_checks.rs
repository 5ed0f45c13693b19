//! The cluster itself: properties on which other tests rely.

use crate::support::Cluster;

#[test]
fn batch_job_runs_and_its_end_is_reported() {
    let cluster = Cluster::shared();
    let work = cluster.work("bed");
    let place = format!("--chdir={}", work.path().display());
    // Slurm still knows the job of an earlier run of this test.
    let comment = format!("bed of nails {}", std::process::id());
    let job = cluster
        .submit(&[&place, &format!("--comment={comment}")], "echo $SLURM_CPUS_ON_NODE > cores; exit 7");
    cluster.await_state(job, &["FAILED"]);
    assert_eq!(work.read("cores"), "1\n");
    assert_eq!(cluster.jobs_tagged(&comment), [job]);
}

#[test]
fn cluster_has_all_nodes_and_partitions_of_tests() {
    let cluster = Cluster::shared();
    let message = cluster.slurm("sinfo", &["-h", "-o", "%R %D"]);
    let mut partitions: Vec<&str> = message.lines().collect();
    partitions.sort_unstable();
    assert_eq!(partitions, ["debug 4", "gpu 1", "high 4", "preempt 4", "requeue 4", "standard 4"]);
}
