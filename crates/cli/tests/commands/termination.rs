//! How jobs and runs end: by Ctrl-C, by `cancel`, by their own limits, and with processes left behind.

use crate::common::{Sandbox, children_of, documented_keys, eventually, is_alive, kill};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

fn sandbox(spec: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", spec);
    sandbox
}

fn pid_in(sandbox: &Sandbox, file: &str) -> Option<u32> {
    std::fs::read_to_string(sandbox.path(file)).ok()?.trim().parse().ok()
}

/// (status, return code, reason) of each attempt of a job.
fn attempts(sandbox: &Sandbox, job: &str) -> Vec<(String, i64, String)> {
    let results = sandbox.json(&["results", "--job", job]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = results.as_array().unwrap().iter();
    rows.map(|r| (text(&r["status"]), r["return_code"].as_i64().unwrap(), text(&r["reason"]))).collect()
}

#[test]
fn ctrl_c_terminates_jobs_and_workflow_is_resumable() {
    // The first attempt waits forever and writes goodbye on SIGTERM; the second exits at once.
    let sandbox = sandbox(
        "name: polite\njobs:\n  - name: job\n    command: |\n      [ -e said ] && exit 0\n      trap 'echo goodbye > said; exit 0' TERM\n      touch started; while :; do sleep 0.05; done\n  - {name: next, command: 'true', depends_on: [job]}\n",
    );
    let mut run = sandbox.start(&["run", "spec.yaml"]);
    eventually("the job has started", || sandbox.path("started").exists());
    kill(run.id(), "INT");
    assert_eq!(run.wait().unwrap().code(), Some(3), "interrupted");
    assert_eq!(sandbox.read("said"), "goodbye\n");
    let status = sandbox.json(&["status"]);
    assert_eq!((&status["state"], &status["jobs"]["ready"]), (&"interrupted".into(), &1.into()));
    sandbox.windlass(&["resume"]).exits(0);
    let attempts = attempts(&sandbox, "job");
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert_eq!((attempts[0].0.as_str(), attempts[1].0.as_str()), ("terminated", "completed"));
    assert!(attempts[0].2.contains("interrupted"), "{attempts:?}");
}

/// As at the shutdown of a machine or a service unit: every process gets SIGTERM at once, in any order.
#[test]
fn system_shutdown_interrupts_run_without_failures() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]] {
        let sandbox = sandbox(
            "name: shutdown\njobs:\n  - {name: a, command: 'echo $$ > a; [ -e again ] || exec sleep 1000'}\n  \
             - {name: b, command: 'echo $$ > b; [ -e again ] || sleep 1000; true'}\n  \
             - {name: after, command: 'true', depends_on: [a, b]}\n",
        );
        let mut run = sandbox.start(&["run", "spec.yaml", "-j2"]);
        eventually("the jobs have started", || ["a", "b"].iter().all(|f| pid_in(&sandbox, f).is_some()));
        let worker = children_of(run.id())[0];
        let [a, b] = ["a", "b"].map(|file| pid_in(&sandbox, file).unwrap());
        let all = [run.id(), worker, a, b];
        for victim in order {
            kill(all[victim], "TERM");
        }
        assert_eq!(run.wait().unwrap().code(), Some(3), "interrupted");
        let status = sandbox.json(&["status"]);
        assert_eq!(
            (&status["jobs"]["ready"], &status["jobs"]["blocked"]),
            (&2.into(), &1.into()),
            "{status}"
        );
        sandbox.write("again", "");
        sandbox.windlass(&["resume"]).exits(0);
        for job in ["a", "b"] {
            let attempts = attempts(&sandbox, job);
            assert_eq!(attempts.last().map(|last| last.0.as_str()), Some("completed"), "{attempts:?}");
            assert!(attempts[0].2.contains("interrupted"), "{order:?} {attempts:?}");
        }
    }
}

