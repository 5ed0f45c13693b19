//! Requests and operators: release with changes, fail, restart, invalidate; errors, bans and alerts. Rejected
//! calls change nothing; the audit trail has user and reason.

use crate::requests::{get, post, send};
use crate::test_server::{Fixture, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::requests::change::{RequestChange, RequestCommit};
use windlass_core::requests::failures::{FailedAttemptReport, FailureTally, RoleCounts};
use windlass_core::requests::rows::{
    BackendRunRef, BlockRow, NodeCounts, OutputStep, OutputStepKind, OutputStepState, RequestProgress,
    RequestRunCause, RunRow, RunTotals,
};
use windlass_store::DatasetEditor;
use windlass_store::model::OutputStepFilter;
use windlass_types::catalog::CatalogFile;
use windlass_types::requests::{
    NodeRole, ProcessingBlockStatus, RequestOverrides, RequestRunStatus, RequestStatus,
};
use windlass_types::{FailureClass, SystemClock, Timestamp};

/// Events to be generated at sites that do not exist: the request gets as far as planning.
pub(crate) fn document(name: &str) -> Value {
    json!({
        "request_name": name, "output_datasets": [format!("/Muons/{name}-v1/GEN")],
        "splitting_algo": "EventBased", "splitting_params": {"events_per_job": 100},
        "generation": {"events": 1000, "events_per_lumi": 100}, "memory_mb": 2000,
        "payload_config": {"simulation": {}},
    })
}

/// A request that was held before any of it ran.
fn held(fixture: &Fixture, name: &str) -> RequestProgress {
    held_as(fixture, name, &document(name))
}

pub(crate) fn held_as(fixture: &Fixture, name: &str, document: &Value) -> RequestProgress {
    let (status, answer) = post(fixture, "/api/v1/requests", document);
    assert_eq!(status, 201, "{answer}");
    eventually("the reconciler has processed it", || fixture.store.process(name).unwrap().is_some());
    post(fixture, &format!("/api/v1/requests/{name}/stop"), &json!({"reason": "look first"}));
    await_status(fixture, name, RequestStatus::Held);
    fixture.store.process(name).unwrap().unwrap()
}

fn await_status(fixture: &Fixture, name: &str, status: RequestStatus) {
    eventually(&format!("{name} is {status}"), || {
        fixture.store.request(name).unwrap().unwrap().status == status
    });
}

/// Writes rows as the reconciler would.
pub(crate) fn write(fixture: &Fixture, name: &str, changes: Vec<RequestChange>) {
    let row = fixture.store.request(name).unwrap().unwrap();
    let commit = RequestCommit {
        request: name.to_owned(),
        version: row.version,
        changes,
        by: "test".to_owned(),
        at: SystemClock.now(),
    };
    fixture.store.apply_requests(&[commit]).pop().unwrap().unwrap();
}

pub(crate) fn run(process: &RequestProgress, status: RequestRunStatus) -> RunRow {
    RunRow {
        uuid: format!("run-{}", process.uuid),
        process: process.uuid.clone(),
        round: process.round,
        parent: None,
        cause: RequestRunCause::First,
        rescues: 1,
        paused: None,
        silent: None,
        priority: None,
        backend: BackendRunRef::Engine { workflow: None, run: None },
        submit_dir: "nowhere".into(),
        status,
        stop_requested_at: None,
        stop_reason: None,
        totals: RunTotals { nodes: 40, edges: 0, by_role: BTreeMap::new(), units: 10 },
        counts: NodeCounts::default(),
        units_completed: 6,
        units_failed: 4,
        units_read: 0,
        created_at: Timestamp(0),
        submitted_at: Some(Timestamp(0)),
        completed_at: Some(Timestamp(0)),
    }
}

fn attempt(seq: i64, site: &str, class: FailureClass) -> FailedAttemptReport {
    FailedAttemptReport {
        seq,
        unit: seq as u32,
        node: "proc_000000".into(),
        role: NodeRole::Processing,
        attempt: 1,
        site: Some(site.into()),
        class,
        code: 8001,
        signature: format!("of {class}"),
        message: "no luck".into(),
        is_final: true,
        bad_files: Vec::new(),
        log_tail: "said this last".into(),
        memory_mb: (class == FailureClass::Memory).then_some(2001),
        at: Timestamp(seq),
    }
}

/// Held, because six of its work units are completed and four are not: most failed at T2_Bad, one for lack of
/// memory.
fn failed(fixture: &Fixture, name: &str) -> RequestProgress {
    let process = held(fixture, name);
    for site in ["T2_Bad", "T2_Good"] {
        send(fixture, Method::PATCH, &format!("/api/v1/sites/{site}"), &json!({"total_slots": 0}));
    }
    let run = run(&process, RequestRunStatus::Partial);
    let mut tally = FailureTally::default();
    let mut attempts: Vec<FailedAttemptReport> =
        (1..=4).map(|seq| attempt(seq, "T2_Bad", FailureClass::Permanent)).collect();
    attempts.push(attempt(5, "T2_Good", FailureClass::Memory));
    let jobs = |ended| RoleCounts::for_role(NodeRole::Processing, ended);
    let ended = [("T2_Bad".to_owned(), jobs(4)), ("T2_Good".to_owned(), jobs(20))].into();
    tally.add_reports(&attempts, &ended);
    let uuid = run.uuid.clone();
    let tally = RequestChange::FailureTally { run: uuid, tally: Arc::new(tally) };
    write(fixture, name, vec![RequestChange::AddRun(Box::new(run)), tally]);
    process
}

fn reasons(fixture: &Fixture, name: &str) -> Vec<String> {
    let (_, shown) = get(fixture, &format!("/api/v1/requests/{name}"));
    let lines = shown["status_transitions"].as_array().unwrap().iter();
    lines.filter_map(|line| line["reason"].as_str().map(str::to_owned)).collect()
}

fn alerts(fixture: &Fixture, kind: &str) -> Vec<Value> {
    get(fixture, &format!("/api/v1/alerts?kind={kind}")).1["items"].as_array().unwrap().clone()
}

/// The files of a DAG with one landed unit, in which three jobs run and one is held.
#[test]
fn running_slots_of_a_site_include_jobs_of_dags() {
    let fixture = Fixture::new();
    let process = held(&fixture, "r");
    send(&fixture, Method::PATCH, "/api/v1/sites/T2_Good", &json!({"total_slots": 8}));
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("mg_000000");
    std::fs::create_dir(&unit).unwrap();
    let log = "1 INTERNAL *** DAGMAN_STARTED 15.0 ***\n1 mg_000000 SUBMIT 25.0 - - 1\n1 mg_000000 EXECUTE 25.0 - - 1\n";
    std::fs::write(directory.path().join("workflow.jobstate"), log).unwrap();
    std::fs::write(unit.join("elected.inc"), "MY.DESIRED_Sites = \"T2_Good\"\n").unwrap();
    let status = "[\n  Type = \"DagStatus\";\n  DagStatus = 3;\n  NodesTotal = 6;\n  NodesDone = 1;\n  NodesQueued = 4;\n  \
                  NodesUnready = 1;\n  JobProcsHeld = 1;\n  JobProcsIdle = 0;\n]\n";
    std::fs::write(unit.join("group.status"), status).unwrap();
    let running = RunRow {
        backend: BackendRunRef::Htcondor { schedd: None, cluster: Some("15".into()) },
        submit_dir: directory.path().display().to_string(),
        ..run(&process, RequestRunStatus::Running)
    };
    write(&fixture, "r", vec![RequestChange::AddRun(Box::new(running))]);
    let (_, site) = get(&fixture, "/api/v1/sites/T2_Good");
    assert_eq!((&site["running_slots"], &site["total_slots"]), (&json!(3), &json!(8)), "{site}");
    let (_, sites) = get(&fixture, "/api/v1/sites");
    assert_eq!(sites["items"][0]["running_slots"], 3, "{sites}");
}

#[test]
fn invalid_release_lists_all_errors_and_stores_nothing() {
    let fixture = Fixture::new();
    failed(&fixture, "r");
    let before = fixture.store.request("r").unwrap().unwrap();
    let wrong = json!({
        "site_bans": ["T2_Good", "T2_Nowhere"], "memory_mb": 100_000, "time_per_event_sec": -1, "retry_count": -1, "error_hold_threshold": 1.5,
        "max_rescue_attempts": 101, "excluded_files": ["/store/a"],
    });
    let (status, answer) = post(&fixture, "/api/v1/requests/r/release", &wrong);
    assert_eq!(status, 422, "{answer}");
    let errors = answer["errors"].as_array().unwrap();
    let fields: Vec<&str> = errors.iter().map(|error| error["field"].as_str().unwrap()).collect();
    let expected = [
        "site_bans[1]",
        "memory_mb",
        "time_per_event_sec",
        "retry_count",
        "max_rescue_attempts",
        "error_hold_threshold",
        "excluded_files",
    ];
    assert_eq!(fields, expected, "{answer}");
    assert!(errors.iter().all(|error| !error["remedy"].as_str().unwrap().is_empty()), "{answer}");
    assert!(errors[0]["remedy"].as_str().unwrap().contains("T2_Bad, T2_Good"), "{answer}");
    assert!(errors[1]["reason"].as_str().unwrap().contains("between 2000 and 3000 MB"), "{answer}");
    let (status, answer) =
        post(&fixture, "/api/v1/requests/r/release", &json!({"site_bans": ["T2_Good", "T2_Bad"]}));
    assert_eq!(
        (status, &answer["errors"][0]["field"]),
        (422, &json!("site_bans")),
        "no site is left: {answer}"
    );
    for (body, status) in
        [(json!({"memory": 3}), 422), (json!("text"), 422), (json!({"memory_mb": "x"}), 422)]
    {
        assert_eq!(post(&fixture, "/api/v1/requests/r/release", &body).0, status, "{body}");
    }
    assert_eq!(fixture.store.request("r").unwrap().unwrap(), before);
    assert_eq!(get(&fixture, "/api/v1/sites/bans").1["items"], json!([]));
    assert_eq!(get(&fixture, "/api/v1/requests/r").1["recovery"]["overrides"], json!({}));
}

#[test]
fn excluded_files_must_be_input_files() {
    let fixture = Fixture::new();
    let file = json!({"lfn": "/store/a", "size": 1, "events": 5, "lumis": [], "replicas": {"T2_A": "/data"}});
    post(&fixture, "/api/v1/catalog/import", &json!({"dataset": "/Muons/Run3-v1/RAW", "files": [file]}));
    post(&fixture, "/api/v1/requests", &crate::requests::document("r"));
    eventually("the reconciler has processed it", || fixture.store.process("r").unwrap().is_some());
    post(&fixture, "/api/v1/requests/r/stop", &json!({}));
    await_status(&fixture, "r", RequestStatus::Held);
    let (status, answer) =
        post(&fixture, "/api/v1/requests/r/release", &json!({"excluded_files": ["/store/a", "/store/b"]}));
    assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("excluded_files[1]")), "{answer}");
    let (status, answer) =
        post(&fixture, "/api/v1/requests/r/release", &json!({"excluded_files": ["/store/a"]}));
    assert_eq!((status, &answer["overrides"]["excluded_files"]), (200, &json!(["/store/a"])), "{answer}");
    assert_eq!(get(&fixture, "/api/v1/requests/r").1["recovery"]["excluded_files"], 1);
}

