//! Jobs that kill their workers, and jobs that are only unlucky.

use crate::kit::{Fixture, LEASE, Worker, ask, code, ended, plain, someone, started};
use std::time::Duration;
use windlass_store::model::ResultFilter;
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptKey, AttemptReport, AttemptUsage, ReturnReason, StopReason,
};
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{Bytes, JobStatus as S, WorkflowId};

/// How a worker dies.
#[derive(Clone, Copy)]
enum WorkerDeath {
    /// The worker process dies, and its worker reports that.
    Seen,
    /// An operator declares the worker dead.
    Said,
    /// It is silent.
    Silent,
}

fn died(key: AttemptKey) -> AttemptReport {
    AttemptReport::Returned { key, why: ReturnReason::WorkerDied }
}

impl WorkerDeath {
    fn apply_to_worker(self, fixture: &Fixture, worker: &mut Worker) {
        match self {
            Self::Seen => {
                let reports = worker.keys().into_iter().map(died).collect();
                let mut exchange = worker.next(reports, Duration::ZERO);
                exchange.draining = true;
                worker.send(fixture, exchange).unwrap();
            }
            Self::Said => ask(|reply| fixture.service.retire_worker(worker.id, "me", reply)).unwrap(),
            Self::Silent => fixture.pass(LEASE + Duration::from_secs(3)),
        }
    }
}

/// Workers die one after the other when they get `j0`; the others work normally. Returns how many jobs were
/// beside it each time.
fn die_of(fixture: &Fixture, poison: &str, death: WorkerDeath) -> Vec<usize> {
    let mut beside = Vec::new();
    for _ in 0..20 {
        let mut worker = Worker::new(fixture, 4);
        loop {
            worker.say(fixture, vec![]).unwrap();
            if worker.held.iter().any(|a| a.name == poison) {
                beside.push(worker.held.len() - 1);
                death.apply_to_worker(fixture, &mut worker);
                break;
            }
            if worker.held.is_empty() {
                return beside;
            }
            let ends = worker.keys().into_iter().map(|key| ended(key, 0)).collect();
            worker.say(fixture, ends).unwrap();
        }
    }
    panic!("it was never failed: {beside:?}");
}

#[test]
fn usage_of_leftovers_is_that_of_the_lost_attempt() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 2);
    worker.say(&fixture, vec![]).unwrap();
    let usage = AttemptUsage {
        cpu_time: Duration::from_secs(7),
        peak_memory: Some(Bytes(5 << 20)),
        ..AttemptUsage::default()
    };
    let key = worker.keys()[0];
    worker.say(&fixture, vec![started(key), AttemptReport::LeftBehind { key, usage }, died(key)]).unwrap();
    let filter = ResultFilter { all_runs: true, ..ResultFilter::default() };
    let lost = fixture.store.results(workflow, &filter).unwrap();
    let lost: Vec<_> = lost.iter().filter(|row| row.return_code == -128).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].cpu_time, lost[0].peak_memory_bytes), (usage.cpu_time, usage.peak_memory));
}

#[test]
fn a_job_that_kills_workers_is_isolated_and_failed_without_cost_to_others() {
    for (death, with_others, alone) in
        [(WorkerDeath::Seen, 2, 3), (WorkerDeath::Silent, 3, 3), (WorkerDeath::Said, 6, 9)]
    {
        let fixture = Fixture::new();
        let workflow = fixture.begin(&[plain(), plain(), plain()]);
        let beside = die_of(&fixture, "j0", death);
        assert_eq!(beside, [vec![2; with_others], vec![0; alone]].concat());
        assert_eq!(fixture.statuses(workflow), [S::Failed, S::Completed, S::Completed]);
        let results = fixture.results(workflow);
        let of = |name: &str| {
            results.iter().filter(|(n, ..)| n == name).map(|(.., code)| *code).collect::<Vec<_>>()
        };
        assert_eq!(of("j0"), vec![-128; with_others + alone]);
        assert_eq!(*of("j1").last().unwrap(), 0);
        assert_eq!(*of("j2").last().unwrap(), 0);
    }
}

/// A worker that has all ready jobs, and has reported their start.
fn busy(fixture: &Fixture) -> Worker {
    let mut worker = Worker::new(fixture, 4);
    worker.say(fixture, vec![]).unwrap();
    let starts = worker.keys().into_iter().map(started).collect();
    worker.say(fixture, starts).unwrap();
    worker
}

/// It is silent for longer than its lease.
fn falls_silent(fixture: &Fixture) -> Worker {
    let worker = busy(fixture);
    fixture.pass(LEASE + Duration::from_secs(3));
    worker
}

/// The number of jobs that the next worker gets: all, or one that runs alone.
fn at_once(fixture: &Fixture) -> usize {
    let mut worker = busy(fixture);
    let count = worker.held.len();
    worker.leaves(fixture, vec![]);
    count
}

fn all_end_well(fixture: &Fixture, workflow: WorkflowId) {
    Worker::new(fixture, 4).work_off(fixture);
    let statuses = fixture.statuses(workflow);
    assert!(statuses.iter().all(|status| *status == S::Completed), "{statuses:?}");
}

