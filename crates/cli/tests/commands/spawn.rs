//! Jobs that add jobs to their own workflow, with the real binary.

use crate::common::{Output, Sandbox, documented_keys};
use serde_json::Value;

fn run(sandbox: &Sandbox, spec: &str) -> Output {
    sandbox.write("grow.yaml", spec);
    sandbox.windlass_on_path(&["run", "grow.yaml"])
}

#[test]
fn a_job_adds_jobs_that_run_after_it() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "next.yaml",
        "lineage: rounds\nstate: {best: 0.5}\njobs:\n  - {name: part_1, command: echo one > one}\n  \
         - {name: sum, command: cat one > sum, depends_on: [part_1]}\n",
    );
    let spec = "name: grow\njobs:\n  - {name: seed, command: 'windlass jobs spawn next.yaml -f json > said; \
                windlass -f json jobs spawn next.yaml > again'}\n";
    run(&sandbox, spec).exits(0);
    assert_eq!(sandbox.read("sum"), "one\n");
    let said: Value = serde_json::from_str(&sandbox.read("said")).unwrap();
    documented_keys(&said);
    assert_eq!((&said["iteration"], &said["is_replay"]), (&1.into(), &false.into()));
    let again: Value = serde_json::from_str(&sandbox.read("again")).unwrap();
    assert_eq!(again["is_replay"], true);
    assert_eq!(again["spawned_job_ids"], said["spawned_job_ids"]);
    let jobs = sandbox.json(&["jobs"]);
    assert_eq!(jobs.as_array().unwrap().len(), 3);
    assert_eq!(jobs[2]["origin"], "spawn");
}

#[test]
fn rounds_go_on_until_the_cap() {
    let sandbox = Sandbox::new();
    let spec =
        "name: grow\ndynamic_jobs: {max_iterations: 3}\njobs:\n  - {name: round_0, command: sh round.sh}\n";
    sandbox.write(
        "round.sh",
        "n=$(ls round_*.done 2>/dev/null | wc -l)\ntouch round_$n.done\n\
         printf '{\"jobs\": [{\"name\": \"round_%d\", \"command\": \"sh round.sh\"}]}' $((n + 1)) \
         | windlass jobs spawn - 2>> errors || true\n",
    );
    run(&sandbox, spec).exits(0);
    assert_eq!(sandbox.json(&["jobs"]).as_array().unwrap().len(), 4, "{}", sandbox.read("errors"));
    assert!(sandbox.read("errors").contains('3'), "{}", sandbox.read("errors"));
}

#[test]
fn mistakes_are_told() {
    let sandbox = Sandbox::new();
    sandbox.write("next.yaml", "jobs: [{name: a, command: 'true'}]\n");
    sandbox.windlass(&["jobs", "spawn", "next.yaml"]).exits(2).says("only a running job can add jobs");
    let spec = "name: grow\njobs:\n  - {name: seed, command: 'windlass jobs spawn next.yaml'}\n";
    sandbox
        .write("next.yaml", "jobs: [{name: a, command: 'true', depends_on: [b]}, {name: a, command: x}]\n");
    run(&sandbox, spec).exits(1);
    let said = sandbox.windlass(&["logs", "seed", "--stderr"]).exits(0);
    said.prints("two jobs of the batch are named `a`").prints("`b`, which is not in the batch");
}

#[test]
fn a_job_finds_the_database_of_its_workflow_wherever_both_are() {
    let sandbox = Sandbox::new();
    sandbox.write("elsewhere/next.yaml", "jobs: [{name: late, command: touch late}]\n");
    sandbox.write(
        "grow.yaml",
        "name: grow\njobs: [{name: seed, command: 'cd elsewhere && windlass jobs spawn next.yaml'}]\n",
    );
    sandbox.windlass_on_path(&["--db", "books.db", "run", "grow.yaml"]).exits(0);
    assert!(sandbox.path("late").exists() && !sandbox.path(".windlass").exists());
}
