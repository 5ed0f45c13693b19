//! Active runs as DAGMan leaves them: half of the units have ended, ten run, and the others wait.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Units that run at the same time.
const RUNNING: u32 = 10;
/// The events of a job in the event log of its unit.
const EVENTS: &str = include_str!("../../tests/data/group.dag.nodes.log");

pub(crate) struct WatchedDags {
    directory: PathBuf,
    dags: u32,
    units: u32,
    nodes: u32,
    /// The number of completed units, the same in each run.
    completed: u32,
}

impl WatchedDags {
    pub(crate) fn write(directory: &Path, dags: u32, units: u32, nodes: u32) -> io::Result<Self> {
        let watched_dags = Self { directory: directory.to_owned(), dags, units, nodes, completed: units / 2 };
        for dag in 0..dags {
            watched_dags.write_run(dag)?;
        }
        Ok(watched_dags)
    }

    pub(crate) fn run(&self, dag: u32) -> PathBuf {
        self.directory.join(format!("run-{dag}"))
    }

    /// Advances each run: one unit ends, the next one starts, and all running ones progress.
    pub(crate) fn get_on(&mut self) -> io::Result<()> {
        let (over, next) = (self.completed, self.completed + RUNNING);
        self.completed += 1;
        let mut news = String::new();
        log_end(&mut news, over);
        log_begin(&mut news, next);
        for dag in 0..self.dags {
            let run = self.run(dag);
            self.write_group(&run, over, self.nodes)?;
            self.write_attempts(&run, over, self.nodes / 2..self.nodes)?;
            fs::create_dir_all(run.join(unit(next)))?;
            for running in over + 1..=next {
                self.write_group(&run, running, self.nodes / 3)?;
            }
            replace(&run.join("workflow.status"), &self.outer_status())?;
            OpenOptions::new()
                .append(true)
                .open(run.join("workflow.jobstate"))?
                .write_all(news.as_bytes())?;
        }
        Ok(())
    }

    fn write_run(&self, dag: u32) -> io::Result<()> {
        let run = self.run(dag);
        let cluster = 10 + dag * self.units;
        let mut log = format!("1794801630 INTERNAL *** DAGMAN_STARTED {cluster}.0 ***\n");
        for number in 0..self.completed {
            fs::create_dir_all(run.join(unit(number)))?;
            self.write_group(&run, number, self.nodes)?;
            self.write_attempts(&run, number, 0..self.nodes)?;
            log_begin(&mut log, number);
            log_end(&mut log, number);
        }
        for number in self.completed..self.completed + RUNNING {
            fs::create_dir_all(run.join(unit(number)))?;
            self.write_group(&run, number, self.nodes / 2)?;
            self.write_attempts(&run, number, 0..self.nodes / 2)?;
            fs::write(run.join(unit(number)).join("group.dag.nodes.log"), EVENTS)?;
            log_begin(&mut log, number);
        }
        fs::write(run.join("workflow.jobstate"), log)?;
        fs::write(run.join("workflow.status"), self.outer_status())?;
        let event =
            |number: u32| format!("{number:03} ({cluster:03}.000.000) 2026-11-16 04:00:30 Said.\n...\n");
        fs::write(run.join("workflow.dag.dagman.log"), event(0) + &event(1))
    }

    fn write_group(&self, run: &Path, number: u32, done: u32) -> io::Result<()> {
        let mut text = head(self.nodes, done, 1.min(self.nodes - done));
        for node in 0..self.nodes {
            write_node(&mut text, &format!("proc_{node:06}"), if node < done { 5 } else { 3 });
        }
        replace(&run.join(unit(number)).join("group.status"), &text)
    }

    /// Appends results as the scripts of these nodes do. All succeeded: the poller returns failures once and does
    /// not keep them.
    fn write_attempts(&self, run: &Path, number: u32, nodes: Range<u32>) -> io::Result<()> {
        let mut text = String::new();
        for node in nodes {
            let job = number * self.nodes + node;
            writeln!(
                text,
                "{{\"unit\":{number},\"node\":\"proc_{node:06}\",\"job\":\"{job}.0\",\"attempt\":1,\"site\":\"T2_DE_Beta\"}}"
            )
            .ok();
        }
        let attempts = run.join("attempts.jsonl");
        OpenOptions::new().create(true).append(true).open(attempts)?.write_all(text.as_bytes())
    }

    fn outer_status(&self) -> String {
        let mut text = head(self.units, self.completed, RUNNING);
        for number in 0..self.units {
            let state = if number < self.completed { 5 } else { 3 };
            write_node(&mut text, &unit(number), state);
        }
        text
    }
}

fn unit(number: u32) -> String {
    format!("mg_{number:06}")
}

fn log_begin(log: &mut String, number: u32) {
    for step in ["SUBMIT 9.0", "EXECUTE 9.0"] {
        writeln!(log, "1794801632 {} {step} - - {number}", unit(number)).ok();
    }
}

fn log_end(log: &mut String, number: u32) {
    for step in ["JOB_TERMINATED 9.0", "JOB_SUCCESS 0", "POST_SCRIPT_STARTED 9.0", "POST_SCRIPT_SUCCESS 9.0"]
    {
        writeln!(log, "1794801648 {} {step} - - {number}", unit(number)).ok();
    }
}

fn head(total: u32, done: u32, queued: u32) -> String {
    format!(
        "[\n  Type = \"DagStatus\";\n  DagFileParameters = {{\n    \"group.dag\"\n  }};\n  Timestamp = 1794801649; \
         /* \"Mon Nov 16 04:00:49 2026\" */\n  DagStatus = 3; /* \"STATUS_SUBMITTED ()\" */\n  NodesTotal = {total};\n  \
         NodesDone = {done};\n  NodesPre = 0;\n  NodesQueued = {queued};\n  NodesPost = 0;\n  NodesReady = 0;\n  \
         NodesUnready = {};\n  NodesFutile = 0;\n  NodesFailed = 0;\n  JobProcsHeld = 0;\n  JobProcsIdle = 0; \
         /* includes held */\n]\n",
        total - done - queued
    )
}

fn write_node(text: &mut String, name: &str, state: u8) {
    write!(
        text,
        "[\n  Type = \"NodeStatus\";\n  Node = \"{name}\";\n  NodeStatus = {state};\n  StatusDetails = \"\";\n  \
         RetryCount = 0;\n  JobProcsQueued = 0;\n  JobProcsHeld = 0;\n]\n"
    )
    .ok();
}

/// Replaces a file atomically, as DAGMan does.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, text)?;
    fs::rename(temporary, path)
}
