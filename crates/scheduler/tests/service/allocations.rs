//! Workers in Slurm allocations: when they learn its end, and when they are dismissed.

use crate::kit::{Fixture, LEASE, PlannedJob, Worker, ended, later, me, plain, someone};
use std::time::Duration;
use windlass_core::slurm::allocation_rows::{AllocationChange, NewAllocation};
use windlass_store::model::ResultFilter;
use windlass_types::slurm::{AllocationRequest, AllocationState as A, SlurmJobNode, SlurmJobState};
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptKey, AttemptReport, ReturnReason, StopReason,
};
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{AllocationId, JobStatus as S, SystemClock, Timestamp, WorkflowId};

const DAY: Duration = Duration::from_hours(24);

/// A worker in Slurm job 7.
pub(crate) fn running(fixture: &Fixture, workflow: WorkflowId) -> AllocationId {
    on_nodes(fixture, workflow, 1)
}

fn on_nodes(fixture: &Fixture, workflow: WorkflowId, nodes: u32) -> AllocationId {
    let new = NewAllocation {
        workflow,
        scheduler: None,
        tag: String::new(),
        request: AllocationRequest { nodes, walltime: DAY, ..AllocationRequest::default() },
        action: None,
        by: "me".into(),
    };
    let id = fixture.store.add_allocations(&[new], SystemClock.now()).unwrap()[0];
    let submitting = AllocationChange {
        submitted_at: Some(SystemClock.now()),
        ..AllocationChange::new(id, A::Intended, A::Submitting)
    };
    let running = AllocationChange {
        job_id: Some(Some(7)),
        started_at: Some(Some(SystemClock.now())),
        ..AllocationChange::new(id, A::Submitting, A::Running)
    };
    for change in [submitting, running] {
        fixture.store.change_allocations(&[change], SystemClock.now()).unwrap();
    }
    id
}

fn ends_at(fixture: &Fixture, id: AllocationId, at: Timestamp) {
    let change =
        AllocationChange { ends_at: Some(Some(at)), ..AllocationChange::new(id, A::Running, A::Running) };
    fixture.store.change_allocations(&[change], SystemClock.now()).unwrap();
}

fn inside(fixture: &Fixture, workflow: WorkflowId, id: AllocationId) -> Worker {
    with_cpus(fixture, workflow, id, 1)
}

fn with_cpus(fixture: &Fixture, workflow: WorkflowId, id: AllocationId, cpus: u32) -> Worker {
    let slurm = Some(SlurmJobNode { job_id: 7, restarts: 0, node: "n1".into() });
    let who = WorkerRegistration { workflow: Some(workflow), allocation: Some(id.0), slurm, ..someone(cpus) };
    Worker::join(fixture, who)
}

fn asks(cpus: u32) -> PlannedJob {
    PlannedJob { cpus, ..plain() }
}

#[test]
fn workers_learn_a_changed_end_of_their_allocation() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let id = running(&fixture, workflow);
    let (mut worker, mut other) = (inside(&fixture, workflow, id), Worker::new(&fixture, 1));
    assert_eq!(worker.say(&fixture, vec![]).unwrap().ends_in, None, "it is as Slurm stated at its start");
    fixture.service.notify_allocation_end_time(id, SystemClock.now().plus(3 * DAY));
    let left = worker.say(&fixture, vec![]).unwrap().ends_in.unwrap();
    assert!(left > 2 * DAY, "{left:?}");
    assert_eq!(worker.say(&fixture, vec![]).unwrap().ends_in, None, "that is sent once");
    assert_eq!(other.say(&fixture, vec![]).unwrap().ends_in, None, "it is in no allocation");
}

#[test]
fn returning_workers_learn_the_changed_end() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let id = running(&fixture, workflow);
    let mut worker = inside(&fixture, workflow, id);
    worker.say(&fixture, vec![]).unwrap();
    let keys = worker.keys();
    // A time in the past is outdated: otherwise Slurm would have ended it.
    for (at, is_told) in [(Timestamp(1), false), (SystemClock.now().plus(3 * DAY), true)] {
        ends_at(&fixture, id, at);
        fixture.restart();
        worker.come_back(&fixture, &keys);
        let left = worker.say(&fixture, vec![]).unwrap().ends_in;
        assert_eq!(left.is_some_and(|left| left > 2 * DAY), is_told, "{left:?}");
    }
}

