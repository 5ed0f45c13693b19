//! Registration, work and shutdown.

use crate::support::{Fixture, LONG, end_of, gated, job, key};
use std::fs;
use std::time::{Duration, Instant};
use windlass_agent::{LeaveReason, WorkerDeadline};
use windlass_process::process_identity::to_pid;
use windlass_process::{Pid, Signal, process_tree, procfs};
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptReport, ProcessExit, ReturnReason, StopReason,
};
use windlass_types::worker_protocol::{ActionCommand, StopCommand};
use windlass_types::{Attempt, RunId};

#[test]
fn worker_runs_jobs_reports_results_and_leaves_when_dismissed() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(|options| options.labels = vec!["gpu".into()]);
    fixture.server.give([job(1, "echo out; exit 3"), job(2, "echo $WINDLASS_URL > url")]);
    assert_eq!(fixture.ended(1).exit, ProcessExit::Code(3));
    assert_eq!(fixture.ended(2).exit, ProcessExit::Code(0));
    let log = fixture.path("out/job_stdio").join(format!("{}.o", key(1).log_stem()));
    assert_eq!(fs::read_to_string(log).unwrap(), "out\n");
    assert_eq!(fs::read_to_string(fixture.path("url")).unwrap().trim(), fixture.server.url);
    fixture.server.change(|state| state.dismissed = true);
    let outcome = agent.end().unwrap();
    assert_eq!((outcome.reason, outcome.succeeded, outcome.failed), (LeaveReason::Dismissed, 1, 1));
    let state = fixture.server.state();
    assert!(state.has_left);
    assert_eq!((&state.introductions[0].labels[..], state.introductions.len()), (&["gpu".to_owned()][..], 1));
    assert_eq!(fs::read_dir(fixture.state_dir()).unwrap().count(), 0, "it leaves no files");
}

/// As when a service unit is stopped: all its processes get SIGTERM, in any order. The worker itself treats it
/// as an interrupt.
#[test]
fn a_shutdown_that_signals_all_processes_interrupts_the_jobs() {
    for agent_first in [true, false] {
        let fixture = Fixture::new(LONG);
        let agent = fixture.start_worker();
        fixture.server.give([job(1, "echo $$ > leader1; exec sleep 1000")]);
        let leader = to_pid(fixture.noted("leader1").pid).unwrap();
        let running_worker = Pid::from_raw(procfs::read_stat(leader).unwrap().parent).unwrap();
        if agent_first {
            agent.control.interrupt();
        }
        process_tree::signal_process(leader, Signal::TERM);
        process_tree::signal_process(running_worker, Signal::TERM);
        if !agent_first {
            agent.control.interrupt();
        }
        let outcome = agent.end().unwrap();
        assert_eq!((outcome.reason, outcome.stopped, outcome.failed), (LeaveReason::Stopped, 1, 0));
        assert_eq!(fixture.ended(1).cause, AttemptEndCause::Stopped(StopReason::Interrupted));
        assert!(fixture.server.state().has_left, "it signed off");
    }
}

#[test]
fn a_report_does_not_wait_for_the_long_poll() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    // Chains: the next job comes only after the report of the last one. A long poll lasts for minutes here.
    let begun = Instant::now();
    for n in 1..=20 {
        fixture.server.give([job(n, "true")]);
        fixture.ended(n);
    }
    assert!(begun.elapsed() < LONG / 3, "{:?}", begun.elapsed());
    agent.control.interrupt();
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
}

#[test]
fn many_jobs_and_each_is_reported_once() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give((1..=500).map(|n| job(n, "true")));
    let count = |state: &crate::server::State| {
        state.reports.iter().filter(|report| matches!(report, AttemptReport::Ended(_))).count()
    };
    fixture.server.until("all ends", |state| (count(state) == 500).then_some(()));
    agent.control.interrupt();
    assert_eq!(agent.end().unwrap().succeeded, 500);
    let state = fixture.server.state();
    assert_eq!(count(&state), 500);
    assert!((1..=500).all(|n| end_of(&state, n).is_some()));
}

#[test]
fn the_first_interrupt_drains_and_returns_waiting_jobs() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(|options| options.capacity.max_jobs = Some(1));
    fixture.server.give([gated(1), job(2, "touch never")]);
    fixture.noted("leader1");
    agent.control.interrupt();
    let why = fixture.server.until("job 2 back", |state| {
        state.reports.iter().find_map(|report| match report {
            AttemptReport::Returned { key, why } if key.job.0 == 2 => Some(why.clone()),
            _ => None,
        })
    });
    assert_eq!(why, ReturnReason::Recalled);
    assert!(fixture.server.state().exchanges.iter().any(|exchange| exchange.draining));
    fixture.write_go_file();
    assert_eq!(fixture.ended(1).exit, ProcessExit::Code(0));
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
    assert!(!fixture.path("never").exists());
}

