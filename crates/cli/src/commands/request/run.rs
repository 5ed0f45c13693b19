//! `windlass request run`: runs requests on this machine without installing anything. Starts a server that
//! listens on loopback with its own token, and a worker process per site, until the requests have ended.

use super::{documents, watch};
use crate::args::MachineArgs;
use crate::args::request::RequestRunArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::local_run;
use crate::local_worker::LocalWorkerHost;
use crate::spec_file::current_user;
use crate::{classification_rules, server_discovery};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use windlass_client::Client;
use windlass_process::machine::MachineInfo;
use windlass_server::{ApiServer, RunningServer, ServeOptions};
use windlass_store::StoreDatabase;

/// Time for a worker to exit by itself.
const WORKER_STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The sites that this machine simulates.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedSites {
    pub(crate) sites: Vec<String>,
    /// Per site.
    pub(crate) cpus: u32,
    pub(crate) max_jobs: Option<u32>,
    /// Delay before a failed job is retried.
    pub(crate) cool_off: Option<Duration>,
}

impl SimulatedSites {
    pub(crate) fn new(sites: Vec<String>, cpus: Option<u32>, max_jobs: Option<u32>) -> Self {
        let share = MachineInfo::detect().cpus / u32::try_from(sites.len()).unwrap_or(u32::MAX).max(1);
        Self { sites, cpus: cpus.unwrap_or_else(|| share.max(1)), max_jobs, cool_off: None }
    }
}

pub(super) fn run(ctx: &CliContext, args: &RequestRunArgs) -> Result<CliExit, CliError> {
    ctx.refuse_server("this command runs requests on this machine")?;
    let wanted = documents::load_documents(ctx, &args.files, &[], &[])?;
    let database = ctx.open_or_create_local()?;
    if ctx.server()?.is_some() {
        return Err(CliError::refused("a server is already using this database")
            .with_hint("`windlass request submit FILE --watch` submits it to that server"));
    }
    let mut sites = args.sites.clone();
    sites.sort();
    sites.dedup();
    let simulated_sites = SimulatedSites::new(sites, args.num_cpus, args.max_jobs);
    with_local_service(ctx, &ctx.database(), database, &simulated_sites, |requests, stop| {
        let mut names = Vec::new();
        for one in &wanted {
            names.push(requests.submit(&one.document)?.request_name);
        }
        if names.is_empty() {
            names = watch::open_requests(requests)?;
        }
        if names.is_empty() {
            ctx.ui.print_note("no request in this database is active");
            return Ok(CliExit::Success);
        }
        let (watched, is_over) = watch::observe_until_settled(ctx, requests, &names, None, Some(stop))?;
        if ctx.ui.wants_json() {
            ctx.ui.print_json(&watched.last.values().collect::<Vec<_>>())?;
        }
        if !is_over {
            ctx.ui.print_note("interrupted; continue with `windlass request run`");
            return Ok(CliExit::Interrupted);
        }
        Ok(watched.worst_exit())
    })
}

