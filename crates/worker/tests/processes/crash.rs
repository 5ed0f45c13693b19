//! The worker is killed with its jobs alive, and a later process ensures that all of them are dead.

use crate::support::{Fixture, WAIT_TIMEOUT, eventually, job, key};
use std::time::Duration;
use windlass_process::ensure_dead::{EnsureDeadReport, RecordedWorker, ensure_worker_dead};
use windlass_process::ledger::{LedgerContents, LedgerSubject};
use windlass_process::machine::hostname;
use windlass_process::process_identity::{ProcessIdentity, boot_id};
use windlass_types::Bytes;

const FAMILY: &str = "
    setsid sh -c 'echo $$ > a; exec sleep 1000' &
    (setsid sh -c 'echo $$ > b; exec sleep 1000' &)
    (env -i setsid /bin/sh -c 'echo $$ > c; trap \"\" TERM; while :; do /bin/sleep 0.02; done' &)
    env -i /bin/sh -c 'echo $$ > d; exec /bin/sleep 1000' &
    while [ ! -s a ] || [ ! -s b ] || [ ! -s c ] || [ ! -s d ]; do sleep 0.02; done
    echo $$ > e; wait";

fn end_worker(fixture: &Fixture, process: ProcessIdentity) -> EnsureDeadReport {
    let (host, boot_id) = (hostname(), boot_id().unwrap());
    let worker = RecordedWorker {
        host: &host,
        boot_id: &boot_id,
        process,
        token: &fixture.options.token,
        ledger: &fixture.options.ledger,
        database: None,
    };
    ensure_worker_dead(&worker, WAIT_TIMEOUT).unwrap()
}

fn nothing_survives(cgroups: bool, worker_dies_first: bool) {
    let mut fixture = Fixture::with(|options| {
        options.cgroups = cgroups;
        options.capacity.max_jobs = Some(2);
    });
    let done = fixture.run(job(1, "true"));
    let leaderless = "sleep 1000 & echo $! > f; echo $$ > g; wait";
    fixture.assign([job(2, FAMILY), job(3, leaderless), job(4, "touch never")]);
    let all = ["a", "b", "c", "d", "e", "f", "g"].map(|name| fixture.noted(name));
    eventually("the record of the stray", || {
        let ledger = LedgerContents::read(&fixture.options.ledger).ok()?;
        ledger.entries.iter().any(|entry| entry.subject == LedgerSubject::Stray).then_some(())
    });
    let worker = ProcessIdentity::from_pid(fixture.child.id()).unwrap();
    if worker_dies_first {
        fixture.child.kill().unwrap();
        fixture.gone();
        assert!(all.iter().all(|process| process.is_alive()));
    }

    let report = end_worker(&fixture, worker);
    assert_eq!(report.worker_was_alive, !worker_dies_first);
    assert!(!all.iter().any(|process| process.is_alive()));
    assert!(all.iter().all(|process| report.killed_pids.contains(&process.pid)), "{report:?} {all:?}");
    let mut started = report.started_attempts.unwrap();
    started.sort_unstable();
    assert_eq!(started, [done.key, key(2), key(3)]);
    assert!(!fixture.path("never").exists());
    fixture.assert_no_cgroup();

    let again = end_worker(&fixture, worker);
    assert_eq!((again.worker_was_alive, again.killed_pids), (false, vec![]));
}

#[test]
fn usage_of_leftovers_counts_for_the_attempt_that_started_them() {
    let mut fixture = Fixture::with(|options| options.capacity.cpus = 3);
    let burn = |name: &str| {
        format!(
            "python3 -c '
import time
x = bytearray(60 << 20)
while time.process_time() < 0.3: pass
open(\"{name}\", \"w\").write(\"yes\\n\")
time.sleep(1000)'"
        )
    };
    // One by its environment, one by its group alone, and one that used next to nothing.
    let unmarked = format!("env -i PATH=\"$PATH\" {} & wait", burn("b"));
    fixture.assign([
        job(1, &format!("(setsid {} &) ; sleep 1000", burn("a"))),
        job(2, &unmarked),
        job(3, "echo yes > c; sleep 1000"),
    ]);
    for name in ["a", "b", "c"] {
        eventually("the CPU usage", || fixture.path(name).exists().then_some(()));
    }
    let worker = ProcessIdentity::from_pid(fixture.child.id()).unwrap();
    fixture.child.kill().unwrap();
    fixture.gone();

    let usage = end_worker(&fixture, worker).leftover_usage;
    for job in [1, 2] {
        let used = usage[&key(job)];
        assert!(used.cpu_time >= Duration::from_millis(300), "job {job}: {usage:?}");
        assert!(used.peak_memory >= Bytes(60 << 20), "job {job}: {usage:?}");
    }
    let idle = usage[&key(3)];
    assert!(idle.cpu_time < Duration::from_millis(300) && idle.peak_memory < Bytes(60 << 20), "{usage:?}");
}

#[test]
fn nothing_survives_a_killed_worker_with_cgroups() {
    nothing_survives(true, true);
}

#[test]
fn nothing_survives_a_killed_worker_without_cgroups() {
    nothing_survives(false, true);
}

#[test]
fn a_worker_that_still_runs_is_ended_first() {
    nothing_survives(false, false);
}

#[test]
fn a_group_is_found_after_its_leader_died_with_the_worker() {
    let mut fixture = Fixture::with(|options| options.cgroups = false);
    fixture.assign([job(1, "env -i /bin/sh -c 'echo $$ > a; exec /bin/sleep 1000' & echo $$ > b; wait")]);
    let (child, leader) = (fixture.noted("a"), fixture.noted("b"));
    let worker = ProcessIdentity::from_pid(fixture.child.id()).unwrap();
    fixture.child.kill().unwrap();
    fixture.gone();
    std::process::Command::new("kill").args(["-s", "KILL", &leader.pid.to_string()]).status().unwrap();
    eventually("the end of the leader", || (!leader.is_alive()).then_some(()));
    assert!(child.is_alive());
    let report = end_worker(&fixture, worker);
    assert!(!child.is_alive() && report.killed_pids.contains(&child.pid), "{report:?}");
}
