//! Stop, stop again, the death of the engine, and signals to the worker itself.

use crate::support::{Fixture, eventually, job};
use std::fs;
use std::process::Command;
use std::time::Duration;
use windlass_process::process_identity::{ProcessIdentity, to_pid};
use windlass_process::procfs;
use windlass_types::JobId;
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptReport, ProcessExit, ReturnReason, StopReason, ToWorker,
};

const LONG: Duration = Duration::from_secs(1000);
const STUBBORN: &str = "trap '' TERM; echo $$ > $WINDLASS_JOB_ID; while :; do sleep 0.02; done";
const PATIENT: &str = "echo $$ > $WINDLASS_JOB_ID; exec sleep 1000";

#[test]
fn a_stop_returns_waiting_jobs_and_ends_running_ones() {
    let mut fixture = Fixture::new();
    fixture.assign((1..=5).map(|id| job(id, PATIENT)));
    fixture.noted("1");
    fixture.noted("2");
    fixture.stop(LONG);
    let (mut back, mut ended) = (Vec::new(), Vec::new());
    while back.len() + ended.len() < 5 {
        match fixture.report() {
            AttemptReport::Returned { key, why } => back.push((key.job, why)),
            AttemptReport::Ended(end) => ended.push((end.key.job, end.exit, end.cause)),
            AttemptReport::Started { .. } | AttemptReport::LeftBehind { .. } => {}
        }
    }
    assert_eq!(back, [3, 4, 5].map(|id| (JobId(id), ReturnReason::Recalled)));
    ended.sort_by_key(|(id, ..)| *id);
    let stopped = AttemptEndCause::Stopped(StopReason::Interrupted);
    assert_eq!(ended, [1, 2].map(|id| (JobId(id), ProcessExit::Signal(15), stopped.clone())));
    // It accepts more jobs.
    assert_eq!(fixture.run(job(6, "true")).exit, ProcessExit::Code(0));
    fixture.quit();
}

#[test]
fn a_second_stop_without_grace_kills() {
    let mut fixture = Fixture::new();
    fixture.assign([job(1, STUBBORN)]);
    fixture.noted("1");
    fixture.stop(LONG);
    fixture.stop(Duration::ZERO);
    let ended = fixture.ended();
    assert_eq!(
        (ended.exit, ended.cause),
        (ProcessExit::Signal(9), AttemptEndCause::Stopped(StopReason::Interrupted))
    );
    fixture.quit();
}

#[test]
fn a_stop_kills_after_its_grace_period() {
    let mut fixture = Fixture::new();
    fixture.assign([job(1, STUBBORN)]);
    fixture.noted("1");
    fixture.stop(Duration::from_millis(300));
    assert_eq!(fixture.ended().exit, ProcessExit::Signal(9));
    fixture.quit();
}

#[test]
fn a_stopped_tree_is_continued_to_end_or_be_killed() {
    let mut fixture = Fixture::new();
    let asleep = "trap 'echo bye; exit 3' TERM; setsid sh -c 'echo $$ > child; kill -STOP $$; exec sleep 1000' & \
                  echo $$ > 1; kill -STOP $$; wait";
    fixture.assign([job(1, asleep)]);
    let all = ["1", "child"].map(|name| fixture.noted(name));
    let is_stopped = |process: &ProcessIdentity| {
        procfs::read_stat(to_pid(process.pid).unwrap()).is_some_and(|stat| stat.state == b'T')
    };
    let stopped = |process: &ProcessIdentity| eventually("the stop", || is_stopped(process).then_some(()));
    all.iter().for_each(stopped);
    fixture.stop(LONG);
    let ended = fixture.ended();
    assert_eq!(
        (ended.exit, ended.cause),
        (ProcessExit::Code(3), AttemptEndCause::Stopped(StopReason::Interrupted))
    );
    assert_eq!(fixture.log(1, "o").as_deref(), Some("bye\n"));
    assert!(!all.iter().any(|process| process.is_alive()));

    fixture.assign([job(2, "trap '' TERM; echo $$ > 2; while :; do kill -STOP $$; done")]);
    stopped(&fixture.noted("2"));
    fixture.stop(Duration::ZERO);
    assert_eq!(fixture.ended().exit, ProcessExit::Signal(9));
    fixture.quit();
}

#[test]
fn a_dismissal_ends_without_waiting_for_jobs() {
    let fixture = Fixture::new();
    fixture.assign([job(1, STUBBORN)]);
    let process = fixture.noted("1");
    fixture.quit();
    assert!(!process.is_alive());
}

const EVERYTHING: &str = "
    (env -i setsid /bin/sh -c 'trap \"\" TERM; echo $$ > a; while :; do /bin/sleep 0.02; done' &)
    setsid sh -c 'echo $$ > b; exec sleep 1000' &
    echo $$ > c; trap '' TERM; while :; do sleep 0.02; done";

#[test]
fn nothing_outlives_the_engine() {
    for cgroups in [true, false] {
        let mut fixture = Fixture::with(|options| options.cgroups = cgroups);
        fixture.assign([job(1, EVERYTHING), job(2, PATIENT), job(3, "touch never")]);
        let all = ["a", "b", "c", "2"].map(|name| fixture.noted(name));
        fixture.hang_up();
        assert!(fixture.gone().success());
        assert!(!all.iter().any(|process| process.is_alive()));
        assert!(!fixture.path("never").exists());
        fixture.assert_no_cgroup();
    }
}

#[test]
fn a_worker_that_is_terminated_ends_everything_too() {
    for signal in ["TERM", "HUP"] {
        let mut fixture = Fixture::new();
        fixture.assign([job(1, EVERYTHING)]);
        let all = ["a", "b", "c"].map(|name| fixture.noted(name));
        Command::new("kill").args(["-s", signal, &fixture.child.id().to_string()]).status().unwrap();
        assert!(fixture.gone().success());
        assert!(!all.iter().any(|process| process.is_alive()));
    }
}

#[test]
fn interrupts_are_left_to_the_engine_and_jobs_do_not_inherit_that() {
    let mut fixture = Fixture::new();
    let status = format!("/proc/{}/status", fixture.child.id());
    let ignored = |path: &str| {
        let text = fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim().to_owned();
        u64::from_str_radix(&line, 16).unwrap()
    };
    let interrupt = 1 << (2 - 1);
    assert_ne!(ignored(&status) & interrupt, 0);
    Command::new("kill").args(["-s", "INT", &fixture.child.id().to_string()]).status().unwrap();
    fixture.assign([job(1, PATIENT)]);
    let pid = fixture.noted("1").pid;
    assert_eq!(ignored(&format!("/proc/{pid}/status")) & interrupt, 0);
    Command::new("kill").args(["-s", "INT", &pid.to_string()]).status().unwrap();
    assert_eq!(fixture.ended().exit, ProcessExit::Signal(2));
    fixture.quit();
}

#[test]
fn a_truncated_message_starts_nothing() {
    let mut fixture = Fixture::new();
    fixture.assign([job(1, PATIENT)]);
    let process = fixture.noted("1");
    let whole = serde_json::to_string(&ToWorker::Assign(vec![job(2, "touch never")])).unwrap();
    fixture.send_raw(&whole.as_bytes()[..whole.len() - 1]);
    fixture.hang_up();
    assert!(fixture.gone().success());
    eventually("the end of job 1", || (!process.is_alive()).then_some(()));
    assert!(!fixture.path("never").exists());
}
