//! Authentication and permissions: every route, with every role, for own, shared and others' objects.
//!
//! The routes are taken from the OpenAPI document, so that new ones are included. The expectations come from
//! the policy; the cases at the end are written by hand.

use crate::running_workflows::workflow_of;
use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::{Value, json};
use windlass_auth::{AccessDecision, AuthOperation, ObjectRelation, TokenScopes, UserRole, decide_access};
use windlass_server::route_policy::{RouteAccess, route_access};
use windlass_types::{SystemClock, WorkflowId};

const API: &str = "/api/v1";

/// A token for a user, created by the owner.
pub(crate) fn token(fixture: &Fixture, user: &str, role: UserRole, scope: &str) -> String {
    let asked = json!({"name": "test", "user": user, "role": role.name(), "scopes": [scope]});
    let made = fixture.post("/api/v1/tokens").json(&asked).send().unwrap();
    assert_eq!(made.status(), 200, "{:?}", made.text());
    made.json::<Value>().unwrap()["token"].as_str().unwrap().to_owned()
}

/// Another workflow of the same user, shared with the same group if this one is.
fn like(fixture: &Fixture, workflow: WorkflowId, group: i64, relation: ObjectRelation) -> WorkflowId {
    let user = fixture.store.workflow(workflow).unwrap().unwrap().user;
    let new = workflow_of(fixture, &user);
    if relation == ObjectRelation::Shared {
        fixture.store.share_workflow(new, group, SystemClock.now()).unwrap();
    }
    new
}

pub(crate) fn status(fixture: &Fixture, token: &str, method: &str, path: &str, body: Option<&Value>) -> u16 {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let mut request =
        fixture.client.request(method, format!("{}{path}", fixture.server.url)).bearer_auth(token);
    if let Some(body) = body {
        request = request.json(body);
    }
    request.send().unwrap().status().as_u16()
}

/// The path of an operation filled in for a workflow, and a body.
pub(crate) struct Route {
    pub(crate) method: String,
    pub(crate) template: String,
    item: Value,
}

pub(crate) fn routes(document: &Value) -> Vec<Route> {
    let mut all = Vec::new();
    for (template, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if ["get", "put", "post", "patch", "delete"].contains(&method.as_str()) {
                let (method, template) = (method.to_uppercase(), template.clone());
                all.push(Route { method, template, item: operation.clone() });
            }
        }
    }
    all
}

impl Route {
    pub(crate) fn declared(&self) -> RouteAccess {
        route_access(&self.method, &self.template)
            .unwrap_or_else(|| panic!("{} {}", self.method, self.template))
    }

    /// Whether it concerns one workflow named in its path or query, so that the owner of the workflow decides.
    pub(crate) fn is_about_a_workflow(&self) -> bool {
        self.template.contains("/workflows/{id}")
            || self.template.contains("{workflow_id}")
            || self.query().any(|name| name == "workflow_id")
    }

    /// The path with the required query parameters, for this workflow.
    pub(crate) fn with_query(&self, path: &str, workflow: WorkflowId) -> String {
        let value = |name: &str| if name == "workflow_id" { workflow.0 } else { 1 };
        let mut names: Vec<&str> = self.required().collect();
        if self.query().any(|name| name == "workflow_id") && !names.contains(&"workflow_id") {
            names.push("workflow_id");
        }
        let query: Vec<String> = names.into_iter().map(|name| format!("{name}={}", value(name))).collect();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }

    /// The required query parameters.
    pub(crate) fn required(&self) -> impl Iterator<Item = &str> {
        let parameters = self.item["parameters"].as_array().into_iter().flatten();
        parameters
            .filter(|parameter| parameter["in"] == "query" && parameter["required"] == true)
            .filter_map(|parameter| parameter["name"].as_str())
    }

    fn query(&self) -> impl Iterator<Item = &str> {
        let parameters = self.item["parameters"].as_array().into_iter().flatten();
        parameters
            .filter(|parameter| parameter["in"] == "query")
            .filter_map(|parameter| parameter["name"].as_str())
    }

    pub(crate) fn path(&self, workflow: WorkflowId) -> String {
        let mut path = self.template.replace("/workflows/{id}", &format!("/workflows/{workflow}"));
        path = path.replace("{workflow_id}", &workflow.to_string());
        for (name, value) in [("{status}", "completed"), ("{user_name}", "unknown")] {
            path = path.replace(name, value);
        }
        // All other ids and names are of missing objects. For existing ones see `parts.rs`.
        while let (Some(start), Some(end)) = (path.find('{'), path.find('}')) {
            path.replace_range(start..=end, "999999");
        }
        if self.query().any(|name| name == "workflow_id") {
            path = format!("{path}?workflow_id={workflow}");
        }
        path
    }

