//! The process that runs the jobs: started, spoken to, watched, and buried when it dies or hangs.

use crate::RemoteWorkerError;
use crate::event::RemoteWorkerEvent;
use crate::options::RemoteWorkerOptions;
use crate::state_directory::{SavedProcess, StateDirectory, unique_name};
use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};
use windlass_client::{Client, Keyring};
use windlass_process::ensure_dead::{self, RecordedWorker, ensure_worker_dead, wait_for_launched_jobs};
use windlass_process::process_identity::{ProcessIdentity, boot_id, to_pid};
use windlass_process::{machine, process_tree};
use windlass_types::worker_messages::{AttemptEndReport, AttemptKey, AttemptUsage, ToWorker};
use windlass_worker::{LaunchedWorker, WorkerOptions, read_ends, remove_ends};

/// How long processes that were killed may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long its reports gather while it has more to do than it can do at once: a small part of what it is given ahead, so
/// that it never waits for work because of it.
pub(crate) const REPORT_DELAY: Duration = Duration::from_millis(30);
/// How long one that was told to quit may take.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long what was launched elsewhere may take to be called off.
const CANCEL_LAUNCHED_TIMEOUT: Duration = Duration::from_secs(20);
/// It reads all the time; one that does not for so long hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct WorkerProcess {
    /// Of the processes that this agent has started.
    pub(crate) number: u32,
    pub(crate) process: SavedProcess,
    /// Its jobs stand still, as it says itself.
    pub(crate) is_frozen: bool,
    /// Some of its jobs run elsewhere.
    pub(crate) has_launched: bool,
    /// It was sent SIGTERM.
    pub(crate) was_terminated: bool,
    /// A question of ours that it has not answered, since when.
    pub(crate) awaiting_reply_since: Option<Instant>,
    child: Child,
    link: UnixStream,
    write_buffer: Vec<u8>,
}

/// What a dead worker process noted.
#[derive(Debug)]
pub(crate) struct WorkerProcessRecords {
    /// What it had started lately; `None`: unknown.
    pub(crate) started_attempts: Option<Vec<AttemptKey>>,
    /// The ends of jobs, also of those that it reported.
    pub(crate) recorded_ends: HashMap<AttemptKey, AttemptEndReport>,
    /// The usage of processes that had to be ended, by the attempt that started them.
    pub(crate) leftover_usage: HashMap<AttemptKey, AttemptUsage>,
}

impl WorkerProcess {
    pub(crate) fn start(
        options: &RemoteWorkerOptions,
        home: &StateDirectory,
        number: u32,
        events: Sender<RemoteWorkerEvent>,
    ) -> Result<Self, RemoteWorkerError> {
        let token = unique_name().map_err(RemoteWorkerError::StartWorkerProcess)?;
        let ledger = home.ledger_path(&token);
        let nowhere = home.directory().to_owned();
        let mut worker =
            WorkerOptions::new(options.capacity, nowhere.clone(), nowhere, ledger.clone(), token.clone());
        worker.one_workflow = false;
        worker.gpu_devices.clone_from(&options.gpu_devices);
        worker.timeout_grace = options.grace;
        worker.report_linger = REPORT_DELAY;
        worker.leaves_termination = options.slurm.is_some();
        worker.site.clone_from(&options.site);
        worker.api_url = Some(options.client.url().to_owned());
        worker.program.clone_from(&options.program);
        let mut command = (options.worker_command)();
        options.environment.apply_to(&mut command);
        set_server_environment(&mut command, &options.client, home)?;
        let LaunchedWorker { child, link } = windlass_worker::launch_worker(command, &worker)
            .map_err(RemoteWorkerError::StartWorkerProcess)?;
        let died = || RemoteWorkerError::StartWorkerProcess(io::Error::other("it died at once"));
        let identity = ProcessIdentity::from_pid(child.id()).ok_or_else(died)?;
        link.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(RemoteWorkerError::StartWorkerProcess)?;
        let reader = link.try_clone().map_err(RemoteWorkerError::StartWorkerProcess)?;
        thread::Builder::new()
            .name("worker-link".to_owned())
            .spawn(move || read_messages(number, reader, &events))
            .map_err(RemoteWorkerError::StartWorkerProcess)?;
        let process = SavedProcess { pid: identity.pid, start_ticks: identity.start_ticks, token, ledger };
        Ok(Self {
            number,
            process,
            is_frozen: false,
            has_launched: false,
            was_terminated: false,
            awaiting_reply_since: None,
            child,
            link,
            write_buffer: Vec::new(),
        })
    }

