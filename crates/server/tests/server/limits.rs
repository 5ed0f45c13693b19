//! Limits on size, rate and time: the caller gets an error, and the server continues.

use crate::access::token;
use crate::running_workflows::{exchange, introduction, workflow_of};
use crate::test_server::{Fixture, eventually, wire, wire_as};
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;
use windlass_auth::UserRole;
use windlass_store::model::{AllocationFilter, DecisionFilter, JobFilter, NewTokenRow, WorkerFilter};
use windlass_types::worker_protocol::RegistrationReply;
use windlass_types::{AllocationId, JobId, SystemClock, WorkerId};

/// Runners of Torc register compute nodes, which are workers too.
#[test]
fn compute_nodes_per_user_and_their_fields_are_bounded() {
    let fixture = Fixture::new();
    let workflow = workflow_of(&fixture, "zoe");
    let zoe = token(&fixture, "zoe", UserRole::User, "admin");
    let node = json!({"workflow_id": workflow.0, "compute_node_type": "local", "hostname": "h", "memory_gb": 1.0,
        "num_cpus": 1, "num_gpus": 0, "num_nodes": 65_536, "pid": 1, "start_time": "2026-01-01T00:00:00Z"});
    let register = |body: &Value| {
        let url = format!("{}/torc-service/v1/compute_nodes", fixture.server.url);
        let answer = fixture.client.post(url).bearer_auth(&zoe).json(body).send().unwrap();
        (answer.status().as_u16(), answer.text().unwrap())
    };
    for (field, value) in [
        ("hostname", json!("h".repeat(256))),
        ("hostname", json!("a\u{1b}[2Jb")),
        ("labels", json!(vec!["l".repeat(256)])),
        ("labels", json!((0..65).map(|n| n.to_string()).collect::<Vec<_>>())),
        ("num_nodes", json!(u32::MAX)),
    ] {
        let mut bad = node.clone();
        bad[field] = value;
        let (status, text) = register(&bad);
        assert_eq!(status, 422, "{field}: {text}");
    }
    let rows = || {
        fixture.store.workers(&WorkerFilter { workflow: Some(workflow), ..WorkerFilter::default() }).unwrap()
    };
    assert_eq!(rows().len(), 0, "nothing is written of a node that is rejected");
    for _ in 0..3 {
        assert_eq!(register(&node).0, 200);
    }
    let (status, text) = register(&node);
    assert!(status == 422 && text.contains("nodes of this user"), "{status}: {text}");
    assert_eq!(rows().len(), 3);
    let mut small = node.clone();
    small["num_nodes"] = json!(1);
    assert_eq!(register(&small).0, 200);
}

#[test]
fn oversized_body_is_rejected() {
    let fixture = Fixture::with(|options| options.limits.max_body = 1000);
    let body = format!("{{\"host\": \"{}\"}}", "x".repeat(2000));
    let answer =
        fixture.post("/api/v1/workers").header("content-type", "application/json").body(body).send().unwrap();
    assert_eq!(answer.status(), 413);
    assert!(answer.text().unwrap().contains("too_large"));
}

#[test]
fn rate_limited_response_has_retry_after() {
    let fixture = Fixture::with(|options| {
        options.limits.rate = 1;
        options.limits.burst = 3;
    });
    let codes: Vec<u16> =
        (0..4).map(|_| fixture.get("/api/v1/docs").send().unwrap().status().as_u16()).collect();
    assert_eq!(codes, [200, 200, 200, 429]);
    let refused = fixture.get("/api/v1/docs").send().unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    // Another authenticated user is not affected.
    let me = |token: &str| {
        let request = fixture.client.get(format!("{}/api/v1/me", fixture.server.url)).bearer_auth(token);
        request.send().unwrap().status().as_u16()
    };
    fixture.store.add_token(&known_token(), SystemClock.now()).unwrap();
    assert_eq!(me(KNOWN), 200);
}

/// The secret, and its stored hash.
const KNOWN: &str = "wl_known";

