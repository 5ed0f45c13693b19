//! Several workflows share the workers.

use crate::kit::{Planned, Worker, World, ended, plain};
use windlass_types::WorkflowId;

/// Completes `times` jobs one at a time and returns their workflows.
fn whose(world: &World, worker: &mut Worker, times: usize) -> Vec<WorkflowId> {
    let mut whose = Vec::new();
    worker.say(world, vec![]).unwrap();
    while whose.len() < times {
        let key = worker.held[0].key;
        whose.push(key.workflow);
        worker.say(world, vec![ended(key, 0)]).unwrap();
    }
    whose
}

#[test]
fn a_large_workflow_does_not_starve_a_small_one() {
    let world = World::new();
    let large = world.begin(&vec![plain(); 200]);
    let small = world.begin(&vec![plain(); 3]);
    let mut worker = Worker::new(&world, 1);
    assert_eq!(whose(&world, &mut worker, 7), [large, small, large, small, large, small, large]);
}

#[test]
fn priority_goes_first() {
    let world = World::new();
    let usual = world.begin(&vec![plain(); 4]);
    let urgent = world.begin(&vec![Planned { priority: 5, ..plain() }; 2]);
    let mut worker = Worker::new(&world, 1);
    assert_eq!(whose(&world, &mut worker, 4), [urgent, urgent, usual, usual]);
}

#[test]
fn a_worker_with_free_slots_gets_jobs_of_each_workflow() {
    let world = World::new();
    let (one, two) = (world.begin(&vec![plain(); 50]), world.begin(&vec![plain(); 50]));
    let mut worker = Worker::new(&world, 8);
    worker.say(&world, vec![]).unwrap();
    let of = |workflow| worker.held.iter().filter(|a| a.key.workflow == workflow).count();
    assert_eq!((of(one), of(two)), (4, 4));
}

#[test]
fn workflows_without_jobs_for_a_worker_cost_nothing() {
    let world = World::new();
    let labelled = Planned { labels: vec!["elsewhere".into()], ..plain() };
    for _ in 0..50 {
        world.begin(std::slice::from_ref(&labelled));
    }
    let mine = world.begin(&vec![plain(); 3]);
    let mut worker = Worker::new(&world, 1);
    assert_eq!(whose(&world, &mut worker, 3), [mine; 3]);
}
