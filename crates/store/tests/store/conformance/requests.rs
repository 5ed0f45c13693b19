//! Requests: added, changed, listed, deleted.

use crate::kit::NOW;
use serde_json::json;
use windlass_core::requests::change::{BlockChange, RequestChange, RequestCommit, RunChange};
use windlass_core::requests::rows::{
    BackendRunRef, BlockRow, NewAlert, NodeCounts, OutputStep, OutputStepKind, OutputStepState,
    RequestCommand, RequestCommandKind, RequestFileCounts, RequestProgress, RequestRunCause, RoundExtent,
    RunEvent, RunRow, RunTotals,
};
use windlass_store::model::{AlertFilter, OutputStepFilter, RequestFilter, RequestRunFilter, SortBy};
use windlass_store::{DatasetEditor, StoreDatabase, StoreError};
use windlass_types::requests::{
    PriorityStep, ProcessingBlockStatus, Request, RequestRunStatus, RequestStatus,
};
use windlass_types::{RunId, Timestamp, WorkflowId};

pub(crate) fn sample_request(name: &str) -> Request {
    serde_json::from_value(json!({
        "request_name": name, "requestor": "ada", "input_dataset": "/A/B/RAW", "output_datasets": [format!("/A/{name}/RECO")],
        "memory_mb": 2048, "time_per_event_sec": 1.5, "size_per_event_kb": 2.0, "multicore": 8,
        "splitting_algo": "LumiBased", "processing_version": 1, "priority": 100, "campaign": "Run3",
        "payload_config": { "RequestType": "ReReco", "deep": [1, { "x": null }] },
        "cleanup_policy": "keep_until_replaced",
    }))
    .unwrap()
}

pub(crate) fn later(seconds: i64) -> Timestamp {
    Timestamp(NOW.0 + seconds * 1_000_000 + 7)
}

pub(crate) fn commit(request: &str, version: i64, changes: Vec<RequestChange>) -> RequestCommit {
    RequestCommit { request: request.into(), version, changes, by: "lifecycle".into(), at: later(version) }
}

pub(crate) fn applied(store: &dyn StoreDatabase, commit: RequestCommit) -> Result<i64, StoreError> {
    store.apply_requests(&[commit]).pop().unwrap()
}

pub(crate) fn status(from: RequestStatus, to: RequestStatus) -> RequestChange {
    RequestChange::Status { from, to, reason: Some("because".into()) }
}

fn process(request: &str) -> RequestProgress {
    RequestProgress {
        uuid: format!("p-{request}"),
        request_name: request.into(),
        round: 0,
        next_first_event: 1 << 40,
        next_first_lumi: 2,
        next_block: 0,
        more_input: true,
        excluded: 0,
        settled: 3,
        files: RequestFileCounts { attempted: 1, processed: 2, excluded: 3 },
        extent: RoundExtent { before: 2, planned: 4, later: 7 },
        events_produced: 0,
        events_of_round: 0,
        empty_rounds: 0,
        category_throttles: [("Processing".to_owned(), 5000)].into(),
        step_metrics: Some(json!({ "a": 1 })),
        created_at: later(1),
        updated_at: later(1),
    }
}

pub(crate) fn run(uuid: &str, process: &str) -> RunRow {
    RunRow {
        uuid: uuid.into(),
        process: process.into(),
        round: 0,
        parent: None,
        cause: RequestRunCause::First,
        rescues: 0,
        paused: None,
        silent: None,
        priority: None,
        backend: BackendRunRef::Engine { workflow: None, run: None },
        submit_dir: "/dir".into(),
        status: RequestRunStatus::Ready,
        stop_requested_at: None,
        stop_reason: None,
        totals: RunTotals { nodes: 7, edges: 9, by_role: [("Merge".to_owned(), 1)].into(), units: 1 },
        counts: NodeCounts::default(),
        units_completed: 0,
        units_failed: 0,
        units_read: 0,
        created_at: later(1),
        submitted_at: None,
        completed_at: None,
    }
}

