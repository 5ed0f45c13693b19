//! Failure commands with real processes: for single jobs and groups, while the workflow is idle, while it runs,
//! and on a server.

use crate::common::{Sandbox, documented_keys, eventually};
use crate::serve::StoppedOnDrop;
use serde_json::{Value, json};

/// Three parts, of which the second fails until the file `corrected` exists, and a job that depends on them.
const PARTS: &str = "\
name: parts
use_pending_failed: true
jobs:
  - name: part_1
    command: 'true'
  - name: part_2
    command: 'test -e mended || { echo \"checksum of block 17 is odd\" >&2; exit 3; }'
  - name: part_3
    command: 'true'
  - name: merge
    command: touch merged
    depends_on: [part_1, part_2, part_3]
";

fn sandbox_with(spec: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", spec);
    sandbox
}

/// The status of a job.
fn status(sandbox: &Sandbox, job: &str) -> String {
    sandbox.json(&["jobs", "get", job])["status"].as_str().unwrap().to_owned()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

#[test]
fn pending_failures_are_listed_with_log_excerpt() {
    let sandbox = sandbox_with(PARTS);
    sandbox.windlass(&["run", "spec.yaml"]).exits(6);
    let listed = sandbox.windlass(&["failures", "pending"]).exits(0);
    let listed = listed.prints("1 job waits for a decision").prints("part_2 (job 2), attempt 1: exit code 3");
    listed.prints("| checksum of block 17 is odd").says("next: windlass failures retry part_2 -w 1");
    let waiting = sandbox.json(&["failures", "pending"]);
    documented_keys(&waiting[0]);
    assert_eq!((&waiting[0]["job_name"], &waiting[0]["return_code"]), (&json!("part_2"), &json!(3)));
    assert_eq!(waiting[0]["log_tail"], "checksum of block 17 is odd");
    let shown = sandbox.windlass(&["failures", "show", "part_2"]).exits(0);
    shown.prints("Attempt 1: exit code 3").prints("| checksum of block 17 is odd");
    let why = sandbox.windlass(&["why", "part_2"]).exits(0);
    why.prints("windlass failures retry 2");
}

#[test]
fn retry_continues_workflow_and_is_recorded() {
    let sandbox = sandbox_with(PARTS);
    sandbox.windlass(&["run", "spec.yaml"]).exits(6);
    sandbox.windlass(&["failures", "retry", "part_2", "--dry-run"]).exits(0).prints("would: retry (part_2)");
    assert_eq!(status(&sandbox, "part_2"), "pending_failed");
    assert_eq!(sandbox.json(&["failures", "decisions"]), json!([]));
    sandbox.write("mended", "");
    let done = sandbox.windlass(&["failures", "retry", "part_2", "--reason", "the block was copied again"]);
    done.exits(0).prints("decided: retry (part_2)").says("next: windlass resume 1");
    assert_eq!(status(&sandbox, "part_2"), "ready");
    sandbox.windlass(&["resume"]).exits(0);
    assert!(sandbox.path("merged").exists());
    let decisions = sandbox.json(&["failures", "decisions"]);
    documented_keys(&decisions[0]);
    let decision = &decisions[0];
    assert_eq!((&decision["made_by"], &decision["next_status"]), (&json!("tester"), &json!("completed")));
    let job = sandbox.json(&["jobs", "get", "part_2"]);
    assert_eq!(job["attempt_id"], 2);
    assert_eq!(job["decisions"][0]["reason"], "the block was copied again");
    sandbox
        .windlass(&["jobs", "get", "part_2"])
        .exits(0)
        .prints("the block was copied again; then completed");
    sandbox.windlass(&["why", "part_2"]).exits(0).prints("the block was copied again; then completed");
}

#[test]
fn retry_with_more_memory_affects_one_job() {
    let sandbox = sandbox_with(
        "\
name: grow
use_pending_failed: true
resource_requirements:
  - {name: small, num_cpus: 1, memory: 40m, runtime: PT10M}
jobs:
  - name: sort
    command: (head -c 60000000 /dev/zero; sleep 1) | tail -c 60000000 | wc -c
    resource_requirements: small
",
    );
    sandbox.windlass(&["run", "spec.yaml"]).exits(6);
    let groups = sandbox.json(&["failures"]);
    documented_keys(&groups[0]);
    assert_eq!((&groups[0]["class"], &groups[0]["pending"]), (&json!("memory"), &json!(1)));
    assert!(groups[0]["hint"].as_str().unwrap().contains("--memory SIZE"), "{groups}");
    let done =
        sandbox.windlass(&["failures", "retry", "--class", "memory", "--memory", "400m", "-r", "it grew"]);
    done.exits(0).prints("decided: retry with memory 40 MiB → 400 MiB (sort)");
    sandbox.windlass(&["resume"]).exits(0);
    let small = sandbox.json(&["resource-requirements", "get", "small"]);
    assert_eq!(small["memory_bytes"], 40 << 20, "others keep what they asked for");
    let revisions = sandbox.json(&["failures", "revisions"]);
    documented_keys(&revisions[0]);
    assert_eq!(revisions[0]["change"], "memory 40 MiB → 400 MiB");
    // The next attempt has already run with it.
    sandbox.windlass(&["failures", "undo", "1"]).exits(4).prints("refused: it is `completed`");
}

#[test]
fn fail_decision_cancels_dependents() {
    let sandbox = sandbox_with(PARTS);
    sandbox.windlass(&["run", "spec.yaml"]).exits(6);
    sandbox.windlass(&["failures", "fail", "part_2", "-r", "lost"]).exits(0).says("1 failed, 1 canceled");
    assert_eq!(
        (status(&sandbox, "part_2").as_str(), status(&sandbox, "merge").as_str()),
        ("failed", "canceled")
    );
    assert_eq!(sandbox.json(&["status"])["state"], "failed");
    let again = sandbox.windlass(&["failures", "fail", "part_2"]).exits(4);
    again.prints("refused: the job is `failed`: only jobs that wait for a decision can be failed");
    // The decision is undone.
    sandbox.write("mended", "");
    sandbox.windlass(&["failures", "retry", "part_2", "-r", "found"]).exits(0);
    sandbox.windlass(&["resume"]).exits(0);
    let report = sandbox.json(&["failures", "report"]);
    documented_keys(&report[0]);
    let tester = &report[0];
    assert_eq!((&tester["fails"], &tester["overruled"]), (&json!(1), &json!(1)), "{report}");
    assert_eq!((&tester["right"], &tester["known"]), (&json!(1), &json!(2)), "{report}");
    sandbox.windlass(&["failures", "report"]).exits(0).prints("1 of 2 right");
}

#[test]
fn ignore_decision_unblocks_dependents() {
    let sandbox = sandbox_with(PARTS);
    sandbox.windlass(&["run", "spec.yaml"]).exits(6);
    sandbox.windlass(&["failures", "ignore", "part_2", "-r", "two parts will do"]).exits(0);
    sandbox.windlass(&["resume"]).exits(1);
    assert_eq!(
        (status(&sandbox, "part_2").as_str(), status(&sandbox, "merge").as_str()),
        ("failed", "completed")
    );
    assert!(sandbox.path("merged").exists());
}

/// Fifty jobs that fail with the same signature, and one with a different one.
fn fifty() -> Sandbox {
    let sandbox = sandbox_with(
        "\
name: fifty
jobs:
  - name: align_{i}
    command: 'test -e ref.fa || { echo \"sample {i}: /data/{i}/ref.fa: No such file or directory\" >&2; exit 2; }'
    parameters: {i: '1:50'}
  - name: other
    command: 'test -e ref.fa || { echo \"Segmentation of the image failed\" >&2; exit 9; }'
",
    );
    sandbox.windlass(&["run", "spec.yaml"]).exits(1);
    sandbox
}

#[test]
fn failure_group_of_fifty_is_retried_with_one_command() {
    let sandbox = fifty();
    let groups = sandbox.json(&["failures"]);
    assert_eq!(list(&groups).len(), 2, "{groups}");
    assert_eq!((&groups[0]["failed"], &groups[0]["class"]), (&json!(50), &json!("data")));
    let table = sandbox.windlass(&["failures"]).exits(0);
    let key = groups[0]["signature"].as_str().unwrap()[..8].to_owned();
    table.prints("50 of 51").prints(&key).says(&format!("next: windlass failures 1 --group {key}"));
    let jobs = sandbox.json(&["failures", "--group", &key]);
    documented_keys(&jobs[0]);
    assert_eq!(list(&jobs).len(), 50);
    sandbox
        .windlass(&["failures", "retry", "nokey", "-r", "x"])
        .exits(2)
        .says("`nokey` is neither a job nor the key of a group");
    sandbox.windlass(&["failures", "retry", &key]).exits(2).says("--reason");
    sandbox.write("ref.fa", "");
    let retried = sandbox.windlass(&["failures", "retry", &key, "--reason", "it is there now"]).exits(0);
    retried.prints("decided: retry (align_1, align_2, align_3, align_4, align_5 and 45 more)");
    sandbox.windlass(&["resume"]).exits(1);
    let jobs = sandbox.json(&["status"])["jobs"].clone();
    assert_eq!((&jobs["completed"], &jobs["failed"]), (&json!(50), &json!(1)), "the other one was not meant");
    sandbox.windlass(&["failures"]).exits(0).prints("1 of 1");
    assert_eq!(list(&sandbox.json(&["failures", "--all"])).len(), 2);
}

#[test]
fn ignoring_many_failures_requires_confirmation() {
    let sandbox = fifty();
    let key = sandbox.json(&["failures"])[0]["signature"].as_str().unwrap().to_owned();
    let ignore = ["failures", "ignore", &key, "-r", "no reference"];
    sandbox.windlass(&ignore).exits(4).says("ignore the failures of 50 jobs");
    assert_eq!(sandbox.json(&["failures", "decisions"]), json!([]));
    sandbox.windlass(&[&ignore[..], &["--yes"]].concat()).exits(0);
    assert_eq!(list(&sandbox.json(&["failures", "decisions"])).len(), 50);
    sandbox.windlass(&["failures", "fail", &key, "-r", "x"]).exits(2).says("is waiting for a decision");
}

#[test]
fn revision_of_many_jobs_is_undone_at_once() {
    let sandbox = fifty();
    let key = sandbox.json(&["failures"])[0]["signature"].as_str().unwrap().to_owned();
    sandbox.windlass(&["failures", "change", &key, "-r", "x"]).exits(2).says("no changes given");
    let change = ["failures", "change", &key, "--memory", "1g", "--priority", "5", "-r", "larger"];
    sandbox.windlass(&change).exits(0).prints("→ 1 GiB, priority 0 → 5 (align_1");
    assert_eq!(sandbox.json(&["jobs", "get", "align_7"])["priority"], 5);
    assert_eq!(status(&sandbox, "align_7"), "failed", "it stays where it is");
    let revisions = sandbox.json(&["failures", "revisions"]);
    assert_eq!((&revisions[0]["jobs"], &revisions[0]["made_by"]), (&json!(50), &json!("tester")));
    assert_eq!(list(&sandbox.json(&["failures", "revisions", "show", "1"])).len(), 50);
    sandbox.windlass(&["failures", "undo", "1"]).exits(0).prints("priority 5 → 0");
    let job = sandbox.json(&["jobs", "get", "align_7"]);
    assert_eq!((&job["priority"], &job["resource_requirements"]), (&json!(0), &Value::Null));
    assert_eq!(list(&job["revisions"]).len(), 2, "{job}");
    sandbox.windlass(&["failures", "undo", "1"]).exits(4).says("was undone by tester");
    sandbox.windlass(&["failures", "undo", "9"]).exits(2).says("no revision 9");
}

#[test]
fn decisions_apply_while_other_jobs_run() {
    let sandbox = sandbox_with(&format!(
        "{PARTS}  - name: long\n    command: 'until test -e go; do sleep 0.05; done'\n"
    ));
    let mut run = sandbox.start(&["run", "spec.yaml", "--num-cpus", "4"]);
    let stands = |job: &str, wanted: &str| {
        let said = sandbox.windlass(&["jobs", "get", job, "--format", "json"]).stdout;
        said.contains(&format!("\"status\": \"{wanted}\""))
    };
    eventually("part_2 waits", || stands("part_2", "pending_failed"));
    eventually("long runs", || stands("long", "running"));
    sandbox.write("mended", "");
    let retried =
        sandbox.windlass(&["failures", "retry", "part_2", "--priority", "3", "-r", "mended"]).exits(0);
    assert!(!retried.stderr.contains("resume"), "the workflow is running: {}", retried.stderr);
    eventually("what depends on it has run", || stands("merge", "completed"));
    assert_eq!(status(&sandbox, "long"), "running");
    sandbox.write("go", "");
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert_eq!(sandbox.json(&["failures", "decisions"])[0]["made_by"], "tester");
}

#[test]
fn decisions_apply_on_server() {
    let sandbox = sandbox_with(PARTS);
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.windlass(&["run", "spec.yaml"]).exits(6);
    sandbox.windlass(&["failures", "pending"]).exits(0).prints("| checksum of block 17 is odd");
    let key = sandbox.json(&["failures"])[0]["signature"].as_str().unwrap().to_owned();
    sandbox.write("mended", "");
    let retry = ["failures", "retry", &key, "--memory", "300m", "-r", "mended"];
    sandbox.windlass(&retry).exits(0).prints("→ 300 MiB (part_2)");
    assert_eq!(sandbox.json(&["failures", "revisions"])[0]["jobs"], 1);
    sandbox.windlass(&["resume"]).exits(0);
    let decisions = sandbox.json(&["failures", "decisions"]);
    assert_eq!(decisions[0]["next_status"], "completed", "{decisions}");
    served.stop();
}

#[test]
fn unsure_agent_decision_becomes_proposal() {
    let policy = "triage: {min_confidence: 0.8, max_agent_retries: 1, require_evidence: true}\n";
    let sandbox = sandbox_with(&format!("{policy}{PARTS}"));
    sandbox.windlass(&["run", "spec.yaml"]).exits(6);
    let retry = |more: &[&str]| {
        let base = ["failures", "retry", "part_2", "--agent", "robot", "-r", "a copy went wrong"];
        sandbox.windlass(&[&base, more].concat())
    };
    retry(&["--confidence", "0.9"]).exits(4).prints("refused: the workflow requires evidence");
    retry(&["--evidence", "disk full"]).exits(4).prints("refused: the log does not contain `disk full`");
    let evidence = ["--evidence", "checksum of block 17 is odd"];
    let proposed = retry(&[&evidence[..], &["--confidence", "0.5"]].concat()).exits(6);
    proposed.prints("proposed: waits for a person: confidence 0.5 is below 0.8");
    let listed = sandbox.windlass(&["failures", "pending"]).exits(0);
    listed
        .prints("proposal 1 of robot, confidence 0.5: retry: a copy went wrong")
        .says("windlass failures approve 1");
    assert_eq!(sandbox.json(&["failures", "pending"])[0]["proposals"][0]["id"], 1);
    sandbox.windlass(&["failures", "decline", "1"]).exits(0).prints("declined; the job keeps waiting");
    sandbox.windlass(&["failures", "approve", "1"]).exits(2).says("no proposal 1 is waiting");
    retry(&[&evidence[..], &["--confidence", "0.6"]].concat()).exits(6);
    sandbox.write("mended", "");
    sandbox.windlass(&["failures", "approve", "2"]).exits(0).prints("decided: retry (part_2)");
    sandbox.windlass(&["resume"]).exits(0);
    let report = sandbox.json(&["failures", "report"]);
    let robot = &report[0];
    assert_eq!((&robot["made_by"], &robot["is_agent"]), (&json!("robot"), &json!(true)), "{report}");
    assert_eq!((&robot["right"], &robot["known"], &robot["declined"]), (&json!(1), &json!(2), &json!(1)));
    sandbox.windlass(&["failures", "report", "--all"]).exits(0).prints("1 of 2 right");
}
