//! The Torc contract as its clients see it: Torc's own Python client, and schemathesis, which tests
//! everything that the OpenAPI document allows.

use crate::test_server::Fixture;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of the environment that `cargo xtask test` creates.
fn program(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let file = target.join("torc-client/bin").join(name);
    assert!(file.exists(), "{} is missing: `cargo xtask test` installs it", file.display());
    file
}

#[track_caller]
fn must_succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torc_client").join(name)
}

#[track_caller]
fn run_script(fixture: &Fixture, name: &str, arguments: &[&str]) {
    let mut command = Command::new(program("python"));
    command.arg(script(name)).args([&fixture.server.url, &fixture.server.token]).args(arguments);
    // Write no files next to the scripts.
    must_succeed(command.env("PYTHONDONTWRITEBYTECODE", "1"));
}

#[test]
fn torc_python_client_works_under_its_prefix() {
    let fixture = Fixture::new();
    run_script(&fixture, "session.py", &["torc-service/v1"]);
}

#[test]
fn torc_python_client_works_under_our_prefix() {
    let fixture = Fixture::new();
    run_script(&fixture, "session.py", &["api/v1"]);
}

fn schemathesis(fixture: &Fixture, general: &[&str], arguments: &[&str]) {
    let mut command = Command::new(program("schemathesis"));
    command
        .args(general)
        .args(["run", &format!("{}/api/v1/openapi.json", fixture.server.url)])
        .args(["--header", &format!("Authorization: Bearer {}", fixture.server.token)])
        .args(["--include-path-regex", "^/torc-service/v1/"])
        .args(["--exclude-path-regex", "/stream$"])
        .args(["--phases", "coverage,fuzzing", "--max-examples", "3", "--max-time", "30"])
        // One thread: some Pythons lose count of their own recursion where two threads parse at once.
        .args(["--seed", "1", "--workers", "1"])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ])
        .args(["--no-color", "--suppress-health-check", "all"])
        .args(arguments)
        .current_dir(fixture.dir.path());
    must_succeed(&mut command);
}

/// For every documented request, the response has a documented status and shape, and is not an internal error.
#[test]
fn documented_requests_get_documented_responses() {
    schemathesis(&Fixture::new(), &[], &[]);
}

/// The same with existing objects, since random ids find nothing. Deletions are excluded, so that they stay.
#[test]
fn existing_objects_get_documented_responses() {
    let fixture = Fixture::new();
    run_script(&fixture, "furnish.py", &[]);
    let config = script("schemathesis.toml");
    schemathesis(&fixture, &["--config-file", config.to_str().unwrap()], &["--exclude-method", "DELETE"]);
}
