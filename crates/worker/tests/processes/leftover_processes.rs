//! Leftover processes of a job are ended with it, and no others.

use crate::support::{AWAIT_GO_FILE, Fixture, eventually, job};
use std::time::Duration;
use windlass_process::ledger::LedgerContents;
use windlass_process::process_identity::{ProcessIdentity, from_pid};
use windlass_process::process_tree;
use windlass_types::worker_messages::{AttemptEndCause, ProcessExit, StopReason, ToWorker};
use windlass_types::{Bytes, JobId};
use windlass_worker::WorkerOptions;

/// Three ways to escape: a new session, one with an empty environment, and both with a dead parent.
const DAEMONS: &str = "
    setsid sh -c 'echo $$ > a; exec sleep 1000' &
    (setsid sh -c 'echo $$ > b; exec sleep 1000' &)
    (env -i setsid /bin/sh -c 'echo $$ > c; exec /bin/sleep 1000' &)
    sleep 1000 & echo $! > d
    while [ ! -s a ] || [ ! -s b ] || [ ! -s c ]; do sleep 0.02; done
";

fn daemons(fixture: &Fixture) -> Vec<ProcessIdentity> {
    ["a", "b", "c", "d"].map(|name| fixture.noted(name)).to_vec()
}

fn no_cgroups(options: &mut WorkerOptions) {
    options.cgroups = false;
}

fn what_a_job_leaves_is_ended(adjust: impl FnOnce(&mut WorkerOptions)) {
    let mut fixture = Fixture::with(adjust);
    fixture.assign([job(1, &format!("{DAEMONS} {AWAIT_GO_FILE}; exit 5"))]);
    let daemons = daemons(&fixture);
    assert!(daemons.iter().all(|daemon| daemon.is_alive()));
    fixture.write_go_file();
    let ended = fixture.ended();
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(5), AttemptEndCause::Itself));
    assert!(!daemons.iter().any(|daemon| daemon.is_alive()));
    fixture.quit();
}

#[test]
fn leftovers_are_ended_with_cgroups() {
    what_a_job_leaves_is_ended(|_| {});
}

#[test]
fn leftovers_are_ended_without_cgroups() {
    what_a_job_leaves_is_ended(no_cgroups);
}

fn canceling_ends_the_whole_tree(adjust: impl FnOnce(&mut WorkerOptions)) {
    let mut fixture = Fixture::with(adjust);
    fixture.assign([job(1, &format!("{DAEMONS} sleep 1000"))]);
    let daemons = daemons(&fixture);
    fixture.send(&ToWorker::Stop { why: StopReason::Canceled, grace: Duration::from_secs(20) });
    let ended = fixture.ended();
    assert_eq!(
        (ended.exit, ended.cause),
        (ProcessExit::Signal(15), AttemptEndCause::Stopped(StopReason::Canceled))
    );
    assert!(!daemons.iter().any(|daemon| daemon.is_alive()));
    fixture.quit();
}

#[test]
fn canceling_ends_the_whole_tree_with_cgroups() {
    canceling_ends_the_whole_tree(|_| {});
}

#[test]
fn canceling_ends_the_whole_tree_without_cgroups() {
    canceling_ends_the_whole_tree(no_cgroups);
}

fn the_end_of_one_job_does_not_touch_anothers_daemons(adjust: impl FnOnce(&mut WorkerOptions)) {
    let mut fixture = Fixture::with(adjust);
    fixture.assign([job(1, &format!("{DAEMONS} {AWAIT_GO_FILE}"))]);
    let daemons = daemons(&fixture);
    // These end at the same time, and one of them leaves a process itself.
    for id in 2..6 {
        fixture.assign([job(id, "(setsid sleep 1000 &)")]);
        assert_eq!(fixture.ended().key.job, JobId(id));
    }
    assert!(daemons.iter().all(|daemon| daemon.is_alive()));
    fixture.write_go_file();
    assert_eq!(fixture.ended().key.job, JobId(1));
    assert!(!daemons.iter().any(|daemon| daemon.is_alive()));
    fixture.quit();
}

#[test]
fn the_end_of_a_job_spares_daemons_of_others_with_cgroups() {
    the_end_of_one_job_does_not_touch_anothers_daemons(|_| {});
}

