//! Clients that disconnect in the middle of any call leave no state behind.

use crate::running_workflows::{Worker, begun};
use crate::test_server::{Fixture, eventually, read_all, say_and_hang_up, wire};
use reqwest::Method;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Shutdown;
use std::time::Duration;
use windlass_store::model::{CountQuery, JobFilter};
use windlass_types::{JobStatus, WorkflowId};

/// Every route, from the list that also defines the routing, so that new ones are included.
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
fn aborted_requests_leave_no_trace_on_any_route() {
    let fixture = Fixture::new();
    let routes = routes();
    assert!(routes.len() > 5, "{routes:?}");
    for (method, path) in &routes {
        let body = if method == "GET" { "" } else { "{\"limit\": 1, \"name\": \"x\"}" };
        let request = wire(&fixture, method, path, body).into_bytes();
        let head = request.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        // In the head, before the body, in the body, and after the complete request.
        for cut in [head / 2, head + 4, request.len() - 5, request.len()] {
            say_and_hang_up(&fixture, &request[..cut]);
        }
    }
    eventually("only this request is active", || {
        fixture.figure("windlass_http_requests_in_flight") == Some(1)
    });
    eventually("only this connection is open", || fixture.figure("windlass_http_connections") == Some(1));
    assert_eq!(fixture.figure("windlass_waits"), Some(0));
    assert_eq!(fixture.get("/health").send().unwrap().status(), 200);
    let Fixture { server, .. } = fixture;
    server.stop();
}

/// Claims jobs and disconnects at once. Returns the jobs if the response was faster.
fn claim_and_hang_up(fixture: &Fixture, workflow: WorkflowId) -> Vec<i64> {
    let path = format!("/api/v1/workflows/{workflow}/claim_next_jobs?limit=3");
    let mut stream = fixture.connect();
    stream.write_all(wire(fixture, "POST", &path, "{}").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = read_all(&mut stream);
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return Vec::new() };
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_i64().unwrap()).collect()
}

#[test]
fn jobs_claimed_by_aborted_requests_still_run() {
    let fixture = Fixture::new();
    let workflow = begun(&fixture, 60);
    let mut unheard = 0;
    for _ in 0..30 {
        let claimed = claim_and_hang_up(&fixture, workflow);
        unheard += usize::from(claimed.is_empty());
        for job in claimed {
            let back = format!("/api/v1/jobs/{job}/manage_status_change/ready/1");
            assert_eq!(fixture.request(Method::PUT, &back).send().unwrap().status(), 200, "{back}");
        }
    }
    assert!(unheard > 0, "no client disconnected before its response");
    let (mut hasty, mut failed_job) = (Worker::join(&fixture), Worker::join(&fixture));
    // It gets no response, so it repeats the exchange.
    let exchange = hasty.next(Duration::from_secs(10));
    let said = wire(&fixture, "POST", &hasty.path(), &serde_json::to_string(&exchange).unwrap());
    for _ in 0..30 {
        say_and_hang_up(&fixture, said.as_bytes());
    }
    hasty.send(&fixture, &exchange);
    let done = || {
        let counted = CountQuery::Jobs(
            workflow,
            JobFilter { status: vec![JobStatus::Completed], ..JobFilter::default() },
        );
        fixture.store.count_rows(&counted).unwrap()
    };
    eventually("all jobs are completed", || {
        hasty.work(&fixture);
        failed_job.work(&fixture);
        done() == 60
    });
}
