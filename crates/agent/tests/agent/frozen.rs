//! The worker or its worker process is stopped for longer than the lease, and continued.

use crate::support::{Fixture, eventually, gated, job, key};
use crate::unreachable_server::send;
use std::time::Duration;
use windlass_process::process_identity::{ProcessIdentity, to_pid};
use windlass_process::{Signal, procfs};
use windlass_types::worker_messages::{AttemptReport, ProcessExit, ReturnReason};

const LEASE: Duration = Duration::from_secs(2);

fn state(process: ProcessIdentity) -> u8 {
    procfs::read_stat(to_pid(process.pid).unwrap()).map_or(b'-', |stat| stat.state)
}

/// The worker process of a worker that is a separate process.
fn worker_of(agent: u32) -> u32 {
    eventually("a worker process", || {
        let children = procfs::list_children(to_pid(agent).unwrap());
        children.first().map(|pid| windlass_process::process_identity::from_pid(*pid))
    })
}

#[test]
fn jobs_of_a_stopped_worker_freeze_when_the_lease_expires() {
    let fixture = Fixture::new(LEASE);
    let mut agent = fixture.start_process();
    fixture.server.give([gated(1)]);
    let leader = fixture.noted("leader1");
    send(agent.id(), Signal::STOP);
    eventually("it is frozen", || (state(leader) == b'T').then_some(()));
    // The server reassigned the job in the meantime.
    fixture.server.change(|server| server.has_forgotten = true);
    send(agent.id(), Signal::CONT);
    eventually("its end", || (!leader.is_alive()).then_some(()));
    fixture.server.give([job(2, "true")]);
    assert_eq!(fixture.ended(2).exit, ProcessExit::Code(0), "the worker continues");
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[test]
fn stopping_both_processes_does_no_harm() {
    let fixture = Fixture::new(LEASE);
    let mut agent = fixture.start_process();
    fixture.server.give([job(1, "echo $$ > leader1; while :; do sleep 0.01; done")]);
    let leader = fixture.noted("leader1");
    let worker = worker_of(agent.id());
    send(worker, Signal::STOP);
    send(agent.id(), Signal::STOP);
    // Longer than the lease: only time itself can be waited for.
    std::thread::sleep(LEASE + Duration::from_secs(1));
    fixture.server.change(|server| server.has_forgotten = true);
    send(worker, Signal::CONT);
    send(agent.id(), Signal::CONT);
    eventually("its end", || (!leader.is_alive()).then_some(()));
    fixture.server.give([job(2, "true")]);
    assert_eq!(fixture.ended(2).exit, ProcessExit::Code(0));
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[test]
fn a_stopped_worker_process_is_replaced_with_its_jobs_ended() {
    let fixture = Fixture::new(LEASE);
    let mut agent = fixture.start_process();
    fixture.server.give([gated(1)]);
    let leader = fixture.noted("leader1");
    send(worker_of(agent.id()), Signal::STOP);
    let hung = AttemptReport::Returned { key: key(1), why: ReturnReason::WorkerHung };
    fixture.server.until("the report", |server| server.reports.contains(&hung).then_some(()));
    assert!(!leader.is_alive(), "dead before it is reported");
    fixture.server.give([job(2, "true")]);
    assert_eq!(fixture.ended(2).exit, ProcessExit::Code(0));
    agent.kill().unwrap();
    agent.wait().unwrap();
}
