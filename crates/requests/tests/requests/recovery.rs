//! The arrows of the recovery diagrams (E 3.2, 3.4, 4.1–4.3, 7.2, 7.3), with a test of the same name for each.

use crate::kit::{Fixture, generating, reading, user_command};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::rows::{
    BackendRunRef, NewBan, RequestCommand, RequestCommandKind, RequestOverrides, RequestRunCause, RunRow,
};
use windlass_core::requests::versions;
use windlass_types::SystemClock;
use windlass_types::requests::{CleanupPolicy, ProcessingBlockStatus, RequestRunStatus, RequestStatus};

pub(crate) const OUTPUT: &str = "/Prim/Era-r1-v1/RECO";
const MADE: &str = "/Prim/Era-g1-v1/GEN";

/// One processing job fails in the first runs of its round, and then succeeds.
pub(crate) fn failing(fixture: &mut Fixture, runs: i64) {
    fixture.job_outcome = Arc::new(move |job| !job.name.starts_with("proc_000001") || job.key.run.0 > runs);
}

/// One processing job fails until the cause is fixed.
fn broken(fixture: &mut Fixture) -> Arc<AtomicBool> {
    let corrected: Arc<AtomicBool> = Arc::default();
    let is_corrected = Arc::clone(&corrected);
    fixture.job_outcome =
        Arc::new(move |job| !job.name.starts_with("proc_000001") || is_corrected.load(Ordering::Relaxed));
    corrected
}

pub(crate) fn causes(runs: &[RunRow]) -> Vec<(u32, RequestRunCause, u32)> {
    runs.iter().map(|run| (run.round, run.cause, run.rescues)).collect()
}

/// E 3.4, the critical rule: no job of a round starts before all earlier rounds have ended.
pub(crate) fn assert_one_at_a_time(runs: &[RunRow]) {
    for pair in runs.windows(2) {
        assert!(pair[0].status.is_over() && pair[0].completed_at <= Some(pair[1].created_at), "{pair:#?}");
    }
}

pub(crate) fn release(fixture: &Fixture, name: &str, rescue: bool, changes: &[RequestChange]) {
    let wanted = RequestCommand { rescue, ..user_command(RequestCommandKind::Release) };
    fixture.change(name, |_| [changes, &[RequestChange::SetCommand(Some(wanted.clone()))]].concat());
}

#[test]
fn successful_rescue_completes_round() {
    let mut fixture = Fixture::new();
    fixture.input(12, 10);
    failing(&mut fixture, 1);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", OUTPUT, 1..=120);
    let runs = fixture.runs("r1");
    assert_eq!(causes(&runs), [(0, RequestRunCause::First, 0), (0, RequestRunCause::Failure, 1)]);
    assert_eq!((runs[0].status, runs[1].status), (RequestRunStatus::Partial, RequestRunStatus::Completed));
    assert_eq!((runs[0].units_completed, runs[1].units_completed), (5, 6));
    assert_one_at_a_time(&runs);
    assert!(!fixture.statuses("r1").contains(&RequestStatus::Held));
}

#[test]
fn rescue_with_failures_is_rescued_again() {
    let mut fixture = Fixture::new();
    fixture.input(12, 10);
    failing(&mut fixture, 3);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", OUTPUT, 1..=120);
    let rescues: Vec<u32> = fixture.runs("r1").iter().map(|run| run.rescues).collect();
    assert_eq!(rescues, [0, 1, 2, 3]);
}

