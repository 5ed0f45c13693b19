//! `windlass recover` and `workflows sync-status` with real processes and real limits.

use crate::common::{Output, Sandbox, children_of, eventually, is_alive, kill};
use crate::serve::{StoppedOnDrop, said_by_torc};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// One job runs out of memory, one exceeds its runtime, one fails for another reason, and one depends on the
/// first two.
const FAILING_SPEC: &str = r#"name: ailing
resource_requirements:
  - {name: small, num_cpus: 1, memory: 40m, runtime: PT1M}
  - {name: brief, num_cpus: 1, memory: 40m, runtime: PT1S}
jobs:
  - {name: fine, command: "true", resource_requirements: small}
  - {name: large, command: "python3 -c 'print(len(bytearray(50 << 20)))'", resource_requirements: small}
  - {name: slow, command: "sleep 2", resource_requirements: brief}
  - {name: typo, command: "test -e fixed || { echo 'SyntaxError: invalid syntax' >&2; exit 1; }", resource_requirements: small}
  - {name: report, command: "true", depends_on: [large, slow]}
"#;

fn failing_workflow() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("ailing.yaml", FAILING_SPEC);
    sandbox.windlass(&["run", "ailing.yaml"]).exits(1);
    sandbox
}

/// The status and the attempt of each job.
pub(crate) fn standing(sandbox: &Sandbox) -> Value {
    let jobs = sandbox.json(&["jobs"]);
    let of =
        |job: &Value| (job["name"].as_str().unwrap().to_owned(), json!([job["status"], job["attempt_id"]]));
    jobs.as_array().unwrap().iter().map(of).collect::<serde_json::Map<_, _>>().into()
}

fn job<'a>(plan: &'a Value, name: &str) -> &'a Value {
    plan["jobs"].as_array().unwrap().iter().find(|job| job["name"] == name).unwrap()
}

#[test]
fn recovery_sizes_each_job_by_its_measurements() {
    let sandbox = failing_workflow();
    let before = standing(&sandbox);
    let plan = sandbox.json(&["recover", "--dry-run"]);
    assert_eq!((&plan["run_again"], &plan["stay"], &plan["dry_run"]), (&json!(2), &json!(1), &json!(true)));
    let (large, slow, typo) = (job(&plan, "large"), job(&plan, "slow"), job(&plan, "typo"));
    assert_eq!(large["diagnosis"], "out_of_memory");
    assert_eq!(
        (&large["changes"][0]["resource"], &large["changes"][0]["from"]),
        (&json!("memory"), &json!(40 << 20))
    );
    assert!(large["changes"][0]["to"].as_u64().unwrap() >= 60 << 20, "{large}");
    assert_eq!(slow["diagnosis"], "timeout");
    assert_eq!((&slow["changes"][0]["from"], &slow["changes"][0]["to"]), (&json!(1.0), &json!(60.0)));
    assert_eq!((&typo["diagnosis"], &typo["runs_again"]), (&json!("unknown"), &json!(false)));
    assert_eq!(standing(&sandbox), before, "it was a rehearsal");

    let said = sandbox.windlass(&["recover"]).exits(0).prints("2 jobs will run again, 1 stays as it is");
    assert!(said.stdout.contains("memory 40 MiB") && said.stdout.contains("runtime 1m"), "{}", said.stdout);
    let after = standing(&sandbox);
    assert_eq!(after["large"], json!(["ready", 2]));
    assert_eq!(after["slow"], json!(["ready", 2]));
    assert_eq!(after["report"][0], "blocked", "it comes back with what it waits for");
    assert_eq!((&after["fine"], &after["typo"]), (&before["fine"], &before["typo"]), "the rest is untouched");

    // The requirements of other jobs are unchanged.
    let sets = sandbox.json(&["resource-requirements"]);
    for (name, seconds) in [("small", 60.0), ("brief", 1.0)] {
        let set = sets.as_array().unwrap().iter().find(|set| set["name"] == name).unwrap();
        assert_eq!((&set["memory_bytes"], &set["runtime_seconds"]), (&json!(40 << 20), &json!(seconds)));
    }

    sandbox.windlass(&["resume"]).exits(1).says("4 completed, 1 failed");
    sandbox.windlass(&["recover"]).exits(1).prints("0 jobs will run again").says("--retry-unknown");
}

