//! `windlass request run`: requests carried out on this machine, with nothing to install. A server that listens on
//! loopback with a token of its own, and a worker process for each site, for as long as it takes.

use super::{documents, watch};
use crate::args::request::RequestRunArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::local_run;
use crate::local_worker;
use crate::spec_file::current_user;
use crate::{classification_rules, server_discovery};
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
use windlass_process::machine::MachineInfo;
use windlass_server::{ApiServer, RunningServer, ServeOptions};
use windlass_store::StoreDatabase;

/// What a worker gets to leave by itself, in the end.
const WORKER_STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The sites that this machine pretends to be.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedSites {
    pub(crate) sites: Vec<String>,
    /// Of each.
    pub(crate) cpus: u32,
    pub(crate) max_jobs: Option<u32>,
    /// Before a job that failed is tried again.
    pub(crate) cool_off: Option<Duration>,
}

impl SimulatedSites {
    pub(crate) fn new(sites: Vec<String>, cpus: Option<u32>, max_jobs: Option<u32>) -> Self {
        let share = MachineInfo::detect().cpus / u32::try_from(sites.len()).unwrap_or(u32::MAX).max(1);
        Self { sites, cpus: cpus.unwrap_or_else(|| share.max(1)), max_jobs, cool_off: None }
    }
}

pub(super) fn run(ctx: &CliContext, args: &RequestRunArgs) -> Result<CliExit, CliError> {
    ctx.refuse_server("this runs requests on this machine")?;
    let wanted = documents::load_documents(ctx, &args.files, &[], &[])?;
    let database = ctx.open_or_create_local()?;
    if ctx.server()?.is_some() {
        return Err(CliError::refused("a server has this database already")
            .with_hint("`windlass request submit FILE --watch` gives it to that server and its workers"));
    }
    let mut sites = args.sites.clone();
    sites.sort();
    sites.dedup();
    let pretence = SimulatedSites::new(sites, args.num_cpus, args.max_jobs);
    with_local_service(ctx, &ctx.database(), database, &pretence, |desk, stop| {
        let mut names = Vec::new();
        for one in &wanted {
            names.push(desk.submit(&one.document)?.request_name);
        }
        if names.is_empty() {
            names = watch::open_requests(desk)?;
        }
        if names.is_empty() {
            ctx.ui.print_note("no request in these books is under way");
            return Ok(CliExit::Success);
        }
        let (watched, is_over) = watch::observe_until_settled(ctx, desk, &names, None, Some(stop))?;
        if ctx.ui.wants_json() {
            ctx.ui.print_json(&watched.last.values().collect::<Vec<_>>())?;
        }
        if !is_over {
            ctx.ui.print_note("interrupted; `windlass request run` goes on");
            return Ok(CliExit::Interrupted);
        }
        Ok(watched.worst_exit())
    })
}

/// Starts a server and workers, has something done with them, and ends them, whatever came of it.
pub(crate) fn with_local_service<T>(
    ctx: &CliContext,
    path: &Path,
    database: Arc<dyn StoreDatabase>,
    pretence: &SimulatedSites,
    work: impl FnOnce(&RequestService, &AtomicBool) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = local_run::listen_for_signals()?;
    let (handle, flag) = (signals.handle(), Arc::clone(&stop));
    let listener = thread::spawn(move || signals.forever().for_each(|_| flag.store(true, Ordering::Relaxed)));
    let done = LocalService::start_service(ctx, path, database, pretence).and_then(|scene| {
        let done = work(&scene.desk, &stop);
        let verified = scene.server.verify();
        scene.stop(stop.load(Ordering::Relaxed));
        let done = done?;
        verified?;
        Ok(done)
    });
    handle.close();
    drop(listener.join());
    done
}

/// A server and its workers.
struct LocalService {
    desk: RequestService,
    server: RunningServer,
    workers: Vec<Child>,
}

impl LocalService {
    fn start_service(
        ctx: &CliContext,
        path: &Path,
        database: Arc<dyn StoreDatabase>,
        pretence: &SimulatedSites,
    ) -> Result<Self, CliError> {
        let (run_dir, of_worker) = (server_discovery::server_run_dir(path), path.to_owned());
        let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let options = ServeOptions {
            // Where an earlier one was: what its workers could not deliver is meant for us.
            listen: server_discovery::last_listen_address(path).unwrap_or(anywhere),
            any_port: true,
            owner: current_user(),
            run_dir: run_dir.clone(),
            ensure_dead: Some(Arc::new(move |worker| {
                local_worker::ensure_worker_dead(worker, &of_worker).is_ok()
            })),
            classifier: classification_rules::configured_classifier(ctx)?,
            // Those who wait for the end of a request are told when they ask again.
            shutdown_grace: Duration::from_secs(1),
            ..ServeOptions::default()
        };
        let mut options = options;
        options.requests.cool_off = pretence.cool_off.unwrap_or(options.requests.cool_off);
        let server = ApiServer::start(options, database)?;
        // By its socket, as its workers find it: a port could be another process's.
        let client = server_discovery::find_server(None, ctx.connection_settings(), Some(path))?
            .ok_or_else(|| CliError::io("the server that was just started is gone"))?;
        let logs = run_dir.unwrap_or_else(|| ctx.cwd.clone()).join("workers");
        stop_earlier_workers(&client, &logs, &pretence.sites)?;
        let mut scene = Self { desk: RequestService::Server(Box::new(client)), server, workers: Vec::new() };
        for site in &pretence.sites {
            match start_worker(path, site, pretence, &logs) {
                Ok(worker) => scene.workers.push(worker),
                Err(error) => {
                    scene.stop(true);
                    return Err(error);
                }
            }
        }
        Ok(scene)
    }

    /// The workers leave; with `now`, what they run is stopped and goes back to be run again.
    fn stop(mut self, now: bool) {
        let signals = if now { 2 } else { 1 };
        for round in 0..signals {
            self.workers.iter().for_each(|worker| terminate_process(worker.id()));
            if round + 1 < signals {
                // Two that come at once are one.
                thread::sleep(Duration::from_millis(200));
            }
        }
        let until = Instant::now() + WORKER_STOP_TIMEOUT;
        for worker in &mut self.workers {
            while matches!(worker.try_wait(), Ok(None)) {
                if Instant::now() >= until {
                    // What it runs is ended by its own worker process, which sees the end of the line.
                    drop(worker.kill());
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        self.server.stop();
    }
}

/// Ends the workers of an earlier call that was killed: what they held would be theirs until their leases are over. They
/// are nobody's: the books are ours.
fn stop_earlier_workers(client: &Client, homes: &Path, sites: &[String]) -> Result<(), CliError> {
    for home in fs::read_dir(homes).into_iter().flatten().flatten() {
        let comes_again = sites.iter().any(|site| home.file_name() == **site);
        for windlass_agent::EndedWorker { url, worker } in windlass_agent::end_all_workers(&home.path())? {
            // The next worker there says what it held, and may have results of it. For others nobody speaks.
            if let Some(worker) = worker.filter(|_| !comes_again || url != client.url()) {
                // One that is given up already has nothing any more.
                drop(client.retire_worker(worker));
            }
        }
    }
    Ok(())
}

fn terminate_process(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // It may have left already.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
}

/// In a group of its own: an interrupt at the terminal is for us, who then tell it.
fn start_worker(
    database: &Path,
    site: &str,
    pretence: &SimulatedSites,
    logs: &Path,
) -> Result<Child, CliError> {
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
