//! Input files of failed work units: over all rounds, each event is in the outputs once, or its file is excluded.
//! The checks read the outputs only.

use crate::kit::{Fixture, SITES, generating, reading, steps, user_command};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::adaptive::{RoundEstimate, SizingSource};
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::rows::{RequestCommandKind, RequestFileRow, RequestOverrides};
use windlass_store::model::AlertFilter;
use windlass_types::requests::{RequestFileState, RequestStatus, SplittingAlgo};

const OUTPUT: &str = "/Prim/Era-r1-v1/RECO";

/// Copies the events between the first and the last one that its input gives for each file.
const TAKE_WINDOWS: &str = r#"tr -d ' \n' < "$WINDLASS_INPUT_DETAILS" | sed 's/,{"path"/\n{"path"/g' |
    sed 's/.*"path":"\([^"]*\)".*"first":\([0-9]*\),"last":\([0-9]*\).*/\1 \2 \3/' |
    while read f first last || [ -n "$f" ]; do sed -n "${first},${last}p" "$f"; done > "$WINDLASS_OUTPUT""#;

fn rows(fixture: &Fixture, name: &str) -> Vec<RequestFileRow> {
    let process = fixture.job_store.process(name).unwrap().unwrap();
    fixture.job_store.file_rows(&process.uuid).unwrap()
}

/// These events are in the outputs, each once, and all blocks are correct.
fn assert_outputs(fixture: &Fixture, events: impl Iterator<Item = u64>) {
    assert_eq!(fixture.unique_events(OUTPUT), events.collect());
    fixture.assert_archived("r1");
}

fn rounds(fixture: &Fixture, name: &str) -> BTreeSet<u32> {
    fixture.runs(name).iter().map(|run| run.round).collect()
}

/// The file is in the catalog, and not on disk.
fn lose(fixture: &Fixture, number: usize) {
    let site = fixture.storage(SITES[number % SITES.len()]);
    std::fs::remove_file(format!("{}/store/in/{number}.txt", site.display())).unwrap();
}

/// A behavior that makes these jobs fail while the flag is set.
fn breaking(fixture: &mut Fixture, jobs: &'static [&'static str]) -> Arc<AtomicBool> {
    // Pausing after similar failures is tested elsewhere.
    fixture.options.decision_settings.failure_response.correlated.enabled = false;
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    fixture.job_outcome = Arc::new(move |job| {
        !(is_broken.load(Ordering::Relaxed) && jobs.iter().any(|name| job.name.starts_with(name)))
    });
    broken
}

/// Twelve files, six units, one of which reads a missing file.
fn with_a_bad_file() -> Fixture {
    let fixture = Fixture::new();
    fixture.input(12, 10);
    lose(&fixture, 4);
    fixture
}

fn without_the_bad_file() -> impl Iterator<Item = u64> {
    (1..=120).filter(|event| !(41..=50).contains(event))
}

#[test]
fn bad_file_is_excluded_and_rest_of_unit_is_processed_later() {
    let mut fixture = with_a_bad_file();
    fixture.start();
    fixture.submit(&reading("r1"));
    let row = fixture.wait("r1", RequestStatus::Completed);
    assert_outputs(&fixture, without_the_bad_file());
    let rows = rows(&fixture, "r1");
    let excluded: Vec<&RequestFileRow> =
        rows.iter().filter(|row| row.state == RequestFileState::Excluded).collect();
    let [bad] = excluded.as_slice() else { panic!("{rows:#?}") };
    assert_eq!((bad.lfn.as_str(), bad.round), ("/store/in/4.txt", 0));
    assert!(bad.reason.as_ref().unwrap().contains("found it bad"), "{bad:?}");
    let later: Vec<&str> = rows.iter().filter(|row| row.round == 1).map(|row| row.lfn.as_str()).collect();
    assert_eq!(later, ["/store/in/2.txt"], "the other file of the same unit");
    assert_eq!(rounds(&fixture, "r1"), [0, 1].into());
    let alerts = fixture.job_store.alerts(&AlertFilter::default()).unwrap();
    assert!(alerts.iter().any(|alert| alert.alert.kind == "files_excluded"), "{alerts:?}");
    assert!(row.reason.unwrap().contains("excluded"));
}

/// Returns whether it got that far.
fn crashes_at(n: u32) -> bool {
    let mut fixture = with_a_bad_file();
    fixture.crash_at = Some(n);
    fixture.start();
    fixture.submit(&reading("r1"));
    let is_dead = |fixture: &Fixture| !fixture.lifecycle().status().running;
    fixture.wait_for(|fixture| (is_dead(fixture) || fixture.row("r1").status.is_terminal()).then_some(()));
    let has_crashed = is_dead(&fixture);
    fixture.stop();
    fixture.crash_at = None;
    fixture.start();
    fixture.wait("r1", RequestStatus::Completed);
    assert_outputs(&fixture, without_the_bad_file());
    has_crashed
}

#[test]
fn crash_while_settling_loses_and_repeats_nothing() {
    let commits = (1..200).take_while(|n| crashes_at(*n)).count();
    assert!(commits >= 10, "only {commits} commits: two rounds, and a round whose work is settled");
}

