//! `windlass condor` as DAGMan calls it, with the real binary and real files. The decisions are tested in their
//! crate; these tests cover arguments and exit codes.

use crate::common::Sandbox;
use serde_json::{Value, json};

/// The directory of a run with one unit, and a cool-off of an hour.
fn bench() -> Sandbox {
    let sandbox = Sandbox::new();
    let asked = json!({"cpus": 1, "memory": 1_u64 << 30, "gpus": 0, "nodes": 1, "runtime": null});
    let kind = |role: &str| json!({"role": role, "retries": 3, "asked": asked});
    let care = json!({"cool_off_sec": 3600, "longest_cool_off_sec": 3600, "growth": 1.5,
                      "max_memory_per_core_mb": 4000, "longest_runtime_sec": 3600});
    let terms = json!({"name": "r", "run": "u", "program": "/usr/bin/windlass", "care": care,
                       "kinds": {"landing": kind("Landing"), "processing_0": kind("Processing"),
                                 "cleanup": kind("Cleanup")}});
    sandbox.write("run/condor.json", &terms.to_string());
    sandbox.write("run/mg_000000/elected.inc", "MY.DESIRED_Sites = \"T2_X\"\n");
    sandbox
}

/// The exit code of a script that is called in the directory of the unit.
fn answer(sandbox: &Sandbox, words: &[&str]) -> i32 {
    let mut command = sandbox.command(words);
    command.current_dir(sandbox.path("run/mg_000000"));
    let output = command.output().unwrap();
    assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
    output.status.code().unwrap()
}

#[test]
fn condor_post_exit_code_is_the_decision() {
    let sandbox = bench();
    let post = |node: &str, returned: &str, job: &str| {
        answer(&sandbox, &["condor", "post", node, returned, "0", "3", job, "processing_0"])
    };
    assert_eq!(answer(&sandbox, &["condor", "post", "cleanup", "0", "0", "1", "31.0", "cleanup"]), 0);
    assert_eq!(post("proc_000000", "-9", "32.0"), 1, "killed");
    assert_eq!(post("proc_000001", "-1001", "-1.-1"), 1, "not submitted");
    sandbox.write(
        "run/mg_000000/proc_000002.err",
        "windlass payload: data failure 8021: step RECO: cannot read /store/a.root\n",
    );
    assert_eq!(post("proc_000002", "65", "33.0"), 42);
    sandbox.write("run/mg_000000/proc_000003.err", "windlass payload: permanent failure 7002: no manifest\n");
    assert_eq!(post("proc_000003", "70", "34.0"), 43);
    let left: Value = serde_json::from_str(&sandbox.read("run/mg_000000/proc_000002.post.json")).unwrap();
    assert_eq!(left["classification"]["bad_input_files"], json!(["/store/a.root"]));

    assert_eq!(answer(&sandbox, &["condor", "pre", "proc_000000", "1"]), 75, "its cool-off lasts");
    assert_eq!(answer(&sandbox, &["condor", "pre", "proc_000009", "0"]), 0);
    sandbox.write("run/mg_000000/group.dag.metrics", "{\"DagStatus\": 3}");
    assert_eq!(answer(&sandbox, &["condor", "unit", "mg_000000", "1"]), 43);
    assert_eq!(answer(&sandbox, &["condor", "unit", "mg_000000", "0"]), 0);
    assert_eq!(answer(&sandbox, &["condor", "unit", "mg_000000", "-1001"]), 1, "that is of a run before");
}

/// DAGMan must treat every error of the script as a failure, and not as one of the four decisions.
#[test]
fn condor_script_error_is_not_taken_for_a_decision() {
    let sandbox = bench();
    let call = |kind: &str| ["condor", "post", "proc_000000", "0", "0", "3", "32.0", kind].map(str::to_owned);
    let output = sandbox.windlass(&call("odd").each_ref().map(String::as_str));
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("nor above it: it is no directory of a run"), "{}", output.stderr);
    assert_eq!(answer(&sandbox, &call("odd").each_ref().map(String::as_str)), 1);
    assert_eq!(answer(&sandbox, &["condor", "elect", "landing", "0", "0", "3", "32.0", "landing"]), 1);
    assert_eq!(answer(&sandbox, &["condor", "post", "proc_000000", "zero"]), 2);
    assert_eq!(answer(&sandbox, &["condor"]), 2);
}

/// A mistake in the settings must not fail thousands of nodes.
#[test]
fn condor_scripts_ignore_settings() {
    let sandbox = bench();
    sandbox.write("run/mg_000000/windlass.toml", "[broken");
    sandbox.write("run/windlass.toml", "[broken");
    assert_eq!(answer(&sandbox, &["condor", "post", "cleanup", "0", "0", "1", "31.0", "cleanup"]), 0);
}

#[test]
fn condor_scripts_accept_global_options() {
    let sandbox = bench();
    let words = ["--quiet", "condor", "post", "proc_000000", "-1002", "0", "3", "32.0", "processing_0"];
    assert_eq!(answer(&sandbox, &words), 1);
    let help = sandbox.windlass(&["condor", "post", "--help"]);
    assert_eq!(help.code, 0);
    assert!(help.stdout.contains("$MAX_RETRIES"), "{}", help.stdout);
}
