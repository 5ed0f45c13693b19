//! Workers and clients whose server is gone: they find the next one, wait for this one, or report that there is
//! none; and no command ends workers unless asked to.

use crate::common::{Output, Sandbox, eventually, is_alive, kill};
use crate::free_port::free_port;
use crate::serve::StoppedOnDrop;
use std::process::{Child, Stdio};

/// A process that is killed when dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

const WAITS: &str =
    "name: w\njobs:\n  - {name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}\n";

fn worker(sandbox: &Sandbox, args: &[&str]) -> KilledOnDrop {
    KilledOnDrop(sandbox.start(&[&["worker"], args].concat()))
}

#[test]
fn resume_does_not_end_living_worker() {
    let sandbox = Sandbox::new();
    sandbox.write("w.yaml", WAITS);
    let address = format!("127.0.0.1:{}", free_port());
    let served = StoppedOnDrop::start(&sandbox, &["--listen", &address]);
    sandbox.windlass(&["submit", "w.yaml"]).exits(0);
    let worker = worker(&sandbox, &[]);
    eventually("it runs", || sandbox.path("runs").exists());
    kill(served.pid(), "KILL");
    drop(served);
    let pid = worker.0.id();
    sandbox.windlass(&["status"]).exits(0).prints(&format!("process {pid}")).prints("windlass serve");
    for command in [&["resume"][..], &["run", "w.yaml"]] {
        sandbox
            .windlass(command)
            .exits(4)
            .says(&format!("(process {pid}) is still running"))
            .says("--take-over");
    }
    assert!(is_alive(pid));

    // The restarted server lets the worker continue: the job has run once.
    let served = StoppedOnDrop::start(&sandbox, &["--listen", &address]);
    sandbox.write("go", "");
    eventually("it is done", || sandbox.windlass(&["status"]).stdout.contains("1 of 1 job completed"));
    assert_eq!(sandbox.json(&["results", "list"])[0]["attempt_id"], 1);
    served.stop();
}

#[test]
fn resume_with_take_over_ends_living_worker() {
    let sandbox = Sandbox::new();
    sandbox.write("w.yaml", WAITS);
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.windlass(&["submit", "w.yaml"]).exits(0);
    let mut worker = worker(&sandbox, &[]);
    eventually("it runs", || sandbox.path("runs").exists());
    kill(served.pid(), "KILL");
    drop(served);
    sandbox.write("go", "");
    sandbox.windlass(&["resume", "--take-over"]).exits(0).says("1 completed");
    assert_eq!(worker.0.wait().unwrap().code(), None, "killed");
}

#[test]
fn worker_reports_unreachable_server() {
    let sandbox = Sandbox::new();
    let nowhere = ["worker", "--url", "http://127.0.0.1:1", "--idle-timeout", "1s"];
    sandbox.windlass(&nowhere).exits(5).says("cannot reach the server");
}

#[test]
fn worker_exit_code_reports_jobs_stopped_by_time_limit() {
    let sandbox = Sandbox::new();
    sandbox.write("w.yaml", "name: w\njobs: [{name: a, command: sleep 600}]\n");
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.windlass(&["submit", "w.yaml"]).exits(0);
    let limited = sandbox.windlass(&["worker", "--time-limit", "3s", "--grace", "1s"]).exits(3);
    assert!(limited.stderr.contains("0 jobs completed, 1 stopped"), "{}", limited.stderr);
    assert_eq!(sandbox.json(&["status"])["jobs"]["ready"], 1);
    served.stop();
}

#[test]
fn worker_and_why_report_missing_directory() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.write("gone/w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    let db = sandbox.path(".windlass/windlass.db").display().to_string();
    let mut command = sandbox.command(&["submit", "w.yaml", "--db", &db]);
    Output::of(command.current_dir(sandbox.path("gone"))).exits(0);
    sandbox.windlass(&["why", "a"]).exits(0).prints("no worker");
    std::fs::remove_dir_all(sandbox.path("gone")).unwrap();
    let said = sandbox.windlass(&["worker", "--idle-timeout", "2s"]).exits(0);
    assert!(
        said.stderr.contains("cannot be started here") && said.stderr.contains("/gone"),
        "{}",
        said.stderr
    );
    sandbox.windlass(&["why", "a"]).exits(0).prints("/gone is not a directory");
    served.stop();
}

#[test]
fn why_names_resources_that_no_worker_has() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.write(
        "w.yaml",
        "name: w\nresource_requirements: [{name: huge, num_cpus: 99, memory: 1g, runtime: PT1M}]\njobs:\n  - {name: plain, command: 'true'}\n  - {name: labelled, command: 'true', labels: [gpu]}\n  - {name: huge, command: 'true', resource_requirements: huge}\n",
    );
    sandbox.windlass(&["create", "w.yaml"]).exits(0);
    sandbox.windlass(&["why", "plain"]).exits(0);
    sandbox.windlass(&["submit", "w.yaml"]).exits(0);
    for job in ["plain", "labelled", "huge"] {
        sandbox.windlass(&["why", job]).exits(0).prints("no worker").prints("windlass worker");
    }
    let first = worker(&sandbox, &["--label", "bigmem", "-j", "1"]);
    eventually("it is there", || sandbox.json(&["worker", "list"]).as_array().unwrap().len() == 1);
    sandbox.windlass(&["why", "plain"]).exits(0).prints("label");
    sandbox.windlass(&["why", "labelled"]).exits(0).prints("gpu");
    drop(first);
    let _second = worker(&sandbox, &["--num-cpus", "2"]);
    eventually("plain is done", || sandbox.windlass(&["why", "plain"]).stdout.contains("completed"));
    sandbox.windlass(&["why", "huge"]).exits(0).prints("99");
    served.stop();
}

#[test]
fn events_follow_continues_after_server_restart() {
    let sandbox = Sandbox::new();
    sandbox.write("w.yaml", WAITS);
    let address = format!("127.0.0.1:{}", free_port());
    let served = StoppedOnDrop::start(&sandbox, &["--listen", &address]);
    sandbox.windlass(&["submit", "w.yaml"]).exits(0);
    let _worker = worker(&sandbox, &[]);
    eventually("it runs", || sandbox.path("runs").exists());
    let told = std::fs::File::create(sandbox.path("told")).unwrap();
    let mut command = sandbox.command(&["events", "follow", "--format", "json"]);
    let mut follower = KilledOnDrop(command.stdout(told).stderr(Stdio::null()).spawn().unwrap());
    eventually("it follows", || {
        sandbox.windlass(&["events", "create", "-d", "before"]).exits(0);
        sandbox.read("told").contains("before")
    });
    served.stop();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", &address]);
    sandbox.windlass(&["events", "create", "-d", "after"]).exits(0);
    sandbox.write("go", "");
    assert_eq!(follower.0.wait().unwrap().code(), Some(0));
    let told = sandbox.read("told");
    assert!(told.contains("after") && told.contains("job_completed"), "{told}");
    served.stop();
}