#[test]
fn the_end_of_a_job_spares_daemons_of_others_without_cgroups() {
    the_end_of_one_job_does_not_touch_anothers_daemons(no_cgroups);
}

/// Keeps forking and exiting, each time in a new session.
const FLEEING: &str = "python3 -c '
import os
while True:
    if os.fork(): os._exit(0)
    os.setsid()
    if not os.path.exists(\"a\"): open(\"a\", \"w\").write(\"\\n\")
' & while [ ! -s a ]; do sleep 0.01; done";

/// One scan can miss a process that is being started; this many cannot.
fn nothing_of_it_runs(fixture: &Fixture) -> bool {
    let is_other = |pid: &windlass_process::Pid| from_pid(*pid) != fixture.child.id();
    let living = || {
        process_tree::find_with_variable(process_tree::marker_variable::WORKER, &fixture.options.token)
            .into_iter()
            .any(|pid| is_other(&pid))
    };
    !(0..50).any(|_| living())
}

fn one_that_forks_and_exits_all_the_time_is_ended(adjust: impl Fn(&mut WorkerOptions)) {
    let mut fixture = Fixture::with(adjust);
    for round in 0..3 {
        std::fs::remove_file(fixture.path("a")).ok();
        let ended = fixture.run(job(1, FLEEING));
        assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));
        assert!(nothing_of_it_runs(&fixture), "left behind by its job in round {round}");

        std::fs::remove_file(fixture.path("a")).ok();
        fixture.assign([job(2, &format!("{FLEEING}; echo $$ > b; exec sleep 1000"))]);
        fixture.noted("b");
        fixture.send(&ToWorker::Stop { why: StopReason::Canceled, grace: Duration::ZERO });
        assert_eq!(fixture.ended().cause, AttemptEndCause::Stopped(StopReason::Canceled));
        assert!(nothing_of_it_runs(&fixture), "left behind by a cancel in round {round}");
        std::fs::remove_file(fixture.path("b")).ok();
    }
    fixture.quit();
}

#[test]
fn a_process_that_keeps_forking_is_ended_with_cgroups() {
    one_that_forks_and_exits_all_the_time_is_ended(|_| {});
}

#[test]
fn a_process_that_keeps_forking_is_ended_without_cgroups() {
    one_that_forks_and_exits_all_the_time_is_ended(no_cgroups);
}

