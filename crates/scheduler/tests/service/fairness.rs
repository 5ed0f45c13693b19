//! Several workflows share the workers.

use crate::kit::{Fixture, PlannedJob, Worker, ended, plain};
use windlass_types::WorkflowId;

/// Completes `times` jobs one at a time and returns their workflows.
fn whose(fixture: &Fixture, worker: &mut Worker, times: usize) -> Vec<WorkflowId> {
    let mut whose = Vec::new();
    worker.say(fixture, vec![]).unwrap();
    while whose.len() < times {
        let key = worker.held[0].key;
        whose.push(key.workflow);
        worker.say(fixture, vec![ended(key, 0)]).unwrap();
    }
    whose
}

#[test]
fn a_large_workflow_does_not_starve_a_small_one() {
    let fixture = Fixture::new();
    let large = fixture.begin(&vec![plain(); 200]);
    let small = fixture.begin(&vec![plain(); 3]);
    let mut worker = Worker::new(&fixture, 1);
    assert_eq!(whose(&fixture, &mut worker, 7), [large, small, large, small, large, small, large]);
}

#[test]
fn priority_goes_first() {
    let fixture = Fixture::new();
    let usual = fixture.begin(&vec![plain(); 4]);
    let urgent = fixture.begin(&vec![PlannedJob { priority: 5, ..plain() }; 2]);
    let mut worker = Worker::new(&fixture, 1);
    assert_eq!(whose(&fixture, &mut worker, 4), [urgent, urgent, usual, usual]);
}

#[test]
fn a_worker_with_free_slots_gets_jobs_of_each_workflow() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.begin(&vec![plain(); 50]), fixture.begin(&vec![plain(); 50]));
    let mut worker = Worker::new(&fixture, 8);
    worker.say(&fixture, vec![]).unwrap();
    let of = |workflow| worker.held.iter().filter(|a| a.key.workflow == workflow).count();
    assert_eq!((of(one), of(two)), (4, 4));
}

#[test]
fn workflows_without_jobs_for_a_worker_cost_nothing() {
    let fixture = Fixture::new();
    let labelled = PlannedJob { labels: vec!["elsewhere".into()], ..plain() };
    for _ in 0..50 {
        fixture.begin(std::slice::from_ref(&labelled));
    }
    let mine = fixture.begin(&vec![plain(); 3]);
    let mut worker = Worker::new(&fixture, 1);
    assert_eq!(whose(&fixture, &mut worker, 3), [mine; 3]);
}