#[test]
fn release_applies_all_overrides_with_user_and_reason() {
    let fixture = Fixture::new();
    failed(&fixture, "r");
    let wanted = json!({
        "reason": "its disk is full", "site_bans": ["T2_Bad"], "memory_mb": 2500, "retry_count": 5,
        "error_hold_threshold": 0.5, "max_rescue_attempts": 1,
    });
    let (status, answer) = post(&fixture, "/api/v1/requests/r/release", &wanted);
    assert_eq!((status, &answer["status"]), (200, &json!("held")), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("the next round"), "{answer}");
    let (_, shown) = get(&fixture, "/api/v1/requests/r");
    let changed = json!({
        "memory_mb": 2500, "retry_count": 5, "error_hold_threshold": 0.5, "max_rescue_attempts": 1
    });
    assert_eq!(shown["recovery"]["overrides"], changed, "{shown}");
    let ban = &shown["recovery"]["site_bans"][0];
    assert_eq!(
        (&ban["site_name"], &ban["reason"]),
        (&json!("T2_Bad"), &json!("its disk is full")),
        "{shown}"
    );
    assert_eq!(
        get(&fixture, "/api/v1/sites/bans?request_name=other").1["items"],
        json!([]),
        "only for this request"
    );
    assert_eq!(alerts(&fixture, "site_banned")[0]["request_name"], "r");
    let who = fixture.store.request("r").unwrap().unwrap().request.requestor;
    let told = format!(
        "released by {who}: its disk is full (not at T2_Bad; 2500 MB; at most 5 retries; held from 50 % on; at most 1 rescue)"
    );
    eventually("the trail has user and reason", || reasons(&fixture, "r").contains(&told));
}