#[test]
fn the_second_interrupt_stops_jobs_and_reports_them() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give([job(1, "trap 'exit 0' TERM; echo $$ > leader1; while :; do sleep 0.02; done")]);
    fixture.noted("leader1");
    agent.control.interrupt();
    agent.control.interrupt();
    assert_eq!(fixture.ended(1).cause, AttemptEndCause::Stopped(StopReason::Interrupted));
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Stopped);
    assert!(fixture.server.state().has_left);
}

#[test]
fn server_can_drain_a_worker_and_stop_single_attempts() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give([gated(1), gated(2)]);
    fixture.noted("leader1");
    fixture.noted("leader2");
    let order = StopCommand {
        workflow: key(1).workflow,
        attempts: vec![key(1)],
        why: StopReason::Canceled,
        grace: Duration::ZERO,
    };
    fixture.server.change(|state| state.stops.push(order));
    assert_eq!(fixture.ended(1).cause, AttemptEndCause::Stopped(StopReason::Canceled));
    fixture.server.change(|state| state.drain = true);
    fixture.server.until("draining", |state| state.exchanges.last()?.draining.then_some(()));
    fixture.write_go_file();
    assert_eq!(fixture.ended(2).exit, ProcessExit::Code(0));
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
}

#[test]
fn running_jobs_are_stopped_at_the_time_limit() {
    let fixture = Fixture::new(LONG);
    let end = Instant::now() + Duration::from_secs(3);
    let agent = fixture.start_worker_with(|options| {
        options.deadline = Some(WorkerDeadline { end, stop_before_end: Duration::from_secs(1) });
    });
    fixture.server.give([gated(1)]);
    fixture.noted("leader1");
    assert_eq!(fixture.ended(1).cause, AttemptEndCause::Stopped(StopReason::Interrupted));
    assert_eq!(agent.end().unwrap().reason, LeaveReason::TimeOver);
    let state = fixture.server.state();
    let told = state.exchanges[0].time_left.unwrap();
    assert!(told <= Duration::from_secs(2), "{told:?}");
}

#[test]
fn worker_leaves_after_its_idle_timeout() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker_with(|options| options.idle_timeout = Some(Duration::from_millis(300)));
    fixture.server.give([job(1, "true")]);
    fixture.ended(1);
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Idle);
}

#[test]
fn an_ended_workflow_is_forgotten_until_introduced_again() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give([job(1, "true")]);
    fixture.ended(1);
    fixture.server.change(|state| {
        state.over.push(key(1).workflow);
        state.assignments.push(job(2, "true"));
    });
    let why = fixture.server.until("the report of job 2", |state| {
        state.reports.iter().find_map(|report| match report {
            AttemptReport::Returned { key: of, why } if *of == key(2) => Some(why.clone()),
            _ => None,
        })
    });
    assert!(
        matches!(&why, ReturnReason::WorkerTrouble(text) if text.contains("was not introduced to this worker")),
        "{why:?}"
    );
    // Both at once: the workflow has ended, and is introduced again.
    let site = fixture.site();
    fixture.server.change(|state| {
        state.over.push(key(1).workflow);
        state.workflows.push(site);
        state.assignments.push(job(3, "true"));
    });
    assert_eq!(fixture.ended(3).exit, ProcessExit::Code(0));
    agent.control.interrupt();
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
}

#[test]
fn actions_run_and_are_reported() {
    let fixture = Fixture::new(LONG);
    let mut agent = fixture.start_process();
    let order = ActionCommand {
        workflow: key(1).workflow,
        run: RunId(1),
        action: 5,
        attempt: Attempt(2),
        trigger: "on_workflow_start".into(),
        commands: vec!["echo $A $WINDLASS_URL ${WINDLASS_TOKEN-none} > made".into()],
        env: vec![("A".into(), "b".into())],
    };
    fs::create_dir(fixture.path("out")).unwrap();
    fixture.server.change(|state| state.actions.push(order));
    let report = fixture.server.until("the report", |state| state.action_reports.first().cloned());
    assert_eq!((report.action, report.attempt, report.return_code), (5, Attempt(2), 0));
    let made = fs::read_to_string(fixture.path("out/made")).unwrap();
    assert_eq!(made, format!("b {} none\n", fixture.server.url), "the token is not passed on");
    fixture.server.change(|state| state.dismissed = true);
    assert!(agent.wait().unwrap().success());
}

#[test]
fn a_missing_server_is_reported_soon() {
    let fixture = Fixture::new(LONG);
    fixture.server.go_away();
    let agent = fixture.start_worker_with(|options| options.first_contact = Duration::from_millis(200));
    let error = agent.end().unwrap_err().to_string();
    assert!(error.contains("cannot reach the server at http://127.0.0.1:"), "{error}");
    assert_eq!(fs::read_dir(fixture.state_dir()).unwrap().count(), 0);
}
