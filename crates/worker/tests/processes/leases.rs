//! Leases: jobs are frozen when the lease expires, and continue when it is renewed.

use crate::support::{AWAIT_GO_FILE, Fixture, eventually, job, key, lines, one_at_a_time};
use std::time::Duration;
use windlass_process::process_identity::{ProcessIdentity, boot_time, to_pid};
use windlass_process::procfs;
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptLimits, FromWorker, ProcessExit, StopReason, ToWorker,
};
use windlass_types::worker_protocol::StopCommand;

const LONG: Duration = Duration::from_mins(10);

fn lease(fixture: &Fixture, length: Duration) {
    fixture.send(&ToWorker::Lease(boot_time() + length));
}

fn state(process: ProcessIdentity) -> u8 {
    procfs::read_stat(to_pid(process.pid).unwrap()).map_or(b'-', |stat| stat.state)
}

/// Stopped; or a shell that waits for its child's exec, and the child was stopped before that.
fn stands_still(process: ProcessIdentity) -> bool {
    matches!(state(process), b'T' | b'D')
}

fn is_frozen(fixture: &mut Fixture) -> bool {
    match fixture.alive() {
        FromWorker::Alive { frozen, .. } => frozen,
        other => panic!("{other:?}"),
    }
}

/// A process tree with a member that has left the group and one whose parent is gone.
const TREE: &str = "sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > away; \
                    (setsid sleep 1000 & echo $! > adopted); echo $$ > leader; wait";

#[test]
fn the_whole_tree_is_frozen_when_the_lease_expires_and_thawed_on_renewal() {
    let mut fixture = Fixture::with(|options| options.cgroups = false);
    lease(&fixture, LONG);
    assert!(!is_frozen(&mut fixture));
    fixture.assign([job(1, TREE)]);
    let tree = ["leader", "child", "away", "adopted"].map(|name| fixture.noted(name));
    lease(&fixture, Duration::ZERO);
    eventually("frozen", || is_frozen(&mut fixture).then_some(()));
    eventually("all stopped", || tree.iter().all(|process| stands_still(*process)).then_some(()));
    lease(&fixture, LONG);
    eventually("thawed", || (!is_frozen(&mut fixture)).then_some(()));
    eventually("all running", || tree.iter().all(|process| state(*process) == b'S').then_some(()));
    fixture.stop(Duration::ZERO);
    assert_eq!(fixture.ended().cause, AttemptEndCause::Stopped(StopReason::Interrupted));
    fixture.quit();
}

#[test]
fn nothing_starts_without_a_lease_and_waiting_jobs_start_with_the_next() {
    let mut fixture = Fixture::new();
    lease(&fixture, Duration::ZERO);
    eventually("frozen", || is_frozen(&mut fixture).then_some(()));
    fixture.assign([job(1, "echo ran > file"), job(2, "true")]);
    // Answered after the jobs were received.
    lease(&fixture, Duration::ZERO);
    fixture.alive();
    assert!(!fixture.path("file").exists());
    lease(&fixture, LONG);
    let mut ended = [fixture.ended().key, fixture.ended().key];
    ended.sort();
    assert_eq!(ended, [key(1), key(2)]);
    assert_eq!(lines(&fixture.path("file")), ["ran"]);
    fixture.quit();
}

/// Stops the worker process while time passes, as when a machine sleeps or a user sends SIGSTOP.
#[test]
fn leases_read_too_late_renew_nothing() {
    let mut fixture = Fixture::new();
    lease(&fixture, LONG);
    assert!(!is_frozen(&mut fixture));
    fixture.assign([job(1, &format!("echo $$ > leader; {AWAIT_GO_FILE}"))]);
    let leader = fixture.noted("leader");
    let worker = to_pid(fixture.child.id()).unwrap();
    rustix::process::kill_process(worker, windlass_process::Signal::STOP).unwrap();
    lease(&fixture, Duration::ZERO);
    rustix::process::kill_process(worker, windlass_process::Signal::CONT).unwrap();
    eventually("frozen", || is_frozen(&mut fixture).then_some(()));
    eventually("stopped", || stands_still(leader).then_some(()));
    fixture.hang_up();
    assert!(fixture.gone().success());
    assert!(!leader.is_alive(), "frozen jobs die with their worker");
}

#[test]
fn time_that_a_job_was_frozen_does_not_count() {
    let mut fixture = Fixture::with(|options| options.timeout_grace = Duration::ZERO);
    let mut limited = job(1, &format!("echo $$ > leader; {AWAIT_GO_FILE}"));
    limited.limits = AttemptLimits { memory: None, runtime: Some(Duration::from_secs(2)) };
    lease(&fixture, LONG);
    fixture.assign([limited]);
    let leader = fixture.noted("leader");
    lease(&fixture, Duration::ZERO);
    eventually("stopped", || stands_still(leader).then_some(()));
    // Longer than its runtime: only time itself can be waited for.
    std::thread::sleep(Duration::from_millis(2200));
    fixture.write_go_file();
    lease(&fixture, LONG);
    let ended = fixture.ended();
    assert_eq!((ended.exit, &ended.cause), (ProcessExit::Code(0), &AttemptEndCause::Itself));
    assert!(ended.wall < Duration::from_secs(2), "{:?}", ended.wall);
    fixture.quit();
}

#[test]
fn a_frozen_job_can_be_ended_alone_and_others_continue() {
    let mut fixture = Fixture::new();
    lease(&fixture, LONG);
    let command = |n: u32| format!("echo $$ > leader{n}; {AWAIT_GO_FILE}");
    fixture.assign([job(1, &command(1)), job(2, &command(2)), job(3, "true")]);
    let (first, second) = (fixture.noted("leader1"), fixture.noted("leader2"));
    lease(&fixture, Duration::ZERO);
    eventually("stopped", || (stands_still(first) && stands_still(second)).then_some(()));
    fixture.send(&ToWorker::StopSome(StopCommand {
        workflow: key(1).workflow,
        attempts: vec![key(1)],
        why: StopReason::Canceled,
        grace: Duration::from_mins(1),
    }));
    let ended = fixture.ended();
    assert_eq!((ended.key, ended.cause), (key(1), AttemptEndCause::Stopped(StopReason::Canceled)));
    assert!(stands_still(second), "the lease is still expired");
    fixture.write_go_file();
    lease(&fixture, LONG);
    let mut ended = [fixture.ended().key, fixture.ended().key];
    ended.sort();
    assert_eq!(ended, [key(2), key(3)]);
    fixture.quit();
}

#[test]
fn a_recall_does_not_affect_running_jobs() {
    let mut fixture = Fixture::with(one_at_a_time);
    fixture.assign([job(1, &format!("echo $$ > leader; {AWAIT_GO_FILE}")), job(2, "true"), job(3, "true")]);
    fixture.noted("leader");
    fixture.send(&ToWorker::Recall);
    let mut returned = Vec::new();
    while returned.len() < 2 {
        match fixture.report() {
            windlass_types::worker_messages::AttemptReport::Started { .. }
            | windlass_types::worker_messages::AttemptReport::LeftBehind { .. } => {}
            windlass_types::worker_messages::AttemptReport::Returned { key, .. } => returned.push(key),
            other @ windlass_types::worker_messages::AttemptReport::Ended(_) => panic!("{other:?}"),
        }
    }
    assert_eq!(returned, [key(2), key(3)]);
    fixture.write_go_file();
    assert_eq!(fixture.ended().exit, ProcessExit::Code(0));
    fixture.quit();
}
