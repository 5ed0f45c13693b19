//! Leases: jobs are frozen when the lease expires, and continue when it is renewed.

use crate::support::{AWAIT_GATE, Bench, eventually, job, key, lines, one_at_a_time};
use std::time::Duration;
use windlass_process::process_identity::{ProcessIdentity, boot_time, to_pid};
use windlass_process::procfs;
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptLimits, FromWorker, ProcessExit, StopReason, ToWorker,
};
use windlass_types::worker_protocol::StopCommand;

const LONG: Duration = Duration::from_mins(10);

fn lease(bench: &Bench, length: Duration) {
    bench.send(&ToWorker::Lease(boot_time() + length));
}

fn state(process: ProcessIdentity) -> u8 {
    procfs::read_stat(to_pid(process.pid).unwrap()).map_or(b'-', |stat| stat.state)
}

/// Stopped; or a shell that waits for its child's exec, and the child was stopped before that.
fn stands_still(process: ProcessIdentity) -> bool {
    matches!(state(process), b'T' | b'D')
}

fn is_frozen(bench: &mut Bench) -> bool {
    match bench.alive() {
        FromWorker::Alive { frozen, .. } => frozen,
        other => panic!("{other:?}"),
    }
}

/// A process tree with a member that has left the group and one whose parent is gone.
const TREE: &str = "sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > away; \
                    (setsid sleep 1000 & echo $! > adopted); echo $$ > leader; wait";

#[test]
fn the_whole_tree_is_frozen_when_the_lease_expires_and_thawed_on_renewal() {
    let mut bench = Bench::with(|options| options.cgroups = false);
    lease(&bench, LONG);
    assert!(!is_frozen(&mut bench));
    bench.assign([job(1, TREE)]);
    let tree = ["leader", "child", "away", "adopted"].map(|name| bench.noted(name));
    lease(&bench, Duration::ZERO);
    eventually("frozen", || is_frozen(&mut bench).then_some(()));
    eventually("all stopped", || tree.iter().all(|process| stands_still(*process)).then_some(()));
    lease(&bench, LONG);
    eventually("thawed", || (!is_frozen(&mut bench)).then_some(()));
    eventually("all running", || tree.iter().all(|process| state(*process) == b'S').then_some(()));
    bench.stop(Duration::ZERO);
    assert_eq!(bench.ended().cause, AttemptEndCause::Stopped(StopReason::Interrupted));
    bench.quit();
}

#[test]
fn nothing_starts_without_a_lease_and_waiting_jobs_start_with_the_next() {
    let mut bench = Bench::new();
    lease(&bench, Duration::ZERO);
    eventually("frozen", || is_frozen(&mut bench).then_some(()));
    bench.assign([job(1, "echo ran > file"), job(2, "true")]);
    // Answered after the jobs were received.
    lease(&bench, Duration::ZERO);
    bench.alive();
    assert!(!bench.path("file").exists());
    lease(&bench, LONG);
    let mut ended = [bench.ended().key, bench.ended().key];
    ended.sort();
    assert_eq!(ended, [key(1), key(2)]);
    assert_eq!(lines(&bench.path("file")), ["ran"]);
    bench.quit();
}

/// Stops the worker process while time passes, as when a machine sleeps or a user sends SIGSTOP.
#[test]
fn leases_read_too_late_renew_nothing() {
    let mut bench = Bench::new();
    lease(&bench, LONG);
    assert!(!is_frozen(&mut bench));
    bench.assign([job(1, &format!("echo $$ > leader; {AWAIT_GATE}"))]);
    let leader = bench.noted("leader");
    let worker = to_pid(bench.child.id()).unwrap();
    rustix::process::kill_process(worker, windlass_process::Signal::STOP).unwrap();
    lease(&bench, Duration::ZERO);
    rustix::process::kill_process(worker, windlass_process::Signal::CONT).unwrap();
    eventually("frozen", || is_frozen(&mut bench).then_some(()));
    eventually("stopped", || stands_still(leader).then_some(()));
    bench.hang_up();
    assert!(bench.gone().success());
    assert!(!leader.is_alive(), "frozen jobs die with their worker");
}

#[test]
fn time_that_a_job_was_frozen_does_not_count() {
    let mut bench = Bench::with(|options| options.timeout_grace = Duration::ZERO);
    let mut limited = job(1, &format!("echo $$ > leader; {AWAIT_GATE}"));
    limited.limits = AttemptLimits { memory: None, runtime: Some(Duration::from_secs(2)) };
    lease(&bench, LONG);
    bench.assign([limited]);
    let leader = bench.noted("leader");
    lease(&bench, Duration::ZERO);
    eventually("stopped", || stands_still(leader).then_some(()));
    // Longer than its runtime: only time itself can be waited for.
    std::thread::sleep(Duration::from_millis(2200));
    bench.open_gate();
    lease(&bench, LONG);
    let ended = bench.ended();
    assert_eq!((ended.exit, &ended.cause), (ProcessExit::Code(0), &AttemptEndCause::Itself));
    assert!(ended.wall < Duration::from_secs(2), "{:?}", ended.wall);
    bench.quit();
}

#[test]
fn a_frozen_job_can_be_ended_alone_and_others_continue() {
    let mut bench = Bench::new();
    lease(&bench, LONG);
    let command = |n: u32| format!("echo $$ > leader{n}; {AWAIT_GATE}");
    bench.assign([job(1, &command(1)), job(2, &command(2)), job(3, "true")]);
    let (first, second) = (bench.noted("leader1"), bench.noted("leader2"));
    lease(&bench, Duration::ZERO);
    eventually("stopped", || (stands_still(first) && stands_still(second)).then_some(()));
    bench.send(&ToWorker::StopSome(StopCommand {
        workflow: key(1).workflow,
        attempts: vec![key(1)],
        why: StopReason::Canceled,
        grace: Duration::from_mins(1),
    }));
    let ended = bench.ended();
    assert_eq!((ended.key, ended.cause), (key(1), AttemptEndCause::Stopped(StopReason::Canceled)));
    assert!(stands_still(second), "the lease is still expired");
    bench.open_gate();
    lease(&bench, LONG);
    let mut ended = [bench.ended().key, bench.ended().key];
    ended.sort();
    assert_eq!(ended, [key(2), key(3)]);
    bench.quit();
}

#[test]
fn a_recall_does_not_affect_running_jobs() {
    let mut bench = Bench::with(one_at_a_time);
    bench.assign([job(1, &format!("echo $$ > leader; {AWAIT_GATE}")), job(2, "true"), job(3, "true")]);
    bench.noted("leader");
    bench.send(&ToWorker::Recall);
    let mut returned = Vec::new();
    while returned.len() < 2 {
        match bench.report() {
            windlass_types::worker_messages::AttemptReport::Started { .. }
            | windlass_types::worker_messages::AttemptReport::LeftBehind { .. } => {}
            windlass_types::worker_messages::AttemptReport::Returned { key, .. } => returned.push(key),
            other @ windlass_types::worker_messages::AttemptReport::Ended(_) => panic!("{other:?}"),
        }
    }
    assert_eq!(returned, [key(2), key(3)]);
    bench.open_gate();
    assert_eq!(bench.ended().exit, ProcessExit::Code(0));
    bench.quit();
}
