//! A remote worker for tests.

use crate::server::{Server, State, WAIT_TIMEOUT, WORKFLOW};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windlass_agent::{
    RemoteWorker, RemoteWorkerControl, RemoteWorkerError, RemoteWorkerObserver, RemoteWorkerOptions,
    RemoteWorkerProgress, RemoteWorkerSummary,
};
use windlass_client::{Client, ClientOptions};
use windlass_process::process_identity::ProcessIdentity;
use windlass_types::worker_messages::{Assignment, AttemptEndReport, AttemptKey, AttemptReport};
use windlass_types::worker_protocol::WorkflowSetup;
use windlass_types::{Attempt, Bytes, Capacity, JobId, Resources, RunId};

pub(crate) const HOST: &str = env!("CARGO_BIN_EXE_windlass-agent-host");
pub(crate) const CAPACITY: Capacity =
    Capacity { cpus: 2, memory: Bytes(1 << 34), gpus: 0, nodes: 1, max_jobs: None };
/// So long that it has no effect.
pub(crate) const LONG: Duration = Duration::from_mins(5);

/// A server, a directory for jobs, and a state directory.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) directory: tempfile::TempDir,
}

/// A worker in this process.
pub(crate) struct RunningWorker {
    pub(crate) control: RemoteWorkerControl,
    pub(crate) notices: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<Result<RemoteWorkerSummary, RemoteWorkerError>>,
}

impl RunningWorker {
    pub(crate) fn end(self) -> Result<RemoteWorkerSummary, RemoteWorkerError> {
        self.thread.join().unwrap()
    }

    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.notices.lock().unwrap().iter().any(|notice| notice.contains(text))
    }
}

struct RecordingObserver(Arc<Mutex<Vec<String>>>);

impl RemoteWorkerObserver for RecordingObserver {
    fn on_notice(&mut self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }

    fn on_progress(&mut self, _progress: &RemoteWorkerProgress) {}
}

impl Fixture {
    pub(crate) fn new(lease: Duration) -> Self {
        let fixture = Self { server: Server::start(lease), directory: tempfile::tempdir().unwrap() };
        let site = fixture.site();
        fixture.server.change(|state| state.workflows.push(site));
        fixture
    }

    pub(crate) fn site(&self) -> WorkflowSetup {
        WorkflowSetup {
            workflow: WORKFLOW,
            run: RunId(1),
            name: "test".into(),
            submission_dir: self.directory.path().to_str().unwrap().into(),
            output_dir: self.path("out").to_str().unwrap().into(),
            resource_monitor: None,
            execution: None,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    pub(crate) fn start_worker(&self) -> RunningWorker {
        self.start_worker_with(|_| {})
    }

    pub(crate) fn start_worker_with(&self, adjust: impl FnOnce(&mut RemoteWorkerOptions)) -> RunningWorker {
        let url = self.server.url.clone();
        let client = Client::new(ClientOptions { url, ..ClientOptions::default() }).unwrap();
        let mut options = RemoteWorkerOptions::new(client, CAPACITY, self.state_dir());
        options.worker_command = Box::new(|| Command::new(HOST));
        adjust(&mut options);
        let agent = RemoteWorker::new(options).unwrap();
        let (control, notices) = (agent.control(), Arc::new(Mutex::new(Vec::new())));
        let mut observer = RecordingObserver(Arc::clone(&notices));
        let thread = std::thread::spawn(move || agent.run(&mut observer));
        RunningWorker { control, notices, thread }
    }

    /// A worker that is a separate process.
    pub(crate) fn start_process(&self) -> Child {
        Command::new(HOST)
            .arg(&self.server.url)
            .arg(self.state_dir())
            .env("WINDLASS_TOKEN", "only its own")
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// The end of this job, after it was reported.
    pub(crate) fn ended(&self, job: i64) -> AttemptEndReport {
        self.server.until(&format!("the end of job {job}"), |state| end_of(state, job))
    }

    /// The process whose pid a job writes into this file.
    pub(crate) fn noted(&self, name: &str) -> ProcessIdentity {
        let path = self.path(name);
        eventually(name, || {
            let text = std::fs::read_to_string(&path).ok()?;
            text.strip_suffix('\n')?.parse().ok().and_then(ProcessIdentity::from_pid)
        })
    }

    pub(crate) fn write_go_file(&self) {
        std::fs::write(self.path("gate"), "").unwrap();
    }
}

pub(crate) fn end_of(state: &State, job: i64) -> Option<AttemptEndReport> {
    state.reports.iter().find_map(|report| match report {
        AttemptReport::Ended(ended) if ended.key.job.0 == job => Some(ended.clone()),
        _ => None,
    })
}

pub(crate) fn key(job: i64) -> AttemptKey {
    AttemptKey { workflow: WORKFLOW, job: JobId(job), run: RunId(1), attempt: Attempt(1) }
}

pub(crate) fn job(id: i64, command: &str) -> Assignment {
    Assignment::from_command(key(id), format!("job {id}"), command.into(), Resources::DEFAULT)
}

/// Ends when [`Fixture::write_go_file`] is called; writes its pid before.
pub(crate) fn gated(id: i64) -> Assignment {
    job(id, &format!("echo $$ > leader{id}; while [ ! -e gate ]; do sleep 0.02; done"))
}

/// Waits for a condition.
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < give_up, "timeout while waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
