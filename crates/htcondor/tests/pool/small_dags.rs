//! Small DAGs for the pool, and processes that submit them.

use crate::support::{Pool, Work};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use windlass_htcondor::commands::CondorClient;

/// A DAG in a directory of its own. Its jobs are removed from the queue with it.
pub(crate) struct Dag<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) work: Work,
    pub(crate) batch: String,
}

const FILES: &str = "JOBSTATE_LOG workflow.jobstate\nNODE_STATUS_FILE workflow.status 1\n";

impl<'a> Dag<'a> {
    pub(crate) fn new(pool: &'a Pool, name: &str, text: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let batch = format!("windlass-test-{name}-{}-{number}", std::process::id());
        let work = pool.work(name);
        work.write("workflow.dag", &format!("{FILES}{text}"));
        let sleep =
            "executable = /bin/sleep\ntransfer_executable = false\narguments = 600\nrequest_memory = 32\n";
        work.write("sleep.sub", &format!("{sleep}request_disk = 1\nqueue\n"));
        Self { pool, work, batch }
    }

    /// A DAG that ends after a moment.
    pub(crate) fn short(pool: &'a Pool, name: &str) -> Self {
        Self::new(pool, name, "JOB a sleep.sub NOOP\n")
    }

    /// A DAG that stays until it is removed.
    pub(crate) fn long(pool: &'a Pool, name: &str) -> Self {
        Self::new(pool, name, "JOB a sleep.sub\n")
    }

    pub(crate) fn condor(&self) -> CondorClient {
        CondorClient { tools_directory: Some(self.pool.bin()), ..CondorClient::default() }
    }

    /// All submissions of it that HTCondor has seen, oldest first.
    pub(crate) fn clusters(&self) -> Vec<u64> {
        let ours = format!("JobUniverse == 7 && JobBatchName == \"{}\"", self.batch);
        let mut clusters = Vec::new();
        for tool in ["condor_q", "condor_history"] {
            let told = self.pool.condor(tool, &["-constraint", &ours, "-autoformat", "ClusterId"]);
            clusters.extend(told.lines().map(|line| line.parse::<u64>().unwrap()));
        }
        clusters.sort_unstable();
        clusters.dedup();
        clusters
    }

    /// A process that submits the DAG, with the pool's commands or their wrappers.
    pub(crate) fn hand_over(&self, tools: &std::path::Path, number: u32) -> Command {
        let mut command = self.pool.command(example());
        command.arg(tools).arg(self.work.path()).args([&self.batch, &number.to_string()]).current_dir("/");
        command
    }

    /// Wrappers of the pool's commands that, on request, kill their caller: `before`; `after`; or before, but
    /// continue by themselves as soon as there is a file `go` (`meanwhile`).
    pub(crate) fn killing_tools(&self) -> KillingTools {
        let script = format!(
            "#!/bin/sh\n\
             tool=${{0##*/}}; here=${{0%/*}}\n\
             strikes() {{ [ -e $here/$1-$tool ] && rm $here/$1-$tool && kill -9 $PPID; }}\n\
             strikes before && exit 1\n\
             strikes meanwhile && until [ -e $here/go ]; do sleep 0.05; done\n\
             {}/$tool \"$@\"; code=$?\n\
             strikes after\n\
             exit $code\n",
            self.pool.bin().display()
        );
        for tool in ["condor_submit_dag", "condor_q", "condor_history"] {
            self.work.write_script(&format!("tools/{tool}"), &script);
        }
        KillingTools { directory: self.work.path().join("tools") }
    }
}

impl Drop for Dag<'_> {
    fn drop(&mut self) {
        // Usually there is nothing to remove.
        let mut remove = self.pool.command(self.pool.bin().join("condor_rm"));
        let ours = format!("JobBatchName == \"{}\"", self.batch);
        remove.args(["-constraint", &ours]).current_dir("/").output().ok();
    }
}

pub(crate) struct KillingTools {
    pub(crate) directory: PathBuf,
}

impl KillingTools {
    /// The next caller of this tool is killed: `before`, `meanwhile` or `after`.
    pub(crate) fn strike(&self, when: &str, tool: &str) {
        std::fs::write(self.directory.join(format!("{when}-{tool}")), "").unwrap();
    }

    pub(crate) fn go(&self) {
        std::fs::write(self.directory.join("go"), "").unwrap();
    }
}

/// Returns the printed cluster id.
#[track_caller]
pub(crate) fn number(output: &Output) -> u64 {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// Built beside the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples/hand_over");
    assert!(built.exists(), "not built: `cargo build -p windlass-htcondor --examples`");
    built
}
