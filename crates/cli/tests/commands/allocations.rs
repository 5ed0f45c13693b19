//! Allocations and schedulers in the database: these commands do not call Slurm.

use crate::common::Sandbox;

const SPEC: &str = "
name: sweep
slurm_defaults: {qos: high}
slurm_schedulers: [{name: night, account: lab, nodes: 2, walltime: '04:00:00'}]
jobs: [{name: a, command: 'true'}]
";

fn created() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", SPEC);
    sandbox.windlass(&["create", "spec.yaml"]).exits(0);
    sandbox
}

#[test]
fn allocations_are_requested_and_canceled() {
    let sandbox = created();
    sandbox.windlass(&["slurm", "allocations"]).exits(0).says("has none");
    let asked = sandbox.windlass(&["slurm", "schedule-nodes", "last", "-n", "2"]).exits(0);
    assert_eq!(asked.stdout, "allocation 1\nallocation 2\n");
    asked.says("`windlass serve --slurm`");
    let rows = sandbox.json(&["slurm", "allocations", "1"]);
    assert_eq!((&rows[0]["state"], &rows[0]["scheduler"]), (&"intended".into(), &"night".into()));
    assert_eq!(
        (&rows[0]["request"]["nodes"], &rows[0]["request"]["options"]["qos"]),
        (&2.into(), &"high".into())
    );
    sandbox.windlass(&["slurm", "cancel", "1"]).exits(0).says("allocation 1 is withdrawn");
    sandbox.windlass(&["slurm", "cancel", "1"]).exits(0).says("allocation 1 is withdrawn");
    assert_eq!(sandbox.json(&["slurm", "allocations", "--open"]).as_array().unwrap().len(), 1);
    assert_eq!(sandbox.json(&["slurm", "allocations", "--state", "withdrawn"])[0]["id"], 1);
    sandbox.windlass(&["slurm", "cancel", "17"]).says("there is no allocation 17");
    sandbox.windlass(&["delete", "1", "--yes"]).says("windlass slurm cancel");
}

#[test]
fn slurm_schedulers_are_created_updated_and_deleted() {
    let sandbox = created();
    let made = ["slurm", "create", "last", "-n", "day", "--account", "lab", "--partition", "short"];
    sandbox.windlass(&made).exits(0).prints("scheduler 2: day");
    sandbox.windlass(&made).says("are called `day`");
    let changed = ["slurm", "update", "day", "--partition", "", "--walltime", "30", "--nodes", "3"];
    sandbox.windlass(&changed).exits(0).says("for new allocations");
    let row = sandbox.json(&["slurm", "get", "day"]);
    assert_eq!((&row["partition"], &row["walltime"], &row["nodes"]), (&().into(), &"30".into(), &3.into()));
    sandbox.windlass(&["slurm", "update", "day", "--nodes", "3"]).exits(2).says("no changes given");
    sandbox.windlass(&["slurm", "update", "day", "--walltime", "soon"]).exits(2);
    sandbox.windlass(&["slurm", "schedule-nodes"]).exits(2).says("`night`, `day`");
    sandbox.windlass(&["slurm", "schedule-nodes", "-s", "noon"]).exits(2).says("has no scheduler `noon`");
    sandbox.windlass(&["slurm", "delete", "night"]).exits(0);
    let names = sandbox.json(&["slurm", "list"]);
    assert_eq!((names.as_array().unwrap().len(), &names[0]["name"]), (1, &"day".into()));
}

#[test]
fn allocation_audit_and_cost_are_reported() {
    let sandbox = created();
    sandbox.windlass(&["slurm", "schedule-nodes", "-n", "2"]).exits(0);
    sandbox.windlass(&["slurm", "cancel", "2", "--reason", "too many"]).exits(0);
    let trail = sandbox.json(&["slurm", "audit"]);
    let told: Vec<String> = (trail.as_array().unwrap().iter())
        .map(|step| format!("{} {}", step["allocation_id"], step["what"].as_str().unwrap()))
        .collect();
    assert_eq!(told[..2], ["1 asked", "2 asked"]);
    assert_eq!(told.last().map(String::as_str), Some("2 withdrawn"));
    let asked = trail[0]["detail"].as_str().unwrap();
    assert!(
        asked.starts_with("tag windlass-") && asked.ends_with("2 nodes for 4h, scheduler night"),
        "{asked}"
    );
    let shown = sandbox.windlass(&["slurm", "audit", "--allocation", "1"]).exits(0);
    assert_eq!(shown.stdout.lines().count(), 2, "{}", shown.stdout);
    sandbox
        .windlass(&["slurm", "audit", "--allocation", "7"])
        .exits(2)
        .says("workflow 1 has no allocation 7");
    let cost = sandbox.windlass(&["slurm", "rpc"]).exits(0);
    cost.says("no calls to Slurm").says("no server is running");
    assert_eq!(sandbox.json(&["slurm", "rpc"])["commands"], serde_json::json!([]));
}
