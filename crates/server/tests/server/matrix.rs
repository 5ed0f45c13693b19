//! The matrix: every route, called by every role with every scope, by a job and by a worker in an allocation, for
//! the objects of another user, and by members of a group for a workflow that is shared with them; on both
//! databases. A call that the policy refuses is answered 401, 403 or 404, and no row of the whole database
//! changes. An answer that is allowed holds nothing that the caller may not read.
//!
//! The routes come from the OpenAPI document and the expectations from the policy; `access.rs` holds the policy
//! against truths that are written by hand.

use crate::access::{Route, routes, status, token};
use crate::foreign_ids::{make_objects, send_foreign_ids};
use crate::foreign_objects::{ObjectIds, parts_of};
use crate::job_tokens::{say, welcome};
use crate::postgres_server;
use crate::request_operations::{self, held_as, run, write};
use crate::running_workflows::{begun_of, exchange, introduction, workflow_of};
use crate::secrets::questions;
use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass_api::job_token::{JobTokenClaims, JobTokenSubject, secret_hash};
use windlass_auth::{AccessDecision, ObjectRelation, TokenScopes, TokenSecret, UserRole, decide_access};
use windlass_core::requests::change::RequestChange;
use windlass_server::ServeOptions;
use windlass_server::route_policy::RouteAccess;
use windlass_store::maintenance::{ContentsReader, DatabaseContents};
use windlass_store::model::{JobFilter, NewTokenRow};
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::OpenMode;
use windlass_types::requests::RequestRunStatus;
use windlass_types::worker_protocol::RegistrationReply;
use windlass_types::{JobId, SystemClock, WorkflowId};

/// Part of every value of the victim that others may not read.
const MARK: &str = "readable-by-zoe-alone";
const SCOPES: [&str; 5] = ["read", "write", "worker", "agent", "admin"];

/// Nothing runs in the background while the database is compared.
fn quiet(options: &mut ServeOptions) {
    let never = Duration::from_hours(24);
    (options.request_poll_interval, options.requests.retry_after, options.lease) = (never, never, never);
}

#[test]
fn rejected_calls_change_nothing() {
    let fixture = Fixture::with(quiet);
    let location = fixture.dir.path().join("store.db");
    check(&fixture, location.to_str().unwrap());
}

#[test]
fn rejected_calls_change_nothing_on_postgres() {
    let database = postgres_server::database();
    let store = PgStore::open(&database.url(), OpenMode::ReadWrite).unwrap();
    let fixture = Fixture::on(Arc::new(store), quiet);
    check(&fixture, &database.url());
}

/// Objects of the user zoe.
struct ForeignObjects {
    workflow: WorkflowId,
    /// The callers' relation to the workflow.
    relation: ObjectRelation,
    parts: ObjectIds,
    worker: RegistrationReply,
    token: i64,
    group: i64,
    /// A run of her request.
    dag: String,
}

const DATASET: &str = "/Zoe/Own-v1/RAW";

/// Adds a file to her dataset, or changes where it is.
fn import(path: &str) -> Value {
    let file = json!({"lfn": "/store/zoe", "size": 10, "events": 5, "replicas": {"T2_Z": path}});
    json!({"dataset": DATASET, "files": [file]})
}

