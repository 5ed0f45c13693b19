//! The reference documents match the server.

use crate::test_server::Fixture;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use windlass_auth::{MinimumRole, access_rule};
use windlass_server::route_policy::{ROUTE_ACCESS, RouteAccess};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

#[test]
fn checked_in_openapi_document_is_current() {
    let made = windlass_server::build_openapi().to_pretty_json().unwrap() + "\n";
    let path = docs("reference/openapi.json");
    if std::env::var_os("WINDLASS_UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == made, "docs/reference/openapi.json is out of date: run `cargo xtask docs`");
}

/// Fields of Torc's models without a description. May only shrink.
const TORC_FIELDS_WITHOUT_DESCRIPTION: usize = 458;

#[test]
fn parameters_and_fields_are_described() {
    let document = serde_json::to_value(windlass_server::build_openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut of_torc = BTreeSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["description"].is_string(), "{method} {path}: {}", parameter["name"]);
            }
        }
        if path.starts_with("/torc-service/") {
            collect_schemas(&document, item, &mut of_torc);
        }
    }
    let mut undescribed = (Vec::new(), Vec::new());
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let list = if of_torc.contains(name) { &mut undescribed.0 } else { &mut undescribed.1 };
        let parts = schema["allOf"].as_array().map_or(std::slice::from_ref(schema), Vec::as_slice);
        let fields = parts.iter().filter_map(|part| part["properties"].as_object()).flatten();
        let is_described = |field: &Value| {
            let inner = ["oneOf", "allOf"].iter().filter_map(|key| field[*key].as_array()).flatten();
            inner.chain([field]).any(|schema| schema["description"].is_string())
        };
        list.extend(
            fields.filter(|(_, field)| !is_described(field)).map(|(field, _)| format!("{name}.{field}")),
        );
    }
    assert_eq!(undescribed.1, [""; 0]);
    assert!(
        undescribed.0.len() <= TORC_FIELDS_WITHOUT_DESCRIPTION,
        "{}: {:?}",
        undescribed.0.len(),
        undescribed.0
    );
}

/// The names of all schemas that a part of the document refers to.
fn collect_schemas(document: &Value, part: &Value, names: &mut BTreeSet<String>) {
    match part {
        Value::Object(fields) => {
            let name = part["$ref"].as_str().and_then(|text| text.strip_prefix("#/components/schemas/"));
            if let Some(name) = name
                && names.insert(name.to_owned())
            {
                collect_schemas(document, &document["components"]["schemas"][name], names);
            }
            fields.values().for_each(|part| collect_schemas(document, part, names));
        }
        Value::Array(parts) => parts.iter().for_each(|part| collect_schemas(document, part, names)),
        _ => {}
    }
}

/// The minimum role for each route by relation to the object, and the required scope.
fn permissions() -> String {
    let least = |least| match least {
        MinimumRole::AtLeast(role) => role.to_string(),
        MinimumRole::Never => "never".to_owned(),
    };
    let rows = ROUTE_ACCESS.iter().map(|(method, path, declared)| match declared {
        RouteAccess::Public => format!("| {method} | `{path}` | | public | public | public |\n"),
        RouteAccess::Requires(operation) => {
            let rule = access_rule(*operation);
            let [own, shared, other] = [rule.own, rule.shared, rule.other].map(least);
            format!(
                "| {method} | `{path}` | {} | {own} | {shared} | {other} |\n",
                rule.scopes.smallest_name()
            )
        }
    });
    let head = "# Permissions\n\n\
        Requirements of each route of the REST interface: the scope of the token, and the minimum role for an object of the\n\
        caller's own, for one that is shared with the caller, and for one of another user. Objects of others that a\n\
        viewer or user may not see return 404. `POST /store` checks each of its methods by the object that it\n\
        names, and lists contain only what the caller may read. This page is generated (`cargo xtask docs`); tests call\n\
        every route with every role and scope and compare the whole database before and after each rejected call.\n\n\
        | method | path | scope | own | shared | other |\n|---|---|---|---|---|---|\n";
    std::iter::once(head.to_owned()).chain(rows).collect()
}

#[test]
fn checked_in_permissions_are_current() {
    let path = docs("reference/permissions.md");
    if std::env::var_os("WINDLASS_UPDATE_GENERATED").is_some() {
        std::fs::write(&path, permissions()).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == permissions(), "docs/reference/permissions.md is out of date: run `cargo xtask docs`");
}

#[test]
fn openapi_document_is_served_and_rendered() {
    let fixture = Fixture::new();
    let served: Value = fixture.get("/api/v1/openapi.json").send().unwrap().json().unwrap();
    assert_eq!(served["openapi"], "3.1.0");
    let page = fixture.get("/api/v1/docs").send().unwrap();
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let page = page.text().unwrap();
    assert!(page.contains("/api/v1/workers/{id}/exchange") && !page.contains("<script"), "{page}");
}

#[test]
fn every_metric_is_documented() {
    let fixture = Fixture::new();
    // So that metrics with labels are present.
    assert_eq!(fixture.get("/api/v1/nothing").send().unwrap().status(), 404);
    let page = fixture.get("/metrics").send().unwrap().text().unwrap();
    let names: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 8, "{names:?}");
    let reference = std::fs::read_to_string(docs("reference/metrics.md")).unwrap();
    for name in names {
        assert!(
            reference.contains(&format!("`{name}")),
            "docs/reference/metrics.md does not document {name}"
        );
    }
}
