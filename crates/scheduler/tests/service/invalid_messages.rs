//! Invalid messages of workers, and panics: the scheduler survives, nothing invalid is written, and no finished
//! work of others is lost.

use crate::kit::{Worker, World, ask, capacity, code, ended, introduce, later, me, plain, someone, sponsor};
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

fn events(world: &World, category: &str) -> Vec<String> {
    world.service.check_time();
    let filter = EventFilter { category: Some(category.into()), ..EventFilter::default() };
    world.store.events(None, &filter).unwrap().into_iter().map(|event| event.message).collect()
}

fn workers(world: &World) -> usize {
    world.store.workers(&WorkerFilter::default()).unwrap().len()
}

/// More nodes than memory could hold.
fn huge() -> Capacity {
    Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes: u32::MAX, max_jobs: None }
}

#[test]
fn registrations_out_of_bounds_leave_no_row() {
    let mut world = World::new();
    let cases = [
        WorkerRegistration { capacity: huge(), ..someone(1) },
        WorkerRegistration { host: "h".repeat(1 << 20), ..someone(1) },
        WorkerRegistration { host: "a\0b".into(), ..someone(1) },
        WorkerRegistration { labels: vec!["l".into(); 100_000], ..someone(1) },
        WorkerRegistration { pid: u32::MAX, ..someone(1) },
    ];
    for who in cases {
        let refused = introduce(&world, &who).unwrap_err();
        assert_eq!(code(&refused), "bad_introduction");
    }
    assert_eq!(workers(&world), 0);
    world.restart();
    assert!(world.service.is_alive());
}

#[test]
fn the_number_of_workers_per_user_is_limited() {
    let mut world = World::new();
    let large = |cpus| WorkerRegistration {
        capacity: Capacity { nodes: MAX_NODES, ..capacity(cpus) },
        ..someone(cpus)
    };
    let mut one = Worker::join(&world, large(1));
    let others = [Worker::join(&world, large(1)), Worker::join(&world, large(1))];
    for _ in 0..2 {
        let refused = introduce(&world, &large(1)).unwrap_err();
        assert_eq!(code(&refused), "too_many_workers");
        assert!(refused.to_string().contains("user `me`"), "{refused}");
    }
    assert_eq!(workers(&world), 3, "nothing is written of a rejected worker");
    // Others are not affected, and connected workers may return.
    Worker::join_as(&world, large(1), "ann");
    Worker::join(&world, someone(1));
    assert_eq!(one.come_back(&world, &[]), []);
    world.restart();
    assert_eq!(one.come_back(&world, &[]), []);
    assert_eq!(code(&introduce(&world, &large(1)).unwrap_err()), "too_many_workers");
    drop(others);
    // Lost workers do not count.
    world.pass(crate::kit::LEASE + Duration::from_secs(3));
    introduce(&world, &large(1)).unwrap();
}

/// As written by a server without validation.
#[test]
fn a_row_out_of_bounds_is_reported_and_retired_at_the_start() {
    let mut world = World::new();
    let workflow = world.begin(&[plain()]);
    let mut bad = Worker::new(&world, 1);
    bad.say(&world, vec![]).unwrap();
    assert_eq!(bad.held.len(), 1);
    let update = WorkerUpdate { capacity: Some(huge()), ..WorkerUpdate::default() };
    world.store.update_worker(bad.id, &update, windlass_types::Timestamp(2)).unwrap();
    world.restart();
    world.service.check_time();
    let lost = events(&world, "worker_lost");
    assert!(lost[0].contains("`capacity.nodes` is 4294967295"), "{lost:?}");
    assert!(world.store.active_workers(None).unwrap().is_empty(), "the next start finds nothing to report");
    let mut good = Worker::new(&world, 1);
    good.work_off(&world);
    assert_eq!(world.statuses(workflow), [S::Completed]);
}