#[test]
fn request_held_after_last_rescue_completes_after_release() {
    let mut fixture = Fixture::new();
    let corrected = broken(&mut fixture);
    fixture.start();
    fixture.submit(&generating("g1", 120));
    let held = fixture.wait("g1", RequestStatus::Held);
    assert!(held.reason.unwrap().contains("maximum of 3 rescues"));
    let runs = fixture.runs("g1");
    assert_eq!(runs.iter().map(|run| run.rescues).collect::<Vec<_>>(), [0, 1, 2, 3]);
    // All completed units are kept, and registered while it is held.
    fixture.wait_for(|fixture| (fixture.events(MADE).len() == 100).then_some(()));

    corrected.store(true, Ordering::Relaxed);
    let ban = NewBan {
        site: "T1_A".into(),
        request: Some("g1".into()),
        reason: "it fails there".into(),
        failure_data: Value::Null,
        by: "me".into(),
        expires_at: SystemClock.now().plus(Duration::from_hours(1)),
    };
    let overrides = RequestOverrides { memory_mb: Some(2500), ..RequestOverrides::default() };
    let changes = [RequestChange::Ban(ban.into()), RequestChange::Overrides(overrides.into())];
    release(&fixture, "g1", false, &changes);
    fixture.wait("g1", RequestStatus::Completed);
    fixture.assert_archived("g1");
    let events = fixture.unique_events(MADE);
    assert_eq!(events.len(), 120, "as many as requested");
    let made_later: BTreeSet<u64> = (121..=140).collect();
    assert!(made_later.is_subset(&events), "numbers of a failed round are not used again: {events:?}");

    let runs = fixture.runs("g1");
    let last = runs.last().unwrap();
    assert_eq!((last.round, last.cause, last.rescues), (1, RequestRunCause::First, 0));
    assert_one_at_a_time(&runs);
    let BackendRunRef::Engine { workflow: Some(workflow), .. } = last.backend else { panic!("{last:?}") };
    let sites: BTreeSet<_> =
        fixture.job_store.work_units(workflow, 0).unwrap().into_iter().map(|unit| unit.site).collect();
    assert_eq!(sites, [Some("T2_B".to_owned())].into(), "no units land where it is banned");
    let outline: Value =
        serde_json::from_slice(&fs::read(format!("{}/run.json", last.submit_dir)).unwrap()).unwrap();
    assert_eq!(outline["sizes"][0]["memory_mb"], 2500, "as the operator decided");
}

#[test]
fn request_with_all_units_failed_is_held() {
    let mut fixture = Fixture::new();
    fixture.input(12, 10);
    // Otherwise it would be paused before its retries are used up.
    fixture.options.decision_settings.failure_response.correlated.enabled = false;
    fixture.sick.lock().unwrap().extend(["T1_A".to_owned(), "T2_B".to_owned()]);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Held);
    let runs = fixture.runs("r1");
    assert_eq!((runs.len(), runs[0].status, runs[0].units_completed), (1, RequestRunStatus::Failed, 0));

    fixture.sick.lock().unwrap().clear();
    release(&fixture, "r1", false, &[]);
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", OUTPUT, 1..=120);
    let runs = fixture.runs("r1");
    assert_eq!(causes(&runs), [(0, RequestRunCause::First, 0), (1, RequestRunCause::First, 0)]);
    assert_one_at_a_time(&runs);
    assert!(!fixture.statuses("r1").contains(&RequestStatus::Failed));
}

/// One of five work units fails: that is not below 20 %.
#[test]
fn failure_ratio_at_threshold_holds_without_rescue() {
    let mut fixture = Fixture::new();
    let corrected = broken(&mut fixture);
    fixture.start();
    fixture.submit(&generating("g1", 100));
    let held = fixture.wait("g1", RequestStatus::Held);
    assert!(held.reason.unwrap().contains("20.0 % failed"));
    let runs = fixture.runs("g1");
    assert_eq!((runs.len(), runs[0].units_completed, runs[0].totals.units), (1, 4, 5));

    // With a threshold of its own, the same round continues: the operator's run does not count, later ones do.
    let overrides = RequestOverrides { error_hold_threshold: Some(0.5), ..RequestOverrides::default() };
    release(&fixture, "g1", true, &[RequestChange::Overrides(overrides.into())]);
    fixture.wait_for(|fixture| {
        fixture.runs("g1").iter().any(|run| run.cause == RequestRunCause::Failure).then_some(())
    });
    corrected.store(true, Ordering::Relaxed);
    fixture.wait("g1", RequestStatus::Completed);
    fixture.assert_whole("g1", MADE, 1..=100);
    let runs = fixture.runs("g1");
    assert_eq!(
        causes(&runs)[..3],
        [(0, RequestRunCause::First, 0), (0, RequestRunCause::Person, 0), (0, RequestRunCause::Failure, 1)]
    );
    assert_one_at_a_time(&runs);
}

