//! The worker process, which runs the jobs: starts it, sends it messages, watches it, and ends all of it when
//! it dies or hangs.

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

/// How long killed processes may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long its reports are collected while its queue is not empty: a small part of the time for which jobs are
/// prefetched, so that it never runs out of work because of it.
pub(crate) const REPORT_DELAY: Duration = Duration::from_millis(30);
/// How long it may take to end on request.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the cancellation of jobs launched elsewhere may take.
const CANCEL_LAUNCHED_TIMEOUT: Duration = Duration::from_secs(20);
/// It reads all the time; if it does not for this long, it hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct WorkerProcess {
    /// Counts the processes that this worker has started.
    pub(crate) number: u32,
    pub(crate) process: SavedProcess,
    /// It reported that its jobs are frozen.
    pub(crate) is_frozen: bool,
    /// Some of its jobs run elsewhere.
    pub(crate) has_launched: bool,
    /// It received SIGTERM.
    pub(crate) was_terminated: bool,
    /// Since when a message to it is unanswered.
    pub(crate) awaiting_reply_since: Option<Instant>,
    child: Child,
    link: UnixStream,
    write_buffer: Vec<u8>,
}

/// The records of a dead worker process.
#[derive(Debug)]
pub(crate) struct WorkerProcessRecords {
    /// The attempts that it had started lately; `None`: unknown.
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

    /// Returns false if it is gone or does not read.
    pub(crate) fn send(&mut self, message: &ToWorker) -> bool {
        self.write_buffer.clear();
        let written =
            serde_json::to_writer(&mut self.write_buffer, message).map_err(io::Error::from).and_then(|()| {
                self.write_buffer.push(b'\n');
                self.link.write_all(&self.write_buffer)
            });
        written.is_ok()
    }

    /// Closes the link, and ensures that it ends.
    pub(crate) fn dismiss(mut self) -> Result<(), RemoteWorkerError> {
        if self.send(&ToWorker::Quit) {
            process_tree::wait_for_exit(to_pid(self.process.pid).as_slice(), QUIT_TIMEOUT);
        }
        self.ensure_dead().map(drop)
    }

    /// Ensures that it and all processes it started are dead.
    pub(crate) fn ensure_dead(mut self) -> Result<WorkerProcessRecords, RemoteWorkerError> {
        if self.has_launched {
            // If it only hangs: its end cancels the launched jobs.
            self.child.kill().ok();
            wait_for_launched_jobs(&self.process.ledger, CANCEL_LAUNCHED_TIMEOUT);
        }
        let report = ensure_process_dead(&self.process)?;
        // A zombie is as good as gone; this only reaps it.
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

/// Provides jobs with the server's address and certificate. Each also gets a token of its own; the worker's
/// token stays with the worker.
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

/// A process of the current boot of this machine.
fn ensure_process_dead(process: &SavedProcess) -> Result<ensure_dead::EnsureDeadReport, RemoteWorkerError> {
    let boot_id = boot_id().map_err(ensure_dead::EnsureDeadError::BootId)?;
    Ok(ensure_recorded_process_dead(process, &machine::hostname(), &boot_id)?)
}

/// A process that an earlier worker recorded.
pub(crate) fn ensure_recorded_process_dead(
    process: &SavedProcess,
    host: &str,
    boot_id: &str,
) -> Result<ensure_dead::EnsureDeadReport, ensure_dead::EnsureDeadError> {
    let dead_worker = RecordedWorker {
        host,
        boot_id,
        process: ProcessIdentity { pid: process.pid, start_ticks: process.start_ticks },
        token: &process.token,
        ledger: &process.ledger,
        database: None,
    };
    ensure_worker_dead(&dead_worker, KILL_TIMEOUT)
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
    // If the main thread has ended, the message is not needed.
    events.send(RemoteWorkerEvent::WorkerGone(number)).ok();
}
