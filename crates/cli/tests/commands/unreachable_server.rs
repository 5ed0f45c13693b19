//! Commands that need a server: how they select it, and their messages when it is unreachable.

use crate::common::Sandbox;

/// An address where no server listens. No test gets this port, which it could if it were a free one.
const UNUSED_ADDRESS: &str = "http://127.0.0.1:1";

fn with_spec() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    sandbox
}

#[test]
fn commands_report_unreachable_server() {
    let (sandbox, url) = (with_spec(), UNUSED_ADDRESS);
    for line in [
        "status",
        "list",
        "workflows get 1",
        "workflows update 1 --name x",
        "jobs",
        "jobs get a",
        "results",
        "logs a",
        "files",
        "user-data",
        "events",
        "events follow",
        "job-dependencies job-job",
        "resource-requirements",
        "failure-handlers",
        "archive 1",
        "delete 1 --yes",
        "export 1",
        "why a",
        "resources check",
        "reinit",
        "reset-status",
        "cancel 1",
        "resume",
        "run w.yaml",
        "create w.yaml",
        "submit w.yaml",
        "exec -c true",
        "ping",
        "workers",
    ] {
        let words: Vec<&str> = ["--url", url].into_iter().chain(line.split(' ')).collect();
        let said = sandbox.windlass(&words);
        assert_eq!(said.code, 5, "{line}: {}", said.stderr);
        said.says("cannot reach the server").says(url);
        assert!(!sandbox.path(".windlass").exists(), "{line} made a database");
    }
}

#[test]
fn local_commands_reject_server_url() {
    let (sandbox, url) = (with_spec(), UNUSED_ADDRESS);
    for line in ["demo", "serve"] {
        sandbox.windlass(&["--url", url, line]).exits(2).says(url).says("leave out --url");
    }
    for verb in [&["migrate"][..], &["backup", "b.db"], &["check"], &["copy", "postgres://x@127.0.0.1/x"]] {
        sandbox.windlass(&[&["--url", url, "db"], verb].concat()).exits(2).says(url).says("leave out --url");
    }
    sandbox.windlass(&["--url", url, "spec", "schema"]).exits(0);
    sandbox.windlass(&["--url", url, "create", "--dry-run", "w.yaml"]).exits(0);
    sandbox.windlass(&["submit", "w.yaml"]).exits(2).says("needs a server");
}

#[test]
fn db_option_overrides_server_url_from_environment() {
    let (sandbox, url) = (with_spec(), UNUSED_ADDRESS);
    sandbox.windlass(&["create", "w.yaml"]).exits(0);
    let database = sandbox.path(".windlass/windlass.db");
    let database = database.to_str().unwrap();
    sandbox
        .windlass(&["--url", url, "--db", database, "status"])
        .exits(2)
        .says("--db and --url were both given");
    let with_url = |args: &[&str]| crate::common::Output::of(sandbox.command(args).env("WINDLASS_URL", url));
    with_url(&["status"]).exits(5);
    with_url(&["--db", database, "status"]).exits(0);
}
