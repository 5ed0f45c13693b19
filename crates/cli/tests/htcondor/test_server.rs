//! A server that runs requests on the pool, with sites, storage and input datasets; all of it belongs to the
//! pool's user, as jobs do.

use crate::support::{Pool, SITES, Work, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::process::{Child, Command, Stdio};

/// The input of all requests: nine files of twenty events, numbered consecutively.
pub(crate) const INPUT: &str = "/Muons/Run3-v1/RAW";
const FILES: u64 = 9;
const EVENTS_PER_FILE: u64 = 20;
/// The sites of the files. Units land at one of these.
pub(crate) const HOMES: [&str; 3] = [SITES[0], SITES[1], SITES[2]];

/// The event numbers in a file.
fn events_of(file: u64) -> Range<u64> {
    file * EVENTS_PER_FILE + 1..(file + 1) * EVENTS_PER_FILE + 1
}

pub(crate) struct TestServer {
    pub(crate) work: Work,
    /// Additional options of its server.
    options: Vec<String>,
    environment: Vec<(&'static str, String)>,
    served: Option<Child>,
}

/// The output of a successful command.
#[track_caller]
fn told(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

impl TestServer {
    pub(crate) fn open(pool: &Pool, name: &str) -> Self {
        Self::open_with(pool, name, &["--cool-off", "1s"])
    }

    /// With other options of `serve`.
    pub(crate) fn open_with(pool: &Pool, name: &str, options: &[&str]) -> Self {
        let work = pool.work(name);
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut test_server = Self { environment: pool.environment(), work, options, served: None };
        test_server.add_files("data", 0..FILES, INPUT, &HOMES);
        for site in SITES {
            let mark = test_server.work.write(&format!("storage/{site}/.here"), "");
            let storage = mark.parent().unwrap().to_str().unwrap();
            test_server.windlass(&["site", "set", site, "--slots", "100", "--storage-path", storage]);
        }
        test_server.serve();
        test_server
    }

    /// Adds files with these numbers, in a directory of their own, to a dataset at all of these sites.
    pub(crate) fn add_files(&self, directory: &str, files: Range<u64>, dataset: &str, sites: &[&str]) {
        for file in files {
            let line = |event: u64| format!("1 {} {event}\n", (event - 1) / 10 + 1);
            let text: String = events_of(file).map(line).collect();
            self.work.write(&format!("{directory}/f{file}.txt"), &text);
        }
        let sites = sites.iter().flat_map(|&site| ["--site", site]);
        let add: Vec<&str> = ["catalog", "add", directory, "as", dataset].into_iter().chain(sites).collect();
        self.windlass(&add);
    }

    pub(crate) fn serve(&mut self) {
        let log = fs::File::options().append(true).create(true).open(self.work.path().join("serve.log"));
        let log = log.unwrap();
        let program = self.work.windlass();
        // Transferred files would be copied for each of hundreds of jobs.
        let program = program.to_str().unwrap();
        let place =
            ["serve", "--listen", "127.0.0.1:0", "--backend", "htcondor", "--worker-program", program];
        let words: Vec<&str> = place.into_iter().chain(self.options.iter().map(String::as_str)).collect();
        let mut command = self.command(&words);
        let mut served = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let address = self.work.path().join(".windlass/windlass.db.run/server.json");
        eventually("the server logs its address", || {
            assert!(served.try_wait().unwrap().is_none(), "it ended: {}", self.work.read("serve.log"));
            address.exists()
        });
        self.served = Some(served);
    }

    /// Kills the server as a crash would.
    pub(crate) fn kill_server(&mut self) {
        if let Some(mut served) = self.served.take() {
            served.kill().unwrap();
            served.wait().unwrap();
            fs::remove_file(self.work.path().join(".windlass/windlass.db.run/server.json")).unwrap();
        }
    }

    /// Replaces the pool's commands by those in this directory.
    pub(crate) fn prefer_tools(&mut self, directory: &str) {
        let tools = self.work.path().join(directory);
        for (_, path) in self.environment.iter_mut().filter(|(name, _)| *name == "PATH") {
            *path = format!("{}:{path}", tools.display());
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.work.windlass());
        Pool::as_user(&mut command, &self.environment);
        let home = self.work.path().join("home");
        command.args(arguments).current_dir(self.work.path());
        command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_STATE_HOME", home.join("state"));
        command.env_remove("WINDLASS_DB").env_remove("WINDLASS_URL").env_remove("WINDLASS_TOKEN");
        command
    }

    #[track_caller]
    pub(crate) fn windlass(&self, arguments: &[&str]) -> String {
        told(self.command(arguments))
    }

    /// Runs a command that must fail; returns its message.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.windlass(&[arguments, &["--format", "json"]].concat())).unwrap()
    }

    /// A request of three work units with three processing nodes each, whose step copies its inputs.
    ///
    /// `trouble` is a command that runs before that, in the node that reads the file with number 4.
    pub(crate) fn submit(&self, name: &str, trouble: &str) {
        let command = format!(
            "case \"$(cat $WINDLASS_INPUTS)\" in *f4.txt*) {trouble} ;; esac; \
             cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT"
        );
        self.submit_step(name, &json!({"name": "RECO", "command": command}));
    }

    /// The same with another step.
    pub(crate) fn submit_step(&self, name: &str, step: &Value) {
        self.submit_over(name, INPUT, 3, step);
    }

    /// With this many files of this dataset per unit, each in a node of its own.
    pub(crate) fn submit_over(&self, name: &str, input: &str, files: u64, step: &Value) {
        self.submit_also(name, input, files, step, &json!({}));
    }

    /// With other fields in its document.
    pub(crate) fn submit_also(&self, name: &str, input: &str, files: u64, step: &Value, also: &Value) {
        let mut document = json!({
            "request_name": name, "input_dataset": input, "output_datasets": [output(name)],
            "splitting_algo": "FileBased", "memory_mb": 100, "size_per_event_kb": 0.05,
            "splitting_params": {"files_per_job": 1, "target_merged_size_kb": files},
            "payload_config": {"steps": [step]},
        });
        document.as_object_mut().unwrap().append(&mut also.as_object().unwrap().clone());
        let file = format!("{name}.json");
        self.work.write(&file, &document.to_string());
        self.windlass(&["request", "submit", &file]);
    }

    pub(crate) fn request(&self, name: &str) -> Value {
        self.json(&["request", "show", name])
    }

    pub(crate) fn status(&self, name: &str) -> String {
        self.request(name)["status"].as_str().unwrap().to_owned()
    }

    /// The last run of a request.
    pub(crate) fn run(&self, name: &str) -> Value {
        self.json(&["request", "dag", "list", "--request", name])[0].clone()
    }

    /// The node of its last run that reads the file with number 4; `None` until DAGMan has started it.
    pub(crate) fn node_in_trouble(&self, name: &str) -> Value {
        let nodes = self.json(&["request", "dag", "nodes", name, "--unit", "1"]);
        let found = nodes.as_array().unwrap().iter().find(|node| node["name"] == "proc_000001");
        found.cloned().unwrap_or_default()
    }

    /// The report of its POST script about that node.
    pub(crate) fn post_report(&self, name: &str) -> Value {
        let run = self.run(name);
        let file = format!("{}/mg_000001/proc_000001.post.json", run["submit_dir"].as_str().unwrap());
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    }

    /// All outputs exist once and are archived.
    #[track_caller]
    pub(crate) fn check_outputs(&self, name: &str) {
        self.check_files(name, 0..FILES);
    }

    /// Exactly the events of the files with these numbers exist, once each, and are archived.
    #[track_caller]
    pub(crate) fn check_files(&self, name: &str, files: impl IntoIterator<Item = u64>) {
        let shown = self.request(name);
        let blocks = shown["progress"]["blocks"].as_array().unwrap();
        // A block without a name was planned and never filled.
        let mut made = blocks.iter().filter(|block| !block["block_name"].is_null()).peekable();
        assert!(made.peek().is_some() && made.all(|block| block["status"] == "archived"), "{shown:#}");
        let once: BTreeMap<u64, u64> =
            files.into_iter().flat_map(events_of).map(|event| (event, 1)).collect();
        assert_eq!(self.written(name), once, "{name}");
    }

    /// How often each event is in the output files, according to the catalog.
    pub(crate) fn written(&self, name: &str) -> BTreeMap<u64, u64> {
        self.written_in(&output(name))
    }

    /// The same for any dataset.
    pub(crate) fn written_in(&self, dataset: &str) -> BTreeMap<u64, u64> {
        let shown = self.json(&["catalog", "show", dataset, "--files"]);
        let mut seen = BTreeMap::new();
        for file in shown["files"].as_array().unwrap() {
            let path = file["replicas"].as_object().unwrap().values().next().unwrap().as_str().unwrap();
            for line in fs::read_to_string(path).unwrap().lines() {
                *seen.entry(line.split(' ').nth(2).unwrap().parse().unwrap()).or_default() += 1;
            }
        }
        seen
    }

    pub(crate) fn is_completed(&self, name: &str) -> bool {
        let status = self.status(name);
        assert!(status != "held" && status != "failed", "{:#}", self.request(name));
        status == "completed"
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(mut served) = self.served.take() {
            served.kill().ok();
            served.wait().ok();
        }
        // Remove the queued jobs of a failed test.
        let here = self.work.path().display().to_string();
        let ours = format!("substr(Iwd, 0, {}) == \"{here}\"", here.len());
        let mut remove = Command::new("condor_rm");
        Pool::as_user(&mut remove, &self.environment);
        remove.args(["-constraint", &ours]).current_dir("/").output().ok();
    }
}

pub(crate) fn output(name: &str) -> String {
    format!("/Muons/{name}-v1/RECO")
}

/// The commands of a CMS program that fails with this code and writes it into its job report.
pub(crate) fn fails_with(code: u32) -> String {
    let report = format!(
        "<FrameworkJobReport><FrameworkError ExitStatus=\\\"{code}\\\" Type=\\\"Test\\\">as it was asked to</FrameworkError></FrameworkJobReport>"
    );
    format!("echo \"{report}\" > $WINDLASS_JOB_REPORT; exit 1")
}