#[test]
fn recover_with_run_completes_workflow() {
    let sandbox = failing_workflow();
    sandbox.write("fixed", "");
    let done = sandbox.windlass(&["recover", "--retry-unknown", "--run"]).exits(0);
    assert!(done.stderr.contains("5 completed"), "{}", done.stderr);
    sandbox.windlass(&["recover"]).exits(0).prints("there is nothing to recover");
}

#[test]
fn recovery_growth_follows_multipliers_and_machine_size() {
    let sandbox = failing_workflow();
    let more =
        sandbox.json(&["recover", "--dry-run", "--memory-multiplier", "4", "--runtime-multiplier", "300"]);
    assert!(job(&more, "large")["changes"][0]["to"].as_u64().unwrap() >= 160 << 20, "{more}");
    assert!(job(&more, "slow")["changes"][0]["to"].as_f64().unwrap() >= 300.0, "{more}");
    let capped = sandbox.json(&["recover", "--dry-run", "--memory", "50m"]);
    assert_eq!(job(&capped, "large")["changes"][0]["to"], 50 << 20);
    let full = sandbox.json(&["recover", "--dry-run", "--memory", "40m"]);
    assert_eq!(job(&full, "large")["runs_again"], false);
    assert!(job(&full, "large")["stays_because"].as_str().unwrap().contains("no worker has more"), "{full}");
}

#[test]
fn recovery_hook_handles_unknown_failures() {
    let sandbox = failing_workflow();
    let hook = "env | sort > hook.env; echo talk; sh -c 'echo \"$@\" > hook.args; touch fixed' hook one";
    let done =
        sandbox.windlass(&["recover", "--recovery-hook", hook, "--format", "json"]).exits(0).says("talk");
    let plan: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(plan["run_again"], 3);
    assert_eq!(sandbox.read("hook.args"), "one 1\n", "the workflow is the last argument");
    let env = sandbox.read("hook.env");
    for variable in [
        "TORC_WORKFLOW_ID=1\n",
        "TORC_RUN_ID=1\n",
        "WINDLASS_WORKFLOW_ID=1\n",
        "WINDLASS_RUN_ID=1\n",
        "WINDLASS_DB=",
    ] {
        assert!(env.contains(variable), "{variable}{env}");
    }
    sandbox.windlass(&["resume"]).exits(0).says("5 completed");
}

#[test]
fn failed_recovery_hook_changes_nothing() {
    let sandbox = failing_workflow();
    let before = standing(&sandbox);
    sandbox.windlass(&["recover", "--recovery-hook", "exit 3; :"]).exits(4).says("nothing changed");
    assert_eq!(standing(&sandbox), before);
    // Without unexplained failures the hook does not run.
    sandbox.write("fixed", "");
    sandbox.windlass(&["recover", "--retry-unknown", "--run"]).exits(0);
    sandbox.windlass(&["recover", "--recovery-hook", "touch called; :"]).exits(0);
    assert!(!sandbox.path("called").exists());
}

#[test]
fn recovery_works_while_other_jobs_run() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "both.yaml",
        r#"name: both
resource_requirements: [{name: small, num_cpus: 1, memory: 40m, runtime: PT1H}]
jobs:
  - {name: long, command: "while [ ! -e go ]; do sleep 0.05; done"}
  - {name: large, command: "python3 -c 'print(len(bytearray(50 << 20)))'", resource_requirements: small}
  - {name: report, command: "true", depends_on: [large]}
