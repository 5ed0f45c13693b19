//! The source of workers, and the link to one.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use windlass_store::model::{NewWorker, WorkflowRow};
use windlass_types::Capacity;
use windlass_types::worker_messages::{AttemptEndReport, AttemptKey, AttemptUsage, ToWorker};
use windlass_types::worker_protocol::{ActionCommand, ActionReport};

pub type WorkerHostError = Box<dyn std::error::Error + Send + Sync>;

/// Starts workers and ensures that dead ones are dead. Implemented by the crate that manages processes.
pub trait WorkerHost {
    /// The capacity of a worker that is started here.
    fn capacity(&self) -> Capacity;

    /// The labels of the machine.
    fn labels(&self) -> &[String] {
        &[]
    }

    fn start_worker(&mut self, workflow: &WorkflowRow) -> Result<StartedWorker, WorkerHostError>;

    /// Ensures that this worker and all processes it started are dead, however it ended.
    fn ensure_dead(&mut self, worker: &NewWorker) -> Result<DeadWorkerReport, WorkerHostError>;

    /// Deletes the files of a worker after the changes of its jobs are committed.
    fn forget_worker(&mut self, worker: &NewWorker);

    /// Runs an action beside the jobs, and reports its result. Its processes carry the mark of the worker, so
    /// that `ensure_dead` finds them.
    fn perform_action(
        &mut self,
        order: ActionCommand,
        worker: &NewWorker,
        output_dir: &str,
        done: ActionDone,
    );

    /// Asks running actions to end, or kills them; their results are reported all the same.
    fn stop_actions(&mut self, at_once: bool);
}

pub type ActionDone = Box<dyn Fn(ActionReport) + Send + Sync>;

#[derive(Debug)]
pub struct StartedWorker {
    pub worker: NewWorker,
    pub stream: UnixStream,
}

/// The result of [`WorkerHost::ensure_dead`].
#[derive(Debug, Default)]
pub struct DeadWorkerReport {
    /// The attempts that the worker had started recently according to its ledger; `None` if there is no
    /// readable ledger.
    pub started_attempts: Option<Vec<AttemptKey>>,
    /// Processes that were still alive and had to be ended.
    pub killed_processes: usize,
    /// The machine was not rebooted since the worker started, so a power failure did not end it.
    pub is_same_boot: bool,
    /// The ends of jobs that the worker recorded, reported or not.
    pub recorded_ends: HashMap<AttemptKey, AttemptEndReport>,
    /// The usage of processes that had to be ended, by the attempt that started them.
    pub leftover_usage: HashMap<AttemptKey, AttemptUsage>,
}

impl DeadWorkerReport {
    /// Whether there is no proof that this attempt had not started.
    pub fn may_have_started(&self, key: &AttemptKey) -> bool {
        self.started_attempts.as_ref().is_none_or(|started| started.contains(key))
    }
}

/// The sending half of the link to a worker: one JSON message per line.
#[derive(Debug)]
pub(crate) struct WorkerSender {
    stream: UnixStream,
    buffer: Vec<u8>,
}

/// A worker reads all the time; if it does not for this long, it hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

impl WorkerSender {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    pub(crate) fn send(&mut self, message: &ToWorker) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, message)?;
        self.buffer.push(b'\n');
        self.stream.write_all(&self.buffer)
    }
}