#[test]
fn a_worker_that_fits_no_remaining_job_is_dismissed() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[asks(1), asks(4)]);
    let id = running(&fixture, workflow);
    let mut small = inside(&fixture, workflow, id);
    assert!(!small.say(&fixture, vec![]).unwrap().dismissed);
    assert_eq!(small.held.len(), 1, "the job that fits it");
    // There is no job for this one now; but if the other one loses its job, that would be.
    let mut other = inside(&fixture, workflow, id);
    let mut elsewhere = Worker::join(&fixture, WorkerRegistration { workflow: Some(workflow), ..someone(1) });
    assert!(!other.say(&fixture, vec![]).unwrap().dismissed);
    assert!(!elsewhere.say(&fixture, vec![]).unwrap().dismissed);
    let waits = other.next(vec![], Duration::from_secs(15));
    let waits = later(|reply| fixture.service.exchange(waits, me(), reply));
    let key = small.keys()[0];
    assert!(small.say(&fixture, vec![ended(key, 0)]).unwrap().dismissed, "it cannot run the large job");
    let told = fixture.in_time(&waits).unwrap();
    assert!(told.dismissed, "nor do waiting workers");
    assert!(!elsewhere.say(&fixture, vec![]).unwrap().dismissed, "its node is not kept");
    let mut large = with_cpus(&fixture, workflow, id, 4);
    assert!(!large.say(&fixture, vec![]).unwrap().dismissed);
    assert_eq!(large.held.len(), 1);
    let key = large.keys()[0];
    assert!(large.say(&fixture, vec![ended(key, 0)]).unwrap().dismissed, "all jobs are settled");
}

#[test]
fn a_worker_with_too_little_time_is_dismissed() {
    let fixture = Fixture::new();
    let hour = PlannedJob { cpus: 1, runtime: Some(Duration::from_hours(1)), ..plain() };
    let workflow = fixture.begin(&[hour.clone(), hour]);
    let id = running(&fixture, workflow);
    let mut worker = inside(&fixture, workflow, id);
    let say = |worker: &mut Worker, reports, minutes| {
        let mut exchange = worker.next(reports, Duration::ZERO);
        exchange.time_left = Some(Duration::from_mins(minutes));
        worker.send(&fixture, exchange).unwrap()
    };
    assert!(!say(&mut worker, vec![], 61).dismissed);
    assert_eq!(worker.held.len(), 1);
    assert!(!say(&mut worker, vec![], 50).dismissed, "it has a job");
    let key = worker.keys()[0];
    assert!(say(&mut worker, vec![ended(key, 0)], 49).dismissed);
    assert!(worker.held.is_empty());
}

/// A worker with a job, without contact for longer than its lease.
fn silent(fixture: &Fixture, nodes: u32) -> (WorkflowId, Worker) {
    let workflow = fixture.begin(&[plain()]);
    let id = on_nodes(fixture, workflow, nodes);
    let mut worker = inside(fixture, workflow, id);
    worker.say(fixture, vec![]).unwrap();
    assert_eq!(worker.held.len(), 1);
    fixture.pass(LEASE + Duration::from_secs(3));
    (workflow, worker)
}

#[test]
fn jobs_in_steps_are_reassigned_after_fencing() {
    let fixture = Fixture::new();
    let (workflow, worker) = silent(&fixture, 2);
    let told = fixture.silent.lock().unwrap().clone();
    let keys = worker.keys();
    assert_eq!(
        told.iter().map(|one| (one.worker, one.held_attempts.clone())).collect::<Vec<_>>(),
        [(worker.id, keys)]
    );
    assert_eq!(fixture.statuses(workflow), [S::Pending], "no worker gets it yet");
    fixture.service.notify_worker_fenced(worker.id);
    assert_eq!(fixture.statuses(workflow), [S::Ready]);
    assert_eq!(fixture.silent.lock().unwrap().len(), 1, "that is notified once");
}

