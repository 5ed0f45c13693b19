//! A worker's whole life: what all its threads share, the loop that reads the link, and the end.

use crate::end_log::EndLog;
use crate::environment::THREADS;
use crate::held_ends::HeldEnds;
use crate::lease::Lease;
use crate::lock;
use crate::options::WorkerOptions;
use crate::outbox::Outbox;
use crate::recorder::CannotRecord;
use crate::site::Sites;
use crate::supervise::Alarm;
use crate::yard::Yard;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use windlass_proc::cgroup::{Cgroups, Places};
use windlass_proc::identity::{FileIdentity, Identity};
use windlass_proc::ledger::Ledger;
use windlass_proc::procfs::Adopted;
use windlass_proc::signals::Termination;
use windlass_proc::{ledger, sample, session, signals, spawn, wait};
use windlass_types::Clock;
use windlass_types::work::{FromWorker, ToWorker};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot talk to the engine: {0}")]
    Link(#[source] io::Error),
    #[error("the engine said something that is not understood: {0}")]
    Message(#[source] serde_json::Error),
    #[error("cannot set this process up as a worker: {0}")]
    Setup(#[source] io::Error),
    #[error("cannot create the directory for logs in {path}: {source}")]
    Logs { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Series(#[from] CannotRecord),
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    #[error(transparent)]
    Spawner(#[from] spawn::Error),
}

/// What the threads of a worker share.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) options: WorkerOptions,
    pub(crate) clock: Clock,
    pub(crate) devices: Vec<String>,
    pub(crate) ledger: Ledger,
    pub(crate) sites: Mutex<Sites>,
    pub(crate) lease: Lease,
    pub(crate) threads_unsaid: bool,
    pub(crate) adopted: Adopted,
    pub(crate) reaping: Mutex<()>,
    pub(crate) outbox: Outbox,
    pub(crate) held_ends: HeldEnds,
    pub(crate) end_log: EndLog,
    /// The engine has said what becomes of the jobs.
    pub(crate) is_told_to_stop: AtomicBool,
    pub(crate) alarm: Alarm,
    pub(crate) yard: Mutex<Yard>,
    /// Slots without work wait here.
    pub(crate) work: Condvar,
    /// Our own memory peak when last looked at.
    pub(crate) own_peak: AtomicU64,
    pub(crate) cgroups: Option<Cgroups>,
}

/// Why a worker ends.
enum Farewell {
    Dismissed,
    /// The engine is gone, or we were told to terminate.
    LinkLost,
    Confused(serde_json::Error),
}

/// Serves one engine until it dismisses us or is gone. Takes the whole process over: call it on the main thread of a
/// process that starts nothing else.
pub fn serve(options: WorkerOptions, link: UnixStream) -> Result<(), Error> {
    // A copy is closed on exec, whatever the original was: jobs must not hold the link open.
    let own = link.try_clone().map_err(Error::Link)?;
    drop(link);
    serve_buffered(options, BufReader::new(own))
}

pub(crate) fn serve_buffered(options: WorkerOptions, mut link: BufReader<UnixStream>) -> Result<(), Error> {
    session::lead().map_err(Error::Setup)?;
    signals::ignore_interrupt().map_err(Error::Setup)?;
    let termination = Termination::listen().map_err(Error::Setup)?;
    if options.leaves_termination {
        signals::ignore_termination().map_err(Error::Setup)?;
    }
    wait::become_subreaper().map_err(Error::Setup)?;
    let worker = Arc::new(Worker::new(options, link.get_ref().try_clone().map_err(Error::Link)?)?);
    let own_end = link.get_ref().try_clone().map_err(Error::Link)?;
    worker.heed_termination(termination, own_end).map_err(Error::Setup)?;
    worker.outbox.send_now(&FromWorker::Hello { capacity: worker.options.capacity });

    let supervisor = worker.thread("supervisor", Worker::supervise)?;
    let sender = worker.thread("sender", |worker| worker.outbox.send_lingering())?;
    let farewell = listen(&worker, &mut link);
    worker.close_yard();
    worker.call_off_all();
    // After a dismissal nothing should be there to kill. If there is, nobody would ever stop it again.
    worker.kill_everything();
    worker.join_slots();
    worker.outbox.close();
    worker.alarm.close();
    for thread in [supervisor, sender] {
        // One that panicked has said so on standard error.
        thread.join().ok();
    }
    match farewell {
        Farewell::Dismissed | Farewell::LinkLost => Ok(()),
        Farewell::Confused(error) => Err(Error::Message(error)),
    }
}

impl Worker {
    pub(crate) fn new(options: WorkerOptions, link: UnixStream) -> Result<Self, Error> {
        let own = Identity::own().map_err(Error::Setup)?;
        let cgroups = if options.cgroups { Cgroups::create(&Places::of_this_process(), own) } else { None };
        let database = options.database.as_deref().and_then(FileIdentity::of);
        let numbered =
            (options.gpu_devices.len()..options.capacity.gpus as usize).map(|index| index.to_string());
        Ok(Self {
            clock: Clock,
            devices: options.gpu_devices.iter().cloned().chain(numbered).collect(),
            sites: Mutex::new(Sites::new(&options)?),
            lease: Lease::default(),
            ledger: Ledger::create(&options.ledger, cgroups.as_ref().map(Cgroups::directory), database)?,
            threads_unsaid: std::env::var_os(THREADS).is_none(),
            adopted: Adopted::open(),
            reaping: Mutex::new(()),
            outbox: Outbox::new(link, options.report_linger),
            held_ends: HeldEnds::new(options.leaves_termination),
            end_log: EndLog::beside(&options.ledger),
            is_told_to_stop: AtomicBool::new(false),
            alarm: Alarm::default(),
            yard: Mutex::new(Yard::new(options.capacity)),
            work: Condvar::new(),
            own_peak: AtomicU64::new(sample::own_peak_rss().map_or(0, |peak| peak.0)),
            cgroups,
            options,
        })
    }

    fn thread(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<thread::JoinHandle<()>, Error> {
        let worker = Arc::clone(self);
        thread::Builder::new().name(name.to_owned()).spawn(move || body(&worker)).map_err(Error::Setup)
    }
}

/// Does what the engine says, until it says nothing more.
fn listen(worker: &Arc<Worker>, link: &mut BufReader<UnixStream>) -> Farewell {
    let mut line = Vec::new();
    loop {
        line.clear();
        match link.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Farewell::LinkLost,
            // Cut off in the middle of a message: the engine died while it wrote.
            Ok(_) if !line.ends_with(b"\n") => return Farewell::LinkLost,
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(ToWorker::Assign(assignments)) => {
                worker.held_ends.on_assigned();
                worker.assign(assignments);
            }
            Ok(ToWorker::Workflow(site)) => lock(&worker.sites).introduce(*site),
            Ok(ToWorker::Forget(workflow)) => lock(&worker.sites).forget(workflow),
            Ok(ToWorker::Lease(until)) => worker.renew_lease(until),
            Ok(ToWorker::Stop { why, grace }) => worker.stop(why, grace),
            Ok(ToWorker::StopSome(order)) => worker.stop_some(&order),
            Ok(ToWorker::Recall) => worker.recall(|_| true),
            Ok(ToWorker::Quit) => return Farewell::Dismissed,
            Err(error) => return Farewell::Confused(error),
        }
    }
}
