//! Retries after failures, with real processes and real limits: each example for them, locally and with a
//! server.

use crate::common::Sandbox;
use crate::serve::StoppedOnDrop;
use serde_json::Value;
use std::fs;
use std::path::Path;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// An example, the exit code of `run`, and the return codes of all attempts of a job.
struct Case {
    spec: &'static str,
    exit: i32,
    job: &'static str,
    codes: &'static [i64],
    /// The reason in the result of the first attempt.
    why: &'static str,
}

const CASES: [Case; 7] = [
    Case {
        spec: "failure_handler",
        exit: 0,
        job: "solve",
        codes: &[75, 75, 0],
        why: "attempt 2 of 3 by rule 2 of handler solver (exit code 75)",
    },
    Case {
        spec: "recovery_script",
        exit: 0,
        job: "solve",
        codes: &[10, 0],
        why: "attempt 2 of 2 by rule 1 of handler mesh (exit code 10): after its recovery script",
    },
    Case {
        spec: "more_memory",
        exit: 0,
        job: "sort",
        codes: &[137, 0],
        why: "by rule 1 of handler grow (out of memory): memory 40 MiB → 80 MiB",
    },
    Case {
        spec: "more_time",
        exit: 0,
        job: "solve",
        codes: &[152, 0],
        why: "by rule 1 of handler patience (timeout): runtime 1.0s → 3.0s",
    },
    Case {
        spec: "transient_error",
        exit: 0,
        job: "fetch",
        codes: &[7, 7, 0],
        why: "by rule 1 of handler network (class transient)",
    },
    Case {
        spec: "permanent_error",
        exit: 1,
        job: "typo",
        codes: &[2],
        why: "no rule of handler network matches",
    },
    Case {
        spec: "pending_failed",
        exit: 6,
        job: "download",
        codes: &[3],
        why: "no rule of handler network matches",
    },
];

fn sandbox_with(spec: &str) -> (Sandbox, String) {
    let sandbox = Sandbox::new();
    let file = format!("{spec}.yaml");
    fs::copy(Path::new(EXAMPLES).join(&file), sandbox.path(&file)).unwrap();
    (sandbox, file)
}

/// The results of one job, oldest first.
fn results(sandbox: &Sandbox, job: &str) -> Vec<Value> {
    let all = sandbox.json(&["results"]);
    all.as_array().unwrap().iter().filter(|row| row["job_name"] == job).cloned().collect()
}

fn check(case: &Case, sandbox: &Sandbox, file: &str) {
    sandbox.windlass(&["run", file]).exits(case.exit);
    let rows = results(sandbox, case.job);
    let codes: Vec<i64> = rows.iter().map(|row| row["return_code"].as_i64().unwrap()).collect();
    assert_eq!(codes, case.codes, "{file}");
    let reason = rows[0]["reason"].as_str().unwrap();
    assert!(reason.contains(case.why), "{file}: {reason}");
}

#[test]
fn failure_handler_examples_behave_as_described() {
    for case in &CASES {
        let (sandbox, file) = sandbox_with(case.spec);
        check(case, &sandbox, &file);
    }
}

#[test]
fn failure_handler_examples_behave_as_described_on_server() {
    for case in &CASES {
        let (sandbox, file) = sandbox_with(case.spec);
        let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
        check(case, &sandbox, &file);
        served.stop();
    }
}

#[test]
fn recovery_script_output_is_kept_with_failed_attempt() {
    let (sandbox, file) = sandbox_with("recovery_script");
    sandbox.windlass(&["run", &file]).exits(0);
    let log = sandbox.read("windlass_output/job_stdio/job_wf1_j2_r1_a1.recovery.log");
    assert_eq!(log, "attempt 1 ended with 10: making a coarser mesh\n");
}

/// The job is retried anyway, so the timeout of the script must be reported elsewhere.
#[test]
fn recovery_script_timeout_is_reported_everywhere() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "s.yaml",
        "name: s\nfailure_handlers:\n  - {name: h, rules: [{exit_codes: [9], recovery_script: 'echo mending; sleep 600', \
         recovery_timeout: PT1S, max_retries: 2}]}\njobs: [{name: a, command: exit 9, failure_handler: h}]\n",
    );
    sandbox.windlass(&["run", "s.yaml"]).exits(1);
    let how = "timed out after 1.0s";
    let attempts = results(&sandbox, "a");
    assert_eq!((&attempts[0]["recovered"], &attempts[1]["recovered"]), (&Value::Null, &how.into()));
    sandbox.windlass(&["why", "a"]).exits(0).prints(&format!("the recovery script before attempt 2 {how}"));
    let told = sandbox.windlass(&["events"]).exits(0).stdout;
    assert_eq!(
        told.matches(&format!("the recovery script before attempt 2 of job 1 {how}")).count(),
        1,
        "{told}"
    );
    sandbox.windlass(&["logs", "a", "--attempt", "1"]).exits(0).prints("mending");
    let listed = sandbox.json(&["results", "--include-logs"]);
    assert!(listed[0]["recovery_path"].as_str().unwrap().ends_with("_a1.recovery.log"), "{listed}");
    assert_eq!(listed[1]["recovery_path"], Value::Null, "{listed}");
}

