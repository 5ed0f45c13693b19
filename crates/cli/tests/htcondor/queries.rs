//! Queries about requests and their runs.

use crate::support::{Pool, eventually};
use crate::test_server::TestServer;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// All runs of a request, oldest first.
pub(crate) fn runs(test_server: &TestServer, name: &str) -> Vec<Value> {
    let mut runs =
        test_server.json(&["request", "dag", "list", "--request", name]).as_array().unwrap().clone();
    runs.sort_by_key(|run| run["created_at"].to_string());
    runs
}

pub(crate) fn last(test_server: &TestServer, name: &str) -> Value {
    runs(test_server, name).pop().unwrap_or_default()
}

pub(crate) fn directory(run: &Value) -> PathBuf {
    PathBuf::from(run["submit_dir"].as_str().unwrap())
}

/// The kinds of all alerts about a request.
pub(crate) fn alerts(test_server: &TestServer, name: &str) -> Vec<String> {
    let alerts = test_server.json(&["request", "alerts", name]);
    alerts.as_array().unwrap().iter().map(|alert| alert["kind"].as_str().unwrap().to_owned()).collect()
}

/// The statuses that a request has had, in order.
pub(crate) fn way(test_server: &TestServer, name: &str) -> Vec<String> {
    let shown = test_server.request(name);
    let transitions = shown["status_transitions"].as_array().unwrap();
    transitions.iter().map(|one| one["to"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Every finished attempt in a run's directory, as recorded by its script.
pub(crate) fn attempts(run: &Value) -> Vec<Value> {
    let lines = fs::read_to_string(directory(run).join("attempts.jsonl")).unwrap_or_default();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn await_status(test_server: &TestServer, name: &str, status: &str) {
    eventually(&format!("{name} is {status}"), || test_server.status(name) == status);
}

pub(crate) fn await_completion(test_server: &TestServer, name: &str) {
    eventually(&format!("{name} is completed"), || test_server.is_completed(name));
}

/// The number of queued jobs of a run, including DAGs.
pub(crate) fn left(pool: &Pool, run: &Value) -> usize {
    let batch = format!("windlass-{}", directory(run).file_name().unwrap().to_string_lossy());
    let constraint = format!("JobBatchName == \"{batch}\"");
    pool.condor("condor_q", &["-constraint", &constraint, "-autoformat", "ClusterId"]).lines().count()
}
