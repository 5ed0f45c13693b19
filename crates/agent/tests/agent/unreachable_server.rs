//! The server is unreachable for a while or for ever, or the worker itself dies.

use crate::server::Server;
use crate::support::{Fixture, LONG, end_of, eventually, gated, job, key};
use std::fs;
use std::time::Duration;
use windlass_agent::{LeaveReason, RemoteWorkerError, RemoteWorkerOptions};
use windlass_process::process_identity::to_pid;
use windlass_process::{Signal, procfs};
use windlass_types::worker_messages::{AttemptReport, ProcessExit, ReturnReason};

const SHORT: Duration = Duration::from_secs(2);

fn is_stopped(pid: u32) -> bool {
    procfs::read_stat(to_pid(pid).unwrap()).is_some_and(|stat| stat.is_stopped())
}

/// As after a crash of everything, if the old port is in use.
#[test]
fn results_are_delivered_to_the_next_server_of_the_database() {
    let mut fixture = Fixture::new(SHORT);
    let of_database = |options: &mut RemoteWorkerOptions| options.database = Some("w.db".into());
    let agent = fixture.start_worker_with(|options| {
        of_database(options);
        options.give_up_after = Duration::from_secs(3);
    });
    fixture.server.give([gated(1)]);
    fixture.noted("leader1");
    fixture.server.go_away();
    agent.end().unwrap_err();
    let next_server = Server::start(SHORT);
    next_server.continue_after(&fixture.server);
    fixture.server = next_server;
    let site = fixture.site();
    fixture.server.change(|state| {
        state.workflows.push(site);
        state.keeps = vec![key(1)];
    });
    let next = fixture.start_worker_with(of_database);
    fixture.ended(1);
    next.control.interrupt();
    next.end().unwrap();
}

#[test]
fn results_are_kept_while_the_server_is_away_and_delivered_later() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give([gated(1), gated(2)]);
    fixture.noted("leader1");
    fixture.noted("leader2");
    fixture.server.go_away();
    fixture.write_go_file();
    let journal = || -> Option<String> {
        let home = fs::read_dir(fixture.state_dir()).unwrap().next()?.unwrap().path();
        fs::read_to_string(home.join("journal")).ok()
    };
    eventually("both results on disk", || (journal()?.lines().count() == 2).then_some(()));
    assert!(agent.has_said("trying again"));
    fixture.server.come_back();
    assert_eq!([fixture.ended(1).exit, fixture.ended(2).exit], [ProcessExit::Code(0); 2]);
    eventually("an empty journal", || journal()?.is_empty().then_some(()));
    agent.control.interrupt();
    assert_eq!(agent.end().unwrap().undelivered, 0);
}

#[test]
fn restarted_server_accepts_the_worker_with_all_its_jobs() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give([gated(1), gated(2)]);
    let (first, second) = (fixture.noted("leader1"), fixture.noted("leader2"));
    let site = fixture.site();
    fixture.server.change(|state| {
        state.keeps = vec![key(1)];
        state.has_forgotten = true;
        state.workflows.push(site);
    });
    let before = fixture.server.until("a second registration", |state| {
        state.introductions.get(1).map(|who| who.before.clone().unwrap())
    });
    assert_eq!(before.held, [key(1), key(2)]);
    eventually("the end of the lost job", || (!second.is_alive()).then_some(()));
    assert!(first.is_alive());
    fixture.write_go_file();
    fixture.ended(1);
    agent.control.interrupt();
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
    assert!(end_of(&fixture.server.state(), 2).is_none(), "the lost job is not reported");
}

#[test]
fn after_a_server_restart_only_used_workflows_are_kept() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give([job(1, "true")]);
    fixture.ended(1);
    fixture.server.change(|state| state.has_forgotten = true);
    fixture.server.until("a second registration", |state| state.introductions.get(1).map(drop));
    fixture.server.give([job(2, "true")]);
    fixture.server.until("job 2 to be returned", |state| {
        let back = |report: &&AttemptReport| matches!(report, AttemptReport::Returned { key: of, .. } if *of == key(2));
        state.reports.iter().find(back).map(drop)
    });
    agent.control.interrupt();
    assert_eq!(agent.end().unwrap().reason, LeaveReason::Drained);
}

#[test]
fn long_jobs_freeze_when_the_lease_expires_and_continue_if_kept() {
    let fixture = Fixture::new(SHORT);
    let agent = fixture.start_worker();
    fixture.server.give([gated(1)]);
    let leader = fixture.noted("leader1");
    fixture.server.go_away();
    eventually("it is frozen", || is_stopped(leader.pid).then_some(()));
    fixture.server.change(|state| {
        state.keeps = vec![key(1)];
        state.has_forgotten = true;
    });
    fixture.server.come_back();
    eventually("it continues", || (!is_stopped(leader.pid)).then_some(()));
    fixture.write_go_file();
    assert_eq!(fixture.ended(1).exit, ProcessExit::Code(0));
    agent.control.interrupt();
    agent.end().unwrap();
}

#[test]
fn reassigned_jobs_are_killed_without_being_continued() {
    let fixture = Fixture::new(SHORT);
    let agent = fixture.start_worker();
    fixture.server.give([job(1, "echo $$ > leader1; while :; do echo x >> marks; sleep 0.01; done")]);
    let leader = fixture.noted("leader1");
    fixture.server.go_away();
    eventually("it is frozen", || is_stopped(leader.pid).then_some(()));
    let marks = fs::metadata(fixture.path("marks")).unwrap().len();
    fixture.server.change(|state| state.has_forgotten = true);
    fixture.server.come_back();
    eventually("its end", || (!leader.is_alive()).then_some(()));
    assert_eq!(fs::metadata(fixture.path("marks")).unwrap().len(), marks);
    fixture.server.give([job(2, "true")]);
    fixture.ended(2);
    agent.control.interrupt();
    agent.end().unwrap();
    assert!(end_of(&fixture.server.state(), 1).is_none());
}

