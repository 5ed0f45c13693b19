//! The commands with a real server and real workers: what works with a database file also works with a server.

use crate::common::{Output, Sandbox, documented_keys, eventually, kill};
use crate::serve::{StoppedOnDrop, found};
use serde_json::Value;
use std::process::{Child, Stdio};

const CHAIN: &str = "name: chain
files: [{name: made, path: made.txt}]
user_data: [{name: best, data: 1}]
jobs:
  - {name: a, command: echo hello | tee made.txt, output_files: [made]}
  - {name: b, command: cat made.txt, input_files: [made]}
";

/// A server for the database of this directory, found through the file beside it.
fn served() -> (Sandbox, StoppedOnDrop) {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    (sandbox, served)
}

/// A user in a separate directory with the address of the server and a token.
struct UserSandbox {
    sandbox: Sandbox,
    url: String,
    token: String,
}

impl UserSandbox {
    fn new(server: &Sandbox, token: &str) -> Self {
        let url = found(server)["url"].as_str().unwrap().to_owned();
        Self { sandbox: Sandbox::new(), url, token: token.to_owned() }
    }

    /// Creates a user with a token from the owner of the server.
    fn invited(server: &Sandbox, user: &str) -> Self {
        let made = server.json(&[
            "auth", "token", "create", "--name", "test", "--user", user, "--role", "user", "--scope",
            "write", "--scope", "worker",
        ]);
        Self::new(server, made["token"].as_str().unwrap())
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.sandbox.command(args);
        command.env("WINDLASS_URL", &self.url).env("WINDLASS_TOKEN", &self.token);
        command
    }

    fn windlass(&self, args: &[&str]) -> Output {
        Output::of(&mut self.command(args))
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.windlass(&[args, &["--format", "json"]].concat()).exits(0);
        serde_json::from_str(&output.stdout).unwrap()
    }
}

