//! Callers that hang up in the middle of any call: nothing is left behind.

use crate::bench::{Bench, eventually, say_and_hang_up, wire};
use std::collections::BTreeSet;

/// Every route there is, from the list that also makes the routing: a new one is covered by itself.
fn routes() -> BTreeSet<(String, String)> {
    let document: serde_json::Value =
        serde_json::from_str(&windlass_server::openapi().to_json().unwrap()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = |item: &serde_json::Value| -> Vec<String> {
        let known = ["get", "post", "put", "patch", "delete"];
        known.into_iter().filter(|method| item.get(method).is_some()).map(str::to_uppercase).collect()
    };
    paths
        .iter()
        .flat_map(|(path, item)| methods(item).into_iter().map(|method| (method, filled_in(path))))
        .collect()
}

/// `/jobs/{id}` as `/jobs/1`.
fn filled_in(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn on_every_route_and_everything_works_afterwards() {
    let bench = Bench::new();
    let routes = routes();
    assert!(routes.len() > 5, "{routes:?}");
    for (method, path) in &routes {
        let body = if method == "GET" { "" } else { "{\"limit\": 1, \"name\": \"x\"}" };
        let request = wire(&bench, method, path, body).into_bytes();
        let head = request.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        // In the head, before the body, in the body, and with all said but nothing heard.
        for cut in [head / 2, head + 4, request.len() - 5, request.len()] {
            say_and_hang_up(&bench, &request[..cut]);
        }
    }
    eventually("nothing is under way but the question", || {
        bench.figure("windlass_http_requests_in_flight") == Some(1)
    });
    eventually("no connection is left but ours", || bench.figure("windlass_http_connections") == Some(1));
    assert_eq!(bench.figure("windlass_waits"), Some(0));
    assert_eq!(bench.get("/health").send().unwrap().status(), 200);
    let Bench { server, .. } = bench;
    server.stop();
}
