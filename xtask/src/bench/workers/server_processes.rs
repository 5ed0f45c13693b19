//! A server and its workers, as processes.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cpu_usage::CpuUse;
use super::http::Http;
use super::options::Options;
use super::server_under_test::{ServerUnderTest, WorkerSettings};
use crate::shell::output;

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);

pub(in crate::bench) struct ServerProcesses<'a> {
    side: &'a dyn ServerUnderTest,
    place: &'a Path,
    address: String,
    token: Option<String>,
    server: Child,
    workers: Vec<Child>,
    /// Whether the workers belong to one workflow and end with it.
    are_bound: bool,
    /// The CPU time used before the first job.
    before: CpuUse,
}

impl<'a> ServerProcesses<'a> {
    pub(in crate::bench) fn serve(side: &'a dyn ServerUnderTest, place: &'a Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let mut server = spawn(&mut side.serve(port), &place.join("server.log"))?;
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while TcpStream::connect(&address).is_err() || side.token().is_err() {
            if let Some(status) = server.try_wait()? {
                let log = fs::read_to_string(place.join("server.log"))?;
                bail!("the server ended: {status}\n{log}");
            }
            if Instant::now() > deadline {
                server.kill()?;
                server.wait()?;
                bail!("the server does not come up");
            }
            thread::sleep(PAUSE);
        }
        let token = side.token()?;
        Ok(Self {
            side,
            place,
            address,
            token,
            server,
            workers: Vec::new(),
            are_bound: false,
            before: CpuUse::default(),
        })
    }

    pub(in crate::bench) fn http(&self) -> Http {
        Http::new(&self.address, self.token.as_deref())
    }

    pub(in crate::bench) fn submit(&self, name: &str, spec: &str) -> Result<i64> {
        let file = self.place.join(format!("{name}.yaml"));
        fs::write(&file, spec).with_context(|| format!("cannot write {}", file.display()))?;
        self.side.submit(&self.http(), self.token.as_deref(), &file)
    }

    /// Starts the workers, unless they run already or need a workflow first. Workers that need no workflow are
    /// idle when this returns; the start of the others is part of the measurement.
    pub(in crate::bench) fn add_workers(&mut self, options: &Options, workflow: Option<i64>) -> Result<()> {
        if !self.workers.is_empty() {
            return Ok(());
        }
        self.are_bound = workflow.is_some();
        self.before = self.look()?;
        for number in 0..options.workers {
            let worker_settings = WorkerSettings {
                origin: self.http().origin(),
                token: self.token.as_deref(),
                slots: options.slots,
                number,
            };
            let Some(mut command) = self.side.worker(&worker_settings, workflow) else { return Ok(()) };
            let log = self.place.join(format!("worker-{number}.log"));
            self.workers.push(spawn(&mut command, &log)?);
        }
        if workflow.is_none() {
            wait_for_workers(&self.http(), options.workers)?;
            self.before = self.look()?;
        }
        Ok(())
    }

    /// The CPU time used since the workers started.
    pub(in crate::bench) fn cpu(&self) -> Result<CpuUse> {
        Ok(self.look()?.since(self.before))
    }

    fn look(&self) -> Result<CpuUse> {
        let workers: Vec<u32> = self.workers.iter().map(Child::id).collect();
        CpuUse::look(self.server.id(), self.side.database()?, &workers)
    }

    /// Ends workers that cannot serve another workflow.
    pub(in crate::bench) fn dismiss_bound_workers(&mut self) -> Result<()> {
        if self.are_bound { self.dismiss_workers() } else { Ok(()) }
    }

    pub(in crate::bench) fn dismiss_workers(&mut self) -> Result<()> {
        for child in &self.workers {
            terminate(child);
        }
        for mut child in self.workers.drain(..) {
            child.wait()?;
        }
        Ok(())
    }

    pub(in crate::bench) fn end(mut self) -> Result<()> {
        terminate(&self.server);
        self.server.wait()?;
        for log in self.side.logs().into_iter().chain([self.place.join("server.log")]) {
            let text = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
            let locked = text.lines().find(|line| line.to_lowercase().contains("database is locked"));
            ensure!(locked.is_none(), "{} speaks of locks: {}", log.display(), locked.unwrap_or_default());
        }
        Ok(())
    }
}

impl Drop for ServerProcesses<'_> {
    /// Kills the processes when a failure ends the benchmark early.
    fn drop(&mut self) {
        for child in self.workers.iter_mut().chain([&mut self.server]) {
            child.kill().unwrap_or_default();
            child.wait().ok();
        }
    }
}

/// Waits until all workers have registered.
fn wait_for_workers(http: &Http, count: usize) -> Result<()> {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let list = http.get_own("/workers?is_active=true")?;
        if list["items"].as_array().is_some_and(|workers| workers.len() >= count) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the workers do not come up: {list}");
        thread::sleep(PAUSE);
    }
}

pub(in crate::bench) fn wait_until_complete(http: &Http, workflow: i64, patience: Duration) -> Result<()> {
    let path = format!("/workflows/{workflow}/is_complete");
    let deadline = Instant::now() + patience;
    while http.get(&path)?["is_complete"] != true {
        ensure!(Instant::now() < deadline, "the jobs do not end within {} s", patience.as_secs());
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn spawn(command: &mut Command, log: &Path) -> Result<Child> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdout(file.try_clone()?).stderr(file).stdin(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// Sends SIGTERM to a process, which may have ended by itself.
fn terminate(child: &Child) {
    output(Command::new("kill").args(["-s", "TERM", &child.id().to_string()])).ok();
}