#[test]
fn fencing_ends_after_its_timeout() {
    let fixture = Fixture::new();
    let (workflow, _) = silent(&fixture, 2);
    fixture.pass(Duration::from_mins(9));
    assert_eq!(fixture.statuses(workflow), [S::Pending]);
    fixture.pass(Duration::from_mins(1));
    assert_eq!(fixture.statuses(workflow), [S::Ready]);
}

#[test]
fn a_worker_that_returns_during_fencing_has_lost_its_jobs() {
    let fixture = Fixture::new();
    let (workflow, mut worker) = silent(&fixture, 2);
    let keys = worker.keys();
    assert!(worker.say(&fixture, vec![]).is_err(), "it has to register");
    assert_eq!(worker.come_back(&fixture, &keys), keys);
    worker.say(&fixture, vec![]).unwrap();
    assert!(worker.held.is_empty(), "its old job has not ended yet");
    let old = fixture.silent.lock().unwrap()[0].worker;
    fixture.service.notify_worker_fenced(old);
    worker.say(&fixture, vec![]).unwrap();
    assert_eq!(worker.held.len(), 1, "and now any worker can get it");
    assert_eq!(fixture.statuses(workflow), [S::Pending]);
}

#[test]
fn jobs_on_the_node_of_their_worker_need_no_fencing() {
    let fixture = Fixture::new();
    let (workflow, _) = silent(&fixture, 1);
    assert!(fixture.silent.lock().unwrap().is_empty());
    assert_eq!(fixture.statuses(workflow), [S::Ready]);
}

/// Slurm reports this end.
fn ends(fixture: &Fixture, id: AllocationId, end: SlurmJobState) {
    let change = AllocationChange { end: Some(end), ..AllocationChange::new(id, A::Running, A::Ended) };
    fixture.store.change_allocations(&[change], SystemClock.now()).unwrap();
    fixture.service.notify_allocation_ended(id);
}

/// (status of the attempt, reason) of each attempt, and the status of the job.
fn told(fixture: &Fixture, workflow: WorkflowId) -> (Vec<(S, String)>, S) {
    let status = fixture.statuses(workflow)[0];
    let filter = ResultFilter { all_runs: true, ..ResultFilter::default() };
    let rows = fixture.store.results(workflow, &filter).unwrap();
    (rows.into_iter().map(|row| (row.status, row.reason.unwrap_or_default())).collect(), status)
}

#[test]
fn jobs_lost_with_their_allocation_have_that_reason_and_not_failed() {
    for (end, words) in [
        (SlurmJobState::Cancelled, "was cancelled"),
        (SlurmJobState::Preempted, "was preempted"),
        (SlurmJobState::Timeout, "reached its time limit"),
    ] {
        let fixture = Fixture::new();
        let workflow = fixture.begin(&[plain()]);
        let id = running(&fixture, workflow);
        let mut worker = inside(&fixture, workflow, id);
        worker.say(&fixture, vec![]).unwrap();
        ends(&fixture, id, end);
        // Slurm may have lost the node, where the job continues until the worker notices that its lease
        // expired.
        assert_eq!(told(&fixture, workflow), (Vec::new(), S::Pending), "{end}");
        fixture.pass(LEASE + Duration::from_secs(3));
        let why = format!("orphaned: allocation {id} (Slurm job 7) {words}");
        assert_eq!(told(&fixture, workflow), (vec![(S::Failed, why)], S::Ready));
        let mut next = Worker::new(&fixture, 1);
        next.say(&fixture, vec![]).unwrap();
        assert_eq!(next.held.len(), 1, "it runs beside others, and not isolated");
    }
}