#[test]
fn claims_out_of_bounds_are_rejected() {
    let world = World::new();
    let workflow = world.begin(&[plain()]);
    let claim = |capacity, time_left| {
        let node = Some(NodeCapacityOffer { capacity, time_left, scheduler: None, strict: false });
        let request = ClaimRequest { limit: 1, labels: Vec::new(), node };
        ask(|reply| world.service.claim_jobs(workflow, request, reply))
    };
    assert_eq!(code(&claim(huge(), None).unwrap_err()), "bad_claim");
    let one = Capacity { nodes: 1, memory: Bytes(1 << 30), ..huge() };
    assert_eq!(code(&claim(one, Some(Duration::MAX)).unwrap_err()), "bad_claim");
    assert_eq!(claim(one, None).unwrap().len(), 1);
}

#[test]
fn ends_with_impossible_times_are_rejected_and_may_be_repeated() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&world, 2);
    worker.say(&world, vec![]).unwrap();
    let endless = |key| {
        let AttemptReport::Ended(end) = ended(key, 0) else { panic!("it is an end") };
        AttemptReport::Ended(AttemptEndReport { wall: Duration::from_secs(u64::MAX), ..end })
    };
    let reports: Vec<AttemptReport> = worker.keys().into_iter().map(endless).collect();
    assert_eq!(code(&worker.say(&world, reports).unwrap_err()), "bad_exchange");
    assert_eq!(world.results(workflow), []);
    worker.number -= 1;
    worker.work_off(&world);
    assert_eq!(world.statuses(workflow), [S::Completed, S::Completed]);
}

/// The next `times` commits make the scheduler panic.
fn panic_on_commit(world: &World, mut times: u32) {
    world.weather(move |asked| {
        if asked == DatabaseOperation::Batch && times > 0 {
            times -= 1;
            panic!("as the test wants it");
        }
        InjectedOutcome::Done
    });
}

#[test]
fn a_report_that_makes_the_scheduler_panic_is_rejected_and_others_are_not_lost() {
    let world = World::new();
    let (bad, good) = (world.begin(&[plain(), plain()]), world.begin(&[plain()]));
    let (mut one, mut two) = (Worker::new(&world, 2), Worker::new(&world, 1));
    one.say(&world, vec![]).unwrap();
    two.say(&world, vec![]).unwrap();
    let (ones, twos) = (one.keys(), two.keys());
    assert_eq!((ones.len(), twos.len()), (2, 1));
    panic_on_commit(&world, 1);
    let refused = one.say(&world, vec![ended(ones[0], 0)]).unwrap_err();
    assert_eq!(code(&refused), "unknown_worker", "it has to report what it holds");
    assert!(world.service.is_alive());
    let told = events(&world, "scheduler_panic");
    assert!(told.len() == 1 && told[0].contains("as the test wants it"), "{told:?}");
    // All workers return with their attempts, as after a restart.
    assert_eq!(one.come_back(&world, &ones), []);
    assert_eq!(two.come_back(&world, &twos), []);
    two.say(&world, vec![ended(twos[0], 0)]).unwrap();
    let answer = one.say(&world, vec![ended(ones[0], 0), ended(ones[1], 0)]).unwrap();
    assert_eq!(answer.stale.iter().map(|stale| stale.key).collect::<Vec<_>>(), [ones[0]]);
    one.work_off(&world);
    two.work_off(&world);
    for workflow in [bad, good] {
        let statuses = world.statuses(workflow);
        assert!(statuses.iter().all(|status| *status == S::Completed), "{statuses:?}");
    }
    let ended_well = |workflow| world.results(workflow).iter().filter(|(_, _, code)| *code == 0).count();
    assert_eq!((ended_well(bad), ended_well(good)), (2, 1), "each job completes once");
}

#[test]
fn a_workflow_that_keeps_panicking_is_disabled_and_others_continue() {
    let mut world = World::new();
    let (bad, good) = (world.create(&[plain()]).id, world.begin(&[plain()]));
    for _ in 0..3 {
        panic_on_commit(&world, 1);
        let refused = ask(|reply| world.service.start_workflow(bad, "me", reply)).unwrap_err();
        assert_eq!(code(&refused), "unavailable");
        world.service.check_time();
    }
    world.fair_weather();
    let refused = ask(|reply| world.service.start_workflow(bad, "me", reply)).unwrap_err();
    assert_eq!(code(&refused), "internal");
    Worker::new(&world, 1).work_off(&world);
    assert_eq!(world.statuses(good), [S::Completed]);
    assert_eq!(events(&world, "scheduler_panic").len(), 3);
    world.restart();
    ask(|reply| world.service.start_workflow(bad, "me", reply)).unwrap();
    Worker::new(&world, 1).work_off(&world);
    assert_eq!(world.statuses(bad), [S::Completed], "it was only disabled");
}

