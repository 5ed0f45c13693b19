//! Permissions of a job token: its workflow, while its attempt runs; and whose jobs a worker gets.

use crate::access::token;
use crate::running_workflows::{begun, begun_of, ended, exchange, introduction};
use crate::test_server::{Fixture, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use windlass_api::job_token::{JobTokenClaims, JobTokenSubject, secret_hash};
use windlass_auth::{TokenSecret, UserRole};
use windlass_store::model::NewTokenRow;
use windlass_types::slurm::SlurmJobNode;
use windlass_types::worker_messages::{AttemptKey, AttemptReport};
use windlass_types::worker_protocol::{
    AcceptedJobOwners, ExchangeReply, RegistrationReply, WorkerRegistration,
};
use windlass_types::{Attempt, SystemClock, WorkerId};

fn introduce(fixture: &Fixture, token: &str, who: &WorkerRegistration) -> (u16, Value) {
    let url = format!("{}/api/v1/workers", fixture.server.url);
    let answer = fixture.client.post(url).bearer_auth(token).json(who).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap())
}

pub(crate) fn welcome(fixture: &Fixture, token: &str, who: &WorkerRegistration) -> RegistrationReply {
    let (status, answer) = introduce(fixture, token, who);
    assert_eq!(status, 200, "{answer}");
    serde_json::from_value(answer).unwrap()
}

pub(crate) fn say(
    fixture: &Fixture,
    token: &str,
    welcome: &RegistrationReply,
    number: u64,
    reports: Vec<AttemptReport>,
) -> Vec<AttemptKey> {
    let said = exchange(welcome, number, reports, Duration::from_millis(300));
    let url = format!("{}/api/v1/workers/{}/exchange", fixture.server.url, welcome.worker);
    let answer = fixture.client.post(url).bearer_auth(token).json(&said).send().unwrap();
    let answer: ExchangeReply = answer.error_for_status().unwrap().json().unwrap();
    answer.assignments.iter().map(|assignment| assignment.key).collect()
}

fn call(fixture: &Fixture, token: &str, method: &str, path: &str, body: &Value) -> u16 {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let request = fixture.client.request(method.clone(), format!("{}{path}", fixture.server.url));
    let request = request.bearer_auth(token);
    let request = if method == Method::GET { request } else { request.json(body) };
    request.send().unwrap().status().as_u16()
}

