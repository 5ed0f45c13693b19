//! Too much, too often, too long: the caller is told so, and the server goes on.

use crate::bench::{Bench, eventually, wire};
use std::io::Write as _;
use std::time::Duration;

#[test]
fn a_body_that_is_too_large_is_refused() {
    let bench = Bench::with(|options| options.limits.max_body = 1000);
    let body = format!("{{\"host\": \"{}\"}}", "x".repeat(2000));
    let answer =
        bench.post("/api/v1/workers").header("content-type", "application/json").body(body).send().unwrap();
    assert_eq!(answer.status(), 413);
    assert!(answer.text().unwrap().contains("too_large"));
}

#[test]
fn who_asks_too_often_is_told_when_to_come_again() {
    let bench = Bench::with(|options| {
        options.limits.rate = 1;
        options.limits.burst = 3;
    });
    let codes: Vec<u16> =
        (0..4).map(|_| bench.get("/api/v1/docs").send().unwrap().status().as_u16()).collect();
    assert_eq!(codes, [200, 200, 200, 429]);
    let refused = bench.get("/api/v1/docs").send().unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    // Somebody else is not held up by it.
    let other =
        bench.client.get(format!("{}/health", bench.server.url)).bearer_auth("another").send().unwrap();
    assert_eq!(other.status(), 200);
}

#[test]
fn beyond_its_limit_the_server_says_so_at_once_and_recovers() {
    let bench = Bench::with(|options| options.limits.max_in_flight = 1);
    // Half of a request: it is under way until the rest comes.
    let request = wire(&bench, "POST", "/api/v1/workers", "{\"host\": 1}");
    let (half, rest) = request.split_at(request.len() - 3);
    let mut slow = bench.connect();
    slow.write_all(half.as_bytes()).unwrap();
    eventually("the server is busy", || {
        let answer = bench.get("/health").send().unwrap();
        answer.status() == 503 && answer.headers().contains_key("retry-after")
    });
    slow.write_all(rest.as_bytes()).unwrap();
    eventually("the server is free again", || bench.get("/health").send().unwrap().status() == 200);
}

#[test]
fn a_request_that_takes_too_long_is_given_up() {
    let bench = Bench::with(|options| options.limits.timeout = Duration::from_millis(50));
    let request = wire(&bench, "POST", "/api/v1/workers", "{\"host\": 1}");
    let mut slow = bench.connect();
    slow.write_all(&request.as_bytes()[..request.len() - 3]).unwrap();
    let answer = crate::bench::read_all(&mut slow);
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert_eq!(bench.figure("windlass_http_requests_in_flight"), Some(1));
}

#[test]
fn more_connections_than_allowed_are_closed() {
    let bench = Bench::with(|options| options.limits.max_connections = 2);
    let first = bench.connect();
    let second = bench.connect();
    let mut third = bench.connect();
    assert_eq!(crate::bench::read_all(&mut third), "");
    drop((first, second));
    eventually("there is room again", || {
        bench.client.get(format!("{}/health", bench.server.url)).send().is_ok()
    });
}
