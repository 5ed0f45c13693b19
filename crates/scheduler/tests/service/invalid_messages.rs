//! Invalid messages of workers, and panics: the scheduler survives, nothing invalid is written, and no finished
//! work of others is lost.

use crate::kit::{
    Fixture, Worker, ask, capacity, code, ended, introduce, later, me, plain, someone, token_owner,
};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use windlass_scheduler::service::{CallError, ClaimRequest, NodeCapacityOffer, WorkflowPredicate};
use windlass_store::fault_injection::{DatabaseOperation, InjectedOutcome};
use windlass_store::model::{EventFilter, WorkerFilter, WorkerUpdate};
use windlass_types::worker_bounds::MAX_NODES;
use windlass_types::worker_messages::{AttemptEndReport, AttemptReport, ReturnReason};
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{Bytes, Capacity, JobStatus as S, WorkflowId};

fn events(fixture: &Fixture, category: &str) -> Vec<String> {
    fixture.service.check_time();
    let filter = EventFilter { category: Some(category.into()), ..EventFilter::default() };
    fixture.store.events(None, &filter).unwrap().into_iter().map(|event| event.message).collect()
}

fn workers(fixture: &Fixture) -> usize {
    fixture.store.workers(&WorkerFilter::default()).unwrap().len()
}

/// More nodes than memory could hold.
fn huge() -> Capacity {
    Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes: u32::MAX, max_jobs: None }
}

#[test]
fn registrations_out_of_bounds_leave_no_row() {
    let mut fixture = Fixture::new();
    let cases = [
        WorkerRegistration { capacity: huge(), ..someone(1) },
        WorkerRegistration { host: "h".repeat(1 << 20), ..someone(1) },
        WorkerRegistration { host: "a\0b".into(), ..someone(1) },
        WorkerRegistration { labels: vec!["l".into(); 100_000], ..someone(1) },
        WorkerRegistration { pid: u32::MAX, ..someone(1) },
    ];
    for who in cases {
        let refused = introduce(&fixture, &who).unwrap_err();
        assert_eq!(code(&refused), "bad_introduction");
    }
    assert_eq!(workers(&fixture), 0);
    fixture.restart();
    assert!(fixture.service.is_alive());
}

#[test]
fn the_number_of_workers_per_user_is_limited() {
    let mut fixture = Fixture::new();
    let large = |cpus| WorkerRegistration {
        capacity: Capacity { nodes: MAX_NODES, ..capacity(cpus) },
        ..someone(cpus)
    };
    let mut one = Worker::join(&fixture, large(1));
    let others = [Worker::join(&fixture, large(1)), Worker::join(&fixture, large(1))];
    for _ in 0..2 {
        let refused = introduce(&fixture, &large(1)).unwrap_err();
        assert_eq!(code(&refused), "too_many_workers");
        assert!(refused.to_string().contains("user `me`"), "{refused}");
    }
    assert_eq!(workers(&fixture), 3, "nothing is written of a rejected worker");
    // Others are not affected, and connected workers may return.
    Worker::join_as(&fixture, large(1), "ann");
    Worker::join(&fixture, someone(1));
    assert_eq!(one.come_back(&fixture, &[]), []);
    fixture.restart();
    assert_eq!(one.come_back(&fixture, &[]), []);
    assert_eq!(code(&introduce(&fixture, &large(1)).unwrap_err()), "too_many_workers");
    drop(others);
    // Lost workers do not count.
    fixture.pass(crate::kit::LEASE + Duration::from_secs(3));
    introduce(&fixture, &large(1)).unwrap();
}

/// As written by a server without validation.
#[test]
fn a_row_out_of_bounds_is_reported_and_retired_at_the_start() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut bad = Worker::new(&fixture, 1);
    bad.say(&fixture, vec![]).unwrap();
    assert_eq!(bad.held.len(), 1);
    let update = WorkerUpdate { capacity: Some(huge()), ..WorkerUpdate::default() };
    fixture.store.update_worker(bad.id, &update, windlass_types::Timestamp(2)).unwrap();
    fixture.restart();
    fixture.service.check_time();
    let lost = events(&fixture, "worker_lost");
    assert!(lost[0].contains("`capacity.nodes` is 4294967295"), "{lost:?}");
    assert!(fixture.store.active_workers(None).unwrap().is_empty(), "the next start finds nothing to report");
    let mut good = Worker::new(&fixture, 1);
    good.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
}

