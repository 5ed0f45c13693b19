//! A shutdown that signals all processes at once, and the records that remain when all are killed.

use crate::support::{Fixture, eventually, job, key};
use std::process::Command;
use std::time::Duration;
use windlass_types::worker_messages::{AttemptEndCause, ProcessExit, StopReason};
use windlass_worker::read_ends;

const INTERRUPTED: AttemptEndCause = AttemptEndCause::Stopped(StopReason::Interrupted);
const WAITING: &str = "echo $$ > 1; exec sleep 1000";

fn signal(pid: u32, name: &str) {
    Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
}

#[test]
fn a_job_terminated_with_its_worker_is_interrupted_in_either_order() {
    for job_first in [true, false] {
        let mut fixture = Fixture::new();
        fixture.assign([
            job(1, WAITING),
            job(2, "trap 'exit 0' TERM; echo $$ > 2; while :; do sleep 0.02; done"),
        ]);
        let (first, second) = (fixture.noted("1"), fixture.noted("2"));
        let worker = fixture.child.id();
        let order = if job_first { [first.pid, worker] } else { [worker, first.pid] };
        for pid in order {
            signal(pid, "TERM");
        }
        let ended = fixture.ended();
        assert_eq!((ended.key, ended.exit, ended.cause), (key(1), ProcessExit::Signal(15), INTERRUPTED));
        // Nothing starts in a worker that is about to end, and a success after the signal does not count.
        fixture.assign([job(3, "touch never")]);
        signal(second.pid, "TERM");
        let ended = fixture.ended();
        assert_eq!((ended.key, ended.exit, ended.cause), (key(2), ProcessExit::Code(0), INTERRUPTED));
        assert!(fixture.gone().success(), "it hangs up when the engine sends nothing");
        assert!(!fixture.path("never").exists());
    }
}

#[test]
fn a_job_terminated_before_the_stop_is_interrupted() {
    for answer in ["exec sleep 1000", "trap 'exit 3' TERM; while :; do sleep 0.02; done"] {
        let mut fixture = Fixture::new();
        fixture.assign([job(1, &format!("echo $$ > 1; {answer}"))]);
        let process = fixture.noted("1");
        signal(process.pid, "TERM");
        fixture.stop(Duration::from_secs(1000));
        assert_eq!(fixture.ended().cause, INTERRUPTED);
        fixture.quit();
    }
}

#[test]
fn ends_are_recorded_when_all_processes_are_killed() {
    let mut fixture = Fixture::new();
    let done = fixture.run(job(1, "exit 3"));
    let other = fixture.run(job(2, "true"));
    fixture.assign([job(4, "echo $$ > 4; exec sleep 1000")]);
    let running = fixture.noted("4");
    signal(running.pid, "KILL");
    eventually("the end of job 4", || (!running.is_alive()).then_some(()));
    fixture.child.kill().unwrap();
    fixture.gone();
    let mut ends: Vec<_> = read_ends(&fixture.options.ledger).into_values().collect();
    ends.sort_by_key(|ended| ended.key);
    // It is unknown whether job 4 failed or was killed with its worker.
    assert_eq!(ends, [done, other]);
}
