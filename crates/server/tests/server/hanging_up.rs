//! Callers that hang up in the middle of any call: nothing is left behind.

use crate::bench::{Bench, eventually, read_all, say_and_hang_up, wire};
use crate::work::{Worker, begun};
use reqwest::Method;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Shutdown;
use std::time::Duration;
use windlass_store::model::{CountQuery, JobFilter};
use windlass_types::{JobStatus, WorkflowId};

/// Every route there is, from the list that also makes the routing: a new one is covered by itself.
fn routes() -> BTreeSet<(String, String)> {
    let document: serde_json::Value =
        serde_json::from_str(&windlass_server::build_openapi().to_json().unwrap()).unwrap();
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

/// Asks for jobs and hangs up at once. The jobs, if the answer was quicker than that.
fn claim_and_hang_up(bench: &Bench, workflow: WorkflowId) -> Vec<i64> {
    let path = format!("/api/v1/workflows/{workflow}/claim_next_jobs?limit=3");
    let mut stream = bench.connect();
    stream.write_all(wire(bench, "POST", &path, "{}").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = read_all(&mut stream);
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return Vec::new() };
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_i64().unwrap()).collect()
}

#[test]
fn with_jobs_in_the_answer_and_none_is_held_by_nobody() {
    let bench = Bench::new();
    let workflow = begun(&bench, 60);
    let mut unheard = 0;
    for _ in 0..30 {
        let claimed = claim_and_hang_up(&bench, workflow);
        unheard += usize::from(claimed.is_empty());
        for job in claimed {
            let back = format!("/api/v1/jobs/{job}/manage_status_change/ready/1");
            assert_eq!(bench.request(Method::PUT, &back).send().unwrap().status(), 200, "{back}");
        }
    }
    assert!(unheard > 0, "nobody hung up before he was answered");
    let (mut hasty, mut patient) = (Worker::join(&bench), Worker::join(&bench));
    // It gets no answer, so it says the same again.
    let exchange = hasty.next(Duration::from_secs(10));
    let said = wire(&bench, "POST", &hasty.path(), &serde_json::to_string(&exchange).unwrap());
    for _ in 0..30 {
        say_and_hang_up(&bench, said.as_bytes());
    }
    hasty.send(&bench, &exchange);
    let done = || {
        let counted = CountQuery::Jobs(
            workflow,
            JobFilter { status: vec![JobStatus::Completed], ..JobFilter::default() },
        );
        bench.store.count_rows(&counted).unwrap()
    };
    eventually("all jobs are done", || {
        hasty.work(&bench);
        patient.work(&bench);
        done() == 60
    });
}
