//! Clients that claim, start and complete jobs themselves, and commands of users.

use crate::kit::{Fixture, PlannedJob, Worker, after, ask, capacity, code, ended, me, plain};
use std::time::Duration;
use windlass_scheduler::service::{
    CallError, ClaimRequest, ExclusiveRequirement, JobCompletion, JobsToReset, NodeCapacityOffer,
};
use windlass_store::model::{NewWorker, SpawnJob, SpawnRequest, WorkerKind};
use windlass_types::worker_messages::AttemptUsage;
use windlass_types::{JobDefinition, JobId, JobStatus as S, RunId, Timestamp, WorkerId, WorkflowId};

pub(crate) fn claim(fixture: &Fixture, workflow: WorkflowId, limit: usize) -> Vec<JobId> {
    let request = ClaimRequest { limit, ..ClaimRequest::default() };
    ask(|reply| fixture.service.claim_jobs(workflow, request, reply)).unwrap()
}

pub(crate) fn node(fixture: &Fixture, workflow: WorkflowId) -> WorkerId {
    let row = NewWorker { kind: WorkerKind::Torc, workflow: Some(workflow), ..NewWorker::default() };
    fixture.store.add_worker(&row, Timestamp(1)).unwrap()
}

pub(crate) fn start(fixture: &Fixture, job: JobId, node: WorkerId) -> Result<(), CallError> {
    ask(|reply| fixture.service.start_job(job, RunId(1), node, reply))
}

pub(crate) fn completion(job: JobId, status: S) -> JobCompletion {
    JobCompletion {
        job,
        run: RunId(1),
        attempt: None,
        status,
        return_code: i32::from(status != S::Completed),
        exec_time: Duration::from_mins(1),
        completion_time: Timestamp(2_000_000),
        usage: AttemptUsage::default(),
        node: None,
    }
}

pub(crate) fn complete(
    fixture: &Fixture,
    workflow: WorkflowId,
    job: JobId,
    status: S,
) -> Result<(), CallError> {
    let completions = vec![completion(job, status)];
    ask(|reply| fixture.service.complete_jobs(workflow, completions, reply)).unwrap().remove(0).1
}

#[test]
fn clients_claim_start_and_complete_jobs() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), after(&[0]), PlannedJob { priority: 3, ..plain() }]);
    let node = node(&fixture, workflow);
    let claimed = claim(&fixture, workflow, 9);
    assert_eq!(fixture.statuses(workflow), [S::Pending, S::Blocked, S::Pending]);
    assert!(claimed[0] > claimed[1], "the highest priority first");
    let job = claimed[1];
    start(&fixture, job, node).unwrap();
    assert_eq!(fixture.statuses(workflow)[0], S::Running);
    assert_eq!(code(&start(&fixture, job, node).unwrap_err()), "job_not_pending");
    complete(&fixture, workflow, job, S::Completed).unwrap();
    assert_eq!(
        fixture.statuses(workflow),
        [S::Completed, S::Ready, S::Pending],
        "dependents are ready at once"
    );
    assert_eq!(code(&complete(&fixture, workflow, job, S::Failed).unwrap_err()), "already_complete");
    assert_eq!(fixture.results(workflow), [("j0".to_owned(), 1, 0)]);
    let stale = ask(|reply| fixture.service.start_job(claimed[0], RunId(7), node, reply)).unwrap_err();
    assert_eq!(code(&stale), "run_mismatch");
    assert_eq!(code(&complete(&fixture, workflow, claimed[0], S::Ready).unwrap_err()), "not_terminal");
}

#[test]
fn a_claim_takes_jobs_that_fit_the_node() {
    let fixture = Fixture::new();
    let big = PlannedJob { cpus: 3, ..plain() };
    let workflow = fixture.begin(&[big.clone(), big, PlannedJob { cpus: 1, ..plain() }]);
    let offer = NodeCapacityOffer { capacity: capacity(4), time_left: None, scheduler: None, strict: false };
    let request = ClaimRequest { limit: 10, labels: vec![], node: Some(offer) };
    let claimed = ask(|reply| fixture.service.claim_jobs(workflow, request, reply)).unwrap();
    assert_eq!(claimed.len(), 2, "3 + 1 of 4");
    assert_eq!(fixture.statuses(workflow), [S::Pending, S::Ready, S::Pending]);
}

