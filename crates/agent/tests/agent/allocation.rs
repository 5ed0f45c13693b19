//! Slurm ends an allocation by a signal to all its processes at once.

use crate::support::{Fixture, LONG, eventually, gated, job};
use std::time::{Duration, Instant};
use windlass_agent::{LeaveReason, RemoteWorkerOptions, WorkerDeadline};
use windlass_process::process_identity::to_pid;
use windlass_process::{Signal, process_tree};
use windlass_types::slurm::SlurmJobNode;
use windlass_types::worker_messages::{AttemptEndCause, ProcessExit, StopReason};

fn inside(options: &mut RemoteWorkerOptions) {
    options.slurm = Some(SlurmJobNode { job_id: 7, restarts: 0, node: "n1".into() });
}

#[test]
fn a_job_that_dies_with_the_allocation_has_not_failed() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(inside);
    fixture.server.give([gated(1)]);
    let leader = fixture.noted("leader1");
    // The job first, which is possible.
    process_tree::signal_group_and_members(to_pid(leader.pid).unwrap(), &[], Signal::TERM);
    agent.control.stop();
    let outcome = agent.end().unwrap();
    assert_eq!((outcome.reason, outcome.stopped, outcome.failed), (LeaveReason::Stopped, 1, 0));
    assert_eq!(fixture.ended(1).cause, AttemptEndCause::Stopped(StopReason::Interrupted));
    let state = fixture.server.state();
    assert!(state.has_left, "it signed off");
    assert_eq!(state.introductions[0].slurm.as_ref().map(|place| place.job_id), Some(7));
}

#[test]
fn a_job_that_kills_itself_has_failed_without_a_shutdown() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(inside);
    fixture.server.give([job(1, "kill -KILL $$"), job(2, "exit 4")]);
    let killed = fixture.ended(1);
    assert_eq!((killed.exit, killed.cause), (ProcessExit::Signal(9), AttemptEndCause::Itself));
    assert_eq!(
        (fixture.ended(2).exit, fixture.ended(2).cause),
        (ProcessExit::Code(4), AttemptEndCause::Itself)
    );
    agent.control.drain();
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
}

#[test]
fn a_worker_drained_early_completes_running_jobs() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(inside);
    fixture.server.give([gated(1)]);
    fixture.noted("leader1");
    agent.control.drain();
    fixture.write_go_file();
    let outcome = agent.end().unwrap();
    assert_eq!((outcome.reason, outcome.succeeded), (LeaveReason::Drained, 1));
}

#[test]
fn a_worker_with_a_known_end_accepts_jobs_that_fit() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(|options| {
        inside(options);
        options.deadline =
            Some(WorkerDeadline { end: Instant::now() + LONG, stop_before_end: Duration::from_secs(1) });
        options.warning_before_end = Some(LONG);
    });
    fixture.server.give([job(1, "true")]);
    fixture.ended(1);
    agent.control.notify_time_limit();
    fixture.server.give([job(2, "true")]);
    fixture.ended(2);
    assert!(agent.has_said("time limit near: starting only jobs that end in time"));
    agent.control.drain();
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
}

#[test]
fn a_worker_with_an_unexpected_warning_drains() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(|options| {
        inside(options);
        options.deadline =
            Some(WorkerDeadline { end: Instant::now() + 10 * LONG, stop_before_end: Duration::from_secs(1) });
        options.warning_before_end = Some(Duration::from_secs(1));
    });
    fixture.server.give([job(1, "true")]);
    fixture.ended(1);
    agent.control.notify_time_limit();
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
}

#[test]
fn in_an_allocation_the_server_is_awaited_beyond_the_idle_timeout() {
    let fixture = Fixture::new(LONG);
    fixture.server.go_away();
    let idle = Duration::from_secs(1);
    let agent = fixture.start_worker_with(|options| {
        inside(options);
        options.idle_timeout = Some(idle);
        options.first_contact = LONG;
    });
    let began = Instant::now();
    eventually("it has waited longer than its idle timeout", || (began.elapsed() > 3 * idle).then_some(()));
    fixture.server.give([job(1, "true")]);
    fixture.server.come_back();
    fixture.ended(1);
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Idle);
}

#[test]
fn worker_leaves_when_its_workflow_has_ended() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(|options| {
        inside(options);
        options.idle_timeout = Some(LONG);
        options.leaves_when_over = true;
    });
    fixture.server.change(|state| state.dismissed = true);
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Dismissed);
}