#[test]
fn job_token_is_limited_to_its_running_workflow() {
    let fixture = Fixture::new();
    let owner = fixture.server.token.clone();
    let (own, other) = (begun(&fixture, 1), begun(&fixture, 1));
    let who = WorkerRegistration { workflow: Some(own), ..introduction() };
    let worker = welcome(&fixture, &owner, &who);
    let keys = say(&fixture, &owner, &worker, 1, Vec::new());
    let [key] = keys[..] else { panic!("{keys:?}") };
    let claim = JobTokenClaims { worker: worker.worker, work: JobTokenSubject::Job(key) };
    let job = claim.sign(&secret_hash(&worker.secret));

    // What docs/guide/dynamic-jobs.md and user-data.md document for jobs.
    let data = json!({"workflow_id": own.0, "name": "found", "data": 1});
    let spawn = json!({"jobs": [{"name": "more", "command": "true"}]});
    let read = json!({"workflow": {"workflow": own.0}});
    for (method, path, body) in [
        ("GET", "/api/v1/me".to_owned(), &json!({})),
        ("GET", format!("/api/v1/workflows/{own}"), &json!({})),
        ("GET", format!("/api/v1/jobs/{}", key.job), &json!({})),
        ("POST", "/api/v1/user_data".to_owned(), &data),
        ("POST", format!("/api/v1/jobs/{}/spawn_jobs", key.job), &spawn),
    ] {
        assert_eq!(call(&fixture, &job, method, &path, body), 200, "{method} {path}");
    }
    assert!(!matches!(call(&fixture, &job, "POST", "/api/v1/store", &read), 401 | 403));

    // Other objects of the workflow's owner are rejected or hidden.
    let token_of_admin = json!({"name": "mine", "role": "admin", "scopes": ["admin"]});
    let other_data = json!({"workflow_id": other.0, "name": "found", "data": 1});
    for (method, path, body, expected) in [
        ("POST", "/api/v1/tokens".to_owned(), &token_of_admin, 403),
        ("GET", "/api/v1/tokens".to_owned(), &json!({}), 403),
        ("GET", "/api/v1/workflows".to_owned(), &json!({}), 403),
        ("GET", "/api/v1/workers".to_owned(), &json!({}), 403),
        ("GET", "/api/v1/requests".to_owned(), &json!({}), 403),
        ("POST", "/api/v1/workflows".to_owned(), &json!({"name": "x"}), 403),
        ("DELETE", format!("/api/v1/workflows/{own}"), &json!({}), 403),
        ("PUT", format!("/api/v1/workflows/{own}/cancel"), &json!({}), 403),
        ("POST", "/api/v1/workers".to_owned(), &json!(introduction()), 403),
        ("POST", format!("/api/v1/workflows/{own}/decisions/1"), &json!({"agreed": true}), 403),
        ("POST", format!("/api/v1/workflows/{own}/orders"), &json!({"orders": []}), 403),
        ("POST", format!("/api/v1/workflows/{own}/orders"), &json!({"agent": "a", "orders": []}), 403),
        ("POST", "/api/v1/admin/reload-auth".to_owned(), &json!({}), 403),
        ("GET", format!("/api/v1/workflows/{other}"), &json!({}), 404),
        ("POST", "/api/v1/user_data".to_owned(), &other_data, 404),
    ] {
        assert_eq!(call(&fixture, &job, method, &path, body), expected, "{method} {path}");
    }

    // Forged: for a worker that does not hold it, for another attempt, without the secret.
    let stranger = welcome(&fixture, &owner, &introduction());
    let forged = [
        JobTokenClaims { worker: stranger.worker, ..claim }.sign(&secret_hash(&stranger.secret)),
        JobTokenClaims { worker: WorkerId(999), ..claim }.sign(&secret_hash(&worker.secret)),
        claim.sign(&secret_hash("guessed")),
        JobTokenClaims {
            work: JobTokenSubject::Job(AttemptKey { attempt: Attempt(key.attempt.0 + 1), ..key }),
            ..claim
        }
        .sign(&secret_hash(&worker.secret)),
    ];
    for token in forged {
        assert_eq!(call(&fixture, &token, "GET", "/api/v1/me", &json!({})), 401);
    }

    // It expires with the attempt.
    say(&fixture, &owner, &worker, 2, vec![ended(key)]);
    eventually("the token expires", || call(&fixture, &job, "GET", "/api/v1/me", &json!({})) == 401);
}

/// They share the address of the worker with strangers.
#[test]
fn calls_of_jobs_are_not_counted_as_anonymous() {
    let fixture = Fixture::with(|options| {
        options.limits.rate = 1;
        options.limits.burst = 20;
    });
    let owner = fixture.server.token.clone();
    begun(&fixture, 2);
    let worker = welcome(&fixture, &owner, &introduction());
    let keys = say(&fixture, &owner, &worker, 1, Vec::new());
    let [first, second] = keys[..] else { panic!("{keys:?}") };
    let me = |token: &str| call(&fixture, token, "GET", "/api/v1/me", &json!({}));
    let job = |key, secret: &str| {
        let claim = JobTokenClaims { worker: worker.worker, work: JobTokenSubject::Job(key) };
        me(&claim.sign(&secret_hash(secret)))
    };
    assert_eq!(job(first, &worker.secret), 200);
    let codes: Vec<u16> = (0..40).map(|n| me(&format!("wl_wrong{n}"))).collect();
    assert!(codes[30..].iter().all(|code| *code == 429), "{codes:?}");
    assert_eq!([first, second].map(|key| job(key, &worker.secret)), [200, 200]);
    let forged: Vec<u16> = (0..10).map(|_| job(first, "guessed")).collect();
    assert!(forged.contains(&429), "{forged:?}");
}