    pub(crate) fn body_schema(&self) -> Option<&Value> {
        Some(&self.item["requestBody"]["content"]["application/json"]["schema"])
            .filter(|schema| !schema.is_null())
    }

    pub(crate) fn body(&self, document: &Value, workflow: WorkflowId) -> Option<Value> {
        let schema = &self.item["requestBody"]["content"]["application/json"]["schema"];
        (!schema.is_null()).then(|| sample(document, schema, workflow))
    }
}

/// The smallest value that fits a schema.
fn sample(document: &Value, schema: &Value, workflow: WorkflowId) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches("#/components/schemas/");
        return sample(document, &document["components"]["schemas"][name], workflow);
    }
    if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
        return first.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"].as_array()?.first()?.as_str());
    match kind {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let field = |name: &str| match name {
                "workflow_id" => json!(workflow.0),
                _ => sample(document, &schema["properties"][name], workflow),
            };
            required.map(|name| (name.to_owned(), field(name))).collect::<serde_json::Map<_, _>>().into()
        }
        Some("array") => json!([]),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(false),
        Some("string") => json!("x"),
        _ => json!({}),
    }
}

#[test]
fn missing_and_wrong_credentials_are_rejected() {
    let fixture = Fixture::new();
    let document: Value = fixture.get("/api/v1/openapi.json").send().unwrap().json().unwrap();
    let workflow = workflow_of(&fixture, "ana");
    for route in routes(&document) {
        let path = route.path(workflow);
        let method = Method::from_bytes(route.method.as_bytes()).unwrap();
        let request = || fixture.client.request(method.clone(), format!("{}{path}", fixture.server.url));
        let expected = if route.declared() == RouteAccess::Public { 200 } else { 401 };
        assert_eq!(request().send().unwrap().status(), expected, "{} {path}", route.method);
        if expected == 401 {
            for header in ["Bearer wl_wrong", "Bearer a.b.c", "Basic !", "Negotiate x", "wl"] {
                let answer = request().header("authorization", header).send().unwrap();
                assert_eq!(answer.status(), 401, "{} {path} {header}", route.method);
                assert!(answer.headers().contains_key("www-authenticate"));
            }
        }
    }
}

