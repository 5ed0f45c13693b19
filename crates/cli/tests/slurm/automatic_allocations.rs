//! A server that requests allocations from Slurm itself: from `submit` to their end.

use crate::support::{Cluster, eventually};
use crate::test_server::TestServer;
use serde_json::Value;

const SPEC: &str = "
name: test
slurm_schedulers: [{name: small, account: lab, nodes: 1, mem: 1500M, walltime: '00:05:00'}]
actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: small, scheduler_type: slurm, num_allocations: 1}]
jobs: [{name: a, command: 'echo $SLURM_JOB_ID > done', scheduler: small}]
";

#[test]
fn server_allocations_run_workflow_and_are_listed() {
    let cluster = Cluster::shared();
    let test_server = TestServer::served(&cluster, "looked-after", &["--slurm", "--slurm-poll", "1s"]);
    test_server.submit(SPEC);
    test_server.await_status("a", "completed");
    let mut rows = Value::Null;
    eventually("the allocation has ended", || {
        rows = test_server.json(&["slurm", "allocations", "1"]);
        rows[0]["state"] == "ended"
    });
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["end"]), (1, &"COMPLETED".into()), "{rows}");
    let job = rows[0]["slurm_job_id"].as_u64().unwrap();
    assert_eq!(test_server.work.read("done").trim(), job.to_string());

    // From the caller of the request to the end.
    let trail = test_server.json(&["slurm", "audit"]);
    let trail = trail.as_array().unwrap();
    let told: Vec<&str> = trail.iter().map(|step| step["what"].as_str().unwrap()).collect();
    assert_eq!((told.first(), told.last()), (Some(&"asked"), Some(&"ended")), "{told:?}");
    for what in ["submitting", "running"] {
        assert_eq!(told.iter().filter(|told| **told == what).count(), 1, "{told:?}");
    }
    let tag = rows[0]["tag"].as_str().unwrap();
    assert!(trail[0]["detail"].as_str().unwrap().contains(tag), "{trail:?}");
    assert_eq!(trail.last().unwrap()["slurm_job_id"], job);

    // The cost of this in calls.
    let mut calls = Value::Null;
    eventually("calls are counted", || {
        calls = test_server.json(&["slurm", "rpc"]);
        calls["commands"].as_array().unwrap().iter().any(|of| of["command"] == "squeue")
    });
    let commands = calls["commands"].as_array().unwrap();
    let submitted = commands.iter().find(|of| of["command"] == "sbatch").unwrap();
    assert_eq!((&submitted["last_day"]["calls"], &submitted["last_day"]["failures"]), (&1.into(), &0.into()));
    assert!(calls["server"]["reconciler"]["calls_left"].is_u64(), "{calls}");
    let shown = test_server.windlass(&["slurm", "rpc"]);
    assert!(shown.contains("sbatch") && shown.lines().all(|line| line.len() <= 80), "{shown}");
}
