//! `windlass request run`: requests carried out on this machine, with nothing to install. A server that listens on
//! loopback with a token of its own, and a worker process for each site, for as long as it takes.

use super::{documents, watch};
use crate::args::request::RunArgs;
use crate::context::Context;
use crate::desk::Desk;
use crate::drive;
use crate::error::{CliError, Exit};
use crate::local;
use crate::plan::current_user;
use crate::{rules, server};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use windlass_client::Client;
use windlass_proc::machine::Machine;
use windlass_server::{Running, ServeOptions, Server};
use windlass_store::Database;

/// What a worker gets to leave by itself, in the end.
const LEAVE_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The sites that this machine pretends to be.
#[derive(Clone, Debug)]
pub(crate) struct Pretence {
    pub(crate) sites: Vec<String>,
    /// Of each.
    pub(crate) cpus: u32,
    pub(crate) max_jobs: Option<u32>,
    /// Before a job that failed is tried again.
    pub(crate) cool_off: Option<Duration>,
}

impl Pretence {
    pub(crate) fn new(sites: Vec<String>, cpus: Option<u32>, max_jobs: Option<u32>) -> Self {
        let share = Machine::detect().cpus / u32::try_from(sites.len()).unwrap_or(u32::MAX).max(1);
        Self { sites, cpus: cpus.unwrap_or_else(|| share.max(1)), max_jobs, cool_off: None }
    }
}

pub(super) fn run(ctx: &Context, args: &RunArgs) -> Result<Exit, CliError> {
    ctx.refuse_server("this runs requests on this machine")?;
    let wanted = documents::load(ctx, &args.files, &[], &[])?;
    let database = ctx.open_here_or_create()?;
    if ctx.server()?.is_some() {
        return Err(CliError::refused("a server has this database already")
            .with_hint("`windlass request submit FILE --watch` gives it to that server and its workers"));
    }
    let mut sites = args.sites.clone();
    sites.sort();
    sites.dedup();
    let pretence = Pretence::new(sites, args.num_cpus, args.max_jobs);
    carry_out(ctx, &ctx.database(), database, &pretence, |desk, stop| {
        let mut names = Vec::new();
        for one in &wanted {
            names.push(desk.submit(&one.document)?.request_name);
        }
        if names.is_empty() {
            names = watch::open(desk)?;
        }
        if names.is_empty() {
            ctx.ui.note("no request in these books is under way");
            return Ok(Exit::Success);
        }
        let (watched, is_over) = watch::observe(ctx, desk, &names, None, Some(stop))?;
        if ctx.ui.json_wanted() {
            ctx.ui.print_json(&watched.last.values().collect::<Vec<_>>())?;
        }
        if !is_over {
            ctx.ui.note("interrupted; `windlass request run` goes on");
            return Ok(Exit::Interrupted);
        }
        Ok(watched.exit())
    })
}

/// Starts a server and workers, has something done with them, and ends them, whatever came of it.
pub(crate) fn carry_out<T>(
    ctx: &Context,
    path: &Path,
    database: Arc<dyn Database>,
    pretence: &Pretence,
    work: impl FnOnce(&Desk, &AtomicBool) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = drive::listen_for_signals()?;
    let (handle, flag) = (signals.handle(), Arc::clone(&stop));
    let listener = thread::spawn(move || signals.forever().for_each(|_| flag.store(true, Ordering::Relaxed)));
    let done = Scene::start(ctx, path, database, pretence).and_then(|scene| {
        let done = work(&scene.desk, &stop);
        let verified = scene.server.verify();
        scene.end(stop.load(Ordering::Relaxed));
        let done = done?;
        verified?;
        Ok(done)
    });
    handle.close();
    drop(listener.join());
    done
}

/// A server and its workers.
struct Scene {
    desk: Desk,
    server: Running,
    workers: Vec<Child>,
}

