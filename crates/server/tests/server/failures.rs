//! Failures over HTTP: groups, commands, proposals, revisions.

use crate::test_server::Fixture;
use serde_json::{Value, json};
use windlass_store::model::{WorkerFilter, WorkerKind};
use windlass_types::SystemClock;

fn call(fixture: &Fixture, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let method = method.parse().unwrap();
    let answer = fixture.request(method, &format!("/api/v1{path}")).json(body).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap())
}

#[track_caller]
fn good(fixture: &Fixture, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = call(fixture, method, path, body);
    assert_eq!(status, 200, "{method} {path}: {answer}");
    answer
}

/// A workflow whose first two jobs have failed and wait for a decision, and a third that depends on them.
pub(crate) fn waiting(fixture: &Fixture) -> (i64, Vec<i64>) {
    ended(fixture, "pending_failed")
}

/// Two jobs ended in this way, and one that depends on both.
pub(crate) fn ended(fixture: &Fixture, status: &str) -> (i64, Vec<i64>) {
    let waits = status == "pending_failed";
    let made = |path: &str, body: &Value| good(fixture, "POST", path, body)["id"].as_i64().unwrap();
    let workflow = made("/workflows", &json!({"name": "w", "user": "me", "use_pending_failed": waits}));
    let job = |name: &str, after: &[i64]| {
        let body =
            json!({"workflow_id": workflow, "name": name, "command": "true", "depends_on_job_ids": after});
        made("/jobs", &body)
    };
    let mut jobs = vec![job("a", &[]), job("b", &[])];
    jobs.push(job("merge", &jobs));
    good(fixture, "POST", &format!("/workflows/{workflow}/initialize_jobs"), &json!(null));
    let node = json!({"workflow_id": workflow, "compute_node_type": "local", "hostname": "h", "memory_gb": 1.0,
        "num_cpus": 2, "num_gpus": 0, "num_nodes": 1, "pid": 1, "start_time": "2026-01-01T00:00:00Z"});
    let node = made("/compute_nodes", &node);
    good(fixture, "POST", &format!("/workflows/{workflow}/claim_next_jobs?limit=2"), &json!(null));
    for job in &jobs[..2] {
        good(fixture, "PUT", &format!("/jobs/{job}/start_job/1/{node}"), &json!(null));
        let result = json!({"job_id": job, "workflow_id": workflow, "run_id": 1, "attempt_id": 1, "return_code": 3,
            "exec_time_minutes": 0.1, "completion_time": "2026-01-01T00:00:01Z", "status": status,
            "compute_node_id": node});
        good(fixture, "POST", &format!("/jobs/{job}/complete_job/{status}/1"), &result);
    }
    (workflow, jobs)
}

pub(crate) fn status(fixture: &Fixture, job: i64) -> Value {
    good(fixture, "GET", &format!("/jobs/{job}"), &json!(null))["status"].clone()
}

#[test]
fn failures_are_grouped_decided_and_undone() {
    let fixture = Fixture::new();
    let (workflow, jobs) = waiting(&fixture);
    let of = |rest: &str| format!("/workflows/{workflow}/{rest}");
    let groups = good(&fixture, "GET", &of("failures"), &json!(null));
    assert_eq!((&groups["items"][0]["pending"], groups["items"].as_array().unwrap().len()), (&json!(2), 1));
    let key = groups["items"][0]["signature"].as_str().unwrap();
    let failures = good(&fixture, "GET", &of(&format!("failures/{key}?limit=1&offset=1")), &json!(null));
    assert_eq!(
        (&failures["items"][0]["job_id"], &failures["items"][0]["return_code"]),
        (&json!(jobs[1]), &json!(3))
    );
    assert_eq!(call(&fixture, "GET", &of("failures/0000"), &json!(null)).0, 404);

    let change = json!({"job_id": jobs[2], "action": "change", "changes": {"memory_bytes": 1_u64 << 30, "priority": 7}});
    let orders = json!({"dry_run": true, "commands": [
        {"job_id": jobs[0], "action": "retry", "reason": "again"}, change,
        {"job_id": 999, "action": "fail"}]});
    let answers = good(&fixture, "POST", &of("orders"), &orders);
    let said: Vec<&Value> = answers["items"].as_array().unwrap().iter().map(|item| &item["result"]).collect();
    assert_eq!(said, ["done", "done", "refused"]);
    assert_eq!(status(&fixture, jobs[0]), "pending_failed", "nothing was done");
    let absurd =
        json!({"job_id": jobs[0], "verdict": "retry", "changes": {"memory_bytes": 100_000_u64 << 30}});
    // With the keys of earlier versions.
    let answers = good(&fixture, "POST", &of("orders"), &json!({"orders": [absurd]}));
    let why = answers["items"][0]["message"].as_str().unwrap();
    assert_eq!(why, "it would request 97.7 TiB of memory, and no worker has more than 1 GiB");
    assert_eq!(
        (&answers["items"][0]["result"], status(&fixture, jobs[0])),
        (&json!("refused"), json!("pending_failed"))
    );
    let orders = json!({"commands": orders["commands"]});
    good(&fixture, "POST", &of("orders"), &orders);
    assert_eq!(status(&fixture, jobs[0]), "ready");
    let decisions = good(&fixture, "GET", &of("decisions"), &json!(null));
    assert_eq!(
        (&decisions["items"][0]["reason"], &decisions["items"][0]["state"]),
        (&json!("again"), &json!("done"))
    );

    let revisions = good(&fixture, "GET", &of("revisions"), &json!(null));
    assert_eq!(revisions["items"][0]["after"]["priority"], 7);
    let of_job = |job: i64| good(&fixture, "GET", &of(&format!("revisions?job_id={job}")), &json!(null));
    assert_eq!((&of_job(jobs[2]), &of_job(jobs[0])["items"]), (&revisions, &json!([])));
    good(&fixture, "POST", &of("revisions/1/undo"), &json!(null));
    assert_eq!(call(&fixture, "POST", &of("revisions/1/undo"), &json!(null)).0, 409);
    assert_eq!(call(&fixture, "POST", &of("revisions/9/undo"), &json!(null)).0, 404);
    let revisions = good(&fixture, "GET", &of("revisions?revision=2"), &json!(null));
    assert_eq!(revisions["items"][0]["after"]["priority"], 0);
    assert_eq!(call(&fixture, "GET", "/workflows/999/failures", &json!(null)).0, 404);
}