#[test]
fn a_returned_worker_is_no_evidence_against_its_jobs() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    for round in 0..20 {
        let mut worker = falls_silent(&fixture);
        assert_eq!(worker.held.len(), 2, "round {round}: not isolated");
        let keys = worker.keys();
        if round % 2 == 0 {
            assert_eq!(worker.come_back(&fixture, &keys), keys, "other workers have them by now, or could");
        } else {
            let late = worker.say(&fixture, vec![ended(keys[0], 0)]).unwrap_err();
            assert_eq!(code(&late), "unknown_worker");
        }
    }
    all_end_well(&fixture, workflow);
}

#[test]
fn a_returned_worker_withdraws_its_evidence() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut silent: Vec<Worker> = (0..3).map(|_| falls_silent(&fixture)).collect();
    assert_eq!(at_once(&fixture), 1, "enough to isolate each");
    let mut last = silent.pop().unwrap();
    last.come_back(&fixture, &[]);
    assert_eq!(at_once(&fixture), 2);
    fixture.restart();
    assert_eq!(at_once(&fixture), 2, "its return is in the database");
    // A restarted server waits for all workers it knows: not only for the silent ones.
    fixture.pass(LEASE * 3);
    falls_silent(&fixture);
    assert_eq!(at_once(&fixture), 1, "the results of the others are in the database too");
    all_end_well(&fixture, workflow);
}

#[test]
fn workers_silent_together_are_weak_evidence_against_their_jobs() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    for round in 0..4 {
        let worker = busy(&fixture);
        assert_eq!(worker.held.len(), 2, "round {round}: not isolated");
        // Another one, without jobs, is cut off a little later.
        fixture.pass(LEASE / 4);
        drop(Worker::new(&fixture, 1));
        fixture.pass(LEASE * 2);
    }
    all_end_well(&fixture, workflow);
}

#[test]
fn evidence_against_jobs_survives_a_restart() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), plain()]);
    let mut deaths = 0;
    while fixture.statuses(workflow)[0] != S::Failed {
        assert!(deaths < 20, "it is never failed");
        let mut worker = Worker::new(&fixture, 1);
        worker.say(&fixture, vec![]).unwrap();
        assert_eq!(worker.held[0].name, "j0", "it is the first in the queue");
        // Held when the server dies: that it runs alone is also known afterwards.
        fixture.restart();
        let keys = worker.keys();
        assert!(worker.come_back(&fixture, &keys).is_empty());
        let mut other = Worker::new(&fixture, 4);
        other.work_off(&fixture);
        other.leaves(&fixture, vec![]);
        deaths += 1;
        worker.leaves(&fixture, keys.into_iter().map(died).collect());
    }
    assert_eq!(deaths, 5);
    assert_eq!(fixture.statuses(workflow), [S::Failed, S::Completed, S::Completed]);
}

#[test]
fn an_attempt_that_ended_by_itself_clears_its_job_also_after_a_restart() {
    let mut fixture = Fixture::new();
    fixture.begin(&[plain(), plain()]);
    for _ in 0..2 {
        falls_silent(&fixture);
    }
    let mut worker = busy(&fixture);
    let interrupted = |key| match ended(key, 1) {
        AttemptReport::Ended(end) => AttemptReport::Ended(AttemptEndReport {
            cause: AttemptEndCause::Stopped(StopReason::Interrupted),
            ..end
        }),
        other => other,
    };
    let ends = worker.keys().into_iter().map(interrupted).collect();
    let mut exchange = worker.next(ends, Duration::ZERO);
    exchange.draining = true;
    worker.send(&fixture, exchange).unwrap();
    falls_silent(&fixture);
    fixture.restart();
    assert_eq!(at_once(&fixture), 2, "only later deaths count");
}

#[test]
fn reports_of_a_successor_are_weaker_evidence() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    for round in 0..2 {
        let mut dead = busy(&fixture);
        let keys = dead.keys();
        // The next worker on that machine, acting for the dead one.
        dead.introduced_as(WorkerRegistration { pid: 100 + round, ..someone(4) });
        assert!(dead.come_back(&fixture, &keys).is_empty());
        dead.leaves(&fixture, keys.into_iter().map(died).collect());
    }
    assert_eq!(at_once(&fixture), 2, "two such deaths are not enough");
    all_end_well(&fixture, workflow);
}

#[test]
fn others_continue_while_a_suspect_runs_alone() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), plain(), plain()]);
    for _ in 0..2 {
        let mut worker = Worker::new(&fixture, 1);
        worker.say(&fixture, vec![]).unwrap();
        assert_eq!(worker.held[0].name, "j0");
        WorkerDeath::Seen.apply_to_worker(&fixture, &mut worker);
    }
    let (mut one, mut two) = (Worker::new(&fixture, 4), Worker::new(&fixture, 4));
    one.say(&fixture, vec![]).unwrap();
    two.say(&fixture, vec![]).unwrap();
    let mut counts = [one.held.len(), two.held.len()];
    counts.sort_unstable();
    assert_eq!(counts, [1, 3], "one worker has the suspect, the other all others");
    one.work_off(&fixture);
    two.work_off(&fixture);
    fixture.service.check_time();
    assert_eq!(fixture.statuses(workflow), [S::Completed; 4], "the job was not the cause");
}