/// The next round contains only missing work, and each event is made once.
#[test]
fn release_credits_completed_work_and_plans_rest() {
    let mut fixture = Fixture::new();
    fixture.input(8, 10);
    let corrected = broken(&mut fixture);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Held);
    corrected.store(true, Ordering::Relaxed);
    release(&fixture, "r1", false, &[]);
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", OUTPUT, 1..=80);
    let runs = fixture.runs("r1");
    assert_eq!(causes(&runs), [(0, RequestRunCause::First, 0), (1, RequestRunCause::First, 0)]);
    assert_eq!(runs[1].totals.units, 1, "the failed work unit, and no other");
    let process = fixture.job_store.process("r1").unwrap().unwrap();
    assert_eq!((process.files.processed, process.files.attempted, process.files.excluded), (8, 0, 0));
}

/// A file that is excluded with a release is not read, even if its round would continue.
#[test]
fn removed_run_does_not_resume_with_excluded_files() {
    let barrier: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let mut fixture = Fixture::new();
    fixture.input(12, 10);
    let waits = Arc::clone(&barrier);
    fixture.job_outcome = Arc::new(move |job| {
        if job.name.starts_with("proc_000001") {
            let (is_open, told) = &*waits;
            drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        // The waiting job fails: its files are left for later rounds.
        !job.name.starts_with("proc_000001") || job.key.run.0 > 1 || job.key.workflow.0 > 1
    });
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait_for(|fixture| fixture.runs("r1").first().filter(|run| run.units_completed > 0).map(drop));
    fixture.want("r1", RequestCommandKind::Remove);
    fixture.wait("r1", RequestStatus::Held);
    let (is_open, told) = &*barrier;
    *is_open.lock().unwrap() = true;
    told.notify_all();
    let run = fixture.wait_for(|fixture| fixture.runs("r1").pop().filter(|run| run.status.is_over()));
    assert_eq!(run.status, RequestRunStatus::Stopped, "{run:?}");
    // One of the files of the waiting unit.
    let manifest = fs::read(format!("{}/mg_000001.json", run.submit_dir)).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let file = manifest["nodes"][0]["inputs"][0]["lfn"].as_str().unwrap().to_owned();
    let overrides = RequestOverrides { excluded_files: [file.clone()].into(), ..RequestOverrides::default() }
        .record_excluded_by("me");
    release(&fixture, "r1", false, &[RequestChange::Overrides(overrides.into())]);
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_archived("r1");
    let number: u64 = file.trim_start_matches("/store/in/").trim_end_matches(".txt").parse().unwrap();
    let left_out = number * 10 + 1..=number * 10 + 10;
    let expected: BTreeSet<u64> = (1..=120).filter(|event| !left_out.contains(event)).collect();
    assert_eq!(fixture.unique_events(OUTPUT), expected);
    let runs = fixture.runs("r1");
    assert_eq!(causes(&runs), [(0, RequestRunCause::First, 0), (1, RequestRunCause::First, 0)]);
    assert_one_at_a_time(&runs);
    let process = fixture.job_store.process("r1").unwrap().unwrap();
    assert_eq!((process.files.processed, process.files.excluded), (11, 1));
}

/// E 7.2, 7.3: completed work is kept over stops and rescues, and only the rescue counts.
#[test]
fn stop_is_not_counted_as_rescue() {
    let barrier: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let mut fixture = Fixture::new();
    fixture.input(12, 10);
    let waits = Arc::clone(&barrier);
    // In the first run it waits for the stop, in the next one it fails.
    fixture.job_outcome = Arc::new(move |job| {
        if !job.name.starts_with("proc_000001") {
            return true;
        }
        let (is_open, told) = &*waits;
        drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        job.key.run.0 > 2
    });
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait_for(|fixture| fixture.runs("r1").first().filter(|run| run.units_completed > 0).map(drop));
    fixture.want("r1", RequestCommandKind::Stop);
    fixture.wait_for(|fixture| fixture.runs("r1")[0].stop_requested_at.map(drop));
    let (is_open, told) = &*barrier;
    *is_open.lock().unwrap() = true;
    told.notify_all();
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", OUTPUT, 1..=120);
    let runs = fixture.runs("r1");
    assert_eq!(
        causes(&runs),
        [(0, RequestRunCause::First, 0), (0, RequestRunCause::Stop, 0), (0, RequestRunCause::Failure, 1)]
    );
    assert!(runs.is_sorted_by_key(|run| run.units_completed), "nothing is lost: {runs:#?}");
    assert_one_at_a_time(&runs);
}

/// E 4.2: the complete list of outputs for a manual cleanup.
#[test]
fn fail_writes_the_manifest() {
    let mut fixture = Fixture::new();
    fixture.input(8, 10);
    let _never = broken(&mut fixture);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Held);
    fixture.wait_for(|fixture| (fixture.events(OUTPUT).len() == 60).then_some(()));
    fixture.want("r1", RequestCommandKind::Fail);
    let failed = fixture.wait("r1", RequestStatus::Failed);
    let path = fixture.options.submit_root.join("r1/invalidation.json");
    assert!(failed.reason.unwrap().contains(&path.display().to_string()));
    let manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let listed = manifest["blocks"].as_array().unwrap();
    let known: Vec<_> =
        fixture.job_store.dataset_files(OUTPUT, true).unwrap().into_iter().map(|file| file.lfn).collect();
    let files = |block: &Value| block["files"].as_array().unwrap().clone();
    let lfns: BTreeSet<String> =
        listed.iter().flat_map(files).map(|file| file["lfn"].as_str().unwrap().to_owned()).collect();
    assert_eq!(lfns, known.into_iter().collect(), "all that is registered");
    for block in listed {
        let rules = fixture.job_store.rules(block["block"].as_str()).unwrap();
        let named =
            block["source_rules"].as_array().unwrap().len() + usize::from(block["tape_rule"].is_string());
        assert_eq!(named, rules.len(), "{block} {rules:?}");
    }
    let ends = [ProcessingBlockStatus::Archived, ProcessingBlockStatus::Failed];
    assert!(
        fixture.blocks("r1").iter().all(|block| ends.contains(&block.status)),
        "{:#?}",
        fixture.blocks("r1")
    );
}