pub(super) fn block(uuid: &str, process: &str, index: u32) -> BlockRow {
    BlockRow {
        uuid: uuid.into(),
        process: process.into(),
        round: 0,
        index,
        dataset: "/A/B/RECO".into(),
        first_unit: index * 10,
        last_unit: index * 10 + 9,
        units_completed: 0,
        units_expected: 10,
        name: None,
        is_closed: false,
        tape_rule: None,
        status: ProcessingBlockStatus::Open,
        created_at: later(1),
        updated_at: later(1),
    }
}

pub(super) fn step(block: &str, unit: Option<u32>, kind: OutputStepKind, due: i64) -> OutputStep {
    OutputStep {
        block: block.into(),
        unit,
        kind,
        state: OutputStepState::Pending,
        attempts: 0,
        due_at: later(due),
        first_failed_at: None,
        last_error: None,
        result: None,
        detail: json!({ "site": "T2_A" }),
    }
}

pub(super) fn done(block: &str, unit: Option<u32>, kind: OutputStepKind) -> RequestChange {
    RequestChange::Step {
        block: block.into(),
        unit,
        kind,
        state: OutputStepState::Done,
        attempts: 1,
        due_at: later(0),
        first_failed_at: Some(later(3)),
        last_error: None,
        result: Some("rule-1".into()),
    }
}

/// A running request with a block and two steps; at version 2.
pub(crate) fn running(store: &dyn StoreDatabase, name: &str) {
    store.add_request(&sample_request(name), RequestStatus::Queued, "ada", NOW).unwrap();
    let p = format!("p-{name}");
    let b = format!("b-{name}");
    let changes = vec![
        status(RequestStatus::Queued, RequestStatus::Active),
        RequestChange::Process(process(name).into()),
        RequestChange::AddRun(run(&format!("u-{name}"), &p).into()),
        RequestChange::AddBlock(block(&b, &p, 0).into()),
        RequestChange::AddStep(step(&b, None, OutputStepKind::Open, 50).into()),
        RequestChange::AddStep(step(&b, Some(0), OutputStepKind::Register, 40).into()),
    ];
    assert_eq!(applied(store, commit(name, 1, changes)).unwrap(), 2);
}

pub(crate) fn request_round_trips(store: &dyn StoreDatabase) {
    let request = Request {
        urgent: true,
        production_steps: vec![PriorityStep { fraction: 0.25, priority: 50 }],
        ..sample_request("r")
    };
    assert_eq!(store.add_request(&request, RequestStatus::New, "ada", NOW).unwrap(), 1);
    let row = store.request("r").unwrap().unwrap();
    assert_eq!(row.request, request);
    assert_eq!((row.status, row.version, row.since), (RequestStatus::New, 1, NOW));
    assert_eq!((row.created_at, row.updated_at, row.wanted, row.reason), (NOW, NOW, None, None));
    let trail = store.transitions("r").unwrap();
    assert_eq!((trail.len(), trail[0].n, trail[0].from, trail[0].to), (1, 1, None, RequestStatus::New));

    let again = store.add_request(&sample_request("r"), RequestStatus::New, "eve", NOW).unwrap_err();
    assert!(matches!(&again, StoreError::NameTaken { name, .. } if name == "r"), "{again}");
    assert_eq!(store.request("r").unwrap().unwrap().request, request);
    assert_eq!(store.request("other").unwrap(), None);
    let orphan = Request { previous_version_request: Some("unknown".into()), ..sample_request("v2") };
    let error = store.add_request(&orphan, RequestStatus::New, "ada", NOW).unwrap_err();
    assert!(matches!(&error, StoreError::NoSuchName { name, .. } if name == "unknown"), "{error}");
}