    /// False: it is gone, or does not read.
    pub(crate) fn send(&mut self, message: &ToWorker) -> bool {
        self.write_buffer.clear();
        let written =
            serde_json::to_writer(&mut self.write_buffer, message).map_err(io::Error::from).and_then(|()| {
                self.write_buffer.push(b'\n');
                self.link.write_all(&self.write_buffer)
            });
        written.is_ok()
    }

    /// Lets it go, and makes sure that it went.
    pub(crate) fn dismiss(mut self) -> Result<(), RemoteWorkerError> {
        if self.send(&ToWorker::Quit) {
            process_tree::wait_for_exit(to_pid(self.process.pid).as_slice(), QUIT_TIMEOUT);
        }
        self.ensure_dead().map(drop)
    }

    /// Makes sure that it and everything it started are dead.
    pub(crate) fn ensure_dead(mut self) -> Result<WorkerProcessRecords, RemoteWorkerError> {
        if self.has_launched {
            // Should it only hang: its end is what calls off the rest.
            self.child.kill().ok();
            wait_for_launched_jobs(&self.process.ledger, CANCEL_LAUNCHED_TIMEOUT);
        }
        let report = ensure_process_dead(&self.process)?;
        // A zombie is as dead as one that is gone; this only clears it away.
        self.child.wait().ok();
        let ends = read_ends(&self.process.ledger);
        std::fs::remove_file(&self.process.ledger).ok();
        remove_ends(&self.process.ledger);
        Ok(WorkerProcessRecords {
            leftover_usage: report
                .leftover_usage
                .into_iter()
                .map(|(key, usage)| (key, usage.into()))
                .collect(),
            started_attempts: report.started_attempts,
            recorded_ends: ends,
        })
    }
}

/// Tells jobs where the server is and by what it is known. Each gets a token of its own besides; that of the agent stays with the
/// agent.
fn set_server_environment(
    command: &mut Command,
    client: &Client,
    home: &StateDirectory,
) -> Result<(), RemoteWorkerError> {
    if let Some(place) = client.server_for_jobs() {
        Keyring::open(home.directory())?.save(place)?;
        command.env(crate::KEYRING_VARIABLE, home.directory());
    }
    Ok(())
}

/// A process of this boot of this machine.
fn ensure_process_dead(process: &SavedProcess) -> Result<ensure_dead::EnsureDeadReport, RemoteWorkerError> {
    let boot_id = boot_id().map_err(ensure_dead::EnsureDeadError::BootId)?;
    Ok(ensure_recorded_process_dead(process, &machine::hostname(), &boot_id)?)
}

/// A process that an earlier agent noted.
pub(crate) fn ensure_recorded_process_dead(
    process: &SavedProcess,
    host: &str,
    boot_id: &str,
) -> Result<ensure_dead::EnsureDeadReport, ensure_dead::EnsureDeadError> {
    let deceased = RecordedWorker {
        host,
        boot_id,
        process: ProcessIdentity { pid: process.pid, start_ticks: process.start_ticks },
        token: &process.token,
        ledger: &process.ledger,
        database: None,
    };
    ensure_worker_dead(&deceased, KILL_TIMEOUT)
}

fn read_messages(number: u32, link: UnixStream, events: &Sender<RemoteWorkerEvent>) {
    let mut reader = BufReader::new(link);
    let mut line = Vec::new();
    loop {
        line.clear();
        let whole = matches!(reader.read_until(b'\n', &mut line), Ok(1..)) && line.ends_with(b"\n");
        let Some(message) = whole.then(|| serde_json::from_slice(&line).ok()).flatten() else { break };
        if events.send(RemoteWorkerEvent::WorkerMessage(number, message)).is_err() {
            return;
        }
    }
    // If nobody listens any more, nobody needs to know.
    events.send(RemoteWorkerEvent::WorkerGone(number)).ok();
}
