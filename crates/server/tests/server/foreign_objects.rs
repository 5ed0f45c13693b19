//! Objects of other users' workflows, workers and groups by their real ids: hidden objects look like missing
//! ones, and permitted callers see them.

use crate::access::{Route, routes, status, token};
use crate::running_workflows::{exchange, introduction, workflow_of};
use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_auth::{AccessDecision, ObjectRelation, TokenScopes, UserRole, decide_access};
use windlass_server::route_policy::RouteAccess;
use windlass_types::worker_protocol::RegistrationReply;
use windlass_types::{Resources, SystemClock, WorkflowId};

/// The id of one existing object by the noun of its path.
pub(crate) type ObjectIds = BTreeMap<&'static str, i64>;

/// One object of each type that a workflow can have.
pub(crate) fn parts_of(fixture: &Fixture, workflow: WorkflowId) -> ObjectIds {
    let mut parts = ObjectIds::new();
    let mut make = |noun: &'static str, body: Value| {
        let answer = fixture.post(&format!("/api/v1/{noun}")).json(&body).send().unwrap();
        let (status, text) = (answer.status(), answer.text().unwrap());
        assert_eq!(status, 200, "{noun}: {text}");
        let id = serde_json::from_str::<Value>(&text).unwrap()["id"].as_i64().unwrap();
        parts.insert(noun, id);
        id
    };
    let id = workflow.0;
    let at = "2026-01-01T00:00:00Z";
    make("files", json!({"workflow_id": id, "name": "f", "path": "f"}));
    make("user_data", json!({"workflow_id": id, "name": "u"}));
    make("resource_requirements", json!({"workflow_id": id, "name": "r"}));
    make("slurm_schedulers", json!({"workflow_id": id, "account": "a", "nodes": 1, "walltime": "01:00:00"}));
    make("events", json!({"workflow_id": id, "timestamp": 0, "data": {"category": "c"}}));
    make("local_schedulers", json!({"workflow_id": id}));
    make(
        "ro_crate_entities",
        json!({"workflow_id": id, "entity_id": "e", "entity_type": "File", "metadata": {}}),
    );
    let job = make("jobs", json!({"workflow_id": id, "name": "j", "command": "true"}));
    let node = make(
        "compute_nodes",
        json!({"workflow_id": id, "compute_node_type": "local", "hostname": "h", "memory_gb": 1.0, "num_cpus": 1,
            "num_gpus": 0, "num_nodes": 1, "pid": 1, "start_time": at}),
    );
    make(
        "results",
        json!({"workflow_id": id, "job_id": job, "run_id": fixture.store.workflow(workflow).unwrap().unwrap().run_id.0,
            "completion_time": at, "compute_node_id": node, "exec_time_minutes": 1.0, "return_code": 0,
            "status": "completed"}),
    );
    parts
}

#[test]
fn resource_requests_are_bounded_like_those_of_a_spec() {
    let fixture = Fixture::new();
    let workflow = workflow_of(&fixture, "zoe");
    let set = parts_of(&fixture, workflow)["resource_requirements"];
    let fair = json!({"workflow_id": workflow.0, "name": "other", "num_cpus": 1_000_000, "num_gpus": 1_000_000,
        "num_nodes": 1_000_000, "memory": "1024t", "runtime": "P36500D"});
    let cases = [
        ("num_cpus", json!(1_000_001)),
        ("num_cpus", json!(u32::MAX)),
        ("num_cpus", json!(0)),
        ("num_gpus", json!(-1)),
        ("num_gpus", json!(i64::MAX)),
        ("num_nodes", json!(u32::MAX)),
        ("num_nodes", json!(0)),
        ("memory", json!("8000000t")),
        ("memory", json!("99999999999999t")),
        ("runtime", json!("P40000D")),
        ("runtime", json!("99999999999h")),
    ];
    for (field, value) in cases {
        let mut body = fair.clone();
        body[field] = value.clone();
        for (method, path) in [(Method::POST, String::new()), (Method::PUT, format!("/{set}"))] {
            let path = format!("/api/v1/resource_requirements{path}");
            let answer = fixture.request(method.clone(), &path).json(&body).send().unwrap();
            let (status, text) = (answer.status(), answer.text().unwrap());
            assert!(status == 422 && text.contains(field), "{method} {field} {value}: {status} {text}");
        }
    }
    let huge = Resources { nodes: u32::MAX, ..Resources::DEFAULT };
    for (method, args) in [
        ("add_requirements", json!({"workflow": workflow, "name": "huge", "resources": huge})),
        ("update_requirements", json!({"id": set, "update": {"resources": huge}})),
    ] {
        let question = json!({"method": method, "args": args});
        let answer = fixture.post("/api/v1/store").json(&question).send().unwrap();
        let (status, text) = (answer.status(), answer.text().unwrap());
        assert!(status.is_client_error() && text.contains("num_nodes"), "{method}: {status} {text}");
    }
    let answer = fixture.post("/api/v1/resource_requirements").json(&fair).send().unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text().unwrap());
}

