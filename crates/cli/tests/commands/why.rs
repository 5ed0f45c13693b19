//! `windlass why` for every state of a job, with the real binary.

use crate::common::{Sandbox, documented_keys, eventually};

const SPEC: &str = "\
name: sim
resource_requirements: [{name: small, num_cpus: 1, memory: 64m, runtime: 1m}]
jobs:
  - {name: ok, command: 'echo fine', resource_requirements: small}
  - {name: lost, command: 'echo starting; no-such-program 7'}
  - {name: after, command: 'true', depends_on: [lost]}
  - {name: last, command: 'true', depends_on: [after]}
";

fn ran() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("sim.yaml", SPEC);
    sandbox.windlass(&["run", "sim.yaml"]).exits(1);
    sandbox
}

#[test]
fn why_failed_shows_log_line_and_next_command() {
    let output = ran().windlass(&["why", "lost"]).exits(0);
    let output = output.prints("lost, job 2 of workflow 1 (sim): failed");
    let output = output.prints("no-such-program").prints("not found").prints(".e:1:");
    output.prints("windlass resume 1 --retry-failed");
}

#[test]
fn why_canceled_names_failed_dependency() {
    let sandbox = ran();
    let output = sandbox.windlass(&["why", "last"]).exits(0);
    output.prints("canceled because lost (2)").prints("after (3): canceled").prints("windlass why 2");
    let explanation = sandbox.json(&["why", "last"]);
    assert_eq!(explanation["status"], "canceled");
    assert_eq!(explanation["chain"]["roots"][0]["name"], "lost");
    let keys = documented_keys(&explanation);
    assert!(keys.contains("headline") && keys.contains("next"), "{keys:?}");
    documented_keys(&explanation["chain"]);
    documented_keys(&explanation["next"][0]);
}

#[test]
fn why_completed_shows_time_and_duration() {
    let sandbox = ran();
    sandbox.windlass(&["why", "ok"]).exits(0).prints("completed in").prints("windlass logs 1");
    sandbox.windlass(&["why", "nothing"]).exits(2).says("no job `nothing`");
}

#[test]
fn why_distinguishes_waiting_job_from_idle_workflow() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "wait.yaml",
        "name: wait\njobs:\n  - {name: gate, command: 'until [ -e go ]; do sleep 0.02; done'}\n  \
         - {name: behind, command: 'true', depends_on: [gate]}\n",
    );
    sandbox.windlass(&["create", "wait.yaml"]).exits(0);
    sandbox
        .windlass(&["why", "gate"])
        .exits(0)
        .prints("no process runs the workflow")
        .prints("windlass resume 1");
    let mut run = sandbox.start(&["resume"]);
    eventually("the gate runs", || sandbox.json(&["why", "gate"])["status"] == "running");
    sandbox.windlass(&["why", "gate"]).exits(0).prints("running for");
    sandbox.windlass(&["why", "behind"]).exits(0).prints("blocked by gate (1), which is running");
    sandbox.write("go", "");
    assert!(run.wait().unwrap().success());
}

const UNEVEN: &str = "\
name: uneven
resource_requirements: [{name: large, num_cpus: 1, memory: 1g}]
jobs:
  - {name: big, command: 'exit 3', resource_requirements: large}
  - {name: first, command: 'true'}
  - {name: second, command: 'true', depends_on: [first]}
";

#[test]
fn oversized_job_does_not_stop_other_jobs() {
    let sandbox = Sandbox::new();
    sandbox.write("uneven.yaml", UNEVEN);
    let small = sandbox.windlass(&["run", "uneven.yaml", "--memory-gb", "0.5"]).exits(2);
    let small = small.says("`big` requests more than this machine has: not started; the other jobs run");
    small.says("2 completed").says("windlass jobs update JOB --memory SIZE");
    assert_eq!(sandbox.json(&["status"])["jobs"]["ready"], 1);
    sandbox
        .windlass(&["resume", "--memory-gb", "0.5"])
        .exits(2)
        .says("`big` requests more than this machine has");
    sandbox.windlass(&["resume"]).exits(1).says("2 completed, 1 failed");

    let refused = sandbox.windlass(&["failures", "retry", "big", "--memory", "100000g", "--reason", "more"]);
    refused.exits(4).prints("97.7 TiB of memory, and no worker has more than");
    assert_eq!(sandbox.json(&["status"])["jobs"]["failed"], 1, "it is refused before anything is written");
    sandbox
        .windlass(&["jobs", "update", "big", "--memory", "100000g"])
        .exits(4)
        .says("no worker has more than");
    sandbox.windlass(&["jobs", "update", "big", "--memory", "512m"]).exits(0).says("memory 1 GiB → 512 MiB");
}

#[test]
fn why_oversized_job_does_not_suggest_rerun() {
    let sandbox = Sandbox::new();
    sandbox.write("huge.yaml", &UNEVEN.replace("1g", "100000g"));
    sandbox.windlass(&["run", "huge.yaml"]).exits(2).says("2 completed");
    let explanation = sandbox.json(&["why", "big"]);
    assert_eq!(explanation["headline"], "ready, but it requests more than any worker has");
    let next = explanation["next"].to_string();
    assert!(next.contains("windlass jobs update") && !next.contains("resume"), "{next}");
}
