//! Every change that a user may make to its own objects, with the id of another user's object at each place of
//! the path and the body that holds an id. A foreign id is answered like an id that does not exist, and no row of
//! others changes.
//!
//! Routes, bodies and places come from the OpenAPI document.

use crate::access::{Route, routes, token};
use crate::foreign_objects::parts_of;
use crate::running_workflows::{introduction, workflow_of};
use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use windlass_auth::{AccessDecision, ObjectRelation, TokenScopes, UserRole, decide_access};
use windlass_server::route_policy::RouteAccess;

/// By the noun of its path, the id of one object of each kind.
pub(crate) type RouteObjectIds = BTreeMap<&'static str, i64>;

const MISSING_ID: i64 = 999_999;
const TIME: &str = "2026-01-01T00:00:00Z";

/// One object of each kind, of one user.
pub(crate) fn make_objects(fixture: &Fixture, user: &str, token: &str) -> RouteObjectIds {
    let workflow = workflow_of(fixture, user);
    let id = workflow.0;
    let mut ids: RouteObjectIds = parts_of(fixture, workflow).into_iter().collect();
    ids.insert("workflows", id);
    let make = |path: String, body: Value, field: &str| {
        let (status, answer) = send(fixture, token, "POST", &path, Some(&body));
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str::<Value>(&answer).unwrap()[field].as_i64().unwrap()
    };
    let handler = json!({"workflow_id": id, "name": "h", "rules": "[]"});
    ids.insert("failure_handlers", make("/api/v1/failure_handlers".into(), handler, "id"));
    let action = json!({"workflow_id": id, "trigger_type": "on_workflow_start", "action_type": "run_commands",
        "action_config": {"commands": ["true"]}});
    ids.insert("actions", make(format!("/api/v1/workflows/{id}/actions"), action, "id"));
    ids.insert("workers", make("/api/v1/workers".into(), json!(introduction()), "worker"));
    ids
}

fn send(fixture: &Fixture, token: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let request = fixture.client.request(method, format!("{}{path}", fixture.server.url)).bearer_auth(token);
    let request = if let Some(body) = body { request.json(body) } else { request };
    let answer = request.send().unwrap();
    (answer.status().as_u16(), answer.text().unwrap())
}

/// What objects the ids of a field are about.
fn noun_of_field(field: &str, template: &str) -> Option<&'static str> {
    Some(match field {
        "workflow_id" | "workflow" => "workflows",
        "job_id" | "job_ids" | "depends_on_job_ids" => "jobs",
        "file_id" | "input_file_ids" | "output_file_ids" => "files",
        "input_user_data_ids" | "output_user_data_ids" => "user_data",
        "resource_requirements_id" => "resource_requirements",
        "failure_handler_id" => "failure_handlers",
        "scheduler_id" | "scheduler_config_id" => "slurm_schedulers",
        "compute_node_id" | "executed_by" => "compute_nodes",
        "group_id" => "access_groups",
        "worker" => "workers",
        "id" => NOUNS.into_iter().find(|noun| template.split('/').any(|word| word == *noun))?,
        _ => return None,
    })
}

const NOUNS: [&str; 15] = [
    "actions",
    "compute_nodes",
    "events",
    "failure_handlers",
    "files",
    "jobs",
    "local_schedulers",
    "resource_requirements",
    "results",
    "ro_crate_entities",
    "slurm_schedulers",
    "user_data",
    "workers",
    "access_groups",
    "workflows",
];

/// The placeholders of a path that stand for ids, with their nouns.
fn path_places(template: &str) -> Vec<(&str, &'static str)> {
    let words: Vec<&str> = template.split('/').collect();
    let placed = words.windows(2).filter(|pair| pair[1].starts_with('{'));
    placed
        .filter_map(|pair| {
            let noun = match pair[1] {
                "{workflow_id}" => "workflows",
                "{compute_node_id}" => "compute_nodes",
                "{group_id}" => "access_groups",
                _ => NOUNS.into_iter().find(|noun| *noun == pair[0])?,
            };
            Some((pair[1], noun))
        })
        .collect()
}

/// Calls one route with the ids of `own`, except at one place.
struct Call<'a> {
    route: &'a Route,
    document: &'a Value,
    own: &'a RouteObjectIds,
    number: usize,
}