fn known_token() -> NewTokenRow {
    NewTokenRow {
        hash: windlass_auth::SecretHash::from_secret(KNOWN).to_string(),
        name: "known".to_owned(),
        user: "ana".to_owned(),
        role: "user".to_owned(),
        scopes: vec!["worker".to_owned()],
        expires_at: None,
    }
}

#[test]
fn unknown_tokens_share_one_rate_limit() {
    let fixture = Fixture::with(|options| {
        options.limits.rate = 1;
        options.limits.burst = 20;
    });
    fixture.store.add_token(&known_token(), SystemClock.now()).unwrap();
    let me = |token: &str| {
        let request = fixture.client.get(format!("{}/api/v1/me", fixture.server.url)).bearer_auth(token);
        request.send().unwrap().status().as_u16()
    };
    assert_eq!(me(KNOWN), 200);
    let codes: Vec<u16> = (0..40).map(|n| me(&format!("wl_wrong{n}"))).collect();
    assert!(codes[..15].iter().all(|code| *code == 401), "{codes:?}");
    assert!(codes[30..].iter().all(|code| *code == 429), "{codes:?}");
    assert_eq!(
        me(KNOWN),
        200,
        "an authenticated user is not affected by anonymous requests from the same address"
    );
}

#[test]
fn unknown_workers_are_rate_limited() {
    let fixture = Fixture::with(|options| {
        options.limits.rate = 1;
        options.limits.burst = 10;
    });
    fixture.store.add_token(&known_token(), SystemClock.now()).unwrap();
    let post = |path: &str, body: &serde_json::Value| {
        let request =
            fixture.client.post(format!("{}{path}", fixture.server.url)).bearer_auth(KNOWN).json(body);
        request.send().unwrap()
    };
    let welcome: RegistrationReply = post("/api/v1/workers", &json!(introduction())).json().unwrap();
    let path = format!("/api/v1/workers/{}/exchange", welcome.worker);
    for number in 1..100 {
        let said = json!(exchange(&welcome, number, Vec::new(), Duration::ZERO));
        assert_eq!(post(&path, &said).status(), 200, "exchange {number}");
    }
    let strange = |n: i64| {
        let welcome = RegistrationReply { worker: WorkerId(1000 + n), ..welcome.clone() };
        let path = format!("/api/v1/workers/{}/exchange", welcome.worker);
        post(&path, &json!(exchange(&welcome, 1, Vec::new(), Duration::ZERO))).status().as_u16()
    };
    let codes: Vec<u16> = (0..20).map(strange).collect();
    assert_eq!(codes[0], 409, "{codes:?}");
    assert!(codes[15..].iter().all(|code| *code == 429), "{codes:?}");
}

#[test]
fn oversized_exchange_is_rejected() {
    let fixture = Fixture::with(|options| options.limits.max_body = 1000);
    let welcome: RegistrationReply =
        fixture.post("/api/v1/workers").json(&introduction()).send().unwrap().json().unwrap();
    let path = format!("/api/v1/workers/{}/exchange", welcome.worker);
    let mut said = json!(exchange(&welcome, 1, Vec::new(), Duration::ZERO));
    said["more"] = json!("x".repeat(2000));
    assert_eq!(fixture.post(&path).json(&said).send().unwrap().status(), 413);
}

#[test]
fn total_body_memory_is_limited() {
    let fixture = Fixture::with(|options| options.limits.max_bodies = 1 << 20);
    let body = || format!("{{\"host\": \"{}\"}}", "x".repeat(8 << 20));
    let send = |body: String| {
        let request = fixture.post("/api/v1/workers").header("content-type", "application/json").body(body);
        request.send().map(|answer| (answer.status().as_u16(), answer.headers().contains_key("retry-after")))
    };
    // Whether the client reads the response depends on whether it is still sending.
    let answer = send(body());
    assert!(answer.as_ref().map_or(true, |answer| *answer == (503, true)), "{answer:?}");
    // The counted memory is released.
    let small = format!("{{\"host\": \"{}\"}}", "x".repeat(500 << 10));
    assert_eq!(send(small).unwrap().0, 422);
}