#[test]
fn second_ctrl_c_kills_jobs() {
    let sandbox = sandbox(
        "name: stubborn\njobs:\n  - name: job\n    command: trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done\n",
    );
    let mut run = sandbox.start(&["run", "spec.yaml", "--grace", "1h"]);
    eventually("the job has started", || pid_in(&sandbox, "pid").is_some());
    kill(run.id(), "INT");
    eventually("the run has heard it", || {
        kill(run.id(), "INT");
        run.try_wait().unwrap().is_some()
    });
    assert_eq!(run.wait().unwrap().code(), Some(3));
    assert!(!is_alive(pid_in(&sandbox, "pid").unwrap()));
}

#[test]
fn cancel_ends_process_tree_with_daemons() {
    let sandbox = sandbox(
        "name: family\njobs:\n  - name: parent\n    command: |\n      setsid sh -c 'echo $$ > daemon; exec sleep 1000' &\n      env -i setsid sh -c 'echo $$ > bare; exec sleep 1000' &\n      sh -c 'echo $$ > child; exec sleep 1000'\n  - {name: other, command: 'true', depends_on: [parent]}\n",
    );
    let mut run = sandbox.start(&["run", "spec.yaml"]);
    let files = ["daemon", "bare", "child"];
    eventually("the family is there", || files.iter().all(|f| pid_in(&sandbox, f).is_some()));
    sandbox.windlass(&["cancel", "--wait"]).exits(0).says("is canceled");
    assert_eq!(run.wait().unwrap().code(), Some(1));
    for file in files {
        assert!(!is_alive(pid_in(&sandbox, file).unwrap()), "{file} is still alive");
    }
    let status = sandbox.json(&["status"]);
    assert_eq!((&status["state"], &status["is_canceled"]), (&"canceled".into(), &true.into()));
    sandbox.windlass(&["resume"]).exits(4).says("was canceled").says("--retry-failed");
    sandbox.windlass(&["cancel"]).exits(0).says("already canceled");
    let again = sandbox.json(&["cancel"]);
    assert_eq!((&again["state"], &again["pid"]), (&"canceled".into(), &Value::Null));
}

#[test]
fn idle_workflow_is_canceled_and_retried() {
    let sandbox = sandbox("name: idle\njobs: [{name: a, command: 'true'}]\n");
    sandbox.windlass(&["create", "spec.yaml"]).exits(0);
    let output = sandbox.windlass(&["cancel"]).exits(0);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", "workflow 1 (idle) is canceled\n"));
    assert_eq!(sandbox.json(&["status"])["state"], "canceled");
    sandbox.windlass(&["run", "spec.yaml"]).exits(4).says("--new");
    sandbox.windlass(&["resume", "--retry-failed"]).exits(0);
    assert_eq!(sandbox.json(&["status"])["state"], "completed");
}

#[test]
fn cancel_json_names_process() {
    let sandbox = sandbox("name: asked\njobs: [{name: a, command: 'touch started; sleep 1000'}]\n");
    let mut run = sandbox.start(&["run", "spec.yaml"]);
    eventually("the job has started", || sandbox.path("started").exists());
    let asked = sandbox.json(&["cancel"]);
    assert_eq!(documented_keys(&asked), BTreeSet::from(["workflow_id", "name", "state", "pid"]));
    assert_eq!((&asked["state"], &asked["pid"]), (&"canceling".into(), &run.id().into()));
    run.wait().unwrap();

    sandbox.windlass(&["create", "spec.yaml"]).exits(0);
    let done = sandbox.json(&["cancel", "--wait"]);
    assert_eq!(
        done,
        serde_json::json!({"workflow_id": 2, "name": "asked", "state": "canceled", "pid": null})
    );
}

#[test]
fn job_beyond_runtime_is_terminated_with_152() {
    let sandbox = sandbox(
        "name: late\nresource_requirements: [{name: brief, num_cpus: 1, memory: 1g, runtime: 200ms}]\njobs:\n  - {name: slow, command: 'sleep 1000', resource_requirements: brief}\n  - {name: deaf, command: \"trap '' TERM; while :; do sleep 0.05; done\", resource_requirements: brief}\n  - {name: quick, command: 'true', resource_requirements: brief}\n",
    );
    sandbox.windlass(&["run", "spec.yaml", "--grace", "300ms"]).exits(1).says("time limit");
    for job in ["slow", "deaf"] {
        let attempts = attempts(&sandbox, job);
        assert_eq!((attempts[0].0.as_str(), attempts[0].1), ("terminated", 152), "{job}: {attempts:?}");
    }
    assert_eq!(attempts(&sandbox, "quick")[0].0, "completed");
}