"#,
    );
    let mut run = sandbox.start(&["run", "both.yaml", "-j2"]);
    eventually("it runs out of memory", || sandbox.path(".windlass").exists() && failed(&sandbox, "large"));
    sandbox.windlass(&["recover"]).exits(0).prints("1 job will run again");
    eventually("it is done", || standing(&sandbox)["report"][0] == "completed");
    let then = standing(&sandbox);
    assert_eq!((&then["large"], &then["long"]), (&json!(["completed", 2]), &json!(["running", 1])));
    sandbox.write("go", "");
    assert_eq!(run.wait().unwrap().code(), Some(0));
}

fn failed(sandbox: &Sandbox, name: &str) -> bool {
    let jobs = sandbox.windlass(&["jobs", "--format", "json"]);
    let jobs: Value = serde_json::from_str(&jobs.stdout).unwrap_or_default();
    jobs.as_array()
        .is_some_and(|jobs| jobs.iter().any(|job| job["name"] == name && job["status"] == "failed"))
}

#[test]
fn canceled_workflow_is_recovered() {
    let sandbox = Sandbox::new();
    sandbox.write("c.yaml", "name: c\njobs:\n  - {name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}\n  - {name: b, command: 'true', depends_on: [a]}\n");
    let mut run = sandbox.start(&["run", "c.yaml"]);
    eventually("it runs", || sandbox.path("runs").exists());
    sandbox.windlass(&["cancel", "--wait", "--grace", "1s"]).exits(0);
    run.wait().unwrap();
    sandbox.write("go", "");
    let mut recover = sandbox.command(&["recover", "--run"]);
    Output::of(recover.env("WINDLASS_AGENT", "robot")).exits(0).prints("canceled").says("2 completed");
    sandbox.windlass(&["events"]).exits(0).prints("requested by agent robot");
}

/// Kills a run and its worker at the same moment: no process is left to record anything.
fn die(sandbox: &Sandbox, run: &mut Child) -> Vec<u32> {
    let workers = children_of(run.id());
    let jobs: Vec<u32> = workers.iter().flat_map(|worker| children_of(*worker)).collect();
    for pid in [&[run.id()], workers.as_slice()].concat() {
        kill(pid, "STOP");
    }
    for pid in [workers.as_slice(), &[run.id()]].concat() {
        kill(pid, "KILL");
    }
    run.wait().unwrap();
    let noted = sandbox.json(&["jobs"])[0]["status"].clone();
    assert!(noted == "running" || noted == "pending", "its end is not recorded: {noted}");
    jobs
}

#[test]
fn jobs_of_dead_worker_are_reset_with_contract_exit_code() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "s.yaml",
        "name: s\njobs: [{name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}]\n",
    );
    let mut run = sandbox.start(&["run", "s.yaml"]);
    eventually("it runs", || {
        sandbox.path("runs").exists() && sandbox.json(&["jobs"])[0]["status"] == "running"
    });

    // Live workers are not affected.
    let alive = sandbox.json(&["workflows", "sync-status"]);
    assert_eq!((&alive["lost"], &alive["jobs"][0]["state"]), (&json!(0), &json!("alive")), "{alive}");

    let left = die(&sandbox, &mut run);
    let found = sandbox.json(&["workflows", "sync-status", "--dry-run"]);
    assert_eq!((&found["lost"], &found["jobs"][0]["state"]), (&json!(1), &json!("gone")), "{found}");
    assert_eq!(sandbox.json(&["jobs"])[0]["status"], "running", "it was a rehearsal");

    sandbox.windlass(&["workflows", "sync-status"]).exits(0).prints("1 lost job reset (-128)");
    assert!(left.iter().all(|pid| !is_alive(*pid)), "dead before again");
    assert_eq!(standing(&sandbox)["a"], json!(["ready", 2]));
    let results = sandbox.json(&["results"]);
    assert_eq!(
        (&results[0]["return_code"], &results[0]["attempt_id"]),
        (&json!(-128), &json!(1)),
        "{results}"
    );
    sandbox.windlass(&["workflows", "sync-status"]).exits(0).prints("no job is recorded as running");
    sandbox.write("go", "");
    sandbox.windlass(&["resume"]).exits(0);
}

