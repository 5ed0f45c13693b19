//! Event streams: no event is missed or duplicated, and slow readers do not delay others.

use crate::access::token;
use crate::running_workflows::{Worker, begun, workflow_of};
use crate::test_server::{Fixture, event, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Lines};
use std::time::Duration;
use windlass_auth::UserRole;
use windlass_store::model::{EventFilter, EventSeverity, NewEvent};
use windlass_types::{SystemClock, WorkflowId};

/// A reader of an event stream.
struct Reader {
    lines: Lines<BufReader<reqwest::blocking::Response>>,
}

impl Reader {
    fn open(fixture: &Fixture, query: &str, last: Option<&str>) -> Self {
        Self::open_as(fixture, &fixture.server.token, &format!("/api/v1/events/stream{query}"), last)
    }

    fn open_as(fixture: &Fixture, token: &str, path: &str, last: Option<&str>) -> Self {
        let request = fixture.client.get(format!("{}{path}", fixture.server.url)).bearer_auth(token);
        let request = match last {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        let response = request.send().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { lines: BufReader::new(response).lines() }
    }

    /// The id and the category of the next event; `None` at the end.
    fn next(&mut self) -> Option<(String, String)> {
        let (mut id, mut category) = (None, None);
        for line in self.lines.by_ref() {
            let line = line.ok()?;
            match line.split_once(": ") {
                Some(("id", value)) => id = Some(value.to_owned()),
                Some(("event", value)) => category = Some(value.to_owned()),
                _ if line.is_empty() && id.is_some() => return id.zip(category),
                _ => {}
            }
        }
        None
    }
}

#[test]
fn event_stream_resumes_without_gap_or_repetition() {
    let fixture = Fixture::new();
    fixture.note("before");
    let mut reader = Reader::open(&fixture, "", None);
    fixture.note("one");
    fixture.note("two");
    let (id, category) = reader.next().unwrap();
    assert_eq!(category, "one");
    assert_eq!(reader.next().unwrap().1, "two");
    drop(reader);
    fixture.note("three");
    let mut again = Reader::open(&fixture, "", Some(&id));
    fixture.note("four");
    let told: Vec<String> = (0..3).map(|_| again.next().unwrap().1).collect();
    assert_eq!(told, ["two", "three", "four"]);
    let mut all = Reader::open(&fixture, "?after=0", None);
    assert_eq!(all.next().unwrap().1, "before");
}

#[test]
fn event_stream_filters_events() {
    let fixture = Fixture::new();
    let mut severe = Reader::open(&fixture, "?severity=warning", None);
    let mut one_kind = Reader::open(&fixture, "?category=b", None);
    for (category, severity) in
        [("a", EventSeverity::Info), ("b", EventSeverity::Info), ("c", EventSeverity::Error)]
    {
        fixture.store.add_event(&event(category, severity), SystemClock.now()).unwrap();
    }
    assert_eq!(severe.next().unwrap().1, "c");
    assert_eq!(one_kind.next().unwrap().1, "b");
    let answer = fixture.get("/api/v1/events/stream").header("last-event-id", "x").send().unwrap();
    assert_eq!(answer.status(), 422);
    assert_eq!(fixture.get("/api/v1/events/stream?workflow=77").send().unwrap().status(), 404);
}

#[test]
fn disconnected_reader_is_removed() {
    let fixture = Fixture::new();
    let reader = Reader::open(&fixture, "", None);
    assert_eq!(fixture.figure("windlass_event_streams"), Some(1));
    drop(reader);
    eventually("it is forgotten", || fixture.figure("windlass_event_streams") == Some(0));
}

#[test]
fn event_streams_end_with_the_server() {
    let fixture = Fixture::new();
    let mut reader = Reader::open(&fixture, "", None);
    fixture.note("last");
    assert_eq!(reader.next().unwrap().1, "last");
    let Fixture { server, dir, .. } = fixture;
    server.stop();
    assert_eq!(reader.next(), None);
    drop(dir);
}

#[test]
fn committed_events_are_published_without_polling() {
    let fixture = Fixture::with(|options| options.event_poll_interval = Duration::from_hours(1));
    let workflow = begun(&fixture, 1);
    let mut reader = Reader::open(&fixture, "?category=job_completed", None);
    let mut worker = Worker::join(&fixture);
    while worker.holds() == 0 {
        worker.work(&fixture);
    }
    worker.work(&fixture);
    assert_eq!(reader.next().unwrap().1, "job_completed");
    // Events written by handlers are published, too.
    let mut notes = Reader::open(&fixture, "?category=note", None);
    let note = serde_json::json!({"workflow_id": workflow.0, "timestamp": 0, "data": {"category": "note"}});
    assert_eq!(fixture.post("/api/v1/events").json(&note).send().unwrap().status(), 200);
    assert_eq!(notes.next().unwrap().1, "note");
}

/// A stream of a workflow, and one of all workflows that the token may see.
fn both(fixture: &Fixture, token: &str, workflow: WorkflowId) -> [Reader; 3] {
    let paths = [
        format!("/api/v1/events/stream?workflow={workflow}"),
        format!("/api/v1/workflows/{workflow}/events/stream"),
        "/api/v1/events/stream".to_owned(),
    ];
    paths.map(|path| Reader::open_as(fixture, token, &path, None))
}

fn impatient() -> Fixture {
    Fixture::with(|options| options.permission_check_interval = Duration::from_millis(50))
}

fn id_of_token(fixture: &Fixture, user: &str) -> i64 {
    let list: Value = fixture.get(&format!("/api/v1/tokens?user={user}")).send().unwrap().json().unwrap();
    list["items"][0]["id"].as_i64().unwrap()
}

#[test]
fn event_stream_ends_when_its_token_is_revoked() {
    let fixture = impatient();
    let workflow = workflow_of(&fixture, "ana");
    let ana = token(&fixture, "ana", UserRole::User, "read");
    let mut streams = both(&fixture, &ana, workflow);
    let mut of_owner = Reader::open(&fixture, "", None);
    let revoked =
        fixture.request(Method::DELETE, &format!("/api/v1/tokens/{}", id_of_token(&fixture, "ana")));
    assert_eq!(revoked.send().unwrap().status(), 200);
    // The stream ends even without events.
    for stream in &mut streams {
        assert_eq!(stream.next(), None, "it is over");
    }
    assert!(of_owner.next().is_some(), "not for other users");
}

#[test]
fn event_stream_ends_when_its_token_expires() {
    let fixture = impatient();
    let workflow = workflow_of(&fixture, "ana");
    let asked = json!({"name": "t", "user": "ana", "role": "user", "scopes": ["read"], "expires_in": 2});
    let made: Value = fixture.post("/api/v1/tokens").json(&asked).send().unwrap().json().unwrap();
    for mut stream in both(&fixture, made["token"].as_str().unwrap(), workflow) {
        assert_eq!(stream.next(), None);
    }
}

#[test]
fn event_stream_ends_when_the_workflow_is_unshared() {
    let fixture = impatient();
    let workflow = workflow_of(&fixture, "zoe");
    let group = fixture.store.add_group("team", None, SystemClock.now()).unwrap();
    fixture.store.add_member(group, "bob", "member", SystemClock.now()).unwrap();
    fixture.store.share_workflow(workflow, group, SystemClock.now()).unwrap();
    let bob = token(&fixture, "bob", UserRole::User, "read");
    let [mut ours, mut torcs, mut all] = both(&fixture, &bob, workflow);
    let shared = format!("/api/v1/workflows/{workflow}/access_groups/{group}");
    assert_eq!(fixture.request(Method::DELETE, &shared).send().unwrap().status(), 200);
    // Events up to the end of the permission may be sent, for example that it was unshared.
    while ours.next().is_some() {}
    while torcs.next().is_some() {}
    let of = |workflow, category: &str| {
        let note = NewEvent { workflow: Some(workflow), ..event(category, EventSeverity::Info) };
        fixture.store.add_event(&note, SystemClock.now()).unwrap();
    };
    let own = workflow_of(&fixture, "bob");
    eventually("events without permission are filtered", || {
        of(workflow, "hidden");
        of(own, "seen");
        let mut heard = std::iter::from_fn(|| all.next()).map(|(_, category)| category);
        !heard.by_ref().take_while(|category| category != "seen").any(|category| category == "hidden")
    });
}

#[test]
fn clients_cannot_add_events_that_the_server_relies_on() {
    let fixture = Fixture::new();
    let workflow = workflow_of(&fixture, "owner");
    let add = |category: &str| {
        let data = json!({"category": category, "run_id": 1, "worker_id": 1, "is_used_up": true});
        let posted = json!({"workflow_id": workflow.0, "timestamp": 0, "data": data});
        let new =
            NewEvent { workflow: Some(workflow), data: Some(data), ..event(category, EventSeverity::Info) };
        let called = json!({"method": "add_event", "args": {"event": new}});
        [("/api/v1/events", posted), ("/api/v1/store", called)]
            .map(|(path, body)| fixture.post(path).json(&body).send().unwrap().status().as_u16())
    };
    let count = || fixture.store.events(Some(workflow), &EventFilter::default()).unwrap().len();
    let before = count();
    for category in ["orders", "retry_budget", "worker_returned", "allocation_submitted"] {
        assert_eq!(add(category), [422, 422], "{category}");
    }
    assert_eq!(count(), before);
    assert_eq!(add("user"), [200, 200]);
}
