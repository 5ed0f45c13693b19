//! A worker process for tests, with the test as its engine.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use windlass_process::process_identity::ProcessIdentity;
use windlass_types::worker_messages::{
    Assignment, AttemptEndReport, AttemptKey, AttemptReport, FromWorker, ReturnReason, StopReason, ToWorker,
};
use windlass_types::{Attempt, Bytes, Capacity, JobId, Resources, RunId, WorkflowId};
use windlass_worker::{LaunchedWorker, WorkerOptions, launch_worker};

/// A timeout that is reached only if a process hangs.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// The worker that the tests start.
pub(crate) const HOST: &str = env!("CARGO_BIN_EXE_windlass-worker-host");

pub(crate) struct Fixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) options: WorkerOptions,
    pub(crate) child: Child,
    link: Option<UnixStream>,
    reader: BufReader<UnixStream>,
    received: VecDeque<AttemptReport>,
    pub(crate) messages: usize,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(adjust: impl FnOnce(&mut WorkerOptions)) -> Self {
        Self::launched_by(Command::new(HOST), adjust)
    }

    /// With a command that becomes a worker in its own way.
    pub(crate) fn launched_by(command: Command, adjust: impl FnOnce(&mut WorkerOptions)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let token = format!("bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut options =
            WorkerOptions::new(two_cpus(), path.into(), path.join("out"), path.join("ledger"), token);
        options.sample_interval = Duration::from_millis(100);
        adjust(&mut options);
        let LaunchedWorker { child, link } = launch_worker(command, &options).unwrap();
        link.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let reader = BufReader::new(link.try_clone().unwrap());
        let mut fixture = Self {
            directory,
            options,
            child,
            link: Some(link),
            reader,
            received: VecDeque::new(),
            messages: 0,
        };
        assert_eq!(fixture.message(), FromWorker::Hello { capacity: fixture.options.capacity });
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn send(&self, message: &ToWorker) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        self.send_raw(&line);
    }

    pub(crate) fn send_raw(&self, bytes: &[u8]) {
        self.link.as_ref().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn assign(&self, jobs: impl IntoIterator<Item = Assignment>) {
        self.send(&ToWorker::Assign(jobs.into_iter().collect()));
    }

    pub(crate) fn stop(&self, grace: Duration) {
        self.send(&ToWorker::Stop { why: StopReason::Interrupted, grace });
    }

    fn message(&mut self) -> FromWorker {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        self.messages += 1;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn report(&mut self) -> AttemptReport {
        while self.received.is_empty() {
            match self.message() {
                FromWorker::Reports(reports) => self.received.extend(reports),
                FromWorker::Alive { .. } | FromWorker::Terminated => {}
                other @ FromWorker::Hello { .. } => panic!("{other:?}"),
            }
        }
        self.received.pop_front().unwrap()
    }

    /// The next message about its lease; reports before it are kept for later.
    pub(crate) fn alive(&mut self) -> FromWorker {
        loop {
            match self.message() {
                FromWorker::Reports(reports) => self.received.extend(reports),
                other => return other,
            }
        }
    }

    /// The next end; starts are skipped.
    pub(crate) fn ended(&mut self) -> AttemptEndReport {
        loop {
            match self.report() {
                AttemptReport::Ended(ended) => return ended,
                AttemptReport::Started { .. } | AttemptReport::LeftBehind { .. } => {}
                AttemptReport::Returned { key, why } => panic!("{key} came back: {why:?}"),
            }
        }
    }

    pub(crate) fn started(&mut self) -> (JobId, u32) {
        match self.report() {
            AttemptReport::Started { key, pid, .. } => (key.job, pid),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn returned(&mut self) -> (JobId, ReturnReason) {
        match self.report() {
            AttemptReport::Returned { key, why } => (key.job, why),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn run(&mut self, job: Assignment) -> AttemptEndReport {
        self.assign([job]);
        self.ended()
    }

    /// Shuts the worker down, and checks that it ended normally without leftovers.
    pub(crate) fn quit(mut self) {
        self.send(&ToWorker::Quit);
        assert!(self.gone().success());
        self.assert_no_cgroup();
    }

    /// Shuts the worker down; its files exist as long as the returned directory does.
    pub(crate) fn keep(mut self) -> tempfile::TempDir {
        self.send(&ToWorker::Quit);
        assert!(self.gone().success());
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }

    /// As if the engine had died.
    pub(crate) fn hang_up(&mut self) {
        let link = self.link.take().unwrap();
        link.shutdown(std::net::Shutdown::Both).unwrap();
    }

    pub(crate) fn gone(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn assert_no_cgroup(&self) {
        let ledger = windlass_process::ledger::LedgerContents::read(&self.options.ledger).unwrap();
        if let Some(directory) = ledger.cgroup {
            assert!(!directory.exists(), "{} is left", directory.display());
        }
    }

    pub(crate) fn log(&self, job: i64, extension: &str) -> Option<String> {
        fs::read_to_string(
            self.options.output_dir.join(format!("job_stdio/{}.{extension}", key(job).log_stem())),
        )
        .ok()
    }

    /// The process whose pid a job writes into this file.
    pub(crate) fn noted(&self, name: &str) -> ProcessIdentity {
        let path = self.path(name);
        eventually(name, || {
            fs::read_to_string(&path)
                .ok()?
                .strip_suffix('\n')?
                .parse()
                .ok()
                .and_then(ProcessIdentity::from_pid)
        })
    }

    /// Creates the file that jobs wait for with [`AWAIT_GO_FILE`].
    pub(crate) fn write_go_file(&self) {
        fs::write(self.path("gate"), "").unwrap();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.link = None;
        // Also after a failed assertion no process may be left running.
        if std::thread::panicking() {
            self.reader.get_ref().shutdown(std::net::Shutdown::Both).ok();
            self.child.wait().ok();
        }
    }
}

/// A command that ends when [`Fixture::write_go_file`] is called.
pub(crate) const AWAIT_GO_FILE: &str = "while [ ! -e gate ]; do sleep 0.02; done";

pub(crate) fn two_cpus() -> Capacity {
    Capacity { cpus: 2, memory: Bytes(1 << 34), gpus: 0, nodes: 1, max_jobs: None }
}

pub(crate) fn one_at_a_time(options: &mut WorkerOptions) {
    options.capacity.max_jobs = Some(1);
}

pub(crate) fn key(job: i64) -> AttemptKey {
    AttemptKey { workflow: WorkflowId(3), job: JobId(job), run: RunId(2), attempt: Attempt(4) }
}

pub(crate) fn job(id: i64, command: &str) -> Assignment {
    Assignment::from_command(key(id), format!("job {id}"), command.into(), Resources::DEFAULT)
}

/// Waits for a condition.
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < give_up, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
