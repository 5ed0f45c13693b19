//! Isolation of workers: a worker gets only permitted jobs, its caller changes nothing in other users' workflows,
//! and gets no responses meant for others.

use crate::access::{status, token};
use crate::running_workflows::{begun, begun_of, exchange, introduction, start, workflow_of};
use crate::test_server::{Fixture, eventually, say_and_hang_up, wire_as};
use serde_json::{Value, json};
use std::time::Duration;
use windlass_auth::UserRole;
use windlass_store::model::{EventFilter, WorkerFilter};
use windlass_types::worker_messages::{AttemptKey, AttemptReport, ReturnReason};
use windlass_types::worker_protocol::{
    AcceptedJobOwners, ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration,
};
use windlass_types::{Attempt, JobId, RunId, SystemClock, WorkflowId};

fn introduce(fixture: &Fixture, token: &str, who: &WorkerRegistration) -> (u16, Option<RegistrationReply>) {
    let url = format!("{}/api/v1/workers", fixture.server.url);
    let answer = fixture.client.post(url).bearer_auth(token).json(who).send().unwrap();
    (answer.status().as_u16(), answer.json().ok())
}

fn worker(fixture: &Fixture, token: &str) -> RegistrationReply {
    introduce(fixture, token, &introduction()).1.expect("it is welcome")
}

fn say(fixture: &Fixture, token: &str, said: &WorkerExchange) -> (u16, Value) {
    let url = format!("{}/api/v1/workers/{}/exchange", fixture.server.url, said.worker);
    let answer = fixture.client.post(url).bearer_auth(token).json(said).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap_or_default())
}

/// A worker that runs the jobs of all users.
fn worker_for_all(fixture: &Fixture, token: &str) -> RegistrationReply {
    let who = WorkerRegistration { jobs_of: AcceptedJobOwners::All, ..introduction() };
    introduce(fixture, token, &who).1.expect("it is welcome")
}

/// The number of jobs it gets.
fn jobs(fixture: &Fixture, token: &str, welcome: &RegistrationReply, number: u64) -> usize {
    let (status, answer) =
        say(fixture, token, &exchange(welcome, number, Vec::new(), Duration::from_millis(300)));
    assert_eq!(status, 200, "{answer}");
    serde_json::from_value::<ExchangeReply>(answer).unwrap().assignments.len()
}

/// For jobs that were not assigned.
fn forged_reports(workflow: WorkflowId, number: usize) -> Vec<AttemptReport> {
    let key = |job| AttemptKey { workflow, run: RunId(1), job: JobId(job), attempt: Attempt(1) };
    let report = |job| AttemptReport::Returned { key: key(job), why: ReturnReason::Recalled };
    (0..number as i64).map(report).collect()
}

fn noted(fixture: &Fixture, workflow: WorkflowId) -> usize {
    let filter = EventFilter { category: Some("stale_report".into()), ..EventFilter::default() };
    fixture.store.events(Some(workflow), &filter).unwrap().len()
}

#[test]
fn forged_reports_change_and_reveal_nothing() {
    let fixture = Fixture::new();
    let (of_zoe, of_bob) = (begun_of(&fixture, "zoe", 2), begun_of(&fixture, "bob", 0));
    let bob = token(&fixture, "bob", UserRole::User, "worker");
    let welcome = worker(&fixture, &bob);
    let most = WorkerExchange::MAX_REPORTS;
    let (status, refused) =
        say(&fixture, &bob, &exchange(&welcome, 1, forged_reports(of_zoe, most + 1), Duration::ZERO));
    assert_eq!((status, refused["code"].as_str()), (422, Some("too_many_reports")));
    for (number, workflow) in [(2, of_zoe), (3, of_bob)] {
        let said = exchange(&welcome, number, forged_reports(workflow, most), Duration::ZERO);
        let (status, answer) = say(&fixture, &bob, &said);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["stale"].as_array().unwrap().len(), most);
        assert!(answer["stale"][0]["found"].is_string(), "{}", answer["stale"][0]);
    }
    // The first ten individually, and the number of others. They are written in order.
    eventually("reports of the own workflow are recorded", || noted(&fixture, of_bob) == 11);
    assert_eq!(noted(&fixture, of_zoe), 0, "nothing is recorded in another user's workflow");
    assert_eq!(fixture.figure("windlass_stale_reports_total"), Some(2 * most as u64), "but all were counted");
}

