//! A server on the login node of the cluster, and workers in allocations, submitted by hand or by the server.

use crate::free_port::free_port;
use crate::support::{Cluster, Work, eventually, windlass};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

pub(crate) struct TestServer<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) work: Work,
    served: Child,
    url: String,
    /// Additional options of the server.
    options: Vec<String>,
    jobs: Vec<u64>,
}

impl<'a> TestServer<'a> {
    pub(crate) fn open(cluster: &'a Cluster, name: &str) -> Self {
        Self::served(cluster, name, &[])
    }

    /// The same with these options for `windlass serve`.
    pub(crate) fn served(cluster: &'a Cluster, name: &str, options: &[&str]) -> Self {
        let work = cluster.work(name);
        let mut serve = command(cluster, &work);
        serve.args(["serve", "--listen", "127.0.0.1:0"]).args(options);
        let (served, url) = serving(&work, &mut serve);
        Self { cluster, work, served, url, options: Vec::new(), jobs: Vec::new() }
    }

    /// The same with a server that requests allocations from Slurm itself. It listens on the previous address, so
    /// that running workers find it again.
    pub(crate) fn with_reconciler(cluster: &'a Cluster, name: &str) -> Self {
        Self::with_reconciler_and(cluster, name, &[])
    }

    /// The same with more options for it.
    pub(crate) fn with_reconciler_and(cluster: &'a Cluster, name: &str, options: &[&str]) -> Self {
        let work = cluster.work(name);
        let listen = format!("127.0.0.1:{}", free_port());
        let (served, url) = serving(&work, reconciler(cluster, &work, &listen).args(options));
        let options = options.iter().map(|&word| word.to_owned()).collect();
        Self { cluster, work, served, url, options, jobs: Vec::new() }
    }

    /// Kills the server as a power cut would.
    pub(crate) fn crash(&mut self) {
        self.served.kill().unwrap();
        self.served.wait().unwrap();
    }

    /// Waits until the server has ended by itself.
    pub(crate) fn await_crash(&mut self) {
        let served = &mut self.served;
        eventually("the server is dead", || served.try_wait().unwrap().is_some());
    }

    /// Starts it again after a crash, with this PATH.
    pub(crate) fn serve_again(&mut self, path: &str) {
        fs::remove_file(self.work.path().join(ANNOUNCED)).ok();
        let mut serve = reconciler(self.cluster, &self.work, self.url.trim_start_matches("http://"));
        (self.served, self.url) = serving(&self.work, serve.args(&self.options).env("PATH", path));
    }

