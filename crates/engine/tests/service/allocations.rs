//! Workers in allocations of Slurm: when they are told that it ends.

use crate::world::{Worker, World, plain, someone};
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
    let slurm = Some(SlurmPlace { job_id: 7, restarts: 0, node: "n1".into() });
    let who = Introduction { workflow: Some(workflow), allocation: Some(id.0), slurm, ..someone(1) };
    Worker::join(world, who)
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
