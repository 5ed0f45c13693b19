//! Effects on clients of the cluster when a part of it is down.

use crate::kit::{World, request};
use crate::support::{Cluster, eventually};
use windlass_types::slurm::AllocationState as A;

#[test]
fn restarted_controller_reports_its_jobs() {
    let cluster = Cluster::alone();
    let job = cluster.submit(&["--time=5"], "sleep 300");
    cluster.await_state(job, &["RUNNING"]);
    cluster.disturb("stop-ctld", None);
    let answer = cluster.command("scontrol").arg("ping").output().unwrap();
    assert!(!answer.status.success(), "{answer:?}");
    cluster.mend();
    eventually("it is asked to end", || {
        cluster.slurm("scancel", &[&job.to_string()]);
        cluster.state(job).is_some_and(|state| state == "CANCELLED")
    });
}

#[test]
fn unreachable_controller_changes_no_allocation() {
    let world = World::new(Cluster::alone(), "down");
    let reconciler = world.reconciler("exec sleep 600");
    let workflow = world.workflow(0);
    let id = world.want(workflow, request());
    let row = world.await_state(id, A::Running);
    world.cluster.disturb("stop-ctld", None);
    eventually("two calls have failed", || reconciler.total_statistics()["squeue"].failures() >= 2);
    assert_eq!((world.row(id).state, world.row(id).job_id), (A::Running, row.job_id));
    assert!(reconciler.remaining_budget().unanswered >= 2 && reconciler.status().problem.is_some());
    world.cluster.mend();
    eventually("it answers again", || reconciler.remaining_budget().unanswered == 0);
    eventually("Slurm is available again", || reconciler.status().problem.is_none());
    world.await_state(id, A::Running);
    world.unwanted(id, "the test has ended");
    world.await_state(id, A::Ended);
}

#[test]
fn unconfirmed_submission_is_found_and_not_repeated() {
    let world = World::new(Cluster::alone(), "hung");
    let reconciler = world.reconciler("exec sleep 600");
    let workflow = world.workflow(0);
    world.cluster.disturb("freeze-ctld", None);
    let id = world.want(workflow, request());
    eventually("a call of sbatch has failed", || {
        reconciler.total_statistics().get("sbatch").is_some_and(|tally| tally.failures() == 1)
    });
    let row = world.await_row(id, "says why", |row| row.reason.is_some());
    assert_eq!((row.state, row.job_id), (A::Submitting, None));
    // After it is resumed, it accepts the connections that waited.
    world.cluster.mend();
    let row = world.await_row(id, "has its job", |row| row.job_id.is_some());
    assert_eq!(row.submissions, 1);
    assert_eq!(world.cluster.jobs_tagged(&row.tag), [row.job_id.unwrap()]);
    world.await_state(id, A::Running);
    assert_eq!(reconciler.total_statistics()["sbatch"].calls, 1);
    world.unwanted(id, "the test has ended");
    world.await_state(id, A::Ended);
}
