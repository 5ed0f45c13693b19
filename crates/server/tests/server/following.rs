//! Events as they happen: nothing is missed, nothing comes twice, and nobody waits for a slow reader.

use crate::bench::{Bench, event, eventually};
use crate::work::{Worker, begun};
use std::io::{BufRead as _, BufReader, Lines};
use std::time::Duration;
use windlass_store::model::Severity;
use windlass_types::Clock;

/// A reader of a stream of events.
struct Reader {
    lines: Lines<BufReader<reqwest::blocking::Response>>,
}

impl Reader {
    fn open(bench: &Bench, query: &str, last: Option<&str>) -> Self {
        let request = bench.get(&format!("/api/v1/events/stream{query}"));
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
fn what_happens_is_told_and_resumed_without_gap_or_repetition() {
    let bench = Bench::new();
    bench.note("before");
    let mut reader = Reader::open(&bench, "", None);
    bench.note("one");
    bench.note("two");
    let (id, category) = reader.next().unwrap();
    assert_eq!(category, "one");
    assert_eq!(reader.next().unwrap().1, "two");
    drop(reader);
    bench.note("three");
    let mut again = Reader::open(&bench, "", Some(&id));
    bench.note("four");
    let told: Vec<String> = (0..3).map(|_| again.next().unwrap().1).collect();
    assert_eq!(told, ["two", "three", "four"]);
    let mut all = Reader::open(&bench, "?after=0", None);
    assert_eq!(all.next().unwrap().1, "before");
}

#[test]
fn only_what_was_asked_for_is_told() {
    let bench = Bench::new();
    let mut severe = Reader::open(&bench, "?severity=warning", None);
    let mut one_kind = Reader::open(&bench, "?category=b", None);
    for (category, severity) in [("a", Severity::Info), ("b", Severity::Info), ("c", Severity::Error)] {
        bench.store.add_event(&event(category, severity), Clock.now()).unwrap();
    }
    assert_eq!(severe.next().unwrap().1, "c");
    assert_eq!(one_kind.next().unwrap().1, "b");
    let answer = bench.get("/api/v1/events/stream").header("last-event-id", "x").send().unwrap();
    assert_eq!(answer.status(), 422);
    assert_eq!(bench.get("/api/v1/events/stream?workflow=77").send().unwrap().status(), 404);
}

#[test]
fn a_reader_that_hangs_up_is_forgotten() {
    let bench = Bench::new();
    let reader = Reader::open(&bench, "", None);
    assert_eq!(bench.figure("windlass_event_streams"), Some(1));
    drop(reader);
    eventually("it is forgotten", || bench.figure("windlass_event_streams") == Some(0));
}

#[test]
fn readers_hear_the_end_of_the_server() {
    let bench = Bench::new();
    let mut reader = Reader::open(&bench, "", None);
    bench.note("last");
    assert_eq!(reader.next().unwrap().1, "last");
    let Bench { server, dir, .. } = bench;
    server.stop();
    assert_eq!(reader.next(), None);
    drop(dir);
}

#[test]
fn what_is_committed_is_told_at_once_and_not_when_somebody_looks() {
    let bench = Bench::with(|options| options.look_for_events = Duration::from_hours(1));
    let workflow = begun(&bench, 1);
    let mut reader = Reader::open(&bench, "?category=job_completed", None);
    let mut worker = Worker::join(&bench);
    while worker.holds() == 0 {
        worker.work(&bench);
    }
    worker.work(&bench);
    assert_eq!(reader.next().unwrap().1, "job_completed");
    // What a handler writes is told as well.
    let mut notes = Reader::open(&bench, "?category=note", None);
    let note = serde_json::json!({"workflow_id": workflow.0, "timestamp": 0, "data": {"category": "note"}});
    assert_eq!(bench.post("/api/v1/events").json(&note).send().unwrap().status(), 200);
    assert_eq!(notes.next().unwrap().1, "note");
}