#[test]
fn worker_gets_jobs_of_accepted_owners_only() {
    let fixture = Fixture::new();
    begun_of(&fixture, "zoe", 1);
    let operator = token(&fixture, "olga", UserRole::Operator, "worker");
    let own = welcome(&fixture, &operator, &introduction());
    assert_eq!(say(&fixture, &operator, &own, 1, Vec::new()).len(), 0, "not of zoe");
    let others =
        WorkerRegistration { jobs_of: AcceptedJobOwners::Users(vec!["bob".into()]), ..introduction() };
    let bobs = welcome(&fixture, &operator, &others);
    assert_eq!(say(&fixture, &operator, &bobs, 1, Vec::new()).len(), 0, "only of bob");

    let user = token(&fixture, "bob", UserRole::User, "worker");
    let all = WorkerRegistration { jobs_of: AcceptedJobOwners::All, ..introduction() };
    let (status, refused) = introduce(&fixture, &user, &all);
    assert_eq!(status, 403, "{refused}");
    let zoes = WorkerRegistration { jobs_of: AcceptedJobOwners::Users(vec!["zoe".into()]), ..introduction() };
    let other_worker = welcome(&fixture, &user, &zoes);
    assert_eq!(say(&fixture, &user, &other_worker, 1, Vec::new()).len(), 0, "zoe shares nothing with bob");

    let trusted = welcome(&fixture, &operator, &zoes);
    assert_eq!(say(&fixture, &operator, &trusted, 1, Vec::new()).len(), 1);
}

#[test]
fn allocation_token_is_limited_to_its_workers() {
    let fixture = Fixture::new();
    let (own, other) = (begun(&fixture, 1), begun(&fixture, 1));
    let secret = TokenSecret::random().unwrap();
    let new = NewTokenRow {
        hash: secret.hash().to_string(),
        name: "allocation 7".into(),
        user: "owner".into(),
        role: "user".into(),
        scopes: vec![format!("allocation:7:{own}")],
        expires_at: None,
    };
    let id = fixture.store.add_token(&new, SystemClock.now()).unwrap();
    let token = secret.reveal();
    let place = || Some(SlurmJobNode { job_id: 70, restarts: 0, node: "n1".into() });
    let here =
        || WorkerRegistration { workflow: Some(own), allocation: Some(7), slurm: place(), ..introduction() };
    // It passes the check and fails on the missing allocation.
    let (status, answer) = introduce(&fixture, token, &here());
    assert_eq!((status, answer["detail"].as_str()), (404, Some("there is no allocation 7")), "{answer}");
    for elsewhere in [
        introduction(),
        WorkerRegistration { workflow: Some(own), ..introduction() },
        WorkerRegistration { allocation: Some(8), ..here() },
        WorkerRegistration { workflow: Some(other), ..here() },
        WorkerRegistration { workflow: None, ..here() },
        WorkerRegistration { slurm: None, ..here() },
    ] {
        assert_eq!(introduce(&fixture, token, &elsewhere).0, 403, "{elsewhere:?}");
    }
    for (method, path, expected) in [
        ("GET", "/api/v1/me".to_owned(), 200),
        ("GET", format!("/api/v1/workflows/{own}"), 200),
        ("GET", format!("/api/v1/workflows/{other}"), 404),
        ("GET", "/api/v1/tokens".to_owned(), 403),
        ("POST", "/api/v1/tokens".to_owned(), 403),
        ("POST", "/api/v1/workflows".to_owned(), 403),
        ("PUT", format!("/api/v1/workflows/{own}/cancel"), 403),
    ] {
        assert_eq!(call(&fixture, token, method, &path, &json!({"name": "x"})), expected, "{method} {path}");
    }
    assert_eq!(
        fixture.request(Method::DELETE, &format!("/api/v1/tokens/{id}")).send().unwrap().status(),
        200
    );
    assert_eq!(introduce(&fixture, token, &here()).0, 401, "revoked");
}
