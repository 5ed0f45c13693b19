//! A web page cannot make a browser change anything, on servers with and without authentication.

use crate::access::routes;
use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::Value;
use windlass_server::ServeOptions;
use windlass_store::maintenance::ContentsReader;

fn open(options: &mut ServeOptions) {
    options.no_auth = true;
}

/// The status of a request with these headers and this body, with the owner's token.
fn send(fixture: &Fixture, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> u16 {
    let mut request = fixture.request(Method::from_bytes(method.as_bytes()).unwrap(), path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(body) = body {
        request = request.body(body.to_owned());
    }
    request.send().unwrap().status().as_u16()
}

/// What a page can send without a preflight request: a simple request that creates a workflow, and its start.
/// Headers, body, and the expected status.
type CrossSiteCall<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>, u16);

#[test]
fn web_page_cannot_create_or_start_workflows() {
    let fixture = Fixture::with(open);
    let page = [("origin", "http://evil.example"), ("content-type", "text/plain")];
    assert_eq!(send(&fixture, "POST", "/api/v1/store/create", &page, Some("{}")), 403);
    assert_eq!(send(&fixture, "POST", "/api/v1/store/create", &page[1..], Some("{}")), 415);
    let workflow = crate::running_workflows::workflow_of(&fixture, "owner");
    let start = format!("/api/v1/workflows/{workflow}/start");
    assert_eq!(send(&fixture, "POST", &start, &page[..1], None), 403);
    assert_eq!(send(&fixture, "POST", &start, &[("sec-fetch-site", "cross-site")], None), 403);
    let port = fixture.address().rsplit(':').next().unwrap().to_owned();
    let rebound = format!("evil.example:{port}");
    let same = format!("http://{rebound}");
    assert_eq!(send(&fixture, "POST", &start, &[("host", &rebound), ("origin", &same)], None), 403);
    assert_eq!(send(&fixture, "GET", "/api/v1/workflows", &[("host", &rebound)], None), 403, "nor reads it");
    let own = format!("http://{}", fixture.address());
    assert_eq!(send(&fixture, "POST", &start, &[("origin", &own)], None), 200, "the server's own page may");
    let localhost = format!("localhost:{port}");
    assert_eq!(send(&fixture, "GET", "/api/v1/workflows", &[("host", &localhost)], None), 200);
}

#[test]
fn every_route_rejects_cross_site_requests() {
    for is_open in [true, false] {
        let fixture = Fixture::with(|options| options.no_auth = is_open);
        let document: Value = fixture.get("/api/v1/openapi.json").send().unwrap().json().unwrap();
        let database = fixture.dir.path().join("store.db");
        let reader = ContentsReader::open(database.to_str().unwrap()).unwrap();
        let before = reader.read().unwrap();
        let mut changing = 0;
        for route in routes(&document) {
            let path = route.path(windlass_types::WorkflowId(1));
            if is_open {
                let got = send(&fixture, &route.method, &path, &[("host", "evil.example")], None);
                assert_eq!(got, 403, "{} {path} for another host", route.method);
            }
            if route.method == "GET" {
                continue;
            }
            let foreign: [CrossSiteCall<'_>; 5] = [
                (&[("origin", "http://evil.example")], None, 403),
                (&[("origin", "null")], None, 403),
                (&[("sec-fetch-site", "cross-site")], None, 403),
                (&[("content-type", "text/plain")], Some("{}"), 415),
                (&[], Some("{}"), 415),
            ];
            for (headers, body, expected) in foreign {
                let got = send(&fixture, &route.method, &path, headers, body);
                assert_eq!(got, expected, "{} {path} with {headers:?} and {body:?}", route.method);
            }
            changing += 1;
        }
        assert!(changing > 100, "only {changing} routes change something");
        assert_eq!(reader.read().unwrap(), before, "nothing was written");
    }
}