#[test]
fn requests_beyond_earlier_workers_are_refused() {
    let fixture = Fixture::new();
    let (workflow, jobs) = waiting(&fixture);
    let node =
        fixture.store.workers(&WorkerFilter { kinds: vec![WorkerKind::Torc], ..WorkerFilter::default() });
    let node = node.unwrap()[0].id;
    let path = format!("/compute_nodes/{node}");
    let mut row = good(&fixture, "GET", &path, &json!(null));
    row["is_active"] = false.into();
    good(&fixture, "PUT", &path, &row);
    let retry = |bytes: u64| {
        let order = json!({"job_id": jobs[0], "action": "retry", "changes": {"memory_bytes": bytes}});
        let orders = json!({"dry_run": true, "commands": [order]});
        let answers = good(&fixture, "POST", &format!("/workflows/{workflow}/orders"), &orders);
        answers["items"][0].clone()
    };
    let refused = retry(2 << 30);
    assert_eq!(refused["message"], "it would request 2 GiB of memory, and no worker has more than 1 GiB");
    assert_eq!((&refused["result"], &retry(1 << 30)["result"]), (&json!("refused"), &json!("done")));

    fixture.store.delete_workers(&[node], SystemClock.now()).unwrap();
    let refused = retry(100_000 << 30);
    assert!(refused["message"].as_str().unwrap().contains("the limit is 64 TiB"), "{refused}");
    assert_eq!((&refused["result"], &retry(2 << 30)["result"]), (&json!("refused"), &json!("done")));
}

#[test]
fn agents_decide_pending_jobs_and_invalid_orders_fail() {
    let fixture = Fixture::new();
    let (workflow, jobs) = waiting(&fixture);
    let of = |rest: &str| format!("/workflows/{workflow}/{rest}");
    let order = |agent: &str, job: i64, kind: &str| {
        json!({"agent": agent, "commands": [
        {"job_id": job, "action": kind, "confidence": 0.9}]})
    };
    let answer = good(&fixture, "POST", &of("orders"), &order("robot", jobs[2], "change"));
    assert_eq!(answer["items"][0]["result"], "refused", "it depends on others: {answer}");
    let answer = good(&fixture, "POST", &of("orders"), &order("robot", jobs[1], "fail"));
    assert_eq!(answer["items"][0]["result"], "done", "{answer}");
    assert_eq!((status(&fixture, jobs[1]), status(&fixture, jobs[2])), (json!("failed"), json!("blocked")));
    good(&fixture, "POST", &of("orders"), &order("robot", jobs[0], "fail"));
    assert_eq!(status(&fixture, jobs[2]), "canceled", "it has no open dependencies");
    let decision = &good(&fixture, "GET", &of("decisions"), &json!(null))["items"][0];
    assert_eq!((&decision["made_by"], &decision["is_agent"]), (&json!("robot"), &json!(true)));
    for wrong in [
        json!({"commands": [{"job_id": jobs[0], "action": "maybe"}]}),
        json!({"commands": [{"job_id": jobs[0], "action": "retry", "colour": 1}]}),
        json!({"agent": " ", "commands": []}),
        json!({"commands": [{"job_id": jobs[0], "action": "retry", "reason": "a\0b"}]}),
    ] {
        let (status, answer) = call(&fixture, "POST", &of("orders"), &wrong);
        assert_eq!(status, 422, "{wrong}: {answer}");
    }
    let (status, answer) = call(&fixture, "POST", &of("decisions/77"), &json!({"approved": true}));
    assert_eq!(status, 404, "{answer}");
}
