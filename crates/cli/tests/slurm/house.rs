//! A server on the login node of the cluster, and workers in allocations that are submitted by hand.

use crate::support::{Cluster, Work, eventually, windlass};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};

pub(crate) struct House<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) work: Work,
    served: Child,
    url: String,
    jobs: Vec<u64>,
}

impl<'a> House<'a> {
    pub(crate) fn open(cluster: &'a Cluster, name: &str) -> Self {
        Self::served(cluster, name, &[])
    }

    /// The same with these options for `windlass serve`.
    pub(crate) fn served(cluster: &'a Cluster, name: &str, options: &[&str]) -> Self {
        let work = cluster.work(name);
        let log = fs::File::create(work.path().join("serve.log")).unwrap();
        let mut served = command(cluster, &work)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let place = work.path().join(".windlass/windlass.db.run/server.json");
        let mut url = None;
        eventually("the server says where it is", || {
            assert!(served.try_wait().unwrap().is_none(), "it ended: {}", work.read("serve.log"));
            let text = fs::read_to_string(&place).unwrap_or_default();
            let found: Option<Value> = serde_json::from_str(&text).ok();
            url = found.and_then(|found| found["url"].as_str().map(str::to_owned));
            url.is_some()
        });
        Self { cluster, work, served, url: url.unwrap(), jobs: Vec::new() }
    }

    /// Starts a workflow of these jobs, and what else its spec says.
    pub(crate) fn submit(&self, spec: &str) {
        self.work.write("spec.yaml", spec);
        self.windlass(&["submit", "spec.yaml"]);
    }

    /// An allocation with a worker in it, as the steward would ask for it. The number of its job.
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

    pub(crate) fn windlass(&self, arguments: &[&str]) -> String {
        let mut command = command(self.cluster, &self.work);
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.windlass(&[arguments, &["--format", "json"]].concat())).unwrap()
    }

    fn jobs(&self) -> BTreeMap<String, String> {
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

fn command(cluster: &Cluster, work: &Work) -> Command {
    let mut command = cluster.command(windlass());
    let home = work.path().join("home");
    command.current_dir(work.path());
    command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_STATE_HOME", home.join("state"));
    command.env_remove("WINDLASS_DB").env_remove("WINDLASS_URL").env_remove("WINDLASS_TOKEN");
    command
}

impl Drop for House<'_> {
    fn drop(&mut self) {
        for job in &self.jobs {
            self.cluster.command("scancel").arg(job.to_string()).output().ok();
        }
        self.served.kill().ok();
        self.served.wait().ok();
    }
}