#[test]
fn a_node_that_leaves_returns_its_jobs() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let node = node(&fixture, workflow);
    let claimed = claim(&fixture, workflow, 2);
    start(&fixture, claimed[0], node).unwrap();
    fixture.restart();
    fixture.pass(Duration::from_secs(70));
    assert_eq!(fixture.statuses(workflow), [S::Running, S::Pending], "such nodes have no lease");
    ask(|reply| fixture.service.retire_worker(node, "me", reply)).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Ready, S::Pending]);
    complete(&fixture, workflow, claimed[1], S::Completed).unwrap();
    let again = claim(&fixture, workflow, 1);
    assert_eq!(again, [claimed[0]]);
    complete(&fixture, workflow, again[0], S::Completed).unwrap();
    assert!(fixture.row(workflow).ended_at.is_some());
}

#[test]
fn a_retried_job_lets_its_canceled_dependents_wait_again() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), after(&[0])]);
    let job = claim(&fixture, workflow, 1)[0];
    complete(&fixture, workflow, job, S::Failed).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Failed, S::Canceled]);
    ask(|reply| fixture.service.retry_job(job, RunId(1), 3, "me", reply)).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Ready, S::Blocked]);
    assert!(fixture.row(workflow).ended_at.is_none(), "the run continues");
    let again = claim(&fixture, workflow, 1);
    complete(&fixture, workflow, again[0], S::Completed).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Completed, S::Ready]);
    assert_eq!(fixture.results(workflow), [("j0".to_owned(), 1, 1), ("j0".to_owned(), 2, 0)]);
    let last = claim(&fixture, workflow, 1)[0];
    complete(&fixture, workflow, last, S::Failed).unwrap();
    let refused = ask(|reply| fixture.service.retry_job(last, RunId(1), 1, "me", reply)).unwrap_err();
    assert_eq!(code(&refused), "retries_used_up");
}

#[test]
fn a_running_job_is_retried_by_its_runner_and_leaves_a_result() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let node = node(&fixture, workflow);
    let job = claim(&fixture, workflow, 1)[0];
    start(&fixture, job, node).unwrap();
    ask(|reply| fixture.service.retry_job(job, RunId(1), 2, "me", reply)).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Ready]);
    let code = windlass_types::worker_messages::return_code::NOT_REPORTED;
    assert_eq!(fixture.results(workflow), [("j0".to_owned(), 1, code)]);
}

#[test]
fn reset_and_initialize_start_jobs_over() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), after(&[0]), plain()]);
    for job in claim(&fixture, workflow, 2) {
        complete(&fixture, workflow, job, S::Completed).unwrap();
    }
    let last = claim(&fixture, workflow, 1);
    complete(&fixture, workflow, last[0], S::Failed).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Completed, S::Failed, S::Completed]);
    assert!(fixture.row(workflow).ended_at.is_some());
    let run = ask(|reply| fixture.service.reset_status(workflow, false, "me", reply)).unwrap();
    assert_eq!(run, RunId(2));
    let count = ask(|reply| fixture.service.reset_jobs(workflow, JobsToReset::Failed, "me", reply)).unwrap();
    assert_eq!(count, 1);
    ask(|reply| fixture.service.initialize_workflow(workflow, true, false, "me", reply)).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Completed, S::Ready, S::Completed]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    assert_eq!((worker.held[0].key.run, worker.held[0].key.attempt.0), (RunId(2), 1));
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 3]);
}

#[test]
fn dependents_of_a_reset_job_are_reset() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), after(&[0])]);
    let mut worker = Worker::new(&fixture, 1);
    worker.work_off(&fixture);
    let first = fixture.store.load_jobs(workflow).unwrap().ids[0];
    let which = JobsToReset::Jobs(vec![first]);
    assert_eq!(ask(|reply| fixture.service.reset_jobs(workflow, which, "me", reply)).unwrap(), 1);
    assert_eq!(fixture.statuses(workflow), [S::Uninitialized, S::Completed]);
    ask(|reply| fixture.service.initialize_workflow(workflow, true, false, "me", reply)).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Ready, S::Blocked]);
    worker.work_off(&fixture);
    let attempts: Vec<u32> = fixture.results(workflow).iter().map(|(_, attempt, _)| *attempt).collect();
    assert_eq!(attempts, [1, 2, 1, 2], "in the same run an attempt is never used twice");
}

#[test]
fn held_jobs_cannot_be_reset() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let key = worker.held[0].key;
    let refusals = [
        ask(|reply| fixture.service.reset_status(workflow, true, "me", reply)).unwrap_err(),
        ask(|reply| fixture.service.initialize_workflow(workflow, false, false, "me", reply)).unwrap_err(),
        ask(|reply| {
            fixture.service.run_exclusive::<()>(
                workflow,
                ExclusiveRequirement::NoHeldJobs,
                Box::new(|_| Ok(())),
                reply,
            );
        })
        .unwrap_err(),
        complete(&fixture, workflow, key.job, S::Completed).unwrap_err(),
    ];
    let codes: Vec<&str> = refusals.iter().map(code).collect();
    assert_eq!(codes, ["workflow_active", "workflow_active", "workflow_active", "job_of_another"]);
}