/// Neither a submission nor a new version can write to a dataset of another request; a request that ended
/// before it wrote to a dataset no longer blocks it.
pub(crate) fn requests_never_share_an_output_dataset(store: &dyn StoreDatabase) {
    running(store, "r");
    let dataset = "/A/r/RECO";
    let same = |name: &str| Request {
        output_datasets: vec!["/A/x/RAW".into(), dataset.into()],
        ..sample_request(name)
    };
    let refused = |error: &StoreError, by: &str| {
        let told = matches!(error, StoreError::OutputTaken { dataset: found, by: found_by } if found == dataset && found_by == by);
        assert!(told, "{error}");
    };
    let add = |name: &str| {
        let wanted = Request {
            output_datasets: vec![format!("/A/{name}/RAW"), dataset.into()],
            ..sample_request(name)
        };
        store.add_request(&wanted, RequestStatus::Submitted, "eve", NOW)
    };
    refused(&add("other").unwrap_err(), "request `r` writes it");
    assert_eq!(store.request("other").unwrap(), None);
    assert_eq!(store.output_taken_by("/A/other/RAW", "x").unwrap(), None, "all or none");
    assert_eq!(store.output_taken_by(dataset, "r").unwrap(), None, "by itself");
    let restart = vec![RequestChange::AddVersion(same("r_v2").into(), Box::default())];
    refused(&applied(store, commit("r", 2, restart)).unwrap_err(), "request `r` writes it");

    applied(store, commit("r", 2, vec![status(RequestStatus::Active, RequestStatus::Failed)])).unwrap();
    assert_eq!(store.output_taken_by(dataset, "").unwrap(), None, "it wrote nothing");
    let made = Request { output_datasets: vec!["/A/B/RECO".into()], ..sample_request("made") };
    store.add_request(&made, RequestStatus::Queued, "ada", NOW).unwrap();
    let changes = vec![
        RequestChange::Process(process("made").into()),
        RequestChange::AddBlock(block("b-made", "p-made", 0).into()),
        RequestChange::AddStep(step("b-made", Some(0), OutputStepKind::Register, 40).into()),
        status(RequestStatus::Queued, RequestStatus::Failed),
    ];
    applied(store, commit("made", 1, changes)).unwrap();
    let taken = store.output_taken_by("/A/B/RECO", "").unwrap();
    assert_eq!(taken.as_deref(), Some("request `made` writes it"), "its outputs may still be registered");
    store.open_block(dataset, "/A/r/RECO#1", NOW).unwrap();
    assert_eq!(store.dataset(dataset).unwrap().unwrap().owner.as_deref(), Some("ada"), "its requestor");
    refused(&add("other").unwrap_err(), "it is already in the catalog and belongs to `ada`");
    store.delete_dataset(dataset, DatasetEditor::with_full_access("op"), NOW).unwrap();
    add("other").unwrap();
    refused(&add("third").unwrap_err(), "request `other` writes it");
}

