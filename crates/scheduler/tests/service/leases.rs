//! Workers that die, are cut off, freeze, or return; and a server that does.

use crate::kit::{Fixture, LEASE, Worker, ask, code, ended, me, plain, started};
use std::time::Duration;
use windlass_store::model::EventFilter;
use windlass_types::JobStatus as S;

const BEYOND: Duration = Duration::from_secs(62);

#[test]
fn a_silent_worker_loses_its_jobs() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let (mut dead, mut alive) = (Worker::new(&fixture, 1), Worker::new(&fixture, 1));
    dead.say(&fixture, vec![]).unwrap();
    let key = dead.held[0].key;
    for _ in 0..4 {
        alive.say(&fixture, vec![]).unwrap();
        fixture.pass(LEASE / 4);
    }
    alive.say(&fixture, vec![]).unwrap();
    assert!(alive.held.is_empty(), "the lease has almost expired");
    fixture.pass(Duration::from_secs(2));
    alive.say(&fixture, vec![]).unwrap();
    let (job, attempt) = (alive.held[0].key.job, alive.held[0].key.attempt);
    assert_eq!((job, attempt.0), (key.job, 2), "a job that may have run gets a new attempt");
    alive.work_off(&fixture);
    assert_eq!(fixture.results(workflow), [("j0".to_owned(), 1, -128), ("j0".to_owned(), 2, 0)]);
    // The lost worker was only cut off, and returns.
    let refused = dead.say(&fixture, vec![ended(key, 0)]).unwrap_err();
    assert_eq!(code(&refused), "unknown_worker");
    fixture.service.check_time();
    let filter = EventFilter { category: Some("stale_report".into()), ..EventFilter::default() };
    assert_eq!(fixture.store.events(Some(workflow), &filter).unwrap().len(), 1);
    let old = dead.id;
    assert_eq!(dead.come_back(&fixture, &[key]), [key], "it is lost");
    assert_ne!(dead.id, old);
}

#[test]
fn unsent_claims_of_a_dead_worker_keep_their_attempt() {
    let fixture = Fixture::new();
    let mut worker = Worker::new(&fixture, 1);
    let exchange = worker.next(vec![], Duration::from_secs(15));
    let waiting = crate::kit::later(|reply| fixture.service.exchange(exchange, me(), reply));
    let workflow = fixture.begin(&[plain()]);
    drop(waiting.recv().unwrap());
    fixture.pass(BEYOND);
    assert_eq!(fixture.statuses(workflow), [S::Ready]);
    assert_eq!(fixture.results(workflow).len(), 1, "it was sent, so it may have started");
}

#[test]
fn a_stall_of_the_server_extends_leases() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    fixture.service.check_time();
    fixture.hand.advance(LEASE * 10);
    fixture.service.check_time();
    assert_eq!(fixture.service.metrics().workers, 1);
    let key = worker.held[0].key;
    assert!(worker.say(&fixture, vec![ended(key, 0)]).unwrap().stale.is_empty());
    assert_eq!(fixture.results(workflow), [("j0".to_owned(), 1, 0)]);
}

#[test]
fn a_restarted_server_leaves_workers_their_jobs() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), plain()]);
    let mut worker = Worker::new(&fixture, 2);
    worker.say(&fixture, vec![]).unwrap();
    let keys = worker.keys();
    worker.say(&fixture, vec![started(keys[0])]).unwrap();
    fixture.restart();
    let refused = worker.say(&fixture, vec![ended(keys[0], 0)]).unwrap_err();
    assert_eq!(code(&refused), "unknown_worker", "it has to register again");
    let id = worker.id;
    assert!(worker.come_back(&fixture, &keys[..1]).is_empty());
    assert_eq!(worker.id, id);
    fixture.service.check_time();
    assert_eq!(fixture.statuses(workflow), [S::Running, S::Ready, S::Ready], "the other was never started");
    let answer = worker.say(&fixture, vec![ended(keys[0], 0)]).unwrap();
    assert!(answer.stale.is_empty());
    worker.work_off(&fixture);
    let expected: Vec<_> = (0..3).map(|n| (format!("j{n}"), 1, 0)).collect();
    assert_eq!(fixture.results(workflow), expected, "nothing ran twice");
}

#[test]
fn after_a_restart_every_worker_has_one_full_lease() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    fixture.restart();
    fixture.pass(LEASE);
    assert_eq!(fixture.statuses(workflow), [S::Pending]);
    fixture.pass(Duration::from_secs(4));
    assert_eq!(fixture.statuses(workflow), [S::Ready]);
    assert!(fixture.store.active_workers(None).unwrap().is_empty());
}

#[test]
fn workers_declared_dead_are_not_waited_for() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    ask(|reply| fixture.service.retire_worker(worker.id, "me", reply)).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Ready]);
    assert_eq!(fixture.service.metrics().orphaned_attempts, 1);
}

#[test]
fn the_results_of_a_worker_that_died_with_its_server_are_not_lost() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let key = worker.held[0].key;
    fixture.restart();
    // Another process on that host found its journal, and acts for it.
    assert!(worker.come_back(&fixture, &[key]).is_empty());
    worker.say(&fixture, vec![ended(key, 0)]).unwrap();
    fixture.service.check_time();
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
}
