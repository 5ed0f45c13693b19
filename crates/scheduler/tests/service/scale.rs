//! The cost of a job does not depend on the number of jobs: counted, not timed.

use crate::kit::{Fixture, Worker, ended, plain};

/// The number of commits for `rounds` exchanges, with `jobs` ready at the start.
fn commits(jobs: usize, rounds: usize) -> (u64, u64) {
    let fixture = Fixture::new();
    fixture.begin(&vec![plain(); jobs]);
    let mut worker = Worker::new(&fixture, 4);
    worker.say(&fixture, vec![]).unwrap();
    let before = fixture.service.metrics();
    for _ in 0..rounds {
        let ends = worker.keys().into_iter().map(|key| ended(key, 0)).collect();
        worker.say(&fixture, ends).unwrap();
        assert_eq!(worker.held.len(), 4);
    }
    let after = fixture.service.metrics();
    (after.commits - before.commits, after.ended_attempts.total() - before.ended_attempts.total())
}

#[test]
fn a_hundred_thousand_ready_jobs_cost_no_more_than_a_hundred() {
    let (few, many) = (commits(100, 20), commits(100_000, 20));
    assert_eq!(few, (20, 80), "ends and the next claims are one commit");
    assert_eq!(many, few);
}