#[test]
fn claims_out_of_bounds_are_rejected() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let claim = |capacity, time_left| {
        let node = Some(NodeCapacityOffer { capacity, time_left, scheduler: None, strict: false });
        let request = ClaimRequest { limit: 1, labels: Vec::new(), node };
        ask(|reply| fixture.service.claim_jobs(workflow, request, reply))
    };
    assert_eq!(code(&claim(huge(), None).unwrap_err()), "bad_claim");
    let one = Capacity { nodes: 1, memory: Bytes(1 << 30), ..huge() };
    assert_eq!(code(&claim(one, Some(Duration::MAX)).unwrap_err()), "bad_claim");
    assert_eq!(claim(one, None).unwrap().len(), 1);
}

#[test]
fn ends_with_impossible_times_are_rejected_and_may_be_repeated() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 2);
    worker.say(&fixture, vec![]).unwrap();
    let endless = |key| {
        let AttemptReport::Ended(end) = ended(key, 0) else { panic!("it is an end") };
        AttemptReport::Ended(AttemptEndReport { wall: Duration::from_secs(u64::MAX), ..end })
    };
    let reports: Vec<AttemptReport> = worker.keys().into_iter().map(endless).collect();
    assert_eq!(code(&worker.say(&fixture, reports).unwrap_err()), "bad_exchange");
    assert_eq!(fixture.results(workflow), []);
    worker.number -= 1;
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed, S::Completed]);
}

/// The next `times` commits make the scheduler panic.
fn panic_on_commit(fixture: &Fixture, mut times: u32) {
    fixture.database_state(move |asked| {
        if asked == DatabaseOperation::Batch && times > 0 {
            times -= 1;
            panic!("as the test wants it");
        }
        InjectedOutcome::Done
    });
}

#[test]
fn a_report_that_makes_the_scheduler_panic_is_rejected_and_others_are_not_lost() {
    let fixture = Fixture::new();
    let (bad, good) = (fixture.begin(&[plain(), plain()]), fixture.begin(&[plain()]));
    let (mut one, mut two) = (Worker::new(&fixture, 2), Worker::new(&fixture, 1));
    one.say(&fixture, vec![]).unwrap();
    two.say(&fixture, vec![]).unwrap();
    let (ones, twos) = (one.keys(), two.keys());
    assert_eq!((ones.len(), twos.len()), (2, 1));
    panic_on_commit(&fixture, 1);
    let refused = one.say(&fixture, vec![ended(ones[0], 0)]).unwrap_err();
    assert_eq!(code(&refused), "unknown_worker", "it has to report what it holds");
    assert!(fixture.service.is_alive());
    let told = events(&fixture, "scheduler_panic");
    assert!(told.len() == 1 && told[0].contains("as the test wants it"), "{told:?}");
    // All workers return with their attempts, as after a restart.
    assert_eq!(one.come_back(&fixture, &ones), []);
    assert_eq!(two.come_back(&fixture, &twos), []);
    two.say(&fixture, vec![ended(twos[0], 0)]).unwrap();
    let answer = one.say(&fixture, vec![ended(ones[0], 0), ended(ones[1], 0)]).unwrap();
    assert_eq!(answer.stale.iter().map(|stale| stale.key).collect::<Vec<_>>(), [ones[0]]);
    one.work_off(&fixture);
    two.work_off(&fixture);
    for workflow in [bad, good] {
        let statuses = fixture.statuses(workflow);
        assert!(statuses.iter().all(|status| *status == S::Completed), "{statuses:?}");
    }
    let ended_well = |workflow| fixture.results(workflow).iter().filter(|(_, _, code)| *code == 0).count();
    assert_eq!((ended_well(bad), ended_well(good)), (2, 1), "each job completes once");
}

#[test]
fn a_workflow_that_keeps_panicking_is_disabled_and_others_continue() {
    let mut fixture = Fixture::new();
    let (bad, good) = (fixture.create(&[plain()]).id, fixture.begin(&[plain()]));
    for _ in 0..3 {
        panic_on_commit(&fixture, 1);
        let refused = ask(|reply| fixture.service.start_workflow(bad, "me", reply)).unwrap_err();
        assert_eq!(code(&refused), "unavailable");
        fixture.service.check_time();
    }
    fixture.database_available();
    let refused = ask(|reply| fixture.service.start_workflow(bad, "me", reply)).unwrap_err();
    assert_eq!(code(&refused), "internal");
    Worker::new(&fixture, 1).work_off(&fixture);
    assert_eq!(fixture.statuses(good), [S::Completed]);
    assert_eq!(events(&fixture, "scheduler_panic").len(), 3);
    fixture.restart();
    ask(|reply| fixture.service.start_workflow(bad, "me", reply)).unwrap();
    Worker::new(&fixture, 1).work_off(&fixture);
    assert_eq!(fixture.statuses(bad), [S::Completed], "it was only disabled");
}

