//! A workflow whose allocations are taken away: it completes, nothing runs twice at once, and nothing is lost.

use crate::house::House;
use crate::stages::Stages;
use crate::support::Cluster;
use serde_json::Value;

/// Two allocations from the start, in `partition`; one that is lost is replaced by hand, where nobody takes it away.
pub(crate) fn stages(partition: &str, nodes: &str, seconds: f64) -> Stages {
    let common = "account: lab, nodes: 1, ntasks_per_node: 1, mem: 400M, walltime: \"00:10:00\"";
    let more = format!(
        "execution_config: {{sigkill_headroom_seconds: 5, sigterm_lead_seconds: 1}}\n\
         slurm_schedulers:\n\
         \x20 - {{name: taken, partition: {partition}, extra: \"--cpus-per-task=4 {nodes}\", {common}}}\n\
         \x20 - {{name: spare, partition: standard, extra: \"--cpus-per-task=4\", {common}}}\n\
         actions:\n\
         \x20 - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: taken, scheduler_type: slurm, \
         num_allocations: 1}}\n"
    );
    Stages { width: 60, last: 30, seconds, more }
}

/// Submits, waits until some of it is done, and says which job of Slurm works on it.
pub(crate) fn begin(house: &House<'_>, stages: &Stages) -> u64 {
    stages.write(house);
    house.windlass(&["submit", "spec.yaml"]);
    Stages::await_ends(house, 10);
    let row = house.await_allocation("its job runs", |row| row["state"] == "running");
    row["slurm_job_id"].as_u64().unwrap()
}

/// Waits until the first allocation has ended in one of these ways, and has another one work on the rest.
pub(crate) fn replace(house: &House<'_>, job: u64, ends: &[&str]) {
    let ended = |row: &Value| row["slurm_job_id"] == job && row["state"] == "ended";
    let row = house.await_allocation(&format!("job {job} has ended"), ended);
    assert!(ends.iter().any(|end| row["end"] == *end), "{row}");
    house.windlass(&["slurm", "schedule-nodes", "1", "--scheduler", "spare"]);
}

#[test]
fn to_scancel() {
    let cluster = Cluster::shared();
    let house = House::with_steward(&cluster, "scancel");
    let stages = stages("standard", "", 0.3);
    let job = begin(&house, &stages);
    cluster.slurm("scancel", &[&job.to_string()]);
    replace(&house, job, &["CANCELLED"]);
    stages.prove(&house);
}

#[test]
fn to_others_who_come_first() {
    let cluster = Cluster::shared();
    let house = House::with_steward(&cluster, "preemption");
    let stages = stages("preempt", "--nodelist=n3", 0.3);
    let job = begin(&house, &stages);
    let high = ["--partition=high", "--nodelist=n3", "--cpus-per-task=4", "--mem=100", "--time=5"];
    let other = cluster.submit(&high, "sleep 1000");
    // The worker is told some time before, and leaves if what runs there is over in that time.
    replace(&house, job, &["PREEMPTED", "COMPLETED"]);
    cluster.slurm("scancel", &[&other.to_string()]);
    stages.prove(&house);
}

#[test]
fn to_their_end() {
    let cluster = Cluster::shared();
    let house = House::with_steward(&cluster, "timeout");
    let stages = stages("standard", "", 0.7);
    let job = begin(&house, &stages);
    cluster.slurm("scontrol", &["update", &format!("jobid={job}"), "endtime=now"]);
    // The worker is told that the end has come, and may be quicker than Slurm.
    replace(&house, job, &["TIMEOUT", "COMPLETED"]);
    let stamps = stages.prove(&house);
    assert!(stamps.killed() > 0, "nothing ran in the allocation when its time was over");
}