#[test]
fn a_call_that_panics_is_dropped_and_leaves_nothing_half_done() {
    let world = World::new();
    let workflow = world.begin(&[plain()]);
    let may: WorkflowPredicate = Arc::new(|_| panic!("as the test wants it"));
    let answer = later(|reply| world.service.register_worker(someone(1), sponsor("me", may), reply));
    let nothing = answer.recv_timeout(Duration::from_secs(30)).unwrap_err();
    assert_eq!(nothing, mpsc::RecvTimeoutError::Disconnected);
    let mut worker = Worker::new(&world, 1);
    worker.work_off(&world);
    assert_eq!(world.statuses(workflow), [S::Completed]);
    // The row of the worker that never learned its id is considered lost when its lease expires.
    world.pass(crate::kit::LEASE + Duration::from_secs(3));
    assert_eq!(world.store.active_workers(None).unwrap().len(), 0);
}

/// Rows under exclusive work during the panic are read when that is done.
#[test]
fn work_on_a_workflow_that_panics_is_rejected() {
    let world = World::new();
    let workflow = world.begin(&[plain()]);
    let needs = windlass_scheduler::service::ExclusiveRequirement::NoneRequired;
    let answer: mpsc::Receiver<Result<(), CallError>> = later(|reply| {
        world.service.run_exclusive(workflow, needs, Box::new(|_| panic!("as the test wants it")), reply);
    });
    assert!(answer.recv_timeout(Duration::from_secs(30)).is_err());
    // Its rows are read again.
    world.service.check_time();
    Worker::new(&world, 1).work_off(&world);
    assert_eq!(world.statuses(workflow), [S::Completed]);
}

#[test]
fn a_worker_has_a_cooldown_only_for_the_workflow_it_cannot_start() {
    let world = World::new();
    let missing = world.begin(&[plain()]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let trouble = || ReturnReason::WorkerTrouble("its directory is not there".into());
    let other = world.begin(&vec![plain(); 3]);
    let key = worker.keys()[0];
    worker.say(&world, vec![AttemptReport::Returned { key, why: trouble() }]).unwrap();
    assert_eq!(worker.keys().iter().map(|key| key.workflow).collect::<Vec<_>>(), [other]);
    for _ in 0..3 {
        let key = worker.keys()[0];
        worker.say(&world, vec![ended(key, 0)]).unwrap();
    }
    assert_eq!(world.statuses(other), [S::Completed; 3]);
    assert!(worker.held.is_empty());
    // The cooldown is doubled each time, and ends by itself.
    for seconds in [1, 2, 4] {
        let exchange = worker.next(vec![], Duration::from_secs(15));
        let waiting = later(|reply| world.service.exchange(exchange, me(), reply));
        world.hand.advance(Duration::from_secs(seconds));
        world.service.check_time();
        let answer = waiting.try_recv().expect("an answer").unwrap();
        worker.takes(&[], &answer);
        let key = worker.keys()[0];
        assert_eq!(key.workflow, missing);
        worker.say(&world, vec![AttemptReport::Returned { key, why: trouble() }]).unwrap();
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
    let world = World::new();
    let (theirs, mine) = (world.begin(&[plain()]), world.begin(&[plain()]));
    let allocation = crate::allocations::running(&world, theirs);
    let before = world.store.allocation(allocation).unwrap().unwrap();
    let place = windlass_types::slurm::SlurmJobNode { job_id: 7, restarts: 0, node: "n1".into() };
    for (workflow, slurm) in [(None, Some(place.clone())), (None, None), (Some(mine), Some(place))] {
        let who = WorkerRegistration { allocation: Some(allocation.0), slurm, workflow, ..someone(1) };
        let refused = ask(|reply| world.service.register_worker(who, sponsor("mallory", owner(mine)), reply))
            .unwrap_err();
        assert_eq!(code(&refused), "not_found");
    }
    assert_eq!((workers(&world), world.store.allocation(allocation).unwrap().unwrap()), (0, before));
}