#[test]
fn only_held_requests_are_released() {
    let fixture = Fixture::new();
    assert_eq!(post(&fixture, "/api/v1/requests/none/release", &json!({})).0, 404);
    held(&fixture, "r");
    let (status, answer) = post(&fixture, "/api/v1/requests/r/release", &json!({"rescue": true}));
    assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("rescue")), "nothing failed: {answer}");
    // Without a body it behaves as with an empty one.
    let answer = fixture.post("/api/v1/requests/r/release").send().unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.json::<Value>().unwrap()["message"], "The request continues where it was.");
    eventually("it continues", || fixture.store.request("r").unwrap().unwrap().status != RequestStatus::Held);
    let (status, answer) = post(&fixture, "/api/v1/requests/r/release", &json!({}));
    assert_eq!((status, &answer["code"]), (409, &json!("not_held")), "{answer}");
}

#[test]
fn error_summary_suggests_remedies() {
    let fixture = Fixture::new();
    assert_eq!(get(&fixture, "/api/v1/requests/none/errors").0, 404);
    failed(&fixture, "r");
    let (status, errors) = get(&fixture, "/api/v1/requests/r/errors");
    assert_eq!((status, &errors["attempts_failed"], &errors["attempts_ended"]), (200, &json!(5), &json!(24)));
    assert_eq!(errors["by_category"][0], json!({"category": "permanent", "attempts": 4, "for_good": 4}));
    let worst = json!({"site_name": "T2_Bad", "ended": 4, "failed": 4, "blamed": 0, "is_banned": false});
    assert_eq!(errors["by_site"][0], worst, "{errors}");
    assert_eq!(errors["by_exit_code"], json!([{"exit_code": 8001, "attempts": 5}]));
    assert_eq!(errors["kinds"][0]["log_tail"], "said this last");
    let suggested = json!({"site_bans": ["T2_Bad"], "memory_mb": 2500});
    assert_eq!(errors["suggested_release"], suggested, "{errors}");
    assert_eq!(errors["suggestions"][0]["release"], json!({"site_bans": ["T2_Bad"]}));
    // A suggestion can be sent unchanged; afterwards it is not suggested again.
    assert_eq!(post(&fixture, "/api/v1/requests/r/release", &errors["suggested_release"]).0, 200);
    let (_, errors) = get(&fixture, "/api/v1/requests/r/errors?all=true");
    assert_eq!(errors["by_site"][0]["is_banned"], true, "{errors}");
    assert_eq!(errors["suggested_release"]["site_bans"], Value::Null, "{errors}");
}