impl Call<'_> {
    fn path(&self, place: Option<(&str, i64)>) -> String {
        let mut path = String::new();
        let nouns: BTreeMap<&str, &str> = path_places(&self.route.template).into_iter().collect();
        for word in self.route.template.split('/').skip(1) {
            path.push('/');
            match word {
                _ if place.is_some_and(|(name, _)| name == word) => path += &place.unwrap().1.to_string(),
                "{status}" => path += "completed",
                "{user_name}" => path += "eve",
                "{limit}" | "{run_id}" => path.push('1'),
                _ if word.starts_with('{') => {
                    let id = nouns.get(word).and_then(|noun| self.own.get(noun)).copied();
                    path += &id.unwrap_or(MISSING_ID).to_string();
                }
                _ => path += word,
            }
        }
        self.route.with_query(&path, windlass_types::WorkflowId(self.own["workflows"]))
    }

    fn body(&self) -> Option<Value> {
        self.route.body_schema().map(|schema| self.sample("", schema, 0))
    }

    fn resolve<'s>(&'s self, schema: &'s Value) -> &'s Value {
        let one = [&schema["oneOf"], &schema["anyOf"], &schema["allOf"]]
            .into_iter()
            .find_map(|all| all.as_array()?.iter().find(|one| one.get("$ref").is_some()));
        match schema["$ref"].as_str().or_else(|| one?["$ref"].as_str()) {
            Some(name) => {
                let name = name.trim_start_matches("#/components/schemas/");
                self.resolve(&self.document["components"]["schemas"][name])
            }
            None => schema,
        }
    }

    /// What is required, with values that are accepted as far as names and types tell.
    fn sample(&self, name: &str, schema: &Value, depth: usize) -> Value {
        let named = match name {
            "start_time" | "completion_time" => json!(TIME),
            "memory" => json!("1m"),
            "runtime" => json!("PT1M"),
            "walltime" => json!("01:00:00"),
            "status" => json!("completed"),
            "rules" => json!("[]"),
            "return_code" | "timestamp" => json!(0),
            "trigger_type" => json!("on_workflow_start"),
            "action_type" => json!("run_commands"),
            "action_config" => json!({"commands": ["true"]}),
            "compute_node_type" => json!("local"),
            "name" => json!(format!("n{}", self.number)),
            _ => Value::Null,
        };
        if !named.is_null() {
            return named;
        }
        let id = noun_of_field(name, &self.route.template).and_then(|noun| self.own.get(noun));
        let schema = self.resolve(schema);
        if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
            return first.clone();
        }
        match type_of(schema) {
            Some("object") => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let field =
                    |name: &str| (name.to_owned(), self.sample(name, &schema["properties"][name], depth + 1));
                Value::Object(required.map(field).collect::<Map<_, _>>())
            }
            Some("array") if type_of(self.resolve(&schema["items"])) == Some("object") && depth < 3 => {
                json!([self.sample("", &schema["items"], depth + 1)])
            }
            Some("array") => json!([]),
            Some("integer" | "number") => json!(id.copied().unwrap_or(1)),
            Some("boolean") => json!(false),
            Some("string") => json!("x"),
            _ => json!({}),
        }
    }

    /// The places of a body that hold an id or a list of ids, also those that are not required: their JSON pointers.
    fn body_places(&self) -> Vec<(String, &'static str, bool)> {
        let mut places = Vec::new();
        if let (Some(schema), Some(body)) = (self.route.body_schema(), self.body()) {
            self.collect_places(schema, &body, "", &mut places);
        }
        places
    }

    fn collect_places(
        &self,
        schema: &Value,
        body: &Value,
        path: &str,
        places: &mut Vec<(String, &'static str, bool)>,
    ) {
        let schema = self.resolve(schema);
        for (n, one) in body.as_array().into_iter().flatten().enumerate() {
            self.collect_places(&schema["items"], one, &format!("{path}/{n}"), places);
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}/{name}");
            if let Some(value) = body.get(name).filter(|value| value.is_object() || value.is_array()) {
                self.collect_places(field, value, &path, places);
            }
            let field = self.resolve(field);
            let is_list = type_of(field) == Some("array") && type_of(&field["items"]) == Some("integer");
            let noun = noun_of_field(name, &self.route.template);
            if let Some(noun) = noun.filter(|_| is_list || type_of(field) == Some("integer")) {
                places.push((path, noun, is_list));
            }
        }
    }
}