#[test]
fn recover_counts_jobs_whose_worker_died() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "s.yaml",
        "name: s\njobs:\n  - {name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}\n  \
         - {name: b, command: exit 3}\n",
    );
    let mut run = sandbox.start(&["run", "s.yaml"]);
    eventually("it runs", || sandbox.path("runs").exists());
    eventually("the other has failed", || {
        let jobs = sandbox.json(&["jobs"]);
        jobs[0]["status"] == "running" && jobs[1]["status"] == "failed"
    });
    die(&sandbox, &mut run);
    let dry = sandbox.windlass(&["recover", "--dry-run", "--format", "json"]).exits(1).stdout;
    let dry: Value = serde_json::from_str(&dry).unwrap();
    assert_eq!(dry["orphans"], json!(1), "{dry}");
    let words = "workflow 1 (s): 1 job will run again because its worker died, 1 stays as it is";
    sandbox.windlass(&["recover"]).exits(1).prints(words);
    sandbox.write("go", "");
    sandbox.windlass(&["resume"]).exits(1);
    assert_eq!(sandbox.json(&["jobs"])[0]["status"], "completed");
}

/// In separate namespaces, a process sees another host name and other processes.
#[test]
fn worker_on_other_machine_is_not_declared_dead() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "s.yaml",
        "name: s\njobs: [{name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}]\n",
    );
    let run = sandbox.command(&["run", "s.yaml", "--quiet"]);
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--uts", "--pid", "--fork", "--mount-proc", "sh", "-c"]);
    elsewhere.args([r#"hostname elsewhere && exec "$@""#, "sh"]).arg(run.get_program()).args(run.get_args());
    elsewhere.current_dir(sandbox.path("")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut elsewhere = elsewhere.spawn().expect("`unshare` of util-linux is here, and we are root");
    eventually("it runs", || {
        sandbox.path("runs").exists() && sandbox.json(&["jobs"])[0]["status"] == "running"
    });
    // Killing the first process of a PID namespace kills all others in it, as when a machine loses power.
    for pid in children_of(elsewhere.id()) {
        kill(pid, "KILL");
    }
    elsewhere.wait().unwrap();

    let told = sandbox.json(&["workflows", "sync-status"]);
    let job = &told["jobs"][0];
    assert_eq!((&told["lost"], &job["state"]), (&json!(0), &json!("unknown")), "{told}");
    assert!(job["evidence"].as_str().unwrap().contains("elsewhere, not on this machine"), "{told}");
    let said = sandbox.windlass(&["workflows", "sync-status"]).exits(0);
    said.prints("the state of the worker is unknown on this host").says("sync-status 1 --assume-dead");
    assert_eq!(sandbox.json(&["jobs"])[0]["status"], "running", "no answer is no answer");
    assert_ne!(sandbox.windlass(&["resume"]).code, 0, "it may still run there");

    let sure = ["workflows", "sync-status", "--assume-dead"];
    sandbox.windlass(&sure).exits(0).prints("1 lost job reset (-128)");
    sandbox.write("go", "");
    sandbox.windlass(&["resume"]).exits(0);
}

#[test]
fn recover_handles_dead_workers_first() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", "name: s\njobs:\n  - {name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}\n  - {name: b, command: exit 3}\n");
    let mut run = sandbox.start(&["run", "s.yaml"]);
    eventually("it runs", || failed(&sandbox, "b") && standing(&sandbox)["a"][0] == "running");
    die(&sandbox, &mut run);
    sandbox.windlass(&["recover", "--dry-run", "--retry-unknown"]).exits(0).says("a: its worker");
    sandbox
        .windlass(&["recover", "--retry-unknown"])
        .exits(0)
        .says("may have been running")
        .prints("2 jobs will run again, 1 of them because its worker died");
    assert_eq!(standing(&sandbox), json!({ "a": ["ready", 2], "b": ["ready", 2] }));
}

/// No job has failed: the process that ran the workflow died, and no other continues it.
#[test]
fn recover_continues_workflow_after_crash() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", "name: s\njobs:\n  - {name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}\n  - {name: b, command: 'true', depends_on: [a]}\n");
    let mut run = sandbox.start(&["run", "s.yaml"]);
    eventually("it runs", || {
        sandbox.path("runs").exists() && sandbox.json(&["jobs"])[0]["status"] == "running"
    });
    // While a process runs the workflow, there is nothing to recover.
    let said = sandbox.windlass(&["recover"]).exits(0);
    said.prints("no job has failed; 2 jobs are left to run").says_nothing_of("next:");
    die(&sandbox, &mut run);
    sandbox.windlass(&["recover", "--dry-run"]).exits(0).says("a: its worker");
    let said = sandbox.windlass(&["recover"]).exits(0);
    said.prints("no job has failed; 2 jobs are left to run").says("next: windlass resume 1");
    assert_eq!(standing(&sandbox), json!({ "a": ["ready", 2], "b": ["blocked", 1] }));
    sandbox.write("go", "");
    sandbox.windlass(&["recover", "--run"]).exits(0).says("2 completed");
    sandbox.windlass(&["recover", "--run"]).exits(0).prints("there is nothing to recover");
}