#[test]
fn weaker_token_gets_no_jobs_through_a_stronger_worker() {
    let fixture = Fixture::new();
    let less = token(&fixture, "owner", UserRole::User, "worker");
    // Same user, same labels, no active jobs: the groups look alike.
    let (of_admin, of_user) = (worker_for_all(&fixture, &fixture.server.token), worker(&fixture, &less));
    begun_of(&fixture, "zoe", 1);
    assert_eq!(jobs(&fixture, &less, &of_user, 1), 0, "a user's token gets none of zoe's jobs");
    assert_eq!(jobs(&fixture, &fixture.server.token, &of_admin, 1), 1);
    // The same in the other order: the second worker is not delayed by the first.
    let fixture = Fixture::new();
    let less = token(&fixture, "owner", UserRole::User, "worker");
    let (of_user, of_admin) = (worker(&fixture, &less), worker_for_all(&fixture, &fixture.server.token));
    begun_of(&fixture, "zoe", 1);
    assert_eq!(jobs(&fixture, &less, &of_user, 1), 0);
    assert_eq!(jobs(&fixture, &fixture.server.token, &of_admin, 1), 1);
}

/// Both workers look alike when they connect: same user, same labels, no active jobs.
#[test]
fn worker_for_own_jobs_gets_no_jobs_through_a_worker_for_others() {
    let fixture = Fixture::new();
    let group = fixture.store.add_group("team", None, SystemClock.now()).unwrap();
    fixture.store.add_member(group, "bob", "member", SystemClock.now()).unwrap();
    let bob = token(&fixture, "bob", UserRole::User, "worker");
    let of_zoe =
        WorkerRegistration { jobs_of: AcceptedJobOwners::Users(vec!["zoe".into()]), ..introduction() };
    let (trusting, own) = (introduce(&fixture, &bob, &of_zoe).1.unwrap(), worker(&fixture, &bob));
    let workflow = workflow_of(&fixture, "zoe");
    fixture.store.share_workflow(workflow, group, SystemClock.now()).unwrap();
    start(&fixture, workflow, 1);
    assert_eq!(jobs(&fixture, &bob, &own, 1), 0);
    assert_eq!(jobs(&fixture, &bob, &trusting, 1), 1);
}

/// Otherwise the commands of each request would run with the account of the server's owner.
#[test]
fn jobs_of_a_request_belong_to_its_requestor() {
    let fixture = Fixture::new();
    let bob = token(&fixture, "bob", UserRole::User, "admin");
    let (of_owner, of_bob) = (worker(&fixture, &fixture.server.token), worker(&fixture, &bob));
    let file = json!({"lfn": "/store/a", "size": 10, "events": 5, "replicas": {"local": "/data/a"}});
    let import = json!({"dataset": "/Muons/Run3-v1/RAW", "files": [file]});
    assert_eq!(status(&fixture, &bob, "POST", "/api/v1/catalog/import", Some(&import)), 200);
    let request = crate::requests::document("r");
    assert_eq!(status(&fixture, &bob, "POST", "/api/v1/requests", Some(&request)), 201);
    let workflows = || fixture.store.workflows().unwrap();
    eventually("its workflow has started", || workflows().iter().any(|row| row.started_at.is_some()));
    assert_eq!(workflows().iter().map(|row| row.user.as_str()).collect::<Vec<_>>(), ["bob"]);
    assert_eq!(
        jobs(&fixture, &fixture.server.token, &of_owner, 1),
        0,
        "the owner's worker runs none of them"
    );
    assert_eq!(jobs(&fixture, &bob, &of_bob, 1), 1, "its landing");
}

#[test]
fn operator_worker_is_unknown_to_a_user_token() {
    let fixture = Fixture::new();
    let welcome = worker_for_all(&fixture, &fixture.server.token);
    let less = token(&fixture, "owner", UserRole::User, "worker");
    begun_of(&fixture, "zoe", 1);
    let (status, refused) = say(&fixture, &less, &exchange(&welcome, 1, Vec::new(), Duration::ZERO));
    assert_eq!((status, refused["code"].as_str()), (409, Some("unknown_worker")), "it registers again");
}

#[test]
fn unshared_workflow_assigns_no_more_jobs() {
    let fixture = Fixture::new();
    let workflow = begun_of(&fixture, "zoe", 9);
    let group = fixture.store.add_group("team", None, SystemClock.now()).unwrap();
    fixture.store.add_member(group, "bob", "member", SystemClock.now()).unwrap();
    fixture.store.share_workflow(workflow, group, SystemClock.now()).unwrap();
    let bob = token(&fixture, "bob", UserRole::User, "worker");
    let unasked = WorkerRegistration { workflow: Some(workflow), ..introduction() };
    for token in [&bob, &fixture.server.token] {
        assert_eq!(
            introduce(&fixture, token, &unasked).0,
            403,
            "the jobs would run with the worker's account"
        );
    }
    let who = WorkerRegistration { jobs_of: AcceptedJobOwners::Users(vec!["zoe".into()]), ..unasked };
    let welcome = introduce(&fixture, &bob, &who).1.unwrap();
    assert!(jobs(&fixture, &bob, &welcome, 1) > 0, "while the workflow is shared");
    let shared = format!("/api/v1/workflows/{workflow}/access_groups/{group}");
    assert_eq!(status(&fixture, &fixture.server.token, "DELETE", &shared, None), 200);
    let (status, refused) = say(&fixture, &bob, &exchange(&welcome, 2, Vec::new(), Duration::ZERO));
    assert_eq!((status, refused["code"].as_str()), (409, Some("unknown_worker")), "{refused}");
    assert_eq!(introduce(&fixture, &bob, &who).0, 404);
}