#[test]
fn a_call_that_panics_is_dropped_and_leaves_nothing_half_done() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let may: WorkflowPredicate = Arc::new(|_| panic!("as the test wants it"));
    let answer = later(|reply| fixture.service.register_worker(someone(1), token_owner("me", may), reply));
    let nothing = answer.recv_timeout(Duration::from_secs(30)).unwrap_err();
    assert_eq!(nothing, mpsc::RecvTimeoutError::Disconnected);
    let mut worker = Worker::new(&fixture, 1);
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
    // The row of the worker that never learned its id is considered lost when its lease expires.
    fixture.pass(crate::kit::LEASE + Duration::from_secs(3));
    assert_eq!(fixture.store.active_workers(None).unwrap().len(), 0);
}

/// Rows under exclusive work during the panic are read when that is done.
#[test]
fn work_on_a_workflow_that_panics_is_rejected() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let needs = windlass_scheduler::service::ExclusiveRequirement::NoneRequired;
    let answer: mpsc::Receiver<Result<(), CallError>> = later(|reply| {
        fixture.service.run_exclusive(workflow, needs, Box::new(|_| panic!("as the test wants it")), reply);
    });
    assert!(answer.recv_timeout(Duration::from_secs(30)).is_err());
    // Its rows are read again.
    fixture.service.check_time();
    Worker::new(&fixture, 1).work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
}

#[test]
fn a_worker_has_a_cooldown_only_for_the_workflow_it_cannot_start() {
    let fixture = Fixture::new();
    let missing = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let trouble = || ReturnReason::WorkerTrouble("its directory is not there".into());
    let other = fixture.begin(&vec![plain(); 3]);
    let key = worker.keys()[0];
    worker.say(&fixture, vec![AttemptReport::Returned { key, why: trouble() }]).unwrap();
    assert_eq!(worker.keys().iter().map(|key| key.workflow).collect::<Vec<_>>(), [other]);
    for _ in 0..3 {
        let key = worker.keys()[0];
        worker.say(&fixture, vec![ended(key, 0)]).unwrap();
    }
    assert_eq!(fixture.statuses(other), [S::Completed; 3]);
    assert!(worker.held.is_empty());
    // The cooldown is doubled each time, and ends by itself.
    for seconds in [1, 2, 4] {
        let exchange = worker.next(vec![], Duration::from_secs(15));
        let waiting = later(|reply| fixture.service.exchange(exchange, me(), reply));
        fixture.hand.advance(Duration::from_secs(seconds));
        fixture.service.check_time();
        let answer = waiting.try_recv().expect("an answer").unwrap();
        worker.takes(&[], &answer);
        let key = worker.keys()[0];
        assert_eq!(key.workflow, missing);
        worker.say(&fixture, vec![AttemptReport::Returned { key, why: trouble() }]).unwrap();
        assert!(worker.held.is_empty());
    }
}

/// Users may register workers only for their own jobs.
fn owner(id: WorkflowId) -> WorkflowPredicate {
    Arc::new(move |row| row.id == id)
}

/// The allocation of another user's workflow does not exist for a worker, for any Slurm job that it names.
#[test]
fn a_worker_cannot_use_the_allocation_of_another_users_workflow() {
    let fixture = Fixture::new();
    let (theirs, mine) = (fixture.begin(&[plain()]), fixture.begin(&[plain()]));
    let allocation = crate::allocations::running(&fixture, theirs);
    let before = fixture.store.allocation(allocation).unwrap().unwrap();
    let place = windlass_types::slurm::SlurmJobNode { job_id: 7, restarts: 0, node: "n1".into() };
    for (workflow, slurm) in [(None, Some(place.clone())), (None, None), (Some(mine), Some(place))] {
        let who = WorkerRegistration { allocation: Some(allocation.0), slurm, workflow, ..someone(1) };
        let refused =
            ask(|reply| fixture.service.register_worker(who, token_owner("mallory", owner(mine)), reply))
                .unwrap_err();
        assert_eq!(code(&refused), "not_found");
    }
    assert_eq!((workers(&fixture), fixture.store.allocation(allocation).unwrap().unwrap()), (0, before));
}
