//! Input accounting, with real manifests and a real database.

use super::*;
use crate::manifests::{self, ManifestTemplate};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::requests::change::{RequestChange, RequestCommit};
use windlass_core::requests::rows::{
    BackendRunRef, BlockRow, NodeCounts, OutputStep, OutputStepKind, OutputStepState, RequestFileRow,
    RequestProgress, RequestRunCause, RunTotals,
};
use windlass_core::round_plan::{PlanInput, PlanSettings, RoundPlan, RoundStart, plan_round};
use windlass_store::RequestStore as _;
use windlass_store::sqlite::SqliteStore;
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::requests::{
    ProcessingBlockStatus, Request, RequestFileState, RequestRunStatus, RequestStatus,
};
use windlass_types::{SystemClock, Timestamp};

const NOW: Timestamp = Timestamp(1_000_000);

struct Fixture {
    store: SqliteStore,
    run: RunRow,
    plan: RoundPlan,
    dir: tempfile::TempDir,
}

fn request(algo: &str) -> Request {
    let text = json!({
        "request_name": "r", "requestor": "me", "input_dataset": "/A/B-v1/RAW", "output_datasets": ["/A/B-v1/RECO"],
        "memory_mb": 1000, "time_per_event_sec": 1.0, "size_per_event_kb": 1.0, "multicore": 1, "splitting_algo": algo,
        "splitting_params": {
            "files_per_job": 2, "events_per_job": 7, "lumis_per_job": 2, "target_merged_size_kb": 15
        },
        "processing_version": 1, "priority": 5, "cleanup_policy": "keep_until_replaced",
        "payload_config": {"simulation": {}},
    });
    serde_json::from_value(text).unwrap()
}

/// Six files of two lumis of five events each.
fn files() -> Vec<CatalogFile> {
    let lumi = |lumi| FileLumi { run: 1, lumi, events: Some(5) };
    let file = |n: u32| CatalogFile {
        lfn: format!("/store/{n}"),
        size: 10,
        events: 10,
        lumis: vec![lumi(2 * n), lumi(2 * n + 1)],
        replicas: [("A".to_owned(), String::new())].into(),
        ..CatalogFile::default()
    };
    (0..6).map(file).collect()
}

impl Fixture {
    /// A round that was planned and has ended.
    fn new(algo: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let request = request(algo);
        let plan = plan_round(&PlanInput {
            request: &request,
            files: &files(),
            attempted: &BTreeSet::new(),
            remaining: &BTreeMap::new(),
            sites: &[("A".to_owned(), None)].into(),
            settings: &PlanSettings::default(),
            start: RoundStart::default(),
            events_wanted: None,
            memory_mb: None,
            time_per_event: None,
            metrics: None,
            max_units: None,
            max_jobs: None,
            until_step: None,
        })
        .unwrap();
        let common =
            ManifestTemplate::new(&request, "u", &[("A".to_owned(), "/a".to_owned())].into()).unwrap();
        let outline = manifests::write_manifests(&dir.path().join("u"), &plan, &common).unwrap();
        let run = run(&dir.path().join("u"), outline.totals());
        let store = SqliteStore::create(dir.path().join("windlass.db")).unwrap().store;
        store.add_request(&request, RequestStatus::Queued, "me", NOW).unwrap();
        let fixture = Self { store, run, plan, dir };
        fixture.commit(vec![
            RequestChange::Process(process().into()),
            RequestChange::AddRun(fixture.run.clone().into()),
            RequestChange::AddBlock(block(fixture.run.totals.units).into()),
        ]);
        fixture
    }

    fn commit(&self, changes: Vec<RequestChange>) {
        let version = self.store.request("r").unwrap().unwrap().version;
        let commit = RequestCommit { request: "r".into(), version, changes, by: "me".into(), at: NOW };
        self.store.apply_requests(&[commit]).pop().unwrap().unwrap();
    }

    /// Marks the unit as completed, as the lifecycle does.
    fn complete(&self, unit: u32) {
        let step = OutputStep {
            block: "b".into(),
            unit: Some(unit),
            kind: OutputStepKind::Register,
            state: OutputStepState::Pending,
            attempts: 0,
            due_at: NOW,
            first_failed_at: None,
            last_error: None,
            result: None,
            detail: json!({}),
        };
        self.commit(vec![RequestChange::AddStep(step.into())]);
    }

    fn settle(&self) -> Result<RequestFileCounts, EffectFailure> {
        account_inputs(&self.store, &self.run)
    }

    fn rows(&self) -> Vec<RequestFileRow> {
        self.store.file_rows("p").unwrap()
    }
}

fn process() -> RequestProgress {
    serde_json::from_value(json!({
        "uuid": "p", "request_name": "r", "round": 0, "next_first_event": 1, "next_first_lumi": 1, "next_block": 1,
        "category_throttles": {}, "created_at": SystemClock.now(), "updated_at": SystemClock.now(),
    }))
    .unwrap()
}

fn run(directory: &Path, totals: RunTotals) -> RunRow {
    RunRow {
        uuid: "u".into(),
        process: "p".into(),
        round: 0,
        parent: None,
        cause: RequestRunCause::First,
        rescues: 0,
        paused: None,
        silent: None,
        priority: None,
        backend: BackendRunRef::Engine { workflow: None, run: None },
        submit_dir: directory.display().to_string(),
        status: RequestRunStatus::Partial,
        stop_requested_at: None,
        stop_reason: None,
        totals,
        counts: NodeCounts::default(),
        units_completed: 0,
        units_failed: 0,
        units_read: 0,
        created_at: NOW,
        submitted_at: None,
        completed_at: None,
    }
}

