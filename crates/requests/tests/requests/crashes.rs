//! The lifecycle crashes after each of its commits in turn, and its successor continues from the rows alone.

use crate::kit::{Fixture, reading};
use windlass_core::requests::rows::RequestCommandKind;
use windlass_types::requests::{PriorityStep, Request, RequestStatus};

/// Runs the request with a crash after commit `n`. Returns whether it got that far.
fn crashes_at(n: u32, request: &Request, stop: bool) -> bool {
    let mut fixture = Fixture::new();
    fixture.input(6, 10);
    fixture.crash_at = Some(n);
    fixture.start();
    fixture.submit(request);
    let name = &request.request_name;
    let is_active = |fixture: &Fixture| fixture.row(name).status == RequestStatus::Active;
    let is_dead = |fixture: &Fixture| !fixture.lifecycle().status().running;
    let is_over = |fixture: &Fixture| fixture.row(name).status.is_terminal();
    if stop {
        fixture
            .wait_for(|fixture| (is_active(fixture) || is_dead(fixture) || is_over(fixture)).then_some(()));
        if is_active(&fixture) {
            fixture.want(name, RequestCommandKind::Stop);
        }
    }
    fixture.wait_for(|fixture| (is_dead(fixture) || is_over(fixture)).then_some(()));
    let has_crashed = is_dead(&fixture);
    fixture.stop();
    fixture.crash_at = None;
    fixture.start();
    fixture.wait(name, RequestStatus::Completed);
    fixture.assert_whole(name, &request.output_datasets[0], 1..=60);
    // No steps are pending.
    assert_eq!(fixture.job_store.requests_with_pending_steps().unwrap(), [""; 0]);
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
    request.production_steps = vec![PriorityStep { fraction: 0.3, priority: 50 }];
    // A request without adaptive rounds stops at a step, and continues as planned.
    request.adaptive = false;
    let commits = after_every_commit(&request, true);
    assert!(commits >= 6, "only {commits} commits");
}
