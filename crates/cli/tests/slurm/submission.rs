//! From `windlass submit` to allocations: rejected if they could never run, and submitted exactly once in spite
//! of crashes.

use crate::stages::Stages;
use crate::support::{Cluster, eventually};
use crate::test_server::TestServer;
use std::collections::BTreeSet;

#[test]
fn unfit_job_is_reported_and_workflow_not_created() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "unfit");
    for (spec, complaint) in [
        (
            "resource_requirements: [{name: much, num_cpus: 1, memory: 2t, runtime: PT1M}]\n\
             jobs: [{name: a, command: x, resource_requirements: much}]\n",
            "job `a` fits no partition: `much` requests 1 CPU, 2 TiB, 1m",
        ),
        (
            "resource_requirements: [{name: wide, num_cpus: 64, memory: 1g, runtime: PT1M}]\n\
             jobs: [{name: a, command: x, resource_requirements: wide}]\n",
            "its nodes have 4 CPUs",
        ),
        // Slurm accepts it, and it waits forever: PartitionTimeLimit.
        (
            "slurm_schedulers: [{name: s, account: lab, partition: debug, walltime: '02:00:00'}]\n\
             jobs: [{name: a, command: x, scheduler: s}]\n",
            "an allocation lasts at most 30m",
        ),
        // The time is sufficient, but not for a job that must end before the allocation does.
        (
            "resource_requirements: [{name: long, num_cpus: 1, memory: 1g, runtime: PT30M}]\n\
             slurm_schedulers: [{name: s, account: lab, partition: debug, walltime: '00:30:00'}]\n\
             jobs: [{name: a, command: x, resource_requirements: long, scheduler: s}]\n",
            "its allocations last 00:30:00, minus 2m reserved for its end",
        ),
    ] {
        test_server.work.write("spec.yaml", &format!("name: unfit\n{spec}"));
        let said = test_server.refused(&["submit", "--slurm", "--account", "lab", "spec.yaml"]);
        assert!(said.contains(complaint), "{spec}: {said}");
    }
    let listed = test_server.json(&["list"]);
    assert_eq!(listed.as_array().unwrap().len(), 0, "{listed}");
}

#[test]
fn out_of_memory_step_retries_with_more_memory() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "memory");
    let spec = "\
name: test
execution_config: {mode: slurm, sigkill_headroom_seconds: 5}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m, runtime: PT1M}
failure_handlers:
  - {name: more, rules: [{on: [out_of_memory], memory: x6, max_retries: 2}]}
slurm_schedulers:
  - {name: one, account: lab, partition: standard, ntasks_per_node: 1, mem: 1000M, walltime: '00:10:00', extra: '--cpus-per-task=2'}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: one, scheduler_type: slurm, num_allocations: 1}
jobs:
  - name: greedy
    command: python3 -c 'x = bytearray(300 << 20)'
    resource_requirements: small
    failure_handler: more
";
    test_server.submit(spec);
    test_server.await_status("greedy", "completed");
    let results = test_server.windlass(&["results", "list", "1"]);
    let lines: Vec<&str> = results.lines().skip(1).collect();
    assert_eq!(lines.len(), 2, "{results}");
    assert!(results.contains("out of memory (137)"), "{results}");
    assert!(results.contains("memory 100 MiB → 600 MiB"), "{results}");
}

/// The server dies each time after Slurm has accepted a job and before its id is recorded.
#[test]
fn crash_after_sbatch_loses_and_duplicates_no_allocation() {
    let cluster = Cluster::shared();
    let mut test_server = TestServer::with_reconciler(&cluster, "crash");
    let place = test_server.work.path().display().to_string();
    test_server.script(
        "tools/sbatch",
        "taken=$(/usr/bin/sbatch \"$@\") && kill -KILL $PPID && echo $taken >> taken",
    );
    let usual = std::env::var("PATH").unwrap();
    let deadly = format!("{place}/tools:{usual}");
    test_server.crash();
    test_server.serve_again(&deadly);
    let more = "\
execution_config: {sigkill_headroom_seconds: 5, sigterm_lead_seconds: 1}
slurm_schedulers:
  - {name: few, account: lab, partition: standard, ntasks_per_node: 1, mem: 200M, walltime: '00:10:00', extra: '--cpus-per-task=1'}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: few, scheduler_type: slurm, num_allocations: 3}
";
    let stages = Stages { width: 20, last: 2, seconds: 2.0, holds: 2, more: more.to_owned() };
    stages.write(&test_server);
    // It may be dead before it has answered.
    test_server.windlass_somehow(&["submit", "spec.yaml"]);
    test_server.await_crash();
    test_server.serve_until_crash(&deadly);
    test_server.serve_until_crash(&deadly);
    test_server.serve_again(&usual);
    eventually("each has its job", || {
        let rows = test_server.allocations();
        rows.len() == 3 && rows.iter().all(|row| row["slurm_job_id"].is_u64())
    });
    let rows = test_server.allocations();
    let mut all = BTreeSet::new();
    for row in &rows {
        let job = row["slurm_job_id"].as_u64().unwrap();
        assert_eq!(cluster.jobs_tagged(row["tag"].as_str().unwrap()), [job], "{row}");
        all.insert(job);
    }
    assert_eq!(all.len(), 3, "{rows:?}");
    stages.prove(&test_server);
    assert_eq!(test_server.allocations().len(), 3);
}