pub(crate) fn commit_applies_all_its_changes(store: &dyn StoreDatabase) {
    running(store, "r");
    let wanted = RequestCommand {
        lost: true,
        ..RequestCommand::new(RequestCommandKind::Stop, "ada", "tea", later(9))
    };
    let steps = vec![PriorityStep { fraction: 0.5, priority: 1 }];
    let counts = NodeCounts { idle: 1, running: 2, done: 3, failed: 4, held: 5 };
    let change = |change| RequestChange::Run { run: "u-r".into(), change };
    let of_block = |change| RequestChange::Block { block: "b-r".into(), change };
    let handed = BackendRunRef::Engine { workflow: Some(WorkflowId(4711)), run: Some(RunId(3)) };
    let (ready, submitted) = (RequestRunStatus::Ready, RequestRunStatus::Submitted);
    let event = RunEvent {
        run: "u-r".into(),
        event_type: "news".into(),
        from: None,
        to: None,
        counts,
        detail: json!({ "x": 1 }).as_object().unwrap().clone(),
        at: later(5),
    };
    let alert = NewAlert { kind: "stuck".into(), request: None, message: "m".into(), detail: json!([1]) };
    let changes = vec![
        RequestChange::Priority(-5),
        RequestChange::Urgent(true),
        RequestChange::ProductionSteps(steps.clone()),
        RequestChange::SupersededBy(Some("r2".into())),
        RequestChange::SetCommand(Some(wanted.clone())),
        RequestChange::BlockedReason("the catalog is away".to_owned()),
        RequestChange::SetAlertedAt(Some(later(8))),
        RequestChange::Process(RequestProgress { round: 1, ..process("r") }.into()),
        change(RunChange::AssignBackend(handed.clone())),
        change(RunChange::Counts(counts)),
        change(RunChange::Status { from: ready, to: submitted }),
        change(RunChange::Status { from: submitted, to: RequestRunStatus::Completed }),
        change(RunChange::Units { completed: 8, failed: 1, read: 99 }),
        change(RunChange::Totals(RunTotals { nodes: 70, ..RunTotals::default() })),
        change(RunChange::Stop { at: later(6), reason: "stop".into() }),
        RequestChange::RecordRunEvent(event.clone().into()),
        of_block(BlockChange::Opened { name: "/A/B/RECO#1".into() }),
        of_block(BlockChange::UnitsCompleted(4)),
        of_block(BlockChange::Closed),
        of_block(BlockChange::TapeRule("rule-7".into())),
        of_block(BlockChange::Status {
            from: ProcessingBlockStatus::Open,
            to: ProcessingBlockStatus::Complete,
        }),
        done("b-r", Some(0), OutputStepKind::Register),
        RequestChange::Alert(alert.into()),
    ];
    assert_eq!(applied(store, commit("r", 2, changes)).unwrap(), 3);

    let row = store.request("r").unwrap().unwrap();
    assert_eq!((row.request.priority, row.request.urgent), (-5, true));
    assert_eq!((row.request.production_steps, row.version, row.updated_at), (steps, 3, later(2)));
    assert_eq!((row.request.superseded_by_request, row.wanted), (Some("r2".into()), Some(wanted)));
    assert_eq!(row.reason.as_deref(), Some("the catalog is away"));
    assert_eq!(
        (row.alerted_at, row.request.payload_config),
        (Some(later(8)), sample_request("r").payload_config)
    );
    assert_eq!(store.process("r").unwrap().unwrap().round, 1);
    assert_eq!(store.process_by_uuid("p-r").unwrap(), store.process("r").unwrap());
    let expected = RunRow {
        backend: handed,
        counts,
        status: RequestRunStatus::Completed,
        submitted_at: Some(later(2)),
        completed_at: Some(later(2)),
        units_completed: 8,
        units_failed: 1,
        units_read: 99,
        totals: RunTotals { nodes: 70, ..RunTotals::default() },
        stop_requested_at: Some(later(6)),
        stop_reason: Some("stop".into()),
        ..run("u-r", "p-r")
    };
    assert_eq!(store.request_run("u-r").unwrap().unwrap(), expected);
    assert_eq!(store.request_of_workflow(WorkflowId(4711)).unwrap().as_deref(), Some("r"));
    assert_eq!(store.request_of_workflow(WorkflowId(1)).unwrap(), None);
    let history = store.run_history("u-r").unwrap();
    let told: Vec<_> = history.iter().map(|e| (e.event_type.as_str(), e.from, e.to, e.counts)).collect();
    let (s, done) = (Some(submitted), Some(RequestRunStatus::Completed));
    let lines =
        [("status", Some(ready), s, counts), ("status", s, done, counts), ("news", None, None, counts)];
    assert_eq!(told, lines);
    assert_eq!(history[2], event);
    let blocks = store.processing_blocks("p-r").unwrap();
    let [block] = blocks.as_slice() else { panic!("{blocks:?}") };
    assert_eq!(
        (block.name.as_deref(), block.is_closed, block.units_completed),
        (Some("/A/B/RECO#1"), true, 4)
    );
    assert_eq!((block.tape_rule.as_deref(), block.status), (Some("rule-7"), ProcessingBlockStatus::Complete));
    assert_eq!((block.updated_at, block.total_units()), (later(2), 10));
    let done = store
        .output_steps(&OutputStepFilter { state: vec![OutputStepState::Done], ..OutputStepFilter::default() })
        .unwrap();
    assert_eq!((done.len(), done[0].unit, done[0].result.as_deref()), (1, Some(0), Some("rule-1")));
    assert_eq!((done[0].first_failed_at, &done[0].detail), (Some(later(3)), &json!({ "site": "T2_A" })));
    let alerts = store.alerts(&AlertFilter::default()).unwrap();
    assert_eq!((alerts.len(), alerts[0].alert.request.as_deref(), alerts[0].at), (1, Some("r"), later(2)));
}