#[test]
fn memory_increase_keeps_other_jobs_with_same_requirements() {
    let (sandbox, file) = sandbox_with("more_memory");
    let text = sandbox.read(&file) + "  - {name: modest, command: 'true', resource_requirements: small}\n";
    sandbox.write(&file, &text);
    sandbox.windlass(&["run", &file]).exits(0);
    let sets = sandbox.json(&["resource-requirements"]);
    let small = sets.as_array().unwrap().iter().find(|set| set["name"] == "small").unwrap();
    assert_eq!(small["memory_bytes"].as_i64().or(small["memory"].as_i64()), Some(40 << 20), "{sets}");
}

/// Failures wait for a decision; rerunning them continues the workflow.
#[test]
fn pending_failed_jobs_can_be_rerun() {
    for serves in [false, true] {
        let (sandbox, file) = sandbox_with("pending_failed");
        let served = serves.then(|| StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]));
        let said = sandbox.windlass(&["run", &file]).exits(6);
        assert!(said.stderr.contains("1 pending_failed"), "{}", said.stderr);
        let status = sandbox.json(&["status"]);
        assert_eq!(status["state"], "needs_decision", "{status}");
        assert_eq!(status["jobs"]["blocked"], 1, "what depends on it waits");
        sandbox.windlass(&["run", &file]).exits(6);
        sandbox.write("pending_failed.ok", "");
        sandbox.windlass(&["resume", "--retry-failed"]).exits(0);
        drop(served);
    }
}

#[test]
fn exhausted_retry_budget_stops_retries_and_can_be_resumed() {
    for serves in [false, true] {
        let (sandbox, file) = sandbox_with("retry_budget");
        let served = serves.then(|| StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]));
        sandbox.windlass(&["run", &file]).exits(6);
        let jobs = sandbox.json(&["status"])["jobs"].clone();
        assert!(jobs["ready"].as_i64().unwrap() > 0, "{jobs}");
        let told = sandbox.windlass(&["events"]).exits(0).stdout;
        assert_eq!(told.matches("the retry budget is used up").count(), 1, "{told}");
        sandbox.write("retry_budget.ok", "");
        sandbox.windlass(&["resume"]).exits(1);
        let jobs = sandbox.json(&["status"])["jobs"].clone();
        assert_eq!(jobs["ready"], 0, "{jobs}");
        assert!(jobs["failed"].as_i64().unwrap() > 0, "those that were given up stay so: {jobs}");
        sandbox.windlass(&["resume", "--retry-failed"]).exits(0);
        drop(served);
    }
}

/// A run is interrupted during a retry delay: the next run waits for the remaining time, and no job is lost.
#[test]
fn retry_delay_and_recovery_script_survive_restart() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "later.yaml",
        "name: later\nfailure_handlers:\n  - name: later\n    rules: [{exit_codes: [9], delay: PT2S, \
         recovery_script: 'touch put.right', max_retries: 2}]\njobs:\n  - {name: a, command: 'test -e put.right || exit 9', \
         failure_handler: later}\n",
    );
    let mut first = sandbox.start(&["run", "later.yaml"]);
    crate::common::eventually("the first attempt has failed", || {
        let rows = sandbox.windlass(&["results", "--format", "json"]);
        rows.stdout.contains("\"return_code\": 9") || rows.stdout.contains("\"return_code\":9")
    });
    crate::common::kill(first.id(), "KILL");
    first.wait().unwrap();
    sandbox.windlass(&["resume"]).exits(0);
    let codes: Vec<i64> =
        results(&sandbox, "a").iter().map(|row| row["return_code"].as_i64().unwrap()).collect();
    assert_eq!(codes, [9, 0]);
    assert!(sandbox.path("put.right").exists());
}

/// A failure class from the user's own rules has the same effect as one from a built-in rule.
#[test]
fn user_rules_set_failure_class() {
    let sandbox = Sandbox::new();
    sandbox.write("windlass.toml", "[classify]\nrules_file = \"rules.toml\"\n");
    sandbox.write(
        "rules.toml",
        "[[rule]]\nname = \"seats\"\nclass = \"transient\"\nstderr = [\"no seat left\"]\n",
    );
    sandbox.write(
        "seats.yaml",
        "name: seats\nfailure_handlers: [{name: again, rules: [{classes: [transient]}]}]\njobs:\n  - {name: a, command: \
         'test $WINDLASS_ATTEMPT_ID -ge 2 || { echo no seat left >&2; exit 1; }', failure_handler: again}\n",
    );
    sandbox.windlass(&["run", "seats.yaml"]).exits(0);
    assert_eq!(results(&sandbox, "a").len(), 2);
    sandbox.write("rules.toml", "[[rule]]\nname = 3\n");
    sandbox.windlass(&["run", "--new", "seats.yaml"]).exits(2).says("rules.toml");
}