#[test]
fn impossible_results_are_rejected() {
    let fixture = Fixture::new();
    let workflow = workflow_of(&fixture, "zoe");
    let parts = parts_of(&fixture, workflow);
    let of_this = json!({"workflow_id": workflow.0, "job_id": parts["jobs"], "run_id": 1, "return_code": 0,
        "completion_time": "2026-01-01T00:00:00Z", "compute_node_id": parts["compute_nodes"],
        "exec_time_minutes": 1.0, "status": "completed", "attempt_id": 1});
    let state = |field: &str, value: Value| {
        let mut body = of_this.clone();
        body[field] = value;
        let answer = fixture.post("/api/v1/results").json(&body).send().unwrap();
        (answer.status().as_u16(), answer.text().unwrap())
    };
    for (field, value) in [
        ("peak_memory_bytes", json!(-14807)),
        ("avg_memory_bytes", json!(-1)),
        ("attempt_id", json!(0)),
        ("status", json!("running")),
        // There is one of that attempt already.
        ("return_code", json!(1)),
    ] {
        let (status, text) = state(field, value);
        assert_eq!(status, 422, "{field}: {text}");
    }
    assert_eq!(state("attempt_id", json!(2)).0, 200);
}

#[test]
fn invalid_failure_rules_are_rejected() {
    let fixture = Fixture::new();
    let workflow = workflow_of(&fixture, "zoe");
    let make = |rules: &Value| {
        let body = json!({"workflow_id": workflow.0, "name": "net", "rules": rules.to_string()});
        let answer = fixture.post("/api/v1/failure_handlers").json(&body).send().unwrap();
        (answer.status().as_u16(), answer.json::<Value>().unwrap())
    };
    for (rules, said) in [
        (
            json!([{"stderr": ["re:("]}]),
            "rule 1 of failure handler `net`: `re:(` is not a regular expression",
        ),
        (json!([{"memory": "x0.5"}]), "a factor must be larger than 1"),
        (json!([{"classes": ["odd"]}]), "unknown variant `odd`"),
        (json!([{"exit_codes": [2]}, {"exit_code": [1]}]), "rules[1]: unknown field `exit_code`"),
    ] {
        let (status, answer) = make(&rules);
        assert_eq!(status, 422, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(said), "{answer}");
    }
    // Fields of Torc clients are returned unchanged, with our fields added.
    let rules = json!([{"exit_codes": [10], "max_retries": 3}, {"stderr": ["lost"], "delay": "PT10S", "max_retries": 2}]);
    let (status, answer) = make(&rules);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(serde_json::from_str::<Value>(answer["rules"].as_str().unwrap()).unwrap(), rules);
}

/// The object of a route, by the first noun of its path, and the path.
fn aimed(route: &Route, parts: &ObjectIds) -> Option<(String, String)> {
    let bare = route.template.strip_prefix("/api/v1/")?;
    let (noun, rest) = bare.split_once('/')?;
    let rest = rest.strip_prefix("{id}")?;
    let id = parts.get(noun)?;
    let mut path = format!("/api/v1/{noun}/{id}{rest}");
    let node = parts.get("compute_nodes").map(i64::to_string).unwrap_or_default();
    for (name, value) in
        [("{run_id}", "1"), ("{compute_node_id}", &*node), ("{status}", "completed"), ("{user_name}", "zoe")]
    {
        path = path.replace(name, value);
    }
    assert!(!path.contains('{'), "{path}");
    let needed: Vec<String> = route.required().map(|name| format!("{name}=1")).collect();
    if !needed.is_empty() {
        path = format!("{path}?{}", needed.join("&"));
    }
    Some((noun.to_owned(), path))
}