/// Starts a server and workers, calls a function with them, and stops them in any case.
pub(crate) fn with_local_service<T>(
    ctx: &CliContext,
    path: &Path,
    database: Arc<dyn StoreDatabase>,
    simulated_sites: &SimulatedSites,
    work: impl FnOnce(&RequestService, &AtomicBool) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = local_run::listen_for_signals()?;
    let (handle, flag) = (signals.handle(), Arc::clone(&stop));
    let listener = thread::spawn(move || signals.forever().for_each(|_| flag.store(true, Ordering::Relaxed)));
    let done = LocalService::start_service(ctx, path, database, simulated_sites).and_then(|local_service| {
        let done = work(&local_service.requests, &stop);
        let verified = local_service.server.verify();
        local_service.stop(stop.load(Ordering::Relaxed));
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
    requests: RequestService,
    server: RunningServer,
    workers: Vec<Child>,
}

impl LocalService {
    fn start_service(
        ctx: &CliContext,
        path: &Path,
        database: Arc<dyn StoreDatabase>,
        simulated_sites: &SimulatedSites,
    ) -> Result<Self, CliError> {
        let run_dir = server_discovery::server_run_dir(path);
        let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let options = ServeOptions {
            // At the address of the previous server, so that earlier workers can deliver their results.
            listen: server_discovery::last_listen_address(path).unwrap_or(anywhere),
            any_port: true,
            owner: current_user(),
            run_dir: run_dir.clone(),
            earlier_workers: Some(Arc::new(Mutex::new(LocalWorkerHost::new(&MachineArgs::default(), path)))),
            classifier: classification_rules::configured_classifier(ctx)?,
            // Clients that wait for the end of a request reconnect.
            shutdown_grace: Duration::from_secs(1),
            ..ServeOptions::default()
        };
        let mut options = options;
        // This user provides all requests and runs all workers, also for documents that name another requestor.
        options.requests.workflow_owner = Some(options.owner.clone());
        options.requests.cool_off = simulated_sites.cool_off.unwrap_or(options.requests.cool_off);
        let server = ApiServer::start(options, database)?;
        // By its socket, as its workers do: a port could belong to another process.
        let client = server_discovery::find_server(None, ctx.connection_settings(), Some(path))?
            .ok_or_else(|| CliError::io("the server that was just started is gone"))?;
        let logs = run_dir.unwrap_or_else(|| ctx.cwd.clone()).join("workers");
        stop_earlier_workers(&client, &logs, &simulated_sites.sites)?;
        let mut local_service =
            Self { requests: RequestService::Server(Box::new(client)), server, workers: Vec::new() };
        for site in &simulated_sites.sites {
            match start_worker(path, site, simulated_sites, &logs) {
                Ok(worker) => local_service.workers.push(worker),
                Err(error) => {
                    local_service.stop(true);
                    return Err(error);
                }
            }
        }
        Ok(local_service)
    }

    /// Drains the workers; with `now`, terminates their jobs, which are queued again.
    fn stop(mut self, now: bool) {
        let signals = if now { 2 } else { 1 };
        for round in 0..signals {
            self.workers.iter().for_each(|worker| terminate_process(worker.id()));
            if round + 1 < signals {
                // Two pending signals of the same type are merged.
                thread::sleep(Duration::from_millis(200));
            }
        }
        let until = Instant::now() + WORKER_STOP_TIMEOUT;
        for worker in &mut self.workers {
            while matches!(worker.try_wait(), Ok(None)) {
                if Instant::now() >= until {
                    // Its jobs are ended by its worker process, which notices the closed connection.
                    drop(worker.kill());
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        self.server.stop();
    }
}

/// Ends the workers of an earlier call that was killed: their jobs would otherwise stay assigned until the
/// leases expire. This is safe because this process owns the database.
fn stop_earlier_workers(client: &Client, homes: &Path, sites: &[String]) -> Result<(), CliError> {
    for home in fs::read_dir(homes).into_iter().flatten().flatten() {
        let comes_again = sites.iter().any(|site| home.file_name() == **site);
        for windlass_agent::EndedWorker { url, worker } in windlass_agent::end_all_workers(&home.path())? {
            // If the same site is started again, the next worker reports what it held and may deliver results.
            // The others are retired.
            if let Some(worker) = worker.filter(|_| !comes_again || url != client.url()) {
                // Retiring fails for a worker that is already lost and holds nothing.
                drop(client.retire_worker(worker));
            }
        }
    }
    Ok(())
}

fn terminate_process(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // The process may have exited already.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
}

/// In its own process group: an interrupt at the terminal reaches only this process, which then stops the
/// worker.
fn start_worker(
    database: &Path,
    site: &str,
    simulated_sites: &SimulatedSites,
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
        .map_err(|error| CliError::io(format!("cannot find the windlass executable: {error}")))?;
    let mut command = Command::new(&exe);
    command
        .args(["worker", "--persistent", "--site", site])
        .args(["--num-cpus", &simulated_sites.cpus.to_string(), "--give-up-after", "1m"])
        .arg("--state-dir")
        .arg(&home)
        // A URL may contain a password, which a command line would expose.
        .env("WINDLASS_DB", database)
        .env_remove("WINDLASS_URL")
        .env_remove("WINDLASS_TOKEN")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(again)
        .process_group(0);
    if let Some(jobs) = simulated_sites.max_jobs {
        command.args(["--max-jobs", &jobs.to_string()]);
    }
    command.spawn().map_err(|error| wrong("start", &exe, error))
}