/// A file of which some units were completed: only the rest of it is processed again.
#[test]
fn only_rest_of_partly_processed_file_is_processed_again() {
    let mut fixture = Fixture::new();
    fixture.input(6, 10);
    let broken = breaking(&mut fixture, &["proc_000001", "proc_000004_0"]);
    fixture.start();
    let mut request = reading("r1");
    request.splitting_algo = SplittingAlgo::EventBased;
    request.splitting_params.events_per_job = Some(7);
    request.payload_config = steps("RECO", TAKE_WINDOWS);
    fixture.submit(&request);
    fixture.wait("r1", RequestStatus::Held);
    broken.store(false, Ordering::Relaxed);
    fixture.want("r1", RequestCommandKind::Release);
    fixture.wait("r1", RequestStatus::Completed);
    assert_outputs(&fixture, 1..=60);
    let rows = rows(&fixture, "r1");
    assert!(rows.iter().all(|row| row.state == RequestFileState::Processed) && rows.len() == 6, "{rows:?}");
    let (first, again): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.round == 0);
    assert!(!first.is_empty() && !again.is_empty(), "{rows:?}");
}

/// New files come in growing rounds, each planned from the measurements of earlier ones.
#[test]
fn input_is_processed_in_adaptive_rounds() {
    let mut fixture = Fixture::new();
    fixture.input(24, 10);
    let settings = &mut fixture.options.plan_settings.adaptive;
    (settings.first_round_units, settings.growth, settings.min_samples) = (2, 2, 4);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Completed);
    assert_outputs(&fixture, 1..=240);
    let (runs, process) = (fixture.runs("r1"), fixture.job_store.process("r1").unwrap().unwrap());
    assert_eq!((process.files.processed, process.extent.later), (24, 0));
    let known = windlass_requests::round_measurements::current_experience(&process, runs.last());
    let asked: Vec<RoundEstimate> = known.rounds.iter().map(|round| round.asked).collect();
    assert!((2..=3).contains(&asked.len()), "{asked:#?}");
    assert_eq!((asked[0].from, asked[0].units, asked[0].jobs), (SizingSource::Hint, 2, 4));
    assert!(asked[1..].iter().all(|round| round.from == SizingSource::Measured), "{asked:#?}");
    // The configured kilobyte per event is really a few bytes: more jobs make a merged file of the target
    // size.
    assert!(asked[1].jobs > 2 * u64::from(asked[1].units), "{asked:#?}");
    assert_eq!(asked.iter().map(|round| round.events).sum::<u64>(), 240, "a file is in one round");
}

/// Changes made with a release are applied, and files added to the dataset meanwhile are used.
#[test]
fn release_adds_new_files_and_drops_excluded_files() {
    let mut fixture = Fixture::new();
    fixture.input(6, 10);
    let broken = breaking(&mut fixture, &["proc_000001"]);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Held);
    broken.store(false, Ordering::Relaxed);
    fixture.input(8, 10);
    let failed = first_file_of(&fixture, 1);
    let overrides =
        RequestOverrides { excluded_files: [failed.clone()].into(), ..RequestOverrides::default() };
    let overrides = overrides.record_excluded_by("eve");
    fixture.change("r1", |_| {
        let wanted = RequestChange::SetCommand(Some(user_command(RequestCommandKind::Release)));
        vec![RequestChange::Overrides(overrides.clone().into()), wanted]
    });
    fixture.wait("r1", RequestStatus::Completed);
    let number: u64 = failed.trim_start_matches("/store/in/").trim_end_matches(".txt").parse().unwrap();
    let gone = number * 10 + 1..=number * 10 + 10;
    assert_outputs(&fixture, (1..=80).filter(|event| !gone.contains(event)));
    let rows = rows(&fixture, "r1");
    let excluded: Vec<_> = rows.iter().filter(|row| row.state == RequestFileState::Excluded).collect();
    assert_eq!(excluded.len(), 1, "{rows:?}");
    assert_eq!(excluded[0].reason.as_deref(), Some("by eve"), "{excluded:?}");
}

/// The first file that a unit of the first round reads.
fn first_file_of(fixture: &Fixture, unit: u32) -> String {
    let directory = &fixture.runs("r1")[0].submit_dir;
    let text = std::fs::read(format!("{directory}/mg_{unit:06}.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&text).unwrap();
    manifest["nodes"][0]["inputs"][0]["lfn"].as_str().unwrap().to_owned()
}

/// E 5.1: event numbers are never used twice, even after failures.
#[test]
fn generation_with_lost_units_makes_each_event_once() {
    let mut fixture = Fixture::new();
    let broken = breaking(&mut fixture, &["proc_000001", "merge_000003"]);
    fixture.start();
    fixture.submit(&generating("g1", 95));
    fixture.wait("g1", RequestStatus::Held);
    broken.store(false, Ordering::Relaxed);
    fixture.want("g1", RequestCommandKind::Release);
    fixture.wait("g1", RequestStatus::Completed);
    let unique = fixture.unique_events("/Prim/Era-g1-v1/GEN");
    assert!(unique.len() >= 95, "{}", unique.len());
    // Two units of twenty events each are lost; other units with new numbers replace them.
    let lost = (21..=40).chain(61..=80);
    assert!(lost.clone().all(|event| !unique.contains(&event)), "{unique:?}");
    assert!(unique.range(96..).count() >= lost.count(), "{unique:?}");
}
