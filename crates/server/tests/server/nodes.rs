//! Node quarantine: permissions, listing, and the effect on workers.

use crate::access::{status, token};
use crate::running_workflows::{Worker, begun};
use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::{Value, json};
use windlass_auth::UserRole;

const NODES: &str = "/api/v1/nodes";

fn listed(fixture: &Fixture) -> Vec<Value> {
    let answer: Value = fixture.get(NODES).send().unwrap().json().unwrap();
    answer["items"].as_array().unwrap().clone()
}

#[test]
fn node_is_quarantined_and_released() {
    let fixture = Fixture::new();
    begun(&fixture, 20);
    let mut worker = Worker::join(&fixture);
    let body = json!({"host": "host", "seconds": 3600, "reason": "its disk is full"});
    let node: Value =
        fixture.post(NODES).json(&body).send().unwrap().error_for_status().unwrap().json().unwrap();
    assert_eq!((&node["standing"], &node["set_by"]), (&json!("quarantined"), &json!("owner")));
    assert_eq!(listed(&fixture), [node]);
    worker.work(&fixture);
    assert_eq!(worker.holds(), 0);
    let workers: Value = fixture.get("/api/v1/workers").send().unwrap().json().unwrap();
    let told = &workers["items"][0];
    assert_eq!(
        (&told["standing"], &told["quarantine_reason"]),
        (&json!("quarantined"), &json!("its disk is full"))
    );
    let release = || fixture.request(Method::DELETE, "/api/v1/nodes/host").send().unwrap();
    assert_eq!(release().status(), 200);
    worker.work(&fixture);
    assert_eq!(worker.holds(), 4);
    assert_eq!(listed(&fixture), [] as [Value; 0]);
    let again = release();
    assert_eq!(again.status(), 404);
    let problem: Value = again.json().unwrap();
    assert_eq!(problem["detail"], "node host is not in quarantine");
}

#[test]
fn only_operators_quarantine_nodes() {
    let fixture = Fixture::new();
    let body = json!({"host": "n1", "seconds": 60});
    for (role, expected) in
        [(UserRole::Viewer, 403), (UserRole::User, 403), (UserRole::Operator, 200), (UserRole::Admin, 200)]
    {
        let token = token(&fixture, "caller", role, "write");
        assert_eq!(status(&fixture, &token, "POST", NODES, Some(&body)), expected, "{role}");
        assert_eq!(status(&fixture, &token, "GET", NODES, None), 200, "{role}: visible to all");
        assert_eq!(status(&fixture, &token, "DELETE", "/api/v1/nodes/n1", None), expected, "{role}");
    }
}

#[test]
fn invalid_quarantine_is_rejected() {
    let fixture = Fixture::new();
    let long = "x".repeat(1001);
    for body in [
        json!({"host": "", "seconds": 60}),
        json!({"host": "n1", "seconds": 0}),
        json!({"host": "n1", "seconds": 40_000_000}),
        json!({"host": "n1", "seconds": 60, "reason": long}),
        json!({"host": "n1"}),
    ] {
        let answer = fixture.post(NODES).json(&body).send().unwrap();
        assert_eq!(answer.status(), 422, "{body}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
    assert_eq!(listed(&fixture), [] as [Value; 0]);
}