#[test]
fn rescue_is_suggested_if_all_failures_are_at_banned_sites() {
    let fixture = Fixture::new();
    let process = held(&fixture, "r");
    for site in ["T2_Bad", "T2_Good"] {
        send(&fixture, Method::PATCH, &format!("/api/v1/sites/{site}"), &json!({"total_slots": 0}));
    }
    let run = run(&process, RequestRunStatus::Partial);
    let attempts: Vec<FailedAttemptReport> =
        (1..=4).map(|seq| attempt(seq, "T2_Bad", FailureClass::Permanent)).collect();
    let jobs = |ended| RoleCounts::for_role(NodeRole::Processing, ended);
    let mut tally = FailureTally::default();
    tally.add_reports(&attempts, &[("T2_Bad".to_owned(), jobs(4)), ("T2_Good".to_owned(), jobs(20))].into());
    let tally = RequestChange::FailureTally { run: run.uuid.clone(), tally: Arc::new(tally) };
    write(&fixture, "r", vec![RequestChange::AddRun(Box::new(run)), tally]);
    let suggested = |errors: &Value| errors["suggested_release"].clone();
    let (_, errors) = get(&fixture, "/api/v1/requests/r/errors");
    assert_eq!(suggested(&errors), json!({"site_bans": ["T2_Bad"]}), "{errors}");

    let ban = json!({"reason": "its disk is full", "seconds": 3600});
    assert_eq!(post(&fixture, "/api/v1/sites/T2_Bad/ban", &ban).0, 200);
    let (_, errors) = get(&fixture, "/api/v1/requests/r/errors");
    let text = errors["suggestions"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("all failures are of banned sites (T2_Bad)"), "{errors}");
    assert_eq!(errors["suggestions"].as_array().unwrap().len(), 1, "{errors}");
    assert_eq!(suggested(&errors), json!({"rescue": true}), "{errors}");
    assert_eq!(post(&fixture, "/api/v1/requests/r/release", &suggested(&errors)).0, 200);
}

