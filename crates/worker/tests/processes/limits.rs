//! `runtime` and `memory`.

use crate::support::{Fixture, job, one_at_a_time};
use std::path::Path;
use std::time::Duration;
use windlass_process::ledger::LedgerContents;
use windlass_types::worker_messages::{Assignment, AttemptEndCause, ProcessExit};
use windlass_types::{Bytes, Resources};
use windlass_worker::WorkerOptions;

const LIMIT: Bytes = Bytes(64 << 20);

fn timed(id: i64, command: &str) -> Assignment {
    let mut job = job(id, command);
    job.limits.runtime = Some(Duration::from_secs(1));
    job
}

#[test]
fn a_job_past_its_runtime_is_terminated_and_then_killed() {
    let mut fixture = Fixture::with(|options| options.timeout_grace = Duration::from_millis(500));
    let polite = timed(1, "trap 'echo bye; exit 3' TERM; while :; do sleep 0.02; done");
    let ended = fixture.run(polite);
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(3), AttemptEndCause::Timeout));
    assert_eq!(fixture.log(1, "o").as_deref(), Some("bye\n"));
    assert!(ended.wall >= Duration::from_secs(1));

    let stubborn = timed(2, "trap 'echo no' TERM; while :; do sleep 0.02; done");
    let ended = fixture.run(stubborn);
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Signal(9), AttemptEndCause::Timeout));
    assert_eq!(fixture.log(2, "o").as_deref(), Some("no\n"));
    assert!(ended.wall >= Duration::from_millis(1500));
    fixture.quit();
}

#[test]
fn a_stopped_process_and_a_daemon_end_with_the_runtime_of_their_job() {
    let mut fixture = Fixture::with(|options| options.timeout_grace = Duration::from_millis(300));
    let command = "(setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 0.02; done' &) ; \
                   while [ ! -s daemon ]; do sleep 0.02; done; kill -STOP $$";
    let mut stuck = timed(1, command);
    stuck.limits.runtime = Some(Duration::from_secs(2));
    fixture.assign([stuck]);
    let daemon = fixture.noted("daemon");
    let ended = fixture.ended();
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Signal(15), AttemptEndCause::Timeout));
    assert!(!daemon.is_alive());
    fixture.quit();
}

/// Holds this many MiB, and then some time.
fn hog(mib: u32) -> String {
    format!("python3 -c 'import time\nx = bytearray({mib} << 20)\ntime.sleep(30)'")
}

fn limited(id: i64, command: &str) -> Assignment {
    let mut job = job(id, command);
    job.resources = Resources { memory: LIMIT, ..Resources::DEFAULT };
    job.limits.memory = Some(LIMIT);
    job
}

fn memory_is_limited(adjust: impl FnOnce(&mut WorkerOptions)) {
    let mut fixture = Fixture::with(|options| {
        one_at_a_time(options);
        adjust(options);
    });
    let ended = fixture.run(limited(1, &hog(400)));
    assert_eq!(ended.cause, AttemptEndCause::OutOfMemory, "{ended:?}");
    assert_eq!(ended.exit.return_code(), 137);

    // Neither is too large alone.
    let ended = fixture.run(limited(2, &format!("{} & {} & wait", hog(45), hog(45))));
    assert_eq!(ended.cause, AttemptEndCause::OutOfMemory, "{ended:?}");

    let ended = fixture.run(limited(3, "python3 -c 'x = bytearray(20 << 20)'"));
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));

    // In the same slot, but without a limit.
    let ended = fixture.run(job(4, "python3 -c 'x = bytearray(300 << 20)'"));
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));
    fixture.quit();
}

#[test]
fn memory_is_limited_by_the_kernel_where_permitted() {
    memory_is_limited(|_| {});
}

#[test]
fn memory_is_limited_by_sampling_otherwise() {
    memory_is_limited(|options| options.cgroups = false);
}

#[test]
fn memory_is_limited_by_sampling_for_a_job_outside_its_cgroup() {
    let mut fixture = Fixture::new();
    let group = LedgerContents::read(&fixture.options.ledger).unwrap().cgroup;
    let leave = match group.as_deref().and_then(Path::parent) {
        Some(above) => format!("echo 0 > {}/cgroup.procs", above.display()),
        None => "true".to_owned(),
    };
    let ended = fixture.run(limited(1, &format!("{leave} && {}", hog(400))));
    assert_eq!(ended.cause, AttemptEndCause::OutOfMemory, "{ended:?}");
    fixture.quit();
}

#[test]
fn files_that_a_job_reads_do_not_count_as_its_memory() {
    let mut fixture = Fixture::new();
    let command = "head -c 200000000 /dev/zero > big; cat big > /dev/null; cat big | cat > /dev/null";
    let ended = fixture.run(limited(1, command));
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));
    fixture.quit();
}