/// Without `null`.
fn type_of(schema: &Value) -> Option<&str> {
    let of_many = || schema["type"].as_array()?.iter().filter_map(Value::as_str).find(|name| *name != "null");
    schema["type"].as_str().or_else(of_many)
}

/// The body with an id at a place.
fn with_id(body: &Value, pointer: &str, id: i64, is_list: bool) -> Value {
    let mut body = body.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap()[name] = if is_list { json!([id]) } else { json!(id) };
    body
}

/// All that a caller can tell a foreign id from a missing one by: the status, and the text without numbers.
fn told((status, text): (u16, String)) -> (u16, String) {
    let problem = serde_json::from_str::<Value>(&text).unwrap_or_default();
    let detail = problem["detail"].as_str().or_else(|| problem["message"].as_str()).unwrap_or_default();
    (status, if status < 400 { String::new() } else { detail.replace(|c: char| c.is_ascii_digit(), "") })
}

/// Returns the routes that were called and the number of calls; `check` compares the database.
pub(crate) fn send_foreign_ids(
    fixture: &Fixture,
    document: &Value,
    foreign: &RouteObjectIds,
    mut check: impl FnMut(&str),
) -> (usize, usize) {
    let eve = token(fixture, "eve", UserRole::User, "admin");
    let scopes = TokenScopes::parse_name("admin").unwrap();
    let mut own = make_objects(fixture, "eve", &eve);
    let (mut accepted, mut calls) = (BTreeSet::new(), 0);
    for route in routes(document) {
        let RouteAccess::Requires(operation) = route.declared() else { continue };
        let is_allowed =
            decide_access(operation, UserRole::User, scopes, ObjectRelation::Own) == AccessDecision::Allow;
        // Exchanges need the secret of their worker, and the methods of the store have a test of their own.
        if route.method == "GET" || !is_allowed || route.template.ends_with("/exchange") {
            continue;
        }
        if route.template.ends_with("/store") || route.template.ends_with("/mcp") {
            continue;
        }
        let name = format!("{} {}", route.method, route.template);
        let mut call =
            |own: &mut RouteObjectIds, place: Option<(&str, i64)>, at: Option<(&str, i64, bool)>| {
                calls += 1;
                let one = Call { route: &route, document, own, number: calls };
                let mut body = one.body();
                if let (Some(body), Some((pointer, id, is_list))) = (&mut body, at) {
                    *body = with_id(body, pointer, id, is_list);
                }
                let path = one.path(place);
                let answer = send(fixture, &eve, &route.method, &path, body.as_ref());
                assert!(answer.0 < 500, "{name}: {path} {body:?}: {answer:?}");
                if answer.0 < 300 {
                    // What it was about may have changed or be gone.
                    *own = make_objects(fixture, "eve", &eve);
                }
                answer
            };
        if call(&mut own, None, None).0 < 300 {
            accepted.insert(route.template.clone());
        }
        for (place, noun) in path_places(&route.template) {
            let Some(id) = foreign.get(noun) else { continue };
            let theirs = told(call(&mut own, Some((place, *id)), None));
            let none = told(call(&mut own, Some((place, MISSING_ID)), None));
            assert_eq!(theirs, none, "{name} tells a foreign {place} from a missing one");
            assert!(theirs.0 >= 400, "{name} accepts a foreign {place}");
        }
        let places = Call { route: &route, document, own: &own, number: 0 }.body_places();
        for (pointer, noun, is_list) in places {
            let Some(id) = foreign.get(noun) else { continue };
            let theirs = told(call(&mut own, None, Some((&pointer, *id, is_list))));
            let none = told(call(&mut own, None, Some((&pointer, MISSING_ID, is_list))));
            assert_eq!(theirs, none, "{name} tells a foreign {pointer} from a missing one");
        }
        check(&name);
    }
    (accepted.len(), calls)
}