pub(crate) fn run_backend_cannot_change(store: &dyn StoreDatabase) {
    running(store, "r");
    let planned = BackendRunRef::Htcondor { schedd: Some("s1".into()), cluster: None };
    let next = RunRow { backend: planned, parent: Some("u-r".into()), ..run("u-2", "p-r") };
    let handed = BackendRunRef::Htcondor { schedd: Some("s1".into()), cluster: Some("19".into()) };
    let hand =
        |run: &str| RequestChange::Run { run: run.into(), change: RunChange::AssignBackend(handed.clone()) };
    let changes = vec![RequestChange::AddRun(next.clone().into()), hand("u-2")];
    assert_eq!(applied(store, commit("r", 2, changes)).unwrap(), 3);
    assert_eq!(store.request_run("u-2").unwrap().unwrap(), RunRow { backend: handed.clone(), ..next });
    let error = applied(store, commit("r", 3, vec![hand("u-r")])).unwrap_err();
    assert!(
        matches!(&error, StoreError::Unexpected { expected, .. } if expected == "a run of HTCondor"),
        "{error}"
    );
}

pub(crate) fn outdated_commit_is_rejected(store: &dyn StoreDatabase) {
    running(store, "r");
    let first = applied(store, commit("r", 2, vec![RequestChange::Priority(1)]));
    assert_eq!(first.unwrap(), 3);
    let second = applied(store, commit("r", 2, vec![RequestChange::Priority(2)])).unwrap_err();
    assert!(matches!(&second, StoreError::Outdated { expected: 2, found: 3, .. }), "{second}");
    assert_eq!(store.request("r").unwrap().unwrap().request.priority, 1);
    let missing = applied(store, commit("unknown", 1, vec![])).unwrap_err();
    assert!(missing.is_missing(), "{missing}");
}

pub(crate) fn commit_is_atomic(store: &dyn StoreDatabase) {
    running(store, "r");
    let (active, held) = (RequestStatus::Active, RequestStatus::Held);
    let run = |from| RequestChange::Run {
        run: "u-r".into(),
        change: RunChange::Status { from, to: RequestRunStatus::Failed },
    };
    let block = |block: &str| RequestChange::Block {
        block: block.into(),
        change: BlockChange::Status {
            from: ProcessingBlockStatus::Complete,
            to: ProcessingBlockStatus::Archived,
        },
    };
    let wrong = [
        (status(RequestStatus::Queued, held), "request `r`", "queued", "is active"),
        (run(RequestRunStatus::Running), "run u-r", "running", "is ready"),
        (block("b-r"), "block b-r", "complete", "is open"),
        (block("b-x"), "block b-x", "complete", "it does not exist"),
        (
            done("b-r", Some(5), OutputStepKind::Register),
            "step `register` of work unit 5",
            "present",
            "it does not exist",
        ),
        (
            done("b-r", None, OutputStepKind::Close),
            "step `close` of block b-r",
            "present",
            "it does not exist",
        ),
    ];
    let before = store.request("r").unwrap();
    for (change, what, expected, found) in wrong {
        let change = vec![status(active, held), RequestChange::Priority(9), status(held, active), change];
        match applied(store, commit("r", 2, change)).unwrap_err() {
            StoreError::Unexpected { what: w, expected: e, found: f } => {
                assert!(w.starts_with(what), "{w}");
                assert_eq!((e.as_str(), f.as_str()), (expected, found));
            }
            other => panic!("{other}"),
        }
        assert_eq!(store.request("r").unwrap(), before);
        assert_eq!(store.transitions("r").unwrap().len(), 2);
    }
}

