//! Where workers come from, and the line to one.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use windlass_store::model::{NewWorker, WorkflowRow};
use windlass_types::Capacity;
use windlass_types::worker_messages::{AttemptEndReport, AttemptKey, AttemptUsage, ToWorker};
use windlass_types::worker_protocol::{ActionCommand, ActionReport};

pub type WorkerHostError = Box<dyn std::error::Error + Send + Sync>;

/// Starts workers and makes sure that dead ones are dead. Implemented where processes are known.
pub trait WorkerHost {
    /// What a worker that is started here can give.
    fn capacity(&self) -> Capacity;

    /// The labels of the machine.
    fn labels(&self) -> &[String] {
        &[]
    }

    fn start_worker(&mut self, workflow: &WorkflowRow) -> Result<StartedWorker, WorkerHostError>;

    /// Makes sure that this worker and everything it started are dead, however it ended.
    fn ensure_dead(&mut self, worker: &NewWorker) -> Result<DeadWorkerReport, WorkerHostError>;

    /// What became of its jobs is on disk: nothing of this worker is needed any more.
    fn forget_worker(&mut self, worker: &NewWorker);

    /// Carries out an action beside the jobs, and tells how it went. What it starts bears the mark of the worker, so that
    /// it is found when that one is buried.
    fn perform_action(
        &mut self,
        order: ActionCommand,
        worker: &NewWorker,
        output_dir: &str,
        done: ActionDone,
    );

    /// Actions that are under way are asked to end, or killed; those tell how they went all the same.
    fn stop_actions(&mut self, at_once: bool);
}

pub type ActionDone = Box<dyn Fn(ActionReport) + Send + Sync>;

#[derive(Debug)]
pub struct StartedWorker {
    pub worker: NewWorker,
    pub stream: UnixStream,
}

/// What was found at the burial.
#[derive(Debug, Default)]
pub struct DeadWorkerReport {
    /// What the worker had started lately according to its own notes; `None` if there are no notes to read.
    pub started_attempts: Option<Vec<AttemptKey>>,
    /// Processes that were still alive and had to be ended.
    pub killed_processes: usize,
    /// The machine was not restarted since the worker was started, so a power cut is not what ended it.
    pub is_same_boot: bool,
    /// The ends of jobs that the worker recorded, whether or not the engine learned of them.
    pub recorded_ends: HashMap<AttemptKey, AttemptEndReport>,
    /// The usage of processes that had to be ended, by the attempt that started them.
    pub leftover_usage: HashMap<AttemptKey, AttemptUsage>,
}

impl DeadWorkerReport {
    /// There is no proof that this attempt had not started.
    pub fn may_have_started(&self, key: &AttemptKey) -> bool {
        self.started_attempts.as_ref().is_none_or(|started| started.contains(key))
    }
}

/// The sending half of the line to a worker: one JSON message per line.
#[derive(Debug)]
pub(crate) struct WorkerSender {
    stream: UnixStream,
    buffer: Vec<u8>,
}

/// A worker reads all the time; one that does not for so long hangs.
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