#[test]
fn objects_of_others_are_hidden() {
    let fixture = Fixture::new();
    let document: Value = fixture.get("/api/v1/openapi.json").send().unwrap().json().unwrap();
    let now = SystemClock.now();
    let (team, strangers) = (
        fixture.store.add_group("team", None, now).unwrap(),
        fixture.store.add_group("x", None, now).unwrap(),
    );
    let (other, shared) = (workflow_of(&fixture, "zoe"), workflow_of(&fixture, "zoe"));
    fixture.store.share_workflow(shared, team, now).unwrap();
    let zoe = token(&fixture, "zoe", UserRole::User, "admin");
    let url = |path: &str| format!("{}{path}", fixture.server.url);
    let request = fixture.client.post(url("/api/v1/workers")).bearer_auth(&zoe).json(&introduction());
    let welcome: RegistrationReply = request.send().unwrap().error_for_status().unwrap().json().unwrap();
    let (mut of_other, mut of_shared) = (parts_of(&fixture, other), parts_of(&fixture, shared));
    of_other.insert("workers", welcome.worker.0);
    of_other.insert("access_groups", strangers);
    of_shared.insert("access_groups", team);
    let mut checked = 0;
    for role in UserRole::ALL {
        let user = format!("{role}-person");
        fixture.store.add_member(team, &user, "member", now).unwrap();
        let token = token(&fixture, &user, role, "admin");
        for (workflow, relation, parts) in
            [(other, ObjectRelation::Other, &of_other), (shared, ObjectRelation::Shared, &of_shared)]
        {
            for route in routes(&document) {
                let RouteAccess::Requires(operation) = route.declared() else { continue };
                let Some((noun, path)) = aimed(&route, parts) else { continue };
                let access_decision = decide_access(operation, role, TokenScopes::ALL, relation);
                let expected = match access_decision {
                    // Permitted operations would be performed.
                    AccessDecision::Allow if route.method != "GET" => continue,
                    AccessDecision::Allow => 200,
                    AccessDecision::Hide => 404,
                    AccessDecision::ForbidRole | AccessDecision::ForbidScope => 403,
                };
                let body = if path.ends_with("/exchange") {
                    Some(json!(exchange(&welcome, 1, Vec::new(), Duration::ZERO)))
                } else {
                    route.body(&document, workflow)
                };
                let got = status(&fixture, &token, &route.method, &path, body.as_ref());
                assert_eq!(got, expected, "{role}, {relation:?} {noun}: {} {path}", route.method);
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "only {checked} were checked");
    for (noun, id) in of_other.iter().chain(&of_shared) {
        let there = fixture.get(&format!("/api/v1/{noun}/{id}")).send().unwrap().status();
        assert_eq!(there, 200, "rejected calls did not change {noun} {id}");
    }
    // Only its own user and operators may act for the worker.
    let said = json!(exchange(&welcome, 1, Vec::new(), Duration::ZERO));
    let path = format!("/api/v1/workers/{}/exchange", welcome.worker);
    assert_eq!(status(&fixture, &zoe, "POST", &path, Some(&said)), 200);
    assert_eq!(status(&fixture, &fixture.server.token, "POST", &path, Some(&said)), 200);
}

#[test]
fn only_admins_change_workflow_owners() {
    let fixture = Fixture::new();
    let group = fixture.store.add_group("team", None, SystemClock.now()).unwrap();
    fixture.store.add_member(group, "bob", "member", SystemClock.now()).unwrap();
    let workflow = workflow_of(&fixture, "zoe");
    fixture.store.share_workflow(workflow, group, SystemClock.now()).unwrap();
    let user = |name: &str| {
        let update = windlass_store::model::WorkflowUpdate { user: Some(name.into()), ..Default::default() };
        json!(windlass_store::rpc::StoreCall::UpdateWorkflow { id: workflow, update })
    };
    let ask = |by: &str, role, to: &str| {
        status(&fixture, &token(&fixture, by, role, "admin"), "POST", "/api/v1/store", Some(&user(to)))
    };
    assert_eq!(ask("bob", UserRole::User, "bob"), 403, "sharing does not transfer ownership");
    assert_eq!(ask("zoe", UserRole::User, "bob"), 403);
    assert_eq!(ask("otto", UserRole::Operator, "bob"), 403);
    assert_eq!(fixture.store.workflow(workflow).unwrap().unwrap().user, "zoe");
    assert_eq!(ask("adam", UserRole::Admin, "bob"), 200);
    assert_eq!(fixture.store.workflow(workflow).unwrap().unwrap().user, "bob");
}
