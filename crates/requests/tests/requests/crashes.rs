//! The lifecycle crashes after each of its commits in turn, and its successor continues from the rows alone.

use crate::kit::{Bench, reading};
use windlass_core::requests::rows::RequestCommandKind;
use windlass_types::requests::{ProductionStep, Request, RequestStatus};

/// Runs the request with a crash after commit `n`. Returns whether it got that far.
fn crashes_at(n: u32, request: &Request, stop: bool) -> bool {
    let mut bench = Bench::new();
    bench.input(6, 10);
    bench.crash_at = Some(n);
    bench.start();
    bench.submit(request);
    let name = &request.request_name;
    let is_active = |bench: &Bench| bench.row(name).status == RequestStatus::Active;
    let is_dead = |bench: &Bench| !bench.lifecycle().status().running;
    let is_over = |bench: &Bench| bench.row(name).status.is_terminal();
    if stop {
        bench.wait_for(|bench| (is_active(bench) || is_dead(bench) || is_over(bench)).then_some(()));
        if is_active(&bench) {
            bench.want(name, RequestCommandKind::Stop);
        }
    }
    bench.wait_for(|bench| (is_dead(bench) || is_over(bench)).then_some(()));
    let has_crashed = is_dead(&bench);
    bench.stop();
    bench.crash_at = None;
    bench.start();
    bench.wait(name, RequestStatus::Completed);
    bench.assert_whole(name, &request.output_datasets[0], 1..=60);
    // No steps are pending.
    assert_eq!(bench.job_store.requests_with_pending_steps().unwrap(), [""; 0]);
    has_crashed
}

fn after_every_commit(request: &Request, stop: bool) -> u32 {
    let commits = (1..200).take_while(|n| crashes_at(*n, request, stop)).count();
    u32::try_from(commits).unwrap()
}

#[test]
fn crash_after_any_commit_loses_and_repeats_nothing() {
    let commits = after_every_commit(&reading("r1"), false);
    assert!(
        commits >= 6,
        "only {commits} commits: submitted, planned, ready, submitted to the backend, outputs, completed"
    );
}

#[test]
fn crash_during_stop_loses_and_repeats_nothing() {
    let mut request = reading("r1");
    request.production_steps = vec![ProductionStep { fraction: 0.3, priority: 50 }];
    // A request without adaptive rounds stops at a step, and continues as planned.
    request.adaptive = false;
    let commits = after_every_commit(&request, true);
    assert!(commits >= 6, "only {commits} commits");
}
