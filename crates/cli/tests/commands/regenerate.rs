//! `windlass slurm regenerate`, with the real binary and a cluster profile from a file.

use crate::common::Sandbox;
use crate::serve::StoppedOnDrop;
use serde_json::Value;

const PROFILE: &str = "\
name = \"ours\"

[[partitions]]
name = \"standard\"
is_default = true
nodes = 10
cpus_per_node = 8
memory_mb = 16000
max_walltime_secs = 86400
shared = true
";

/// An action requests an allocation for the first jobs at the start; `b` comes later.
const SPEC: &str = "\
name: study
resource_requirements:
  - {name: small, cpus: 1, memory: 1g, runtime: 10m}
slurm_schedulers: [{name: first, account: lab, nodes: 1, walltime: '00:15:00'}]
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: first, scheduler_type: slurm}
jobs:
  - {name: 'a{n}', command: 'true', resource_requirements: small, scheduler: first, parameters: {n: '1:8'}}
  - {name: b, command: 'true', resource_requirements: small, scheduler: first, depends_on_regexes: ['^a']}
";

const REGENERATE: [&str; 5] = ["slurm", "regenerate", "1", "--profile", "ours.toml"];

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("ours.toml", PROFILE);
    sandbox.write("study.yaml", SPEC);
    sandbox.windlass(&["create", "study.yaml"]).exits(0);
    sandbox
}

fn regenerate(sandbox: &Sandbox, more: &[&str]) -> Value {
    sandbox.json(&[&REGENERATE[..], more].concat())
}

fn names(done: &Value) -> Vec<&str> {
    done["schedulers"].as_array().unwrap().iter().map(|one| one["scheduler"].as_str().unwrap()).collect()
}

#[test]
fn regenerate_creates_schedulers_for_remaining_jobs_once() {
    let sandbox = sandbox();
    let shown = sandbox.windlass(&[&REGENERATE[..], &["--dry-run", "--submit"]].concat()).exits(0);
    shown.prints("would be requested").says("1 action would be disabled").says("nothing changed");
    let dry_run_output = regenerate(&sandbox, &["--dry-run", "--submit"]);
    assert_eq!(dry_run_output["allocations"], Value::Array(vec![]));

    let done = regenerate(&sandbox, &["--submit", "--group-by", "resource-requirements"]);
    assert_eq!(names(&done), ["small_scheduler_regen", "small_scheduler_deferred_regen"]);
    let [now, later] = [&done["schedulers"][0], &done["schedulers"][1]];
    assert_eq!(
        (&now["account"], &now["is_deferred"], &now["submitted"]),
        (&"lab".into(), &false.into(), &1.into())
    );
    assert_eq!((&later["is_deferred"], &later["submitted"]), (&true.into(), &0.into()));
    assert_eq!(done["marked_executed"].as_array().unwrap().len(), 1, "it would ask a second time");
    assert_eq!((&done["recovery_actions"], done["allocations"].as_array().unwrap().len()), (&1.into(), 1));

    let again = regenerate(&sandbox, &["--submit"]);
    assert_eq!((names(&again).len(), &again["allocations"]), (0, &Value::Array(vec![])), "{again}");
    let said = sandbox.windlass(&[&REGENERATE[..], &["--submit"]].concat()).exits(0);
    said.prints("9 jobs left, allocations are already requested");
}

#[test]
fn concurrent_regenerations_request_once() {
    let sandbox = sandbox();
    let done: Vec<Value> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..3).map(|_| scope.spawn(|| regenerate(&sandbox, &["--submit"]))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let asked = |one: &&Value| !one["allocations"].as_array().unwrap().is_empty() || !names(one).is_empty();
    let asking: Vec<&Value> = done.iter().filter(asked).collect();
    assert_eq!(asking.len(), 1, "{done:?}");
    assert_eq!(asking[0]["allocations"].as_array().unwrap().len(), 2, "nine jobs, eight at once");
    assert!(names(&regenerate(&sandbox, &["--submit"])).is_empty());
}

#[test]
fn regenerate_submits_later_and_reports_unfit_jobs() {
    let sandbox = sandbox();
    let done = regenerate(&sandbox, &[]);
    assert_eq!(done["allocations"], Value::Array(vec![]), "--submit was not given");
    let asked = regenerate(&sandbox, &["--submit"]);
    assert_eq!(
        (&asked["schedulers"][0]["is_known"], &asked["schedulers"][0]["submitted"]),
        (&true.into(), &2.into())
    );
    let said = sandbox.windlass(&[&REGENERATE[..], &["--partition", "night"]].concat());
    said.exits(0).prints("already requested");

    sandbox.write("huge.yaml", &SPEC.replace("memory: 1g", "memory: 80g"));
    sandbox.windlass(&["create", "huge.yaml"]).exits(0);
    let said = sandbox.windlass(&["slurm", "regenerate", "2", "--profile", "ours.toml"]).exits(4);
    said.says("fits no partition").says("windlass slurm hpc partitions");
}

#[test]
fn server_without_slurm_refuses_submit_but_plans() {
    let sandbox = sandbox();
    let _served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let submit = [&REGENERATE[..], &["--submit"]].concat();
    sandbox.windlass(&submit).exits(4).says("the server was started without --slurm");
    assert_eq!(sandbox.json(&["workflows", "actions"]).as_array().unwrap().len(), 1, "nothing was changed");
    assert_eq!(names(&regenerate(&sandbox, &[])).len(), 1);
}

fn reinit_removes_recovery_actions(sandbox: &Sandbox) {
    let actions = || sandbox.json(&["workflows", "actions"]).as_array().unwrap().len();
    assert_eq!(actions(), 1);
    assert_eq!(regenerate(sandbox, &["--group-by", "resource-requirements"])["recovery_actions"], 1);
    assert_eq!(actions(), 2);
    sandbox.windlass(&["workflows", "reinit", "1"]).exits(0);
    assert_eq!(actions(), 1, "the one of the spec");
}

#[test]
fn reinit_removes_recovery_actions_of_new_workflow() {
    reinit_removes_recovery_actions(&sandbox());
}

#[test]
fn reinit_at_server_removes_recovery_actions_of_new_workflow() {
    let sandbox = sandbox();
    let _served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    reinit_removes_recovery_actions(&sandbox);
}