#[test]
fn failing_a_request_requires_a_reason() {
    let fixture = Fixture::new();
    held(&fixture, "r");
    let (status, answer) =
        post(&fixture, "/api/v1/requests/r/fail", &json!({"reason": "wrong release", "lost": true}));
    assert_eq!((status, &answer["previous_status"]), (200, &json!("held")), "{answer}");
    await_status(&fixture, "r", RequestStatus::Failed);
    assert!(reasons(&fixture, "r").iter().any(|reason| reason.contains("wrong release")));
    assert_eq!(
        post(&fixture, "/api/v1/requests/r/fail", &json!({})).0,
        200,
        "repeating the call returns the same"
    );
    for verb in ["release", "stop"] {
        assert_eq!(post(&fixture, &format!("/api/v1/requests/r/{verb}"), &json!({})).0, 409, "{verb}");
    }
    assert_eq!(post(&fixture, "/api/v1/requests/none/fail", &json!({})).0, 404);
    assert_eq!(post(&fixture, "/api/v1/requests/r/fail", &json!({"reson": "x"})).0, 422);
}

#[test]
fn concurrent_restarts_get_the_same_new_request() {
    let fixture = Fixture::new();
    held(&fixture, "r_v1");
    let body = json!({"reason": "wrong tag", "cleanup_policy": "immediate_cleanup"});
    let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| post(&fixture, "/api/v1/requests/r_v1/restart", &body))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    let made = answers.iter().filter(|(status, answer)| *status == 201 && answer["is_new"] == true).count();
    assert_eq!(made, 1, "{answers:?}");
    let names: BTreeSet<&str> =
        answers.iter().map(|(_, answer)| answer["request_name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["r_v2"]), "{answers:?}");
    await_status(&fixture, "r_v1", RequestStatus::Failed);
    let (_, versions) = get(&fixture, "/api/v1/requests/r_v1/versions");
    assert_eq!(versions["current"]["request_name"], "r_v2");
    assert_eq!(versions["current"]["cleanup_policy"], "immediate_cleanup");
    assert_eq!(versions["versions"][0]["superseded_by"], "r_v2");
    let (_, new) = get(&fixture, "/api/v1/requests/r_v2");
    assert_eq!((&new["processing_version"], &new["previous_version_request"]), (&json!(2), &json!("r_v1")));
    assert_eq!(new["output_datasets"], json!(["/Muons/r_v1-v2/GEN"]));
    assert!(reasons(&fixture, "r_v1").iter().any(|reason| reason.contains("wrong tag")));
    assert_eq!(get(&fixture, "/api/v1/requests").1["total"], 2, "no third one");
    assert_eq!(post(&fixture, "/api/v1/requests/none/restart", &json!({})).0, 404);
    assert_eq!(post(&fixture, "/api/v1/requests/r_v2/restart", &json!({"cleanup_policy": "burn"})).0, 422);
}

/// Also for a request whose output names have a later version than its own; overrides by operators are kept.
#[test]
fn restart_has_new_datasets_and_keeps_bans_and_exclusions() {
    let fixture = Fixture::new();
    let mut wanted = document("r");
    wanted["output_datasets"] = json!(["/Muons/r-v2/GEN"]);
    held_as(&fixture, "r", &wanted);
    let mut third = document("third");
    third["output_datasets"] = json!(["/Muons/r-v3/GEN"]);
    held_as(&fixture, "third", &third);
    for site in ["T2_A", "T2_B"] {
        let slots = json!({"total_slots": 4});
        assert_eq!(send(&fixture, Method::PATCH, &format!("/api/v1/sites/{site}"), &slots).0, 200);
    }
    let ban = json!({"seconds": 3600, "request_name": "r", "reason": "no licence"});
    assert_eq!(post(&fixture, "/api/v1/sites/T2_A/ban", &ban).0, 200);
    let said =
        RequestOverrides { excluded_files: ["/store/bad".to_owned()].into(), ..RequestOverrides::default() };
    write(&fixture, "r", vec![RequestChange::Overrides(Box::new(said))]);
    let (status, answer) = post(&fixture, "/api/v1/requests/r/restart", &json!({"reason": "again"}));
    assert_eq!((status, &answer["request_name"]), (201, &json!("r_v4")), "{answer}");
    let (_, new) = get(&fixture, "/api/v1/requests/r_v4");
    assert_eq!(
        new["output_datasets"],
        json!(["/Muons/r-v4/GEN"]),
        "-v2 is its own, -v3 belongs to another one"
    );
    assert_eq!(new["processing_version"], 4);
    assert_eq!(new["recovery"]["site_bans"][0]["site_name"], "T2_A", "{new}");
    assert_eq!(new["recovery"]["overrides"]["excluded_files"], json!(["/store/bad"]));
}

/// A closed block of one work unit, known to the catalog.
fn add_block(fixture: &Fixture, process: &RequestProgress, index: u32, status: ProcessingBlockStatus) {
    let name = &process.request_name;
    let (now, uuid, dataset) = (SystemClock.now(), format!("block-{index}"), format!("/Muons/{name}-v1/GEN"));
    let known = format!("{dataset}#{uuid}");
    fixture.store.open_block(&dataset, &known, now).unwrap();
    let block = BlockRow {
        name: Some(known),
        uuid,
        process: process.uuid.clone(),
        round: 0,
        index,
        dataset,
        first_unit: index,
        last_unit: index,
        units_completed: 1,
        units_expected: 1,
        is_closed: true,
        tape_rule: None,
        status,
        created_at: now,
        updated_at: now,
    };
    write(fixture, name, vec![RequestChange::AddBlock(Box::new(block))]);
}

#[test]
fn outputs_of_ended_requests_are_invalidated() {
    let fixture = Fixture::new();
    let process = held(&fixture, "r");
    let (status, answer) = post(&fixture, "/api/v1/requests/r/invalidate", &json!({}));
    assert_eq!((status, &answer["code"]), (409, &json!("not_over")), "{answer}");
    for (index, status) in [(0, ProcessingBlockStatus::Archived), (1, ProcessingBlockStatus::Invalidated)] {
        add_block(&fixture, &process, index, status);
    }
    write(
        &fixture,
        "r",
        vec![RequestChange::Status { from: RequestStatus::Held, to: RequestStatus::Failed, reason: None }],
    );
    assert_eq!(get(&fixture, "/api/v1/requests/r").1["recovery"]["output_state"], "active");
    let (status, answer) =
        post(&fixture, "/api/v1/requests/r/invalidate", &json!({"reason": "wrong events"}));
    assert_eq!(
        (status, &answer["blocks"], &answer["blocks_invalidated_before"]),
        (200, &json!(1), &json!(1))
    );
    eventually("its outputs are invalidated", || {
        get(&fixture, "/api/v1/requests/r").1["recovery"]["output_state"] == "invalidated"
    });
    let again = post(&fixture, "/api/v1/requests/r/invalidate", &json!({})).1;
    assert_eq!(again["blocks"], 0, "{again}");
    let told = alerts(&fixture, "outputs_invalidated");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["detail"]["reason"], "wrong events");
    let filter = OutputStepFilter { process: Some(process.uuid), ..OutputStepFilter::default() };
    let steps = fixture.store.output_steps(&filter).unwrap();
    assert!(steps.iter().all(|step| step.state == OutputStepState::Done), "{steps:?}");
}