#[test]
fn jobs_of_an_ended_allocation_become_ready_at_once() {
    for (nodes, status) in [(1, S::Ready), (2, S::Pending)] {
        let fixture = Fixture::new();
        let workflow = fixture.begin(&[plain()]);
        let id = on_nodes(&fixture, workflow, nodes);
        inside(&fixture, workflow, id).say(&fixture, vec![]).unwrap();
        ends(&fixture, id, SlurmJobState::OutOfMemory);
        assert_eq!(told(&fixture, workflow).1, status, "on {nodes}");
    }
}

/// The lease may expire before Slurm gives the node up.
#[test]
fn the_reason_of_a_loss_is_added_when_slurm_knows_it() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let id = running(&fixture, workflow);
    inside(&fixture, workflow, id).say(&fixture, vec![]).unwrap();
    fixture.pass(LEASE + Duration::from_secs(3));
    let (lost, status) = told(&fixture, workflow);
    assert_eq!((lost.len(), status), (1, S::Ready));
    assert!(lost[0].1.starts_with("orphaned: worker "), "{lost:?}");
    ends(&fixture, id, SlurmJobState::NodeFail);
    let why = format!("orphaned: allocation {id} (Slurm job 7) lost a node");
    assert_eq!(told(&fixture, workflow), (vec![(S::Failed, why)], S::Ready));
}

/// Slurm lets a worker continue for a moment, and its last reports may come after the known end.
#[test]
fn loss_reported_after_the_end_of_the_allocation_names_that_end() {
    for why in [ReturnReason::WorkerDied, ReturnReason::WorkerHung] {
        let fixture = Fixture::new();
        let workflow = fixture.begin(&[plain()]);
        let id = running(&fixture, workflow);
        let mut worker = inside(&fixture, workflow, id);
        worker.say(&fixture, vec![]).unwrap();
        ends(&fixture, id, SlurmJobState::Preempted);
        let key = worker.keys()[0];
        worker.say(&fixture, vec![AttemptReport::Returned { key, why }]).unwrap();
        let reason = format!("orphaned: allocation {id} (Slurm job 7) was preempted");
        assert_eq!(told(&fixture, workflow).0, [(S::Failed, reason)]);
    }
}

#[test]
fn jobs_on_a_lost_node_may_run_until_the_lease_expires() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let id = running(&fixture, workflow);
    let mut worker = inside(&fixture, workflow, id);
    worker.say(&fixture, vec![]).unwrap();
    ends(&fixture, id, SlurmJobState::NodeFail);
    assert_eq!(told(&fixture, workflow), (Vec::new(), S::Pending));
    fixture.pass(LEASE + Duration::from_secs(3));
    let why = format!("orphaned: allocation {id} (Slurm job 7) lost a node");
    assert_eq!(told(&fixture, workflow), (vec![(S::Failed, why)], S::Ready));
}

#[test]
fn jobs_stopped_by_their_allocation_have_that_reason() {
    for is_known_before in [true, false] {
        let fixture = Fixture::new();
        let workflow = fixture.begin(&[plain()]);
        let id = on_nodes(&fixture, workflow, 1);
        let mut worker = inside(&fixture, workflow, id);
        worker.say(&fixture, vec![]).unwrap();
        let stopped = interrupted(worker.keys()[0]);
        if is_known_before {
            // Slurm has lost the node, and the worker is alive and reports.
            ends(&fixture, id, SlurmJobState::NodeFail);
            worker.leaves(&fixture, vec![stopped]);
        } else {
            worker.leaves(&fixture, vec![stopped]);
            assert_eq!(told(&fixture, workflow).0, [(S::Terminated, "interrupted".to_owned())]);
            ends(&fixture, id, SlurmJobState::NodeFail);
        }
        let why = format!("interrupted: allocation {id} (Slurm job 7) lost a node");
        assert_eq!(told(&fixture, workflow), (vec![(S::Terminated, why)], S::Ready));
    }
}

/// It was stopped because its worker has to leave.
fn interrupted(key: AttemptKey) -> AttemptReport {
    let AttemptReport::Ended(ended) = ended(key, 143) else { unreachable!() };
    AttemptReport::Ended(AttemptEndReport {
        cause: AttemptEndCause::Stopped(StopReason::Interrupted),
        ..ended
    })
}