#[test]
fn job_beyond_memory_fails_with_137_and_out_of_memory() {
    let sandbox = sandbox(
        "name: large\nresource_requirements: [{name: little, num_cpus: 1, memory: 50m}]\njobs:\n  - {name: hog, command: 'head -c 300m /dev/zero | tail; sleep 1000', resource_requirements: little}\n  - {name: modest, command: 'head -c 1m /dev/zero | tail > /dev/null', resource_requirements: little}\n",
    );
    sandbox.windlass(&["run", "spec.yaml"]).exits(1).says("out of memory");
    let results = sandbox.json(&["results", "--job", "hog"]);
    let hog = &results[0];
    assert_eq!((&hog["status"], &hog["return_code"]), (&"failed".into(), &137.into()));
    assert_eq!(hog["out_of_memory"], true);
    assert_eq!(attempts(&sandbox, "modest")[0].0, "completed");
}

#[test]
fn grandchild_with_open_output_does_not_hang_run() {
    let sandbox = sandbox("name: holder\njobs: [{name: a, command: 'setsid sleep 1000 & echo $! > pid'}]\n");
    sandbox.windlass(&["run", "spec.yaml"]).exits(0);
    assert!(!is_alive(pid_in(&sandbox, "pid").unwrap()), "what a job leaves behind is ended");
}

#[test]
fn worker_death_costs_one_attempt() {
    let sandbox = sandbox(
        "name: bereft\njobs:\n  - name: job\n    command: echo $$ >> pids; [ $(wc -l < pids) -gt 1 ] || sleep 1000\n  - {name: next, command: 'true', depends_on: [job]}\n",
    );
    let mut run = sandbox.start(&["run", "spec.yaml"]);
    eventually("the job has started", || pid_in(&sandbox, "pids").is_some());
    let [worker] = children_of(run.id())[..] else { panic!("one worker") };
    kill(worker, "KILL");
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let codes: Vec<i64> = attempts(&sandbox, "job").iter().map(|a| a.1).collect();
    assert_eq!(codes, [-128, 0]);
    let table = sandbox.windlass(&["results", "--job", "job"]).exits(0).stdout;
    let orphan: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(orphan[4..7], ["failed", "-", "-"], "{table}");
}

#[test]
fn jobs_end_when_engine_dies() {
    let sandbox = sandbox("name: widow\njobs: [{name: job, command: 'echo $$ > pid; sleep 1000'}]\n");
    let mut run = sandbox.start(&["run", "spec.yaml"]);
    eventually("the job has started", || pid_in(&sandbox, "pid").is_some());
    kill(run.id(), "KILL");
    run.wait().unwrap();
    eventually("the job is gone", || !is_alive(pid_in(&sandbox, "pid").unwrap()));
}

#[test]
fn cancel_among_many_short_jobs_leaves_consistent_state() {
    let mut spec = String::from("name: flood\njobs:\n");
    for job in 0..3000 {
        writeln!(spec, "  - {{name: j{job}, command: sleep 0.002}}").unwrap();
    }
    let sandbox = sandbox(&spec);
    let mut run = sandbox.start(&["run", "spec.yaml"]);
    eventually("it is in full swing", || {
        let status = sandbox.windlass(&["status", "-f", "json"]);
        status.code == 0 && completed(&serde_json::from_str(&status.stdout).unwrap()) > 100
    });
    sandbox.windlass(&["cancel", "--wait"]).exits(0).says("is canceled");
    assert_eq!(run.wait().unwrap().code(), Some(1));
    let status = sandbox.json(&["status"]);
    assert_eq!(status["state"], "canceled");
    assert_eq!((&status["jobs"]["pending"], &status["jobs"]["running"]), (&0.into(), &0.into()));
    let results = sandbox.json(&["results"]);
    let good = results.as_array().unwrap().iter().filter(|r| r["status"] == "completed").count();
    assert_eq!(good as u64, completed(&status), "what was reported completed has its result");
}

