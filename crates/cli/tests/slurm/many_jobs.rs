//! A workflow without disturbances.

use crate::stages::Stages;
use crate::support::{Cluster, eventually};
use crate::test_server::TestServer;

#[test]
fn five_hundred_jobs_share_few_allocations() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "whole");
    let stages = Stages { width: 240, last: 20, seconds: 0.2, holds: 1, more: String::new() };
    stages.write(&test_server);
    let submit = ["submit", "--slurm", "--account", "lab", "--walltime-multiplier", "40", "spec.yaml"];
    test_server.windlass(&submit);
    let stamps = stages.prove(&test_server);
    assert_eq!(stamps.killed(), 0);
    let (busy, jobs) = stamps.work();
    let asked = test_server.allocations();
    assert!(asked.len() <= 8, "{} jobs in {} allocations", stages.jobs(), asked.len());
    // Pending allocations have no jobs left, and running ones end.
    eventually("all allocations have ended", || {
        let is_over = |state: &serde_json::Value| ["ended", "withdrawn"].contains(&state.as_str().unwrap());
        test_server.allocations().iter().all(|row| is_over(&row["state"]))
    });
    let jobs: Vec<&str> = jobs.into_iter().collect();
    let said = cluster.slurm("sacct", &["-nPX", "-j", &jobs.join(","), "-o", "ElapsedRaw,AllocCPUS"]);
    let core_seconds = |line: &str| -> Option<f64> {
        let (elapsed, cores) = line.split_once('|')?;
        Some(elapsed.parse::<f64>().ok()? * cores.parse::<f64>().ok()?)
    };
    let paid: f64 = said.lines().filter_map(core_seconds).sum();
    println!(
        "{} jobs in {} allocations: {busy:.0} of {paid:.0} core-seconds, {:.0} % used",
        stages.jobs(),
        jobs.len(),
        100.0 * busy / paid
    );
}

#[test]
fn allocation_is_long_enough_to_start_its_jobs() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "brief");
    // Jobs of a minute, and a workflow that reserves a minute and a half for their end.
    let stages = Stages { width: 2, last: 1, seconds: 0.1, holds: 0, more: String::new() };
    stages.write(&test_server);
    test_server.windlass(&["submit", "--slurm", "--account", "lab", "spec.yaml"]);
    stages.prove(&test_server);
}

/// Slurm warns a minute and a half before the end, and up to a minute earlier still.
#[test]
fn short_job_starts_after_end_warning() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "warned");
    test_server.submit(
        "\
name: test
execution_config: {sigkill_headroom_seconds: 5, sigterm_lead_seconds: 1}
resource_requirements:
  - {name: long, num_cpus: 1, memory: 50m, runtime: PT2M}
  - {name: brief, num_cpus: 1, memory: 50m, runtime: PT1S}
slurm_schedulers:
  - {name: one, account: lab, nodes: 1, ntasks_per_node: 1, mem: 400M, walltime: '00:03:00', extra: '--cpus-per-task=1'}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: one, scheduler_type: slurm}
jobs:
  - name: warned
    command: 'until grep -q \"time limit near\" windlass_output/*.e; do sleep 0.2; done; echo $SLURM_JOB_ID > first'
    resource_requirements: long
  - {name: after, command: 'echo $SLURM_JOB_ID > second', resource_requirements: brief, depends_on: [warned]}
",
    );
    for name in ["warned", "after"] {
        test_server.await_status(name, "completed");
    }
    assert_eq!(test_server.work.read("first"), test_server.work.read("second"), "in the same allocation");
    assert_eq!(test_server.allocations().len(), 1);
}