/// A process that is killed when dropped.
pub(crate) struct KilledOnDrop(pub(crate) Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl KilledOnDrop {
    fn ends(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

#[test]
fn submitted_workflow_is_run_by_worker_and_inspected() {
    let (sandbox, served) = served();
    sandbox.write("chain.yaml", CHAIN);
    sandbox
        .windlass(&["submit", "chain.yaml"])
        .exits(0)
        .prints("workflow 1: chain, 2 jobs, started at http://")
        .says("no worker of yours is connected")
        .says("`windlass worker`");
    let status = sandbox.windlass(&["status", "1"]).exits(0).prints("0 of 2 jobs completed");
    status.says("no worker of yours is connected");
    sandbox.windlass(&["worker", "-w", "no such"]).exits(2).says("no such");
    sandbox.windlass(&["worker", "-w", "chai"]).exits(0).says("2 jobs completed");
    sandbox.windlass(&["worker", "-w", "last"]).exits(0).says("0 jobs completed");
    sandbox.windlass(&["status", "1"]).exits(0).prints("2 of 2 jobs completed");
    assert_eq!(sandbox.read("made.txt"), "hello\n");

    let jobs = sandbox.json(&["jobs", "list", "1"]);
    assert!(jobs.as_array().unwrap().iter().all(|job| job["status"] == "completed"), "{jobs}");
    let results = sandbox.json(&["results", "list", "1"]);
    assert_eq!(results.as_array().unwrap().len(), 2, "{results}");
    assert_eq!(sandbox.json(&["files", "list", "1"])[0]["name"], "made");
    assert_eq!(sandbox.json(&["user-data", "list", "1"])[0]["data"], 1);
    sandbox.windlass(&["logs", "a"]).exits(0).prints("hello");
    sandbox.windlass(&["why", "b"]).exits(0).prints("completed");
    sandbox.windlass(&["plan", "1"]).exits(0).prints("chain");
    let events = sandbox.json(&["events", "list", "1"]);
    let completed = events.as_array().unwrap().iter().filter(|event| event["category"] == "job_completed");
    assert_eq!(completed.count(), 2, "{events}");

    sandbox.windlass(&["delete", "1", "--yes"]).exits(0);
    sandbox.windlass(&["status", "1"]).exits(2).says("no workflow");
    served.stop();
}

#[test]
fn server_run_ends_like_local_run() {
    let (sandbox, served) = served();
    sandbox.write(
        "w.yaml",
        "name: w\njobs:\n  - {name: good, command: 'true'}\n  - {name: bad, command: test -e mended}\n",
    );
    sandbox.windlass(&["run", "w.yaml"]).exits(1).says("bad").says("1 failed");
    sandbox.write("mended", "");
    sandbox.windlass(&["resume", "--retry-failed"]).exits(0);
    assert_eq!(sandbox.json(&["status"])["run_id"], 2);

    sandbox.windlass(&["workflows", "reset-status", "--job", "bad", "--yes"]).exits(0);
    let jobs = sandbox.json(&["jobs"]);
    // The job belongs to the next run, which has not started.
    assert_eq!([&jobs[0]["status"], &jobs[1]["status"]], ["completed", "uninitialized"], "{jobs}");
    sandbox.windlass(&["resume"]).exits(0);
    assert_eq!(sandbox.json(&["jobs"])[1]["status"], "completed");
    sandbox.windlass(&["workflows", "reinit"]).exits(0);
    sandbox.windlass(&["exec", "-c", "echo one", "-c", "echo two"]).exits(0);
    assert_eq!(sandbox.json(&["list"]).as_array().unwrap().len(), 2);
    served.stop();
}

#[test]
fn running_server_workflow_is_followed_and_canceled() {
    let (sandbox, served) = served();
    sandbox.write("long.yaml", "name: long\njobs:\n  - {name: first, command: 'true'}\n  - {name: long, command: touch began; exec sleep 600, depends_on: [first]}\n");
    let mut run = KilledOnDrop(sandbox.start(&["run", "long.yaml"]));
    eventually("the job runs", || sandbox.path("began").exists());
    let mut follow = KilledOnDrop(sandbox.start(&["events", "follow", "1", "--filename", "seen.jsonl"]));
    eventually("it is noted as running", || {
        sandbox.json(&["jobs", "running", "1"]).as_array().unwrap().len() == 1
    });
    sandbox.windlass(&["cancel", "1"]).exits(0);
    assert_eq!(run.ends(), Some(1));
    assert_eq!(follow.ends(), Some(0));
    assert!(sandbox.read("seen.jsonl").contains("job_"), "{}", sandbox.read("seen.jsonl"));
    assert_eq!(sandbox.json(&["jobs", "get", "long"])["status"], "canceled");
    sandbox.windlass(&["cancel", "1"]).exits(0).says("already");
    served.stop();
}

#[test]
fn workers_are_listed_drained_and_retired() {
    let (sandbox, served) = served();
    let workers = || sandbox.json(&["worker", "list"]).as_array().unwrap().clone();
    let start = || KilledOnDrop(sandbox.start(&["worker", "--persistent", "--label", "big"]));
    let mut drained = start();
    eventually("it is there", || workers().len() == 1);
    let id = workers()[0]["id"].to_string();
    assert_eq!(sandbox.json(&["worker", "show", &id])["labels"], serde_json::json!(["big"]));
    sandbox.windlass(&["worker", "drain", &id]).exits(0);
    assert_eq!(drained.ends(), Some(0));
    eventually("it is gone", || workers().is_empty());

    let mut dead = start();
    eventually("it is there", || workers().len() == 1);
    kill(dead.0.id(), "KILL");
    dead.ends();
    let id = workers()[0]["id"].to_string();
    sandbox.windlass(&["worker", "retire", &id]).exits(0).says("queued again");
    assert_eq!(workers().len(), 0);
    sandbox.windlass(&["worker", "show", "99"]).exits(2).says("99");
    served.stop();
}

/// Workers of a quarantined node get no jobs until it is released; the jobs wait.
#[test]
fn node_is_quarantined_listed_and_released() {
    let (sandbox, served) = served();
    let _worker = KilledOnDrop(sandbox.start(&["worker", "--persistent"]));
    let workers = || sandbox.json(&["worker", "list"]).as_array().unwrap().clone();
    eventually("it is there", || workers().len() == 1);
    let host = workers()[0]["host"].as_str().unwrap().to_owned();
    assert_eq!(workers()[0]["standing"], "trusted");
    sandbox.windlass(&["worker", "nodes"]).exits(0).says("no nodes are in quarantine");
    let set = ["worker", "nodes", "set-aside", &host, "--for", "2h", "--reason", "its disk is full"];
    sandbox.windlass(&set).exits(0).says("is in quarantine until");
    let nodes = sandbox.json(&["worker", "nodes", "list"]);
    assert_eq!((&nodes[0]["host"], &nodes[0]["standing"]), (&host.as_str().into(), &"quarantined".into()));
    assert_eq!((&nodes[0]["reason"], &nodes[0]["set_by"]), (&"its disk is full".into(), &"tester".into()));
    assert_eq!(workers()[0]["quarantine_reason"], "its disk is full");
    sandbox.windlass(&["worker", "list"]).exits(0).prints("its disk is full");

    sandbox.write("chain.yaml", CHAIN);
    sandbox.windlass(&["submit", "chain.yaml"]).exits(0);
    assert_eq!(sandbox.json(&["jobs", "list", "1"])[0]["status"], "ready", "no worker takes it");
    sandbox.windlass(&["worker", "nodes", "release", &host]).exits(0).says("is released from quarantine");
    eventually("it is done", || {
        let jobs = sandbox.json(&["jobs", "list", "1"]);
        jobs.as_array().unwrap().iter().all(|job| job["status"] == "completed")
    });
    sandbox.windlass(&["worker", "nodes", "release", &host]).exits(2).says("is not in quarantine");
    served.stop();
}

#[test]
fn token_grants_access_until_revoked() {
    let (sandbox, served) = served();
    let stranger = UserSandbox::new(&sandbox, "");
    stranger.windlass(&["list"]).exits(4).says("token");
    let made = sandbox.json(&["auth", "token", "create", "--name", "laptop", "--scope", "write"]);
    let owner = UserSandbox::new(&sandbox, made["token"].as_str().unwrap());
    assert_eq!(owner.json(&["auth", "whoami"])["user"], "tester");
    owner.sandbox.write("chain.yaml", CHAIN);
    owner.windlass(&["create", "chain.yaml"]).exits(0);
    sandbox.windlass(&["list"]).exits(0).prints("chain");

    let id = made["about"]["id"].to_string();
    sandbox.windlass(&["auth", "token", "revoke", &id]).exits(0).says("revoked token");
    owner.windlass(&["list"]).exits(4);
    served.stop();
}

#[test]
fn users_see_own_and_shared_workflows() {
    let (sandbox, served) = served();
    let (ana, bob) = (UserSandbox::invited(&sandbox, "ana"), UserSandbox::invited(&sandbox, "bob"));
    ana.sandbox.write("chain.yaml", CHAIN);
    ana.windlass(&["submit", "chain.yaml"]).exits(0);
    assert_eq!(ana.json(&["status"])["user"], "ana");
    assert_eq!(bob.json(&["list"]), serde_json::json!([]));
    for line in ["status 1", "jobs 1", "cancel 1", "delete 1 --yes", "events 1"] {
        let words: Vec<&str> = line.split(' ').collect();
        bob.windlass(&words).exits(2).says("no workflow");
    }

    bob.windlass(&["access-groups", "create", "mine"]).exits(4);
    let group = sandbox.json(&["access-groups", "create", "climate", "--description", "all of us"]);
    documented_keys(&group);
    for user in ["ana", "bob"] {
        sandbox.windlass(&["access-groups", "add-user", "climate", user]).exits(0).says("as member");
    }
    let members = sandbox.json(&["access-groups", "list-members", "climate"]);
    documented_keys(&members[0]);
    assert_eq!(members.as_array().unwrap().len(), 2);
    bob.windlass(&["access-groups", "share", "1", "climate"]).exits(2).says("no workflow");
    ana.windlass(&["access-groups", "share", "1", "climate"]).exits(0).says("is shared with `climate`");
    bob.windlass(&["status", "1"]).exits(0).prints("chain");
    ana.windlass(&["access-groups", "unshare", "1", "climate"]).exits(0);
    bob.windlass(&["status", "1"]).exits(2);

    ana.windlass(&["access-groups", "share", "1", &group["id"].to_string()]).exits(0);
    sandbox.windlass(&["access-groups", "remove-user", "climate", "bob"]).exits(0);
    bob.windlass(&["status", "1"]).exits(2);
    bob.windlass(&["access-groups", "list-members", "climate"]).exits(2).says("not a member");
    sandbox.windlass(&["access-groups", "delete", "climate"]).exits(0);
    assert_eq!(ana.json(&["access-groups", "list"]), serde_json::json!([]));
    served.stop();
}

#[test]
fn job_on_worker_adds_jobs_and_prints_no_token() {
    let (sandbox, served) = served();
    let ana = UserSandbox::invited(&sandbox, "ana");
    ana.sandbox.write("next.yaml", "jobs: [{name: more, command: echo more > more.txt}]\n");
    ana.sandbox.write(
        "grow.yaml",
        "name: grow\njobs:\n  - {name: seed, command: 'env; windlass auth whoami -f json > who.json; windlass jobs spawn next.yaml'}\n",
    );
    ana.windlass(&["submit", "grow.yaml"]).exits(0);
    let mut worker = ana.command(&["worker", "-w", "1"]);
    Output::of(worker.stdin(Stdio::null())).exits(0).says("2 jobs completed");
    assert_eq!(ana.sandbox.read("more.txt"), "more\n");
    let who: Value = serde_json::from_str(&ana.sandbox.read("who.json")).unwrap();
    assert_eq!(who["user"], "ana");
    let printed = ana.windlass(&["logs", "seed"]).exits(0).prints("WINDLASS_URL=http://");
    assert!(!printed.stdout.contains(&ana.token), "{}", printed.stdout);
    served.stop();
}
