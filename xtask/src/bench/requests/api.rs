//! The response time of a server with all those requests while it makes passes.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench::workers::http::Http;
use crate::bench::workers::probe::{QueryFunction, QueryProbe};
use crate::bench::workers::server_processes::ServerProcesses;
use crate::bench::workers::windlass::Windlass;

const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
const NAME: &str = "bench-0000";

/// Measures and prints the response times.
pub(super) fn measure(server: &Windlass<'_>, place: &Path, time: Duration) -> Result<()> {
    let begun = Instant::now();
    let server_processes = ServerProcesses::serve(server, place)?;
    let http = server_processes.http();
    let first = await_first_pass(&http)?;
    println!(
        "  {:<58} {:>9.3} s   (its first pass {first:.3} s)",
        "a server starts with them",
        begun.elapsed().as_secs_f64()
    );
    let before = passes(&http)?;
    let questions: [(&'static str, String, QueryFunction); 4] = [
        ("GET /requests, 100 of them", "/requests?limit=100".to_owned(), Http::get_own),
        ("GET /requests/NAME", format!("/requests/{NAME}"), Http::get_own),
        ("GET /dags, 100 of them", "/dags?limit=100".to_owned(), Http::get_own),
        ("PATCH /requests/NAME, its priority", format!("/requests/{NAME}"), change_priority),
    ];
    let probe = QueryProbe::ask(&http, questions);
    thread::sleep(time);
    for (name, latencies) in probe.stop()? {
        println!("  {name:<36} {latencies}");
    }
    let status = status(&http)?;
    let last = status["last_duration_sec"].as_f64().unwrap_or_default();
    println!("  passes meanwhile: {}, the last in {last:.3} s", passes(&http)? - before);
    server_processes.end()
}

/// Sets a new priority each time, so that each call causes a change and a pass.
fn change_priority(http: &Http, path: &str) -> Result<Value> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let priority = NEXT.fetch_add(1, Ordering::Relaxed) % 1000;
    http.patch_own(path, &format!(r#"{{"priority":{priority}}}"#))
}

fn status(http: &Http) -> Result<Value> {
    http.get_own("/lifecycle/status")
}

fn passes(http: &Http) -> Result<u64> {
    let status = status(http)?;
    status["passes"].as_u64().with_context(|| format!("no passes in {status}"))
}

/// Waits for the first pass and returns its duration in seconds.
fn await_first_pass(http: &Http) -> Result<f64> {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while passes(http)? == 0 {
        ensure!(Instant::now() < deadline, "the server makes no pass");
        thread::sleep(Duration::from_millis(10));
    }
    status(http)?["last_duration_sec"].as_f64().context("a pass took no time")
}