pub(crate) fn failing_commit_does_not_affect_others(store: &dyn StoreDatabase) {
    for name in ["a", "b", "c"] {
        running(store, name);
    }
    let good = |name| commit(name, 2, vec![status(RequestStatus::Active, RequestStatus::Held)]);
    let bad =
        commit("b", 2, vec![RequestChange::Priority(0), status(RequestStatus::New, RequestStatus::Held)]);
    let outcomes =
        store.apply_requests(&[good("a"), bad, good("c"), commit("x", 1, vec![]), commit("a", 3, vec![])]);
    let told: Vec<Option<i64>> = outcomes.iter().map(|outcome| outcome.as_ref().ok().copied()).collect();
    assert_eq!(told, [Some(3), None, Some(3), None, Some(4)]);
    assert!(matches!(outcomes[1], Err(StoreError::Unexpected { .. })));
    let statuses = ["a", "b", "c"].map(|name| store.request(name).unwrap().unwrap().status);
    assert_eq!(statuses, [RequestStatus::Held, RequestStatus::Active, RequestStatus::Held]);
    let trail = store.transitions("a").unwrap();
    assert_eq!(trail.iter().map(|line| line.n).collect::<Vec<_>>(), [1, 2, 3]);
    let last = &trail[2];
    assert_eq!((last.from, last.to), (Some(RequestStatus::Active), RequestStatus::Held));
    assert_eq!((last.at, last.by.as_str(), last.reason.as_deref()), (later(2), "lifecycle", Some("because")));
    let row = store.request("a").unwrap().unwrap();
    assert_eq!((row.since, row.reason.as_deref()), (later(2), Some("because")));

    // More than the maximum of one commit.
    let many: Vec<RequestCommit> = (4..604).map(|version| commit("a", version, vec![])).collect();
    assert!(store.apply_requests(&many).iter().all(Result::is_ok));
    assert_eq!(store.request("a").unwrap().unwrap().version, 604);
}

pub(crate) fn request_is_added_once(store: &dyn StoreDatabase) {
    running(store, "r");
    applied(store, commit("r", 2, vec![done("b-r", Some(0), OutputStepKind::Register)])).unwrap();
    let again = vec![
        RequestChange::AddBlock(BlockRow { units_completed: 5, ..block("another uuid", "p-r", 0) }.into()),
        RequestChange::AddBlock(block("b-2", "p-r", 1).into()),
        RequestChange::AddStep(step("b-r", Some(0), OutputStepKind::Register, 99).into()),
        RequestChange::AddStep(step("b-2", Some(0), OutputStepKind::Register, 99).into()),
    ];
    applied(store, commit("r", 3, again)).unwrap();
    let blocks: Vec<_> =
        store.processing_blocks("p-r").unwrap().into_iter().map(|b| (b.uuid, b.units_completed)).collect();
    assert_eq!(blocks, [("b-r".to_owned(), 0), ("b-2".to_owned(), 0)]);
    let steps = store
        .output_steps(&OutputStepFilter { process: Some("p-r".into()), ..OutputStepFilter::default() })
        .unwrap();
    let told: Vec<_> = steps.iter().map(|s| (s.block.as_str(), s.unit, s.kind, s.state)).collect();
    assert_eq!(
        told,
        [
            ("b-r", Some(0), OutputStepKind::Register, OutputStepState::Done),
            ("b-r", None, OutputStepKind::Open, OutputStepState::Pending),
            ("b-2", Some(0), OutputStepKind::Register, OutputStepState::Pending),
        ]
    );
}