#[test]
fn body_memory_of_one_user_leaves_room_for_others() {
    let fixture = Fixture::with(|options| options.limits.max_bodies = 4 << 20);
    let eve = token(&fixture, "eve", UserRole::User, "worker");
    let body = |length: usize| format!("{{\"host\": \"{}\"}}", "x".repeat(length));
    let send = |token: &str, length: usize| {
        let request =
            fixture.client.post(format!("{}/api/v1/workers", fixture.server.url)).bearer_auth(token);
        let request = request.header("content-type", "application/json").body(body(length));
        request.send().map(|answer| answer.status().as_u16())
    };
    let request = closing(&wire_as(&fixture, &eve, "POST", "/api/v1/workers", &body(2 << 20)));
    let send_most = || {
        let mut slow = fixture.connect();
        slow.write_all(&request.as_bytes()[..request.len() - 1]).unwrap();
        slow
    };
    let mut slow = send_most();
    eventually("most of her share is in use", || {
        // Whether the client reads the response depends on whether it is still sending.
        let is_in_use = send(&eve, 3 << 19).map_or(true, |status| status == 503);
        if !is_in_use {
            // The server had no room for it yet, or gave up waiting for the rest.
            slow = send_most();
        }
        is_in_use
    });
    // The client may try to use a connection that was closed by a rejection.
    eventually("others have room", || {
        send(&fixture.server.token, 500 << 10).is_ok_and(|status| status == 422)
    });
    drop(slow);
}

#[test]
fn overloaded_server_rejects_at_once_and_recovers() {
    let fixture = Fixture::with(|options| options.limits.max_in_flight = 1);
    // Half of a request: it is active until the rest comes.
    let request = wire(&fixture, "POST", "/api/v1/workers", "{\"host\": 1}");
    let (half, rest) = request.split_at(request.len() - 3);
    let say_half = || {
        let mut slow = fixture.connect();
        slow.write_all(half.as_bytes()).unwrap();
        slow
    };
    let mut slow = say_half();
    eventually("the server is busy", || {
        let answer = fixture.get("/health").send().unwrap();
        let is_busy = answer.status() == 503 && answer.headers().contains_key("retry-after");
        if !is_busy {
            // It may have been rejected because this request kept the server busy.
            slow = say_half();
        }
        is_busy
    });
    // Whether it was answered or rejected: it has ended.
    drop(slow.write_all(rest.as_bytes()));
    drop(slow);
    eventually("the server is free again", || fixture.get("/health").send().unwrap().status() == 200);
}

#[test]
fn slow_bodies_of_one_user_do_not_block_others() {
    let fixture = Fixture::with(|options| options.limits.max_in_flight = 8);
    let eve = token(&fixture, "eve", UserRole::Viewer, "read");
    let request = closing(&wire_as(&fixture, &eve, "POST", "/api/v1/store", "{\"method\": \"workflows\"}"));
    let begin = || {
        let mut stream = fixture.connect();
        stream.write_all(&request.as_bytes()[..request.len() - 3]).unwrap();
        stream
    };
    let slow: Vec<_> = (0..4).map(|_| begin()).collect();
    eventually("four are active", || fixture.figure("windlass_http_requests_in_flight") == Some(5));
    let answer = crate::test_server::read_all(&mut begin());
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("too_many_in_progress"), "{answer}");
    assert_eq!(fixture.get("/api/v1/me").send().unwrap().status(), 200);
    drop(slow);
}

#[test]
fn slow_request_times_out() {
    let fixture = Fixture::with(|options| options.limits.timeout = Duration::from_millis(50));
    let request = wire(&fixture, "POST", "/api/v1/workers", "{\"host\": 1}");
    let mut slow = fixture.connect();
    slow.write_all(&request.as_bytes()[..request.len() - 3]).unwrap();
    let answer = crate::test_server::read_all(&mut slow);
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert_eq!(fixture.figure("windlass_http_requests_in_flight"), Some(1));
}

