//! Effects on clients of the cluster when a part of it is down.

use crate::kit::{Fixture, request};
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
    cluster.repair();
    eventually("it is asked to end", || {
        cluster.slurm("scancel", &[&job.to_string()]);
        cluster.state(job).is_some_and(|state| state == "CANCELLED")
    });
}

#[test]
fn unreachable_controller_changes_no_allocation() {
    let fixture = Fixture::new(Cluster::alone(), "down");
    let reconciler = fixture.reconciler("exec sleep 600");
    let workflow = fixture.workflow(0);
    let id = fixture.want(workflow, request());
    let row = fixture.await_state(id, A::Running);
    fixture.cluster.disturb("stop-ctld", None);
    eventually("two calls have failed", || reconciler.total_statistics()["squeue"].failures() >= 2);
    assert_eq!((fixture.row(id).state, fixture.row(id).job_id), (A::Running, row.job_id));
    assert!(reconciler.remaining_budget().unanswered >= 2 && reconciler.status().problem.is_some());
    fixture.cluster.repair();
    eventually("it answers again", || reconciler.remaining_budget().unanswered == 0);
    eventually("Slurm is available again", || reconciler.status().problem.is_none());
    fixture.await_state(id, A::Running);
    fixture.unwanted(id, "the test has ended");
    fixture.await_state(id, A::Ended);
}

#[test]
fn unconfirmed_submission_is_found_and_not_repeated() {
    let fixture = Fixture::new(Cluster::alone(), "hung");
    let reconciler = fixture.reconciler("exec sleep 600");
    let workflow = fixture.workflow(0);
    fixture.cluster.disturb("freeze-ctld", None);
    let id = fixture.want(workflow, request());
    eventually("a call of sbatch has failed", || {
        reconciler.total_statistics().get("sbatch").is_some_and(|tally| tally.failures() == 1)
    });
    let row = fixture.await_row(id, "says why", |row| row.reason.is_some());
    assert_eq!((row.state, row.job_id), (A::Submitting, None));
    // After it is resumed, it accepts the connections that waited.
    fixture.cluster.repair();
    let row = fixture.await_row(id, "has its job", |row| row.job_id.is_some());
    assert_eq!(row.submissions, 1);
    assert_eq!(fixture.cluster.jobs_tagged(&row.tag), [row.job_id.unwrap()]);
    fixture.await_state(id, A::Running);
    assert_eq!(reconciler.total_statistics()["sbatch"].calls, 1);
    fixture.unwanted(id, "the test has ended");
    fixture.await_state(id, A::Ended);
}