#[test]
fn usage_of_a_killed_tree_is_counted() {
    let mut fixture = Fixture::with(|options| {
        options.cgroups = false;
        // Without samples, which would hide missing usage.
        options.measure_jobs = false;
    });
    let burn = "python3 -c '
import time
x = bytearray(60 << 20)
while time.process_time() < 0.3: pass
open(\"burnt\", \"w\").write(\"yes\\n\")
time.sleep(1000)'; true";
    for burn in
        [burn.to_owned(), format!("setsid {burn}"), format!("exec {}", burn.trim_end_matches("; true"))]
    {
        std::fs::remove_file(fixture.path("burnt")).ok();
        fixture.assign([job(1, &burn)]);
        eventually("the CPU usage", || fixture.path("burnt").exists().then_some(()));
        fixture.stop(Duration::ZERO);
        let usage = fixture.ended().usage;
        assert!(usage.cpu_time >= Duration::from_millis(300), "{burn}: {usage:?}");
        assert!(usage.peak_memory >= Some(Bytes(60 << 20)), "{burn}: {usage:?}");
    }
    fixture.quit();
}

#[test]
fn the_peak_of_a_small_job_is_known_with_cgroups() {
    let mut fixture = Fixture::new();
    if LedgerContents::read(&fixture.options.ledger).unwrap().cgroup.is_some() {
        let hold = "head -c 3145728 /dev/zero | tail > /dev/null";
        for _ in 0..10 {
            let peak = fixture.run(job(1, hold)).usage.peak_memory;
            assert!(peak >= Some(Bytes(3 << 20)), "{peak:?}");
        }
    }
    fixture.quit();
}

/// Four processes that hold 40 MiB each at the same moment, and until the gate is open.
const TREE: &str = "
    for i in 1 2 3 4; do
        python3 -c '
import os, sys, time
x = bytearray(40 << 20)
open(\"held\" + sys.argv[1], \"w\").close()
while not all(os.path.exists(\"held%d\" % n) for n in range(1, 5)): time.sleep(0.01)
while not os.path.exists(\"gate\"): time.sleep(0.01)' $i &
    done
    wait";

#[test]
fn peak_memory_is_that_of_all_processes_together_with_cgroups() {
    // Without samples, which would hide a missing value.
    let mut fixture = Fixture::with(|options| options.measure_jobs = false);
    fixture.write_go_file();
    if LedgerContents::read(&fixture.options.ledger).unwrap().cgroup.is_some() {
        let peak = fixture.run(job(1, TREE)).usage.peak_memory;
        assert!(peak >= Some(Bytes(160 << 20)) && peak < Some(Bytes(400 << 20)), "{peak:?}");
        let written = fixture.run(job(2, "head -c 209715200 /dev/zero > big")).usage.peak_memory;
        assert!(written < Some(Bytes(100 << 20)), "the page cache counts: {written:?}");
    }
    fixture.quit();
}

#[test]
fn peak_memory_is_that_of_all_processes_together_without_cgroups() {
    let mut fixture = Fixture::with(no_cgroups);
    fixture.assign([job(1, TREE)]);
    assert_eq!(fixture.started().0, JobId(1));
    for n in 1..=4 {
        eventually("the memory", || fixture.path(&format!("held{n}")).exists().then_some(()));
    }
    // The start of the second job is reported only after the first was measured.
    fixture.assign([job(2, AWAIT_GO_FILE)]);
    assert_eq!(fixture.started().0, JobId(2));
    fixture.write_go_file();
    let ends = [fixture.ended(), fixture.ended()];
    let peak = ends.iter().find(|end| end.key.job == JobId(1)).unwrap().usage.peak_memory;
    assert!(peak >= Some(Bytes(160 << 20)), "{peak:?}");
    fixture.quit();
}

#[test]
fn a_daemon_that_ignores_sigterm_is_killed_after_the_grace_period() {
    let mut fixture = Fixture::with(|options| options.leftover_grace = Duration::from_millis(200));
    let command = "(setsid sh -c 'trap \"echo no\" TERM; echo $$ > a; while :; do sleep 0.02; done' &)
                   while [ ! -s a ]; do sleep 0.02; done";
    fixture.assign([job(1, command)]);
    let daemon = fixture.noted("a");
    assert_eq!(fixture.ended().exit, ProcessExit::Code(0));
    assert!(!daemon.is_alive());
    assert_eq!(fixture.log(1, "o").as_deref(), Some("no\n"));
    fixture.quit();
}

#[test]
fn ended_orphans_are_reaped_while_their_job_runs() {
    let mut fixture = Fixture::new();
    let orphans = "for i in $(seq 100); do (true &); done";
    let command =
        format!("trap '' TERM; {orphans}; echo $$ > a; {AWAIT_GO_FILE}; {orphans}; echo $$ > b; sleep 1000");
    fixture.assign([job(1, &command)]);
    let worker = windlass_process::process_identity::to_pid(fixture.child.id()).unwrap();
    let only_the_job_is_left = || (windlass_process::procfs::list_children(worker).len() == 1).then_some(());
    fixture.noted("a");
    eventually("the end of the orphans", only_the_job_is_left);
    // Also while nothing is due for the job but SIGKILL, much later.
    fixture.stop(Duration::from_secs(1000));
    fixture.write_go_file();
    fixture.noted("b");
    eventually("the end of the orphans", only_the_job_is_left);
    fixture.stop(Duration::ZERO);
    assert_eq!(fixture.ended().exit, ProcessExit::Signal(9));
    fixture.quit();
}

#[test]
fn children_that_ended_before_their_job_are_not_leftovers() {
    let mut fixture = Fixture::new();
    // `sh` does not wait for these; they become the worker's children as zombies.
    let ended = fixture.run(job(1, "true & true & true & exec sleep 0.3"));
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));
    assert_eq!(fixture.run(job(2, "true")).exit, ProcessExit::Code(0));
    let own = windlass_process::process_identity::to_pid(fixture.child.id()).unwrap();
    assert_eq!(windlass_process::procfs::list_children(own), []);
    fixture.quit();
}
