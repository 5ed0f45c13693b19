//! A workflow whose allocations are lost: it completes, no job runs twice at once, and none is lost.

use crate::stages::{JobLog, Stages};
use crate::support::{Cluster, HeldProcesses, ReservedNode, eventually};
use crate::test_server::TestServer;
use serde_json::Value;
use std::process::Child;

/// Seconds that one job takes in an allocation that is lost: longer than Slurm needs to end it on a busy
/// machine.
const HOLDS: u32 = 280;

/// Five hundred jobs, with one allocation from the start, in `partition`, submitted with `options`. One job of
/// the first stage takes `holds` seconds there.
pub(crate) fn stages(partition: &str, options: &str, holds: u32) -> Stages {
    let more = format!(
        "execution_config: {{sigkill_headroom_seconds: 5, sigterm_lead_seconds: 1}}\n\
         slurm_schedulers:\n\
         \x20 - {{name: taken, partition: {partition}, extra: \"--cpus-per-task=4 {options}\", account: lab, nodes: 1, \
         ntasks_per_node: 1, mem: 400M, walltime: \"00:10:00\"}}\n\
         actions:\n\
         \x20 - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: taken, scheduler_type: slurm, \
         num_allocations: 1}}\n"
    );
    Stages { width: 240, last: 20, seconds: 0.02, holds, more }
}

/// A workflow with a `watch` that requests another allocation when none is left.
pub(crate) struct WatchedWorkflow<'a> {
    test_server: &'a TestServer<'a>,
    stages: Stages,
    watch: Child,
    /// The Slurm job that works on it.
    pub(crate) job: u64,
}

impl<'a> WatchedWorkflow<'a> {
    /// Submits, and waits until some jobs are done and the long one has started.
    pub(crate) fn begin(test_server: &'a TestServer<'a>, stages: Stages) -> Self {
        stages.write(test_server);
        test_server.windlass(&["submit", "spec.yaml"]);
        Stages::await_ends(test_server, 10);
        test_server.await_status("first_1", "running");
        let row = test_server.await_allocation("its job runs", |row| row["state"] == "running");
        let job = row["slurm_job_id"].as_u64().unwrap();
        // Only now: it requests further allocations, and the long job has to run in the one that is lost.
        let watch = test_server.start_watch(&["--auto-schedule", "--walltime", "50m"]);
        Self { test_server, stages, watch, job }
    }

    /// Waits until the first allocation has ended in one of these ways.
    #[track_caller]
    pub(crate) fn await_loss(&self, ends: &[&str]) {
        let ended = |row: &Value| row["slurm_job_id"] == self.job && row["state"] == "ended";
        let row = self.test_server.await_allocation(&format!("job {} has ended", self.job), ended);
        assert!(ends.iter().any(|end| row["end"] == *end), "{row}");
    }

    /// All jobs are completed correctly, and the watch has ended.
    #[track_caller]
    pub(crate) fn prove(&mut self) -> JobLog {
        let stamps = self.stages.prove(self.test_server);
        let mut code = None;
        eventually("the watch has ended", || {
            code = self.watch.try_wait().unwrap();
            code.is_some()
        });
        assert_eq!(code.unwrap().code(), Some(0));
        stamps
    }

    /// Attempts that did not finish name the allocation with which they were lost, and how it ended.
    #[track_caller]
    pub(crate) fn prove_causes(&self, end_reasons: &[&str]) {
        let results = self.test_server.json(&["results", "list", "1"]);
        let lost = results.as_array().unwrap().iter().filter(|row| row["return_code"] != 0);
        let reasons: Vec<&str> = lost.map(|row| row["reason"].as_str().unwrap_or_default()).collect();
        let told: Vec<(&str, &str)> = reasons
            .iter()
            .filter_map(|why| why.split_once("(Slurm job ").and_then(|(_, rest)| rest.split_once(") ")))
            .collect();
        assert_eq!(told.len(), reasons.len(), "an attempt names no allocation: {reasons:?}");
        // Allocations that replaced this one may be lost too, in any way.
        let job = self.job.to_string();
        let of_this: Vec<&str> =
            told.iter().filter(|(of, _)| *of == job).map(|(_, end_reason)| *end_reason).collect();
        assert!(
            !of_this.is_empty() && of_this.iter().all(|end_reason| end_reasons.contains(end_reason)),
            "{end_reasons:?}: {reasons:?}"
        );
    }
}

