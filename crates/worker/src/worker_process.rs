//! The life cycle of a worker: its shared state, the loop that reads the link, and its end.

use crate::end_log::EndLog;
use crate::environment::THREADS_VARIABLE;
use crate::job_queue::JobQueue;
use crate::lease::ExecutionLease;
use crate::lock_ignoring_poison;
use crate::options::WorkerOptions;
use crate::possible_interruptions::PossibleInterruptions;
use crate::report_outbox::ReportOutbox;
use crate::series_recorder::RecorderError;
use crate::supervisor::SupervisorAlarm;
use crate::workflow_context::WorkflowContexts;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use windlass_process::cgroup::{CgroupPaths, WorkerCgroup};
use windlass_process::ledger::ProcessLedger;
use windlass_process::process_identity::{FileIdentity, ProcessIdentity};
use windlass_process::procfs::AdoptedChildren;
use windlass_process::signals::TerminationSignal;
use windlass_process::{child_wait, ledger, session, signals, spawn, usage_sample};
use windlass_types::SystemClock;
use windlass_types::worker_messages::{FromWorker, ToWorker};

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("cannot communicate with the engine: {0}")]
    Link(#[source] io::Error),
    #[error("cannot parse a message from the engine: {0}")]
    Message(#[source] serde_json::Error),
    #[error("cannot set this process up as a worker: {0}")]
    Setup(#[source] io::Error),
    #[error("cannot create the directory for logs in {path}: {source}")]
    Logs { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Series(#[from] RecorderError),
    #[error(transparent)]
    Ledger(#[from] ledger::LedgerError),
    #[error(transparent)]
    Spawner(#[from] spawn::SpawnError),
}

/// The state shared by the threads of a worker.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) options: WorkerOptions,
    pub(crate) clock: SystemClock,
    pub(crate) devices: Vec<String>,
    pub(crate) ledger: ProcessLedger,
    pub(crate) contexts: Mutex<WorkflowContexts>,
    pub(crate) lease: ExecutionLease,
    pub(crate) is_thread_count_unset: bool,
    pub(crate) adopted: AdoptedChildren,
    pub(crate) reaping_lock: Mutex<()>,
    pub(crate) outbox: ReportOutbox,
    pub(crate) possible_interruptions: PossibleInterruptions,
    pub(crate) end_log: EndLog,
    /// The engine has decided what happens to the jobs.
    pub(crate) is_told_to_stop: AtomicBool,
    pub(crate) alarm: SupervisorAlarm,
    pub(crate) job_queue: Mutex<JobQueue>,
    /// Idle slots wait here.
    pub(crate) work_available: Condvar,
    /// The worker's own memory peak at the last check.
    pub(crate) own_peak_memory: AtomicU64,
    pub(crate) cgroups: Option<WorkerCgroup>,
}

/// Why a worker ends.
enum WorkerExit {
    Dismissed,
    /// The engine is gone, or the worker received a signal to terminate.
    LinkLost,
    ProtocolError(serde_json::Error),
}

/// Serves one engine until it shuts the worker down or is gone. Takes over the whole process: call it on the
/// main thread of a process that starts nothing else.
pub fn run_worker(options: WorkerOptions, link: UnixStream) -> Result<(), WorkerError> {
    // A copy is always closed on exec: jobs must not hold the link open.
    let own = link.try_clone().map_err(WorkerError::Link)?;
    drop(link);
    run_worker_buffered(options, BufReader::new(own))
}

pub(crate) fn run_worker_buffered(
    options: WorkerOptions,
    mut link: BufReader<UnixStream>,
) -> Result<(), WorkerError> {
    session::become_session_leader().map_err(WorkerError::Setup)?;
    signals::ignore_interrupt().map_err(WorkerError::Setup)?;
    let termination = TerminationSignal::install().map_err(WorkerError::Setup)?;
    if options.leaves_termination {
        signals::ignore_termination().map_err(WorkerError::Setup)?;
    }
    child_wait::become_subreaper().map_err(WorkerError::Setup)?;
    let worker = Arc::new(WorkerState::new(options, link.get_ref().try_clone().map_err(WorkerError::Link)?)?);
    let own_end = link.get_ref().try_clone().map_err(WorkerError::Link)?;
    worker.start_termination_thread(termination, own_end).map_err(WorkerError::Setup)?;
    worker.outbox.send_now(&FromWorker::Hello { capacity: worker.options.capacity });

    let supervisor = worker.spawn_thread("supervisor", WorkerState::run_supervisor)?;
    let sender = worker.spawn_thread("sender", |worker| worker.outbox.send_delayed_reports())?;
    let exit = read_messages(&worker, &mut link);
    worker.close_queue();
    worker.cancel_all_launched();
    // After a shutdown message nothing should be left. Kill what is, because no other process would ever stop
    // it.
    worker.kill_everything();
    worker.join_slots();
    worker.outbox.close();
    worker.alarm.close();
    for thread in [supervisor, sender] {
        // A thread that panicked has written that to standard error.
        thread.join().ok();
    }
    match exit {
        WorkerExit::Dismissed | WorkerExit::LinkLost => Ok(()),
        WorkerExit::ProtocolError(error) => Err(WorkerError::Message(error)),
    }
}

impl WorkerState {
    pub(crate) fn new(options: WorkerOptions, link: UnixStream) -> Result<Self, WorkerError> {
        let own = ProcessIdentity::own().map_err(WorkerError::Setup)?;
        let cgroups =
            if options.cgroups { WorkerCgroup::create(&CgroupPaths::of_this_process(), own) } else { None };
        let database = options.database.as_deref().and_then(FileIdentity::from_path);
        let numbered =
            (options.gpu_devices.len()..options.capacity.gpus as usize).map(|index| index.to_string());
        Ok(Self {
            clock: SystemClock,
            devices: options.gpu_devices.iter().cloned().chain(numbered).collect(),
            contexts: Mutex::new(WorkflowContexts::new(&options)?),
            lease: ExecutionLease::default(),
            ledger: ProcessLedger::create(
                &options.ledger,
                cgroups.as_ref().map(WorkerCgroup::directory),
                database,
            )?,
            is_thread_count_unset: std::env::var_os(THREADS_VARIABLE).is_none(),
            adopted: AdoptedChildren::open(),
            reaping_lock: Mutex::new(()),
            outbox: ReportOutbox::new(link, options.report_linger),
            possible_interruptions: PossibleInterruptions::new(options.leaves_termination),
            end_log: EndLog::beside_ledger(&options.ledger),
            is_told_to_stop: AtomicBool::new(false),
            alarm: SupervisorAlarm::default(),
            job_queue: Mutex::new(JobQueue::new(options.capacity)),
            work_available: Condvar::new(),
            own_peak_memory: AtomicU64::new(usage_sample::own_peak_rss().map_or(0, |peak| peak.0)),
            cgroups,
            options,
        })
    }

    fn spawn_thread(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<thread::JoinHandle<()>, WorkerError> {
        let worker = Arc::clone(self);
        thread::Builder::new().name(name.to_owned()).spawn(move || body(&worker)).map_err(WorkerError::Setup)
    }
}

/// Handles the messages of the engine until the link is closed.
fn read_messages(worker: &Arc<WorkerState>, link: &mut BufReader<UnixStream>) -> WorkerExit {
    let mut line = Vec::new();
    loop {
        line.clear();
        match link.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return WorkerExit::LinkLost,
            // The message is incomplete: the engine died while it wrote.
            Ok(_) if !line.ends_with(b"\n") => return WorkerExit::LinkLost,
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(ToWorker::Assign(assignments)) => {
                worker.possible_interruptions.on_assigned();
                worker.enqueue_assignments(assignments);
            }
            Ok(ToWorker::Workflow(setup)) => lock_ignoring_poison(&worker.contexts).add_workflow(*setup),
            Ok(ToWorker::Forget(workflow)) => {
                lock_ignoring_poison(&worker.contexts).forget_workflow(workflow);
            }
            Ok(ToWorker::Lease(until)) => worker.renew_lease(until),
            Ok(ToWorker::Stop { why, grace }) => worker.stop_all(why, grace),
            Ok(ToWorker::StopSome(order)) => worker.stop_selected(&order),
            Ok(ToWorker::Recall) => worker.return_unstarted(|_| true),
            Ok(ToWorker::Quit) => return WorkerExit::Dismissed,
            Err(error) => return WorkerExit::ProtocolError(error),
        }
    }
}