/// The same request with `connection: close`. A client that closes the connection itself may get no response.
fn closing(request: &str) -> String {
    request.replacen("host:", "connection: close\r\nhost:", 1)
}

/// A connection that stays open after an authenticated request.
fn authenticated(fixture: &Fixture) -> std::net::TcpStream {
    use std::io::Read as _;
    let mut stream = fixture.connect();
    stream.write_all(wire(fixture, "GET", "/api/v1/me", "").as_bytes()).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

#[test]
fn idle_connections_are_closed_before_authenticated_ones() {
    let fixture = Fixture::with(|options| options.limits.max_connections = 4);
    let mut idle: Vec<_> = (0..4).map(|_| fixture.connect()).collect();
    let held = [authenticated(&fixture), authenticated(&fixture), authenticated(&fixture)];
    for idle in &mut idle[..3] {
        assert_eq!(crate::test_server::read_all(idle), "", "it was closed");
    }
    // The owner has three of four connections, the limit per user.
    let mut more = fixture.connect();
    more.write_all(closing(&wire(&fixture, "GET", "/api/v1/me", "")).as_bytes()).unwrap();
    let answer = crate::test_server::read_all(&mut more);
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("too_many_connections"), "{answer}");
    drop(held);
    eventually("a connection is free again", || {
        let request = fixture.get("/api/v1/me");
        request.send().is_ok_and(|answer| answer.status() == 200)
    });
}

#[test]
fn slow_uploads_of_one_user_do_not_block_others() {
    let fixture = Fixture::new();
    let begin = |token: &str| {
        let mut stream = fixture.connect();
        let head = wire_as(&fixture, token, "POST", "/api/v1/store/create", "")
            .replace("content-length: 0", "content-length: 1000");
        let head = closing(&head.replace("application/json", "application/x-ndjson"));
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let eve = crate::access::token(&fixture, "eve", windlass_auth::UserRole::User, "write");
    let slow: Vec<_> = (0..4).map(|_| begin(&eve)).collect();
    eventually("four are active", || fixture.figure("windlass_http_requests_in_flight") == Some(5));
    let mut fifth = begin(&eve);
    let answer = crate::test_server::read_all(&mut fifth);
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("too_many_uploads"), "{answer}");
    crate::running_workflows::workflow_of(&fixture, "ana");
    drop(slow);
}

#[test]
fn a_request_names_a_bounded_number_of_objects() {
    let fixture = Fixture::new();
    let workflow = workflow_of(&fixture, "owner");
    let ids: Vec<i64> = (0..10_001).collect();
    let many = vec![1; 1_000_001];
    let jobs: Vec<JobId> = ids.iter().map(|id| JobId(*id)).collect();
    let listed = JobFilter { ids: jobs.clone(), ..JobFilter::default() };
    let decided = DecisionFilter { jobs, ..DecisionFilter::default() };
    let allocations = ids.iter().map(|id| AllocationId(*id)).collect();
    let allocated = AllocationFilter { ids: allocations, ..AllocationFilter::default() };
    for (method, args, most) in [
        ("job_names", json!({"jobs": ids}), "10001 objects; the maximum is 10000"),
        ("jobs", json!({"workflow": workflow, "filter": listed}), "10001 objects; the maximum is 10000"),
        ("decisions", json!({"workflow": workflow, "filter": decided}), "the maximum is 10000"),
        ("allocations", json!({"filter": allocated}), "the maximum is 10000"),
        ("begin_next_run", json!({"workflow": workflow, "again": many}), "the maximum is 1000000"),
        ("delete_jobs", json!({"workflow": workflow, "jobs": many}), "the maximum is 1000000"),
    ] {
        let request = json!({"method": method, "args": args});
        let answer = fixture.post("/api/v1/store").json(&request).send().unwrap();
        let (status, text) = (answer.status(), answer.text().unwrap());
        assert!(status == 422 && text.contains(most), "{method}: {status} {text}");
    }
}
