//! What jobs leave behind is ended with them, and nobody else's.

use crate::support::{AWAIT_GATE, Bench, eventually, job};
use std::time::Duration;
use windlass_proc::identity::Identity;
use windlass_types::JobId;
use windlass_types::work::{EndCause, Exit, StopReason, ToWorker};
use windlass_worker::WorkerOptions;

/// Three ways to get away: a session of its own, that with an empty environment, and both with a dead parent.
const DAEMONS: &str = "
    setsid sh -c 'echo $$ > a; exec sleep 1000' &
    (setsid sh -c 'echo $$ > b; exec sleep 1000' &)
    (env -i setsid /bin/sh -c 'echo $$ > c; exec /bin/sleep 1000' &)
    sleep 1000 & echo $! > d
    while [ ! -s a ] || [ ! -s b ] || [ ! -s c ]; do sleep 0.02; done
";

fn daemons(bench: &Bench) -> Vec<Identity> {
    ["a", "b", "c", "d"].map(|name| bench.noted(name)).to_vec()
}

fn no_cgroups(options: &mut WorkerOptions) {
    options.cgroups = false;
}

fn what_a_job_leaves_is_ended(adjust: impl FnOnce(&mut WorkerOptions)) {
    let mut bench = Bench::with(adjust);
    bench.assign([job(1, &format!("{DAEMONS} {AWAIT_GATE}; exit 5"))]);
    let daemons = daemons(&bench);
    assert!(daemons.iter().all(|daemon| daemon.is_alive()));
    bench.open_gate();
    let ended = bench.ended();
    assert_eq!((ended.exit, ended.cause), (Exit::Code(5), EndCause::Itself));
    assert!(!daemons.iter().any(|daemon| daemon.is_alive()));
    bench.quit();
}

#[test]
fn what_a_job_leaves_is_ended_in_a_cgroup() {
    what_a_job_leaves_is_ended(|_| {});
}

#[test]
fn what_a_job_leaves_is_ended_without_one() {
    what_a_job_leaves_is_ended(no_cgroups);
}

fn canceling_ends_the_whole_tree(adjust: impl FnOnce(&mut WorkerOptions)) {
    let mut bench = Bench::with(adjust);
    bench.assign([job(1, &format!("{DAEMONS} sleep 1000"))]);
    let daemons = daemons(&bench);
    bench.send(&ToWorker::Stop { why: StopReason::Canceled, grace: Duration::from_secs(20) });
    let ended = bench.ended();
    assert_eq!((ended.exit, ended.cause), (Exit::Signal(15), EndCause::Stopped(StopReason::Canceled)));
    assert!(!daemons.iter().any(|daemon| daemon.is_alive()));
    bench.quit();
}

#[test]
fn canceling_ends_the_whole_tree_in_a_cgroup() {
    canceling_ends_the_whole_tree(|_| {});
}

#[test]
fn canceling_ends_the_whole_tree_without_one() {
    canceling_ends_the_whole_tree(no_cgroups);
}

fn the_end_of_one_job_does_not_touch_anothers_daemons(adjust: impl FnOnce(&mut WorkerOptions)) {
    let mut bench = Bench::with(adjust);
    bench.assign([job(1, &format!("{DAEMONS} {AWAIT_GATE}"))]);
    let daemons = daemons(&bench);
    // These end beside it, and one of them leaves something itself.
    for id in 2..6 {
        bench.assign([job(id, "(setsid sleep 1000 &)")]);
        assert_eq!(bench.ended().key.job, JobId(id));
    }
    assert!(daemons.iter().all(|daemon| daemon.is_alive()));
    bench.open_gate();
    assert_eq!(bench.ended().key.job, JobId(1));
    assert!(!daemons.iter().any(|daemon| daemon.is_alive()));
    bench.quit();
}

#[test]
fn the_end_of_one_job_does_not_touch_anothers_daemons_in_cgroups() {
    the_end_of_one_job_does_not_touch_anothers_daemons(|_| {});
}

#[test]
fn the_end_of_one_job_does_not_touch_anothers_daemons_without() {
    the_end_of_one_job_does_not_touch_anothers_daemons(no_cgroups);
}

#[test]
fn a_daemon_that_will_not_go_is_killed_after_the_grace() {
    let mut bench = Bench::with(|options| options.leftover_grace = Duration::from_millis(200));
    let command = "(setsid sh -c 'trap \"echo no\" TERM; echo $$ > a; while :; do sleep 0.02; done' &)
                   while [ ! -s a ]; do sleep 0.02; done";
    bench.assign([job(1, command)]);
    let daemon = bench.noted("a");
    assert_eq!(bench.ended().exit, Exit::Code(0));
    assert!(!daemon.is_alive());
    assert_eq!(bench.log(1, "o").as_deref(), Some("no\n"));
    bench.quit();
}

#[test]
fn orphans_that_are_over_do_not_pile_up_while_their_job_runs() {
    let mut bench = Bench::new();
    let orphans = "for i in $(seq 100); do (true &); done";
    let command =
        format!("trap '' TERM; {orphans}; echo $$ > a; {AWAIT_GATE}; {orphans}; echo $$ > b; sleep 1000");
    bench.assign([job(1, &command)]);
    let worker = windlass_proc::identity::to_pid(bench.child.id()).unwrap();
    let only_the_job_is_left = || (windlass_proc::procfs::children(worker).len() == 1).then_some(());
    bench.noted("a");
    eventually("the end of the orphans", only_the_job_is_left);
    // Also when nothing is due for the job but to be killed, one day.
    bench.stop(Duration::from_secs(1000));
    bench.open_gate();
    bench.noted("b");
    eventually("the end of the orphans", only_the_job_is_left);
    bench.stop(Duration::ZERO);
    assert_eq!(bench.ended().exit, Exit::Signal(9));
    bench.quit();
}

#[test]
fn children_that_ended_before_their_job_are_no_leftovers() {
    let mut bench = Bench::new();
    // `sh` does not wait for these; they become ours as zombies.
    let ended = bench.run(job(1, "true & true & true & exec sleep 0.3"));
    assert_eq!((ended.exit, ended.cause), (Exit::Code(0), EndCause::Itself));
    assert_eq!(bench.run(job(2, "true")).exit, Exit::Code(0));
    let own = windlass_proc::identity::to_pid(bench.child.id()).unwrap();
    assert_eq!(windlass_proc::procfs::children(own), []);
    bench.quit();
}