impl Drop for WatchedWorkflow<'_> {
    fn drop(&mut self) {
        self.watch.kill().ok();
        self.watch.wait().ok();
    }
}

#[test]
fn workflow_survives_scancel() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "scancel");
    let mut watched = WatchedWorkflow::begin(&test_server, stages("standard", "", HOLDS));
    cluster.slurm("scancel", &[&watched.job.to_string()]);
    watched.await_loss(&["CANCELLED"]);
    assert!(watched.prove().killed() > 0);
    watched.prove_causes(&["was cancelled"]);
}

/// Submits a job for which Slurm preempts one of the partition `preempt`.
pub(crate) fn preempt(cluster: &Cluster, node: &ReservedNode<'_>) -> u64 {
    let [reservation, nodes] = node.options();
    let high = ["--partition=high", &reservation, &nodes, "--cpus-per-task=4", "--mem=100", "--time=5"];
    cluster.submit(&high, "sleep 1000")
}

#[test]
fn workflow_survives_preemption() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "preemption");
    let node = cluster.reserve_node();
    let mut watched =
        WatchedWorkflow::begin(&test_server, stages("preempt", &node.options().join(" "), HOLDS));
    let other = preempt(&cluster, &node);
    // The worker is warned of the end, and may be faster than Slurm.
    watched.await_loss(&["PREEMPTED", "COMPLETED"]);
    cluster.slurm("scancel", &[&other.to_string()]);
    assert!(watched.prove().killed() > 0);
    watched.prove_causes(&["was preempted", "came to its end"]);
}

/// Longer than Slurm takes to end a job at its time limit: it checks every 30 seconds, and kills 2 seconds later.
/// When a lease expires, the worker freezes its jobs, and a frozen job still holds the lock that detects
/// overlaps.
const LONG_LEASE: [&str; 2] = ["--lease", "60s"];

/// The agent is frozen, so it neither stops its jobs nor signs off: its jobs are known to be lost when its
/// lease expires.
fn unheard<'a>(test_server: &'a TestServer<'a>, stages: Stages) -> (WatchedWorkflow<'a>, HeldProcesses) {
    let watched = WatchedWorkflow::begin(test_server, stages);
    let agents = test_server.cluster.hold_processes_of(watched.job, "slurm\0worker\0");
    (watched, agents)
}

#[test]
fn workflow_survives_unnoticed_preemption() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler_and(&cluster, "preempted", &LONG_LEASE);
    let node = cluster.reserve_node();
    let (mut watched, _agents) = unheard(&test_server, stages("preempt", &node.options().join(" "), HOLDS));
    let other = preempt(&cluster, &node);
    watched.await_loss(&["PREEMPTED"]);
    cluster.slurm("scancel", &[&other.to_string()]);
    assert!(watched.prove().killed() > 0);
    watched.prove_causes(&["was preempted"]);
}

#[test]
fn workflow_survives_unnoticed_time_limit() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler_and(&cluster, "overdue", &LONG_LEASE);
    let (mut watched, _agents) = unheard(&test_server, stages("standard", "", HOLDS));
    cluster.expire_job(watched.job);
    watched.await_loss(&["TIMEOUT"]);
    assert!(watched.prove().killed() > 0, "nothing ran in the allocation when its time was over");
    watched.prove_causes(&["reached its time limit"]);
}

#[test]
fn workflow_survives_time_limit() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "timeout");
    let mut watched = WatchedWorkflow::begin(&test_server, stages("standard", "", HOLDS));
    cluster.expire_job(watched.job);
    // The worker is warned of the end, and may be faster than Slurm.
    watched.await_loss(&["TIMEOUT", "COMPLETED"]);
    assert!(watched.prove().killed() > 0, "nothing ran in the allocation when its time was over");
    watched.prove_causes(&["reached its time limit", "came to its end"]);
}
