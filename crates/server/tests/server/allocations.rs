//! Allocations over HTTP: those of Windlass, and those that Torc runners manage.
#![expect(clippy::unwrap_used, reason = "the lint does not see that all of this is a test")]

use crate::access::{status, token};
use crate::running_workflows::begun;
use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::{Value, json};
use windlass_auth::UserRole;

fn answered(request: reqwest::blocking::RequestBuilder) -> Value {
    request.send().unwrap().error_for_status().unwrap().json().unwrap()
}

fn scheduler(fixture: &Fixture, workflow: i64) -> i64 {
    let body = json!({
        "workflow_id": workflow, "name": "night", "account": "lab", "nodes": 2, "walltime": "04:00:00",
    });
    answered(fixture.post("/api/v1/slurm_schedulers").json(&body))["id"].as_i64().unwrap()
}

#[test]
fn allocations_are_requested_and_canceled() {
    let fixture = Fixture::new();
    let workflow = begun(&fixture, 3).0;
    let scheduler = scheduler(&fixture, workflow);
    let list = format!("/api/v1/workflows/{workflow}/allocations");
    let wanted = json!({ "scheduler": "night", "count": 2, "start_one_worker_per_node": true });
    let made = answered(fixture.post(&list).json(&wanted));
    let items = made["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    let first = &items[0];
    assert_eq!((&first["state"], &first["asked_by"]), (&json!("intended"), &json!("owner")));
    assert_eq!((&first["scheduler"], &first["scheduler_id"]), (&json!("night"), &json!(scheduler)));
    assert_eq!(first["request"]["nodes"], 2);
    assert_eq!(first["request"]["one_worker_per_node"], true);
    assert_eq!(answered(fixture.get(&list)), made);
    let one = format!("/api/v1/allocations/{}", first["id"]);
    assert_eq!(answered(fixture.get(&one)), *first);

    // In the format of the Torc contract.
    let nodes =
        answered(fixture.get(&format!("/torc-service/v1/scheduled_compute_nodes?workflow_id={workflow}")));
    assert_eq!(nodes["total_count"], 2);
    assert_eq!(nodes["items"][0]["status"], "pending");
    assert_eq!(nodes["items"][0]["scheduler_config_id"], scheduler);
    let told = answered(fixture.get(&format!("/torc-service/v1/workflows/{workflow}/status")));
    assert_eq!(told["pending_scheduled_nodes"], 2);
    let theirs = format!("/torc-service/v1/scheduled_compute_nodes/{}", first["id"]);
    let mut body = nodes["items"][0].clone();
    body["status"] = json!("complete");
    let refused = fixture.request(Method::PUT, &theirs).json(&body).send().unwrap();
    assert_eq!(refused.status(), 409, "clients cannot set the state of managed allocations");

    let gone = answered(fixture.request(Method::DELETE, &one));
    assert_eq!((&gone["state"], &gone["unwanted"]), (&json!("withdrawn"), &json!("canceled by owner")));
    assert_eq!(answered(fixture.get(&theirs))["status"], "canceled");
    let open = answered(fixture.get(&format!("{list}?is_open=true&scheduler=night&state=intended")));
    assert_eq!(open["items"].as_array().unwrap().len(), 1);
    let refused = fixture.request(Method::DELETE, &format!("/api/v1/workflows/{workflow}")).send().unwrap();
    assert_eq!(refused.status(), 409, "Slurm would run an allocation that the server does not know");
}

#[test]
fn torc_clients_report_their_own_allocations() {
    let fixture = Fixture::new();
    let workflow = begun(&fixture, 1).0;
    let list = "/torc-service/v1/scheduled_compute_nodes";
    let body = json!({
        "workflow_id": workflow, "scheduler_config_id": 7, "scheduler_id": 4711, "scheduler_type": "slurm",
        "status": "pending",
    });
    let made = answered(fixture.post(list).json(&body));
    let one = format!("{list}/{}", made["id"]);
    assert_eq!(answered(fixture.get(&one)), made);
    for status in ["active", "canceled", "complete", "active"] {
        let mut news = made.clone();
        news["status"] = json!(status);
        assert_eq!(answered(fixture.request(Method::PUT, &one).json(&news)), news);
        assert_eq!(answered(fixture.get(&one)), news);
    }
    for (field, value) in [("status", json!("running")), ("scheduler_id", json!(-1))] {
        let mut wrong = made.clone();
        wrong[field] = value;
        assert_eq!(fixture.request(Method::PUT, &one).json(&wrong).send().unwrap().status(), 422, "{field}");
    }
    let told = answered(fixture.get(&format!("/torc-service/v1/workflows/{workflow}/status")));
    assert_eq!(told["active_scheduled_nodes"], 1);
    let refused =
        fixture.request(Method::DELETE, &format!("/api/v1/allocations/{}", made["id"])).send().unwrap();
    assert_eq!(refused.status(), 409, "managed by a client");
    assert_eq!(answered(fixture.request(Method::DELETE, &one))["status"], "active");
    assert_eq!(fixture.get(&one).send().unwrap().status(), 404);
}

#[test]
fn allocations_follow_workflow_permissions() {
    let fixture = Fixture::new();
    let workflow = begun(&fixture, 1).0;
    scheduler(&fixture, workflow);
    let list = format!("/api/v1/workflows/{workflow}/allocations");
    let wanted = json!({ "scheduler": "night" });
    let id = answered(fixture.post(&list).json(&wanted))["items"][0]["id"].clone();
    let one = format!("/api/v1/allocations/{id}");
    let stranger = token(&fixture, "stranger", UserRole::User, "write");
    for (method, path, body) in
        [("GET", &list, None), ("POST", &list, Some(&wanted)), ("GET", &one, None), ("DELETE", &one, None)]
    {
        assert_eq!(status(&fixture, &stranger, method, path, body), 404, "{method} {path}");
    }
    let viewer = token(&fixture, "owner", UserRole::Viewer, "read");
    assert_eq!(status(&fixture, &viewer, "GET", &one, None), 200);
    assert_eq!(status(&fixture, &viewer, "DELETE", &one, None), 403);
}

#[test]
fn invalid_allocation_requests_are_rejected() {
    let fixture = Fixture::new();
    let workflow = begun(&fixture, 1).0;
    scheduler(&fixture, workflow);
    let list = format!("/api/v1/workflows/{workflow}/allocations");
    for (body, expected) in [
        (json!({ "scheduler": "day" }), 422),
        (json!({ "scheduler": "night", "count": 0 }), 422),
        (json!({ "scheduler": "night", "count": 1001 }), 422),
        (json!({ "scheduler": "night", "max_parallel_jobs": 0 }), 422),
        (json!({ "scheduler": "night", "number": 2 }), 422),
    ] {
        assert_eq!(fixture.post(&list).json(&body).send().unwrap().status(), expected, "{body}");
    }
    assert_eq!(fixture.get(&format!("{list}?state=lost")).send().unwrap().status(), 422);
    assert_eq!(answered(fixture.get(&list))["items"], json!([]));
}

#[test]
fn server_reports_whether_it_submits_to_slurm() {
    let fixture = Fixture::new();
    assert_eq!(answered(fixture.get("/api/v1/slurm")), json!({ "reconciler": null }));
}