/// `b` runs after `a` has ended with any outcome, while commands change `a` and `c`.
const UNDER_WAY: &str = r#"name: under_way
jobs:
  - {name: a, command: "test -e fixed"}
  - {name: b, command: "touch runs; while [ ! -e go ]; do sleep 0.05; done", depends_on: [a], cancel_on_blocking_job_failure: false}
  - {name: c, command: "test -e fixed"}
"#;

#[test]
fn job_with_running_dependent_does_not_block_recovery() {
    let sandbox = Sandbox::new();
    sandbox.write("u.yaml", UNDER_WAY);
    let mut run = sandbox.start(&["run", "u.yaml", "-j2"]);
    eventually("b runs", || {
        sandbox.path("runs").exists() && failed(&sandbox, "c") && standing(&sandbox)["b"][0] == "running"
    });
    let said = sandbox.windlass(&["failures", "retry", "a", "c", "--dry-run"]).exits(4);
    said.prints("`b`, a dependent that would restart, is `running`");
    sandbox.write("fixed", "");
    let done = sandbox.windlass(&["recover", "--retry-unknown", "--format", "json"]).exits(0);
    let plan: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&plan["run_again"], &plan["stay"]), (&json!(1), &json!(1)), "{plan}");
    assert!(
        job(&plan, "a")["stays_because"].as_str().unwrap().starts_with("`b`, a dependent that would restart")
    );
    eventually("c is done", || standing(&sandbox)["c"][0] == "completed");
    assert_eq!(standing(&sandbox)["a"], json!(["failed", 1]));
    sandbox.write("go", "");
    assert_eq!(run.wait().unwrap().code(), Some(1));
    sandbox.windlass(&["recover", "--retry-unknown", "--run"]).exits(0).says("3 completed");
}

/// A proposal of an agent is not applied before a person approves it.
#[test]
fn job_with_open_proposal_is_not_rerun() {
    let sandbox = Sandbox::new();
    sandbox.write("p.yaml", "name: p\nuse_pending_failed: true\ntriage: {min_confidence: 0.9}\njobs: [{name: a, command: exit 3}]\n");
    sandbox.windlass(&["run", "p.yaml"]).exits(6);
    let recover = |more: &[&str]| {
        let mut command = sandbox.command(&[&["recover", "--retry-unknown"], more].concat());
        Output::of(command.env("WINDLASS_AGENT", "robot"))
    };
    let said = recover(&[]).exits(6);
    said.prints("0 jobs will run again, 1 stays as it is")
        .says("approval required")
        .says_nothing_of("resume");
    let plan: Value = serde_json::from_str(&recover(&["--format", "json"]).exits(6).stdout).unwrap();
    assert_eq!((&plan["run_again"], &plan["jobs"][0]["runs_again"]), (&json!(0), &json!(false)), "{plan}");
    assert!(plan["jobs"][0]["stays_because"].as_str().unwrap().contains("waits for a person"), "{plan}");
    assert_eq!(standing(&sandbox)["a"], json!(["pending_failed", 1]));
    assert!(!sandbox.windlass(&["events"]).exits(0).stdout.contains("will run again"));
}