/// No other mechanism retries them: an aborted request is not held.
#[test]
fn abandoned_output_steps_are_retried_after_the_end() {
    let fixture = Fixture::new();
    let process = held(&fixture, "r");
    add_block(&fixture, &process, 0, ProcessingBlockStatus::Failed);
    // It ended with its request: there is nothing to retry.
    add_block(&fixture, &process, 1, ProcessingBlockStatus::Failed);
    let step = OutputStep {
        block: "block-0".into(),
        unit: None,
        kind: OutputStepKind::Archive,
        state: OutputStepState::Failed,
        attempts: 17,
        due_at: Timestamp(0),
        first_failed_at: Some(Timestamp(0)),
        last_error: Some("503 from the catalog".into()),
        result: None,
        detail: Value::Null,
    };
    let over = RequestChange::Status { from: RequestStatus::Held, to: RequestStatus::Aborted, reason: None };
    write(&fixture, "r", vec![RequestChange::AddStep(Box::new(step)), over]);
    assert_eq!(get(&fixture, "/api/v1/requests/r").1["recovery"]["outputs_given_up"], 1);

    let (status, answer) = post(&fixture, "/api/v1/requests/r/release", &json!({"memory_mb": 3000}));
    assert_eq!((status, &answer["code"]), (409, &json!("not_held")), "it no longer runs: {answer}");
    let (status, answer) = post(&fixture, "/api/v1/requests/r/release", &json!({"reason": "tape is back"}));
    assert_eq!((status, &answer["status"]), (200, &json!("aborted")), "{answer}");
    let expected = "1 step for its outputs that had been given up will be retried.";
    assert_eq!(answer["message"], expected);
    eventually("it is archived", || {
        let blocks = fixture.store.processing_blocks(&process.uuid).unwrap();
        let statuses: Vec<ProcessingBlockStatus> = blocks.iter().map(|block| block.status).collect();
        statuses == [ProcessingBlockStatus::Archived, ProcessingBlockStatus::Failed]
    });
    let (_, shown) = get(&fixture, "/api/v1/requests/r");
    assert_eq!((&shown["status"], &shown["recovery"]["outputs_given_up"]), (&json!("aborted"), &json!(0)));
    let told = alerts(&fixture, "outputs_retried");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["detail"]["reason"], "tape is back");
    assert!(told[0]["detail"]["by"].as_str().is_some_and(|by| !by.is_empty()), "{told:?}");
    let (status, answer) = post(&fixture, "/api/v1/requests/r/release", &json!({}));
    assert_eq!((status, &answer["code"]), (409, &json!("not_held")), "nothing is left: {answer}");
}