impl Scene {
    fn start(
        ctx: &Context,
        path: &Path,
        database: Arc<dyn Database>,
        pretence: &Pretence,
    ) -> Result<Self, CliError> {
        let (run_dir, of_worker) = (server::run_dir(path), path.to_owned());
        let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let options = ServeOptions {
            // Where an earlier one was: what its workers could not deliver is meant for us.
            listen: server::last_address(path).unwrap_or(anywhere),
            any_port: true,
            owner: current_user(),
            run_dir: run_dir.clone(),
            bury: Some(Arc::new(move |worker| local::bury(worker, &of_worker).is_ok())),
            classifier: rules::of_settings(ctx)?,
            // Those who wait for the end of a request are told when they ask again.
            shutdown_grace: Duration::from_secs(1),
            ..ServeOptions::default()
        };
        let mut options = options;
        options.requests.cool_off = pretence.cool_off.unwrap_or(options.requests.cool_off);
        let server = Server::start(options, database)?;
        // By its socket, as its workers find it: a port could be another process's.
        let client = server::find(None, ctx.manner(), Some(path))?
            .ok_or_else(|| CliError::io("the server that was just started is gone"))?;
        let logs = run_dir.unwrap_or_else(|| ctx.cwd.clone()).join("workers");
        end_earlier(&client, &logs, &pretence.sites)?;
        let mut scene = Self { desk: Desk::Server(Box::new(client)), server, workers: Vec::new() };
        for site in &pretence.sites {
            match start_worker(path, site, pretence, &logs) {
                Ok(worker) => scene.workers.push(worker),
                Err(error) => {
                    scene.end(true);
                    return Err(error);
                }
            }
        }
        Ok(scene)
    }

    /// The workers leave; with `now`, what they run is stopped and goes back to be run again.
    fn end(mut self, now: bool) {
        let signals = if now { 2 } else { 1 };
        for round in 0..signals {
            self.workers.iter().for_each(|worker| terminate(worker.id()));
            if round + 1 < signals {
                // Two that come at once are one.
                thread::sleep(Duration::from_millis(200));
            }
        }
        let until = Instant::now() + LEAVE_WITHIN;
        for worker in &mut self.workers {
            while matches!(worker.try_wait(), Ok(None)) {
                if Instant::now() >= until {
                    // What it runs is ended by its own worker process, which sees the end of the line.
                    drop(worker.kill());
                }
                thread::sleep(LOOK_EVERY);
            }
        }
        self.server.stop();
    }
}

/// Ends the workers of an earlier call that was killed: what they held would be theirs until their leases are over. They
/// are nobody's: the books are ours.
fn end_earlier(client: &Client, homes: &Path, sites: &[String]) -> Result<(), CliError> {
    for home in fs::read_dir(homes).into_iter().flatten().flatten() {
        let comes_again = sites.iter().any(|site| home.file_name() == **site);
        for windlass_agent::Ended { url, worker } in windlass_agent::end_all(&home.path())? {
            // The next worker there says what it held, and may have results of it. For others nobody speaks.
            if let Some(worker) = worker.filter(|_| !comes_again || url != client.url()) {
                // One that is given up already has nothing any more.
                drop(client.retire_worker(worker));
            }
        }
    }
    Ok(())
}

fn terminate(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // It may have left already.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
}

/// In a group of its own: an interrupt at the terminal is for us, who then tell it.
fn start_worker(database: &Path, site: &str, pretence: &Pretence, logs: &Path) -> Result<Child, CliError> {
    let wrong = |what: &str, path: &Path, error: std::io::Error| {
        CliError::io(format!("cannot {what} {}: {error}", path.display()))
    };
    let home = logs.join(site);
    fs::create_dir_all(&home).map_err(|error| wrong("make", &home, error))?;
    let log_path: PathBuf = home.join("worker.log");
    let log = File::create(&log_path).map_err(|error| wrong("write", &log_path, error))?;
    let again = log.try_clone().map_err(|error| wrong("write", &log_path, error))?;
    let exe = std::env::current_exe()
        .map_err(|error| CliError::io(format!("cannot find windlass itself: {error}")))?;
    let mut command = Command::new(&exe);
    command
        .args(["worker", "--persistent", "--site", site])
        .args(["--num-cpus", &pretence.cpus.to_string(), "--give-up-after", "1m"])
        .arg("--state-dir")
        .arg(&home)
        // A URL may hold a password, which a command line would show.
        .env("WINDLASS_DB", database)
        .env_remove("WINDLASS_URL")
        .env_remove("WINDLASS_TOKEN")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(again)
        .process_group(0);
    if let Some(jobs) = pretence.max_jobs {
        command.args(["--max-jobs", &jobs.to_string()]);
    }
    command.spawn().map_err(|error| wrong("start", &exe, error))
}