#[test]
fn fail_stops_running_jobs() {
    let barrier: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let mut fixture = Fixture::new();
    fixture.input(12, 10);
    let waits = Arc::clone(&barrier);
    fixture.job_outcome = Arc::new(move |job| {
        if job.name.starts_with("proc_000001") {
            let (is_open, told) = &*waits;
            drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        true
    });
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait_for(|fixture| fixture.runs("r1").first().filter(|run| run.units_completed > 0).map(drop));
    fixture.want("r1", RequestCommandKind::Fail);
    fixture.wait_for(|fixture| fixture.runs("r1")[0].stop_requested_at.map(drop));
    let (is_open, told) = &*barrier;
    *is_open.lock().unwrap() = true;
    told.notify_all();
    fixture.wait("r1", RequestStatus::Failed);
    assert!(fixture.options.submit_root.join("r1/invalidation.json").exists());
    let runs = fixture.runs("r1");
    assert!(runs.len() == 1 && runs[0].status.is_over(), "{runs:#?}");
}

/// E 4.3: the old version ends, the new one starts, and its outputs replace the old ones only when they exist.
#[test]
fn kill_and_clone_restarts_and_keeps_old_outputs() {
    let mut fixture = Fixture::new();
    fixture.input(8, 10);
    let corrected = broken(&mut fixture);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Held);
    fixture.wait_for(|fixture| (fixture.events(OUTPUT).len() == 60).then_some(()));
    corrected.store(true, Ordering::Relaxed);
    let name = |name: &str| fixture.job_store.request(name).unwrap().is_some();
    let dataset = |dataset: &str| fixture.job_store.output_taken_by(dataset, "").unwrap().is_some();
    let taken = versions::TakenNames { name: &name, dataset: &dataset };
    fixture.change("r1", |row| {
        versions::plan_restart(
            row,
            CleanupPolicy::ImmediateCleanup,
            user_command(RequestCommandKind::Fail),
            &[],
            &taken,
        )
    });
    let old = fixture.wait("r1", RequestStatus::Failed);
    assert_eq!(old.request.superseded_by_request.as_deref(), Some("r1_v2"));
    assert!(!fixture.options.submit_root.join("r1/invalidation.json").exists(), "they stay");
    let new = fixture.wait("r1_v2", RequestStatus::Completed);
    assert_eq!(new.request.previous_version_request.as_deref(), Some("r1"));
    fixture.assert_whole("r1_v2", &new.request.output_datasets[0], 1..=80);
    fixture.wait_for(|fixture| fixture.events(OUTPUT).is_empty().then_some(()));
    let gone = |fixture: &Fixture| {
        versions::OutputState::from_blocks(&fixture.blocks("r1"), Some(RequestStatus::Completed))
    };
    fixture.wait_for(|fixture| (gone(fixture) == versions::OutputState::Invalidated).then_some(()));
}