#[test]
fn every_route_enforces_role_and_ownership() {
    let fixture = Fixture::new();
    let document: Value = fixture.get("/api/v1/openapi.json").send().unwrap().json().unwrap();
    let group = fixture.store.add_group("team", None, SystemClock.now()).unwrap();
    let (other, shared) = (workflow_of(&fixture, "zoe"), workflow_of(&fixture, "zoe"));
    fixture.store.share_workflow(shared, group, SystemClock.now()).unwrap();
    let mut checked = 0;
    for role in UserRole::ALL {
        let user = format!("{role}-person");
        fixture.store.add_member(group, &user, "member", SystemClock.now()).unwrap();
        let token = token(&fixture, &user, role, "admin");
        let own = workflow_of(&fixture, &user);
        for (workflow, relation) in
            [(other, ObjectRelation::Other), (shared, ObjectRelation::Shared), (own, ObjectRelation::Own)]
        {
            for route in routes(&document) {
                let RouteAccess::Requires(operation) = route.declared() else { continue };
                let seen = if route.is_about_a_workflow() { relation } else { ObjectRelation::Own };
                let access_decision = decide_access(operation, role, TokenScopes::ALL, seen);
                if route.template.ends_with("/stream") {
                    continue;
                }
                // Permitted operations are performed, so they get a workflow that nothing else uses.
                let changes = access_decision == AccessDecision::Allow && route.method != "GET";
                if changes && !route.is_about_a_workflow() {
                    continue;
                }
                let workflow = if changes { like(&fixture, workflow, group, relation) } else { workflow };
                let path = route.path(workflow);
                let got =
                    status(&fixture, &token, &route.method, &path, route.body(&document, workflow).as_ref());
                let what =
                    format!("{role}, {relation:?}: {} {path} ({operation:?}) gave {got}", route.method);
                match access_decision {
                    AccessDecision::Allow if route.is_about_a_workflow() && !path.contains("999999") => {
                        assert!(![401, 403, 404, 500].contains(&got), "{what}");
                    }
                    AccessDecision::Allow => assert!(![401, 403, 500].contains(&got), "{what}"),
                    AccessDecision::Hide => assert_eq!(got, 404, "{what}"),
                    AccessDecision::ForbidRole | AccessDecision::ForbidScope => {
                        assert_eq!(got, 403, "{what}");
                    }
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 4 * routes(&document).len(), "only {checked} were checked");
    for workflow in [other, shared] {
        let row = fixture.store.workflow(workflow).unwrap().unwrap();
        assert_eq!((row.name.as_str(), row.user.as_str()), ("w", "zoe"), "rejected calls changed nothing");
    }
}

/// Written by hand: not read from any table.
#[test]
fn roles_and_scopes_have_expected_access() {
    let fixture = Fixture::new();
    let anas = workflow_of(&fixture, "ana");
    let start = format!("{API}/workflows/{anas}/start");
    let call = |user: &str, role, scope: &str, method: &str, path: &str| {
        status(&fixture, &token(&fixture, user, role, scope), method, path, None)
    };
    assert_eq!(call("bob", UserRole::User, "admin", "POST", &start), 404, "others' workflows are hidden");
    assert_eq!(
        call("bob", UserRole::Viewer, "admin", "POST", &start),
        403,
        "a viewer cannot start workflows"
    );
    assert_eq!(call("ana", UserRole::Viewer, "admin", "POST", &start), 403, "not even an own one");
    assert_eq!(
        call("ana", UserRole::User, "read", "POST", &start),
        403,
        "a read-only token cannot start workflows"
    );
    assert_eq!(call("ana", UserRole::User, "worker", "POST", &start), 403);
    assert_eq!(call("ana", UserRole::Admin, "write", "POST", &format!("{API}/admin/reload-auth")), 403);
    assert_eq!(call("otto", UserRole::Operator, "admin", "POST", &format!("{API}/admin/reload-auth")), 403);
    assert_eq!(call("adam", UserRole::Admin, "admin", "POST", &format!("{API}/admin/reload-auth")), 200);
    assert_eq!(call("adam", UserRole::Admin, "admin", "GET", &format!("{API}/tokens?all=true")), 200);
    assert_eq!(call("otto", UserRole::Operator, "admin", "GET", &format!("{API}/tokens?all=true")), 403);
    assert_eq!(call("bob", UserRole::User, "admin", "GET", &format!("{API}/tokens?user=ana")), 404);
    assert_eq!(call("bob", UserRole::User, "read", "GET", "/metrics"), 200);
    assert_eq!(
        call("bob", UserRole::User, "write", "POST", &format!("{API}/workers")),
        403,
        "requires the scope worker"
    );
}

#[test]
fn token_cannot_create_a_stronger_token() {
    let fixture = Fixture::new();
    let make = |by: &str, asked: Value| status(&fixture, by, "POST", "/api/v1/tokens", Some(&asked));
    let ana = token(&fixture, "ana", UserRole::User, "write");
    assert_eq!(make(&ana, json!({"name": "t", "scopes": ["read"]})), 200);
    assert_eq!(make(&ana, json!({"name": "t", "scopes": ["admin"]})), 403);
    assert_eq!(make(&ana, json!({"name": "t", "scopes": ["read"], "role": "admin"})), 403);
    assert_eq!(make(&ana, json!({"name": "t", "scopes": ["read"], "user": "bob"})), 403);
    assert_eq!(make(&ana, json!({"name": "t", "scopes": []})), 403);
    assert_eq!(make(&ana, json!({"name": "t", "scopes": ["everything"]})), 422);
    assert_eq!(make(&ana, json!({"name": "", "scopes": ["read"]})), 422);
    let reader = token(&fixture, "ana", UserRole::User, "read");
    assert_eq!(make(&reader, json!({"name": "t", "scopes": ["read"]})), 403);
}

#[test]
fn revoked_token_is_rejected_at_once() {
    let fixture = Fixture::new();
    let ana = token(&fixture, "ana", UserRole::User, "write");
    let me: Value = fixture
        .client
        .get(format!("{}/api/v1/me", fixture.server.url))
        .bearer_auth(&ana)
        .send()
        .unwrap()
        .json()
        .unwrap();
    assert_eq!((&me["user"], &me["role"], &me["how"]), (&json!("ana"), &json!("user"), &json!("token")));
    let list: Value = fixture.get("/api/v1/tokens?user=ana").send().unwrap().json().unwrap();
    let id = &list["items"][0]["id"];
    assert!(!list.to_string().contains(&ana), "the secret is not stored");
    let bob = token(&fixture, "bob", UserRole::User, "write");
    let path = format!("/api/v1/tokens/{id}");
    assert_eq!(status(&fixture, &bob, "DELETE", &path, None), 404, "others' tokens are hidden");
    assert_eq!(status(&fixture, &ana, "DELETE", &path, None), 200);
    assert_eq!(status(&fixture, &ana, "GET", "/api/v1/me", None), 401);
}

#[test]
fn user_or_admin_revokes_all_tokens_of_the_user() {
    let fixture = Fixture::new();
    let of_ana = ["read", "write", "worker"].map(|scope| token(&fixture, "ana", UserRole::User, scope));
    let bob = token(&fixture, "bob", UserRole::User, "admin");
    let path = "/api/v1/tokens?user=ana";
    assert_eq!(status(&fixture, &bob, "DELETE", path, None), 404, "others' tokens are hidden");
    assert_eq!(status(&fixture, &of_ana[2], "DELETE", path, None), 403, "a worker revokes nothing");
    for token in &of_ana {
        assert_eq!(status(&fixture, token, "GET", "/api/v1/me", None), 200);
    }
    let admin = token(&fixture, "root", UserRole::Admin, "admin");
    assert_eq!(status(&fixture, &admin, "DELETE", path, None), 200);
    for token in &of_ana {
        assert_eq!(status(&fixture, token, "GET", "/api/v1/me", None), 401);
    }
    assert_eq!(status(&fixture, &bob, "GET", "/api/v1/me", None), 200, "others keep theirs");
}

#[test]
fn password_guessing_is_throttled() {
    let fixture = Fixture::new();
    let guess = || {
        let request =
            fixture.client.get(format!("{}/api/v1/me", fixture.server.url)).basic_auth("ana", Some("x"));
        request.send().unwrap()
    };
    for _ in 0..5 {
        assert_eq!(guess().status(), 401);
    }
    let slowed = guess();
    assert_eq!(slowed.status(), 429);
    assert!(slowed.headers().contains_key("retry-after"));
}

#[test]
fn odd_paths_do_not_bypass_permissions() {
    let fixture = Fixture::new();
    let workflow = workflow_of(&fixture, "zoe");
    let ana = token(&fixture, "ana", UserRole::User, "admin");
    for path in [
        format!("/api/v1//workflows/{workflow}/start"),
        format!("/api/v1/workflows/{workflow}/start/"),
        format!("/api/v1/workflows/{workflow}%2Fstart"),
        format!("/api/v1/%77orkflows/{workflow}/start"),
        format!("/API/V1/workflows/{workflow}/start"),
        format!("/health/../api/v1/workflows/{workflow}/start"),
        format!("/api/v1/docs/..%2fworkflows/{workflow}/start"),
    ] {
        let got = status(&fixture, &ana, "POST", &path, None);
        assert!([404, 405].contains(&got), "{path} gave {got}");
    }
    let twice = fixture.get("/api/v1/me").header("authorization", "Bearer wl_other").send().unwrap();
    assert_eq!(twice.status(), 401, "two credentials are rejected");
    let long = fixture
        .client
        .get(format!("{}/api/v1/me", fixture.server.url))
        .bearer_auth("x".repeat(1 << 20))
        .send();
    assert!(long.is_err() || long.unwrap().status().is_client_error(), "an oversized header");
    assert_eq!(fixture.get("/health").send().unwrap().status(), 200, "the server still answers");
    assert_eq!(
        decide_access(AuthOperation::Sql, UserRole::Admin, TokenScopes::ALL, ObjectRelation::Own),
        AccessDecision::ForbidRole
    );
}

#[test]
fn forbidden_response_names_required_role_or_scope() {
    let fixture = Fixture::new();
    let workflow = workflow_of(&fixture, "ana");
    for (prefix, field) in [(API, "hint"), ("/torc-service/v1", "errorMessage")] {
        for (role, scope, remedy) in [
            (UserRole::Viewer, "admin", "requires the role user"),
            (UserRole::User, "read", "the scope `write`"),
        ] {
            let token = token(&fixture, "ana", role, scope);
            let url = format!("{}{prefix}/workflows/{workflow}", fixture.server.url);
            let answer = fixture.client.delete(url).bearer_auth(token).send().unwrap();
            assert_eq!(answer.status(), 403);
            let told = answer.json::<Value>().unwrap();
            let told = told[field].as_str().unwrap_or_else(|| panic!("{prefix}: {told}"));
            assert!(told.contains(remedy), "{prefix}: {told}");
        }
    }
}
