//! A database and a spec of an earlier version: they open, show their contents, and the workflow continues.

use crate::common::{Output, Sandbox};
use std::process::Command;

/// A directory as the earlier version left it: one of five jobs failed.
fn sandbox_of_schema_14() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("pipeline.yaml", include_str!("../fixtures/schema_14.yaml"));
    for part in [1, 3] {
        sandbox.write(&format!("part_{part}.txt"), &format!("{part}\n"));
    }
    std::fs::create_dir(sandbox.path(".windlass")).unwrap();
    let directory = sandbox.path("").display().to_string();
    let dump =
        include_str!("../fixtures/schema_14.sql").replace("@DIRECTORY@", directory.trim_end_matches('/'));
    sandbox.write("dump.sql", &dump);
    let load = "import sqlite3; database = sqlite3.connect('.windlass/windlass.db'); \
                database.execute('PRAGMA journal_mode = WAL'); database.executescript(open('dump.sql').read())";
    let status = Command::new("python3").args(["-c", load]).current_dir(sandbox.path("")).status().unwrap();
    assert!(status.success());
    sandbox
}

fn count_runs(output: &Output, job: &str) -> usize {
    output.stdout.lines().filter(|line| line.contains(job)).count()
}

#[test]
fn schema_14_database_is_migrated_and_workflow_completes() {
    let sandbox = sandbox_of_schema_14();
    sandbox.windlass(&["db", "migrate"]).exits(0).prints("16");
    sandbox.windlass(&["status"]).exits(0).prints("3 of 5 jobs completed");
    sandbox.windlass(&["failures"]).exits(0).prints("exit code 7");
    sandbox.write("repaired", "");
    sandbox.windlass(&["resume", "--retry-failed"]).exits(0);
    sandbox.windlass(&["status"]).exits(0).prints("5 of 5 jobs completed");
    assert_eq!(sandbox.read("sum.txt"), "1\n2\n3\n");
    let results = sandbox.windlass(&["results"]).exits(0);
    assert_eq!(count_runs(&results, "part_1"), 1, "completed jobs do not run again: {results:?}");
    sandbox.windlass(&["db", "check"]).exits(0).prints("no problems found");
}

#[test]
fn spec_of_schema_14_run_is_recognized() {
    let sandbox = sandbox_of_schema_14();
    sandbox.write("repaired", "");
    sandbox.windlass(&["run", "pipeline.yaml"]).exits(0).says("workflow 1 (pipeline.yaml) continues");
    sandbox.windlass(&["run", "pipeline.yaml", "--new"]).exits(0);
    assert_eq!(sandbox.json(&["list"]).as_array().map(Vec::len), Some(2));
}