fn completed(status: &Value) -> u64 {
    status["jobs"]["completed"].as_u64().unwrap()
}

#[test]
fn run_under_nohup_survives_hangup() {
    let sandbox = sandbox(
        "name: deaf\njobs: [{name: job, command: 'touch started; while [ ! -e go ]; do sleep 0.02; done'}]\n",
    );
    let mut command = std::process::Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_windlass")).args(["run", "spec.yaml"]).current_dir(sandbox.path("."));
    let mut run =
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    eventually("the job has started", || sandbox.path("started").exists());
    kill(run.id(), "HUP");
    sandbox.write("go", "");
    assert_eq!(run.wait().unwrap().code(), Some(0), "it was not interrupted");
}

#[test]
fn job_that_kills_its_worker_fails_and_others_complete() {
    let mut spec =
        String::from("name: poison\njobs:\n  - {name: killer, command: 'kill -9 $PPID; sleep 1000'}\n");
    for job in 0..20 {
        writeln!(spec, "  - {{name: j{job}, command: 'true'}}").unwrap();
    }
    let sandbox = sandbox(&spec);
    sandbox.windlass(&["run", "spec.yaml"]).exits(1).says("killer");
    let status = sandbox.json(&["status"]);
    assert_eq!((completed(&status), &status["jobs"]["failed"]), (20, &1.into()));
    assert!(attempts(&sandbox, "killer").iter().all(|attempt| attempt.1 == -128));
}

#[test]
fn time_limit_ends_running_jobs_and_next_run_continues() {
    // The first attempt waits forever and writes goodbye on SIGTERM; the second exits at once.
    let sandbox = sandbox(
        "name: limited\njobs:\n  - name: job\n    command: |\n      [ -e said ] && exit 0\n      trap 'echo goodbye > said; exit 0' TERM\n      while :; do sleep 0.05; done\n  - {name: next, command: 'true', depends_on: [job]}\n",
    );
    let run = sandbox.windlass(&["run", "spec.yaml", "--time-limit", "2s"]).exits(3);
    assert!(run.stderr.contains("time limit reached"), "{run:?}");
    assert_eq!(sandbox.read("said"), "goodbye\n");
    let status = sandbox.json(&["status"]);
    assert_eq!((&status["state"], &status["jobs"]["ready"]), (&"interrupted".into(), &1.into()));
    sandbox.windlass(&["run", "spec.yaml", "--time-limit", "10m"]).exits(0);
    let attempts = attempts(&sandbox, "job");
    assert_eq!((attempts[0].0.as_str(), attempts[1].0.as_str()), ("terminated", "completed"), "{attempts:?}");
}

#[test]
fn job_longer_than_time_limit_is_not_started() {
    let sandbox = sandbox(
        "name: limited\nresource_requirements:\n  - {name: long, num_cpus: 1, memory: 100m, runtime: PT2H}\n  - {name: short, num_cpus: 1, memory: 100m, runtime: PT1M}\njobs:\n  - {name: long, command: touch long, resource_requirements: long}\n  - {name: short, command: touch short, resource_requirements: short}\n  - {name: silent, command: touch silent}\n",
    );
    // It does not wait for the time limit.
    sandbox
        .windlass(&["run", "spec.yaml", "--time-limit", "1h"])
        .exits(3)
        .says("would end within the time limit");
    assert!(
        sandbox.path("short").exists() && sandbox.path("silent").exists() && !sandbox.path("long").exists()
    );
    let jobs = sandbox.json(&["jobs", "--status", "ready"]);
    assert_eq!(jobs[0]["name"], "long");
    sandbox.windlass(&["resume", "--end-time", "2020-01-01T00:00:00Z"]).exits(2).says("has passed");
    sandbox.windlass(&["resume", "--time-limit", "3h"]).exits(0);
    assert!(sandbox.path("long").exists());
}