#[test]
fn manual_ban_lasts_the_default_or_given_time() {
    let fixture =
        Fixture::with(|options| options.requests.failure_response.bans.duration = Duration::from_hours(48));
    // body → hours
    for (name, body, hours) in [
        ("usual", json!({"site_bans": ["T2_Bad"]}), 48),
        ("said", json!({"site_bans": ["T2_Bad"], "ban_seconds": 3600}), 1),
    ] {
        failed(&fixture, name);
        let (status, answer) = post(&fixture, &format!("/api/v1/requests/{name}/release"), &body);
        assert_eq!(status, 200, "{answer}");
        let bans = get(&fixture, &format!("/api/v1/sites/bans?request_name={name}")).1["items"].clone();
        let at = |field: &str| bans[0][field].as_str().unwrap().parse::<Timestamp>().unwrap();
        assert_eq!(at("expires_at").since(at("created_at")), Duration::from_hours(hours), "{bans}");
    }
    failed(&fixture, "wrong");
    for (body, reason) in [
        (json!({"site_bans": ["T2_Bad"], "ban_seconds": 0}), "between one second and one year"),
        (json!({"site_bans": ["T2_Bad"], "ban_seconds": 40_000_000}), "between one second and one year"),
        (json!({"ban_seconds": 60}), "no site is given"),
    ] {
        let (status, answer) = post(&fixture, "/api/v1/requests/wrong/release", &body);
        assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("ban_seconds")), "{answer}");
        assert!(answer["errors"][0]["reason"].as_str().unwrap().contains(reason), "{answer}");
    }
}