fn block(units: u32) -> BlockRow {
    BlockRow {
        uuid: "b".into(),
        process: "p".into(),
        round: 0,
        index: 0,
        dataset: "/A/B-v1/RECO".into(),
        first_unit: 0,
        last_unit: units - 1,
        units_completed: 0,
        units_expected: units,
        name: None,
        is_closed: false,
        tape_rule: None,
        status: ProcessingBlockStatus::Open,
        created_at: NOW,
        updated_at: NOW,
    }
}

/// The plan itself is deleted at the end of its round; its manifests contain the same.
#[test]
fn unit_inputs_are_read_from_manifests() {
    for algo in ["FileBased", "EventBased", "LumiBased", "EventAwareLumiBased"] {
        let fixture = Fixture::new(algo);
        let mut expected = Vec::new();
        for unit in fixture.plan.units() {
            for input in unit.nodes().flat_map(|node| node.inputs()) {
                let part = match (input.event_window(), input.lumi_ranges()) {
                    (Some((first, last)), _) => FilePart::Events(first, last),
                    (None, Some(ranges)) => {
                        let mut mask = LumiMask::default();
                        for range in ranges {
                            mask.insert_range(range.run.into(), (range.first.into(), range.last.into()));
                        }
                        FilePart::Lumis(mask)
                    }
                    (None, None) => FilePart::Whole,
                };
                expected.push(UnitInput { unit: unit.number(), lfn: input.file().lfn.clone(), part });
            }
        }
        assert!(fixture.run.totals.units > 2, "{algo}");
        assert_eq!(unit_readings(&fixture.run).unwrap(), expected, "{algo}");
    }
}

#[test]
fn only_registered_units_are_counted() {
    let fixture = Fixture::new("EventBased");
    // Units of 14 events: the first one has the first file and four events of the next.
    fixture.complete(0);
    fixture.complete(2);
    let counts = fixture.settle().unwrap();
    let rows = fixture.rows();
    let part = |n: usize| (rows[n].state, rows[n].left.clone());
    assert_eq!(part(0), (RequestFileState::Processed, None));
    assert_eq!(part(1), (RequestFileState::Attempted, Some(files_left(&[(5, 10)]))));
    assert_eq!(part(2), (RequestFileState::Attempted, Some(files_left(&[(1, 8)]))));
    assert_eq!(part(3), (RequestFileState::Processed, None));
    assert_eq!(part(4), (RequestFileState::Attempted, Some(files_left(&[(3, 10)]))));
    assert_eq!((counts.processed, counts.attempted, rows.len()), (2, 4, 6));
}

fn files_left(ranges: &[(u64, u64)]) -> windlass_core::requests::rows::FileRemainder {
    windlass_core::requests::rows::FileRemainder::Events(ranges.to_vec())
}

/// After a crash between the rows and their notice.
#[test]
fn repeated_settling_changes_nothing() {
    let fixture = Fixture::new("LumiBased");
    fixture.complete(1);
    let (counts, rows) = (fixture.settle(), fixture.rows());
    assert_eq!(fixture.settle(), counts);
    assert_eq!(fixture.rows(), rows);
    assert!(rows.iter().any(|row| row.state == RequestFileState::Processed), "{rows:?}");
    assert!(rows.iter().any(|row| row.state == RequestFileState::Attempted), "{rows:?}");
}

/// It completed after the end of its run: its outputs are never registered, so it does not count.
#[test]
fn unit_completed_after_run_end_is_not_counted() {
    let fixture = Fixture::new("FileBased");
    fixture.complete(0);
    let before = fixture.settle().unwrap();
    let late = crate::planned_run_units::unit_directory(&fixture.dir.path().join("u"), 1);
    std::fs::create_dir_all(&late).unwrap();
    std::fs::write(late.join("merge_output.json"), "{}").unwrap();
    assert_eq!(fixture.settle().unwrap(), before);
}

#[test]
fn only_bad_files_of_failed_units_are_excluded() {
    let fixture = Fixture::new("FileBased");
    fixture.complete(0);
    let tally: FailureTally = serde_json::from_value(json!({
        "units": {"1": true}, "files": {"/store/2": {"units": [1], "sites": {"A": 3}}},
    }))
    .unwrap();
    fixture.commit(vec![RequestChange::FailureTally { run: "u".into(), tally: Arc::new(tally) }]);
    let counts = fixture.settle().unwrap();
    assert_eq!((counts.excluded, counts.processed + counts.attempted), (1, 5));
    let rows = fixture.rows();
    let excluded = rows.iter().find(|row| row.state == RequestFileState::Excluded).unwrap();
    assert_eq!(excluded.lfn, "/store/2");
    assert!(excluded.reason.as_ref().unwrap().contains("mg_000001"), "{excluded:?}");
}

#[test]
fn missing_manifest_is_reported() {
    let fixture = Fixture::new("FileBased");
    let path = manifest_path(Path::new(&fixture.run.submit_dir), 1);
    std::fs::remove_file(&path).unwrap();
    let problem = fixture.settle().unwrap_err();
    assert!(!problem.is_retryable && problem.reason.contains("mg_000001.json"), "{problem:?}");
    assert_eq!(fixture.rows(), []);
}