pub(crate) fn open_requests_are_loaded_with_their_state(store: &dyn StoreDatabase) {
    store.add_request(&sample_request("new"), RequestStatus::New, "ada", NOW).unwrap();
    for name in ["b", "a", "over"] {
        running(store, name);
    }
    let changes = vec![status(RequestStatus::Active, RequestStatus::Completed)];
    applied(store, commit("over", 2, changes)).unwrap();
    let failed = RequestChange::Step {
        block: "b-a".into(),
        unit: None,
        kind: OutputStepKind::Open,
        state: OutputStepState::Failed,
        attempts: 7,
        due_at: later(1),
        first_failed_at: None,
        last_error: Some("no".into()),
        result: None,
    };
    let next =
        RunRow { parent: Some("u-a".into()), status: RequestRunStatus::Running, ..run("0-next", "p-a") };
    let archived = BlockRow { status: ProcessingBlockStatus::Archived, ..block("b-a2", "p-a", 1) };
    let changes = vec![
        RequestChange::AddRun(next.clone().into()),
        RequestChange::AddBlock(archived.into()),
        RequestChange::AddBlock(block("b-a3", "p-a", 2).into()),
        failed,
    ];
    applied(store, commit("a", 2, changes)).unwrap();

    let open = store.open_requests().unwrap();
    assert_eq!(open, [("a".to_owned(), 3), ("b".to_owned(), 2), ("new".to_owned(), 1)]);

    // Unordered, duplicate and unknown names.
    let names = ["new", "over", "b", "unknown", "a", "b"].map(str::to_owned);
    let views = store.load_request_views(&names).unwrap();
    let [a, b, new, over] = views.as_slice() else { panic!("{views:?}") };
    assert_eq!((a.row.version, a.row.status), (3, RequestStatus::Active));
    assert!(a.row.request.payload_config.is_empty(), "omitted");
    assert_eq!((a.process.as_ref(), a.run.as_ref()), (Some(&process("a")), Some(&next)));
    assert_eq!(a.blocks, store.processing_blocks("p-a").unwrap());
    assert_eq!(a.blocks.iter().map(|block| block.index).collect::<Vec<_>>(), [0, 1, 2]);
    let open_steps = OutputStepFilter {
        process: Some("p-a".into()),
        state: vec![OutputStepState::Pending, OutputStepState::Failed],
        ..OutputStepFilter::default()
    };
    assert_eq!(a.steps, store.output_steps(&open_steps).unwrap());
    assert_eq!(
        a.steps.iter().map(|step| step.state).collect::<Vec<_>>(),
        [OutputStepState::Failed, OutputStepState::Pending]
    );
    assert_eq!((b.steps.len(), b.steps[0].due_at), (2, later(40)));
    assert_eq!(b.run.as_ref().unwrap().uuid, "u-b");
    assert_eq!((new.process.as_ref(), new.run.as_ref()), (None, None));
    assert!(new.blocks.is_empty() && new.steps.is_empty());
    assert_eq!((over.row.status, over.steps.len()), (RequestStatus::Completed, 2));

    assert_eq!(store.requests_with_pending_steps().unwrap(), ["over"], "its steps are pending");
    let done = [(None, OutputStepKind::Open), (Some(0), OutputStepKind::Register)];
    let changes = done.map(|(unit, kind)| self::done("b-over", unit, kind)).to_vec();
    let settle = commit("over", 3, changes);

    let of = |filter: &RequestRunFilter| -> Vec<String> {
        store.request_runs(filter).unwrap().into_iter().map(|run| run.uuid).collect()
    };
    let filter = RequestRunFilter { process: Some("p-a".into()), ..RequestRunFilter::default() };
    assert_eq!(of(&filter), ["u-a", "0-next"]);
    assert_eq!(
        of(&RequestRunFilter { status: vec![RequestRunStatus::Running], ..RequestRunFilter::default() }),
        ["0-next"]
    );
    let counts = store.request_counts().unwrap();
    assert_eq!(counts.requests[&RequestStatus::Active], 2);
    assert_eq!((counts.runs[&RequestRunStatus::Ready], counts.runs[&RequestRunStatus::Running]), (3, 1));
    assert_eq!(
        (counts.blocks[&ProcessingBlockStatus::Open], counts.blocks[&ProcessingBlockStatus::Archived]),
        (4, 1)
    );
    assert_eq!((counts.steps_pending, counts.steps_failed, counts.queue_depth()), (5, 1, 0));

    let due = |filter: OutputStepFilter| -> Vec<_> {
        store.output_steps(&filter).unwrap().into_iter().map(|step| (step.block, step.kind)).collect()
    };
    let pending = vec![OutputStepState::Pending];
    let first = OutputStepFilter {
        state: pending.clone(),
        due: Some(later(45)),
        limit: Some(2),
        ..OutputStepFilter::default()
    };
    let (a, b) = (("b-a".to_owned(), OutputStepKind::Register), ("b-b".to_owned(), OutputStepKind::Register));
    assert_eq!(due(first), [a.clone(), b]);
    let of_one =
        OutputStepFilter { process: Some("p-a".into()), state: pending, ..OutputStepFilter::default() };
    assert_eq!(due(of_one), [a]);
    let of_block = OutputStepFilter { block: Some("b-b".into()), ..OutputStepFilter::default() };
    assert_eq!(due(of_block).len(), 2);
    applied(store, settle).unwrap();
    assert_eq!(store.requests_with_pending_steps().unwrap(), [""; 0]);
}

pub(crate) fn views_beyond_the_parameter_limit_are_loaded(store: &dyn StoreDatabase) {
    let names: Vec<String> = (0..1001).map(|number| format!("r{number:04}")).collect();
    for name in &names {
        store.add_request(&sample_request(name), RequestStatus::New, "ada", NOW).unwrap();
    }
    let views = store.load_request_views(&names).unwrap();
    assert!(views.iter().map(|view| &view.row.request.request_name).eq(&names), "{}", views.len());
    assert_eq!(store.load_request_views(&[]).unwrap(), []);
}