#[test]
fn worker_gives_up_after_its_timeout_and_leaves_no_process() {
    let fixture = Fixture::new(SHORT);
    let agent = fixture.start_worker_with(|options| options.give_up_after = Duration::from_secs(3));
    fixture.server.give([gated(1)]);
    let leader = fixture.noted("leader1");
    fixture.server.go_away();
    let error = agent.end().unwrap_err();
    assert!(matches!(error, RemoteWorkerError::ServerUnreachable { .. }), "{error}");
    assert!(!leader.is_alive());
    // The next worker here delivers its result.
    fixture.server.come_back();
    fixture.server.change(|state| state.keeps = vec![key(1)]);
    let next = fixture.start_worker();
    fixture.ended(1);
    next.control.interrupt();
    next.end().unwrap();
}

#[test]
fn results_of_a_dead_worker_are_delivered_by_the_next_one() {
    let fixture = Fixture::new(LONG);
    let mut first = fixture.start_process();
    fixture.server.give([gated(1), job(2, "echo $$ > leader2; sleep 1000")]);
    fixture.noted("leader1");
    let running = fixture.noted("leader2");
    fixture.server.go_away();
    fixture.write_go_file();
    let journal = || {
        let home = fs::read_dir(fixture.state_dir()).ok()?.next()?.ok()?.path();
        fs::read_to_string(home.join("journal")).ok()
    };
    eventually("the result on disk", || (journal()?.lines().count() == 1).then_some(()));
    first.kill().unwrap();
    first.wait().unwrap();
    fixture.server.come_back();
    fixture.server.change(|state| state.keeps = vec![key(1), key(2)]);
    let second = fixture.start_worker();
    assert!(!running.is_alive(), "processes of dead workers are ended first");
    assert_eq!(fixture.ended(1).exit, ProcessExit::Code(0));
    let died = AttemptReport::Returned { key: key(2), why: ReturnReason::WorkerDied };
    fixture.server.until("the death of job 2", |state| state.reports.contains(&died).then_some(()));
    let before = fixture.server.state().introductions[2].before.clone().unwrap();
    assert_eq!((before.worker.0, before.secret.as_str()), (1, "secret-1"));
    second.control.interrupt();
    second.end().unwrap();
    assert_eq!(fs::read_dir(fixture.state_dir()).unwrap().count(), 0);
}

#[test]
fn a_worker_without_results_does_not_wait_for_an_absent_server() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.until("an exchange", |state| (!state.exchanges.is_empty()).then_some(()));
    fixture.server.go_away();
    agent.control.interrupt();
    let notices = std::sync::Arc::clone(&agent.notices);
    let outcome = agent.end().unwrap();
    assert!(notices.lock().unwrap().iter().any(|text| text.contains("without signing off")));
    assert_eq!((outcome.reason, outcome.undelivered, outcome.kept), (LeaveReason::Drained, 0, None));
    assert_eq!(fs::read_dir(fixture.state_dir()).unwrap().count(), 0, "no directory is left");
}

#[test]
fn undelivered_results_are_left_for_the_next_worker() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give([gated(1), gated(2)]);
    fixture.noted("leader1");
    fixture.noted("leader2");
    fixture.server.go_away();
    fixture.write_go_file();
    eventually("the notice", || agent.has_said("trying again").then_some(()));
    // Two interrupts, so that it does not wait for minutes.
    agent.control.interrupt();
    agent.control.interrupt();
    let outcome = agent.end().unwrap();
    assert_eq!(outcome.undelivered, 2);
    assert!(outcome.kept.is_some());
    fixture.server.come_back();
    fixture.server.change(|state| state.keeps = vec![key(1), key(2)]);
    let next = fixture.start_worker_with(|options| options.idle_timeout = Some(Duration::from_millis(100)));
    assert_eq!([fixture.ended(1).key, fixture.ended(2).key], [key(1), key(2)]);
    assert_eq!(next.end().unwrap().reason, LeaveReason::Idle);
    assert_eq!(fs::read_dir(fixture.state_dir()).unwrap().count(), 0);
}

#[test]
fn a_dead_worker_process_is_replaced_and_its_jobs_are_reported() {
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    // The worker is the parent of the shell.
    fixture.server.give([job(1, "kill -9 $PPID; sleep 1000")]);
    let died = AttemptReport::Returned { key: key(1), why: ReturnReason::WorkerDied };
    fixture.server.until("its death", |state| state.reports.contains(&died).then_some(()));
    fixture.server.give([job(2, "true")]);
    assert_eq!(fixture.ended(2).exit, ProcessExit::Code(0), "the new process gets the workflow too");
    agent.control.interrupt();
    agent.end().unwrap();
}

#[test]
fn the_secret_and_the_results_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new(LONG);
    let agent = fixture.start_worker();
    fixture.server.give([job(1, "true")]);
    fixture.ended(1);
    let home = fs::read_dir(fixture.state_dir()).unwrap().next().unwrap().unwrap().path();
    for (path, mode) in
        [(fixture.state_dir(), 0o700), (home.clone(), 0o700), (home.join("agent.json"), 0o600)]
    {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
    agent.control.interrupt();
    agent.end().unwrap();
}

pub(crate) fn send(pid: u32, signal: Signal) {
    rustix::process::kill_process(to_pid(pid).unwrap(), signal).unwrap();
}