    /// The same for a server that dies soon: returns when it is dead, perhaps before it could be reached.
    pub(crate) fn serve_until_crash(&mut self, path: &str) {
        let mut serve = reconciler(self.cluster, &self.work, self.url.trim_start_matches("http://"));
        self.served = serve
            .args(&self.options)
            .env("PATH", path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.await_crash();
    }

    /// Starts a workflow with these jobs and this addition to its spec.
    pub(crate) fn submit(&self, spec: &str) {
        self.work.write("spec.yaml", spec);
        self.windlass(&["submit", "spec.yaml"]);
    }

    /// An allocation with a worker in it, as the reconciler would request it. Returns its job id.
    pub(crate) fn allocate(&mut self, options: &[&str]) -> u64 {
        let directory = format!("--chdir={}", self.work.path().display());
        let error = format!("--error={}/worker-%j.log", self.work.path().display());
        let common = [directory.as_str(), &error, "--no-requeue", "--signal=B:USR1@5"];
        let line = format!(
            "exec '{}' slurm worker --server {} --workflow 1 --walltime 300 --state-dir state",
            windlass().display(),
            self.url
        );
        let job = self.cluster.submit(&[&common, options].concat(), &line);
        self.jobs.push(job);
        job
    }

    /// Starts the command without waiting for it.
    pub(crate) fn exit_code(&self, arguments: &[&str]) -> Option<i32> {
        command(self.cluster, &self.work).args(arguments).output().unwrap().status.code()
    }

    /// Starts `windlass watch`, and waits until it follows the workflow.
    pub(crate) fn start_watch(&self, arguments: &[&str]) -> Child {
        let log = fs::File::create(self.work.path().join("watch.log")).unwrap();
        let mut command = command(self.cluster, &self.work);
        command.args(["watch", "1"]).args(arguments).stdout(Stdio::null()).stderr(log);
        let mut watch = command.spawn().unwrap();
        eventually("the watch follows the workflow", || {
            let said = self.work.read("watch.log");
            assert!(watch.try_wait().unwrap().is_none(), "the watch has ended: {said}");
            said.contains("following workflow")
        });
        watch
    }

    pub(crate) fn windlass(&self, arguments: &[&str]) -> String {
        let mut command = command(self.cluster, &self.work);
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same on a terminal of 80 columns, with its stderr.
    pub(crate) fn on_terminal(&self, arguments: &[&str]) -> String {
        let mut command = self.command_of("script");
        let quoted: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
        let line = format!("stty cols 80 && '{}' {} --color never", windlass().display(), quoted.join(" "));
        let output = command.args(["-qec", &line, "/dev/null"]).env("SHELL", "/bin/sh").output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap().replace('\r', "");
        assert!(output.status.success(), "{line}: {}\n{shown}", output.status);
        shown
    }

    /// Any program, in the directory and environment of `windlass`.
    pub(crate) fn command_of(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.cluster.command(program);
        at_home(&mut command, &self.work);
        command
    }

    /// The address of the server, and a token.
    pub(crate) fn address(&self) -> (String, String) {
        let place: Value = serde_json::from_str(&self.work.read(ANNOUNCED)).unwrap();
        (self.url.clone(), place["token"].as_str().unwrap().to_owned())
    }

    /// Runs a command, which may fail.
    pub(crate) fn windlass_somehow(&self, arguments: &[&str]) {
        command(self.cluster, &self.work).args(arguments).output().unwrap();
    }

    /// A program of a few lines of shell.
    pub(crate) fn script(&self, name: &str, does: &str) {
        let path = self.work.write(name, &format!("#!/bin/sh\n{does}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a command that must fail; returns its message.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let mut command = command(self.cluster, &self.work);
        let output = command.args(arguments).output().unwrap();
        assert!(!output.status.success(), "{command:?} has succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.windlass(&[arguments, &["--format", "json"]].concat())).unwrap()
    }

    /// All allocations of the workflow, in the order of their requests.
    pub(crate) fn allocations(&self) -> Vec<Value> {
        self.json(&["slurm", "allocations", "1"]).as_array().unwrap().clone()
    }

    /// Waits until an allocation satisfies this.
    #[track_caller]
    pub(crate) fn await_allocation(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        eventually(what, || {
            found = self.allocations().into_iter().find(&holds);
            found.is_some()
        });
        found.unwrap()
    }

    pub(crate) fn jobs(&self) -> BTreeMap<String, String> {
        let listed = self.json(&["jobs", "list", "1"]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(|row| (text(&row["name"]), text(&row["status"]))).collect()
    }

    pub(crate) fn status(&self, job: &str) -> String {
        self.jobs().remove(job).unwrap()
    }

    pub(crate) fn await_status(&self, job: &str, status: &str) {
        eventually(&format!("{job} is {status}"), || self.status(job) == status);
    }
}

const ANNOUNCED: &str = ".windlass/windlass.db.run/server.json";

fn serving(work: &Work, serve: &mut Command) -> (Child, String) {
    let log = fs::OpenOptions::new().append(true).create(true).open(work.path().join("serve.log")).unwrap();
    let mut served = serve.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let mut url = None;
    eventually("the server logs its address", || {
        assert!(served.try_wait().unwrap().is_none(), "it ended: {}", work.read("serve.log"));
        let text = fs::read_to_string(work.path().join(ANNOUNCED)).unwrap_or_default();
        let found: Option<Value> = serde_json::from_str(&text).ok();
        url = found.and_then(|found| found["url"].as_str().map(str::to_owned));
        url.is_some()
    });
    (served, url.unwrap())
}

/// Polls often: tests have little time.
fn reconciler(cluster: &Cluster, work: &Work, listen: &str) -> Command {
    let mut command = command(cluster, work);
    command.args(["serve", "--listen", listen, "--slurm", "--slurm-poll", "1s", "--slurm-calls", "600"]);
    command
}

fn command(cluster: &Cluster, work: &Work) -> Command {
    let mut command = cluster.command(windlass());
    at_home(&mut command, work);
    command
}

/// Without the settings of the user who runs the test.
fn at_home(command: &mut Command, work: &Work) {
    let home = work.path().join("home");
    command.current_dir(work.path());
    command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_STATE_HOME", home.join("state"));
    command.env_remove("WINDLASS_DB").env_remove("WINDLASS_URL").env_remove("WINDLASS_TOKEN");
}

impl Drop for TestServer<'_> {
    fn drop(&mut self) {
        // Cancel its allocations; no other process would.
        let mut list = command(self.cluster, &self.work);
        let listed = list.args(["slurm", "allocations", "1", "--format", "json"]).output().ok();
        let rows: Option<Value> = listed.and_then(|listed| serde_json::from_slice(&listed.stdout).ok());
        let rows = rows.as_ref().and_then(Value::as_array).into_iter().flatten();
        self.served.kill().ok();
        self.served.wait().ok();
        let jobs = rows.filter_map(|row| row["slurm_job_id"].as_u64()).chain(self.jobs.iter().copied());
        for job in jobs {
            self.cluster.command("scancel").arg(job.to_string()).output().ok();
        }
    }
}