#[test]
fn a_cancel_records_the_end_of_jobs_that_clients_hold() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), plain()]);
    let node = node(&fixture, workflow);
    let claimed = claim(&fixture, workflow, 2);
    start(&fixture, claimed[0], node).unwrap();
    ask(|reply| fixture.service.cancel_workflow(workflow, "me", reply)).unwrap();
    fixture.service.check_time();
    assert_eq!(fixture.statuses(workflow), [S::Canceled, S::Canceled, S::Ready]);
    assert!(fixture.row(workflow).is_canceled);
    assert!(claim(&fixture, workflow, 9).is_empty());
    assert_eq!(
        code(&complete(&fixture, workflow, claimed[0], S::Completed).unwrap_err()),
        "already_complete"
    );
}

#[test]
fn users_change_the_status_of_single_jobs() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), after(&[0]), plain()]);
    let claimed = claim(&fixture, workflow, 2);
    complete(&fixture, workflow, claimed[0], S::PendingFailed).unwrap();
    let change = |job, to| ask(|reply| fixture.service.change_job_status(job, to, RunId(1), "me", reply));
    change(claimed[1], S::Ready).unwrap();
    let waiting = [S::PendingFailed, S::Blocked, S::Ready];
    assert_eq!(fixture.statuses(workflow), waiting, "a claim is returned");
    for to in [S::Ready, S::Uninitialized, S::Failed, S::Canceled, S::Disabled] {
        assert_eq!(code(&change(claimed[0], to).unwrap_err()), "awaits_decision", "{to}");
    }
    for which in [JobsToReset::All, JobsToReset::Failed, JobsToReset::Jobs(vec![claimed[0]])] {
        let reset = ask(|reply| fixture.service.reset_jobs(workflow, which.clone(), "me", reply));
        assert_eq!(code(&reset.unwrap_err()), "awaits_decision", "{which:?}");
    }
    let anew = ask(|reply| fixture.service.initialize_workflow(workflow, false, false, "me", reply));
    assert_eq!(code(&anew.unwrap_err()), "awaits_decision");
    assert_eq!(fixture.statuses(workflow), waiting, "nothing was changed");
    change(claimed[1], S::Disabled).unwrap();
    assert_eq!(fixture.statuses(workflow)[2], S::Disabled);
    assert_eq!(code(&change(claimed[1], S::Running).unwrap_err()), "impossible_transition");
}

#[test]
fn exclusive_work_delays_calls_for_its_workflow() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let (reached, at_work) = std::sync::mpsc::channel();
    let (go_on, until) = std::sync::mpsc::channel::<()>();
    let work = Box::new(move |store: &dyn windlass_store::Store| {
        reached.send(()).unwrap();
        until.recv().unwrap();
        store.workflow(workflow).map(|row| row.map(|row| row.name))
    });
    let done = crate::kit::later(|reply| {
        fixture.service.run_exclusive(workflow, ExclusiveRequirement::NoneRequired, work, reply);
    });
    at_work.recv().unwrap();
    let key = worker.held[0].key;
    let report = worker.next(vec![ended(key, 0)], Duration::ZERO);
    let reported = crate::kit::later(|reply| fixture.service.exchange(report, me(), reply));
    let other = fixture.begin(&[plain()]);
    assert!(
        fixture.store.workflow(other).unwrap().unwrap().started_at.is_some(),
        "other workflows are not delayed"
    );
    assert!(reported.try_recv().is_err(), "calls about it wait");
    go_on.send(()).unwrap();
    assert_eq!(done.recv().unwrap().unwrap().as_deref(), Some("test"));
    assert!(reported.recv().unwrap().unwrap().stale.is_empty());
    assert_eq!(fixture.results(workflow), [("j0".to_owned(), 1, 0)]);
}

#[test]
fn running_jobs_add_jobs() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let caller = worker.held[0].key;
    let job = SpawnJob { definition: JobDefinition::new("more", "true"), depends_on: vec![] };
    let request = SpawnRequest { caller, lineage: None, state: None, jobs: vec![job] };
    let spawned = ask(|reply| fixture.service.spawn_jobs(request, reply)).unwrap();
    assert_eq!(spawned.spawned_job_ids.len(), 1);
    assert_eq!(fixture.statuses(workflow), [S::Pending, S::Blocked]);
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 2]);
    assert!(fixture.row(workflow).ended_at.is_some());
}