#[test]
fn wrong_secret_does_not_end_the_wait_of_a_worker() {
    let fixture = Fixture::new();
    let zoe = token(&fixture, "zoe", UserRole::User, "worker");
    let bob = token(&fixture, "bob", UserRole::User, "worker");
    let welcome = worker(&fixture, &zoe);
    let waiting = exchange(&welcome, 1, Vec::new(), Duration::from_secs(15));
    let guessed = WorkerExchange { secret: "guessed".to_owned(), ..waiting.clone() };
    let path = format!("/api/v1/workers/{}/exchange", welcome.worker);
    let bytes = wire_as(&fixture, &bob, "POST", &path, &json!(guessed).to_string());
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| say(&fixture, &zoe, &waiting));
        eventually("it waits", || fixture.figure("windlass_waits") == Some(1));
        for _ in 0..200 {
            say_and_hang_up(&fixture, bytes.as_bytes());
        }
        eventually("they are gone", || fixture.figure("windlass_http_requests_in_flight") == Some(2));
        assert_eq!(fixture.figure("windlass_waits"), Some(1), "it still waits");
        begun_of(&fixture, "zoe", 1);
        let (status, answer) = heard.join().unwrap();
        assert_eq!(status, 200);
        assert_eq!(answer["assignments"].as_array().map(Vec::len), Some(1), "and gets the job: {answer}");
    });
}

#[test]
fn worker_cannot_join_workflows_of_others() {
    let fixture = Fixture::new();
    let (mine, of_zoe) = (begun(&fixture, 1), workflow_of(&fixture, "zoe"));
    let bob = token(&fixture, "bob", UserRole::User, "worker");
    for workflow in [mine, of_zoe] {
        let who = WorkerRegistration { workflow: Some(workflow), ..introduction() };
        assert_eq!(introduce(&fixture, &bob, &who).0, 404);
    }
    assert_eq!(jobs(&fixture, &bob, &worker(&fixture, &bob), 1), 0);
}

/// One such registration aborted the server, and its row every later start.
#[test]
fn out_of_bounds_registrations_are_rejected_before_writing() {
    let fixture = Fixture::new();
    let workflow = begun(&fixture, 1);
    let mut who = introduction();
    who.capacity.nodes = u32::MAX;
    assert_eq!(introduce(&fixture, &fixture.server.token, &who).0, 422);
    who.capacity.nodes = 1;
    who.labels = vec!["l".into(); 100_000];
    assert_eq!(introduce(&fixture, &fixture.server.token, &who).0, 422);
    assert_eq!(fixture.store.workers(&WorkerFilter::default()).unwrap(), []);
    let claim = |nodes: u32| {
        let path = format!("/torc-service/v1/workflows/{workflow}/claim_jobs_based_on_resources/1");
        let offer = json!({ "num_cpus": 1, "num_gpus": 0, "num_nodes": nodes, "memory_gb": 1.0 });
        fixture.post(&path).json(&offer).send().unwrap().status().as_u16()
    };
    assert_eq!((claim(u32::MAX), claim(1)), (422, 200));
    assert_eq!(fixture.get("/api/v1/workers").send().unwrap().status().as_u16(), 200);
}

#[test]
fn worker_tokens_cannot_create_or_join_sites() {
    let fixture = Fixture::new();
    let at = |site: &str| WorkerRegistration { site: site.into(), ..introduction() };
    let known = || fixture.store.sites().unwrap().into_iter().any(|site| site.name == "north");
    let bob = token(&fixture, "bob", UserRole::User, "worker");
    let ops = token(&fixture, "ops", UserRole::Operator, "worker");
    assert_eq!(introduce(&fixture, &bob, &at("local")).0, 200);
    for who in [&bob, &ops] {
        assert_eq!(introduce(&fixture, who, &at("north")).0, 403);
    }
    assert!(!known());
    let patch =
        fixture.request(reqwest::Method::PATCH, "/api/v1/sites/north").json(&json!({"status": "enabled"}));
    assert_eq!(patch.send().unwrap().status().as_u16(), 200);
    assert_eq!(
        (introduce(&fixture, &bob, &at("north")).0, introduce(&fixture, &ops, &at("north")).0),
        (403, 200)
    );
    // A caller that may create the site may register at it.
    assert_eq!(introduce(&fixture, &fixture.server.token, &at("south")).0, 200);
}
