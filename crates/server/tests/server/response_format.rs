//! Response formats: errors according to the prefix, and headers that restrict browsers.

use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::Value;

#[test]
fn health_needs_no_credentials() {
    let fixture = Fixture::new();
    let answer = fixture.client.get(format!("{}/health", fixture.server.url)).send().unwrap();
    assert_eq!(answer.status(), 200);
    let health: Value = answer.json().unwrap();
    assert_eq!(
        (&health["status"], &health["role"], &health["database"]),
        (&"ok".into(), &"active".into(), &"ok".into())
    );
}

#[test]
fn not_found_has_the_format_of_its_prefix() {
    let fixture = Fixture::new();
    let ours = fixture.get("/api/v1/nothing").send().unwrap();
    assert_eq!(ours.status(), 404);
    assert_eq!(ours.headers()["content-type"], "application/problem+json");
    let ours: Value = ours.json().unwrap();
    assert_eq!((&ours["code"], &ours["status"]), (&"not_found".into(), &404.into()));
    let torc = fixture.get("/torc-service/v1/nothing").send().unwrap();
    assert_eq!(
        (torc.status().as_u16(), &torc.headers()["content-type"]),
        (404, &"application/json".parse().unwrap())
    );
    let torc: Value = torc.json().unwrap();
    assert_eq!(torc["error"]["error"], "NotFound");
}

#[test]
fn wrong_method_and_wrong_body_have_different_errors() {
    let fixture = Fixture::new();
    let code = |answer: reqwest::blocking::Response| {
        let status = answer.status().as_u16();
        let problem: Value = answer.json().unwrap();
        (status, problem["code"].as_str().unwrap().to_owned())
    };
    let delete = fixture.request(Method::DELETE, "/health").send().unwrap();
    assert_eq!(code(delete), (405, "method_not_allowed".to_owned()));
    let introduce = |body: &'static str, kind: &str| {
        code(fixture.post("/api/v1/workers").header("content-type", kind).body(body).send().unwrap())
    };
    assert_eq!(introduce("{}", "text/plain"), (415, "not_json".to_owned()));
    assert_eq!(introduce("{", "application/json"), (400, "not_json".to_owned()));
    assert_eq!(introduce("{}", "application/json"), (422, "invalid".to_owned()));
}

#[test]
fn every_response_has_an_id_and_security_headers() {
    let fixture = Fixture::new();
    let ids: Vec<String> = ["/health", "/api/v1/nothing", "/api/v1/docs"]
        .into_iter()
        .map(|path| {
            let answer = fixture.get(path).send().unwrap();
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
                ("referrer-policy", "no-referrer"),
            ] {
                assert_eq!(answer.headers()[name], value, "{path}");
            }
            assert!(answer.headers().contains_key("content-security-policy"), "{path}");
            answer.headers()["x-request-id"].to_str().unwrap().to_owned()
        })
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
}
