//! Allocations that are released when no jobs are left for them, although the workflow continues.

use crate::support::Cluster;
use crate::test_server::TestServer;
use std::fmt::Write as _;

/// An idle worker would wait for an hour.
const SPEC: &str = "\
name: test
compute_node_wait_for_new_jobs_seconds: 3600
execution_config: {sigkill_headroom_seconds: 5, sigterm_lead_seconds: 1}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m, runtime: PT1M}
  - {name: whole, num_cpus: 4, memory: 1g, runtime: PT1M}
slurm_schedulers:
  - {name: small, account: lab, nodes: 1, ntasks_per_node: 1, mem: 200M, walltime: '00:10:00', extra: '--cpus-per-task=2'}
  - {name: whole, account: lab, nodes: 1, ntasks_per_node: 1, mem: 1500M, walltime: '00:10:00', extra: '--cpus-per-task=4'}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: small, scheduler_type: slurm, num_allocations: 2}
jobs:
  - {name: large, command: 'echo $SLURM_JOB_ID > large', resource_requirements: whole, depends_on_regexes: ['^small_']}
";

#[test]
fn idle_nodes_of_small_jobs_are_released_before_large_job() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "idle");
    let mut spec = SPEC.to_owned();
    for number in 0..40 {
        writeln!(spec, "  - {{name: small_{number}, command: 'true', resource_requirements: small}}")
            .unwrap();
    }
    test_server.submit(&spec);
    // Each is released by its worker, or was canceled while it was pending.
    crate::support::eventually("both allocations have ended", || {
        let is_over = |state: &serde_json::Value| ["ended", "withdrawn"].contains(&state.as_str().unwrap());
        let rows = test_server.allocations();
        rows.len() == 2 && rows.iter().all(|row| is_over(&row["state"]))
    });
    let rows = test_server.allocations();
    assert!(rows.iter().any(|row| row["end"] == "COMPLETED"), "{rows:?}");
    assert_eq!(test_server.status("large"), "ready", "it needs more than they have");
    test_server.windlass(&["slurm", "schedule-nodes", "1", "--scheduler", "whole"]);
    test_server.await_status("large", "completed");
    let job: u64 = test_server.work.read("large").trim().parse().unwrap();
    // All jobs are done: it does not wait either.
    cluster.await_state(job, &["COMPLETED"]);
}
