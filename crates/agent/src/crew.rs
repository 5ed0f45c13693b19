//! The process that runs the jobs: started, spoken to, watched, and buried when it dies or hangs.

use crate::Error;
use crate::event::Event;
use crate::home::{Home, Process, unique};
use crate::options::AgentOptions;
use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};
use windlass_client::{Client, Keyring};
use windlass_proc::bury::{self, Deceased, await_called_off, make_sure_dead};
use windlass_proc::identity::{Identity, boot_id, to_pid};
use windlass_proc::{machine, tree};
use windlass_types::work::{AttemptKey, Ended, ToWorker};
use windlass_worker::{Launched, WorkerOptions, read_ends, remove_ends};

/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long its reports gather while it has more to do than it can do at once: a small part of what it is given ahead, so
/// that it never waits for work because of it.
pub(crate) const REPORT_LINGER: Duration = Duration::from_millis(30);
/// How long one that was told to quit may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long what was launched elsewhere may take to be called off.
const CALLING_OFF: Duration = Duration::from_secs(20);
/// It reads all the time; one that does not for so long hangs.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Crew {
    /// Of the processes that this agent has started.
    pub(crate) number: u32,
    pub(crate) process: Process,
    /// Its jobs stand still, as it says itself.
    pub(crate) is_frozen: bool,
    /// Some of its jobs run elsewhere.
    pub(crate) has_launched: bool,
    /// It was sent SIGTERM.
    pub(crate) was_terminated: bool,
    /// A question of ours that it has not answered, since when.
    pub(crate) asked: Option<Instant>,
    child: Child,
    link: UnixStream,
    line: Vec<u8>,
}

/// What a dead worker process noted.
#[derive(Debug)]
pub(crate) struct Remains {
    /// What it had started lately; `None`: unknown.
    pub(crate) started: Option<Vec<AttemptKey>>,
    /// The ends of jobs, also of those that it reported.
    pub(crate) ends: HashMap<AttemptKey, Ended>,
}

impl Crew {
    pub(crate) fn start(
        options: &AgentOptions,
        home: &Home,
        number: u32,
        events: Sender<Event>,
    ) -> Result<Self, Error> {
        let token = unique().map_err(Error::Start)?;
        let ledger = home.ledger(&token);
        let nowhere = home.directory().to_owned();
        let mut worker =
            WorkerOptions::new(options.capacity, nowhere.clone(), nowhere, ledger.clone(), token.clone());
        worker.one_workflow = false;
        worker.gpu_devices.clone_from(&options.gpu_devices);
        worker.timeout_grace = options.grace;
        worker.report_linger = REPORT_LINGER;
        worker.leaves_termination = options.slurm.is_some();
        worker.site.clone_from(&options.site);
        worker.api_url = Some(options.client.url().to_owned());
        worker.program.clone_from(&options.program);
        let mut command = (options.worker_command)();
        options.environment.apply_to(&mut command);
        equip(&mut command, &options.client, home)?;
        let Launched { child, link } = windlass_worker::launch(command, &worker).map_err(Error::Start)?;
        let died = || Error::Start(io::Error::other("it died at once"));
        let identity = Identity::of(child.id()).ok_or_else(died)?;
        link.set_write_timeout(Some(WRITE_PATIENCE)).map_err(Error::Start)?;
        let reader = link.try_clone().map_err(Error::Start)?;
        thread::Builder::new()
            .name("worker-link".to_owned())
            .spawn(move || listen(number, reader, &events))
            .map_err(Error::Start)?;
        let process = Process { pid: identity.pid, start_ticks: identity.start_ticks, token, ledger };
        Ok(Self {
            number,
            process,
            is_frozen: false,
            has_launched: false,
            was_terminated: false,
            asked: None,
            child,
            link,
            line: Vec::new(),
        })
    }

    /// False: it is gone, or does not read.
    pub(crate) fn tell(&mut self, message: &ToWorker) -> bool {
        self.line.clear();
        let written =
            serde_json::to_writer(&mut self.line, message).map_err(io::Error::from).and_then(|()| {
                self.line.push(b'\n');
                self.link.write_all(&self.line)
            });
        written.is_ok()
    }

    /// Lets it go, and makes sure that it went.
    pub(crate) fn dismiss(mut self) -> Result<(), Error> {
        if self.tell(&ToWorker::Quit) {
            tree::await_exit(to_pid(self.process.pid).as_slice(), FAREWELL);
        }
        self.bury().map(drop)
    }

    /// Makes sure that it and everything it started are dead.
    pub(crate) fn bury(mut self) -> Result<Remains, Error> {
        if self.has_launched {
            // Should it only hang: its end is what calls off the rest.
            self.child.kill().ok();
            await_called_off(&self.process.ledger, CALLING_OFF);
        }
        let report = bury(&self.process)?;
        // A zombie is as dead as one that is gone; this only clears it away.
        self.child.wait().ok();
        let ends = read_ends(&self.process.ledger);
        std::fs::remove_file(&self.process.ledger).ok();
        remove_ends(&self.process.ledger);
        Ok(Remains { started: report.started, ends })
    }
}

/// Tells jobs where the server is and by what it is known. Each gets a token of its own besides; that of the agent stays with the
/// agent.
fn equip(command: &mut Command, client: &Client, home: &Home) -> Result<(), Error> {
    if let Some(place) = client.to_keep_for_jobs() {
        Keyring::open(home.directory())?.keep(place)?;
        command.env(crate::KEYRING, home.directory());
    }
    Ok(())
}

/// A process of this boot of this machine.
fn bury(process: &Process) -> Result<bury::Report, Error> {
    let boot_id = boot_id().map_err(bury::Error::BootId)?;
    Ok(bury_of(process, &machine::hostname(), &boot_id)?)
}

/// A process that an earlier agent noted.
pub(crate) fn bury_of(process: &Process, host: &str, boot_id: &str) -> Result<bury::Report, bury::Error> {
    let deceased = Deceased {
        host,
        boot_id,
        process: Identity { pid: process.pid, start_ticks: process.start_ticks },
        token: &process.token,
        ledger: &process.ledger,
        database: None,
    };
    make_sure_dead(&deceased, PATIENCE)
}

fn listen(number: u32, link: UnixStream, events: &Sender<Event>) {
    let mut reader = BufReader::new(link);
    let mut line = Vec::new();
    loop {
        line.clear();
        let whole = matches!(reader.read_until(b'\n', &mut line), Ok(1..)) && line.ends_with(b"\n");
        let Some(message) = whole.then(|| serde_json::from_slice(&line).ok()).flatten() else { break };
        if events.send(Event::Worker(number, message)).is_err() {
            return;
        }
    }
    // If nobody listens any more, nobody needs to know.
    events.send(Event::WorkerGone(number)).ok();
}