fn foreign_objects(fixture: &Fixture) -> ForeignObjects {
    let zoe = token(fixture, "zoe", UserRole::User, "admin");
    let workflow = workflow_of(fixture, "zoe");
    let send = |method: Method, path: &str, body: &Value| {
        let url = format!("{}{path}", fixture.server.url);
        let answer = fixture.client.request(method, url).bearer_auth(&zoe).json(body).send().unwrap();
        let (status, text) = (answer.status(), answer.text().unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let worker = send(Method::POST, "/api/v1/workers", &json!(introduction()));
    let made = send(Method::POST, "/api/v1/tokens", &json!({"name": MARK, "scopes": ["read"]}));
    let id = workflow.0;
    for (path, body) in [
        ("/api/v1/jobs", json!({"workflow_id": id, "name": "secretive", "command": MARK})),
        ("/api/v1/user_data", json!({"workflow_id": id, "name": "d", "data": {"x": MARK}})),
        ("/api/v1/events", json!({"workflow_id": id, "timestamp": 0, "data": {"x": MARK}})),
        ("/api/v1/failure_handlers", json!({"workflow_id": id, "name": MARK, "rules": "[]"})),
    ] {
        send(Method::POST, path, &body);
    }
    let mut request = request_operations::document("of_zoe");
    request["requestor"] = json!("zoe");
    // Her worker would otherwise start it before it is held.
    request["site_whitelist"] = json!(["T2_NOWHERE"]);
    request["payload_config"] = json!({"steps": [{"name": "GEN", "command": MARK}]});
    let process = held_as(fixture, "of_zoe", &request);
    let dag = run(&process, RequestRunStatus::Partial);
    let id = dag.uuid.clone();
    write(fixture, "of_zoe", vec![RequestChange::AddRun(Box::new(dag))]);
    send(Method::POST, "/api/v1/catalog/import", &import("/data/of/zoe"));
    let group = fixture.store.add_group(MARK, None, SystemClock.now()).unwrap();
    ForeignObjects {
        workflow,
        relation: ObjectRelation::Other,
        dag: id,
        parts: parts_of(fixture, workflow),
        worker: serde_json::from_value(worker).unwrap(),
        token: made["about"]["id"].as_i64().unwrap(),
        group,
    }
}

impl ForeignObjects {
    /// The path of a route for an object of zoe, and the caller's relation to it; `Own` without an object.
    fn aim(&self, route: &Route) -> (String, ObjectRelation) {
        let mut path = route.template.clone();
        let mut relation = ObjectRelation::Own;
        let mut put = |from: &str, to: &str, is: ObjectRelation| {
            if path.contains(from) {
                path = path.replace(from, to);
                relation = is;
            }
        };
        let (other, of_workflow) = (ObjectRelation::Other, self.relation);
        put("/requests/{name}", "/requests/of_zoe", ObjectRelation::Shared);
        put("/dags/{id}", &format!("/dags/{}", self.dag), ObjectRelation::Shared);
        put("/workflows/{id}", &format!("/workflows/{}", self.workflow), of_workflow);
        put("{workflow_id}", &self.workflow.to_string(), of_workflow);
        put("/workers/{id}", &format!("/workers/{}", self.worker.worker), other);
        put("/access_groups/{id}", &format!("/access_groups/{}", self.group), other);
        put("/tokens/{id}", &format!("/tokens/{}", self.token), other);
        for (noun, id) in &self.parts {
            put(&format!("/{noun}/{{id}}"), &format!("/{noun}/{id}"), of_workflow);
        }
        if route.is_about_a_workflow() {
            relation = of_workflow;
        }
        for (name, value) in [
            ("{run_id}", "1"),
            ("{status}", "completed"),
            ("{user_name}", "zoe"),
            ("{group_id}", &*self.group.to_string()),
            ("{compute_node_id}", &*self.parts["compute_nodes"].to_string()),
        ] {
            path = path.replace(name, value);
        }
        while let (Some(start), Some(end)) = (path.find('{'), path.find('}')) {
            path.replace_range(start..=end, "1");
        }
        (route.with_query(&path, self.workflow), relation)
    }

    fn body(&self, route: &Route, document: &Value) -> Option<Value> {
        if route.template.ends_with("/exchange") {
            return Some(json!(exchange(&self.worker, 1, Vec::new(), Duration::ZERO)));
        }
        route.body(document, self.workflow)
    }
}

/// A credential of another user.
struct MatrixCaller {
    name: String,
    role: UserRole,
    scopes: TokenScopes,
    token: String,
}

/// Users with each role and scope, whose names begin with the prefix.
fn make_callers(fixture: &Fixture, roles: &[UserRole], prefix: &str) -> Vec<MatrixCaller> {
    let all = roles.iter().flat_map(|role| SCOPES.map(|scope| (*role, scope)));
    let caller = |(role, scope): (UserRole, &str)| {
        let name = format!("{prefix}{role}-{scope}");
        let token = token(fixture, &name, role, scope);
        MatrixCaller { name, role, scopes: TokenScopes::parse_name(scope).unwrap(), token }
    };
    all.map(caller).collect()
}

/// A running job of another user, and a worker in an allocation of another user.
fn make_bound_callers(fixture: &Fixture) -> Vec<MatrixCaller> {
    let bob = token(fixture, "bob", UserRole::User, "admin");
    let workflow = begun_of(fixture, "bob", 1);
    let worker = welcome(fixture, &bob, &introduction());
    let keys = say(fixture, &bob, &worker, 1, Vec::new());
    let [key] = keys[..] else { panic!("{keys:?}") };
    let claim = JobTokenClaims { worker: worker.worker, work: JobTokenSubject::Job(key) };
    let secret = TokenSecret::random().unwrap();
    let new = NewTokenRow {
        hash: secret.hash().to_string(),
        name: "allocation 7".into(),
        user: "bob".into(),
        role: "user".into(),
        scopes: vec![format!("allocation:7:{workflow}")],
        expires_at: None,
    };
    fixture.store.add_token(&new, SystemClock.now()).unwrap();
    let caller = |name: &str, scopes, token| MatrixCaller {
        name: name.to_owned(),
        role: UserRole::User,
        scopes,
        token,
    };
    vec![
        caller("job", TokenScopes::JOB, claim.sign(&secret_hash(&worker.secret))),
        caller("allocation", TokenScopes::ALLOCATION, secret.reveal().to_owned()),
    ]
}

fn check(fixture: &Fixture, location: &str) {
    let document: Value = fixture.get("/api/v1/openapi.json").send().unwrap().json().unwrap();
    let mut foreign_objects = foreign_objects(fixture);
    let mut callers = make_callers(fixture, &UserRole::ALL, "");
    callers.extend(make_bound_callers(fixture));
    let reader = ContentsReader::open(location).unwrap();
    let (mut refused, mut read) = call_all_routes(fixture, &document, &foreign_objects, &callers, &reader);
    // The same for members of a group with which zoe shares the workflow.
    let members = make_callers(fixture, &[UserRole::Viewer, UserRole::User], "member-");
    let shared = fixture.store.add_group("shared", None, SystemClock.now()).unwrap();
    for MatrixCaller { name, .. } in &members {
        fixture.store.add_member(shared, name, "member", SystemClock.now()).unwrap();
    }
    fixture.store.share_workflow(foreign_objects.workflow, shared, SystemClock.now()).unwrap();
    foreign_objects.relation = ObjectRelation::Shared;
    let (refused_to_members, read_by_members) =
        call_all_routes(fixture, &document, &foreign_objects, &members, &reader);
    assert!(read_by_members > read / 4, "{read_by_members}: members may read it");
    fixture.store.unshare_workflow(foreign_objects.workflow, shared, SystemClock.now()).unwrap();
    foreign_objects.relation = ObjectRelation::Other;
    (refused, read) = (refused + refused_to_members, read + read_by_members);
    let before = contents(&reader);
    for route in routes(&document) {
        if route.declared() != RouteAccess::Public {
            let (path, _) = foreign_objects.aim(&route);
            let method = Method::from_bytes(route.method.as_bytes()).unwrap();
            let request = fixture.client.request(method, format!("{}{path}", fixture.server.url));
            let body = foreign_objects.body(&route, &document);
            let request = if let Some(body) = body { request.json(&body) } else { request };
            assert_eq!(request.send().unwrap().status(), 401, "{} {path}", route.method);
            refused += 1;
        }
    }
    assert_unchanged(&before, &contents(&reader), "without a credential");
    mix_own_with_foreign(fixture, &foreign_objects, &reader);
    let zoe = token(fixture, "zoe", UserRole::User, "admin");
    let mut foreign = make_objects(fixture, "zoe", &zoe);
    foreign.insert("access_groups", foreign_objects.group);
    let before = contents(&reader);
    let (accepted, calls) = send_foreign_ids(fixture, &document, &foreign, |route| {
        assert_kept(&before, &contents(&reader), route);
    });
    eprintln!(
        "matrix: {calls} calls with ids of own and foreign objects; {accepted} routes accepted their own"
    );
    assert!(accepted > 40 && calls > 300, "{accepted} and {calls}: the bodies are not accepted any more");
    eprintln!(
        "matrix: {} callers, {refused} calls refused, {read} answers read",
        callers.len() + members.len() + 1
    );
    assert!(refused > 2000 && read > 500, "{refused} and {read}: the matrix has lost its routes");
}

/// The numbers of calls that were refused, and of answers that were read.
fn call_all_routes(
    fixture: &Fixture,
    document: &Value,
    foreign_objects: &ForeignObjects,
    callers: &[MatrixCaller],
    reader: &ContentsReader,
) -> (usize, usize) {
    let before = contents(reader);
    let (mut refused, mut read) = (0, 0);
    for MatrixCaller { name, role, scopes, token } in callers {
        for route in routes(document) {
            let RouteAccess::Requires(operation) = route.declared() else { continue };
            // Store calls have their objects in the body; see below. Streams do not end.
            if route.template.ends_with("/store") || route.template.ends_with("/stream") {
                continue;
            }
            let (path, mut relation) = foreign_objects.aim(&route);
            let body = foreign_objects.body(&route, document);
            if body.as_ref().is_some_and(|body| body.get("workflow_id").is_some()) {
                relation = foreign_objects.relation;
            }
            let access_decision = decide_access(operation, *role, *scopes, relation);
            let what = format!("{name}: {} {path} ({operation:?})", route.method);
            if access_decision != AccessDecision::Allow {
                let got = status(fixture, token, &route.method, &path, body.as_ref());
                assert!([403, 404].contains(&got), "{what} gave {got}");
                refused += 1;
            } else if route.method == "GET" {
                let url = format!("{}{path}", fixture.server.url);
                let answer = fixture.client.get(url).bearer_auth(token).send().unwrap();
                let (got, text) = (answer.status().as_u16(), answer.text().unwrap());
                assert!(got < 500 && got != 401, "{what} gave {got}: {text}");
                let may_know =
                    *role >= UserRole::Operator || foreign_objects.relation == ObjectRelation::Shared;
                assert!(may_know || !text.contains(MARK), "{what} told {text}");
                read += 1;
            }
        }
        if *role < UserRole::Operator {
            let dataset = format!("/api/v1/catalog/dataset?name={DATASET}");
            for (method, path, body) in
                [("POST", "/api/v1/catalog/import", Some(import("/of/others"))), ("DELETE", &dataset, None)]
            {
                let got = status(fixture, token, method, path, body.as_ref());
                assert!([403, 404].contains(&got), "{name}: {method} {path} gave {got}");
                refused += 1;
            }
        }
        if foreign_objects.relation == ObjectRelation::Other {
            refused += call_store_methods(fixture, foreign_objects, *role, token);
        }
        assert_unchanged(&before, &contents(reader), name);
    }
    (refused, read)
}

/// Every query and one change of each type, through the store route.
fn call_store_methods(
    fixture: &Fixture,
    foreign_objects: &ForeignObjects,
    role: UserRole,
    token: &str,
) -> usize {
    if role >= UserRole::Operator {
        return 0;
    }
    let job = JobId(foreign_objects.parts["jobs"]);
    let mut asked = 0;
    for question in questions(foreign_objects.workflow, job) {
        let url = format!("{}/api/v1/store", fixture.server.url);
        let answer = fixture.client.post(url).bearer_auth(token).json(&question).send().unwrap();
        let (got, text) = (answer.status().as_u16(), answer.text().unwrap());
        assert!([200, 403, 404].contains(&got), "{role}: {} gave {got}: {text}", question.method());
        assert!(!text.contains(MARK), "{role}: {} told {text}", question.method());
        asked += 1;
    }
    for (method, args) in changes(foreign_objects, foreign_objects.workflow) {
        let body = json!({"method": method, "args": args});
        let got = status(fixture, token, "POST", "/api/v1/store", Some(&body));
        assert!([403, 404].contains(&got), "{role}: {method} gave {got}");
        asked += 1;
    }
    asked
}

/// Changes of the victim's objects; `workflow` may be another one, the caller's own.
fn changes(foreign_objects: &ForeignObjects, workflow: WorkflowId) -> Vec<(&'static str, Value)> {
    let part = |noun: &str| foreign_objects.parts[noun];
    vec![
        ("begin_next_run", json!({"workflow": workflow, "again": [part("jobs")]})),
        ("request_cancel", json!({"workflow": workflow})),
        ("update_workflow", json!({"id": workflow, "update": {"name": "mine"}})),
        ("archive", json!({"ids": [workflow, foreign_objects.workflow], "is_archived": true})),
        ("delete_workflow", json!({"id": workflow})),
        ("change_priorities", json!({"workflow": workflow, "changes": [[0, 1]]})),
        ("delete_jobs", json!({"workflow": workflow, "jobs": [part("jobs")]})),
        ("update_job", json!({"workflow": workflow, "job": part("jobs"), "update": {"name": "mine"}})),
        ("set_user_data", json!({"id": part("user_data"), "data": {"mine": 1}})),
        ("delete_user_data", json!({"id": part("user_data")})),
        ("add_file", json!({"workflow": workflow, "name": "n", "path": "p"})),
        ("delete_file", json!({"id": part("files")})),
        ("delete_requirements", json!({"id": part("resource_requirements")})),
        ("retry_action", json!({"workflow": workflow, "id": 1})),
        ("delete_result", json!({"id": part("results")})),
        ("delete_event", json!({"id": part("events")})),
        ("delete_scheduler", json!({"id": part("slurm_schedulers")})),
        ("rearm_unstarted", json!({"workflow": workflow})),
    ]
}

/// A caller names its own workflow together with objects of another user's: those do not change.
fn mix_own_with_foreign(fixture: &Fixture, foreign_objects: &ForeignObjects, reader: &ContentsReader) {
    let before = contents(reader);
    let eve = token(fixture, "eve", UserRole::User, "admin");
    let mut own: Vec<WorkflowId> = Vec::new();
    for (method, _) in changes(foreign_objects, foreign_objects.workflow) {
        let workflow = workflow_of(fixture, "eve");
        own.push(workflow);
        let args =
            changes(foreign_objects, workflow).into_iter().find(|(name, _)| *name == method).unwrap().1;
        status(fixture, &eve, "POST", "/api/v1/store", Some(&json!({"method": method, "args": args})));
    }
    let workflow = workflow_of(fixture, "eve");
    let parts = parts_of(fixture, workflow);
    let (id, foreign) = (workflow.0, |noun: &str| foreign_objects.parts[noun]);
    let at = "2026-01-01T00:00:00Z";
    for (method, path, body) in [
        (
            "POST",
            "/api/v1/results".to_owned(),
            json!({"workflow_id": id, "job_id": foreign("jobs"), "run_id": 1, "attempt_id": 9, "return_code": 0,
                "completion_time": at, "compute_node_id": parts["compute_nodes"], "exec_time_minutes": 1.0,
                "status": "completed"}),
        ),
        (
            "PUT",
            format!("/api/v1/jobs/{}", foreign("jobs")),
            json!({"workflow_id": id, "name": "mine", "command": "true"}),
        ),
        (
            "POST",
            "/api/v1/jobs".to_owned(),
            json!({"workflow_id": id, "name": "reads", "command": "true", "input_file_ids": [foreign("files")],
                "depends_on_job_ids": [foreign("jobs")],
                "resource_requirements_id": foreign("resource_requirements")}),
        ),
        (
            "PUT",
            format!("/api/v1/jobs/{}/start_job/1/{}", parts["jobs"], foreign("compute_nodes")),
            json!({}),
        ),
        (
            "POST",
            format!("/api/v1/workflows/{workflow}/batch_complete_jobs"),
            json!({"completions": [{"job_id": foreign("jobs"), "status": "completed", "run_id": 1}]}),
        ),
        ("POST", format!("/api/v1/workflows/{workflow}/access_groups/{}", foreign_objects.group), json!({})),
    ] {
        status(fixture, &eve, method, &path, Some(&body));
    }
    assert_kept(&before, &contents(reader), "a change of its own workflow");
    let jobs = fixture.store.jobs(workflow, &JobFilter::default()).unwrap();
    let foreign_name = |name: &str| name == "secretive";
    assert!(!jobs.iter().any(|job| foreign_name(&job.name)), "{jobs:?}");
}

/// Rows of others are as they were, also if eve has added rows.
fn assert_kept(before: &DatabaseContents, after: &DatabaseContents, call: &str) {
    // The next free ids, and the slots that the workers of all users have at a site, are shared.
    for (table, rows) in before.iter().filter(|(table, _)| !["counter", "site"].contains(&table.as_str())) {
        let lost: Vec<_> = rows.iter().filter(|row| after[table].binary_search(row).is_err()).collect();
        assert!(lost.is_empty(), "rows of {table} were changed by eve with {call}: {lost:#?}");
    }
}

/// Periodic writes of the server itself: last use of tokens, and its heartbeat.
const ITS_OWN: [&str; 2] = ["api_token", "server_epoch"];

/// All rows of all other tables.
fn contents(reader: &ContentsReader) -> DatabaseContents {
    let mut all = reader.read().unwrap();
    all.retain(|table, _| !ITS_OWN.contains(&table.as_str()));
    for row in all.get_mut("site").into_iter().flatten() {
        // How many slots its workers have, and when the server counted them.
        let mut fields: Vec<&str> = row.split(',').collect();
        fields.remove(3);
        fields.pop();
        *row = fields.join(",");
    }
    all
}

fn assert_unchanged(before: &DatabaseContents, after: &DatabaseContents, caller: &str) {
    for (table, rows) in before {
        let gone: Vec<_> = rows.iter().filter(|row| !after[table].contains(row)).collect();
        let new: Vec<_> = after[table].iter().filter(|row| !rows.contains(row)).collect();
        assert!(gone.is_empty() && new.is_empty(), "{caller} changed {table}: -{gone:#?} +{new:#?}");
    }
}
