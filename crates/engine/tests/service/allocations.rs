//! Workers in allocations of Slurm: when they are told that it ends, and when they are sent home.

use crate::world::{Planned, Worker, World, ended, later, me, plain, someone};
use std::time::Duration;
use windlass_core::slurm::book::{AllocationChange, NewAllocation};
use windlass_types::fleet::Introduction;
use windlass_types::slurm::{AllocationRequest, AllocationState as A, SlurmPlace};
use windlass_types::{AllocationId, Clock, Timestamp, WorkflowId};

const DAY: Duration = Duration::from_hours(24);

/// One that runs as job 7 of Slurm.
fn running(world: &World, workflow: WorkflowId) -> AllocationId {
    let new = NewAllocation {
        workflow,
        scheduler: None,
        tag: String::new(),
        request: AllocationRequest { nodes: 1, walltime: DAY, ..AllocationRequest::default() },
        action: None,
        by: "me".into(),
    };
    let id = world.store.add_allocations(&[new], Clock.now()).unwrap()[0];
    let submitting = AllocationChange {
        submitted_at: Some(Clock.now()),
        ..AllocationChange::new(id, A::Intended, A::Submitting)
    };
    let running = AllocationChange {
        job_id: Some(Some(7)),
        started_at: Some(Some(Clock.now())),
        ..AllocationChange::new(id, A::Submitting, A::Running)
    };
    for change in [submitting, running] {
        world.store.change_allocations(&[change], Clock.now()).unwrap();
    }
    id
}

fn ends_at(world: &World, id: AllocationId, at: Timestamp) {
    let change =
        AllocationChange { ends_at: Some(Some(at)), ..AllocationChange::new(id, A::Running, A::Running) };
    world.store.change_allocations(&[change], Clock.now()).unwrap();
}

fn inside(world: &World, workflow: WorkflowId, id: AllocationId) -> Worker {
    with_cpus(world, workflow, id, 1)
}

fn with_cpus(world: &World, workflow: WorkflowId, id: AllocationId, cpus: u32) -> Worker {
    let slurm = Some(SlurmPlace { job_id: 7, restarts: 0, node: "n1".into() });
    let who = Introduction { workflow: Some(workflow), allocation: Some(id.0), slurm, ..someone(cpus) };
    Worker::join(world, who)
}

fn asks(cpus: u32) -> Planned {
    Planned { cpus, ..plain() }
}

#[test]
fn whoever_is_in_it_hears_when_it_ends_otherwise() {
    let world = World::new();
    let workflow = world.begin(&[plain()]);
    let id = running(&world, workflow);
    let (mut worker, mut other) = (inside(&world, workflow, id), Worker::new(&world, 1));
    assert_eq!(worker.say(&world, vec![]).unwrap().ends_in, None, "it is as Slurm said at its start");
    world.service.tell_allocation_ends(id, Clock.now().after(3 * DAY));
    let left = worker.say(&world, vec![]).unwrap().ends_in.unwrap();
    assert!(left > 2 * DAY, "{left:?}");
    assert_eq!(worker.say(&world, vec![]).unwrap().ends_in, None, "that is said once");
    assert_eq!(other.say(&world, vec![]).unwrap().ends_in, None, "it is in no allocation");
}

#[test]
fn whoever_comes_back_hears_what_it_missed() {
    let mut world = World::new();
    let workflow = world.begin(&[plain()]);
    let id = running(&world, workflow);
    let mut worker = inside(&world, workflow, id);
    worker.say(&world, vec![]).unwrap();
    let keys = worker.keys();
    // A time that is past has been changed since: else Slurm had ended it.
    for (at, is_told) in [(Timestamp(1), false), (Clock.now().after(3 * DAY), true)] {
        ends_at(&world, id, at);
        world.restart();
        worker.come_back(&world, &keys);
        let left = worker.say(&world, vec![]).unwrap().ends_in;
        assert_eq!(left.is_some_and(|left| left > 2 * DAY), is_told, "{left:?}");
    }
}

#[test]
fn whoever_nothing_that_is_left_fits_is_sent_home() {
    let world = World::new();
    let workflow = world.begin(&[asks(1), asks(4)]);
    let id = running(&world, workflow);
    let mut small = inside(&world, workflow, id);
    assert!(!small.say(&world, vec![]).unwrap().dismissed);
    assert_eq!(small.held.len(), 1, "the job that fits it");
    // Nothing is there for this one now; but should the other one lose its job, that would be for it.
    let mut other = inside(&world, workflow, id);
    let mut elsewhere = Worker::join(&world, Introduction { workflow: Some(workflow), ..someone(1) });
    assert!(!other.say(&world, vec![]).unwrap().dismissed);
    assert!(!elsewhere.say(&world, vec![]).unwrap().dismissed);
    let waits = other.next(vec![], Duration::from_secs(15));
    let waits = later(|reply| world.service.exchange(waits, me(), reply));
    let key = small.keys()[0];
    assert!(small.say(&world, vec![ended(key, 0)]).unwrap().dismissed, "the large job is not for it");
    let told = world.in_time(&waits).unwrap();
    assert!(told.dismissed, "nor for whoever waited meanwhile");
    assert!(!elsewhere.say(&world, vec![]).unwrap().dismissed, "nobody pays for its node");
    let mut large = with_cpus(&world, workflow, id, 4);
    assert!(!large.say(&world, vec![]).unwrap().dismissed);
    assert_eq!(large.held.len(), 1);
    let key = large.keys()[0];
    assert!(large.say(&world, vec![ended(key, 0)]).unwrap().dismissed, "all is done");
}

#[test]
fn whoever_has_too_little_time_for_all_that_is_left_is_sent_home() {
    let world = World::new();
    let hour = Planned { cpus: 1, runtime: Some(Duration::from_hours(1)), ..plain() };
    let workflow = world.begin(&[hour.clone(), hour]);
    let id = running(&world, workflow);
    let mut worker = inside(&world, workflow, id);
    let say = |worker: &mut Worker, reports, minutes| {
        let mut exchange = worker.next(reports, Duration::ZERO);
        exchange.time_left = Some(Duration::from_mins(minutes));
        worker.send(&world, exchange).unwrap()
    };
    assert!(!say(&mut worker, vec![], 61).dismissed);
    assert_eq!(worker.held.len(), 1);
    assert!(!say(&mut worker, vec![], 50).dismissed, "it has something to do");
    let key = worker.keys()[0];
    assert!(say(&mut worker, vec![ended(key, 0)], 49).dismissed);
    assert!(worker.held.is_empty());
}
