//! Jobs that run as steps of the allocation.

use crate::support::{Cluster, eventually};
use crate::test_server::TestServer;
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn slurm_enforces_limits_and_exceeded_one_is_named() {
    let cluster = Cluster::shared();
    let mut test_server = TestServer::open(&cluster, "steps");
    let jobs = "\
name: test
execution_config: {mode: slurm}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m, runtime: PT1M}
  - {name: short, num_cpus: 1, memory: 100m, runtime: PT2S}
  - {name: wide, num_cpus: 1, num_nodes: 2, memory: 100m, runtime: PT1M}
jobs:
  - {name: greedy, command: 'python3 -c \"x = bytearray(400 << 20)\"', resource_requirements: small}
  - {name: slow, command: sleep 1000, resource_requirements: short}
  - {name: wide, command: 'echo $SLURMD_NODENAME >> nodes', resource_requirements: wide}
  - {name: wrong, command: 'echo \"$SLURM_STEP_ID it is\" > words; exit 3', resource_requirements: small}
";
    test_server.submit(jobs);
    let nodes = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=4", "--mem=2000", "--time=5"];
    let job = test_server.allocate(&nodes);
    test_server.await_status("greedy", "failed");
    test_server.await_status("slow", "terminated");
    test_server.await_status("wide", "completed");
    test_server.await_status("wrong", "failed");
    let results = test_server.windlass(&["results", "list", "1"]);
    assert!(results.contains("out of memory (137)"), "{results}");
    assert!(results.contains("time limit (152)"), "{results}");
    assert!(results.contains("exit code 3"), "{results}");
    assert_eq!(test_server.work.read("nodes").lines().count(), 2);
    assert!(test_server.work.read("words").ends_with(" it is\n"));
    cluster.await_state(job, &["COMPLETED", "FAILED"]);
}

/// Measurements, signals and output through the step supervisors.
const MEASURED: &str = "\
name: test
execution_config: {mode: slurm}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m, runtime: PT2M}
  - {name: wide, num_cpus: 1, num_nodes: 2, memory: 100m, runtime: PT2M}
failure_handlers:
  - {name: more, rules: [{on: [out_of_memory], memory: x6, max_retries: 2}]}
slurm_schedulers:
  - {name: pair, account: lab, partition: standard, nodes: 2, ntasks_per_node: 1, mem: 2000M, walltime: '00:10:00', extra: '--cpus-per-task=4'}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: pair, scheduler_type: slurm, num_allocations: 1}
jobs:
  - {name: busy, command: python3 busy.py, resource_requirements: small}
  - {name: wide, command: python3 busy.py, resource_requirements: wide}
  - {name: told, command: exec sh told.sh, resource_requirements: small}
  - name: silent
    command: 'python3 -c \"x = bytearray(400 << 20)\"'
    stdio: {mode: none}
    resource_requirements: small
    failure_handler: more
  - {name: endless, command: sleep 1000, depends_on: [wide], resource_requirements: small}
";

const BUSY: &str = "\
import time
x = bytearray(40 << 20)
while time.process_time() < 1: pass
";

/// Logs the signals that it receives until it has received enough.
const TOLD: &str = "\
trap 'echo usr1 >> heard' USR1
echo $SLURM_JOB_ID.$SLURM_STEP_ID > step.new
mv step.new step
while [ ! -e gate ]; do sleep 0.1; done
";

#[test]
fn step_usage_is_measured_on_its_node() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler(&cluster, "measured");
    test_server.work.write("busy.py", BUSY);
    test_server.work.write("told.sh", TOLD);
    test_server.submit(MEASURED);
    let heard = || fs::read_to_string(test_server.work.path().join("heard")).unwrap_or_default();
    eventually("it listens", || test_server.work.path().join("step").exists());
    // It reports an error on the node that has no process of this step.
    let step = test_server.work.read("step");
    cluster.command("scancel").args(["--signal=USR1", step.trim()]).output().unwrap();
    eventually("the signal has arrived", || !heard().is_empty());
    test_server.work.write("gate", "");
    for name in ["busy", "wide", "told", "silent"] {
        test_server.await_status(name, "completed");
    }
    // Once, according to processes of Windlass; while a step starts, Slurm itself may repeat it.
    assert!(heard().lines().all(|line| line == "usr1"), "{:?}", heard());
    let stdio = test_server.work.path().join("windlass_output/job_stdio");
    eventually("the usage of the endless one is recorded", || {
        fs::read_to_string(stdio.join("job_wf1_j5_r1_a1.used.0"))
            .is_ok_and(|note| note.contains("peak_memory"))
    });
    test_server.windlass(&["cancel", "1"]);
    test_server.await_status("endless", "canceled");
    let results = test_server.json(&["results", "list", "1"]);
    let of = |name: &str| -> Vec<&Value> {
        let rows = results.as_array().unwrap().iter().filter(|row| row["job_name"] == name);
        rows.collect()
    };
    for (name, seconds) in [("busy", 1.0), ("wide", 2.0)] {
        let [row] = of(name)[..] else { panic!("{results}") };
        let number = |field: &str| row[field].as_f64().unwrap();
        let peak = number("peak_memory_bytes");
        assert!(peak > f64::from(40 << 20) && peak < f64::from(80 << 20), "{row}");
        assert!(number("cpu_seconds") >= seconds && number("avg_cpu_percent") > 0.0, "{row}");
    }
    let mut silent = of("silent");
    silent.sort_by_key(|row| row["attempt_id"].as_u64());
    let [failed, grown] = silent[..] else { panic!("{results}") };
    assert_eq!((&failed["out_of_memory"], &failed["return_code"]), (&true.into(), &137.into()), "{failed}");
    assert!(grown["peak_memory_bytes"].as_u64() > Some(400 << 20), "{grown}");
    let usage = test_server.json(&["slurm", "usage", "1"]);
    assert!(usage["total"]["cpu_core_hours"].as_f64().unwrap() > 0.0, "{usage}");
    let [killed] = of("endless")[..] else { panic!("{results}") };
    assert!(killed["peak_memory_bytes"].as_u64() > Some(0), "{killed}");
    let names: Vec<String> =
        fs::read_dir(stdio).unwrap().map(|log| log.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("used") || name.contains("_j4_")), "{names:?}");
}