#[test]
fn last_site_of_a_request_cannot_be_banned() {
    let fixture = Fixture::new();
    failed(&fixture, "r");
    let ban = json!({"seconds": 3600, "request_name": "r"});
    let of = |site: &str| post(&fixture, &format!("/api/v1/sites/{site}/ban"), &ban);
    assert_eq!(of("T2_Good").0, 200);
    let (status, refused) = of("T2_Bad");
    assert_eq!((status, &refused["code"]), (409, &json!("last_site")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("request `r`"), "{refused}");
    assert_eq!(of("T2_Good").0, 200, "the site is already excluded");
    send(&fixture, Method::DELETE, "/api/v1/sites/T2_Good/ban", &json!({}));
    assert_eq!(of("T2_Bad").0, 200);
}

#[test]
fn bans_are_listed_and_their_end_is_reported() {
    let fixture = Fixture::new();
    for site in ["T2_A", "T2_B"] {
        send(&fixture, Method::PATCH, &format!("/api/v1/sites/{site}"), &json!({}));
    }
    post(&fixture, "/api/v1/sites/T2_A/ban", &json!({"seconds": 3600, "reason": "loses files"}));
    assert_eq!(get(&fixture, "/api/v1/sites/bans").1["items"][0]["reason"], "loses files");
    assert_eq!(alerts(&fixture, "site_banned").len(), 1);
    send(&fixture, Method::DELETE, "/api/v1/sites/T2_A/ban", &json!({}));
    assert_eq!(get(&fixture, "/api/v1/sites/bans").1["items"], json!([]));
    let (_, all) = get(&fixture, "/api/v1/sites/bans?all=true&site_name=T2_A");
    assert!(all["items"][0]["removed_by"].is_string(), "{all}");
    let told = alerts(&fixture, "site_ban_removed");
    assert!(told[0]["message"].as_str().unwrap().contains("loses files"), "{told:?}");
    send(&fixture, Method::DELETE, "/api/v1/sites/T2_A/ban", &json!({}));
    assert_eq!(alerts(&fixture, "site_ban_removed").len(), 1, "there was nothing to lift");
    assert_eq!(get(&fixture, "/api/v1/alerts?limit=1").1["items"].as_array().unwrap().len(), 1);
}

/// A rescue reads the files its round was planned with: excluding some of them queues a new round instead, with
/// a message.
#[test]
fn excluded_files_apply_from_the_next_round() {
    let fixture = Fixture::new();
    let file = |lfn: &str| CatalogFile { lfn: lfn.to_owned(), events: 10, ..CatalogFile::default() };
    let files = [file("/store/a"), file("/store/b")];
    fixture
        .store
        .add_dataset_files(
            "/Muons/In-v1/RAW",
            &files,
            DatasetEditor::with_full_access("ada"),
            SystemClock.now(),
        )
        .unwrap();
    // How its run ended, and the release → expected message
    let table = [
        ("r1", RequestRunStatus::Partial, true, None),
        ("r2", RequestRunStatus::Partial, false, Some("Finished work units are kept")),
        (
            "r3",
            RequestRunStatus::Stopped,
            false,
            Some("The run is not resumed: finished work units are kept"),
        ),
        ("r4", RequestRunStatus::Ready, false, Some("The run is not resumed: finished work units are kept")),
        ("r5", RequestRunStatus::Completed, false, Some("The request continues where it was.")),
    ];
    for (name, status, rescue, said) in table {
        let document = json!({
            "request_name": name, "output_datasets": [format!("/Muons/{name}-v1/RECO")],
            "input_dataset": "/Muons/In-v1/RAW", "splitting_algo": "FileBased",
            "splitting_params": {"files_per_job": 1}, "memory_mb": 2000, "payload_config": {"simulation": {}},
        });
        let process = held_as(&fixture, name, &document);
        write(&fixture, name, vec![RequestChange::AddRun(Box::new(run(&process, status)))]);
        let wanted = json!({"excluded_files": ["/store/a"], "rescue": rescue});
        let (answered, answer) = post(&fixture, &format!("/api/v1/requests/{name}/release"), &wanted);
        match said {
            Some(said) => {
                assert_eq!(answered, 200, "{answer}");
                assert!(answer["message"].as_str().unwrap().starts_with(said), "{name}: {answer}");
            }
            None => {
                assert_eq!(
                    (answered, &answer["errors"][0]["field"]),
                    (422, &json!("excluded_files")),
                    "{answer}"
                );
            }
        }
    }
}
