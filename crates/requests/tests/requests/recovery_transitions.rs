//! More arrows of the recovery diagrams: rounds after rescues, kept progress, changes by operators.

use crate::kit::{Fixture, generating, reading};
use crate::recovery::{OUTPUT, assert_one_at_a_time, causes, failing, release};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::rows::{BackendRunRef, RequestOverrides, RequestRunCause, RunRow};
use windlass_types::requests::{RequestFileState, RequestRunStatus, RequestStatus};

/// E 3.4: rescue succeeds → the round is complete → the next one. Each round has its own rescues.
#[test]
fn next_round_follows_successful_rescue() {
    let mut fixture = Fixture::new();
    fixture.input(24, 10);
    let settings = &mut fixture.options.plan_settings.adaptive;
    // Rounds of six units, each of two files.
    (settings.first_round_units, settings.growth, settings.min_samples) = (6, 1, 1000);
    fixture.options.decision_settings.failure_response.correlated.enabled = false;
    // In the first run of each round, one of its units fails.
    failing(&mut fixture, 1);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", OUTPUT, 1..=240);
    let runs = fixture.runs("r1");
    assert_eq!(
        causes(&runs),
        [
            (0, RequestRunCause::First, 0),
            (0, RequestRunCause::Failure, 1),
            (1, RequestRunCause::First, 0),
            (1, RequestRunCause::Failure, 1)
        ]
    );
    assert_one_at_a_time(&runs);
    assert!(!fixture.statuses("r1").contains(&RequestStatus::Held));
}

/// E 3.4: units completed in the run and in each of its rescues count, and only the rest is planned again.
#[test]
fn release_credits_run_and_its_rescues() {
    let mut fixture = Fixture::new();
    fixture.input(24, 10);
    // Otherwise it might be paused before its retries are used up.
    fixture.options.decision_settings.failure_response.correlated.enabled = false;
    let corrected: Arc<AtomicBool> = Arc::default();
    let is_corrected = Arc::clone(&corrected);
    // One unit fails until it is repaired, another one in the first run only.
    fixture.job_outcome = Arc::new(move |job| match job.name.as_str() {
        name if name.starts_with("proc_000001") => is_corrected.load(Ordering::Relaxed),
        name if name.starts_with("proc_000002") => job.key.run.0 > 1,
        _ => true,
    });
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Held);
    let runs = fixture.runs("r1");
    let done = |run: &RunRow| (run.rescues, run.units_completed);
    assert_eq!(runs.iter().map(done).collect::<Vec<_>>(), [(0, 10), (1, 11), (2, 11), (3, 11)]);

    corrected.store(true, Ordering::Relaxed);
    release(&fixture, "r1", false, &[]);
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", OUTPUT, 1..=240);
    let runs = fixture.runs("r1");
    let last = runs.last().unwrap();
    assert_eq!(
        (last.round, last.cause, last.totals.units),
        (1, RequestRunCause::First, 1),
        "the failed units, and no more"
    );
    let process = fixture.job_store.process("r1").unwrap().unwrap();
    let rows = fixture.job_store.file_rows(&process.uuid).unwrap();
    assert_eq!(rows.iter().filter(|row| row.state == RequestFileState::Processed).count(), 24);
    assert_eq!(rows.iter().filter(|row| row.round == 1).count(), 2, "{rows:?}");
}

/// E 4.1, 8.3: a new retry limit applies to rounds planned after it.
#[test]
fn released_retry_limit_applies_to_next_round() {
    let mut fixture = Fixture::new();
    let is_hopeless: Arc<AtomicBool> = Arc::default();
    let hopeless = Arc::clone(&is_hopeless);
    fixture.job_outcome = Arc::new(move |job| {
        let is_meant = job.name.starts_with("proc_000001") || hopeless.load(Ordering::Relaxed);
        !(is_meant && job.name.starts_with("proc"))
    });
    fixture.start();
    fixture.submit(&generating("g1", 100));
    fixture.wait("g1", RequestStatus::Held);
    is_hopeless.store(true, Ordering::Relaxed);
    let overrides = RequestOverrides { retry_count: Some(0), ..RequestOverrides::default() };
    release(&fixture, "g1", false, &[RequestChange::Overrides(overrides.into())]);
    let runs = fixture.wait_for(|fixture| {
        let runs = fixture.runs("g1");
        (runs.len() == 2 && runs[1].status.is_over()).then_some(runs)
    });
    let tries = |run: &RunRow| {
        let BackendRunRef::Engine { workflow: Some(workflow), .. } = run.backend else { panic!("{run:?}") };
        let failed = fixture.job_store.failed_attempts(workflow, 0, 1000).unwrap();
        failed.iter().map(|one| one.attempt_id.0).max()
    };
    assert_eq!((tries(&runs[0]), tries(&runs[1])), (Some(4), Some(1)), "three retries, then none");
    assert_eq!(runs[1].status, RequestRunStatus::Failed);
}