pub(crate) fn requests_are_filtered_sorted_and_paged(store: &dyn StoreDatabase) {
    for (n, name) in ["ReReco_A", "ReReco_B", "mc_1%"].into_iter().enumerate() {
        let request = Request {
            priority: [3, 1, 2][n],
            campaign: (n > 0).then(|| "Summer".to_owned()),
            ..sample_request(name)
        };
        let status = [RequestStatus::New, RequestStatus::Queued, RequestStatus::Queued][n];
        store.add_request(&request, status, "ada", later(n as i64)).unwrap();
    }
    let all = RequestFilter::default;
    let names = |filter: &RequestFilter| -> Vec<String> {
        let rows = store.requests(filter).unwrap();
        rows.into_iter().map(|row| row.request.request_name).collect()
    };
    let counted = |filter: RequestFilter| {
        let names = names(&filter);
        assert_eq!(store.count_requests(&filter).unwrap(), names.len() as u64, "{filter:?}");
        names
    };
    assert_eq!(counted(all()), ["ReReco_A", "ReReco_B", "mc_1%"]);
    let both = vec![RequestStatus::New, RequestStatus::Queued];
    assert_eq!(counted(RequestFilter { status: both, ..all() }).len(), 3);
    assert_eq!(counted(RequestFilter { status: vec![RequestStatus::New], ..all() }), ["ReReco_A"]);
    assert_eq!(counted(RequestFilter { campaign: Some("Summer".into()), ..all() }), ["ReReco_B", "mc_1%"]);
    assert_eq!(counted(RequestFilter { requestor: Some("eve".into()), ..all() }), [""; 0]);
    let some = RequestFilter { priority_min: Some(2), priority_max: Some(2), ..all() };
    assert_eq!(counted(some), ["mc_1%"]);
    assert_eq!(counted(RequestFilter { name: Some("rereco*".into()), ..all() }), ["ReReco_A", "ReReco_B"]);
    assert_eq!(counted(RequestFilter { name: Some("*_b".into()), ..all() }), ["ReReco_B"]);
    assert_eq!(counted(RequestFilter { name: Some("*1%".into()), ..all() }), ["mc_1%"]);
    assert_eq!(counted(RequestFilter { name: Some("ReReco".into()), ..all() }), [""; 0]);
    let sort = |field: &str, descending| Some(SortBy { field: field.into(), descending });
    let by_priority = RequestFilter { sort: sort("priority", true), limit: Some(1), offset: 1, ..all() };
    assert_eq!(names(&by_priority), ["mc_1%"]);
    assert_eq!(store.count_requests(&by_priority).unwrap(), 3, "without the page");
    assert!(store.requests(&RequestFilter { sort: sort("document", true), ..all() }).is_err());
}

pub(crate) fn only_ended_requests_are_deleted(store: &dyn StoreDatabase) {
    running(store, "r");
    let next = Request { previous_version_request: Some("r".into()), ..sample_request("r2") };
    store.add_request(&next, RequestStatus::Aborted, "ada", NOW).unwrap();
    let refused = |name| store.delete_request(name).unwrap_err();
    assert!(matches!(refused("r"), StoreError::InUse { .. }));
    let more = vec![
        RequestChange::AddRun(RunRow { parent: Some("u-r".into()), ..run("u-2", "p-r") }.into()),
        status(RequestStatus::Active, RequestStatus::Failed),
    ];
    applied(store, commit("r", 2, more)).unwrap();
    assert!(matches!(refused("r"), StoreError::InUse { .. }), "another request refers to it");
    store.delete_request("r2").unwrap();
    store.delete_request("r").unwrap();
    assert!(refused("r").is_missing());
    assert_eq!((store.request("r").unwrap(), store.process("r").unwrap()), (None, None));
    assert_eq!(store.request_run("u-r").unwrap(), None);
    assert_eq!(
        (store.processing_blocks("p-r").unwrap().len(), store.transitions("r").unwrap().len()),
        (0, 0)
    );
    running(store, "r");
}