/// A runner of Torc has no lease, so only a user can declare it dead.
#[test]
fn server_requeues_jobs_of_worker_declared_dead() {
    let sandbox = Sandbox::new();
    let _served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.write("s.yaml", "name: s\njobs: [{name: a, command: 'true'}]\n");
    sandbox.windlass(&["submit", "s.yaml"]).exits(0);
    let torc = |method: &str, path: &str, body: &Value| said_by_torc(&sandbox, method, path, body);
    let node = json!({"workflow_id": 1, "compute_node_type": "local", "hostname": "h", "memory_gb": 1.0, "num_cpus": 2,
        "num_gpus": 0, "num_nodes": 1, "pid": 1, "start_time": "2026-01-01T00:00:00Z"});
    let node = torc("POST", "/compute_nodes", &node)["id"].to_string();
    torc("POST", "/workflows/1/claim_next_jobs?limit=1", &Value::Null);
    torc("PUT", &format!("/jobs/1/start_job/1/{node}"), &Value::Null);
    let said = sandbox.windlass(&["workflows", "sync-status"]).exits(0);
    said.prints("is unknown on this host").says("--assume-dead");
    let dry_run_output = sandbox.json(&["workflows", "sync-status", "--assume-dead", "--dry-run"]);
    assert_eq!((&dry_run_output["lost"], &standing(&sandbox)["a"][0]), (&json!(1), &json!("running")));
    let sure = sandbox.windlass(&["workflows", "sync-status", "--assume-dead"]).exits(0);
    sure.prints("1 lost job reset (-128)");
    assert_eq!(standing(&sandbox)["a"][0], "ready", "as it was told");
    assert_eq!(sandbox.json(&["workflows", "sync-status", "--assume-dead"])["lost"], 0);
}

/// Small nodes for up to a day, large ones for up to ten minutes.
const CLUSTER: &str = "\
name = \"ours\"

[[partitions]]
name = \"standard\"
is_default = true
nodes = 10
cpus_per_node = 8
memory_mb = 100
max_walltime_secs = 86400
shared = true

[[partitions]]
name = \"short\"
nodes = 10
cpus_per_node = 8
memory_mb = 400
max_walltime_secs = 600
shared = true
";

#[test]
fn recovery_does_not_request_more_than_any_partition_has() {
    let sandbox = Sandbox::new();
    sandbox.write("ours.toml", CLUSTER);
    sandbox.write(
        "s.yaml",
        r#"name: s
resource_requirements: [{name: small, num_cpus: 1, memory: 80m, runtime: PT1H}]
slurm_schedulers: [{name: first, account: lab, nodes: 1, walltime: '02:00:00', mem: 90M, partition: standard}]
jobs: [{name: a, command: "python3 -c 'print(len(bytearray(90 << 20)))'", resource_requirements: small, scheduler: first}]
"#,
    );
    sandbox.windlass(&["run", "s.yaml"]).exits(1);
    let recover = ["recover", "--profile", "ours.toml"];

    // There the job would get ten minutes of its hour, so the plan is printed and nothing changes.
    let said = sandbox.windlass(&[&recover[..], &["--partition", "short"]].concat()).exits(4);
    said.prints("1 job would run again").says("fits no partition");
    assert_eq!(standing(&sandbox)["a"], json!(["failed", 1]), "unchanged in the database");

    let plan = sandbox.json(&[&recover[..], &["--dry-run"]].concat());
    assert_eq!(job(&plan, "a")["changes"][0]["to"], 100 << 20, "as much as there is for an hour: {plan}");
    let done = sandbox.json(&recover);
    assert_eq!(
        (
            &done["slurm"]["schedulers"][0]["partition"],
            done["slurm"]["allocations"].as_array().unwrap().len()
        ),
        (&json!("standard"), 1),
        "{done}"
    );
    assert_eq!(standing(&sandbox)["a"], json!(["ready", 2]));
}