/// E 4.3: if a new version is replaced before it is completed, earlier outputs stay until a version is
/// completed.
#[test]
fn completed_version_invalidates_outputs_of_all_earlier_ones() {
    let mut fixture = Fixture::new();
    fixture.input(8, 10);
    let corrected = broken(&mut fixture);
    fixture.start();
    fixture.submit(&reading("r1"));
    for (name, dataset) in [("r1", OUTPUT), ("r1_v2", "/Prim/Era-r1-v2/RECO")] {
        fixture.wait(name, RequestStatus::Held);
        fixture.wait_for(|fixture| (fixture.events(dataset).len() == 60).then_some(()));
        // The second version is not completed either.
        corrected.store(name != "r1", Ordering::Relaxed);
        let is_name = |name: &str| fixture.job_store.request(name).unwrap().is_some();
        let is_dataset = |dataset: &str| fixture.job_store.output_taken_by(dataset, "").unwrap().is_some();
        let taken = versions::TakenNames { name: &is_name, dataset: &is_dataset };
        let policy = CleanupPolicy::ImmediateCleanup;
        fixture.change(name, |row| {
            versions::plan_restart(row, policy, user_command(RequestCommandKind::Fail), &[], &taken)
        });
        fixture.wait(name, RequestStatus::Failed);
    }
    assert_eq!(fixture.events(OUTPUT).len(), 60, "nothing has replaced them yet");
    let new = fixture.wait("r1_v3", RequestStatus::Completed);
    fixture.assert_whole("r1_v3", &new.request.output_datasets[0], 1..=80);
    for name in ["r1", "r1_v2"] {
        fixture.wait_for(|fixture| {
            let blocks = fixture.blocks(name);
            blocks.iter().all(|block| block.status == ProcessingBlockStatus::Invalidated).then_some(())
        });
    }
    assert_eq!(fixture.events(OUTPUT), [0u64; 0]);
}

/// changes made with a release apply to that rescue and to later ones.
#[test]
fn released_changes_apply_to_all_later_rescues() {
    let mut fixture = Fixture::new();
    fixture.input(8, 10);
    let tried: Arc<Mutex<Vec<(i64, u64)>>> = Arc::default();
    let seen = Arc::clone(&tried);
    fixture.job_outcome = Arc::new(move |job| {
        if !job.name.starts_with("proc_000001_0") {
            return true;
        }
        seen.lock().unwrap().push((job.key.run.0, job.resources.memory.0 >> 20));
        job.key.run.0 > 3
    });
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Held);
    let planned = tried.lock().unwrap()[0].1;
    let overrides = RequestOverrides {
        memory_mb: Some(planned + 500),
        retry_count: Some(1),
        error_hold_threshold: Some(0.5),
        ..RequestOverrides::default()
    };
    release(&fixture, "r1", true, &[RequestChange::Overrides(overrides.into())]);
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", OUTPUT, 1..=80);
    let causes = causes(&fixture.runs("r1"));
    assert_eq!(
        causes[2..],
        [(0, RequestRunCause::Failure, 1), (0, RequestRunCause::Failure, 2)],
        "{causes:?}"
    );
    let asked: Vec<(i64, u64, usize)> = tried
        .lock()
        .unwrap()
        .chunk_by(|a, b| a == b)
        .map(|same| (same[0].0, same[0].1, same.len()))
        .collect();
    let more = planned + 500;
    assert_eq!(asked, [(1, planned, 4), (2, more, 2), (3, more, 2), (4, more, 1)], "run, memory, attempts");
}