/// One worker on each of two nodes.
const PAIR: &str = "\
name: test
execution_config: {mode: slurm}
resource_requirements: [{name: all, num_cpus: 2, memory: 100m, runtime: PT5M}]
slurm_schedulers:
  - {name: pair, account: lab, partition: standard, nodes: 2, ntasks_per_node: 1, mem: 300M, walltime: '00:10:00', extra: '--cpus-per-task=2'}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: pair, scheduler_type: slurm, num_allocations: 1, start_one_worker_per_node: true}
jobs:
  - {name: a, command: 'bash job.sh a', resource_requirements: all}
  - {name: b, command: 'bash job.sh b', resource_requirements: all}
";

/// Waits for a file in its first execution; logs it if it detects another execution of the same job.
const JOB: &str = r#"
exec 9>>"$1.lock"
flock -n 9 || touch overlap
echo "$WINDLASS_ATTEMPT" >> "$1.begun"
if mkdir "$1.first"; then while [ ! -e "$1.go" ]; do sleep 0.2; done; fi
echo done >> "$1.done"
"#;

#[test]
fn killed_worker_leaves_no_step() {
    let cluster = Cluster::shared();
    let test_server = TestServer::with_reconciler_and(&cluster, "killed", &["--lease", "10s"]);
    test_server.work.write("job.sh", JOB);
    test_server.submit(PAIR);
    eventually("both have started", || {
        ["a.first", "b.first"].iter().all(|name| test_server.work.path().join(name).exists())
    });
    let row = test_server.await_allocation("it runs", |row| row["state"] == "running");
    let job = row["slurm_job_id"].as_u64().unwrap();
    kill_worker_of(job, "job_wf1_j1_r1_a1");
    // The other worker is busy, so the job is not reassigned at once.
    test_server.await_status("a", "ready");
    let steps = cluster.slurm("squeue", &["-s", "-h", "--me", "-o", "%i|%j"]);
    let own = format!("{job}.");
    let is_left = |line: &str| line.starts_with(&own) && line.ends_with("|job_wf1_j1_r1_a1");
    assert!(!steps.lines().any(is_left), "{steps}");
    test_server.work.write("b.go", "");
    test_server.await_status("a", "completed");
    test_server.await_status("b", "completed");
    assert!(!test_server.work.path().join("overlap").exists());
    assert_eq!(
        (test_server.work.read("a.begun"), test_server.work.read("a.done")),
        ("1\n2\n".into(), "done\n".into())
    );
    assert_eq!(test_server.work.read("b.begun"), "1\n", "the other node continued");
}

/// Kills, without warning, the worker that runs this attempt as a step of this Slurm job.
fn kill_worker_of(job: u64, attempt: &str) {
    let words = |pid: u32| -> Vec<String> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    };
    let parent = |pid: u32| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    let (own, name) = (format!("--jobid={job}"), format!("--job-name={attempt}"));
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut launchers = pids.filter(|pid| {
        let words = words(*pid);
        words.contains(&own) && words.contains(&name)
    });
    let worker = launchers.find_map(|launcher| {
        let worker_options = parent(launcher)
            .filter(|worker_options| words(*worker_options).iter().any(|word| word == "__worker"))?;
        parent(worker_options)
    });
    let worker = worker.expect("a worker that has it");
    assert!(words(worker).iter().any(|word| word == "worker"), "{:?}", words(worker));
    assert!(Command::new("kill").args(["-KILL", &worker.to_string()]).status().unwrap().success());
}
